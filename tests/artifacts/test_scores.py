from __future__ import annotations

import numpy as np
from small_artifacts import as_report

from ntmp_cli.artifacts import Plan, open_artifact, publishing
from ntmp_cli.artifacts.scores import read_scores, write_scores


def test_scores_come_back_by_name(tmp_path):
    arrays = {"test": np.array([0.5, -1.0], np.float32), "trace_epochs": np.array([1]), "trace": np.zeros((1, 2))}
    with publishing(tmp_path / "r", Plan("report", {})) as staging:
        write_scores(staging, arrays)
        as_report(staging)
    artifact = open_artifact(tmp_path / "r")
    scores = read_scores(artifact)
    assert scores.keys() == arrays.keys()
    np.testing.assert_array_equal(scores["test"], arrays["test"])
    np.testing.assert_array_equal(scores["trace"], arrays["trace"])
