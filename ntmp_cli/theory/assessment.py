"""The theory's results for one design, as plain numbers; None where undefined (a singular system, no bound).

Bounds and biases are in units of B, the bound of the loss. A bound above 1 is vacuous, because the risk is in [0, B].
For scores within ±G, B is replaced by L·G in the paper's bounds and by the range of the loss in the others (Eq. 101).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from ntmp_cli.config import DesignLoss
from ntmp_cli.learning.groups import class_weights
from ntmp_cli.theory import bias, identifiability, variance
from ntmp_cli.theory.advice import additions, priors_to_avoid
from ntmp_cli.theory.generalisation import NormClass, Radii, excess_bound
from ntmp_cli.theory.losses import MARGIN_LOSSES
from ntmp_cli.theory.recorded_counts import recorded_strata
from ntmp_cli.theory.strata import Design, Groups, Stratum

DesignFacts = Mapping[str, Any]
# A smaller bias is a rounding error.
ROUNDING = 1e-12
# The variance inflation by an i.i.d. pool depends on the classifier: it is shown for this error rate.
ERROR_RATE = 0.1


@dataclass(frozen=True)
class Question:
    """The parameters of an assessment: ε₀, δ, the noise of the counts, the target error of the risk, the loss.

    `prior_error` is signed: π + δ is trained with. `rate_error` and `rate_proxy` are ε and v of the error of ᾱ.
    """

    margin: float
    prior_error: float
    count_noise: float
    target_risk_error: float
    confidence: float
    rate_error: float | None = None
    rate_proxy: float | None = None
    loss: DesignLoss = "sigmoid"
    score_bound: float | None = None


def assess(design: Design, question: Question, counted: tuple[Stratum, ...] = ()) -> DesignFacts:
    """What is identifiable, how well conditioned, which bounds hold, how much data a target needs.

    `counted` are all strata at their expected counts, if some have no known rate: the count likelihood uses all.
    """
    return {
        "prior": design.prior,
        "tuples": design.tuples,
        "instances": design.instances,
        "unlabeled": design.unlabeled,
        "mean_rate": design.mean_rate,
        "flat_rate": design.flat_rate,
        "strata": [_stratum(s) for s in design.strata],
        "loss": loss_facts(question.loss, question.score_bound),
        "identifiable": _identifiable(design, replace(design, strata=counted) if counted else design),
        "conditioning": _conditioning(design),
        "margin": _margin(design, question.margin),
        "prior_error": _prior_error(design, question),
        "count_noise": _count_noise(design, question),
        "rate_error": _rate_error(design, question),
        "estimation": _estimation(design, question),
        "source_clamp": _source_clamp(design),
    }


def generalisation(norms: NormClass, radii: Radii, design: Design, question: Question) -> DesignFacts:
    """Rademacher terms of a class of scores and the bound on the excess risk (Eq. 102)."""
    loss, groups = MARGIN_LOSSES[question.loss], design.stratified()
    largest_score = norms.largest_score(radii.largest)
    loss_range = loss.range_on(min(largest_score, inf if question.score_bound is None else question.score_bound))
    radius = [radii.tuples] * len(design.strata) + [radii.unlabeled]
    complexities = [norms.complexity(x, n) for x, n in zip(radius, groups.sizes.tolist(), strict=True)]
    bound = excess_bound(groups, complexities, loss.lipschitz, loss_range, question.confidence)
    return {
        "layers": len(norms.norms),
        "norms": list(norms.norms),
        "norm_product": prod(norms.norms),
        "radius": {"tuples": radii.tuples, "unlabeled": radii.unlabeled, "measured": radii.measured},
        "score_bound": largest_score,
        "rademacher": {"tuples": norms.complexity(radii.tuples, design.instances), "unlabeled": complexities[-1]},
        "confidence": question.confidence,
        "range": loss_range,
        "complexity_term": None if bound is None else bound.complexity,
        "deviation_term": None if bound is None else bound.deviation,
        "excess_risk": None if bound is None else bound.total,
        "vacuous": bound is None or bound.total > loss_range,
    }


def inflation_curve(design: Design, priors: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, list[float | None]]:
    """Variance of the risk over that with labels, against the prior of U, stratified and pooled."""
    designs = [design.at(float(prior)) for prior in priors]
    return {
        "stratified": [variance.inflation_over_labels(d, d.stratified()) for d in designs],
        "pooled": [variance.inflation_over_labels(d, d.pooled()) for d in designs],
    }


def _stratum(s: Stratum) -> DesignFacts:
    return {"n": s.n, "m": s.m, "rate": s.rate, "tuples": s.tuples, "instances": s.instances}


def without_risk(facts: DesignFacts) -> dict[str, Any]:
    """The facts of tuples of which too few have a known rate: there is no unbiased risk."""
    known = {**facts["identifiable"], "unbiased_risk": False, "unbiased_risk_pooled": False}
    about_risk = ("conditioning", "margin", "loss", "prior_error", "count_noise", "rate_error", "estimation")
    return {**facts, **dict.fromkeys((*about_risk, "source_clamp")), "identifiable": known}


def _identifiable(design: Design, counted: Design) -> DesignFacts:
    return {
        "unbiased_risk": design.stratified().identifiable,
        "unbiased_risk_pooled": design.pooled().identifiable,
        "count_likelihood": identifiability.count_identifies(counted),
        "count_signal": identifiability.count_signal(counted.strata),
        "classes_named_by": identifiability.class_names(counted),
        "prior_if_unknown": identifiability.prior_verdict(counted.strata),
        "mirror_symmetric": identifiability.is_mirror_symmetric(counted.strata),
    }


def _conditioning(design: Design) -> DesignFacts:
    groups, pooled = design.stratified(), design.pooled()
    separation = variance.separation_at(ERROR_RATE)
    return {
        "effective_gap": groups.spread,
        "gap": groups.gap,
        "pooled_gap": abs(design.prior - design.mean_rate),
        "condition_number": identifiability.condition_number(groups),
        "condition_number_pooled": _paper_condition_number(design),
        "inflation_over_unit_gap": variance.inflation_over_unit_gap(groups),
        "inflation_over_labels": variance.inflation_over_labels(design, groups),
        "inflation_over_labels_pooled": variance.inflation_over_labels(design, pooled),
        "inflation_iid_pool": {
            "error_rate": ERROR_RATE,
            "stratified": variance.inflation_over_labels(design, groups, separation),
            "pooled": variance.inflation_over_labels(design, pooled, separation),
        },
    }


def _paper_condition_number(design: Design) -> float | None:
    """Of [[ᾱ, 1−ᾱ], [π, 1−π]] as the paper writes it: two groups that count the same (Eq. 86)."""
    return identifiability.condition_number(type(design.pooled())(np.ones(2), design.pooled().rates))


def _margin(design: Design, margin: float) -> DesignFacts:
    avoid = priors_to_avoid(design, margin)
    least = margin - ROUNDING
    kept = design.stratified().gap >= least
    return {
        "margin": margin,
        "kept": kept,
        "kept_pooled": abs(design.prior - design.mean_rate) >= least,
        "additions": [] if kept else [_stratum(s) for s in additions(design, margin)],
        "priors_to_avoid": None if avoid is None else list(avoid),
        "tolerated_prior_error": min(abs(design.prior - edge) for edge in avoid) if avoid and kept else None,
    }


def loss_facts(name: DesignLoss, score_bound: float | None) -> DesignFacts:
    """What B is for a loss of scores within ±G: in the paper's bounds, and in the exact ones; None where unbounded."""
    loss, bound = MARGIN_LOSSES[name], inf if score_bound is None else score_bound
    in_paper, width = loss.paper_bound_on(bound), loss.range_on(bound)
    return {
        "name": name,
        "lipschitz": loss.lipschitz,
        "score_bound": score_bound,
        "bound": _finite(loss.bound),
        "in_paper": _finite(in_paper),
        "range": _finite(width),
        # Bounds in units of `in_paper` are vacuous above this.
        "largest_in_paper": width / in_paper if width < inf else 1.0,
    }


