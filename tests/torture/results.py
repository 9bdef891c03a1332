"""What the harness counts, and the files that docs/write_reliability.py reads."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
MOST_KEPT = 20


@dataclass
class Part:
    """One kind of attack: how many cases, how they ended, and every case that ended as none may."""

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    by_target: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    """What was not run, and why."""

    def count(self, target: str, outcome: str) -> None:
        self.cases += 1
        self.outcomes[outcome] += 1
        self.by_target[target] = self.by_target.get(target, 0) + 1

    def fail(self, kind: str, **facts: Any) -> None:
        self.failed[kind] += 1
        if len(self.failures) < MOST_KEPT:
            self.failures.append({"kind": kind, **{name: str(value)[-1500:] for name, value in facts.items()}})

    def write(self, folder: Path = RESULTS) -> None:
        folder.mkdir(exist_ok=True)
        facts = {
            "name": self.name,
            "seed": self.seed,
            "cases": self.cases,
            "seconds": round(self.seconds, 1),
            "outcomes": dict(sorted(self.outcomes.items())),
            "by_target": dict(sorted(self.by_target.items())),
            "failed": dict(sorted(self.failed.items())),
            "left_out": self.left_out,
        }
        (folder / f"{self.name}.json").write_text(json.dumps(facts, indent=1) + "\n")
