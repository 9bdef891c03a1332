"""`NTMPClassifier`: learning from counted tuples by scikit-learn's conventions, in memory.

    >>> model = NTMPClassifier(epochs=20).fit(X, ids, {"a": 1, "b": 2}, unlabeled=U, prior=0.3)
    >>> model.predict_proba(X_new)

Rows of `X` that share an id form a tuple. Everything that learns is that of `ntmp train`.
"""

from __future__ import annotations

import json
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
from ntmp_cli.data.own.grouping import group_rows, set_aside
from ntmp_cli.errors import ArtifactError, DataError, UsageError
from ntmp_cli.evaluation.calibration import temperature_by_counts
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.loop import HeldoutData, Job, Outcome, train_epochs
from ntmp_cli.learning.method import FitData, FittedMethod, GradientMethod, Method, Task, methods
from ntmp_cli.learning.models import Scorer, build_scorer, normalisation, predict
from ntmp_cli.learning.parts import PartedData
from ntmp_cli.learning.restore import restore_scorer
from ntmp_cli.prior.estimate import DEFAULT, estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.prior.score_model import prior_free_settings

Floats = NDArray[np.float64]
FORMAT = "ntmp-classifier"
VERSION = 1
# From fewer held-out tuples a temperature is mostly chance.
FEWEST_TUPLES = 50
STEPS, SMALLEST_BATCH = 16, 32
BUDGET = 2**40


class NTMPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of single items from tuples of which only the number of positives is known.

    Parameters
    ----------
    method : a name of `ntmp list methods` that needs neither labels nor an encoder.
    model : `mlp`, `linear`; any network of `ntmp list models` that takes vectors.
    epochs, lr, batch_size, count_noise : as in `ntmp train`.
    heldout_share : share of tuples and of unlabeled rows set aside to choose the epoch and to calibrate.
    random_state : seed of initialisation, batch order and what is set aside; equal seeds give equal classifiers.

    Attributes
    ----------
    classes_ : array([0, 1]); 1 is the class that was counted.
    prior_ : class prior of the unlabeled rows, given or estimated.
    temperature_ : what scores are divided by, found from held-out counts.
    history_ : one record per epoch.
    n_features_in_ : number of columns of X.
    """

    def __init__(
        self,
        method: str = "count",
        model: str = "mlp",
        epochs: int = 30,
        lr: float = 1e-3,
        batch_size: int | None = None,
        count_noise: float = 0.0,
        heldout_share: float = 0.1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.count_noise = count_noise
        self.heldout_share = heldout_share
        self.random_state = random_state

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
        counts : number of positives by tuple id, or N numbers that agree within each tuple.
        unlabeled : (M, d) rows without tuple.
        prior : share of positives among `unlabeled`; None estimates it (SPEC section 5).
        """
        x = validate_data(self, X, dtype=np.float32)
        pool = validate_data(self, unlabeled, dtype=np.float32, reset=False)
        rows, sizes, known = _grouped(len(x), tuples, counts)
        # A generator is drawn from once, so that one seed rules everything.
        drawn = self.random_state
        seed = int(drawn) if isinstance(drawn, int | np.integer) else int(check_random_state(drawn).randint(2**31 - 1))
        data = _Data.split(x[rows], sizes, known, pool, self.heldout_share, np.random.default_rng(seed))
        if prior is None:
            prior = self._estimated_prior(data, seed)
        if not 0 < prior < 1:
            raise UsageError(f"prior {prior}: a share between 0 and 1 is meant")
        config = self._config(seed, prior)
        self._scorer, self.history_ = _trained(config, data)
        self.classes_ = np.array([0, 1])
        self.prior_ = float(prior)
        self._task = data.task
        self.temperature_ = self._temperature(data)
        return self

    def _config(self, seed: int, prior: float, **more: Any) -> TrainConfig:
        own = {name: getattr(self, name) for name in ("method", "model", "epochs", "lr", "batch_size", "count_noise")}
        try:
            return TrainConfig(**{**own, "prior": prior, "seed": seed, "trace_every": 0, **more})
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _estimated_prior(self, data: _Data, seed: int) -> float:
        """By a network that is told nothing of the prior, on tuples that it never saw."""
        scorer, _ = _trained(self._config(seed, **prior_free_settings(data.task)), data)
        held = data.heldout or data.training
        inside, outside = (predict(scorer, torch.from_numpy(each)) for each in (held.x, data.pool))
        scored = ScoredTuples(inside, held.sizes, held.counts, outside, self.count_noise)
        found = estimate_priors([scored], np.random.default_rng(seed), resamples=1).estimates[DEFAULT].value
        if found is None:
            raise UsageError("the prior cannot be estimated from these tuples", hint="Pass prior=…")
        return min(max(found, 0.001), 0.999)

    def _temperature(self, data: _Data) -> float:
        if data.heldout is None or len(data.heldout.sizes) < FEWEST_TUPLES:
            return 1.0
        held = data.heldout
        z = predict(self._scorer, torch.from_numpy(held.x))
        shift = rate_shift(self.prior_, data.task.rate)
        found = temperature_by_counts(z, held.sizes, held.counts, shift, self.count_noise)
        return found.value if found.fit == "fitted" else 1.0

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
        scores = predict(self._scorer, torch.from_numpy(np.ascontiguousarray(x)))
        return scores / self.temperature_

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(N, 2): probabilities of the classes 0 and 1 at `prior_`."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The likelier class of every row."""
        positive = self.decision_function(X) > 0
        found: NDArray[np.int64] = self.classes_[positive.astype(np.int64)]
        return found

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
        self._scorer = restore_scorer(self._config(0, self.prior_), self._task, [self.n_features_in_], weights)

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
        """Plain settings and, once fitted, our own bytes: a pickle holds no object of torch."""
        params = self.get_params(deep=False)
        return {"params": params, "fitted": self.to_bytes() if hasattr(self, "classes_") else None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        if state["fitted"] is not None:
            self.__dict__.update(type(self).from_bytes(state["fitted"]).__dict__)
        self.__dict__.update(state["params"])


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON; a generator cannot be told, and is not needed again."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    return {name: None if isinstance(value, np.random.RandomState) else value for name, value in plain.items()}


# Data in memory ----------------------------------------------------------------------------------


class _Part:
    """Tuples whose members stand in a row."""

    def __init__(self, x: NDArray[np.float32], sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        self.x, self.sizes, self.counts = x, sizes, counts

    def some(self, which: NDArray[np.int64]) -> _Part:
        member = np.isin(np.repeat(np.arange(len(self.sizes)), self.sizes), which)
        return _Part(np.ascontiguousarray(self.x[member]), self.sizes[which], self.counts[which])


class _Data:
    """What is trained on, and what is set aside."""

    def __init__(
        self, training: _Part, pool: NDArray[np.float32], heldout: _Part | None, outside: NDArray[np.float32]
    ) -> None:
        self.training, self.pool, self.heldout, self.outside = training, pool, heldout, outside
        pairs, numbers = np.unique(np.stack([training.sizes, training.counts]), axis=1, return_counts=True)
        strata = [(int(n), int(m), int(k)) for n, m, k in zip(*pairs, numbers, strict=True)]
        self.task = Task(strata, len(pool))

    @classmethod
    def split(
        cls,
        x: NDArray[np.float32],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        pool: NDArray[np.float32],
        share: float,
        rng: np.random.Generator,
    ) -> _Data:
        """A random share of tuples and of U set aside; nothing where any part would be empty."""
        if not 0 <= share < 1:
            raise UsageError(f"heldout_share {share}: a share from 0 to below 1 is meant")
        everything = _Part(np.ascontiguousarray(x), sizes, counts)
        train, held = set_aside(len(sizes), share, rng)
        inside, outside = set_aside(len(pool), share, rng)
        if not (len(train) and len(held) and len(inside) and len(outside)):
            return cls(everything, pool, None, pool[:0])
        return cls(everything.some(train), pool[inside], everything.some(held), pool[outside])

    @property
    def asked(self) -> HeldoutData:
        held, pool = (self.training, self.pool) if self.heldout is None else (self.heldout, self.outside)
        return HeldoutData(torch.from_numpy(held.x), held.sizes, held.counts, torch.from_numpy(pool))

    def chunks(self, config: TrainConfig, batch: int) -> TrainingData:
        own, pool = self.training, self.pool
        instances = len(own.x) + len(pool)
        return TrainingData(
            [TupleChunk(len(own.sizes), lambda: (own.x, own.sizes, own.counts))],
            [UnlabeledChunk(len(pool), lambda: pool)],
            mean_size=len(own.x) / len(own.sizes),
            instance_bytes=own.x[0].nbytes,
            budget_bytes=BUDGET,
            batch_size=config.batch_size or min(batch, max(SMALLEST_BATCH, -(-instances // STEPS))),
            seed=config.seed,
        )


def _grouped(
    rows: int, tuples: Sequence[Hashable] | NDArray[Any], counts: Mapping[Hashable, int] | ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(rows tuple by tuple, sizes, counts), or every reason why not."""
    ids = list(tuples.tolist() if isinstance(tuples, np.ndarray) else tuples)
    if len(ids) != rows:
        raise DataError(f"tuples has {len(ids)} ids, but X has {rows} rows", hint="One id per row of X.")
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(each, len(numbers)) for each in ids], np.int32)
    order, offsets = group_rows(codes, len(numbers))
    sizes = np.diff(offsets)
    if isinstance(counts, Mapping):
        if missing := [str(name) for name in numbers if name not in counts]:
            raise DataError(f"counts has no entry for tuple {', '.join(missing[:5])}")
        known = np.array([counts[name] for name in numbers])
    else:
        each = np.asarray(counts)
        if each.shape != (rows,):
            raise DataError(f"counts has shape {each.shape}, but X has {rows} rows", hint="Or pass a mapping by id.")
        known = each[order][offsets[:-1]]
        if (each[order] != np.repeat(known, sizes)).any():
            raise DataError("counts of rows of one tuple differ")
    whole = known.astype(np.int64)
    if (whole != known).any() or (whole < 0).any() or (whole > sizes).any():
        wrong = int(np.flatnonzero((whole != known) | (whole < 0) | (whole > sizes))[0])
        raise DataError(f"tuple {list(numbers)[wrong]} has {sizes[wrong]} rows but count {known[wrong]}")
    return order, sizes, whole


# Training in memory ------------------------------------------------------------------------------


def _trained(config: TrainConfig, data: _Data) -> tuple[Scorer, list[dict[str, Any]]]:
    method = methods.get(config.method)(config, data.task)
    if method.encoder is not None or method.ceiling:
        raise UsageError(f"method {config.method} needs more than vectors and counts", hint="Use `ntmp train`.")
    scorer = _scorer(config, method, data)
    if isinstance(method, FittedMethod):
        fit = method.fit(_fit_data(scorer, data))
        scorer.set_line(fit.weight, fit.bias)
        return scorer, [{"epoch": 1, **fit.fields}]
    assert isinstance(method, GradientMethod)
    if method.targets() != "none":
        raise UsageError(f"method {config.method} with these settings needs a teacher", hint="Use `ntmp train`.")
    parts = PartedData([data.chunks(config, method.batch)])
    heldout = None if data.heldout is None else data.asked
    asked = (heldout or data.asked) if method.oriented_by_data() else None
    job = Job(config, method, scorer, parts, heldout, torch.empty(0), torch.device("cpu"), asked=asked)
    outcome = Outcome()
    history = [dict(record.fields) for record in train_epochs(job, outcome)]
    scorer.load_state_dict(outcome.weights)
    return scorer, history


def _scorer(config: TrainConfig, method: Method, data: _Data) -> Scorer:
    x = np.concatenate([data.training.x, data.pool]).astype(np.float64)
    factor, shift = normalisation([x.shape[1]], x.mean(axis=0), x.std(axis=0))
    return build_scorer(method.network, [x.shape[1]], factor, shift, config.seed)


def _fit_data(scorer: Scorer, data: _Data) -> FitData:
    def inputs(raw: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(scorer.inputs(torch.from_numpy(raw)).numpy())

    own = data.training
    return FitData(lambda: iter([(inputs(own.x), own.sizes, own.counts)]), lambda: iter([inputs(data.pool)]))
