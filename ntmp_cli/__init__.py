"""Instance classifiers from counts: n-tuples with m positives plus an unlabeled pool."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntmp_cli.classifier import NTMPClassifier
    from ntmp_cli.python.model_selection import TupleKFold, count_likelihood_score
    from ntmp_cli.python.tuple_rows import count_labels

try:
    __version__ = version("ntmp")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["NTMPClassifier", "TupleKFold", "__version__", "count_labels", "count_likelihood_score"]

# Where the names are that are loaded when they are asked for: they need scikit-learn.
_LATE = {
    "NTMPClassifier": "ntmp_cli.classifier",
    "TupleKFold": "ntmp_cli.python.model_selection",
    "count_likelihood_score": "ntmp_cli.python.model_selection",
    "count_labels": "ntmp_cli.python.tuple_rows",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
