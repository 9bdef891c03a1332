"""Command-line options from a configuration model, so that no setting is described twice."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from ntmp_cli.config import PANELS
from ntmp_cli.errors import UsageError
from ntmp_cli.plugins import plugin_files
from ntmp_cli.settings import Settings, load
from ntmp_cli.storage import location

if TYPE_CHECKING:
    from ntmp_cli.artifacts.partition_calls import Workers

IfExistsChoice = Literal["fail", "skip", "overwrite"]

# Parameters that take paths and URLs; Typer does not support union types.
PATH_OR_URL: Any = {"parser": location, "metavar": "PATH"}

Out = Annotated[Path, typer.Option("--out", "-o", help="Directory to create.", show_default=False)]
IfExists = Annotated[
    IfExistsChoice,
    typer.Option(
        "--if-exists",
        help="If OUT exists: fail, skip (keep it if its inputs and settings are the same), or overwrite.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns, intervals and tests, whatever the width of the terminal.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        envvar="NTMP_DATA",
        help="Folder of downloaded data sets. Default: the user cache.",
        show_default=False,
    ),
]

Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps …")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads. Default: all cores.")]
Features = Annotated[
    Path | None,
    typer.Option("--features", help="Folder for the features of an encoder. Default: beside OUT.", show_default=False),
]
AllowOutside = Annotated[
    bool,
    typer.Option("--allow-outside", help="Allow image paths outside of the folder of the table."),
]

# Option names that differ from their setting: singular, because the option is repeated.
_SINGULAR = {
    **{"tuples": "tuple", "metrics": "metric", "clip_prompts": "clip-prompt"},
    **{"seeds": "seed", "offsets": "offset", "rates": "rate", "priors": "at-prior"},
}


def with_config(
    model: type[Settings],
    *,
    complete: dict[str, Callable[[], list[str]]] | None = None,
    short_forms: dict[str, str] | None = None,
    stand_in: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    assignments: dict[str, str] | None = None,
    folders: Sequence[str] = (".",),
    panels: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: give the command an option per field of `model` and pass it the built `config`.

    An option that is not given does not override the file. A parameter of a dataclass type stands for an option per
    field, so that commands can share options.

    - `complete`: shell-completion choices by field.
    - `short_forms`: help by integer option that the model converts into another field.
    - `assignments`: help by group of settings; the option of a group is --set inside that group.
    - `stand_in`: default settings, computed from the command's options.
    - `folders`: the folders below --out that the command creates, if it does not create --out itself. The
      configuration file and plugins must not lie in them.
    - `panels`: panel of --help by option of the command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(command, include_extras=True)
        parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "config"]
        groups = {p.name: hints[p.name] for p in parameters if dataclasses.is_dataclass(hints[p.name])}
        command_options = [
            p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for p in parameters
            if p.name not in groups
        ]
        members = {name: _options_of(group) for name, group in groups.items()}
        command_options += [option for group in members.values() for option in group]
        command_options = [_in_panel(p, panels[p.name]) if panels and p.name in panels else p for p in command_options]
        # Groups of settings have no option: they are given by file and --set.
        fields = {name: f for name, f in model.described().items() if get_origin(f.annotation) is not dict}
        options = [_option(name, field, (complete or {}).get(name)) for name, field in fields.items()]
        options += [
            _keyword(name, int, typer.Option(f"--{name}", help=text, show_default=False))
            for name, text in (short_forms or {}).items()
        ]
        assigning = [_assignments(name, f"--{name}", text) for name, text in (assignments or {}).items()]
        shared = [*assigning, _CONFIG_FILE, _assignments("set_", "--set", "Override one setting.")]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            chosen = {name: _plain(value) for name, value in values.items() if value not in (None, [])}
            overrides = list(given.pop("set_") or ())
            overrides += [f"{option.name}.{text}" for option in assigning for text in given.pop(option.name) or ()]
            defaults = stand_in(given) if stand_in else {}
            file = given.pop("config_file")
            config = load(model, file, overrides, chosen, defaults)
            if given.get("out") is not None:
                from ntmp_cli.artifacts import refuse_overlap

                read = [*([] if file is None else [file]), *map(Path, plugin_files())]
                refuse_overlap(given["out"], read, folders)
            for name, group in members.items():
                given[name] = groups[name](**{option.name: given.pop(option.name) for option in group})
            command(config=config, **given)

        everything = sorted([*command_options, *options, *shared], key=_panel_number)
        run.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in everything}
        del run.__wrapped__
        return run

    return decorate


def _assignments(name: str, flag: str, text: str) -> inspect.Parameter:
    """An option that takes KEY=VALUE, and may be repeated."""
    return _keyword(name, list[str], typer.Option(flag, metavar="KEY=VALUE", help=text, show_default=False))


def _in_panel(parameter: inspect.Parameter, panel: str) -> inspect.Parameter:
    """The option, assigned to a panel of --help."""
    kind, option = get_args(parameter.annotation)
    option = copy(option)
    option.rich_help_panel = panel
    return parameter.replace(annotation=Annotated[kind, option])


def _panel_number(parameter: inspect.Parameter) -> int:
    """Sort key: options without a panel first, then panel by panel."""
    panel = get_args(parameter.annotation)[1].rich_help_panel
    return PANELS.index(panel) if panel else -1


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(group)
    ]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _option(name: str, field: FieldInfo, complete: Callable[[], list[str]] | None) -> inspect.Parameter:
    flag = "--" + _SINGULAR.get(name, name).replace("_", "-")
    help_text = field.description or ""
    if not field.is_required() and field.default not in (None, (), "") and "Default:" not in help_text:
        default = field.default
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        help_text += f" Default: {shown}."
    kind = _cli_type(field.annotation)
    extra = field.json_schema_extra
    option = typer.Option(
        flag,
        help=help_text,
        show_default=False,
        autocompletion=_completer(complete) if complete else None,
        rich_help_panel=str(extra["panel"]) if isinstance(extra, dict) and "panel" in extra else None,
    )
    return _keyword(name, kind, option)


def workers_of(
    engine: str | None, jobs: int | None, ray_address: str | None, threads: int = 1, *, gpu: bool = False
) -> Workers | None:
    """The worker processes that --engine, --jobs and --ray-address request; None if this process does the work."""
    if ray_address is not None and engine != "ray":
        raise UsageError("--ray-address needs --engine ray", hint="Pass both, or neither.")
    if engine is None and jobs is None:
        return None
    from ntmp_cli.artifacts.partition_calls import Workers
    from ntmp_cli.sweeps.engine import Resources, engines

    engines.get(engine or "local")
    return Workers(engine or "local", Resources(jobs, threads, ray_address, gpu))


def _keyword(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONFIG_FILE = _keyword(
    "config_file", Path, typer.Option("--config", "-c", help="YAML file of settings.", show_default=False)
)


def _completer(choices: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in choices() if name.startswith(incomplete)]

    return complete


def _cli_type(annotation: Any) -> Any:
    """The option's type: `X | None` becomes X, `X | Y` text, a tuple of X becomes a list of X."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [arg for arg in get_args(annotation) if arg is not type(None)]
        annotation = kinds[0] if len(kinds) == 1 else str  # a number or a word: the model tells them apart
    if get_origin(annotation) is tuple:
        return list[get_args(annotation)[0]]  # type: ignore[misc]
    return annotation
