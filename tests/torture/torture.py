"""The fault harness: `make torture`. Attacks every reader and every stage, and counts what should never happen.

    python tests/torture/torture.py                                the small run
    python tests/torture/torture.py --inputs 10000 --kills 950 --pipeline-kills 50 --writes 100000 --worker-kills 20
    python tests/torture/torture.py --only inputs --inputs 500 --seed 7

Figures go to tests/torture/results/; `python docs/write_reliability.py` makes docs/reliability.md of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import full_disk  # noqa: E402
from forks import load_everything, workplace  # noqa: E402
from results import RESULTS, Part  # noqa: E402

SMALL_STAGES = ("make-tuples", "train", "evaluate", "predict csv")
PARTS = ("inputs", "kills", "full-disk", "writers", "workers-local", "workers-ray")


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARTS, action="append", help="Repeat for several; default all.")
    parser.add_argument("--inputs", type=int, default=500, help="Mutated inputs.")
    parser.add_argument("--kills", type=int, default=100, help="Kills of single stages.")
    parser.add_argument("--pipeline-kills", type=int, default=5, help="Kills of `ntmp run`.")
    parser.add_argument("--writes", type=int, default=10, help="Failing writes per stage, at most.")
    parser.add_argument("--rounds", type=int, default=1, help="Rounds of eight writers, per stage and policy.")
    parser.add_argument("--worker-kills", type=int, default=2, help="Killed workers of sweeps, per engine.")
    parser.add_argument("--small", action="store_true", help="Fewer kinds of inputs and stages, as in `make test`.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def attack(name: str, corpus: Path, chosen: argparse.Namespace) -> Part:
    import inputs
    import kills
    import workers
    import writers

    stages = list(SMALL_STAGES) if chosen.small else None
    if name == "inputs":
        return inputs.attack(corpus, chosen.inputs, chosen.seed, complete=not chosen.small)
    if name == "kills":
        return kills.attack(corpus, chosen.kills, chosen.seed, names=stages, pipelines=chosen.pipeline_kills)
    if name == "full-disk":
        return full_disk.attack(corpus, chosen.writes, chosen.seed, stages)
    if name == "writers":
        return writers.attack(corpus, chosen.rounds, chosen.seed, list(SMALL_STAGES[:2]) if chosen.small else None)
    return workers.attack(chosen.worker_kills, chosen.seed, name.removeprefix("workers-"))


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
    from corpus import build

    failed = 0
    with workplace() as folder:
        corpus = build(folder, complete=not chosen.small)
        for name in names:
            part = attack(name, corpus, chosen)
            part.write(chosen.results)
            failed += sum(part.failed.values())
            print(f"{name}: {part.cases} cases in {part.seconds:.0f} s, {dict(part.failed) or 'no failure'}")  # noqa: T201
            for failure in part.failures:
                print(json.dumps(failure, indent=1))  # noqa: T201
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
