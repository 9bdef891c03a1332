"""The facts of a design as one page: sections of named lines, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ntmp_cli.theory.assessment import DesignFacts

SHOWN_STRATA = 6
NO_BOUND = "no bound"

_SIGNAL = {
    "within tuples": "members of one tuple against each other",
    "between strata": "tuples of different rates against each other",
    "both": "members of one tuple, and tuples of different rates",
    "none": "nothing: a constant explains the counts",
}
_NAMED = {
    "first order": "by the means of groups of different rates",
    "third order": "by the third order of the counts alone, which is weak",
    "none": "by nothing: exchanging the classes does not change the data",
}
_PRIOR = {
    "identified": "could be estimated from these tuples and U",
    "up to exchange": "could be estimated only up to π ↔ 1 − π (n = 2m)",
    "not identified": "could not be estimated: tuples of one class only",
}


@dataclass(frozen=True)
class Section:
    """A heading and its lines of name and text."""

    title: str
    lines: tuple[tuple[str, str], ...]


def heading(facts: DesignFacts) -> str:
    return f"Design: {facts['source']}"


def changes_of(facts: DesignFacts) -> list[str]:
    """What to change, or a line that nothing must change."""
    return [change["text"].strip() for change in facts["changes"]] or [
        "Nothing: the risk and the likelihood of the counts are identifiable, and the margin and the target are kept."
    ]


def sections(facts: DesignFacts) -> list[Section]:
    """All but what to change."""
    if facts["conditioning"] is None:
        recording = facts["recording"]
        return [_data(facts), _identifiable(facts), *([] if recording is None else [_recording(recording)])]
    built = [_data(facts), _identifiable(facts), _conditioning(facts), _margin(facts), _loss(facts), _prior(facts)]
    if facts["count_noise"]:
        built.append(_counts(facts["count_noise"]))
    if facts["recording"]:
        built.append(_recording(facts["recording"]))
    if facts["rate_error"]:
        built.append(_rates(facts["rate_error"]))
    built += [_noise(facts), _clamps(facts)]
    return built if facts["generalisation"] is None else [*built, _generalisation(facts["generalisation"])]


def to_markdown(facts: DesignFacts) -> str:
    """The page as a file."""
    blocks = [f"# {heading(facts)}", "## What to change", "\n".join(f"- {text}" for text in changes_of(facts))]
    for section in sections(facts):
        blocks += [f"## {section.title}", "\n".join(f"- {name}: {text}" for name, text in section.lines)]
    if facts["conditioning"] is not None:
        blocks += ["![Variance of the risk against the prior of U](variance-inflation.svg)"]
    return "\n\n".join(blocks) + "\n"


def _data(facts: DesignFacts) -> Section:
    strata: Sequence[DesignFacts] = sorted(facts["strata"], key=lambda s: -s["tuples"])
    shown = [f"({s['n']},{s['m']:.4g}) × {_count(s['tuples'])}" for s in strata[:SHOWN_STRATA]]
    more = f" … and {len(strata) - SHOWN_STRATA} more" if len(strata) > SHOWN_STRATA else ""
    return Section(
        "The data",
        (
            (
                "tuples",
                f"{_count(facts['tuples'])} with {_count(facts['instances'])} instances: {', '.join(shown)}{more}",
            ),
            (
                "unlabeled",
                f"{_count(facts['unlabeled'])} instances, prior π = {facts['prior']:.4g} ({facts['prior_from']})",
            ),
            ("rates", f"mean ᾱ = {facts['mean_rate']:.4g}, of all instances Σm/Σn = {facts['flat_rate']:.4g}"),
        ),
    )


def _identifiable(facts: DesignFacts) -> Section:
    known = facts["identifiable"]
    why, why_pooled = ("all rates equal π", "ᾱ = π") if facts["conditioning"] else ("too few rates are known",) * 2
    return Section(
        "What can be learned",
        (
            (
                "`count`, the default",
                f"{_yes(known['count_likelihood'], '')}; learns from {_SIGNAL[known['count_signal']]}",
            ),
            ("`ure`, stratified", f"unbiased risk {_yes(known['unbiased_risk'], why)}"),
            ("`ure`, pooled", f"unbiased risk {_yes(known['unbiased_risk_pooled'], why_pooled)}"),
            ("orientation of the classes", f"identified {_NAMED[known['classes_named_by']]}"),
            ("the prior, if unknown", _PRIOR[known["prior_if_unknown"]]),
        ),
    )


def _conditioning(facts: DesignFacts) -> Section:
    c = facts["conditioning"]
    return Section(
        "How well conditioned",
        (
            ("gap Δ", f"{c['gap']:.4g} (√D/S₀ = {c['effective_gap']:.4g}); pooled |π − ᾱ| = {c['pooled_gap']:.4g}"),
            (
                "condition number",
                f"{_times(c['condition_number'])} of the weighted system; "
                f"{_times(c['condition_number_pooled'])} of the paper's 2×2 system",
            ),
            (
                "variance of the risk, pool of exactly π",
                f"{_times(c['inflation_over_labels'])} times that with a label for every instance; "
                f"pooled {_times(c['inflation_over_labels_pooled'])} times",
            ),
            (
                "variance of the risk, i.i.d. pool",
                f"{_times(c['inflation_iid_pool']['stratified'])} times, pooled "
                f"{_times(c['inflation_iid_pool']['pooled'])} times, for a classifier that errs in "
                f"{c['inflation_iid_pool']['error_rate']:.0%}",
            ),
            ("variance against a gap of 1", f"Δ⁻² = {_times(c['inflation_over_unit_gap'])}"),
        ),
    )


def _margin(facts: DesignFacts) -> Section:
    m = facts["margin"]
    kept, pooled = ("kept" if m[key] else "not kept" for key in ("kept", "kept_pooled"))
    lines = [("margin ε₀", f"{m['margin']:g}, {kept}; pooled {pooled}")]
    if m["priors_to_avoid"]:
        low, high = m["priors_to_avoid"]
        lines.append(("priors of U to avoid", f"{max(low, 0):.4f} to {min(high, 1):.4f}"))
    if m["tolerated_prior_error"] is not None:
        lines.append(("prior error that keeps it", f"up to {m['tolerated_prior_error']:.4f}"))
    if m["additions"]:
        lines.append(("kept by adding", "; or ".join(_addition(a) for a in m["additions"])))
    return Section("Operating margin", tuple(lines))


def _addition(stratum: DesignFacts) -> str:
    pure = ", a label for every member" if stratum["m"] in (0, stratum["n"]) else ""
    return f"{stratum['tuples']:,} × ({stratum['n']},{stratum['m']}){pure}"


def _loss(facts: DesignFacts) -> Section:
    loss = facts["loss"]
    lines = [("loss", f"{loss['name']}, L = {loss['lipschitz']:g}")]
    if loss["range"] is None:
        lines.append(
            ("B", "none: values in B hold once scores are bounded, B then being the largest loss (`--score-bound`)")
        )
    elif loss["score_bound"] is None:
        lines.append(("B", f"{loss['bound']:g}"))
    else:
        scores = f"scores within ±{loss['score_bound']:g}"
        by_slope = loss["bound"] is None or loss["in_paper"] < loss["bound"]
        lines.append(("B in the paper's bounds", f"{'L·G = ' if by_slope else ''}{loss['in_paper']:.4g}, {scores}"))
        lines.append(("B elsewhere", f"{loss['range']:.4g}, the range of the loss on them"))
    return Section("The loss", tuple(lines))


def _prior(facts: DesignFacts) -> Section:
    p = facts["prior_error"]
    lines = [
        ("largest bias of the risk", f"{_bound(p['largest_bias'])}; pooled {_bound(p['largest_bias_pooled'])}"),
        ("the paper's bound 2B|δ|/γ²", _bound(p["paper_bound"])),
        ("… if the sign of δ is unknown", _bound(p["paper_bound_either_sign"])),
    ]
    if p["shrunk"]:
        shrunk = p["shrunk"]
        lines.append(
            (
                f"if π is an estimate ± {abs(p['error']):g}",
                f"largest bias {shrunk['worst_bias_of_estimate']:.3g} B; {shrunk['worst_bias']:.3g} B with "
                f"{shrunk['prior']:.4g}, shrunk away from the rate",
            )
        )
    return Section(f"If π̂ = {p['trained_prior']:.4g} is trained with (δ = {p['error']:+g})", tuple(lines))


def _rates(rates: DesignFacts) -> Section:
    lines = []
    if always := rates.get("always"):
        lines.append((f"by at most ε = {always['given']:g}", _bound(always["bound"])))
    if proxy := rates.get("sub_gaussian"):
        reach = f"|ᾱ̂ − ᾱ| ≤ {proxy['reach']:.3g} with {rates['confidence']:.4g} confidence"
        lines.append((f"sub-Gaussian, v = {proxy['given']:g}", f"{reach}: {_bound(proxy['bound'])}"))
    return Section("If the mean rate of the tuples is off (the paper's bounds)", tuple(lines))


def _counts(noise: DesignFacts) -> Section:
    shared, independent = noise["one_error_for_all"], noise["independent_errors"]
    return Section(
        f"If a count is off by one with probability {noise['noise']:g}",
        (
            (
                "largest bias, stratified",
                f"{_bound(noise['largest_bias_stratified'])}; gap as recorded {noise['apparent_gap']:.4g}",
            ),
            ("largest bias, pooled", _bound(noise["largest_bias_pooled"])),
            ("the paper's bounds, one error for all", f"always {_bound(shared['always'])}"),
            ("… on average 2B E|α̂−α|/η²", _bound(shared["mean"])),
            ("… by the variance 2Bσ/η²", _bound(shared["variance"])),
            (
                "… independent errors, sub-Gaussian",
                f"|ᾱ̂ − ᾱ| ≤ {independent['reach']:.3g}: {_bound(independent['sub_gaussian'])}",
            ),
        ),
    )


def _recording(recording: DesignFacts) -> Section:
    share, exact = recording["share_of_exact"], recording["exact_share_of_labels"]
    if not share:
        cost = "nothing about the classifier"
    else:
        cost = f"{share:.1%} of the information of exact counts; {1 / share:.3g} times as many tuples have the same"
    lines = [
        ("they keep", cost),
        ("exact counts keep", f"{exact or 0:.1%} of the information of labels of all members"),
        (
            "by",
            f"the expected information about the slope of scores with an AUROC of {recording['auroc']}, "
            "of simulated tuples of these sizes and counts",
        ),
    ]
    if recording["one_rate_by_size"]:
        lines.append(
            ("tuples with noise of mean zero", "all of one size have their mean rate; if rates differ, it costs less")
        )
    if recording["longest"] is not None:
        lines.append(("tuples of more than 1,000 members", "computed as 1,000: the true cost of noise is smaller"))
    return Section(f"If counts are recorded as {recording['recorded']}", tuple(lines))


def _noise(facts: DesignFacts) -> Section:
    e = facts["estimation"]
    deviation = _bound(e["deviation"], excess=False)
    return Section(
        "Noise and sample size",
        (
            (
                "risk of one fixed classifier",
                f"off by at most {deviation}, with {e['confidence']:.4g} confidence (Hoeffding)",
            ),
            ("generalisation bound", f"(1/Δ)(1/√(n_T n) + 1/√n_U) = {_times(e['paper_term'])}, times constants"),
            (f"for ± {e['target']:g} B", f"one classifier {_sizes(e['for_one_classifier'])}"),
            ("… for that term", _sizes(e["for_paper_term"])),
        ),
    )


def _generalisation(run: DesignFacts) -> Section:
    title = f"Generalisation of the run ({run['method']}, {run['model']})"
    if "reason" in run:
        return Section(title, (("bound on the excess risk", f"{NO_BOUND}: {run['reason']}"),))
    layers = "norm of the weights" if run["layers"] == 1 else f"product of the norms of {run['layers']} layers"
    radius, complexity = run["radius"], run["rademacher"]
    whose = "root mean square" if radius["measured"] else "of any image"
    lines = [
        (layers, f"{_times(run['norm_product'])}, biases included"),
        ("norm of an instance", f"{radius['tuples']:.4g} in tuples, {radius['unlabeled']:.4g} in U ({whose})"),
        ("Rademacher complexity", f"at most {_times(complexity['tuples'])} and {_times(complexity['unlabeled'])}"),
    ]
    if run["excess_risk"] is None:
        return Section(title, (*lines, ("bound on the excess risk", f"{NO_BOUND}: the risk is not identifiable")))
    lines.append(("holds for", "the scores of least unbiased risk among those of such norms"))
    vacuous = f", vacuous: no two risks differ by more than {run['range']:.3g}" if run["vacuous"] else ""
    terms = f"{_times(run['complexity_term'])} by complexity and {_times(run['deviation_term'])} by chance"
    bound = f"{_times(run['excess_risk'])} with {run['confidence']:.4g} confidence ({terms}){vacuous}"
    return Section(title, (*lines, ("bound on the excess risk", bound)))


def _clamps(facts: DesignFacts) -> Section:
    clamp = facts["source_clamp"]
    if clamp is None:
        return Section("Clamps", (("by source", "there is no risk to clamp"),))
    if clamp["nonnegative"]:
        return Section("Clamps", (("by class or by source", "no risk term is negative at a perfect classifier"),))
    source = "tuple" if clamp["tuples"] < 0 else "unlabeled"
    value = min(clamp["tuples"], clamp["unlabeled"])
    return Section(
        "Clamps",
        (
            ("by class", "risk terms are never negative in the population"),
            ("by source", f"moves the optimum: at a perfect classifier the {source} term is {value:.3g} B"),
        ),
    )


def _yes(is_so: bool, why_not: str) -> str:
    return "identifiable" if is_so else f"not identifiable{f': {why_not}' if why_not else ''}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 0.5 else f"{value:.2g}"


def _times(value: float | None) -> str:
    return "∞" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _bound(bound: DesignFacts, *, excess: bool = True) -> str:
    if bound["value"] is None:
        return NO_BOUND
    more = f", excess risk {bound['excess_risk']:.3g} B" if excess else ""
    if bound["vacuous"]:
        more = ", vacuous"
    elif excess and bound["excess_vacuous"]:
        more += " (vacuous)"
    return f"{bound['value']:.3g} B{more}"


def _sizes(sizes: DesignFacts | None) -> str:
    return "never" if sizes is None else f"{sizes['tuples']:,} tuples and {sizes['unlabeled']:,} unlabeled"
