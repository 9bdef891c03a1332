"""The tests of one module: which of them run which line, and whether they fail with a changed module.

Every run of pytest is a fork of a process that has the libraries loaded, and nothing of this package.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from forks import Ended, start

# Without pytest's cache and random order; slow tests are left out.
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:random_order", "-p", "no:xdist", "-m", "not slow")
# Libraries are loaded before pytest starts.
OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")
AT_IMPORT = ""
# Pytest's codes of an internal error and of no test at all, and an error before it started.
NOT_TESTED = (3, 5, 70)


def copy_of_project(root: Path, folder: Path) -> Path:
    folder.mkdir()
    for part in ("ntmp_cli", "tests", "docs", "sample_configs"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(root / part, folder / part)
    return folder


@cache
def load_libraries() -> None:
    """What tests and package import, so that forks need not."""
    import coverage
    import h5py
    import hypothesis
    import pandas
    import pydantic
    import pytest
    import scipy.optimize
    import scipy.special
    import scipy.stats
    import sklearn.linear_model
    import sklearn.metrics
    import torch
    import typer

    assert coverage, (h5py, hypothesis, pandas, pydantic, pytest, scipy, sklearn, torch, typer)


def pytest_in(folder: Path, words: list[str], plugins: list[Any], seconds: float) -> Ended:
    """Run pytest on the package in a folder; the exit code of pytest."""
    load_libraries()

    def work() -> int:
        import pytest

        os.environ |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        sys.dont_write_bytecode = True
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        return int(pytest.main([*OPTIONS, f"--rootdir={folder}", *words], plugins))

    ended = start(work, limit_memory=False).wait(seconds)
    if ended.code in NOT_TESTED:
        raise RuntimeError(f"pytest {' '.join(words)}: {ended.code}\n{ended.out[-2000:]}{ended.err[-2000:]}")
    return ended


class Watch:
    """A plugin of pytest that notes which test runs which line of a module, and how long it takes."""

    def __init__(self, module: Path, into: Path) -> None:
        self._module, self._into = module, into
        self._seconds: dict[str, float] = {}

    def pytest_configure(self) -> None:
        import coverage

        self._coverage = coverage.Coverage(data_file=None, include=[str(self._module)], config_file=False)
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_unconfigure(self) -> None:
        self._coverage.stop()
        lines = self._coverage.get_data().contexts_by_lineno(str(self._module))
        self._into.write_text(json.dumps({"seconds": self._seconds, "lines": lines}))


@dataclass(frozen=True)
class ModuleTests:
    """Tests of a module with their seconds, and the tests that run each of its lines."""

    files: tuple[str, ...]
    seconds: dict[str, float]
    lines: dict[str, list[str]]

    @classmethod
    def found(cls, module: str, tests: str, folder: Path, maps: Path) -> ModuleTests:
        """The map of a module, from a file where it was made before of the same texts."""
        files = tuple(tests.split())
        texts = b"".join((folder / name).read_bytes() for name in (module, *files))
        file = maps / f"{hashlib.sha256(texts).hexdigest()}.json"
        if not file.exists():
            maps.mkdir(parents=True, exist_ok=True)
            ended = pytest_in(folder, list(files), [Watch(folder / module, file)], 900)
            if ended.code:
                file.unlink(missing_ok=True)
                raise SystemExit(f"{tests}: fails without any change\n{ended.out[-2000:]}{ended.err[-2000:]}")
        return cls(files, **json.loads(file.read_text()))

    def fail(self, line: int, folder: Path) -> bool:
        """Whether a test fails, or takes much longer than it did: first the tests that run a line, then all."""
        running = [test for test in self.lines.get(str(line), []) if test != AT_IMPORT]
        running.sort(key=lambda test: self.seconds[test])
        limit = 30 + 5 * sum(self.seconds.values())
        if running and pytest_in(folder, running, [], limit).code:
            return True
        return len(running) < len(self.seconds) and pytest_in(folder, list(self.files), [], limit).code != 0
