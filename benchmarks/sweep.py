"""A sweep of 62 small trainings on two cores: two at a time against one after the other, all processes included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from benchmarks.timing import Ratio

# 31 offsets of the prior and two seeds; no offset comes near the tuples' rate of 1/6 but for π̃ = 0.2, which may stay.
WORDS = ("sweep", "prior", "--prior", "0.5", "--margin", "0.02", "--seed", "0", "--seed", "1")
SETTINGS = ('make_tuples.tuples=["6:1"]', "train.model=mlp", "train.epochs=20", "train.trace_every=0")


def ratios() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        fresh = (Path(folder) / str(number) for number in count())

        def sweep(jobs: int, *extra: str) -> None:
            settings = [word for value in SETTINGS for word in ("--set", value)]
            command = [sys.executable, "-m", "ntmp_cli", *WORDS, *settings, "--jobs", str(jobs), *extra]
            subprocess.run([*command, "--out", str(next(fresh))], check=True, capture_output=True)

        sweep(2, "--dry-run")  # reads all that is read from the disk once
        seconds = [_seconds(lambda jobs=jobs: sweep(jobs)) for jobs in (2, 1)]  # minutes each: once is enough
        yield Ratio("sweep of 62 trainings, --jobs 2 against --jobs 1 on two cores", *seconds, allowed=1 / 1.7)


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
