"""One registry per kind of thing: a decorated function or class in one file adds a choice.

The command line, `ntmp list`, the docs and the contract tests all read the same registry, so that no list of names is
kept twice. `REGISTRIES` is the table of all of them. What others must know of an entry (is less of this metric better?)
is given where it is registered. Modules of users register in the same way, see `plugins`.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Literal, TypeVar

from ntmp_cli.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Facts:
    """The metadata of an entry; most kinds need nothing beside name and docstring."""


@dataclass(frozen=True)
class MetricFacts(Facts):
    """How the values of a metric are read and shown."""

    lower_is_better: bool = False
    descriptive: bool = False
    """It only describes a training: no value is better than another."""
    unit: Literal["fraction", "percent", "number"] = "fraction"
    """A share shown as it is or in percent, or a number that may exceed 1."""
    column: int | None = None
    """Place among the default columns of a report; None: shown only if it is named."""


@dataclass(frozen=True)
class Source:
    """The module outside of this package that registered an entry."""

    name: str
    """A file name, or the dotted name of an installed module: nothing of this machine, because manifests hold it."""
    file: str
    line: int
    sha256: str

    @classmethod
    def of_caller(cls, frame: FrameType) -> Source | None:
        """The module that a frame runs; None for this package."""
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == __name__.partition(".")[0]:
            return None
        file = Path(frame.f_code.co_filename)
        content = file.read_bytes() if file.is_file() else b""  # nothing to read in an interactive session
        name = module if "." in module else file.name
        return cls(name, str(file), frame.f_lineno, hashlib.sha256(content).hexdigest())


T = TypeVar("T")
F = TypeVar("F", bound=Facts)


@dataclass(frozen=True)
class Entry(Generic[T, F]):
    """A registered thing; `source` is None where it comes with this package."""

    thing: T
    facts: F
    source: Source | None = None

    @property
    def summary(self) -> str:
        """The first line of the docstring, and the plugin that it comes from."""
        text = (inspect.getdoc(self.thing) or "").partition("\n")[0]
        return text if self.source is None else f"{text} [{self.source.name}]".lstrip()


def _is_of_a_module(entry: Entry[Any, Any]) -> bool:
    """Whether an entry is of this package, from a module that was imported to its end."""
    return entry.source is None and getattr(entry.thing, "__module__", None) in sys.modules


class Registry(Generic[T, F]):
    """Names to things of one kind.

    `where` is the module, or the package with one file per thing, whose import fills the registry;
    it is imported at the first look-up, so that heavy imports wait until they are needed. `facts` is the model of what
    is given at a registration. `families` are names of which there are too many to register, or which another package
    knows, such as torchvision:NAME; callers resolve such a name before they look it up here.
    """

    def __init__(self, kind: str, where: str, facts: type[F], families: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.families = dict(families or {})
        self._where = where
        self._facts = facts
        self._entries: dict[str, Entry[T, F]] = {}
        self._loaded = False

    def register(self, name: str, **facts: Any) -> Callable[[T], T]:
        """Decorator: add a thing under `name`. Its docstring's first line is shown by `ntmp list`."""
        known = self._facts(**facts)
        source = Source.of_caller(sys._getframe(1))

        def add(thing: T) -> T:
            if name in self._entries:
                raise self._twice(name, self._entries[name].source, source)
            self._entries[name] = Entry(thing, known, source)
            return thing

        return add

    def _twice(self, name: str, first: Source | None, second: Source | None) -> Exception:
        what = f"{self.kind} '{name}' is registered twice"
        # A plugin may come before this package's modules, which are loaded at the first look-up.
        blamed, other = (second, first) if second else (first, None)
        if blamed is None:
            return ValueError(what)
        by = f"{other.file}:{other.line}" if other else "ntmp itself"
        return UsageError(f"{blamed.file}:{blamed.line}: {what}: here and by {by}", hint="Choose another name.")

    def forget(self, is_of: Callable[[Source], bool]) -> None:
        """Remove what such sources have registered."""
        self._entries = {
            name: entry for name, entry in self._entries.items() if entry.source is None or not is_of(entry.source)
        }

    def _load(self) -> None:
        if self._loaded:
            return
        try:
            module = importlib.import_module(self._where)
            for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
                importlib.import_module(f"{self._where}.{info.name}")
        except BaseException:
            # A module whose import failed runs again at the next look-up. A plugin that took one of its names is
            # forgotten, as every broken plugin is.
            self._entries = {name: entry for name, entry in self._entries.items() if _is_of_a_module(entry)}
            raise
        self._loaded = True

    def names(self) -> list[str]:
        self._load()
        return sorted(self._entries)

    def registered(self, name: str) -> Entry[T, F] | None:
        """The entry of a name as far as things are registered by now, as those of plugins are; imports nothing."""
        return self._entries.get(name)

    def find(self, name: str) -> Entry[T, F] | None:
        """The entry of a name, or None."""
        self._load()
        return self._entries.get(name)

    def entry(self, name: str) -> Entry[T, F]:
        """A thing with its facts and its source."""
        entry = self.find(name)
        if entry is None:
            raise UsageError(
                f"unknown {self.kind} '{name}'; {did_you_mean(name, [*self._entries, *self.families])}",
                hint=f"`ntmp list {self.kind}s` shows every choice.",
            )
        return entry

    def get(self, name: str) -> T:
        return self.entry(name).thing

    def entries(self) -> dict[str, Entry[T, F]]:
        """Every name with its entry, sorted by name."""
        return {name: self._entries[name] for name in self.names()}

    def items(self) -> list[tuple[str, T]]:
        """Every name with its thing, sorted by name."""
        return [(name, entry.thing) for name, entry in self.entries().items()]

    def summaries(self) -> dict[str, str]:
        """Name to one-line description, from each thing's docstring; families last."""
        return {name: entry.summary for name, entry in self.entries().items()} | self.families

    def sources(self) -> list[Source]:
        """Where entries of others come from, as far as they are registered by now."""
        return [entry.source for entry in self._entries.values() if entry.source is not None]


