"""Parameters of laws of noise that are estimated with the classifier: near the truth, or refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from ntmp_cli.counting.laws import NoiseLaw, parse_law
from ntmp_cli.counting.recorded import records, with_law
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.learning.tables.law_estimate import estimate_law, is_auto
from ntmp_cli.prior.estimator import ScoredTuples


def scored(law: str, informative: float, tuples: int = 250, size: int = 10) -> Callable[[NoiseLaw], ScoredTuples]:
    """Tuples whose scores are known log-odds, so that only the law is to be found."""
    rng = np.random.default_rng(5)
    z = informative * rng.normal(size=tuples * size) - 0.5
    true = (rng.random(len(z)) < expit(z)).reshape(tuples, size).sum(axis=1)
    sizes = np.full(tuples, size)
    recorded = np.asarray(parse_law(law).sample(true, sizes, rng), dtype=np.float64)
    counts = records(recorded, recorded, law)
    return lambda other: ScoredTuples(z, sizes, with_law(counts, other), np.empty(0))


@pytest.mark.parametrize(
    ("law", "text", "name", "value"),
    [
        ("gaussian:2", "gaussian:auto", "sd", 2.0),
        ("geometric:0.7", "geometric:auto", "epsilon", 0.7),
        ("detect:0.8,1", "detect:auto,1", "sensitivity", 0.8),
    ],
)
def test_a_parameter_is_found_with_an_interval(law: str, text: str, name: str, value: float) -> None:
    found = estimate_law(text, scored(law, 2.5))
    low, high = found.intervals[name]
    assert low < value < high
    assert low < getattr(found.law, name) < high
    assert type(found.law) is type(parse_law(law))
    # Half way between the ends, as far as a parabola goes: not where the search began.
    middle = np.sqrt(low * high) if name != "sensitivity" else (low + high) / 2
    assert abs(getattr(found.law, name) - middle) < 0.3 * (high - low)


def test_large_tuples_do_not_estimate_a_law(caplog: pytest.LogCaptureFixture) -> None:
    """Their likelihood at different rates is not computed."""
    small = scored("gaussian:2", 2.5, tuples=100)
    n, rng = 2_000, np.random.default_rng(6)

    def beside_large(law: NoiseLaw) -> ScoredTuples:
        few = small(law)
        z, recorded = np.concatenate([few.scores, rng.normal(size=n)]), np.array([900.0])
        counts = np.concatenate([few.counts, with_law(records(recorded, recorded, "gaussian:2"), law)])
        return ScoredTuples(z, np.append(few.sizes, n), counts, np.empty(0))

    found = estimate_law("gaussian:auto", beside_large)
    assert found.intervals["sd"][0] < 2 < found.intervals["sd"][1]
    assert "estimated without tuples of more than 10 members, by 100 others" in caplog.text
    large = scored("gaussian:2", 2.5, tuples=3, size=400)
    with pytest.raises(NotIdentifiableError, match="by tuples of at most 300 members, and there are none"):
        estimate_law("gaussian:auto", large)


def test_a_parameter_that_the_tuples_do_not_tell_is_refused() -> None:
    with pytest.raises(NotIdentifiableError, match="these tuples do not tell its rate"):
        estimate_law("off-by-one:auto", scored("off-by-one:0.3", 0.0, tuples=60))


def test_what_is_not_continuous_is_not_estimated() -> None:
    with pytest.raises(UsageError, match="step is not estimated"):
        estimate_law("round:auto", scored("round:2", 1.0))
    assert is_auto("detect:auto,0.9")
    assert not is_auto("gaussian:2")
    assert not is_auto(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian:auto,auto", "gaussian takes sd, and 2 were given"),
        ("exact:auto", "exact takes no parameter, and 1 were given"),
        ("detect:auto", "detect takes sensitivity, specificity, and 1 were given"),
    ],
)
def test_a_wrong_number_of_parameters_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        estimate_law(text, scored("gaussian:2", 1.0))


def test_the_search_does_not_stop_at_parameters_that_no_law_has() -> None:
    """Sensitivity and specificity must add up to more than 1, and the search tries less."""
    found = estimate_law("detect:auto,0.4", scored("detect:0.75,0.4", 2.5))
    low, high = found.intervals["sensitivity"]
    assert 0.6 <= low < 0.75 < high


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_different_rates_of_tuples_are_not_taken_for_noise(seed: int) -> None:
    """Their features follow the rates, so no random intercept is found; six of six intervals were above the truth."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 17, 120)
    owner = np.repeat(np.arange(120), sizes)
    labels = rng.random(len(owner)) < rng.beta(2, 3, 120)[owner]
    z = np.log(2 / 3) + 2 * (rng.normal(size=len(owner)) + np.where(labels, 1, -1))
    recorded = np.bincount(owner, labels) + rng.normal(0, 0.5, 120)
    counts = records(recorded, recorded, "gaussian:1")
    found = estimate_law("gaussian:auto", lambda law: ScoredTuples(z, sizes, with_law(counts, law), np.empty(0)))
    low, high = found.intervals["sd"]
    assert low < 0.5 < high < 1.5


@pytest.mark.slow
def test_intercepts_of_groups_are_not_taken_for_noise() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(8, 25, 250)
    owner = np.repeat(np.arange(250), sizes)
    z = rng.normal(-0.5, 2.5, len(owner))
    true = np.bincount(owner, rng.random(len(z)) < expit(z + rng.normal(size=250)[owner]))
    recorded = true + rng.normal(0, 1, 250)
    counts = records(recorded, recorded, "gaussian:1")
    found = estimate_law(
        "gaussian:auto", lambda law: ScoredTuples(z, sizes, with_law(counts, law), np.empty(0), spread=1.0)
    )
    low, high = found.intervals["sd"]
    assert low < 1 < high
