"""Peak memory of make-tuples and of reading its shards, at one and at eight times the tuples.

The peak is read from /proc (Linux): getrusage's would include the parent's, from before the exec.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import Ratio

_MAKE = """
import sys
from pathlib import Path
from benchmarks.fake_data import images
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.stages.make_tuples import tuples_from_labelled
data = images("fake-mnist", 60_000, 10_000, (1, 28, 28))
config = MakeTuplesConfig(prior=0.5, num_tuples=int(sys.argv[2]))
tuples_from_labelled(config, [parse_spec("3:1")], data, Path(sys.argv[1]))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
_READ = """
import sys
from pathlib import Path
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.shards import read_tuple_shard, tuple_shard_names
tuples = open_artifact(Path(sys.argv[1]), "tuples")
total = sum(len(read_tuple_shard(tuples, name).counts) for name in tuple_shard_names(tuples, "train"))
assert total == int(sys.argv[2])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def ratios() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        sizes = {times: (Path(folder) / str(times), 20_000 * times) for times in (1, 8)}
        made = {times: _peak(_MAKE, *arguments) for times, arguments in sizes.items()}
        yield Ratio("peak memory of make-tuples, 8x the tuples", made[8], made[1], 1.1, "MiB")
        read = {times: _peak(_READ, *arguments) for times, arguments in sizes.items()}
        yield Ratio("peak memory of reading shards, 8x the tuples", read[8], read[1], 1.1, "MiB")


def _peak(script: str, out: Path, tuples: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", script, str(out), str(tuples)], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024
