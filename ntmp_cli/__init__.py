"""Instance classifiers from counts: n-tuples with m positives plus an unlabeled pool."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntmp_cli.classifier import NTMPClassifier

try:
    __version__ = version("ntmp")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["NTMPClassifier", "__version__"]


def __getattr__(name: str) -> Any:
    """The classifier needs torch, so it is loaded when it is asked for."""
    if name == "NTMPClassifier":
        from ntmp_cli.classifier import NTMPClassifier

        return NTMPClassifier
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
