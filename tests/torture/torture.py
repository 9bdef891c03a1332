"""The fault harness: `make torture`. Attacks every reader and every stage, and counts what should never happen.

    python tests/torture/torture.py                                the small run
    python tests/torture/torture.py --inputs 10000 --kills 1000 --writes 300 --worker-kills 20
    python tests/torture/torture.py --only inputs --inputs 500 --seed 7 --seconds 600

Figures go to tests/torture/results/ and add up: a run goes on where the last one of its seed stopped, and carries out
as many more cases as it is asked for. `--repeat-failed` repeats those that ended as none may, after a fix.
`python docs/write_reliability.py` makes docs/reliability.md of the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import full_disk  # noqa: E402
from forks import load_everything, workplace  # noqa: E402
from results import RESULTS, Part, Run  # noqa: E402

SMALL_STAGES = ("make-tuples", "train", "evaluate", "predict csv")
PARTS = ("inputs", "kills", "full-disk", "writers", "workers-local", "workers-ray")


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARTS, action="append", help="Repeat for several; default all.")
    parser.add_argument("--inputs", type=int, default=500, help="Mutated inputs.")
    parser.add_argument("--kills", type=int, default=100, help="Kills of stages and of `ntmp run`.")
    parser.add_argument("--writes", type=int, default=10, help="Failing writes per stage, at most.")
    parser.add_argument("--rounds", type=int, default=1, help="Rounds of eight writers, per stage and policy.")
    parser.add_argument("--worker-kills", type=int, default=2, help="Killed workers of sweeps, per engine.")
    parser.add_argument("--small", action="store_true", help="Fewer kinds of inputs and stages, as in `make test`.")
    parser.add_argument("--seconds", type=float, default=math.inf, help="Start no case after so many seconds.")
    parser.add_argument("--repeat-failed", action="store_true", help="Only the cases that failed before.")
    parser.add_argument("--corpus", type=Path, help="Folder that keeps the good inputs for later runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def attack(part: Part, corpus: Path, folder: Path, chosen: argparse.Namespace) -> None:
    """Go on with a part, or repeat what failed in it."""
    import inputs
    import kills
    import workers
    import writers

    stages = list(SMALL_STAGES) if chosen.small else None
    writing = list(SMALL_STAGES[:2]) if chosen.small else None
    disks = full_disk.Disks(corpus, folder, stages)

    @cache
    def run_of_seed(seed: int) -> Run:
        if part.name == "inputs":
            return inputs.attack(corpus, seed, complete=not chosen.small)
        if part.name == "kills":
            return kills.attack(corpus, folder, seed, stages)
        if part.name == "full-disk":
            return disks.run
        if part.name == "writers":
            return writers.attack(corpus, folder, writing)
        return workers.attack(folder, seed, part.name.removeprefix("workers-"))

    cases = {
        "inputs": chosen.inputs,
        "kills": chosen.kills,
        "full-disk": chosen.writes * len(disks.stages),
        "writers": chosen.rounds * len(writers.rounds(writing)),
    }.get(part.name, chosen.worker_kills)
    if chosen.repeat_failed:
        part.repeat_failed(run_of_seed, chosen.results)
    else:
        until = time.monotonic() + chosen.seconds
        part.go_on(run_of_seed(chosen.seed), chosen.seed, cases, chosen.results, until)
    if part.name == "full-disk":
        part.left_out = disks.left_out(part.done.get(str(chosen.seed), 0))
        part.write(chosen.results)


def main() -> int:
    chosen = settings()
    names = chosen.only or PARTS
    if "full-disk" in names and not full_disk.preloaded():
        if full_disk.compiler() is None:
            names = [name for name in names if name != "full-disk"]
            print("full-disk needs a C compiler: left out")  # noqa: T201
        else:
            full_disk.restart_preloaded(sys.argv, Path(tempfile.mkdtemp(prefix="full_disk-")))
    load_everything()
    from corpus import kept

    failed = 0
    with workplace() as folder:
        corpus = kept(chosen.corpus or folder / "corpus", complete=not chosen.small)
        for name in names:
            part = Part.read(name, chosen.results)
            (folder / name).mkdir()
            attack(part, corpus, folder / name, chosen)
            failed += len(part.failures)
            print(f"{name}: {part.cases} cases in {part.seconds:.0f} s, {dict(part.failed) or 'no failure'}")  # noqa: T201
            for failure in part.failures:
                print(json.dumps(failure, indent=1))  # noqa: T201
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
