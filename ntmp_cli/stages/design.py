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
from ntmp_cli.counting.laws import noise_laws
from ntmp_cli.data.recording import Recording
from ntmp_cli.data.specs import expected_strata, parse_spec
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.design import to_markdown
from ntmp_cli.theory.assessment import Question, assess, generalisation, inflation_curve
from ntmp_cli.theory.changes import changes
from ntmp_cli.theory.count_information import AUROC, LONGEST, count_information
from ntmp_cli.theory.losses import MARGIN_LOSSES
from ntmp_cli.theory.recorded_counts import true_strata
from ntmp_cli.theory.strata import Design, Stratum

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
    laws: tuple[str, ...] = ()
    """Laws of noise of the stored counts."""
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
    figure = _figure(source, facts)
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes("design.json", canonical_json(facts))
        staging.add_bytes("design.md", to_markdown(facts).encode())
        for kind, image in figure.items():
            staging.add_bytes(f"variance-inflation.{kind}", image)
        staging.summary = DesignSummary(
            source=facts["source"],
            unbiased_risk=facts["identifiable"]["unbiased_risk"],
            count_likelihood=facts["identifiable"]["count_likelihood"],
            gap=facts["conditioning"]["gap"],
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
    task = summary.task.as_task()
    if not task.unlabeled:
        raise UsageError(f"{run.path}: was trained without an unlabeled pool, and a design needs one")
    noise = _noise(config, summary.count_noise, run.path, exact=task.knowledge is None)
    recorded = _rated(run.path, [Stratum(*row) for row in task.rated_strata])
    strata = true_strata(recorded, noise)
    prior, prior_from = (summary.trained_prior, "as trained") if config.prior is None else (config.prior, "given")
    return Source(
        Design(strata, task.unlabeled, prior),
        f"{summary.dataset} tuples of a run" + _left_out(sum(k for *_, k in task.strata), recorded),
        prior_from,
        noise,
        _laws(() if task.knowledge is None else task.knowledge.counts),
        run=run,
    )


def _laws(recorded: Sequence[str]) -> tuple[str, ...]:
    """The laws of noise in what strata are known by: `gaussian:2`, or `10 (round:5)`."""
    texts = {(text.partition("(")[2] or text).rstrip(")") for text in recorded}
    return tuple(sorted(text for text in texts if text.partition(":")[0] in noise_laws.names()))


def _rated(path: Path, strata: Sequence[Stratum]) -> Sequence[Stratum]:
    """The strata whose rate is known; an error if there are none."""
    if not strata:
        raise NotIdentifiableError(
            f"{path}: no tuple has a known rate, and a design needs rates",
            hint="The method count learns from them; a design of exact counts: --tuple N:M --prior X.",
        )
    return strata


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


def _left_out(tuples: int, rated: Sequence[Stratum]) -> str:
    left_out = tuples - sum(row.tuples for row in rated)
    return f", without {left_out:,.0f} whose rate is not known" if left_out else ""


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
    recorded = _rated(tuples.path, [Stratum(row.n, row.m, row.tuples) for row in summary.strata.train if row.known])
    strata, unlabeled = true_strata(recorded, noise), summary.unlabeled.train
    about = ", true counts estimated from the recorded ones" if noise else ""
    if not unlabeled:
        unlabeled = ceil(sum(s.instances for s in strata))
        about += ", without an unlabeled pool: one of as many rows is assumed"
    if prior is None:
        prior, prior_from = _rate(tuples.path, strata), "the rate of the tuples, because there is no pool"
    return Source(
        Design(strata, unlabeled, prior),
        f"{summary.dataset} tuples" + about + _left_out(summary.tuples.train, recorded),
        prior_from,
        noise,
        _laws(() if summary.knowledge is None else summary.knowledge.counts),
        tuples,
    )


def _rate(path: Path, strata: Sequence[Stratum]) -> float:
    """The rate of the tuples as the prior of an assumed pool."""
    rate = sum(s.m * s.tuples for s in strata) / sum(s.instances for s in strata)
    if not 0 < rate < 1:
        raise UsageError(f"{path}: there is no unlabeled pool, and all tuples are of one class", hint="Pass --prior.")
    return rate


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
    facts = {"source": source.name, "prior_from": source.prior_from, **assess(source.design, question)}
    facts["recording"] = _recording(config, source)
    facts["generalisation"] = None if source.run is None else _generalisation(source, source.run, question)
    return {**facts, "changes": [change._asdict() for change in changes(facts)]}


def _recording(config: DesignConfig, source: Source) -> dict[str, Any] | None:
    """The information of recorded counts, relative to exact ones (Eq. 113); None if they are exact."""
    law = config.count_law or (source.laws[0] if len(source.laws) == 1 and config.record == "exact" else "exact")
    recording = Recording.of(config.record, law)
    if recording.plain:
        return None
    design = source.design
    known = count_information(design.strata, recording.probabilities, stream(SEED, "count-information"))
    return {
        "recorded": recording.text,
        "auroc": AUROC,
        "share_of_exact": known.recorded / known.exact if known.exact > 0 else None,
        "exact_share_of_labels": known.exact / known.labels,
        "longest": max(s.n for s in design.strata) if max(s.n for s in design.strata) > LONGEST else None,
    }


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
