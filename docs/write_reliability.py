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

Written by `python docs/write_reliability.py` from tests/torture/results/, which `make torture` and `make mutants` fill.
Every case is seeded; figures add up over runs (`python tests/torture/torture.py --help`). A small share of
the attacks is part of `make test`. What is trusted and what is refused is in [SECURITY.md](../SECURITY.md).
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
    lines = [f"## {heading}", "", about, "", "| | |", "|---|---|"]
    lines += [f"| cases | {cases:,} over {len(facts['by_target'])} targets |"]
    lines += [f"| seeds | {', '.join(f'{seed} ({number:,})' for seed, number in facts['done'].items())} |"]
    lines += [f"| ended as | {endings} |", f"| not as they should | {failed}: {listed(facts['failed'])} |"]
    lines += [f"| found in these runs and mended | {listed(facts['mended'])} |"]
    lines += [f"| left out | {'; '.join(facts['left_out'])} |"] if facts["left_out"] else []
    return "\n".join(lines) + "\n"


def listed(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind}: {number}" for kind, number in kinds.items()) or "none"


def mutants(facts: Mapping[str, Any], equivalent: Sequence[Mapping[str, str]]) -> str:
    """Survivors that change nothing that can be seen apart from those that show a missing test."""
    reasons = {(e["module"], e["text"], e["what"]): e["why"] for e in equivalent}
    unseen, others = [], []
    for survivor in facts["survivors"]:
        why = reasons.get((survivor["module"], survivor["text"], survivor["what"]))
        line = f"- `{survivor['module']}:{survivor['line']}`: `{survivor['text']}`: {survivor['what']}"
        (others if why is None else unseen).append(line if why is None else f"{line}. {why}")
    share = facts["noticed"] / max(1, facts["cases"] - len(unseen))
    seeds = ", ".join(f"{seed} ({number:,})" for seed, number in facts["done"].items())
    lines = [
        "## Mutants",
        "",
        "One operator, constant, condition or statement of a core module is changed at a time, at random; the tests of "
        "that module should fail.",
        "",
        "| | |",
        "|---|---|",
        f"| mutants | {facts['cases']:,} over {len(facts['by_module'])} modules |",
        f"| seeds | {seeds} |",
        f"| change nothing that can be seen | {len(unseen)} |",
        f"| noticed, of the others | {facts['noticed']:,} ({share:.1%}) |",
        "",
        *(["Not noticed:", "", *others, ""] if others else []),
        *(["Change nothing that can be seen:", "", *unseen, ""] if unseen else []),
    ]
    return "\n".join(lines)


def removed_fixes(facts: Mapping[str, Any]) -> str:
    """Fixes that were taken out, with how their tests took it."""
    fixes: Mapping[str, Mapping[str, Any]] = facts["fixes"]
    rows = [
        f"| {about} | `{fix['test'].partition('::')[2]}` in {fix['test'].partition('::')[0]} | {fix['outcome']} |"
        for about, fix in sorted(fixes.items(), key=lambda item: item[1]["point"])
    ]
    lines = [
        "## Tests without their fix",
        "",
        "Each fix was taken out of a copy of the package by `python tests/torture/removed_fixes.py`.",
        "",
        "| fix | test | the test |",
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
    file = RESULTS / "mutants.json"
    equivalent = json.loads((RESULTS.parent / "equivalent_mutants.json").read_text())
    parts.append(mutants(json.loads(file.read_text()), equivalent) if file.exists() else "## Mutants\n\nNot run.\n")
    file = RESULTS / "removed-fixes.json"
    parts += [removed_fixes(json.loads(file.read_text()))] if file.exists() else []
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
