"""Attention pooling is what its formula says, and bags are labelled so that margins point the right way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.methods.attention_mil import AttentionMil, pool
from ntmp_cli.learning.models import AttentionHead, Scorer
from ntmp_cli.stages.evaluate import run_metrics
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def by_loop(margin: np.ndarray, logit: np.ndarray, owner: np.ndarray, bags: int) -> list[float]:
    return [float(softmax(logit[owner == bag]) @ margin[owner == bag]) for bag in range(bags)]


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    seed=st.integers(0, 10**6),
)
def test_pooling_is_a_softmax_in_every_bag(sizes: list[int], scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    margin, logit = rng.normal(0, 3, sum(sizes)), rng.normal(0, scale, sum(sizes))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    pooled = pool(*map(torch.from_numpy, (margin, logit, owner)), len(sizes))
    assert np.allclose(pooled.numpy(), by_loop(margin, logit, owner, len(sizes)), atol=1e-10)


def test_pooling_stands_extreme_logits_in_single_precision() -> None:
    margin = torch.tensor([1.0, -2.0, 5.0, 7.0, 3.0], requires_grad=True)
    logit = torch.tensor([1e6, -1e6, -3e7, -3e7, 200.0], requires_grad=True)
    pooled = pool(margin, logit, torch.tensor([0, 0, 1, 1, 2]), 3)
    assert pooled.tolist() == [1.0, 6.0, 3.0]
    slopes = torch.autograd.grad(pooled.sum(), (margin, logit))
    assert slopes[0].tolist() == [1.0, 0.0, 0.5, 0.5, 1.0]
    assert slopes[1].tolist() == [0.0, 0.0, -0.5, 0.5, 0.0]


def test_gradients_of_pooling_are_those_of_torch_softmax() -> None:
    """The largest logit is taken off without a gradient: it must cancel."""
    margin, logit = (torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    inputs = [margin.clone().requires_grad_(), logit.clone().requires_grad_()]
    expected_inputs = [margin.clone().requires_grad_(), logit.clone().requires_grad_()]
    owner, weights = torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([1.5, -0.7], dtype=torch.float64)
    gradients = torch.autograd.grad(pool(*inputs, owner, 2) @ weights, inputs)
    m, a = expected_inputs
    bags = torch.stack([(torch.softmax(a[bag], 0) * m[bag]).sum() for bag in (slice(0, 3), slice(3, 7))])
    for left, right in zip(gradients, torch.autograd.grad(bags @ weights, expected_inputs), strict=True):
        assert torch.allclose(left, right, atol=1e-12)


def test_a_bag_scores_v_times_its_attended_mean() -> None:
    """s = vᵀh with h = Σ a_i tanh(W z_i), from the weights of the module alone."""
    draw = torch.Generator().manual_seed(4)
    head = AttentionHead(5).double().requires_grad_(False)
    head.attention.weight.copy_(torch.randn(1, 128, dtype=torch.float64, generator=draw))
    z = torch.randn(9, 5, dtype=torch.float64, generator=draw)
    owner = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    out = head.train()(z)
    assert out.shape == (9, 2)
    pooled = pool(out[:, 0], out[:, 1], torch.from_numpy(owner), 3)
    w_hidden, w, v = (layer.weight.numpy() for layer in (head.hidden[1], head.attention, head.margin))
    for bag in range(3):
        h = np.tanh(z.numpy()[owner == bag] @ w_hidden.T)
        attended = softmax(h @ w[0]) @ h
        assert float(pooled[bag]) == pytest.approx(float(v[0] @ attended), abs=1e-12)
    margins = head.eval()(z)
    assert margins.shape == (9, 1)
    assert np.allclose(margins.numpy(), np.tanh(z.numpy() @ w_hidden.T) @ v.T, atol=1e-12)
    assert torch.equal(margins[:, 0], out[:, 0])


def test_a_scorer_gives_one_margin_per_instance() -> None:
    scorer = Scorer(AttentionHead(4), torch.ones(4), torch.zeros(4))
    x = torch.randn(6, 4)
    assert scorer.train()(x).shape == (6, 2)
    assert scorer.eval()(x).shape == (6,)


def test_training_starts_at_the_mean_of_a_bag() -> None:
    """Random attention now and then ended mirrored: AUC .02 on the very data of the test below."""
    head = AttentionHead(3)
    margin, logit = head.train()(torch.randn(4, 3)).detach().T
    assert float(pool(margin, logit, torch.zeros(4, dtype=torch.int64), 1)) == pytest.approx(float(margin.mean()))


# --- bags ---------------------------------------------------------------------------------------


def method_of(strata: list[tuple[int, int, int]], unlabeled: int, prior: float) -> AttentionMil:
    config = TrainConfig(method="attention-mil", prior=prior)
    method = methods.get("attention-mil")(config, Task(strata, unlabeled))
    assert isinstance(method, AttentionMil)
    return method


def batch_of(sizes: list[int], counts: list[int], unlabeled: int) -> Batch:
    inside = sum(sizes)
    return Batch(torch.zeros(inside + unlabeled, 2), np.array(sizes), np.array(counts), inside, unlabeled)


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=10), unlabeled=st.integers(1, 60))
def test_bags_of_u_have_the_lengths_of_the_tuples_in_turn(sizes: list[int], unlabeled: int) -> None:
    counts = [0] * len(sizes)
    method = method_of([(n, 0, 5) for n in sorted(set(sizes))], unlabeled, 0.5)
    prepared = method.prepare(batch_of(sizes, counts, unlabeled), 0.0)
    expected, left = list(sizes), unlabeled
    turn = 0
    while sizes[turn % len(sizes)] <= left:
        expected.append(sizes[turn % len(sizes)])
        left -= expected[-1]
        turn += 1
    # Members of bags are the first of the batch, in a row: tuples, then U.
    assert prepared.owner.tolist() == [bag for bag, n in enumerate(expected) for _ in range(n)]
    assert len(prepared.owner) == sum(sizes) + unlabeled - left
    assert prepared.labels.tolist() == [0.0] * len(sizes) + [1.0] * (len(expected) - len(sizes))


@pytest.mark.parametrize(
    ("counts", "prior", "labels"),
    [
        ([1, 1], 0.8, [0, 0, 1, 1]),  # π above the tuples' rate
        ([2, 2], 0.2, [1, 1, 0, 0]),  # and below
        ([0, 3], 0.4, [0, 1, 0, 0]),
        ([0, 3], 0.6, [0, 1, 1, 1]),
    ],
)
def test_a_bag_is_positive_if_its_rate_exceeds_the_mean(counts: list[int], prior: float, labels: list[int]) -> None:
    strata = [(3, m, counts.count(m)) for m in sorted(set(counts))]
    method = method_of(strata, 6, prior)
    assert method.mean_rate == pytest.approx((sum(counts) + 6 * prior) / 12)
    assert method.prepare(batch_of([3, 3], counts, 6), 0.0).labels.tolist() == labels


def test_the_loss_is_the_mean_cross_entropy_of_bags() -> None:
    method = method_of([(3, 1, 2)], 7, 0.8)
    batch = batch_of([3, 3], [1, 1], 7)
    scores = torch.randn(13, 2, generator=torch.Generator().manual_seed(0))
    loss, telemetry = method.loss(scores, method.prepare(batch, 0.0))
    owner = np.repeat(np.arange(4), 3)
    z = scores.numpy().astype(np.float64)[:12]
    s, y = np.array(by_loop(z[:, 0], z[:, 1], owner, 4)), np.array([0, 0, 1, 1])
    expected = np.mean(np.log1p(np.exp(-np.where(y, s, -s))))
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    assert telemetry.tolist() == pytest.approx([expected, np.mean((s > 0) == y)], abs=1e-5)


def test_bag_scores_are_those_of_the_objective() -> None:
    """vᵀh as the loss pools it, of the scorer in evaluation mode and in pieces of any size."""
    head, raw = AttentionHead(4), np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    torch.nn.init.normal_(head.attention.weight)
    scorer, sizes = Scorer(head, torch.full((4,), 2.0), torch.ones(4)).eval(), np.array([3, 2, 4])
    found = AttentionMil.bag_scores(scorer, raw, sizes)
    assert found is not None
    both = head.train()(2 * torch.from_numpy(raw) - 1).detach().double().numpy()
    expected = by_loop(both[:, 0], both[:, 1], np.repeat(np.arange(3), sizes), 3)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


# --- learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("specs", "prior"),
    [(("3:1",), 0.8), (("3:2",), 0.2), (("2:1",), 0.85), (("4:0-4",), 0.5)],
    ids=["pi above", "pi below", "half positive", "many rates"],
)
def test_margins_are_never_mirrored(tmp_path: Path, specs: tuple[str, ...], prior: float, seed: int) -> None:
    dataset = "gaussians:dim=2,separation=3,size=2000,test=1000"
    make_tuples(MakeTuplesConfig(dataset=dataset, tuples=specs, prior=prior, seed=seed), tmp_path / "tuples")
    settings: dict[str, Any] = {"epochs": 5, "lr": 0.01, "trace_every": 0, "seed": seed}
    config = TrainConfig(method="attention-mil", prior=prior, **settings)
    run = train(config, tmp_path / "tuples", tmp_path / "run", CPU)
    scores = read_scores(run)["test"]
    assert roc_auc_score(read_labels(run), scores) > 0.9
    assert run.summary.model == "attention"
    evaluated = run_metrics(run, ["bag_auroc", "bag_accuracy"], prior)
    assert (evaluated["bag_auroc"] or 0) > 0.7
    assert (evaluated["bag_accuracy"] or 0) > 0.6


def test_bags_that_are_all_alike_are_refused(tmp_path: Path) -> None:
    data = MakeTuplesConfig(dataset="gaussians:size=300,test=20", tuples=("2:1", "4:2"), prior=0.5)
    make_tuples(data, tmp_path / "tuples")
    config = TrainConfig(method="attention-mil", prior=0.5)
    with pytest.raises(NotIdentifiableError, match=r"every bag has the rate π = 0\.5") as error:
        train(config, tmp_path / "tuples", tmp_path / "run", CPU)
    assert error.value.exit_code == 4
    assert not (tmp_path / "run").exists()
    with pytest.raises(NotIdentifiableError):
        method_of([(3, 1, 4), (6, 2, 5)], 30, 1 / 3)
