"""audit: do the data look as their owner thinks, before training and in the eyes of a run? No label is opened."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import false_discovery_control, norm

from ntmp_cli.artifacts import Artifact, IfExists, Plan, describe_input, kept_output, open_artifact, publishing
from ntmp_cli.artifacts.layout import TUPLE_IDS
from ntmp_cli.artifacts.scores import read_all_scores
from ntmp_cli.config import AuditConfig, DesignConfig, TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.evaluation.count_audit import CountAudit, audit_counts
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.prior.drift import Drift, drift
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.audit import audit_figure, to_markdown, tuples_csv
from ntmp_cli.stages.cross_fit import Watching, cross_scored, repeated_share
from ntmp_cli.stages.design import design
from ntmp_cli.stages.features import encode_tuples
from ntmp_cli.stages.predict import open_run
from ntmp_cli.stages.temperature import FEWEST_TUPLES, log_temperature_error, tuple_shift, usable_temperature
from ntmp_cli.stages.train import choose_device
from ntmp_cli.stages.training_data import training_data

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
# Noise that networks are trained with where nothing is known of it: a little costs little, none is memorised.
COUNT_NOISE = 0.05
# The line a·z + b and the noise rate depend on each other: so often, or until the rate settles.
ROUNDS = 8
SETTLED = 5e-4
MOST_FLAGGED_SHOWN = 20
# A gap of distributions worth a warning; smaller ones are significant on much data, and no more than poor calibration.
NOTABLE_GAP = 0.03
# Of the logarithm of a temperature, for a slope.
SMALL_CHANGE = 0.01


def audit(
    config: AuditConfig,
    tuples_path: Path,
    run_path: Path | None,
    out: Path | None = None,
    *,
    if_exists: IfExists = "fail",
    device: str = "auto",
    features: Path | None = None,
    watching: Watching = lambda epochs: nullcontext(),
) -> tuple[dict[str, Any], Artifact | None]:
    """Every finding of an audit; with `out` also published, as numbers, tuple by tuple, as a page and a figure."""
    tuples = open_artifact(tuples_path, "tuples")
    run = None if run_path is None else _run_on(run_path, tuples)
    inputs = tuple(describe_input(each) for each in (tuples, run) if each is not None)
    reads = (tuples_path,) if run_path is None else (tuples_path, run_path)
    plan = Plan("audit", config.model_dump(mode="json"), config.seed, inputs, reads)
    if out is not None and (kept := kept_output(out, plan, if_exists)):
        return kept.read_json("audit.json"), kept
    before = _before_training(config, tuples, run)
    if run is None:
        facts, judged = {"before_training": before, "after_training": None}, None
    else:
        folder = features or (out or run.path).absolute().parent
        shared = before["repeated_instances"] > 0
        judged = _judge(config, tuples, run, folder, choose_device(device), watching, shared)
        facts = {"before_training": before, "after_training": judged.facts}
    if out is None:
        return facts, None
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_json("audit.json", facts)
        staging.add_bytes("audit.md", to_markdown(facts).encode())
        if judged is not None:
            staging.add_bytes("tuples.csv", tuples_csv(judged.rows), rows=len(judged.rows["wrong"]))
            for kind, image in audit_figure(facts, judged.rows, judged.mixture).items():
                staging.add_bytes(f"audit.{kind}", image)
        staging.summary = {"dataset": tuples.summary["dataset"], **_headline(facts)}
    return facts, open_artifact(out)


def _run_on(path: Path, tuples: Artifact) -> Artifact:
    run = open_run(path)
    if tuples.sha256 not in {entry["sha256"] for entry in run.manifest.inputs if entry["kind"] == "tuples"}:
        raise UsageError(
            f"{path}: was not trained on {tuples.path}", hint="Pass the tuples that the run was trained on."
        )
    return run


def _headline(facts: dict[str, Any]) -> dict[str, Any]:
    after = facts["after_training"]
    if after is None:
        return {"flagged": None}
    return {"flagged": after["flagged"], "count_noise": after["count_noise"]["rate"]}


# Before training ----------------------------------------------------------------------------------


def _before_training(config: AuditConfig, tuples: Artifact, run: Artifact | None) -> dict[str, Any]:
    info = tuples.summary
    prior = config.prior or (None if run is None else run.manifest.config["prior"]) or info["prior"]
    found: dict[str, Any] = {
        "tuples": info["tuples"]["train"],
        "mean_rate": info["mean_rate"],
        "prior": prior,
        "repeated_instances": _repeated(config, tuples),
        "identifiable": None,
        "gap": None,
        "advice": [],
    }
    if prior is None:
        found["advice"] = ["The prior of the unlabeled pool is not known: pass --prior, or run `ntmp estimate-prior`."]
        return found
    facts, _ = design(DesignConfig(prior=prior, count_noise=0.0), tuples.path)
    return {
        **found,
        "identifiable": {key: facts["identifiable"][key] for key in ("unbiased_risk", "count_likelihood")},
        "gap": facts["conditioning"]["gap"],
        "advice": [change["text"] for change in facts["changes"]],
    }


def _repeated(config: AuditConfig, tuples: Artifact) -> float:
    """Share of the distinct tuple instances that both halves of the tuples hold."""
    settings = TrainConfig(prior=0.5, memory_mb=config.memory_mb)
    return repeated_share(training_data(tuples, settings, 2)) if tuples.summary["tuples"]["train"] > 1 else 0.0


# After training -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    facts: dict[str, Any]
    rows: dict[str, NDArray[Any]]
    mixture: tuple[Floats, Floats, Floats]
    """Probabilities of tuple instances, their posteriors given the counts, probabilities of U at the tuples' rate."""


