"""Good inputs of every kind, small: what mutations start from."""

from __future__ import annotations

import gzip
import pickle
import shutil
import struct
import time
from pathlib import Path

import numpy as np
from forks import command, done, ended, start

TRAINING = ("--prior", 0.5, "--trust", "prior", "--model", "linear", "--epochs", 2, "--batch-size", 60)
SIMULATED = ("--dataset", "digits", "--n", 3, "--m", 1, "--prior", 0.5, "--num-tuples", 40, "--unlabeled-size", 60)
SIMULATED += ("--shard-size", 20)
ESTIMATION = ("--score", "discriminant", "--resamples", 20)
CONFIG = "method: count\nprior: 0.5\nmodel: linear\nepochs: 1\nlr: 0.01\nseed: 3\nbatch_size: 60\ntrust: prior\n"
PIPELINE = """seeds: [0]
make_tuples: {dataset: digits, tuples: ["3:1"], prior: 0.5, num_tuples: 40, unlabeled_size: 60}
train: {method: count, model: linear, epochs: 1, trust: prior}
runs:
  a: {lr: 0.01}
evaluate: {metrics: [auroc]}
"""
DATASETS = ("npz", "table", "folder", "mnist", "cifar10", "svhn")


def kept(folder: Path, *, complete: bool = True) -> Path:
    """The inputs in a folder, made where they are not there yet."""
    finished = folder / "finished"
    if not finished.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build(folder, complete=complete)
        finished.touch()
    return folder


def build(folder: Path, *, complete: bool = True) -> Path:
    """All inputs below a folder; without `complete`, those that take a second or more are left out."""
    _write_tables(folder)
    _write_arrays(folder)
    if ended(lambda: _write_binary_tables(folder)).code or ended(lambda: _write_images(folder)).code:
        raise RuntimeError("the corpus could not be written")
    _write_image_sets(folder)
    (folder / "train.yaml").write_text(CONFIG)
    (folder / "run.yaml").write_text(PIPELINE)
    done("make-tuples", *SIMULATED, "--out", folder / "tuples")
    done("train", "--tuples", folder / "tuples", *TRAINING, "--out", folder / "run")
    done("evaluate", folder / "run", "--out", folder / "evaluation")
    done("import-tuples", folder / "rows.csv", "--unlabeled", folder / "unlabeled.csv", "--out", folder / "imported")
    done("train", "--tuples", folder / "imported", "--model", "linear", "--prior", 0.5, "--out", folder / "table-run")
    if complete:
        done("report", folder / "evaluation", "--out", folder / "report")
        done("design", "--tuples", folder / "tuples", "--out", folder / "design")
        done("audit", "--tuples", folder / "tuples", "--out", folder / "audit")
        done("export", folder / "run", "--format", "torchscript", "--out", folder / "export")
        done("explain", folder / "run", "--tuples", folder / "tuples", "--out", folder / "explanation")
        done("train", "--tuples", folder / "imported", "--model", "trees", "--prior", 0.5, "--out", folder / "tree-run")
        model = ("--model", "sklearn:linear_model.LogisticRegression")
        done("train", "--tuples", folder / "imported", *model, "--prior", 0.5, "--out", folder / "sklearn-run")
        done("train", "--tuples", folder / "tuples", *TRAINING, "--encoder", "pixels", "--out", folder / "encoded-run")
        easy = ("--dataset", "gaussians:size=2000,separation=4,test=50", "--prior", 0.6, "--num-tuples", 300)
        done("make-tuples", *easy, "--out", folder / "gaussians")
        done("estimate-prior", "--tuples", folder / "gaussians", *ESTIMATION, "--out", folder / "prior")
    _leave_checkpoint(folder)
    return folder


def training_of_checkpoint(folder: Path) -> tuple[object, ...]:
    """The training whose checkpoint the corpus holds, long enough to be killed."""
    options = ("--prior", 0.5, "--trust", "prior", "--model", "linear", "--epochs", 4, "--batch-size", 30)
    return ("train", "--tuples", folder / "tuples", *options, "--checkpoint-seconds", 0)


def _leave_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    state = folder / "checkpoint" / ".run.checkpoint" / "state.pt"
    while not state.exists():
        process = start(command(*training_of_checkpoint(folder), "--out", folder / "checkpoint" / "run"))
        while not state.exists() and not process.ended_within(0):
            time.sleep(0.002)
        process.kill()
        process.wait()


