"""The files of a run, and the summary in its manifest."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.jsonlines import json_lines
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, FOLDS, HELDOUT_LABELS, HISTORY, MAPPING, TEST_LABELS, TIMING
from ntmp_cli.artifacts.manifest import TuplesArtifact, content_sha256
from ntmp_cli.artifacts.priors import Prior
from ntmp_cli.artifacts.publish import Staging
from ntmp_cli.artifacts.scores import write_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.artifacts.summaries import FeaturesSummary, RunSummary
from ntmp_cli.artifacts.summary_fields import TaskSummary
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.bags import bags_of_pool
from ntmp_cli.learning.results import Trained, TrainingResult, score_heldout
from ntmp_cli.tuple_source import HeldoutData

log = logging.getLogger(__name__)

# Scores that differ by less are equal up to rounding.
SAME_SCORE, TUPLES_LOOKED_AT = 1e-6, 500


def write_run(
    staging: Staging, trained: Trained, tuples: TuplesArtifact, source: StoredTuples
) -> dict[str, NDArray[Any]]:
    """Write the scorer of a run, its scores on test and held-out instances, and its history. Returns the scores."""
    for name, content in trained.scorer.files().items():
        staging.add_bytes(name, content)
    if source.artifact is not tuples:
        staging.carry(source.artifact, ENCODER_WEIGHTS)
    if trained.folds is not None and tuples.has(MAPPING):  # without a mapping no rows of new groups can be scored
        for number, scorer in enumerate(trained.folds.scorers):
            for name, content in scorer.files().items():
                staging.add_bytes(f"{FOLDS}{number}/{name}", content)
    scores = _scores(trained, source)
    write_scores(staging, scores)
    _warn_of_constant(trained, source)
    for name in (TEST_LABELS, MAPPING):
        if tuples.has(name):
            staging.carry(tuples, name)
    if tuples.has(HELDOUT_LABELS):
        try:
            staging.carry(tuples, HELDOUT_LABELS)
        except ArtifactError as error:  # a failure here must not lose the training: only calibration uses these scores
            log.warning("%s; the run will have no temperature fitted to labels", error.message)
    _write_history(staging, trained.outcome)
    return scores


def _scores(trained: Trained, source: StoredTuples) -> dict[str, NDArray[Any]]:
    test, heldout = source.test_instances(), source.heldout()
    arrays: dict[str, NDArray[Any]] = {"test": trained.scorer.score(test).astype(np.float32)}
    traced = [(r.epoch, r.test_scores) for r in trained.outcome.records if r.test_scores is not None]
    arrays["trace_epochs"] = np.array([epoch for epoch, _ in traced], dtype=np.int64)
    arrays["trace"] = np.array([scores for _, scores in traced], dtype=np.float32).reshape(len(traced), len(test))
    scored = trained.heldout
    if scored is None and heldout is not None:
        scored = score_heldout(trained.scorer, heldout)
    if scored is not None:
        arrays["heldout_tuples"] = scored.tuple_scores.astype(np.float32)
        arrays["heldout_sizes"] = scored.sizes
        arrays["heldout_counts"] = scored.counts
        arrays["heldout_unlabeled"] = scored.unlabeled_scores.astype(np.float32)
    if trained.folds is not None:
        arrays["heldout_folds"] = trained.folds.of_tuple
    if trained.pool_scores is not None:
        arrays["pool"] = trained.pool_scores.astype(np.float32)
        arrays["pool_by_classifier"] = _pool_by_classifier(trained, source, heldout)
    return arrays if heldout is None else {**arrays, **_bag_scores(trained, heldout)}


def _pool_by_classifier(trained: Trained, source: StoredTuples, heldout: HeldoutData | None) -> NDArray[np.float32]:
    """Scores of the whole pool, in the order of `pool`, by the classifier that was fitted to all tuples."""
    shards = [source.read_unlabeled(name, 0, rows) for name, rows in source.unlabeled_shards()]
    held = [] if heldout is None or not len(heldout.unlabeled) else [heldout.unlabeled]
    scores = [trained.scorer.score(x).astype(np.float32) for x in (*shards, *held)]
    return np.concatenate([np.empty(0, np.float32), *scores])


def _bag_scores(trained: Trained, heldout: HeldoutData) -> dict[str, NDArray[Any]]:
    """Scores of held-out tuples and of bags of U of the same lengths, if the method scores bags."""
    lengths = bags_of_pool(heldout.sizes, len(heldout.unlabeled))
    inside = trained.method.bag_scores(trained.scorer, heldout.tuples, heldout.sizes)
    outside = trained.method.bag_scores(trained.scorer, heldout.unlabeled[: int(lengths.sum())], lengths)
    if inside is None or outside is None:
        return {}
    return {"heldout_bags": inside.astype(np.float32), "heldout_unlabeled_bags": outside.astype(np.float32)}


def _warn_of_constant(trained: Trained, source: StoredTuples) -> None:
    """Warn if all scores are equal: features are constant, or unrelated to the counts."""
    shard, tuples = source.tuple_shards()[0]
    scores = trained.scorer.score(source.read_tuples(shard, 0, min(tuples, TUPLES_LOOKED_AT))[0])
    if len(scores) > 1 and np.ptp(scores) <= SAME_SCORE * max(1.0, float(np.abs(scores).max())):
        log.warning("all instances have the same score: their features are constant, or unrelated to the counts")


def _write_history(staging: Staging, outcome: TrainingResult) -> None:
    staging.add_bytes(HISTORY, json_lines([dict(r.fields) for r in outcome.records]), rows=len(outcome.records))
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1
    timing = [
        {
            "epoch": r.epoch,
            "seconds": r.seconds,
            "instances_per_second": r.instances / max(r.seconds, 1e-9),
            "threads": threads,
        }
        for r in outcome.records
    ]
    staging.add_unhashed(TIMING, json_lines(timing))


def run_summary(
    config: TrainConfig, trained: Trained, tuples: TuplesArtifact, source: StoredTuples, prior: Prior
) -> RunSummary:
    """The summary of a run for its manifest."""
    info, features, task, outcome = tuples.summary, source.artifact.summary, source.task, trained.outcome
    selected = outcome.records[outcome.selected_epoch - 1].fields
    n, m = task.strata[0][:2] if len(task.strata) == 1 else (None, None)
    if trained.prior is not None:
        prior = Prior(trained.prior.value, trained.prior.source, ci=trained.prior.ci)
    assert prior.value is not None, "every training has a prior"
    return RunSummary(
        method=trained.method.label(config),
        is_oracle=trained.method.is_oracle,
        dataset=info.dataset,
        tuples=info.spec,
        n=n,
        m=m,
        task=TaskSummary.of(task),
        mean_rate=sum(k * m / n for n, m, k in task.strata) / sum(k for _, _, k in task.strata),
        # Results are compared at the true prior of the pool, not at its estimate.
        prior=prior.value if prior.source in ("given", "known") or info.prior is None else info.prior,
        trained_prior=prior.value,
        prior_source=prior.source,
        prior_ci=prior.ci,
        tuple_rate=task.rate,
        unlabeled_prior=info.prior,
        count_noise=getattr(config.settings, "count_noise", 0.0),
        tuples_seed=tuples.manifest.seed,
        tuples_config=tuples.manifest.config,
        tuples_content=content_sha256(tuples),
        model=trained.model,
        learner=trained.learner,
        encoder=features.encoder if isinstance(features, FeaturesSummary) else None,
        parameters=trained.scorer.size,
        instance=info.instance,
        features=features.instance,
        epochs=len(outcome.records),
        selected_epoch=outcome.selected_epoch,
        batch_size=trained.batch_size,
        loss=selected["loss"],
        heldout_risk=selected["heldout_risk"],
        spread=trained.spread,
        orientation_z=trained.orientation_z,
    )
