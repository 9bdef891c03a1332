"""design: what can be learned from tuples and an unlabeled pool, given as a directory or as specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    TuplesArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.manifest import RunArtifact, canonical_json
from ntmp_cli.artifacts.runs import open_run, train_config
from ntmp_cli.artifacts.summaries import DesignSummary
from ntmp_cli.config import DesignConfig, DesignLoss
from ntmp_cli.counting.recorded import parse_recorded
from ntmp_cli.data.recording import Recording
from ntmp_cli.data.specs import expected_strata, parse_spec
from ntmp_cli.errors import UsageError
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.design import to_markdown
from ntmp_cli.theory.assessment import Question, assess, generalisation, inflation_curve, without_risk
from ntmp_cli.theory.changes import changes
from ntmp_cli.theory.count_information import AUROC, LONGEST, count_information, stored_information
from ntmp_cli.theory.losses import MARGIN_LOSSES
from ntmp_cli.theory.recorded_counts import true_strata
from ntmp_cli.theory.strata import Design, Stratum
from ntmp_cli.tuple_source import Task

# A smaller share of the information of exact counts is a rounding error.
NO_INFORMATION = 1e-6
DEFAULT_TUPLES = 10_000
DEFAULT_PRIOR_ERROR = 0.01
PRIORS = np.linspace(0.01, 0.99, 197)
# Seed of simulated tuples, so that equal designs get equal results.
SEED = 0


@dataclass(frozen=True)
class Source:
    """A design, and where its numbers come from."""

    design: Design
    name: str
    prior_from: str
    count_noise: float
    stored: tuple[tuple[Stratum, str], ...] = ()
    """Every stratum, at its expected count, with what is recorded of it; () if all counts are exact."""
    is_rated: bool = True
    """False if the strata of the design are at their expected counts, because too few have a known rate."""
    artifact: TuplesArtifact | None = None
    run: RunArtifact | None = None


def read_source(config: DesignConfig, tuples: Path | None, run: Path | None = None) -> Source:
    """The design of a tuples directory or a run (recorded counts only), or the expected one of tuple specs."""
    if bool(tuples or run) == bool(config.tuples):
        raise UsageError(
            "a design comes from a tuples directory or from tuple specs" + (", not both" if config.tuples else ""),
            hint="Pass --tuples DIR, or --tuple 3:1 --prior 0.3 --num-tuples 10000 --unlabeled-size 30000.",
        )
    if config.tuples:
        return _of_specs(config)
    opened = None if run is None else open_run(run)
    if tuples is not None:
        return replace(_of_artifact(config, open_artifact(tuples, "tuples")), run=opened)
    assert opened is not None
    return _of_run(config, opened)


def design(
    config: DesignConfig,
    tuples: Path | None,
    out: Path | None = None,
    *,
    run: Path | None = None,
    if_exists: IfExists = "fail",
) -> tuple[dict[str, Any], Artifact[DesignSummary] | None]:
    """Every fact of a design; with `out` also published, as numbers, as a page and as a figure."""
    source = read_source(config, tuples, run)
    facts = _facts(config, source)
    if out is None:
        return facts, None
    inputs = tuple(describe_input(artifact) for artifact in (source.artifact, source.run) if artifact is not None)
    read = tuple(path for path in (tuples, run) if path is not None)
    plan = Plan("design", config.model_dump(mode="json"), None, inputs, read)
    if kept := existing_output(out, plan, if_exists):
        return facts, kept
    figure = _figure(source, facts) if source.is_rated else {}
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes("design.json", canonical_json(facts))
        staging.add_bytes("design.md", to_markdown(facts).encode())
        for kind, image in figure.items():
            staging.add_bytes(f"variance-inflation.{kind}", image)
        staging.summary = DesignSummary(
            source=facts["source"],
            unbiased_risk=facts["identifiable"]["unbiased_risk"],
            count_likelihood=facts["identifiable"]["count_likelihood"],
            gap=facts["conditioning"]["gap"] if source.is_rated else None,
            changes=tuple(change["text"] for change in facts["changes"]),
        )
    return facts, open_artifact(out, "design")


def _of_specs(config: DesignConfig) -> Source:
    if config.prior is None:
        raise UsageError("prior: required with tuple specs, but not given (--prior)")
    specs = [parse_spec(text) for text in config.tuples]
    expected = expected_strata(specs, config.num_tuples or DEFAULT_TUPLES)
    strata = tuple(Stratum(n, m, k) for (n, m), k in expected.items())
    unlabeled = config.unlabeled_size or ceil(sum(s.instances for s in strata))
    name = f"expected of {'+'.join(config.tuples)}"
    return Source(Design(strata, unlabeled, config.prior), name, "given", config.count_noise or 0.0)


def _refuse_sizes(config: DesignConfig, where: str) -> None:
    sizes = {"num_tuples": config.num_tuples, "unlabeled_size": config.unlabeled_size}
    if given := [f"--{name.replace('_', '-')}" for name, value in sizes.items() if value is not None]:
        raise UsageError(f"{', '.join(given)}: {where} already has its sizes")


def _of_run(config: DesignConfig, run: RunArtifact) -> Source:
    """The design that a run was trained on, by its own summary."""
    _refuse_sizes(config, f"the run {run.path}")
    summary = run.summary
    prior, prior_from = (summary.trained_prior, "as trained") if config.prior is None else (config.prior, "given")
    noise = _noise(config, summary.count_noise, run.path, exact=summary.task.knowledge is None)
    known = _Known(f"{summary.dataset} tuples of a run", summary.task.as_task(), noise)
    return known.source(prior, prior_from, run=run)


def _noise(config: DesignConfig, known: float, path: Path, *, exact: bool) -> float:
    """The rate of counts that are off by one: as given, else as known.

    0 where counts are recorded with a law of noise: that is in the means of their strata already.
    """
    if exact:
        return known if config.count_noise is None else config.count_noise
    if config.count_noise:
        raise UsageError(
            f"--count-noise {config.count_noise:g}: {path} has ranges, or counts with a law of noise already",
            hint="Leave it out; a design of exact counts: --tuple N:M --prior X --count-noise P.",
        )
    return 0.0


def _of_artifact(config: DesignConfig, tuples: TuplesArtifact) -> Source:
    _refuse_sizes(config, f"the tuples directory {tuples.path}")
    summary = tuples.summary
    # Simulated tuples know the prior and the noise that they were made with; other tuples do not.
    prior = summary.prior if config.prior is None else config.prior
    prior_from = "as simulated" if config.prior is None else "given"
    if prior is None and summary.unlabeled.train:
        raise UsageError(
            f"{tuples.path}: the prior of the unlabeled pool is unknown", hint="Pass it as --prior, or an estimate."
        )
    noise = _noise(config, summary.count_noise or 0.0, tuples.path, exact=summary.knowledge is None)
    name = f"{summary.dataset} tuples" + (", true counts estimated from the recorded ones" if noise else "")
    known = _Known(name, summary.task(), noise)
    if prior is None:
        prior, prior_from = known.rate(tuples.path), "the rate of the tuples, because there is no pool"
    return known.source(prior, prior_from, artifact=tuples)


class _Known:
    """What is known of stored tuples."""

    def __init__(self, name: str, task: Task, noise: float) -> None:
        rows, rated = [Stratum(*row) for row in task.strata], [Stratum(*row) for row in task.rated_strata]
        is_one_class = not 0 < sum(s.m * s.tuples for s in rated) < sum(s.instances for s in rated)
        if not task.unlabeled and is_one_class and len(rated) < len(rows):
            rated = []  # without a pool, the zeros beside `>=1` are no design
        self._is_rated, self._noise, self._task = bool(rated), noise, task
        self._strata = true_strata(rated or rows, noise)
        self._unlabeled = task.unlabeled or ceil(sum(s.instances for s in self._strata))
        about = "" if task.unlabeled else ", without an unlabeled pool: one of as many rows is assumed"
        if not rated:
            about += ", at the counts that are expected behind what was recorded"
        elif left_out := sum(row.tuples for row in rows) - sum(row.tuples for row in rated):
            about += f", without {left_out:,.0f} whose rate is not known"
        self._name = name + about
        texts = () if task.knowledge is None else task.knowledge.counts
        self._stored = tuple(zip(rows, texts, strict=True)) if texts else ()

    def rate(self, path: Path) -> float:
        """The rate of the tuples as the prior of an assumed pool."""
        rate = sum(s.m * s.tuples for s in self._strata) / sum(s.instances for s in self._strata)
        if not 0 < rate < 1:
            raise UsageError(
                f"{path}: there is no unlabeled pool, and all tuples are of one class", hint="Pass --prior."
            )
        return rate

    def source(
        self, prior: float, prior_from: str, artifact: TuplesArtifact | None = None, run: RunArtifact | None = None
    ) -> Source:
        design = Design(self._strata, self._unlabeled, prior)
        return Source(
            design, self._name, prior_from, self._noise, self._stored, self._is_rated, artifact=artifact, run=run
        )


def _facts(config: DesignConfig, source: Source) -> dict[str, Any]:
    question = Question(
        margin=config.margin,
        prior_error=_prior_error(config, source.design.prior),
        count_noise=source.count_noise,
        target_risk_error=config.target_risk_error,
        confidence=config.confidence,
        rate_error=config.rate_error,
        rate_proxy=config.rate_proxy,
        loss=_loss(config, source.run),
        score_bound=config.score_bound,
    )
    known = tuple(stratum for stratum, _ in source.stored)
    facts = {"source": source.name, "prior_from": source.prior_from, **assess(source.design, question, known)}
    facts["recording"] = _recording(config, source)
    facts["generalisation"] = None if source.run is None else _generalisation(source, source.run, question)
    if not source.is_rated:
        facts = {**without_risk(facts), "generalisation": None}
    return {**facts, "changes": [change._asdict() for change in changes(facts)]}


def _recording(config: DesignConfig, source: Source) -> dict[str, Any] | None:
    """The information of recorded counts, relative to exact ones (Eq. 113, 117); None if they are exact."""
    recording, rng = Recording.of(config.record, config.count_law or "exact"), stream(SEED, "count-information")
    strata: Sequence[Stratum] = source.design.strata
    if not recording.plain:
        text, known = recording.text, count_information(strata, recording.probabilities, rng)
    elif source.stored and config.count_law is None:
        strata, texts = zip(*source.stored, strict=True)
        text, known = _kinds(source.stored), stored_information(strata, texts, rng)
    else:
        return None
    longest = max(s.n for s in strata)
    share = known.recorded / known.exact if known.exact > 0 else 0.0
    return {
        "recorded": text,
        "auroc": AUROC,
        "share_of_exact": share if share >= NO_INFORMATION else 0.0,
        "exact_share_of_labels": known.exact / known.labels if known.labels > 0 else None,
        "longest": longest if longest > LONGEST else None,
        "one_rate_by_size": recording.plain and any(parse_recorded(text) is None for _, text in source.stored),
    }


def _kinds(stored: Sequence[tuple[Stratum, str]]) -> str:
    """What is recorded of the tuples: the law of all, or `50 exact counts, 130 ranges`."""
    tuples: dict[str, float] = {}
    for stratum, text in stored:
        low, high, law = parse_recorded(text) or (0.0, 0.0, text)
        kind = law if law != "exact" else "exact counts" if low == high else "ranges"
        tuples[kind] = tuples.get(kind, 0) + stratum.tuples
    ordered = sorted(tuples, key=lambda kind: (kind != "exact counts", kind != "ranges", kind))
    return ordered[0] if len(ordered) == 1 else ", ".join(f"{tuples[kind]:,.0f} {kind}" for kind in ordered)


def _prior_error(config: DesignConfig, prior: float) -> float:
    if config.prior_error is None:
        return min(DEFAULT_PRIOR_ERROR, (1 - prior) / 2)
    if not 0 < prior + config.prior_error < 1:
        raise UsageError(
            f"prior_error: {config.prior_error:+g} and the prior {prior:g} give {prior + config.prior_error:g}, "
            "which is not between 0 and 1 (--prior-error)"
        )
    return config.prior_error


def _generalisation(source: Source, run: RunArtifact, question: Question) -> dict[str, Any]:
    from ntmp_cli.artifacts.run_norms import norms_of_run

    about = {"model": run.summary.model, "method": run.summary.method, "loss": question.loss}
    known = norms_of_run(run, source.artifact)
    if isinstance(known, str):
        return {**about, "reason": known}
    return {**about, **generalisation(*known, source.design, question)}


def _loss(config: DesignConfig, run: RunArtifact | None) -> DesignLoss:
    """The given loss, else that of the run if it has bounds."""
    if config.loss is not None:
        return config.loss
    trained = None if run is None else getattr(train_config(run).settings, "loss", None)
    return next((name for name in MARGIN_LOSSES if name == trained), "sigmoid")


def _figure(source: Source, facts: dict[str, Any]) -> dict[str, bytes]:
    from ntmp_cli.reporting.design_figure import inflation_figure

    avoid = facts["margin"]["priors_to_avoid"]
    return inflation_figure(
        PRIORS.tolist(),
        inflation_curve(source.design, PRIORS),
        prior=source.design.prior,
        rates=[s.rate for s in source.design.strata],
        avoid=None if avoid is None else (avoid[0], avoid[1]),
        title=f"Variance of the unbiased risk: {source.name}",
    )
