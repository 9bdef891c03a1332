"""Every method against a reference: paired test, effect size, difference, Holm over a stated family (SPEC 8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from ntmp_cli.config import HolmFamily
from ntmp_cli.evaluation.metrics import DESCRIPTIVE
from ntmp_cli.evaluation.resampling import intervals_by_size
from ntmp_cli.evaluation.significance import DECIMALS, cliffs_delta, holm, magnitude, smallest_p, wilcoxon
from ntmp_cli.evaluation.summary import Cell, Group, Row, cell_of, cell_order, defined

# What is repeated: the seed of a training and of the tuples it was trained on.
Repetition = tuple[int, int | None]
Values = dict[Repetition, float | None]


class Entry(NamedTuple):
    """A line of a table: a method, and what tells its runs from others of the same method."""

    method: str
    variant: str

    def __str__(self) -> str:
        return f"{self.method} {self.variant}".rstrip()


def entry_of(row: Group | Comparison) -> Entry:
    return Entry(row["method"], row["variant"])


class Comparison(TypedDict):
    """One method against the reference in one metric, on the pairs of one cell, or (`overall`) of all cells.

    Differences are method minus reference. `missing` names what has no partner or no value. A number that needs pairs
    is None without any, a limit also with only one. Over several cells `cliff` compares within pairs alone, because
    values of different cells say nothing about the methods.
    """

    scope: Literal["cell", "overall"]
    dataset: str | None
    tuples: str | None
    n: int | None
    m: int | None
    prior: float | None
    metric: str
    method: str
    variant: str
    reference: str
    reference_variant: str
    cells: int
    pairs: int
    missing: list[str]
    wins: int
    ties: int
    losses: int
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    difference_bca_low: float | None
    difference_bca_high: float | None
    p: float | None
    p_exact: bool | None
    smallest_p: float | None
    family: HolmFamily
    family_size: int
    p_holm: float | None
    smallest_p_holm: float | None
    cliff: float | None
    cliff_low: float | None
    cliff_high: float | None
    cliff_word: str | None
    cliff_within: float | None


@dataclass
class _Paired:
    """The values of a method and of the reference at the same repetitions, and what is missing from them."""

    metric: str
    entry: Entry
    reference: Entry
    cells: list[Cell] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def overall(self) -> bool:
        return len(self.cells) > 1

    def differences(self) -> list[float]:
        return [our - their for our, their in zip(self.ours, self.theirs, strict=True)]

    def signs(self) -> list[float]:
        return [float(sign) for sign in np.sign(np.round(self.differences(), DECIMALS))]

    def extend(self, other: _Paired) -> None:
        self.cells += other.cells
        self.ours += other.ours
        self.theirs += other.theirs
        (cell,) = other.cells
        self.missing += [f"{cell}: {what}" for what in other.missing]


def compare(
    rows: Iterable[Row], reference: str, *, family: HolmFamily = "metric", ceilings: Iterable[str] = ()
) -> list[Comparison]:
    """Compare every method and variant with the reference, cell by cell and, where there are several, over all cells.

    A pair is one repetition (seed of training and of tuples) in one cell that both sides have a value for. Methods in
    `ceilings` see the labels: they are not compared, unless one is the reference. Nor are metrics that only describe.
    """
    left_out = set(ceilings) - {reference}
    by_metric: dict[str, dict[Cell, dict[Entry, Values]]] = {}
    for row in rows:
        if row["metric"] not in DESCRIPTIVE and row["method"] not in left_out:
            entries = by_metric.setdefault(row["metric"], {}).setdefault(cell_of(row), {})
            values = entries.setdefault(Entry(row["method"], row["variant"]), {})
            values[row["seed"], row.get("tuples_seed")] = defined(row["value"])
    pairings: list[_Paired] = []
    for metric, cells in by_metric.items():
        own = [_paired(metric, cell, cells[cell], reference) for cell in sorted(cells, key=cell_order)]
        pairings += [paired for of_cell in own for paired in of_cell]
        if len(cells) > 1:
            pairings += _overall(own)
    return _with_holm(list(_measured(pairings, family)), family)


def reference_of(entry: Entry, entries: Iterable[Entry], reference: str) -> Entry | None:
    """A cell's reference; where that comes in several variants, the one of the entry's own variant."""
    candidates = [other for other in entries if other.method == reference]
    if len(candidates) > 1:
        candidates = [other for other in candidates if other.variant == entry.variant]
    return candidates[0] if candidates else None


def _paired(metric: str, cell: Cell, entries: dict[Entry, Values], reference: str) -> list[_Paired]:
    found = []
    for entry in sorted(entries):
        if entry.method == reference:
            continue
        theirs = reference_of(entry, entries, reference)
        paired = _Paired(metric, entry, theirs or Entry(reference, ""), [cell])
        sides = {paired.entry: entries[entry], paired.reference: entries[theirs] if theirs else {}}
        for repetition in sorted(set().union(*sides.values()), key=lambda both: (both[0], both[1] or 0)):
            our, their = (values.get(repetition) for values in sides.values())
            if our is not None and their is not None:
                paired.ours.append(our)
                paired.theirs.append(their)
            else:
                paired.missing.append(f"{_name(repetition)}: {_absence(repetition, sides)}")
        found.append(paired)
    return found


def _name(repetition: Repetition) -> str:
    seed, tuples_seed = repetition
    return f"seed {seed}" + ("" if tuples_seed in (None, seed) else f" on tuples of seed {tuples_seed}")


def _absence(repetition: Repetition, sides: dict[Entry, Values]) -> str:
    return ", ".join(
        f"{entry} is undefined" if repetition in values else f"no run of {entry}"
        for entry, values in sides.items()
        if values.get(repetition) is None
    )


def _overall(of_cells: Sequence[Sequence[_Paired]]) -> list[_Paired]:
    """The pairs of every cell together, for each method that is in more than one."""
    joined: dict[Entry, _Paired] = {}
    for paired in (paired for of_cell in of_cells for paired in of_cell):
        joined.setdefault(paired.entry, _Paired(paired.metric, paired.entry, paired.reference)).extend(paired)
    return [paired for _, paired in sorted(joined.items()) if paired.overall]


def _measured(pairings: Sequence[_Paired], family: HolmFamily) -> Iterator[Comparison]:
    differences = [paired.differences() for paired in pairings]
    limits = intervals_by_size(differences)
    sign_limits = intervals_by_size([paired.signs() if paired.overall else [] for paired in pairings])
    for paired, own, limit, sign_limit in zip(pairings, differences, limits, sign_limits, strict=True):
        signs, size = paired.signs(), len(own)
        cell = None if paired.overall else paired.cells[0]
        test = wilcoxon(np.array(own)) if own else None
        within = float(np.mean(signs)) if own else None
        if paired.overall or not own:
            delta, low, high = within, sign_limit.low, sign_limit.high
        else:
            cliff = cliffs_delta(np.array(paired.ours), np.array(paired.theirs))
            delta, low, high = cliff.delta, defined(cliff.low), defined(cliff.high)
        yield {
            "scope": "overall" if paired.overall else "cell",
            "dataset": cell and cell.dataset,
            "tuples": cell and cell.tuples,
            "n": cell and cell.n,
            "m": cell and cell.m,
            "prior": cell and cell.prior,
            "metric": paired.metric,
            "method": paired.entry.method,
            "variant": paired.entry.variant,
            "reference": paired.reference.method,
            "reference_variant": paired.reference.variant,
            "cells": len(paired.cells),
            "pairs": size,
            "missing": paired.missing,
            "wins": signs.count(1),
            "ties": signs.count(0),
            "losses": signs.count(-1),
            "difference": float(np.mean(own)) if own else None,
            "difference_low": limit.low,
            "difference_high": limit.high,
            "difference_bca_low": limit.bca_low,
            "difference_bca_high": limit.bca_high,
            "p": test and test.p,
            "p_exact": test and test.exact,
            "smallest_p": smallest_p(size) if own else None,
            "family": family,
            "family_size": 0,
            "p_holm": None,
            "smallest_p_holm": None,
            "cliff": delta,
            "cliff_low": low,
            "cliff_high": high,
            "cliff_word": None if delta is None else magnitude(delta),
            "cliff_within": within,
        }


def _with_holm(comparisons: list[Comparison], family: HolmFamily) -> list[Comparison]:
    """Fill in the adjusted p of each family. Cells and their union ask the same question: never one family."""
    families: dict[Hashable, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        if comparison["p"] is not None:
            families[_family(comparison, family)].append(comparison)
    for members in families.values():
        adjusted = holm([member["p"] or 0.0 for member in members])
        for member, p in zip(members, adjusted, strict=True):
            member["family_size"] = len(members)
            member["p_holm"] = p
            member["smallest_p_holm"] = min(1.0, len(members) * (member["smallest_p"] or 0.0))
    return comparisons


def _family(comparison: Comparison, family: HolmFamily) -> Hashable:
    keys: dict[HolmFamily, tuple[str, ...]] = {
        "cell": ("metric", "dataset", "tuples", "n", "m", "prior"),
        "dataset": ("metric", "dataset"),
        "metric": ("metric",),
        "all": (),
    }
    return comparison["scope"], *(comparison[key] for key in keys[family])  # type: ignore[literal-required]
