"""A table of very many columns: the manifest lists the first ones, a file beside it all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ntmp_cli.artifacts.feature_rows import MOST_LISTED, number_of_columns
from ntmp_cli.artifacts.layout import FEATURES
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.stages.explain import _features
from ntmp_cli.stages.import_tuples import import_tuples


@pytest.mark.parametrize("columns", [MOST_LISTED, MOST_LISTED + 7])
def test_the_manifest_lists_the_first_columns_and_explain_knows_all(tmp_path: Path, columns: int) -> None:
    values = np.random.default_rng(0).normal(size=(columns, 80))
    features = {f"x{j}": pa.array(column, mask=np.arange(80) == j % 160) for j, column in enumerate(values)}
    roles = {"tuple_id": np.arange(80) // 4, "count": np.arange(80) // 4 % 3}
    pq.write_table(pa.table({**roles, **features}), tmp_path / "t.parquet")
    tuples = import_tuples(ImportTuplesConfig(), Inputs(tmp_path / "t.parquet"), tmp_path / "out")
    listed = tuples.summary.features
    width = tuples.summary.instance.shape[0]
    assert sum(row.width for row in listed) == width > columns  # columns with a missing value have an indicator
    assert sum(row.missing for row in listed) == sum(j % 160 < 80 for j in range(columns))
    assert tuples.has(FEATURES) == (columns > MOST_LISTED)
    assert len(listed) == min(columns, MOST_LISTED + 1)
    assert number_of_columns(listed) == columns
    groups = _features(tuples)
    assert [group.name for group in groups] == list(features)
    assert groups[-1].columns.stop == width
