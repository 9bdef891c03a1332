"""Expected metrics of a run on new instances, from its held-out or cross-fitted tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ntmp_cli.counting.calibrated_fit import calibrated_fit
from ntmp_cli.counting.laws import Floats, Ints, count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.evaluation.expected_metrics import (
    METRICS,
    Deployment,
    Expected,
    PoolScores,
    ScoredCounts,
    cannot_be_told,
    expected_metrics,
)
from ntmp_cli.evaluation.temperature import Scores, tuple_shift

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import RunSummary

PRIOR_RULE = "prior"
# Names of a run's scores of its pool.
POOL_BY_FOLDS, POOL_BY_CLASSIFIER = "pool", "pool_by_classifier"
RULES = "prior, f1, recall=SHARE, cost=FN:FP"
NOTHING_HELD_OUT = "cannot be estimated: no tuples were held out"
# Thresholds between which a rule chooses.
CANDIDATES = 512
# Of the interval of a prior in a run's summary.
PRIOR_CONFIDENCE = 0.95

# The loss of a rule, from the cells (true positives, false positives, false negatives, true negatives) of every
# candidate (4, C) at the prior.
Rule = Callable[[Floats], Floats]


def scored_counts(
    run: RunSummary, scores: Scores, noise: float | None = None, blocks: Ints | None = None
) -> ScoredCounts | None:
    """Held-out or cross-fitted tuples of the run with their scores; None if there are none."""
    if "heldout_tuples" not in scores or not len(scores["heldout_sizes"]):
        return None
    law = count_noise(run.count_noise if noise is None else noise)
    observed = CountObservations(scores["heldout_sizes"], scores["heldout_counts"], law)
    shift = tuple_shift(run)
    z = scores["heldout_tuples"].astype(np.float64) - shift
    pool = None
    if POOL_BY_CLASSIFIER in scores:
        pool = PoolScores(*(scores[name].astype(np.float64) - shift for name in (POOL_BY_FOLDS, POOL_BY_CLASSIFIER)))
    return ScoredCounts(z, observed, run.spread or 0.0, blocks, pool)


def deployment(run: RunSummary, prior: float | None, instances: int, confidence: float = 0.95) -> Deployment:
    """New instances at a prior, by default the run's, which has an error where it was estimated."""
    if prior is not None:
        return Deployment(prior, 0.0, instances, confidence)
    error = 0.0
    if run.prior_source == "estimated" and run.prior_ci is not None:
        error = (run.prior_ci[1] - run.prior_ci[0]) / (2 * float(ndtri((1 + PRIOR_CONFIDENCE) / 2)))
    return Deployment(run.trained_prior, error, instances, confidence)


def expected_of_run(scored: ScoredCounts | None, threshold: float, where: Deployment) -> dict[str, Expected]:
    """Every metric at a threshold of scores at the tuples' rate, or the reason why it cannot be estimated."""
    if scored is None:
        return {name: Expected(None, None, NOTHING_HELD_OUT) for name in METRICS}
    return expected_metrics(scored, threshold, where)


def expected_in_use(run: RunSummary, scores: Scores, blocks: Ints | None = None) -> dict[str, Any]:
    """Every metric on as many new instances as the pool has, or the tuples where there is none, at the run's prior."""
    task = run.task.as_task()
    # A learner for tables has scores of all tuples; a network only of held-out tuples, which come last.
    judged = len(scores.get("heldout_sizes", ()))
    scored = scored_counts(run, scores, blocks=None if blocks is None else blocks[-judged:])
    where = deployment(run, None, task.unlabeled or int(task.instances))
    return as_json(expected_of_run(scored, -tuple_shift(run), where))


def unconfirmed(scored: ScoredCounts | None) -> str | None:
    """Why the counts do not confirm the scores; None if they do."""
    return NOTHING_HELD_OUT if scored is None else cannot_be_told(scored)


def as_json(expected: dict[str, Expected]) -> dict[str, Any]:
    return {
        name: {"value": one.value, "ci": None if one.ci is None else list(one.ci), "reason": one.reason}
        for name, one in expected.items()
    }


def parsed_rule(text: str) -> Rule | None:
    """The loss that the threshold minimises; None for a threshold at probability one half."""
    name, _, value = text.partition("=")
    if text == PRIOR_RULE:
        return None
    if text == "f1":
        return lambda c: -2 * c[0] / np.maximum(2 * c[0] + c[1] + c[2], 1e-300)
    try:
        if name == "recall" and 0 < (least := float(value)) <= 1:
            # The fewest false positives among thresholds that find this share of the positives.
            return lambda c: np.where(c[0] >= least * (c[0] + c[2]) - 1e-12, c[1], np.inf)
        if name == "cost":
            missed, false_alarm = _costs(value)
            return lambda c: missed * c[2] + false_alarm * c[1]
    except ValueError:
        pass
    raise UsageError(
        f"--threshold {text}: unknown rule", hint=f"Rules are {RULES}; for example recall=0.95 or cost=5:1."
    )


def posterior_threshold(text: str) -> float:
    """The posterior given the count from which a row is positive: where both labels cost the same.

    Other rules are about shares of all positives. What is known of these is about scores without counts.
    """
    name, _, value = text.partition("=")
    if text == PRIOR_RULE:
        return 0.5
    if name != "cost":
        raise UsageError(
            f"--threshold {text} and --with-counts: this threshold is chosen for scores, not for posteriors given "
            "a count",
            hint="Use --threshold cost=FN:FP, or leave one of them out.",
        )
    missed, false_alarm = _costs(value)
    return false_alarm / (missed + false_alarm)


def _costs(text: str) -> tuple[float, float]:
    missed, false_alarm = (float(cost) for cost in text.split(":"))
    if not (0 < missed < np.inf and 0 < false_alarm < np.inf):
        raise ValueError("a cost is a number above 0")
    return missed, false_alarm


def chosen_threshold(rule: Rule, scored: ScoredCounts | None, prior: float) -> float:
    """The threshold of scores at the tuples' rate that is best by calibrated probabilities at a prior (Eq. 58)."""
    if scored is None or cannot_be_told(scored) is not None:
        tuples = "no held-out tuples" if scored is None else f"{len(scored.observed)} tuples"
        raise NotIdentifiableError(
            f"no threshold can be chosen: its effect cannot be estimated from {tuples}",
            hint="Train on more tuples, or leave --threshold out.",
        )
    fit = calibrated_fit(scored.z, scored.objective)
    order = np.argsort(scored.z, kind="stable")
    z, p = scored.z[order], fit.p[order]
    # Above the first i instances; the last threshold calls nothing positive.
    recall = 1 - np.concatenate([[0.0], np.cumsum(p)]) / p.sum()
    alarms = 1 - np.concatenate([[0.0], np.cumsum(1 - p)]) / (1 - p).sum()
    possible = np.flatnonzero(np.concatenate([[True], z[1:] != z[:-1], [True]]))  # no threshold divides equal scores
    above = possible[np.unique(np.linspace(0, len(possible) - 1, CANDIDATES).astype(np.int64))]
    cells = np.stack(
        [prior * recall, (1 - prior) * alarms, prior * (1 - recall), (1 - prior) * (1 - alarms)]
    )[:, above]  # fmt: skip
    best = int(above[int(np.argmin(rule(np.maximum(cells, 0.0))))])
    if best in (0, len(z)):
        at = float(z[0]) - 1.0 if best == 0 else float(z[-1]) + 1.0
    else:
        at = float(z[best - 1] + z[best]) / 2
    return at if scored.pool is None else scored.pool.threshold_of_classifier(at)
