"""The sections on multiple instances: bags of molecules and regions, and bags of images."""

from __future__ import annotations

import math

from benchmarks.kinds.store import Results
from docs.kinds_page.words import COMMAND, DEFAULT, NEAR_BEST, draws, number, table, verdicts, with_error

# Bag accuracies in Table 1 of Ilse, Tomczak and Welling (2018).
PUBLISHED = {
    "published: attention": (0.892, 0.858, 0.868),
    "published: gated attention": (0.900, 0.863, 0.857),
    "published: MI-Net with deep supervision": (0.894, 0.874, 0.872),
    "published: MI-Kernel": (0.880, 0.893, 0.843),
}
BAG_DATA, NEAR_ATTENTION = ("musk1", "musk2", "elephant"), 0.02

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

INSTANCES = """## Multiple instances

    {command} instances

The table shows the accuracy on bags of Musk1, Musk2 and Elephant in stratified ten-fold cross-validation over bags, ±
its standard error over draws of the folds. A positive bag is recorded as `>=1`, a negative bag as 0.
The first five rows are ntmp. They score instances, and predict a positive bag if P(at least one positive) > ½, with
the intercept of the bag if one was estimated. In rows with "statistics of the bag", each member has further columns:
the mean, the minimum and the maximum of every feature in its bag. Bag-level rows learn from statistics of a bag and
do not score its members. "At least one" assumes that the members of a bag are independent given their features. The
conformations of one molecule (Musk) are not: rows that see statistics of the bag are better there. How trees and
intercepts of such bags are fitted was chosen on folds of other seeds (10 and above).
Draws: {draws}.
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
    numbers = ", ".join(f"{data}: {draws(results, 'instances', 'accuracy', data=[data])}" for data in BAG_DATA)
    said = INSTANCES.format(command=COMMAND, draws=numbers)
    return said + "\n" + table(["", *BAG_DATA], lines) + "\n" + verdicts(stated)


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
