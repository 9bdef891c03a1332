"""`NTMPClassifier`: learning from counted tuples by scikit-learn's conventions, in memory.

    >>> model = NTMPClassifier().fit(X, ids, {"a": 1, "b": 2})
    >>> model.predict_proba(X_new)

Rows of `X` that share an id form a tuple; rows without id are unlabeled. The learners are those of `ntmp train`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import law_text
from ntmp_cli.data.user.mapping import TableFeatures
from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.calibration import temperature_by_counts
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.model_choice import AUTO, is_table_training, unused_by_closed_form, unused_by_tables
from ntmp_cli.learning.results import InstanceScorer, Trained
from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer, model_name
from ntmp_cli.learning.tables.law_estimate import is_auto, widest_law
from ntmp_cli.learning.tables.scorer import TableScorer
from ntmp_cli.plugins import load_plugins
from ntmp_cli.python.fitting import require_usable, trained_on, with_estimated_law
from ntmp_cli.python.frames import (
    apply_features,
    as_frame,
    fit_features,
    in_range,
    is_plain,
    plain_cells,
    warn_of_lost_digits,
    without_unknown,
)
from ntmp_cli.python.saving import SavedClassifier
from ntmp_cli.python.tuple_rows import ByTuple, FitArguments, TupleIds, is_count_labels, read_tuples, with_labels
from ntmp_cli.settings import build
from ntmp_cli.tuple_source import ArraySource, InstanceFormat

Floats = NDArray[np.float64]
Features = NDArray[np.float32] | NDArray[np.float64]
# Learners for tables take numbers in the precision in which they are given.
PLAIN = (np.float64, np.float32)
# With fewer held-out tuples a fitted temperature is mostly noise.
FEWEST_TUPLES = 50
# Settings of `ntmp train` that have another place here.
ELSEWHERE = {"prior": "Pass it to fit(…, prior=…).", "seed": "Use random_state."}


class NTMPClassifier(ClassifierMixin, SavedClassifier):  # type: ignore[misc]
    """A classifier of single items, trained on tuples with a known number of positives.

    Parameters
    ----------
    method : a name of `ntmp list methods` that needs neither labels nor an encoder. None: `count`, or the method that
        has the other settings (`clamp` selects `ure`).
    model : `auto` (linear model and trees, weighted by cross-fitted counts), `linear`, `trees`, or any network of
        `ntmp list models` that takes vectors.
    estimator : a scikit-learn classifier with `sample_weight` and `predict_proba`, or a Pipeline that ends in one. EM
        with exact posteriors given the counts fits a copy of it; `model` is not used then.
    epochs, lr, batch_size : settings of networks, with the defaults of `ntmp train`.
    heldout_share : share of tuples and unlabeled rows that networks hold out to choose the epoch and to calibrate.
    random_state : seed of initialisation, batch order and held-out split. Equal seeds give equal classifiers.
    settings : any other setting of `ntmp train` or of the method: `clamp="abs"`, `count_noise=0.1`, `weight_decay=0`.
        `fit` raises an error for an unknown setting, and warns about a setting of another method.

    Attributes
    ----------
    classes_ : array([0, 1]); 1 is the class that was counted.
    prior_ : class prior of the unlabeled rows, given or estimated. Without such rows: the rate of the tuples.
    prior_source_ : "given", "estimated" or "tuples".
    prior_interval_ : 95 % interval of an estimated prior, or None.
    temperature_ : temperature of the scores, fitted to the counts of held-out or cross-fitted tuples.
    tuple_rate_ : share of positives in the tuples.
    spread_ : standard deviation of the random intercept of a tuple; None if it is not estimated.
    count_law_ : law of noise of the counts.
    count_law_intervals_ : 95 % intervals of the parameters of this law, if they were estimated.
    coef_, intercept_ : coefficients of a linear model, in the order of `get_feature_names_out()`.
    estimator_ : the fitted scikit-learn classifier, if one was given.
    history_ : one record per epoch.
    n_features_in_ : number of columns of X.
    feature_names_in_ : names of the columns, if X is a DataFrame.
    """

    def __init__(
        self,
        method: str | None = None,
        model: str = AUTO,
        estimator: Any = None,
        epochs: int | None = None,
        lr: float = 1e-3,
        batch_size: int | None = None,
        heldout_share: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
        **settings: Any,
    ) -> None:
        self.method = method
        self.model = model
        self.estimator = estimator
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.heldout_share = heldout_share
        self.random_state = random_state
        # Not a public attribute: scikit-learn takes every public one for a parameter.
        self._settings = settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name, including the settings."""
        return {**super().get_params(deep=deep), **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Set parameters and settings by name."""
        named = set(self._get_param_names())
        parameters = {name: value for name, value in params.items() if name.partition("__")[0] in named}
        super().set_params(**parameters)
        self._settings = {**self._settings, **{name: value for name, value in params.items() if name not in parameters}}
        return self

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        tuples: TupleIds,
        counts: ByTuple | None = None,
        unlabeled: ArrayLike | None = None,
        prior: float | None = None,
        sample_weight: ByTuple | None = None,
        blocks: ByTuple | None = None,
        labels: ArrayLike | None = None,
    ) -> Self:
        """Fit the classifier to tuples and, if given, unlabeled rows.

        Parameters
        ----------
        X : (N, d) rows; an array, or a DataFrame of pandas, Polars or Arrow, with texts and gaps.
        tuples : N ids. Rows with the same id form a tuple; rows with None or NaN are unlabeled. Without `counts`, pass
            the result of `count_labels(ids, counts)`.
        counts : numbers of positives: a mapping by tuple id, one per tuple in order of appearance (T), or one per row
            (N). A count may be a pair (low, high), as in an array (T, 2), or a text as in a table: "1-3", ">=1",
            "25%". The setting `count_law` names their noise: `gaussian:2`, or `gaussian:auto` to estimate it.
        unlabeled : (M, d) further unlabeled rows. Networks need unlabeled rows.
        prior : share of positives among the unlabeled rows; None estimates it.
        sample_weight : weight of every tuple, in the same form as counts; a tuple of weight 0 is left out. Not for
            networks.
        blocks : block of every tuple, in the same form as counts. A block is never divided between folds.
        labels : N labels, 0 or 1; None or NaN if unknown. Known labels are used in addition to the counts: a labelled
            row becomes a tuple of one row, and the other rows of its tuple keep the rest of the count.
        """
        given = FitArguments(X, tuples, counts, blocks, sample_weight)
        X, tuples, counts, blocks, sample_weight = given.without_absent()
        x, pool = self._fitted_features(X, unlabeled)
        # A random generator is used once, to get one seed for everything.
        state = self.random_state
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31 - 1))
        if prior is not None and not 0 < prior < 1:
            raise UsageError(f"prior {prior}: expected a share between 0 and 1")
        config = self._config(seed)
        require_usable(config)
        law = config.count_law or "exact"
        readable = law_text(widest_law(law)) if is_auto(law) else law
        known = read_tuples(len(x), tuples, counts, blocks, readable)
        if labels is not None:
            if sample_weight is not None:
                raise UsageError(
                    "labels and sample_weight: labelled rows have no weight", hint="Leave one of them out."
                )
            known = with_labels(known, labels, (0, 1), getattr(config.settings, "count_noise", 0.0))
        groups = known.groups
        config = config.model_copy(update={"prior": prior})
        if not is_table_training(config, InstanceFormat(x.shape[1:], x.dtype)):  # networks compute in 32 bits
            warn_of_lost_digits(x, single := x.astype(np.float32, copy=False))
            x, pool = single, pool.astype(np.float32, copy=False)
        elif (config.model or "").startswith("sklearn:"):  # trees of scikit-learn compute in 32 bits too
            warn_of_lost_digits(x, x.astype(np.float32, copy=False))
        source = ArraySource(
            np.ascontiguousarray(x[groups.rows]),
            groups.sizes,
            known.counts,
            np.concatenate([x[groups.pool], pool]),
            tuple_blocks=known.blocks,
            tuple_weights=None if sample_weight is None else groups.weights(sample_weight),
            standardised=self._mapping is not None,
        )
        self.count_law_, self.count_law_intervals_ = law, {}
        if is_auto(law):
            source, found = with_estimated_law(config, source, law)
            self.count_law_, self.count_law_intervals_ = law_text(found.law), found.intervals
        if is_table_training(config, source.instance):
            self._warn_of_networks_settings(unused_by_tables(config) | {"heldout_share"}, f"model {config.model}")
        else:
            self._warn_of_networks_settings(unused_by_closed_form(config), f"method {config.method}")
        trained, self._task = trained_on(config, source, self._given_estimator(), self.heldout_share)
        self._keep(trained, config)
        return self

    def _fitted_features(self, X: Any, unlabeled: Any) -> tuple[Features, Features]:
        """Features of X and of the unlabeled rows, as precise as given; frames with texts or gaps are mapped."""
        frame, more = as_frame(X), as_frame(unlabeled)
        if frame is None:
            x = in_range(validate_data(self, X, dtype=PLAIN))
            self._mapping: TableFeatures | None = None
            if unlabeled is None:
                return x, x[:0]
            pool = None if more is not None else in_range(check_array(unlabeled, dtype=PLAIN))
            if pool is None or pool.shape[1] != x.shape[1]:
                raise _unlike_x(f"of {pool.shape[1]} columns" if pool is not None else "a DataFrame", x.shape[1])
            return x, pool
        validate_data(self, X, skip_check_array=True)
        if unlabeled is not None and (more is None or list(more.columns) != list(frame.columns)):
            raise _unlike_x("no DataFrame" if more is None else "of other columns", frame.shape[1])
        frames = [frame] if more is None else [frame, more]
        self._mapping = None if all(map(is_plain, frames)) else fit_features(frames)
        x = self._mapped(frame)
        return x, x[:0] if more is None else self._mapped(more)

    def _mapped(self, frame: Any) -> Features:
        if self._mapping is not None:
            return apply_features(self._mapping, frame)
        return in_range(check_array(plain_cells(frame), dtype=PLAIN, input_name="X"))

    def _features(self, X: Any) -> Features:
        """Features of rows as they were in training."""
        frame = as_frame(X)
        if frame is None:
            if self._mapping is not None:
                raise UsageError("X is not a DataFrame, but it was in fit", hint="Columns are matched by name.")
            return in_range(validate_data(self, X, dtype=PLAIN, reset=False))
        if hasattr(self, "feature_names_in_"):
            frame = without_unknown(frame, self.feature_names_in_.tolist())
            X = frame.to_native()
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._mapped(frame)

    def get_feature_names_out(self) -> NDArray[Any]:
        """Names of the features that the score is computed from: those of `coef_`."""
        check_is_fitted(self, "classes_")
        if self._mapping is not None:
            return np.array(self._mapping.feature_names, dtype=object)
        unnamed = [f"x{number}" for number in range(self.n_features_in_)]
        return np.array(getattr(self, "feature_names_in_", unnamed), dtype=object)

    def _warn_of_networks_settings(self, of_networks: set[str], learner: str) -> None:
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        given = {name for name in usual if getattr(self, name, None) != usual[name]} | self._settings.keys()
        if unused := sorted(of_networks & given):
            what = f"{learner} does not use {', '.join(unused)}: settings of networks"
            warnings.warn(what, UserWarning, stacklevel=3)

    def _keep(self, trained: Trained, config: TrainConfig) -> None:
        prior = trained.prior
        self._scorer: InstanceScorer = trained.scorer
        self.tuple_rate_, self.spread_ = self._task.rate, trained.spread
        # The noise rate in the likelihood of counts; 0 if the method has no such setting.
        self.count_noise_ = float(getattr(config.settings, "count_noise", 0.0))
        self.history_ = [dict(record.fields) for record in trained.outcome.records]
        self.classes_ = np.array([0, 1])
        self.prior_ = config.known_prior() if prior is None else prior.value
        self.prior_source_ = "given" if prior is None else prior.source
        self.prior_interval_ = None if prior is None else prior.ci
        self.temperature_ = self._temperature(trained.heldout)

    def _config(self, seed: int) -> TrainConfig:
        """Everything but the prior."""
        load_plugins()
        for name, instead in ELSEWHERE.items():
            if name in self._settings:
                raise UsageError(f"{name} is not a setting of NTMPClassifier", hint=instead)
        fixed = {"seed": seed, "trace_every": 0, "memory_mb": 2**20}
        named = {name: getattr(self, name) for name in ("method", "model", "epochs", "lr", "batch_size")}
        given = {name: value for name, value in {**self._settings, **named}.items() if value is not None}
        if isinstance(self.estimator, Mapping):
            given["estimator"] = dict(self.estimator)
        elif self.estimator is not None:
            if self.model != AUTO:
                raise UsageError(
                    f"both model '{self.model}' and an estimator were given", hint="Leave one of them out."
                )
            given["model"] = model_name(self.estimator)
        return build(TrainConfig, {**fixed, **given}, "NTMPClassifier")

    def _given_estimator(self) -> Any:
        """A scikit-learn classifier; None also where its parameters were given, and `model` names its class."""
        return None if isinstance(self.estimator, Mapping) else self.estimator

    def _temperature(self, held: HeldoutScores | None) -> float:
        if held is None or len(held.sizes) < FEWEST_TUPLES:
            return 1.0
        temperature = temperature_by_counts(
            held.tuple_scores, held.sizes, held.counts, self.tuple_shift_, self.count_noise_, self.spread_ or 0.0
        )
        return temperature.value if temperature.fit == "fitted" else 1.0

    @property
    def tuple_shift_(self) -> float:
        """logit π − logit ᾱ: the scores minus log-odds at the rate of the tuples."""
        return rate_shift(self.prior_, self._task.rate, self._task.instances)

    @property
    def coef_(self) -> Floats:
        """(1, d) weights of a linear score."""
        weight: Floats = self._linear_part("weight")
        return weight[None]

    @property
    def intercept_(self) -> Floats:
        """(1,) constant of a linear score."""
        return np.atleast_1d(self._linear_part("bias"))

    def _linear_part(self, name: str) -> Any:
        check_is_fitted(self, "classes_")
        if not (isinstance(self._scorer, TableScorer) and self._scorer.is_linear):
            raise AttributeError("only a classifier with model='linear' has coefficients")
        return getattr(self._scorer, name) / self.temperature_

    @property
    def estimator_(self) -> Any:
        """The fitted scikit-learn classifier."""
        check_is_fitted(self, "classes_")
        if not isinstance(self._scorer, EstimatorScorer):
            raise AttributeError("only a classifier with an estimator has a fitted one")
        return self._scorer.estimator

    def __sklearn_tags__(self) -> Any:
        """There are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # Using --------------------------------------------------------------------------------------

    def decision_function(self, X: ArrayLike) -> Floats:
        """Calibrated log-odds of the positive class at `prior_`."""
        check_is_fitted(self, "classes_")
        x = self._features(X)
        if not isinstance(self._scorer, TableScorer | EstimatorScorer):
            x = x.astype(np.float32, copy=False)
        scores: Floats = self._scorer.score(np.ascontiguousarray(x)) / self.temperature_
        return scores

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(N, 2): probabilities of the classes 0 and 1 at `prior_`."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The more probable class of every row."""
        positive = self.decision_function(X) > 0
        labels: NDArray[np.int64] = self.classes_[positive.astype(np.int64)]
        return labels

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on rows with true labels. For counts use `count_likelihood_score`."""
        if is_count_labels(y):
            raise UsageError("y holds counts, and accuracy needs labels", hint="Pass scoring=count_likelihood_score.")
        return float(super().score(X, y, sample_weight=sample_weight))


def _unlike_x(what: str, columns: int) -> UsageError:
    """The error for unlabeled rows of another kind than X."""
    return UsageError(
        f"unlabeled is {what}, unlike X with its {columns} columns",
        hint="A Pipeline transforms X, but not unlabeled: append these rows to X, with None as their tuple id.",
    )
