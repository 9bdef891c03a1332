"""The class prior of greatest likelihood, from scores that are log-odds at another rate (Eq. 47)."""

from __future__ import annotations

from math import log

import numpy as np
from scipy.special import expit

from ntmp_cli.prior.estimator import Floats, Sample, priors

# Each step of the safeguarded Newton iteration at least halves the bracket; 60 halvings reach double precision.
_MOST_STEPS = 60
_PRECISION = 1e-10


@priors.register("em")
def em(sample: Sample) -> Floats:
    """Maximum likelihood of U under the given scores; the fixed point of EM on the prior."""
    raw = np.broadcast_to(sample.centres, sample.unlabeled.shape)
    return likeliest_prior(raw, sample.unlabeled, sample.rate)


@priors.register("em-affine")
def em_affine(sample: Sample) -> Floats:
    """Maximum likelihood of U under scores recalibrated by held-out counts; the most accurate in our measurements."""
    slope, intercept = sample.lines.T
    return likeliest_prior(slope[:, None] * sample.centres + intercept[:, None], sample.unlabeled, sample.rate)


def likeliest_prior(log_odds: Floats, weights: Floats, rate: float) -> Floats:
    """argmax_π Σ w log(π L + 1 − π) of every row (Eq. 47), L = p₊/p₋ from log-odds at `rate`.

    With p = L/(1+L) the derivative Σ w (2p−1)/(1−p + π(2p−1)) falls in π, so its only root is found by Newton steps
    inside a bracket; where it does not change its sign the answer is 0 or 1.
    """
    p = expit(log_odds - log(rate / (1 - rate)))
    gain, base = 2 * p - 1, 1 - p
    low, high = np.zeros(len(p)), np.ones(len(p))
    at = np.full(len(p), rate)
    for _ in range(_MOST_STEPS):
        ratio = gain / (base + at[:, None] * gain)
        slope = np.einsum("rg,rg->r", weights, ratio)
        curvature = np.einsum("rg,rg->r", weights, ratio**2)
        low, high = np.where(slope > 0, at, low), np.where(slope > 0, high, at)
        step = at + slope / np.maximum(curvature, 1e-300)
        inside = (step > low) & (step < high)
        after = np.where(inside, step, (low + high) / 2)
        settled = bool((np.abs(after - at) < _PRECISION).all())
        at = after
        if settled:
            break
    return at
