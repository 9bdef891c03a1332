"""Files written by several processes: an engine, as of a sweep, runs one call per file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ntmp_cli.artifacts.partitioned import Partition, PartitionedOutput
from ntmp_cli.errors import ArtifactError, FailedCellsError, InterruptedRunError
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.plugins import plugin_files
from ntmp_cli.progress import long_step
from ntmp_cli.storage import Location, StorageUrl
from ntmp_cli.sweeps.calls import Call, CallOutcome
from ntmp_cli.sweeps.engine import Resources, engines

MOST_FAILURES = 5


@dataclass(frozen=True)
class Workers:
    """An engine and its resources."""

    engine: str
    resources: Resources


@dataclass(frozen=True)
class Words:
    """How messages name the work: "scoring 4 tables", "tables are scored"."""

    doing: str = "scoring"
    done: str = "scored"
    unit: str = "tables"


SCORING = Words()


def carry_out(
    waiting: Sequence[Partition],
    function: str,
    arguments: Callable[[Partition], dict[str, Any]],
    output: PartitionedOutput,
    workers: Workers,
    words: Words = SCORING,
) -> None:
    """Call `function` for each partition by the engine; a partition is done once its record is visible here."""
    threads, start = workers.resources.threads, engines.get(workers.engine)
    calls = [Call(one.name, function, arguments(one), None, threads, plugin_files()) for one in waiting]
    by_name = {one.name: one for one in waiting}
    failures: dict[str, CallOutcome] = {}
    done = 0
    with (
        stop_requested() as stopping,
        long_step(f"{words.doing} {len(waiting):,} {words.unit}", len(waiting), words.unit) as advance,
        closing(start(calls, workers.resources)) as outcomes,
    ):
        for outcome in outcomes:
            if stopping():
                raise InterruptedRunError(
                    f"interrupted; {done} of {len(waiting)} {words.unit} are {words.done}",
                    hint="Run the same command to continue.",
                )
            if outcome is None:
                continue
            advance(1)
            if outcome.error is None and not output.is_recorded(by_name[outcome.name]):
                unseen = f"its worker {words.done} it, but it is not here: OUT must be visible to all nodes"
                outcome = CallOutcome(outcome.name, unseen, ArtifactError.exit_code)
            if outcome.error is None:
                done += 1
            else:
                failures[outcome.name] = outcome
    if failures:
        failed = [(one.label, failures[one.name]) for one in waiting if one.name in failures]
        raise _failed(failed, len(waiting), output, words)


def _failed(
    failures: Sequence[tuple[str, CallOutcome]], total: int, output: PartitionedOutput, words: Words
) -> FailedCellsError:
    lines = [f"{label}: {outcome.error}" for label, outcome in failures[:MOST_FAILURES]]
    if len(failures) > MOST_FAILURES:
        lines.append(f"… and {len(failures) - MOST_FAILURES} more")
    what = f"{len(failures)} of {total} {words.unit} could not be {words.done}; {output.folder} holds the others"
    return FailedCellsError(
        f"{what}\n  " + "\n  ".join(lines),
        hint="The same command tries them again and keeps the others.",
        exit_code=failures[0][1].exit_code or 1,
    )


def place_text(place: Location) -> str:
    """The location for another process, with credentials; never written to disk."""
    return place.raw if isinstance(place, StorageUrl) else str(place.absolute())
