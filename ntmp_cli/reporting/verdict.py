"""The verdict on a study in one sentence: which method leads, on how many seeds, and whether a test supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ntmp_cli.evaluation.comparisons import Comparison, Entry, entry_of
from ntmp_cli.evaluation.metrics import DESCRIPTIVE, LOWER_IS_BETTER
from ntmp_cli.evaluation.summary import Cell, SummaryRow, cell_of
from ntmp_cli.reporting.tables import PERCENT, is_ceiling, metric_number
from ntmp_cli.reporting.words import LEVEL, p_word, winner_of

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def verdict(summary: Sequence[SummaryRow], metric: str, comparisons: Sequence[Comparison]) -> str:
    """Name the leader by `metric`, and claim no more than the comparisons support.

    A method that sees the labels never leads, see `upper_bound`. "Cannot prove" means that no result of so few pairs
    has a corrected p below .05.
    """
    if metric in DESCRIPTIVE:
        return f"By {metric} no method is better than another: it only describes a training."
    rows = [row for row in summary if row["metric"] == metric]
    comparisons = [found for found in comparisons if found["metric"] == metric]
    ranked = {cell: rank([row for row in rows if cell_of(row) == cell]) for cell in dict.fromkeys(map(cell_of, rows))}
    if all(is_ceiling(row["method"]) for row in rows):
        return "Only an upper bound was evaluated; there is no method to judge."
    if not any(ranked.values()):
        return f"No method has {_article(metric)} {metric} that is defined on all its seeds."
    if len(ranked) == 1:
        return _one_cell(next(iter(ranked.values())), rows, comparisons)
    return _several_cells(ranked, comparisons)


def upper_bound(summary: Sequence[SummaryRow], metric: str) -> str:
    """A sentence about methods that were trained on labels; empty without any."""
    oracles = [row for row in summary if row["metric"] == metric and is_ceiling(row["method"])]
    if not oracles:
        return ""
    if len({cell_of(row) for row in oracles}) > 1:
        names = _listed(sorted({str(entry_of(row)) for row in oracles}))
        return f"Upper bound, trained on labels and not ranked: {names}."
    named = [f"{entry_of(row)} {'undefined' if row['mean'] is None else _value(row)}" for row in oracles]
    return f"Upper bound, trained on labels: {_listed(named)}{_by(metric)}."


def rank(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Best mean first: methods that see no labels and whose metric is defined on every seed."""
    able = [row for row in rows if row["mean"] is not None and not row["undefined"] and not is_ceiling(row["method"])]
    sign = 1 if rows and rows[0]["metric"] in LOWER_IS_BETTER else -1
    return sorted(able, key=lambda row: (sign * (row["mean"] or 0.0), entry_of(row)))


def _one_cell(ranked: Sequence[SummaryRow], rows: Sequence[SummaryRow], comparisons: Sequence[Comparison]) -> str:
    best = ranked[0]
    metric = best["metric"]
    if len(ranked) == 1:
        alone = f"{entry_of(best)} {_value(best)}{_by(metric)} {_over([best])}"
        return f"{alone}; there is no other method to compare it with."
    if len(tied := _tied(ranked)) > 1:
        names = _listed([str(entry_of(row)) for row in tied])
        return f"{names} have the same mean {metric}, {_value(best, exact=True)}, {_over(tied)}."
    duel = _duel(entry_of(best), comparisons, "cell")
    if duel is None:
        second = ranked[1]
        exact = _value(best) == _value(second)
        ahead = f"{entry_of(best)} {_value(best, exact=exact)} is ahead of {entry_of(second)} "
        ahead += f"{_value(second, exact=exact)}{_by(metric)} on average {_over([best, second])}"
        return f"{ahead}; the difference was not tested."
    other = next(row for row in rows if entry_of(row) == duel.other)
    exact = _value(best) == _value(other)
    ours = f"{entry_of(best)} {_value(best, exact=exact)}"
    theirs = f"{duel.named} {_value(other, exact=exact)}{_by(metric)}"
    seeds = f"{duel.wins} of {duel.pairs} {'paired ' if duel.missing else ''}{_plural('seed', duel.pairs)}"
    if duel.agrees:
        return f"{ours} beats {theirs} on {seeds}; {duel.proof('seed')}."
    return f"{ours} is ahead of {theirs} on average, but better on only {seeds}; {duel.proof('seed')}."


