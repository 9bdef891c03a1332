"""inspect: what an artefact holds, after checking every byte of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import Artifact, open_artifact, refuse_overlap
from ntmp_cli.artifacts.row_types import read_history
from ntmp_cli.artifacts.shards import read_tuple_shard, tuple_shard_names
from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.counting.recorded import as_text
from ntmp_cli.errors import UsageError


def inspect(path: Path) -> Artifact:
    """Open an artefact of any kind and verify all of its files."""
    artifact = open_artifact(path)
    artifact.verify()
    return artifact


def epochs_of(artifact: Artifact) -> list[dict[str, Any]]:
    """The history of a run; of other kinds nothing."""
    return read_history(open_artifact(artifact.path, "run")) if artifact.kind == "run" else []


def facts(artifact: Artifact) -> dict[str, Any]:
    """Everything in the manifest, for `--json`."""
    manifest = artifact.manifest
    return {
        "config": manifest.config,
        "seed": manifest.seed,
        "package_version": manifest.package_version,
        "format_version": manifest.format_version,
        "inputs": list(manifest.inputs),
        "files": [{"path": e.path, "bytes": e.bytes, "rows": e.rows, "sha256": e.sha256} for e in manifest.files],
        "summary": manifest.summary.to_json(),
        "verified": True,
    }


def write_montage(artifact: Artifact, figure: Path, *, rows: int = 12) -> None:
    """Write a figure of the first training tuples with their recorded counts."""
    from ntmp_cli.reporting.figures import tuple_montage

    needs = f"{artifact.path}: a montage needs a tuples directory of images"
    if artifact.kind != "tuples":
        raise UsageError(f"{needs}, this is of kind '{artifact.kind}'", hint="Leave --figure out.")
    tuples = open_artifact(artifact.path, "tuples")
    if len(tuples.summary.instance.shape) != 3:
        raise UsageError(
            f"{needs}, this is made of feature vectors",
            hint="Leave --figure out. `ntmp audit --tuples TUPLES --run RUN --out OUT` plots how probable counts are, "
            "`ntmp explain RUN --tuples TUPLES --out OUT` which features matter.",
        )
    if figure.suffix.lower() != ".png":
        raise UsageError(f"--figure {figure}: the montage is a PNG file", hint="Name it something.png.")
    refuse_overlap(figure, (artifact.path,))
    block = read_tuple_shard(tuples, tuple_shard_names(tuples, "train")[0])
    scale = tuples.summary.instance.scale
    sizes = np.diff(block.offsets)[:rows]
    images = np.full((len(sizes), int(sizes.max()), *_pixels(scale, block.instances[:1]).shape[1:]), np.nan)
    for t, size in enumerate(sizes):
        images[t, :size] = _pixels(scale, block.instances[block.offsets[t] : block.offsets[t] + size])
    captions = [f"{as_text(m)} of {n} positive" for m, n in zip(block.counts[:rows], sizes, strict=True)]
    image = tuple_montage(images, captions, f"{tuples.summary.dataset}: tuples and recorded counts")
    with replacing(figure) as partial:
        partial.write_bytes(image)


def _pixels(scale: float, instances: NDArray[np.generic]) -> NDArray[np.float64]:
    """Channel-last pixels in [0, 1], as they are plotted."""
    x = instances.astype(np.float64) / scale
    x = np.clip(x, 0, 1)
    return x[:, 0] if x.shape[1] == 1 else np.moveaxis(x[:, :3], 1, -1)
