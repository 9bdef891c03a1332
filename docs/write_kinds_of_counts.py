"""Writes docs/kinds-of-counts.md from benchmarks/kinds/results.json: tables, and a verdict for every goal.

python -m benchmarks.kinds_of_counts    # measures, then runs this
python -m docs.write_kinds_of_counts    # the page alone
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.kinds.store import Results
from docs.kinds_page.instances import DIGITS, INSTANCES, digit_bags, instances
from docs.kinds_page.proportions import IMAGES, PROPORTIONS, images, proportions
from docs.kinds_page.words import COMMAND, DATA, NEAR_BEST, draws, number, table, verdicts, with_error

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kinds-of-counts.md"
HEAD = """# Kinds of counts, measured

This page compares what ntmp learns from each kind of count with training on labels and with other packages. Each
section uses the standard data of its field. A number is the mean over random samples ("draws"); the text above each
table says how many. A dash means: not measured. `python -m benchmarks.kinds_of_counts` measures and writes
`benchmarks/kinds/results.json`, with the hash of the code for every value. `python -m docs.write_kinds_of_counts`
writes this page from that file.
"""

# Positives and a pool -----------------------------------------------------------------------------

POSITIVES = """## Positives and a pool

    {command} positives

The training data are 500 positive rows (tuples 1:1) and a pool of 3,000 rows of Adult or MAGIC. The table shows the
AUROC on the test rows, draws: {draws}. The rows of ntmp and pulearn's nnPU are given the prior of the pool. `count`
maximises the likelihood of positives and pool together; `ure` and `discriminant` compare the means of both. What
`count` fits was chosen on draws of other seeds (10 and above). pulearn is version 0.2.0.
"""


def positives(results: Results) -> str:
    rows = ordered(results, "positives", ("labels", "`", "pulearn"))
    lines = [[row, *(with_error(results.values("positives", data, row, "auroc")) for data in DATA)] for row in rows]
    stated = []
    for data in DATA:
        means = {row: results.mean("positives", data, row, "auroc") for row in rows}
        kinds = [
            max(
                ((mean, row) for row, mean in means.items() if row.startswith(kind) and not math.isnan(mean)),
                default=None,
            )
            for kind in ("`", "pulearn")
        ]
        if all(kinds):
            (ours, name), (peer, other) = kinds  # type: ignore[misc]
            stated.append((f"{data}: {name} has {number(ours)}, {other} {number(peer)}", ours >= peer - NEAR_BEST))
    said = POSITIVES.format(command=COMMAND, draws=draws(results, "positives", "auroc"))
    return said + "\n" + table(["", *DATA], lines) + "\n" + verdicts(stated)


# Tuples and a pool of known prior ------------------------------------------------------------------

KNOWN_PRIOR = """### Counts and a pool of known prior

    {command} known_prior

The training data are up to 1,000 tuples of one rate and a pool of 3,000 rows at another prior, which is given: the
setting of the paper, on rows of Adult and MAGIC. The table shows the AUROC on the test rows, draws: {draws}. What is
fitted was chosen on samples of other seeds (10 and above).
"""


def known_prior(results: Results) -> str:
    rows = ("labels: boosting", "default (auto), tuples alone", "default (auto), tuples and pool")
    names = results.names("known_prior", "data")
    lines = [[row, *(with_error(results.values("known_prior", name, row, "auroc")) for name in names)] for row in rows]
    stated = []
    for name in names:
        alone, both = (results.mean("known_prior", name, row, "auroc") for row in rows[1:])
        if not math.isnan(alone) and not math.isnan(both):
            stated.append((f"{name}: {number(both)} with the pool, {number(alone)} without", both >= alone - NEAR_BEST))
    said = KNOWN_PRIOR.format(command=COMMAND, draws=draws(results, "known_prior", "auroc"))
    return said + "\n" + table(["", *names], lines) + "\n" + verdicts(stated)


def ordered(results: Results, study: str, starts: Sequence[str]) -> list[str]:
    """Rows by how they start, then by name."""
    rows = results.names(study, "row")
    return [row for start in starts for row in rows if row.startswith(start)]


# Privacy ------------------------------------------------------------------------------------------

NOISE = """## Counts with noise for privacy

    {command} noise

