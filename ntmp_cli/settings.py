"""How settings are read: a YAML file, then `--set key=value`, then command-line options; later wins.

Unknown keys are refused, and all problems of a configuration are shown at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from ntmp_cli.errors import UsageError, did_you_mean

# No configuration is larger: more bytes come from a device, more values or levels from aliases that multiply.
MOST_BYTES, MOST_VALUES, MOST_LEVELS = 2**22, 100_000, 20


class Settings(BaseModel):
    """Base of every configuration: immutable, and a key that is not a field is an error."""

    # Built when it is first used: a command imports the models of all stages, and uses one.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

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
    import yaml  # only here: most commands are given options alone

    try:
        with file.open("rb") as stream:  # not its size: a pipe has none, and a device has no end
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot read the configuration ({error.strerror})") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{file}: more than {MOST_BYTES:,} bytes, too large for a configuration")
    try:
        values = yaml.safe_load(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not valid YAML: not UTF-8 text") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UsageError(f"{file}{line}: not valid YAML: {_yaml_problem(error)}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UsageError(f"{file}: expected a mapping of setting names to values")
    _require_plain(values, str(file))
    return values


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    # A date that does not exist and a number of thousands of digits are ValueErrors of Python.
    return str(getattr(error, "problem", None) or error).partition("\n")[0][:200]


def _require_plain(values: Any, where: str) -> None:
    """Refuse what no setting can be: dates, and aliases that multiply or contain themselves."""
    found = list(islice(_scalars(values, 0), MOST_VALUES + 1))
    if len(found) > MOST_VALUES or any(level > MOST_LEVELS for level, _ in found):
        raise UsageError(f"{where}: more than {MOST_VALUES:,} values, or more than {MOST_LEVELS} levels of nesting")
    for _, value in found:
        if isinstance(value, int) and value.bit_length() > 64:
            raise UsageError(f"{where}: a number of more than 64 bits, too large for any setting")
        if value is not None and not isinstance(value, str | int | float):
            kind = type(value).__name__
            raise UsageError(f"{where}: {str(value)[:80]} is a {kind}, and no setting is a {kind}; quote it")


def _scalars(value: Any, level: int) -> Iterator[tuple[int, Any]]:
    """Every value that is no list and no mapping, and every key, with how deep it lies."""
    if level <= MOST_LEVELS and isinstance(value, dict):
        for key, child in value.items():
            yield level, key
            yield from _scalars(child, level + 1)
    elif level <= MOST_LEVELS and isinstance(value, list):
        yield level, None  # empty lists multiply too
        for child in value:
            yield from _scalars(child, level + 1)
    else:
        yield level, value


def _assign(values: dict[str, Any], text: str) -> None:
    """Apply one `--set a.b=value`; the value is read as YAML, so 0.5 is a number and [a, b] a list."""
    import yaml

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
        value = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UsageError(f"--set {text[:200]}: the value is not valid YAML") from None
    _require_plain(value, f"--set {key}")
    values[leaf] = value


def _problem(model: type[BaseModel], problem: Any) -> str:
    # The settings of a method are given flat, whatever model holds them.
    path = [str(key) for key in problem["loc"] if key != "settings"]
    where = ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        return f"{where}: unknown setting; {did_you_mean(path[-1], known)}"
    if problem["type"] == "missing":
        return f"{where}: required, but not given ({_way_to_give(model, path)})"
    message: str = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not where:
        return message
    return f"{where}: {message} (got {shown(problem['input'])})"


def _way_to_give(model: type[BaseModel], path: Sequence[str]) -> str:
    """Commands have options for settings of their own stage, those of its method included, and none for mappings."""
    field = model.model_fields.get(path[0])
    if len(path) == 1 and (field is None or get_origin(field.annotation) is not dict):
        return f"--{path[0].replace('_', '-')}"
    return f"in the file, or --set {'.'.join(path)}=VALUE"


def shown(value: Any, most: int = 200) -> str:
    """A refused value in a message: its beginning, where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for name in path:
        inner = model.model_fields[name].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.described() if issubclass(model, Settings) else model.model_fields)
