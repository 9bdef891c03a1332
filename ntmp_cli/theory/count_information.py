"""Fisher information of a recorded count about the classifier, compared with exact counts and labels (Eq. 113).

Members have log-odds z_i = a·s_i + b, where s_i is the log-likelihood ratio of two normal classes of a given AUROC. The
Fisher information of one tuple about θ = (a, b) is Σ_r ∇P(r)∇P(r)ᵀ / P(r) over what may be recorded, with
P(r) = Σ_k P(r | k) P(k | z). The information about the slope a, with b unknown, is I_aa − I_ab² / I_bb: it is the
inverse variance with which scores are learned. Tuples are simulated with the sizes and counts of the design.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.theory.strata import Floats, Stratum

AUROC = 0.85
# Total number of simulated members; a stratum has at least a few tuples.
MEMBERS, FEWEST, MOST = 40_000, 4, 400
STEP = 1e-4
# Records less probable than this add nothing.
TINY = 1e-30
# Tables of longer tuples would be large: one of this size and the same rate stands for them.
LONGEST = 1000


class CountInformation(NamedTuple):
    """Information about the slope per tuple: of labels, of exact counts, of recorded ones."""

    labels: float
    exact: float
    recorded: float


def count_information(
    strata: Sequence[Stratum], probabilities: Callable[[int], Floats], rng: np.random.Generator
) -> CountInformation:
    """The mean over simulated tuples of these strata; `probabilities(n)` are P(record | k), a row per record."""
    total = sum(s.tuples for s in strata)
    rate = float(np.clip(sum(s.m * s.tuples for s in strata) / sum(s.instances for s in strata), 0.01, 0.99))
    sums = {name: np.zeros((2, 2)) for name in CountInformation._fields}
    for s in strata:
        n = min(s.n, LONGEST)
        number = int(np.clip(MEMBERS * s.tuples / total / n, FEWEST, MOST))
        ratios = _ratios(n, s.m / s.n, number, rng)
        weight = s.tuples / total * s.n / n
        sums["labels"] += weight * _of_labels(ratios, rate)
        sums["exact"] += weight * information(ratios, rate, np.eye(n + 1))
        sums["recorded"] += weight * information(ratios, rate, probabilities(n))
    return CountInformation(*(_of_slope(total) for total in sums.values()))


def information(ratios: Floats, rate: float, records: Floats) -> Floats:
    """(2, 2) mean Fisher information about (a, b) of tuples (T, n) at a = 1, b = logit(rate), from records (R, n+1)."""

    def law(a: float, b: float) -> Floats:
        return count_law(a * ratios + logit(rate) + b) @ records.T

    p = law(1.0, 0.0)
    slopes = np.stack([law(1 + STEP, 0) - law(1 - STEP, 0), law(1, STEP) - law(1, -STEP)]) / (2 * STEP)
    weights = np.where(p > TINY, 1 / np.maximum(p, TINY), 0.0)
    found: Floats = np.einsum("itr,jtr,tr->ij", slopes, slopes, weights) / len(ratios)
    return found


def _ratios(n: int, rate: float, tuples: int, rng: np.random.Generator) -> Floats:
    """(T, n) log-likelihood ratios of members of which round(rate · n) are positive."""
    distance = np.sqrt(2) * ndtri(AUROC)
    positive = np.arange(n) < np.rint(rate * n)
    x = rng.normal(0, 1, (tuples, n)) + distance * positive
    ratios: Floats = distance * (x - distance / 2)
    return ratios


def _of_labels(ratios: Floats, rate: float) -> Floats:
    p = expit(ratios + logit(rate))
    design = np.stack([ratios, np.ones_like(ratios)])
    found: Floats = np.einsum("itn,jtn,tn->ij", design, design, p * (1 - p)) / len(ratios)
    return found


def _of_slope(matrix: Floats) -> float:
    """I_aa − I_ab² / I_bb: the information about the slope if the intercept is estimated as well."""
    return float(matrix[0, 0] - matrix[0, 1] ** 2 / matrix[1, 1]) if matrix[1, 1] > 0 else 0.0
