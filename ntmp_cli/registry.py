"""One registry per kind of thing: a decorated function or class in one file adds a choice.

The command line, `ntmp list`, the docs and the contract tests all read the same registry, so that
no list of names is kept twice. `REGISTRIES` is the table of all of them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from ntmp_cli.errors import UsageError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to things of one kind.

    `where` is the module, or the package with one file per thing, whose import fills the registry;
    it is imported at the first look-up, so that heavy imports wait until they are needed. `families` are names of
    which there are too many to register, or which another package knows, such as torchvision:NAME; whoever looks one
    up understands it before asking here.
    """

    def __init__(self, kind: str, where: str, families: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.families = dict(families or {})
        self._where = where
        self._things: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: add a thing under `name`. Its docstring's first line is shown by `ntmp list`."""

        def add(thing: T) -> T:
            if name in self._things:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            self._things[name] = thing
            return thing

        return add

    def _load(self) -> None:
        if self._loaded:
            return
        module = importlib.import_module(self._where)
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            importlib.import_module(f"{self._where}.{info.name}")
        self._loaded = True

    def names(self) -> list[str]:
        self._load()
        return sorted(self._things)

    def get(self, name: str) -> T:
        self._load()
        if name not in self._things:
            raise UsageError(
                f"unknown {self.kind} '{name}'; {did_you_mean(name, self._things)}",
                hint=f"`ntmp list {self.kind}s` shows every choice.",
            )
        return self._things[name]

    def items(self) -> list[tuple[str, T]]:
        """Every name with its thing, sorted by name."""
        return [(name, self._things[name]) for name in self.names()]

    def summaries(self) -> dict[str, str]:
        """Name to one-line description, from each thing's docstring; families last."""
        return {name: _first_line(thing) for name, thing in self.items()} | self.families


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


REGISTRIES: dict[str, Registry[Any]] = {
    "datasets": Registry("dataset", "ntmp_cli.data.sources"),
    "methods": Registry("method", "ntmp_cli.learning.methods"),
    "models": Registry(
        "model",
        "ntmp_cli.learning.models",
        {
            "torchvision:NAME": "A torchvision classifier with one output in place of its head, "
            "e.g. torchvision:resnet18."
        },
    ),
    "encoders": Registry(
        "encoder",
        "ntmp_cli.learning.encoders",
        {
            "clip": "The image side of an open_clip model (--clip-model, --clip-weights; extra `clip`).",
            "torchvision:NAME": "A torchvision classifier without head, e.g. torchvision:resnet18 (--encoder-weights).",
        },
    ),
    "metrics": Registry("metric", "ntmp_cli.evaluation.metrics"),
    "priors": Registry("prior", "ntmp_cli.prior"),
    "count-laws": Registry("count-law", "ntmp_cli.counting.laws"),
    "engines": Registry("engine", "ntmp_cli.sweeps.engines"),
}
"""Every registry, by the plural that a user types after `ntmp list`."""
