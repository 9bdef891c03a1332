"""What a prior estimator takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import conditional_slope
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import Recalibration, looks_mirrored, recalibrate
from ntmp_cli.counting.recorded import Counts
from ntmp_cli.registry import REGISTRIES, Facts, Registry

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ScoredTuples:
    """Scores of held-out tuples (concatenated), their lengths and recorded counts, and scores of U.

    Scores are log-odds at the tuples' own rate of positives, up to a line a·z + b that is fitted to the counts.
    """

    scores: Floats
    sizes: Integers
    counts: Counts
    unlabeled: Floats
    noise: float = 0.0
    spread: float = 0.0
    """Standard deviation of tuples' intercepts, in natural groups."""
    blocks: Integers | None = None
    """(T,) tuples of one block are resampled together; None if all tuples are independent."""

    @cached_property
    def observed(self) -> CountObservations:
        """The recorded counts, off by one at the rate `noise`."""
        return CountObservations(self.sizes, self.counts, count_noise(self.noise))

    @cached_property
    def line(self) -> Recalibration:
        """The line under which the recorded counts are most probable (Eq. 30), for an instance of any tuple."""
        slope, intercept, nll = recalibrate(self.scores, self.observed, spread=self.spread)
        steeper = conditional_slope(self.spread)
        return Recalibration(slope / steeper, intercept / steeper, nll)

    @property
    def within_tuples(self) -> Floats:
        """Scores on that line for members of a tuple whose intercept is 0, as posteriors given a count need them."""
        on_line: Floats = conditional_slope(self.spread) * (self.line.slope * self.scores + self.line.intercept)
        return on_line

    @property
    def rate(self) -> float:
        """Share of positives among tuple instances."""
        return self.observed.rate

    @property
    def symmetric(self) -> bool:
        """n = 2m in every tuple: (p₊, p₋, π) → (p₋, p₊, 1−π) leaves all data unchanged."""
        return self.observed.symmetric

    def mirrored(self) -> ScoredTuples:
        """The same with the classes exchanged."""
        return replace(self, scores=-self.scores, unlabeled=-self.unlabeled)

    def oriented(self) -> ScoredTuples:
        """The orientation in which the counts are more probable; the present one if both are equally probable."""
        if self.symmetric or not looks_mirrored(self.scores, self.observed, self.spread):
            return self
        return self.mirrored()


@dataclass(frozen=True)
class Sample:
    """The input of an estimator, for R resamples at once: sums over tuples and over U, by bins of the score.

    Bins hold equally many instances of tuples and U together. Resampling U is then a multinomial over bins, so
    that the cost does not grow with the data.
    """

    centres: Floats  # (G,) mean score of a bin, ascending
    sigmoids: Floats  # (G,) mean σ(score) of a bin's unlabeled instances, less the mean over all tuple instances
    unlabeled: Floats  # (R, G) unlabeled instances
    posterior: Floats  # (R, G) posterior probability of tuple instances, given their tuple's count
    proxy: Floats  # (R, G) the m highest-scored instances of every tuple
    lines: Floats  # (R, 2) slope and intercept that make the scores log-odds at the tuples' rate
    strata: Integers  # (S, 2) n and m
    moments: Floats  # (R, S, 4) per stratum: tuples, Σ s, Σ s², Σ q with s = Σ h, q = Σ h² of a tuple, h = σ − its mean
    rate: float
    original: Sample | None = None  # of resamples: the data they resample

    @property
    def data(self) -> Sample:
        """The sums of the data themselves, which determine bandwidths and grids of all resamples."""
        return self.original or self


# An estimator gives the class prior π of the unlabeled pool for every resample; nan where it is undefined.
priors: Registry[Callable[[Sample], Floats], Facts] = REGISTRIES["priors"]
