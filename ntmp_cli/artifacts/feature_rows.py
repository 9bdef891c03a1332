"""The columns of a table in its manifest: all of them, or the first ones if there are very many."""

from __future__ import annotations

from collections.abc import Sequence

from ntmp_cli.artifacts.layout import FEATURES
from ntmp_cli.artifacts.summary_fields import Count, Name, Record
from ntmp_cli.data.user.mapping import FeatureMapping, ImageFeatures

# Manifests stay small, because every opening of a directory reads them: a longer list is in a separate file.
MOST_LISTED = 1000
_ELSEWHERE = f"in {FEATURES}"


class FeatureRow(Record):
    """A column of the user's table, or the user's images, and how many features it became."""

    name: str
    kind: Name
    missing: Count
    width: Count


def feature_rows(mapping: FeatureMapping, missing: Sequence[int]) -> tuple[FeatureRow, ...]:
    """How a mapping encodes every column, with the number of its missing values."""
    features = mapping.features
    if isinstance(features, ImageFeatures):
        return (FeatureRow(name="image", kind=features.description, missing=0, width=1),)
    return tuple(
        FeatureRow(name=column.name, kind=column.kind, missing=count, width=column.value_width + int(column.indicator))
        for column, count in zip(features.columns, missing, strict=True)
    )


def is_long(rows: Sequence[FeatureRow]) -> bool:
    return len(rows) > MOST_LISTED


def listed_rows(rows: tuple[FeatureRow, ...]) -> tuple[FeatureRow, ...]:
    """The rows in a manifest; a long list is cut to its first rows and one row for all others."""
    if not is_long(rows):
        return rows
    rest = rows[MOST_LISTED:]
    missing, width = sum(row.missing for row in rest), sum(row.width for row in rest)
    others = FeatureRow(name=f"{len(rest)} more", kind=_ELSEWHERE, missing=missing, width=width)
    return *rows[:MOST_LISTED], others


def number_of_columns(listed: Sequence[FeatureRow]) -> int:
    """Number of columns that the rows of a manifest describe."""
    if listed and listed[-1].kind == _ELSEWHERE:
        return MOST_LISTED + int(listed[-1].name.split()[0])
    return len(listed)


def column_names(listed: Sequence[FeatureRow]) -> tuple[list[str], int] | None:
    """Names of the first columns of a table, and their total number; None if the rows are not those of a table."""
    names = [row.name for row in listed[:MOST_LISTED]]
    return (names, number_of_columns(listed)) if names and names != ["image"] else None
