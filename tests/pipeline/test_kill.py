"""A killed stage leaves the old artefact, the new one, or none, whole in every case; a rerun cleans up.

SIGKILL comes at seeded random and at chosen accesses to the file system, which the process itself counts, so that
every step of publishing is met whatever the machine's speed.
"""

from __future__ import annotations

import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from ntmp_cli.artifacts import open_artifact

pytestmark = pytest.mark.slow  # processes are killed and run again

KILLED = -signal.SIGKILL
STAGES = ["make-tuples", "train"]
KILLS = 10  # at random accesses, per stage


@dataclass(frozen=True)
class Stage:
    """A command, what it should publish, what lay there before, and its accesses to files with and without that."""

    arguments: tuple[object, ...]
    new: str
    old: Path
    events_over_old: tuple[str, ...]
    events: tuple[str, ...]


def make_tuples(seed: int) -> tuple[object, ...]:
    options = ("--dataset", "digits", "--prior", 0.5, "--num-tuples", 60, "--unlabeled-size", 60, "--shard-size", 10)
    return "make-tuples", *options, "--seed", seed


def train(tuples: Path, seed: int) -> tuple[object, ...]:
    options = ("--prior", 0.5, "--trust", "prior", "--model", "linear", "--epochs", 3, "--batch-size", 60)
    options += ("--checkpoint-seconds", 0)
    return "train", "--tuples", tuples, *options, "--seed", seed


@pytest.fixture(scope="module", params=STAGES)
def stage(request, launcher, tuples, tmp_path_factory) -> Stage:
    folder = tmp_path_factory.mktemp(request.param)
    new, old = (make_tuples(seed) if request.param == "make-tuples" else train(tuples, seed) for seed in (0, 1))
    assert launcher.run(*old, "--out", folder / "old").code == 0
    assert launcher.run(*new, "--out", folder / "new").code == 0

    def events(out: Path) -> tuple[str, ...]:
        log = out.parent.with_suffix(".events")
        overwriting = (*new, "--if-exists", "overwrite", "--out", out)
        logged = launcher.run(*overwriting, at_file_event=0, watch=str(out.parent), log=str(log))
        assert logged.code == 0, logged.err
        return tuple(log.read_text().splitlines())

    shutil.copytree(folder / "old", folder / "over-old" / "out")
    (folder / "fresh").mkdir()
    counted = events(folder / "over-old" / "out"), events(folder / "fresh" / "out")
    return Stage(new, open_artifact(folder / "new").sha256, folder / "old", *counted)


def whole(out: Path) -> str | None:
    """The identity of the complete artefact at `out`; None where there is nothing at all."""
    if not out.exists():
        return None
    artifact = open_artifact(out)
    artifact.verify()
    return artifact.sha256


def check_and_rerun(stage: Stage, out: Path, launcher, *, over_old: bool, resume: bool = False) -> str | None:
    """What a kill has left is whole; the rerun publishes the new artefact and leaves nothing else."""
    left = whole(out)
    assert left in ({open_artifact(stage.old).sha256, stage.new} if over_old else {None, stage.new})
    extra = ("--resume",) if resume and stage.arguments[0] == "train" else ()
    again = launcher.run(*stage.arguments, *extra, "--if-exists", "overwrite", "--out", out)
    assert again.code == 0, again.err
    assert whole(out) == stage.new
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    return left


# Every second one is left to `make test-slow`.
@pytest.mark.parametrize("number", [pytest.param(n, marks=[pytest.mark.slow] * (n % 4 > 0)) for n in range(KILLS)])
def test_kill_at_a_random_access_to_the_file_system(number, stage, launcher, tmp_path):
    rng = random.Random(f"{stage.arguments[0]} {number}")
    out, over_old = tmp_path / "out", number % 2 == 1
    if over_old:
        shutil.copytree(stage.old, out)
    # One access in each of equal shares of the process's life.
    events = len(stage.events_over_old if over_old else stage.events)
    event = 1 + int((number + rng.random()) / KILLS * events)
    ended = launcher.run(
        *(*stage.arguments, "--if-exists", "overwrite", "--out", out), at_file_event=event, watch=str(tmp_path)
    )
    assert ended.code == KILLED
    check_and_rerun(stage, out, launcher, over_old=over_old, resume=number % 3 == 0)


def test_kill_around_the_exchange_of_old_and_new(stage, launcher, tmp_path):
    rng = random.Random(f"{stage.arguments[0]}")
    # Old and new are exchanged by renameat2, after the manifest and its flushing, before the old one is removed.
    exchange = 1 + stage.events_over_old.index("ctypes.dlsym")
    publishing = range(exchange - 5, exchange + 4)
    others = sorted(set(range(1, len(stage.events_over_old) + 1)) - set(publishing))
    hashes = set()
    for event in (*rng.sample(others, 2), *publishing):
        out = tmp_path / str(event) / "out"
        shutil.copytree(stage.old, out)
        ended = launcher.run(
            *(*stage.arguments, "--if-exists", "overwrite", "--out", out), at_file_event=event, watch=str(out.parent)
        )
        assert ended.code == KILLED
        hashes.add(check_and_rerun(stage, out, launcher, over_old=True))
    # Kills before and after the exchange were among them.
    assert hashes == {open_artifact(stage.old).sha256, stage.new}
