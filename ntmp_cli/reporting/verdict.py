"""The verdict on a study in one sentence: the best method, on how many seeds, and whether a test supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ntmp_cli.evaluation.comparisons import Comparison, MethodVariant, method_variant_of, reference_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.formatting import in_percent, metric_number
from ntmp_cli.reporting.words import LEVEL, p_word, winner_of

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def verdict(summary: Sequence[SummaryRow], metric: str, comparisons: Sequence[Comparison]) -> str:
    """Name the leader by `metric`, and claim no more than the comparisons support.

    A method that uses the labels is never named, see `upper_bound`. "Cannot prove" means that no result of so few pairs
    has a corrected p below .05.
    """
    if facts_of(metric).descriptive:
        return f"By {metric} no method is better than another: it only describes a training."
    rows = [row for row in summary if row["metric"] == metric]
    comparisons = [comparison for comparison in comparisons if comparison["metric"] == metric]
    ranked = {cell: rank([row for row in rows if cell_of(row) == cell]) for cell in dict.fromkeys(map(cell_of, rows))}
    if all(row["is_oracle"] for row in rows):
        return "Only an upper bound was evaluated; there is no method to judge."
    if not any(ranked.values()):
        return f"No method has {_article(metric)} {metric} that is defined on all its seeds."
    if len(ranked) == 1:
        return _one_cell(next(iter(ranked.values())), rows, comparisons)
    return _several_cells(ranked, comparisons)


def upper_bound(summary: Sequence[SummaryRow], metric: str) -> str:
    """A sentence about methods that were trained on labels; empty without any."""
    oracles = [row for row in summary if row["metric"] == metric and row["is_oracle"]]
    if not oracles:
        return ""
    if len({cell_of(row) for row in oracles}) > 1:
        names = _listed(sorted({str(method_variant_of(row)) for row in oracles}))
        return f"Upper bound, trained on labels and not ranked: {names}."
    named = [f"{method_variant_of(row)} {'undefined' if row['mean'] is None else _value(row)}" for row in oracles]
    return f"Upper bound, trained on labels: {_listed(named)}{_by(metric)}."


def rank(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Best mean first: methods that use no labels and whose metric is defined on every seed."""
    able = [row for row in rows if row["mean"] is not None and not row["undefined"] and not row["is_oracle"]]
    sign = 1 if rows and facts_of(rows[0]["metric"]).lower_is_better else -1
    return sorted(able, key=lambda row: (sign * (row["mean"] or 0.0), method_variant_of(row)))


def _one_cell(ranked: Sequence[SummaryRow], rows: Sequence[SummaryRow], comparisons: Sequence[Comparison]) -> str:
    best = ranked[0]
    metric = best["metric"]
    if len(ranked) == 1:
        alone = f"{method_variant_of(best)} {_value(best)}{_by(metric)} {_over([best])}"
        return f"{alone}; there is no other method to compare it with."
    if len(tied := _tied(ranked)) > 1:
        names = _listed([str(method_variant_of(row)) for row in tied])
        return f"{names} have the same mean {metric}, {_value(best, exact=True)}, {_over(tied)}."
    leader_test = _leader_test(method_variant_of(best), comparisons, "cell")
    if leader_test is None:
        second = ranked[1]
        exact = _value(best) == _value(second)
        ahead = f"{method_variant_of(best)} {_value(best, exact=exact)} is ahead of {method_variant_of(second)} "
        ahead += f"{_value(second, exact=exact)}{_by(metric)} on average {_over([best, second])}"
        return f"{ahead}; the difference was not tested."
    opponent = next(row for row in rows if method_variant_of(row) == leader_test.opponent)
    exact = _value(best) == _value(opponent)
    leader = f"{method_variant_of(best)} {_value(best, exact=exact)}"
    runner_up = f"{leader_test.named} {_value(opponent, exact=exact)}{_by(metric)}"
    paired = "paired " if leader_test.missing else ""
    seeds = f"{leader_test.wins} of {leader_test.pairs} {paired}{_plural('seed', leader_test.pairs)}"
    if leader_test.agrees:
        return f"{leader} beats {runner_up} on {seeds}; {leader_test.proof('seed')}."
    return f"{leader} is ahead of {runner_up} on average, but better on only {seeds}; {leader_test.proof('seed')}."


