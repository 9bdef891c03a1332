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

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kinds-of-counts.md"
COMMAND = "python -m benchmarks.kinds_of_counts --only"
HEAD = """# Kinds of counts, measured

This page compares what ntmp learns from each kind of count with training on labels and with other packages. Each
section uses the standard data of its field. A number is the mean over random samples ("draws"); the text above each
table says how many. A dash means: not measured. `python -m benchmarks.kinds_of_counts` measures and writes
`benchmarks/kinds/results.json`, with the hash of the code for every value. `python -m docs.write_kinds_of_counts`
writes this page from that file.
"""
LABELS, LINEAR_LABELS, DEFAULT = "labels: boosting", "labels: logistic regression", "default (auto)"
# How far the default may be from the best row without labels, and from labels by size of bag.
NEAR_BEST, NEAR_LABELS = 0.005, {8: 0.02, 32: 0.03}
BAGS, DATA = (8, 32, 128, 512), ("adult", "magic")
PROPORTION_ROWS = (
    LABELS,
    LINEAR_LABELS,
    "naive",
    DEFAULT,
    "linear",
    "trees",
    "mlp",
    "llp-bagce",
    "llp-learn: EM",
    "llp-learn: DLLP",
    "llp-learn: MixBag",
)
# Bag accuracies in Table 1 of Ilse, Tomczak and Welling (2018).
PUBLISHED = {
    "published: attention": (0.892, 0.858, 0.868),
    "published: gated attention": (0.900, 0.863, 0.857),
    "published: MI-Net with deep supervision": (0.894, 0.874, 0.872),
    "published: MI-Kernel": (0.880, 0.893, 0.843),
}
BAG_DATA, NEAR_ATTENTION = ("musk1", "musk2", "elephant"), 0.02


