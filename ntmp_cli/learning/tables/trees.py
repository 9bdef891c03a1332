"""Storing and applying boosted trees: LightGBM's, or plain arrays of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Floats
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.tables.lightgbm_library import lightgbm_library

# Up to so many rows are scored without LightGBM.
FEW_ROWS = 20_000
# LightGBM's mark of x ≤ threshold for rows without missing values.
DECISION = 2


class NodeArrays(NamedTuple):
    """One tree: from node i a row goes left where x[feature] ≤ threshold; a leaf has feature −1 and a value."""

    feature: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Floats

    @classmethod
    def of_sklearn(cls, tree: Any, values: Floats) -> NodeArrays:
        """The splits of a scikit-learn tree, with other values in its leaves."""
        leaf = tree.children_left < 0
        feature = np.where(leaf, -1, tree.feature).astype(np.int32)
        left, right = (children.astype(np.int32) for children in (tree.children_left, tree.children_right))
        return cls(feature, tree.threshold.astype(np.float64), left, right, np.where(leaf, values, 0.0))

    @classmethod
    def of_lightgbm(cls, text: str) -> NodeArrays:
        """A tree of LightGBM's text format: splits first, then leaves, which children name by −1, −2, …"""
        lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        value = np.array(lines["leaf_value"].split(), dtype=np.float64)
        if int(lines["num_leaves"]) != len(value) or lines["num_cat"] != "0":
            raise ValueError("leaves that are not announced, or splits by categories, which ntmp never makes")
        if len(value) == 1:
            none = np.array([-1], dtype=np.int32)
            return cls(none, np.zeros(1), none, none, value)
        feature = np.array(lines["split_feature"].split(), dtype=np.int32)
        threshold = np.array(lines["threshold"].split(), dtype=np.float64)
        splits, leaves = len(feature), len(value)
        children = (np.array(lines[f"{side}_child"].split(), dtype=np.int32) for side in ("left", "right"))
        left, right = (np.where(child < 0, splits - child - 1, child) for child in children)
        no_child = np.full(leaves, -1, dtype=np.int32)
        return cls(
            np.concatenate([feature, no_child]),
            np.concatenate([threshold, np.zeros(leaves)]),
            np.concatenate([left, no_child]).astype(np.int32),
            np.concatenate([right, no_child]).astype(np.int32),
            np.concatenate([np.zeros(splits), value]),
        )

    def to_lightgbm(self) -> str:
        """The tree in LightGBM's text format; numbers are written with all digits."""
        splits = int((self.feature >= 0).sum())
        columns: dict[str, NDArray[Any]] = {"leaf_value": self.value[splits:]}
        if splits:
            children = {"left_child": self.left[:splits], "right_child": self.right[:splits]}
            columns |= {"split_feature": self.feature[:splits], "threshold": np.nan_to_num(self.threshold[:splits])}
            columns |= {name: np.where(child < splits, child, splits - child - 1) for name, child in children.items()}
            columns |= {"decision_type": np.full(splits, DECISION)}
        lines = [f"{name}={' '.join(map(repr, column.tolist()))}" for name, column in columns.items()]
        return "\n".join([f"num_leaves={len(self.feature) - splits}", "num_cat=0", *lines, "shrinkage=1"])

    def is_sound(self, features: int) -> bool:
        """Whether every split has later nodes as children and a feature that rows have, and every value is a number."""
        if any(column.ndim != 1 or len(column) != len(self.feature) for column in self) or not len(self.feature):
            return False
        number, splits = np.arange(len(self.feature)), self.feature >= 0
        children = np.stack([self.left[splits], self.right[splits]])
        return bool(
            ((children > number[splits]) & (children < len(number))).all()
            and (self.feature < features).all()
            and np.isfinite(self.value).all()
            and not np.isnan(self.threshold).any()
        )

    def scores(self, x: NDArray[np.floating[Any]]) -> Floats:
        rows, at = np.arange(len(x)), np.zeros(len(x), dtype=np.int32)
        while (inside := self.feature[at] >= 0).any():
            rows_inside, nodes = rows[inside], at[inside]
            goes_left = x[rows_inside, self.feature[nodes]] <= self.threshold[nodes]
            at[inside] = np.where(goes_left, self.left[nodes], self.right[nodes])
        leaves: Floats = self.value[at]
        return leaves


class Trees(Protocol):
    """Boosted trees; their scores are added to those of the start."""

    suffix: str
    """Ending of the file that holds them."""

    @property
    def stages(self) -> int:
        """Number of trees."""

    def scores(self, x: NDArray[np.floating[Any]], stages: int) -> Floats:
        """What the first `stages` trees add."""

    def nodes(self, stages: int) -> list[NodeArrays]:
        """The first `stages` trees."""

    def to_bytes(self, stages: int) -> bytes:
        """The first `stages` trees, for a file."""


