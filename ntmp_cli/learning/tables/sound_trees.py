"""Trees of a scikit-learn classifier from a file: their nodes are checked, because scikit-learn follows them unchecked.

Prediction walks from a node to its children in compiled code; a child or a feature that does not exist would be read
out of bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def trees_are_sound(estimator: Any) -> bool:
    """Whether every node of every tree has later nodes as children and splits by a feature that rows have."""
    return all(
        _is_sound(children, splits, features, limit) for children, splits, features, limit in _trees(estimator, None)
    )


# Attributes whose trees get the same rows as their owner; steps of a pipeline and others get other rows.
SAME_ROWS = ("tree_", "_predictors", "estimators_")
Nodes = tuple[NDArray[Any], NDArray[Any], NDArray[Any], int | None]


def _trees(value: Any, limit: int | None) -> Iterator[Nodes]:
    """(children (2, nodes), which nodes split, their features, number of features) of all trees below an object."""
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        for member in np.ravel(value) if isinstance(value, np.ndarray) else value:
            yield from _trees(member, limit)
    elif isinstance(value, dict):
        yield from _trees(list(value.values()), limit)
    elif type(value).__name__ == "Tree":
        left, right = value.children_left, value.children_right
        known = [number for number in (limit, value.n_features) if number is not None]
        yield np.stack([left, right]), left != -1, value.feature, min(known)
    elif type(value).__name__ == "TreePredictor":
        nodes = value.nodes
        children = np.stack([nodes["left"], nodes["right"]]).astype(np.int64)
        yield children, nodes["is_leaf"] == 0, nodes["feature_idx"].astype(np.int64), limit
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        widths = [int(number) for number in (limit, vars(value).get("n_features_in_")) if number is not None]
        for name, member in vars(value).items():
            yield from _trees(member, min(widths, default=None) if name in SAME_ROWS else None)


def _is_sound(children: NDArray[Any], splits: NDArray[Any], features: NDArray[Any], limit: int | None) -> bool:
    number = np.arange(len(splits))
    inside = (children[:, splits] > number[splits]) & (children[:, splits] < len(number))
    used = features[splits]
    return len(number) > 0 and bool(inside.all() and (used >= 0).all() and (limit is None or (used < limit).all()))
