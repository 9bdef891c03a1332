"""make-tuples for data of MNIST's size against writing the same bytes with bare h5py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

from benchmarks.fake_data import images
from benchmarks.timing import Ratio, take_turns
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.stages.make_tuples import tuples_from_labelled


def ratios() -> Iterator[Ratio]:
    """Once as we do it, every file flushed to the disk by both, and once without flushing."""
    data = images("fake-mnist", 60_000, 10_000, (1, 28, 28))
    config = MakeTuplesConfig(prior=0.5)
    with tempfile.TemporaryDirectory() as folder:
        fresh = (Path(folder) / str(number) for number in count())

        def ours() -> None:
            tuples_from_labelled(config, [parse_spec("3:1")], data, next(fresh))

        out = Path(folder) / "payload"
        tuples_from_labelled(config, [parse_spec("3:1")], data, out)
        payload: list[dict[str, np.ndarray]] = []
        for entry in open_artifact(out).manifest.files:
            with h5py.File(out / entry.path) as file:
                payload.append({name: file[name][()] for name in file})

        def bare(*, flush: bool = True) -> None:
            bare_out = next(fresh)
            bare_out.mkdir()
            for number, arrays in enumerate(payload):
                path = bare_out / f"{number}.h5"
                with h5py.File(path, "w") as file:
                    for name, values in arrays.items():
                        file[name] = values
                if flush:
                    handle = os.open(path, os.O_RDONLY)
                    os.fsync(handle)
                    os.close(handle)

        what = "make-tuples, 60,000 instances of 784 bytes, against bare h5py"
        yield Ratio(f"{what}, both flushed to disk", *take_turns(ours, bare, 9), 1.5)
        with mock.patch("os.fsync"):
            unflushed = take_turns(ours, lambda: bare(flush=False), 9)
        yield Ratio(f"{what}, neither flushed", *unflushed, 1.5)
