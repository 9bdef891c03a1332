"""Files of table learners whose values do not fit together are refused before a row is scored."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load, save

from ntmp_cli import unpacking
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.tables.estimator_scorer import load_estimator
from ntmp_cli.learning.tables.scorer import TableScorer, WeightedTrees
from ntmp_cli.learning.tables.trees import NodeArrays, TreeArrays


def stump() -> NodeArrays:
    """x[1] ≤ 0 gives −1, else 2."""
    feature, left, right = (np.array([first, -1, -1], np.int32) for first in (1, 1, 2))
    return NodeArrays(feature, np.zeros(3), left, right, np.array([0.0, -1.0, 2.0]))


def files() -> dict[str, bytes]:
    return TableScorer(np.zeros(2), 0.0, (WeightedTrees(1.0, TreeArrays([stump()]), 1),)).files()


def test_the_stump_scores_what_it_should():
    scorer = TableScorer.from_files(files())
    assert scorer.score(np.array([[0.0, -1.0], [0.0, 1.0]])).tolist() == [-1.0, 2.0]


CHANGES = {
    "a circle": ("left", [0, -1, -1]),
    "a child that does not exist": ("right", [3, -1, -1]),
    "a child before its parent": ("right", [-2, -1, -1]),
    "a feature that rows do not have": ("feature", [2, -1, -1]),
    "a leaf that is no number": ("value", [0.0, np.nan, 2.0]),
    "an infinite leaf": ("value", [0.0, np.inf, 2.0]),
    "a threshold that is no number": ("threshold", [np.nan, 0.0, 0.0]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_trees_whose_nodes_do_not_fit_together_are_refused(change):
    name, values = CHANGES[change]
    forged = files()
    (file,) = (name for name in forged if name.startswith("trees-"))
    arrays = load(forged[file])
    arrays[name] = np.array(values, arrays[name].dtype)
    forged[file] = save(arrays)
    with pytest.raises(ArtifactError, match="nodes do not fit together"):
        TableScorer.from_files(forged)


@pytest.mark.parametrize("name", ["weight", "bias", "tree_weights"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_linear_scores_that_are_no_numbers_are_refused(name, value):
    forged = files()
    arrays = load(forged["model.safetensors"])
    arrays[name] = np.full_like(arrays[name], value)
    forged["model.safetensors"] = save(arrays)
    with pytest.raises(ArtifactError, match="not a linear score"):
        TableScorer.from_files(forged)


def test_an_archive_that_unpacks_to_too_much_is_no_classifier(monkeypatch):
    pytest.importorskip("skops")
    monkeypatch.setattr(unpacking, "LEAST", 10_000)
    monkeypatch.setattr("skops.io.get_untrusted_types", lambda **_: pytest.fail("it was unpacked"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", bytes(1_000_000))
    with pytest.raises(ArtifactError, match="not a classifier"):
        load_estimator(content.getvalue())
