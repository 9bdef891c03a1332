"""Plugins: users' methods, models, encoders, data sets, metrics and prior estimators.

A plugin is a plain module that registers things when it is imported. An installed package names its module in the
entry-point group `ntmp.plugins`; a single file is named by `ntmp --plugin FILE.py` or by NTMP_PLUGINS.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

GROUP = "ntmp.plugins"
VARIABLE = "NTMP_PLUGINS"
"""Files that are loaded as if they were named by --plugin, separated as in PATH."""

_files: dict[Path, ModuleType] = {}


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Load the plugins of installed packages, of the environment, and `files`; each once."""
    _load_packages()
    for file in [*map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))), *files]:
        path = file.expanduser().resolve()
        if path not in _files:
            _files[path] = _load_file(path)


def plugin_files() -> tuple[str, ...]:
    """The files that are loaded, so that another process can load them as well."""
    return tuple(map(str, _files))


def _load_file(path: Path) -> ModuleType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"plugin {path}: cannot be read ({error.strerror})", hint="Name a Python file.") from None
    # In the table of modules under a distinct name: dataclasses and pydantic look there for the types of fields.
    module = ModuleType(f"ntmp_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        # Not by an import, which would leave a folder of compiled code beside the user's file.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _broken(error, str(path), lambda file: file == str(path)) from None
    return module


@cache  # to look through all installed packages takes a twentieth of a second
def _load_packages() -> None:
    from importlib.metadata import entry_points  # late: --help needs no plugins

    for point in entry_points(group=GROUP):
        _load_package(point)


def _load_package(point: EntryPoint) -> None:
    top = point.module.partition(".")[0]
    package = f" of the package {point.dist.name}" if point.dist else ""
    try:
        point.load()
    except (Exception, SystemExit) as error:
        where = f"plugin {point.name}{package} ({point.value})"
        raise _broken(error, where, lambda file: top in (Path(file).stem, *Path(file).parts)) from None


def _broken(error: BaseException, where: str, is_inside: Callable[[str], bool]) -> UsageError:
    """What is wrong with a plugin, with the line of the plugin that it happened at; what it registered is forgotten."""
    for registry in REGISTRIES.values():
        registry.forget(lambda source: is_inside(source.file))
    log.debug("".join(traceback.format_exception(error)).rstrip())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_inside(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    elif frames:
        where = f"{frames[-1].filename}:{frames[-1].lineno}"
    if isinstance(error, UsageError) and error.message.startswith(where):
        return error
    reason = error.message if isinstance(error, UsageError) else _reason(error)
    return UsageError(
        f"{where}: the plugin cannot be loaded: {reason}",
        hint="`ntmp --verbose …` shows the traceback.",
    )


def _reason(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}".rstrip(": ")


def plugin_line(error: BaseException) -> str | None:
    """The last line of a plugin that an exception came through; None where it came through none."""
    files = {source.file for registry in REGISTRIES.values() for source in registry.sources()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


# What artefacts record ---------------------------------------------------------------------------


def plugin_settings(names: Mapping[str, Iterable[str | None]]) -> dict[str, dict[str, str]]:
    """What a plan's settings say of the plugins that something depends on; nothing where it depends on none.

    `names` maps a plural of `REGISTRIES` to names of that kind; None and names of families are of no plugin. An entry
    maps `method mine` to the file's name and hash, so that a rerun notices a change.
    """
    used = {}
    for plural, of_kind in names.items():
        registry = REGISTRIES[plural]
        for name in sorted(filter(None, of_kind)):
            entry = registry.registered(name)
            if entry is not None and entry.source is not None:
                used[f"{registry.kind} {name}"] = f"{entry.source.name} sha256:{entry.source.sha256}"
    return {"plugins": used} if used else {}


def require_plugins(recorded: Mapping[str, str], where: str) -> None:
    """Refuse an artefact whose plugins are not loaded; warn of those that have changed."""
    registries = {registry.kind: registry for registry in REGISTRIES.values()}
    for what, origin in recorded.items():
        kind, _, name = what.partition(" ")
        file, _, sha256 = origin.partition(" sha256:")
        entry = registries[kind].find(name) if kind in registries else None
        if entry is None:
            raise UsageError(
                f"{where}: {kind} '{name}' comes from the plugin {file}, which is not loaded",
                hint=f"Name the file before the command, as in `ntmp --plugin {file} …`, or install its package.",
            )
        if entry.source is None or entry.source.sha256 != sha256:
            log.warning("%s: was made with another version of the plugin %s (%s '%s')", where, file, kind, name)
