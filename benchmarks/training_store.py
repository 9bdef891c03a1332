"""Results in docs/results/: a file with one record per training, and means over seeds of trainings from before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parents[1] / "docs" / "results"
# Which script fills which file.
SCRIPTS = {"paper": "paper_rows", "clamps": "clamps"}
# Seeds of clamps.yaml that variants were chosen on: no table judges by them.
CHOICE_SEEDS = (300, 301, 302)
METRICS = ("accuracy", "accuracy_at_prior", "auroc", "ap")
HEAD = """# A record per training, written by `python -m benchmarks.{script}`; and means over seeds (mean, standard
# deviation) of trainings from before this file. docs/write_reproduction.py makes the tables.
"""


Records = Iterable[Mapping[str, Any]] | None


class TrainingKey(NamedTuple):
    """Which training of which table: a cell (data, n, m, prior), a seed, a column, by which recipe."""

    recipe: str
    data: str
    n: int
    m: int
    prior: float
    column: str
    seed: int


def key_of(record: Mapping[str, Any]) -> TrainingKey:
    return TrainingKey(*(record[name] for name in TrainingKey._fields))


class TrainingStore:
    """Records by training; `save` replaces the file at once, so that a stopped process leaves a whole one."""

    def __init__(self, trainings: Records = None, means: Records = None) -> None:
        self.trainings = {key_of(record): dict(record) for record in trainings or ()}
        self.means = [dict(record) for record in means or ()]

    @classmethod
    def load(cls, file: Path) -> TrainingStore:
        kept = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
        return cls(**kept) if kept else cls()

    def save(self, file: Path) -> None:
        head = HEAD.format(script=SCRIPTS.get(file.stem, file.stem))
        lines = [head + "trainings:", *(_line(self.trainings[key]) for key in sorted(self.trainings))]
        lines += ["means:", *(_line(record) for record in self.means)]
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.replace(file)

    def add(self, key: TrainingKey, values: Mapping[str, float | None], **facts: Any) -> None:
        rounded = {name: None if value is None else round(value, 6) for name, value in values.items()}
        self.trainings[key] = {**key._asdict(), **facts, **rounded}

    def of_cell(self, recipe: str, cell: tuple[str, int, int, float], column: str) -> list[dict[str, Any]]:
        """The trainings of one cell and column, by seed."""
        wanted = (recipe, *cell, column)
        return [self.trainings[key] for key in sorted(self.trainings) if key[:-1] == wanted]

    def mean_of(self, recipe: str, cell: tuple[str, int, int, float], column: str) -> dict[str, Any] | None:
        """The kept mean of one cell and column, from before there were records."""
        names = ("recipe", "data", "n", "m", "prior", "column")
        found = [one for one in self.means if tuple(one[name] for name in names) == (recipe, *cell, column)]
        return found[0] if found else None


def _line(record: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(record), default_flow_style=True, sort_keys=False, width=10_000)
    return "- " + text.strip()
