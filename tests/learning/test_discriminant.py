from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import looks_mirrored
from ntmp_cli.learning import moments as moments_module
from ntmp_cli.learning.discriminant import Discriminant, fit
from ntmp_cli.learning.moments import Moments, pooled_covariance, project, second_order, whiten
from ntmp_cli.learning.orders import Blend, blended, choose, combine, separations


@dataclass(frozen=True)
class World:
    """Two Gaussians with one full covariance."""

    minus: np.ndarray
    delta: np.ndarray
    root: np.ndarray

    def instances(self, positive: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((len(positive), len(self.delta))) @ self.root.T
        return (self.minus + positive[:, None] * self.delta + noise).astype(np.float32)

    def tuples(self, sizes, counts, rng: np.random.Generator):
        positive = np.concatenate([rng.permutation(np.arange(n) < m) for n, m in zip(sizes, counts, strict=True)])
        return self.instances(positive, rng), np.asarray(sizes), np.asarray(counts)

    @property
    def covariance(self) -> np.ndarray:
        return self.root @ self.root.T

    def truth(self, prior: float) -> tuple[np.ndarray, float]:
        weight = np.linalg.solve(self.covariance, self.delta)
        return weight, float(logit(prior) - weight @ (self.minus + self.delta / 2))

    def cosine(self, weight: np.ndarray) -> float:
        """With the true discriminant, in the metric of the covariance: the correlation of both scores in a class."""
        true, _ = self.truth(0.5)
        product = true @ self.covariance @ weight
        return product / np.sqrt((true @ self.covariance @ true) * (weight @ self.covariance @ weight))


def world(seed: int = 0, k: int = 8, separation: float = 2.5, offset: float = 0.0) -> World:
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.standard_normal((k, k)))[0] for _ in range(2)]
    root = turns[0] * rng.uniform(0.3, 2, k) @ turns[1]
    delta = root @ rng.standard_normal(k)
    delta *= separation / np.linalg.norm(np.linalg.solve(root, delta))
    return World(offset + rng.standard_normal(k), delta, root)


def gathered(tuples, unlabeled, piece: int = 10**9) -> Moments:
    x, sizes, counts = tuples
    moments = Moments(x.shape[1])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    for a in range(0, len(sizes), piece):
        b = min(a + piece, len(sizes))
        moments.add_tuples(x[ends[a] : ends[b]], sizes[a:b], counts[a:b])
    for a in range(0, len(unlabeled), piece):
        moments.add_unlabeled(unlabeled[a : a + piece])
    return moments


def mixed_strata(rng: np.random.Generator, each: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.repeat([3, 5, 4, 7], each)
    counts = np.concatenate([np.repeat([1, 2, 0], each), rng.binomial(7, 0.4, each)])
    order = rng.permutation(len(sizes))
    return sizes[order], counts[order]


def unlabeled_of(truth: World, rows: int, prior: float, rng: np.random.Generator) -> np.ndarray:
    return truth.instances(rng.random(rows) < prior, rng)


# --- the truth is recovered -------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.2, 0.5, 0.8])
def test_the_true_discriminant_is_found_from_mixed_strata(prior):
    rng = np.random.default_rng(1)
    truth = world()
    tuples = truth.tuples(*mixed_strata(rng), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 10000, prior, rng)), prior)
    weight, bias = truth.truth(prior)
    assert truth.cosine(fitted.weight) > 0.998
    assert fitted.weight @ truth.delta == pytest.approx(weight @ truth.delta, rel=0.06)
    assert fitted.separation == pytest.approx(2.5, rel=0.04)
    # Midway between the classes the true log-odds are those of the prior.
    middle = truth.minus + truth.delta / 2
    assert middle @ fitted.weight + fitted.bias == pytest.approx(logit(prior), abs=0.15)
    assert fitted.oriented_by == "first order"
    assert fitted.first_order_z > 20
    assert fitted.prior_estimate == pytest.approx(prior, abs=0.02)
    fresh = unlabeled_of(truth, 50000, prior, rng)
    assert expit(fitted.scores(fresh)).mean() == pytest.approx(prior, abs=0.01)
    assert expit(fitted.scores(fresh)) == pytest.approx(expit(fresh @ weight + bias), abs=0.12)