REGISTRIES: dict[str, Registry[Any, Any]] = {
    "datasets": Registry("dataset", "ntmp_cli.data.sources", Facts),
    "methods": Registry("method", "ntmp_cli.learning.methods", Facts),
    "models": Registry(
        "model",
        "ntmp_cli.learning.models",
        Facts,
        {
            "auto": "On tables linear model and trees, weighted by cross-fitted counts; elsewhere mlp. The default.",
            "trees": "On tables: trees boosted on the count likelihood.",
            "sklearn:PACKAGE.CLASS": "On tables: a scikit-learn classifier by EM, e.g. sklearn:naive_bayes.GaussianNB.",
            "torchvision:NAME": "A torchvision classifier with one output in place of its head, "
            "e.g. torchvision:resnet18.",
        },
    ),
    "encoders": Registry(
        "encoder",
        "ntmp_cli.learning.encoders",
        Facts,
        {
            "patches:SETTINGS": "The encoder patches with filters=N, size=N, grid=N, components=N, "
            "views=2 (image and mirror image), e.g. patches:filters=1600,components=1200.",
            "clip": "The image side of an open_clip model (--clip-model, --clip-weights; extra `clip`).",
            "torchvision:NAME": "A torchvision classifier without head, e.g. torchvision:resnet18 (--encoder-weights).",
            "run:DIR": "The last hidden layer of a network that `ntmp train` trained, e.g. run:work/run.",
        },
    ),
    "metrics": Registry("metric", "ntmp_cli.evaluation.metrics", MetricFacts),
    "priors": Registry("prior", "ntmp_cli.prior", Facts),
    "count-laws": Registry("count-law", "ntmp_cli.counting.laws", Facts),
    "engines": Registry("engine", "ntmp_cli.sweeps.engines", Facts),
}
"""Every registry, by the plural that a user types after `ntmp list`."""
