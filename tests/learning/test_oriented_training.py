"""A training ends on the side of more evidence, says how sure it is, and refuses what cannot be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting import recalibration
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.errors import InterruptedRunError, NotIdentifiableError, UsageError
from ntmp_cli.learning import oriented_training
from ntmp_cli.learning.closed_form import closed_form, discriminant_targets, training_blocks
from ntmp_cli.learning.loop import Environment, State
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.orientation_evidence import OrientationTest
from ntmp_cli.learning.oriented_training import Judgement, mirrored, train_oriented
from ntmp_cli.learning.results import Trained
from ntmp_cli.learning.resuming import UnfitStateError
from ntmp_cli.learning.tables.training import train_table
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.tuple_source import ArraySource, HeldoutData, Task

DIM = 5
LINEAR: dict[str, Any] = {"model": "linear", "lr": 0.05, "epochs": 8, "trace_every": 0}
MLP: dict[str, Any] = {"model": "mlp", "epochs": 8, "trace_every": 0}


def instances(rng: np.random.Generator, y: Any, separation: float = 3.0) -> Any:
    x = rng.standard_normal((len(y), DIM))
    x[:, 0] += separation * (np.asarray(y) - 0.5)
    return x.astype(np.float32)


def sampled(
    n: int,
    m: int,
    tuples: int,
    pool: int,
    prior: float,
    *,
    seed: int = 0,
    heldout: bool = True,
    separation: float = 3.0,
) -> ArraySource:
    """Tuples and a pool whose labels are sampled independently; a tenth of both is held out."""
    rng = np.random.default_rng([5, seed])
    x = instances(rng, np.tile(np.arange(n) < m, tuples), separation)
    u = instances(rng, rng.random(pool) < prior, separation)
    sizes, counts = np.full(tuples, n), np.full(tuples, m)
    if not heldout:
        return ArraySource(x, sizes, counts, u)
    t, p = tuples // 10, pool // 10
    return ArraySource(x[t * n :], sizes[t:], counts[t:], u[p:], HeldoutData(x[: t * n], sizes[:t], counts[:t], u[:p]))


def area(trained: Trained, separation: float = 3.0) -> float:
    y = np.arange(2000) % 2
    return float(roc_auc_score(y, trained.scorer.score(instances(np.random.default_rng(9), y, separation))))


def training(source: ArraySource, settings: dict[str, Any], **more: Any) -> Training:
    return Training(TrainConfig.model_validate({**settings, **more}), source)


# What is learned ----------------------------------------------------------------------------------


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
def test_rare_positives_are_learned(seed):
    """A gap of .03, but so many instances that the risk tells its sign."""
    source = sampled(50, 1, 60, 2000, 0.05, seed=seed, separation=4.0)
    done = train_oriented(training(source, LINEAR, prior=0.05, seed=seed))
    assert area(done, 4.0) > 0.85
    assert done.orientation_z is not None
    assert done.orientation_z > 1


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW)])
def test_where_the_prior_is_the_rate_of_the_tuples_a_network_ends_on_the_right_side(seed):
    source = sampled(3, 1, 300, 300, 1 / 3, seed=seed)
    done = train_oriented(training(source, MLP, prior=1 / 3, seed=seed))
    assert area(done) > 0.9
    assert done.orientation_z is not None
    assert done.orientation_z >= 3


def test_of_half_positive_tuples_the_whole_pool_decides_and_a_flip_is_as_good_as_a_training():
    """The held-out tenth of the pool points to the wrong side: all of it does not."""
    source = sampled(2, 1, 200, 3000, 0.42)
    assert source.heldout_data is not None
    heldout = replace(source.heldout_data, unlabeled=instances(np.random.default_rng(1), np.arange(300) < 170))
    misled = replace(source, heldout_data=heldout)
    done = train_oriented(training(misled, LINEAR, prior=0.42, warmup="none"))
    assert area(done) > 0.95
    assert done.orientation_z is not None
    assert done.orientation_z > 1


@SLOW
def test_a_network_on_the_wrong_side_is_flipped_and_trained_again(monkeypatch):
    """The sign test after every epoch is switched off, so that the first network stays mirrored."""
    source = sampled(3, 1, 300, 300, 1 / 3)
    first = train_scorer(training(source, MLP, prior=1 / 3, seed=2))
    assert isinstance(first.scorer, torch.nn.Module)
    wrong = first if area(first) < 0.5 else flipped(first)
    monkeypatch.setattr(oriented_training, "_first_start", lambda method, training: wrong)
    done = train_oriented(training(source, MLP, prior=1 / 3, seed=2))
    assert area(done) > 0.93
    assert done.scorer is not wrong.scorer
    assert done.orientation_z >= 3


def flipped(trained: Trained) -> Trained:
    trained.scorer.flip(0.0)
    return trained


def test_the_side_of_half_positive_tuples_follows_the_prior():
    source = sampled(2, 1, 200, 2000, 0.3)
    config = TrainConfig.model_validate({**LINEAR, "prior": 0.3, "warmup": "none", "epochs": 4})
    one = train_oriented(Training(config, source))
    other = train_oriented(Training(config.model_copy(update={"prior": 0.7}), source))
    assert area(one) > 0.95
    assert area(other) < 0.05
    for done in (one, other):
        state = done.scorer.state_dict()
        assert all(torch.equal(state[name], value) for name, value in done.outcome.weights.items())


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_prior_on_the_wrong_side_of_the_rate_is_refused_unless_one_of_both_is_trusted():
    source = sampled(3, 1, 300, 600, 0.5)
    with pytest.raises(NotIdentifiableError, match=r"prior 0\.2 .* z = \d+\.\d, .* \d+\.\d nats"):
        train_oriented(training(source, LINEAR, prior=0.2))
    by_counts = train_oriented(training(source, LINEAR, prior=0.2, trust="counts"))
    assert area(by_counts) > 0.95
    by_prior = train_oriented(training(source, LINEAR, prior=0.2, trust="prior"))
    assert by_prior.orientation_z is not None
    # An estimate of the same counts cannot contradict them.
    assert area(train_oriented(replace(training(source, LINEAR, prior=0.2), prior_is_known=False))) > 0.95


def test_an_orientation_that_no_data_tell_is_refused_unless_the_user_tells_it():
    source = sampled(2, 1, 40, 40, 0.48)
    with pytest.raises(NotIdentifiableError, match="which class is positive"):
        train_oriented(training(source, LINEAR, prior=0.48))
    for decided in ({"trust": "prior"}, {"assume": "prior<0.5"}):
        done = train_oriented(training(source, LINEAR, prior=0.48, **decided))
        assert done.orientation_z is not None
        assert done.orientation_z < 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"trust": "counts"}, "counts do not determine the orientation"), ({"assume": "prior>0.5"}, r"the prior is 0\.4")],
)
def test_settings_that_cannot_be_meant_are_refused_by_networks_and_tables(settings, message):
    source = sampled(2, 1, 40, 40, 0.4)
    with pytest.raises(UsageError, match=message):
        train_oriented(training(source, LINEAR, prior=0.4, **settings))
    with pytest.raises(UsageError, match=message):
        train_table(TrainConfig(prior=0.4, model="linear", **settings), source)


# Tables -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_learner_for_tables_says_how_sure_it_is_and_refuses_what_networks_refuse():
    source = sampled(3, 1, 200, 600, 0.5)
    right = train_table(TrainConfig(prior=0.5, model="linear"), source)
    assert right.orientation_z > 3
    assert area(right) > 0.95
    with pytest.raises(NotIdentifiableError, match="contradict each other"):
        train_table(TrainConfig(prior=0.2, model="linear"), source)
    assert area(train_table(TrainConfig(prior=0.2, model="linear", trust="counts"), source)) > 0.95
    assert area(train_table(TrainConfig(prior=0.2, model="linear", trust="prior"), source)) < 0.2


@pytest.mark.parametrize(("assume", "above"), [("prior<0.5", False), ("prior>0.5", True)])
def test_half_positive_rows_of_a_table_need_no_prior_where_its_side_is_assumed(assume, above):
    source = sampled(2, 1, 200, 600, 0.3)
    done = train_table(TrainConfig(model="linear", assume=assume), source)
    assert done.prior is not None
    assert (done.prior.value > 0.5) == above
    assert (area(done) < 0.5) == above  # the pool has fewer positives: those assumed to be more are the others


# Noise of the counts ------------------------------------------------------------------------------


def test_the_closed_form_that_warms_up_knows_the_noise_of_the_counts():
    source = sampled(3, 1, 100, 200, 0.5)
    config = TrainConfig(prior=0.5, warmup="discriminant", count_noise=0.2)
    assert closed_form(config, source)._law() == count_noise(0.2)
    exact, noisy = (discriminant_targets(TrainConfig(prior=0.5, count_noise=p), source)[0] for p in (0.0, 0.2))
    assert np.allclose(
        exact.reshape(-1, 3).sum(axis=1), 1, atol=1e-4
    )  # given the count, its probabilities add up to it
    assert not np.allclose(noisy.reshape(-1, 3).sum(axis=1), 1, atol=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_sign_of_the_closed_form_is_judged_under_the_noise_of_the_counts(noise, monkeypatch):
    """The counts decide it, because the prior is not trusted."""
    source, laws = sampled(3, 1, 100, 200, 0.5), []
    judge = recalibration.looks_mirrored

    def watched(z, observed):
        laws.append(observed.law)
        return judge(z, observed)

    monkeypatch.setattr(recalibration, "looks_mirrored", watched)
    config = TrainConfig(prior=0.5, count_noise=noise)
    closed_form(config, source).discriminant(training_blocks(config, source), trusts_prior=False)
    assert laws == [count_noise(noise)]


# Deciding -----------------------------------------------------------------------------------------


def scores_of(sign: float, tuples: int, seed: int, scale: float = 1.0) -> HeldoutScores:
    rng = np.random.default_rng(seed)
    z = sign * scale * 3 * instances(rng, np.tile([1, 0, 0], tuples))[:, 0]
    return HeldoutScores(z, np.full(tuples, 3), np.ones(tuples, np.int64), np.empty(0))


def test_of_networks_on_both_sides_the_one_with_the_likelier_counts_is_kept():
    test = OrientationTest(Task([(3, 1, 60)], 0), 1 / 3, None, count_noise(0.0))
    wrong, right = scores_of(-1, 60, 0), scores_of(1, 60, 0)
    assert Judgement(test, True, starts=[right]).decision()[:2] == (0, False)
    assert Judgement(test, True, starts=[wrong]).decision()[:2] == (0, True)
    better = Judgement(test, True, starts=[wrong, replace(right, tuple_scores=right.tuple_scores * 1.01)]).decision()
    assert better.evidence.counts > 4.5
    assert better.flipped == (better.kept == 0)
    worse = replace(wrong, tuple_scores=wrong.tuple_scores + np.random.default_rng(2).normal(0, 4, 180))
    assert Judgement(test, True, starts=[worse, right]).decision()[:2] == (1, False)
    assert Judgement(test, True, starts=[right, worse]).decision()[:2] == (0, False)


def test_folds_outvote_a_few_held_out_tuples():
    test = OrientationTest(Task([(3, 1, 60)], 0), 1 / 3, None, count_noise(0.0))
    judgement = Judgement(test, True, starts=[scores_of(1, 8, 0)], folds=[scores_of(-1, 60, 1), scores_of(-1, 60, 2)])
    assert judgement.decision().flipped
    assert mirrored(judgement.folds[0], 0.5).tuple_scores == pytest.approx(1 - judgement.folds[0].tuple_scores)


def test_training_tuples_tell_nothing_of_the_side():
    test = OrientationTest(Task([(3, 1, 60)], 0), 1 / 3, None, count_noise(0.0))
    assert Judgement(test, False, starts=[scores_of(-1, 60, 0)]).decision().evidence.z == 0
    done = train_oriented(training(sampled(3, 1, 150, 150, 0.6, heldout=False), LINEAR, prior=0.6))
    assert area(done) > 0.95
    assert done.orientation_z > 3


# Resuming -----------------------------------------------------------------------------------------


class Memory:
    """Checkpoints in memory."""

    def __init__(self, resume: State | None = None) -> None:
        self.states: list[State] = []
        self.resume = resume

    def save(self, state: State) -> None:
        self.states.append(state)

    def load(self) -> State | None:
        return self.resume

    def due(self) -> bool:
        return False


def interrupted(of: Training, steps: int, resume: State | None = None) -> State:
    memory, stops = Memory(resume), iter([False] * steps + [True] * 2)
    with pytest.raises(InterruptedRunError):
        train_oriented(replace(of, environment=Environment(checkpoints=memory, stop=lambda: next(stops))))
    return memory.states[-1]


@pytest.mark.slow
def test_a_training_that_is_interrupted_in_any_of_its_networks_ends_the_same():
    """First training, two folds, second training: 2 epochs of 16 steps each, half as many in a fold."""
    source = sampled(3, 1, 60, 120, 1 / 3)
    of = training(source, {**LINEAR, "epochs": 2, "lr": 0.01}, prior=1 / 3, assume="prior<0.5")
    steps: list[int] = []
    whole = train_oriented(replace(of, environment=Environment(stop=lambda: bool(steps.append(1)))))
    for at in (3, len(steps) // 2, len(steps) - 3):
        rest = train_oriented(replace(of, environment=Environment(checkpoints=Memory(interrupted(of, at)))))
        assert rest.orientation_z == whole.orientation_z
        assert [r.fields for r in rest.outcome.records] == [r.fields for r in whole.outcome.records]
        assert all(torch.equal(rest.outcome.weights[key], value) for key, value in whole.outcome.weights.items())
    state = interrupted(of, len(steps) - 3)
    assert "first" in state
    for broken in ({}, {**state["first"], "selected_epoch": 7}, {**state["first"], "records": []}):
        resumed = replace(of, environment=Environment(checkpoints=Memory({**state, "first": broken})))
        with pytest.raises(UnfitStateError):
            train_oriented(resumed)


def test_networks_that_tell_the_side_never_see_a_block_that_they_judge(monkeypatch):
    tuples, blocks = 60, np.arange(60) % 7
    source = replace(sampled(3, 1, tuples, 80, 0.5, heldout=False), tuple_blocks=blocks)
    first = train_scorer(training(source, {**LINEAR, "epochs": 1}, prior=0.5))
    # A tuple is known by its first member.
    position = {row.tobytes(): t for t, row in enumerate(source.tuples[::3])}
    seen: list[set[int]] = []

    def noting(what: Training) -> Trained:
        members = [chunk.load()[0][::3] for data in what.data or () for chunk in data.tuple_chunks]
        seen.append({int(blocks[position[row.tobytes()]]) for part in members for row in part})
        return first

    monkeypatch.setattr(oriented_training, "train_scorer", noting)
    oriented_training._folds(training(source, LINEAR, prior=0.5), first)
    assert len(seen) == 2
    assert seen[0] | seen[1] == set(range(7))
    assert not seen[0] & seen[1]


def test_one_block_leaves_the_side_to_the_first_network():
    source = replace(sampled(3, 1, 60, 80, 0.8, heldout=False), tuple_blocks=np.zeros(60, np.int64))
    assert area(train_oriented(training(source, LINEAR, prior=0.8))) > 0.9
