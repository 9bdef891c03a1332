"""import-tuples and predict against pyarrow reading (and writing) the same file, and against the bare network.

The files are small unless NTMP_BENCH_FULL=1 is set: then 1 GB of CSV, and one million rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import torch

from benchmarks.timing import Ratio, take_turns
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.stored_scorer import load_network, read_mapping
from ntmp_cli.config import ImportTuplesConfig, PredictConfig, TrainConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.learning.models import predict
from ntmp_cli.learning.restore import batch_size
from ntmp_cli.stages.import_tuples import import_tuples
from ntmp_cli.stages.predict import PredictOptions, predict_rows
from ntmp_cli.stages.train import train

FULL = os.environ.get("NTMP_BENCH_FULL") == "1"
FEATURES = 50
BYTES_PER_ROW = 970
ROUNDS = 3
_PEAK = """
import sys
from pathlib import Path
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.stages.import_tuples import import_tuples
import_tuples(ImportTuplesConfig(), Inputs(Path(sys.argv[1])), Path(sys.argv[2]))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def ratios() -> Iterator[Ratio]:
    megabytes = 1000 if FULL else 100
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write(folder / "t.csv", megabytes * 10**6 // BYTES_PER_ROW)
        size = f"{table.stat().st_size / 1e6:.0f} MB"
        yield from _importing(folder, table, size)
        yield from _memory(folder, table)
        yield from _predicting(folder)


def write(path: Path, rows: int, piece: int = 20_000) -> Path:
    """Tuples of four with one positive in half of the rows; the other half is unlabeled."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, piece):
        n = min(piece, rows - start)
        inside = np.arange(start, start + n) < rows // 2 // 4 * 4
        owner = np.arange(start, start + n) // 4
        block = pa.table(
            {
                "tuple_id": pa.array([f"t{t}" for t in owner], mask=~inside),
                "count": pa.array(np.ones(n, np.int64), mask=~inside),
                **{f"f{j}": rng.normal(size=n) for j in range(FEATURES)},
            }
        )
        writer = writer or pacsv.CSVWriter(path, block.schema)
        writer.write(block)
    assert writer is not None
    writer.close()
    return path


def _importing(folder: Path, table: Path, size: str) -> Iterator[Ratio]:
    fresh = (folder / f"out-{number}" for number in count())

    def ours() -> None:
        import_tuples(ImportTuplesConfig(), Inputs(table), next(fresh))

    def streaming() -> None:
        for _ in pacsv.open_csv(table):
            pass

    yield Ratio(
        f"import-tuples of {size} CSV against pyarrow reading it in blocks", *take_turns(ours, streaming, ROUNDS), 3.0
    )
    whole = take_turns(ours, lambda: pacsv.read_csv(table), ROUNDS)
    yield Ratio(f"import-tuples of {size} CSV against pyarrow reading it whole", *whole, 3.0)


def _memory(folder: Path, table: Path) -> Iterator[Ratio]:
    """Peak memory at eight times the rows; the smaller file does not fill a shard, and a row costs some bytes."""
    rows = table.stat().st_size // BYTES_PER_ROW // 8
    small = write(folder / "small.csv", rows)
    peaks = [_peak(path, folder / f"peak-{path.stem}") for path in (table, small)]
    yield Ratio("peak memory of import-tuples, 8x the rows", peaks[0], peaks[1], 1.25, "MiB")


def _peak(table: Path, out: Path) -> float:
    words = [sys.executable, "-c", _PEAK, str(table), str(out)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1024


def _predicting(folder: Path) -> Iterator[Ratio]:
    rows = 1_000_000 if FULL else 100_000
    small, table = write(folder / "train.csv", 4000), write(folder / "new.csv", rows)
    import_tuples(ImportTuplesConfig(), Inputs(small), folder / "tuples")
    # The rows are noise, so that nothing but the prior can orient the network.
    train(TrainConfig(prior=0.5, epochs=1, model="mlp", trust="prior"), folder / "tuples", folder / "run")
    run = open_artifact(folder / "run", "run")
    model, mapping = load_network(run), read_mapping(run)
    assert mapping is not None
    x = torch.randn(rows, FEATURES)
    ids = [f"f{j}" for j in range(FEATURES)]
    types = pacsv.ConvertOptions(include_columns=["tuple_id", "count", *ids])

    def bare() -> None:
        read = pacsv.open_csv(table, convert_options=types)
        scores = pa.array(predict(model, x.numpy(), batch_size([FEATURES], torch.device("cpu"))))
        columns = {"score": scores, "probability": scores, "label": scores}
        named = pa.Table.from_batches(list(read)).select(["tuple_id", "count"])
        for name, values in columns.items():
            named = named.append_column(name, values)
        pacsv.write_csv(named, folder / "bare.csv")

    def ours() -> None:
        predict_rows(PredictConfig(), folder / "run", table, folder / "ours.csv", PredictOptions("overwrite", "cpu"))

    what = f"predict on {rows:,} rows of {FEATURES} features (CSV, mlp) against network, pyarrow reading and writing"
    yield Ratio(what, *take_turns(ours, bare, ROUNDS), 1.5)
