"""Fair comparison of two ways to do the same: they take turns, and the medians are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """Ours against the bare limit, and the largest ratio allowed."""

    what: str
    ours: float
    bare: float
    allowed: float
    unit: str = "s"

    @property
    def value(self) -> float:
        return self.ours / self.bare

    @property
    def holds(self) -> bool:
        return self.value <= self.allowed

    def line(self) -> str:
        verdict = "ok" if self.holds else "ABOVE"
        return (
            f"{self.what}: {self.ours:.4g} {self.unit} against {self.bare:.4g} {self.unit}, "
            f"ratio {self.value:.3f} (allowed {self.allowed}) {verdict}"
        )

    def row(self) -> str:
        cells = f"{self.ours:.4g} {self.unit} | {self.bare:.4g} {self.unit} | {self.value:.3f} | {self.allowed}"
        return f"| {self.what} | {cells} |\n"


def take_turns(ours: Callable[[], object], bare: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of each, after one unmeasured round."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_number in range(rounds + 1):
        for work, kept in zip((ours, bare), times, strict=True):
            start = time.perf_counter()
            work()
            if round_number:
                kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])
