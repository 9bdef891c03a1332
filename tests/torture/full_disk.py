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

from forks import Clock, command, start, workplace
from results import Part
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


def attack(corpus: Path, most: int, seed: int, names: list[str] | None = None) -> Part:
    """At most so many writes of every stage, the first, the last and others between; all where there are fewer."""
    part, clock, rng = Part("full-disk", seed), Clock(), random.Random(f"disk {seed}")
    with workplace() as folder:
        for stage in [BY_NAME[name] for name in names] if names else STAGES:
            old = folder / "old"
            old.mkdir()
            code, err, writes = _run(stage, corpus, old, 0)
            if code or not writes:
                raise RuntimeError(f"{stage.name}: {writes} writes, {err}")
            numbers = list(range(1, writes + 1))
            if writes > most:
                numbers = sorted({1, writes, *rng.sample(numbers[1:-1], most - 2)})
                part.left_out.append(f"{stage.name}: {writes - len(numbers)} of {writes} writes")
            for k in numbers:
                _fill(part, stage, corpus, folder / "at", old if k % 2 else None, k)
            shutil.rmtree(old)
    part.seconds = clock.seconds
    return part


def _fill(part: Part, stage: Stage, corpus: Path, at: Path, old: Path | None, k: int) -> None:
    if old is None:
        at.mkdir()
    else:
        shutil.copytree(old, at)
    before = contents(at)
    code, err, _ = _run(stage, corpus, at, k)
    # A training that could not be published keeps its state: --resume goes on from there.
    shutil.rmtree(at / f".{stage.output}.checkpoint", ignore_errors=True)
    part.count(stage.name, f"exit {code}")
    facts = {"stage": stage.name, "write": k, "code": code, "error": err}
    if code == 0:
        # The disk filled up after the output was complete.
        if any(name.startswith(".") for name in contents(at)):
            part.fail("leftovers", left=sorted(contents(at)), **facts)
    elif code != 3 or "Traceback" in err or REASON not in err:
        part.fail("another end", **facts)
    elif contents(at) != before or (old is None and any(at.iterdir())):
        part.fail("not as before", left=sorted(contents(at)), **facts)
    shutil.rmtree(at)
