"""Self-training: the network learns the averaged network's pseudo-labels of unlabeled instances.

Features are masked for the student, while the teacher sees all of them. Without masking the student would only learn
its own predictions. With masking it learns not to rely on a few features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ntmp_cli.learning.callbacks import Callback, Step
from ntmp_cli.randomness import stream

# Fraction of training from which on features are masked: until then the warm-up risk has weight, which learns from any
# difference of U and tuples, masking included.
MASK_FROM = 0.5


def pseudo_label_weight(progress: float) -> float:
    """0 until a fifth of training, so that the orientation is settled first; rising to 1 at half of it."""
    return min(1.0, max(0.0, (progress - 0.2) / 0.3))


class SelfTraining(Callback):
    """Gives the loss the teacher's scores of U at every `every`-th step, and masks features of U for the student."""

    def __init__(self, weight: float, mask_rate: float, seed: int, every: int) -> None:
        self.weight, self.mask_rate, self.seed, self.every = weight, mask_rate, seed, every

    def on_step(self, step: Step) -> None:
        weight = self.weight * pseudo_label_weight(step.progress)
        if step.number % self.every or not weight:
            return
        # Without averaging the student's scores are the pseudo-labels; the loss has them.
        step.prepared = replace(step.prepared, pseudo_label_weight=weight)
        average = step.networks.average
        if not average.decay:
            return
        skipped = step.tuple_instances
        scores = average.scores(step.x[skipped:])
        # Tuple instances have no pseudo-labels; zeros keep the rows in place.
        teacher = torch.cat([scores.new_zeros(skipped), scores])
        step.prepared = replace(step.prepared, teacher=step.processes.all_gather(teacher))
        if self.mask_rate and step.progress >= MASK_FROM:
            rng = stream(self.seed, "hidden", step.epoch, step.number)
            mask = sample_mask((step.batch.unlabeled, *step.x.shape[1:]), self.mask_rate, rng)
            step.x = apply_mask(step.x, step.processes.local_unlabeled(mask), step.networks.model.blank)
            # If U were masked here, it would differ trivially from tuple instances.
            step.prepared = replace(step.prepared, membership_weight=0.0)


def sample_mask(shape: Sequence[int], rate: float, rng: np.random.Generator) -> Tensor:
    """Which features of a batch of this shape are masked, each at random; a pixel is masked in all its channels."""
    instances, *instance = shape
    if len(instance) == 3:
        instance[0] = 1
    return torch.from_numpy(rng.random((instances, *instance), dtype=np.float32) < rate)


def apply_mask(x: Tensor, mask: Tensor, blank: Tensor) -> Tensor:
    """Raw instances of which the last len(mask) are blank where masked; the ones before are as they were."""
    masked = x.to(torch.float32, copy=True)
    last = masked[len(x) - len(mask) :]
    torch.where(mask.to(x.device), blank, last, out=last)
    return masked
