"""Boosted trees: both kinds lower the loss, agree in quality, and come back from their files with the same scores."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import logit
from sklearn.metrics import roc_auc_score
from synthetic import Labelled, table

from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.tables import boosting
from ntmp_cli.learning.tables.boosting import TreeSettings, boost
from ntmp_cli.learning.tables.lightgbm_library import lightgbm_library
from ntmp_cli.learning.tables.scorer import TableScorer, WeightedTrees
from ntmp_cli.learning.tables.trees import LightGBMTrees, TreeArrays, Trees

SETTINGS = TreeSettings(leaves=6, rows_per_leaf=20, rate=0.1)
STAGES = 60
KINDS = pytest.mark.parametrize("kind", [LightGBMTrees, TreeArrays])


@pytest.fixture(scope="module")
def curved() -> Labelled:
    return table(np.full(250, 6), curved=True)


def boosted(curved: Labelled, kind: type, monkeypatch: pytest.MonkeyPatch, spread: float = 0.0) -> Trees:
    """Trees of this kind on the curved table, from a constant."""
    if kind is TreeArrays:
        monkeypatch.setattr(boosting, "lightgbm_or_none", lambda: None)
    elif boosting.lightgbm_or_none() is None:
        pytest.skip("LightGBM cannot be loaded here: its wheel needs the system's libgomp")
    data = curved.data
    trees = boost(data.x, data.objective(spread), np.full(len(data.x), logit(data.rate)), STAGES, SETTINGS)
    assert isinstance(trees, kind)
    return trees


@KINDS
@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_stages_raise_the_likelihood(
    curved: Labelled, kind: type, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees, data = boosted(curved, kind, monkeypatch, spread), curved.data
    objective, start = data.objective(spread), logit(data.rate)
    values = [objective.value_and_gradient(start + trees.scores(data.x, n))[0] for n in range(0, STAGES + 1, 15)]
    assert values == sorted(values)
    assert values[-1] > values[0] + 10


def test_both_kinds_rank_test_rows_alike(curved: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels follow the square of a feature: a line has an AUROC of one half."""
    areas = []
    for kind in (LightGBMTrees, TreeArrays):
        with monkeypatch.context() as patch:
            scores = boosted(curved, kind, patch).scores(curved.test_x, STAGES)
            areas.append(float(roc_auc_score(curved.test_labels, scores)))
    assert min(areas) > 0.75
    assert areas[0] == pytest.approx(areas[1], abs=0.03)


