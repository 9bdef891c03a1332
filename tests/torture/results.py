"""What the harness counts, and the files that docs/write_reliability.py reads.

A part is continued: its file says how many cases of every seed are done. A case is known by seed and number, so that
one that ended as none may can be repeated.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
SECONDS_BETWEEN_SAVES = 10.0
# A mistake of the harness: no command was run.
NOT_PREPARED = "not prepared"


@dataclass
class Case:
    """One case: what was attacked, how it ended, and whatever may not happen."""

    target: str
    outcome: str
    problems: list[dict[str, str]] = field(default_factory=list)

    def fail(self, kind: str, **facts: Any) -> None:
        self.problems.append({"kind": kind, **{name: str(value)[-1500:] for name, value in facts.items()}})


# Carries out the case of a number.
Run = Callable[[int], Case]


@dataclass
class Part:
    """One kind of attack, over all its runs."""

    name: str
    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    by_target: Counter[str] = field(default_factory=Counter)
    done: dict[str, int] = field(default_factory=dict)
    """Numbers that are done, by seed."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    mended: Counter[str] = field(default_factory=Counter)
    """Failures that were found, and end as they should now."""
    left_out: list[str] = field(default_factory=list)
    """What was not run, and why."""

    @property
    def failed(self) -> Counter[str]:
        return Counter(failure["kind"] for failure in self.failures)

    @classmethod
    def read(cls, name: str, folder: Path) -> Part:
        """What earlier runs found."""
        file = folder / f"{name}.json"
        if not file.exists():
            return cls(name)
        facts = json.loads(file.read_text())
        del facts["failed"]
        counted = {key: Counter(facts.pop(key)) for key in ("outcomes", "by_target", "mended")}
        return cls(**facts, **counted)

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        counted = {key: dict(sorted(getattr(self, key).items())) for key in ("outcomes", "by_target", "mended")}
        facts = vars(self) | counted | {"seconds": round(self.seconds, 1), "failed": dict(sorted(self.failed.items()))}
        temporary = folder / f".{self.name}.json"
        temporary.write_text(json.dumps(facts, indent=1) + "\n")
        temporary.replace(folder / f"{self.name}.json")

    def go_on(self, run: Run, seed: int, more: int, folder: Path, until: float) -> None:
        """Carry out so many more cases of a seed, or fewer where a moment comes before."""
        began = saved = time.monotonic()
        done = self.done.get(str(seed), 0)
        for number in range(done, done + more):
            if (now := time.monotonic()) > until:
                break
            case = run(number)
            self.done[str(seed)] = number + 1
            self._add(case, seed, number)
            if case.problems or now - saved > SECONDS_BETWEEN_SAVES:
                self.seconds, began, saved = self.seconds + time.monotonic() - began, time.monotonic(), now
                self.write(folder)
        self.seconds += time.monotonic() - began
        self.write(folder)

    def _add(self, case: Case, seed: int, number: int) -> None:
        self.cases += 1
        self.outcomes[case.outcome] += 1
        self.by_target[case.target] += 1
        self.failures += [
            {"seed": seed, "number": number, "target": case.target, "outcome": case.outcome, **problem}
            for problem in case.problems
        ]

    def repeat_failed(self, run_of_seed: Callable[[int], Run], folder: Path) -> None:
        """Carry out again what failed; what ends as it should is mended."""
        for seed, number in sorted({(failure["seed"], failure["number"]) for failure in self.failures}):
            case = run_of_seed(seed)(number)
            if case.problems:
                continue
            mended = [f for f in self.failures if (f["seed"], f["number"]) == (seed, number)]
            self.mended += Counter(failure["kind"] for failure in mended if failure["kind"] != NOT_PREPARED)
            self.outcomes -= Counter([mended[0]["outcome"]])
            self.outcomes[case.outcome] += 1
            self.failures = [failure for failure in self.failures if failure not in mended]
            self.write(folder)
