"""P(y=1 | scores, count) of rows that are read block by block, where the rows of a tuple may lie anywhere (Eq. 24)."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.counting.laws import NoiseLaw
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.data.user.arrow_columns import filled, numbers_of
from ntmp_cli.data.user.count_cells import NONE, CountColumn
from ntmp_cli.data.user.grouping import RowCounts, counts_of_tuples, runs_of_tuples
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Rows, RowSource
from ntmp_cli.data.user.table_files import as_text

log = logging.getLogger(__name__)

# Members of the tuples whose posteriors are computed at once.
POSTERIOR_ROWS = 2**15
# What is held of every row. Small arrays for every block would lie between larger ones that are freed, and keep that
# memory from being used again: 1.2 kB per row.
ROW = np.dtype([("tuple", np.int32), ("count", np.int32), ("log_odds", np.float64)])
LEAST_ROWS = 2**16


class RowPosteriors:
    """Collects the tuple, the count and the log-odds of every row; gives the posteriors when all rows are read."""

    def __init__(self, source: RowSource, column: CountColumn, problems: Problems) -> None:
        self._source, self._column, self._problems = source, column, problems
        self._codes: dict[str, int] = {}
        self._rows = np.empty(0, ROW)
        self._number = 0
        self._has_fractions = False

    def add(self, rows: Rows, log_odds: NDArray[np.float64]) -> None:
        ids = as_text(rows.roles["tuple"]).dictionary_encode()
        own = [self._codes.setdefault(name, len(self._codes)) for name in ids.dictionary.to_pylist()]
        law = rows.roles.get("law")
        self._has_fractions = self._has_fractions or pa.types.is_floating(rows.roles["count"].type)
        values, wrong = self._column.codes(as_text(rows.roles["count"]), None if law is None else as_text(law))
        for at, what in wrong.items():
            self._problems.add(self._source.place(self._number + at), what)
        last = self._number + len(log_odds)
        if last > len(self._rows):
            more = max(last - len(self._rows), LEAST_ROWS, len(self._rows) // 2)
            self._rows = np.concatenate([self._rows, np.empty(more, ROW)])
        kept = self._rows[self._number : last]
        kept["tuple"] = np.array([*own, NONE])[numbers_of(filled(ids.indices, -1))]
        kept["count"], kept["log_odds"] = values, log_odds
        self._number = last

    def posteriors(self, law: NoiseLaw) -> NDArray[np.float64]:
        """One per row, NaN where a row has no tuple or its tuple no count. Log-odds are those at the tuples' rate.

        A shift of all log-odds leaves the posterior as it is if the count is exact, but not if it is a range or noisy.
        """
        self._problems.raise_if_any()
        if self._has_fractions:  # as the import reads them
            self._column.read_as_fractions()
        codes, counts, log_odds = (self._rows[: self._number][name] for name in ("tuple", "count", "log_odds"))
        recorded = RowCounts(counts, self._column)
        tuples = counts_of_tuples(codes, recorded, list(self._codes), self._source.place, self._problems)
        self._problems.raise_if_any()
        posterior = np.full(len(log_odds), np.nan)
        for first, last in runs_of_tuples(tuples.offsets, POSTERIOR_ROWS):
            members = tuples.rows[tuples.offsets[first] : tuples.offsets[last]]
            observed = CountObservations(np.diff(tuples.offsets[first : last + 1]), tuples.counts[first:last], law)
            posterior[members] = count_posterior(log_odds[members], observed)
        if alone := int((codes == NONE).sum()) + len(tuples.uncounted):
            log.info("%s: %d rows have no tuple or no count, and so no posterior", self._source.where, alone)
        return posterior
