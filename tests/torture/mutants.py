"""Mutation testing: small changes to the core modules, one at a time; the tests of a module should notice each of them.

    python tests/torture/mutants.py                     # 40 mutants
    python tests/torture/mutants.py --mutants 500 --seed 1 --seconds 600
    python tests/torture/mutants.py --repeat-survivors  # after tests were added

A mutant is a copy of the package with one operator, constant, condition or statement changed. It is noticed where a
test of its module fails, or takes much longer than it should. Tests that run its line come first, then the others.
Figures add up: a run goes on where the last one of its seed stopped. Mutants that no test notices are listed: each
either shows a missing test, or changes nothing that can be seen; `equivalent_mutants.json` says why of the latter.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from mutant_tests import ModuleTests, copy_of_project  # noqa: E402

RESULTS = Path(__file__).with_name("results") / "mutants.json"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
# Core modules and the tests that cover them.
COVERED = {
    "ntmp_cli/counting/poisson_binomial.py": "tests/counting/test_poisson_binomial.py "
    "tests/counting/test_every_kind.py tests/counting/test_large.py tests/counting/test_objective.py "
    "tests/learning/test_count_kernel.py",
    "ntmp_cli/counting/recalibration.py": "tests/counting/test_recalibration.py",
    "ntmp_cli/counting/calibrated_fit.py": "tests/counting/test_calibrated_fit.py",
    "ntmp_cli/counting/objective.py": "tests/counting/test_objective.py tests/counting/test_every_kind.py",
    "ntmp_cli/prior/moments.py": "tests/prior/test_moments.py tests/prior/test_estimate.py",
    "ntmp_cli/prior/binned_sums.py": "tests/prior/test_binned_sums.py tests/prior/test_likelihood.py "
    "tests/prior/test_moments.py tests/prior/test_tails.py",
    "ntmp_cli/theory/variance.py": "tests/theory/test_variance.py",
    "ntmp_cli/theory/bias.py": "tests/theory/test_bias.py",
    "ntmp_cli/theory/identifiability.py": "tests/theory/test_identifiability.py",
    "ntmp_cli/evaluation/metrics.py": "tests/evaluation/test_metrics.py",
    "ntmp_cli/evaluation/calibration.py": "tests/evaluation/test_calibration.py tests/evaluation/test_diagrams.py",
    "ntmp_cli/evaluation/significance.py": "tests/evaluation/test_significance.py",
    "ntmp_cli/evaluation/rankings.py": "tests/evaluation/test_rankings.py",
    "ntmp_cli/data/specs.py": "tests/data/test_specs.py tests/data/test_sampling.py",
    "ntmp_cli/data/sampling.py": "tests/data/test_sampling.py",
    "ntmp_cli/data/formats.py": "tests/data/test_formats.py tests/data/test_hostile_files.py",
    "ntmp_cli/artifacts/publish.py": "tests/artifacts/test_publish.py tests/artifacts/test_overlap.py "
    "tests/artifacts/test_long_fields.py",
    "ntmp_cli/artifacts/locking.py": "tests/artifacts/test_publish.py tests/artifacts/test_writing.py",
    "ntmp_cli/artifacts/writing.py": "tests/artifacts/test_writing.py",
    "ntmp_cli/artifacts/manifest.py": "tests/artifacts/test_manifest.py tests/artifacts/test_summaries.py "
    "tests/artifacts/test_publish.py",
    "ntmp_cli/artifacts/checkpoints.py": "tests/artifacts/test_checkpoints.py",
    "ntmp_cli/artifacts/shards.py": "tests/artifacts/test_shards.py tests/stages/test_make_tuples.py",
    "ntmp_cli/learning/groups.py": "tests/learning/test_groups.py tests/learning/test_orientation.py "
    "tests/learning/test_risk.py tests/theory/test_variance.py",
    "ntmp_cli/learning/risk.py": "tests/learning/test_risk.py tests/learning/methods/test_ure_tuple_weights.py",
    "ntmp_cli/sweeps/windows.py": "tests/sweeps/test_windows.py",
    "ntmp_cli/unpacking.py": "tests/data/test_hostile_files.py",
    "ntmp_cli/plain_text.py": "tests/test_plain_text.py",
    "ntmp_cli/settings.py": "tests/test_settings.py tests/test_train_config.py",
}
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """The `number`-th possible change of a module."""

    module: str
    number: int
    line: int
    what: str
    text: str
    """The line before the change: it names the place where lines have moved."""


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every place that can be changed, with what is done there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED and not _is_text(node):
            yield node, f"{type(node.op).__name__} becomes {SWAPPED[type(node.op)].__name__}"
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            yield node, f"{type(node.ops[0]).__name__} becomes {SWAPPED[type(node.ops[0])].__name__}"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield node, f"{type(node.op).__name__} is dropped"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, f"{node.value} becomes {node.value + 1}"
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, f"{node.value} becomes {not node.value}"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, "the condition is negated"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "the statement is dropped"


def _is_text(node: ast.AST) -> bool:
    """Texts are joined by +: no arithmetic."""
    return any(
        isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str | bytes))
        for child in ast.walk(node)
    )


def apply(tree: ast.Module, number: int) -> str:
    """The source with its `number`-th change."""
    node, _ = list(changes(tree))[number]
    match node:
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
        case ast.Compare():
            node.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[assignment]
        case ast.UnaryOp():
            _replace(tree, node, node.operand)
        case ast.Constant():
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Expr():
            _replace(tree, node, ast.Pass())
    return ast.unparse(ast.fix_missing_locations(tree))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is old else item for item in value]


def places(module: str) -> list[Mutant]:
    """Every mutant of a module."""
    source = (ROOT / module).read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    named = {id(c) for n in ast.walk(tree) for c in ast.walk(getattr(n, "annotation", None) or ast.Pass())}
    found = []
    for at, (node, what) in enumerate(changes(tree)):
        if id(node) not in named:
            line = getattr(node, "lineno", 0)
            found.append(Mutant(module, at, line, what, lines[line - 1].strip()))
    return found


def sample(number: int, seed: int) -> list[Mutant]:
    """Mutants of all modules, each place as probable as any other; a larger sample begins with a smaller one."""
    every = [mutant for module in COVERED for mutant in places(module)]
    random.Random(f"mutants {seed}").shuffle(every)
    return every[:number]


class Laboratory:
    """A copy of the project in which one module at a time is changed."""

    def __init__(self, folder: Path, maps: Path) -> None:
        self._folder, self._maps = copy_of_project(ROOT, folder), maps
        self._tests: dict[str, ModuleTests] = {}

    def is_noticed(self, mutant: Mutant) -> bool:
        """Whether a test of the module fails with the change."""
        if mutant.module not in self._tests:
            self._tests[mutant.module] = ModuleTests.found(
                mutant.module, COVERED[mutant.module], self._folder, self._maps
            )
        target = self._folder / mutant.module
        before = target.read_text(encoding="utf-8")
        target.write_text(apply(ast.parse(before), mutant.number), encoding="utf-8")
        try:
            return self._tests[mutant.module].fail(mutant.line, self._folder)
        finally:
            target.write_text(before, encoding="utf-8")


@dataclass
class Figures:
    """All mutants that were tried."""

    name: str = "mutants"
    cases: int = 0
    noticed: int = 0
    seconds: float = 0.0
    done: dict[str, int] = field(default_factory=dict)
    by_module: dict[str, int] = field(default_factory=dict)
    survivors: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Figures:
        return cls(**json.loads(file.read_text())) if file.exists() else cls()

    def write(self, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    def add(self, mutant: Mutant, *, noticed: bool) -> None:
        self.cases += 1
        self.noticed += noticed
        self.by_module[mutant.module] = self.by_module.get(mutant.module, 0) + 1
        if not noticed:
            self.survivors.append(asdict(mutant))


def go_on(figures: Figures, laboratory: Laboratory, chosen: argparse.Namespace) -> None:
    """So many more mutants of the seed."""
    began, done = time.monotonic(), figures.done.get(str(chosen.seed), 0)
    mutants = sample(done + chosen.mutants, chosen.seed)
    for number in range(done, len(mutants)):
        if time.monotonic() - began > chosen.seconds:
            break
        mutant, before = mutants[number], time.monotonic()
        noticed = laboratory.is_noticed(mutant)
        figures.add(mutant, noticed=noticed)
        figures.done[str(chosen.seed)] = number + 1
        figures.seconds = round(figures.seconds + time.monotonic() - before, 1)
        figures.write(chosen.results)
        if not noticed:
            print(f"{mutant.module}:{mutant.line}: {mutant.what}: not noticed: {mutant.text}", flush=True)  # noqa: T201


def repeat_survivors(figures: Figures, laboratory: Laboratory, results: Path) -> None:
    """Try again what no test noticed and is not known to change nothing; places that are gone are left out."""
    equivalent = {(known["module"], known["text"], known["what"]) for known in json.loads(EQUIVALENT.read_text())}
    for survivor in list(figures.survivors):
        if (survivor["module"], survivor["text"], survivor["what"]) in equivalent:
            continue
        alike = [m for m in places(survivor["module"]) if (m.what, m.text) == (survivor["what"], survivor["text"])]
        if not alike:
            figures.cases -= 1
            figures.survivors.remove(survivor)
        elif laboratory.is_noticed(nearest := min(alike, key=lambda m: abs(m.number - survivor["number"]))):
            figures.noticed += 1
            figures.survivors.remove(survivor)
        else:
            figures.survivors[figures.survivors.index(survivor)] = asdict(nearest)
        figures.write(results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="Start no mutant after so many seconds.")
    parser.add_argument("--repeat-survivors", action="store_true", help="Only the mutants that no test noticed.")
    parser.add_argument("--maps", type=Path, help="Folder that keeps which tests run which lines, for later runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    figures = Figures.read(chosen.results)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        laboratory = Laboratory(Path(name) / "project", chosen.maps or Path(name) / "maps")
        if chosen.repeat_survivors:
            repeat_survivors(figures, laboratory, chosen.results)
        else:
            go_on(figures, laboratory, chosen)
    print(f"{figures.noticed} of {figures.cases} mutants noticed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
