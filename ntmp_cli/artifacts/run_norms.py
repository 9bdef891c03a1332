"""Norms of a run's weights and training instances, for the generalisation bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.manifest import RunArtifact, TuplesArtifact
from ntmp_cli.artifacts.runs import require_trained_on
from ntmp_cli.artifacts.stored_scorer import load_network, load_table_scorer
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.theory.generalisation import NormClass, Radii

Floats = NDArray[np.float64]
# Maps raw instances to the inputs of the norm-bounded layers, one row each.
Inputs = Callable[[NDArray[Any]], Floats]
# Tuples, or unlabeled instances, that are read at a time.
ROWS = 256


@dataclass(frozen=True)
class _Scores:
    """The norm-bounded class of a run's scores and its inputs; or the reason why there is no bound."""

    norms: NormClass | None
    inputs: Inputs
    reason: str = ""


def norms_of_run(run: RunArtifact, tuples: TuplesArtifact | None) -> tuple[NormClass, Radii] | str:
    """Norms of the weights and of the inputs, or the reason why the scores have no bound."""
    if tuples is not None:
        require_trained_on(run, tuples)
    scores = _scores(run)
    if scores.norms is None:
        return scores.reason
    if tuples is not None:
        return scores.norms, _measured(StoredTuples(tuples), scores.inputs)
    # Without the tuples, norms are known only for uint8 images.
    if run.summary.instance.dtype != "uint8" or run.summary.encoder is not None:
        return "the norms of the instances are not known without the tuples that the run was trained on"
    return scores.norms, _bounded(run, scores.inputs)


def _scores(run: RunArtifact) -> _Scores:
    """The run's scores as a class of bounded norms."""
    if run.summary.learner == "estimator":
        return _Scores(None, _flat, f"no bound is known for scores of {run.summary.model}")
    if run.summary.learner == "table":
        table = load_table_scorer(run)
        if not table.is_linear:
            return _Scores(None, _flat, "no norm bounds boosted trees; a linear model has a bound")
        return _Scores(NormClass((float(np.hypot(np.linalg.norm(table.weight), table.bias)),)), _flat)
    return _network_scores(run)


def _network_scores(run: RunArtifact) -> _Scores:
    import torch

    from ntmp_cli.learning.layer_norms import chain, norm_class
    from ntmp_cli.learning.restore import Encoded

    network = load_network(run).eval()
    encoder = network.encoder if isinstance(network, Encoded) else None
    scorer: Any = network.scorer if isinstance(network, Encoded) else network
    layers = chain(scorer.network)
    if layers is None:
        reason = f"the bound is known only for chains of linear layers and ReLU, and {run.summary.model} is not one"
        return _Scores(None, _flat, reason)

    def inputs(raw: NDArray[Any]) -> Floats:
        with torch.inference_mode():
            x = torch.from_numpy(np.ascontiguousarray(raw))
            if encoder is not None:
                x = encoder(x.float() / run.summary.instance.scale).float()
            return _flat(scorer.inputs(x).double().numpy())

    return _Scores(norm_class(layers), inputs)


def _measured(source: StoredTuples, inputs: Inputs) -> Radii:
    """Radii of all training instances; of several strata, the largest root mean square bounds all."""
    by_stratum: dict[tuple[int, int], list[float]] = {}
    pool, largest = [0.0, 0.0], 0.0
    for name, rows in source.tuple_shards():
        for start in range(0, rows, ROWS):
            raw, sizes, counts = source.read_tuples(name, start, min(start + ROWS, rows))
            squares = (inputs(raw) ** 2).sum(axis=1) + 1
            largest = max(largest, float(squares.max()))
            sums = np.add.reduceat(squares, np.cumsum(sizes) - sizes)
            for n, m, total in zip(sizes.tolist(), counts.tolist(), sums.tolist(), strict=True):
                stratum = by_stratum.setdefault((n, m), [0.0, 0.0])
                stratum[0], stratum[1] = stratum[0] + total, stratum[1] + n
    for name, rows in source.unlabeled_shards():
        for start in range(0, rows, ROWS):
            squares = (inputs(source.read_unlabeled(name, start, min(start + ROWS, rows))) ** 2).sum(axis=1) + 1
            largest = max(largest, float(squares.max()))
            pool = [pool[0] + float(squares.sum()), pool[1] + len(squares)]
    tuples = max(total / number for total, number in by_stratum.values())
    return Radii(sqrt(tuples), sqrt(pool[0] / pool[1]), sqrt(largest), measured=True)


def _bounded(run: RunArtifact, inputs: Inputs) -> Radii:
    """Radii that bound all images with pixels in [0, 1] after scaling."""
    instance = run.summary.instance
    ends = [inputs(np.full((1, *instance.shape), value, dtype=np.uint8)) for value in (0, round(instance.scale))]
    radius = sqrt(float((np.max(np.abs(ends), axis=0) ** 2).sum()) + 1)
    return Radii(radius, radius, radius, measured=False)


def _flat(x: NDArray[Any]) -> Floats:
    return np.asarray(x, dtype=np.float64).reshape(len(x), -1)
