"""The mapping from raw columns to a network's input, the same for training and for every later row.

A raw table arrives as cells: one float64 per row and column, NaN where a value is missing, and for a category a number
that stands for its text (`text_code`). Statistics come from training instances alone:

- numeric: (value − mean) / scale; a missing value becomes the mean, 0;
- one-hot: one column per category of the training instances; other categories and missing values are all zeros;
- hashed: a column of many categories; its text picks one of `width` columns;
- a column with missing training values gets an indicator, 1 where the value is missing, after its values.

The network's input is this vector as it is: it is not standardised again, because that would inflate rare categories.
Images are not mapped: their shape and type are stored, so that others are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

Cells = NDArray[np.float64]

# Squares of larger values overflow.
LARGEST = 1e100
# Statistics are computed for so many cells at a time, but never for fewer columns than this: numpy sums the rows of few
# columns in another order than those of many, with other rounding.
MOMENT_CELLS = 2**20
LEAST_COLUMNS = 64
_FLOAT32 = float(np.finfo(np.float32).max)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Numeric(_Stored):
    """A column of numbers."""

    kind: Literal["numeric"] = "numeric"
    name: str
    mean: float
    scale: float = Field(gt=0)
    indicator: bool = False

    @property
    def value_width(self) -> int:
        return 1


class OneHot(_Stored):
    """A column of few categories."""

    kind: Literal["one-hot"] = "one-hot"
    name: str
    categories: tuple[str, ...]
    indicator: bool = False

    @property
    def value_width(self) -> int:
        return len(self.categories)


class Hashed(_Stored):
    """A column of many categories."""

    kind: Literal["hashed"] = "hashed"
    name: str
    width: int = Field(ge=1)
    indicator: bool = False

    @property
    def value_width(self) -> int:
        return self.width


Column = Annotated[Numeric | OneHot | Hashed, Field(discriminator="kind")]


class Roles(_Stored):
    """Names of the columns that are not features."""

    tuple_column: str = "tuple_id"
    count_column: str = "count"
    label_column: str = "label"
    id_column: str = "id"
    image_column: str = "image"
    block_column: str | None = None
    law_column: str = "count_law"


class TableFeatures(_Stored):
    """The columns, in the order of the network's input."""

    kind: Literal["table"] = "table"
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        return self._layout.width

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """A name for every feature that the classifier sees."""
        names: list[str] = []
        for column in self.columns:
            if column.kind == "numeric":
                names.append(column.name)
            elif column.kind == "one-hot":
                names += [f"{column.name}={category}" for category in column.categories]
            else:
                names += [f"{column.name} hash {number}" for number in range(column.width)]
            names += [f"{column.name} missing"] if column.indicator else []
        return names

    @property
    def categorical(self) -> set[str]:
        return {column.name for column in self.columns if column.kind != "numeric"}

    def apply(self, cells: Cells) -> NDArray[np.float32]:
        """The network's input (N, width) of raw cells (N, columns)."""
        layout, missing = self._layout, np.isnan(cells)
        out = np.zeros((len(cells), layout.width), np.float32)
        if len(layout.numeric):
            with np.errstate(over="ignore"):
                z = np.clip((cells[:, layout.numeric] - layout.mean) / layout.scale, -_FLOAT32, _FLOAT32)
            z[missing[:, layout.numeric]] = 0.0
            out[:, layout.starts[layout.numeric]] = z
        for j, codes in layout.one_hot.items():
            out[:, layout.starts[j] : layout.starts[j] + len(codes)] = cells[:, j, None] == codes
        for j, width in layout.hashed.items():
            rows = np.flatnonzero(~missing[:, j])
            out[rows, layout.starts[j] + cells[rows, j].astype(np.int64) % width] = 1.0
        out[:, layout.indicator_places] = missing[:, layout.with_indicator]
        return out

    def unseen(self, cells: Cells) -> dict[str, int]:
        """Columns with categories that no training instance had, and in how many rows."""
        numbers = {}
        for j, codes in self._layout.one_hot.items():
            column = cells[:, j]
            numbers[self.columns[j].name] = int((~np.isin(column, codes) & ~np.isnan(column)).sum())
        return {name: rows for name, rows in numbers.items() if rows}

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout(self.columns)


class _Layout:
    """Positions of a table's columns in the network's input; computed once, because a table may have many."""

    def __init__(self, columns: Sequence[Numeric | OneHot | Hashed]) -> None:
        value_widths = np.array([column.value_width for column in columns], np.int64)
        has_indicator = np.array([column.indicator for column in columns], bool)
        ends = np.cumsum(value_widths + has_indicator)
        self.width = int(ends[-1]) if len(columns) else 0
        self.starts = ends - value_widths - has_indicator
        self.with_indicator = np.flatnonzero(has_indicator)
        self.indicator_places = (self.starts + value_widths)[self.with_indicator]
        numeric = [(j, column) for j, column in enumerate(columns) if isinstance(column, Numeric)]
        self.numeric = np.array([j for j, _ in numeric], np.int64)
        self.mean, self.scale = (
            np.array([getattr(column, name) for _, column in numeric]) for name in ("mean", "scale")
        )
        self.one_hot = {
            j: np.array([text_code(text) for text in column.categories])
            for j, column in enumerate(columns)
            if isinstance(column, OneHot)
        }
        self.hashed = {j: column.width for j, column in enumerate(columns) if isinstance(column, Hashed)}