def _several_cells(ranked: dict[DataCell, list[SummaryRow]], comparisons: Sequence[Comparison]) -> str:
    shared = [rows for rows in ranked.values() if len(rows) > 1]
    rows = [row for rows_of_cell in ranked.values() for row in rows_of_cell]
    metric, entries = rows[0]["metric"], dict.fromkeys(method_variant_of(row) for row in rows)
    if not shared:
        if len(entries) > 1:
            return "No two methods share a data set, tuples and prior, so none is called better."
        low, high = (_value(pick(rows, key=lambda row: row["mean"] or 0.0)) for pick in (min, max))
        return f"{next(iter(entries))}: {metric} {low} to {high} in {len(ranked)} cells; there is no other method."
    wins_by_method: dict[MethodVariant, int] = {}
    for rows_of_cell in shared:
        for row in _tied(rows_of_cell):
            wins_by_method[method_variant_of(row)] = wins_by_method.get(method_variant_of(row), 0) + 1
    most = max(wins_by_method.values())
    leaders = sorted(entry for entry, count in wins_by_method.items() if count == most)
    where = f"the best mean {metric} in {most} of {len(shared)} cells"
    if len(leaders) > 1:
        return f"{_listed([str(entry) for entry in leaders])} each have {where}."
    best = leaders[0]
    leader_test = _leader_test(best, comparisons, "overall")
    if leader_test is None:
        return f"{best} has {where}; the differences were not tested."
    pairs = f"{leader_test.wins} of {leader_test.pairs} {_plural('pair', leader_test.pairs)}"
    if leader_test.agrees:
        return f"{best} has {where} and beats {leader_test.named} on {pairs}; {leader_test.proof('pair')}."
    return f"{best} has {where}, but is better than {leader_test.named} on only {pairs}; {leader_test.proof('pair')}."


# Two methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LeaderTest:
    """The comparison that decides about the leader; `side` is 1 where the leader is its method, −1 its reference."""

    comparison: Comparison
    side: int

    @property
    def opponent(self) -> MethodVariant:
        return reference_variant_of(self.comparison) if self.side > 0 else method_variant_of(self.comparison)

    @property
    def named(self) -> str:
        return f"the reference {self.opponent}" if self.side > 0 else str(self.opponent)

    @property
    def pairs(self) -> int:
        return self.comparison["pairs"]

    @property
    def missing(self) -> bool:
        return bool(self.comparison["missing"])

    @property
    def _sign(self) -> int:
        return -self.side if facts_of(self.comparison["metric"]).lower_is_better else self.side

    @property
    def wins(self) -> int:
        """Pairs in which the leader is better."""
        return self.comparison["wins" if self._sign > 0 else "losses"]

    @property
    def lead(self) -> float:
        """Mean difference over pairs in favour of the leader."""
        return self._sign * (self.comparison["difference"] or 0.0)

    @property
    def agrees(self) -> bool:
        """Whether the mean over pairs and most pairs are in favour of the leader."""
        return winner_of(self.comparison) == self.side

    def proof(self, unit: str) -> str:
        """The result of the test, after Holm."""
        comparison = self.comparison
        p, alone, least = (comparison[key] or 0.0 for key in ("p_holm", "smallest_p", "smallest_p_holm"))
        size = comparison["family_size"]
        over = f" after Holm over {size} comparisons" if size > 1 else ""
        if p < LEVEL and self.agrees:
            return f"significant (p = {p_word(p)}{over})"
        if p < LEVEL:
            return f"the two differ significantly (p = {p_word(p)}{over}), but the direction is not clear"
        if least < LEVEL:
            return f"the test shows no difference (p = {p_word(p)}{over})"
        among = f" among {size} comparisons" if alone < LEVEL else ""
        return f"{_number(self.pairs)} {_plural(unit, self.pairs)} cannot prove it{among}"


def _leader_test(best: MethodVariant, comparisons: Sequence[Comparison], scope: str) -> _LeaderTest | None:
    """The leader against the reference; where it is the reference, against the best of the others."""
    tests = [
        _LeaderTest(comparison, side)
        for comparison in comparisons
        if comparison["scope"] == scope and comparison["p_holm"] is not None and not comparison["reference_is_oracle"]
        for side in (1, -1)
        if best == (method_variant_of(comparison) if side > 0 else reference_variant_of(comparison))
    ]
    return min(tests, key=lambda test: test.lead, default=None)


# Words ---------------------------------------------------------------------------------------------


def _tied(ranked: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Methods with the best mean, ties included, at the digits of the tables."""
    best = _value(ranked[0], exact=True)
    return [row for row in ranked if _value(row, exact=True) == best]


def _value(row: SummaryRow, *, exact: bool = False) -> str:
    """A mean to three significant digits or so; `exact`: to the digits of the tables."""
    metric, mean = row["metric"], row["mean"] or 0.0
    if in_percent(metric):
        return f"{metric_number(metric, mean) if exact else f'{100 * mean:.1f}'} %"
    return metric_number(metric, mean) if exact else f"{mean:.3f}"


def _by(metric: str) -> str:
    """The metric is named unless it is the accuracy, which a percentage is taken for."""
    lower = " (lower is better)" if facts_of(metric).lower_is_better else ""
    return "" if metric == "accuracy" else f" in {metric}{lower}"


def _over(rows: Sequence[SummaryRow]) -> str:
    fewest, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if fewest < most:
        return f"over {fewest} to {most} seeds"
    return "with one seed" if most == 1 else f"over {_number(most)} seeds"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