class LightGBMTrees:
    """A LightGBM booster, stored in LightGBM's text format.

    Few rows are scored from the text, by the same comparisons and sums: LightGBM takes longer to load than to score
    them, and a machine without it can use trees that were grown elsewhere.
    """

    suffix = ".txt"

    def __init__(self, booster: Any = None, text: str = "") -> None:
        self._booster, self._text = booster, text

    @classmethod
    def from_bytes(cls, content: bytes) -> LightGBMTrees:
        trees = cls(text=content.decode(errors="replace"))
        try:
            trees._parsed  # noqa: B018 - a file that is no model is refused here
        except (KeyError, ValueError, IndexError, OverflowError):
            raise ArtifactError("not trees in LightGBM's text format") from None
        return trees

    @cached_property
    def _parsed(self) -> list[NodeArrays]:
        text = self._text or self._booster.model_to_string()
        body = text[: text.index("end of trees")]
        return [NodeArrays.of_lightgbm(tree) for tree in body.split("Tree=")[1:]]

    @property
    def stages(self) -> int:
        return len(self._parsed)

    def scores(self, x: NDArray[np.floating[Any]], stages: int) -> Floats:
        if self._booster is None and len(x) > FEW_ROWS:
            self._booster = _loaded_booster(self._parsed, x.shape[1])
        if self._booster is None or stages == 0 or not len(x):
            return _sum_of_trees(self._parsed[:stages], x)
        scores: Floats = self._booster.predict(x, num_iteration=stages, raw_score=True)
        return scores

    def nodes(self, stages: int) -> list[NodeArrays]:
        return self._parsed[:stages]

    def to_bytes(self, stages: int) -> bytes:
        if self._text and stages == self.stages:
            return self._text.encode()
        if self._text:
            features = 1 + max(int(tree.feature.max()) for tree in self._parsed)
            return lightgbm_text(self._parsed[:stages], features).encode()
        text: str = self._booster.model_to_string(num_iteration=stages)
        return text.encode()


def lightgbm_text(trees: Sequence[NodeArrays], features: int) -> str:
    """Trees as a model of LightGBM on rows of so many features."""
    each = [f"Tree={number}\n{tree.to_lightgbm()}\n\n\n" for number, tree in enumerate(trees)]
    head = {
        "version": "v4",
        "num_class": "1",
        "num_tree_per_iteration": "1",
        "label_index": "0",
        "max_feature_idx": str(features - 1),
        "feature_names": " ".join(f"Column_{number}" for number in range(features)),
        "feature_infos": " ".join(["none"] * features),
        "tree_sizes": " ".join(str(len(text.encode())) for text in each),
    }
    lines = ["tree", *(f"{name}={value}" for name, value in head.items()), "", "".join(each) + "end of trees", ""]
    return "\n".join(lines)


def _loaded_booster(trees: Sequence[NodeArrays], features: int) -> Any:
    """A LightGBM booster; None if LightGBM cannot be loaded.

    LightGBM reads a text of the checked nodes, never the text of a file: its reader checks nothing.
    """
    try:
        lightgbm = lightgbm_library()
    except (ImportError, OSError):
        return None
    return lightgbm.Booster(model_str=lightgbm_text(trees, features))


def _sum_of_trees(trees: Iterable[NodeArrays], x: NDArray[np.floating[Any]]) -> Floats:
    scores = np.zeros(len(x))
    for tree in trees:
        scores += tree.scores(x)
    return scores


class TreeArrays:
    """Trees as arrays of nodes, stored as safetensors."""

    suffix = ".safetensors"

    def __init__(self, trees: Sequence[NodeArrays]) -> None:
        self._trees = list(trees)

    @property
    def stages(self) -> int:
        return len(self._trees)

    @classmethod
    def from_bytes(cls, content: bytes) -> TreeArrays:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(content)
            ends = np.cumsum(arrays["sizes"])[:-1]
            columns = [np.split(arrays[name], ends) for name in NodeArrays._fields]
        except (SafetensorError, KeyError, ValueError):
            raise ArtifactError("not trees that this ntmp has saved") from None
        return cls([NodeArrays(*tree) for tree in zip(*columns, strict=True)])

    def scores(self, x: NDArray[np.floating[Any]], stages: int) -> Floats:
        return _sum_of_trees(self._trees[:stages], np.asarray(x, dtype=np.float32))

    def nodes(self, stages: int) -> list[NodeArrays]:
        return self._trees[:stages]

    def to_bytes(self, stages: int) -> bytes:
        from safetensors.numpy import save

        columns = _joined(self._trees[:stages])
        sizes = np.array([len(tree.feature) for tree in self._trees[:stages]], dtype=np.int64)
        return save({"sizes": sizes, **columns})


def _joined(trees: Iterable[NodeArrays]) -> dict[str, NDArray[Any]]:
    return {
        name: np.concatenate(column) for name, column in zip(NodeArrays._fields, zip(*trees, strict=True), strict=True)
    }