def test_scores_are_not_overconfident_when_few_tuples_meet_many_features():
    """The length of a noisy δ is shrunk: its scores explain fresh labels better than larger or smaller ones."""
    rng = np.random.default_rng(2)
    truth = world(k=60, separation=2)
    tuples = truth.tuples(np.full(700, 3), np.full(700, 1), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 700, 0.5, rng)), 0.5)
    positive = rng.random(20000) < 0.5
    z = fitted.scores(truth.instances(positive, rng))
    loss = [np.logaddexp(0, -scale * z * np.where(positive, 1, -1)).mean() for scale in (0.6, 1, 1.6)]
    assert loss[1] == min(loss)


def test_many_small_strata_still_show_delta():
    """Centring hundreds of strata by their means takes much of the signal, unless it is corrected."""
    rng = np.random.default_rng(3)
    truth = world(k=3, separation=3)
    sizes = np.tile(np.arange(8, 48), 40)
    counts = np.array([rng.integers(2, n - 1) for n in sizes])
    white = whiten(gathered(truth.tuples(sizes, counts, rng), unlabeled_of(truth, 100, 0.5, rng)), 0.5, 3)
    assert len(white.sizes) > 600
    m, _ = second_order(white)
    delta = truth.delta @ white.basis
    assert m == pytest.approx(np.outer(delta, delta), abs=0.25 * (delta @ delta))
    uncorrected = -white.products / white.information
    assert np.trace(uncorrected) - delta @ delta > 3 * abs(np.trace(m) - delta @ delta)


def test_unlabeled_data_are_not_needed():
    rng = np.random.default_rng(4)
    truth = world()
    x, sizes, counts = truth.tuples(*mixed_strata(rng), rng)
    fitted = fit(gathered((x, sizes, counts), x[:0]), 0.3)
    assert truth.cosine(fitted.weight) > 0.995
    assert fitted.prior_estimate is None
    fresh = unlabeled_of(truth, 50000, 0.3, rng)
    assert expit(fitted.scores(fresh)).mean() == pytest.approx(0.3, abs=0.01)


# --- one order alone ----------------------------------------------------------------------------


def test_pure_tuples_teach_by_the_first_order_alone():
    rng = np.random.default_rng(5)
    truth = world()
    tuples = truth.tuples(np.full(4000, 4), np.repeat([0, 4], 2000), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 8000, 0.4, rng)), 0.4)
    assert (fitted.second_order_weight, fitted.prior_estimate) == (0, None)
    assert fitted.first_order_weight > 0
    assert truth.cosine(fitted.weight) > 0.998
    assert fitted.oriented_by == "first order"


@pytest.mark.parametrize("seed", [6, 7, 8])
def test_at_equal_rates_the_second_order_finds_delta_up_to_its_sign(seed):
    rng = np.random.default_rng(seed)
    truth = world(seed)
    tuples = truth.tuples(np.full(8000, 4), np.full(8000, 1), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 8000, 0.25, rng)), 0.25)
    assert (fitted.first_order_weight, fitted.first_order_z) == (0, 0)
    assert not fitted.oriented
    assert abs(truth.cosine(fitted.weight)) > 0.99
    # The likelihood of the counts decides the orientation, as n ≠ 2m, whichever sign it starts from.
    fresh = unlabeled_of(truth, 50000, 0.25, rng)
    weight, bias = truth.truth(0.25)
    for side in (fitted, fitted.flipped()):
        z = side.scores(tuples[0]).astype(np.float32)
        decided = side.decided(mirrored=looks_mirrored(z, CountObservations(tuples[1], tuples[2])))
        assert decided.oriented_by == "likelihood"
        assert truth.cosine(decided.weight) > 0.99
        assert expit(decided.scores(fresh)).mean() == pytest.approx(0.25, abs=0.01)
        assert decided.scores(fresh).mean() == pytest.approx((fresh @ weight + bias).mean(), abs=0.3)


