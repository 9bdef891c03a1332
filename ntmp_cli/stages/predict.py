"""predict: a run scores new rows, one block at a time, in their order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors.torch import load as load_safetensors
from scipy.special import expit, logit
from torch import nn

from ntmp_cli.artifacts import Artifact, open_artifact, refuse_overlap
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, MAPPING, WEIGHTS
from ntmp_cli.artifacts.tables import IfFileExists, require_writable, writing_table
from ntmp_cli.config import PredictConfig, TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.data.own.grouping import NONE, counts_of_tuples
from ntmp_cli.data.own.mapping import FeatureMapping, ImageFeatures
from ntmp_cli.data.own.problems import Problems
from ntmp_cli.data.own.rows import Rows, RowSource, tuple_codes, whole_numbers
from ntmp_cli.data.own.sources import open_new_rows
from ntmp_cli.data.own.tables import BLOCK_BYTES, STDIN, as_text
from ntmp_cli.errors import ArtifactError, DataError
from ntmp_cli.learning.method import Task
from ntmp_cli.learning.models import predict
from ntmp_cli.learning.restore import Encoded, batch_size, restore_encoder, restore_scorer
from ntmp_cli.stages.temperature import usable_temperature
from ntmp_cli.stages.train import choose_device

log = logging.getLogger(__name__)


def predict_rows(
    config: PredictConfig,
    run_path: Path,
    source: Path,
    out: Path,
    *,
    if_exists: IfFileExists = "fail",
    device: str = "auto",
    stream: IO[bytes] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, Any]:
    """Score the rows of `source` and write them to `out`, or as CSV to `stream`."""
    run = open_run(run_path)
    if stream is None:
        refuse_overlap(out, (run_path,) if source == STDIN else (run_path, source))
        require_writable(out, if_exists)
    mapping = read_mapping(run)
    rows = open_new_rows(
        source,
        mapping,
        run.summary["instance"],
        resize=run.summary["tuples_config"].get("resize"),
        with_counts=config.with_counts,
        block_bytes=block_bytes,
    )
    chosen = choose_device(device)
    scorer = _Scoring(run, mapping, config, chosen)
    positives = total = 0
    with writing_table(out, if_exists, stream) as table:
        blocks = _with_posteriors(rows, scorer, run) if config.with_counts else _blocks(rows, scorer)
        for block in blocks:
            table.write(block)
            total += block.num_rows
            positives += int(np.asarray(block.column("label")).sum())
        if total == 0:
            raise DataError(f"{rows.where}: has no rows", hint="Every row is one item to score.")
    fit = scorer.temperature
    how = "calibrated by held-out counts" if fit.fit == "fitted" else f"not calibrated ({fit.fit})"
    log.info("probabilities are %s: T = %.3g", how, fit.value)
    return {
        "kind": "prediction",
        "out": str(out),
        "run_sha256": run.sha256,
        "rows": total,
        "positive": positives,
        "prior": scorer.prior,
        "temperature": fit.value,
        "calibration": fit.fit,
        "with_counts": config.with_counts,
    }


def read_mapping(run: Artifact) -> FeatureMapping | None:
    """How raw rows became features of this run; None where it was trained on simulated tuples."""
    if not run.has(MAPPING):
        return None
    try:
        return FeatureMapping.model_validate_json(run.file(MAPPING).read_bytes())
    except ValidationError:
        raise ArtifactError(
            f"{run.path / MAPPING}: not a mapping that this ntmp reads", hint="Use the ntmp version that wrote it."
        ) from None


def open_run(path: Path) -> Artifact:
    """A run whose network can be rebuilt from what its manifest says."""
    run = open_artifact(path, "run")
    if missing := {"task", "instance", "features", "encoder"} - run.summary.keys():
        raise ArtifactError(
            f"{path}: written by an earlier ntmp: its manifest does not say what the network is rebuilt from "
            f"({', '.join(sorted(missing))})",
            hint="Train it again with `ntmp train`.",
        )
    return run


def load_scorer(run: Artifact) -> nn.Module:
    """The trained network of a run, behind its frozen encoder where it has one."""
    facts = run.summary
    config = TrainConfig.model_validate(run.manifest.config)
    task = Task([(n, m, k) for n, m, k in facts["task"]["strata"]], facts["task"]["unlabeled"])
    try:
        scorer = restore_scorer(
            config, task, facts["features"]["shape"], load_safetensors(run.file(WEIGHTS).read_bytes())
        )
        if facts["encoder"] is None:
            return scorer
        encoder = restore_encoder(
            facts["encoder"],
            facts["instance"]["shape"],
            facts["features"]["shape"][0],
            config.clip_model,
            load_safetensors(run.file(ENCODER_WEIGHTS).read_bytes()),
        )
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None
    return Encoded(encoder, scorer, facts["instance"]["scale"])


class _Scoring:
    """A run as a function from raw rows to scores and probabilities."""

    def __init__(
        self, run: Artifact, mapping: FeatureMapping | None, config: PredictConfig, device: torch.device
    ) -> None:
        self._mapping = mapping
        self._model = load_scorer(run).to(device)
        self._channels = int(run.summary["instance"]["shape"][0])
        self._batch = batch_size(run.summary["instance"]["shape"], device)
        trained_at = float(run.manifest.config["prior"])
        self.prior = config.prior or trained_at
        self._shift = float(logit(self.prior) - logit(trained_at))
        self.temperature = usable_temperature(run)

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """As the network gives them: log-odds at the prior of the run, but for the temperature."""
        if self._mapping is not None and not isinstance(self._mapping.features, ImageFeatures):
            instances: NDArray[Any] = self._mapping.features.apply(rows.cells)
        elif rows.cells.ndim == 2:
            instances = rows.cells.astype(np.float32)
        else:
            instances = rows.cells[:, : self._channels]  # gray pictures are read with three equal ones
        return predict(self._model, torch.from_numpy(instances), self._batch)

    def log_odds(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores calibrated by held-out counts, still at the prior of the run."""
        return scores / self.temperature.value

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(y=1) where a share `prior` is positive: log-odds move by the difference of the priors' (SPEC section 4)."""
        moved: NDArray[np.float64] = expit(self.log_odds(scores) + self._shift)
        return moved


