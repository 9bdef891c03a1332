"""The paper's light score model: a positive proxy from tuples against U. No torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError
from ntmp_cli.learning.folds import fold_tuples
from ntmp_cli.prior.binned_sums import highest_members
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.prior.paper_protocol import FOLDS, ProxyScores, validation_size
from ntmp_cli.tuple_source import TupleSource

Floats = NDArray[np.float64]
# The hidden layer of the two-layer network, and its passes over proxy and U.
HIDDEN, PASSES = 100, 20


def proxy_scores(folds: Sequence[ScoredTuples], source: TupleSource, seed: int, *, linear: bool) -> ProxyScores:
    """Proxy and U, scored by a model that separates them and was not trained on what it scores.

    The proxy is the m highest-scored members of every tuple that `folds` score. `linear`: a linear probe, as on frozen
    features; else a network of two layers.
    """
    members = _members(folds, source)
    chosen = [highest_members(fold.scores, fold.sizes, np.rint(fold.observed.likely)) > 0 for fold in folds]
    proxy = np.concatenate([x[is_chosen] for x, is_chosen in zip(members, chosen, strict=True)])
    pool = _pool(source)
    if min(len(proxy), len(pool)) < FOLDS:
        raise DataError(
            f"{source.name}: {len(proxy)} proxies and {len(pool)} unlabeled instances are too few for the paper's "
            f"protocol of {FOLDS} folds",
            hint="Use another estimator, such as em-affine.",
        )
    x, is_proxy = _flat(np.concatenate([proxy, pool]), source), np.arange(len(proxy) + len(pool)) < len(proxy)
    validating = validation_size(len(pool))
    if validating is None:
        return _in_turn(x, is_proxy, seed, linear=linear)
    return _on_a_split(x, is_proxy, validating / len(pool), seed, linear=linear)


def _on_a_split(
    x: NDArray[np.float32], is_proxy: NDArray[np.bool_], share: float, seed: int, *, linear: bool
) -> ProxyScores:
    from sklearn.model_selection import train_test_split

    training, validating = train_test_split(
        np.arange(len(x)), test_size=share, random_state=seed, shuffle=True, stratify=is_proxy
    )
    scores = _scores(x[training], is_proxy[training], x[validating], seed, linear=linear)
    return ProxyScores(scores[is_proxy[validating]], scores[~is_proxy[validating]])


def _in_turn(x: NDArray[np.float32], is_proxy: NDArray[np.bool_], seed: int, *, linear: bool) -> ProxyScores:
    """Ten-fold stratified cross-validation, where U is too small for a split."""
    from sklearn.model_selection import StratifiedKFold

    scores = np.empty(len(x))
    for training, validating in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, is_proxy):
        scores[validating] = _scores(x[training], is_proxy[training], x[validating], seed, linear=linear)
    return ProxyScores(scores[is_proxy], scores[~is_proxy], FOLDS)


def _scores(
    x: NDArray[np.float32], is_proxy: NDArray[np.bool_], new: NDArray[np.float32], seed: int, *, linear: bool
) -> Floats:
    """Log-odds of being a proxy."""
    from scipy.special import logit
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier((HIDDEN,), max_iter=PASSES, random_state=seed)
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200) if linear else network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a light model need not converge
        model.fit(x, is_proxy)
    probability = model.predict_proba(new)[:, 1].astype(np.float64)
    scores: Floats = logit(np.clip(probability, 1e-9, 1 - 1e-9))
    return scores


def _members(folds: Sequence[ScoredTuples], source: TupleSource) -> list[NDArray[np.generic]]:
    """The instances whose scores the folds hold, fold by fold in their order."""
    read = [source.read_tuples(name, 0, rows) for name, rows in source.tuple_shards()]
    heldout = source.heldout()
    if len(folds) > 1:
        x, sizes, _ = (np.concatenate(column) for column in zip(*read, strict=True))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        return [x[np.isin(owner, positions)] for positions in fold_tuples(source, len(folds))]
    (fold,) = folds
    training = [(x, sizes) for x, sizes, _ in read]
    last = [] if heldout is None else [(heldout.tuples, heldout.sizes)]
    for blocks in (last, training, training + last):
        if blocks and np.array_equal(np.concatenate([sizes for _, sizes in blocks]), fold.sizes):
            return [np.concatenate([x for x, _ in blocks])]
    raise AssertionError("scores are those of held-out tuples, of training tuples, or of both")


def _pool(source: TupleSource) -> NDArray[np.generic]:
    heldout = source.heldout()
    read = [source.read_unlabeled(name, 0, rows) for name, rows in source.unlabeled_shards()]
    return np.concatenate([*read, *([] if heldout is None else [heldout.unlabeled])])


def _flat(raw: NDArray[np.generic], source: TupleSource) -> NDArray[np.float32]:
    return raw.reshape(len(raw), -1).astype(np.float32) / np.float32(source.instance.scale)