def test_flipping_twice_changes_nothing_and_once_the_side():
    rng = np.random.default_rng(9)
    truth = world()
    fitted = fit(gathered(truth.tuples(*mixed_strata(rng, 300), rng), unlabeled_of(truth, 900, 0.3, rng)), 0.3)
    once, twice = fitted.flipped(), fitted.flipped().flipped()
    assert np.array_equal(twice.weight, fitted.weight)
    assert twice.bias == pytest.approx(fitted.bias, rel=1e-12)
    assert twice.prior_estimate == pytest.approx(fitted.prior_estimate)
    assert np.array_equal(once.weight, -fitted.weight)
    assert once.first_order_z == -fitted.first_order_z
    assert once.prior_estimate == pytest.approx(2 * fitted.tuple_rate - fitted.prior_estimate)


def test_exchanging_the_classes_in_the_data_negates_the_scores():
    """m → n−m and π → 1−π. With n = 2m and π = ½ that changes no data, and is what flipping does."""
    rng = np.random.default_rng(10)
    truth = world()
    unlabeled = unlabeled_of(truth, 3000, 0.5, rng)
    fitted = fit(gathered(truth.tuples(np.full(3000, 4), np.full(3000, 2), rng), unlabeled), 0.5)
    assert fitted.flipped().scores(unlabeled) == pytest.approx(-fitted.scores(unlabeled), abs=1e-9)
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 500), rng)
    plain = fit(gathered((x, sizes, counts), unlabeled), 0.3)
    exchanged = fit(gathered((x, sizes, sizes - counts), unlabeled), 0.7)
    assert exchanged.scores(unlabeled) == pytest.approx(-plain.scores(unlabeled), abs=1e-3)


def test_a_weak_first_order_does_not_claim_to_know_the_side():
    rng = np.random.default_rng(11)
    truth = world()
    tuples = truth.tuples(np.full(2000, 2), np.full(2000, 1), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 2000, 0.5, rng)), 0.5 + 1e-6)
    assert fitted.first_order_weight > 0
    assert not fitted.oriented
    assert abs(truth.cosine(fitted.weight)) > 0.97


@pytest.mark.parametrize("second", [1e-3, 1e3])
def test_the_more_certain_order_wins(second):
    rng = np.random.default_rng(12)
    by_first, by_second = rng.standard_normal((2, 5))
    delta = combine(by_first, 1.0, np.outer(by_second, by_second), second)
    sign = np.sign(by_first @ by_second)
    expected = sign * by_second if second < 1 else by_first
    assert delta == pytest.approx(expected, abs=0.02)


def test_the_combination_is_the_least_of_its_objective():
    rng = np.random.default_rng(13)
    first, m = rng.standard_normal(4), rng.standard_normal((4, 4))
    m = m + m.T

    def objective(delta):
        return ((delta - first) ** 2).sum() / 0.6 + ((m - np.outer(delta, delta)) ** 2).sum() / 1.4

    best = combine(first, 0.3, m, 0.7)
    far, near = rng.standard_normal((20000, 4)) * 2, best + rng.standard_normal((500, 4)) * 1e-3
    assert min(map(objective, [*far, *near])) > objective(best)


# --- the sums are what they say -----------------------------------------------------------------


def pairs_by_hand(x, sizes, counts):
    """Σ c Σ_{i≠j} (h_i−μ)(h_j−μ)ᵀ and Σ pairs c² by explicit loops, stratum by stratum."""
    ends = np.cumsum(sizes)
    products, information = np.zeros((x.shape[1],) * 2), 0.0
    for n, m in sorted(set(zip(sizes.tolist(), counts.tolist(), strict=True))):
        members = [x[e - n : e].astype(float) for e, a, b in zip(ends, sizes, counts, strict=True) if (a, b) == (n, m)]
        if n == 1:
            continue
        mean, c = np.concatenate(members).mean(axis=0), (m / n) * (1 - m / n) / (n - 1)
        for h in members:
            for i in range(n):
                for j in range(n):
                    if i != j:
                        products += c * np.outer(h[i] - mean, h[j] - mean)
                        information += c**2
    return products, information


