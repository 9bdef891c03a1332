"""A group of commands that are imported when they are called.

`ntmp --help` lists all commands. It reads their docstrings from the sources, without importing them: a command imports
the configuration of its stage, which takes longer than the rest of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from ntmp_cli.errors import ONE_COUNT, UsageError

COUNT_COLUMN = "--count-column"


class LazyGroup(TyperGroup):
    """Each of its `modules` has a function `command`, or an `app` with several commands."""

    modules: ClassVar[dict[str, str]] = {}
    """Dotted module names by command name, in the order of --help."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.modules)  # type: ignore[assignment]
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or a stub with name and summary while commands are listed."""
        if self._listing and cmd_name in self.modules:
            return TyperCommand(cmd_name, help=docstring_of(self.modules[cmd_name]))
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._names_alone():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._names_alone():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _names_alone(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False


class OneCountCommand(TyperCommand):
    """A command that refuses a second --count-column, of which the first would silently become a feature."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        times = sum(word == COUNT_COLUMN or word.startswith(f"{COUNT_COLUMN}=") for word in before)
        if times > 1:
            raise UsageError(f"{COUNT_COLUMN} is given {times} times", hint=ONE_COUNT)
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class _Commands(Mapping[str, Any]):
    """Every command by its name, imported at the first look-up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> Any:
        return _imported(name, self._modules[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@cache
def _imported(name: str, module_name: str) -> Any:
    module = import_module(module_name)
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name, cls=OneCountCommand)(module.command)
    command = typer.main.get_command(app)
    command.name = name
    return command


def docstring_of(module_name: str) -> str:
    """The docstring of a module's function `command`; the module is parsed, not imported."""
    spec = find_spec(module_name)
    source = spec.loader.get_source(module_name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:  # only bytecode is installed
        return cleandoc(import_module(module_name).command.__doc__ or "")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            return ast.get_docstring(node) or ""
    return ""
