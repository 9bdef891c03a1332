"""A disk that is full from the k-th write on, k = 1, 2, …: exit code 3, the old output untouched, nothing left.

Writes are counted and refused below libc's own functions, by a small library that is loaded with LD_PRELOAD.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from forks import command, start
from results import Case
from stages import BY_NAME, STAGES, Stage, contents

SOURCE = Path(__file__).with_name("full_disk.c")
REASON = "No space left on device"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def preloaded() -> bool:
    return "full_disk" in os.environ.get("LD_PRELOAD", "")


def restart_preloaded(arguments: list[str], folder: Path) -> None:
    """Replace this process by itself with the library; it stays in `folder`."""
    library = folder / "full_disk.so"
    subprocess.run([str(compiler()), "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, "LD_PRELOAD": str(library)})


def _run(stage: Stage, corpus: Path, at: Path, k: int) -> tuple[int, str, int]:
    """Exit code, message and number of writes of a stage on a disk that is full from write `k` on."""
    words = (*stage.command(corpus, 0, at), "--if-exists", "overwrite")

    def work() -> int:
        library = ctypes.CDLL(None)
        library.full_disk_watch(os.fsencode(at), ctypes.c_long(k))
        code = command(*words)()
        sys.stdout.write(f"\nwrites {library.full_disk_seen()}")
        return code

    result = start(work).wait()
    return result.code, result.err, int(result.out.rpartition("writes ")[2] or 0) if "writes " in result.out else 0


class Disks:
    """All stages, each on disks that are full from one of its writes on: the first, the last, then the others."""

    def __init__(self, corpus: Path, folder: Path, names: list[str] | None = None) -> None:
        self._corpus, self._folder = corpus, folder
        self.stages = [BY_NAME[name] for name in names] if names else STAGES
        self._known: dict[str, list[int]] = {}

    def writes(self, stage: Stage) -> list[int]:
        """The numbers of a stage's writes in the order in which they fail; its output is kept as an old one."""
        if stage.name not in self._known:
            old = self._old(stage)
            old.mkdir()
            code, err, writes = _run(stage, self._corpus, old, 0)
            if code or not writes:
                raise RuntimeError(f"{stage.name}: {writes} writes, {err}")
            between = list(range(2, writes))
            random.Random(f"disk {stage.name}").shuffle(between)
            self._known[stage.name] = [1, writes, *between]
        return self._known[stage.name]

    def run(self, number: int) -> Case:
        stage, turn = self.stages[number % len(self.stages)], number // len(self.stages)
        k = self.writes(stage)[turn % len(self.writes(stage))]
        return _fill(stage, self._corpus, self._folder / "at", self._old(stage) if k % 2 else None, k)

    def left_out(self, done: int) -> list[str]:
        """How many writes of every stage did not fail yet, after so many cases."""
        turns = {s.name: len(range(at, done, len(self.stages))) for at, s in enumerate(self.stages)}
        every = {s.name: len(self.writes(s)) for s in self.stages}
        return [f"{name}: {every[name] - n} of {every[name]} writes" for name, n in turns.items() if n < every[name]]

    def _old(self, stage: Stage) -> Path:
        return self._folder / f"old {stage.name}"


def _fill(stage: Stage, corpus: Path, at: Path, old: Path | None, k: int) -> Case:
    if old is None:
        at.mkdir()
    else:
        shutil.copytree(old, at)
    before = contents(at)
    code, err, _ = _run(stage, corpus, at, k)
    # A training that could not be published keeps its state: --resume goes on from there.
    shutil.rmtree(at / f".{stage.output}.checkpoint", ignore_errors=True)
    case = Case(stage.name, f"exit {code}")
    facts = {"write": k, "code": code, "error": err}
    if code == 0:
        # The disk filled up after the output was complete.
        if any(name.startswith(".") for name in contents(at)):
            case.fail("leftovers", left=sorted(contents(at)), **facts)
    elif code != 3 or "Traceback" in err or REASON not in err:
        case.fail("another end", **facts)
    elif contents(at) != before or (old is None and any(at.iterdir())):
        case.fail("not as before", left=sorted(contents(at)), **facts)
    shutil.rmtree(at)
    return case
