"""`NTMPClassifier`: learning from counted tuples by scikit-learn's conventions, in memory.

    >>> model = NTMPClassifier(epochs=20).fit(X, ids, {"a": 1, "b": 2}, unlabeled=U, prior=0.3)
    >>> model.predict_proba(X_new)

Rows of `X` that share an id form a tuple. Everything that learns is that of `ntmp train`.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ntmp_cli.config import TrainConfig
from ntmp_cli.data.user.grouping import group_rows, hold_out
from ntmp_cli.errors import ArtifactError, DataError, UsageError
from ntmp_cli.evaluation.calibration import temperature_by_counts
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.learning.model_choice import is_table_training, unused_by_tables
from ntmp_cli.learning.results import InstanceScorer, Trained, score_heldout
from ntmp_cli.learning.tables.scorer import TableScorer
from ntmp_cli.learning.tables.training import train_table
from ntmp_cli.plugins import load_plugins
from ntmp_cli.settings import build
from ntmp_cli.tuple_source import ArraySource, HeldoutData, Task

Floats = NDArray[np.float64]
FORMAT = "ntmp-classifier"
VERSION = 1
# From fewer held-out tuples a temperature is mostly chance.
FEWEST_TUPLES = 50
# Settings of `ntmp train` that have another place here.
ELSEWHERE = {"prior": "Pass it to fit(…, prior=…).", "seed": "Use random_state."}


class NTMPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of single items from tuples of which only the number of positives is known.

    Parameters
    ----------
    method : a name of `ntmp list methods` that needs neither labels nor an encoder; None: `count`, or the method that
        the other settings mean, as `clamp` means `ure`.
    model : `auto` (linear model and trees, weighted by cross-fitted counts), `linear`, `trees`, or any network of
        `ntmp list models` that takes vectors.
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
    coef_, intercept_ : of a linear score.
    history_ : one record per epoch.
    n_features_in_ : number of columns of X.
    """

    def __init__(
        self,
        method: str | None = None,
        model: str = "auto",
        epochs: int = 30,
        lr: float = 1e-3,
        batch_size: int | None = None,
        heldout_share: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
        **settings: Any,
    ) -> None:
        self.method = method
        self.model = model
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
        super().set_params(**{name: value for name, value in params.items() if name in named})
        self._settings = {**self._settings, **{name: value for name, value in params.items() if name not in named}}
        return self

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        tuples: Sequence[Hashable] | NDArray[Any],
        counts: Mapping[Hashable, int] | ArrayLike,
        unlabeled: ArrayLike | None = None,
        prior: float | None = None,
    ) -> Self:
        """Learn from tuples, and from unlabeled rows where there are some.

        Parameters
        ----------
        X : (N, d) members of tuples.
        tuples : N ids; rows with the same id form a tuple.
        counts : number of positives by tuple id, or N numbers that are equal within a tuple.
        unlabeled : (M, d) rows without tuple; networks need some.
        prior : share of positives among `unlabeled`; None estimates it.
        """
        x = validate_data(self, X, dtype=np.float32)
        pool = x[:0] if unlabeled is None else validate_data(self, unlabeled, dtype=np.float32, reset=False)
        rows, sizes, known = _grouped(len(x), tuples, counts)
        # A generator is used once, so that everything follows from one seed.
        state = self.random_state
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31 - 1))
        if prior is not None and not 0 < prior < 1:
            raise UsageError(f"prior {prior}: expected a share between 0 and 1")
        config = self._config(seed)
        _require_usable(config)
        config = config.model_copy(update={"prior": prior})
        everything = ArraySource(np.ascontiguousarray(x[rows]), sizes, known, pool)
        if is_table_training(config, everything.instance):
            self._warn_of_networks_settings(config)
            trained, self._task = train_table(config, everything), everything.task
        else:
            source = _split(everything, self.heldout_share, np.random.default_rng(seed))
            trained, self._task = _with_network(config, source), source.task
        self._keep(trained, config)
        return self

    def _warn_of_networks_settings(self, config: TrainConfig) -> None:
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        given = {name for name in usual if getattr(self, name, None) != usual[name]} | self._settings.keys()
        if unused := sorted(unused_by_tables(config) & given):
            what = f"model {config.model} does not use {', '.join(unused)}: settings of networks"
            warnings.warn(what, UserWarning, stacklevel=3)

    def _keep(self, trained: Trained, config: TrainConfig) -> None:
        found = trained.prior
        self._scorer: InstanceScorer = trained.scorer
        self.history_ = [dict(record.fields) for record in trained.outcome.records]
        self.classes_ = np.array([0, 1])
        self.prior_ = config.known_prior() if found is None else found.value
        self.prior_source_ = "given" if found is None else found.source
        self.prior_interval_ = None if found is None else found.ci
        self.temperature_ = self._temperature(trained.heldout, config)

    def _config(self, seed: int) -> TrainConfig:
        """Everything but the prior."""
        load_plugins()
        for name, instead in ELSEWHERE.items():
            if name in self._settings:
                raise UsageError(f"{name} is no setting of NTMPClassifier", hint=instead)
        fixed = {"seed": seed, "trace_every": 0, "memory_mb": 2**20}
        named = {name: getattr(self, name) for name in ("method", "model", "epochs", "lr", "batch_size")}
        given = {name: value for name, value in {**self._settings, **named}.items() if value is not None}
        return build(TrainConfig, {**fixed, **given}, "NTMPClassifier")

    def _temperature(self, held: HeldoutScores | None, config: TrainConfig) -> float:
        if held is None or len(held.sizes) < FEWEST_TUPLES:
            return 1.0
        shift = rate_shift(self.prior_, self._task.rate)
        temperature = temperature_by_counts(held.tuple_scores, held.sizes, held.counts, shift, _count_noise(config))
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

    def __sklearn_tags__(self) -> Any:
        """There are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # Using --------------------------------------------------------------------------------------

    def decision_function(self, X: ArrayLike) -> Floats:
        """Calibrated log-odds of the positive class at `prior_`."""
        check_is_fitted(self, "classes_")
        x = validate_data(self, X, dtype=np.float32, reset=False)
        return self._scorer.score(np.ascontiguousarray(x)) / self.temperature_

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(N, 2): probabilities of the classes 0 and 1 at `prior_`."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The likelier class of every row."""
        positive = self.decision_function(X) > 0
        labels: NDArray[np.int64] = self.classes_[positive.astype(np.int64)]
        return labels

    # Keeping ------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The fitted classifier: the files of a run as safetensors, all else as JSON in its header. No code."""
        check_is_fitted(self, "classes_")
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "params": _plain_params(self.get_params(deep=False)),
            "learner": "table" if isinstance(self._scorer, TableScorer) else "network",
            "prior": [self.prior_, self.prior_source_, self.prior_interval_],
            "temperature": self.temperature_,
            "history": self.history_,
            "features": self.n_features_in_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "task": [[list(stratum) for stratum in self._task.strata], self._task.unlabeled],
        }
        files = {name: np.frombuffer(content, dtype=np.uint8) for name, content in self._scorer.files().items()}
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
        self.prior_, self.prior_source_, interval = facts["prior"]
        self.prior_interval_, self.temperature_ = interval and tuple(interval), facts["temperature"]
        self.history_, self.n_features_in_ = facts["history"], facts["features"]
        if facts["names"] is not None:
            self.feature_names_in_ = np.array(facts["names"], dtype=object)
        self.classes_ = np.array([0, 1])
        if facts["learner"] == "table":
            self._scorer = TableScorer.from_files(files)
            return
        from ntmp_cli.learning.restore import restore_files

        config = self._config(0).model_copy(update={"prior": self.prior_})
        self._scorer = restore_files(config, self._task, [self.n_features_in_], files)

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
        """Plain settings and, once fitted, bytes: a pickle holds no object of torch."""
        params = self.get_params(deep=False)
        return {"params": params, "fitted": self.to_bytes() if hasattr(self, "classes_") else None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        if state["fitted"] is not None:
            self.__dict__.update(type(self).from_bytes(state["fitted"]).__dict__)
        # Again, because a generator of random numbers is in a pickle, but not in these bytes.
        self.__init__(**state["params"])  # type: ignore[misc]


def _count_noise(config: TrainConfig) -> float:
    """Noise rate in the likelihood of counts; 0 if the method has no such setting."""
    noise: float = getattr(config.settings, "count_noise", 0.0)
    return noise


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON; a generator cannot be written, and is not needed again."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    return {name: None if isinstance(value, np.random.RandomState) else value for name, value in plain.items()}


# Data in memory ----------------------------------------------------------------------------------


def _require_usable(config: TrainConfig) -> None:
    """Refuse what needs more than vectors and counts; warn of settings without effect."""
    kind = methods.get(config.method)
    if kind.encoder is not None or kind.is_oracle or config.encoder is not None:
        raise UsageError(f"method {config.method} needs more than vectors and counts", hint="Use `ntmp train`.")
    if config.ignored:
        warnings.warn(f"method {config.method} does not use {', '.join(config.ignored)}", UserWarning, stacklevel=3)


def _with_network(config: TrainConfig, source: ArraySource) -> Trained:
    import torch

    from ntmp_cli.learning.network_prior import network_prior
    from ntmp_cli.learning.trainer import Training, train_scorer

    if not len(source.unlabeled):
        raise UsageError(f"model {config.model} needs unlabeled rows", hint="Pass unlabeled=…, or use model='auto'.")
    prior = None
    if config.prior is None:
        prior = network_prior(config, source, torch.device("cpu"))
        config = config.model_copy(update={"prior": prior.value})
    trained = replace(train_scorer(Training(config, source)), prior=prior)
    held = source.heldout_data
    return trained if held is None else replace(trained, heldout=score_heldout(trained.scorer, held))


def _split(source: ArraySource, share: float, rng: np.random.Generator) -> ArraySource:
    """A random share of tuples and of U set aside; nothing where any split would be empty."""
    if not 0 <= share < 1:
        raise UsageError(f"heldout_share {share}: expected a share from 0 to below 1")
    x, sizes, counts, pool = source.tuples, source.sizes, source.counts, source.unlabeled
    train, held = hold_out(len(sizes), share, rng)
    inside, outside = hold_out(len(pool), share, rng)
    if not (len(train) and len(held) and len(inside) and len(outside)):
        return source
    owner = np.repeat(np.arange(len(sizes)), sizes)
    members = np.isin(owner, train)
    heldout = HeldoutData(x[~members], sizes[held], counts[held], pool[outside])
    return ArraySource(np.ascontiguousarray(x[members]), sizes[train], counts[train], pool[inside], heldout)


def _grouped(
    rows: int, tuples: Sequence[Hashable] | NDArray[Any], counts: Mapping[Hashable, int] | ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(rows tuple by tuple, sizes, counts), or every reason why not."""
    ids = list(tuples.tolist() if isinstance(tuples, np.ndarray) else tuples)
    if len(ids) != rows:
        raise DataError(f"tuples has {len(ids)} ids, but X has {rows} rows", hint="One id per row of X.")
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(name, len(numbers)) for name in ids], np.int32)
    order, offsets = group_rows(codes, len(numbers))
    sizes = np.diff(offsets)
    if isinstance(counts, Mapping):
        if missing := [str(name) for name in numbers if name not in counts]:
            raise DataError(f"counts has no entry for tuple {', '.join(missing[:5])}")
        known = np.array([counts[name] for name in numbers])
    else:
        values = np.asarray(counts)
        if values.shape != (rows,):
            raise DataError(f"counts has shape {values.shape}, but X has {rows} rows", hint="Or pass a mapping by id.")
        known = values[order][offsets[:-1]]
        if (values[order] != np.repeat(known, sizes)).any():
            raise DataError("counts of rows of one tuple differ")
    integers = known.astype(np.int64)
    if (integers != known).any() or (integers < 0).any() or (integers > sizes).any():
        wrong = int(np.flatnonzero((integers != known) | (integers < 0) | (integers > sizes))[0])
        raise DataError(f"tuple {list(numbers)[wrong]} has {sizes[wrong]} rows but count {known[wrong]}")
    return order, sizes, integers
