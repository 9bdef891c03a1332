"""Every method against a reference: paired test, effect size, difference, Holm over a stated family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from ntmp_cli.config import HolmFamily
from ntmp_cli.evaluation.intervals import NONE, difference_interval
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.significance import (
    DECIMALS,
    cliffs_delta,
    dominance_interval,
    holm,
    magnitude,
    smallest_p,
    wilcoxon,
)
from ntmp_cli.evaluation.summary import DataCell, Row, RowLabels, cell_of, cell_order, value_of

# A repetition: the seed of a training and the seed of its tuples.
Repetition = tuple[int, int | None]
Values = dict[Repetition, float | None]


class MethodVariant(NamedTuple):
    """A method, and the settings that distinguish its runs from others of the same method."""

    method: str
    variant: str

    def __str__(self) -> str:
        return f"{self.method} {self.variant}".rstrip()


class Reference(NamedTuple):
    """The reference: a method with all its variants (None), or one variant."""

    method: str
    variant: str | None = None

    @classmethod
    def named(cls, name: str, entries: Iterable[MethodVariant]) -> Reference:
        """The method of that name, else the variant that tables show under it."""
        present = set(entries)
        if name not in {entry.method for entry in present}:
            for entry in sorted(present):
                if str(entry) == name:
                    return cls(*entry)
        return cls(name)

    def includes(self, entry: MethodVariant) -> bool:
        return entry.method == self.method and self.variant in (None, entry.variant)

    def of(self, entry: MethodVariant, entries: Iterable[MethodVariant]) -> MethodVariant | None:
        """A cell's reference; of several variants of a method, the one with the entry's variant."""
        candidates = [candidate for candidate in entries if self.includes(candidate)]
        if len(candidates) > 1:
            candidates = [candidate for candidate in candidates if candidate.variant == entry.variant]
        return candidates[0] if candidates else None


def default_reference(runs: Sequence[RowLabels]) -> str | None:
    """`count` if it was run, else the first method given. Choosing the best method would invalidate the tests.

    If a cell has several variants of it, the first variant. None if there are no two methods or variants to compare;
    oracles do not count.
    """
    entries = [method_variant_of(run) for run in runs if not run["is_oracle"]]
    if len(set(entries)) < 2:
        return None
    first = next((entry for entry in entries if entry.method == "count"), entries[0])
    own = {(cell_of(run), method_variant_of(run)) for run in runs if run["method"] == first.method}
    return first.method if len(own) == len({cell for cell, _ in own}) else str(first)


def method_variant_of(row: RowLabels | Comparison) -> MethodVariant:
    return MethodVariant(row["method"], row["variant"])


def reference_variant_of(comparison: Comparison) -> MethodVariant:
    return MethodVariant(comparison["reference"], comparison["reference_variant"])


def variants(settings: Sequence[Mapping[str, Any]], cells: Sequence[Hashable]) -> list[str]:
    """For each run, the settings in which runs of the same cell differ, e.g. `epochs=10,model=linear`.

    Only what is set is named; a run that sets none of them is `default`.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        members[cell].append(index)
    names = [""] * len(settings)
    for indices in members.values():
        keys = sorted({key for i in indices for key in settings[i]})
        differing = [key for key in keys if len({repr(settings[i].get(key)) for i in indices}) > 1]
        for i in indices:
            given = [f"{key}={_short(value)}" for key in differing if (value := settings[i].get(key)) is not None]
            names[i] = ",".join(given) or ("default" if differing else "")
    return names


