"""Comparisons as sentences: the difference, its interval, and the result of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ntmp_cli.evaluation.comparisons import Comparison, MethodVariant, method_variant_of, reference_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.summary import SummaryRow, cell_of
from ntmp_cli.reporting.formatting import best_rows, in_percent, metric_number, pairs_word, signed

LEVEL = 0.05


def comparison_words(comparison: Comparison) -> str:
    """A short paragraph about one method against the reference.

    A winner is named only where the corrected p is below .05 and the mean and most pairs point the same way. Where so
    few pairs cannot reach such a p, the sentence says that the test cannot decide. An oracle never wins.
    """
    method, reference = method_variant_of(comparison), reference_variant_of(comparison)
    where = _where(comparison)
    if comparison["difference"] is None or comparison["p"] is None or comparison["p_holm"] is None:
        why = f" ({'; '.join(comparison['missing'][:3])})" if comparison["missing"] else ""
        return f"{where}, {method} and {reference} have no run in common to be compared by {comparison['metric']}{why}."
    missing = f" {len(comparison['missing'])} could not be paired." if comparison["missing"] else ""
    return f"{where}, {_by_how_much(comparison, method, reference)} {_how_sure(comparison, method, reference)}{missing}"


def _where(comparison: Comparison) -> str:
    if comparison["scope"] == "overall":
        return f"Over all {comparison['cells']} cells together"
    return f"On {comparison['dataset']} {comparison['tuples']} at π = {comparison['prior']:g}"


def _by_how_much(comparison: Comparison, method: MethodVariant, reference: MethodVariant) -> str:
    metric, difference = comparison["metric"], comparison["difference"] or 0.0
    size = _amount(metric, difference)
    bound = "the upper bound " if comparison["reference_is_oracle"] else ""
    if not float(metric_number(metric, abs(difference))):
        relation = f"{method} and {bound}{reference} have the same mean {metric} to the digits shown"
    else:
        relation = f"{method} is {size} {'above' if difference > 0 else 'below'} {bound}{reference} in {metric}"
        if facts_of(metric).lower_is_better:
            relation += ", where less is better,"
    low, high = comparison["difference_low"], comparison["difference_high"]
    if low is None or high is None:
        return f"{relation} ({pairs_word(comparison['pairs'])}, so no interval)."
    interval = f"95 % interval {signed(metric, low)} to {signed(metric, high)}"
    ties = f", {comparison['ties']} equal" if comparison["ties"] else ""
    counted = f"{comparison['wins']} higher, {comparison['losses']} lower{ties}"
    return f"{relation} on average over {pairs_word(comparison['pairs'])} ({interval}; {counted})."


def _how_sure(comparison: Comparison, method: MethodVariant, reference: MethodVariant) -> str:
    p, smallest = comparison["p_holm"] or 0.0, comparison["smallest_p_holm"] or 0.0
    size = comparison["family_size"]
    over = f" after Holm over {size} comparisons" if size > 1 else ""
    cliff = comparison["cliff"]
    effect = "" if cliff is None else f" Cliff's δ is {_delta(cliff)} ({comparison['cliff_word']})."
    if p >= LEVEL and smallest >= LEVEL:
        reach = f"the smallest p that {pairs_word(comparison['pairs'])} can reach is {smallest:.3g}{over}"
        return f"The test cannot decide: {reach}.{effect}"
    if p >= LEVEL:
        return f"The test shows no difference (p = {p_word(p)}{over}).{effect}"
    if comparison["reference_is_oracle"]:
        return f"The difference is significant (p = {p_word(p)}{over}); the upper bound uses the labels.{effect}"
    winner = winner_of(comparison)
    if winner is None:
        doubt = "but the mean and most pairs do not point the same way, so no winner is named"
        return f"They differ significantly (p = {p_word(p)}{over}), {doubt}.{effect}"
    better = method if winner > 0 else reference
    return f"{better} is significantly better (p = {p_word(p)}{over}).{effect}"


def winner_of(comparison: Comparison) -> int | None:
    """1 for the method, −1 for the reference; None where the mean and the majority of pairs disagree."""
    difference, balance = comparison["difference"] or 0.0, comparison["wins"] - comparison["losses"]
    if difference * balance <= 0:
        return None
    return (1 if difference > 0 else -1) * (-1 if facts_of(comparison["metric"]).lower_is_better else 1)


def p_word(p: float) -> str:
    """Three digits, but never a p on the other side of .05 than it is."""
    text = f"{p:.3g}"
    return "just below 0.05" if p < LEVEL <= float(text) else text


def _amount(metric: str, value: float) -> str:
    return f"{metric_number(metric, abs(value))}{' points' if in_percent(metric) else ''}"


def _delta(value: float) -> str:
    text = f"{abs(value):.2f}"
    return ("" if not float(text) else "+" if value > 0 else "−") + text


# The whole study -----------------------------------------------------------------------------------


def study_words(summary: Sequence[SummaryRow], metric: str, comparisons: Sequence[Comparison]) -> list[str]:
    """The setup, the best means by cell, and the number of significant differences."""
    rows = [row for row in summary if row["metric"] == metric]
    return [setup_words(rows), *_leaders(rows, metric), tested_words(comparisons, metric)]


def setup_words(rows: Sequence[SummaryRow]) -> str:
    """Methods, data and seeds of the rows of one metric."""
    cells = list(dict.fromkeys(cell_of(row) for row in rows))
    entries = dict.fromkeys(method_variant_of(row) for row in rows)
    seeds = sorted({row["seeds"] for row in rows})
    each = "" if seeds == [1] and len(entries) == len(cells) == 1 else " each"
    repeated = f"{_counted(seeds[0], 'seed') if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]} seeds'}{each}"
    methods = _counted(len(entries), "method")
    if len(cells) == 1:
        (cell,) = cells
        return f"{methods} on {cell.dataset}, tuples {cell.tuples}, prior π = {cell.prior:g}; {repeated}."
    datasets = _counted(len({cell.dataset for cell in cells}), "data set")
    return f"{methods} on {datasets} ({len(cells)} cells of data set, tuples and prior); {repeated}."


def _leaders(rows: Sequence[SummaryRow], metric: str) -> list[str]:
    """In how many cells each method has the best mean; empty for a single cell."""
    cells = list(dict.fromkeys(cell_of(row) for row in rows))
    if len(cells) == 1:
        return []
    best_in: dict[str, int] = {}
    for cell in cells:
        for row in best_rows([row for row in rows if cell_of(row) == cell]):
            name = str(method_variant_of(row))
            best_in[name] = best_in.get(name, 0) + 1
    if not best_in:
        return []
    ordered = sorted(best_in.items(), key=lambda entry: (-entry[1], entry[0]))
    shares = ", ".join(f"{name} in {count} of {len(cells)}" for name, count in ordered)
    unranked = dict.fromkeys(row["method"] for row in rows if row["is_oracle"])
    aside = f"; {', '.join(unranked)}, which uses the labels, is not ranked" if unranked else ""
    return [f"Best mean {metric}, ties included: {shares}{aside}."]


def tested_words(comparisons: Sequence[Comparison], metric: str) -> str:
    if not comparisons:
        return "Nothing was tested, because there is nothing to compare with."
    tested = [c for c in comparisons if c["metric"] == metric and c["scope"] == "cell" and c["p_holm"] is not None]
    if not tested:
        return f"No two runs could be paired to be tested by {metric}."
    reference = reference_words(tested)
    # Where pairs differ in number, Holm may leave a later p lower than it would be alone at the head of the family.
    decidable = [c for c in tested if min(c["smallest_p_holm"] or 0.0, c["p_holm"] or 0.0) < LEVEL]
    significant = [c for c in decidable if (c["p_holm"] or 0.0) < LEVEL]
    text = f"Tested against {reference} by {metric}, cell by cell: {_counted(len(tested), 'comparison')}"
    if not decidable:
        fewest, most = (pick(c["pairs"] for c in tested) for pick in (min, max))
        reach = pairs_word(most) if fewest == most else f"{fewest} to {most} pairs"
        none = "none of which can" if len(tested) > 1 else "which cannot"
        return f"{text}, {none} reach p < 0.05 with {reach}; every difference within a cell is descriptive."
    undecidable = len(tested) - len(decidable)
    unable = f"; {undecidable} cannot reach p < 0.05 with so few pairs" if undecidable else ""
    return f"{text}, {len(significant)} with p < 0.05 after Holm{unable}."


def reference_words(comparisons: Sequence[Comparison]) -> str:
    """The method that others are compared with, with its variant where it has one in all comparisons."""
    entries = {reference_variant_of(comparison) for comparison in comparisons}
    return str(entries.pop()) if len(entries) == 1 else comparisons[0]["reference"]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


# Sweeps --------------------------------------------------------------------------------------------


def window_words(window: Mapping[str, Any]) -> str:
    """The robustness window and the critical points of one run of a sweep."""
    phrases = []
    if "window" in window:
        inside = window["window"]
        phrases.append("window " + ("none" if inside is None else f"[{inside[0]:g}, {inside[1]:g}]"))
    names = {"critical_ci": "critical by interval width", "critical_performance": "critical by change"}
    phrases += [f"{name} {_point(window[key])}" for key, name in names.items() if key in window]
    return f"{window['run']}, {window['metric']}: {', '.join(phrases)}"


def _point(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(f"{point:g}" for point in value) if isinstance(value, list) else f"{value:g}"