def small_data(seed: int = 14):
    rng = np.random.default_rng(seed)
    truth = world(k=4)
    sizes = np.array([3, 5, 1, 4, 3, 2, 5, 3, 4, 2, 7, 1, 3, 7])
    counts = np.array([1, 2, 1, 0, 1, 1, 2, 2, 4, 1, 3, 0, 1, 3])
    return truth.tuples(sizes, counts, rng), unlabeled_of(truth, 25, 0.4, rng)


@pytest.mark.parametrize("piece", [100, 1, 4])
def test_products_are_those_of_all_pairs(piece):
    (x, sizes, counts), unlabeled = small_data()
    white = whiten(gathered((x, sizes, counts), unlabeled, piece), 0.4, 4)
    products, information = pairs_by_hand(x, sizes, counts)
    assert white.products == pytest.approx(white.basis.T @ products @ white.basis, abs=1e-4)
    assert white.information == pytest.approx(information)
    assert np.abs(white.products).max() > 0.1


def test_whitened_groups_have_unit_covariance():
    (x, sizes, counts), unlabeled = small_data()
    white = whiten(gathered((x, sizes, counts), unlabeled), 0.4, 4)
    kinds = np.repeat(sizes * 100 + counts, sizes)
    groups = [x[kinds == kind].astype(float) for kind in np.unique(kinds)] + [unlabeled.astype(float)]
    within = sum((group - group.mean(axis=0)).T @ (group - group.mean(axis=0)) for group in groups)
    within /= sum(map(len, groups)) - len(groups)
    assert white.basis.T @ within @ white.basis == pytest.approx(np.eye(4), abs=1e-4)


def test_the_estimate_of_delta_delta_has_the_variance_it_states():
    """Pure noise, δ = 0: elements of M vary by V/2 off the diagonal and by V on it."""
    rng = np.random.default_rng(15)
    sizes, counts = np.tile([3, 6], 60), np.tile([1, 3], 60)
    estimates = []
    for _ in range(300):
        x = rng.standard_normal((sizes.sum(), 3)).astype(np.float32)
        unlabeled = rng.standard_normal((5000, 3)).astype(np.float32)
        m, variance = second_order(whiten(gathered((x, sizes, counts), unlabeled), 0.4, 3))
        # Principal components of round data come in any order; the variances do not depend on it.
        estimates.append(m)
    spread = np.var(estimates, axis=0)
    assert np.mean(np.diag(spread)) == pytest.approx(variance, rel=0.2)
    assert np.mean(spread[np.triu_indices(3, 1)]) == pytest.approx(variance / 2, rel=0.2)
    assert np.mean(estimates, axis=0) == pytest.approx(np.zeros((3, 3)), abs=4 * np.sqrt(variance / 300))


def same(a: Discriminant, b: Discriminant, x: np.ndarray, tolerance: float = 1e-3) -> bool:
    return a.scores(x) == pytest.approx(b.scores(x), abs=tolerance)


