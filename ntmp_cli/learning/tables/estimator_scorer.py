"""A scikit-learn classifier as a scorer of table rows: found by its name, stored by skops without code."""

from __future__ import annotations

import importlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.learning.tables.sound_trees import trees_are_sound
from ntmp_cli.unpacking import require_unpackable

PREFIX = "sklearn:"
ESTIMATOR_FILE = "estimator.skops"
LINE_FILE = "estimator.json"
# Probabilities are clipped this far from 0 and 1: forests give both, and no row is that certain.
EDGE = 1e-4
INSTALL = "Install it: pip install 'ntmp[sklearn-models]'."
# Trusted types beyond those that skops trusts: parts of fitted classifiers of scikit-learn.
TRUSTED_TYPES = (
    "sklearn._loss.link.HalfLogitLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


def named_estimator(model: str, parameters: Mapping[str, Any]) -> Any:
    """The classifier that `sklearn:PACKAGE.CLASS` names, with these parameters, not yet fitted."""
    path = model.removeprefix(PREFIX)
    module_name, _, name = path.rpartition(".")
    hint = f"For example {PREFIX}linear_model.LogisticRegression."
    if not module_name:
        raise UsageError(f"model {model}: expected {PREFIX}PACKAGE.CLASS", hint=hint)
    module = _module(module_name)
    if module is None:
        raise UsageError(f"model {model}: there is no module {module_name}, in sklearn or elsewhere", hint=hint)
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not hasattr(kind, "fit"):
        classes = [public for public in dir(module) if hasattr(getattr(module, public), "predict_proba")]
        raise UsageError(f"model {model}: {module.__name__} has no classifier {name}; {did_you_mean(name, classes)}")
    try:
        estimator = kind()
        known = estimator.get_params()
        if unknown := next((key for key in parameters if key not in known), None):
            raise UsageError(f"estimator.{unknown}: {name} has no such parameter; {did_you_mean(unknown, list(known))}")
        return estimator.set_params(**parameters)
    except (TypeError, AttributeError):
        raise UsageError(f"model {model}: {name} cannot be made of its parameters alone") from None


def model_name(estimator: Any) -> str:
    """How the command line names the class of an estimator."""
    kind = type(estimator)
    public = ".".join(name for name in kind.__module__.split(".") if not name.startswith("_"))
    return f"{PREFIX}{public.removeprefix('sklearn.')}.{kind.__name__}"


def log_odds(estimator: Any, x: NDArray[Any]) -> Floats:
    """Log-odds of class 1 by a fitted classifier, clipped; a classifier that saw one class only gives that one."""
    probabilities = np.asarray(estimator.predict_proba(x), dtype=np.float64)
    positive = np.flatnonzero(np.asarray(estimator.classes_) == 1)
    p = probabilities[:, positive[0]] if len(positive) else np.zeros(len(x))
    scores: Floats = logit(np.clip(p, EDGE, 1 - EDGE))
    return scores


@dataclass(frozen=True)
class EstimatorScorer:
    """score = slope · log-odds of a fitted scikit-learn classifier + intercept, on raw features."""

    estimator: Any
    features: int
    slope: float = 1.0
    intercept: float = 0.0

    def score(self, raw: NDArray[Any]) -> Floats:
        """Log-odds of the positive class."""
        x = np.ascontiguousarray(raw, dtype=np.float64)
        return self.slope * log_odds(self.estimator, x) + self.intercept if len(x) else np.empty(0)

    @property
    def size(self) -> int:
        """Number of values in the fitted attributes, including those of a pipeline's steps or an ensemble's members."""
        return _numbers(self.estimator)

    def moved(self, shift: float) -> EstimatorScorer:
        """The same scores with `shift` added: log-odds at another prior."""
        return replace(self, intercept=self.intercept + shift)

    def files(self) -> dict[str, bytes]:
        """Everything that `from_files` needs, by file name."""
        line = {"features": self.features, "slope": self.slope, "intercept": self.intercept}
        return {ESTIMATOR_FILE: dump_estimator(self.estimator), LINE_FILE: json.dumps(line).encode()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> EstimatorScorer:
        """The inverse of `files`."""
        try:
            line = json.loads(files[LINE_FILE])
            numbers = int(line["features"]), float(line["slope"]), float(line["intercept"])
            content = files[ESTIMATOR_FILE]
        except (KeyError, TypeError, ValueError):
            raise ArtifactError(f"{LINE_FILE}: not a scikit-learn classifier that this ntmp has saved") from None
        return cls(load_estimator(content), *numbers)


def dump_estimator(estimator: Any) -> bytes:
    """A classifier as skops writes it, the same bytes for equal classifiers; a type that is not trusted is refused."""
    skops = _skops()
    try:
        content = skops.dumps(estimator)
    except Exception as error:  # skops raises whatever an object's state makes it raise
        raise UsageError(f"{type(estimator).__name__} cannot be saved by skops: {error}") from None
    if unknown := sorted(set(skops.get_untrusted_types(data=content)) - set(TRUSTED_TYPES)):
        raise UsageError(
            f"{type(estimator).__name__} cannot be saved: {', '.join(unknown)} is not a type that ntmp reads back",
            hint="Files hold classifiers of scikit-learn only; another one can be used in Python, and kept by pickle.",
        )
    return _canonical(content)


def load_estimator(content: bytes) -> Any:
    """The inverse of `dump_estimator`; refuses types that are not trusted, and runs no code from the file."""
    skops = _skops()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            require_unpackable(ESTIMATOR_FILE, len(content), sum(member.file_size for member in archive.infolist()))
        unknown = sorted(set(skops.get_untrusted_types(data=content)) - set(TRUSTED_TYPES))
        estimator = None if unknown else skops.loads(content, trusted=list(TRUSTED_TYPES))
        sound = trees_are_sound(estimator)
    except Exception:  # a parser may raise anything on foreign bytes
        raise ArtifactError(f"{ESTIMATOR_FILE}: not a classifier that this version of scikit-learn reads") from None
    if not sound:
        raise ArtifactError(f"{ESTIMATOR_FILE}: holds a tree whose nodes do not fit together")
    if not unknown:
        return estimator
    raise ArtifactError(
        f"{ESTIMATOR_FILE}: holds the type {unknown[0]}, which is not trusted",
        hint="Only classifiers of scikit-learn are read.",
    )


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError:
        raise UsageError("a scikit-learn classifier is saved by skops, which is not installed", hint=INSTALL) from None


def _module(name: str) -> Any:
    """A module of scikit-learn by its short name, else any other."""
    for full in (f"sklearn.{name}", name):
        try:
            return importlib.import_module(full)
        except ImportError:
            continue
    return None


def _canonical(content: bytes) -> bytes:
    """The archive with numbers instead of memory addresses and without times: equal classifiers have equal files."""
    numbers: dict[str, str] = {}

    def number(address: str) -> str:
        return numbers.setdefault(address, str(len(numbers) + 1))

    def renamed(node: Any) -> Any:
        if isinstance(node, list):
            return [renamed(child) for child in node]
        if not isinstance(node, dict):
            return node
        changed = {key: renamed(value) for key, value in node.items()}
        if isinstance(node.get("__id__"), int):
            changed["__id__"] = int(number(str(node["__id__"])))
        if isinstance(node.get("file"), str):
            stem, dot, ending = node["file"].partition(".")
            changed["file"] = number(stem) + dot + ending
        return changed

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = renamed(json.loads(files.pop("schema.json")))
    arrays = {number(name.partition(".")[0]) + "." + name.partition(".")[2]: data for name, data in files.items()}
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays, key=lambda name: (len(name), name)):
            archive.writestr(zipfile.ZipInfo(name), arrays[name], zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("schema.json"), json.dumps(schema), zipfile.ZIP_DEFLATED)
    return result.getvalue()


def _numbers(value: Any) -> int:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.size
    if isinstance(value, list | tuple | np.ndarray):
        return sum(map(_numbers, value))
    if hasattr(value, "node_count"):  # a tree
        return int(value.node_count)
    if hasattr(value, "nodes"):  # a tree of histogram-based boosting
        return len(value.nodes)
    if hasattr(value, "get_params"):
        return sum(_numbers(v) for k, v in vars(value).items() if k.endswith("_") or k in ("steps", "_predictors"))
    return 0
