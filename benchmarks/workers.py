"""Rows per second of `predict` and `import-tuples`, by one process and by several.

`python -m benchmarks.workers [ROWS]`: a folder of Parquet files on a local disk is scored, and imported, by one
process, then by one worker and by two of each engine. Times are those of the whole command, start of the interpreter
and of the cluster included, the least of `--repeats`. Outputs of one and of two workers must have the same bytes; those
of an import the bytes of one process. After `--minutes` it stops; the same command goes on with what is missing
(results are in benchmarks/workers.json; `--again` measures anew). Writes benchmarks/WORKERS.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.continued import Measurements, OutOfTimeError
from benchmarks.scale import _table, _trained

PAGE = Path(__file__).with_name("WORKERS.md")
COLUMNS, FILES = 50, 20
WHATS, ENGINES = ("predict", "import-tuples"), ("one process", "local", "ray")
HEAD = """# Scoring and importing by several processes

Written by `python -m benchmarks.workers`: {rows:,} rows of {columns} columns in {files} Parquet files on a local disk,
scored by the network `mlp` or imported, half of them in tuples of four, one thread per worker, on a machine with
{cores} cores. Seconds are those of a command. Speed-up is against one worker of the same engine. Peak memory is that of
the largest process. Before a measurement, the machine had a load of up to {load:.1f} (0 is idle: with more, workers
wait for each other and for others).

| command | engine | workers | seconds | rows per second | speed-up | peak MB |
| --- | --- | --- | --- | --- | --- | --- |
"""


def prepare(folder: Path, rows: int) -> None:
    """A run, and the files: to be scored, and with tuples."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (folder / "ready").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _trained(COLUMNS)(folder, 400)
    for name in WHATS:
        (folder / name).mkdir()
    table = _table(rows // FILES, COLUMNS)
    for number in range(FILES):
        ids = pa.array([None if one is None else f"{number}-{one}" for one in table["tuple_id"].to_pylist()])
        pq.write_table(table.set_column(0, "tuple_id", ids), folder / "import-tuples" / f"part-{number:03d}.parquet")
        pq.write_table(table.drop_columns(["tuple_id", "count"]), folder / "predict" / f"part-{number:03d}.parquet")
    (folder / "ready").touch()


def timed(folder: Path, what: str, out: Path, words: list[str], limit: float) -> tuple[float, float | None]:
    """Seconds of the command, and the peak memory of its largest process that it has waited for."""
    inputs = [str(folder / "run"), str(folder / what), "--device", "cpu"] if what == "predict" else [str(folder / what)]
    command = [sys.executable, "-m", "ntmp_cli", what, *inputs, *words, "--out", str(out)]
    measured = (
        "import json, resource, subprocess, sys, time; start = time.perf_counter(); "
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE); "
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024; "
        "print(json.dumps([time.perf_counter() - start, peak]))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # A session of its own: what is out of time is stopped with all its processes.
    with subprocess.Popen(
        [sys.executable, "-c", measured, *command],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as started:
        try:
            answer, _ = started.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 15)
            started.communicate()
            raise OutOfTimeError from None
    if started.returncode:
        raise SystemExit(f"{' '.join(command)}: failed")
    seconds, peak = json.loads(answer)
    # The workers of a cluster are no children of the command.
    return seconds, None if "ray" in words else peak


def content(out: Path) -> str:
    """One hash of all files that were made, without records and inputs."""
    files = [file for file in sorted(out.rglob("*")) if file.is_file() and "_ntmp" not in file.parts]
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def measure(folder: Path, case: tuple[str, str, int], repeats: int, results: Measurements) -> dict[str, Any]:
    """Seconds, memory and hash of one command."""
    what, engine, workers = case
    words = ["--engine", engine, "--jobs", str(workers)] if engine != "one process" else []
    if what == "predict" and not words:
        words = ["--threads", "1"]
    load, best, made = os.getloadavg()[0], None, ""
    for _ in range(repeats):
        single = what == "predict" and engine == "one process"
        out = folder / ("out.parquet" if single else "out")
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "out.parquet").unlink(missing_ok=True)
        found = timed(folder, what, out, words, results.seconds_left())
        best = found if best is None or found[0] < best[0] else best
        made = "" if single else content(out)
    assert best is not None
    return {"seconds": best[0], "peak": best[1], "content": made, "load": load}


def page(rows: int, cases: list[tuple[str, str, int]], known: dict[str, Any]) -> str:
    found = {case: known[key_of(rows, case)] for case in cases if key_of(rows, case) in known}
    load = max((one["load"] for one in found.values()), default=0.0)
    cores = len(os.sched_getaffinity(0))
    text = HEAD.format(rows=rows, columns=COLUMNS, files=FILES, cores=cores, load=load)
    for (what, engine, workers), one in found.items():
        base = found.get((what, engine, 1), one)["seconds"]
        memory = "–" if one["peak"] is None else f"{one['peak']:.0f}"
        speed = f"{rows / one['seconds']:,.0f} | {base / one['seconds']:.2f}"
        text += f"| {what} | {engine} | {workers} | {one['seconds']:.1f} | {speed} | {memory} |\n"
    return text


def key_of(rows: int, case: tuple[str, str, int]) -> str:
    return " ".join(map(str, (rows, *case)))


def require_same(rows: int, cases: list[tuple[str, str, int]], known: dict[str, Any]) -> None:
    """All outputs have the same bytes, whatever the engine and the number of workers."""
    for what in WHATS:
        made = {
            known[key_of(rows, case)]["content"] for case in cases if case[0] == what and key_of(rows, case) in known
        }
        if len(made - {""}) > 1:
            raise SystemExit(f"{what}: different bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--commands", nargs="+", default=WHATS, choices=WHATS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--folder", type=Path, help="Where the files are; they stay there for the next time.")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    results = Measurements(options.page.with_name(options.page.stem.lower() + ".json"), options.minutes)
    if options.again:
        results.forget(f"{options.rows} ")
    cases = [
        (what, engine, workers)
        for what in WHATS
        for engine in ENGINES
        for workers in ((1,) if engine == "one process" else (1, 2))
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / f"rows-{options.rows}"
        prepare(folder, options.rows)
        for case in cases:
            if case[0] not in options.commands or case[1] not in options.engines:
                continue
            try:
                found = results.of(key_of(options.rows, case), partial(measure, folder, case, options.repeats, results))
            except OutOfTimeError:
                print(f"out of time in {' '.join(map(str, case))}; the same command goes on from there")
                break
            print(*case, f"{found['seconds']:.1f} s", flush=True)
            require_same(options.rows, cases, results.known)
            options.page.write_text(page(options.rows, cases, results.known), encoding="utf-8")


if __name__ == "__main__":
    main()
