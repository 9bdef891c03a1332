"""`count` learns and ends on the right side of the mirror; where no side can be known it says so."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, log1p
from pathlib import Path
from typing import Any

import known_answers
import numpy as np
import pytest
import torch
from known_answers import bayes_accuracy
from torch.nn.functional import binary_cross_entropy_with_logits

from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.data.recording import Recording
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.count_kernel import CountKernel
from ntmp_cli.learning.known_slopes import confidence_weighted_loss
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.learning.risk import clamped, coefficients, partial_risks
from ntmp_cli.learning.self_training import pseudo_label_weight
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import ArraySource, Task

CPU = TrainOptions(device="cpu")
GAUSSIANS = "gaussians:dim=2,separation=3,size=4000,test=4000"


def accuracy(folder: Path, data: dict[str, Any], **settings: Any) -> float:
    """On a population with the prior of the unlabeled pool."""
    prior = data["prior"]
    make_tuples(MakeTuplesConfig(**data), folder / "tuples")
    config = TrainConfig(**{"prior": prior, "method": "count", "trace_every": 0, **settings})
    run = train(config, folder / "tuples", folder / "run", CPU)
    return known_answers.accuracy(run, prior)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("spec", "prior"), [("3:1", 0.8), ("3:1", 0.2), ("3:2", 0.2), ("2:1", 0.8), ("7:2", 0.5), ("3:1", 1 / 3)]
)
def test_count_ends_on_the_right_side_near_the_best_rule(tmp_path: Path, spec: str, prior: float, seed: int) -> None:
    data = {"dataset": GAUSSIANS, "tuples": (spec,), "prior": prior, "seed": seed}
    reached = accuracy(tmp_path, data, model="linear", lr=0.1, weight_decay=0.0, epochs=8, seed=seed)
    assert reached > bayes_accuracy(prior) - 0.03


@pytest.mark.slow
def test_count_learns_more_from_digits_than_the_risk_does(tmp_path: Path) -> None:
    data = {"dataset": "digits", "tuples": ("3:1",), "prior": 0.5}
    count = accuracy(tmp_path / "count", data, epochs=10)
    assert count > 0.92  # .974 over two seeds
    assert accuracy(tmp_path / "ure", data, method="ure", epochs=10) < count


def test_mixed_tuples_train(tmp_path: Path) -> None:
    data = {"dataset": GAUSSIANS, "tuples": ("3:1", "5:~0.6", "2-4:0-1@0.5"), "prior": 0.4}
    assert accuracy(tmp_path, data, model="linear", lr=0.1, weight_decay=0.0, epochs=8) > bayes_accuracy(0.4) - 0.03


def test_count_refuses_what_has_no_orientation(tmp_path: Path) -> None:
    data = {"dataset": GAUSSIANS, "tuples": ("2:1", "4:2"), "prior": 0.5}
    with pytest.raises(NotIdentifiableError, match="the orientation is not identifiable"):
        accuracy(tmp_path, data, model="linear")
    assert not (tmp_path / "run").exists()


# Pseudo-labels of U.


def test_a_pseudo_label_weighs_as_much_as_the_teacher_is_confident() -> None:
    scores = torch.tensor([0.3, -1.0, 2.0, 0.5])
    teacher = torch.tensor([4.0, 1.5, -0.2, 0.0])
    p = [1 / (1 + exp(-t)) for t in teacher.tolist()]
    labels = [1, 1, 0, 0]
    losses = [log1p(exp(-s)) if y else log1p(exp(s)) for s, y in zip(scores.tolist(), labels, strict=True)]
    expected = sum(abs(2 * q - 1) * e for q, e in zip(p, losses, strict=True)) / 4
    loss, slope = confidence_weighted_loss(scores, teacher)
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert slope[3] == 0  # an undecided teacher says nothing
    assert (slope[:3].sign() == torch.tensor([-1.0, -1.0, 1.0])).all()


def membership_loss(scores: torch.Tensor, inside: int, prior: float, rate: float) -> torch.Tensor:
    """Cross-entropy of telling tuple instances from U by Bayes' rule: their densities are mixtures of two classes."""
    positive, negative = scores.sigmoid() / prior, (1 - scores.sigmoid()) / (1 - prior)  # p₊ and p₋ in units of p_U
    in_tuples = inside * (rate * positive + (1 - rate) * negative)
    in_pool = (len(scores) - inside) * (prior * positive + (1 - prior) * negative)
    is_inside = (torch.arange(len(scores)) < inside).double()
    return binary_cross_entropy_with_logits((in_tuples / in_pool).log(), is_inside, reduction="sum")


