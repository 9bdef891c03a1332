"""How a fitted `NTMPClassifier` is kept: bytes without code, and pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ntmp_cli.artifacts.summary_fields import TaskSummary
from ntmp_cli.data.user.mapping import TableFeatures
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.results import InstanceScorer, Learner
from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer, dump_estimator, load_estimator
from ntmp_cli.learning.tables.scorer import TableScorer
from ntmp_cli.tuple_source import Task

FORMAT = "ntmp-classifier"
VERSION = 2
# The scikit-learn classifier as it was given, not fitted.
GIVEN_ESTIMATOR = "given-estimator.skops"


class SavedClassifier(BaseEstimator):  # type: ignore[misc]
    """`to_bytes`, `save`, `load` and pickling of NTMPClassifier, which has the attributes used here."""

    _scorer: InstanceScorer
    _task: Task
    _mapping: TableFeatures | None

    def to_bytes(self) -> bytes:
        """The fitted classifier: the files of a run as safetensors, all else as JSON in its header. No code."""
        check_is_fitted(self, "classes_")
        params, extra = self.get_params(deep=False), {}
        if (given := self._given_estimator()) is not None:
            extra, params["estimator"] = {GIVEN_ESTIMATOR: dump_estimator(clone(given))}, None
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "params": _plain_params(params),
            "learner": self._learner(),
            "spread": self.spread_,
            "count_noise": self.count_noise_,
            "count_law": [self.count_law_, self.count_law_intervals_],
            "mapping": None if self._mapping is None else self._mapping.model_dump(mode="json"),
            "prior": [self.prior_, self.prior_source_, self.prior_interval_],
            "temperature": self.temperature_,
            "history": self.history_,
            "features": self.n_features_in_,
            "names": self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None,
            "task": TaskSummary.of(self._task).to_json(),
        }
        contents = {**self._scorer.files(), **extra}
        files = {name: np.frombuffer(content, dtype=np.uint8) for name, content in contents.items()}
        return save_safetensors(files, {"ntmp": json.dumps(facts)})

    def _learner(self) -> Learner:
        if isinstance(self._scorer, EstimatorScorer):
            return "estimator"
        return "table" if isinstance(self._scorer, TableScorer) else "network"

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The classifier that `to_bytes` serialised."""
        try:
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            facts = json.loads(header["__metadata__"]["ntmp"])
            if facts["format"] != FORMAT or facts["version"] != VERSION:
                raise KeyError
            files = {name: values.tobytes() for name, values in load_safetensors(content).items()}
        except Exception:  # whatever foreign bytes make a parser do
            raise ArtifactError("not a classifier that this ntmp has saved") from None
        try:
            model = cls(**facts["params"])
            model._restore(facts, files)
        except (KeyError, TypeError, ValueError):
            raise ArtifactError("not a classifier that this ntmp has saved") from None
        return model

    def _restore(self, facts: Mapping[str, Any], files: dict[str, bytes]) -> None:
        self._task = TaskSummary.model_validate_json(json.dumps(facts["task"])).as_task()
        self.tuple_rate_, self.spread_, self.count_noise_ = self._task.rate, facts["spread"], facts["count_noise"]
        self.count_law_, intervals = facts.get("count_law", ("exact", {}))
        self.count_law_intervals_ = {name: (low, high) for name, (low, high) in intervals.items()}
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
        """Read a file that `save` wrote. Reading an untrusted file runs no code from it."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error.message}") from None

    def __getstate__(self) -> dict[str, Any]:
        """Plain settings and, once fitted, bytes, so that a pickle holds no torch object. A scikit-learn classifier
        uses its own pickling, because skops does not know classifiers of other packages."""
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
