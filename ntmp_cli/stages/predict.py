"""predict: a run scores new rows, one block at a time, in their order."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, logit

from ntmp_cli.artifacts import RunArtifact, refuse_overlap
from ntmp_cli.artifacts.runs import open_run, trained_law
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_scorer import load_score, read_mapping
from ntmp_cli.artifacts.table_writer import IfFileExists, require_writable, writing_table
from ntmp_cli.config import PredictConfig
from ntmp_cli.data.user.arrow_columns import number_column, numbers_of
from ntmp_cli.data.user.mapping import ImageFeatures
from ntmp_cli.data.user.new_rows import NewRowOptions, open_new_rows
from ntmp_cli.data.user.problems import MOST_SHOWN, Problems
from ntmp_cli.data.user.rows import Role, Rows, RowSource, TableRows
from ntmp_cli.data.user.streams import BLOCK_BYTES
from ntmp_cli.data.user.table_files import STDIN
from ntmp_cli.data.user.table_sets import files_read
from ntmp_cli.errors import DataError
from ntmp_cli.evaluation.temperature import tuple_shift, usable_temperature
from ntmp_cli.progress import long_step
from ntmp_cli.storage import Location

if TYPE_CHECKING:
    from ntmp_cli.data.user.count_cells import CountColumn, CountsAre

log = logging.getLogger(__name__)

# Beside the columns of a user, while they wait.
SCORE = "ntmp score"


@dataclass(frozen=True)
class PredictOptions:
    """How rows are scored and where they go; nothing here changes a score."""

    if_exists: IfFileExists = "fail"
    device: str = "auto"
    stream: IO[bytes] | None = None
    """Takes the rows as CSV in place of the output file."""
    block_bytes: int = BLOCK_BYTES
    raw_ids: bool = False
    """Whether CSV has ids as they came, also those that a spreadsheet runs as formulas."""
    allow_outside: bool = False
    """Whether a table may name images outside of its folder."""
    may_be_empty: bool = False
    """Whether a table without rows gives one without rows."""
    check: Callable[[], None] = lambda: None
    """Called after every block; what it raises stops the work."""


DEFAULT_OPTIONS = PredictOptions()


@dataclass(frozen=True)
class ScoredTable:
    """What was written, and the causes of warnings."""

    rows: int
    positive: int
    quoted: int
    """Ids that a spreadsheet would have run as formulas."""
    unseen: dict[str, int]
    """Rows with a category that the training did not see, by column."""
    unused: tuple[str, ...]
    """Columns that the training did not have."""


def predict_rows(
    config: PredictConfig,
    run_path: Path,
    source: Location,
    out: Location,
    options: PredictOptions = DEFAULT_OPTIONS,
) -> dict[str, Any]:
    """Score the rows of `source` and write them to `out`, or to the options' stream."""
    run = open_run(run_path)
    if options.stream is None:
        refuse_overlap(out, (run_path,) if source == STDIN else (run_path, *files_read(source)))
        require_writable(out, options.if_exists)
    rows = open_rows(run, config, source, options)
    with long_step("loading the classifier"):
        scorer = Scoring(run, config, options.device)
    scored = write_scores(rows, scorer, out, options)
    warn_of(scored, rows.where)
    return prediction_facts(scorer, out, scored.rows, scored.positive)


def open_rows(run: RunArtifact, config: PredictConfig, source: Location, options: PredictOptions) -> RowSource:
    """The rows of `source`, if they have what the run was trained on."""
    instance = run.summary.instance
    needed: tuple[Role, ...] = ("tuple", "count") if config.with_counts else ()
    how = NewRowOptions(instance.resize, needed, options.allow_outside, options.block_bytes)
    return open_new_rows(source, read_mapping(run), instance.as_format(), how)


def write_scores(rows: RowSource, scorer: Scoring, out: Location, options: PredictOptions) -> ScoredTable:
    """Score all rows and write their table."""
    positive = total = 0
    unseen_before = Counter(scorer.unseen)
    beside = out.absolute().parent if options.stream is None and isinstance(out, Path) else None
    with_counts = scorer.config.with_counts
    blocks = _blocks_with_posteriors(rows, scorer, beside) if with_counts else _blocks(rows, scorer)
    with writing_table(out, options.if_exists, options.stream, raw_ids=options.raw_ids) as table:
        for block in blocks:
            table.write(block)
            total += block.num_rows
            positive += int(numbers_of(block.column("label")).sum())
            options.check()
        if total == 0:
            if not (options.may_be_empty and isinstance(rows, TableRows)):
                raise DataError(f"{rows.where}: has no rows", hint="Every row is one item to score.")
            table.write(_no_rows(rows, scorer))
    unused = rows.unused if isinstance(rows, TableRows) else ()
    return ScoredTable(total, positive, table.quoted, dict(scorer.unseen - unseen_before), unused)


