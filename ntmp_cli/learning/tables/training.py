"""A training of a learner for tables: from a source of tuples to a scorer at the prior of the pool."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recorded import join
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.learning.groups import rate_shift, require_orientation, usable_rate
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.learning.methods.count import CountSettings, require_side
from ntmp_cli.learning.model_choice import TABLE_METHOD, is_estimator
from ntmp_cli.learning.orientation_evidence import Evidence, OrientationTest, require_agreement, require_certainty
from ntmp_cli.learning.pool_prior import prior_of_pool
from ntmp_cli.learning.results import EpochRecord, FoldFits, InstanceScorer, Trained, TrainingResult
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import FittedTable, Split, fit_table
from ntmp_cli.learning.tables.ensemble import folds as split_into_folds
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.progress import long_step
from ntmp_cli.randomness import stream
from ntmp_cli.tuple_source import HeldoutData, TupleSource

if TYPE_CHECKING:
    from ntmp_cli.learning.tables.em import FittedEstimator

log = logging.getLogger(__name__)

# Stand-ins for an unknown prior on a known side of 0.5: for tuples that are half positive only the side is used.
ASSUMED_PRIORS = {"prior<0.5": 0.25, "prior>0.5": 0.75}


def train_table(
    config: TrainConfig, source: TupleSource, estimator: Any = None, *, prior_is_known: bool = True
) -> Trained:
    """The configured learner, fitted to all tuples; held-out ones too, unless tuples share instances.

    Its scores of tuples are out-of-fold, so that calibration and audits can use them like those of held-out tuples. A
    scikit-learn classifier is built from its name and parameters, unless the caller passes one.
    """
    started = time.perf_counter()
    if (config.ranks or 1) > 1:
        raise UsageError(f"model {config.model} is computed at once, in one process", hint="Or use --model mlp.")
    heldout, task, options = source.heldout(), source.task, _options(config)
    require_side(options, task, config.prior_or_none)
    if (known := config.prior_or_none) is not None:
        require_orientation(task.symmetric, known)
    elif task.symmetric and options.assume is None:
        raise NotIdentifiableError(
            "every tuple is half positive, so that counts alone do not tell the two classes apart",
            hint="Give the prior of an unlabeled pool, other than 0.5, or add tuples of another rate.",
        )
    data, splits = _table_data(config, source, heldout, prior_is_known=prior_is_known)
    if data.one_class and is_estimator(config.model):
        raise NotIdentifiableError(
            f"all tuple instances are of one class, which model {config.model} cannot learn from",
            hint="Use model auto, linear or trees with an unlabeled pool and its prior.",
        )
    fitted = _fit(config, data, stream(config.seed, "tables"), splits, estimator)
    if data.weights is not None and isinstance(fitted, FittedTable) and not data.one_class:
        fitted = _at_rate_of_tuples(data, fitted)
    prior = None
    if config.prior_or_none is None:
        prior = prior_of_pool(_scored(config, data, fitted), stream(config.seed, "pool-prior"), options.assume)
    at = (data.rate, data.observed.instances) if data.one_class else (task.rate, task.instances)
    shift = rate_shift(config.known_prior() if prior is None else prior.value, *at)
    known = data.prior if prior_is_known or task.symmetric else None
    known_beside = OrientationTest(task, usable_rate(task.rate, task.instances), known, data.observed.law)
    z = _orientation_z(known_beside, data, fitted, options)
    scorer = fitted.scorer.moved(shift)
    test = source.test_instances()
    fields = {
        "epoch": 1,
        "loss": None,
        "heldout_risk": fitted.nll,
        "spread": fitted.spread,
        "learners": list(fitted.learners),
    }
    record = EpochRecord(1, fields, scorer.score(test), time.perf_counter() - started, task.instances + task.unlabeled)
    observed = data.observed
    return Trained(
        methods.get(config.method),
        config.model,
        "estimator" if is_estimator(config.model) else "table",
        scorer,
        TrainingResult([record], 1),
        heldout=HeldoutScores(
            fitted.scores + shift,
            observed.sizes[fitted.judged],
            observed.counts[fitted.judged],
            np.empty(0) if heldout is None else scorer.score(heldout.unlabeled),
        ),
        folds=_moved(fitted.folds, shift),
        pool_scores=fitted.pool_scores + shift,
        prior=prior,
        orientation_z=z,
        spread=fitted.spread,
    )


def _at_rate_of_tuples(data: TableData, fitted: FittedTable) -> FittedTable:
    """Move log-odds from the weighted rate of the tuples to the rate at which all counts are most probable."""
    from scipy.optimize import minimize_scalar

    objective, z = CountObjective(data.observed.subset(fitted.judged), fitted.spread), fitted.scores
    shift = float(minimize_scalar(lambda b: -objective.log_prob(z + b).sum(), bounds=(-5, 5), method="bounded").x)
    return replace(
        fitted,
        scorer=fitted.scorer.moved(shift),
        scores=z + shift,
        pool_scores=fitted.pool_scores + shift,
        folds=_moved(fitted.folds, shift),
    )


def _moved(folds: FoldFits | None, shift: float) -> FoldFits | None:
    """The fits of the folds with `shift` added to their scores."""
    return None if folds is None else folds._replace(scorers=tuple(scorer.moved(shift) for scorer in folds.scorers))


def _orientation_z(
    test: OrientationTest, data: TableData, fitted: FittedTable | FittedEstimator, options: CountSettings
) -> float:
    """The certainty of the orientation as z, from out-of-fold scores of tuples and pool."""
    observed, judged = data.observed, fitted.judged
    shift = 0.0
    if data.one_class and data.prior is not None:  # at their rate all scores are nearly certain
        shift = rate_shift(data.prior, data.rate, observed.instances)
    scores, pool_scores = fitted.scores + shift, fitted.pool_scores + shift
    unseen = HeldoutScores(scores, observed.sizes[judged], observed.counts[judged], pool_scores)
    if data.one_class:  # its class is known, so the orientation is never refused
        return Evidence(test.first_order([unseen]), 0.0).z
    evidence = test.evidence([unseen], test.count_fits(unseen))
    require_agreement(evidence, test, options)
    z = evidence.trusted(options.trust).z
    require_certainty(z, test, options)
    return z


def _options(config: TrainConfig) -> CountSettings:
    assert isinstance(config.settings, CountSettings), "learners for tables are of the method count"
    return config.settings


def cross_fitted_tuples(config: TrainConfig, source: TupleSource, *, prior_is_known: bool = False) -> ScoredTuples:
    """Out-of-fold scores of the training tuples, at their rate, and of the pool by the same fits."""
    data, _ = _table_data(config, source, None, prior_is_known=prior_is_known)
    fitted = _fit(config, data, stream(config.seed, "tables"))
    return _scored(config, data, fitted)


def scores_without_prior(config: TrainConfig, source: TupleSource) -> ScoredTuples:
    """Out-of-fold scores of all tuples, at their rate; of held-out ones only if tuples share rows."""
    data, splits = _table_data(config, source, source.heldout())
    return _scored(config, data, _fit(config, data, stream(config.seed, "tables"), splits))


def law_scoring(config: TrainConfig) -> TrainConfig:
    """The linear model whose cross-fitted scores estimate a law of noise: the law is of the tuples, not of a method."""
    if config.method != TABLE_METHOD:
        return TrainConfig(method=TABLE_METHOD, model="linear", seed=config.seed)
    return config.model_copy(update={"model": "linear", "prior": None, "count_law": None, "estimator": {}})


def fold_scorers(
    config: TrainConfig, source: TupleSource, folds: int, *, prior_is_known: bool = False
) -> Iterator[tuple[InstanceScorer, TableData]]:
    """Classifiers like the configured one, each fitted without one fold of all tuples, with that fold."""
    data, _ = _table_data(config, source, source.heldout(), prior_is_known=prior_is_known)
    if data.one_class:
        raise NotIdentifiableError(
            "all tuple instances are of one class, so their counts do not tell how good a score is",
            hint="Use tuples with 0 < m < n, or of several rates.",
        )
    rng = stream(config.seed, "fold-scorers")
    for split in split_into_folds(data, rng, folds):
        yield _fit(config, data.subset(split.training), rng).scorer, data.subset(split.judged)


def _fit(
    config: TrainConfig,
    data: TableData,
    rng: np.random.Generator,
    splits: Sequence[Split] | None = None,
    estimator: Any = None,
) -> FittedTable | FittedEstimator:
    with long_step(f"fitting the model {config.model}"):
        return _fit_model(config, data, rng, splits, estimator)


def _fit_model(
    config: TrainConfig, data: TableData, rng: np.random.Generator, splits: Sequence[Split] | None, estimator: Any
) -> FittedTable | FittedEstimator:
    if not is_estimator(config.model):
        return fit_table(data, config.model, rng, splits)
    from ntmp_cli.learning.tables.em import fit_estimator
    from ntmp_cli.learning.tables.estimator_scorer import named_estimator

    chosen = named_estimator(config.model, config.estimator) if estimator is None else estimator
    return fit_estimator(data, chosen, rng, splits)


def _table_data(
    config: TrainConfig, source: TupleSource, heldout: HeldoutData | None, *, prior_is_known: bool = False
) -> tuple[TableData, list[Split] | None]:
    """All tuples, training ones first; if they share instances, the held-out ones validate the fit of the others.

    Fits learn from the pool only if its prior was not estimated from these tuples.
    """
    blocks = [source.read_tuples(name, 0, rows) for name, rows in source.tuple_shards()]
    pool = [source.read_unlabeled(name, 0, rows) for name, rows in source.unlabeled_shards()]
    if heldout is not None:
        blocks.append((heldout.tuples, heldout.sizes, heldout.counts))
        pool.append(heldout.unlabeled)
    columns = list(zip(*blocks, strict=True))
    x, sizes, counts = np.concatenate(columns[0]), np.concatenate(columns[1]), join(columns[2])
    law = count_noise(getattr(config.settings, "count_noise", 0.0))
    unlabeled = _rows(np.concatenate(pool)) if sum(map(len, pool)) else None
    options, prior, weights = _options(config), config.prior_or_none, source.weights()
    if prior is None and options.assume is not None and source.task.symmetric:
        prior = ASSUMED_PRIORS[options.assume]
    data = TableData(
        _rows(x),
        CountObservations(sizes, counts, law),
        unlabeled,
        None if options.trust == "counts" else prior,
        source.blocks(),
        None if weights is None or (weights == 1).all() else weights,
        trusts_prior=options.trust == "prior",
        pool_prior=config.prior_or_none if prior_is_known and options.trust != "counts" else None,
    )
    if heldout is None or not source.shares_instances:
        return data, None
    training = len(sizes) - len(heldout.sizes)
    return data, [Split(np.arange(training), np.arange(training, len(sizes)))]


def _rows(raw: NDArray[np.generic]) -> NDArray[np.float64]:
    """Raw rows in double precision, as the scorer expects them."""
    return np.ascontiguousarray(raw, dtype=np.float64)


def _scored(config: TrainConfig, data: TableData, fitted: FittedTable | FittedEstimator) -> ScoredTuples:
    observed, judged = data.observed, fitted.judged
    noise = getattr(config.settings, "count_noise", 0.0)
    sizes, counts = observed.sizes[judged], observed.counts[judged]
    blocks = None if data.blocks is None else data.blocks[judged]
    return ScoredTuples(fitted.scores, sizes, counts, fitted.pool_scores, noise, fitted.spread or 0.0, blocks)