def _judge(
    config: AuditConfig,
    tuples: Artifact,
    run: Artifact,
    folder: Path,
    device: torch.device,
    watching: Watching,
    shared: bool,
) -> _Judged:
    """`shared` says whether tuples have instances in common, so that no part of them is quite new to the others."""
    heldout = _heldout(run)
    first = None if heldout is None or len(heldout.sizes) < FEWEST_TUPLES else _noise_of([heldout], config)[0].noise
    trained = float(run.manifest.config["count_noise"]) or (COUNT_NOISE if first is None else first)
    settings = _settings(config, run, trained)
    source = tuples
    if settings.encoder is not None:
        source = encode_tuples(tuples, settings.encoder, settings, folder, device)
    fitted = cross_scored(settings, source, config.folds, device, watching)
    # A network that never saw any of the held-out tuples is the run itself.
    everyone = [*fitted, heldout] if heldout is not None and first is not None else fitted
    found, calibrated, pools = _noise_of(everyone, config)
    sizes, counts = (np.concatenate([getattr(part, name) for part in everyone]) for name in ("sizes", "counts"))
    z = np.concatenate(calibrated)
    posterior = count_posterior(z, CountObservations(sizes, counts, count_noise(found.noise)))
    inside = int(sum(part.sizes.sum() for part in fitted))
    trained_tuples = sum(len(part.sizes) for part in fitted)
    # Of instances that its network was trained on, in other tuples, it is surer than of U: no drift of the data.
    new = slice(inside, None) if shared and len(everyone) > len(fitted) else slice(inside)
    owners = slice(trained_tuples, None) if new.start else slice(trained_tuples)
    unlabeled = np.concatenate(pools[len(fitted) :] if new.start else pools[: len(fitted)])
    moved = drift(z[new], sizes[owners], posterior[new], unlabeled, stream(config.seed, "drift"), config.resamples)
    rows = _rows(config, tuples, found, sizes, counts, trained_tuples)
    facts = {
        "tuples_judged": len(sizes),
        "flagged": int(rows["flagged"].sum()),
        "flagged_by_benjamini_hochberg": int((rows["p_adjusted"] <= config.fdr).sum()),
        "count_noise": {
            "rate": found.noise,
            "ci": list(found.noise_ci),
            "trained_with": trained,
            "true_shares": {str(n): share for n, share in found.true_shares.items()},
        },
        "drift": {
            "statistic": moved.statistic,
            "p": moved.p_value,
            "prior_of_mixture": moved.prior,
            "of": "held-out tuples" if new.start else "training tuples, each scored by a network that did not see it",
        },
        "expected_accuracy": _expected_accuracy(run, config.confidence, found),
        "most_suspicious": _most_suspicious(rows),
        "warnings": _warnings(config, moved, float(run.manifest.config["prior"]), found),
    }
    return _Judged(facts, rows, (expit(z[new]), posterior[new], expit(unlabeled)))


def _settings(config: AuditConfig, run: Artifact, noise: float) -> TrainConfig:
    """A training like the run's, but short, by the likelihood of counts that may be wrong."""
    own = run.manifest.config
    if str(own["clip_model"]).startswith("sha256:") or str(own["encoder_weights"]).startswith("sha256:"):
        raise ArtifactError(
            f"{run.path}: its encoder came from a file, which an audit does not have", hint="Audit a run without it."
        )
    shared = [
        *("model", "encoder", "encoder_weights", "clip_model", "clip_weights", "prior", "batch_size", "lr"),
        *("optimizer", "weight_decay", "ema", "normalize", "self_training", "hidden_share"),
    ]
    # A run of an earlier version does not know every setting.
    more = {name: own[name] for name in shared if name in own}
    return TrainConfig(
        **more,
        method="count",
        count_noise=noise,
        epochs=config.epochs,
        trace_every=0,
        memory_mb=config.memory_mb,
        seed=config.seed,
    )


