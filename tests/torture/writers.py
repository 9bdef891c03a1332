"""Eight processes that publish to one place at once, and a reader throughout: one whole output, nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from forks import Clock, command, start, workplace
from results import Part
from stages import BY_NAME, STAGES, Stage, identity

WRITERS = 8
POLICIES = ("fail", "skip", "overwrite")


def attack(corpus: Path, rounds: int, seed: int, names: list[str] | None = None) -> Part:
    """So many rounds of every stage with every policy."""
    part, clock = Part("writers", seed), Clock()
    with workplace() as folder:
        for stage in [BY_NAME[name] for name in names] if names else STAGES:
            for policy in POLICIES if stage.skips else ("fail", "overwrite"):
                for _ in range(rounds):
                    at = folder / "at"
                    at.mkdir()
                    _round(part, stage, corpus, at, policy)
                    shutil.rmtree(at)
    part.seconds = clock.seconds
    return part


def _round(part: Part, stage: Stage, corpus: Path, at: Path, policy: str) -> None:
    out, stop = at / stage.output, at.parent / "stop"
    words = (*stage.command(corpus, 0, at), "--if-exists", policy)

    def read() -> int:
        """Every look at the output finds nothing, or a whole one."""
        while not stop.exists():
            identity(out)
            time.sleep(0.002)
        return 0

    reader = start(read)
    results = [process.wait(300) for process in [start(command(*words)) for _ in range(WRITERS)]]
    stop.touch()
    seen = reader.wait(300)
    stop.unlink()
    codes = sorted(result.code for result in results)
    part.count(f"{stage.name} {policy}", "clean" if all(result.clean for result in results) else "unclean")
    facts = {"stage": stage.name, "policy": policy, "codes": codes}
    if policy == "fail":
        if codes.count(0) != 1 or not set(codes) <= {0, 2, 3}:
            part.fail("another number of winners", errors=[r.err for r in results if r.code], **facts)
    elif set(codes) != {0}:
        part.fail("a writer failed", errors=[r.err for r in results if r.code], **facts)
    if any(not result.clean for result in results):
        part.fail("unclean end", errors=[r.err for r in results if not r.clean], **facts)
    if seen.code:
        part.fail("a reader saw half an output", error=seen.err, **facts)
    try:
        identity(out)
    except Exception as error:  # whatever a reader says of a damaged artefact
        part.fail("damaged", error=error, **facts)
    if others := sorted(path.name for path in at.iterdir() if path.name != stage.output):
        part.fail("leftovers", left=others, **facts)
