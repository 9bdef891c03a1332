"""Write the tables of colour images into docs/reproduction.md, between its markers, from docs/results/colour.yaml.

python -m docs.write_colour
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.colour_rows import ENCODERS, FILE, PRIORS, RECIPES, TUPLES, Key, load
from docs.write_readme import with_region
from ntmp_cli.reporting.paper import paper_cells

PAGE = Path(__file__).with_name("reproduction.md")
NAMES = {"cifar10": "CIFAR-10", "svhn": "SVHN"}
DASH = "–"
HEADER = "| data | (n,m) | π | `count` | at π | AUROC | labels | paper's best | seeds | verdict |"
MARKS = "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
# Points of accuracy that `count` may lie below `supervised`.
NEAR_LABELS = 2.0

Records = Mapping[Key, Mapping[str, Any]]
Cell = tuple[str, int, int, float]


def cells() -> list[Cell]:
    """The paper's rows on colour images."""
    pairs = [(*map(int, spec.split(":")),) for spec in TUPLES]
    return [(data, n, m, prior) for data, (n, m), prior in product(ENCODERS, pairs, PRIORS)]


def best_of_paper(cell: Cell) -> float:
    """The best cell of the paper's row, in percent."""
    data, n, m, prior = cell
    values = [
        one.mean
        for one in paper_cells()
        if one.metric == "accuracy" and (one.dataset, one.n, one.m, one.prior) == (data, n, m, prior)
    ]
    return 100 * max(values)


def trainings(records: Records, cell: Cell, method: str) -> list[Mapping[str, Any]]:
    return [one for key, one in sorted(records.items()) if (key[:4], key.method) == (cell, method)]


def of_recipe(records: Records, recipe: str) -> Records:
    return {key: one for key, one in records.items() if key.recipe == recipe}


def labels_of(records: Records, data: str, prior: float) -> float | None:
    """Accuracy of `supervised` for a data set and prior, over all tuples that it was trained on."""
    found = [
        one["accuracy"]
        for key, one in records.items()
        if (key.data, key.prior, key.method) == (data, prior, "supervised")
    ]
    return 100 * float(np.mean(found)) if found else None


def verdict(ours: float, paper: float, labels: float | None) -> str:
    """Whether the accuracy reaches the paper and the labels, in words."""
    words = ["at the paper's best or above" if ours >= paper else f"{paper - ours:.1f} below the paper"]
    if labels is not None and ours < labels - NEAR_LABELS:
        words.append(f"{labels - ours:.1f} below labels")
    return ", ".join(words)


def row(records: Records, cell: Cell) -> str:
    data, n, m, prior = cell
    found, paper, labels = trainings(records, cell, "count"), best_of_paper(cell), labels_of(records, data, prior)
    place = [NAMES[data], f"({n},{m})", f"{prior:g}"]
    shown = DASH if labels is None else f"{labels:.1f}"
    if not found:
        return _line([*place, DASH, DASH, DASH, shown, f"{paper:.1f}", "0", "not run"])
    mean = {name: float(np.mean([one[name] for one in found])) for name in ("accuracy", "accuracy_at_prior", "auroc")}
    ours = 100 * mean["accuracy"]
    values = [f"{ours:.1f}", f"{100 * mean['accuracy_at_prior']:.1f}", f"{mean['auroc']:.3f}", shown, f"{paper:.1f}"]
    return _line([*place, *values, str(len(found)), verdict(ours, paper, labels)])


def _line(words: Iterable[str]) -> str:
    return f"| {' | '.join(words)} |"


def summary(records: Records) -> str:
    """How many rows reach the paper and the labels."""
    above = near = measured = compared = 0
    for cell in cells():
        found = trainings(records, cell, "count")
        if not found:
            continue
        measured += 1
        ours = 100 * float(np.mean([one["accuracy"] for one in found]))
        above += ours >= best_of_paper(cell)
        labels = labels_of(records, cell[0], cell[3])
        compared += labels is not None
        near += labels is not None and ours >= labels - NEAR_LABELS
    seconds = [one["seconds"] for one in records.values()]
    took = f" A training took {min(seconds)} to {max(seconds)} seconds of CPU." if seconds else ""
    return (
        f"{measured} of the eighteen rows were run. {above} are at or above the paper's best cell. "
        f"{compared} can be compared with `supervised`; {near} of these are within {NEAR_LABELS:g} points of it.{took}"
    )


def heading(name: str) -> str:
    """A recipe, as the script has it."""
    recipe = RECIPES[name]
    words = [", ".join(f"{setting} {value}" for setting, value in recipe.settings.items())]
    words.append("on features of patches" if recipe.on_patches else "on pixels")
    if recipe.teacher is not None:
        words.append(f"`count` learns from `{recipe.teacher}` first (`--warmup teacher`)")
    return f"Recipe `{name}`: {'; '.join(words)}."


def content(records: Records) -> str:
    """A table for every recipe."""
    lines = [f"- {NAMES[data]}: `--encoder {encoder}`" for data, encoder in ENCODERS.items()]
    for name in RECIPES:
        measured = of_recipe(records, name)
        rows = [row(measured, cell) for cell in cells()]
        shown = [HEADER, MARKS, *rows, "", summary(measured)] if measured else ["Not run."]
        lines += ["", heading(name), "", *shown]
    return "\n".join(lines)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_region(page, "colour", content(load(FILE))), encoding="utf-8")


if __name__ == "__main__":
    main()
