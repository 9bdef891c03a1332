"""From the paths that a user names to sources of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntmp_cli.data.own.mapping import FeatureMapping, Roles, TableFeatures
from ntmp_cli.data.own.rows import Role, RowSource, open_table_rows, require_column
from ntmp_cli.data.own.tables import BLOCK_BYTES, STDIN, is_table, open_table
from ntmp_cli.errors import UsageError


@dataclass(frozen=True)
class Inputs:
    """Where the user's data lie."""

    main: Path
    unlabeled: Path | None = None
    test: Path | None = None
    counts: Path | None = None

    def paths(self) -> dict[str, Path]:
        named = {"tuples": self.main, "unlabeled": self.unlabeled, "test": self.test, "counts": self.counts}
        return {name: path for name, path in named.items() if path is not None}


@dataclass(frozen=True)
class Opened:
    """The sources of an import, with their headers read."""

    main: RowSource
    unlabeled: RowSource | None
    test: RowSource | None


def open_inputs(
    inputs: Inputs,
    roles: Roles,
    *,
    categorical: Sequence[str],
    ignore: Sequence[str],
    block_bytes: int = BLOCK_BYTES,
) -> Opened:
    """Open all files of an import. The main one says what the features are; the others must have them too."""
    for path in inputs.paths().values():
        if path == STDIN:
            raise UsageError("an import reads its files more than once, so not from standard input")
    main = open_table(inputs.main, block_bytes)
    if inputs.counts is None:
        require_column(main, roles.count_column, "the count of positives (--count-column, or --counts FILE)")
    rows = open_table_rows(
        main,
        roles,
        needs=("tuple",),
        offers=("count", "id") if inputs.counts is None else ("id",),
        categorical=categorical,
        ignore=ignore,
    )
    others = {}
    for name, other in (("unlabeled", inputs.unlabeled), ("test", inputs.test)):
        if other is not None:
            others[name] = open_table_rows(
                open_table(other, block_bytes),
                roles,
                needs=("label",) if name == "test" else (),
                offers=("id",),
                categorical=categorical,
                columns=rows.columns,
            )
    return Opened(rows, others.get("unlabeled"), others.get("test"))


def open_new_rows(
    path: Path,
    mapping: FeatureMapping | None,
    instance: Mapping[str, Any],
    *,
    with_counts: bool,
    block_bytes: int = BLOCK_BYTES,
) -> RowSource:
    """Rows to be scored: they must have the features that the run was trained on, by name."""
    roles = mapping.roles if mapping else Roles()
    needs: tuple[Role, ...] = ("tuple", "count") if with_counts else ()
    if is_table(path):
        if mapping is None or not isinstance(mapping.features, TableFeatures):
            shape = "×".join(map(str, instance["shape"]))
            raise UsageError(
                f"{path}: this run was not trained on the columns of a table, but on arrays of shape {shape}",
                hint="Pass an .npz or .npy file of such arrays, or a folder of images.",
            )
        features = mapping.features
        return open_table_rows(
            open_table(path, block_bytes),
            roles,
            needs=needs,
            offers=("id",) if with_counts else ("id", "tuple", "count"),
            categorical=sorted(features.categorical),
            columns=features.names,
        )
    raise UsageError(f"{path}: not a table")


__all__ = ["Inputs", "Opened", "is_table", "open_inputs"]
