"""Writers of tiny files in the formats of the published data sets."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


class Writers:
    """Each method writes one file, making its folder first."""

    @staticmethod
    def bytes(path: Path, data: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    @classmethod
    def idx(cls, path: Path, array: np.ndarray) -> Path:
        """An IDX file of bytes; gzipped if the name ends in .gz."""
        data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        return cls.bytes(path, gzip.compress(data) if path.suffix == ".gz" else data)

    @classmethod
    def idx_set(cls, folder: Path, arrays: dict[str, np.ndarray], suffix: str = "") -> Path:
        for key, name in IDX_NAMES.items():
            cls.idx(folder / f"{name}{suffix}", arrays[key])
        return folder

    @classmethod
    def pickle(cls, path: Path, content: object, protocol: int = 2) -> Path:
        return cls.bytes(path, pickle.dumps(content, protocol=protocol))

    @classmethod
    def cifar_set(cls, folder: Path, arrays: dict[str, np.ndarray]) -> Path:
        """Five training batches of equal size and one of test images."""
        training = zip(np.split(arrays["x_train"], 5), np.split(arrays["y_train"], 5), strict=True)
        batches = {f"data_batch_{i}": batch for i, batch in enumerate(training, start=1)}
        batches["test_batch"] = (arrays["x_test"], arrays["y_test"])
        for name, (x, y) in batches.items():
            cls.pickle(folder / name, {"data": x.reshape(len(x), 3072), "labels": y.tolist()})
        return folder

    @staticmethod
    def mat(path: Path, **variables: np.ndarray) -> Path:
        savemat(path, variables, do_compression=True)
        return path

    @staticmethod
    def npz(path: Path, **arrays: object) -> Path:
        np.savez(path, **{key: np.asarray(value) for key, value in arrays.items()})
        return path


@pytest.fixture
def write() -> Writers:
    return Writers()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
