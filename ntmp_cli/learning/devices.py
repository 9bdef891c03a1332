"""The device that a network runs on."""

from __future__ import annotations

import torch

from ntmp_cli.errors import UsageError
from ntmp_cli.ranks import local_rank


def choose_device(name: str) -> torch.device:
    """`auto` takes an accelerator where there is one; every process takes the GPU of its local rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device("cuda", local_rank()) if name == "cuda" else torch.device(name)
        float(torch.zeros(1, device=device))
    # A wrong name is a RuntimeError; a torch built without this device raises any of the three.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"device {name}: not usable here ({reason})", hint="Use the device auto or cpu.") from None
    return device
