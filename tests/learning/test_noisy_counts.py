"""Counts that are off by one: the rates of their strata, and how strata of wrong rates give themselves away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_answers import accuracy, bayes_accuracy

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import HISTORY
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.recorded import records
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import FitData, methods
from ntmp_cli.learning.methods.ure import counts_behind
from ntmp_cli.learning.noisy_counts import CountScatter, ExpectedCounts, count_scatter, scatter_around_one_count
from ntmp_cli.learning.rated_source import source_for
from ntmp_cli.learning.risk import coefficients
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import ArraySource, Task

CPU = TrainOptions(device="cpu")
# Lengths and true counts of tuples, drawn at random.
ONE_SPEC, TWO_SPECS, ALL_COUNTS = (3, [1]), (3, [1, 2]), (3, [0, 1, 2, 3])


def recorded(design: tuple[int, list[int]], tuples: int, noise: float, rng: np.random.Generator) -> Any:
    n, m = np.full(tuples, design[0]), rng.choice(design[1], tuples)
    return n, m, OffByOne(noise).sample(m, n, rng)


def task_of(sizes: Any, counts: Any, unlabeled: int) -> Task:
    kinds, numbers = np.unique(np.stack([sizes, counts]), axis=1, return_counts=True)
    return Task([(int(n), int(m), int(k)) for n, m, k in zip(*kinds, numbers, strict=True)], unlabeled)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("design", [ONE_SPEC, TWO_SPECS, ALL_COUNTS, (5, [1, 4])])
def test_expected_counts_are_the_mean_true_counts_behind_a_recorded_one(design) -> None:
    sizes, true, counts = recorded(design, 400_000, 0.3, np.random.default_rng(0))
    expected = ExpectedCounts.of(task_of(sizes, counts, 10), 0.3)
    means = expected(sizes, counts)
    for m in np.unique(counts):
        error = 5 * true[counts == m].std() / np.sqrt((counts == m).sum())
        assert means[counts == m][0] == pytest.approx(true[counts == m].mean(), abs=error + 0.02)


def test_the_risk_of_noisy_strata_is_unbiased_with_expected_counts_and_biased_without() -> None:
    """Σ a⁺θ = 1 and Σ a⁺(1−θ) = 0 at the true rates behind the recorded counts: the class means are recovered."""
    sizes, true, counts = recorded(TWO_SPECS, 200_000, 0.3, np.random.default_rng(1))
    unlabeled, prior = 100_000, 0.4
    expected = ExpectedCounts.of(task_of(sizes, counts, unlabeled), 0.3)

    def recovered(assumed: Any) -> tuple[float, float]:
        weights = coefficients(sizes, assumed, unlabeled, prior)
        assert weights is not None
        rates = np.concatenate([np.repeat(true / sizes, sizes), np.full(unlabeled, prior)])
        return float(weights.plus @ rates) / prior, float(weights.plus @ (1 - rates)) / prior

    assert recovered(expected(sizes, counts)) == pytest.approx((1.0, 0.0), abs=0.01)
    assert recovered(counts)[0] < 0.9


def scatter(design: Any, noise: float, seed: int, *, reused: bool = False, tuples: int = 600) -> CountScatter:
    """Tuples and 800 unlabeled instances of two normal classes in 20 dimensions, π = 0.45."""
    rng, prior, unlabeled = np.random.default_rng(seed), 0.45, 800
    sizes, true, counts = recorded(design, tuples, noise, rng)

    def features(labels: Any) -> Any:
        return (rng.normal(size=(len(labels), 20)) + 0.335 * np.where(labels, 1, -1)[:, None]).astype(np.float32)

    labels = np.arange(sizes[0])[None, :] < true[:, None]
    x = features(labels.reshape(-1))
    if reused:  # every instance twice, as in simulated tuples
        for label in (False, True):
            at = np.flatnonzero(labels.reshape(-1) == label)
            x[rng.permutation(at)[: len(at) // 2]] = x[rng.permutation(at)[: len(at) // 2]]
    pool = features(rng.permutation(unlabeled) < prior * unlabeled)
    data = FitData(lambda: iter([(x, sizes, counts)]), lambda: iter([pool]))
    found = count_scatter(data, task_of(sizes, counts, unlabeled), prior)
    assert found is not None
    return found


@pytest.mark.parametrize(("design", "reused"), [(TWO_SPECS, False), (TWO_SPECS, True), (ALL_COUNTS, False)])
def test_exact_counts_look_exact(design, reused) -> None:
    assert not any(scatter(design, 0.0, seed, reused=reused).is_noisy for seed in range(12))


@pytest.mark.parametrize(("design", "noise"), [(ONE_SPEC, 0.1), (ONE_SPEC, 0.3), (TWO_SPECS, 0.3)])
def test_noisy_counts_give_themselves_away(design, noise) -> None:
    found = [scatter(design, noise, seed, tuples=2000) for seed in range(6)]
    assert sum(one.is_noisy for one in found) >= 5
    assert np.median([one.rate for one in found]) == pytest.approx(noise, abs=0.1)


@pytest.mark.parametrize(
    ("strata", "expected"),
    [
        ([(3, 0, 24), (3, 1, 430), (3, 2, 26)], True),
        ([(3, 0, 20), (3, 1, 400), (5, 1, 9), (5, 2, 300), (5, 3, 14)], False),  # (3, 2) should be there
        ([(3, 0, 400), (3, 1, 40)], True),  # nothing lies below 0
        ([(3, 1, 700), (3, 2, 300)], False),  # two specs
        ([(3, 0, 250), (3, 1, 250), (3, 2, 250), (3, 3, 250)], False),
        ([(7, 1, 20), (7, 3, 400), (7, 4, 20)], False),  # two off
    ],
)
def test_scatter_around_one_count_is_recognised(strata, expected) -> None:
    assert scatter_around_one_count(Task(strata, 800)) is expected


def test_little_evidence_is_enough_where_counts_scatter_around_one() -> None:
    found = [scatter(ONE_SPEC, 0.1, seed, tuples=300) for seed in range(8)]
    assert all(one.around_one_count for one in found)
    assert sum(one.is_noisy for one in found) >= 7


def test_one_stratum_tells_nothing() -> None:
    data = FitData(lambda: iter([]), lambda: iter([]))
    assert count_scatter(data, Task([(3, 1, 600)], 800), 0.5) is None


# --- trainings ------------------------------------------------------------------------------------

GAUSSIANS = "gaussians:dim=2,separation=3,size=6000,test=4000"
LINEAR: dict[str, Any] = {"method": "ure", "model": "linear", "lr": 0.1, "weight_decay": 0.0, "trace_every": 0}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("noisy") / "tuples"
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1",), prior=0.5, count_noise=0.3), out)
    return out


def trained(tuples: Path, out: Path, **settings: Any) -> Artifact:
    return train(TrainConfig(**{"prior": 0.5, "epochs": 8, **LINEAR, **settings}), tuples, out, CPU)


def mixing_of(run: Artifact) -> str:
    return str(read_json_lines(run, HISTORY)[-1]["mixing"])


def test_noise_that_is_not_told_is_found_and_strata_are_pooled(noisy, tmp_path, caplog) -> None:
    run = trained(noisy, tmp_path / "run")
    assert mixing_of(run) == "pooled"
    assert "of the counts look off by one" in caplog.text
    assert accuracy(run, 0.5) > bayes_accuracy(0.5) - 0.02


def test_strata_that_were_asked_for_stay_but_are_warned_of(noisy, tmp_path, caplog) -> None:
    run = trained(noisy, tmp_path / "run", mixing="stratified")
    assert mixing_of(run) == "stratified"
    assert "the risk is biased" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_may_be_noisy_are_named_where_the_prior_is_too_near_to_tell(seed, tmp_path, caplog) -> None:
    few = {"num_tuples": 300, "unlabeled_size": 300, "seed": seed}
    noisy = MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1",), prior=0.36, count_noise=0.2, **few)
    make_tuples(noisy, tmp_path / "tuples")
    trained(tmp_path / "tuples", tmp_path / "run", prior=0.36, epochs=1)
    assert "off by one" in caplog.text


@pytest.mark.parametrize("method", ["ure", "uu"])
def test_noise_that_is_told_corrects_the_rates(noisy, tmp_path, caplog, method) -> None:
    run = trained(noisy, tmp_path / "run", method=method, count_noise=0.3)
    assert mixing_of(run) == ("stratified" if method == "ure" else "flat")
    assert "off by one" not in caplog.text
    assert accuracy(run, 0.5) > bayes_accuracy(0.5) - 0.02


def test_exact_counts_of_several_rates_stay_stratified(tmp_path, caplog) -> None:
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1", "3:2"), prior=0.5), tmp_path / "tuples")
    assert mixing_of(trained(tmp_path / "tuples", tmp_path / "run", epochs=1)) == "stratified"
    assert "off by one" not in caplog.text


def test_noise_that_explains_all_scatter_leaves_nothing_to_identify() -> None:
    """Recorded strata 0/3, 1/3 and 2/3 are all of the rate 1/3, which is that of the pool."""
    task = Task([(3, 0, 150), (3, 1, 700), (3, 2, 150)], 900)
    config = TrainConfig(prior=1 / 3, method="ure", count_noise=0.3)
    with pytest.raises(NotIdentifiableError, match="every tuple's rate equals the prior"):
        methods.get("ure")(config, task)
    methods.get("ure")(config.model_copy(update={"prior": 0.5}), task)


def test_strata_that_have_expected_counts_are_not_corrected_again() -> None:
    """Records of off-by-one counts come with their law; the rating of a source leaves means of strata."""
    sizes, _, counts = recorded(TWO_SPECS, 2000, 0.3, np.random.default_rng(7))
    x, pool = np.zeros((len(sizes) * 3, 2), np.float32), np.zeros((50, 2), np.float32)
    plain = ArraySource(x, sizes, counts, pool)
    with_law = ArraySource(x, sizes, records(counts, counts, "off-by-one:0.3"), pool)
    rated = source_for("ure", "rates", with_law)
    behind = ExpectedCounts.of(plain.task, 0.3)
    expected = [(n, pytest.approx(behind.of_stratum(n, m)), k) for n, m, k in plain.task.strata]
    assert list(rated.task.strata) == expected
    assert counts_behind(plain.task, 0.3) is not None
    assert counts_behind(with_law.task, 0.3) is None
    assert counts_behind(rated.task, 0.3) is None
    assert count_scatter(FitData(lambda: iter(()), lambda: iter(())), rated.task, 0.4) is None
