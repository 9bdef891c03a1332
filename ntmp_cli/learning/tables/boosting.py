"""Trees boosted on the count likelihood itself: every stage is fitted to its exact gradient.

With g_i = σ(z_i) − P(y_i=1 | z, observation) and h_i = σ(z_i)(1 − σ(z_i)), each stage is a Newton step: a tree whose
leaves add −Σg / (Σh + λ), with a learning rate (Eq. 42). LightGBM does this through a custom objective. If it cannot
be imported (its wheel needs the system's libgomp), trees of scikit-learn do the same steps more slowly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.objective import ScoreObjective
from ntmp_cli.learning.tables.lightgbm_library import lightgbm_library
from ntmp_cli.learning.tables.trees import LightGBMTrees, NodeArrays, TreeArrays, Trees

log = logging.getLogger(__name__)

SMALLEST_CURVATURE = 1e-6
# LightGBM builds histograms of features: from this many rows on, several threads are faster than one.
ROWS_FOR_THREADS = 20_000

# From the scores added so far to the gradient and curvature of every row.
Derivatives = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown."""

    leaves: int = 16
    rows_per_leaf: int = 40
    l2: float = 1.0
    rate: float = 0.05
    sampled: float = 0.8
    """Share of rows and of columns that a tree sees."""
    seed: int = 0


def boost(x: Floats, objective: ScoreObjective, start: Floats, stages: int, settings: TreeSettings) -> Trees:
    """Boost `stages` trees, starting from the scores `start`."""

    def derivatives(added: Floats) -> tuple[Floats, Floats]:
        z = start + added
        _, gradient = objective.value_and_gradient(z)
        return -gradient, np.maximum(objective.curvature(z), SMALLEST_CURVATURE)

    lightgbm = lightgbm_or_none()
    # LightGBM stops with an error where no column can be split; scikit-learn grows trees of one leaf.
    if lightgbm is None or not _can_split(x, settings.rows_per_leaf):
        return sklearn_trees(x, derivatives, stages, settings)
    return lightgbm_trees(lightgbm, x, derivatives, stages, settings)


def _can_split(x: Floats, rows_per_leaf: int) -> bool:
    """Whether some column can be split with at least `rows_per_leaf` rows on either side."""
    if len(x) < 2 * rows_per_leaf:
        return False
    ordered = np.sort(x, axis=0)
    return bool((ordered[rows_per_leaf - 1] < ordered[-rows_per_leaf]).any())


@cache
def lightgbm_or_none() -> ModuleType | None:
    """LightGBM; None, with one warning, if it cannot be loaded."""
    try:
        return lightgbm_library()
    except (ImportError, OSError) as error:
        reason = str(error).partition("\n")[0]
        log.warning("LightGBM cannot be loaded (%s): trees of scikit-learn take its place, which are slower", reason)
        return None


def lightgbm_trees(
    lightgbm: Any, x: Floats, derivatives: Derivatives, stages: int, settings: TreeSettings
) -> LightGBMTrees:
    """Newton steps by LightGBM."""
    parameters = {
        "objective": "none",
        "learning_rate": settings.rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.rows_per_leaf,
        "lambda_l2": settings.l2,
        "bagging_fraction": settings.sampled,
        "bagging_freq": 1,
        "feature_fraction": settings.sampled,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 0 if len(x) >= ROWS_FOR_THREADS else 1,
        "verbose": -1,
    }
    binning = {"verbose": -1, "min_data_in_bin": 1, "num_threads": 1}
    booster = lightgbm.Booster(parameters, lightgbm.Dataset(x, params=binning))
    for _ in range(stages):
        booster.update(fobj=lambda added, _: derivatives(np.asarray(added, dtype=np.float64)))
    return LightGBMTrees(booster)


def sklearn_trees(x: Floats, derivatives: Derivatives, stages: int, settings: TreeSettings) -> TreeArrays:
    """The same by scikit-learn's regression trees: a tree chooses the leaves, their values are the Newton steps."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(settings.seed)
    features = np.asarray(x, dtype=np.float32)  # scikit-learn's trees compare float32
    added = np.zeros(len(x))
    trees = []
    for _ in range(stages):
        gradient, curvature = derivatives(added)
        sampled = rng.random(len(x)) < settings.sampled
        if not sampled.any():
            sampled[:] = True
        tree = DecisionTreeRegressor(
            max_leaf_nodes=settings.leaves,
            min_samples_leaf=settings.rows_per_leaf,
            max_features=settings.sampled,
            random_state=int(rng.integers(2**31 - 1)),
        )
        # Rows are weighted by their curvature, so that the decrease of the squared error of −g/h is the gain of the
        # second-order approximation.
        tree.fit(features[sampled], -gradient[sampled] / curvature[sampled], sample_weight=curvature[sampled])
        leaf = tree.apply(features)
        number = tree.tree_.node_count
        slope, bend = (np.bincount(leaf[sampled], values[sampled], number) for values in (gradient, curvature))
        steps: Floats = -settings.rate * slope / (bend + settings.l2)
        nodes = NodeArrays.of_sklearn(tree.tree_, steps)
        trees.append(nodes)
        added += nodes.value[leaf]
    return TreeArrays(trees)