def prediction_facts(scorer: Scoring, out: Location, rows: int, positive: int) -> dict[str, Any]:
    """The result of scoring, with the expected metrics of the labels."""
    from ntmp_cli.evaluation.expected_of_run import as_json, deployment, expected_of_run

    run, config, fit = scorer.run, scorer.config, scorer.temperature
    how = "calibrated by held-out counts" if fit.fit == "fitted" else f"not calibrated ({fit.fit})"
    if scorer.withheld is None:
        log.info("probabilities are %s: T = %.3g", how, fit.value)
    else:
        log.warning(
            "probabilities are withheld: their accuracy %s. Scores and labels are written; "
            "--probabilities always writes the probabilities too",
            scorer.withheld,
        )
    # They are of labels by the score: nothing is known of labels by the count of a new tuple.
    where = deployment(run.summary, config.prior, rows)
    expected = {} if config.with_counts else expected_of_run(scorer.scored, scorer.threshold, where)
    return {
        "kind": "prediction",
        "out": str(out),
        "run_sha256": run.sha256,
        "rows": rows,
        "positive": positive,
        "prior": scorer.prior,
        "temperature": fit.value,
        "calibration": fit.fit,
        "withheld": scorer.withheld,
        "with_counts": config.with_counts,
        "threshold": {
            "rule": config.threshold,
            "probability": scorer.label_above,
            # Rows with a count are labelled by their posterior, those without one by their probability.
            "posterior": scorer.posterior_above if config.with_counts else None,
        },
        "expected": as_json(expected),
    }


def warn_of(scored: ScoredTable, where: str) -> None:
    """Warn about unseen categories, extra columns and changed ids, in one line each."""
    if scored.unseen:
        columns = ", ".join(f"{name} ({number:,})" for name, number in scored.unseen.items())
        log.warning("%s: categories that training did not see (their features are 0): %s", where, columns)
    if unused := scored.unused:
        shown = ", ".join(unused[:MOST_SHOWN]) + (", …" if len(unused) > MOST_SHOWN else "")
        number = len(unused)
        log.warning("%s: %d column%s that the training did not have: %s", where, number, "s"[: number > 1], shown)
    warn_of_formulas(scored.quoted)


def warn_of_formulas(quoted: int) -> None:
    if quoted:
        log.warning(
            "%d ids begin like formulas of a spreadsheet: they are written with an apostrophe before them; "
            "--raw-ids writes them as they are",
            quoted,
        )


