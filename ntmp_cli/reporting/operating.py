"""Where a study operates: the gap between rate and prior, the mean rate and the strata, for captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import RunSummary

SHOWN_STRATA = 6
# Of one run, where they are listed by themselves.
LISTED_STRATA = 24
SHOWN_POINTS = 12


@dataclass(frozen=True)
class Operating:
    """One training: tuple spec, true and training prior of U, mean rate, strata (n, m, tuples)."""

    tuples: str
    prior: float
    trained_prior: float
    mean_rate: float
    strata: tuple[tuple[int, float, int], ...]
    dataset: str = ""

    @property
    def gap(self) -> float:
        """Δ_op = |ᾱ − π̂|."""
        return abs(self.mean_rate - self.trained_prior)


def operating_of(run: Mapping[str, Any]) -> Operating:
    strata = tuple((n, m, count) for n, m, count in run["task"]["strata"])
    return Operating(
        run["tuples"], run["prior"], run["trained_prior"], run["mean_rate"], strata, run.get("dataset", "")
    )


def operating_of_summary(run: RunSummary) -> Operating:
    strata = tuple((n, m, count) for n, m, count in run.task.strata)
    return Operating(run.tuples, run.prior, run.trained_prior, run.mean_rate, strata, run.dataset)


def data_caption(runs: Sequence[Operating], seeds: Sequence[int]) -> str:
    """The data of a figure: data sets, strata with ᾱ, the range of Δ_op, and the seeds."""
    datasets = ", ".join(dict.fromkeys(run.dataset for run in runs))
    gaps = [run.gap for run in runs]
    gap = f"{gaps[0]:.4f}" if max(gaps) - min(gaps) < 5e-5 else f"{min(gaps):.4f} to {max(gaps):.4f}"
    sentences = [f"Data: {datasets}", *_mixtures(runs), f"Δ_op = |ᾱ − π̂| = {gap}"]
    return ". ".join(sentences) + f". Seeds: {', '.join(map(str, seeds))}."


def operating_words(runs: Sequence[Operating]) -> list[str]:
    """Sentences for a caption: Δ_op of every design (mean over its runs), and mixed tuples by their strata."""
    return [*_gaps(runs), *_mixtures(runs)]


def _gaps(runs: Sequence[Operating]) -> Iterator[str]:
    designs: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        designs.setdefault((run.tuples, run.prior), []).append(run.gap)
    phrases = []
    for (tuples, prior), gaps in list(designs.items())[:SHOWN_POINTS]:
        spread = "" if max(gaps) - min(gaps) < 5e-5 else f" ({min(gaps):.4f} to {max(gaps):.4f})"
        phrases.append(f"{sum(gaps) / len(gaps):.4f}{spread} for {tuples} at π = {prior:g}")
    if phrases:
        more = f" and {len(designs) - SHOWN_POINTS} more" if len(designs) > SHOWN_POINTS else ""
        yield f"Operating gap Δ_op = |ᾱ − π̂|: {', '.join(phrases)}{more}"


def _mixtures(runs: Sequence[Operating]) -> Iterator[str]:
    """Sizes of the strata, which the gap depends on; as a range if runs differ."""
    specs: dict[str, list[Operating]] = {}
    for run in runs:
        specs.setdefault(run.tuples, []).append(run)
    for tuples, members in specs.items():
        sizes: dict[tuple[int, float], list[int]] = {}
        for n, m, count in (stratum for run in members for stratum in run.strata):
            sizes.setdefault((n, m), []).append(count)
        largest = sorted(sizes, key=lambda stratum: (-max(sizes[stratum]), stratum))
        shown = [f"({n}, {m:g}) × {_range(sizes[n, m])}" for n, m in largest[:SHOWN_STRATA]]
        more = f" and {len(sizes) - SHOWN_STRATA} more strata" if len(sizes) > SHOWN_STRATA else ""
        rates = sorted(run.mean_rate for run in members)
        rate = f"{rates[0]:.4f}" if rates[-1] - rates[0] < 5e-5 else f"{rates[0]:.4f} to {rates[-1]:.4f}"
        yield ", ".join([f"Tuples {tuples}: ᾱ = {rate}", *shown]) + more


def strata_text(strata: Sequence[tuple[int, float, int]]) -> str:
    """All strata in their order; of very many the largest, and how many more there are."""
    listed, more = strata, ""
    if len(strata) > LISTED_STRATA:
        listed = sorted(strata, key=lambda stratum: (-stratum[2], stratum))[:LISTED_STRATA]
        more = f" and {len(strata) - LISTED_STRATA:,} more strata"
    return ", ".join(f"({n}, {m:g}) × {count:,}" for n, m, count in listed) + more


def _range(counts: Sequence[int]) -> str:
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"
