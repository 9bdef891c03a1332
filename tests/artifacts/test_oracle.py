from __future__ import annotations

import numpy as np
from small_artifacts import as_report

from ntmp_cli.artifacts import Plan, open_artifact, publishing
from ntmp_cli.artifacts.oracle import read_labels, read_oracle, writing_oracle


def test_the_oracle_appends_block_by_block(tmp_path):
    labels = np.arange(10_000) % 3 == 0
    with publishing(tmp_path / "t", Plan("report", {})) as staging:
        with writing_oracle(staging, "oracle/x.h5") as oracle:
            for block in np.split(labels, [1, 4096, 4097]):
                oracle.append(labels=block, source=block.astype(np.int32))
        as_report(staging)
    read = read_oracle(open_artifact(tmp_path / "t"), "oracle/x.h5")
    assert read.keys() == {"labels", "source"}
    np.testing.assert_array_equal(read["labels"], labels)
    assert read["source"].dtype == np.int32
    np.testing.assert_array_equal(read_labels(open_artifact(tmp_path / "t"), "oracle/x.h5"), labels)
