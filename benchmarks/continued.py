"""Measurements that go on where they stopped: results in a JSON file beside their page, and a limit of time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class OutOfTimeError(Exception):
    """No time is left; what was measured is kept."""


class Measurements:
    """Results by key, written after each of them; a key that is known is not measured again."""

    def __init__(self, path: Path, minutes: float) -> None:
        self._path, self._end = path, time.monotonic() + 60 * minutes
        self.known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def seconds_left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise OutOfTimeError
        return left

    def of(self, key: str, measure: Callable[[], Any]) -> Any:
        """The result of this key; measured now if it is not known."""
        if key not in self.known:
            self.seconds_left()
            self.known[key] = measure()
            self._path.write_text(json.dumps(self.known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return self.known[key]

    def forget(self, prefix: str) -> None:
        """Measure again what begins like this."""
        self.known = {key: value for key, value in self.known.items() if not key.startswith(prefix)}
