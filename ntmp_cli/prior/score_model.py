"""What a network is trained with whose scores are to tell the prior: nothing that presupposes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntmp_cli.learning.groups import usable_rate

if TYPE_CHECKING:  # methods need torch, estimators do not
    from ntmp_cli.learning.method import Task


def prior_free_settings(task: Task) -> dict[str, Any]:
    """The count likelihood alone, its scores left at the tuples' own rate (SPEC section 5)."""
    return {
        # `count` asks the counts which side is which; of tuples that are all half positive there is nothing to ask.
        "method": "count-plain" if task.symmetric else "count",
        "warmup": "none",
        "self_training": 0.0,
        "prior": usable_rate(task.rate),
        "select": "last",
        "trace_every": 0,
    }