def number(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def verdicts(stated: Iterable[tuple[str, bool]]) -> str:
    return "".join(f"- {'Held' if holds else '**Not held**'}: {what}\n" for what, holds in stated)


def draws(results: Results, study: str, value: str) -> str:
    """How many draws the cells of a study have: 2, or 1 to 5."""
    numbers = {
        len(found)
        for data in results.names(study, "data")
        for row in results.names(study, "row")
        if (found := results.values(study, data, row, value))
    }
    return f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


# Label proportions --------------------------------------------------------------------------------

PROPORTIONS = """## Label proportions

    {command} proportions

The rows of Adult (8,192 training rows) and MAGIC (6,144) are put into bags of 8 to 512, as in Scott and Zhang (2020):
the proportion of a bag is uniform in the range, and rows of each class are sampled without replacement. The tables
show the AUROC on the untouched test rows, draws: {draws}; a line has the draws that all its columns have. Columns
that start with "labels" train on the labels of all training rows. `naive` is logistic regression with m/n as the soft
label of every member. `default (auto)`, `linear` and `trees` are `NTMPClassifier()` with counts alone. `mlp` and
`llp-bagce` use the members of the bags as their pool. llp-learn is version 1.6.0, in a separate environment (bags of
8 and 128).
"""


def proportions(results: Results) -> str:
    shown = [PROPORTIONS.format(command=COMMAND, draws=draws(results, "proportions", "auroc"))]
    stated = []
    for side, words in (("low", "[0, ½]"), ("high", "[½, 1]")):
        rows = []
        for data in DATA:
            for size in BAGS:
                means = results.shared_means("proportions", f"{data}-{size}-{side}", PROPORTION_ROWS, "auroc")
                rows.append([f"{data} {size}", *(number(mean) for mean in means.values())])
                stated += proportion_goals(f"{data} {size}, {words}", size, means)
        shown.append(f"Proportions in {words}:\n\n" + table(["", *PROPORTION_ROWS], rows))
    failed = [what for what in stated if not what[1]]
    held = f"{len(stated) - len(failed)} of {len(stated)} goals held.\n\n"
    return "\n".join([*shown, held + verdicts(stated)])


def proportion_goals(where: str, size: int, means: dict[str, float]) -> list[tuple[str, bool]]:
    """The goals of the default on one line, if it was measured."""
    ours = means[DEFAULT]
    if math.isnan(ours):
        return []
    without_labels = {row: mean for row, mean in means.items() if row != DEFAULT and not row.startswith("labels")}
    others = {row: mean for row, mean in without_labels.items() if not math.isnan(mean)}
    goals: list[tuple[str, bool]] = []
    if others:
        best = max(others, key=others.__getitem__)
        missing = len(without_labels) - len(others)
        what = (
            f"{where}: the default has {number(ours)}, the best other row without labels {number(others[best])} ({best}"
        )
        goals = [(f"{what}; {missing} not measured)" if missing else f"{what})", ours >= others[best] - NEAR_BEST)]
    if size in NEAR_LABELS and not math.isnan(means[LABELS]):
        gap = ours - means[LABELS]
        goals.append((f"{where}: {gap:+.3f} from labels, {NEAR_LABELS[size]} allowed", gap >= -NEAR_LABELS[size]))
    return goals


IMAGES = """### Images

    {command} images

The task is odd against even classes of FashionMNIST. 8,192 training images are in bags of 16 and 128 with proportions
in [0, ½]. All rows but two use the network `mlp` with its defaults. The table shows the AUROC on the 10,000 test
images, draws: {draws}.
"""


def images(results: Results) -> str:
    rows = ("labels: the same network", LINEAR_LABELS, "naive", "mlp", "llp-bagce", "llp-js")
    names = ("fashion-16", "fashion-128")
    lines = [[name, *(number(results.mean("images", name, row, "auroc")) for row in rows)] for name in names]
    best = {name: max(results.mean("images", name, row, "auroc") for row in rows[2:]) for name in names}
    stated = [
        (
            f"{name}: `mlp` has {number(ours)}, the best row without labels {number(best[name])}",
            ours >= best[name] - NEAR_BEST,
        )
        for name in names
        if not math.isnan(ours := results.mean("images", name, "mlp", "auroc"))
    ]
    said = IMAGES.format(command=COMMAND, draws=draws(results, "images", "auroc"))
    return said + "\n" + table(["", *rows], lines) + "\n" + verdicts(stated)


# Multiple instances -------------------------------------------------------------------------------

INSTANCES = """## Multiple instances

    {command} instances

The table shows the accuracy on bags of Musk1, Musk2 and Elephant in stratified ten-fold cross-validation over bags, ±
its standard error over draws of the folds (draws: {draws}). A positive bag is recorded as `>=1`, a negative bag as 0.
The first five rows are ntmp. They score instances, and predict a positive bag if P(at least one positive) > ½, with
the intercept of the bag if one was estimated. In rows with "statistics of the bag", each member has further columns:
the mean, the minimum and the maximum of every feature in its bag. Bag-level rows learn from statistics of a bag and
do not score its members. "At least one" assumes that the members of a bag are independent given their features. The
conformations of one molecule (Musk) are not: rows that see statistics of the bag close the gap there. How trees and
intercepts of such bags are fitted was chosen on folds of other seeds (10 and above).
"""


def instances(results: Results) -> str:
    lines = []
    for row in BAG_ROWS:
        lines.append([row, *(with_error(results.values("instances", data, row, "accuracy")) for data in BAG_DATA)])
    lines += [[row, *(number(value) for value in values)] for row, values in PUBLISHED.items()]
    stated = [
        (
            f"{data}: `{row}` has {number(ours)}, attention {number(attention)} ({NEAR_ATTENTION} allowed)",
            ours >= attention - NEAR_ATTENTION,
        )
        for data, attention in zip(BAG_DATA, PUBLISHED["published: attention"], strict=True)
        for row in BAG_ROWS
        if not row.startswith("bag-level")
        if not math.isnan(ours := results.mean("instances", data, row, "accuracy"))
    ]
    said = INSTANCES.format(command=COMMAND, draws=draws(results, "instances", "accuracy"))
    return said + "\n" + table(["", *BAG_DATA], lines) + "\n" + verdicts(stated)


STATISTICS = " + statistics of the bag"
BAG_ROWS = (
    DEFAULT,
    "linear",
    "trees",
    DEFAULT + STATISTICS,
    "linear" + STATISTICS,
    "bag-level: logistic regression on mean and max",
    "bag-level: kernel on min and max",
)


def with_error(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if len(values) < 2:
        return number(mean)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return f"{number(mean)} ± {number(math.sqrt(variance / len(values)))}"


DIGITS = """### Bags of images

    {command} digit_bags

There are 1,000 training bags of 10 images, recorded as `>=1` or 0: MNIST "contains a 9", FashionMNIST "contains a bag".
All networks have the hidden layers of `mlp`, Adam at 1e-3 and 15 epochs. ntmp also uses the members as its pool.
torchmil scores members by its attention. The table shows the AUROC on members and on bags of 10,000 test images,
seeds: {draws}.
"""


def digit_bags(results: Results) -> str:
    names, rows = (
        results.names("digit_bags", "data"),
        ("`count` of `>=1` and `0`, mlp", "torchmil: attention", "torchmil: transformer"),
    )
    kinds = {"instance_auroc": "members", "bag_auroc": "bags"}
    lines, stated = [], []
    for row in rows:
        cells = [with_error(results.values("digit_bags", name, row, kind)) for name in names for kind in kinds]
        lines.append([row, *cells])
    for name in names:
        for kind, words in kinds.items():
            means = {row: results.mean("digit_bags", name, row, kind) for row in rows}
            peers = max((means[row] for row in rows[1:] if not math.isnan(means[row])), default=float("nan"))
            if not math.isnan(peers) and not math.isnan(means[rows[0]]):
                what = (
                    f"{name}, {words}: ntmp has {number(means[rows[0]])}, the better model of torchmil {number(peers)}"
                )
                stated.append((what, means[rows[0]] >= peers - NEAR_BEST))
    header = ["", *(f"{name}: {words}" for name in names for words in kinds.values())]
    said = DIGITS.format(command=COMMAND, draws=draws(results, "digit_bags", "bag_auroc"))
    return said + "\n" + table(header, lines) + "\n" + verdicts(stated)


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
