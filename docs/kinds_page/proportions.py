"""The sections on label proportions, of tables and of images."""

from __future__ import annotations

import math
import textwrap

from benchmarks.kinds.store import Results
from docs.kinds_page.words import (
    COMMAND,
    DATA,
    DEFAULT,
    LABELS,
    LINEAR_LABELS,
    NEAR_BEST,
    draws,
    number,
    table,
    verdicts,
    with_error,
)

# How far the default may be from labels, by size of bag.
NEAR_LABELS = {8: 0.02, 32: 0.03}
BAGS = (8, 32, 128, 512)
ROWS = (LABELS, LINEAR_LABELS, "naive", DEFAULT, "linear", "trees", "mlp")
OTHERS = ("llp-bagce", "llp-learn: EM", "llp-learn: DLLP", "llp-learn: MixBag")
OURS = (DEFAULT, "linear", "trees", "mlp")
SIDES = {"low": "[0, ½]", "high": "[½, 1]"}

PROPORTIONS = """## Label proportions

    {command} proportions

The rows of Adult (8,192 training rows) and MAGIC (6,144) are put into bags of 8 to 512, as in Scott and Zhang (2020):
the proportion of a bag is uniform in the range, and rows of each class are sampled without replacement. The tables
show the AUROC on the untouched test rows, draws: {draws}. Columns that start with "labels" train on the labels of all
training rows. `naive` is logistic regression with m/n as the soft label of every member. `default (auto)`, `linear`
and `trees` are `NTMPClassifier()` with counts alone. `mlp` uses the members of the bags as its pool.
"""
PEERS = """### Other methods for label proportions

`llp-bagce` is trained by ntmp, with `mlp` and the members of the bags as its pool. llp-learn is version 1.6.0, in a
separate environment (bags of 8 and 128). Draws: {draws}. The default beside them has the same draws.
"""
EXCHANGED = (
    "Fits that ended with the classes exchanged (AUROC below .5): {fits}. A training warns if held-out tuples do not "
    "determine its orientation (z below 3)."
)


def proportions(results: Results) -> str:
    """The rows that have all draws, then the other methods, then every verdict."""
    lines = {side: [(data, size, f"{data}-{size}-{side}") for data in DATA for size in BAGS] for side in SIDES}

    def means(name: str, rows: tuple[str, ...]) -> dict[str, float]:
        return results.shared_means("proportions", name, rows, "auroc")

    def tables(rows: tuple[str, ...]) -> list[str]:
        return [
            f"Proportions in {SIDES[side]}:\n\n"
            + table(
                ["", *rows],
                [[f"{data} {size}", *map(number, means(name, rows).values())] for data, size, name in lines[side]],
            )
            for side in SIDES
        ]

    stated = []
    for side, words in SIDES.items():
        for data, size, name in lines[side]:
            where = f"{data} {size}, {words}"
            own = means(name, ROWS)
            stated += [
                *best_of(where, own),
                *near_labels(where, size, own),
                *best_of(where, means(name, (DEFAULT, *OTHERS))),
            ]
    failed = [what for what in stated if not what[1]]
    held = f"{len(stated) - len(failed)} of {len(stated)} goals held.\n\n"
    return "\n".join(
        [
            PROPORTIONS.format(command=COMMAND, draws=draws(results, "proportions", "auroc", ROWS)),
            *tables(ROWS),
            *exchanged(results),
            PEERS.format(draws=draws(results, "proportions", "auroc", OTHERS)),
            *tables((DEFAULT, *OTHERS)),
            held + verdicts(stated),
        ]
    )


def best_of(where: str, means: dict[str, float]) -> list[tuple[str, bool]]:
    """Whether the default is the best row without labels, or near it."""
    others = {
        row: mean
        for row, mean in means.items()
        if row != DEFAULT and not row.startswith("labels") and not math.isnan(mean)
    }
    if math.isnan(means[DEFAULT]) or not others:
        return []
    best = max(others, key=others.__getitem__)
    other = f"the best other row without labels {number(others[best])} ({best})"
    return [(f"{where}: the default has {number(means[DEFAULT])}, {other}", means[DEFAULT] >= others[best] - NEAR_BEST)]


def near_labels(where: str, size: int, means: dict[str, float]) -> list[tuple[str, bool]]:
    """Whether the default is as near to labels as it should be, for the sizes of bags with such a goal."""
    gap = means[DEFAULT] - means[LABELS]
    if size not in NEAR_LABELS or math.isnan(gap):
        return []
    return [(f"{where}: {gap:+.3f} from labels, {NEAR_LABELS[size]} allowed", gap >= -NEAR_LABELS[size])]


def exchanged(results: Results) -> list[str]:
    """The fits of ntmp that rank the classes the wrong way round."""
    fits = [
        f"`{row}` on {data} {size}, {SIDES[side]} ({number(value)})"
        for name in results.names("proportions", "data")
        for data, size, side in [name.split("-")]
        for row in OURS
        for value in results.values("proportions", name, row, "auroc")
        if value < 0.5
    ]
    return [textwrap.fill(EXCHANGED.format(fits=", ".join(fits)), 120) + "\n"] if fits else []


IMAGES = """### Images

    {command} images

The task is odd against even classes of FashionMNIST. 8,192 training images are in bags of 16 and 128 with proportions
in [0, ½]. All rows but two use the network `mlp` with its defaults. The table shows the AUROC on the 10,000 test
images, ± its standard error (draws: {draws}).
"""


def images(results: Results) -> str:
    rows = ("labels: the same network", LINEAR_LABELS, "naive", "mlp", "llp-bagce", "llp-js")
    names = ("fashion-16", "fashion-128")
    lines = [[name, *(with_error(results.values("images", name, row, "auroc")) for row in rows)] for name in names]
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
