"""Mutation testing: small changes to the core modules, one at a time; the tests of a module should notice each of them.

    python tests/torture/mutants.py                     # 40 mutants
    python tests/torture/mutants.py --mutants 500 --seed 1

A mutant is a copy of the package with one operator, constant, condition or statement changed. It is noticed where a
test of its module fails, or takes much longer than it should. Mutants that no test notices are listed: each either
shows a missing test, or changes nothing that can be seen.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results") / "mutants.json"
# Core modules and the tests that cover them.
COVERED = {
    "ntmp_cli/counting/poisson_binomial.py": "tests/counting/test_poisson_binomial.py",
    "ntmp_cli/counting/recalibration.py": "tests/counting/test_recalibration.py",
    "ntmp_cli/counting/calibrated_fit.py": "tests/counting/test_calibrated_fit.py",
    "ntmp_cli/counting/objective.py": "tests/counting/test_objective.py",
    "ntmp_cli/prior/moments.py": "tests/prior/test_moments.py tests/prior/test_estimate.py",
    "ntmp_cli/prior/binned_sums.py": "tests/prior/test_binned_sums.py tests/prior/test_likelihood.py",
    "ntmp_cli/theory/variance.py": "tests/theory/test_variance.py",
    "ntmp_cli/theory/bias.py": "tests/theory/test_bias.py",
    "ntmp_cli/theory/identifiability.py": "tests/theory/test_identifiability.py",
    "ntmp_cli/evaluation/metrics.py": "tests/evaluation/test_metrics.py",
    "ntmp_cli/evaluation/calibration.py": "tests/evaluation/test_calibration.py",
    "ntmp_cli/evaluation/significance.py": "tests/evaluation/test_significance.py",
    "ntmp_cli/evaluation/rankings.py": "tests/evaluation/test_rankings.py",
    "ntmp_cli/data/specs.py": "tests/data/test_specs.py",
    "ntmp_cli/data/sampling.py": "tests/data/test_sampling.py",
    "ntmp_cli/data/formats.py": "tests/data/test_formats.py tests/data/test_hostile_files.py",
    "ntmp_cli/artifacts/publish.py": "tests/artifacts/test_publish.py",
    "ntmp_cli/artifacts/locking.py": "tests/artifacts/test_publish.py tests/artifacts/test_writing.py",
    "ntmp_cli/artifacts/writing.py": "tests/artifacts/test_writing.py",
    "ntmp_cli/artifacts/manifest.py": "tests/artifacts/test_manifest.py",
    "ntmp_cli/artifacts/checkpoints.py": "tests/artifacts/test_checkpoints.py",
    "ntmp_cli/artifacts/shards.py": "tests/artifacts/test_shards.py",
    "ntmp_cli/learning/groups.py": "tests/learning/test_groups.py",
    "ntmp_cli/learning/risk.py": "tests/learning/test_risk.py",
    "ntmp_cli/sweeps/windows.py": "tests/sweeps/test_windows.py",
    "ntmp_cli/unpacking.py": "tests/data/test_hostile_files.py",
    "ntmp_cli/plain_text.py": "tests/test_plain_text.py",
    "ntmp_cli/settings.py": "tests/test_settings.py",
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


def sample(number: int, seed: int) -> list[Mutant]:
    """Mutants of all modules, each place as probable as any other."""
    places = []
    for module in COVERED:
        tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
        named = {id(c) for n in ast.walk(tree) for c in ast.walk(getattr(n, "annotation", None) or ast.Pass())}
        for at, (node, what) in enumerate(changes(tree)):
            if id(node) not in named:
                places.append(Mutant(module, at, getattr(node, "lineno", 0), what))
    return random.Random(f"mutants {seed}").sample(places, min(number, len(places)))


def is_noticed(mutant: Mutant, folder: Path, seconds: float) -> bool:
    """Whether the tests of the module fail with the change."""
    tree = ast.parse((ROOT / mutant.module).read_text(encoding="utf-8"))
    target = folder / mutant.module
    before = target.read_text(encoding="utf-8")
    target.write_text(apply(copy.deepcopy(tree), mutant.number), encoding="utf-8")
    try:
        return not passes(COVERED[mutant.module], folder, seconds)
    finally:
        target.write_text(before, encoding="utf-8")


def passes(tests: str, folder: Path, seconds: float) -> bool:
    words = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-m",
        "not slow",
    ]
    try:
        ended = subprocess.run(
            [*words, *tests.split()], cwd=folder, capture_output=True, timeout=seconds,
            env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="Start no mutant after so many seconds.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    began = time.monotonic()
    noticed, survivors, times = 0, [], {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        for part in ("ntmp_cli", "tests", "pyproject.toml"):
            source = ROOT / part
            shutil.copytree(source, folder / part) if source.is_dir() else shutil.copy(source, folder / part)
        for mutant in sample(chosen.mutants, chosen.seed):
            if chosen.seconds is not None and time.monotonic() - began > chosen.seconds:
                break
            if mutant.module not in times:
                clock = time.monotonic()
                if not passes(COVERED[mutant.module], folder, 600):
                    raise SystemExit(f"{COVERED[mutant.module]} fails without any change")
                times[mutant.module] = time.monotonic() - clock
            if is_noticed(mutant, folder, 30 + 5 * times[mutant.module]):
                noticed += 1
            else:
                survivors.append(mutant)
                print(f"{mutant.module}:{mutant.line}: {mutant.what}: not noticed", flush=True)  # noqa: T201
    total = noticed + len(survivors)
    facts = {
        "name": "mutants",
        "seed": chosen.seed,
        "cases": total,
        "seconds": round(time.monotonic() - began, 1),
        "noticed": noticed,
        "survivors": [f"{m.module}:{m.line}: {m.what}" for m in survivors],
    }
    chosen.results.parent.mkdir(exist_ok=True)
    chosen.results.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{noticed} of {total} mutants noticed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
