"""Rows per second of `predict` by one process and by several: `python -m benchmarks.workers [ROWS] [--engines NAME …]`.

A folder of Parquet files on a local disk is scored by one process into one table, then by one worker and by two of each
engine into a folder. Times are those of the whole command, start of the interpreter and of the cluster included, the
least of `--repeats`. Writes benchmarks/WORKERS.md; the output folders of one and two workers must have the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale import _table, _trained

PAGE = Path(__file__).with_name("WORKERS.md")
COLUMNS, FILES = 50, 20
HEAD = """# Scoring by several processes

Written by `python -m benchmarks.workers`: {rows:,} rows of {columns} columns in {files} Parquet files on a local disk,
scored by the network `mlp`, one thread per worker, on a machine with {cores} cores. Seconds are those of a command.
Speed-up is against one worker of the same engine. Peak memory is that of the largest process. Before it began, the
machine had a load of {load:.1f} (0 is idle: with more, workers wait for each other and for others).

| engine | workers | seconds | rows per second | speed-up | peak MB |
| --- | --- | --- | --- | --- | --- |
"""


def prepare(folder: Path, rows: int) -> None:
    """A run, and the files."""
    import pyarrow.parquet as pq

    _trained(COLUMNS)(folder, 400)
    (folder / "new").mkdir()
    table = _table(rows // FILES, COLUMNS).drop_columns(["tuple_id", "count"])
    for number in range(FILES):
        pq.write_table(table, folder / "new" / f"part-{number:03d}.parquet")


def timed(folder: Path, out: str, *words: str) -> tuple[float, float | None]:
    """Seconds of the command, and the peak memory of its largest process that it has waited for."""
    command = [sys.executable, "-m", "ntmp_cli", "predict", str(folder / "run"), str(folder / "new")]
    measured = (
        "import json, resource, subprocess, sys, time; start = time.perf_counter(); "
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE); "
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024; "
        "print(json.dumps([time.perf_counter() - start, peak]))"
    )
    words = (*words, "--device", "cpu", "--out", str(folder / out), "--if-exists", "overwrite")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", measured, *command, *words], check=True, capture_output=True, text=True, env=environment
    )
    seconds, peak = json.loads(ended.stdout)
    # The workers of a cluster are no children of the command.
    return seconds, None if "ray" in words else peak


def content(folder: Path) -> str:
    """One hash of all tables and the manifest."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def least(repeats: int, *arguments: Any) -> tuple[float, float | None]:
    return min((timed(*arguments) for _ in range(repeats)), key=lambda one: one[0])


def measure(folder: Path, rows: int, engines: list[str], repeats: int) -> Iterator[str]:
    """A line of the table per engine and number of workers."""
    for engine in engines:
        base, made = None, set()
        for workers in (1, 2) if engine != "one process" else (1,):
            if engine == "one process":
                seconds, peak = least(repeats, folder, "out.parquet", "--threads", "1")
            else:
                out = f"{engine}-{workers}"
                seconds, peak = least(repeats, folder, out, "--engine", engine, "--jobs", str(workers))
                made.add(content(folder / out))
            base = base or seconds
            memory = "–" if peak is None else f"{peak:.0f}"
            speed = f"{rows / seconds:,.0f} | {base / seconds:.2f}"
            yield f"| {engine} | {workers} | {seconds:.1f} | {speed} | {memory} |\n"
        if len(made) > 1:
            raise SystemExit(f"{engine}: one worker and two gave different bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="?", default=5_000_000)
    parser.add_argument("--engines", nargs="+", default=["one process", "local", "ray"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        prepare(folder, options.rows)
        print(f"prepared in {time.perf_counter() - start:.0f} s", flush=True)
        text = HEAD.format(rows=options.rows, columns=COLUMNS, files=FILES, cores=cores, load=load)
        for line in measure(folder, options.rows, options.engines, options.repeats):
            print(line, end="", flush=True)
            text += line
            options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
