"""Stages report how far they are: every row that is read and every tuple that is written, of as many as there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.data.user.mapping import Roles
from ntmp_cli.data.user.rows import FeatureColumns, open_table_rows
from ntmp_cli.data.user.table_files import open_table
from ntmp_cli.progress import Step, listening
from ntmp_cli.stages import predict_groups
from ntmp_cli.stages.import_tuples import import_tuples


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_import_reports_its_rows_and_tuples(tmp_path: Path, ending: str) -> None:
    rows = 4000
    table = pa.table(
        {
            "tuple_id": np.arange(rows) // 4 + 1000,
            "count": np.arange(rows) // 4 % 3,
            "x": np.random.default_rng(0).normal(size=rows).round(6),
        }
    )
    path = tmp_path / f"t.{ending}"
    pacsv.write_csv(table, path) if ending == "csv" else pq.write_table(table, path)
    steps: dict[str, Step] = {}
    done: Counter[str] = Counter()

    @contextmanager
    def listener(step: Step) -> Iterator[Callable[[int], None]]:
        steps[step.what] = step
        yield lambda number: done.update({step.what: number})

    with listening(listener):
        import_tuples(ImportTuplesConfig(), Inputs(path), tmp_path / "out", block_bytes=20_000)
    reading = steps[f"reading {path}"]
    assert done[reading.what] == rows
    assert reading.total == pytest.approx(rows, rel=0.01)  # by the first rows of a CSV file
    written = {what: step.total for what, step in steps.items() if what.startswith("writing tuples")}
    assert sum(done[what] for what in written) == sum(total or 0 for total in written.values()) == rows // 4


def test_scoring_groups_reports_its_rows(tmp_path: Path) -> None:
    table = pa.table({"tuple_id": np.arange(300) // 3, "x": np.arange(300.0)})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = open_table_rows(
        open_table(tmp_path / "t.parquet", 1000), Roles(), FeatureColumns(names=["x"]), required=("tuple",)
    )
    done: Counter[str] = Counter()

    @contextmanager
    def listener(step: Step) -> Iterator[Callable[[int], None]]:
        assert (step.total, step.unit) == (300, "rows")
        yield lambda number: done.update({step.what: number})

    class Scoring:
        def instances(self, block):
            return block.cells

        def score(self, instances):
            return instances[:, 0]

    with listening(listener):
        predict_groups._scored(rows, Scoring())
    assert done == {f"scoring {tmp_path / 't.parquet'}": 300}
