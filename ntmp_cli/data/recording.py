"""How a simulation records the true counts of its tuples: as they are, as a range, or with noise."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Exact, Floats, NoiseLaw, law_text, parse_law
from ntmp_cli.counting.percentages import percent_range
from ntmp_cli.counting.recorded import Counts, records
from ntmp_cli.errors import UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Recording:
    """How a count is recorded: `exact`, `at-least-one`, `range:W` or `percent`, or with a law of noise."""

    kind: str = "exact"
    law: NoiseLaw = field(default_factory=Exact)

    @classmethod
    def of(cls, kind: str, law: str) -> Recording:
        noise = parse_law(law)
        if kind != "exact" and not isinstance(noise, Exact):
            raise UsageError(f"--record {kind} and --count-law {law} cannot be combined", hint="Pass one of them.")
        return cls(kind, noise)

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return self.kind if isinstance(self.law, Exact) else law_text(self.law)

    @property
    def plain(self) -> bool:
        """Whether counts are recorded unchanged."""
        return self.kind == "exact" and isinstance(self.law, Exact)

    def record(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Counts:
        """Records of these true counts."""
        if not isinstance(self.law, Exact):
            recorded = self.law.sample(counts, sizes, rng)
            return records(recorded, recorded, law_text(self.law))
        kind, _, width = self.kind.partition(":")
        if kind == "at-least-one":
            return records(np.minimum(counts, 1), np.where(counts == 0, 0, sizes))
        if kind == "percent":
            return records(*percent_range(np.rint(100 * counts / sizes), sizes, 0))
        if kind == "range":
            # A count has a random position in its range; otherwise the ends would reveal it.
            low = counts - rng.integers(0, int(width) + 1, len(counts))
            return records(np.maximum(low, 0), np.minimum(low + int(width), sizes))
        return counts

    def probabilities(self, n: int) -> Floats:
        """P(record | k), k = 0 … n: a row for every record of tuples of one length."""
        if not isinstance(self.law, Exact):
            return self.law.record_probabilities(n)
        k, (kind, _, width) = np.arange(n + 1), self.kind.partition(":")
        if kind == "at-least-one":
            return np.stack([k == 0, k > 0]).astype(np.float64)
        if kind == "percent":
            percent = np.rint(100 * k / n)
            return np.asarray(np.unique(percent)[:, None] == percent, dtype=np.float64)
        if kind == "range":
            low = np.arange(-int(width), n + 1)[:, None]
            return np.where((low <= k) & (k <= low + int(width)), 1 / (int(width) + 1), 0.0)
        return np.eye(n + 1)
