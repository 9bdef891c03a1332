"""Fisher information of a recorded count about the classifier, compared with exact counts and labels (Eq. 113).

Members have log-odds z_i = a·s_i + b, where s_i is the log-likelihood ratio of two normal classes of a given AUROC. The
Fisher information of one tuple about θ = (a, b) is Σ_r ∇P(r)∇P(r)ᵀ / P(r) over what may be recorded, with
P(r) = Σ_k P(r | k) P(k | z). The information about the slope a, with b unknown, is I_aa − I_ab² / I_bb: it is the
inverse variance with which scores are learned. Tuples are simulated with the sizes and counts of the design.

Of a stored range nobody knows what would have been recorded of other counts. Its information is that of an exact count
less what the range leaves open: the variance of ∇ log P(k) over the counts in the range (Eq. 117).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.counting.recorded import parse_recorded, records
from ntmp_cli.theory.strata import Floats, Stratum

AUROC = 0.85
# Total number of simulated members; a stratum has at least a few tuples.
MEMBERS, FEWEST, MOST = 40_000, 4, 400
STEP = 1e-4
# Records less probable than this add nothing.
TINY = 1e-30
# Tables of longer tuples would be large: one of this size and the same rate stands for them.
LONGEST = 1000
# Of very many strata, at least as many tuples are drawn.
FEWEST_SAMPLED = 20


@dataclass(frozen=True)
class _Likelihood:
    """L(k), k = 0 … n, of a stored record."""

    values: Floats

    def sample(self, n: int, rate: float, tuples: int, rng: np.random.Generator) -> Floats:
        """True counts of tuples of this record, at this rate of their members."""
        from scipy.stats import binom  # slow to import

        law = binom.pmf(np.arange(n + 1), n, rate) * self.values
        law = law if law.sum() > 0 else self.values
        counts: Floats = rng.choice(n + 1, tuples, p=law / law.sum()).astype(np.float64)
        return counts


class CountInformation(NamedTuple):
    """Information about the slope per tuple: of labels, of exact counts, of recorded ones."""

    labels: float
    exact: float
    recorded: float


def count_information(
    strata: Sequence[Stratum], probabilities: Callable[[int], Floats], rng: np.random.Generator
) -> CountInformation:
    """The mean over simulated tuples of these strata; `probabilities(n)` are P(record | k), a row per record."""
    return _mean_information(strata, [probabilities] * len(strata), rng)


def stored_information(strata: Sequence[Stratum], counts: Sequence[str], rng: np.random.Generator) -> CountInformation:
    """The mean over simulated tuples of these strata, given what is recorded of each (`counting.strata`)."""
    chosen = _sample(strata, rng)
    return _mean_information(
        [stratum for _, stratum in chosen], [_knowledge(strata[i], counts[i]) for i, _ in chosen], rng
    )


def _sample(strata: Sequence[Stratum], rng: np.random.Generator) -> list[tuple[int, Stratum]]:
    """The strata with their positions; of very many, those of some tuples drawn at random."""
    lengths = np.array([min(s.n, LONGEST) for s in strata])
    if lengths.sum() <= MEMBERS // 2:
        return list(enumerate(strata))
    share = np.array([s.tuples for s in strata])
    share = share / share.sum()
    number = max(FEWEST_SAMPLED, int(MEMBERS / 2 / (share @ lengths)))
    drawn = rng.multinomial(number, share)
    return [(i, replace(strata[i], tuples=float(drawn[i]))) for i in np.flatnonzero(drawn).tolist()]


def _knowledge(stratum: Stratum, text: str) -> Callable[[int], Floats] | _Likelihood:
    """P(record | k) of a stratum, or of a stored range its likelihood alone."""
    low, high, law = parse_recorded(text) or (0.0, 0.0, text)
    if low == high:  # one number, or any number under a law of noise
        return parse_law(law).record_probabilities
    n = min(stratum.n, LONGEST)
    # A shorter tuple that stands for a long one has as many standard deviations between its count and the ends.
    k = np.rint(stratum.m + (np.arange(n + 1) - stratum.m * n / stratum.n) * np.sqrt(stratum.n / n))
    observed = CountObservations([stratum.n], records([low], [high], law))
    at = np.clip(k, 0, stratum.n).astype(np.int64)[:, None]
    return _Likelihood(observed.likelihood(at, np.zeros(1, np.int64))[:, 0])


def _mean_information(
    strata: Sequence[Stratum], known: Sequence[Callable[[int], Floats] | _Likelihood], rng: np.random.Generator
) -> CountInformation:
    total = sum(s.tuples for s in strata)
    rate = float(np.clip(sum(s.m * s.tuples for s in strata) / sum(s.instances for s in strata), 0.01, 0.99))
    sums = {name: np.zeros((2, 2)) for name in CountInformation._fields}
    for s, knowledge in zip(strata, known, strict=True):
        n = min(s.n, LONGEST)
        number = int(np.clip(MEMBERS * s.tuples / total / n, FEWEST, MOST))
        positives = np.full(number, np.rint(s.m / s.n * n))
        if isinstance(knowledge, _Likelihood):
            positives = knowledge.sample(n, rate, number, rng)
        ratios = _ratios(n, positives, rng)
        weight = s.tuples / total * s.n / n
        exact = information(ratios, rate, np.eye(n + 1))
        sums["labels"] += weight * _of_labels(ratios, rate)
        sums["exact"] += weight * exact
        if isinstance(knowledge, _Likelihood):
            sums["recorded"] += weight * (exact - missing_information(ratios, rate, knowledge.values))
        else:
            sums["recorded"] += weight * information(ratios, rate, knowledge(n))
    return CountInformation(*(_of_slope(total) for total in sums.values()))


def information(ratios: Floats, rate: float, records: Floats) -> Floats:
    """(2, 2) mean Fisher information about (a, b) of tuples (T, n) at a = 1, b = logit(rate), from records (R, n+1)."""

    p, slopes = _law_and_slopes(ratios, rate, records)
    weights = np.where(p > TINY, 1 / np.maximum(p, TINY), 0.0)
    found: Floats = np.einsum("itr,jtr,tr->ij", slopes, slopes, weights) / len(ratios)
    return found


def missing_information(ratios: Floats, rate: float, likelihood: Floats) -> Floats:
    """(2, 2) mean information of exact counts that a record of likelihood L(k), k = 0 … n, leaves out (Eq. 117)."""
    p, slopes = _law_and_slopes(ratios, rate, np.eye(ratios.shape[1] + 1))
    inside = np.where(p > TINY, p, 0.0) * likelihood
    posterior = inside / np.maximum(inside.sum(axis=1, keepdims=True), TINY)
    gradients = np.where(p > TINY, slopes / np.maximum(p, TINY), 0.0)
    gradients = gradients - np.einsum("itk,tk->it", gradients, posterior)[..., None]
    missing: Floats = np.einsum("itk,jtk,tk->ij", gradients, gradients, posterior) / len(ratios)
    return missing


def _law_and_slopes(ratios: Floats, rate: float, records: Floats) -> tuple[Floats, Floats]:
    """(T, R) probabilities of records and their (2, T, R) derivatives by (a, b) at a = 1, b = logit(rate)."""

    def law(a: float, b: float) -> Floats:
        return count_law(a * ratios + logit(rate) + b) @ records.T

    slopes = np.stack([law(1 + STEP, 0) - law(1 - STEP, 0), law(1, STEP) - law(1, -STEP)]) / (2 * STEP)
    return law(1.0, 0.0), slopes


def _ratios(n: int, positives: Floats, rng: np.random.Generator) -> Floats:
    """(T, n) log-likelihood ratios of the members of T tuples with these numbers of positives."""
    distance = np.sqrt(2) * ndtri(AUROC)
    positive = np.arange(n) < positives[:, None]
    x = rng.normal(0, 1, (len(positives), n)) + distance * positive
    ratios: Floats = distance * (x - distance / 2)
    return ratios


def _of_labels(ratios: Floats, rate: float) -> Floats:
    p = expit(ratios + logit(rate))
    design = np.stack([ratios, np.ones_like(ratios)])
    found: Floats = np.einsum("itn,jtn,tn->ij", design, design, p * (1 - p)) / len(ratios)
    return found


def _of_slope(matrix: Floats) -> float:
    """I_aa − I_ab² / I_bb: the information about the slope if the intercept is estimated as well."""
    return max(float(matrix[0, 0] - matrix[0, 1] ** 2 / matrix[1, 1]), 0.0) if matrix[1, 1] > 0 else 0.0
