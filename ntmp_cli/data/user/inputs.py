"""Opens the files that a user names as sources of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ntmp_cli.data.folders import looking_at
from ntmp_cli.data.user.arrays import (
    COUNTS,
    HIGH,
    LOW,
    OFFSETS,
    UNLABELED,
    ArrayFile,
    ArrayRows,
    X,
    is_array_file,
    open_arrays,
)
from ntmp_cli.data.user.count_cells import CountColumn
from ntmp_cli.data.user.images import (
    COUNTS_FILE,
    ImageFormat,
    ImageRows,
    all_images,
    class_folders,
    table_of_images,
    tuple_folders,
)
from ntmp_cli.data.user.mapping import Roles
from ntmp_cli.data.user.new_rows import columns_of, has_images, unknown
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.reading import ImportSources, read_blocks, read_counts
from ntmp_cli.data.user.rows import FeatureColumns, Role, RowSource, TableRows, open_table_rows, require_column
from ntmp_cli.data.user.streams import BLOCK_BYTES
from ntmp_cli.data.user.table_files import STDIN, TableFile, open_table
from ntmp_cli.data.user.table_sets import is_tables, open_tables, place_of_images, require_input
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.storage import Location, on_disk


@dataclass(frozen=True)
class Inputs:
    """Paths or URLs of the user's data."""

    main: Location
    unlabeled: Location | None = None
    test: Location | None = None
    counts: Location | None = None
    allow_outside: bool = False
    """Whether a table may name images outside of its folder."""

    def paths(self) -> dict[str, Location]:
        named = {"tuples": self.main, "unlabeled": self.unlabeled, "test": self.test, "counts": self.counts}
        return {name: path for name, path in named.items() if path is not None}


@dataclass(frozen=True)
class ImportOptions:
    """How the files of an import are read."""

    roles: Roles
    features: FeatureColumns
    resize: int | None
    block_bytes: int = BLOCK_BYTES
    counts: CountColumn = field(default_factory=CountColumn)
    """What the cells of a column of counts mean."""


def open_inputs(inputs: Inputs, options: ImportOptions, problems: Problems) -> ImportSources:
    """Open all files of an import. The main file determines the features; the others must have them too."""
    for path in inputs.paths().values():
        if path == STDIN:
            raise UsageError("an import reads its files more than once, so it cannot use standard input")
        require_input(path)
    image_format = ImageFormat(options.resize, allow_outside=inputs.allow_outside)
    main = inputs.main
    unlabeled_inside: RowSource | None = None
    counts_file = inputs.counts
    if is_tables(main):
        rows = _main_table(
            open_tables(main, options.block_bytes), main, options, image_format, counts_apart=counts_file is not None
        )
    elif is_array_file(main := on_disk(main)):
        rows, unlabeled_inside = _main_arrays(
            open_arrays(main, options.block_bytes), options.roles, counts_apart=counts_file is not None
        )
    elif main.is_dir():
        with looking_at(main):
            rows, unlabeled_inside, empty = tuple_folders(main, image_format)
        for name in empty:
            problems.add(str(main / name), f"tuple '{name}' is empty: it has no images")
        counts_file = counts_file or main / COUNTS_FILE
        if not counts_file.is_file():
            raise DataError(
                f"{counts_file}: no such file", hint="Counts are a table of tuple_id and count: --counts FILE."
            )
    else:
        raise unknown(main)
    _refuse_useless_resize(options, rows)
    if unlabeled_inside is not None and inputs.unlabeled is not None:
        raise UsageError(f"--unlabeled {inputs.unlabeled}: {main} has unlabeled rows already", hint="Use one of them.")
    unlabeled = unlabeled_inside
    if inputs.unlabeled is not None:
        unlabeled = _other(inputs.unlabeled, options, image_format, rows, ())
    test = None if inputs.test is None else _other(inputs.test, options, image_format, rows, ("label",))
    counts = None if counts_file is None else _counts(counts_file, options, problems)
    return ImportSources(rows, unlabeled, test, counts, _blocks(counts_file, options.roles, rows), options.counts)


def _main_table(
    table: TableFile, path: Location, options: ImportOptions, image_format: ImageFormat, *, counts_apart: bool
) -> RowSource:
    roles = options.roles
    if not counts_apart:
        require_column(table, roles.count_column, "the count of positives (--count-column, or --counts FILE)")
    optional: tuple[Role, ...] = ("label", "id", "block") if counts_apart else ("count", "law", "label", "id", "block")
    if has_images(table, roles):
        require_column(table, roles.tuple_column, "the tuple of every row (--tuple-column)")
        present = columns_of(table.types, roles, ("tuple", *optional))
        return table_of_images(table, place_of_images(path), roles.image_column, image_format, present)
    return open_table_rows(table, roles, options.features, required=("tuple",), optional=optional)


