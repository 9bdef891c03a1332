"""The architecture: direction of imports between packages, starting without torch, and that nothing is undescribed."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
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
from ntmp_cli.commands.lazy import docstring_of
from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES, Facts, Registry

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ntmp_cli"
PACKAGES = ("artifacts", "counting", "data", "evaluation", "learning", "prior", "reporting", "sweeps", "theory")
# The only module through which training reads true labels.
TRUE_LABELS = "ntmp_cli.artifacts.true_labels"
# Most modules of the package that scoring new rows may load.
PREDICT_MODULES = 60
MOST_PARAMETERS = 6
HEAVY = {
    *(
        "numpy",
        "torch",
        "torchvision",
        "h5py",
        "sklearn",
        "matplotlib",
        "scipy",
        "safetensors",
        "PIL",
        "ray",
        "pyarrow",
    ),
    *("pandas", "onnx"),
}


def leaves(command: Any, name: str = "") -> dict[str, Any]:
    """Every command that does something, by the words that call it."""
    if not hasattr(command, "commands"):
        return {name: command}
    inner = (leaves(child, f"{name} {word}".strip()) for word, child in command.commands.items())
    return {key: value for commands in inner for key, value in commands.items()}


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
        for name, imported_here in IMPORTS.items()
        if any(belongs(imported.module, target) for imported in imported_here for target in targets)
    }


def test_the_reader_of_imports_sees_what_it_should():
    source = (
        "import os.path\nfrom . import oracle\nfrom ..data import pools as p\nfrom h5py import File\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
        "def f():\n    import scipy\n    class C:\n        from ntmp_cli import stages\n"
    )
    statements = imports(source, "ntmp_cli.artifacts.x")
    early = {i.module for i in statements if not i.late}
    assert {"os.path", "ntmp_cli.artifacts.oracle", "ntmp_cli.data.pools", "h5py"} <= early
    assert {i.module for i in statements if i.late} == {"scipy", "ntmp_cli", "ntmp_cli.stages"}
    assert "torch" not in {i.module for i in statements}
    assert "ntmp_cli.artifacts.oracle" in {
        i.module for i in imports("from . import oracle", "ntmp_cli.artifacts", is_package=True)
    }


def test_the_sources_are_read():
    assert {"ntmp_cli", "ntmp_cli.app", "ntmp_cli.artifacts", "ntmp_cli.learning.methods.ure"} <= SOURCES.keys()
    assert {f"ntmp_cli.{package}" for package in PACKAGES} <= SOURCES.keys()
    assert "ntmp_cli.artifacts.hdf5" in importers("h5py")


# --- directions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_knows_nothing_of_the_command_line_or_of_stages(package):
    outside = importers("typer", "click", "rich", "ntmp_cli.commands", "ntmp_cli.stages", "ntmp_cli.app")
    assert {name for name in outside if belongs(name, f"ntmp_cli.{package}")} == set()


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "artifacts"])
def test_only_stages_and_commands_know_the_layout_on_disk(package):
    assert {name for name in importers("ntmp_cli.artifacts") if belongs(name, f"ntmp_cli.{package}")} == set()


def test_stages_know_nothing_of_the_command_line():
    outside = importers("typer", "click", "rich", "ntmp_cli.commands", "ntmp_cli.app")
    assert {name for name in outside if belongs(name, "ntmp_cli.stages")} == set()


def test_only_one_module_opens_hdf5_files():
    assert importers("h5py") == {"ntmp_cli.artifacts.hdf5"}


def test_training_code_cannot_open_true_labels():
    # true_labels reads them for the oracle `supervised`; that no other method gets any is tested with the methods.
    writers = {"ntmp_cli.stages.make_tuples", "ntmp_cli.stages.import_tuples"}
    assert importers("ntmp_cli.artifacts.oracle") == writers | {"ntmp_cli.stages.evaluate", TRUE_LABELS}
    assert importers(TRUE_LABELS) == {"ntmp_cli.stages.train"}


def test_training_cannot_reach_true_labels_through_other_modules():
    """Whatever `stages.train` loads, directly or not, true labels are read by one module alone."""
    reached, waiting = set(), ["ntmp_cli.stages.train"]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in IMPORTS or name == TRUE_LABELS:
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
    packages = {f"ntmp_cli.{package}" for package in PACKAGES if package != "artifacts"}
    slow = HEAVY | packages | {"ntmp_cli.stages", "ntmp_cli.artifacts.hdf5", "ntmp_cli.artifacts.shards"}
    early = {
        (name, imported.module)
        for name, statements in IMPORTS.items()
        if belongs(name, "ntmp_cli.commands")
        or belongs(name, "ntmp_cli.config")
        or name in ("ntmp_cli", "ntmp_cli.app")
        for imported in statements
        if not imported.late and any(belongs(imported.module, module) for module in slow)
    }
    assert early == set()


def test_settings_registry_and_errors_import_no_package():
    """These import nothing of ntmp_cli but errors; config also the settings and the registries."""
    for name, known in {
        "config": ("config", "errors", "registry", "settings"),
        "settings": ("errors",),
        "registry": ("errors",),
        "plugins": ("errors", "registry"),
        "tuple_source": ("counting",),
        "errors": (),
    }.items():
        statements = [i for module, lines in IMPORTS.items() if belongs(module, f"ntmp_cli.{name}") for i in lines]
        imported = {i.module for i in statements if belongs(i.module, "ntmp_cli")}
        assert all(any(belongs(module, f"ntmp_cli.{one}") for one in known) for module in imported), name


@pytest.mark.parametrize("package", [*PACKAGES, "stages"])
def test_nothing_below_the_commands_prints(package):
    printing = {
        f"{name}:{node.lineno}"
        for name, path in SOURCES.items()
        if belongs(name, f"ntmp_cli.{package}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "print")
            or ast.unparse(node.func).startswith(("sys.stdout.", "sys.stderr."))
        )
    }
    assert printing == set()


def test_stages_are_what_commands_call():
    """Helpers belong to the package that they serve; features are an artefact that three stages make when needed."""
    stages = {name for name in SOURCES if name.startswith("ntmp_cli.stages.")}
    called = {imported.module for name in SOURCES if belongs(name, "ntmp_cli.commands") for imported in IMPORTS[name]}
    assert stages - called == {"ntmp_cli.stages.features"}


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller may pass: without self or cls."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_functions_have_few_parameters():
    """Commands declare one parameter per option, and an estimator of scikit-learn one per setting and per fact."""
    many = {
        f"{name}.{node.name}"
        for name, path in SOURCES.items()
        if not belongs(name, "ntmp_cli.commands")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameters(node) > MOST_PARAMETERS
    }
    assert many == {"ntmp_cli.classifier.__init__", "ntmp_cli.classifier.fit"}


def test_functions_and_modules_are_short():
    long = [name for name, path in SOURCES.items() if len(path.read_text(encoding="utf-8").splitlines()) >= 450]
    long += [
        f"{name}.{node.name}"
        for name, path in SOURCES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 79
    ]
    assert long == []


LOADED = "import sys, ntmp_cli.stages.predict; print(*(name for name in sys.modules if name.startswith('ntmp_cli')))"


def test_scoring_new_rows_does_not_load_training():
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert "ntmp_cli.learning.tables.scorer" in loaded
    assert not loaded & {"ntmp_cli.learning.loop", "ntmp_cli.learning.trainer", "ntmp_cli.stages.train"}
    assert len(loaded) <= PREDICT_MODULES


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
    # Errors come first on stderr; the driver's line is the last.
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    code, loaded = json.loads(ended.stderr.splitlines()[-1])
    assert loaded == []
    assert code == (0 if shown else 2)
    assert shown in ended.stdout


# Of the commands that a shell or a person calls most: what their answer does not need.
CONFIGURATION = ["pydantic", "yaml", "ntmp_cli.config", "ntmp_cli.commands.options"]
OTHER_COMMANDS = ["ntmp_cli.commands.sweep", "ntmp_cli.commands.train", "ntmp_cli.config.studies", "rich.markdown"]


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        (["--help"], [*sorted(HEAVY), *CONFIGURATION]),
        (["--version"], [*sorted(HEAVY), *CONFIGURATION, "rich.markdown"]),
        (["list", "methods"], [*sorted(HEAVY), *OTHER_COMMANDS, "yaml"]),
        (["list", "datasets"], [*sorted(HEAVY - {"numpy"}), *OTHER_COMMANDS, "yaml"]),
    ],
    ids=["help", "version", "methods", "datasets"],
)
def test_a_command_imports_what_it_needs_and_no_other_command(words, unneeded):
    command = [sys.executable, "-c", DRIVER, json.dumps(words), json.dumps(unneeded)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stderr.splitlines()[-1]) == [0, []]


def test_the_list_of_commands_has_the_summaries_that_commands_have():
    """--help reads docstrings from the sources; the commands themselves are imported here."""
    group = typer.main.get_command(app)
    assert list(group.commands) == list(group.modules)
    for name, command in group.commands.items():
        assert command.name == name
        assert docstring_of(group.modules[name]) == inspect.cleandoc(command.help), name


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("ntmp est", ["estimate-prior"]), ("ntmp sweep co", ["count-noise"]), ("ntmp train --met", ["--method"])],
)
def test_a_shell_completes_commands_and_options(typed, offered):
    words = {"_NTMP_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    command = [sys.executable, "-m", "ntmp_cli"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **words})
    assert ended.stdout.split() == offered


READ_METHODS = """
import json, sys
from ntmp_cli.learning.method import methods
from ntmp_cli.config import TrainConfig
assert len([kind.settings.model_fields for _, kind in methods.items()]) > 10
assert TrainConfig(clamp="abs").settings.clamp == "abs"
sys.stdout.write(json.dumps(sorted(set(json.loads(sys.argv[1])) & set(sys.modules))))
"""


def test_methods_and_their_settings_are_read_without_heavy_imports():
    command = [sys.executable, "-c", READ_METHODS, json.dumps(sorted(HEAVY))]
    assert json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == []


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


# --- help ---------------------------------------------------------------------------------------


def panels_of(name: str) -> dict[str, list[str]]:
    """Options of a command by the panel that shows them, as --help orders them."""
    panels: dict[str, list[str]] = {}
    for parameter in LEAVES[name].params:
        panels.setdefault(parameter.rich_help_panel or "", []).append(parameter.opts[0])
    return panels


def test_train_shows_a_dozen_options_first_and_the_others_in_panels():
    panels = panels_of("train")
    assert list(panels) == ["", "Method", "Network", "Optimisation", "Run"]
    assert len(panels[""]) <= 12
    assert {"--tuples", "--out", "--prior", "--method", "--epochs", "--seed"} <= set(panels[""])
    assert {"--clamp", "--mask-rate", "--warmup"} <= set(panels["Method"])
    assert {"--encoder", "--features", "--normalize"} <= set(panels["Network"])
    assert {"--lr", "--batch-size", "--select"} <= set(panels["Optimisation"])
    assert {"--device", "--threads", "--ranks", "--resume"} <= set(panels["Run"])


def test_the_panels_are_what_help_prints():
    ended = subprocess.run(
        [sys.executable, "-m", "ntmp_cli", "train", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )
    panel, shown = "", {}
    for line in ended.stdout.splitlines():
        if title := re.match(r"╭─ (\w+) ─", line):
            panel = "" if title[1] == "Options" else title[1]
        elif option := re.match(r"│ [* ]*(--[a-z-]+)", line):
            shown.setdefault(panel, []).append(option[1])
    shown[""].remove("--help")
    assert shown == panels_of("train")
    assert "(count, ure, uu, uucor)" in ended.stdout  # the methods that have the setting


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_other_commands_have_no_panels(name):
    assert list(panels_of(name)) in ([""], [])


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


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_registered_thing_has_a_docstring(kind):
    registry = REGISTRIES[kind]
    assert registry.names()
    for name in registry.names():
        docstring = registry.get(name).__doc__
        assert docstring, f"{kind} {name}"
        assert registry.summaries()[name] == docstring.strip().partition("\n")[0]


def test_a_name_cannot_be_registered_twice():
    registry: Registry[object, Facts] = Registry("thing", "ntmp_cli.errors", Facts)
    registry.register("one")(object())
    with pytest.raises(UsageError, match=r"test_architecture\.py:\d+: thing 'one' is registered twice: here and by"):
        registry.register("one")(object())


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_module_has_a_docstring(name):
    assert ast.get_docstring(ast.parse(SOURCES[name].read_text(encoding="utf-8")))


def test_no_two_test_files_have_the_same_name() -> None:
    """The folders are no packages: pytest imports a test file by its bare name, and refuses the second of a name."""
    names = [path.name for path in sorted((ROOT / "tests").rglob("*.py")) if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(("kind", "family"), [("encoders", "clip"), ("encoders", "torchvision:NAME")])
def test_families_of_names_are_listed_beside_what_is_registered(kind, family):
    registry = REGISTRIES[kind]
    assert family in registry.summaries()
    assert family not in registry.names()
    assert REGISTRIES["models"].summaries()["torchvision:NAME"]