def test_pieces_and_blocks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(16)
    truth = world(offset=3)
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 100), rng)
    unlabeled = unlabeled_of(truth, 500, 0.3, rng)
    whole = fit(gathered((x, sizes, counts), unlabeled), 0.3)
    assert same(whole, fit(gathered((x, sizes, counts), unlabeled, piece=37), 0.3), unlabeled)
    backwards = Moments(x.shape[1])
    backwards.add_unlabeled(unlabeled[::-1])
    cut, end = 150, int(sizes[:150].sum())
    backwards.add_tuples(x[end:], sizes[cut:], counts[cut:])
    backwards.add_tuples(x[:end], sizes[:cut], counts[:cut])
    assert same(whole, fit(backwards, 0.3), unlabeled)
    monkeypatch.setattr(moments_module, "BLOCK_ROWS", 5)  # smaller than some tuples
    assert same(whole, fit(gathered((x, sizes, counts), unlabeled), 0.3), unlabeled)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_order_inside_tuples_and_of_tuples_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    truth = world(k=3)
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 40), rng)
    unlabeled = unlabeled_of(truth, 100, 0.3, rng)
    members = [
        tuple_members[rng.permutation(len(tuple_members))] for tuple_members in np.split(x, np.cumsum(sizes)[:-1])
    ]
    order = rng.permutation(len(members))
    shuffled = np.concatenate([members[t] for t in order]), sizes[order], counts[order]
    before, after = fit(gathered((x, sizes, counts), unlabeled), 0.3), fit(gathered(shuffled, unlabeled), 0.3)
    assert same(before, after, unlabeled, tolerance=1e-2)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_an_affine_change_of_features_leaves_scores_as_they_are(seed):
    rng = np.random.default_rng(seed)
    truth = world(k=3)
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 40), rng)
    unlabeled = unlabeled_of(truth, 100, 0.3, rng)
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    change, shift = turn * rng.uniform(0.5, 2, 3), rng.uniform(-20, 20, 3)

    def moved(h):
        return (h @ change + shift).astype(np.float32)

    before = fit(gathered((x, sizes, counts), unlabeled), 0.3)
    after = fit(gathered((moved(x), sizes, counts), moved(unlabeled)), 0.3)
    assert before.scores(unlabeled) == pytest.approx(after.scores(moved(unlabeled)), abs=2e-2)


# --- awkward data -------------------------------------------------------------------------------


def test_constant_features_change_nothing_and_repeated_ones_do_no_harm():
    rng = np.random.default_rng(17)
    truth = world()
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 800), rng)
    unlabeled = unlabeled_of(truth, 2000, 0.3, rng)

    def padded(h):
        return np.hstack([h, np.full((len(h), 3), 7, np.float32), h[:, :1], np.zeros((len(h), 1), np.float32)])

    plain = fit(gathered((x, sizes, counts), unlabeled), 0.3)
    fitted = fit(gathered((padded(x), sizes, counts), padded(unlabeled)), 0.3)
    assert fitted.components == plain.components == 8
    assert fitted.scores(padded(unlabeled)) == pytest.approx(plain.scores(unlabeled), abs=1e-2)


def test_more_features_than_instances_give_finite_scores():
    rng = np.random.default_rng(18)
    truth = world(k=300, separation=12)
    x, sizes, counts = truth.tuples(np.full(25, 3), np.full(25, 1), rng)
    unlabeled = unlabeled_of(truth, 30, 0.6, rng)
    fitted = fit(gathered((x, sizes, counts), unlabeled), 0.6, components=200)
    assert np.isfinite(fitted.scores(unlabeled)).all()
    assert np.ptp(fitted.scores(unlabeled)) > 0


def test_a_large_offset_loses_nothing():
    rng = np.random.default_rng(19)
    truth = world(offset=1000)
    tuples = truth.tuples(*mixed_strata(rng), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 10000, 0.3, rng), piece=997), 0.3)
    assert truth.cosine(fitted.weight) > 0.998
    fresh = unlabeled_of(truth, 50000, 0.3, rng)
    assert expit(fitted.scores(fresh)).mean() == pytest.approx(0.3, abs=0.01)


def test_perfectly_separated_classes_give_finite_scores_on_the_right_sides():
    rng = np.random.default_rng(20)
    truth = world(separation=60)
    tuples = truth.tuples(*mixed_strata(rng, 300), rng)
    fitted = fit(gathered(tuples, unlabeled_of(truth, 1000, 0.3, rng)), 0.3)
    positive = rng.random(2000) < 0.3
    assert ((fitted.scores(truth.instances(positive, rng)) > 0) == positive).all()


