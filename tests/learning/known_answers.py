"""What the best possible rule reaches on `gaussians`, to hold trainings against."""

from __future__ import annotations

from math import log

from scipy.stats import norm

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores


def accuracy(run: Artifact, prior: float) -> float:
    """Of a run, on a population with this prior."""
    scores, labels = read_scores(run)["test"], read_labels(run)
    correct = (scores > 0) == labels
    return float(prior * correct[labels].mean() + (1 - prior) * correct[~labels].mean())


def bayes_accuracy(prior: float, separation: float = 3.0) -> float:
    """The best rule decides at s·x₁ + logit(π) = 0."""
    shift = log(prior / (1 - prior)) / separation
    return float(prior * norm.cdf(separation / 2 + shift) + (1 - prior) * norm.cdf(separation / 2 - shift))
