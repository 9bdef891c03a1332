"""Orientation: a network that has learned the classes exchanged is flipped."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ntmp_cli.learning.callbacks import Callback, EpochEnd, Networks
from ntmp_cli.learning.method import HeldoutScores


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