Noise was added to the counts of 409 random groups of 20 rows of Adult (8,180 rows). The true counts have a standard
deviation of about 2. The default learner is trained in three ways: with the law of the noise known, with its parameter
estimated (`auto`), and with the law ignored (recorded counts are rounded and clipped to 0 … 20). The last column has
the estimates with their 95 % intervals. The other columns are the AUROC and the mean −log P(label) on the test rows,
draws: {draws}.
"""


def noise(results: Results) -> str:
    lines, stated = [], []
    for law in NOISE_LAWS:
        cells = []
        for row in ("law known", "auto", "law ignored"):
            for value in ("auroc", "log_loss"):
                cells.append(number(results.mean("noise", law, row, value)))
        lines.append([law, *cells, estimates(results, law)])
        known, auto, ignored = (
            results.mean("noise", law, row, "auroc") for row in ("law known", "auto", "law ignored")
        )
        if not math.isnan(known) and not math.isnan(ignored):
            stated.append((f"{law}: known {number(known)}, ignored {number(ignored)}", known >= ignored - NEAR_BEST))
        if not math.isnan(auto):
            stated.append((f"{law}: `auto` {number(auto)}, known {number(known)}", auto >= known - 0.01))
    header = ["", "known", "−log P", "`auto`", "−log P", "ignored", "−log P", "estimates"]
    said = NOISE.format(command=COMMAND, draws=draws(results, "noise", "auroc"))
    return said + "\n" + table(header, lines) + "\n" + verdicts(stated)


NOISE_LAWS = (
    "exact",
    "gaussian:1",
    "gaussian:2",
    "gaussian:4",
    "gaussian:8",
    "geometric:1",
    "geometric:0.5",
    "geometric:0.25",
)


def estimates(results: Results, law: str) -> str:
    found = zip(*(results.values("noise", law, "auto", name) for name in ("estimate", "low", "high")), strict=True)
    shown = [f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in found]
    shown += ["refused"] * len(results.values("noise", law, "auto", "refused"))
    return "; ".join(shown) or "–"


# Labels -------------------------------------------------------------------------------------------

FEW_LABELS = """## How many labels are worth how many tuples

    {command} few_labels

The training data are random tuples of 8 rows and some labelled rows (`fit(..., labels=)`, or a column `label` with
blanks). The tables show the AUROC on the test rows, draws: {draws}. The row without tuples is logistic regression on
the labelled rows.
"""


def few_labels(results: Results) -> str:
    numbers, labels = (0, 25, 50, 100, 200, 400, 800), (0, 20, 100, 400)
    shown = [FEW_LABELS.format(command=COMMAND, draws=draws(results, "few_labels", "auroc"))]
    for data in DATA:

        def mean(tuples: int, number_of_labels: int, data: str = data) -> float:
            return results.mean("few_labels", f"{data}-{tuples}", f"{number_of_labels} labels", "auroc")

        lines = [[f"{tuples} tuples", *(number(mean(tuples, one)) for one in labels)] for tuples in numbers]
        measured = [line for line in lines if {*line[1:]} != {"–"}]  # MAGIC has no rows for 800 tuples
        shown.append(table([data, *(f"{one} labels" for one in labels)], measured))
        shown.append("".join(worth(data, mean, numbers[1:], labels[1:])))
    return "\n".join(shown)


def worth(data: str, mean: Callable[[int, int], float], numbers: Sequence[int], labels: Sequence[int]) -> Iterable[str]:
    """For a number of labels beside 100 tuples: how many tuples without labels rank test rows as well."""
    curve = [(tuples, mean(tuples, 0)) for tuples in numbers if not math.isnan(mean(tuples, 0))]
    for one in labels:
        reached = mean(100, one)
        if math.isnan(reached) or len(curve) < 2:
            continue
        yield f"- {data}: 100 tuples with {one} labels rank as well as {equivalent(curve, reached)} tuples without.\n"


def equivalent(curve: Sequence[tuple[int, float]], reached: float) -> str:
    """The number of tuples at which a curve reaches a value, between its points on the logarithmic scale."""
    if reached <= curve[0][1]:
        return f"at most {curve[0][0]}"
    for (few, low), (many, high) in pairwise(curve):
        if low < reached <= high:
            return f"about {few * (many / few) ** ((reached - low) / (high - low)):.0f}"
    return f"more than {curve[-1][0]}"


# Counts of new groups ------------------------------------------------------------------------------

GROUP_INTERVALS = """## Intervals for counts of new groups

    {command} group_intervals