def _rows(tuples: int = 40, size: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.random(tuples * size) < 0.4
    x = rng.normal(size=(len(y), 3)) + 2 * y[:, None]
    owner = np.repeat(np.arange(tuples), size)
    return x, y, owner, np.bincount(owner, y).astype(int)[owner]


def _write_tables(folder: Path) -> None:
    x, y, owner, count = _rows()
    colours = ["red", "green", "blue"]
    lines = [
        f"{t},{c},{row},{a:.4f},{b:.4f},{d:.4f},{colours[row % 3]}"
        for row, (t, c, (a, b, d)) in enumerate(zip(owner, count, x, strict=True))
    ]
    text = "\n".join(["tuple_id,count,id,a,b,c,colour", *lines]) + "\n"
    (folder / "rows.csv").write_text(text)
    (folder / "rows.tsv").write_text(text.replace(",", "\t"))
    (folder / "rows.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    unlabeled = [f"{a:.4f},{b:.4f},{d:.4f},red" for a, b, d in x[:60]]
    (folder / "unlabeled.csv").write_text("\n".join(["a,b,c,colour", *unlabeled]) + "\n")
    labelled = [f"{a:.4f},{b:.4f},{d:.4f},{'yes' if label else 'no'}" for (a, b, d), label in zip(x, y, strict=True)]
    (folder / "labelled.csv").write_text("\n".join(["a,b,c,label", *labelled]) + "\n")


def _write_arrays(folder: Path) -> None:
    x, y, _, _ = _rows()
    offsets = np.arange(0, len(x) + 1, 3)
    counts = np.add.reduceat(y.astype(int), offsets[:-1])
    arrays = {"x": x, "offsets": offsets, "counts": counts, "unlabeled": x[:50]}
    np.savez(folder / "rows.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    (folder / "arrays").mkdir()
    for name, values in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", values)
    np.savez(folder / "labelled.npz", x_train=x, y_train=y.astype(int), x_test=x[:20], y_test=y[:20].astype(int))
    np.save(folder / "digits.npy", np.random.default_rng(0).integers(0, 16, (20, 1, 8, 8), dtype=np.uint8))


def _write_binary_tables(folder: Path) -> int:
    import pyarrow.csv
    import pyarrow.parquet

    for name in ("rows", "unlabeled"):
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / f"{name}.csv"), folder / f"{name}.parquet")
    return 0


def _write_images(folder: Path) -> int:
    from PIL import Image

    rng = np.random.default_rng(0)

    def save(path: Path, mode: str = "L") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (8, 8) if mode == "L" else (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)

    for t in range(6):
        for i in range(3):
            save(folder / "pictures" / f"t{t}" / f"{i}.{('png', 'jpg', 'bmp', 'gif', 'tif', 'webp')[t]}")
    for i in range(12):
        save(folder / "pictures" / "unlabeled" / f"{i}.png")
    (folder / "pictures" / "counts.csv").write_text("tuple_id,count\n" + "".join(f"t{t},{t % 4}\n" for t in range(6)))
    for label in ("cat", "dog"):
        for i in range(12):
            save(folder / "classes" / label / f"{i}.png", "RGB")
    return 0


def _write_image_sets(folder: Path) -> None:
    rng = np.random.default_rng(0)
    mnist, cifar, svhn = folder / "mnist" / "MNIST" / "raw", folder / "cifar" / "cifar-10-batches-py", folder / "svhn"
    for place in (mnist, cifar, svhn):
        place.mkdir(parents=True)
    for name, size in (("train", 40), ("t10k", 12)):
        images, labels = rng.integers(0, 256, (size, 28, 28), dtype=np.uint8), np.arange(size, dtype=np.uint8) % 10
        packed = b"\0\0\x08\x03" + struct.pack(">3I", size, 28, 28) + images.tobytes()
        (mnist / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(packed, mtime=0))
        (mnist / f"{name}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", size) + labels.tobytes())
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {"data": rng.integers(0, 256, (12, 3072), dtype=np.uint8), "labels": [i % 10 for i in range(12)]}
        (cifar / name).write_bytes(pickle.dumps(batch, protocol=2))
    from scipy.io import savemat

    for name, size in (("train", 40), ("test", 12)):
        x = rng.integers(0, 256, (32, 32, 3, size), dtype=np.uint8)
        y = (np.arange(size, dtype=np.uint8) % 10 + 1)[:, None]
        savemat(svhn / f"{name}_32x32.mat", {"X": x, "y": y}, do_compression=True)
