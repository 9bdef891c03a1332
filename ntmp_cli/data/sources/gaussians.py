"""Two Gaussians whose densities are known, so that an estimate can be compared with the truth."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.labelled import LabelledData, SourceRequest, datasets
from ntmp_cli.data.sources._shared import refuse_resize
from ntmp_cli.errors import UsageError, did_you_mean

DATA_SEED = 20240607
_MOST_VALUES = 10**9
_GRAMMAR = "The grammar is gaussians[:dim=2,separation=2.0,size=20000,test=10000]."


@dataclass(frozen=True)
class Gaussians:
    """p₊ = N(+s/2·e₁, I) and p₋ = N(−s/2·e₁, I) in `dim` dimensions, s = `separation`."""

    dim: int = 2
    separation: float = 2.0
    size: int = 20_000
    test: int = 10_000

    @classmethod
    def parse(cls, text: str) -> Gaussians:
        """Parameters from `dim=2,separation=2.0,size=20000,test=10000`, any of which may be left out."""
        kinds = {"dim": int, "separation": float, "size": int, "test": int}
        values: dict[str, float] = {}
        for setting in filter(None, (setting.strip() for setting in text.split(","))):
            key, _, value = (field.strip() for field in setting.partition("="))
            if key not in kinds:
                raise UsageError(
                    f"gaussians:{text}: unknown parameter '{key}'; {did_you_mean(key, kinds)}", hint=_GRAMMAR
                )
            if key in values:
                raise UsageError(f"gaussians:{text}: {key} is given twice", hint=_GRAMMAR)
            try:
                values[key] = kinds[key](value)
            except ValueError:
                kind = "a number" if kinds[key] is float else "a whole number"
                raise UsageError(f"gaussians:{text}: {key} must be {kind}, not '{value}'", hint=_GRAMMAR) from None
        parameters = cls(**values)  # type: ignore[arg-type]
        parameters._check(text)
        return parameters

    def _check(self, text: str) -> None:
        requirements = {
            "dim must be at least 1": self.dim >= 1,
            "separation must be finite and not negative": 0 <= self.separation < math.inf,
            "size and test must be at least 2": min(self.size, self.test) >= 2,
            f"at most {_MOST_VALUES:,} values can be sampled": self.dim * (self.size + self.test) <= _MOST_VALUES,
        }
        for requirement, met in requirements.items():
            if not met:
                raise UsageError(f"gaussians:{text}: {requirement}", hint=_GRAMMAR)

    @property
    def name(self) -> str:
        """The shortest spelling: parameters at their default are left out, so equal data have equal names."""
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return ":".join(["gaussians", ",".join(changed)]) if changed else "gaussians"


def sample(
    parameters: Gaussians, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """`count` instances in random order, half of them positive (label 1)."""
    y = rng.permutation(np.arange(count) % 2)
    x = rng.standard_normal((count, parameters.dim))
    x[:, 0] += parameters.separation * (y - 0.5)
    return x.astype(np.float32), y.astype(np.int64)


@datasets.register("gaussians")
def gaussians(request: SourceRequest) -> LabelledData:
    """Two Gaussians of known density: gaussians[:dim=2,separation=2.0,size=20000,test=10000]."""
    refuse_resize("gaussians", request)
    parameters = Gaussians.parse(request.argument)
    # One stream per split, so that the test split does not depend on the size of the other.
    train_rng, test_rng = (np.random.default_rng([DATA_SEED, split]) for split in range(2))
    x_train, y_train = sample(parameters, parameters.size, train_rng)
    x_test, y_test = sample(parameters, parameters.test, test_rng)
    return LabelledData(
        name=parameters.name,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=("negative", "positive"),
        positive=("positive",),
    )
