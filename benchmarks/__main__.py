"""Run benchmarks by name (default: all) and print their ratios; `--save` puts them into benchmarks/RESULTS.md.

Rows of benchmarks that were not run stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from pathlib import Path

from benchmarks.timing import Ratio

NAMES = ("make_tuples", "epoch", "memory", "counts", "torchmil_peer", "statistics", "sweep", "own_data", "prior")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}, time_to_accuracy")
    parser.add_argument("--save", action="store_true", help="write the ratios into benchmarks/RESULTS.md")
    options = parser.parse_args()
    chosen = options.names or list(NAMES)
    if unknown := [name for name in chosen if name not in (*NAMES, "time_to_accuracy")]:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    ratios: list[Ratio] = []
    for name in chosen:
        for ratio in importlib.import_module(f"benchmarks.{name}").ratios():
            print(ratio.line(), flush=True)
            ratios.append(ratio)
    if options.save:
        page = Path(__file__).with_name("RESULTS.md")
        page.write_text(report(page.read_text(encoding="utf-8"), ratios), encoding="utf-8")
    if any(not ratio.holds for ratio in ratios):
        sys.exit("a ratio is above its limit (is anything else running on this machine?)")


def report(page: str, ratios: list[Ratio]) -> str:
    """The page with these rows in place of those of the same name; new ones come last."""
    import torch

    head = (
        "# Benchmarks\n\nWritten by `python -m benchmarks --save` on an otherwise idle machine: "
        f"{platform.machine()}, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__.partition('+')[0]}. Only the ratios mean anything elsewhere.\n\n"
    )
    lines = page.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("| ---")) + 1
    last = next((i for i, line in enumerate(lines) if i >= first and not line.startswith("|")), len(lines))
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines[first:last]}
    rows |= {ratio.what: ratio.row() for ratio in ratios}
    return head + "".join([*lines[first - 2 : first], *rows.values(), *lines[last:]])


main()
