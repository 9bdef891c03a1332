"""Artefacts that were changed together with the hashes in their manifests."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def rehash(path: Path) -> None:
    """Fit the manifest's sizes and hashes to the files as they are."""
    manifest = path / "manifest.json"
    document = json.loads(manifest.read_bytes())
    for entry in document["files"]:
        content = (path / entry["path"]).read_bytes()
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest.write_text(json.dumps(document))


def change_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = path / "manifest.json"
    document = json.loads(manifest.read_bytes())
    change(document)
    manifest.write_text(json.dumps(document))


def replace_arrays(file: Path, **arrays: Any) -> None:
    """Replace or remove (None) data sets of an HDF5 file."""
    with h5py.File(file, "r+") as stored:
        for name, values in arrays.items():
            if name in stored:
                del stored[name]
            if values is not None:
                stored[name] = values


def arrays_of(file: Path) -> dict[str, np.ndarray]:
    with h5py.File(file) as stored:
        return {name: stored[name][()] for name in stored}
