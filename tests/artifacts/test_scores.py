from __future__ import annotations

import numpy as np
import pytest
from small_artifacts import as_report

from ntmp_cli.artifacts import Plan, open_artifact, publishing
from ntmp_cli.artifacts.scores import read_scores, write_scores
from ntmp_cli.errors import ArtifactError


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


def test_scores_of_the_pool_by_fits_of_folds_and_by_the_classifier_are_of_the_same_instances(tmp_path):
    arrays = {"test": np.zeros(2), "trace_epochs": np.array([1]), "trace": np.zeros((1, 2)), "pool": np.zeros(3)}
    with publishing(tmp_path / "r", Plan("report", {})) as staging:
        write_scores(staging, {**arrays, "pool_by_classifier": np.zeros(2)})
        as_report(staging)
    with pytest.raises(ArtifactError, match="'pool_by_classifier' does not fit 'pool'"):
        read_scores(open_artifact(tmp_path / "r"))