def _blocks(source: RowSource, scoring: _Scoring) -> Iterator[Any]:
    """Output rows, block by block."""
    problems = Problems()
    start = 0
    for rows in source.rows(problems):
        if problems.total:  # the rest is read to list what is wrong there as well
            continue
        scores = scoring.scores(rows)
        probabilities = scoring.probabilities(scores)
        names = _names(source, rows, start)
        yield _table(names, scores, probabilities, (probabilities >= 0.5).astype(np.int8))
        start += len(rows.cells)
    problems.raise_if_any()


def _with_posteriors(source: RowSource, scoring: _Scoring, run: Artifact) -> Iterator[Any]:
    """Output rows with P(y=1 | scores, count). Rows of a tuple may lie anywhere, so ids and scores are held."""
    problems = Problems()
    held: list[tuple[dict[str, Any], NDArray[np.float64]]] = []
    ids: list[Any] = []
    counts: list[NDArray[np.int32]] = []
    start = 0
    for rows in source.rows(problems):
        if problems.total:
            continue
        held.append((_names(source, rows, start), scoring.scores(rows)))
        ids.append(as_text(rows.roles["tuple"]).dictionary_encode())
        values, wrong = whole_numbers(rows.roles["count"])
        for at in wrong.tolist():
            problems.add(source.place(start + at), "the count is not 0, 1, 2 …")
        counts.append(values)
        start += len(rows.cells)
    problems.raise_if_any()
    if not held:
        return
    codes, names = tuple_codes(ids)
    tuples = counts_of_tuples(codes, np.concatenate(counts), names, source.place, problems)
    problems.raise_if_any()
    scores = np.concatenate([own for _, own in held])
    posterior = np.full(len(scores), np.nan)
    if len(tuples):
        # A shift of all scores leaves the posterior given the count as it is: no prior is needed.
        law = count_noise(run.manifest.config["count_noise"])
        observed = CountObservations(np.diff(tuples.offsets), tuples.counts, law)
        posterior[tuples.rows] = count_posterior(scoring.log_odds(scores[tuples.rows]), observed)
    if (codes == NONE).any():
        log.info("%s: %d rows have no tuple, and so no posterior", source.where, (codes == NONE).sum())
    start = 0
    for columns, own in held:
        here = posterior[start : start + len(own)]
        probabilities = scoring.probabilities(own)
        best = np.where(np.isnan(here), probabilities, here)
        more = {"posterior": pa.array(here, from_pandas=True)}
        yield _table(columns, own, probabilities, (best >= 0.5).astype(np.int8), more)
        start += len(own)


def _names(source: RowSource, rows: Rows, start: int) -> dict[str, Any]:
    """What says which row is which: its id, tuple and count as they came, or its number."""
    named = {source.role_names[role]: column for role, column in rows.roles.items()}
    return named or {"row": pa.array(np.arange(start + 1, start + 1 + len(rows.cells)))}


def _table(
    names: dict[str, Any],
    scores: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int8],
    more: dict[str, Any] | None = None,
) -> Any:
    columns = {
        **names,
        "score": pa.array(scores.astype(np.float32)),
        "probability": pa.array(probabilities),
        **(more or {}),
        "label": pa.array(labels),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


__all__ = ["STDIN", "load_scorer", "open_run", "predict_rows", "read_mapping"]
