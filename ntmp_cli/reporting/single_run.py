"""A report of one run: accuracy, baseline, confusion matrix, and recommended next steps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ntmp_cli.evaluation.intervals import wilson_interval
from ntmp_cli.reporting.baselines import positive_share
from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, svg_and_png

# Largest calibration error at which the page recommends the use of the probabilities.
_POOR_CALIBRATION = 0.05
# Metrics beside the accuracy.
_FURTHER = {"auroc": "AUROC", "ap": "average precision", "ece_mass_at_prior": "calibration error at the prior"}


@dataclass(frozen=True)
class NextStep:
    """A piece of advice, and the command that follows it."""

    advice: str
    command: str = ""


@dataclass(frozen=True)
class SingleRun:
    """What the page shows of one run before its tables."""

    facts: Mapping[str, str]
    decisions: Mapping[str, Any]
    histogram: Mapping[str, bytes]
    next_steps: tuple[NextStep, ...]


def single_run(run: Mapping[str, Any], metrics: Mapping[str, float | None]) -> SingleRun:
    """`metrics` are the values of the run; one that is undefined is None."""
    decisions = run["decisions"]
    low, high = accuracy_interval(decisions)
    share = positive_share(decisions)
    facts = {
        "accuracy": _percent(_accuracy(decisions)),
        "95 % interval": _percent(low, high),
        "majority class": _percent(max(share, 1 - share)),
        "test instances": f"{_instances(decisions):,}",
        "positive": _percent(share),
    }
    facts |= {label: f"{value:.3f}" for name, label in _FURTHER.items() if (value := metrics.get(name)) is not None}
    return SingleRun(facts, decisions, score_histogram(decisions["histogram"]), tuple(_advice(run, metrics)))


def single_run_verdict(run: Mapping[str, Any]) -> str:
    """The headline: accuracy with its interval over test instances, against the majority class."""
    decisions = run["decisions"]
    low, high = accuracy_interval(decisions)
    share = positive_share(decisions)
    majority = _percent(max(share, 1 - share))
    right = f"{_percent(_accuracy(decisions))} of {_instances(decisions):,} test instances"
    named = f"{run['method']} classifies {right} correctly"
    interval = f"95 % interval {_percent(low, high)}"
    if run["is_oracle"]:
        return f"{named} ({interval}). It was trained on labels: this is an upper bound."
    if high < max(share, 1 - share):
        return f"{named} ({interval}), fewer than the majority class, {majority}."
    if low <= max(share, 1 - share):
        return f"{named} ({interval}). The interval includes the majority class, {majority}."
    return f"{named} ({interval}). The majority class would be {majority}."


def accuracy_interval(decisions: Mapping[str, Any]) -> tuple[float, float]:
    """95 % interval of the accuracy over the sampling of test instances; another training is not in it."""
    return wilson_interval(_accuracy(decisions), _instances(decisions))


def score_histogram(histogram: Mapping[str, Any]) -> dict[str, bytes]:
    """Scores of the true classes of the test split, with the threshold of the decision, as `svg` and `png`."""
    from matplotlib.figure import Figure

    edges = histogram["edges"]
    with figure_style():
        figure = Figure(figsize=(6.4, 3.0), dpi=DPI, layout="constrained")
        ax = figure.subplots()
        for name, color in (("negatives", PALETTE[1]), ("positives", PALETTE[0])):
            ax.stairs(histogram[name], edges, fill=True, color=color, alpha=0.35)
            ax.stairs(histogram[name], edges, color=color, linewidth=1.3, label=f"true {name}")
        ax.axvline(0, color="0.3", linewidth=1.1, linestyle="--", label="threshold")
        ax.set(xlabel="score (log-odds)", ylabel="test instances")
        figure.legend(loc="outside upper right", ncols=3, fontsize=8.5)
        return svg_and_png(figure)


def _percent(*shares: float) -> str:
    return f"{' to '.join(f'{100 * share:.1f}' for share in shares)} %"


def _accuracy(decisions: Mapping[str, Any]) -> float:
    return float(decisions["tp"] + decisions["tn"]) / _instances(decisions)


def _instances(decisions: Mapping[str, Any]) -> int:
    return sum(int(decisions[name]) for name in ("tp", "fp", "fn", "tn"))


# What to do next -----------------------------------------------------------------------------------


def _advice(run: Mapping[str, Any], metrics: Mapping[str, float | None]) -> Iterator[NextStep]:
    decisions, name = run["decisions"], shlex.quote(run["run"])
    share = positive_share(decisions)
    if not run["is_oracle"] and accuracy_interval(decisions)[0] <= max(share, 1 - share):
        yield NextStep(
            "The accuracy is not significantly better than the majority class. More tuples, or tuples of another rate, "
            "may help. This command shows what can be learned from the present tuples.",
            "ntmp design --tuples TUPLES",
        )
    if not run["is_oracle"]:
        yield NextStep(
            "One run does not show how much the accuracy varies between trainings. Train with other seeds and evaluate "
            "all runs together.",
            "ntmp train --tuples TUPLES --seed 1 --out RUN-1",
        )
    if not run["is_oracle"] and "dataset" in run["tuples_config"]:
        yield NextStep(
            "The labels of these tuples are known. Train on them to see the upper bound.",
            "ntmp train --tuples TUPLES --method supervised --out RUN-LABELS",
        )
    error = metrics.get("ece_mass_at_prior")
    if error is not None and error > _POOR_CALIBRATION:
        yield NextStep(
            f"Probabilities differ from observed shares by {error:.2f} on average. Rank by score, or look at the "
            "reliability diagram before you use them."
        )
    fp, fn = decisions["fp"], decisions["fn"]
    if max(fp, fn) >= 10 and max(fp, fn) > 2 * min(fp, fn):
        kind = "false positives than false negatives" if fp > fn else "false negatives than false positives"
        yield NextStep(
            f"There are many more {kind} ({max(fp, fn):,} and {min(fp, fn):,}). Choose a threshold by the costs.",
            f"ntmp predict {name} new.csv --threshold cost=FN:FP --out scored.csv",
        )
    yield NextStep("Score new rows.", f"ntmp predict {name} new.csv --out scored.csv")
    if not run["is_oracle"]:
        yield NextStep("Find counts that are probably wrong.", f"ntmp audit --tuples TUPLES --run {name} --out audit")
