"""audit: check counts and pool before training, and by the scores of a run. No label is opened."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.artifacts import (
    Artifact,
    Plan,
    RunArtifact,
    TuplesArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.layout import TUPLE_IDS
from ntmp_cli.artifacts.manifest import remake
from ntmp_cli.artifacts.named_files import RUN
from ntmp_cli.artifacts.runs import open_run, require_trained_on, train_config, trained_law
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.artifacts.summaries import AuditSummary
from ntmp_cli.config import AuditConfig, DesignConfig, TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import conditional_slope
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.errors import ArtifactError, NotIdentifiableError, UsageError
from ntmp_cli.evaluation.audit_calibration import audit_folds
from ntmp_cli.evaluation.count_audit import CountAudit
from ntmp_cli.evaluation.expected_of_run import as_json, deployment, expected_of_run, scored_counts
from ntmp_cli.evaluation.temperature import (
    FEWEST_TUPLES,
    Scores,
    tuple_shift,
)
from ntmp_cli.learning.folds import fold_tuples
from ntmp_cli.learning.repeats import repeated_between_halves
from ntmp_cli.learning.tables.training import cross_fitted_tuples
from ntmp_cli.plugins import plugin_settings
from ntmp_cli.prior.drift import Drift, drift
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.progress import long_step
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.audit import audit_figure, most_suspicious_first, to_markdown, tuples_csv
from ntmp_cli.stages.cross_fit_options import DEFAULT_OPTIONS, CrossFitOptions
from ntmp_cli.stages.design import design

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
# Noise rate of the networks if it is unknown: a small rate costs little, and rate 0 would memorise wrong counts.
COUNT_NOISE = 0.05
MOST_FLAGGED_SHOWN = 20
# Smallest gap of distributions that gives a warning. On large data smaller gaps are significant, but poor calibration
# explains them.
NOTABLE_GAP = 0.03
# Difference between the prior of the mixture and that of the training, absolute and in standard errors.
NOTABLE_DIFFERENCE, CERTAIN = 0.05, 3.0
# Drift is stated as a fact only if its p-value is below that of a warning by this factor: it is one of three checks,
# and no correction is made for their number.
STRONGER = 10.0
# Step of the logarithm of a temperature, for a derivative by finite differences.
SMALL_CHANGE = 0.01


def audit(
    config: AuditConfig,
    tuples_path: Path,
    run_path: Path | None,
    out: Path | None = None,
    options: CrossFitOptions = DEFAULT_OPTIONS,
) -> tuple[dict[str, Any], Artifact[AuditSummary] | None]:
    """Every finding of an audit; with `out` also published, as numbers, tuple by tuple, as a page and a figure."""
    tuples = open_artifact(tuples_path, "tuples")
    run = None if run_path is None else _run_on(run_path, tuples)
    if run is not None:
        _require_exact(tuples, run)
    inputs = tuple(describe_input(artifact) for artifact in (tuples, run) if artifact is not None)
    reads = (tuples_path,) if run_path is None else (tuples_path, run_path)
    plan = Plan("audit", {**config.model_dump(mode="json"), **_plugins(run)}, config.seed, inputs, reads)
    if out is not None and (kept := existing_output(out, plan, options.if_exists)):
        return kept.read_json("audit.json"), kept
    before = _before_training(config, tuples, run)
    if run is None:
        facts, judged = {"before_training": before, "after_training": None}, None
    else:
        options = replace(options, features=options.features or (out or run.path).absolute().parent)
        judged = _judge(config, tuples, run, options, shared=before["repeated_instances"] > 0)
        facts = {"before_training": before, "after_training": judged.facts}
    if out is None:
        return facts, None
    with long_step("writing the audit"), publishing(out, plan, if_exists=options.if_exists) as staging:
        staging.add_json("audit.json", facts)
        staging.add_bytes("audit.md", to_markdown(facts).encode())
        if judged is not None:
            staging.add_bytes("tuples.csv", tuples_csv(judged.rows), rows=len(judged.rows["wrong"]))
            for kind, image in audit_figure(facts, judged.rows, judged.mixture).items():
                staging.add_bytes(f"audit.{kind}", image)
        staging.summary = AuditSummary(
            dataset=tuples.summary.dataset,
            flagged=None if judged is None else judged.facts["flagged"],
            count_noise=None if judged is None else judged.facts["count_noise"]["rate"],
        )
    return facts, open_artifact(out, "audit")


def _require_exact(tuples: TuplesArtifact, run: RunArtifact) -> None:
    """Refuse recorded or assumed laws of noise: the audit itself estimates how many exact counts are wrong."""
    if tuples.summary.knowledge is not None:
        raise UsageError(
            f"{tuples.path}: an audit needs exact counts, but these are ranges or have a law of noise",
            hint="Audit the tuples without a run; `ntmp evaluate` and `ntmp predict` take every kind of count.",
        )
    if run.summary.task.knowledge is not None:
        law = trained_law(run)
        option = "--count-noise" if law is None else "--count-law"
        raise UsageError(
            f"{run.path}: was trained with {option if law is None else f'{option} {law}'}, but an audit needs a run by "
            "exact counts",
            hint=f"Train on {tuples.path} without {option} and audit that run, or audit the tuples without a run.",
        )


def _run_on(path: Path, tuples: TuplesArtifact) -> RunArtifact:
    run = open_run(path)
    require_trained_on(run, tuples)
    return run


def _plugins(run: RunArtifact | None) -> dict[str, Any]:
    """Plugins that the model and the encoder of the audited run come from."""
    if run is None:
        return {}
    config = train_config(run)
    return plugin_settings({"models": [config.model], "encoders": [config.encoder]})


# Before training ----------------------------------------------------------------------------------


def _before_training(config: AuditConfig, tuples: TuplesArtifact, run: RunArtifact | None) -> dict[str, Any]:
    summary, stored = tuples.summary, StoredTuples(tuples)
    prior = config.prior or (None if run is None else run.summary.trained_prior) or summary.prior
    facts: dict[str, Any] = {
        "tuples": summary.tuples.train,
        "mean_rate": summary.mean_rate,
        "prior": prior,
        "repeated_instances": _repeated(stored) if stored.shares_instances else 0.0,
        "identifiable": None,
        "gap": None,
        "advice": [],
    }
    if not summary.unlabeled.train:
        facts["advice"] = [
            "There is no unlabeled pool: the classifier learns from the counts alone, and drift cannot be tested."
        ]
        return facts
    if prior is None:
        facts["advice"] = [
            "The prior of the unlabeled pool is not known, and tuples of one class do not determine it: pass --prior."
            if summary.mean_rate in (0, 1)
            else "The prior of the unlabeled pool is not known: pass --prior, or run `ntmp estimate-prior`."
        ]
        return facts
    if not any(row.known for row in summary.strata.train):
        facts["advice"] = ["No tuple has a known rate: only the method count can learn from them."]
        return facts
    designed, _ = design(DesignConfig(prior=prior, count_noise=0.0), tuples.path)
    return {
        **facts,
        "identifiable": {key: designed["identifiable"][key] for key in ("unbiased_risk", "count_likelihood")},
        "gap": designed["conditioning"]["gap"],
        "advice": [change["text"] for change in designed["changes"]],
    }


def _repeated(stored: StoredTuples) -> float:
    with long_step("searching repeated instances"):
        return repeated_between_halves(stored)


# After training -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    facts: dict[str, Any]
    rows: dict[str, NDArray[Any]]
    mixture: tuple[Floats, Floats, Floats]
    """Probabilities of tuple instances, their posteriors given the counts, probabilities of U at the tuples' rate."""


