"""Building blocks of the summaries of artefacts: strict records, and values that several kinds share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ntmp_cli.settings import shown
from ntmp_cli.tuple_source import InstanceFormat, Task

if TYPE_CHECKING:
    from ntmp_cli.counting.strata import CountKnowledge, CountStratum

T = TypeVar("T")
Split = Literal["train", "heldout"]
# Path and number of rows (None if a file has none) of every payload file.
Files = Mapping[str, int | None]

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# The record of a stratum: a count or a range, possibly with a law. Any other text is the name of a law.
RECORDED = re.compile(r"(\d+)(?:-(\d+))?(?: \((.+)\))?")


class Record(BaseModel):
    """Frozen, without conversions: a number that is written as text is refused, and so is NaN."""

    # Built when it is first used: a manifest has one of many summaries.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def to_json(self) -> dict[str, Any]:
        """As it is written: all fields except defaults that were not given."""
        return self.model_dump(mode="json", exclude_unset=True)


class Summary(Record):
    """Base of the summaries of all kinds."""

    kind: ClassVar[str]

    def misfits(self, files: Files) -> Iterator[str]:
        """Fields that contradict the files that the manifest lists, one message each."""
        yield from ()


class InstanceSummary(Record):
    """What an instance is: a network sees `raw / scale`. `resize` is the size that image files were resized to."""

    shape: tuple[Positive, ...]
    dtype: Annotated[str, Field(pattern="^(uint8|float32)$")]
    scale: Annotated[float, Field(gt=0)]
    standardised: bool
    resize: Positive | None

    def as_format(self) -> InstanceFormat:
        """As a training reads it."""
        return InstanceFormat(self.shape, np.dtype(self.dtype), self.scale, self.standardised)

    @model_validator(mode="after")
    def _consistent(self) -> InstanceSummary:
        if len(self.shape) not in (1, 3):
            raise ValueError("shape: an instance is a vector (D) or an image (C, H, W)")
        if self.resize is not None and self.shape[1:] != (self.resize, self.resize):
            raise ValueError(f"resize: {self.resize} does not fit images of shape {self.shape}")
        return self


MeanCount = Count | Annotated[float, Field(ge=0)]


class StratumRow(Record):
    """Tuples of equal length n and count m; where counts are not exact, m is a mean, and `counts` what was recorded."""

    n: Positive
    m: MeanCount
    rate: Share
    tuples: Positive
    instances: Positive
    counts: Name | None = None
    known: bool = True
    """Whether the rate is known, or only expected."""

    @classmethod
    def of(cls, n: int, m: int | float, tuples: int, counts: str | None = None, known: bool = True) -> StratumRow:
        extra: dict[str, Any] = {} if counts in (None, str(m)) else {"counts": counts, "known": known}
        return cls(n=n, m=m, rate=m / n, tuples=tuples, instances=n * tuples, **extra)

    @model_validator(mode="after")
    def _consistent(self) -> StratumRow:
        if self.m > self.n:
            raise ValueError(f"m: {self.m} positives in a tuple of {self.n}")
        if not close(self.rate, self.m / self.n):
            raise ValueError(f"rate: {self.rate}, but m/n is {self.m / self.n}")
        if self.instances != self.n * self.tuples:
            raise ValueError(f"instances: {self.instances}, but there are {self.tuples} tuples of {self.n}")
        return self


def strata_rows(strata: Iterable[CountStratum]) -> tuple[StratumRow, ...]:
    """Tuples of equal length and count, as a manifest lists them."""
    return tuple(StratumRow.of(*row) for row in strata)


def spec_of(strata: Sequence[StratumRow]) -> str:
    """A short description of the tuples, as in the results table."""
    if len(strata) <= 3:
        return "+".join(f"{row.n}:{row.counts or row.m}" for row in strata)

    def span(values: Sequence[int]) -> str:
        low, high = min(values), max(values)
        return f"{low}" if low == high else f"{low}-{high}"

    recorded = [RECORDED.fullmatch(row.counts or str(row.m)) for row in strata]
    ends = [int(end) for found in recorded if found for end in (found[1], found[2] or found[1])]
    laws = dict.fromkeys(found[3] if found else row.counts for found, row in zip(recorded, strata, strict=True))
    named = [law for law in laws if law]
    law = "" if not named else named[0] if len(named) == 1 else f"{len(named)} laws"
    counts = f"{span(ends)} ({law})" if ends and law else span(ends) if ends else law
    return f"{span([row.n for row in strata])}:{counts}"


class BySplit(Record, Generic[T]):
    """One value of the training split, and one of the held-out split if there is one."""

    train: T
    heldout: T | None = None

    def items(self) -> Iterator[tuple[Split, T]]:
        yield "train", self.train
        if self.heldout is not None:
            yield "heldout", self.heldout

    @classmethod
    def of(cls, values: Mapping[str, T]) -> Self:
        return cls(**values)


class Sizes(BySplit[Positive]):
    """Numbers of tuples or instances."""


class PoolSizes(BySplit[Count]):
    """Numbers of unlabeled instances; 0 without a pool."""


class Strata(BySplit[tuple[StratumRow, ...]]):
    """Rows in order of n and m."""


class KnowledgeSummary(Record):
    """For tuples whose counts are not all exact: the record of every stratum, and whether its rate is known."""

    counts: tuple[Name, ...]
    known: tuple[bool, ...]
    symmetric: bool
    one_rate: bool

    @classmethod
    def of(cls, knowledge: CountKnowledge) -> KnowledgeSummary:
        return cls(**knowledge._asdict())

    def as_knowledge(self) -> CountKnowledge:
        from ntmp_cli.counting.strata import CountKnowledge

        return CountKnowledge(self.counts, self.known, self.symmetric, self.one_rate)


class TaskSummary(Record):
    """The data of a training: strata (n, m, tuples) and the size of the unlabeled pool."""

    strata: Annotated[tuple[tuple[Positive, MeanCount, Positive], ...], Field(min_length=1)]
    unlabeled: Count
    knowledge: KnowledgeSummary | None = None

    @classmethod
    def of(cls, task: Task) -> TaskSummary:
        extra = {} if task.knowledge is None else {"knowledge": KnowledgeSummary.of(task.knowledge)}
        return cls(strata=tuple(task.strata), unlabeled=task.unlabeled, **extra)

    def as_task(self) -> Task:
        """As training knows it."""
        return Task(self.strata, self.unlabeled, None if self.knowledge is None else self.knowledge.as_knowledge())

    @model_validator(mode="after")
    def _consistent(self) -> TaskSummary:
        for row, (n, m, _) in enumerate(self.strata):
            if m > n:
                raise ValueError(f"strata.{row}: {m} positives in a tuple of {n}")
        if self.knowledge is not None and len(self.knowledge.counts) != len(self.strata):
            raise ValueError("knowledge: expected one entry per stratum")
        return self


# Reading and comparing -----------------------------------------------------------------------------


def problems_of(error: ValidationError) -> list[str]:
    """The problems that a validation found, each with its field."""
    lines = []
    for problem in error.errors():
        message: str = problem["msg"].removeprefix("Value error, ")
        path = [str(key) for key in problem["loc"]]
        if problem["type"] == "value_error":
            lines.append(".".join([*path, message]))
        else:
            got = "" if problem["type"] == "missing" else f" (got {shown(problem['input'])})"
            lines.append(f"{'.'.join(path)}: {message[:1].lower()}{message[1:]}{got}")
    return lines


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def rows_of(files: Files, prefix: str) -> int | None:
    """Rows of all files whose path starts with `prefix`; None if one of them has none."""
    rows = [rows or 0 for path, rows in files.items() if path.startswith(prefix)]
    return None if 0 in rows else sum(rows)


def by_split(sizes: BySplit[int]) -> str:
    return ", ".join(f"{split} {size}" for split, size in sizes.items())


def listed(is_listed: bool) -> str:
    return "listed" if is_listed else "not listed"


def missing(field: str, files: Files, *names: str) -> Iterable[str]:
    return (f"{field}: the file {name} is not listed" for name in names if name not in files)
