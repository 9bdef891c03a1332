"""From a configuration model to command-line options, so that no setting is described twice."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ntmp_cli.config import load

IfExistsChoice = Literal["fail", "skip", "overwrite"]

Out = Annotated[Path, typer.Option("--out", "-o", help="Directory to create.", show_default=False)]
IfExists = Annotated[
    IfExistsChoice,
    typer.Option(
        "--if-exists",
        help="When OUT exists: fail, skip (keep it if it came from the same inputs and settings), or overwrite.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        envvar="NTMP_DATA",
        help="Folder of downloaded data sets. Default: the user cache.",
        show_default=False,
    ),
]

# Option names that differ from their setting: singular, because the option is repeated.
_SINGULAR = {"tuples": "tuple", "metrics": "metric", "clip_prompts": "clip-prompt"}


def with_config(
    model: type[BaseModel],
    *,
    complete: dict[str, Callable[[], list[str]]] | None = None,
    short_forms: dict[str, str] | None = None,
    stand_in: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: give the command an option per field of `model` and pass it the built `config`.

    Options left out do not override the file. `complete` maps a field to its shell-completion
    choices; `short_forms` maps an integer option that the model folds into a field to its help; `stand_in` turns the
    command's own options into settings that hold where nothing else gives them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(command, include_extras=True)
        own = [
            p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for p in inspect.signature(command).parameters.values()
            if p.name != "config"
        ]
        options = [_option(name, field, (complete or {}).get(name)) for name, field in model.model_fields.items()]
        options += [
            _keyword(name, int, typer.Option(f"--{name}", help=text, show_default=False))
            for name, text in (short_forms or {}).items()
        ]
        shared = [
            _keyword(
                "config_file",
                Path,
                typer.Option("--config", "-c", help="YAML file of settings.", show_default=False),
            ),
            _keyword(
                "set_",
                list[str],
                typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.", show_default=False),
            ),
        ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            chosen = {name: _plain(value) for name, value in values.items() if value not in (None, [])}
            found = stand_in(given) if stand_in else {}
            config = load(model, given.pop("config_file"), given.pop("set_") or (), chosen, found)
            command(config=config, **given)

        run.__signature__ = inspect.Signature([*own, *options, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *options, *shared)}
        del run.__wrapped__
        return run

    return decorate


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _option(name: str, field: FieldInfo, complete: Callable[[], list[str]] | None) -> inspect.Parameter:
    flag = "--" + _SINGULAR.get(name, name).replace("_", "-")
    help_text = field.description or ""
    if not field.is_required() and field.default not in (None, ()):
        default = field.default
        shown = ", ".join(default) if isinstance(default, tuple) else default
        help_text += f" Default: {shown}."
    kind = _cli_type(field.annotation)
    option = typer.Option(
        flag, help=help_text, show_default=False, autocompletion=_completer(complete) if complete else None
    )
    return _keyword(name, kind, option)


def _keyword(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _completer(choices: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in choices() if name.startswith(incomplete)]

    return complete


def _cli_type(annotation: Any) -> Any:
    """The option's type: `X | None` becomes X, a tuple of X becomes a list of X."""
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = [arg for arg in get_args(annotation) if arg is not type(None)]
    if get_origin(annotation) is tuple:
        return list[get_args(annotation)[0]]  # type: ignore[misc]
    return annotation


def on_terminal() -> bool:
    """Whether progress may be drawn: only a person reads a bar."""
    return sys.stderr.isatty()