class ImageFeatures(_Stored):
    """Instances that are arrays of one shape, kept as they are; a network sees them divided by `scale`."""

    kind: Literal["images"] = "images"
    shape: tuple[int, int, int]
    dtype: Literal["uint8", "float32"] = "uint8"
    scale: float = 255.0
    resize: int | None = None

    @property
    def description(self) -> str:
        return f"{'×'.join(map(str, self.shape))} {self.dtype}"


class FeatureMapping(_Stored):
    """The mapping of an import, stored with its tuples and with every run trained on them."""

    version: Literal[1] = 1
    roles: Roles = Roles()
    ignored: tuple[str, ...] = ()
    """Columns that the user chose to ignore."""
    features: Annotated[TableFeatures | ImageFeatures, Field(discriminator="kind")]


def text_code(text: str) -> float:
    """A number that stands for a text, the same on every machine; 52 bits, so that a float64 holds it exactly."""
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 12)


class BlockStatistics(NamedTuple):
    """Statistics of a block by column: number of values, mean, sum of squared deviations, minimum, maximum."""

    rows: int
    moments: Cells
    codes: dict[int, list[float]]
    """The codes that occur in every column of few categories."""


def block_statistics(cells: Cells, coded: Iterable[int]) -> BlockStatistics:
    """The statistics of a block; `coded` are the columns of few categories."""
    # In groups of columns: the intermediate arrays of all would take several times the memory of the cells.
    width = max(LEAST_COLUMNS, MOMENT_CELLS // max(1, len(cells)))
    starts = range(0, max(1, cells.shape[1] - LEAST_COLUMNS), width)
    pieces = [_moments(cells[:, a:b]) for a, b in zip(starts, [*starts[1:], cells.shape[1]], strict=True)]
    codes = {j: np.unique(cells[~np.isnan(cells[:, j]), j]).tolist() for j in coded}
    return BlockStatistics(len(cells), np.concatenate(pieces, axis=1), codes)


def _moments(cells: Cells) -> Cells:
    cells = np.ascontiguousarray(cells)
    present = ~np.isnan(cells)
    n = present.sum(axis=0).astype(np.float64)
    mean = np.where(present, cells, 0.0).sum(axis=0) / np.maximum(n, 1)
    square = (np.where(present, cells - mean, 0.0) ** 2).sum(axis=0)
    low = np.where(present, cells, np.inf).min(axis=0, initial=np.inf)
    high = np.where(present, cells, -np.inf).max(axis=0, initial=-np.inf)
    return np.stack([n, mean, square, low, high])


def coded_columns(names: Sequence[str], categories: Mapping[str, Mapping[float, str] | None]) -> list[int]:
    """The columns of few categories."""
    return [j for j, name in enumerate(names) if categories.get(name) is not None]


def fit_table(
    names: Sequence[str],
    categories: Mapping[str, Mapping[float, str] | None],
    training: Iterable[Cells],
    hash_width: int,
) -> TableFeatures:
    """Fit the mapping to the cells of the training instances, which come in blocks."""
    coded = coded_columns(names, categories)
    return fit_blocks(names, categories, (block_statistics(cells, coded) for cells in training), hash_width)


def fit_blocks(
    names: Sequence[str],
    categories: Mapping[str, Mapping[float, str] | None],
    training: Iterable[BlockStatistics],
    hash_width: int,
) -> TableFeatures:
    """Fit the mapping to statistics of the training instances, block by block.

    `categories` names the categorical columns: the texts behind their codes, or None if they are too many for a
    column each. The result depends on the blocks only through rounding; callers always use the same blocks.
    """
    moments = _Moments(len(names))
    seen: dict[int, set[float]] = {j: set() for j in coded_columns(names, categories)}
    for block in training:
        moments.add(block)
        for j, codes in seen.items():
            codes.update(block.codes[j])
    columns: list[Numeric | OneHot | Hashed] = []
    for j, name in enumerate(names):
        indicator = bool(moments.present[j] < moments.rows)
        texts = categories.get(name)
        if name not in categories:
            mean, scale = moments.mean_and_scale(j)
            columns.append(Numeric(name=name, mean=mean, scale=scale, indicator=indicator))
        elif texts is None:
            columns.append(Hashed(name=name, width=hash_width, indicator=indicator))
        else:
            known = tuple(sorted(texts[code] for code in seen[j]))
            columns.append(OneHot(name=name, categories=known, indicator=indicator))
    return TableFeatures(columns=tuple(columns))


class _Moments:
    """Mean and standard deviation per column of the values present, block by block (Chan, Golub and LeVeque 1983)."""

    def __init__(self, columns: int) -> None:
        self.rows = 0
        self.present = np.zeros(columns)
        self.mean = np.zeros(columns)
        self.square = np.zeros(columns)
        self.low = np.full(columns, np.inf)
        self.high = np.full(columns, -np.inf)

    def add(self, block: BlockStatistics) -> None:
        n, mean, square, low, high = block.moments
        total = np.maximum(self.present + n, 1)
        shift = mean - self.mean
        self.mean = self.mean + shift * n / total
        self.square = self.square + square + shift**2 * self.present * n / total
        self.present = self.present + n
        self.rows += block.rows
        self.low = np.minimum(self.low, low)
        self.high = np.maximum(self.high, high)

    def mean_and_scale(self, j: int) -> tuple[float, float]:
        """A constant column becomes 0: dividing by its standard deviation would inflate rounding errors."""
        if self.present[j] == 0:
            return 0.0, 1.0
        if self.low[j] == self.high[j]:
            return float(self.low[j]), 1.0
        scale = float(np.sqrt(self.square[j] / self.present[j]))
        return float(self.mean[j]), scale if scale > 0 else 1.0


def blocks_of(rows: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Row numbers in blocks of `size`, independent of the blocks that the rows were read in."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