def plain_loss(scores: torch.Tensor, batch: Batch, progress: float, settings: dict[str, Any]) -> torch.Tensor:
    """The loss of `count` as one would write it down, for autograd: likelihood, warm-up, pseudo-labels."""
    prior, rate, inside = settings["prior"], 1 / 3, batch.tuple_instances
    at_rate = scores[:inside] - (log(prior / (1 - prior)) - log(rate / (1 - rate)))
    observed = CountObservations(batch.sizes, batch.counts, count_noise(settings.get("count_noise", 0.0)))
    loss = -CountKernel(observed).log_prob(at_rate).mean()
    weight, pseudo = max(0.0, 1 - 2 * progress), min(1.0, max(0.0, (progress - 0.2) / 0.3))
    if settings.get("warmup") == "discriminant":
        everyone = torch.cat([at_rate, scores[inside:]])
        loss = loss + weight * binary_cross_entropy_with_logits(everyone, batch.targets)
    else:
        weighting = coefficients(batch.sizes, batch.counts, batch.unlabeled, prior)
        assert weighting is not None
        weights = torch.from_numpy(weighting.plus).float().double(), torch.from_numpy(weighting.minus).float().double()
        loss = loss + weight * clamped(partial_risks(scores, *weights, inside, "sigmoid", "class"), "relu")
    if membership := settings.get("membership"):
        constant = membership_loss(torch.full_like(scores, log(prior / (1 - prior))), inside, prior, rate)
        loss = loss + membership / len(batch.sizes) * (membership_loss(scores, inside, prior, rate) - constant)
    losses = binary_cross_entropy_with_logits(scores[inside:], (TEACHER[inside:] > 0).double(), reduction="none")
    return loss + pseudo * 2 * (losses * (2 * TEACHER[inside:].sigmoid() - 1).abs()).mean()


