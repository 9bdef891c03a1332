"""Paired tests over seeds of every run against the reference, at single points of a sweep and over all points.

Trainings of one seed at several points share its data, so that they are not independent pairs. Over all points, a pair
is a seed, with the mean of its differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ntmp_cli.evaluation.significance import holm, smallest_p, wilcoxon
from ntmp_cli.sweeps.plans import SweepCell, SweepPlan

# Marks of significance and the corrected p that they need.
MARKS = (("***", 0.001), ("**", 0.01), ("*", 0.05))


@dataclass(frozen=True)
class PointTest:
    """One point, or all: seeds that both runs have, mean difference to the reference, p before and after Holm."""

    position: Mapping[str, Any]
    pairs: int
    difference: float | None
    p: float | None
    p_holm: float | None

    @property
    def mark(self) -> str:
        return next((mark for mark, level in MARKS if self.p_holm is not None and self.p_holm < level), "")


@dataclass(frozen=True)
class RunTest:
    """A run against the reference: at every point, and by the mean of each seed over the points."""

    run: str
    reference: str
    points: tuple[PointTest, ...]
    overall: PointTest

    @property
    def least_p(self) -> float:
        """The least p that a single point can reach with its pairs, after Holm over all points."""
        tested = [point.pairs for point in self.points if point.p is not None]
        return min(1.0, len(tested) * smallest_p(max(tested, default=0)))

    def rows(self, metric: str) -> Iterator[dict[str, Any]]:
        """Rows for publication; the last one is over all points."""
        for scope, tested in (*(("point", point) for point in self.points), ("overall", self.overall)):
            yield {
                **{"run": self.run, "reference": self.reference, "metric": metric, "scope": scope},
                **{**tested.position, "pairs": tested.pairs, "difference": tested.difference},
                **{"p": tested.p, "p_holm": tested.p_holm},
            }


def point_tests(plan: SweepPlan, values: Mapping[str, Mapping[str, float | None]]) -> list[RunTest]:
    """Every run but the reference, by the metric that is judged; Holm over the points of a run."""
    reference = plan.reference
    if reference is None:
        return []
    cells = {(cell.run, repr(cell.position), cell.seed): cell for cell in plan.cells}
    positions = {repr(cell.position): cell.position for cell in plan.cells}

    def differences(run: str, position: str) -> dict[int, float]:
        found = {}
        for seed in plan.config.seeds:
            mine, other = (_value(cells.get((name, position, seed)), plan, values) for name in (run, reference))
            if mine is not None and other is not None:
                found[seed] = mine - other
        return found

    tests = []
    for run in (name for name in plan.runs if name != reference):
        by_seed = {name: differences(run, name) for name in positions}
        by_position = {name: list(found.values()) for name, found in by_seed.items()}
        p_values = {name: wilcoxon(np.array(found)).p for name, found in by_position.items() if found}
        corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
        points = tuple(
            PointTest(positions[name], len(found), _mean(found), p_values.get(name), corrected.get(name))
            for name, found in by_position.items()
        )
        tests.append(RunTest(run, reference, points, _over_points(list(by_seed.values()))))
    return tests


def _over_points(by_seed: Sequence[Mapping[int, float]]) -> PointTest:
    """The test of the seeds' mean differences, given the differences of each point by seed."""
    seeds = sorted(set().union(*by_seed))
    means = [float(np.mean([found[seed] for found in by_seed if seed in found])) for seed in seeds]
    p = wilcoxon(np.array(means)).p if means else None
    return PointTest({}, len(means), _mean(means), p, p)


def _value(cell: SweepCell | None, plan: SweepPlan, values: Mapping[str, Mapping[str, float | None]]) -> float | None:
    return None if cell is None or cell.name not in values else values[cell.name][plan.config.judge]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