How many new groups have their count inside the interval of `ntmp predict --by` (90 %, CV+)? In every draw a random half
of the rows of a table forms training tuples of 3 to 50 rows, and the other half forms new groups of the same sizes. A
cell has the share of groups inside, ± its standard error over draws ({draws}), and the mean width of the interval as a
share of all counts. The last column is the probability that CV+ guarantees for so few tuples.
"""
# How far the coverage may be from the nominal one.
NEAR_NOMINAL, NOMINAL = 0.02, 0.9


def group_intervals(results: Results) -> str:
    models, names = ("linear", "trees"), results.names("group_intervals", "data")

    def values(name: str, model: str, value: str) -> list[float]:
        return results.values("group_intervals", name, model, value)

    def mean(name: str, model: str, value: str) -> float:
        return results.mean("group_intervals", name, model, value)

    lines, stated = [], []
    for name in names:
        shown = [
            f"{with_error(values(name, model, 'coverage'))} (width {number(mean(name, model, 'width'), 2)})"
            for model in models
        ]
        lines.append(
            [name, f"{mean(name, 'linear', 'tuples'):.0f}", *shown, number(mean(name, "linear", "guaranteed"), 2)]
        )
    for model in models:
        every = [value for name in names for value in values(name, model, "coverage")]
        if every:
            low = min(names, key=lambda name: mean(name, model, "coverage"))
            found, least = float(np.mean(every)), mean(low, model, "coverage")
            what = f"{model}: {found:.3f} over all tables and draws, the lowest table has {least:.3f} ({low})"
            stated.append((what, abs(found - NOMINAL) <= NEAR_NOMINAL))
    said = GROUP_INTERVALS.format(command=COMMAND, draws=draws(results, "group_intervals", "coverage"))
    return f"{said}\n{table(['', 'tuples', *models, 'guaranteed'], lines)}\n{verdicts(stated)}"


SECTIONS = {
    "proportions": (PROPORTIONS, proportions),
    "images": (IMAGES, images),
    "instances": (INSTANCES, instances),
    "digit_bags": (DIGITS, digit_bags),
    "positives": (POSITIVES, positives),
    "known_prior": (KNOWN_PRIOR, known_prior),
    "noise": (NOISE, noise),
    "few_labels": (FEW_LABELS, few_labels),
    "group_intervals": (GROUP_INTERVALS, group_intervals),
}


def page(results: Results) -> str:
    """All sections; a section without measurements says so."""
    sections = [
        section(results) if results.names(name, "row") else unmeasured(text)
        for name, (text, section) in SECTIONS.items()
    ]
    return "\n".join([HEAD, *sections])


def unmeasured(text: str) -> str:
    """The title and the command of a section."""
    title, command, *_ = text.format(command=COMMAND, draws="").split("\n\n")
    return f"{title}\n\n{command}\n\nNot measured.\n"


def main() -> None:
    PAGE.write_text(page(Results.load()), encoding="utf-8")


if __name__ == "__main__":
    main()
