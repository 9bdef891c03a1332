"""Eight processes that publish to one place at once, and a reader throughout: one whole output, nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from forks import command, start
from results import Case, Run
from stages import BY_NAME, STAGES, Stage, identity

WRITERS = 8
POLICIES = ("fail", "skip", "overwrite")


def rounds(names: list[str] | None = None) -> list[tuple[Stage, str]]:
    """Every stage with every policy that it has."""
    stages = [BY_NAME[name] for name in names] if names else STAGES
    return [(stage, policy) for stage in stages for policy in POLICIES if stage.skips or policy != "skip"]


def attack(corpus: Path, folder: Path, names: list[str] | None = None) -> Run:
    """Every stage with every policy in turn."""
    chosen = rounds(names)

    def run(number: int) -> Case:
        at = folder / "at"
        at.mkdir()
        case = _round(*chosen[number % len(chosen)], corpus, at)
        shutil.rmtree(at)
        return case

    return run


def _round(stage: Stage, policy: str, corpus: Path, at: Path) -> Case:
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
    case = Case(f"{stage.name} {policy}", "clean" if all(result.clean for result in results) else "unclean")
    errors = [result.err for result in results if result.code]
    if policy == "fail":
        if codes.count(0) != 1 or not set(codes) <= {0, 2, 3}:
            case.fail("another number of winners", errors=errors, codes=codes)
    elif set(codes) != {0}:
        case.fail("a writer failed", errors=errors, codes=codes)
    if any(not result.clean for result in results):
        case.fail("unclean end", errors=errors, codes=codes)
    if seen.code:
        case.fail("a reader saw half an output", error=seen.err)
    try:
        identity(out)
    except Exception as error:  # whatever a reader says of a damaged artefact
        case.fail("damaged", error=error)
    if others := sorted(path.name for path in at.iterdir() if path.name != stage.output):
        case.fail("leftovers", left=others)
    return case