def _judge(
    config: AuditConfig, tuples: TuplesArtifact, run: RunArtifact, options: CrossFitOptions, *, shared: bool
) -> _Judged:
    """`shared`: whether tuples share instances, so that folds are not independent."""
    if run.summary.tuple_rate in (0, 1):
        raise NotIdentifiableError(
            f"{tuples.path}: all tuple instances are of one class, so nothing tells a wrong count from a right one",
            hint="Audit tuples with 0 < m < n, or of several rates.",
        )
    scores = read_scores(run)
    stored, spread = _stored(run, scores), run.summary.spread or 0.0
    first = (
        None if stored is None or len(stored.sizes) < FEWEST_TUPLES else _noise_of([stored], config, spread)[0].noise
    )
    trained = run.summary.count_noise or (COUNT_NOISE if first is None else first)
    settings = _settings(config, run, trained)
    if run.summary.learner != "network" and not StoredTuples(tuples).shares_instances:
        # The run has cross-fitted scores of all tuples, including the held-out ones.
        assert stored is not None, "a run on a table keeps such scores"
        fitted, heldout = [replace(stored, unlabeled=_pool_scores(run, scores))], None
    else:
        fitted, heldout = _cross_fitted(settings, config.folds, tuples, run, options), None if first is None else stored
    # Only the run itself was not trained on any held-out tuple.
    folds = fitted if heldout is None else [*fitted, heldout]
    audited, calibrated, pools = _noise_of(folds, config, spread)
    sizes, counts = (np.concatenate([getattr(fold, name) for fold in folds]) for name in ("sizes", "counts"))
    z = np.concatenate(calibrated)
    observed = CountObservations(sizes, counts, count_noise(audited.noise))
    with long_step("computing posteriors"):
        posterior = count_posterior(conditional_slope(spread) * z, observed)
    trained_instances = int(sum(fold.sizes.sum() for fold in fitted))
    positions = np.arange(tuples.summary.tuples.train)
    if run.summary.learner == "network":
        positions = np.concatenate(fold_tuples(StoredTuples(tuples), config.folds))
    # A network is more confident about instances that it saw in other tuples than about U; this is not drift.
    unseen = len(folds) > len(fitted) and shared
    new = slice(trained_instances, None) if unseen else slice(trained_instances)
    judged = len(sizes) - (0 if heldout is None else len(heldout.sizes))
    new_tuples = slice(judged, None) if unseen else slice(judged)
    unlabeled = np.concatenate(pools[len(fitted) :] if unseen else pools[: len(fitted)])
    moved = None
    if len(unlabeled):
        blocks = StoredTuples(tuples).blocks()
        if blocks is not None:
            blocks = np.concatenate([blocks[positions], blocks[len(positions) :]])[new_tuples]
        judged_counts = sizes[new_tuples], counts[new_tuples]
        compared = ScoredTuples(z[new], *judged_counts, unlabeled, audited.noise, spread, blocks)
        with long_step("testing drift"):
            moved = drift(compared, stream(config.seed, "drift"), config.resamples)
    rows = _rows(config, tuples, audited, sizes, counts, positions)
    facts = {
        "tuples_judged": len(sizes),
        "flagged": int(rows["flagged"].sum()),
        "flagged_by_benjamini_hochberg": int((rows["p_adjusted"] <= config.fdr).sum()),
        "count_noise": {
            "rate": audited.noise,
            "ci": list(audited.noise_ci),
            "gain": audited.gain,
            "trained_with": trained,
            "true_shares": {str(n): share for n, share in audited.true_shares.items()},
        },
        "spread": run.summary.spread,
        "drift": None
        if moved is None
        else {
            "statistic": moved.statistic,
            "p": moved.p_value,
            "prior_of_mixture": moved.prior,
            "of": "held-out tuples" if unseen else "training tuples, each scored by a classifier that did not see it",
        },
        "expected": _expected(tuples, run, scores, config, audited.noise),
        "most_suspicious": _most_suspicious(rows),
        "warnings": _warnings(config, None if spread else moved, run.summary.trained_prior, audited),
    }
    return _Judged(facts, rows, (expit(z[new]), posterior[new], expit(unlabeled)))


