"""Boosted trees as they are kept and applied: LightGBM's, or plain arrays of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Floats
from ntmp_cli.errors import ArtifactError, UsageError


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
    def of_lightgbm(cls, root: dict[str, Any]) -> NodeArrays:
        """A tree as LightGBM dumps it."""
        nodes: list[tuple[int, float, int, int, float]] = []

        def add(node: dict[str, Any]) -> int:
            at = len(nodes)
            if "split_feature" not in node:
                nodes.append((-1, 0.0, -1, -1, node["leaf_value"]))
                return at
            nodes.append((0, 0.0, 0, 0, 0.0))
            left, right = add(node["left_child"]), add(node["right_child"])
            nodes[at] = (node["split_feature"], node["threshold"], left, right, 0.0)
            return at

        add(root)
        feature, threshold, left, right, value = (np.array(column) for column in zip(*nodes, strict=True))
        return cls(
            feature.astype(np.int32),
            threshold.astype(np.float64),
            left.astype(np.int32),
            right.astype(np.int32),
            value.astype(np.float64),
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
    """Of the file that holds them."""

    @property
    def stages(self) -> int:
        """How many trees there are."""

    def scores(self, x: NDArray[np.floating[Any]], stages: int) -> Floats:
        """What the first `stages` trees add."""

    def nodes(self, stages: int) -> list[NodeArrays]:
        """The first `stages` trees."""

    def to_bytes(self, stages: int) -> bytes:
        """The first `stages` trees, for a file."""


class LightGBMTrees:
    """A LightGBM booster, kept in LightGBM's text format."""

    suffix = ".txt"

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    @property
    def stages(self) -> int:
        number: int = self._booster.num_trees()
        return number

    @classmethod
    def from_bytes(cls, content: bytes) -> LightGBMTrees:
        try:
            import lightgbm
        except (ImportError, OSError) as error:
            raise UsageError(
                f"this run has trees of LightGBM, which cannot be loaded here ({error})",
                hint="Install the system's libgomp (on Debian: apt install libgomp1), or train again on this machine.",
            ) from None
        try:
            return cls(lightgbm.Booster(model_str=content.decode()))
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError):
            raise ArtifactError("not trees that LightGBM reads") from None

    def scores(self, x: NDArray[np.floating[Any]], stages: int) -> Floats:
        if stages == 0 or not len(x):
            return np.zeros(len(x))
        scores: Floats = self._booster.predict(x, num_iteration=stages, raw_score=True)
        return scores

    def nodes(self, stages: int) -> list[NodeArrays]:
        dumped = self._booster.dump_model(num_iteration=stages)["tree_info"] if stages else []
        return [NodeArrays.of_lightgbm(tree["tree_structure"]) for tree in dumped]

    def to_bytes(self, stages: int) -> bytes:
        text: str = self._booster.model_to_string(num_iteration=stages)
        return text.encode()


class TreeArrays:
    """Trees as arrays of nodes, kept as safetensors."""

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
        scores = np.zeros(len(x))
        features = np.asarray(x, dtype=np.float32)
        for tree in self._trees[:stages]:
            scores += tree.scores(features)
        return scores

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
