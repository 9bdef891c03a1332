"""What to change about a design, as sentences, the most serious first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ntmp_cli.theory.assessment import DesignFacts

# Below this a bias is not worth a change.
SMALL_BIAS = 0.02


class Change(NamedTuple):
    """`grave`: nothing can be learned as it is; otherwise a risk that can be lowered."""

    grave: bool
    text: str


def changes(facts: DesignFacts) -> list[Change]:
    """Empty where nothing needs to change."""
    return [*_identifiability(facts), *_margin(facts), *_counts(facts), *_prior(facts), *_sizes(facts)]


def _identifiability(facts: DesignFacts) -> Iterator[Change]:
    known, prior = facts["identifiable"], facts["prior"]
    if not known["unbiased_risk"]:
        if known["count_likelihood"]:
            consequence = (
                "`--method count` still learns: the members of a tuple belong together, which the risk does not use"
            )
        elif known["classes_named_by"] == "none":
            consequence = (
                "nor does the likelihood of the counts identify the orientation: every tuple is half positive, as is U"
            )
        else:
            consequence = "nor does the likelihood of the counts say anything about single instances"
        yield Change(
            not known["count_likelihood"],
            f"No unbiased risk exists: every tuple has the rate of U, π = {prior:.4g}; {consequence}. "
            f"{_ways_out(facts)}",
        )
    elif known["count_signal"] == "none":
        yield Change(
            False,
            "Train with `--method ure`: tuples of one class only, and of one rate, are explained by a constant, so the "
            "likelihood of the counts says nothing about single instances.",
        )
    if known["mirror_symmetric"]:
        yield Change(
            False,
            "Know the prior from elsewhere: with n = 2m in every tuple, exchanging the classes and π ↔ 1 − π leaves "
            "all data as they are. Only U's prior says which class is positive.",
        )


def _margin(facts: DesignFacts) -> Iterator[Change]:
    margin, gap = facts["margin"], facts["conditioning"]["gap"]
    if facts["identifiable"]["unbiased_risk"] and not margin["kept"]:
        yield Change(
            False,
            f"Widen the gap: {gap:.3g} is below the margin ε₀ = {margin['margin']:g}, and the variance of the risk "
            f"grows as its inverse square. {_ways_out(facts)}",
        )
    if margin["kept"] and not margin["kept_pooled"]:
        yield Change(
            False,
            f"Keep `--mixing stratified`: the mean rate ᾱ = {facts['mean_rate']:.4g} lies within ε₀ of π = "
            f"{facts['prior']:.4g}, so that pooled training would have to take its batches from one side "
            "(`--margin-policy resample`).",
        )


def _ways_out(facts: DesignFacts) -> str:
    margin, options = facts["margin"], []
    if margin["additions"]:
        best = [f"{a['tuples']:,} × ({a['n']},{a['m']})" for a in margin["additions"]]
        options.append(f"add tuples, {' or '.join(best)}")
    if margin["priors_to_avoid"]:
        low, high = margin["priors_to_avoid"]
        outside = [f"at most {low:.3f}"] * (low > 0) + [f"at least {high:.3f}"] * (high < 1)
        if outside:
            options.append(f"use a pool whose prior is {' or '.join(outside)}")
    text = "; or ".join(options)
    return f"To keep ε₀ = {margin['margin']:g}: {text}." if text else ""


def _counts(facts: DesignFacts) -> Iterator[Change]:
    noise: Any = facts["count_noise"]
    if noise is None:
        return
    stratified, pooled = noise["largest_bias_stratified"]["value"], noise["largest_bias_pooled"]["value"]
    if stratified is not None and stratified > SMALL_BIAS:
        text = (
            f"Do not let noisy counts make strata: with one count in {1 / noise['noise']:.3g} off by one, stratified "
            f"weights bias the risk by up to {stratified:.3g} B, because tuples are filed under wrong rates. "
        )
        better = "Train with `--method count --count-noise`"
        if pooled is not None and pooled < stratified and facts["margin"]["kept_pooled"]:
            better += f", or with `--mixing pooled`, whose mean rate averages the errors out (up to {pooled:.3g} B)"
        yield Change(False, f"{text}{better}.")


def _prior(facts: DesignFacts) -> Iterator[Change]:
    error, tolerated = facts["prior_error"], facts["margin"]["tolerated_prior_error"]
    one_rate = facts["identifiable"]["unbiased_risk"] and len({s["rate"] for s in facts["strata"]}) == 1
    if one_rate and error["reaches_rate"]:
        yield Change(
            False,
            f"Know the prior better: an error of {error['error']:g} reaches α = {facts['mean_rate']:.4g}, beyond which "
            "the risk prefers the classes exchanged.",
        )
    elif tolerated is not None and tolerated < error["error"]:
        yield Change(
            False, f"Know the prior to within {tolerated:.2g}: a larger error may put the gap below the margin ε₀."
        )


def _sizes(facts: DesignFacts) -> Iterator[Change]:
    plan = facts["estimation"]
    needed, deviation = plan["for_one_classifier"], plan["deviation"]["value"]
    if needed is not None and deviation > plan["target"]:
        yield Change(
            False,
            f"Collect more: the risk of one classifier is known to ±{deviation:.2g} B with {plan['confidence']:.0%} "
            f"confidence; ±{plan['target']:g} B needs {needed['tuples']:,} tuples and {needed['unlabeled']:,} "
            f"unlabeled instances ({needed['tuples'] / facts['tuples']:.3g} times as many of both).",
        )
