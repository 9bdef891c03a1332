"""A trained classifier of table rows: a linear score plus weighted trees, stored as plain arrays and text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Floats
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.tables.trees import LightGBMTrees, TreeArrays, Trees

KINDS: dict[str, Callable[[bytes], Trees]] = {
    LightGBMTrees.suffix: LightGBMTrees.from_bytes,
    TreeArrays.suffix: TreeArrays.from_bytes,
}
LINEAR_FILE = "model.safetensors"


@dataclass(frozen=True)
class WeightedTrees:
    """Boosted trees up to the chosen stage, with their weight in the score."""

    weight: float
    trees: Trees
    stages: int


@dataclass(frozen=True)
class TableScorer:
    """score = x·weight + bias + Σ weight_e trees_e(x), on raw features."""

    weight: Floats
    bias: float
    ensembles: tuple[WeightedTrees, ...] = ()

    def score(self, raw: NDArray[Any]) -> Floats:
        """Log-odds of the positive class."""
        x = np.ascontiguousarray(raw, dtype=np.float64)
        scores: Floats = x @ self.weight + self.bias
        for ensemble in self.ensembles:
            scores = scores + ensemble.weight * ensemble.trees.scores(x, ensemble.stages)
        return scores

    @property
    def is_linear(self) -> bool:
        return not self.ensembles

    @property
    def size(self) -> int:
        """Number of parameters: weights, bias, and values of leaves."""
        leaves = sum(int((nodes.feature < 0).sum()) for e in self.ensembles for nodes in e.trees.nodes(e.stages))
        return len(self.weight) + 1 + leaves

    def moved(self, shift: float) -> TableScorer:
        """The same scores with `shift` added: log-odds at another prior."""
        return replace(self, bias=self.bias + shift)

    def files(self) -> dict[str, bytes]:
        """Everything that `from_files` needs, by file name."""
        from safetensors.numpy import save

        linear = {
            "weight": self.weight,
            "bias": np.array([self.bias]),
            "tree_weights": np.array([ensemble.weight for ensemble in self.ensembles]),
        }
        return {LINEAR_FILE: save(linear)} | {
            f"trees-{number}{ensemble.trees.suffix}": ensemble.trees.to_bytes(ensemble.stages)
            for number, ensemble in enumerate(self.ensembles, start=1)
        }

    @classmethod
    def from_files(cls, files: dict[str, bytes]) -> TableScorer:
        """The inverse of `files`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(files[LINEAR_FILE])
            weight, bias, tree_weights = arrays["weight"], float(arrays["bias"][0]), arrays["tree_weights"]
            if not all(np.isfinite(values).all() for values in (weight, bias, tree_weights)):
                raise ValueError
        except (SafetensorError, KeyError, IndexError, TypeError, ValueError):
            raise ArtifactError(f"{LINEAR_FILE}: not a linear score that this ntmp has saved") from None
        ensembles = []
        for number, share in enumerate(tree_weights.tolist(), start=1):
            name = next((name for name in files if name.startswith(f"trees-{number}.")), None)
            if name is None:
                raise ArtifactError(f"the trees number {number} of {len(tree_weights)} are missing")
            try:
                trees = KINDS["." + name.rpartition(".")[2]](files[name])
            except (ArtifactError, KeyError):
                raise ArtifactError(f"{name}: not trees that this ntmp reads") from None
            if not all(tree.is_sound(weight.size) for tree in trees.nodes(trees.stages)):
                raise ArtifactError(f"{name}: holds a tree whose nodes do not fit together")
            ensembles.append(WeightedTrees(share, trees, trees.stages))
        return cls(weight, bias, tuple(ensembles))
