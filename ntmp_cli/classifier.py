"""`NTMPClassifier`: learning from counted tuples by scikit-learn's conventions, in memory.

    >>> model = NTMPClassifier().fit(X, ids, {"a": 1, "b": 2})
    >>> model.predict_proba(X_new)

Rows of `X` that share an id form a tuple; rows without id are unlabeled. Everything that learns is that of `ntmp train`.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ntmp_cli.config import TrainConfig
from ntmp_cli.data.user.mapping import TableFeatures
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.evaluation.calibration import temperature_by_counts
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.model_choice import AUTO, is_table_training, unused_by_tables
from ntmp_cli.learning.results import InstanceScorer, Trained
from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer, dump_estimator, load_estimator, model_name
from ntmp_cli.learning.tables.scorer import TableScorer
from ntmp_cli.plugins import load_plugins
from ntmp_cli.python.fitting import require_usable, trained_on
from ntmp_cli.python.frames import (
    apply_features,
    as_frame,
    feature_names,
    fit_features,
    is_plain,
    plain_cells,
    without_unknown,
)
from ntmp_cli.python.tuple_rows import ByTuple, TupleIds, is_count_labels, read_tuples
from ntmp_cli.settings import build
from ntmp_cli.tuple_source import ArraySource, Task

Floats = NDArray[np.float64]
FORMAT = "ntmp-classifier"
VERSION = 1
# From fewer held-out tuples a temperature is mostly chance.
FEWEST_TUPLES = 50
# Settings of `ntmp train` that have another place here.
ELSEWHERE = {"prior": "Pass it to fit(…, prior=…).", "seed": "Use random_state."}
# Of a saved classifier: its scikit-learn classifier as it was given, not fitted.
GIVEN_ESTIMATOR = "given-estimator.skops"


class NTMPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of single items from tuples of which only the number of positives is known.

    Parameters
    ----------
    method : a name of `ntmp list methods` that needs neither labels nor an encoder; None: `count`, or the method that
        the other settings mean, as `clamp` means `ure`.
    model : `auto` (linear model and trees, weighted by cross-fitted counts), `linear`, `trees`, or any network of
        `ntmp list models` that takes vectors.
    estimator : a scikit-learn classifier with `sample_weight` and `predict_proba`, or a Pipeline that ends in one. EM
        with exact posteriors given the counts fits a copy of it; `model` is not used then.
    epochs, lr, batch_size : of networks, as in `ntmp train`.
    heldout_share : share of tuples and of unlabeled rows that networks set aside to choose the epoch and to calibrate.
    random_state : seed of initialisation, batch order and what is set aside; equal seeds give equal classifiers.
    settings : any other setting of `ntmp train`, those of the method among them: `clamp="abs"`, `count_noise=0.1`,
        `weight_decay=0`. `fit` refuses an unknown one, with the nearest name, and warns of one of another method.

    Attributes
    ----------
    classes_ : array([0, 1]); 1 is the class that was counted.
    prior_ : class prior of the unlabeled rows, given or estimated; without them the share of positives in the tuples.
    prior_source_ : "given", "estimated" or "tuples".
    prior_interval_ : 95 % interval of an estimated prior, or None.
    temperature_ : what scores are divided by, fitted to counts of tuples that the scores were not trained on.
    tuple_rate_ : share of positives in the tuples.
    spread_ : standard deviation of an intercept that the members of a tuple share; None where it is not estimated.
    coef_, intercept_ : of a linear score; of a DataFrame with texts or gaps, of its mapped features.
    estimator_ : the fitted scikit-learn classifier, where one was given.
    history_ : one record per epoch.
    n_features_in_ : number of columns of X.
    feature_names_in_ : names of the columns, where X is a DataFrame.
    """

    def __init__(
        self,
        method: str | None = None,
        model: str = AUTO,
        estimator: Any = None,
        epochs: int = 30,
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
        """All parameters by name, the settings among them."""
        return {**super().get_params(deep=deep), **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Set parameters and settings by name."""
        named = set(self._get_param_names())
        own = {name: value for name, value in params.items() if name.partition("__")[0] in named}
        super().set_params(**own)
        self._settings = {**self._settings, **{name: value for name, value in params.items() if name not in own}}
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
    ) -> Self:
        """Learn from tuples, and from unlabeled rows where there are some.

        Parameters
        ----------
        X : (N, d) rows; an array, or a DataFrame of pandas, Polars or Arrow, with texts and gaps.
        tuples : N ids; rows with the same id form a tuple, rows with None or NaN are unlabeled. Or, without `counts`,
            the array that `count_labels` makes of ids and counts.
        counts : number of positives by tuple id, or N numbers that are equal within a tuple.
        unlabeled : (M, d) further rows without tuple; networks need some.
        prior : share of positives among the unlabeled rows; None estimates it.
        sample_weight : weight of every tuple, given as counts are; not for networks.
        blocks : block of every tuple, given as counts are; a block is never divided between folds.
        """
        x, pool = self._fitted_features(X, unlabeled)
        known = read_tuples(len(x), tuples, counts, blocks)
        groups = known.groups
        # A generator is used once, so that everything follows from one seed.
        state = self.random_state
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31 - 1))
        if prior is not None and not 0 < prior < 1:
            raise UsageError(f"prior {prior}: expected a share between 0 and 1")
        config = self._config(seed)
        require_usable(config)
        config = config.model_copy(update={"prior": prior})
        source = ArraySource(
            np.ascontiguousarray(x[groups.rows]),
            groups.sizes,
            known.counts,
            np.concatenate([x[groups.pool], pool]),
            tuple_blocks=known.blocks,
            tuple_weights=None if sample_weight is None else groups.weights(sample_weight),
            standardised=self._mapping is not None,
        )
        if is_table_training(config, source.instance):
            self._warn_of_networks_settings(config)
        trained, self._task = trained_on(config, source, self._given_estimator(), self.heldout_share)
        self._keep(trained, config)
        return self

    def _fitted_features(self, X: Any, unlabeled: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Features of X and of the unlabeled rows; from frames that are not plain numbers by a mapping of both."""
        frame, more = as_frame(X), as_frame(unlabeled)
        if frame is None:
            x = validate_data(self, X, dtype=np.float32)
            self._mapping: TableFeatures | None = None
            if unlabeled is None:
                return x, x[:0]
            pool = None if more is not None else check_array(unlabeled, dtype=np.float32)
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

    def _mapped(self, frame: Any) -> NDArray[np.float32]:
        if self._mapping is not None:
            return apply_features(self._mapping, frame)
        plain: NDArray[np.float32] = check_array(plain_cells(frame), dtype=np.float32, input_name="X")
        return plain

    def _features(self, X: Any) -> NDArray[np.float32]:
        """Features of rows as they were in training."""
        frame = as_frame(X)
        if frame is None:
            if self._mapping is not None:
                raise UsageError(
                    "X is no DataFrame, but it was one in fit", hint="Its columns are found by their names."
                )
            x: NDArray[np.float32] = validate_data(self, X, dtype=np.float32, reset=False)
            return x
        if hasattr(self, "feature_names_in_"):
            frame = without_unknown(frame, self.feature_names_in_.tolist())
        validate_data(self, frame.to_native(), skip_check_array=True, reset=False)
        return self._mapped(frame)

    def get_feature_names_out(self) -> NDArray[Any]:
        """Names of the features that the score is computed from: those of `coef_`."""
        check_is_fitted(self, "classes_")
        if self._mapping is not None:
            return np.array(feature_names(self._mapping), dtype=object)
        unnamed = [f"x{number}" for number in range(self.n_features_in_)]
        return np.array(getattr(self, "feature_names_in_", unnamed), dtype=object)

    def _warn_of_networks_settings(self, config: TrainConfig) -> None:
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        given = {name for name in usual if getattr(self, name, None) != usual[name]} | self._settings.keys()
        if unused := sorted(unused_by_tables(config) & given):
            what = f"model {config.model} does not use {', '.join(unused)}: settings of networks"
            warnings.warn(what, UserWarning, stacklevel=3)

    def _keep(self, trained: Trained, config: TrainConfig) -> None:
        found = trained.prior
        self._scorer: InstanceScorer = trained.scorer
        self.tuple_rate_, self.spread_ = self._task.rate, trained.spread
        # The noise rate in the likelihood of counts; 0 if the method has no such setting.
        self.count_noise_ = float(getattr(config.settings, "count_noise", 0.0))
        self.history_ = [dict(record.fields) for record in trained.outcome.records]
        self.classes_ = np.array([0, 1])
        self.prior_ = config.known_prior() if found is None else found.value
        self.prior_source_ = "given" if found is None else found.source
        self.prior_interval_ = None if found is None else found.ci
        self.temperature_ = self._temperature(trained.heldout)

    def _config(self, seed: int) -> TrainConfig:
        """Everything but the prior."""
        load_plugins()
        for name, instead in ELSEWHERE.items():
            if name in self._settings:
                raise UsageError(f"{name} is no setting of NTMPClassifier", hint=instead)
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
        shift = rate_shift(self.prior_, self._task.rate)
        temperature = temperature_by_counts(held.tuple_scores, held.sizes, held.counts, shift, self.count_noise_)
        return temperature.value if temperature.fit == "fitted" else 1.0

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
        return self._scorer.score(np.ascontiguousarray(self._features(X))) / self.temperature_

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(N, 2): probabilities of the classes 0 and 1 at `prior_`."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The likelier class of every row."""
        positive = self.decision_function(X) > 0
        labels: NDArray[np.int64] = self.classes_[positive.astype(np.int64)]
        return labels

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on rows with true labels; counts have a score of their own."""
        if is_count_labels(y):
            raise UsageError("y holds counts, and accuracy needs labels", hint="Pass scoring=count_likelihood_score.")
        return float(super().score(X, y, sample_weight=sample_weight))

    # Keeping ------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The fitted classifier: the files of a run as safetensors, all else as JSON in its header. No code."""
        check_is_fitted(self, "classes_")
        params, extra = self.get_params(deep=False), {}
        learner = "table" if isinstance(self._scorer, TableScorer) else "network"
        if isinstance(self._scorer, EstimatorScorer):
            learner = "estimator"
            if (given := self._given_estimator()) is not None:
                extra, params["estimator"] = {GIVEN_ESTIMATOR: dump_estimator(clone(given))}, None
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "params": _plain_params(params),
            "learner": learner,
            "spread": self.spread_,
            "count_noise": self.count_noise_,
            "mapping": None if self._mapping is None else self._mapping.model_dump(mode="json"),
            "prior": [self.prior_, self.prior_source_, self.prior_interval_],
            "temperature": self.temperature_,
            "history": self.history_,
            "features": self.n_features_in_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "task": [[list(stratum) for stratum in self._task.strata], self._task.unlabeled],
        }
        contents = {**self._scorer.files(), **extra}
        files = {name: np.frombuffer(content, dtype=np.uint8) for name, content in contents.items()}
        return save_safetensors(files, {"ntmp": json.dumps(facts)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` gave."""
        try:
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["ntmp"])
            if facts["format"] != FORMAT or facts["version"] != VERSION:
                raise KeyError
            files = {name: values.tobytes() for name, values in load_safetensors(content).items()}
        except Exception:  # whatever foreign bytes make a parser do
            raise ArtifactError("not a classifier that this ntmp has saved") from None
        model = cls(**facts["params"])
        model._restore(facts, files)
        return model

    def _restore(self, facts: Mapping[str, Any], files: dict[str, bytes]) -> None:
        strata, unlabeled = facts["task"]
        self._task = Task([(n, m, k) for n, m, k in strata], unlabeled)
        self.tuple_rate_, self.spread_, self.count_noise_ = self._task.rate, facts["spread"], facts["count_noise"]
        self._mapping = None if facts["mapping"] is None else TableFeatures.model_validate(facts["mapping"])
        self.prior_, self.prior_source_, interval = facts["prior"]
        self.prior_interval_, self.temperature_ = interval and tuple(interval), facts["temperature"]
        self.history_, self.n_features_in_ = facts["history"], facts["features"]
        if facts["names"] is not None:
            self.feature_names_in_ = np.array(facts["names"], dtype=object)
        self.classes_ = np.array([0, 1])
        if facts["learner"] == "table":
            self._scorer = TableScorer.from_files(files)
            return
        if facts["learner"] == "estimator":
            if GIVEN_ESTIMATOR in files:
                self.estimator = load_estimator(files[GIVEN_ESTIMATOR])
            self._scorer = EstimatorScorer.from_files(files)
            return
        from ntmp_cli.learning.restore import restore_files

        config = self._config(0).model_copy(update={"prior": self.prior_})
        self._scorer = restore_files(config, self._task, [len(self.get_feature_names_out())], files)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a file."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote; a file from anywhere can be read without running code of its author."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error.message}") from None

    def __getstate__(self) -> dict[str, Any]:
        """Plain settings and, once fitted, bytes: a pickle holds no object of torch. A scikit-learn classifier is kept
        as it pickles itself, because skops does not know those of other packages."""
        if isinstance(getattr(self, "_scorer", None), EstimatorScorer):
            return {"attributes": self.__dict__}
        params = self.get_params(deep=False)
        return {"params": params, "fitted": self.to_bytes() if hasattr(self, "classes_") else None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        if "attributes" in state:
            self.__dict__.update(state["attributes"])
            return
        if state["fitted"] is not None:
            self.__dict__.update(type(self).from_bytes(state["fitted"]).__dict__)
        # Again, because a generator of random numbers is in a pickle, but not in these bytes.
        self.__init__(**state["params"])  # type: ignore[misc]


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON; a generator cannot be written, and is not needed again."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    return {name: None if isinstance(value, np.random.RandomState) else value for name, value in plain.items()}


def _unlike_x(what: str, columns: int) -> UsageError:
    """Unlabeled rows that are not made as X is."""
    return UsageError(
        f"unlabeled is {what}, unlike X with its {columns} columns",
        hint="A Pipeline transforms X, but not unlabeled: append these rows to X, with None as their tuple id.",
    )
