"""What tests of commands with several processes share: --jobs and --engine of import-tuples and predict."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """All files but the records of what is done, which hold when the inputs were written."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.parent.name != "done"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "ntmp_cli", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def wait_for(done: Callable[[], bool], command: subprocess.Popen[str]) -> None:
    while not done():
        assert command.poll() is None, command.communicate()
        time.sleep(0.1)
