"""Small artefacts, and ways to damage them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_artifacts import as_report

from ntmp_cli.artifacts import Artifact, IfExists, Plan, open_artifact, publishing

Put = Callable[..., Artifact]
Edit = Callable[[Path, Callable[[dict[str, Any]], object]], None]


def _plan(**settings: Any) -> Plan:
    lineage = {"kind": "run", "sha256": "0" * 64}
    return Plan("report", {"reference": None, "metrics": ["ap"], **settings}, None, (lineage,))


@pytest.fixture
def plan() -> Callable[..., Plan]:
    """A plan; keyword arguments change its settings."""
    return _plan


@pytest.fixture
def put() -> Put:
    """Publish a small report whose only file holds `content`."""

    def put(out: Path, content: bytes = b"one\n", *, if_exists: IfExists = "fail", **settings: Any) -> Artifact:
        with publishing(out, _plan(**settings), if_exists=if_exists) as staging:
            staging.add_bytes("deep/rows.txt", content, rows=1)
            as_report(staging)
        return open_artifact(out)

    return put


@pytest.fixture
def edit() -> Edit:
    """Rewrite the manifest of a directory after `change` was applied to it."""

    def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        manifest = path / "manifest.json"
        document = json.loads(manifest.read_bytes())
        change(document)
        manifest.write_text(json.dumps(document))

    return edit


@pytest.fixture
def rehash(edit: Edit) -> Callable[[Path], None]:
    """Fit the manifest to the changed files, as an attacker who changes both would."""

    def rehash(path: Path) -> None:
        def change(document: dict[str, Any]) -> None:
            for entry in document["files"]:
                content = (path / entry["path"]).read_bytes()
                entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

        edit(path, change)

    return rehash