def _finite(value: float) -> float | None:
    return value if value < inf else None


def _prior_error(design: Design, question: Question) -> DesignFacts:
    """Of π + δ, and of the worse of π ± |δ|."""
    error, prior, rate = question.prior_error, design.prior, design.mean_rate
    either = [sign * abs(error) for sign in (-1, 1) if 0 < prior + sign * abs(error) < 1]
    paper = loss_facts(question.loss, question.score_bound)["largest_in_paper"]
    at_trained = design.at(prior + error)
    shrunk = bias.shrunk_prior(design, abs(error))
    return {
        "error": error,
        "trained_prior": prior + error,
        "reaches_rate": abs(prior - rate) <= abs(error),
        "crosses_rate": (prior - rate) * (prior + error - rate) <= 0,
        "paper_bound": _bound(bias.prior_bound(rate, prior, error), paper),
        "paper_bound_either_sign": _bound(_worst([bias.prior_bound(rate, prior, e) for e in either]), paper),
        "largest_bias": _bound(bias.largest_prior_bias(at_trained.stratified(), error)),
        "largest_bias_pooled": _bound(bias.largest_prior_bias(at_trained.pooled(), error)),
        "shrunk": None if shrunk is None else shrunk._asdict(),
    }


def _worst(values: Sequence[float | None]) -> float | None:
    """The largest bound; None means unbounded and counts as the largest."""
    known = [value for value in values if value is not None]
    return max(known, default=None) if len(known) == len(values) else None


