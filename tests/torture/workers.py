"""Workers of a sweep that are killed while they train: every cell is trained once, with the bytes of a quiet sweep."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from functools import cache
from pathlib import Path

from forks import Clock, Process, command, start
from results import Case, Run
from stages import identity

SETTINGS = {
    "make_tuples.dataset": "digits",
    "make_tuples.num_tuples": 60,
    "make_tuples.unlabeled_size": 100,
    "train.epochs": 40,
    "train.model": "linear",
    "train.lr": 0.01,
}
SWEEP = ("sweep", "prior", "--prior", 0.5, "--seed", 0, "--seed", 1, "--offset", 0, "--offset", 0.1, "--jobs", 2)
SWEEP += tuple(word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}"))
# In the command line of the process that trains. Ray names idle workers and agents alike;
# a node dies with its agents.
MARKS = {"local": b"ntmp_cli.sweeps.worker", "ray": b"ray::"}
OTHERS = b"Agent", b"IDLE"


def attack(folder: Path, seed: int, engine: str) -> Run:
    """Sweeps in each of which one worker is killed at a random moment."""
    words = (*SWEEP, "--engine", engine)

    @cache
    def undisturbed() -> tuple[dict[str, str | None], float]:
        clock = Clock()
        result = start(command(*words, "--out", folder / "quiet"), limit_memory=False).wait(600)
        if result.code:
            raise RuntimeError(result.err)
        return _bytes_of(folder / "quiet"), clock.seconds

    def run(number: int) -> Case:
        rng, cut = random.Random(f"workers {seed} {number}"), folder / "cut"
        expected, seconds = undisturbed()
        process = start(command(*words, "--out", cut), limit_memory=False)
        killed = _kill_worker(process, rng.uniform(0, 0.9 * seconds), MARKS[engine])
        ended = process.wait(600)
        case = Case(engine, "killed" if killed else "no worker at that moment")
        if ended.code:
            case.fail("the sweep failed", error=ended.err)
        elif (left := _bytes_of(cut)) != expected:
            case.fail("another result", left=sorted(left))
        shutil.rmtree(cut, ignore_errors=True)
        return case

    return run


def _kill_worker(sweep: Process, after: float, mark: bytes) -> bool:
    """Kill a random process below the sweep that carries the mark, once one is there."""
    sweep.ended_within(after)
    while not sweep.ended_within(0):
        for pid in _below(sweep.pid):
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes()
                if mark in name and not any(other in name for other in OTHERS):
                    os.kill(pid, signal.SIGKILL)
                    return True
            except (OSError, ProcessLookupError):
                continue
        time.sleep(0.05)
    return False


def _below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        found += [descendant for child in children for descendant in (child, *_below(child))]
    return found


def _bytes_of(folder: Path) -> dict[str, str | None]:
    """Every artefact of a sweep by the hash of its manifest."""
    return {str(path.parent.relative_to(folder)): identity(path.parent) for path in folder.rglob("manifest.json")}