class Scoring:
    """A run as a function from raw rows to scores and probabilities."""

    def __init__(self, run: RunArtifact, config: PredictConfig, device: str) -> None:
        from ntmp_cli.evaluation.expected_of_run import (
            chosen_threshold,
            parsed_rule,
            posterior_threshold,
            scored_counts,
            unconfirmed,
        )

        self.run, self.config = run, config
        self._mapping = read_mapping(run)
        self.score = load_score(run, device)
        self.unseen: Counter[str] = Counter()
        """Rows with a category that the training did not see, by column."""
        self._channels = run.summary.instance.shape[0]
        trained_at = run.summary.trained_prior
        self.prior = config.prior or trained_at
        self._shift = float(logit(self.prior) - logit(trained_at))
        scores = read_scores(run)
        self.temperature = usable_temperature(run.summary, scores)
        self.scored = scored_counts(run.summary, scores)
        self.withheld = None if config.probabilities == "always" else unconfirmed(self.scored)
        """Why no probabilities are written."""
        at_tuples = tuple_shift(run.summary)
        rule = parsed_rule(config.threshold)
        self.posterior_above = posterior_threshold(config.threshold) if config.with_counts else np.nan
        """Posterior from which a row with a count is positive."""
        # Log-odds at the prior are score / T + shift, scores at the tuples' rate score − at_tuples.
        if rule is None:
            self.label_above = 0.5
            self.threshold = -self._shift * self.temperature.value - at_tuples
        else:
            self.threshold = chosen_threshold(rule, self.scored, self.prior)
            self.label_above = float(expit((self.threshold + at_tuples) / self.temperature.value + self._shift))

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """Scores of the classifier: log-odds at the prior of the run, before the temperature."""
        return self.score(self.instances(rows))

    def instances(self, rows: Rows) -> NDArray[Any]:
        """What the classifier scores of raw rows; categories that the training did not see are counted."""
        if self._mapping is not None and not isinstance(self._mapping.features, ImageFeatures):
            self.unseen.update(self._mapping.features.unseen(rows.cells))
            instances: NDArray[Any] = self._mapping.features.apply(rows.cells)
        elif rows.cells.ndim == 2:
            instances = rows.cells.astype(np.float32)
        else:
            instances = rows.cells[:, : self._channels]  # gray pictures are read with three equal ones
        return instances

    def log_odds(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores calibrated by held-out counts, still at the prior of the run."""
        return scores / self.temperature.value

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """P(y=1) at `prior`: log-odds are shifted by the difference of the priors' logits."""
        moved: NDArray[np.float64] = expit(self.log_odds(scores) + self._shift)
        return moved

    def shown(self, probabilities: NDArray[np.float64]) -> Any:
        """As a column: NaN, and everything that is withheld, is empty."""
        withheld = np.isnan(probabilities) if self.withheld is None else np.ones(len(probabilities), bool)
        return number_column(probabilities, withheld)


def _blocks(source: RowSource, scoring: Scoring) -> Iterator[Any]:
    """Output rows, block by block."""
    problems = Problems()
    start = 0
    for rows in watched(source, problems):
        if problems.total:  # the rest is read to list what is wrong there as well
            continue
        scores = scoring.scores(rows)
        probabilities = scoring.probabilities(scores)
        names = _names(source, rows, start)
        labels = (probabilities >= scoring.label_above).astype(np.int8)
        yield _table(names, scores, {"probability": scoring.shown(probabilities)}, labels)
        start += len(rows.cells)
    problems.raise_if_any()


def _blocks_with_posteriors(source: RowSource, scoring: Scoring, beside: Path | None) -> Iterator[Any]:
    """Output rows with P(y=1 | scores, count). What names them waits on disk, in `beside`, until all are read."""
    from ntmp_cli.artifacts.temporary_batches import TemporaryBatches
    from ntmp_cli.counting.laws import count_noise
    from ntmp_cli.evaluation.row_posteriors import RowPosteriors

    problems = Problems()
    given_counts = RowPosteriors(source, _count_column(scoring.run), problems)
    at_tuples = tuple_shift(scoring.run.summary)
    start = 0
    with TemporaryBatches(beside) as held:
        for rows in watched(source, problems):
            if problems.total:
                continue
            scores = scoring.scores(rows)
            held.append({**_names(source, rows, start), SCORE: number_column(scores)})
            given_counts.add(rows, scoring.log_odds(scores) - at_tuples)
            start += len(scores)
        problems.raise_if_any()
        if not start:
            return
        posteriors = given_counts.posteriors(count_noise(scoring.run.summary.count_noise))
        start = 0
        for columns in held:
            block = numbers_of(columns.pop(SCORE))
            given_count = posteriors[start : start + len(block)]
            probabilities = scoring.probabilities(block)
            has_count = ~np.isnan(given_count)
            positive = np.where(has_count, given_count >= scoring.posterior_above, probabilities >= scoring.label_above)
            shown = {"probability": scoring.shown(probabilities), "posterior": scoring.shown(given_count)}
            yield _table(columns, block, shown, positive.astype(np.int8))
            start += len(block)


def _count_column(run: RunArtifact) -> CountColumn:
    """How the counts of new rows are read: as those that the run was trained on."""
    from ntmp_cli.counting.laws import parse_law
    from ntmp_cli.data.user.count_cells import CountColumn

    imported = run.summary.tuples_config
    law = trained_law(run) or str(imported.get("count_law") or "exact")
    counts_are = cast("CountsAre", imported.get("counts_are") or "counts")
    advice = "then write 25%, because the run was trained on counts"
    return CountColumn(counts_are, parse_law(law), advice, noise_advice="")


def watched(source: RowSource, problems: Problems) -> Iterator[Rows]:
    """All rows of a source, block by block, reported as a long step."""
    with long_step(f"scoring {source.where}", source.expected_rows, "rows") as advance:
        for rows in source.rows(problems):
            yield rows
            advance(len(rows.cells))


def _names(source: RowSource, rows: Rows, start: int) -> dict[str, Any]:
    """Columns that identify a row: id, tuple and count as they came, or the row number."""
    named = {source.role_names[role]: column for role, column in rows.roles.items()}
    return named or {"row": number_column(np.arange(start + 1, start + 1 + len(rows.cells)))}


def _no_rows(source: TableRows, scoring: Scoring) -> Any:
    """The output of a table without rows."""
    nothing: NDArray[np.float64] = np.empty(0)
    named = {source.role_names[role]: pa.array([], kind) for role, kind in source.role_types.items()}
    names = named or {"row": pa.array([], pa.int64())}
    return _table(names, nothing, {"probability": scoring.shown(nothing)}, nothing.astype(np.int8))


def _table(
    names: dict[str, Any], scores: NDArray[np.float64], probabilities: dict[str, Any], labels: NDArray[np.int8]
) -> Any:
    score, label = number_column(scores.astype(np.float32)), number_column(labels)
    columns = {**names, "score": score, **probabilities, "label": label}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
