"""Instance classifiers from counts: n-tuples with m positives plus an unlabeled pool."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from ntmp_cli.classifier import NTMPClassifier
    from ntmp_cli.python.model_selection import TupleKFold, count_likelihood_score
    from ntmp_cli.python.tuple_rows import count_labels

__all__ = ["NTMPClassifier", "TupleKFold", "__version__", "count_labels", "count_likelihood_score"]

# Modules of the names that are imported on first use, because they need scikit-learn.
_LATE = {
    "NTMPClassifier": "ntmp_cli.classifier",
    "TupleKFold": "ntmp_cli.python.model_selection",
    "count_likelihood_score": "ntmp_cli.python.model_selection",
    "count_labels": "ntmp_cli.python.tuple_rows",
}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # imported late, because it is slow

    try:
        return version("ntmp")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        globals()[name] = _version()
        return globals()[name]
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