def _settings(config: AuditConfig, run: RunArtifact, noise: float) -> TrainConfig:
    """A short training with the settings of the run, by the likelihood of noisy counts."""
    trained = train_config(run)
    named = (trained.clip_model, trained.encoder_weights, (trained.encoder or "").removeprefix(RUN))
    if any(str(name).startswith("sha256:") for name in named):
        raise ArtifactError(
            f"{run.path}: its encoder came from a file or a run, which an audit does not have",
            hint="Audit a run without it.",
        )
    shared = [
        *("model", "encoder", "encoder_weights", "clip_model", "clip_weights", "prior", "batch_size", "lr"),
        *("optimizer", "weight_decay", "ema", "normalize", "estimator"),
    ]
    # If the run used another method, `count` has its default settings.
    wanted = {*shared, "self_training", "mask_rate", "membership"}
    chosen = {name: value for name, value in trained.model_dump(mode="json").items() if name in wanted}
    fixed = {"method": "count", "count_noise": noise, "epochs": config.epochs, "trace_every": 0}
    return TrainConfig.model_validate({**chosen, **fixed, "memory_mb": config.memory_mb, "seed": config.seed})


def _cross_fitted(
    settings: TrainConfig, folds: int, tuples: TuplesArtifact, run: RunArtifact, options: CrossFitOptions
) -> list[ScoredTuples]:
    """All training tuples, scored at their rate by classifiers like the run's that did not see them."""
    if run.summary.learner != "network":
        known = run.summary.prior_source in ("given", "known")
        return [cross_fitted_tuples(settings, StoredTuples(tuples), prior_is_known=known)]
    from ntmp_cli.learning.cross_fitting import CrossFit, scores_at_tuple_rate
    from ntmp_cli.learning.devices import choose_device
    from ntmp_cli.stages.features import encode_tuples

    how = CrossFit(choose_device(options.device), options.watching)
    source: TuplesArtifact = tuples
    if settings.encoder is not None:
        assert options.features is not None, "features have a folder"
        source = encode_tuples(tuples, settings.encoder, settings, options.features, how.device)
    return scores_at_tuple_rate(settings, StoredTuples(source), folds, how)


