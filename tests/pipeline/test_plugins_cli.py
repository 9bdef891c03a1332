"""Users' own methods, models, data sets and metrics, by an installed package and by --plugin.

What a plugin registers stays registered, so that every command runs in another process than the tests: in a fork of one
that has loaded ntmp and torch, and no plugin, or, where it matters what is loaded first, in a new one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # many new processes

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", GUIDE, flags=re.DOTALL)
TINY_RINGS = ("--dataset", "rings", "--n", "3", "--m", "1", "--prior", "0.5", "--num-tuples", "60")
TINY_RINGS += ("--unlabeled-size", "80")
# The disc and the ring have the same mean, of which the closed form can make nothing.
GAUSSIANS = ("--dataset", "gaussians:separation=3,size=900,test=20", "--n", "3", "--m", "1", "--prior", "0.5")
ESTIMATE = ("estimate-prior", "--tuples", "gaussians", "--score", "discriminant", "--resamples", "50")
SQUARED = ("--prior", "0.5", "--method", "squared", "--model", "narrow", "--epochs", "3")

# Several commands in one process: torch is loaded once.
DRIVER = """
import contextlib, io, json, sys
from ntmp_cli.app import run
ended = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.out)
        return result


@dataclass(frozen=True)
class Shell:
    """A folder to work in, with modules that can be imported there."""

    folder: Path
    launcher: Any
    packages: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(self.packages or ""), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}

    def tried(self, *commands: tuple[object, ...], **environment: str) -> list[Ended]:
        """Run commands one after the other in a forked process."""
        words = [[str(word) for word in command] for command in commands]
        return [Ended(*each) for each in self.launcher.run_several(words, self.folder, self.packages, **environment)]

    def tried_afresh(self, *commands: tuple[object, ...]) -> list[Ended]:
        """Run commands one after the other in a new process, in which nothing is loaded."""
        words = json.dumps([[str(word) for word in command] for command in commands])
        ended = subprocess.run(
            [sys.executable, "-c", DRIVER, words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return [Ended(*each) for each in json.loads(ended.stdout.splitlines()[-1])]

    def done(self, *commands: tuple[object, ...], **environment: str) -> list[Ended]:
        ended = self.tried(*commands, **environment)
        for command, each in zip(commands, ended, strict=True):
            assert each.code == 0, (command, each.err)
        return ended

    def plugin(self, text: str, name: str = "mine.py") -> Path:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def manifest(self, artefact: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / artefact / "manifest.json").read_bytes())
        return content


@pytest.fixture
def shell(tmp_path, launcher) -> Shell:
    return Shell(tmp_path, launcher)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def results(folder: Path, column: str) -> dict[str, str]:
    """A column of a report's first table, by method."""
    lines = [line.strip("| ").split(" | ") for line in (folder / "results.md").read_text().splitlines() if "|" in line]
    headers = next(line for line in lines if line[0] == "dataset")
    at, method = headers.index(column), headers.index("method")
    return {line[method]: line[at] for line in lines if len(line) == len(headers) and line[0] == "rings"}


# --- the guide ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guide(tmp_path_factory, launcher) -> Shell:
    """A folder in which every command of docs/plugins.md has been typed."""
    shell = Shell(tmp_path_factory.mktemp("guide"), launcher)
    shell.plugin(EXAMPLE, "squared.py")
    lines = [line for line in COMMANDS.splitlines() if line]
    assert all(line.startswith("ntmp ") for line in lines)
    listed, *_ = shell.done(*(tuple(shlex.split(line)[1:]) for line in lines))
    assert "[squared.py]" in listed.out
    return shell


def test_the_example_of_the_guide_learns_and_is_reported(guide):
    report = guide.folder / "work" / "report"
    accuracy, cost = results(report, "accuracy (%)"), results(report, "cost")
    assert list(accuracy) == list(cost) == ["count", "squared"]
    number = {name: float(text.strip("*")) for name, text in cost.items()}
    # Chance is 50 %; of the costs the lower one is the best, and alone in bold.
    assert all(float(text.strip("*")) > 90 for text in accuracy.values())
    best = min(number, key=lambda name: number[name])
    assert {name for name, text in cost.items() if text.startswith("**")} == {best}


def test_settings_of_a_plugins_method_lie_flat_beside_the_others(guide):
    config = guide.manifest("work/run-squared")["config"]
    assert (config["method"], config["pool_weight"], config["lr"]) == ("squared", 100, 0.01)
    assert all("pool" in record for record in lines(guide.folder / "work" / "run-squared" / "history.jsonl"))


def test_artefacts_record_what_they_have_of_a_plugin_and_nothing_of_this_machine(guide):
    origin = f"squared.py sha256:{sha256(EXAMPLE.encode()).hexdigest()}"
    expected = {
        "run-squared": {"method squared": origin, "model narrow": origin},
        "run-count": {"model narrow": origin},
        "eval": {"metric cost": origin},
        "report": {"metric cost": origin},
    }
    for name, plugins in expected.items():
        assert guide.manifest(f"work/{name}")["config"]["plugins"] == plugins, name
        assert str(guide.folder) not in (guide.folder / "work" / name / "manifest.json").read_text()
    assert "plugins" not in guide.manifest("work/tuples")["config"]


def test_a_plugin_leaves_no_compiled_code_behind(guide):
    assert sorted(path.name for path in guide.folder.iterdir()) == ["squared.py", "work"]


def test_predict_names_the_plugin_that_is_missing_and_warns_of_one_that_has_changed(guide, tmp_path):
    np.save(tmp_path / "new.npy", np.array([[0.1, 0.1], [1.5, 0.5]], dtype=np.float32))
    words = ("predict", guide.folder / "work" / "run-squared", tmp_path / "new.npy", "--out")
    changed = tmp_path / "squared.py"
    changed.write_text(EXAMPLE + "\n# another line\n", encoding="utf-8")
    # Without the plugin first: within a process what is loaded stays.
    missing, same = guide.tried(
        (*words, tmp_path / "missing.csv"),
        ("--plugin", "squared.py", *words, tmp_path / "same.csv"),
    )
    (other,) = guide.done(("--plugin", changed, *words, tmp_path / "other.csv"))
    assert missing.code == 2
    assert missing.err == (
        f"error: {words[1]}: method 'squared' comes from the plugin squared.py, which is not loaded\n"
        "Name the file before the command, as in `ntmp --plugin squared.py …`, or install its package.\n"
    )
    assert not (tmp_path / "missing.csv").exists()
    assert same.code == 0, same.err
    assert "warning" not in same.err
    _, *scored = (tmp_path / "same.csv").read_text().splitlines()
    assert [line.rpartition(",")[2] for line in scored] == ["1", "0"]
    assert "was made with another version of the plugin squared.py (method 'squared')" in other.err
    assert (tmp_path / "other.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()


def test_a_report_names_the_plugin_of_a_metric_that_is_missing(guide, tmp_path):
    (ended,) = guide.tried(("report", "work/eval", "--out", tmp_path / "report"))
    assert (ended.code, ended.out) == (2, "")
    assert "work/eval: metric 'cost' comes from the plugin squared.py, which is not loaded" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_runs_of_a_plugins_method_are_evaluated_without_it(guide, tmp_path):
    (ended,) = guide.done(("evaluate", "work/run-squared", "--metric", "ap", "--out", tmp_path / "eval", "--json"))
    assert [row["method"] for row in ended.json["rows"]] == ["squared"]


def test_a_rerun_notices_that_a_plugin_has_changed(guide, shell):
    file = shell.plugin(EXAMPLE, "squared.py")
    train = ("--plugin", file, "train", "--tuples", guide.folder / "work" / "tuples", *SQUARED, "--out", "run")
    shell.done(train, (*train, "--if-exists", "skip"))
    before = shell.manifest("run")
    file.write_text(EXAMPLE.replace("** 2).mean()", "** 4).mean()"), encoding="utf-8")
    (ended,) = shell.tried((*train, "--if-exists", "skip"))
    assert ended.code == 2
    assert "plugins: {'method squared': 'squared.py sha256:" in ended.err
    assert shell.manifest("run") == before
    shell.done((*train, "--if-exists", "overwrite"))
    assert shell.manifest("run")["config"]["plugins"] != before["config"]["plugins"]


def test_an_output_may_not_contain_a_plugin(guide, shell):
    inside = shell.folder / "run"
    inside.mkdir()
    file = Shell(inside, None).plugin(EXAMPLE, "squared.py")
    train = ("--plugin", file, "train", "--tuples", guide.folder / "work" / "tuples", *SQUARED)
    (ended,) = shell.tried((*train, "--out", inside, "--if-exists", "overwrite"))
    assert ended.code == 2
    assert f"contains the input {file}" in ended.err
    assert file.read_text() == EXAMPLE


# --- an installed package -----------------------------------------------------------------------

MORE = """
from ntmp_cli.learning.encoders import Pixels, encoders
from ntmp_cli.prior.estimator import priors


@encoders.register("plain")
def plain(request):
    \"\"\"Instances as they are.\"\"\"
    return Pixels(request.shape)


@priors.register("quarter")
def quarter(sample):
    \"\"\"A quarter, whatever the scores.\"\"\"
    return np.full(len(sample.unlabeled), 0.25)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory, launcher) -> Shell:
    """A folder beside a third-party package that is installed: its module and the metadata that pip would write."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "ring_things").mkdir()
    (packages / "ring_things" / "__init__.py").write_text("")
    (packages / "ring_things" / "squared.py").write_text(EXAMPLE + MORE, encoding="utf-8")
    metadata = packages / "ring_things-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ring-things\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[ntmp.plugins]\nrings = ring_things.squared\n")
    return Shell(tmp_path_factory.mktemp("installed"), launcher, packages)


def test_a_package_is_used_from_tuples_to_report_without_naming_it(installed):
    runs = ("run-squared", "run-encoded", "run-count")
    listed, *_, estimated, _, _ = installed.done(
        ("list", "methods", "--json"),
        ("make-tuples", *TINY_RINGS, "--out", "tuples"),
        ("train", "--tuples", "tuples", *SQUARED, "--set", "pool_weight=3", "--out", runs[0]),
        ("train", "--tuples", "tuples", *SQUARED, "--encoder", "plain", "--out", runs[1]),
        ("train", "--tuples", "tuples", "--prior", "0.5", "--model", "mlp", "--epochs", "2", "--out", runs[2]),
        ("make-tuples", *GAUSSIANS, "--out", "gaussians"),
        (*ESTIMATE, "--estimator", "quarter", "--out", "prior", "--json"),
        ("evaluate", *runs, "--metric", "accuracy", "--metric", "cost", "--reference", "count", "--out", "eval"),
        ("report", "eval", "--out", "report"),
    )
    assert listed.json["methods"]["squared"].endswith("[ring_things.squared]")
    assert (estimated.json["prior"], estimated.json["estimator"]) == (0.25, "quarter")
    config = installed.manifest("run-squared")["config"]
    digest = sha256((EXAMPLE + MORE).encode()).hexdigest()
    assert config["pool_weight"] == 3
    assert config["plugins"]["method squared"] == f"ring_things.squared sha256:{digest}"
    assert "encoder plain" in installed.manifest("run-encoded")["config"]["plugins"]
    (features,) = installed.folder.glob("features-plain-*")
    assert installed.manifest(features.name)["config"]["plugins"].keys() == {"encoder plain"}
    assert installed.manifest("prior")["config"]["plugins"].keys() == {"prior quarter"}
    assert "cost" in (installed.folder / "report" / "results.md").read_text()
    assert "in cost, where less is better," in (installed.folder / "report" / "words.md").read_text()


def test_a_package_serves_the_classifier(installed):
    script = """
import numpy as np
from ntmp_cli import NTMPClassifier
rng = np.random.default_rng(0)
X, pool = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
model = NTMPClassifier(method="squared", model="narrow", epochs=1, pool_weight=3.0)
model.fit(X, np.repeat(np.arange(20), 3), np.ones(60, int), unlabeled=pool, prior=0.5)
again = NTMPClassifier.from_bytes(model.to_bytes())
assert (again.predict_proba(X) == model.predict_proba(X)).all()
assert again.get_params()["pool_weight"] == 3.0
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=installed.environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


BROKEN = """from ntmp_cli.registry import REGISTRIES

REGISTRIES["metrics"].register("mine")(max)

x = y + 1
"""


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("broken_things", r"{}/broken_things\.py:5: the plugin cannot be loaded: NameError: name 'y' is not defined"),
        (
            "no_such",
            r"plugin mine of the package broken-things \(no_such\): the plugin cannot be loaded: ModuleNotFound",
        ),
    ],
    ids=["raises", "is not there"],
)
def test_a_package_that_cannot_be_loaded_is_named(entry, message, tmp_path, launcher):
    (tmp_path / "broken_things.py").write_text(BROKEN)
    metadata = tmp_path / "broken_things-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-things\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[ntmp.plugins]\nmine = {entry}\n")
    shell = Shell(tmp_path, launcher, tmp_path)
    broken, again, help_, version = shell.tried(("list", "methods"), ("list", "models"), ("--help",), ("--version",))
    assert again == broken
    assert (broken.code, broken.out) == (2, "")
    assert re.match("error: " + message.format(re.escape(str(tmp_path))), broken.err)
    assert broken.err.count("\n") == 2
    assert (help_.code, version.code) == (0, 0)


# --- mistakes -----------------------------------------------------------------------------------

TWICE = """from ntmp_cli.registry import REGISTRIES


@REGISTRIES["{}"].register("{}")
def mine(*arguments):
    \"\"\"Mine.\"\"\"
"""
CLASH = """from ntmp_cli.learning.method import FittedMethod
from ntmp_cli.settings import MethodSettings


class Mine(MethodSettings):
    epochs: int = 3


class Method(FittedMethod):
    settings = Mine
"""
MISTAKES = {
    "exception": ("import math\n\n\nmath.sqrt(-1)\n", "mine.py:4: the plugin cannot be loaded: ValueError: "),
    "syntax": ("x = 1\ndef f(:\n", "mine.py:2: the plugin cannot be loaded: SyntaxError: "),
    "exit": ("raise SystemExit(3)\n", "mine.py:1: the plugin cannot be loaded: SystemExit: 3"),
    "missing import": ("import no_such_package\n", "mine.py:1: the plugin cannot be loaded: ModuleNotFoundError: "),
    "fact": (
        "from ntmp_cli.evaluation.metrics import metrics\nmetrics.register('a', lower=True)\n",
        "mine.py:2: the plugin cannot be loaded: TypeError: ",
    ),
    "name of a method": (
        TWICE.format("methods", "count"),
        "mine.py:4: method 'count' is registered twice: here and by ntmp itself",
    ),
    "setting that every training has": (
        CLASH,
        "mine.py:9: the plugin cannot be loaded: TypeError: Mine: every training has the settings epochs already",
    ),
}


def test_a_file_that_cannot_be_loaded_is_named_with_the_line(shell):
    """One process for all: what a broken file has registered is forgotten."""
    commands = []
    for number, (text, _) in enumerate(MISTAKES.values()):
        folder = shell.folder / str(number)
        folder.mkdir()
        commands.append(("--plugin", Shell(folder, None).plugin(text), "list", "methods"))
    before = sorted(shell.folder.rglob("*"))
    *broken, listed = shell.tried_afresh(*commands, ("list", "methods"))
    for (text, message), ended in zip(MISTAKES.values(), broken, strict=True):
        assert (ended.code, ended.out) == (2, ""), text
        assert message in ended.err.splitlines()[0], text
        assert "Traceback" not in ended.err
    assert listed.code == 0
    assert sorted(shell.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "why"), [("none.py", "No such file or directory"), (".", "Is a directory")], ids=["missing", "folder"]
)
def test_a_file_that_is_not_there_is_named(name, why, shell):
    (ended,) = shell.tried(("--plugin", name, "list", "methods"))
    file = (shell.folder / name).resolve()
    assert ended == Ended(2, "", f"error: plugin {file}: cannot be read ({why})\nName a Python file.\n")


@pytest.mark.parametrize(("kind", "name"), [("datasets", "digits"), ("models", "mlp")])
def test_a_name_that_ntmp_registers_later_is_refused_when_it_is_looked_up(kind, name, shell):
    file = shell.plugin(TWICE.format(kind, name))
    (ended,) = shell.tried_afresh(("--plugin", file, "list", kind))
    assert (ended.code, ended.out) == (2, "")
    what = f"{kind[:-1]} '{name}' is registered twice: here and by ntmp itself"
    assert ended.err == f"error: {file}:4: {what}\nChoose another name.\n"


def test_two_plugins_with_the_same_name_for_a_thing_are_both_named(shell):
    first = shell.plugin(TWICE.format("metrics", "mine"), "first.py")
    second = shell.plugin(TWICE.format("metrics", "mine"), "second.py")
    (ended,) = shell.tried(("--plugin", first, "--plugin", second, "list", "metrics"))
    assert ended.code == 2
    assert f"{second}:4: metric 'mine' is registered twice: here and by {first}:4\n" in ended.err


def test_verbose_shows_the_traceback_of_a_plugin(shell):
    file = shell.plugin("def f():\n    return 1 / 0\n\n\nf()\n")
    (ended,) = shell.tried(("--verbose", "--plugin", file, "list", "methods"))
    assert ended.code == 2
    assert "ZeroDivisionError: division by zero" in ended.err
    assert f'File "{file}", line 5' in ended.err
    assert f"error: {file}:2: the plugin cannot be loaded: ZeroDivisionError: division by zero\n" in ended.err


def test_an_exception_of_a_plugin_while_it_is_used_is_not_called_a_defect_of_ntmp(guide, shell):
    text = EXAMPLE.replace(
        "    return (scored.confusion.fp", "    raise KeyError('cost')\n    return (scored.confusion.fp"
    )
    file = shell.plugin(text)
    runs = (guide.folder / "work" / "run-squared",)
    (ended,) = shell.tried(("--plugin", file, "evaluate", *runs, "--metric", "cost", "--out", "eval"))
    line = text.splitlines().index("    raise KeyError('cost')") + 1
    assert ended.code == 1
    assert ended.err == (
        f"error: {file}:{line}: KeyError: 'cost'\nThe plugin raised it. Set NTMP_DEBUG=1 to see the traceback.\n"
    )
    assert not (shell.folder / "eval").exists()


def test_the_environment_names_plugins_and_a_file_named_twice_is_loaded_once(shell):
    first = shell.plugin(TWICE.format("metrics", "one"), "first.py")
    second = shell.plugin(TWICE.format("metrics", "two"), "second.py")
    both = os.pathsep.join(map(str, (first, second)))
    (ended,) = shell.done(("--plugin", "second.py", "list", "metrics", "--json"), NTMP_PLUGINS=both)
    assert ended.json["metrics"]["one"] == "Mine. [first.py]"
    assert ended.json["metrics"]["two"] == "Mine. [second.py]"


# --- another oracle -----------------------------------------------------------------------------

ORACLE = """
from ntmp_cli.learning.methods.supervised import Supervised


@methods.register("all-labels")
class AllLabels(Supervised):
    \"\"\"Another method that uses the labels.\"\"\"
"""


def test_another_method_that_sees_labels_is_never_the_winner(shell):
    file = shell.plugin(EXAMPLE + ORACLE)
    training = ("--tuples", "tuples", "--prior", "0.5", "--model", "narrow", "--lr", "0.01")
    references = {"none": (), "count": ("--reference", "count"), "oracle": ("--reference", "all-labels")}
    runs = ("run-labels", "run-count", "run-ure")
    judged = [
        command
        for name, reference in references.items()
        for command in (
            ("evaluate", *runs, "--metric", "accuracy", *reference, "--out", f"eval-{name}"),
            ("report", f"eval-{name}", "--out", f"report-{name}"),
        )
    ]
    shell.done(
        ("--plugin", file, "make-tuples", *TINY_RINGS, "--num-tuples", "400", "--out", "tuples"),
        ("train", *training, "--method", "all-labels", "--epochs", "30", "--out", "run-labels"),
        ("train", *training, "--epochs", "1", "--out", "run-count"),
        ("train", *training, "--method", "ure", "--epochs", "1", "--out", "run-ure"),
    )
    # The evaluation knows from the runs who is an oracle: it needs no plugin.
    evaluated = shell.done(*judged)[::2]
    for name, screen in zip(references, evaluated, strict=True):
        report = shell.folder / f"report-{name}"
        shown = results(report, "accuracy (%)")
        number = {method: float(text.strip("*")) for method, text in shown.items()}
        assert number["all-labels"] > max(number["count"], number["ure+relu"])
        bold = {method for method, text in shown.items() if text.startswith("**")}
        assert bold
        assert bold <= {"count", "ure+relu"}
        assert "Not ranked, because it uses the labels: all-labels" in (report / "results.md").read_text()
        assert "Upper bound, trained on labels: all-labels" in " ".join(screen.out.split())
        assert screen.out.startswith(("count ", "ure+relu "))
        assert "all-labels is" not in (report / "words.md").read_text()
        rows = lines(shell.folder / f"eval-{name}" / "rows.jsonl")
        assert {row["method"] for row in rows if row["is_oracle"]} == {"all-labels"}
        ranked = lines(shell.folder / f"eval-{name}" / "rankings.jsonl")
        assert sorted(row["method"] for row in ranked) == ["count", "ure+relu"]
    compared = lines(shell.folder / "eval-oracle" / "comparisons.jsonl")
    assert [row["reference_is_oracle"] for row in compared] == [True, True]


# --- sweeps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_workers_of_a_sweep_have_the_same_plugins(engine, shell):
    if engine == "ray":
        pytest.importorskip("ray")
    file = shell.plugin(EXAMPLE, "squared.py")
    settings = ("make_tuples.dataset=rings", "make_tuples.prior=0.5", "make_tuples.num_tuples=60")
    settings += ("make_tuples.unlabeled_size=80", "train.method=squared", "train.model=narrow", "train.epochs=2")
    words = ("sweep", "grid", "--vary", "train.pool_weight=[1,50]", "--seed", "0", "--metric", "cost")
    words += ("--engine", engine, "--jobs", "1", "--out", "swept", "--json")
    words += tuple(word for setting in settings for word in ("--set", setting))
    first, second = shell.done(("--plugin", "squared.py", *words), ("--plugin", file, *words))
    assert (first.json["trained"], first.json["failed"]) == (2, [])
    assert (second.json["trained"], second.json["kept"]) == (0, 2)
    for cell in (shell.folder / "swept" / "cells").iterdir():
        assert shell.manifest(f"swept/cells/{cell.name}")["config"]["plugins"].keys() == {
            "method squared",
            "model narrow",
        }
    assert shell.manifest("swept/results")["config"]["plugins"].keys() == {"metric cost"}
    # A changed plugin is a changed setting: all cells are trained again.
    file.write_text(EXAMPLE.replace("** 2).mean()", "** 4).mean()"), encoding="utf-8")
    (third,) = shell.done(("--plugin", file, *words))
    assert (third.json["trained"], third.json["kept"]) == (2, 0)
