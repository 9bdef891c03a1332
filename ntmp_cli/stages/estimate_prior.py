"""estimate-prior: tuples and an unlabeled pool become an estimate of the pool's class prior."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import (
    Artifact,
    Plan,
    TuplesArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.layout import PRIOR
from ntmp_cli.artifacts.named_files import WEIGHTS_FILES, encoder_identity, file_identity, weights_files
from ntmp_cli.artifacts.scores import write_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples, under_noise
from ntmp_cli.artifacts.summaries import PriorSummary
from ntmp_cli.config import EstimatePriorConfig
from ntmp_cli.counting.recalibration import CLEAR_NATS
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.model_choice import is_table_training
from ntmp_cli.learning.prior_free import score_model, table_model
from ntmp_cli.learning.proxy_model import proxy_scores
from ntmp_cli.plugins import plugin_settings
from ntmp_cli.prior.estimate import Estimate, PriorEstimates, estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples, priors
from ntmp_cli.prior.paper_protocol import PaperEstimate, ProxyScores, paper_estimate
from ntmp_cli.progress import long_step
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.prior_figure import prior_figure
from ntmp_cli.stages.cross_fit_options import DEFAULT_OPTIONS, CrossFitOptions

log = logging.getLogger(__name__)

# A network that has learned nothing is trained this many times as long.
LONGER = 4
# Estimates are clipped this far from 0 and 1, because training needs a prior inside (0, 1).
EDGE = 0.001
# The estimator with a separate score model.
PAPER = "paper"


def estimate_prior(
    config: EstimatePriorConfig, tuples_path: Path, out: Path, options: CrossFitOptions = DEFAULT_OPTIONS
) -> Artifact[PriorSummary]:
    """Estimate the class prior of a tuples directory's unlabeled pool and publish a prior directory."""
    priors.get(config.estimator)
    tuples = open_artifact(tuples_path, "tuples")
    if not tuples.summary.unlabeled.train:
        raise UsageError(
            f"{tuples_path}: there is no unlabeled pool whose prior could be estimated",
            hint="Import the tuples with unlabeled rows, `ntmp import-tuples … --unlabeled FILE`.",
        )
    settings = config.model_dump(mode="json")
    files = {name: file_identity(settings[name]) for name in WEIGHTS_FILES} | encoder_identity(config)
    # All estimators are reported, whichever is used.
    plugins = plugin_settings({"priors": priors.names(), "models": [config.model], "encoders": [config.encoder]})
    reads = (tuples_path, *weights_files(config))
    plan = Plan("prior", {**settings, **files, **plugins}, config.seed, (describe_input(tuples),), reads)
    if kept := existing_output(out, plan, options.if_exists):
        return kept
    estimated, source = _estimates(config, tuples, out, options)
    literal = _paper_protocol(config, estimated, source) if config.estimator == PAPER else None
    if literal is not None:
        estimates = {**estimated.estimates, PAPER: literal.estimate}
        estimated = replace(estimated, estimates=estimates, bound=literal.bound)
    result = _result(config, estimated, literal)
    with long_step("writing the estimates"), publishing(out, plan, if_exists=options.if_exists) as staging:
        staging.add_json(PRIOR, result)
        write_scores(staging, _scores(estimated, literal))
        for kind, image in prior_figure(estimated, config.estimator, result["prior"]).items():
            staging.add_bytes(f"prior.{kind}", image)
        staging.summary = PriorSummary(
            dataset=tuples.summary.dataset,
            prior=result["prior"],
            ci=estimated.estimates[config.estimator].ci,
            confidence=config.confidence,
            estimator=config.estimator,
            identified=estimated.identified,
            warnings=tuple(result["warnings"]),
        )
    return open_artifact(out, "prior")


