"""torchvision, importable even where its C++ operators cannot be loaded.

A torchvision wheel whose C++ library was built for another torch (typically CUDA beside a CPU torch)
fails on import, because it describes two operators that its library did not bring. Data sets,
transforms and models need none of them, so declaring their signatures is enough.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

from ntmp_cli.errors import NtmpError

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")

# torch forgets the declarations when the object that made them is collected.
_declarations: list[Any] = []


def torchvision_module() -> ModuleType:
    """The imported torchvision package, with placeholders for operators that it lacks."""
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    spec = importlib.util.find_spec("torchvision")
    if spec is None:
        raise NtmpError("torchvision is not installed", hint="Install it with `pip install torchvision`.")
    _declare_missing(list(spec.submodule_search_locations or ()))
    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError, AttributeError) as error:
        import torch

        raise NtmpError(
            f"torchvision does not work beside torch {torch.__version__}: {error}",
            hint="Reinstall both from the same index, so that their versions fit.",
        ) from error


def _declare_missing(package: list[str]) -> None:
    """Declare the operators that neither torch nor torchvision's library knows."""
    torch: Any = importlib.import_module("torch")  # Any: torch does not type its operator interface
    _load_own_library(torch, package)
    missing = [name for name in _OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if missing:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            library.define(name + _SIGNATURE)
        _declarations.append(library)


def _load_own_library(torch: Any, package: list[str]) -> None:
    """Let torchvision's library go first: an operator that is declared twice is an error."""
    spec = importlib.machinery.PathFinder.find_spec("_C", package)
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(spec.origin)
    except (OSError, ImportError):
        return  # the very case that the placeholders are for
