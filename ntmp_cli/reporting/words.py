"""Comparisons as sentences: who is ahead, by how much, how sure, and never more than the test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ntmp_cli.evaluation.comparisons import Comparison, Entry, entry_of
from ntmp_cli.evaluation.metrics import LOWER_IS_BETTER
from ntmp_cli.evaluation.summary import SummaryRow, cell_of
from ntmp_cli.reporting.tables import PERCENT, best_rows, is_ceiling, metric_number, pairs_word, signed

LEVEL = 0.05


def comparison_words(found: Comparison) -> str:
    """A short paragraph about one method against the reference.

    A winner is named only where the corrected p is below .05 and the mean and most pairs point the same way. Where so
    few pairs cannot reach such a p, the sentence says that the test cannot decide. An oracle never wins.
    """
    ours, theirs = entry_of(found), Entry(found["reference"], found["reference_variant"])
    where = _where(found)
    if found["difference"] is None or found["p"] is None or found["p_holm"] is None:
        why = f" ({'; '.join(found['missing'][:3])})" if found["missing"] else ""
        return f"{where}, {ours} and {theirs} have no run in common to be compared by {found['metric']}{why}."
    missing = f" {len(found['missing'])} could not be paired." if found["missing"] else ""
    return f"{where}, {_by_how_much(found, ours, theirs)} {_how_sure(found, ours, theirs)}{missing}"


def _where(found: Comparison) -> str:
    if found["scope"] == "overall":
        return f"Over all {found['cells']} cells together"
    return f"On {found['dataset']} {found['tuples']} at π = {found['prior']:g}"


def _by_how_much(found: Comparison, ours: Entry, theirs: Entry) -> str:
    metric, difference = found["metric"], found["difference"] or 0.0
    size = _amount(metric, difference)
    bound = "the upper bound " if is_ceiling(found["reference"]) else ""
    if not float(metric_number(metric, abs(difference))):
        relation = f"{ours} and {bound}{theirs} have the same mean {metric} to the digits shown"
    else:
        relation = f"{ours} is {size} {'above' if difference > 0 else 'below'} {bound}{theirs} in {metric}"
        if metric in LOWER_IS_BETTER:
            relation += ", of which less is better,"
    low, high = found["difference_low"], found["difference_high"]
    if low is None or high is None:
        return f"{relation} ({pairs_word(found['pairs'])}, so no interval)."
    interval = f"95 % interval {signed(metric, low)} to {signed(metric, high)}"
    counted = f"{found['wins']} higher, {found['losses']} lower" + f", {found['ties']} equal" * bool(found["ties"])
    return f"{relation} on average over {pairs_word(found['pairs'])} ({interval}; {counted})."


def _how_sure(found: Comparison, ours: Entry, theirs: Entry) -> str:
    p, smallest = found["p_holm"] or 0.0, found["smallest_p_holm"] or 0.0
    size = found["family_size"]
    over = f" after Holm over {size} comparisons" if size > 1 else ""
    effect = "" if found["cliff"] is None else f" Cliff's δ is {_delta(found['cliff'])} ({found['cliff_word']})."
    if p >= LEVEL and smallest >= LEVEL:
        reach = f"the smallest p that {pairs_word(found['pairs'])} can reach is {smallest:.3g}{over}"
        return f"The test cannot decide: {reach}.{effect}"
    if p >= LEVEL:
        return f"The test does not tell them apart (p = {p_word(p)}{over}).{effect}"
    if is_ceiling(found["reference"]):
        return f"The difference is significant (p = {p_word(p)}{over}); the upper bound sees the labels.{effect}"
    winner = winner_of(found)
    if winner is None:
        doubt = "but the mean and most pairs do not point the same way, so no winner is named"
        return f"They differ significantly (p = {p_word(p)}{over}), {doubt}.{effect}"
    better = ours if winner > 0 else theirs
    return f"{better} is significantly better (p = {p_word(p)}{over}).{effect}"


def winner_of(found: Comparison) -> int | None:
    """1 for the method, −1 for the reference; None where the mean and the majority of pairs disagree."""
    difference, balance = found["difference"] or 0.0, found["wins"] - found["losses"]
    if difference * balance <= 0:
        return None
    return (1 if difference > 0 else -1) * (-1 if found["metric"] in LOWER_IS_BETTER else 1)


def p_word(p: float) -> str:
    """Three digits, but never a p on the other side of .05 than it is."""
    text = f"{p:.3g}"
    return "just below 0.05" if p < LEVEL <= float(text) else text


def _amount(metric: str, value: float) -> str:
    return f"{metric_number(metric, abs(value))}{' points' if metric in PERCENT else ''}"


def _delta(value: float) -> str:
    text = f"{abs(value):.2f}"
    return ("" if not float(text) else "+" if value > 0 else "−") + text


# The whole study -----------------------------------------------------------------------------------


def study_words(summary: Sequence[SummaryRow], metric: str, comparisons: Sequence[Comparison]) -> list[str]:
    """What was run, whose mean leads where, and how many differences the tests found."""
    rows = [row for row in summary if row["metric"] == metric]
    return [setup_words(rows), *_leaders(rows, metric), tested_words(comparisons, metric)]


def setup_words(rows: Sequence[SummaryRow]) -> str:
    """Methods, data and seeds of the rows of one metric."""
    cells = list(dict.fromkeys(cell_of(row) for row in rows))
    entries = dict.fromkeys(entry_of(row) for row in rows)
    seeds = sorted({row["seeds"] for row in rows})
    repeated = f"{_counted(seeds[0], 'seed') if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]} seeds'} each"
    methods = _counted(len(entries), "method")
    if len(cells) == 1:
        (cell,) = cells
        return f"{methods} on {cell.dataset}, tuples {cell.tuples}, prior π = {cell.prior:g}; {repeated}."
    datasets = _counted(len({cell.dataset for cell in cells}), "data set")
    return f"{methods} on {datasets} ({len(cells)} cells of data set, tuples and prior); {repeated}."


def _leaders(rows: Sequence[SummaryRow], metric: str) -> list[str]:
    """How many cells each method leads; of a single cell the verdict says it."""
    cells = list(dict.fromkeys(cell_of(row) for row in rows))
    if len(cells) == 1:
        return []
    leading: dict[str, int] = {}
    for cell in cells:
        for row in best_rows([row for row in rows if cell_of(row) == cell]):
            name = str(entry_of(row))
            leading[name] = leading.get(name, 0) + 1
    if not leading:
        return []
    ordered = sorted(leading.items(), key=lambda entry: (-entry[1], entry[0]))
    shares = ", ".join(f"{name} in {count} of {len(cells)}" for name, count in ordered)
    unranked = dict.fromkeys(row["method"] for row in rows if is_ceiling(row["method"]))
    aside = f"; {', '.join(unranked)}, which sees the labels, is left aside" if unranked else ""
    return [f"Best mean {metric}, ties included: {shares}{aside}."]


def tested_words(comparisons: Sequence[Comparison], metric: str) -> str:
    if not comparisons:
        return "Nothing was tested, because the evaluation names no reference (`ntmp evaluate --reference METHOD`)."
    own = [c for c in comparisons if c["metric"] == metric and c["scope"] == "cell" and c["p_holm"] is not None]
    if not own:
        return f"No two runs could be paired to be tested by {metric}."
    reference = own[0]["reference"]
    # Where pairs differ in number, Holm may leave a later p lower than it would be alone at the head of the family.
    able = [c for c in own if min(c["smallest_p_holm"] or 0.0, c["p_holm"] or 0.0) < LEVEL]
    found = [c for c in able if (c["p_holm"] or 0.0) < LEVEL]
    text = f"Tested against {reference} by {metric}, cell by cell: {_counted(len(own), 'comparison')}"
    if not able:
        fewest, most = (pick(c["pairs"] for c in own) for pick in (min, max))
        reach = pairs_word(most) if fewest == most else f"{fewest} to {most} pairs"
        none = "none of which can" if len(own) > 1 else "which cannot"
        return f"{text}, {none} reach p < 0.05 with {reach}; every difference within a cell is descriptive."
    unable = f"; {len(own) - len(able)} cannot reach p < 0.05 with so few pairs" if len(able) < len(own) else ""
    return f"{text}, {len(found)} with p < 0.05 after Holm{unable}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


# Sweeps --------------------------------------------------------------------------------------------


def window_words(window: Mapping[str, Any]) -> str:
    """The robustness window and the critical points of one run of a sweep."""
    parts = []
    if "window" in window:
        inside = window["window"]
        parts.append("window " + ("none" if inside is None else f"[{inside[0]:g}, {inside[1]:g}]"))
    names = {"critical_ci": "critical by interval width", "critical_performance": "critical by change"}
    parts += [f"{name} {_point(window[key])}" for key, name in names.items() if key in window]
    return f"{window['run']}, {window['metric']}: {', '.join(parts)}"


def _point(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(f"{each:g}" for each in value) if isinstance(value, list) else f"{value:g}"
