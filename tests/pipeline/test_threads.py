"""Threads that wait for each other sleep, so that `ntmp` beside other busy processes does not waste their time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

# How long a thread spins, in GNU's library and in LLVM's. The policy alone is shown as passive where none is set.
COUNTS = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME")
LOADS_OPENMP = """
import sys
from ntmp_cli import app
sys.argv = ["ntmp", "--version"]
try:
    app.main()
except SystemExit:
    pass
import torch
torch.ones(2) @ torch.ones(2)
"""


def spins(**environment: str) -> bool:
    """Whether threads spin while they wait, as the OpenMP library says when the program has loaded it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", *COUNTS)}
    process = subprocess.run(
        [sys.executable, "-c", LOADS_OPENMP],
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    shown = re.search(rf"({'|'.join(COUNTS)})\s*=\s*'?(\w+)'?", process.stderr)
    if shown is None:
        pytest.skip("the OpenMP library of this torch does not show how long threads spin")
    return shown[2] not in ("0", "0ms", "0us")


def test_waiting_threads_sleep():
    assert not spins()


def test_a_policy_of_the_user_is_kept():
    assert spins(OMP_WAIT_POLICY="ACTIVE")
