"""explain: which features matter to the classifier of a run. No label is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    RunArtifact,
    TuplesArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.feature_rows import FeatureRow
from ntmp_cli.artifacts.layout import FEATURES
from ntmp_cli.artifacts.runs import open_run, require_trained_on, train_config, trained_law
from ntmp_cli.artifacts.stored_scorer import load_network, load_score
from ntmp_cli.artifacts.stored_tuples import StoredTuples, under_noise
from ntmp_cli.artifacts.summaries import ExplanationSummary
from ntmp_cli.config import ExplainConfig
from ntmp_cli.counting.laws import count_noise, parse_law
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.importance import FeatureGroup, Importance, JudgedTuples, permutation_importance
from ntmp_cli.learning.tables.training import fold_scorers
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.explanation import importance_csv, importance_figure, saliency_figure, to_markdown


def explain(
    config: ExplainConfig, run_path: Path, tuples_path: Path, out: Path, *, if_exists: IfExists = "fail"
) -> Artifact[ExplanationSummary]:
    """Publish the importance of every feature; of images a mean saliency map."""
    run, tuples = open_run(run_path), open_artifact(tuples_path, "tuples")
    require_trained_on(run, tuples)
    inputs = describe_input(run), describe_input(tuples)
    plan = Plan("explanation", config.model_dump(mode="json"), config.seed, inputs, (run_path, tuples_path))
    if kept := existing_output(out, plan, if_exists):
        return kept
    if len(run.summary.instance.shape) == 3:
        return _explain_images(plan, out, if_exists, (run, tuples))
    folds = _judged(config, run, tuples)
    loss, rows = permutation_importance(
        folds, _features(tuples), stream(config.seed, "importance"), config.repeats, config.confidence
    )
    judged = sum(len(fold.observed) for fold in folds)
    facts = {
        "kind": "permutation",
        "tuples": judged,
        "nll": loss,
        "confidence": config.confidence,
        "features": [row._asdict() for row in rows],
    }
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_json("explanation.json", facts)
        staging.add_bytes("explanation.md", to_markdown(facts).encode())
        staging.add_bytes("importance.csv", importance_csv(rows), rows=len(rows))
        for kind, image in importance_figure(facts).items():
            staging.add_bytes(f"explanation.{kind}", image)
        staging.summary = ExplanationSummary(
            dataset=tuples.summary.dataset, method=run.summary.method, judged=judged, top=_top(rows)
        )
    return open_artifact(out, "explanation")


def _top(rows: list[Importance]) -> tuple[str, ...]:
    """Features whose interval is above zero."""
    return tuple(row.name for row in rows if row.ci[0] > 0)


def _explain_images(
    plan: Plan, out: Path, if_exists: IfExists, inputs: tuple[RunArtifact, TuplesArtifact]
) -> Artifact[ExplanationSummary]:
    from ntmp_cli.learning.saliency import mean_saliency

    run, tuples = inputs
    images = _heldout(run, tuples).x
    saliency = mean_saliency(load_network(run), images)
    facts = {"kind": "saliency", "images": len(images), "map": np.round(saliency, 6).tolist()}
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_json("explanation.json", facts)
        staging.add_bytes("explanation.md", to_markdown(facts).encode())
        for kind, image in saliency_figure(saliency, images.mean(axis=(0, 1))).items():
            staging.add_bytes(f"explanation.{kind}", image)
        staging.summary = ExplanationSummary(
            dataset=tuples.summary.dataset, method=run.summary.method, judged=len(images), top=()
        )
    return open_artifact(out, "explanation")


def _judged(config: ExplainConfig, run: RunArtifact, tuples: TuplesArtifact) -> list[JudgedTuples]:
    """Tuples that no score was trained on: held-out ones, or, where a run learned from those too, fold by fold."""
    source = _source(run, tuples)
    if run.summary.learner == "network" or source.shares_instances:
        return [_heldout(run, tuples)]
    known = run.summary.prior_source in ("given", "known")
    folds = fold_scorers(train_config(run), source, config.folds, prior_is_known=known)
    return [JudgedTuples(scorer.score, judged.x, judged.observed) for scorer, judged in folds]


def _source(run: RunArtifact, tuples: TuplesArtifact) -> StoredTuples:
    """The tuples under the law of noise of the training."""
    law = trained_law(run)
    return under_noise(tuples, run.summary.count_noise) if law is None else StoredTuples(tuples, parse_law(law))


def _heldout(run: RunArtifact, tuples: TuplesArtifact) -> JudgedTuples:
    heldout = _source(run, tuples).heldout()
    if heldout is None:
        raise UsageError(
            f"{tuples.path}: has no held-out tuples, which the run was not trained on",
            hint="Make or import them with a --heldout-share above 0, and train again.",
        )
    observed = CountObservations(heldout.sizes, heldout.counts, count_noise(run.summary.count_noise))
    return JudgedTuples(load_score(run), heldout.tuples, observed)


def _features(tuples: TuplesArtifact) -> list[FeatureGroup]:
    """The columns of the user's table; of other vectors every number."""
    summary = tuples.summary
    if not summary.features:
        return [FeatureGroup(f"feature {at + 1}", slice(at, at + 1)) for at in range(summary.instance.shape[0])]
    rows = summary.features
    if tuples.has(FEATURES):  # the manifest lists only the first ones
        rows = tuple(FeatureRow.model_validate(row) for row in tuples.read_json(FEATURES))
    groups, at = [], 0
    for feature in rows:
        if feature.width:
            groups.append(FeatureGroup(feature.name, slice(at, at + feature.width)))
        at += feature.width
    return groups
