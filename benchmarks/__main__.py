"""Run benchmarks by name (default: all) and print their ratios; `--save` writes benchmarks/RESULTS.md."""

from __future__ import annotations

import importlib
import platform
import sys
from pathlib import Path

from benchmarks.timing import Ratio

NAMES = ("make_tuples", "epoch", "memory", "counts", "torchmil_peer", "statistics", "sweep", "own_data", "prior")


def main() -> None:
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or list(NAMES)
    ratios: list[Ratio] = []
    for name in chosen:
        for ratio in importlib.import_module(f"benchmarks.{name}").ratios():
            print(ratio.line(), flush=True)
            ratios.append(ratio)
    if "--save" in sys.argv:
        Path(__file__).with_name("RESULTS.md").write_text(report(ratios), encoding="utf-8")
    if any(not ratio.holds for ratio in ratios):
        sys.exit("a ratio is above its limit (is anything else running on this machine?)")


def report(ratios: list[Ratio]) -> str:
    import torch

    head = (
        "# Benchmarks\n\nWritten by `python -m benchmarks --save` on an otherwise idle machine: "
        f"{platform.machine()}, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__.partition('+')[0]}. Only the ratios mean anything elsewhere.\n\n"
        "| what | ours | limit it is held against | ratio | allowed |\n| --- | ---: | ---: | ---: | ---: |\n"
    )
    return head + "".join(ratio.row() for ratio in ratios)


main()