def _several_cells(ranked: dict[Cell, list[SummaryRow]], comparisons: Sequence[Comparison]) -> str:
    shared = [rows for rows in ranked.values() if len(rows) > 1]
    rows = [row for own in ranked.values() for row in own]
    metric, entries = rows[0]["metric"], dict.fromkeys(entry_of(row) for row in rows)
    if not shared:
        if len(entries) > 1:
            return "No two methods share a data set, tuples and prior, so none is called better."
        low, high = (_value(pick(rows, key=lambda row: row["mean"] or 0.0)) for pick in (min, max))
        return f"{next(iter(entries))}: {metric} {low} to {high} in {len(ranked)} cells; there is no other method."
    leads: dict[Entry, int] = {}
    for own in shared:
        for row in _tied(own):
            leads[entry_of(row)] = leads.get(entry_of(row), 0) + 1
    most = max(leads.values())
    leaders = sorted(entry for entry, count in leads.items() if count == most)
    where = f"the best mean {metric} in {most} of {len(shared)} cells"
    if len(leaders) > 1:
        return f"{_listed([str(entry) for entry in leaders])} each have {where}."
    best = leaders[0]
    duel = _duel(best, comparisons, "overall")
    if duel is None:
        return f"{best} has {where}; the differences were not tested."
    pairs = f"{duel.wins} of {duel.pairs} {_plural('pair', duel.pairs)}"
    if duel.agrees:
        return f"{best} has {where} and beats {duel.named} on {pairs}; {duel.proof('pair')}."
    return f"{best} has {where}, but is better than {duel.named} on only {pairs}; {duel.proof('pair')}."


# Two methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Duel:
    """The comparison that decides about the leader; `side` is 1 where the leader is its method, −1 its reference."""

    found: Comparison
    side: int

    @property
    def other(self) -> Entry:
        return _reference_of(self.found) if self.side > 0 else entry_of(self.found)

    @property
    def named(self) -> str:
        return f"the reference {self.other}" if self.side > 0 else str(self.other)

    @property
    def pairs(self) -> int:
        return self.found["pairs"]

    @property
    def missing(self) -> bool:
        return bool(self.found["missing"])

    @property
    def _sign(self) -> int:
        return -self.side if self.found["metric"] in LOWER_IS_BETTER else self.side

    @property
    def wins(self) -> int:
        """Pairs in which the leader is better."""
        return self.found["wins" if self._sign > 0 else "losses"]

    @property
    def lead(self) -> float:
        """By how much the leader is better on average over pairs."""
        return self._sign * (self.found["difference"] or 0.0)

    @property
    def agrees(self) -> bool:
        """Whether the mean over pairs and most pairs are in favour of the leader."""
        return winner_of(self.found) == self.side

    def proof(self, what: str) -> str:
        """What the test says, after Holm."""
        found = self.found
        p, alone, least = (found[key] or 0.0 for key in ("p_holm", "smallest_p", "smallest_p_holm"))
        size = found["family_size"]
        over = f" after Holm over {size} comparisons" if size > 1 else ""
        if p < LEVEL and self.agrees:
            return f"significant (p = {p_word(p)}{over})"
        if p < LEVEL:
            return f"the two differ significantly (p = {p_word(p)}{over}), in which direction is not clear"
        if least < LEVEL:
            return f"the test does not tell them apart (p = {p_word(p)}{over})"
        among = f" among {size} comparisons" if alone < LEVEL else ""
        return f"{_number(self.pairs)} {_plural(what, self.pairs)} cannot prove it{among}"


def _duel(best: Entry, comparisons: Sequence[Comparison], scope: str) -> _Duel | None:
    """The leader against the reference; where it is the reference, against the best of the others."""
    duels = [
        _Duel(found, side)
        for found in comparisons
        if found["scope"] == scope and found["p_holm"] is not None and not is_ceiling(found["reference"])
        for side in (1, -1)
        if best == (entry_of(found) if side > 0 else _reference_of(found))
    ]
    return min(duels, key=lambda duel: duel.lead, default=None)


def _reference_of(found: Comparison) -> Entry:
    return Entry(found["reference"], found["reference_variant"])


# Words ---------------------------------------------------------------------------------------------


def _tied(ranked: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Those that share the best mean to the digits of the tables."""
    best = _value(ranked[0], exact=True)
    return [row for row in ranked if _value(row, exact=True) == best]


def _value(row: SummaryRow, *, exact: bool = False) -> str:
    """A mean to three significant digits or so; `exact`: to the digits of the tables."""
    metric, mean = row["metric"], row["mean"] or 0.0
    if metric in PERCENT:
        return f"{metric_number(metric, mean) if exact else f'{100 * mean:.1f}'} %"
    return metric_number(metric, mean) if exact else f"{mean:.3f}"


def _by(metric: str) -> str:
    """The metric is named unless it is the accuracy, which a percentage is taken for."""
    lower = " (lower is better)" if metric in LOWER_IS_BETTER else ""
    return "" if metric == "accuracy" else f" in {metric}{lower}"


def _over(rows: Sequence[SummaryRow]) -> str:
    fewest, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if fewest < most:
        return f"over {fewest} to {most} seeds"
    return "with one seed" if most == 1 else f"over {_number(most)} seeds"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _plural(what: str, count: int) -> str:
    return what if count == 1 else f"{what}s"


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
