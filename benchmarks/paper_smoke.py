"""Every file of sample_configs/paper/, with one epoch on a few tuples: `make paper-smoke`.

Data sets that are in NTMP_DATA are used; for the others noise of the same shape stands in, with a hint of the class in
its brightness. So little data name no class, so that `count` trusts the prior. What is tested is that every table and
figure of the paper comes out of its file, not what is in it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ntmp_cli.app import run
from ntmp_cli.data.labelled import load_labelled
from ntmp_cli.errors import NtmpError

FOLDER = Path(__file__).parents[1] / "sample_configs" / "paper"
SHAPES = {"mnist": (28, 28), "fashion-mnist": (28, 28), "cifar10": (32, 32, 3), "svhn": (32, 32, 3)}
POSITIVE = {"cifar10": (0, 2, 3, 5, 7, 9)}  # of the others the even classes
TRAIN, TEST = 400, 60
TINY = ("make_tuples.num_tuples=12", "make_tuples.unlabeled_size=24", "train.batch_size=64")


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.yaml"))


def command_of(file: Path) -> list[str]:
    """The command that the first lines of a file name, without its output folder."""
    line = re.findall(r"^#   ntmp (.*) --out \S+$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    return shlex.split(line.replace("sample_configs/paper", str(FOLDER)))


def smoke(file: Path, out: Path, data: Path, seeds: Sequence[int] = (0, 1), settings: Sequence[str] = ()) -> Path:
    """Run one file with one epoch; returns the folder of its report or results."""
    command = command_of(file)
    epochs = 2 if "compared" in file.stem else 1  # a curve needs two points
    text = file.read_text("utf-8")
    groups = ["train", *(["train_on.cifar10", "train_on.svhn"] if "train_on:" in text else [])]
    trusting = ["runs.count.trust=prior"] if "\n  count: " in text else []
    lengths = (f"{group}.epochs={epochs}" for group in groups)
    overrides = [*TINY, *trusting, *lengths, f"seeds={list(seeds)}", *settings]
    words = [*command, *(word for setting in overrides for word in ("--set", setting))]
    code = run([*words, "--data-root", str(data), "--out", str(out)])
    if code:
        raise SystemExit(f"{file.name}: exit code {code}")
    return out / ("report" if command[0] == "run" else "results")


def stand_ins(folder: Path) -> Path:
    """A data root with all four data sets: those of NTMP_DATA by their files, the others made up."""
    folder.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("NTMP_DATA")
    for entry in Path(given).iterdir() if given else ():
        link = folder / entry.name
        if not link.exists():
            link.symlink_to(entry.resolve())
    for number, name in enumerate(SHAPES):
        try:
            load_labelled(name, root=folder)
        except NtmpError:
            made = _made_up(SHAPES[name], POSITIVE.get(name, (0, 2, 4, 6, 8)), np.random.default_rng(number))
            np.savez(folder / f"{name}.npz", **dict(made))
    return folder


def _made_up(
    shape: tuple[int, ...], positive: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    for split, size in (("train", TRAIN), ("test", TEST)):
        labels = np.arange(size) % 10
        yield f"y_{split}", labels
        bright = rng.integers(0, 200, (size, *shape)) + 50 * np.isin(labels, positive).reshape(-1, *(1 for _ in shape))
        yield f"x_{split}", bright.astype(np.uint8)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "work/paper-smoke")
    data = stand_ins(out / "data")
    for file in files():
        started = time.perf_counter()
        made = smoke(file, out / file.stem, data)
        figures = ", ".join(sorted(path.name for path in made.glob("*.png")))
        print(f"{file.name}: {time.perf_counter() - started:.0f} s, {made}: {figures}", flush=True)


if __name__ == "__main__":
    main()