def _short(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Comparison(TypedDict):
    """One method against the reference in one metric, on the pairs of one cell, or (`overall`) of all cells.

    Differences are method minus reference. `missing` names unpaired and undefined values. A number that needs pairs
    is None without any, a limit also with only one. `cliff` is Cliff's δ of the paired differences, as in the paper:
    the share of pairs won minus the share of pairs lost. `cliff_all_pairs` compares every value of a cell with every
    value of the reference in this cell.
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
    reference_is_oracle: bool
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
    cliff_all_pairs: float | None
    cliff_all_pairs_low: float | None
    cliff_all_pairs_high: float | None


@dataclass
class _Paired:
    """The values of a method and of the reference at the same repetitions, and the unpaired ones."""

    metric: str
    entry: MethodVariant
    reference: MethodVariant
    cells: list[DataCell] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    reference_values: list[float] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def overall(self) -> bool:
        return len(self.cells) > 1

    def differences(self) -> list[float]:
        return [
            value - reference_value for value, reference_value in zip(self.values, self.reference_values, strict=True)
        ]

    def signs(self) -> list[float]:
        return [float(sign) for sign in np.sign(np.round(self.differences(), DECIMALS))]

    def extend(self, pairs_of_cell: _Paired) -> None:
        self.cells += pairs_of_cell.cells
        self.values += pairs_of_cell.values
        self.reference_values += pairs_of_cell.reference_values
        (cell,) = pairs_of_cell.cells
        self.missing += [f"{cell}: {reason}" for reason in pairs_of_cell.missing]


def compare(rows: Iterable[Row], reference: str, *, family: HolmFamily = "metric") -> list[Comparison]:
    """Compare every method and variant with the reference, cell by cell and, where there are several, over all cells.

    The reference is a method, or one of its variants as tables show it.

    A pair is one repetition (seed of training and of tuples) in one cell that both sides have a value for. Oracles are
    not compared, unless one is the reference. Nor are descriptive metrics.
    """
    rows, reference_is_oracle = list(rows), False
    chosen = Reference.named(reference, map(method_variant_of, rows))
    by_metric: dict[str, dict[DataCell, dict[MethodVariant, Values]]] = {}
    for row in rows:
        if chosen.includes(method_variant_of(row)):
            reference_is_oracle = row["is_oracle"]
        elif row["is_oracle"]:
            continue
        if not facts_of(row["metric"]).descriptive:
            entries = by_metric.setdefault(row["metric"], {}).setdefault(cell_of(row), {})
            values = entries.setdefault(method_variant_of(row), {})
            values[row["seed"], row.get("tuples_seed")] = value_of(row)
    pairings: list[_Paired] = []
    for metric, cells in by_metric.items():
        pairs_by_cell = [_paired(metric, cell, cells[cell], chosen) for cell in sorted(cells, key=cell_order)]
        pairings += [paired for pairs_of_cell in pairs_by_cell for paired in pairs_of_cell]
        if len(cells) > 1:
            pairings += _overall(pairs_by_cell)
    return _with_holm(list(_measured(pairings, family, reference_is_oracle=reference_is_oracle)), family)


def _paired(metric: str, cell: DataCell, entries: dict[MethodVariant, Values], reference: Reference) -> list[_Paired]:
    pairs_of_cell = []
    for entry in sorted(entries):
        if reference.includes(entry):
            continue
        reference_entry = reference.of(entry, entries)
        absent = MethodVariant(reference.method, reference.variant or "")
        paired = _Paired(metric, entry, reference_entry or absent, [cell])
        sides = {paired.entry: entries[entry], paired.reference: entries[reference_entry] if reference_entry else {}}
        for repetition in sorted(set().union(*sides.values()), key=lambda seeds: (seeds[0], seeds[1] or 0)):
            value, reference_value = (values.get(repetition) for values in sides.values())
            if value is not None and reference_value is not None:
                paired.values.append(value)
                paired.reference_values.append(reference_value)
            else:
                paired.missing.append(f"{_name(repetition)}: {_absence(repetition, sides)}")
        pairs_of_cell.append(paired)
    return pairs_of_cell


def _name(repetition: Repetition) -> str:
    seed, tuples_seed = repetition
    return f"seed {seed}" + ("" if tuples_seed in (None, seed) else f" on tuples of seed {tuples_seed}")


def _absence(repetition: Repetition, sides: dict[MethodVariant, Values]) -> str:
    return ", ".join(
        f"{entry} is undefined" if repetition in values else f"no run of {entry}"
        for entry, values in sides.items()
        if values.get(repetition) is None
    )


def _overall(of_cells: Sequence[Sequence[_Paired]]) -> list[_Paired]:
    """The pairs of every cell together, for each method that is in more than one."""
    joined: dict[MethodVariant, _Paired] = {}
    for paired in (paired for of_cell in of_cells for paired in of_cell):
        joined.setdefault(paired.entry, _Paired(paired.metric, paired.entry, paired.reference)).extend(paired)
    return [paired for _, paired in sorted(joined.items()) if paired.overall]


def _measured(pairings: Sequence[_Paired], family: HolmFamily, *, reference_is_oracle: bool) -> Iterator[Comparison]:
    for paired in pairings:
        difference, signs = paired.differences(), paired.signs()
        size, limit = len(difference), difference_interval(paired.metric, difference)
        cell = None if paired.overall else paired.cells[0]
        test = wilcoxon(np.array(difference)) if difference else None
        within = float(np.mean(signs)) if difference else None
        effect, all_pairs = NONE, None
        if within is not None:
            effect = dominance_interval(within, float(np.var(signs)) / max(size - 1, 1), size)
        if difference and not paired.overall:  # values of different cells are not comparable
            all_pairs = cliffs_delta(np.array(paired.values), np.array(paired.reference_values))
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
            "reference_is_oracle": reference_is_oracle,
            "reference_variant": paired.reference.variant,
            "cells": len(paired.cells),
            "pairs": size,
            "missing": paired.missing,
            "wins": signs.count(1),
            "ties": signs.count(0),
            "losses": signs.count(-1),
            "difference": float(np.mean(difference)) if difference else None,
            "difference_low": limit.low,
            "difference_high": limit.high,
            "p": test and test.p,
            "p_exact": test and test.exact,
            "smallest_p": smallest_p(size) if difference else None,
            "family": family,
            "family_size": 0,
            "p_holm": None,
            "smallest_p_holm": None,
            "cliff": within,
            "cliff_low": effect.low,
            "cliff_high": effect.high,
            "cliff_word": None if within is None else magnitude(within),
            "cliff_all_pairs": all_pairs and all_pairs.delta,
            "cliff_all_pairs_low": all_pairs and all_pairs.interval.low,
            "cliff_all_pairs_high": all_pairs and all_pairs.interval.high,
        }


def _with_holm(comparisons: list[Comparison], family: HolmFamily) -> list[Comparison]:
    """Fill in the adjusted p of each family. Cells and their union test the same hypothesis: two separate families."""
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
