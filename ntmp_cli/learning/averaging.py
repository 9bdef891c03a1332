"""The exponential moving average of weights and BatchNorm statistics: the network that is scored and saved."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from ntmp_cli.learning.models import Scorer


class WeightAverage:
    """torch's AveragedModel with a decay that grows from 0.1 to its full value, min(d, (1+t)/(10+t)).

    The ramp keeps the random start from holding short runs back. A decay of 0 turns averaging off: then the network
    itself is scored.
    """

    def __init__(self, model: Scorer, decay: float) -> None:
        self.decay = decay
        self._source = model
        self._averaged: AveragedModel | None = None
        if decay > 0:
            self._averaged = AveragedModel(model, multi_avg_fn=self._average, use_buffers=True)
            self._averaged.requires_grad_(False)
            # AveragedModel copies at its first update; ours averages from the initial weights on.
            self._averaged.n_averaged.fill_(1)

    @property
    def model(self) -> Scorer:
        """The network that is scored."""
        return self._source if self._averaged is None else self._averaged.module  # type: ignore[return-value]

    @property
    def updates(self) -> int:
        return 0 if self._averaged is None else int(self._averaged.n_averaged) - 1

    @updates.setter
    def updates(self, number: int) -> None:
        if self._averaged is not None:
            self._averaged.n_averaged.fill_(number + 1)

    def update(self) -> None:
        if self._averaged is not None:
            self._averaged.update_parameters(self._source)

    def scores(self, x: Tensor) -> Tensor:
        """Scores of the averaged network, without gradients."""
        self.model.eval()
        with torch.no_grad():
            scores: Tensor = self.model(x).float()
        return scores

    def _average(self, averaged: Sequence[Tensor], current: Sequence[Tensor], number: Tensor | int) -> None:
        if not averaged[0].is_floating_point():  # BatchNorm's counter of batches
            torch._foreach_copy_(list(averaged), list(current))
            return
        updates = int(number) - 1
        torch._foreach_lerp_(list(averaged), list(current), 1 - min(self.decay, (1 + updates) / (10 + updates)))
