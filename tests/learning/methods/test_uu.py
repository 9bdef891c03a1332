"""UU learning is the unbiased risk of two sets: the flattened tuples and U (Lu et al. 2019, 2020)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")
LOSSES = {
    "sigmoid": lambda margin: 1 / (1 + np.exp(margin)),
    "logistic": lambda margin: np.log1p(np.exp(-margin)),
    "ramp": lambda margin: np.clip((1 - margin) / 2, 0, 1),
}
FIXED = [(3, 1)] * 20
MIXED = [(3, 1)] * 9 + [(5, 4)] * 4 + [(2, 0)] * 3 + [(7, 3)]


def batch_of(pairs: list[tuple[int, int]], unlabeled: int) -> Batch:
    sizes, counts = np.array(pairs).T
    inside = int(sizes.sum())
    return Batch(torch.zeros(inside + unlabeled, 2), sizes, counts, inside, unlabeled)


def task_of(pairs: list[tuple[int, int]], unlabeled: int) -> Task:
    return Task([(n, m, pairs.count((n, m))) for n, m in sorted(set(pairs))], unlabeled)


def scores_of(batch: Batch, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.3, spread, len(batch.x)).astype(np.float32))


def risk(method: str, task: Task, batch: Batch, scores: torch.Tensor, **settings: Any) -> tuple[float, list[float]]:
    """Loss and telemetry of one batch."""
    config = TrainConfig(**{"method": method, "margin_policy": "off", **settings})
    objective = methods.get(method)(config, task)
    value, telemetry = objective.loss(scores, objective.prepare(batch, 0.0))
    return float(value), telemetry.tolist()


def two_sets(scores: torch.Tensor, inside: int, theta: float, prior: float, loss: str) -> tuple[float, float]:
    """The two class terms of Lu et al. (2019), equation 8, for sets of positive rates θ (tuples) and π (U).

    From the two mixtures p_T = θp₊ + (1−θ)p₋ and p_U = πp₊ + (1−π)p₋ the class densities are solved for, and put into
    π E₊ℓ(g) + (1−π) E₋ℓ(−g).
    """
    z = scores.numpy().astype(np.float64)
    (pp, pm), (mp, mm) = np.linalg.inv([[theta, 1 - theta], [prior, 1 - prior]])
    phi = LOSSES[loss]
    means = [(phi(z_set).mean(), phi(-z_set).mean()) for z_set in (z[:inside], z[inside:])]
    positive = pp * means[0][0] + pm * means[1][0]
    negative = mp * means[0][1] + mm * means[1][1]
    return prior * positive, (1 - prior) * negative


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("pairs", [FIXED, MIXED], ids=["fixed", "mixed"])
@pytest.mark.parametrize("prior", [0.2, 0.7])
def test_uu_is_the_risk_of_two_sets_solved_by_hand(pairs: list[tuple[int, int]], prior: float, loss: str) -> None:
    batch, task = batch_of(pairs, 40), task_of(pairs, 40)
    scores, theta = scores_of(batch), sum(m for _, m in pairs) / sum(n for n, _ in pairs)
    terms = two_sets(scores, batch.tuple_instances, theta, prior, loss)
    plain, telemetry = risk("uu", task, batch, scores, prior=prior, loss=loss)
    corrected, _ = risk("uucor", task, batch, scores, prior=prior, loss=loss)
    assert plain == pytest.approx(sum(terms), abs=2e-6)
    assert telemetry[:2] == pytest.approx(terms, abs=2e-6)
    assert corrected == pytest.approx(sum(map(abs, terms)), abs=2e-6)


def test_the_correction_is_felt_where_a_class_term_is_negative() -> None:
    """Scores that a network fits by heart: −3 on tuples of rate 1/3 and +3 on U of rate 0.7."""
    batch, task = batch_of(FIXED, 40), task_of(FIXED, 40)
    scores = torch.cat([torch.full((60,), -3.0), torch.full((40,), 3.0)])
    terms = two_sets(scores, 60, 1 / 3, 0.7, "sigmoid")
    assert min(terms) < -0.05
    plain, _ = risk("uu", task, batch, scores, prior=0.7)
    corrected, _ = risk("uucor", task, batch, scores, prior=0.7)
    assert corrected - plain == pytest.approx(2 * sum(-term for term in terms if term < 0), abs=1e-5)


@pytest.mark.parametrize("pairs", [FIXED, MIXED], ids=["fixed", "mixed"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_both_are_the_flat_risk_with_their_clamp(pairs: list[tuple[int, int]], loss: str) -> None:
    batch, task = batch_of(pairs, 33), task_of(pairs, 33)
    scores, common = scores_of(batch, 1), {"prior": 0.8, "loss": loss}
    flat = {"mixing": "flat", "clamp_scope": "class"}
    assert risk("uu", task, batch, scores, **common) == risk("ure", task, batch, scores, **common, **flat, clamp="none")
    assert risk("uucor", task, batch, scores, **common) == risk(
        "ure", task, batch, scores, **common, **flat, clamp="abs"
    )


@pytest.mark.parametrize(("method", "clamp"), [("uu", "none"), ("uucor", "abs")])
def test_settings_of_the_risk_do_not_change_what_uu_means(method: str, clamp: str) -> None:
    batch, task = batch_of(MIXED, 33), task_of(MIXED, 33)
    scores = scores_of(batch, 2)
    bare = risk(method, task, batch, scores, prior=0.8)
    other = risk(method, task, batch, scores, prior=0.8, mixing="pooled", clamp="relu", clamp_scope="source")
    assert bare == other
    assert bare == risk("ure", task, batch, scores, prior=0.8, mixing="flat", clamp=clamp)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 9), share=st.floats(0, 1), tuples=st.integers(1, 12), unlabeled=st.integers(1, 40),
    prior=st.floats(0.05, 0.95), seed=st.integers(0, 99),
)  # fmt: skip
def test_with_fixed_tuples_uu_and_the_stratified_risk_are_one(
    n: int, share: float, tuples: int, unlabeled: int, prior: float, seed: int
) -> None:
    m = round(share * n)
    if abs(m / n - prior) < 0.1:
        return
    batch, task = batch_of([(n, m)] * tuples, unlabeled), Task([(n, m, tuples)], unlabeled)
    scores = scores_of(batch, seed)
    for method, clamp in (("uu", "none"), ("uucor", "abs")):
        value, terms = risk(method, task, batch, scores, prior=prior)
        expected, same = risk("ure", task, batch, scores, prior=prior, clamp=clamp, mixing="stratified")
        assert value == pytest.approx(expected, abs=1e-6, rel=1e-6)
        assert terms == pytest.approx(same, abs=1e-6, rel=1e-6)


def test_with_mixed_tuples_uu_and_the_stratified_risk_differ() -> None:
    batch, task = batch_of(MIXED, 40), task_of(MIXED, 40)
    scores = scores_of(batch)
    flat, _ = risk("uu", task, batch, scores, prior=0.7)
    stratified, _ = risk("ure", task, batch, scores, prior=0.7, clamp="none")
    assert abs(flat - stratified) > 0.01


def test_the_rate_is_that_of_all_tuples_not_of_the_batch() -> None:
    """The pool is flattened once, so a batch that happens to hold the poor tuples has the rate of all."""
    batch, task = batch_of([(3, 1)] * 8, 20), Task([(3, 1, 8), (3, 3, 8)], 40)
    scores = scores_of(batch)
    value, _ = risk("uu", task, batch, scores, prior=0.3)
    assert value == pytest.approx(sum(two_sets(scores, 24, 2 / 3, 0.3, "sigmoid")), abs=2e-6)
    assert value != pytest.approx(sum(two_sets(scores, 24, 1 / 3, 0.3, "sigmoid")), abs=1e-2)


@pytest.mark.parametrize("method", ["uu", "uucor"])
def test_the_heldout_risk_is_the_unclamped_one(method: str) -> None:
    batch, task = batch_of(MIXED, 40), task_of(MIXED, 40)
    scores = scores_of(batch)
    theta = sum(m for _, m in MIXED) / sum(n for n, _ in MIXED)
    objective = methods.get(method)(TrainConfig(method=method, prior=0.8), task)
    inside, outside = np.split(scores.double().numpy(), [batch.tuple_instances])
    heldout = objective.heldout_risk(HeldoutScores(inside, batch.sizes, batch.counts, outside))
    assert heldout is not None
    assert heldout.value == pytest.approx(sum(two_sets(scores, len(inside), theta, 0.8, "sigmoid")), abs=1e-9)


@pytest.mark.parametrize("method", ["uu", "uucor"])
def test_a_pool_of_the_rate_of_u_is_not_identifiable(tmp_path: Path, method: str) -> None:
    """Two rates around π: the strata could tell the classes apart, the flattened pool cannot."""
    data = MakeTuplesConfig(dataset="gaussians:size=600,test=50", tuples=("3:1", "3:2"), prior=0.5)
    tuples = make_tuples(data, tmp_path / "tuples")
    strata = tuples.summary.strata.train
    rate = sum(s.m * s.tuples for s in strata) / sum(s.instances for s in strata)
    config = TrainConfig(method=method, prior=rate, model="linear", epochs=1)
    with pytest.raises(NotIdentifiableError) as error:
        train(config, tmp_path / "tuples", tmp_path / "run", CPU)
    assert error.value.exit_code == 4
    assert "the risk is not identifiable: the mean tuple rate ᾱ = " in error.value.message
    assert not (tmp_path / "run").exists()
    stratified = TrainConfig(method="ure", prior=rate, model="linear", epochs=1)
    assert train(stratified, tmp_path / "tuples", tmp_path / "run", CPU).summary.method == "ure+relu"


@pytest.mark.parametrize("prior", [1 / 3, 2 / 6, 0.1 + 0.2 + 0.1 / 3])
def test_equal_rates_are_seen_through_rounding(prior: float) -> None:
    for method in ("uu", "uucor"):
        with pytest.raises(NotIdentifiableError):
            methods.get(method)(TrainConfig(method=method, prior=prior), task_of([(3, 1), (6, 2)], 10))


@pytest.mark.parametrize("method", ["uu", "uucor"])
def test_tables_name_the_method(method: str) -> None:
    config = TrainConfig(method=method, prior=0.5, clamp="relu", clamp_scope="source")
    assert methods.get(method).label(config) == method
