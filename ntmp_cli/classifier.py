"""`NTMPClassifier`: learning from counted tuples by scikit-learn's conventions, in memory.

    >>> model = NTMPClassifier(epochs=20).fit(X, ids, {"a": 1, "b": 2}, unlabeled=U, prior=0.3)
    >>> model.predict_proba(X_new)

Rows of `X` that share an id form a tuple. Everything that learns is that of `ntmp train`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ntmp_cli.config import TrainConfig
from ntmp_cli.data.user.grouping import group_rows, hold_out
from ntmp_cli.errors import ArtifactError, DataError, UsageError
from ntmp_cli.evaluation.calibration import temperature_by_counts
from ntmp_cli.learning.cross_fitting import prior_free_training
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.models import predict
from ntmp_cli.learning.restore import restore_scorer
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.plugins import load_plugins
from ntmp_cli.prior.estimate import DEFAULT, estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples
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
    model : `mlp`, `linear`; any network of `ntmp list models` that takes vectors.
    epochs, lr, batch_size : as in `ntmp train`.
    heldout_share : share of tuples and of unlabeled rows set aside to choose the epoch and to calibrate.
    random_state : seed of initialisation, batch order and what is set aside; equal seeds give equal classifiers.
    settings : any other setting of `ntmp train`, those of the method among them: `clamp="abs"`, `count_noise=0.1`,
        `weight_decay=0`. `fit` refuses an unknown one, with the nearest name, and warns of one of another method.

    Attributes
    ----------
    classes_ : array([0, 1]); 1 is the class that was counted.
    prior_ : class prior of the unlabeled rows, given or estimated.
    temperature_ : what scores are divided by, fitted to held-out counts.
    history_ : one record per epoch.
    n_features_in_ : number of columns of X.
    """

    def __init__(
        self,
        method: str | None = None,
        model: str = "mlp",
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
        unlabeled: ArrayLike,
        prior: float | None = None,
    ) -> Self:
        """Learn from tuples and unlabeled rows.

        Parameters
        ----------
        X : (N, d) members of tuples.
        tuples : N ids; rows with the same id form a tuple.
        counts : number of positives by tuple id, or N numbers that are equal within a tuple.
        unlabeled : (M, d) rows without tuple.
        prior : share of positives among `unlabeled`; None estimates it.
        """
        x = validate_data(self, X, dtype=np.float32)
        pool = validate_data(self, unlabeled, dtype=np.float32, reset=False)
        rows, sizes, known = _grouped(len(x), tuples, counts)
        # A generator is used once, so that everything follows from one seed.
        state = self.random_state
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31 - 1))
        if prior is not None and not 0 < prior < 1:
            raise UsageError(f"prior {prior}: expected a share between 0 and 1")
        config = self._config(seed)
        _require_usable(config)
        source = _split(x[rows], (sizes, known), pool, self.heldout_share, np.random.default_rng(seed))
        if prior is None:
            prior = self._estimated_prior(source, config)
        config = config.model_copy(update={"prior": prior})
        trained = train_scorer(Training(config, source))
        self._scorer, self._task = trained.scorer, source.task
        self.history_ = [dict(record.fields) for record in trained.outcome.records]
        self.classes_ = np.array([0, 1])
        self.prior_ = float(prior)
        self.temperature_ = self._temperature(source, config)
        return self

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

    def _estimated_prior(self, source: ArraySource, settings: TrainConfig) -> float:
        """By a network that does not know the prior, on tuples that it was not trained on."""
        noise, seed = _count_noise(settings), settings.seed
        shared = {"model": self.model, "epochs": self.epochs, "lr": self.lr, "batch_size": self.batch_size}
        config = prior_free_training(source.task, **shared, count_noise=noise, seed=seed, memory_mb=2**20)
        scorer = train_scorer(Training(config, source)).scorer
        held = source.heldout_data or HeldoutData(source.tuples, source.sizes, source.counts, source.unlabeled)
        inside, outside = (predict(scorer, x) for x in (held.tuples, source.unlabeled))
        scored = ScoredTuples(inside, held.sizes, held.counts, outside, noise)
        value = estimate_priors([scored], np.random.default_rng(seed), resamples=1).estimates[DEFAULT].value
        if value is None:
            raise UsageError("the prior cannot be estimated from these tuples", hint="Pass prior=…")
        return min(max(value, 0.001), 0.999)

    def _temperature(self, source: ArraySource, config: TrainConfig) -> float:
        held = source.heldout_data
        if held is None or len(held.sizes) < FEWEST_TUPLES:
            return 1.0
        z = predict(self._scorer, held.tuples)
        shift = rate_shift(self.prior_, source.task.rate)
        temperature = temperature_by_counts(z, held.sizes, held.counts, shift, _count_noise(config))
        return temperature.value if temperature.fit == "fitted" else 1.0

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
        scores = predict(self._scorer, np.ascontiguousarray(x))
        return scores / self.temperature_

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
        """The fitted classifier: weights as safetensors, everything else as JSON in its header. No code is stored."""
        check_is_fitted(self, "classes_")
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "params": _plain_params(self.get_params(deep=False)),
            "prior": self.prior_,
            "temperature": self.temperature_,
            "history": self.history_,
            "features": self.n_features_in_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "task": [[list(stratum) for stratum in self._task.strata], self._task.unlabeled],
        }
        return save_safetensors(self._scorer.state_dict(), {"ntmp": json.dumps(facts)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` gave."""
        try:
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["ntmp"])
            if facts["format"] != FORMAT or facts["version"] != VERSION:
                raise KeyError
            weights = load_safetensors(content)
        except Exception:  # whatever foreign bytes make a parser do
            raise ArtifactError("not a classifier that this ntmp has saved") from None
        model = cls(**facts["params"])
        model._restore(facts, weights)
        return model

    def _restore(self, facts: Mapping[str, Any], weights: dict[str, torch.Tensor]) -> None:
        strata, unlabeled = facts["task"]
        self._task = Task([(n, m, k) for n, m, k in strata], unlabeled)
        self.prior_, self.temperature_ = facts["prior"], facts["temperature"]
        self.history_, self.n_features_in_ = facts["history"], facts["features"]
        if facts["names"] is not None:
            self.feature_names_in_ = np.array(facts["names"], dtype=object)
        self.classes_ = np.array([0, 1])
        config = self._config(0).model_copy(update={"prior": self.prior_})
        self._scorer = restore_scorer(config, self._task, [self.n_features_in_], weights)

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


def _split(
    x: NDArray[np.float32],
    recorded: tuple[NDArray[np.int64], NDArray[np.int64]],
    pool: NDArray[np.float32],
    share: float,
    rng: np.random.Generator,
) -> ArraySource:
    """A random share of tuples and of U set aside; nothing where any split would be empty."""
    if not 0 <= share < 1:
        raise UsageError(f"heldout_share {share}: expected a share from 0 to below 1")
    sizes, counts = recorded
    train, held = hold_out(len(sizes), share, rng)
    inside, outside = hold_out(len(pool), share, rng)
    if not (len(train) and len(held) and len(inside) and len(outside)):
        return ArraySource(np.ascontiguousarray(x), sizes, counts, pool)
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
