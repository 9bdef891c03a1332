"""Users' labelled tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.labelled import TABLE, LabelledData, SourceRequest, TableColumns, datasets
from ntmp_cli.data.sources._shared import (
    default_positive,
    fixed_split,
    path_argument,
    refuse_resize,
    require_two_classes,
)
from ntmp_cli.errors import DataError, UsageError

if TYPE_CHECKING:
    from ntmp_cli.data.user.problems import Problems
    from ntmp_cli.data.user.rows import TableRows

# Rows per block of the statistics, as in an import.
STATISTICS_ROWS = 8192


class _LabelledRows(NamedTuple):
    """All rows of a table: raw cells, texts of the categorical columns, and a label per row."""

    cells: NDArray[np.float64]
    texts: dict[str, dict[float, str] | None]
    labels: NDArray[np.int32]
    classes: list[str]


@datasets.register(TABLE)
def table(request: SourceRequest) -> LabelledData:
    """table:PATH, a .csv, .tsv or .parquet file with a column of labels (--label-column)."""
    from ntmp_cli.data.user.mapping import FeatureMapping, Roles, blocks_of, fit_table

    refuse_resize(TABLE, request)
    path, columns = path_argument(TABLE, request), request.columns
    source = _open(path, columns)
    rows = _read(source, columns)
    require_two_classes(rows.classes, str(path))
    train, test = fixed_split(len(rows.cells), str(path), columns.test_share)
    blocks = (rows.cells[block] for block in blocks_of(np.sort(train), STATISTICS_ROWS))
    features = fit_table(source.columns or (), rows.texts, blocks, columns.hash_width)
    # Classes in the order of their names, whatever the order of the rows.
    order = np.argsort(np.array(rows.classes))
    labels = np.argsort(order)[rows.labels]
    classes = tuple(rows.classes[at] for at in order)
    share = "80/20" if columns.test_share is None else f"{1 - columns.test_share:.0%}/{columns.test_share:.0%}"
    return LabelledData(
        name=f"{TABLE}:{path.name}",
        x_train=features.apply(rows.cells[train]),
        y_train=labels[train],
        x_test=features.apply(rows.cells[test]),
        y_test=labels[test],
        classes=classes,
        positive=default_positive(classes),
        notes=(f"the table has no test split: a fixed random {share} split was made",),
        mapping=FeatureMapping(roles=Roles(label_column=columns.label), ignored=columns.ignore, features=features),
        missing=tuple(np.isnan(rows.cells[train]).sum(axis=0).tolist()),
    )


def _open(path: Path, columns: TableColumns) -> TableRows:
    from ntmp_cli.data.user.mapping import Roles
    from ntmp_cli.data.user.rows import FeatureColumns, open_table_rows
    from ntmp_cli.data.user.table_files import STDIN, open_table

    if path == STDIN:
        raise UsageError(f"{TABLE}:-: a table is read more than once, so it cannot be standard input")
    features = FeatureColumns(
        columns.categorical,
        columns.numeric,
        columns.ignore,
        most_categories=columns.max_categories,
        # No row has a tuple or a count yet: columns of these names are features.
        reserved=("label", "id"),
    )
    return open_table_rows(open_table(path), Roles(label_column=columns.label), features, required=("label",))


def _read(source: TableRows, columns: TableColumns) -> _LabelledRows:
    from ntmp_cli.data.user.problems import Problems
    from ntmp_cli.data.user.table_files import LateTextError

    while True:
        problems = Problems()
        try:
            rows = _read_once(source, columns, problems)
        except LateTextError:  # a later row shows that a column is categorical
            continue
        problems.raise_if_any()
        return rows


def _read_once(source: TableRows, columns: TableColumns, problems: Problems) -> _LabelledRows:
    from ntmp_cli.data.user.reading import Survey
    from ntmp_cli.data.user.rows import tuple_codes
    from ntmp_cli.data.user.table_files import as_text

    survey = Survey(columns.max_categories)
    cells: list[NDArray[np.float64]] = []
    labels: list[Any] = []
    for rows in source.rows(problems):
        survey.add(rows)
        cells.append(rows.cells)
        labels.append(as_text(rows.roles["label"]).dictionary_encode())
    if not cells and not problems.total:
        raise DataError(f"{source.where}: has no rows", hint="Store one row per item.")
    codes, classes = tuple_codes(labels)
    for row in np.flatnonzero(codes < 0).tolist():
        problems.add(source.place(row), "has no label")
    return _LabelledRows(_stacked(cells), survey.texts, codes, classes)


def _stacked(cells: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate(cells) if cells else np.empty((0, 0))