def _heldout(run: Artifact) -> ScoredTuples | None:
    """Held-out tuples as the run scored them, at the tuples' rate."""
    scores = read_all_scores(run)
    if "heldout_tuples" not in scores:
        return None
    shift = tuple_shift(run)
    inside, outside = (scores[f"heldout_{name}"].astype(np.float64) - shift for name in ("tuples", "unlabeled"))
    return ScoredTuples(inside, scores["heldout_sizes"], scores["heldout_counts"], outside)


def _noise_of(parts: list[ScoredTuples], config: AuditConfig) -> tuple[CountAudit, list[Floats], list[Floats]]:
    """The audit of all parts together, each under the line that its counts ask for at the noise rate found."""
    sizes, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("sizes", "counts"))
    rate = usable_rate(float(counts.sum() / sizes.sum()))
    noise = COUNT_NOISE
    for _ in range(ROUNDS):
        lines = [recalibrate(part.scores, replace(part, noise=noise).observed) for part in parts]
        z = [line.slope * part.scores + line.intercept for line, part in zip(lines, parts, strict=True)]
        found = audit_counts(np.concatenate(z), sizes, counts, rate, config.confidence)
        settled = abs(found.noise - noise) < SETTLED
        noise = found.noise
        if settled:
            break
    return found, z, [line.slope * part.unlabeled + line.intercept for line, part in zip(lines, parts, strict=True)]


def _rows(
    config: AuditConfig,
    tuples: Artifact,
    found: CountAudit,
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    trained: int,
) -> dict[str, NDArray[Any]]:
    """One entry per judged tuple: training tuples in stored order, then held-out ones."""
    splits = np.array(["train"] * trained + ["heldout"] * (len(sizes) - trained))
    numbers = np.concatenate([np.arange(1, trained + 1), np.arange(1, len(sizes) - trained + 1)])
    rows: dict[str, NDArray[Any]] = {"split": splits, "tuple": numbers}
    if tuples.has(TUPLE_IDS):
        ids = tuples.read_json(TUPLE_IDS)
        rows["id"] = np.array([*ids["train"], *ids["heldout"][: len(sizes) - trained]])
    return {
        **rows,
        "n": sizes,
        "count": counts,
        "expected": found.expected,
        "likeliest": found.likeliest,
        "wrong": found.wrong,
        "p": found.p_values,
        "p_adjusted": false_discovery_control(found.p_values),
        "flagged": found.wrong > config.flag_above,
    }


def _most_suspicious(rows: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    order = np.argsort(-rows["wrong"], kind="stable")[:MOST_FLAGGED_SHOWN]
    return [{name: values[at].item() for name, values in rows.items()} for at in order if rows["flagged"][at]]


def _expected_accuracy(run: Artifact, confidence: float, found: CountAudit) -> dict[str, Any] | None:
    """Mean max(p, 1−p) of held-out unlabeled instances: the accuracy at the prior, if probabilities are calibrated.

    Its interval allows for the draw of U, and by the delta method for the errors of the temperature and of the noise
    rate that the temperature was fitted with.
    """
    scores = read_all_scores(run).get("heldout_unlabeled")
    if scores is None or len(scores) < 2:
        return None
    temperature = usable_temperature(run, found.noise)
    size, wide = np.abs(scores.astype(np.float64)), float(norm.ppf((1 + confidence) / 2))

    def at(change: float) -> Floats:
        """How sure every instance is at a temperature e^change times as high."""
        return np.asarray(expit(size / (temperature.value * np.exp(change))))

    sure = at(0.0)
    mean = float(sure.mean())
    slope = float(at(SMALL_CHANGE).mean() - at(-SMALL_CHANGE).mean()) / (2 * SMALL_CHANGE)
    by_noise = np.log([usable_temperature(run, rate).value for rate in found.noise_ci])
    error = np.hypot(log_temperature_error(run, temperature, found.noise), (by_noise[1] - by_noise[0]) / (2 * wide))
    half = wide * np.hypot(sure.std(ddof=1) / np.sqrt(len(sure)), slope * error)
    return {
        "value": mean,
        "ci": [max(0.5, mean - float(half)), min(1.0, mean + float(half))],
        "instances": len(sure),
        "calibration": temperature.fit,
    }


def _warnings(config: AuditConfig, moved: Drift, prior: float, found: CountAudit) -> list[str]:
    warnings = []
    if moved.p_value <= 1 - config.confidence and moved.statistic > NOTABLE_GAP:
        warnings.append(
            "the unlabeled pool is no mixture of the classes that the tuples show: the two differ, or scores are poor"
        )
    if abs(moved.prior - prior) > 0.05:
        warnings.append(f"the pool looks like one of prior {moved.prior:.3f}, but the run was trained with {prior:g}")
    if found.noise_ci[0] > 0.01:
        warnings.append(
            f"about {found.noise:.1%} of the counts are off by one: train with --count-noise {found.noise:.2f}"
        )
    return warnings
