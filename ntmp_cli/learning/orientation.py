"""Orientation: which sign of the scores means the positive class, decided by scores of tuples and U."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import expit

from ntmp_cli.learning.callbacks import Callback, EpochEnd, Networks
from ntmp_cli.learning.method import HeldoutScores

# Standard errors from which on a sign counts as certain.
CERTAIN = 3.0


def orientation_z(heldout: HeldoutScores) -> float:
    """(E_U σ − E_T σ) in standard errors: its sign times that of π − ᾱ tells the orientation."""
    inside, outside = (expit(scores) for scores in (heldout.tuple_scores, heldout.unlabeled_scores))
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    return float((outside.mean() - inside.mean()) / max(error, 1e-12))


class Orientation(Callback):
    """Flips a network that has learned the classes exchanged.

    `centre_if_flipped` gives the point that scores are mirrored at, or None where the orientation is right.
    """

    def __init__(self, centre_if_flipped: Callable[[HeldoutScores], float | None]) -> None:
        self._centre_if_flipped = centre_if_flipped

    def on_epoch(self, end: EpochEnd) -> None:
        scores = end.score_orientation()
        centre = end.processes.broadcast(None if scores is None else self._centre_if_flipped(scores))
        if centre is not None:
            flip(end.networks, centre)
            end.fields["flipped"] = True
            end.network_changed()


def flip(networks: Networks, centre: float) -> None:
    """Exchange the classes in the last layer of the network and of its average, and the optimiser's momentum."""
    if networks.average.model is not networks.model:
        networks.average.model.flip(centre)
    for parameter in networks.model.flip(centre):
        for key in ("exp_avg", "momentum_buffer"):
            if key in networks.optimizer.state[parameter]:
                state: torch.Tensor = networks.optimizer.state[parameter][key]
                state.neg_()
