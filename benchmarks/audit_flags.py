"""How often an audit flags exact counts, and how many of the wrong ones it finds; writes promises/audit_flags.json.

    python -m benchmarks.audit_flags                     # all data sets, seeds 100 to 119
    python -m benchmarks.audit_flags --only Mroz,Wells --seeds 100,101

The linear learner scores every tuple by a fit that did not see it, as `ntmp train --model linear` does. Of the first
ten seeds 10 % of the counts are then moved by one, and the same is repeated from the fit on. "Before" is the audit as
it was: a line through the scores, and no test of whether counts are wrong at all. Design choices were made on seeds
from 200 on. Two data sets of scikit-learn with scores that tell counts apart are added to the tables: elsewhere there
is little to find. A result file that exists is continued draw by draw, so that several processes can share the data
sets and `--merge` joins their files. How many moved counts are in the first tenth of the list was counted later:
`--again 3` measures the first three draws with moved counts again where that is missing.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import argparse
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, false_discovery_control

from benchmarks.table_data import SOURCES, Ints, Task, task
from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.evaluation.audit_calibration import audit_folds
from ntmp_cli.evaluation.count_audit import CountAudit, audit_counts
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import fit_table
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.randomness import stream

TARGET = Path(__file__).parent / "promises" / "audit_flags.json"
SEEDS = range(100, 120)
MOVED = 0.1
SEEDS_MOVED = 10
FLAG_ABOVE, FDR, CONFIDENCE = 0.5, 0.1, 0.95
TUPLE, TRAINING_SHARE = 4, 0.7
# The share of the list of counts, most suspicious first, in which moved ones are counted.
FIRST = 0.1


def breast_cancer(seed: int) -> Task:
    """Random groups of four tumours; malignant ones are counted."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return _grouped(data.data, 1 - data.target, seed)


