"""How settings are read: a YAML file, then `--set key=value`, then command-line options; later wins.

Unknown keys are refused, and all problems of a configuration are shown at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from ntmp_cli.errors import UsageError, did_you_mean


class Settings(BaseModel):
    """Base of every configuration: immutable, and a key that is not a field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def described(cls) -> dict[str, FieldInfo]:
        """Every setting that a user can give, by name."""
        return dict(cls.model_fields)


class MethodSettings(Settings):
    """Base of a training method's settings, beyond those of every training; declared beside the method."""


C = TypeVar("C", bound=BaseModel)


def load(
    model: type[C],
    file: Path | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> C:
    """Defaults, then the file, then `key=value` overrides, then options; every problem in one UsageError."""
    values = {**(defaults or {}), **(read_yaml(file) if file else {})}
    for text in overrides:
        _assign(values, text)
    return build(model, {**values, **(options or {})}, str(file) if file else "configuration")


def build(model: type[C], values: Mapping[str, Any], where: str) -> C:
    """Validate `values`, reporting all problems at once."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        lines = [_problem(model, problem) for problem in error.errors()]
        raise UsageError(
            f"{where}: " + (lines[0] if len(lines) == 1 else f"{len(lines)} problems\n  " + "\n  ".join(lines)),
            hint="Each setting is described in the command's --help.",
        ) from None


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML mapping, or a UsageError that says where it is not one."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: cannot read the configuration ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or "not UTF-8 text"
        raise UsageError(f"{file}{line}: not valid YAML: {what}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UsageError(f"{file}: expected a mapping of setting names to values")
    return values


def _assign(values: dict[str, Any], text: str) -> None:
    """Apply one `--set a.b=value`; the value is read as YAML, so 0.5 is a number and [a, b] a list."""
    key, equals, raw = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: expected KEY=VALUE", hint="For example --set epochs=10.")
    *parents, leaf = key.split(".")
    for parent in parents:
        child = values.setdefault(parent, {})
        if not isinstance(child, dict):
            raise UsageError(f"--set {text}: '{parent}' is not a group of settings")
        values = child
    try:
        values[leaf] = yaml.safe_load(raw)
    except yaml.YAMLError:
        raise UsageError(f"--set {text}: the value is not valid YAML") from None


def _problem(model: type[BaseModel], problem: Any) -> str:
    # The settings of a method are given flat, whatever model holds them.
    path = [str(key) for key in problem["loc"] if key != "settings"]
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        return f"{where}: unknown setting; {did_you_mean(path[-1], known)}"
    if problem["type"] == "missing":
        return f"{where}: required, but not given (--{path[-1].replace('_', '-')})"
    message: str = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not where:
        return message
    return f"{where}: {message} (got {problem['input']!r})"


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for name in path:
        inner = model.model_fields[name].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.described() if issubclass(model, Settings) else model.model_fields)
