"""Rows to be scored: a table, arrays or images, in the form that a run was trained on."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ntmp_cli.data.user.arrays import OFFSETS, ArrayRows, X, is_array_file, open_arrays
from ntmp_cli.data.user.mapping import FeatureMapping, ImageFeatures, Roles, TableFeatures
from ntmp_cli.data.user.rows import FeatureColumns, Role, RowSource, open_table_rows, require_column
from ntmp_cli.data.user.streams import BLOCK_BYTES
from ntmp_cli.data.user.table_files import STDIN, TableFile
from ntmp_cli.data.user.table_sets import is_tables, open_tables, place_of_images, require_input
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.storage import Location, on_disk
from ntmp_cli.tuple_source import InstanceFormat

if TYPE_CHECKING:
    from ntmp_cli.data.user.images import ImageFormat


@dataclass(frozen=True)
class NewRowOptions:
    """How rows to be scored are read; images are resized if those of the training were."""

    resize: int | None = None
    needed: tuple[Role, ...] = ()
    """The roles that rows must have: tuple and count, or tuple alone."""
    allow_outside: bool = False
    block_bytes: int = BLOCK_BYTES


def open_new_rows(
    path: Location, mapping: FeatureMapping | None, instance: InstanceFormat, options: NewRowOptions
) -> RowSource:
    """Rows to be scored. They must match the training data: columns by name, arrays and images by shape."""
    needed = options.needed
    with_counts, grouped = "count" in needed, bool(needed)
    roles = mapping.roles if mapping else Roles()
    features = mapping.features if mapping else None
    required = needed
    optional: tuple[Role, ...] = ("id", "law") if with_counts else () if grouped else ("id", "tuple", "count")
    require_input(path)
    if is_tables(path):
        table = open_tables(path, options.block_bytes)
        if isinstance(features, TableFeatures):
            for role in required:
                require_column(table, getattr(roles, f"{role}_column"), _why(needed))
            known = {*(mapping.ignored if mapping else ()), *roles.model_dump().values()}
            columns = FeatureColumns(features.categorical, ignore=known, names=features.names)
            return open_table_rows(table, roles, columns, required=required, optional=optional)
        if path != STDIN and has_images(table, roles):
            for role in required:
                require_column(table, getattr(roles, f"{role}_column"), _why(needed))
            present = columns_of(table.types, roles, (*required, *optional))
            from ntmp_cli.data.user.images import table_of_images

            image_format = _image_format(features, instance, options, path)
            return table_of_images(table, place_of_images(path), roles.image_column, image_format, present)
        raise UsageError(
            f"{path}: this run was not trained on the columns of a table, "
            f"but on arrays of shape {shape_text(instance)}",
            hint="Pass an .npz or .npy file of such arrays, or a folder of images.",
        )
    if is_array_file(path := on_disk(path)):
        file = open_arrays(path, options.block_bytes)
        file.require(X, "the rows")
        if with_counts and OFFSETS in file.shapes:
            rows = ArrayRows(file, X, {}, offsets=True)
        else:
            for role in required:
                file.require(getattr(roles, f"{role}_column"), _why(needed))
            rows = ArrayRows(file, X, columns_of(file.shapes, roles, (*required, *optional)))
        _require_trained(rows, path, features, instance)
        return rows
    if not path.is_dir():
        raise unknown(path)
    image_format = _image_format(features, instance, options, path)
    if not grouped:
        from ntmp_cli.data.user.images import all_images

        return all_images(path, image_format, named=True)
    columns_needed = [getattr(roles, f"{role}_column") for role in needed]
    raise UsageError(
        f"{path}: --{_option(needed)} needs a table of images{', tuple ids and counts' if with_counts else ''}",
        hint=f"Columns {', '.join([roles.image_column, *columns_needed[:-1]])} and {columns_needed[-1]}.",
    )


def _option(needed: tuple[Role, ...]) -> str:
    return "with-counts" if "count" in needed else "by"


def _why(needed: tuple[Role, ...]) -> str:
    """Why a column must be there."""
    return "which --with-counts needs" if "count" in needed else "which --by names"


def _require_trained(
    rows: ArrayRows, path: Path, features: TableFeatures | ImageFeatures | None, instance: InstanceFormat
) -> None:
    if isinstance(features, TableFeatures):
        if list(rows.columns or ()) != features.names:
            known = ", ".join(features.names[:10]) + (", …" if len(features.names) > 10 else "")
            raise DataError(
                f"{path}: an array has columns x0, x1, …, but this run was trained on {len(features.names)}: {known}",
                hint="Pass a table with these columns.",
            )
        return
    images = rows.image_features()
    shape = list(images.shape) if images else [len(rows.columns or ())]
    dtype = images.dtype if images else "float32"
    if shape != list(instance.shape) or (images and dtype != instance.dtype.name):
        raise DataError(
            f"{path}: instances of shape {'×'.join(map(str, shape))} {dtype}, but this run was trained on "
            f"{shape_text(instance)} {instance.dtype.name}",
            hint="Bring them to the shape and type of the training instances.",
        )


def _image_format(
    features: TableFeatures | ImageFeatures | None, instance: InstanceFormat, options: NewRowOptions, path: Location
) -> ImageFormat:
    """The size of images that a run takes."""
    from ntmp_cli.data.user.images import ImageFormat

    if isinstance(features, TableFeatures) or len(instance.shape) != 3 or instance.dtype.name != "uint8":
        raise UsageError(f"{path}: this run was not trained on images", hint=f"It takes shape {shape_text(instance)}.")
    if instance.scale != 255:
        raise UsageError(
            f"{path}: this run was trained on values up to {instance.scale:g}, not on pixels up to 255",
            hint="Pass an .npz or .npy file of such arrays.",
        )
    channels, height, width = instance.shape
    resized = features.resize if isinstance(features, ImageFeatures) else options.resize
    known = (height, width), "a training image"
    return ImageFormat(resized, *known, only_gray=channels == 1, allow_outside=options.allow_outside)


def has_images(table: TableFile, roles: Roles) -> bool:
    return roles.image_column in table.types and table.kind_of(roles.image_column) == "text"


def columns_of(present: Container[str], roles: Roles, wanted: Sequence[Role]) -> dict[Role, str]:
    """The columns or arrays of a file that hold the wanted roles."""
    names = {role: str(getattr(roles, f"{role}_column")) for role in wanted}
    return {role: name for role, name in names.items() if name in present}


def unknown(path: Path) -> UsageError:
    return UsageError(
        f"{path}: neither a table, nor arrays, nor a folder of images",
        hint="Pass .csv, .tsv, .parquet, .npz, .npy, a folder of .npy files or a folder of images.",
    )


def shape_text(instance: InstanceFormat) -> str:
    return "×".join(map(str, instance.shape))