@KINDS
def test_same_seed_same_trees(curved: Labelled, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (boosted(curved, kind, monkeypatch) for _ in range(2))
    assert (first.scores(curved.test_x, STAGES) == second.scores(curved.test_x, STAGES)).all()


@KINDS
@pytest.mark.parametrize("stages", [1, 25, STAGES])
def test_saved_trees_give_exactly_the_same_scores(
    curved: Labelled, kind: type, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = boosted(curved, kind, monkeypatch)
    scorer = TableScorer(np.array([0.5, 0.0, -1.0, 2.0]), 0.25, (WeightedTrees(0.7, trees, stages),))
    again = TableScorer.from_files(scorer.files())
    assert (again.score(curved.test_x) == scorer.score(curved.test_x)).all()
    assert again.size == scorer.size
    assert (again.moved(1.5).score(curved.test_x) == scorer.moved(1.5).score(curved.test_x)).all()


@KINDS
def test_nodes_give_the_scores_of_the_trees(curved: Labelled, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = boosted(curved, kind, monkeypatch)
    x = curved.test_x.astype(np.float32) if kind is TreeArrays else curved.test_x
    by_nodes = np.sum([nodes.scores(x) for nodes in trees.nodes(20)], axis=0)
    assert by_nodes == pytest.approx(trees.scores(curved.test_x, 20), abs=1e-12)


@KINDS
def test_damaged_files_are_refused(curved: Labelled, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = TableScorer(np.zeros(4), 0.0, (WeightedTrees(1.0, boosted(curved, kind, monkeypatch), STAGES),))
    files = scorer.files()
    (name,) = [name for name in files if name.startswith("trees-1")]
    with pytest.raises(ArtifactError, match="trees-1"):
        TableScorer.from_files({**files, name: b"\x00 no trees"})
    with pytest.raises(ArtifactError, match="the trees number 1 of 1 are missing"):
        TableScorer.from_files({key: content for key, content in files.items() if key != name})


# Texts that fit together as far as nodes go, and say more to LightGBM's own reader than the nodes do.
HOSTILE_TEXTS = {
    "feature that no row has": ("max_feature_idx=3", "max_feature_idx=2000000000"),
    "sizes beyond the text": ("tree_sizes=", "tree_sizes=999999999 "),
    "linear leaves": ("is_linear=0", "is_linear=1\nnum_features=9 9\nleaf_coeff=1"),
    "another version": ("version=v4", "version=v9999"),
}


@pytest.mark.parametrize("change", HOSTILE_TEXTS.values(), ids=list(HOSTILE_TEXTS))
def test_lightgbm_reads_no_text_of_a_file(
    curved: Labelled, change: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows have the scores of few, whatever a text says beside its nodes."""
    text = boosted(curved, LightGBMTrees, monkeypatch).to_bytes(STAGES).decode()
    assert change[0] in text
    trees = LightGBMTrees.from_bytes(text.replace(*change).encode())
    given: list[str] = []
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.Booster
    monkeypatch.setattr(lightgbm, "Booster", lambda model_str: given.append(model_str) or booster(model_str=model_str))
    few = trees.scores(curved.test_x, STAGES)
    monkeypatch.setattr("ntmp_cli.learning.tables.trees.FEW_ROWS", 0)
    assert (trees.scores(curved.test_x, STAGES) == few).all()
    assert (trees.scores(curved.test_x, 7) == LightGBMTrees.from_bytes(text.encode()).scores(curved.test_x, 7)).all()
    assert all(change[1] not in text for text in given)
    assert len(given) == 2


@pytest.mark.parametrize("change", [("num_cat=0", "num_cat=1"), ("num_leaves=6", "num_leaves=7"), ("num_cat=0\n", "")])
def test_texts_whose_trees_contradict_themselves_are_refused(
    curved: Labelled, change: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = boosted(curved, LightGBMTrees, monkeypatch).to_bytes(STAGES).decode()
    assert change[0] in text
    with pytest.raises(ArtifactError, match="not trees in LightGBM's text format"):
        LightGBMTrees.from_bytes(text.replace(*change, 1).encode())


def test_trees_of_a_file_are_saved_again(curved: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    text = boosted(curved, LightGBMTrees, monkeypatch).to_bytes(STAGES)
    trees = LightGBMTrees.from_bytes(text)
    assert trees.to_bytes(STAGES) == text
    fewer = LightGBMTrees.from_bytes(trees.to_bytes(7))
    assert fewer.stages == 7
    assert (fewer.scores(curved.test_x, 7) == trees.scores(curved.test_x, 7)).all()


def test_without_lightgbm_a_word_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    monkeypatch.setitem(sys.modules, "lightgbm", None)  # what import does where libgomp is missing
    for cached in (boosting.lightgbm_or_none, lightgbm_library):
        cached.cache_clear()
    try:
        assert boosting.lightgbm_or_none() is None
        assert boosting.lightgbm_or_none() is None
    finally:
        for cached in (boosting.lightgbm_or_none, lightgbm_library):
            cached.cache_clear()
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["LightGBM cannot be loaded"]


def test_lightgbm_is_loaded_without_scikit_learn_and_is_whole_for_others() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM cannot be loaded", exc_type=(ImportError, OSError))
    code = (
        "import sys\n"
        "from ntmp_cli.learning.tables.lightgbm_library import lightgbm_library\n"
        "core = lightgbm_library()\n"
        "assert core.Booster and not {'sklearn', 'pandas', 'lightgbm'} & set(sys.modules), 'not the core alone'\n"
        "import lightgbm, sklearn.base\n"
        "assert issubclass(lightgbm.LGBMClassifier, sklearn.base.BaseEstimator)\n"
        "assert lightgbm_library() is core\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_columns_too_rare_to_split_give_trees_of_one_leaf(curved: Labelled) -> None:
    """Ten rows of a category are fewer than a leaf holds."""
    data = curved.data
    x = np.zeros((len(data.x), 2))
    x[:10, 0], x[10:20, 1] = 1.0, 1.0
    trees = boost(x, data.objective(), np.full(len(x), logit(data.rate)), 5, SETTINGS)
    assert len(np.unique(trees.scores(x, 5))) == 1
    assert all(len(tree.feature) == 1 for tree in trees.nodes(5))