def _main_arrays(file: ArrayFile, roles: Roles, *, counts_apart: bool) -> tuple[ArrayRows, ArrayRows | None]:
    file.require(X, "the rows")
    inner = ArrayRows(file, UNLABELED, {}) if UNLABELED in file.shapes else None
    if OFFSETS in file.shapes:
        if LOW not in file.shapes or HIGH not in file.shapes:
            file.require(COUNTS, "the count of every tuple")
        return _alike(ArrayRows(file, X, columns_of(file.shapes, roles, ("law", "block")), offsets=True), inner)
    file.require(roles.tuple_column, "the tuple of every row, or 'offsets' of tuples")
    if not counts_apart:
        file.require(roles.count_column, "the count of the tuple, row by row")
    counted: tuple[Role, ...] = () if counts_apart else ("count", "law")
    wanted: tuple[Role, ...] = ("tuple", *counted, "label", "id", "block")
    return _alike(ArrayRows(file, X, columns_of(file.shapes, roles, wanted)), inner)


def _alike(rows: ArrayRows, inner: ArrayRows | None) -> tuple[ArrayRows, ArrayRows | None]:
    if inner is not None:
        _require_like(rows, inner)
    return rows, inner


def _other(
    path: Location, options: ImportOptions, image_format: ImageFormat, main: RowSource, required: Sequence[Role]
) -> RowSource:
    """Unlabeled or test rows, with the features of the main file."""
    if is_tables(path):
        table = open_tables(path, options.block_bytes)
        if isinstance(main, ImageRows):
            for name in (options.roles.image_column, *(getattr(options.roles, f"{role}_column") for role in required)):
                require_column(table, name, "which is needed")
            present = columns_of(table.types, options.roles, (*required, "id"))
            return table_of_images(table, place_of_images(path), options.roles.image_column, image_format, present)
        if main.columns is None:
            raise _unlike(path, main)
        # If a later row shows that a column is categorical, it is read as such in both files.
        categorical = main.categorical if isinstance(main, TableRows) else set()
        features = FeatureColumns(categorical, names=main.columns)
        return open_table_rows(table, options.roles, features, required=required, optional=("id",))
    if is_array_file(path := on_disk(path)):
        file = open_arrays(path, options.block_bytes)
        file.require(X, "the rows")
        for role in required:
            file.require(getattr(options.roles, f"{role}_column"), f"the {role} of every row")
        rows = ArrayRows(file, X, columns_of(file.shapes, options.roles, (*required, "id")))
        _require_like(main, rows)
        return rows
    if not path.is_dir():
        raise unknown(path)
    if not isinstance(main, ImageRows):
        raise _unlike(path, main)
    with looking_at(path):
        return class_folders(path, image_format) if "label" in required else all_images(path, image_format)


def _counts(path: Location, options: ImportOptions, problems: Problems) -> dict[str, int]:
    table, roles = open_table(path), options.roles
    for name in (roles.tuple_column, roles.count_column):
        require_column(table, name, "which a file of counts has")
    return read_counts(table, roles, options.counts, problems)


def _blocks(counts_file: Location | None, roles: Roles, main: RowSource) -> dict[str, str | None] | None:
    """Blocks from the file of counts, if the main file does not have them."""
    if roles.block_column is None or "block" in main.role_names:
        return None
    table = None if counts_file is None else open_table(counts_file)
    if table is None or roles.block_column not in table.types:
        neither = "" if table is None else f", and neither has {table.where}"
        raise DataError(
            f"{main.where}: has no column '{roles.block_column}', the block of every tuple (--block-column){neither}",
            hint="Give the block in the rows of a tuple, or in the file of counts.",
        )
    return read_blocks(table, roles.tuple_column, roles.block_column)


def _require_like(main: RowSource, other: RowSource) -> None:
    """Refuse rows of another shape or type; a table matches an array of features if it has their names."""
    if isinstance(main, ImageRows) or main.columns != other.columns or main.image_features() != other.image_features():
        raise DataError(
            f"{other.where}: its rows differ in shape or type from those of {main.where}",
            hint="All files of an import must have the same features.",
        )


def _refuse_useless_resize(options: ImportOptions, rows: RowSource) -> None:
    if options.resize is not None and not isinstance(rows, ImageRows):
        raise UsageError(f"--resize {options.resize}: {rows.where} has no image files", hint="Leave --resize out.")


def _unlike(path: Location, main: RowSource) -> DataError:
    return DataError(
        f"{path}: cannot hold the same features as {main.where}", hint="Pass the same kind of file as INPUT."
    )