def _rate_error(design: Design, question: Question) -> DesignFacts | None:
    """The paper's bounds where ᾱ is off by at most ε, or by a sub-Gaussian error of variance proxy v²."""
    if question.rate_error is None and question.rate_proxy is None:
        return None
    paper = loss_facts(question.loss, question.score_bound)["largest_in_paper"]
    facts: dict[str, Any] = {"confidence": question.confidence}
    for name, value in (("always", question.rate_error), ("sub_gaussian", question.rate_proxy)):
        if value is not None:
            reach = value if name == "always" else bias.reach_of_proxy(value, question.confidence)
            bound = bias.count_bound(design.mean_rate, design.prior, reach)
            facts[name] = {"given": value, "reach": reach, "bound": _bound(bound, paper)}
    return facts


def _count_noise(design: Design, question: Question) -> DesignFacts | None:
    p, prior, rate = question.count_noise, design.prior, design.mean_rate
    if p == 0:
        return None
    recorded = recorded_strata(design.strata, p)
    tuples = design.tuples
    inverse = sum(s.tuples / s.n for s in design.strata) / tuples
    square = sum(s.tuples / s.n**2 for s in design.strata) / tuples
    farthest = max(1 / s.n for s in design.strata)
    shift = abs(sum(s.tuples * (s.m / s.n - s.true_rate) for s in recorded)) / tuples
    reach = bias.sub_gaussian_reach(design, question.confidence) + shift
    seen = Design(tuple(Stratum(s.n, s.m, s.tuples) for s in recorded), design.unlabeled, prior)
    paper = loss_facts(question.loss, question.score_bound)["largest_in_paper"]
    return {
        "noise": p,
        "recorded": [{**_stratum(Stratum(s.n, s.m, s.tuples)), "true_rate": s.true_rate} for s in recorded],
        "apparent_gap": seen.stratified().gap,
        "one_error_for_all": {
            "always": _bound(bias.count_bound(rate, prior, farthest), paper),
            "mean": _bound(bias.count_bound(rate, prior, farthest, p * inverse), paper),
            "variance": _bound(bias.count_bound(rate, prior, farthest, sqrt(p * square)), paper),
        },
        "independent_errors": {"reach": reach, "sub_gaussian": _bound(bias.count_bound(rate, prior, reach), paper)},
        "largest_bias_stratified": _bound(bias.misfiled_bias(recorded, design.unlabeled, prior)),
        "largest_bias_pooled": _bound(bias.shifted_bias(recorded, design.unlabeled, prior)),
    }


def _estimation(design: Design, question: Question) -> DesignFacts:
    groups, target = design.stratified(), question.target_risk_error
    deviation = variance.deviation(groups, question.confidence)
    term = variance.estimation_term(groups)
    return {
        "confidence": question.confidence,
        "deviation": _bound(deviation),
        "paper_term": term,
        "paper_term_with_confidence": _bound(variance.estimation_term(groups, question.confidence)),
        "target": target,
        "for_one_classifier": _sizes(variance.sizes_for(design, deviation, target)),
        "for_paper_term": _sizes(variance.sizes_for(design, term, target)),
    }


def _source_clamp(design: Design) -> DesignFacts | None:
    terms = source_terms(design.stratified())
    if terms is None:
        return None
    return {"tuples": terms[0], "unlabeled": terms[1], "nonnegative": min(terms) > -ROUNDING}


def source_terms(groups: Groups) -> tuple[float, float] | None:
    """The risk terms (tuples, unlabeled) at a perfect classifier, in units of B; None without weights.

    There ℓ(g,+1) is B on negatives, ℓ(g,−1) is B on positives, and the risk is 0: the terms are −R_U and R_U with
    R_U = π(1−π)(w⁺_U + w⁻_U), for one stratum π(1−π)(1−2α)/(π−α) (Eq. 17). Only where both are 0 does a clamp by source
    leave the best classifier unchanged.
    """
    if not groups.identifiable:
        return None
    plus, minus = class_weights(groups.sizes, groups.rates)
    unlabeled = groups.prior * (1 - groups.prior) * float(plus[-1] + minus[-1])
    return -unlabeled, unlabeled


def _sizes(sizes: tuple[int, int] | None) -> DesignFacts | None:
    return None if sizes is None else {"tuples": sizes[0], "unlabeled": sizes[1]}


def _bound(value: float | None, largest: float = 1.0) -> DesignFacts:
    """A bound on the bias, the bound on the excess risk that follows (Eq. 98), and whether each is informative."""
    if value is None:
        return {"value": None, "excess_risk": None, "vacuous": True, "excess_vacuous": True}
    value = 0.0 if value < ROUNDING else value
    excess = 2 * value
    return {"value": value, "excess_risk": excess, "vacuous": value > largest, "excess_vacuous": excess > largest}
