"""Clusters are those of scikit-learn, cut by one plane, and named by the proportions that are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.cluster import KMeans

from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import HISTORY
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import FitData, LinearFit, methods
from ntmp_cli.learning.methods import clusters
from ntmp_cli.learning.methods.clusters import first_is_positive, plane_between, positive_shares, two_centres
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")
ALL = ["kmeans", "kmeans++", "cluster-classifier"]
STRATA = [(3, 1, 120), (5, 2, 60)]


class World:
    """Two Gaussians at ±2e₁ in tuples of the strata and in U, in several pieces."""

    def __init__(self, prior: float = 0.7, unlabeled: int = 500, seed: int = 0, shift: float = 2.0) -> None:
        rng = np.random.default_rng(seed)
        pairs = [(n, m) for n, m, k in STRATA for _ in range(k)]
        self.pairs = [pairs[i] for i in rng.permutation(len(pairs))]
        self.labels = [rng.permutation(np.arange(n) < m) for n, m in self.pairs]
        self.outside = rng.permutation(np.arange(unlabeled) < round(prior * unlabeled))
        self.prior, self.shift, self.rng = prior, shift, rng
        self.tuple_x = [self.draw(labels) for labels in self.labels]
        self.unlabeled_x = self.draw(self.outside)

    def draw(self, labels: NDArray[np.bool_]) -> NDArray[np.float32]:
        x = self.rng.standard_normal((len(labels), 3))
        x[:, 0] += np.where(labels, self.shift, -self.shift)
        return (x + 1.0).astype(np.float32)

    def data(self) -> FitData:
        def tuples() -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]]:
            for block in np.array_split(np.arange(len(self.pairs)), 3):
                sizes, counts = np.array([self.pairs[i] for i in block]).T
                yield np.concatenate([self.tuple_x[i] for i in block]), sizes, counts

        def unlabeled() -> Iterator[NDArray[np.float32]]:
            yield from np.array_split(self.unlabeled_x, 2)

        return FitData(tuples, unlabeled)

    @property
    def x(self) -> NDArray[np.float32]:
        return np.concatenate([*self.tuple_x, self.unlabeled_x])

    @property
    def y(self) -> NDArray[np.bool_]:
        return np.concatenate([*self.labels, self.outside])

    def fit(self, name: str, **settings: Any) -> LinearFit:
        config = TrainConfig(**{"method": name, "prior": self.prior, **settings})
        return methods.get(name)(config, Task(STRATA, len(self.unlabeled_x))).fit(self.data())


# --- the plane ----------------------------------------------------------------------------------

vectors = st.lists(st.floats(-50, 50), min_size=3, max_size=3).map(np.array)


@settings(max_examples=150, deadline=None)
@given(first=vectors, second=vectors, x=vectors)
def test_the_sign_of_the_plane_is_the_nearest_centre(first: Any, second: Any, x: Any) -> None:
    weight, bias = plane_between(first, second)
    nearer = np.sum((x - second) ** 2) - np.sum((x - first) ** 2)
    assert x @ weight + bias == pytest.approx(nearer, abs=1e-9)
    assume(abs(nearer) > 1e-6)
    assert (x @ weight + bias > 0) == (np.linalg.norm(x - first) < np.linalg.norm(x - second))


# --- the centres --------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["random", "k-means++"])
def test_the_centres_are_those_of_sklearn(start: str) -> None:
    world = World()
    centres, how = two_centres(world.data(), start, seed=3)
    expected = KMeans(2, init=start, n_init=10, random_state=3).fit(world.x).cluster_centers_
    assert how == "kmeans"
    assert np.allclose(centres, expected, atol=1e-6)
    # ... and a fixed point of Lloyd's rule: every centre is the mean of what is nearest to it.
    nearest = np.linalg.norm(world.x[:, None] - centres[None], axis=2).argmin(axis=1)
    assert np.allclose(centres, [world.x[nearest == i].mean(axis=0) for i in range(2)], atol=1e-2)


def test_data_that_do_not_fit_into_memory_are_clustered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(shift=4.0)
    monkeypatch.setattr(clusters, "IN_MEMORY", 600)
    monkeypatch.setattr(clusters, "BLOCK", 64)
    centres, how = two_centres(world.data(), "k-means++", seed=0)
    assert how == "minibatch-kmeans"
    expected = [world.x[world.y == label].mean(axis=0) for label in (False, True)]
    assert np.allclose(sorted(centres.tolist()), sorted(np.array(expected).tolist()), atol=0.5)
    fit = world.fit("kmeans++")
    assert fit.fields["algorithm"] == "minibatch-kmeans"
    assert ((world.x @ fit.weight + fit.bias > 0) == world.y).mean() > 0.99


@pytest.mark.parametrize("memory", [2**28, 600])
@pytest.mark.parametrize("name", ALL)
def test_constant_data_have_no_two_clusters(name: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "IN_MEMORY", memory)
    world = World()
    world.tuple_x = [np.ones_like(x) for x in world.tuple_x]
    world.unlabeled_x = np.ones_like(world.unlabeled_x)
    with pytest.raises(NotIdentifiableError, match="all instances are equal: there are no two clusters"):
        world.fit(name)


# --- names of clusters --------------------------------------------------------------------------


def test_shares_are_counted_by_stratum_and_last_of_u() -> None:
    world = World()
    weight, bias = np.array([1.0, 0.2, -0.1]), -1.2
    shares = positive_shares(world.data(), weight, bias)
    expected = []
    for n, m in [(3, 1), (5, 2)]:
        members = np.concatenate([x for x, pair in zip(world.tuple_x, world.pairs, strict=True) if pair == (n, m)])
        expected.append((len(members), float(np.mean([row @ weight + bias > 0 for row in members]))))
    expected.append((500, float(np.mean([row @ weight + bias > 0 for row in world.unlabeled_x]))))
    assert shares == [(size, pytest.approx(share)) for size, share in expected]


groups = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=5
)  # fmt: skip


def mismatch(evidence: list[tuple[int, float, float]], *, first: bool) -> float:
    """Mean squared distance of shares and rates if the first cluster is the positive one, or the second."""
    total = sum(size for size, _, _ in evidence)
    return sum(size * ((share if first else 1 - share) - rate) ** 2 for size, share, rate in evidence) / total


@settings(max_examples=300, deadline=None)
@given(given_groups=groups)
def test_clusters_are_named_by_the_least_squared_mismatch(given_groups: list[tuple[int, int, int]]) -> None:
    """U first; the tuples only where U is undecided; an error where both are."""
    whole = [(size, share / 40, rate / 40) for size, share, rate in given_groups]
    shares, rates = [(size, share) for size, share, _ in whole], [rate for _, _, rate in whole]
    for evidence in (whole[-1:], whole[:-1]):
        first, second = mismatch(evidence, first=True), mismatch(evidence, first=False)
        if abs(first - second) > 1e-9:
            assert first_is_positive(shares, rates) == (first < second)
            return
    with pytest.raises(NotIdentifiableError, match="the positive cluster is not identifiable"):
        first_is_positive(shares, rates)


def test_u_decides_even_against_the_tuples() -> None:
    shares = [(900, 0.9), (100, 0.3)]
    assert not first_is_positive(shares, [0.9, 0.8])
    assert first_is_positive(shares, [0.1, 0.2])


def test_tuples_decide_where_u_is_even() -> None:
    assert first_is_positive([(300, 0.4), (100, 0.7)], [1 / 3, 0.5])
    assert not first_is_positive([(300, 0.6), (100, 0.7)], [1 / 3, 0.5])


def test_two_ties_are_an_error_with_exit_code_4() -> None:
    with pytest.raises(NotIdentifiableError) as error:
        first_is_positive([(300, 0.4), (100, 0.7)], [0.5, 0.5])
    assert error.value.exit_code == 4
    assert error.value.hint == "Add tuples of another rate, or an unlabeled pool whose prior is not 0.5."


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("prior", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_positive_cluster_is_found_whatever_sklearn_calls_it(name: str, prior: float, seed: int) -> None:
    world = World(prior, seed=9)
    fit = world.fit(name, seed=seed)
    assert ((world.x @ fit.weight + fit.bias > 0) == world.y).mean() > 0.95
    assert fit.fields["share_unlabeled"] == pytest.approx(prior, abs=0.05)


def test_the_classifier_agrees_with_the_clusters_it_learned_from() -> None:
    world = World()
    lines = [world.fit(name) for name in ("kmeans++", "cluster-classifier")]
    first, second = (world.x @ line.weight + line.bias > 0 for line in lines)
    assert (first == second).mean() > 0.95
    assert not np.allclose(lines[0].weight, lines[1].weight)


# --- the whole way ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_well_separated_classes_are_found_end_to_end(tmp_path: Path, name: str) -> None:
    """k-means cuts midway between the means, where the best rule for even classes does."""
    data = MakeTuplesConfig(dataset="gaussians:dim=2,separation=4,size=1500,test=2000", prior=0.4)
    make_tuples(data, tmp_path / "tuples")
    run = train(TrainConfig(method=name, prior=0.4), tmp_path / "tuples", tmp_path / "run", CPU)
    scores, labels = read_scores(run)["test"], read_labels(run)
    assert ((scores > 0) == labels).mean() > norm.cdf(2) - 0.02
    (record,) = read_json_lines(run, HISTORY)
    assert record["algorithm"] == "kmeans"
    assert record["share_unlabeled"] == pytest.approx(0.4, abs=0.05)
    assert run.summary.model == "linear"
