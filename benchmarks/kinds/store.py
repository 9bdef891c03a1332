"""Measurements kept in one file: each with the hash of the code that it depends on, so that a repetition continues."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.code_hash import code_hash

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("results.json")
# Code that decides what a learner for tables answers; networks depend on all of `learning`.
TABLE_CODE = ("ntmp_cli/learning/tables", "ntmp_cli/counting")
NETWORK_CODE = ("ntmp_cli/learning", "ntmp_cli/counting")


class Cell(NamedTuple):
    """One measurement: a row on a data set, for one draw of it."""

    study: str
    data: str
    row: str
    draw: int


@dataclass(frozen=True)
class Study:
    """What one section of the page measures."""

    name: str
    cells: Callable[[bool], Iterable[Cell]]
    """All cells, most wanted first; of a quick run those of one small task."""
    measure: Callable[[Cell], dict[str, float] | None]
    """None where a peer is not installed."""
    code: Callable[[Cell], tuple[str, ...]]
    """Files and folders that a cell depends on."""


class Results:
    """Measured values by cell; `save` writes the file with sorted keys."""

    def __init__(self, rows: Sequence[dict[str, Any]] = ()) -> None:
        self.by_cell = {Cell(*(row[name] for name in Cell._fields)): row for row in rows}

    @classmethod
    def load(cls, file: Path = FILE) -> Results:
        return cls(json.loads(file.read_text(encoding="utf-8")) if file.exists() else ())

    def save(self, file: Path = FILE) -> None:
        rows = [json.dumps(self.by_cell[cell], sort_keys=True) for cell in sorted(self.by_cell)]
        written = file.with_suffix(".new")
        written.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
        written.replace(file)

    def save_cell(self, cell: Cell, file: Path = FILE) -> None:
        """Add one cell to the file, which another process may have changed in the meantime."""
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = Results.load(file)
            kept.by_cell[cell] = self.by_cell[cell]
            kept.save(file)

    def add(self, cell: Cell, values: dict[str, float], code: str, seconds: float) -> None:
        rounded = {name: round(float(value), 6) for name, value in values.items()}
        self.by_cell[cell] = {**cell._asdict(), "values": rounded, "code": code, "seconds": round(seconds, 1)}

    def values(self, study: str, data: str, row: str, name: str) -> list[float]:
        """One value per draw that was measured."""
        found = [(cell.draw, kept["values"]) for cell, kept in self.by_cell.items() if cell[:3] == (study, data, row)]
        return [values[name] for _, values in sorted(found, key=lambda pair: pair[0]) if name in values]

    def mean(self, study: str, data: str, row: str, name: str) -> float:
        values = self.values(study, data, row, name)
        return float(np.mean(values)) if values else float("nan")

    def shared_means(self, study: str, data: str, rows: Sequence[str], name: str) -> dict[str, float]:
        """Means over the draws that all measured rows have, so that rows differ by no draw; NaN if not measured."""
        found = {
            row: {
                cell.draw: kept["values"][name]
                for cell, kept in self.by_cell.items()
                if cell[:3] == (study, data, row) and name in kept["values"]
            }
            for row in rows
        }
        measured = [set(values) for values in found.values() if values]
        shared = set.intersection(*measured) if measured else set()
        return {
            row: float(np.mean([values[draw] for draw in sorted(shared)])) if shared and values else float("nan")
            for row, values in found.items()
        }

    def names(self, study: str, which: str) -> list[str]:
        """Data sets or rows of a study, in no order."""
        return sorted({getattr(cell, which) for cell in self.by_cell if cell.study == study})


def run(
    studies: Sequence[Study], results: Results, *, quick: bool, minutes: float = np.inf, missing: bool = False
) -> int:
    """Measure what is missing or, unless `missing`, was measured by other code; the number of cells without time."""
    end, left = time.monotonic() + 60 * minutes, 0
    for study in studies:
        for cell in study.cells(quick):
            code = digest(study.code(cell))
            if (known := results.by_cell.get(cell)) is not None and (missing or known["code"] == code):
                continue
            if time.monotonic() > end:
                left += 1
                continue
            started = sum(os.times()[:4])  # of this process and of those that it waited for
            values = study.measure(cell)
            if values is None:
                continue
            results.add(cell, values, code, sum(os.times()[:4]) - started)
            shown = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
            seconds = results.by_cell[cell]["seconds"]
            print(f"{' '.join(map(str, cell))}: {shown} ({seconds} s)", flush=True)
            if not quick:
                results.save_cell(cell)
    return left


@cache
def digest(paths: tuple[str, ...]) -> str:
    """Hash of the code in these files and folders."""
    return code_hash(ROOT / path for path in paths)[:16]
