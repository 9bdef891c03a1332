"""The plan of the house: who may import whom, what starts without torch, and that nothing goes undescribed."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from ntmp_cli import __version__
from ntmp_cli.app import app
from ntmp_cli.registry import Registry
from ntmp_cli.stages.listing import registry_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ntmp_cli"
ROOMS = ("artifacts", "counting", "data", "evaluation", "learning", "prior", "reporting", "sweeps", "theory")
HEAVY = {"torch", "torchvision", "h5py", "sklearn", "matplotlib", "scipy", "numpy", "safetensors", "PIL"}
HEAVY |= {"ray", "pyarrow"}
KINDS = ("datasets", "methods", "models", "encoders", "metrics", "priors", "engines")


def leaves(command: Any, name: str = "") -> dict[str, Any]:
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {name: command}
    inner = (leaves(child, f"{name} {word}".strip()) for word, child in command.commands.items())
    return {key: value for found in inner for key, value in found.items()}


LEAVES = leaves(typer.main.get_command(app))
COMMANDS = sorted(LEAVES)


# --- reading the sources ------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """An import statement: the module it loads, and whether that happens only when a function is called."""

    module: str
    late: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, name: str = "", *, is_package: bool = False) -> set[Import]:
    """Every import of a module but those that only a type checker sees."""
    return set(_imports(ast.parse(source), name.split(".") if is_package else name.split(".")[:-1], late=False))


def _imports(node: ast.AST, package: list[str], *, late: bool) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) + 1 - node.level] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        # `from package import module` loads package.module; for a name that is no module this is harmless.
        yield Import(base, late)
        yield from (Import(f"{base}.{alias.name}", late) for alias in node.names)
    inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, late=inside)


def belongs(module: str, to: str) -> bool:
    return module == to or module.startswith(f"{to}.")


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
IMPORTS = {
    name: imports(path.read_text(encoding="utf-8"), name, is_package=path.name == "__init__.py")
    for name, path in SOURCES.items()
}


def importers(*targets: str) -> set[str]:
    """Modules of the package that import one of `targets`, early or late."""
    return {
        name
        for name, found in IMPORTS.items()
        if any(belongs(imported.module, target) for imported in found for target in targets)
    }


def test_the_reader_of_imports_sees_what_it_should():
    source = (
        "import os.path\nfrom . import oracle\nfrom ..data import pools as p\nfrom h5py import File\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
        "def f():\n    import scipy\n    class C:\n        from ntmp_cli import stages\n"
    )
    found = imports(source, "ntmp_cli.artifacts.x")
    early = {i.module for i in found if not i.late}
    assert {"os.path", "ntmp_cli.artifacts.oracle", "ntmp_cli.data.pools", "h5py"} <= early
    assert {i.module for i in found if i.late} == {"scipy", "ntmp_cli", "ntmp_cli.stages"}
    assert "torch" not in {i.module for i in found}
    assert "ntmp_cli.artifacts.oracle" in {
        i.module for i in imports("from . import oracle", "ntmp_cli.artifacts", is_package=True)
    }


def test_the_sources_are_found():
    assert {"ntmp_cli", "ntmp_cli.app", "ntmp_cli.artifacts", "ntmp_cli.learning.methods.ure"} <= SOURCES.keys()
    assert {f"ntmp_cli.{room}" for room in ROOMS} <= SOURCES.keys()
    assert "ntmp_cli.artifacts.hdf5" in importers("h5py")


# --- directions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_nothing_of_the_command_line_or_of_stages(room):
    outside = importers("typer", "click", "rich", "ntmp_cli.commands", "ntmp_cli.stages", "ntmp_cli.app")
    assert {name for name in outside if belongs(name, f"ntmp_cli.{room}")} == set()


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "artifacts"])
def test_only_stages_and_commands_know_the_layout_on_disk(room):
    assert {name for name in importers("ntmp_cli.artifacts") if belongs(name, f"ntmp_cli.{room}")} == set()


def test_stages_know_nothing_of_the_command_line():
    outside = importers("typer", "click", "rich", "ntmp_cli.commands", "ntmp_cli.app")
    assert {name for name in outside if belongs(name, "ntmp_cli.stages")} == set()


def test_only_one_module_opens_hdf5_files():
    assert importers("h5py") == {"ntmp_cli.artifacts.hdf5"}


def test_training_code_cannot_open_the_truth():
    # true_labels is the door of the ceiling `supervised`; what passes through it is tested with the methods.
    writers = {"ntmp_cli.stages.make_tuples", "ntmp_cli.stages.import_tuples"}
    allowed = writers | {"ntmp_cli.stages.evaluate", "ntmp_cli.stages.true_labels"}
    assert {
        name for name in importers("ntmp_cli.artifacts.oracle") if not belongs(name, "ntmp_cli.artifacts")
    } == allowed


def test_the_truth_is_not_within_reach_of_training_through_other_modules():
    """Whatever `stages.train` loads, directly or not, the reader of true labels is behind one door only."""
    reached, waiting = set(), ["ntmp_cli.stages.train"]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in IMPORTS or name == "ntmp_cli.stages.true_labels":
            continue
        reached.add(name)
        waiting += [imported.module for imported in IMPORTS[name]]
    assert "ntmp_cli.learning.loop" in reached
    assert not {name for name in reached if belongs(name, "ntmp_cli.artifacts.oracle")}


def reached_from(package: str) -> set[str]:
    """Every module that the modules of a package load, early or late, directly or through others."""
    reached, waiting = set(), [name for name in SOURCES if belongs(name, package)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [imported.module for imported in IMPORTS.get(name, ())]
    return reached


@pytest.mark.parametrize("package", ["counting", "evaluation", "prior", "theory"])
def test_what_needs_no_network_needs_no_torch(package):
    reached = reached_from(f"ntmp_cli.{package}")
    assert "numpy" in reached
    assert not {name for name in reached if belongs(name, "torch")}


def test_the_count_law_knows_no_configuration_and_no_other_package():
    inside = {name for name in reached_from("ntmp_cli.counting") if belongs(name, "ntmp_cli") and name in SOURCES}
    allowed = {"ntmp_cli.errors", "ntmp_cli.registry"}
    assert {name for name in inside if not belongs(name, "ntmp_cli.counting")} == allowed


def test_commands_load_heavy_modules_only_when_they_run():
    rooms = {f"ntmp_cli.{room}" for room in ROOMS if room != "artifacts"}
    slow = HEAVY | rooms | {"ntmp_cli.stages", "ntmp_cli.artifacts.hdf5", "ntmp_cli.artifacts.shards"}
    early = {
        (name, imported.module)
        for name, found in IMPORTS.items()
        if belongs(name, "ntmp_cli.commands") or name in ("ntmp_cli", "ntmp_cli.app", "ntmp_cli.config")
        for imported in found
        if not imported.late and any(belongs(imported.module, module) for module in slow)
    }
    assert early == set()


def test_settings_registry_and_errors_stand_on_nothing():
    """At the foot of the house: these import no other part of the package, but errors; config the settings too."""
    for name, known in {
        "config": ("errors", "settings"),
        "settings": ("errors",),
        "registry": ("errors",),
        "errors": (),
    }.items():
        own = {i.module for i in IMPORTS[f"ntmp_cli.{name}"] if belongs(i.module, "ntmp_cli")}
        assert all(any(belongs(module, f"ntmp_cli.{each}") for each in known) for module in own), name


@pytest.mark.parametrize("room", [*ROOMS, "stages"])
def test_nothing_below_the_commands_prints(room):
    printing = {
        f"{name}:{node.lineno}"
        for name, path in SOURCES.items()
        if belongs(name, f"ntmp_cli.{room}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "print")
            or ast.unparse(node.func).startswith(("sys.stdout.", "sys.stderr."))
        )
    }
    assert printing == set()


# --- starting without torch ---------------------------------------------------------------------

DRIVER = """
import json, sys
from ntmp_cli.app import run
code = run(json.loads(sys.argv[1]))
loaded = sorted(set(json.loads(sys.argv[2])) & set(sys.modules))
sys.stderr.write(json.dumps([code, loaded]))
"""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], "make-tuples"),
        (["train", "--help"], "--clamp-scope"),
        (["--version"], __version__),
        (["train", "--prior", "2", "--tuples", "t", "--out", "o"], ""),
        (["make-tuples", "--set", "sede=1", "--out", "o"], ""),
        (["design", "--tuple", "3:1", "--prior", "2"], ""),
    ],
    ids=["help", "train help", "version", "wrong value", "unknown setting", "impossible design"],
)
def test_what_needs_no_data_answers_without_heavy_imports(words, shown):
    command = [sys.executable, "-c", DRIVER, json.dumps(words), json.dumps(sorted(HEAVY))]
    # Errors come first on stderr; the driver's own line is the last.
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    code, loaded = json.loads(ended.stderr.splitlines()[-1])
    assert loaded == []
    assert code == (0 if shown else 2)
    assert shown in ended.stdout


def test_a_design_needs_no_torch():
    words = ["design", "--tuple", "3:1", "--prior", "0.5"]
    command = [sys.executable, "-c", DRIVER, json.dumps(words), json.dumps(["torch"])]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stderr.splitlines()[-1]) == [0, []]


def test_the_console_script_is_the_same_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"ntmp": "ntmp_cli.app:main"}
    ended = subprocess.run([sys.executable, "-m", "ntmp_cli", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"ntmp {__version__}\n"


@pytest.mark.parametrize("words", [["list", "datasets"], ["list", "datasets", "--json"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_error(words):
    """As in `ntmp list datasets | head -1`."""
    command = [sys.executable, "-m", "ntmp_cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert __version__ == project["version"]


# --- everything is described --------------------------------------------------------------------


def help_of(name: str) -> str:
    return inspect.getdoc(LEAVES[name].callback) or ""


def test_every_command_of_the_contract_is_there():
    assert {"make-tuples", "inspect", "train", "evaluate", "report", "run", "list", "import-tuples", "predict"} <= set(
        COMMANDS
    )
    assert {f"sweep {kind}" for kind in ("prior", "count-noise", "gap", "grid")} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_and_gives_an_example(name):
    text = help_of(name)
    assert text.partition("\n")[0].endswith((".", "?"))
    assert f"Example: ntmp {name} " in text
    (example,) = [line for line in text.splitlines() if line.startswith("Example: ")]
    assert len(example) < 120


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("list",)])
def test_every_command_says_what_it_creates(name):
    assert "Creates " in help_of(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_described(name):
    undescribed = [parameter.name for parameter in LEAVES[name].params if not getattr(parameter, "help", None)]
    assert undescribed == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_thing_has_a_docstring(kind):
    registry = registry_of(kind)
    assert registry.names()
    for name in registry.names():
        own = registry.get(name).__doc__
        assert own, f"{kind} {name}"
        assert registry.summaries()[name] == own.strip().partition("\n")[0]


def test_a_name_cannot_be_registered_twice():
    registry: Registry[object] = Registry("thing", "ntmp_cli.errors")
    registry.register("one")(object())
    with pytest.raises(ValueError, match="thing 'one' is registered twice"):
        registry.register("one")(object())


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_module_has_a_docstring(name):
    assert ast.get_docstring(ast.parse(SOURCES[name].read_text(encoding="utf-8")))


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """The folders are no packages: pytest imports a test file by its bare name, and refuses the second of a name."""
    names = [path.name for path in sorted((ROOT / "tests").rglob("*.py")) if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(("kind", "family"), [("encoders", "clip"), ("encoders", "torchvision:NAME")])
def test_families_of_names_are_listed_beside_what_is_registered(kind, family):
    registry = registry_of(kind)
    assert family in registry.summaries()
    assert family not in registry.names()
    assert registry_of("models").summaries()["torchvision:NAME"]
