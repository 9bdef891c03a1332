"""SIGKILL at random moments: what is left is whole; the same command again gives the same bytes and nothing else."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

from forks import Clock, command, ended, start
from results import Case, Run
from stages import BY_NAME, STAGES, Stage, identity

# Of so many kills one is of `ntmp run`.
PIPELINE_EVERY = 20


class Undisturbed(NamedTuple):
    """A stage that nobody kills: what it publishes with either seed, where, and how long it takes."""

    new: str | None
    old: str | None
    place_of_old: Path
    seconds: float


def attack(corpus: Path, folder: Path, seed: int, names: list[str] | None = None) -> Run:
    """Single stages in turn, over an old output every second time; one kill of 20 is of `ntmp run`."""
    chosen = [BY_NAME[name] for name in names] if names else STAGES

    @cache
    def undisturbed(stage: Stage) -> Undisturbed:
        found = []
        for which in (0, 1):
            place = folder / f"{stage.name}-{which}"
            place.mkdir()
            clock = Clock()
            result = ended(command(*stage.command(corpus, which, place)))
            if result.code:
                raise RuntimeError(result.err)
            found.append(identity(place / stage.output))
        return Undisturbed(found[0], found[1], place / stage.output, clock.seconds)

    @cache
    def whole_pipeline() -> tuple[Path, float]:
        clock = Clock()
        if ended(command("run", corpus / "run.yaml", "--out", folder / "whole")).code:
            raise RuntimeError("the pipeline fails undisturbed")
        return folder / "whole", clock.seconds

    def run(number: int) -> Case:
        rng = random.Random(f"kills {seed} {number}")
        if number % PIPELINE_EVERY == 4:
            whole, seconds = whole_pipeline()
            return _kill_pipeline(corpus, whole, folder / "cut", rng.uniform(0, seconds))
        stage = chosen[number % len(chosen)]
        expected = undisturbed(stage)
        at = folder / "at"
        at.mkdir()
        if over_old := number // len(chosen) % 2 == 1:
            copy = shutil.copytree if expected.place_of_old.is_dir() else shutil.copy
            copy(expected.place_of_old, at / stage.output)
        outputs = (expected.new, expected.old if over_old else None)
        case = _kill(stage, corpus, at, rng.uniform(0, 1.1 * expected.seconds), outputs)
        shutil.rmtree(at)
        return case

    return run


def _kill(stage: Stage, corpus: Path, at: Path, moment: float, expected: tuple[str | None, str | None]) -> Case:
    overwriting = (*stage.command(corpus, 0, at), "--if-exists", "overwrite")
    process = start(command(*overwriting))
    process.ended_within(moment)
    process.kill()
    result = process.wait()
    case = Case(stage.name, "killed" if result.code < 0 else "ended before")
    try:
        left = identity(at / stage.output)
    except Exception as error:  # whatever a reader says of a half-published artefact
        case.fail("half published", error=error)
        return case
    if left not in expected:
        case.fail("another output", left=left)
    resuming = ("--resume",) if stage.name == "train" and moment > 0.5 else ()
    again = ended(command(*overwriting, *resuming))
    if again.code:
        case.fail("no rerun", error=again.err)
    elif identity(at / stage.output) != expected[0]:
        case.fail("another result")
    if others := sorted(path.name for path in at.iterdir() if path.name != stage.output):
        case.fail("leftovers", left=others)
    return case


def _kill_pipeline(corpus: Path, whole: Path, cut: Path, moment: float) -> Case:
    """`ntmp run`, killed once; the same command goes on from what is left."""
    words = ("run", corpus / "run.yaml", "--out", cut)
    process = start(command(*words))
    process.ended_within(moment)
    process.kill()
    case = Case("run", "killed" if process.wait().code < 0 else "ended before")
    again = ended(command(*words))
    if again.code:
        case.fail("no rerun", error=again.err)
    elif _identities(whole) != _identities(cut):
        case.fail("another result", left=_identities(cut).keys() ^ _identities(whole).keys())
    shutil.rmtree(cut)
    return case


def _identities(folder: Path) -> dict[str, str | None]:
    """Every artefact below a folder by its hash, and whatever is hidden there."""
    found = {str(file.parent.relative_to(folder)): identity(file.parent) for file in folder.rglob("manifest.json")}
    return found | {str(path.relative_to(folder)): None for path in folder.rglob(".*")}
