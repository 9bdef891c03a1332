"""predict --by: how many positives every group of new rows has, with an interval by conformal prediction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.artifacts import RunArtifact, refuse_overlap
from ntmp_cli.artifacts.layout import SCORES
from ntmp_cli.artifacts.runs import open_run
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_scorer import Score, load_fold_scores, read_mapping
from ntmp_cli.artifacts.table_writer import require_writable, writing_table
from ntmp_cli.config import PredictConfig
from ntmp_cli.counting.recalibration import Recalibration, recalibrate
from ntmp_cli.data.user.count_cells import NONE
from ntmp_cli.data.user.grouping import group_rows
from ntmp_cli.data.user.new_rows import NewRowOptions, open_new_rows
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import RowSource, tuple_codes
from ntmp_cli.data.user.table_files import STDIN, as_text
from ntmp_cli.data.user.table_sets import files_read
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.evaluation.conformal import Residuals, count_interval, residuals
from ntmp_cli.evaluation.expected_of_run import scored_counts
from ntmp_cli.evaluation.group_counts import count_moments, count_quantiles, probability_of_any
from ntmp_cli.evaluation.temperature import FEWEST_TUPLES, tuple_shift
from ntmp_cli.progress import long_step
from ntmp_cli.stages.predict import DEFAULT_OPTIONS, PredictOptions, Scoring, warn_of_formulas, watched
from ntmp_cli.storage import Location

log = logging.getLogger(__name__)

QUANTILES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
COLUMNS = ("rows", "expected", "at_least_one", *(f"q{round(100 * level):02d}" for level in QUANTILES), "low", "high")
"""Of the output, behind that of the groups."""
SPLIT = (
    "split conformal: a new group that is exchangeable with the held-out tuples is inside with this probability; exact "
    "if these tuples did not decide which class is positive"
)
SELECTED = (
    "split conformal: about this share of new groups that are exchangeable with the held-out tuples is inside; exact "
    "if these tuples had not also chosen the epoch or the settings of the learner (train --select last)"
)
IN_BLOCKS = (
    "none: tuples of one block are alike, so that fewer groups of other blocks may be inside than the level says"
)
SEEN = (
    "none: a fit that saw the tuples may have scored them (tuples of one class or of one block, or a run of an earlier "
    "version), so that fewer new groups may be inside than the level says"
)
CROSS_FITTED = (
    "cross-fitted: the tuples were scored by fits that did not see them, new groups by the fit to all; "
    "about this share of groups like the tuples is inside, without a guarantee for small samples"
)
CV_PLUS = (
    "CV+: about this share of new groups that are exchangeable with the tuples is inside, and at least {:.0%}; that "
    "bound is exact if these tuples had not also chosen the settings and the weights of the learners"
)
UNPROVEN = (IN_BLOCKS, SEEN, CROSS_FITTED)


class _Groups(NamedTuple):
    """New rows by group: names, sizes, and scores group by group, at the rate of the tuples."""

    names: list[str]
    sizes: NDArray[np.int64]
    z: NDArray[np.float64]
    """By the classifier."""
    z_by_fit: list[NDArray[np.float64]]
    """By the fits that scored the tuples of the run."""


class _Learned(NamedTuple):
    """What the held-out or cross-fitted tuples of a run say of new groups."""

    residuals: Residuals
    line: Recalibration
    smallest: int
    largest: int
    guarantee: str
    guaranteed: float | None
    """The least probability of being inside, where something is proven of it."""


def predict_groups(
    config: PredictConfig, run_path: Path, source: Location, out: Location, options: PredictOptions = DEFAULT_OPTIONS
) -> dict[str, Any]:
    """Write one row per group of `source` to `out`, or to the options' stream."""
    _refuse_settings(config)
    run = open_run(run_path)
    if options.stream is None:
        refuse_overlap(out, (run_path,) if source == STDIN else (run_path, *files_read(source)))
        require_writable(out, options.if_exists)
    folds = load_fold_scores(run)
    groups = _read(config, run, source, folds, options)
    spread = run.summary.spread or 0.0
    learned = _learned(run, config.confidence, spread, len(folds))
    calibrated = learned.line.slope * groups.z + learned.line.intercept
    expected, _ = count_moments(calibrated, groups.sizes, spread)
    quantiles = count_quantiles(calibrated, groups.sizes, spread, QUANTILES)
    low, high = count_interval(groups.z_by_fit, groups.sizes, spread, learned.residuals)
    at_least_one = probability_of_any(calibrated, groups.sizes, spread)
    numbers = [pa.array(values) for values in (groups.sizes, expected, at_least_one, *quantiles.T, low, high)]
    with writing_table(out, options.if_exists, options.stream, raw_ids=options.raw_ids) as table:
        names = pa.array(groups.names, pa.string())
        table.write(pa.RecordBatch.from_arrays([names, *numbers], names=[str(config.by), *COLUMNS]))
    warn_of_formulas(table.quoted)
    unlike = int(((groups.sizes > 1) & ((groups.sizes < learned.smallest) | (groups.sizes > learned.largest))).sum())
    _warn(groups, learned, unlike)
    is_limited = learned.residuals.limited
    return {
        "kind": "group-prediction",
        "out": str(out),
        "run_sha256": run.sha256,
        "groups": len(groups.sizes),
        "rows": int(groups.sizes.sum()),
        "expected": float(expected.sum()),
        "confidence": config.confidence,
        "calibration_tuples": learned.residuals.tuples,
        "guarantee": learned.guarantee if is_limited else None,
        "guaranteed_confidence": learned.guaranteed if is_limited else None,
        "groups_of_unseen_sizes": unlike,
        "seen_sizes": [learned.smallest, learned.largest],
    }


