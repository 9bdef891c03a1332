"""All problems of a user's data, collected for one message."""

from __future__ import annotations

from ntmp_cli.errors import DataError

MOST_SHOWN = 20


class Problems:
    """One line per problem, with its place; the first twenty are shown, all are counted."""

    def __init__(self) -> None:
        self.total = 0
        self.rows_lost = False  # whether rows could not be read at all, so that tuples cannot be checked
        self.advice = ""
        self._shown: list[str] = []

    def copy(self) -> Problems:
        """A copy, for one of several attempts to read the data."""
        again = Problems()
        again.total, again.rows_lost, again._shown = self.total, self.rows_lost, [*self._shown]
        return again

    def add(self, where: str, what: str) -> None:
        self.total += 1
        if len(self._shown) < MOST_SHOWN:
            self._shown.append(f"{where}: {what}")

    @property
    def first(self) -> str | None:
        return self._shown[0] if self._shown else None

    def raise_if_any(self) -> None:
        if not self.total:
            return
        more = self.total - len(self._shown)
        lines = [*self._shown, *([f"and {more:,} more"] if more else [])]
        raise DataError(
            f"{self.total:,} problem{'s'[: self.total > 1]} in the data, nothing was written\n  " + "\n  ".join(lines),
            hint=" ".join(
                ["Rows are counted from 1, without the header. Correct them and try again.", self.advice]
            ).rstrip(),
        )