TEACHER = torch.linspace(-3, 4, 14, dtype=torch.double)


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.45, 0.9])
@pytest.mark.parametrize(
    "settings", [{}, {"count_noise": 0.1}, {"warmup": "discriminant"}, {"membership": 0.7}], ids=str
)
def test_the_slope_of_the_loss_is_that_of_autograd(settings: dict[str, Any], progress: float) -> None:
    settings = {"prior": 0.7, **settings}
    method = methods.get("count")(TrainConfig(**settings), Task([(3, 1, 20)], 30))
    targets = torch.linspace(0.1, 0.9, 14, dtype=torch.double)
    batch = Batch(torch.zeros(14, 1), np.array([3, 3, 3]), np.array([1, 1, 1]), 9, 5, targets)
    clamps = set()
    for seed in range(8):
        scores = 3 * torch.randn(14, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
        scores[9:] += 4 * (-1) ** seed  # U all on one side: a term of the risk falls below zero
        scored, reference = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        prepared = method.prepare(batch, progress)
        if prepared.risk is not None:
            prepared = replace(prepared, risk=tuple(weight.double() for weight in prepared.risk))
        weight = pseudo_label_weight(progress)
        loss, telemetry = method.loss(scored, replace(prepared, pseudo_label_weight=weight, teacher=TEACHER))
        expected = plain_loss(reference, batch, progress, settings)
        loss.backward()
        expected.backward()
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
        torch.testing.assert_close(scored.grad, reference.grad, rtol=1e-10, atol=1e-13)
        clamps |= {tuple((telemetry[1:3] < 0).tolist())}
    assert len(clamps) > 1 or progress > 0.5 or "warmup" in settings  # with and without a term below zero


@pytest.mark.parametrize(
    ("strata", "settings", "weight"),
    [
        ([(30, 9, 20)], {}, 0.0),  # short tuples are learned as they always were
        ([(31, 9, 20)], {}, 0.5),
        ([(3, 1, 10), (100, 40, 10)], {}, 0.5),  # by the mean length
        ([(3, 1, 20)], {"membership": 2.0}, 1.0),
        ([(31, 9, 20)], {"membership": 0.0}, 0.0),
        ([(31, 9, 20)], {"trust": "counts"}, 0.0),  # the pool says nothing where its prior is not trusted
        ([(40, 28, 20)], {}, 0.0),  # nor where the prior is the rate
        ([(40, 27, 20)], {}, 0.0),  # or so near that 800 and 300 instances cannot tell
    ],
)
def test_which_instances_are_of_tuples_matters_where_tuples_are_long(
    strata: list[tuple[int, int, int]], settings: dict[str, Any], weight: float
) -> None:
    method = methods.get("count")(TrainConfig(prior=0.7, **settings), Task(strata, 300))
    batch = Batch(torch.zeros(10, 1), np.array([3, 3]), np.array([1, 1]), 6, 4)
    assert method.prepare(batch, 0.9).membership_weight == weight


@pytest.mark.parametrize("count", [0, 40])
def test_tuples_of_one_class_have_a_finite_membership_loss(count: int) -> None:
    """Also where an instance is scored as certainly of the other class, in single precision."""
    method = methods.get("count")(TrainConfig(prior=0.3, warmup="none"), Task([(40, count, 10**7)], 10**8))
    batch = Batch(torch.zeros(48, 1), np.array([40]), np.array([count]), 40, 8)
    scores = torch.linspace(-60, 60, 48).requires_grad_()
    prepared = method.prepare(batch, 0.9)
    assert prepared.membership_weight > 0
    loss, _ = method.loss(scores, prepared)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_only_unlabeled_instances_have_pseudo_labels() -> None:
    count = methods.get("count")(TrainConfig(prior=0.5), Task([(3, 1, 20)], 30))
    batch = Batch(torch.zeros(6, 1), np.array([3]), np.array([1]), 3, 3)
    prepared = count.prepare(batch, 0.9)
    scores = torch.tensor([0.1, 0.4, -0.3, 1.0, -2.0, 0.2])
    plain, _ = count.loss(scores, prepared)
    teacher = torch.tensor([9.0, 9.0, 9.0, 2.0, -1.0, 3.0])
    total, telemetry = count.loss(scores, replace(prepared, pseudo_label_weight=0.5, teacher=teacher))
    pseudo = 2 * confidence_weighted_loss(scores[3:], teacher[3:])[0]  # every other step, so twice the weight
    assert float(total - plain) == pytest.approx(0.5 * float(pseudo), rel=1e-5)
    assert count.summarise(telemetry[None].double().numpy())["self_training"] == pytest.approx(float(pseudo), rel=1e-6)


def test_without_a_teacher_the_networks_own_scores_are_its_pseudo_labels() -> None:
    count = methods.get("count")(TrainConfig(prior=0.5), Task([(3, 1, 20)], 30))
    prepared = count.prepare(Batch(torch.zeros(6, 1), np.array([3]), np.array([1]), 3, 3), 0.9)
    scores = torch.tensor([0.1, 0.4, -0.3, 1.0, -2.0, 0.2])
    alone, _ = count.loss(scores, replace(prepared, pseudo_label_weight=1.0))
    with_teacher, _ = count.loss(scores, replace(prepared, pseudo_label_weight=1.0, teacher=scores.clone()))
    assert float(alone) == float(with_teacher) != float(count.loss(scores, prepared)[0])


def heldout_scores(prior: float, tuples: int = 300, unlabeled: int = 600, separation: float = 3.0) -> HeldoutScores:
    """Log-odds at the prior of two unit Gaussians, of (3,1) tuples and of a pool."""
    rng = np.random.default_rng(1)
    positive = np.append(np.tile([True, False, False], tuples), rng.random(unlabeled) < prior)
    x = rng.standard_normal(len(positive)) + separation * (positive - 0.5)
    scores = (separation * x + np.log(prior / (1 - prior))).astype(np.float32)
    inside = 3 * tuples
    return HeldoutScores(scores[:inside], np.full(tuples, 3), np.ones(tuples, np.int64), scores[inside:])


def exchanged(heldout: HeldoutScores, centre: float) -> HeldoutScores:
    return HeldoutScores(
        2 * np.float32(centre) - heldout.tuple_scores,
        heldout.sizes,
        heldout.counts,
        2 * np.float32(centre) - heldout.unlabeled_scores,
    )


@pytest.mark.parametrize("warmup", ["risk", "discriminant", "none"])
@pytest.mark.parametrize("prior", [0.1, 0.6, 0.9])
def test_a_network_that_is_clearly_mirrored_is_flipped_after_every_warm_up(warmup: str, prior: float) -> None:
    """A few steps on little data may not be enough for the warm-up to fix the orientation."""
    count = methods.get("count")(TrainConfig(prior=prior, warmup=warmup), Task([(3, 1, 300)], 600))
    right = heldout_scores(prior)
    assert count.centre_if_flipped(right) is None
    assert count.centre_if_flipped(exchanged(right, count.shift)) == count.shift


@pytest.mark.thinned(2)
@pytest.mark.parametrize("warmup", ["risk", "none"])
@pytest.mark.parametrize("prior", [0.6, 1 / 3])
def test_a_network_on_the_plateau_is_not_flipped(warmup: str, prior: float) -> None:
    """Scores without information look mirrored half of the time."""
    count, rng = (
        methods.get("count")(TrainConfig(prior=prior, warmup=warmup), Task([(3, 1, 300)], 600)),
        np.random.default_rng(0),
    )
    for _ in range(20):
        inside, outside = (rng.standard_normal(size).astype(np.float32) for size in (900, 600))
        assert count.centre_if_flipped(HeldoutScores(inside, np.full(300, 3), np.ones(300, np.int64), outside)) is None


def test_at_the_rate_of_the_tuples_a_mirrored_network_is_flipped_by_its_counts() -> None:
    count = methods.get("count")(TrainConfig(prior=1 / 3), Task([(3, 1, 300)], 600))
    right = heldout_scores(1 / 3)
    assert count.centre_if_flipped(right) is None
    assert count.centre_if_flipped(exchanged(right, count.shift)) == count.shift


@pytest.mark.parametrize("prior", [0.2, 0.8])
def test_of_tuples_that_are_half_positive_the_unlabeled_pool_alone_orients_the_network(prior: float) -> None:
    """Counts of n = 2m are as probable under either sign."""
    count = methods.get("count")(TrainConfig(prior=prior, warmup="none"), Task([(2, 1, 300)], 600))
    inside = np.tile(np.array([-1, 1], dtype=np.float32), 300)
    for step in (0.5, -0.5):
        centre = count.centre_if_flipped(
            HeldoutScores(inside, np.full(300, 2), np.ones(300, np.int64), inside + np.float32(step))
        )
        right = (step > 0) == (prior > 0.5)
        assert centre == (None if right else count.shift)
    # Constant scores say nothing, and the network stays as it is.
    nothing = np.zeros(600, dtype=np.float32)
    assert count.centre_if_flipped(HeldoutScores(nothing, np.full(300, 2), np.ones(300, np.int64), nothing)) is None


# When the risk warms up.


@pytest.mark.parametrize(
    ("strata", "unlabeled", "prior", "weight"),
    [
        ([(3, 1, 300)], 600, 0.5, 1.0),  # outside the margin: full weight
        ([(50, 1, 100)], 3000, 0.05, 0.6),  # rare positives: a gap of .03 that so many instances tell
        ([(3, 1, 300)], 600, 0.35, None),  # a gap of .017 that they do not
        ([(3, 1, 30_000)], 60_000, 0.35, 1 / 3),
        ([(3, 1, 5)], 6, 0.5, None),  # too few for any gap
    ],
)
def test_the_risk_warms_up_where_all_data_tell_its_sign(
    strata: list[tuple[int, int, int]], unlabeled: int, prior: float, weight: float | None
) -> None:
    count = methods.get("count")(TrainConfig(prior=prior), Task(strata, unlabeled))
    n, m, _ = strata[0]
    prepared = count.prepare(Batch(torch.zeros(n + 4, 1), np.array([n]), np.array([m]), n, 4), 0.0)
    assert (prepared.risk is not None) == (weight is not None)
    assert prepared.warmup_weight == pytest.approx(weight or 0.0)
    trusting = methods.get("count")(TrainConfig(prior=prior, trust="counts"), Task(strata, unlabeled))
    assert trusting.prepare(Batch(torch.zeros(n + 4, 1), np.array([n]), np.array([m]), n, 4), 0.0).risk is None


@pytest.mark.parametrize("kind", ["range:1", "at-least-one"])
def test_a_network_learns_from_counts_of_which_none_is_known(kind: str) -> None:
    """The risk has no stratum to warm up with then."""
    rng, sizes, true = np.random.default_rng(0), np.full(12, 3), 1 + np.arange(12) % 2
    counts = Recording.of(kind, "exact").record(true, sizes, rng)
    source = ArraySource(np.zeros((36, 2), np.float32), sizes, counts, np.zeros((20, 2), np.float32))
    assert not source.task.rated_strata
    method = methods.get("count")(TrainConfig(prior=0.4), source.task)
    batch = Batch(torch.zeros(40, 2), sizes, counts, 36, 4)
    loss, _ = method.loss(torch.randn(40).requires_grad_(), method.prepare(batch, 0.0))
    assert torch.isfinite(loss)
    assert not method.warms_up
