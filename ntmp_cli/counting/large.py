"""The law of the count of a large tuple, in time and memory linear in its members (Eq. 108).

The labels are moved by a common e^s in their odds until the count has its mean where it is most probable given the
observation (an exponential tilt, exact): with p_i = σ(z_i + s), C(s) = Σ log(1 + e^(z_i+s)) − log(1 + e^(z_i)),

    P(k | z) = e^(C(s) − s·k) P_s(k)        P_s(k) = 1/N Σ_q φ(θ_q) e^(−iθ_q k)        φ(θ) = Π (1 − p_i + p_i e^(iθ))

with θ_q = 2πq/N. The sum over q is exact except for P_s at distance N or more (tails below `NEGLIGIBLE`, by Bernstein's
inequality), and |φ(θ)| ≤ exp(−(1 − cos θ) Σ p_i(1 − p_i)) leaves a few dozen nodes. Both bounds are known in advance:
the log-probability is exact to about 1e-10, and tests hold it to 1e-8. The posterior of a member has one factor of φ
replaced by p_i e^(iθ).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ntmp_cli.counting.laws import Floats, Ints

# Tuples with more members than this use this module; for smaller ones the tables of `poisson_binomial` are fast.
LARGE = 300
# Probabilities below e^-28 ≈ 7e-13 do not matter beside one.
NEGLIGIBLE = 28.0
# Newton steps for the tilt, and repetitions of the search for the mode given the observation.
TILT_STEPS, MODE_STEPS = 80, 12
# Members and nodes that are held in memory at a time.
CELLS = 2**15


def large_tuple(z: Floats, likelihood: Floats, *, with_posterior: bool = True) -> tuple[float, Floats]:
    """log P(observation | z) of one tuple and the posteriors of its members; `likelihood` is L(k), k = 0 … n."""
    support = np.flatnonzero(likelihood > 0)
    if not len(support):
        return -np.inf, np.full(len(z), np.nan)
    with np.errstate(divide="ignore"):
        log_likelihood = np.log(likelihood)
    centre, (s, normaliser, variance) = _tilt_to_mode(z, log_likelihood, support)
    p = expit(z + s)
    reach = int(np.ceil(_tail(variance)))
    k = support[(support >= centre - reach) & (support <= centre + reach)]
    # The likelihood in the weights of the tilt; its largest value is factored out.
    logs = log_likelihood[k] - s * (k - centre)
    top = float(logs.max())
    weights = np.exp(logs - top)
    # Counts that are a period apart are confused, but at most one of them has a probability that matters.
    period = reach + int(np.abs(k - centre).max()) + 1
    theta, share = _nodes(variance, period + 1 - period % 2)
    # Σ_k a_k e^(−iθ(k − centre)): counts are measured from the centre, so that phases stay small.
    seen = np.einsum("qk,k->q", np.exp(-1j * np.outer(theta, k - centre)), weights) * share
    probability, posterior = _sums(p, theta, seen, centre, with_posterior)
    return normaliser + top + float(np.log(max(probability, np.finfo(float).tiny))), posterior


def _sums(p: Floats, theta: Floats, seen: Floats, centre: int, with_posterior: bool) -> tuple[float, Floats]:
    """P_s(observation) and P_s(observation, y_i = 1), summed over blocks of nodes."""
    total, joint = 0.0, np.zeros(len(p))
    step = max(1, CELLS // len(p))
    for first in range(0, len(theta), step):
        block = slice(first, first + step)
        turn = np.exp(1j * theta[block])[:, None]
        factors = p * (turn - 1)
        factors += 1
        # In the order of the members: a product of numbers near the unit circle neither grows nor vanishes.
        values = factors.prod(axis=1) * np.exp(-1j * theta[block] * centre) * seen[block]
        total += float(values.real.sum())
        if with_posterior:
            np.reciprocal(factors, out=factors)
            # The matrices are small: one thread is faster than several.
            joint += np.einsum("q,qi->i", values * turn[:, 0], factors).real
    posterior: Floats = np.clip(p * joint / total, 0.0, 1.0) if with_posterior else joint
    return total, posterior


def _nodes(variance: float, period: int) -> tuple[Floats, Floats]:
    """Nodes θ_q ≥ 0 at which |φ| matters, and their weights. The term of −θ is the complex conjugate of that of θ.

    The period is odd, so that θ = π is not a node: there φ vanishes if a member has p = ½.
    """
    q = np.arange(period // 2 + 1)
    theta = 2 * np.pi * q / period
    matters = (1 - np.cos(theta)) * variance < NEGLIGIBLE
    share = np.where(q == 0, 1.0, 2.0) / period
    return theta[matters], share[matters]


def _tail(variance: float) -> float:
    """The distance t from the mean beyond which P_s is negligible: exp(−t²/(2(σ² + t/3))) (Bernstein)."""
    a = NEGLIGIBLE / 3
    return a + float(np.sqrt(a**2 + 2 * NEGLIGIBLE * variance))


class _Tilt(NamedTuple):
    """The tilt s to a count k, C(s) − s·k, and the variance of the tilted count."""

    s: float
    normaliser: float
    variance: float

    @classmethod
    def to(cls, z: Floats, k: int) -> _Tilt:
        s = _tilt(z, k)
        p = expit(z + s)
        normaliser = float((np.logaddexp(0, z + s) - np.logaddexp(0, z)).sum()) - s * k
        return cls(s, normaliser, float((p * (1 - p)).sum()))

    @property
    def log_prob(self) -> float:
        """log P(k | z) to first order."""
        return self.normaliser - 0.5 * float(np.log(self.variance + 0.1))


def _tilt_to_mode(z: Floats, log_likelihood: Floats, support: Ints) -> tuple[int, _Tilt]:
    """The likeliest count given the observation, and the tilt whose mean it is."""
    mean = float(expit(z).sum())
    candidates = {int(support[0]), int(support[-1]), int(np.argmax(log_likelihood))}
    candidates.add(int(support[np.argmin(np.abs(support - mean))]))
    tilts = {k: _Tilt.to(z, k) for k in candidates}

    def value(k: int) -> float:
        return float(log_likelihood[k]) + tilts[k].log_prob

    centre = max(tilts, key=value)
    for _ in range(MODE_STEPS if len(support) > 1 else 0):
        s, _, variance = tilts[centre]
        # log P near the centre is a parabola of this slope and width.
        local = log_likelihood[support] - s * (support - centre) - (support - centre) ** 2 / (2 * variance + 0.2)
        proposed = int(support[np.argmax(local)])
        if proposed in tilts:
            break
        tilts[proposed] = _Tilt.to(z, proposed)
        centre = max(centre, proposed, key=value)
        if centre != proposed:
            break
    return centre, tilts[centre]


def _tilt(z: Floats, k: int) -> float:
    """The root s of Σ σ(z_i + s) = k, by bracketed Newton steps. k is kept half a member away from 0 and n."""
    target = min(max(float(k), 0.5), len(z) - 0.5)
    edge = float(np.log(2 * len(z)))
    low, high = -float(z.max()) - edge, -float(z.min()) + edge
    s = min(max(0.0, low), high)
    for _ in range(TILT_STEPS):
        p = expit(z + s)
        away = float(p.sum()) - target
        low, high = (low, s) if away > 0 else (s, high)
        if abs(away) < 1e-6 or high - low < 1e-12 * max(1.0, abs(s)):
            break
        slope = float((p * (1 - p)).sum())
        step = s - away / slope if slope > 0 else low
        s = step if low < step < high else (low + high) / 2
    return s
