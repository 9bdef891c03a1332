"""DataFrames of pandas, Polars and Arrow as features, by the mapping of `import-tuples`.

A frame of numbers without missing values is used unchanged. In any other frame, texts and categories become columns of
zeros and ones, numbers are standardised, and missing values get an indicator. The mapping is fitted once and applied to
every later frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.mapping import LARGEST, Cells, TableFeatures, fit_table, text_code
from ntmp_cli.data.user.table_files import MISSING
from ntmp_cli.errors import DataError

# Share of a column's standard deviation that rounding may change.
MOST_LOST = 0.01
_IMPORT = ImportTuplesConfig.model_fields


def as_frame(data: Any) -> Any:
    """A narwhals DataFrame, or None for whatever is no DataFrame."""
    if isinstance(data, np.ndarray | list | tuple):
        return None
    import narwhals as nw

    try:
        frame = nw.from_native(_dense(data), eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise DataError("two columns of X have the same name", hint="Give every column its own name.") from None
    if not isinstance(frame, nw.DataFrame):
        return None
    names = frame.columns
    # pandas allows numbers as names.
    return frame if all(isinstance(name, str) for name in names) else frame.rename({name: str(name) for name in names})


def _dense(data: Any) -> Any:
    """pandas' sparse columns as dense ones: narwhals does not recognise their numbers."""
    import narwhals as nw

    if not nw.dependencies.is_pandas_dataframe(data):
        return data
    kinds = {name: kind.subtype for name, kind in data.dtypes.items() if str(kind).startswith("Sparse[")}
    return data.astype(kinds) if kinds else data


def is_plain(frame: Any) -> bool:
    """Whether all columns are numbers or truth values, without gaps."""
    return all(_is_number(frame[name]) for name in frame.columns) and not np.isnan(plain_cells(frame)).any()


def plain_cells(frame: Any) -> Cells:
    """The numbers of a frame."""
    columns = [_numbers(frame[name]) for name in frame.columns]
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))


def fit_features(frames: Sequence[Any]) -> TableFeatures:
    """The mapping of the columns that these frames have in common, from all their rows."""
    names = frames[0].columns
    texts = [name for name in names if not all(_is_number(frame[name]) for frame in frames)]
    categories: dict[str, dict[float, str] | None] = {}
    for name in texts:
        known = sorted({text for frame in frames for text in _texts(frame[name]) if text is not None})
        many = len(known) > _IMPORT["max_categories"].default
        categories[name] = None if many else {text_code(text): text for text in known}
    blocks = [_cells(frame, names, set(texts)) for frame in frames]
    return fit_table(names, categories, blocks, _IMPORT["hash_width"].default)


def apply_features(features: TableFeatures, frame: Any) -> NDArray[np.float32]:
    """The features of a frame's rows; categories that training did not have are counted in a warning."""
    cells = _cells(frame, features.names, features.categorical)
    if unseen := features.unseen(cells):
        shown = ", ".join(f"{name} (rows: {rows:,})" for name, rows in unseen.items())
        _warn(f"categories that training did not have count as none: {shown}")
    return features.apply(cells)


def in_range(x: NDArray[Any]) -> NDArray[Any]:
    """The rows, unless a number is beyond the range of 32 bits, in which networks and runs hold it."""
    if (np.abs(x) > np.finfo(np.float32).max).any():
        raise DataError("X has numbers beyond the range of 32-bit floats", hint="Divide such columns by a constant.")
    return x


def warn_of_lost_digits(given: NDArray[Any], kept: NDArray[np.float32]) -> None:
    """Warn about columns whose differences are lost in 32 bits, such as times in seconds since 1970."""
    with np.errstate(all="ignore"):
        lost = np.abs(given - kept).max(axis=0, initial=0.0) > MOST_LOST * given.std(axis=0)
    lost &= given.min(axis=0, initial=np.inf) < given.max(axis=0, initial=-np.inf)
    if lost.any():
        columns = ", ".join(map(str, np.flatnonzero(lost)[:5].tolist()))
        warnings.warn(
            f"32-bit numbers lose the digits of columns {columns} of X: subtract their means, or scale X",
            UserWarning,
            stacklevel=3,
        )


def without_unknown(frame: Any, names: Sequence[str]) -> Any:
    """The frame without columns that training did not have, which a warning counts."""
    extra = [name for name in frame.columns if name not in names]
    if not extra or set(names) - set(frame.columns):
        return frame  # scikit-learn's own check names what is missing
    _warn(f"columns that training did not have are left out: {len(extra)} ({', '.join(extra[:5])})")
    return frame.select([name for name in frame.columns if name in names])


def _cells(frame: Any, names: Sequence[str], categorical: set[str]) -> Cells:
    """(N, columns) numbers, codes of texts, NaN where a value is missing."""
    columns = []
    for name in names:
        if name in categorical:
            codes: dict[str | None, float] = {None: np.nan}
            texts = _texts(frame[name])
            codes |= {text: text_code(text) for text in set(texts) if text is not None}
            columns.append(np.array([codes[text] for text in texts]))
        else:
            columns.append(_numbers(frame[name]))
        if (np.abs(columns[-1]) > LARGEST).any():
            raise DataError(f"column '{name}' has infinite values", hint="A missing value is None or NaN.")
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))


def _is_number(column: Any) -> bool:
    import narwhals as nw

    return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)


def _numbers(column: Any) -> Cells:
    """A column as float64; texts are read as numbers, as in a file."""
    import narwhals as nw

    if _is_number(column):
        numbers: Cells = column.cast(nw.Float64).to_numpy()
        return np.array(numbers, dtype=np.float64)
    values = []
    for text in _texts(column):
        try:
            values.append(np.nan if text is None else float(text))
        except ValueError:
            raise DataError(f"column '{column.name}': '{text}' is not a number, as it was in training") from None
    return np.array(values, dtype=np.float64)


def _texts(column: Any) -> list[str | None]:
    """Values as text, None where they are missing; dates and lists are refused."""
    import narwhals as nw

    if column.dtype.is_temporal() or column.dtype.is_nested():
        raise DataError(
            f"column '{column.name}' holds {column.dtype}, which is no feature",
            hint="Turn it into numbers or texts, or leave it out.",
        )
    values = column.to_list() if column.dtype != nw.Categorical else column.cast(nw.String).to_list()
    return [_text(value) for value in values]


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    text = str(value).strip()
    return None if text in MISSING else text


def _warn(what: str) -> None:
    # The caller of predict or fit, three functions above.
    warnings.warn(what, UserWarning, stacklevel=5)