def _refuse_settings(config: PredictConfig) -> None:
    """Refuse settings of rows, which would have no effect, and a name that two columns would have."""
    settings = {
        "--prior": config.prior is not None,
        "--with-counts": config.with_counts,
        "--threshold": config.threshold != PredictConfig().threshold,
    }
    if given := [option for option, is_given in settings.items() if is_given]:
        raise UsageError(
            f"{given[0]} and --by: counts are predicted for groups like those that the run was trained on",
            hint="Leave one of them out.",
        )
    if config.by in COLUMNS:
        raise UsageError(
            f"--by {config.by}: a column of the output has this name",
            hint=f"Rename the column of groups; those of the output are {', '.join(COLUMNS)}.",
        )


def _learned(run: RunArtifact, confidence: float, spread: float, fits: int) -> _Learned:
    """From held-out or cross-fitted tuples: residuals, calibration, smallest and largest size."""
    scores = read_scores(run)
    scored = scored_counts(run.summary, scores)
    no_line = Recalibration(1.0, 0.0, 0.0)
    if scored is None:
        nothing = (np.empty(0),) * max(fits, 1)
        return _Learned(Residuals(nothing, nothing, 0, 0, confidence, noisy=False), no_line, 1, 2**62, "", None)
    sizes, folds = scored.observed.sizes, scores.get("heldout_folds")
    if fits and (folds is None or int(folds.max()) + 1 != fits):
        raise run.damaged(SCORES, "'heldout_folds' do not fit the fits of the folds")
    calibration = residuals(scored.z, sizes, scores["heldout_counts"], spread, confidence, folds if fits else None)
    few = len(sizes) < FEWEST_TUPLES
    line = no_line if few else recalibrate(scored.z, scored.observed, steepest=0.0, spread=spread)
    guarantee = _guarantee(run, folds, fits)
    proven = None if guarantee in UNPROVEN else calibration.guaranteed
    seen = sizes[sizes > 1] if (sizes > 1).any() else sizes
    return _Learned(
        calibration, line, int(seen.min()), int(seen.max()), guarantee.format(calibration.guaranteed), proven
    )


def _guarantee(run: RunArtifact, folds: NDArray[np.int64] | None, fits: int) -> str:
    """What holds of the interval, by how the tuples were scored."""
    is_network, mapping = run.summary.learner == "network", read_mapping(run)
    if folds is None and not is_network:
        return SEEN
    if mapping is not None and mapping.roles.block_column is not None:
        return IN_BLOCKS
    if fits:
        return CV_PLUS
    if folds is not None and folds.any():
        return CROSS_FITTED
    is_last = is_network and run.manifest.config.get("select") == "last"
    return SPLIT if is_last else SELECTED


def _warn(groups: _Groups, learned: _Learned, unlike: int) -> None:
    if not learned.residuals.limited:
        log.warning(
            "%d tuples of several rows can calibrate (with a count, a range, or added noise, scored by a fit without "
            "them): too few, so the interval contains all counts",
            learned.residuals.tuples,
        )
    elif learned.guarantee in (IN_BLOCKS, SEEN):
        log.warning("intervals of groups have no guarantee: %s", learned.guarantee.removeprefix("none: "))
    if unlike:
        log.warning(
            "%d of %d groups have sizes that no tuple had (%d to %d): their intervals have no guarantee",
            *(unlike, len(groups.sizes), learned.smallest, learned.largest),
        )


def _read(
    config: PredictConfig, run: RunArtifact, source: Location, folds: Sequence[Score], options: PredictOptions
) -> _Groups:
    assert config.by is not None, "the command asks for groups"
    mapping = read_mapping(run)
    if mapping is None:
        raise UsageError(
            f"{run.path}: --by names a column, and this run was not trained on rows of a table or on imported images",
            hint="Score the rows with `ntmp predict`, and add up their probabilities.",
        )
    rows = open_new_rows(
        source,
        mapping.model_copy(update={"roles": mapping.roles.model_copy(update={"tuple_column": config.by})}),
        run.summary.instance.as_format(),
        NewRowOptions(run.summary.instance.resize, ("tuple",), options.allow_outside, options.block_bytes),
    )
    with long_step("loading the classifier"):
        scoring = Scoring(run, config, options.device)
    if scoring.withheld is not None:
        log.warning("expected counts and quantiles are not confirmed: their accuracy %s", scoring.withheld)
    codes, names, scores = _scored(rows, scoring, folds)
    order, offsets = group_rows(codes, len(names))
    if alone := int((codes == NONE).sum()):
        log.warning("%s: %d rows have no %s, and are in no group", rows.where, alone, config.by)
    if not len(order):
        raise DataError(f"{rows.where}: no row has a {config.by}", hint="--by names the column of groups.")
    z = (scores - tuple_shift(run.summary))[:, order]
    return _Groups(names, np.diff(offsets), z[0], [*z[1:]] or [z[0]])


def _scored(
    rows: RowSource, scoring: Scoring, folds: Sequence[Score] = ()
) -> tuple[NDArray[np.int32], list[str], NDArray[np.float64]]:
    """The group of every row, and its scores by the classifier and by every fold, row by row."""
    problems, ids, scores = Problems(), [], []
    for block in watched(rows, problems):
        if problems.total:
            continue
        ids.append(as_text(block.roles["tuple"]).dictionary_encode())
        instances = scoring.instances(block)
        scores.append(np.stack([scoring.score(instances), *(score(instances) for score in folds)]))
    problems.raise_if_any()
    if not scores:
        raise DataError(f"{rows.where}: has no rows", hint="Every row is one item to score.")
    codes, names = tuple_codes(ids)
    return codes, names, np.concatenate(scores, axis=1)
