"""P(y=1 | scores, count) of rows that are read block by block, where the rows of a tuple may lie anywhere (Eq. 24)."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.counting.laws import NoiseLaw
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.data.user.count_cells import NONE, CountColumn
from ntmp_cli.data.user.grouping import RowCounts, counts_of_tuples, runs_of_tuples
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Rows, RowSource, tuple_codes
from ntmp_cli.data.user.table_files import as_text

log = logging.getLogger(__name__)

# Members of the tuples whose posteriors are computed at once.
POSTERIOR_ROWS = 2**15


class RowPosteriors:
    """Collects the tuple, the count and the log-odds of every row; gives the posteriors when all rows are read."""

    def __init__(self, source: RowSource, column: CountColumn, problems: Problems) -> None:
        self._source, self._column, self._problems = source, column, problems
        self._ids: list[Any] = []
        self._counts: list[NDArray[np.int32]] = []
        self._log_odds: list[NDArray[np.float64]] = []
        self._rows = 0
        self._has_fractions = False

    def add(self, rows: Rows, log_odds: NDArray[np.float64]) -> None:
        self._ids.append(as_text(rows.roles["tuple"]).dictionary_encode())
        law = rows.roles.get("law")
        self._has_fractions = self._has_fractions or pa.types.is_floating(rows.roles["count"].type)
        values, wrong = self._column.codes(as_text(rows.roles["count"]), None if law is None else as_text(law))
        for at, what in wrong.items():
            self._problems.add(self._source.place(self._rows + at), what)
        self._counts.append(values)
        self._log_odds.append(log_odds)
        self._rows += len(log_odds)

    def posteriors(self, law: NoiseLaw) -> NDArray[np.float64]:
        """One per row, NaN where a row has no tuple or its tuple no count. Log-odds are those at the tuples' rate.

        A shift of all log-odds leaves the posterior as it is if the count is exact, but not if it is a range or noisy.
        """
        self._problems.raise_if_any()
        if self._has_fractions:  # as the import reads them
            self._column.read_as_fractions()
        codes, names = tuple_codes(self._ids)
        counts = RowCounts(np.concatenate(self._counts), self._column)
        tuples = counts_of_tuples(codes, counts, names, self._source.place, self._problems)
        self._problems.raise_if_any()
        log_odds = np.concatenate(self._log_odds)
        posterior = np.full(len(log_odds), np.nan)
        for first, last in runs_of_tuples(tuples.offsets, POSTERIOR_ROWS):
            members = tuples.rows[tuples.offsets[first] : tuples.offsets[last]]
            observed = CountObservations(np.diff(tuples.offsets[first : last + 1]), tuples.counts[first:last], law)
            posterior[members] = count_posterior(log_odds[members], observed)
        if alone := int((codes == NONE).sum()) + len(tuples.uncounted):
            log.info("%s: %d rows have no tuple or no count, and so no posterior", self._source.where, alone)
        return posterior
