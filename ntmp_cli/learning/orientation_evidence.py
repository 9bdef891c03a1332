"""Evidence for the orientation: which sign of the scores means the positive class. No torch.

There are two kinds of evidence. First order: the difference between the mean probabilities of pool and tuples must have
the sign of the difference between prior and tuple rate. Counts: they must be more probable under the scores than under
the flipped scores, each with its maximum-likelihood line a·z + b. A standard score z corresponds to z²/2 nats, so both
are added in nats and reported as one z (Eq. 40).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import expit, logit

from ntmp_cli.counting.laws import Floats, NoiseLaw
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.groups import rate_shift, usable_rate
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.tuple_source import Task

if TYPE_CHECKING:
    from ntmp_cli.learning.methods.count import CountSettings

log = logging.getLogger(__name__)

Trust = Literal["prior", "counts"]

# z from which on an orientation counts as certain, and below which it is not known at all.
CERTAIN, UNDECIDED = 3.0, 1.0
# Nats of a certain z. The counts are used only if they gain as much over a constant score.
CERTAIN_NATS = CERTAIN**2 / 2
# Slopes from which the likeliest line is searched, for scores of standard deviation 1.
SLOPES = (0.5, 3.0)


class Evidence(NamedTuple):
    """Evidence in nats for the present orientation and against the flipped one, of both kinds."""

    first_order: float
    counts: float

    @property
    def z(self) -> float:
        nats = self.first_order + self.counts
        return float(np.sign(nats) * np.sqrt(2 * abs(nats)))

    @property
    def contradictory(self) -> bool:
        """Whether both kinds are certain, of opposite orientations."""
        return self.first_order * self.counts < 0 and min(map(abs, self)) >= CERTAIN_NATS

    @property
    def settled(self) -> bool:
        """Whether the orientation is certain, and no kind of evidence contradicts it."""
        return self.z >= CERTAIN and min(self) > -(UNDECIDED**2) / 2

    def mirrored(self) -> Evidence:
        return Evidence(-self.first_order, -self.counts)

    def trusted(self, trust: Trust | None) -> Evidence:
        """If the two kinds disagree, the trusted one alone."""
        if trust is None or self.first_order * self.counts >= 0:
            return self
        return Evidence(self.first_order, 0.0) if trust == "prior" else Evidence(0.0, self.counts)


class CountFits(NamedTuple):
    """Log-likelihood of the counts under a constant score, under the scores, and under the mirrored scores."""

    constant: float
    as_is: float
    mirrored: float

    @property
    def on_plateau(self) -> bool:
        """Whether the scores explain the counts hardly better than a constant does."""
        return max(self.as_is, self.mirrored) - self.constant < CERTAIN_NATS

    def exchanged(self) -> CountFits:
        """Those of the mirrored scores."""
        return CountFits(self.constant, self.mirrored, self.as_is)

    def better(self, other: CountFits) -> CountFits:
        """The better fit of two scorers to the same tuples, for either sign."""
        return CountFits(self.constant, max(self.as_is, other.as_is), max(self.mirrored, other.mirrored))

    def plus(self, other: CountFits) -> CountFits:
        """Together with those of another scorer to other tuples."""
        return CountFits(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class OrientationTest:
    """Information beside the scores; `prior` is None if it was estimated from the same counts."""

    task: Task
    scores_prior: float
    prior: float | None
    law: NoiseLaw

    @property
    def shift(self) -> float:
        """The scores minus log-odds at the rate of the tuples: the centre of a flip."""
        return rate_shift(self.scores_prior, self.task.rate, self.task.instances)

    @property
    def one_rate(self) -> bool:
        """All tuples may have one rate: then the likelihood has a mirrored optimum, and a plateau between both."""
        if self.task.knowledge is not None:
            return self.task.knowledge.one_rate
        sizes, counts, _ = (np.array(column) for column in zip(*self.task.strata, strict=True))
        low, high = self.law.support(counts, sizes)
        return bool((low / sizes).max() <= (high / sizes).min() + 1e-12)

    def evidence(self, first_order: Sequence[HeldoutScores], counts: CountFits) -> Evidence:
        """Of one scorer or several of one orientation, each on data that it was not trained on."""
        return Evidence(self.first_order(first_order), self.nats(counts))

    def first_order(self, scored: Sequence[HeldoutScores]) -> float:
        """Nats of the pool against the tuples (Eq. 38).

        z is at most that of a perfect classifier, for which chance is in the number of positives in U alone.
        """
        pools = [scores for scores in scored if len(scores.unlabeled_scores) and len(scores.tuple_scores)]
        if self.prior is None or not pools:
            return 0.0
        gap = self.prior - self.task.rate
        instances = np.array([len(scores.unlabeled_scores) for scores in pools])
        most = abs(gap) * np.sqrt(instances.sum() / (self.prior * (1 - self.prior)))
        z = np.sign(gap) * np.sqrt(instances / instances.sum()) @ [first_order_z(scores) for scores in pools]
        return float(np.sign(z) * min(abs(z), most) ** 2 / 2)

    def count_fits(self, scores: HeldoutScores) -> CountFits:
        """The fit of either sign to the counts of these tuples."""
        observed = CountObservations(scores.sizes, scores.counts, self.law)
        z = np.asarray(scores.tuple_scores, dtype=np.float64) - self.shift
        return CountFits(*(_log_likelihood(sign * z, observed) for sign in (0.0, 1.0, -1.0)))

    def nats(self, fits: CountFits) -> float:
        """Nats of the counts (Eq. 39): none on the plateau, nor where n = 2m throughout, whatever rounding says."""
        return 0.0 if self.task.symmetric or fits.on_plateau else fits.as_is - fits.mirrored


def first_order_z(scores: HeldoutScores) -> float:
    """(E_U σ − E_T σ) in standard errors: its sign times that of π − ᾱ tells the orientation (Eq. 38).

    An unlabeled instance is positive by chance. A tuple's sum of σ is E₋ n + (E₊ − E₋) m and what its members scatter.
    """
    inside, outside = (expit(np.asarray(s, np.float64)) for s in (scores.tuple_scores, scores.unlabeled_scores))
    owner = np.repeat(np.arange(len(scores.sizes)), scores.sizes)
    sums = np.bincount(owner, inside, minlength=len(scores.sizes))
    counts = CountObservations(scores.sizes, scores.counts).likely
    design = np.column_stack([scores.sizes, counts]).astype(np.float64)
    solution, _, rank, _ = np.linalg.lstsq(design, sums, rcond=None)
    scatter = float(((sums - design @ solution) ** 2).sum()) * len(sums) / max(len(sums) - int(rank), 1)
    error = np.sqrt(scatter / len(inside) ** 2 + outside.var() / len(outside))
    return float((outside.mean() - inside.mean()) / max(float(error), 1e-12))


def require_agreement(evidence: Evidence, test: OrientationTest, options: CountSettings) -> None:
    """Refuse a prior that the counts contradict."""
    if not evidence.contradictory or options.trust is not None:
        return
    z = abs(Evidence(evidence.first_order, 0.0).z)
    raise NotIdentifiableError(
        f"the prior and the counts contradict each other: by the prior {test.prior:g} and the tuples' rate "
        f"{test.task.rate:.4g} the pool tells the orientation with z = {z:.1f}, while the counts are "
        f"{abs(evidence.counts):.1f} nats more probable with the classes exchanged",
        hint="Check the prior, and whether tuples and pool are alike; the setting `trust` (prior or counts) decides.",
    )


def require_certainty(z: float, test: OrientationTest, options: CountSettings, *, warmed_up: bool = False) -> None:
    """Raise an error if nothing determines the orientation, neither data nor user; warn if it is uncertain.

    Tuples of several rates have no flipped solution, even if they are few. If all data determine the sign of the
    warm-up, it has oriented the network, even if the network has learned too little to confirm it.
    """
    told = warmed_up or options.trust is not None or options.assume is not None
    if z < UNDECIDED and test.one_rate and not told:
        raise NotIdentifiableError(
            f"neither the pool nor the counts determine which class is positive (z = {z:.1f})",
            hint="Use more tuples or unlabeled instances, tuples of another rate, or more epochs; "
            "or decide it yourself by the settings `assume` or `trust`.",
        )
    if z < CERTAIN:
        log.warning(
            "the orientation is uncertain (z = %.1f, certain from %g on): the classes may be exchanged", z, CERTAIN
        )


def _log_likelihood(z: Floats, observed: CountObservations) -> float:
    """Of the likeliest line, searched from several slopes: tuples of one rate have a flat likelihood at small ones."""
    spread, mean = float(z.std()), float(z.mean())
    starts: Sequence[tuple[float, float]] = [(0.0, 0.0)]
    if spread > 0:
        rate = usable_rate(observed.rate, observed.instances)
        slopes = [slope / spread for slope in SLOPES]
        starts = [*starts, *((float(np.log(a)), float(logit(rate)) - a * mean) for a in slopes)]
    return -len(observed) * min(recalibrate(z, observed, start=_inside(start)).nll for start in starts)


def _inside(start: tuple[float, float]) -> tuple[float, float]:
    return float(np.clip(start[0], -8, 4)), float(np.clip(start[1], -50, 50))
