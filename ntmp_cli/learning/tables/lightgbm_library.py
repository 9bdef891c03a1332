"""LightGBM without what it imports for its scikit-learn classes.

`import lightgbm` loads scikit-learn and pandas where they are installed: two seconds, of which trees boosted on the
count likelihood use nothing. So these are hidden while its core is loaded. The core loaded this way is kept here and
nowhere else: a later `import lightgbm` loads the whole package as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

# What lightgbm.compat and lightgbm.plotting try to import; they go on without it.
OPTIONAL = ("sklearn", "pandas", "matplotlib", "graphviz", "dask", "joblib", "psutil")


@cache
def lightgbm_library() -> ModuleType:
    """LightGBM; an ImportError or OSError if it cannot be loaded."""
    return _whole() if "sklearn" in sys.modules else _core()


def _whole() -> ModuleType:
    import lightgbm

    module: ModuleType = lightgbm
    return module


def _core() -> ModuleType:
    with _hidden(OPTIONAL):
        try:
            return _whole()
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "lightgbm"]:
                del sys.modules[name]


@contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Let imports of these packages fail as if they were not installed, unless they are loaded already."""
    hidden = [name for name in names if name not in sys.modules]
    # None in sys.modules is Python's own way to say that a module cannot be imported.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