def test_very_many_features_are_sketched_and_the_scorer_stays_linear(monkeypatch):
    monkeypatch.setattr(moments_module, "MOST_FEATURES", 200)
    monkeypatch.setattr(moments_module, "SKETCH", 64)
    rng = np.random.default_rng(21)
    truth = world()
    spread = rng.standard_normal((8, 500)).astype(np.float32)
    x, sizes, counts = truth.tuples(*mixed_strata(rng, 1500), rng)
    unlabeled = unlabeled_of(truth, 5000, 0.3, rng)
    moments = gathered((x @ spread + 5, sizes, counts), unlabeled @ spread + 5)
    assert moments.squares.shape == (64, 64)
    fitted = fit(moments, 0.3)
    assert fitted.weight.shape == (500,)
    # 8 directions survive in 64 sums, so nothing is lost.
    plain = fit(gathered((x, sizes, counts), unlabeled), 0.3)
    assert fitted.scores(unlabeled @ spread + 5) == pytest.approx(plain.scores(unlabeled), abs=0.05)


def test_few_tuples_are_given_few_components():
    rng = np.random.default_rng(22)
    truth = world(k=120)
    many = truth.tuples(np.full(6000, 3), np.full(6000, 1), rng)
    few = many[0][:600], many[1][:200], many[2][:200]
    unlabeled = unlabeled_of(truth, 300, 0.5, rng)
    assert fit(gathered(many, unlabeled), 0.5).components == 100
    assert 5 <= fit(gathered(few, unlabeled), 0.5).components < 20
    assert fit(gathered(many, unlabeled), 0.5, components=7).components == 7


# --- refusals -----------------------------------------------------------------------------------


def test_what_identifies_nothing_is_refused():
    x = np.random.default_rng(23).standard_normal((40, 3)).astype(np.float32)
    pure = gathered((x, np.full(10, 4), np.full(10, 4)), x[:0])
    with pytest.raises(ValueError, match="the classes are not identifiable"):
        fit(pure, 0.5)
    only_unlabeled = Moments(3)
    only_unlabeled.add_unlabeled(x)
    with pytest.raises(ValueError, match="there are no tuples"):
        fit(only_unlabeled, 0.5)
    constant = np.ones_like(x)
    with pytest.raises(ValueError, match="all instances are the same"):
        fit(gathered((constant, np.full(10, 4), np.full(10, 1)), constant), 0.5)


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_a_prior_at_the_edge_is_refused(prior):
    tuples, unlabeled = small_data()
    with pytest.raises(ValueError, match="between 0 and 1"):
        fit(gathered(tuples, unlabeled), prior)


@pytest.mark.parametrize(
    ("rows", "sizes", "counts", "message"),
    [
        (5, [3], [1], "expected instances of shape"),
        (3, [3], [4], "every tuple needs"),
        (3, [3], [-1], "every tuple needs"),
        (3, [3, 0], [1, 0], "every tuple needs"),
        (3, [3], [1, 1], "every tuple needs"),
    ],
)
def test_tuples_that_do_not_fit_are_refused(rows, sizes, counts, message):
    with pytest.raises(ValueError, match=message):
        Moments(2).add_tuples(np.zeros((rows, 2), np.float32), np.array(sizes), np.array(counts))


@pytest.mark.parametrize("shape", [(3, 1), (3, 4), (3,), (3, 2, 1)])
def test_unlabeled_instances_that_do_not_fit_are_refused(shape):
    """One feature would be broadcast to all of them."""
    with pytest.raises(ValueError, match="expected instances of shape"):
        Moments(2).add_unlabeled(np.zeros(shape, np.float32))


# --- many dimensions: held-out moments choose ---------------------------------------------------------


def flat_world(k: int, separation: float = 2.0) -> World:
    """Features whose covariance over both classes is the identity, as whitened features have it: δ is no component."""
    rng = np.random.default_rng(k)
    direction = rng.standard_normal(k)
    direction /= np.linalg.norm(direction)
    length = separation / np.sqrt(1 + separation**2 / 4)
    root = np.eye(k) - (1 - np.sqrt(1 - length**2 / 4)) * np.outer(direction, direction)
    return World(np.zeros(k), length * direction, root)