def _estimates(
    config: EstimatePriorConfig, tuples: TuplesArtifact, out: Path, options: CrossFitOptions
) -> tuple[PriorEstimates, StoredTuples]:
    """The estimates, and the instances or features that were scored.

    Learners for tables on rows of a table; on images a network, trained longer where it has learned nothing.
    """

    def estimates(folds: list[ScoredTuples]) -> PriorEstimates:
        below_half = None if config.assume is None else config.assume == "prior<0.5"
        return estimate_priors(folds, stream(config.seed, "bootstrap"), config.resamples, config.confidence, below_half)

    stored = under_noise(tuples, config.count_noise)
    settings = score_model(config, stored.task)
    if config.score == "count" and is_table_training(table_model(settings), stored.instance):
        from ntmp_cli.learning.tables.training import scores_without_prior as scores_of_table

        return estimates([scores_of_table(table_model(settings), stored)]), stored
    from ntmp_cli.learning.cross_fitting import CrossFit, scores_without_prior
    from ntmp_cli.learning.devices import choose_device
    from ntmp_cli.stages.features import encode_tuples

    device = choose_device(options.device)
    if config.encoder is not None:
        features = encode_tuples(tuples, config.encoder, settings, options.features or out.parent, device)
        stored = under_noise(features, config.count_noise)
    how = CrossFit(device, options.watching)
    first = estimates(scores_without_prior(config, stored, how))
    if first.gain_nats >= CLEAR_NATS or config.score == "discriminant":
        return first, stored
    longer = config.model_copy(update={"epochs": LONGER * config.epochs})
    log.info("the score model has learned nothing in %d epochs; it is trained for %d", config.epochs, longer.epochs)
    second = estimates(scores_without_prior(longer, stored, how))
    return second if second.gain_nats > first.gain_nats else first, stored


def _paper_protocol(config: EstimatePriorConfig, estimated: PriorEstimates, source: StoredTuples) -> PaperEstimate:
    """The paper's own score model: a linear probe on frozen features, else a network of two layers."""
    scores = proxy_scores(estimated.folds, source, config.seed, linear=config.encoder is not None)
    return paper_estimate(scores, stream(config.seed, "paper-bootstrap"), config.resamples, config.confidence)


def _result(config: EstimatePriorConfig, estimated: PriorEstimates, literal: PaperEstimate | None) -> dict[str, Any]:
    used, warnings = estimated.estimates[config.estimator], list(estimated.warnings)
    rate = float(np.mean([fold.rate for fold in estimated.folds]))
    if used.value is None:
        used = replace(used, value=rate)
        warnings.append(f"'{config.estimator}' is undefined on these scores; the rate of the tuples is used instead")
    assert used.value is not None
    value = min(max(used.value, EDGE), 1 - EDGE)
    if value != used.value:
        warnings.append(f"the estimate {used.value:.4f} was moved to {value:g}: training needs a prior inside (0, 1)")
    bound = estimated.bound
    return {
        "prior": value,
        "ci": None if used.ci is None else list(used.ci),
        "identified": estimated.identified,
        "mirror": None if estimated.identified else 1 - value,
        "estimator": config.estimator,
        "confidence": config.confidence,
        "estimators": {name: _row(estimate) for name, estimate in estimated.estimates.items()},
        "upper_bound": {"value": 1 - bound.value, "confident": 1 - bound.low},
        "neyman_pearson_as_in_the_paper": {"value": bound.value, "band": [bound.low, bound.high]},
        "paper_protocol": None if literal is None else _facts(literal.scores, linear=config.encoder is not None),
        "tuple_rate": rate,
        "gain_nats": estimated.gain_nats,
        "orientation_nats": estimated.orientation_nats,
        "recalibration": [{"slope": fold.line.slope, "intercept": fold.line.intercept} for fold in estimated.folds],
        "tuples": sum(len(fold.sizes) for fold in estimated.folds),
        "unlabeled": sum(len(fold.unlabeled) for fold in estimated.folds),
        "parts": len(estimated.folds),
        "resamples": config.resamples,
        "seed": config.seed,
        "warnings": warnings,
    }


def _facts(scores: ProxyScores, *, linear: bool) -> dict[str, Any]:
    """How the paper's own score model was validated."""
    return {
        "score_model": "linear probe" if linear else "two-layer network",
        "validated_by": "a split" if scores.folds is None else f"{scores.folds} folds",
        "proxies": len(scores.proxy),
        "unlabeled": len(scores.unlabeled),
    }


def _row(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "ci": None if estimate.ci is None else list(estimate.ci)}


def _scores(estimated: PriorEstimates, literal: PaperEstimate | None) -> dict[str, NDArray[Any]]:
    """Oriented held-out scores of every fold, as the fold's model gave them, and those of the paper's score model."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, fold in enumerate(estimated.folds):
        arrays[f"tuples_{number}"] = fold.scores.astype(np.float32)
        arrays[f"sizes_{number}"] = fold.sizes
        arrays[f"counts_{number}"] = fold.counts
        arrays[f"unlabeled_{number}"] = fold.unlabeled.astype(np.float32)
    for name, estimate in estimated.estimates.items():
        arrays[f"bootstrap_{name}"] = estimate.resamples
    if literal is not None:
        arrays["paper_proxy"] = literal.scores.proxy.astype(np.float32)
        arrays["paper_unlabeled"] = literal.scores.unlabeled.astype(np.float32)
    return arrays
