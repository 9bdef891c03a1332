"""The paper's estimate of the prior: its formulas against other people's code, and its score model's validation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score, roc_curve

from ntmp_cli.errors import DataError
from ntmp_cli.learning.proxy_model import proxy_scores
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.prior.paper_protocol import ProxyScores, paper_estimate, validation_size
from ntmp_cli.tuple_source import ArraySource, HeldoutData


def normal_scores(proxies: int, unlabeled: int, prior: float, seed: int = 0) -> ProxyScores:
    rng = np.random.default_rng(seed)
    positive = rng.random(unlabeled) < prior
    return ProxyScores(rng.normal(2, 1, proxies), rng.normal(np.where(positive, 2, -2), 1))


def silverman(x: np.ndarray) -> float:
    spread = min(x.std(), np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.34)
    return float(0.9 * spread * len(x) ** -0.2)


def test_the_estimate_is_the_greatest_ratio_of_smoothed_monotone_tails() -> None:
    """As the paper writes it, without bins: Gaussian kernels by Silverman's rule, then isotonic regression."""
    scores = normal_scores(900, 3000, 0.4)
    grid = np.quantile(scores.proxy, np.linspace(0.6, 0.99, 200))

    def tail(x: np.ndarray) -> np.ndarray:
        smooth = stats.norm.sf((grid[:, None] - x) / silverman(x)).mean(axis=1)
        monotone = IsotonicRegression(increasing=False).fit_transform(grid, smooth)
        assert np.allclose(monotone, smooth, atol=1e-12)  # a mean of falling functions falls
        return monotone

    expected = float((tail(scores.unlabeled) / tail(scores.proxy)).max())
    found = paper_estimate(scores, np.random.default_rng(0))
    assert found.estimate.value == pytest.approx(min(expected, 1.0), abs=0.01)
    assert found.estimate.ci is not None
    low, high = found.estimate.ci
    assert low <= found.estimate.value <= high
    assert len(found.estimate.resamples) == 1000
    assert high - low == pytest.approx(2 * 1.96 * found.estimate.resamples.std(), rel=0.2)


def test_the_bound_is_youdens_index_with_clopper_pearson_bands() -> None:
    scores = normal_scores(400, 2000, 0.5)
    labels = np.arange(2400) < 400
    fpr, tpr, thresholds = roc_curve(labels, np.concatenate([scores.proxy, scores.unlabeled]))
    best = int(np.argmax(tpr - fpr))
    bound = paper_estimate(scores, np.random.default_rng(0), resamples=10).bound
    assert bound.value == pytest.approx(float((tpr - fpr)[best]), abs=0.01)  # 200 thresholds, not all
    hits, calls = ((x >= thresholds[best]).sum() for x in (scores.proxy, scores.unlabeled))
    of_proxy, of_pool = (
        stats.binomtest(int(k), n).proportion_ci(0.975, "exact") for k, n in ((hits, 400), (calls, 2000))
    )
    assert bound.low == pytest.approx(of_proxy.low - of_pool.high, abs=0.015)
    assert bound.high == pytest.approx(of_proxy.high - of_pool.low, abs=0.015)


@pytest.mark.parametrize(
    ("unlabeled", "size"), [(800, None), (9999, None), (10_000, 5000), (27_000, 5000), (50_000, 5000), (60_000, 6000)]
)
def test_the_split_is_five_thousand_or_a_tenth_of_u(unlabeled: int, size: int | None) -> None:
    assert validation_size(unlabeled) == size


# --- the score model ----------------------------------------------------------------------------------


def source_of(tuples: int, unlabeled: int, prior: float = 0.5, seed: int = 0) -> tuple[ArraySource, ScoredTuples]:
    """Tuples of (3, 1) that were held out, with margins by the first feature; the second feature is noise."""
    rng = np.random.default_rng(seed)

    def features(labels: np.ndarray) -> np.ndarray:
        return np.column_stack([rng.normal(np.where(labels, 2, -2), 1), rng.normal(size=len(labels))]).astype(
            np.float32
        )

    sizes, counts = np.full(tuples, 3), np.ones(tuples, np.int64)
    members = features(np.tile([True, False, False], tuples))
    pool = features(rng.random(unlabeled) < prior)
    heldout = HeldoutData(members, sizes, counts, pool[:7])
    source = ArraySource(members[:30], sizes[:10], counts[:10], pool[7:], heldout)
    return source, ScoredTuples(members[:, 0].astype(float), sizes, counts, pool[:, 0].astype(float))


@pytest.mark.parametrize("linear", [True, False])
def test_a_small_pool_is_scored_in_ten_folds(linear: bool) -> None:
    source, scored = source_of(120, 400)
    found = proxy_scores([scored], source, 0, linear=linear)
    assert (len(found.proxy), len(found.unlabeled), found.folds) == (120, 400, 10)
    labels = np.arange(520) < 120
    assert roc_auc_score(labels, np.concatenate([found.proxy, found.unlabeled])) == pytest.approx(0.75, abs=0.06)
    again = proxy_scores([scored], source, 0, linear=linear)
    assert np.array_equal(found.proxy, again.proxy)


def test_a_large_pool_has_a_validation_split_of_both() -> None:
    source, scored = source_of(600, 12_000)
    found = proxy_scores([scored], source, 0, linear=True)
    assert (len(found.proxy), len(found.unlabeled), found.folds) == (250, 5000, None)


def test_no_instance_is_scored_by_a_model_of_itself() -> None:
    """Proxies that cannot be told from U: a model that had seen them would rank them above it."""
    source, scored = source_of(120, 400)
    rng = np.random.default_rng(1)
    wide = [rng.normal(size=(len(x), 300)).astype(np.float32) for x in (source.tuples, scored.scores, scored.unlabeled)]
    heldout = HeldoutData(wide[1], scored.sizes, scored.counts, wide[2][:7])
    unseen = ArraySource(wide[0], source.sizes, source.counts, wide[2][7:], heldout)
    found = proxy_scores([scored], unseen, 0, linear=True)
    labels = np.arange(520) < 120
    assert roc_auc_score(labels, np.concatenate([found.proxy, found.unlabeled])) == pytest.approx(0.5, abs=0.12)


def test_too_few_proxies_are_refused() -> None:
    source, scored = source_of(120, 400)
    few = ScoredTuples(scored.scores[:9], scored.sizes[:3], scored.counts[:3], scored.unlabeled)
    heldout = HeldoutData(source.tuples[:9], few.sizes, few.counts, source.unlabeled[:5])
    small = ArraySource(source.tuples, source.sizes, source.counts, source.unlabeled, heldout)
    with pytest.raises(DataError, match="3 proxies and 398 unlabeled instances are too few"):
        proxy_scores([few], small, 0, linear=True)