def moments_of(truth: World, tuples: int, pair: tuple[int, int], prior: float, rng: np.random.Generator) -> Moments:
    sizes, counts = np.full(tuples, pair[0]), np.full(tuples, pair[1])
    return gathered(truth.tuples(sizes, counts, rng), unlabeled_of(truth, 2 * tuples, prior, rng))


def cosine_of(truth: World, moments: Moments, prior: float, blend: Blend) -> float:
    white = whiten(moments, prior, blend.components)
    return abs(truth.cosine(white.basis @ blended(white, blend)))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("k", [10, 120, 400])
@pytest.mark.parametrize(("pair", "prior"), [((3, 1), 0.8), ((5, 2), 0.45)])
def test_the_choice_is_not_worse_than_the_better_order(k, pair, prior):
    """By AUC, Φ(d cos/√2): not by more than .01."""
    rng = np.random.default_rng(k + pair[0])
    truth = flat_world(k)
    train, heldout = (moments_of(truth, tuples, pair, prior, rng) for tuples in (4000, 400))
    chosen = choose(train, heldout, prior, Blend(min(100, k)))
    auc = {
        blend: norm.cdf(2 * cosine_of(truth, train, prior, blend) / np.sqrt(2))
        for blend in (chosen, *(Blend(r, *order) for r in (min(100, k), k) for order in ((1.0, 0.0), (0.0, 1.0))))
    }
    assert auc[chosen] > max(auc.values()) - 0.01


@pytest.mark.slow
def test_features_of_equal_variance_need_all_components():
    rng = np.random.default_rng(31)
    truth = flat_world(400)
    train, heldout = (moments_of(truth, tuples, (3, 1), 0.8, rng) for tuples in (6000, 600))
    plain, judged = fit(train, 0.8), fit(train, 0.8, heldout=heldout)
    assert plain.components == 100
    assert judged.components == 400
    assert truth.cosine(judged.weight) > truth.cosine(plain.weight) + 0.2
    assert judged.oriented_by == "first order"
    fresh = unlabeled_of(truth, 20000, 0.8, rng)
    assert expit(judged.scores(fresh)).mean() == pytest.approx(0.8, abs=0.03)


def test_where_nothing_is_clearly_better_the_usual_blend_stays_to_the_last_bit():
    rng = np.random.default_rng(32)
    truth = world()
    tuples, unlabeled = truth.tuples(*mixed_strata(rng, 500), rng), unlabeled_of(truth, 2000, 0.3, rng)
    held = gathered(truth.tuples(*mixed_strata(rng, 50), rng), unlabeled_of(truth, 200, 0.3, rng))
    train = gathered(tuples, unlabeled)
    assert choose(train, held, 0.3, Blend(8)) == Blend(8)
    assert np.array_equal(fit(train, 0.3).weight, fit(train, 0.3, heldout=held).weight)


def test_held_out_moments_estimate_the_separation_along_any_direction():
    rng = np.random.default_rng(33)
    truth = world()
    held = gathered(truth.tuples(*mixed_strata(rng, 4000), rng), unlabeled_of(truth, 20000, 0.3, rng))
    along = rng.standard_normal((8, 6))
    along[:, 0] = truth.truth(0.3)[0]
    along /= np.sqrt(np.einsum("ki,ki->i", along, pooled_covariance(held) @ along))
    distance, variance = separations(project(held, 0.3, along))
    assert distance == pytest.approx(np.abs(truth.delta @ along), abs=0.08)
    assert distance.argmax() == 0
    assert (variance > 0).all()


def test_held_out_tuples_without_pairs_choose_nothing():
    rng = np.random.default_rng(34)
    truth = world()
    train = gathered(truth.tuples(*mixed_strata(rng, 300), rng), unlabeled_of(truth, 900, 0.3, rng))
    held = Moments(8)
    assert choose(train, held, 0.3, Blend(8)) == Blend(8)
