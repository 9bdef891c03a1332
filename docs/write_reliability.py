"""Write docs/reliability.md from the results of `make torture` and `make mutants` in tests/torture/results/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "torture" / "results"
TARGET = ROOT / "docs" / "reliability.md"

HEAD = """# Reliability

Written by `python docs/write_reliability.py` from tests/torture/results/, which `make torture` and `make mutants` fill.
Every case is seeded; a larger run is a matter of options (`python tests/torture/torture.py --help`). A small share
of the attacks is part of `make test`. What is trusted and what is refused is in [SECURITY.md](../SECURITY.md).
"""

ABOUT = {
    "inputs": (
        "Mutated inputs",
        "Manifests of every kind, payloads with fitting hashes, payloads alone, tables, arrays, images, data sets, "
        "configurations, `--set`, checkpoints: changed by their structure or by their bytes. Every command has 2 GB "
        "beyond its imports, and 60 seconds. It must end in 0 or in one message with exit code 2, 3 or 4; leave "
        "nothing half-written; write no score that is no number; and notice every change of a hashed file.",
    ),
    "kills": (
        "Kills",
        "SIGKILL at a random moment of a stage, over an old output every second time. What is left is the old output, "
        "the new one or nothing, whole; the same command again (trainings also with `--resume`) gives the bytes of an "
        "undisturbed run, and leaves nothing else.",
    ),
    "full-disk": (
        "Full disks",
        "From the k-th write of a stage on (file, folder, flush, truncation) the disk is full. The command ends with "
        "exit code 3, the old output is as it was, and nothing is left but the checkpoint of a training.",
    ),
    "writers": (
        "Concurrent writers",
        "Eight processes publish to one place at once, while another reads. With `--if-exists fail` one of them wins; "
        "with `skip` and `overwrite` all succeed; the reader sees nothing or a whole output; nothing is left.",
    ),
    "workers-local": (
        "Killed workers, local",
        "A worker process of a sweep is killed at a random moment. The sweep succeeds, with the bytes of a quiet one.",
    ),
    "workers-ray": (
        "Killed workers, Ray",
        "The same on a Ray cluster of this machine.",
    ),
}


def section(name: str, facts: Mapping[str, Any]) -> str:
    heading, about = ABOUT[name]
    cases, failed = facts["cases"], sum(facts["failed"].values())
    endings = ", ".join(f"{outcome}: {number:,}" for outcome, number in facts["outcomes"].items())
    problems = ", ".join(f"{kind}: {number}" for kind, number in facts["failed"].items()) or "none"
    lines = [f"## {heading}", "", about, "", "| | |", "|---|---|"]
    lines += [f"| cases | {cases:,} over {len(facts['by_target'])} targets |", f"| seed | {facts['seed']} |"]
    lines += [f"| ended as | {endings} |", f"| not as they should | {failed}: {problems} |"]
    lines += [f"| left out | {'; '.join(facts['left_out'])} |"] if facts["left_out"] else []
    return "\n".join(lines) + "\n"


def mutants(facts: Mapping[str, Any]) -> str:
    share = facts["noticed"] / facts["cases"]
    lines = [
        "## Mutants",
        "",
        "One operator, constant, condition or statement of a core module is changed at a time, at random; the tests of "
        "that module should fail. Those that no test noticed are listed: some of them change nothing that can be seen.",
        "",
        f"Noticed: {facts['noticed']} of {facts['cases']} ({share:.1%}), seed {facts['seed']}.",
        "",
        *(f"- `{line.split(': ')[0]}`: {': '.join(line.split(': ')[1:])}" for line in facts["survivors"]),
    ]
    return "\n".join(lines) + "\n"


def render() -> str:
    parts = [HEAD]
    for name in ABOUT:
        file = RESULTS / f"{name}.json"
        parts.append(
            section(name, json.loads(file.read_text())) if file.exists() else f"## {ABOUT[name][0]}\n\nNot run.\n"
        )
    file = RESULTS / "mutants.json"
    parts.append(mutants(json.loads(file.read_text())) if file.exists() else "## Mutants\n\nNot run.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
