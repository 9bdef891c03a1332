"""estimate-prior: tuples and an unlabeled pool become an estimate of the pool's class prior."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import Artifact, IfExists, Plan, describe_input, kept_output, open_artifact, publishing
from ntmp_cli.artifacts.layout import PRIOR
from ntmp_cli.artifacts.scores import write_scores
from ntmp_cli.config import EstimatePriorConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.prior.estimate import Estimate, PriorEstimates, estimate_priors
from ntmp_cli.prior.estimator import priors
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.prior_figure import prior_figure
from ntmp_cli.stages.cross_fit import Watching, cross_fitted, score_model
from ntmp_cli.stages.features import WEIGHTS_FILES, encode_tuples, file_identity, weights_files
from ntmp_cli.stages.train import choose_device
from ntmp_cli.stages.training_data import read_task

# What a prior is kept away from 0 and 1 by, where no classifier could be trained with it.
EDGE = 0.001


def estimate_prior(
    config: EstimatePriorConfig,
    tuples_path: Path,
    out: Path,
    *,
    if_exists: IfExists = "fail",
    device: str = "auto",
    features: Path | None = None,
    watching: Watching = lambda epochs: nullcontext(),
) -> Artifact:
    """Estimate the class prior of a tuples directory's unlabeled pool and publish a prior directory."""
    priors.get(config.estimator)
    tuples = open_artifact(tuples_path, "tuples")
    settings = config.model_dump(mode="json")
    files = {name: file_identity(settings[name]) for name in WEIGHTS_FILES}
    reads = (tuples_path, *weights_files(config))
    plan = Plan("prior", {**settings, **files}, config.seed, (describe_input(tuples),), reads)
    if kept := kept_output(out, plan, if_exists):
        return kept
    chosen = choose_device(device)
    source = tuples
    if config.encoder is not None:
        source = encode_tuples(
            tuples, config.encoder, score_model(config, read_task(tuples)), features or out.parent, chosen
        )
    found = estimate_priors(
        cross_fitted(config, source, chosen, watching),
        stream(config.seed, "bootstrap"),
        config.resamples,
        config.confidence,
        None if config.assume is None else config.assume == "prior<0.5",
    )
    result = _result(config, found)
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_json(PRIOR, result)
        write_scores(staging, _scores(found))
        for kind, image in prior_figure(found, config.estimator, result["prior"]).items():
            staging.add_bytes(f"prior.{kind}", image)
        staging.summary = {
            **{key: result[key] for key in ("prior", "ci", "estimator", "warnings")},
            "dataset": tuples.summary["dataset"],
        }
    return open_artifact(out)


def _result(config: EstimatePriorConfig, found: PriorEstimates) -> dict[str, Any]:
    used = found.estimates[config.estimator]
    if used.value is None:
        raise NotIdentifiableError(
            f"the estimator '{config.estimator}' is undefined on these scores: they carry no class information",
            hint="Train the score model longer (--epochs), or use a better --model or --encoder.",
        )
    value, warnings = min(max(used.value, EDGE), 1 - EDGE), list(found.warnings)
    if value != used.value:
        warnings.append(f"the estimate {used.value:.4f} was moved to {value:g}, with which one can still train")
    bound = found.bound
    return {
        "prior": value,
        "ci": None if used.ci is None else list(used.ci),
        "estimator": config.estimator,
        "confidence": config.confidence,
        "estimators": {name: _row(estimate) for name, estimate in found.estimates.items()},
        "upper_bound": {"value": 1 - bound.value, "confident": 1 - bound.low},
        "neyman_pearson_as_in_the_paper": {"value": bound.value, "band": [bound.low, bound.high]},
        "tuple_rate": float(np.mean([fold.rate for fold in found.folds])),
        "orientation_nats": found.orientation_nats,
        "recalibration": [{"slope": fold.line.slope, "intercept": fold.line.intercept} for fold in found.folds],
        "tuples": sum(len(fold.sizes) for fold in found.folds),
        "unlabeled": sum(len(fold.unlabeled) for fold in found.folds),
        "parts": len(found.folds),
        "resamples": config.resamples,
        "seed": config.seed,
        "warnings": warnings,
    }


def _row(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "ci": None if estimate.ci is None else list(estimate.ci)}


def _scores(found: PriorEstimates) -> dict[str, NDArray[Any]]:
    """Oriented held-out scores of every part, as the part's model gave them."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, fold in enumerate(found.folds):
        arrays[f"tuples_{number}"] = fold.scores.astype(np.float32)
        arrays[f"sizes_{number}"] = fold.sizes
        arrays[f"counts_{number}"] = fold.counts
        arrays[f"unlabeled_{number}"] = fold.unlabeled.astype(np.float32)
    for name, estimate in found.estimates.items():
        arrays[f"bootstrap_{name}"] = estimate.resamples
    return arrays
