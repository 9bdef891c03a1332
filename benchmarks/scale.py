"""How costs grow: CPU seconds and peak memory at several sizes, the exponent of each, and the bare limit beside it.

`python -m benchmarks.scale [NAME …]` measures every growth, or those that are named, each size in a process of its own,
and writes benchmarks/SCALE.md. After `--minutes` it stops; the same command goes on with what is missing (results are
in benchmarks/scale.json; `--again` measures anew). `--shrink 100` divides all sizes, for a trial. An exponent of 1 is
linear; it is that of the two largest sizes. The goal is at most 1.1, and memory that does not grow with rows, tuples or
runs.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.continued import Measurements, OutOfTimeError

PAGE = Path(__file__).with_name("SCALE.md")
WIDE_ROWS = 2000
HEAD = """# How costs grow

Written by `python -m benchmarks.scale`: CPU seconds and peak memory of a process, and the exponent between the two
largest sizes (1 is linear). Bare is the same work without ntmp: pyarrow or NumPy reading the file.

| what | sizes | CPU seconds | exponent | peak MB | exponent | bare CPU seconds | bare peak MB |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Growth:
    """Work whose size grows: its input is prepared in a folder, then it is measured."""

    sizes: tuple[int, ...]
    unit: str
    prepare: Callable[[Path, int], None]
    ours: Callable[[Path, int], None]
    bare: Callable[[Path, int], None] | None = None


def _table(rows: int, columns: int) -> pa.Table:
    """Tuples of four with one positive in half of the rows; the other half is unlabeled."""
    values = np.random.default_rng(0).normal(size=(columns, rows))
    values[0, ::4] += 2.0  # the positives
    inside = np.arange(rows) < rows // 2 // 4 * 4
    ids = pa.array([f"t{row // 4}" for row in range(rows)], mask=~inside)
    roles = {"tuple_id": ids, "count": pa.array(np.ones(rows, np.int64), mask=~inside)}
    return pa.table({**roles, **{f"x{j}": column for j, column in enumerate(values)}})


def _write_csv(folder: Path, rows: int, columns: int) -> None:
    pacsv.write_csv(_table(rows, columns), folder / "t.csv")


def _write_parquet(folder: Path, rows: int, columns: int) -> None:
    pq.write_table(_table(rows, columns), folder / "t.parquet")


