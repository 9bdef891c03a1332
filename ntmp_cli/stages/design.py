"""design: what tuples and an unlabeled pool can tell, from a tuples directory or from specs."""

from __future__ import annotations

from dataclasses import dataclass
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
from ntmp_cli.artifacts.manifest import canonical_json
from ntmp_cli.artifacts.summaries import DesignSummary
from ntmp_cli.config import DesignConfig
from ntmp_cli.data.specs import expected_strata, parse_spec
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.reporting.design import to_markdown
from ntmp_cli.theory.assessment import Question, assess, inflation_curve
from ntmp_cli.theory.changes import changes
from ntmp_cli.theory.recorded_counts import true_strata
from ntmp_cli.theory.strata import Design, Stratum

DEFAULT_TUPLES = 10_000
PRIORS = np.linspace(0.01, 0.99, 197)


@dataclass(frozen=True)
class Source:
    """A design, and where its numbers come from."""

    design: Design
    name: str
    prior_from: str
    count_noise: float
    artifact: TuplesArtifact | None = None


def read_source(config: DesignConfig, tuples: Path | None) -> Source:
    """The design of a tuples directory (recorded counts only), or the expected one of tuple specs."""
    if (tuples is None) == (not config.tuples):
        raise UsageError(
            "a design comes from a tuples directory or from tuple specs" + (", not both" if config.tuples else ""),
            hint="Pass --tuples DIR, or --tuple 3:1 --prior 0.3 --num-tuples 10000 --unlabeled-size 30000.",
        )
    return _of_specs(config) if tuples is None else _of_artifact(config, open_artifact(tuples, "tuples"))


def design(
    config: DesignConfig, tuples: Path | None, out: Path | None = None, *, if_exists: IfExists = "fail"
) -> tuple[dict[str, Any], Artifact[DesignSummary] | None]:
    """Every fact of a design; with `out` also published, as numbers, as a page and as a figure."""
    source = read_source(config, tuples)
    facts = _facts(config, source)
    if out is None:
        return facts, None
    inputs = () if source.artifact is None else (describe_input(source.artifact),)
    plan = Plan("design", config.model_dump(mode="json"), None, inputs, () if tuples is None else (tuples,))
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


def _of_artifact(config: DesignConfig, tuples: TuplesArtifact) -> Source:
    sizes = {"num_tuples": config.num_tuples, "unlabeled_size": config.unlabeled_size}
    if given := [f"--{name.replace('_', '-')}" for name, value in sizes.items() if value is not None]:
        raise UsageError(f"{', '.join(given)}: the tuples directory {tuples.path} already has its sizes")
    summary = tuples.summary
    if not summary.unlabeled.train:
        raise UsageError(
            f"{tuples.path}: there is no unlabeled pool, and a design is of tuples and a pool",
            hint="Import with --unlabeled FILE, or describe the pool: --tuple 3:1 --prior 0.3 --unlabeled-size 30000.",
        )
    # Simulated tuples know the prior and the noise that they were made with; other tuples do not.
    prior = summary.prior if config.prior is None else config.prior
    if prior is None:
        raise UsageError(
            f"{tuples.path}: does not know the prior of its unlabeled pool", hint="Pass it as --prior, or an estimate."
        )
    noise = summary.count_noise or 0.0 if config.count_noise is None else config.count_noise
    recorded = [Stratum(row.n, row.m, row.tuples) for row in summary.strata.train if row.known]
    if not recorded:
        raise NotIdentifiableError(
            f"{tuples.path}: no tuple has a known rate, and a design is one of rates",
            hint="The method count learns from them; a design of exact counts: --tuple N:M --prior X.",
        )
    left_out = summary.tuples.train - sum(row.tuples for row in recorded)
    # Noise that was recorded with the counts is in the means of their strata already.
    strata = true_strata(recorded, noise) if summary.knowledge is None else tuple(recorded)
    return Source(
        Design(strata, summary.unlabeled.train, prior),
        f"{summary.dataset} tuples"
        + (", true counts estimated from the recorded ones" if noise else "")
        + (f", without {left_out:,} whose rate is not known" if left_out else ""),
        "as simulated" if config.prior is None else "given",
        noise,
        tuples,
    )


def _facts(config: DesignConfig, source: Source) -> dict[str, Any]:
    question = Question(
        config.margin, config.prior_error, source.count_noise, config.target_risk_error, config.confidence
    )
    facts = {"source": source.name, "prior_from": source.prior_from, **assess(source.design, question)}
    return {**facts, "changes": [change._asdict() for change in changes(facts)]}


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