def digits(seed: int) -> Task:
    """Random groups of four images; digits from 5 on are counted."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return _grouped(data.data, (data.target >= 5).astype(int), seed)


STRONG: dict[str, Callable[[int], Task]] = {"breast_cancer": breast_cancer, "digits": digits}


def _grouped(x: NDArray[np.float64], y: Ints, seed: int) -> Task:
    order = np.random.default_rng([seed, 7]).permutation(len(x))
    tuples = int(TRAINING_SHARE * len(x)) // TUPLE
    inside, outside = np.split(order, [tuples * TUPLE])
    return Task(x[inside], y[inside], np.full(tuples, TUPLE), x[outside], y[outside])


@dataclass(frozen=True)
class Flags:
    """Of one audit: how many exact and how many moved counts there are and are flagged, and by p-values."""

    exact: int
    exact_flagged: int
    exact_by_p: int
    moved: int
    moved_flagged: int
    moved_first: int | None = None
    """Moved counts in the first tenth of the list; None where it was not counted."""
    first: int | None = None
    """How many counts that tenth has."""


def measure(name: str, seed: int, moved: float) -> dict[str, Flags]:
    """One draw of a table, audited as it was and as it is."""
    drawn = STRONG[name](seed) if name in STRONG else task(name, seed)
    recorded = OffByOne(moved).sample(drawn.counts, drawn.sizes, np.random.default_rng([seed, 9]))
    data = TableData(drawn.x, CountObservations(drawn.sizes, recorded))
    fitted = fit_table(data, "linear", stream(seed, "tables"))
    scored = ScoredTuples(fitted.scores, drawn.sizes, recorded, np.empty(0))
    is_moved = recorded != drawn.counts
    audits = {"before": _before(scored), "after": audit_folds([scored], fitted.spread, CONFIDENCE)}
    return {when: _flags(audit, is_moved) for when, audit in audits.items()}


def _before(scored: ScoredTuples) -> CountAudit:
    """A line and a noise rate in turn; every count that is then wrong with a probability above one half is flagged."""
    noise = 0.05
    for _ in range(8):
        line = recalibrate(scored.scores, replace(scored, noise=noise).observed)
        z = line.slope * scored.scores + line.intercept
        audit = audit_counts(
            z, scored.sizes, scored.counts, usable_rate(scored.rate, int(scored.sizes.sum())), CONFIDENCE
        )
        settled, noise = abs(audit.noise - noise) < 5e-4, audit.noise
        if settled:
            break
    return audit


def _flags(audit: CountAudit, is_moved: NDArray[np.bool_]) -> Flags:
    flagged = audit.wrong > FLAG_ABOVE
    by_p = false_discovery_control(audit.p_values) <= FDR
    exact = ~is_moved
    first = np.lexsort((-audit.ratio, -audit.wrong))[: round(FIRST * len(is_moved))]
    return Flags(
        *(int(part.sum()) for part in (exact, flagged[exact], by_p[exact], is_moved, flagged[is_moved])),
        int(is_moved[first].sum()),
        len(first),
    )


def share(flagged: int, total: int) -> dict[str, float | int | list[float] | None]:
    """A share with its exact binomial interval."""
    if total == 0:
        return {"of": 0, "flagged": 0, "share": None, "interval": None}
    limits = binomtest(flagged, total).proportion_ci(0.95)
    return {"of": total, "flagged": flagged, "share": flagged / total, "interval": [limits.low, limits.high]}


def _first_tenth(audits: Iterable[Flags]) -> dict[str, float | int | list[float] | None]:
    """Share of the first tenth of the list that is moved, of audits in which that was counted."""
    counted = [(flags.moved_first, flags.first) for flags in audits if flags.first is not None]
    return share(sum(moved or 0 for moved, _ in counted), sum(first for _, first in counted))


Draw = dict[str, dict[str, Flags]]
"""By kind of counts (exact, moved) and by audit (before, after)."""


def summary(draws: Iterable[Draw]) -> dict[str, object]:
    """Shares over draws, before and after; draws of exact counts are judged by whether anything was flagged at all."""
    rows = list(draws)
    result: dict[str, object] = {}
    for when in ("before", "after"):
        exact, moved = ([row[kind][when] for row in rows if kind in row] for kind in ("exact", "moved"))
        found = sum(flags.moved_flagged for flags in moved)
        result[when] = {
            "exact_counts_flagged": share(sum(f.exact_flagged for f in exact), sum(f.exact for f in exact)),
            "exact_counts_flagged_by_p": share(sum(f.exact_by_p for f in exact), sum(f.exact for f in exact)),
            "audits_of_exact_counts_that_flag_any": share(sum(f.exact_flagged > 0 for f in exact), len(exact)),
            "moved_counts_flagged": share(found, sum(f.moved for f in moved)),
            "flags_that_are_right": share(found, found + sum(f.exact_flagged for f in moved)),
            "moved_counts_in_the_first_tenth": _first_tenth(moved),
        }
    return result


def document(draws: dict[str, list[Draw]]) -> dict[str, object]:
    """Every share and every draw."""
    tables, strong = ([draw for name in draws if (name in STRONG) == kind for draw in draws[name]] for kind in (0, 1))
    return {
        "flag_above": FLAG_ABOVE,
        "fdr": FDR,
        "confidence": CONFIDENCE,
        "moved": MOVED,
        "tables": summary(tables),
        "strong_scores": summary(strong),
        "by_data_set": {name: summary(rows) for name, rows in draws.items()},
        "draws": {
            name: [{k: {w: asdict(f) for w, f in by.items()} for k, by in row.items()} for row in rows]
            for name, rows in draws.items()
        },
    }


def read(file: Path) -> dict[str, list[Draw]]:
    """The draws of a result file; none where there is none."""
    if not file.exists():
        return {}
    return {
        name: [{k: {w: Flags(**f) for w, f in by.items()} for k, by in row.items()} for row in rows]
        for name, rows in json.loads(file.read_text())["draws"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join((*SOURCES, *STRONG)))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument(
        "--again", type=int, default=0, help="Draws whose moved counts are counted again with the list."
    )
    parser.add_argument("--merge", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    draws = {name: rows for file in (*given.merge, given.out) for name, rows in read(file).items()}
    seeds = [int(seed) for seed in given.seeds.split(",")]
    for name in [] if given.merge else given.only.split(","):
        rows = draws.setdefault(name, [])
        for number, seed in enumerate(seeds):
            kinds = {"exact": 0.0, "moved": MOVED} if number < SEEDS_MOVED else {"exact": 0.0}
            if number == len(rows):
                rows.append({kind: measure(name, seed, noise) for kind, noise in kinds.items()})
            elif number < given.again and rows[number]["moved"]["after"].first is None:
                rows[number]["moved"] = measure(name, seed, MOVED)
            else:
                continue
            _write(given.out, draws)
        print(name, json.dumps(summary(rows)["after"]), flush=True)
    _write(given.out, draws)


def _write(out: Path, draws: dict[str, list[Draw]]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document(draws), separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