def _write_npz(folder: Path, rows: int, columns: int) -> None:
    values, inside = np.random.default_rng(0).normal(size=(rows, columns)), rows // 2 // 4 * 4
    tuples = {"x": values[:inside], "offsets": np.arange(0, inside + 1, 4), "counts": np.ones(inside // 4, np.int64)}
    np.savez(folder / "t.npz", unlabeled=values[inside:], **tuples)


def _import(name: str) -> Callable[[Path, int], None]:
    def work(folder: Path, size: int) -> None:
        from ntmp_cli.config import ImportTuplesConfig
        from ntmp_cli.data.user.inputs import Inputs
        from ntmp_cli.stages.import_tuples import import_tuples

        import_tuples(ImportTuplesConfig(), Inputs(folder / name), folder / "tuples")

    return work


def _read_csv(folder: Path, size: int) -> None:
    block = max(2**20, (folder / "t.csv").stat().st_size // 8)
    for _ in pacsv.open_csv(folder / "t.csv", read_options=pacsv.ReadOptions(block_size=min(block, 2**27))):
        pass


def _read_parquet(folder: Path, size: int) -> None:
    for _ in pq.ParquetFile(folder / "t.parquet").iter_batches(batch_size=256):
        pass


def _read_npz(folder: Path, size: int) -> None:
    with np.load(folder / "t.npz") as arrays:
        for name in arrays.files:
            arrays[name].sum()


def _trained(columns: int) -> Callable[[Path, int], None]:
    """A run on few rows of so many columns (0: as many as the size says), and new rows in Parquet."""

    def prepare(folder: Path, size: int) -> None:
        from ntmp_cli.config import TrainConfig
        from ntmp_cli.stages.train import train

        small = folder / "small"
        small.mkdir()
        _write_parquet(small, 400, columns or size)
        _import("t.parquet")(small, size)
        train(TrainConfig(prior=0.5, epochs=1, model="mlp", trust="prior"), small / "tuples", folder / "run")
        _write_parquet(folder, size if columns else WIDE_ROWS, columns or size)

    return prepare


def _predict(*, with_counts: bool) -> Callable[[Path, int], None]:
    def work(folder: Path, size: int) -> None:
        from ntmp_cli.config import PredictConfig
        from ntmp_cli.stages.predict import PredictOptions, predict_rows

        config, options = PredictConfig(with_counts=with_counts), PredictOptions(device="cpu")
        predict_rows(config, folder / "run", folder / "t.parquet", folder / "scored.parquet", options)

    return work


def _audited(folder: Path, size: int) -> None:
    """A run on a table of so many rows."""
    from ntmp_cli.config import TrainConfig
    from ntmp_cli.stages.train import train

    _write_parquet(folder, size, 10)
    _import("t.parquet")(folder, size)
    train(TrainConfig(prior=0.25, model="linear"), folder / "tuples", folder / "run")


def _audit(folder: Path, size: int) -> None:
    from ntmp_cli.config import AuditConfig
    from ntmp_cli.stages.audit import audit

    audit(AuditConfig(), folder / "tuples", folder / "run")


LONG_TUPLES = 20
LONG_COUNT = {"method": "count", "model": "mlp", "epochs": 2, "trust": "prior"}


def _long_tuples(folder: Path, size: int) -> None:
    """So many members per tuple, of which a quarter to a half are positive, and as large a pool."""
    rng, total = np.random.default_rng(2), LONG_TUPLES * size
    counts = np.linspace(size / 4, size / 2, LONG_TUPLES).round().astype(np.int64)
    positive = np.concatenate([np.arange(size) < count for count in counts])
    x, pool = rng.normal(size=(total, 10)), rng.normal(size=(total, 10))
    x[positive, 0] += 2.0
    pool[: total // 3, 0] += 2.0
    np.savez(folder / "t.npz", x=x, offsets=np.arange(0, total + 1, size), counts=counts, unlabeled=pool)
    _import("t.npz")(folder, size)


def _train(**settings: Any) -> Callable[[Path, int], None]:
    def work(folder: Path, size: int) -> None:
        from ntmp_cli.config import TrainConfig
        from ntmp_cli.stages.train import train

        config = TrainConfig.model_validate({"prior": 1 / 3, **settings})
        train(config, folder / "tuples", folder / "run")

    return work


def _drift(folder: Path, size: int) -> None:
    from ntmp_cli.prior.drift import drift
    from ntmp_cli.prior.estimator import ScoredTuples

    rng = np.random.default_rng(1)
    scores = rng.normal(size=4 * size)
    data = ScoredTuples(scores, np.full(size, 4), np.ones(size, np.int64), rng.normal(0.1, 1, 5000))
    drift(data, rng)


def _runs(folder: Path, size: int) -> None:
    from ntmp_cli.config import MakeTuplesConfig, TrainConfig
    from ntmp_cli.stages.make_tuples import make_tuples
    from ntmp_cli.stages.train import train

    drawn = {"dataset": "gaussians:size=2000,test=1000", "tuples": ["3:1"], "prior": 0.3, "num_tuples": 200}
    make_tuples(MakeTuplesConfig.model_validate({**drawn, "unlabeled_size": 400}), folder / "tuples")
    for seed in range(size):
        train(TrainConfig(method="discriminant", seed=seed), folder / "tuples", folder / "runs" / f"run-{seed}")


def _evaluate(folder: Path, size: int) -> None:
    from ntmp_cli.config import EvaluateConfig
    from ntmp_cli.stages.evaluate import evaluate

    runs = sorted((folder / "runs").iterdir())
    evaluate(EvaluateConfig(), runs, folder / "evaluation")


def _nothing(folder: Path, size: int) -> None:
    """The work makes its own data."""


def _of_width(write: Callable[[Path, int, int], None]) -> Callable[[Path, int], None]:
    return lambda folder, size: write(folder, WIDE_ROWS, size)


def _of_length(write: Callable[[Path, int, int], None]) -> Callable[[Path, int], None]:
    return lambda folder, size: write(folder, size, 50)


WIDTHS, LENGTHS, MEMBERS = (1250, 5000, 20000), (25_000, 100_000, 400_000), (10, 100, 1000, 10_000)
GROWTHS = {
    "import-npz-wide": Growth(WIDTHS, "columns", _of_width(_write_npz), _import("t.npz"), _read_npz),
    "import-csv-wide": Growth(WIDTHS, "columns", _of_width(_write_csv), _import("t.csv"), _read_csv),
    "import-parquet-wide": Growth(WIDTHS, "columns", _of_width(_write_parquet), _import("t.parquet"), _read_parquet),
    "import-csv-long": Growth(LENGTHS, "rows", _of_length(_write_csv), _import("t.csv"), _read_csv),
    "predict-parquet-wide": Growth(WIDTHS, "columns", _trained(0), _predict(with_counts=False), _read_parquet),
    "predict-long": Growth(LENGTHS, "rows", _trained(50), _predict(with_counts=False), _read_parquet),
    "predict-with-counts": Growth(LENGTHS, "rows", _trained(50), _predict(with_counts=True), _read_parquet),
    "audit-run": Growth(LENGTHS, "rows", _audited, _audit),
    "count-long-tuples": Growth(MEMBERS, "members", _long_tuples, _train(**LONG_COUNT)),
    "discriminant-long-tuples": Growth(MEMBERS, "members", _long_tuples, _train(method="discriminant")),
    "drift": Growth((20_000, 80_000, 320_000), "tuples", _nothing, _drift),
    "evaluate": Growth((20, 80, 320), "runs", _runs, _evaluate),
}


def measure(name: str, shrink: int, results: Measurements) -> list[Any]:
    """(size, CPU seconds and peak memory of ntmp, those of the bare limit) of every size."""
    growth = GROWTHS[name]
    sizes = [max(1, size // shrink) for size in growth.sizes]
    return [[size, *results.of(f"{name} {size}", partial(_measured, name, size, results))] for size in sizes]


def _measured(name: str, size: int, results: Measurements) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        whats = ("prepare", "ours") if GROWTHS[name].bare is None else ("prepare", "ours", "bare")
        _, ours, *bare = [_in_process(name, what, size, folder, results.seconds_left()) for what in whats]
    return [ours, bare[0] if bare else None]


def _in_process(name: str, what: str, size: int, folder: str, seconds: float) -> tuple[float, float]:
    words = [sys.executable, "-m", "benchmarks.scale", "--one", name, what, str(size), folder]
    try:
        ended = subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise OutOfTimeError from None
    cpu, peak = ended.stdout.split()[-2:]
    return float(cpu), float(peak)


def _one(name: str, what: str, size: int, folder: Path) -> None:
    """One piece of work in this process; its CPU seconds, without those of imports, and the peak memory in MB."""
    import ntmp_cli.stages.audit
    import ntmp_cli.stages.evaluate
    import ntmp_cli.stages.import_tuples
    import ntmp_cli.stages.predict
    import ntmp_cli.stages.train  # noqa: F401

    start = _cpu()
    getattr(GROWTHS[name], what)(folder, size)
    print(f"{_cpu() - start:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of the logarithms between the two largest sizes."""
    return math.log(max(values[-1], 0.01) / max(values[-2], 0.01)) / math.log(sizes[-1] / sizes[-2])


def row(name: str, measured: list[Any]) -> str:
    sizes = [size for size, _, _ in measured]
    seconds, peaks = ([ours[at] for _, ours, _ in measured] for at in (0, 1))
    bare, bare_peaks = (
        " / ".join("–" if other is None else f"{other[at]:.{1 - at}f}" for _, _, other in measured) for at in (0, 1)
    )
    cells = [
        f"{name} ({GROWTHS[name].unit})",
        " / ".join(f"{size:,}" for size in sizes),
        " / ".join(f"{value:.1f}" for value in seconds),
        f"{exponent(sizes, seconds):.2f}",
        " / ".join(f"{value:.0f}" for value in peaks),
        f"{exponent(sizes, peaks):.2f}",
        bare,
        bare_peaks,
    ]
    return "| " + " | ".join(cells) + " |\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GROWTHS))
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in GROWTHS]:
        parser.error(f"unknown: {unknown[0]}")
    results = Measurements(options.page.with_name(options.page.stem.lower() + ".json"), options.minutes)
    names = options.names or list(GROWTHS)
    for name in names if options.again else ():
        results.forget(f"{name} ")
    lines = options.page.read_text(encoding="utf-8").splitlines(keepends=True) if options.page.exists() else []
    rows = {line.split()[1]: line for line in lines if line.startswith("| ") and line.split()[1] in GROWTHS}
    for name in names:
        try:
            rows[name] = row(name, measure(name, options.shrink, results))
        except OutOfTimeError:
            print(f"out of time in {name}; the same command goes on from there")
            break
        print(rows[name], end="", flush=True)
        text = HEAD + "".join(_whole(rows[known]) for known in GROWTHS if known in rows)
        options.page.write_text(text, encoding="utf-8")


def _whole(line: str) -> str:
    """A row as of now: rows measured before had no bare memory."""
    missing = HEAD.splitlines()[-1].count("|") - line.count("|")
    return line.rstrip("\n") + " – |" * missing + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _one(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        main()