def _pool_scores(run: RunArtifact, scores: Scores) -> Floats:
    """Scores of the pool by the cross-fitted models at the tuples' rate; the final model is more confident."""
    if "pool" not in scores:
        raise ArtifactError(f"{run.path}: has no scores of the pool", hint=remake("run"))
    return scores["pool"].astype(np.float64) - tuple_shift(run.summary)


def _stored(run: RunArtifact, scores: Scores) -> ScoredTuples | None:
    """Held-out or cross-fitted scores of the run, at the tuples' rate."""
    if "heldout_tuples" not in scores:
        return None
    shift = tuple_shift(run.summary)
    inside, outside = (scores[f"heldout_{name}"].astype(np.float64) - shift for name in ("tuples", "unlabeled"))
    return ScoredTuples(inside, scores["heldout_sizes"], scores["heldout_counts"], outside)


def _noise_of(
    folds: list[ScoredTuples], config: AuditConfig, spread: float
) -> tuple[CountAudit, list[Floats], list[Floats]]:
    """The audit over all folds, and each fold's scores recalibrated at the noise rate that the audit estimates."""
    with long_step("judging counts"):
        audited = audit_folds(folds, spread, config.confidence)
        lines = [replace(fold, noise=audited.noise, spread=spread).line for fold in folds]
    z = [line.slope * fold.scores + line.intercept for line, fold in zip(lines, folds, strict=True)]
    return audited, z, [line.slope * fold.unlabeled + line.intercept for line, fold in zip(lines, folds, strict=True)]


