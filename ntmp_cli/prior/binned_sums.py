"""Scores to sums by bins, and their bootstrap over tuples and U, as matrix products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.counting.recalibration import line_derivatives
from ntmp_cli.counting.recorded import exact_rows
from ntmp_cli.prior.estimator import Floats, Integers, Sample, ScoredTuples

BINS = 1024
# Weights of the tuples of a block of resamples stay below this size.
BLOCK_BYTES = 32 * 2**20


class BinnedSums:
    """All sums over the tuples and over U, for one set of scores."""

    def __init__(self, data: ScoredTuples, bins: int = BINS) -> None:
        self.data = data
        everything = np.concatenate([data.scores, data.unlabeled])
        edges = np.unique(np.quantile(everything, np.linspace(0, 1, bins + 1)))[1:-1]
        place = np.searchsorted(edges, everything, side="right")
        held = np.bincount(place, minlength=len(edges) + 1)
        kept = np.cumsum(held > 0) - 1  # ties can leave bins empty
        place, held = kept[place], held[held > 0]
        self._inside, outside = place[: len(data.scores)], place[len(data.scores) :]
        self.centres: Floats = np.bincount(place, everything) / held
        self.instances = np.bincount(self._inside, minlength=len(held)).astype(np.float64)
        self.unlabeled = np.bincount(outside, minlength=len(held)).astype(np.float64)
        # Moments do not depend on the origin; near the mean they lose no digits.
        self._origin = float(expit(data.scores).mean())
        total = np.bincount(outside, expit(data.unlabeled) - self._origin, minlength=len(held))
        # A bin without unlabeled instances has none in any resample either.
        self.sigmoids: Floats = total / np.maximum(self.unlabeled, 1)
        # Of tuples whose count is not known the moments use nothing: m = −1.
        known = np.where(exact_rows(data.counts), np.rint(data.observed.likely), -1).astype(np.int64)
        self.strata, stratum_of_tuple = np.unique(np.column_stack([data.sizes, known]), axis=0, return_inverse=True)
        self._posterior_by_bin = self._by_tuple(self._posterior())
        self._proxy = self._by_tuple(highest_members(data.scores, data.sizes, np.rint(data.observed.likely)))
        self._moments = self._stratum_sums(np.asarray(stratum_of_tuple).reshape(-1))
        first, second = line_derivatives(data.scores, data.observed, data.line, data.spread)
        self._derivatives = np.column_stack([first, second])

    def sample(self) -> Sample:
        """The data as they are: one row."""
        return self._sample(np.ones((1, len(self.data.sizes))), self.unlabeled[None], None)

    def resamples(self, number: int, rng: np.random.Generator) -> Iterator[Sample]:
        """`number` bootstrap resamples, in blocks."""
        original, tuples, pool = self.sample(), len(self.data.sizes), int(self.unlabeled.sum())
        block = max(1, BLOCK_BYTES // (8 * tuples))
        for first in range(0, number, block):
            rows = min(block, number - first)
            weights = np.stack([times_sampled(tuples, self.data.blocks, rng) for _ in range(rows)])
            pool_counts = rng.multinomial(pool, self.unlabeled / pool, size=rows)
            yield self._sample(weights.astype(np.float64), pool_counts.astype(np.float64), original)

    def _sample(self, tuples: Floats, unlabeled: Floats, original: Sample | None) -> Sample:
        rows = len(tuples)
        return Sample(
            centres=self.centres,
            sigmoids=self.sigmoids,
            unlabeled=unlabeled,
            posterior=tuples @ self._posterior_by_bin,
            proxy=tuples @ self._proxy,
            lines=self._lines(tuples @ self._derivatives),
            strata=self.strata,
            moments=(tuples @ self._moments).reshape(rows, len(self.strata), 4),
            rate=self.data.rate,
            original=original,
        )

    def _lines(self, sums: Floats) -> Floats:
        """The likeliest line of every resample (Eq. 30), by one Newton step from that of the data."""
        slope, intercept, _ = self.data.line
        gradient, (aa, ab, bb) = sums[:, :2], sums[:, 2:].T
        determinant = aa * bb - ab**2
        # If the counts hold too little information, the likelihood is flat or unbounded: the line is left unchanged.
        curved = (aa < 0) & (bb < 0) & (determinant > 1e-9 * aa * bb)
        safe = np.where(curved, determinant, 1.0)
        step = (
            np.column_stack([bb * gradient[:, 0] - ab * gradient[:, 1], aa * gradient[:, 1] - ab * gradient[:, 0]])
            / safe[:, None]
        )
        largest = np.array([0.5 * slope, 2.0])
        moved: Floats = np.array([slope, intercept]) - np.where(curved[:, None], np.clip(step, -largest, largest), 0.0)
        return moved

    def _posterior(self) -> Floats:
        return count_posterior(self.data.within_tuples, self.data.observed)

    def _by_tuple(self, weights: Floats) -> csr_array:
        """(T, G): the weights of a tuple's members in their bins."""
        offsets = np.concatenate([[0], np.cumsum(self.data.sizes)])
        shape = len(self.data.sizes), len(self.centres)
        return csr_array((weights, self._inside, offsets), shape=shape)

    def _stratum_sums(self, stratum_of_tuple: Integers) -> csr_array:
        """(T, 4·S): 1, Σh, (Σh)² and Σh² of a tuple in the columns of its stratum (for Eq. 48)."""
        data = self.data
        starts = np.cumsum(data.sizes) - data.sizes
        h = expit(data.scores) - self._origin
        sums, squares = np.add.reduceat(h, starts), np.add.reduceat(h**2, starts)
        values = np.column_stack([np.ones(len(sums)), sums, sums**2, squares])
        columns = 4 * stratum_of_tuple[:, None] + np.arange(4)
        offsets = 4 * np.arange(len(sums) + 1)
        return csr_array((values.reshape(-1), columns.reshape(-1), offsets), shape=(len(sums), 4 * len(self.strata)))


def times_sampled(tuples: int, blocks: Integers | None, rng: np.random.Generator) -> Integers:
    """How often a bootstrap resample holds every tuple; blocks are sampled whole."""
    if blocks is None:
        return np.bincount(rng.integers(tuples, size=tuples), minlength=tuples)
    _, codes = np.unique(blocks, return_inverse=True)
    number = int(codes.max()) + 1
    return np.bincount(rng.integers(number, size=number), minlength=number)[codes]


def highest_members(scores: Floats, sizes: Integers, counts: Floats) -> Floats:
    """1 for the m highest-scored members of every tuple, else 0."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((-scores, owner))
    place = np.arange(len(scores)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(scores))
    chosen[order] = place < np.repeat(counts, sizes)
    return chosen
