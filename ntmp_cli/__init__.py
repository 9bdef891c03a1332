"""Instance classifiers from counts: n-tuples with m positives plus an unlabeled pool."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ntmp")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
