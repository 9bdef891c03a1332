"""docs/tutorial.md from top to bottom, every line of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ntmp_cli.app import run

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"


@pytest.mark.slow
def test_every_line_of_the_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [kind for kind, _ in blocks].count("sh") == 2
    assert [kind for kind, _ in blocks].count("python") == 3
    names: dict[str, object] = {}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(TUTORIAL), "exec"), names)
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            assert program == "ntmp"
            assert run(words) == 0, line
    assert (tmp_path / "work" / "audit" / "tuples.csv").is_file()
    # The pool is of the same cases: p was .024 while the final fit scored it and fits of folds the tuples.
    assert json.loads((tmp_path / "work" / "audit" / "audit.json").read_text())["after_training"]["warnings"] == []
    assert (tmp_path / "scored.csv").is_file()
