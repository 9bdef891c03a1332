"""Recommended changes to a design, as sentences, the most serious first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ntmp_cli.theory.assessment import DesignFacts

# Below this a bias is not worth a change.
SMALL_BIAS = 0.02


class Change(NamedTuple):
    """A recommendation. `grave`: nothing can be learned without the change; otherwise it lowers a risk."""

    grave: bool
    text: str


def changes(facts: DesignFacts) -> list[Change]:
    """All recommendations: first those for `count`, the default, then those for `ure` alone."""
    if facts["conditioning"] is None:
        return [*_recorded(facts), *_no_rate(facts)]
    of_counts = [*_recorded(facts), *_signal(facts), *_mirror(facts), *_noise(facts), *_side(facts)]
    of_risk = [*_margin(facts), *_strata(facts), *_prior(facts), *_shrink(facts), *_sizes(facts)]
    learns = facts["identifiable"]["unbiased_risk"] and facts["identifiable"]["count_likelihood"]
    if of_risk and not of_counts and learns:
        of_counts = [Change(False, f"`count`, the default, needs no change. {of_risk[0].text}")]
        of_risk = of_risk[1:]
    return [*of_counts, *of_risk]


def _recorded(facts: DesignFacts) -> Iterator[Change]:
    recording = facts["recording"]
    if recording is not None and not recording["share_of_exact"]:
        yield Change(True, "Record counts more exactly: as recorded, they say nothing about the classifier.")


def _no_rate(facts: DesignFacts) -> Iterator[Change]:
    refused = "methods that need rates, such as `ure`, refuse them, because too few tuples have a known rate"
    if facts["identifiable"]["count_likelihood"]:
        yield Change(False, f"`count`, the default, and the learners for tables use these records; {refused}.")
    else:
        yield Change(True, f"`count`, the default, cannot identify a classifier by these records; {refused}.")


def _signal(facts: DesignFacts) -> Iterator[Change]:
    known, prior = facts["identifiable"], facts["prior"]
    risk = f"no unbiased risk exists (`--method ure`), because every tuple has the rate of U, π = {prior:.4g}"
    if known["unbiased_risk"]:
        if known["count_signal"] == "none":
            yield Change(
                False,
                "`count`, the default, learns nothing from these tuples alone: they have one class and one rate, so a "
                "constant score explains the counts. On tables it compares them with U, given `--prior`; elsewhere "
                "train with `--method ure`.",
            )
    elif known["count_likelihood"]:
        yield Change(
            False,
            "`count`, the default, learns from these tuples, because it compares members of one tuple. But "
            f"{risk}. {_ways_out(facts)}",
        )
    else:
        why = (
            "cannot identify the orientation: every tuple is half positive, as is U"
            if known["classes_named_by"] == "none"
            else "learns nothing about single instances"
        )
        yield Change(True, f"`count`, the default, {why}; and {risk}. {_ways_out(facts)}")


def _mirror(facts: DesignFacts) -> Iterator[Change]:
    if facts["identifiable"]["mirror_symmetric"]:
        yield Change(
            False,
            "Get the prior from another source: if n = 2m in every tuple, exchanging the classes and π ↔ 1 − π does "
            "not change the data. Only the prior of U determines which class is positive.",
        )


def _noise(facts: DesignFacts) -> Iterator[Change]:
    noise: Any = facts["count_noise"]
    if noise is not None:
        yield Change(
            False,
            f"Train with `--count-noise {noise['noise']:g}`: `count`, the default, then sums over the true counts that "
            "may be behind a recorded one.",
        )


def _margin(facts: DesignFacts) -> Iterator[Change]:
    margin, gap = facts["margin"], facts["conditioning"]["gap"]
    if facts["identifiable"]["unbiased_risk"] and not margin["kept"]:
        yield Change(
            False,
            f"For `--method ure`, widen the gap: {gap:.3g} is below the margin ε₀ = {margin['margin']:g}, and the "
            f"variance of the risk grows as its inverse square. {_ways_out(facts)}",
        )
    if margin["kept"] and not margin["kept_pooled"]:
        yield Change(
            False,
            f"For `--method ure`, keep `--mixing stratified`: the mean rate ᾱ = {facts['mean_rate']:.4g} lies within "
            f"ε₀ of π = {facts['prior']:.4g}, so that pooled training would have to take its batches from one side "
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


def _strata(facts: DesignFacts) -> Iterator[Change]:
    noise: Any = facts["count_noise"]
    if noise is None:
        return
    stratified, pooled = noise["largest_bias_stratified"]["value"], noise["largest_bias_pooled"]["value"]
    if stratified is not None and stratified > SMALL_BIAS:
        text = (
            f"For `--method ure`, pass `--count-noise {noise['noise']:g}` too: strata then have their expected rates. "
            f"Without it, if one count in {1 / noise['noise']:.3g} is off by one, stratified weights bias the risk by "
            f"up to {stratified:.3g} B, because tuples are in strata of wrong rates."
        )
        if pooled is not None and pooled < stratified and facts["margin"]["kept_pooled"]:
            text += f" With `--mixing pooled` the mean rate averages the errors out (up to {pooled:.3g} B)."
        yield Change(False, text)


def _side(facts: DesignFacts) -> Iterator[Change]:
    error = facts["prior_error"]
    one_rate = facts["identifiable"]["unbiased_risk"] and len({s["rate"] for s in facts["strata"]}) == 1
    if one_rate and error["reaches_rate"]:
        yield Change(
            False,
            f"Know the prior better: an error of {abs(error['error']):g} reaches α = {facts['mean_rate']:.4g}. Beyond "
            "α the classes are exchanged, because the side of α on which the prior lies decides the orientation.",
        )


def _prior(facts: DesignFacts) -> Iterator[Change]:
    error, tolerated = facts["prior_error"], facts["margin"]["tolerated_prior_error"]
    if tolerated is not None and tolerated < abs(error["error"]) and not error["reaches_rate"]:
        yield Change(
            False,
            f"For `--method ure`, know the prior to within {tolerated:.2g}: a larger error may put the gap below the "
            "margin ε₀.",
        )


def _shrink(facts: DesignFacts) -> Iterator[Change]:
    error: Any = facts["prior_error"]
    shrunk = error["shrunk"]
    if shrunk is None or shrunk["worst_bias_of_estimate"] - shrunk["worst_bias"] <= SMALL_BIAS:
        return
    yield Change(
        False,
        f"For `--method ure`, if π = {facts['prior']:.4g} is an estimate within ±{abs(error['error']):g}, shrink it "
        f"away from α = {facts['flat_rate']:.4g}: `--prior {shrunk['prior']:.3g}` lowers the largest bias that these "
        f"priors allow from {shrunk['worst_bias_of_estimate']:.3g} B to {shrunk['worst_bias']:.3g} B.",
    )


def _sizes(facts: DesignFacts) -> Iterator[Change]:
    plan = facts["estimation"]
    needed, deviation = plan["for_one_classifier"], plan["deviation"]["value"]
    if needed is not None and deviation > plan["target"]:
        yield Change(
            False,
            f"For `--method ure`, collect more: the risk of one classifier is known to ±{deviation:.2g} B with "
            f"{plan['confidence']:.0%} confidence; ±{plan['target']:g} B needs {needed['tuples']:,} tuples and "
            f"{needed['unlabeled']:,} unlabeled instances ({needed['tuples'] / facts['tuples']:.3g} times as many of "
            "both).",
        )
