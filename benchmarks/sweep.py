"""A sweep of 62 small trainings on two cores: two at a time against one after the other, all processes included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.timing import Ratio, take_turns

# 31 offsets of the prior and two seeds; no offset comes near the tuples' rate of 1/6 but for π̃ = 0.2, which may stay.
WORDS = ("sweep", "prior", "--prior", "0.5", "--margin", "0.02", "--seed", "0", "--seed", "1", "--resamples", "1000")
SETTINGS = ('make_tuples.tuples=["6:1"]', "train.model=mlp", "train.epochs=12", "train.trace_every=0")


def ratios() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        fresh = (Path(folder) / str(number) for number in count())

        def sweep(jobs: int) -> None:
            settings = [word for value in SETTINGS for word in ("--set", value)]
            command = [sys.executable, "-m", "ntmp_cli", *WORDS, *settings, "--jobs", str(jobs)]
            subprocess.run([*command, "--out", str(next(fresh))], check=True, capture_output=True)

        seconds = take_turns(lambda: sweep(2), lambda: sweep(1), rounds=1)
        yield Ratio("sweep of 62 trainings, --jobs 2 against --jobs 1 on two cores", *seconds, allowed=1 / 1.7)
