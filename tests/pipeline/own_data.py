"""Data as users have them: scikit-learn's breast cancer cases in tuples of five, written as tables and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits

FEATURES = ("radius", "texture", "perimeter", "area", "smoothness", "compactness")
PRIOR = 0.63


@dataclass(frozen=True)
class Cases:
    """Shuffled rows of tuples, unlabeled rows, test rows."""

    x: np.ndarray
    y: np.ndarray
    tuple_id: np.ndarray
    count: np.ndarray
    unlabeled: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def cases() -> Cases:
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.data))
    x, y = data.data[order, : len(FEATURES)], data.target[order]
    owner = np.repeat(np.arange(50), 5)
    counts = np.bincount(owner, y[:250].astype(float)).astype(int)
    rows = rng.permutation(250)  # the rows of a tuple lie anywhere
    return Cases(x[rows], y[rows], owner[rows], counts[owner[rows]], x[250:450], x[450:], y[450:])


def columns(x: np.ndarray) -> dict[str, Any]:
    return {name: x[:, j] for j, name in enumerate(FEATURES)}


def tables() -> dict[str, pa.Table]:
    c = cases()
    return {
        "tuples": pa.table({"tuple_id": [f"t{t}" for t in c.tuple_id], "count": c.count, **columns(c.x)}),
        "unlabeled": pa.table(columns(c.unlabeled)),
        "test": pa.table({"id": np.arange(len(c.y_test)), "label": c.y_test, **columns(c.x_test)}),
    }


def write_csv(folder: Path) -> Path:
    for name, table in tables().items():
        pacsv.write_csv(table, folder / f"{name}.csv")
    return folder


def write_parquet(folder: Path) -> Path:
    for name, table in tables().items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def write_pictures(folder: Path, tuples: int = 30, size: int = 4) -> Path:
    """Digits as image files: folders of tuples, unlabeled ones, test images by class."""
    digits = load_digits()
    pixels = (digits.images * 15.9).astype(np.uint8)

    def save(i: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i]).save(path)

    lines = ["tuple_id,count"]
    for t in range(tuples):
        members = range(size * t, size * (t + 1))
        for i in members:
            save(i, folder / "tuples" / f"t{t}" / f"{i}.png")
        lines.append(f"t{t},{sum(int(digits.target[i] % 2 == 0) for i in members)}")
    (folder / "tuples" / "counts.csv").write_text("\n".join(lines) + "\n")
    for i in range(200, 260):
        save(i, folder / "tuples" / "unlabeled" / f"{i}.png")
    for i in range(300, 340):
        save(i, folder / "test" / ("even" if digits.target[i] % 2 == 0 else "odd") / f"{i}.png")
    return folder
