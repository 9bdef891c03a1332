"""Write docs/reliability.md from the results of `make torture` and `make mutants` in tests/torture/results/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "torture" / "results"
TARGET = ROOT / "docs" / "reliability.md"

HEAD = """# Reliability

This page lists what was tried to break `ntmp`, and what happened. `make torture` and `make mutants` run the cases and
write tests/torture/results/. `python docs/write_reliability.py` writes this page from there. Every case has a seed, and
the numbers add up over runs (`python tests/torture/torture.py --help`). `make test` runs a small share of the cases.
[SECURITY.md](../SECURITY.md) says which inputs are trusted and which are refused.
"""

ABOUT = {
    "inputs": (
        "Mutated inputs",
        "Inputs are changed by structure or byte by byte: manifests of every kind, files with updated hashes, files "
        "alone, tables, arrays, images, data sets, configurations, `--set` and checkpoints. Every command has 2 GB of "
        "memory beyond its imports, and 60 seconds. It must end with exit code 0, or with one message and exit code 2, "
        "3 or 4. It must leave no partial file, write only finite scores, and detect every change of a hashed file.",
    ),
    "kills": (
        "Kills",
        "A stage is killed by SIGKILL at a random moment. Every second time it would replace an old output. Afterwards "
        "the output is the complete old one, the complete new one, or absent. The same command again (trainings also "
        "with `--resume`) gives the same bytes as a run that was not killed, and leaves no other file.",
    ),
    "full-disk": (
        "Full disks",
        "The disk is full from the k-th write of a stage on (file, folder, flush, truncation). The command ends with "
        "exit code 3 and does not change the old output. It leaves no file except the checkpoint of a training.",
    ),
    "writers": (
        "Concurrent writers",
        "Eight processes write the same output at once, while another process reads it. With `--if-exists fail` "
        "exactly one succeeds; with `skip` and `overwrite` all succeed. The reader sees no output or a complete one. "
        "No temporary file is left.",
    ),
    "workers-local": (
        "Killed workers, local",
        "A worker process of a sweep is killed at a random moment. The sweep succeeds and gives the same bytes as a "
        "sweep that was not disturbed.",
    ),
    "workers-ray": (
        "Killed workers, Ray",
        "The same on a Ray cluster on this machine.",
    ),
}


def section(name: str, facts: Mapping[str, Any]) -> str:
    heading, about = ABOUT[name]
    cases, failed = facts["cases"], sum(facts["failed"].values())
    endings = ", ".join(f"{outcome}: {number:,}" for outcome, number in facts["outcomes"].items())
    lines = [f"## {heading}", "", about, "", "| | |", "|---|---|"]
    lines += [f"| cases | {cases:,} over {len(facts['by_target'])} targets |"]
    lines += [f"| seeds | {', '.join(f'{seed} ({number:,})' for seed, number in facts['done'].items())} |"]
    lines += [f"| ended as | {endings} |", f"| failed | {failed}: {listed(facts['failed'])} |"]
    lines += [f"| failed at first, fixed since | {listed(facts['mended'])} |"]
    lines += [f"| left out | {'; '.join(facts['left_out'])} |"] if facts["left_out"] else []
    return "\n".join(lines) + "\n"


def listed(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind}: {number}" for kind, number in kinds.items()) or "none"


MUTANTS = """## Mutants

One operator, constant, condition or statement of a core module is changed at random. The tests of that module should
then fail. Equivalent mutants do not change the result, so no test can fail.
"""
# Samples of mutants, and what their figures say of the tests.
SAMPLES = {
    "mutants": "Mutants of this sample that no test detected led to further tests; the figures are those after that:",
    "mutants-afterwards": "A sample that was drawn when these tests had been written, and to which none was fitted. "
    "Some of the mutants that were not detected then have tests now:",
}


def mutants(facts: Mapping[str, Any], about: str, equivalent: Sequence[Mapping[str, str]]) -> str:
    """Surviving mutants: equivalent ones, and those that show a missing test."""
    reasons = {(e["module"], e["text"], e["what"]): e["why"] for e in equivalent}
    unseen, others = [], []
    for survivor in facts["survivors"]:
        why = reasons.get((survivor["module"], survivor["text"], survivor["what"]))
        line = f"- `{survivor['module']}:{survivor['line']}`: `{survivor['text']}`: {survivor['what']}"
        (others if why is None else unseen).append(line if why is None else f"{line}. {why}")
    share = facts["noticed"] / max(1, facts["cases"] - len(unseen))
    seeds = ", ".join(f"{seed} ({number:,})" for seed, number in facts["done"].items())
    lines = [
        about,
        "",
        "| | |",
        "|---|---|",
        f"| mutants | {facts['cases']:,} over {len(facts['by_module'])} modules |",
        f"| seeds | {seeds} |",
        f"| equivalent mutants | {len(unseen)} |",
        f"| detected, of the others | {facts['noticed']:,} ({share:.1%}) |",
        "",
        *(["Not detected:", "", *others, ""] if others else []),
        *(["Equivalent mutants:", "", *unseen, ""] if unseen else []),
    ]
    return "\n".join(lines)


def removed_fixes(facts: Mapping[str, Any]) -> str:
    """Fixes that were removed, and whether their tests then fail."""
    fixes: Mapping[str, Mapping[str, Any]] = facts["fixes"]
    rows = [
        f"| {about} | `{fix['test'].partition('::')[2]}` in {fix['test'].partition('::')[0]} | {fix['outcome']} |"
        for about, fix in sorted(fixes.items(), key=lambda item: item[1]["point"])
    ]
    lines = [
        "## Tests without their fix",
        "",
        "`python tests/torture/removed_fixes.py` removes each fix from a copy of the package. The test of the fix must "
        "then fail.",
        "",
        "| fix | test | result |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def render() -> str:
    parts = [HEAD]
    for name in ABOUT:
        file = RESULTS / f"{name}.json"
        parts.append(
            section(name, json.loads(file.read_text())) if file.exists() else f"## {ABOUT[name][0]}\n\nNot run.\n"
        )
    parts.append(MUTANTS)
    equivalent = json.loads((RESULTS.parent / "equivalent_mutants.json").read_text())
    for name, about in SAMPLES.items():
        file = RESULTS / f"{name}.json"
        parts += [mutants(json.loads(file.read_text()), about, equivalent)] if file.exists() else []
    file = RESULTS / "removed-fixes.json"
    parts += [removed_fixes(json.loads(file.read_text()))] if file.exists() else []
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
