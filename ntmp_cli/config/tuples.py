"""Settings of the stages that make tuples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from ntmp_cli.settings import Settings


def quoted_specs(value: Any) -> Any:
    """Tuple specs as a sequence; one that YAML has read as a number is refused."""
    specs = (value,) if isinstance(value, str | int) else value
    if isinstance(specs, Sequence) and any(isinstance(spec, int) for spec in specs):
        raise ValueError('write tuple specs in quotes, as in ["3:1"]: YAML reads a bare 3:1 as the number 181')
    return specs


def _known_record(text: str) -> str:
    if not re.fullmatch("exact|at-least-one|percent|range:[1-9][0-9]*", text):
        raise ValueError("choose exact, at-least-one, percent or range:W with a whole number W, such as range:2")
    return text


RecordSpec = Annotated[str, AfterValidator(_known_record)]
"""What is recorded of a count."""


def _one_kind_per_column(config: MakeTuplesConfig | ImportTuplesConfig) -> None:
    for option, other in (("numeric", "categorical"), ("ignore", "categorical"), ("ignore", "numeric")):
        if twice := sorted({*getattr(config, option)} & {*getattr(config, other)}):
            raise ValueError(f"{option}: '{twice[0]}' is named as {other} too")


class MakeTuplesConfig(Settings):
    """Simulate counted tuples and an unlabeled pool from a labelled data set."""

    dataset: str = Field(
        "digits", description="Data set: a name of `ntmp list datasets`, table:PATH, npz:PATH or folder:PATH."
    )
    positive: tuple[str, ...] = Field(
        (),
        description="Class that counts as positive; repeat for several. Default: the paper's choice for its data "
        "sets; 1, true or yes for your own data.",
    )
    tuples: tuple[str, ...] = Field(
        ("3:1",), description="Tuple spec N:M, N:M1-M2, N:~P or N1-N2:..., with @WEIGHT; repeat to mix."
    )
    prior: float | None = Field(
        None, gt=0, lt=1, description="Share of positives in the unlabeled pool. Default: as in the data."
    )
    pool: Literal["exact", "iid"] = Field(
        "exact",
        description="exact: the share of positives in the unlabeled pool equals the prior, up to rounding. iid: "
        "each label of the pool is positive with this probability.",
    )
    num_tuples: int | None = Field(
        None,
        ge=1,
        description="Training tuples. Default: as many as give the number of instances of the training split.",
    )
    unlabeled_size: int | None = Field(
        None, ge=1, description="Unlabeled training instances. Default: all that the prior allows."
    )
    tuple_share: float = Field(0.5, gt=0, lt=1, description="Share of the training split that tuples are sampled from.")
    heldout_share: float = Field(
        0.1, ge=0, lt=1, description="Share of tuples and of U held out for label-free model selection."
    )
    count_noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Probability that a recorded count is off by one. Training does not know it unless its own "
        "--count-noise is set.",
    )
    count_law: str = Field(
        "exact",
        description="Law of noise of the recorded counts, kept with the tuples: NAME:PARAMETERS of "
        "`ntmp list count-laws`, e.g. gaussian:2.",
    )
    record: RecordSpec = Field(
        "exact",
        description="What is recorded of a count: exact, at-least-one, range:W (an interval of W + 1 counts that "
        "contains the true one) or percent (rounded to whole percent).",
    )
    resize: int | None = Field(None, ge=1, description="Resize images of a folder to this height and width.")
    shard_size: int | None = Field(None, ge=1, description="Tuples per shard. Default: about 16 MiB of instances.")
    seed: int = Field(0, ge=0, description="Seed of every random choice.")
    label_column: str | None = Field(None, description="Column of the labels of a table. Default: label.")
    categorical: tuple[str, ...] = Field(
        (),
        description="Column of a table whose numbers are categories; repeat for several.",
    )
    numeric: tuple[str, ...] = Field(
        (),
        description="Numeric column of a table: a text in it is an error; repeat for several.",
    )
    ignore: tuple[str, ...] = Field((), description="Column of a table that is not a feature; repeat for several.")
    test_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of a table's rows in the test split, which is the same for every seed. Default: 0.2.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fold_short_form(cls, values: Any) -> Any:
        """`n` and `m` are the short form of one tuple spec."""
        if not isinstance(values, dict) or not {"n", "m"} & values.keys():
            return values
        values = dict(values)
        n, m = values.pop("n", None), values.pop("m", None)
        if n is None or m is None:
            raise ValueError("n and m must be given together: --n 3 --m 1 is the short form of --tuple 3:1")
        if values.get("tuples"):
            raise ValueError("give either n and m or tuple specs, not both")
        return {**values, "tuples": (f"{n}:{m}",)}

    @model_validator(mode="after")
    def _one_kind(self) -> MakeTuplesConfig:
        _one_kind_per_column(self)
        return self

    @field_validator("tuples", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        specs = quoted_specs(value)
        if isinstance(specs, Sequence) and not specs:
            raise ValueError("at least one tuple spec is needed")
        return specs

    @field_validator("positive", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        """Classes are names; a YAML file may give digits as numbers."""
        names = (value,) if isinstance(value, str | int) else value
        return tuple(map(str, names)) if isinstance(names, Sequence) else names


class ImportTuplesConfig(Settings):
    """Counted tuples and an unlabeled pool from the user's table, arrays or folder of images."""

    tuple_column: str = Field(
        "tuple_id", description="Column with the tuple id of each row. A row without an id is unlabeled."
    )
    count_column: str = Field("count", description="Column of the tuple's number of positives.")
    counts_are: Literal["counts", "proportions", "percentages"] = Field(
        "counts",
        description="How a plain number in the count column is read: as a count, a proportion (0.25) or a "
        "percentage. A cell may also be 1-3, >=1, <=2, <6 or 25%. A tuple with an empty cell joins "
        "the unlabeled pool.",
    )
    count_law: str = Field(
        "exact",
        description="Law of noise of the counts, NAME:PARAMETERS of `ntmp list count-laws`, e.g. gaussian:17.",
    )
    law_column: str = Field("count_law", description="Column with the law of noise of each tuple, if there is one.")
    label_column: str = Field(
        "label",
        description="Column of true labels in the test file. In INPUT it may hold the known labels of a few rows,"
        " which training uses. It is never a feature.",
    )
    id_column: str = Field("id", description="Column that names a row, if there is one; never a feature.")
    image_column: str = Field(
        "image", description="Column of image paths, if there is one. Paths are relative to the folder of the table."
    )
    block_column: str | None = Field(
        None,
        description="Column with the block of each tuple, such as the patient of slides. All tuples of a block "
        "stay on the same side of every split. It is never a feature.",
    )
    categorical: tuple[str, ...] = Field((), description="Column whose numbers are categories; repeat for several.")
    numeric: tuple[str, ...] = Field((), description="Numeric column: a text in it is an error; repeat for several.")
    ignore: tuple[str, ...] = Field((), description="Column that is not a feature; repeat for several.")
    max_categories: int = Field(
        50,
        ge=1,
        description="Most categories for which a column has one feature each. A column with more categories is hashed.",
    )
    hash_width: int = Field(64, ge=1, description="Number of features of a hashed column.")
    positive: tuple[str, ...] = Field(
        (), description="Label of the test file that counts as positive; repeat for several. Default: 1, true or yes."
    )
    resize: int | None = Field(None, ge=1, description="Resize images to this height and width.")
    heldout_share: float = Field(
        0.1, ge=0, lt=1, description="Share of tuples and of unlabeled rows held out for label-free model selection."
    )
    seed: int = Field(0, ge=0, description="Seed of the held-out split.")

    @model_validator(mode="after")
    def _one_kind(self) -> ImportTuplesConfig:
        _one_kind_per_column(self)
        return self
