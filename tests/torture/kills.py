"""SIGKILL at random moments: what is left is whole; the same command again gives the same bytes and nothing else."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from forks import Clock, command, ended, start, workplace
from results import Part
from stages import BY_NAME, STAGES, Stage, identity

SINGLE = [stage.name for stage in STAGES]


def attack(corpus: Path, kills: int, seed: int, *, names: list[str] | None = None, pipelines: int = 0) -> Part:
    """So many kills over single stages in turn, and so many over `ntmp run`."""
    part, clock, rng = Part("kills", seed), Clock(), random.Random(f"kills {seed}")
    chosen = [BY_NAME[name] for name in names or SINGLE]
    with workplace() as folder:
        durations, new, old = {}, {}, {}
        for stage in chosen:
            for which, kept in ((0, new), (1, old)):
                place = folder / f"{stage.name}-{which}"
                place.mkdir()
                began = Clock()
                result = ended(command(*stage.command(corpus, which, place)))
                durations[stage.name] = began.seconds
                if result.code:
                    raise RuntimeError(result.err)
                kept[stage.name] = identity(place / stage.output)
        for number in range(kills):
            stage = chosen[number % len(chosen)]
            over_old = number // len(chosen) % 2 == 1
            at = folder / "at"
            at.mkdir()
            if over_old:
                source = folder / f"{stage.name}-1" / stage.output
                (shutil.copytree if source.is_dir() else shutil.copy)(source, at / stage.output)
            moment = rng.uniform(0, 1.1 * durations[stage.name])
            _kill(part, stage, corpus, at, moment, (new[stage.name], old[stage.name] if over_old else None))
            shutil.rmtree(at)
        for _ in range(pipelines):
            _kill_pipeline(part, corpus, folder, rng)
    part.seconds = clock.seconds
    return part


def _kill(
    part: Part, stage: Stage, corpus: Path, at: Path, moment: float, expected: tuple[str | None, str | None]
) -> None:
    overwriting = (*stage.command(corpus, 0, at), "--if-exists", "overwrite")
    process = start(command(*overwriting))
    process.ended_within(moment)
    process.kill()
    result = process.wait()
    part.count(stage.name, "killed" if result.code < 0 else "ended before")
    try:
        left = identity(at / stage.output)
    except Exception as error:  # whatever a reader says of a half-published artefact
        part.fail("half published", stage=stage.name, error=error)
        return
    if left not in expected:
        part.fail("another output", stage=stage.name, left=left)
    resuming = ("--resume",) if stage.name == "train" and moment > 0.5 else ()
    again = ended(command(*overwriting, *resuming))
    if again.code:
        part.fail("no rerun", stage=stage.name, error=again.err)
    elif identity(at / stage.output) != expected[0]:
        part.fail("another result", stage=stage.name)
    if others := sorted(path.name for path in at.iterdir() if path.name != stage.output):
        part.fail("leftovers", stage=stage.name, left=others)


def _kill_pipeline(part: Part, corpus: Path, folder: Path, rng: random.Random) -> None:
    """`ntmp run`, killed again and again until it comes to its end."""
    words = ("run", corpus / "run.yaml", "--out")
    whole, cut = folder / "whole", folder / "cut"
    began = Clock()
    if not whole.exists() and ended(command(*words, whole)).code:
        raise RuntimeError("the pipeline fails undisturbed")
    if not hasattr(_kill_pipeline, "seconds"):
        _kill_pipeline.seconds = began.seconds  # type: ignore[attr-defined]
    process = start(command(*words, cut))
    process.ended_within(rng.uniform(0, _kill_pipeline.seconds))  # type: ignore[attr-defined]
    process.kill()
    part.count("run", "killed" if process.wait().code < 0 else "ended before")
    again = ended(command(*words, cut))
    if again.code:
        part.fail("no rerun", stage="run", error=again.err)
    elif _identities(whole) != _identities(cut):
        part.fail("another result", stage="run", left=_identities(cut).keys() ^ _identities(whole).keys())
    shutil.rmtree(cut)


def _identities(folder: Path) -> dict[str, str | None]:
    """Every artefact below a folder by its hash, and whatever is hidden there."""
    found = {str(file.parent.relative_to(folder)): identity(file.parent) for file in folder.rglob("manifest.json")}
    return found | {str(path.relative_to(folder)): None for path in folder.rglob(".*")}