def _rows(
    config: AuditConfig,
    tuples: TuplesArtifact,
    audited: CountAudit,
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """One entry per judged tuple: training tuples in stored order, then held-out ones.

    Judged were the training tuples at these stored positions first, in this order.
    """
    from scipy.stats import false_discovery_control

    trained = len(positions)
    order = np.concatenate([np.argsort(positions), np.arange(trained, len(sizes))])
    splits = np.array(["train"] * trained + ["heldout"] * (len(sizes) - trained))
    numbers = np.concatenate([np.arange(1, trained + 1), np.arange(1, len(sizes) - trained + 1)])
    rows: dict[str, NDArray[Any]] = {"split": splits, "tuple": numbers}
    if tuples.has(TUPLE_IDS):
        ids = tuples.read_json(TUPLE_IDS)
        rows["id"] = np.array([*ids["train"], *ids.get("heldout", ())[: len(sizes) - trained]])
    judged = {
        "n": sizes,
        "count": counts,
        "expected": audited.expected,
        "likeliest": audited.likeliest,
        "wrong": audited.wrong,
        "ratio": audited.ratio,
        "p": audited.p_values,
        "p_adjusted": false_discovery_control(audited.p_values),
        "flagged": audited.wrong > config.flag_above,
    }
    return rows | {name: values[order] for name, values in judged.items()}


def _most_suspicious(rows: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    order = most_suspicious_first(rows)[:MOST_FLAGGED_SHOWN]
    return [{name: values[at].item() for name, values in rows.items()} for at in order if rows["flagged"][at]]


def _expected(
    tuples: TuplesArtifact, run: RunArtifact, scores: Scores, config: AuditConfig, noise: float
) -> dict[str, Any]:
    """Metrics on as many new instances as the pool has, or the tuples where there is none."""
    summary = tuples.summary
    pool = summary.unlabeled.train + (summary.unlabeled.heldout or 0)
    blocks = StoredTuples(tuples).blocks()
    judged = len(scores.get("heldout_sizes", ()))
    # A learner for tables has scores of all tuples; a network only of held-out tuples, which come last.
    blocks = None if blocks is None else blocks[-judged:]
    where = deployment(run.summary, None, pool or summary.instances.train, config.confidence)
    scored = scored_counts(run.summary, scores, noise, blocks)
    with long_step("expecting accuracy"):
        return as_json(expected_of_run(scored, -tuple_shift(run.summary), where))


def _of_drift(p: float, level: float) -> str:
    """The warning about drift, stated as a fact only if the evidence is strong."""
    if p <= level / STRONGER:
        return (
            f"the unlabeled pool is not a mixture of the classes in the tuples (p = {p:.2g}): the two differ, or the "
            "scores are poor"
        )
    return (
        f"the unlabeled pool is perhaps not a mixture of the classes in the tuples: weak evidence, p = {p:.2g} "
        f"(of pools without drift, {level:.1%} have a p of at most {level:.2g})"
    )


def _warnings(config: AuditConfig, moved: Drift | None, prior: float, audited: CountAudit) -> list[str]:
    """Warnings. None about drift in natural groups: their members resemble each other, so any pool differs."""
    warnings = []
    level = 1 - config.confidence
    if moved is not None and moved.p_value <= level and moved.statistic > NOTABLE_GAP:
        warnings.append(_of_drift(moved.p_value, level))
    if moved is not None and abs(moved.prior - prior) > max(NOTABLE_DIFFERENCE, CERTAIN * moved.prior_error):
        warnings.append(f"the prior of the pool seems to be {moved.prior:.3f}, but the run was trained with {prior:g}")
    if audited.noise_ci[0] > 0.01:
        warnings.append(
            f"about {audited.noise:.1%} of the counts are off by one: train with --count-noise {audited.noise:.2f}"
        )
    return warnings
