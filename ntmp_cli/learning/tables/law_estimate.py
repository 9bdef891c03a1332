"""Unknown parameters of a noise law (`gaussian:auto`), estimated by the likelihood that also fits the classifier.

Scores of a linear model are cross-fitted under a first guess of the law. Then the parameters and the line a·z + b
jointly maximise the likelihood (Eq. 111), of tuples whose rates may differ (Eq. 114). With this law, scores are
cross-fitted once more. Intervals are where the profile likelihood is within 1.92 nats of its maximum (95 %). A
parameter with a wide interval is refused: poor scores and strong noise are then indistinguishable. The noise of large
tuples is taken to be that of the others, by which it is estimated: Eq. 114 is not computed for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit

from ntmp_cli.counting.laws import Floats, NoiseLaw, law_parameters, law_text, parse_law
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.counting.recorded import with_parameters
from ntmp_cli.counting.varying_rates import fit_varying_rates, most_members
from ntmp_cli.errors import DataError, NotIdentifiableError, UsageError
from ntmp_cli.prior.estimator import ScoredTuples

log = logging.getLogger(__name__)

AUTO = "auto"
IMPOSSIBLE = 1e12
ROUNDS = 2
# Half of the 95 % quantile of chi-squared with one degree of freedom.
PROFILE_NATS = 1.92
# Parameters stay within this distance from 0, on the logarithmic or logistic scale.
FURTHEST = 9.0
FIRST_STEP = 0.7
# Widest intervals that are accepted: the ratio of the ends for a scale, their difference for a probability.
WIDEST_FACTOR, WIDEST_SHARE = 10.0, 0.4
# First guesses of probabilities, by name of the parameter; scales start at 1.
SHARES = {"rate": 0.1, "sensitivity": 0.9, "specificity": 0.9}
SCALES = ("sd", "scale", "epsilon")
AS_NUMBER = "Give it as a number."


class LawEstimate(NamedTuple):
    """The law, and the interval (low, high) of every estimated parameter."""

    law: NoiseLaw
    intervals: dict[str, tuple[float, float]]


def is_auto(text: str | None) -> bool:
    """Whether a law has a parameter to be estimated."""
    return text is not None and AUTO in text.partition(":")[2].split(",")


def widest_law(text: str) -> NoiseLaw:
    """The law of a text with `auto`, so noisy that every record is possible; used to read counts."""
    name, given = law_parameters(text)
    widest = {"epsilon": 1e-6, "sd": 1e9, "scale": 1e9, "rate": 0.5, "sensitivity": 0.75, "specificity": 0.75}
    chosen = {one: str(widest.get(one, AUTO)) if value == AUTO else value for one, value in given.items()}
    if unknown := [one for one, value in chosen.items() if value == AUTO]:
        raise UsageError(f"count law '{text}': {unknown[0]} is not estimated", hint=AS_NUMBER)
    return parse_law(f"{name}:{','.join(chosen.values())}")


def estimate_law(text: str, scored_under: Callable[[NoiseLaw], ScoredTuples]) -> LawEstimate:
    """Estimate the law of a text with `auto`; `scored_under` cross-fits scores under a law."""
    name, given = law_parameters(text)
    free = [one for one, value in given.items() if value == AUTO]
    if unknown := [one for one in free if one not in (*SHARES, *SCALES)]:
        raise UsageError(f"count law '{text}': {unknown[0]} is not estimated", hint=AS_NUMBER)

    def law_at(at: Floats) -> NoiseLaw:
        found = {one: f"{_value(one, x):.12g}" for one, x in zip(free, at.tolist(), strict=True)}
        return parse_law(f"{name}:{','.join({**given, **found}.values())}")

    at = np.array([_start(one) for one in free])
    for _ in range(ROUNDS):
        scored = scored_under(law_at(at))
        usable = _without_large_tuples(scored, text)
        loss = _Loss(usable, law_at)
        at = np.clip(_least(loss, at), -FURTHEST, FURTHEST)
    if len(usable.sizes) < len(scored.sizes):
        many, largest = len(usable.sizes), int(usable.sizes.max())
        log.warning("count law %s: estimated without tuples of more than %d members, by %d others", text, largest, many)
    intervals = {one: _interval(loss, at, which, one) for which, one in enumerate(free)}
    for one, (low, high) in intervals.items():
        wide = high - low > WIDEST_SHARE if one in SHARES else high > WIDEST_FACTOR * low
        if wide:
            raise NotIdentifiableError(
                f"count law '{text}': these tuples do not tell its {one}, which may be {low:.3g} to {high:.3g}",
                hint="Give it as a number, or use more tuples; poor scores and much noise look alike.",
            )
    return LawEstimate(parse_law(law_text(law_at(at))), intervals)


def _without_large_tuples(scored: ScoredTuples, text: str) -> ScoredTuples:
    most = most_members(scored.observed.rate)
    kept = scored.sizes <= most
    if not kept.any():
        raise NotIdentifiableError(
            f"count law '{text}': it is estimated by tuples of at most {most} members, and there are none",
            hint=AS_NUMBER,
        )
    members, blocks = np.repeat(kept, scored.sizes), scored.blocks
    return replace(
        scored,
        scores=scored.scores[members],
        sizes=scored.sizes[kept],
        counts=scored.counts[kept],
        blocks=None if blocks is None else blocks[kept],
    )


class _Loss:
    """−log-likelihood of the recorded counts under the most probable line a·z + b of given scores.

    Tuples may differ beyond their scores: by rates that their features follow (Eq. 114), or by random intercepts. What
    is more probable counts; without it, differences between tuples would be taken for noise.
    """

    def __init__(self, scored: ScoredTuples, law_at: Callable[[Floats], NoiseLaw]) -> None:
        self.scored, self.law_at = scored, law_at
        # The best lines so far, as starts: the last ones may be on a plateau.
        self._intercepts = _Best(0.0, 0.0)
        self._rates = _Best(0.0, 0.0, -2.0)

    def __call__(self, at: Floats) -> float:
        scored = self.scored
        try:
            observed = CountObservations(
                scored.sizes, with_parameters(scored.counts, self.law_at(np.clip(at, -FURTHEST, FURTHEST)))
            )
        except (DataError, UsageError):  # the records are impossible under so little noise, or the law does not exist
            return IMPOSSIBLE
        if not np.isfinite(scored.scores).all():
            return IMPOSSIBLE
        varying = fit_varying_rates(scored.scores, observed, (self._rates.at[0], self._rates.at[1], self._rates.at[2]))
        least = self._rates.seen(varying.nll, *varying.at)
        if scored.spread:
            line = recalibrate(
                scored.scores, observed, start=(self._intercepts.at[0], self._intercepts.at[1]), spread=scored.spread
            )
            least = min(least, self._intercepts.seen(line.nll, float(np.log(line.slope)), line.intercept))
        return least * len(scored.sizes)


class _Best:
    """The line of the least loss so far, away from the bounds of the search."""

    def __init__(self, *start: float) -> None:
        self.at, self._least = start, np.inf

    def seen(self, nll: float, *at: float) -> float:
        if nll < self._least:
            self._least, self.at = nll, (float(np.clip(at[0], -7, 3)), *at[1:])
        return nll if np.isfinite(nll) else IMPOSSIBLE


def _interval(loss: _Loss, at: Floats, which: int, name: str) -> tuple[float, float]:
    """Where the profile likelihood of one parameter is within `PROFILE_NATS`; the others are refitted."""
    least = loss(at)

    def excess(step: float) -> float:
        moved = at.copy()
        moved[which] += step
        others = [other for other in range(len(at)) if other != which]
        if not others:
            return loss(moved) - least - PROFILE_NATS

        def rest(values: Floats) -> float:
            moved[others] = values
            return loss(moved)

        return rest(_least(rest, at[others])) - least - PROFILE_NATS

    ends = []
    for sign in (-1.0, 1.0):
        far = sign * FURTHEST - at[which]
        inside = abs(far) < 1e-6 or excess(far) < 0
        ends.append(far if inside else float(brentq(excess, 0.0, far, xtol=0.02)))
    return _value(name, at[which] + ends[0]), _value(name, at[which] + ends[1])


def _least(loss: Callable[[Floats], float], start: Floats) -> Floats:
    """The minimum of a loss by Nelder–Mead, with initial steps that are not tiny."""
    simplex = np.vstack([start, start + FIRST_STEP * np.eye(len(start))])
    options = {"initial_simplex": simplex, "xatol": 0.01, "fatol": 0.01}
    found: Floats = minimize(loss, start, method="Nelder-Mead", options=options).x
    return found


def _start(name: str) -> float:
    return float(logit(_inner(name, SHARES[name]))) if name in SHARES else 0.0


def _value(name: str, at: float) -> float:
    """From the scale of the search to a parameter: scales are positive, sensitivity and specificity above one half."""
    if name in SCALES:
        return float(np.exp(at))
    share = float(expit(at))
    return share if name == "rate" else 0.5 + share / 2


def _inner(name: str, value: float) -> float:
    return value if name == "rate" else 2 * value - 1
