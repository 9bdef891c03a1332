"""How often promises hold on real tables: intervals of the prior and of metrics without labels, the drift of a pool.

    python -m benchmarks.promises            # 20 draws of every table, pools of exact and of random composition
    python -m benchmarks.promises --draws 2 Mroz Wells

Every draw splits a table anew into tuples and other rows. Of the other rows a pool is sampled whose share of positives
is uniform between .1 and .9; its labels are the truth. The learner is `linear`, the cheapest. Results are written to
benchmarks/promises/intervals.json, draw by draw; those that are there already are kept, so remove the file after a
change of the code. `--again` measures those again whose thresholds were not yet matched between the fits of folds and
the classifier. `python -m docs.write_promises` makes docs/promises.md of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.metrics import roc_auc_score

from benchmarks.table_data import SOURCES, task
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.evaluation.expected_metrics import CELL_METRICS, Deployment, PoolScores, ScoredCounts, expected_metrics
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import fit_table
from ntmp_cli.prior.drift import drift
from ntmp_cli.prior.estimate import DEFAULT, estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples

OUT = Path(__file__).with_name("promises") / "intervals.json"
# Designs were chosen on seeds from 200 on.
FIRST_SEED = 100
DRAWS = 20
POOLS = ("exact", "iid")
LEAST, MOST = 0.1, 0.9
# Share of the rows that a pool takes of what its rarer class allows, so that a random number of positives can be had.
SPARE = 0.85
TINY = 1e-12


def pool_rows(y: NDArray[np.int64], prior: float, kind: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of a pool: exactly this share of positives, or every row positive with this probability."""
    positive, negative = (rng.permutation(np.flatnonzero(y == label)) for label in (1, 0))
    size = int(min(len(positive) / prior, len(negative) / (1 - prior)) * SPARE)
    wanted = round(size * prior) if kind == "exact" else int(rng.binomial(size, prior))
    positives = min(wanted, len(positive), size)
    negatives = min(size - positives, len(negative))
    return rng.permutation(np.concatenate([positive[:positives], negative[:negatives]]))


def measure(name: str, seed: int, kind: str) -> dict[str, Any]:
    """One draw: intervals and what is true."""
    data = task(name, seed)
    rng = np.random.default_rng([seed, POOLS.index(kind)])
    prior = float(rng.uniform(LEAST, MOST))
    rows = pool_rows(data.test_y, prior, kind, rng)
    x, y = data.test_x[rows], data.test_y[rows]
    observed = CountObservations(data.sizes, data.counts)
    fitted = fit_table(TableData(data.x, observed, x), "linear", rng)
    scored = ScoredTuples(fitted.scores, data.sizes, data.counts, fitted.pool_scores, spread=fitted.spread)
    estimated = estimate_priors([scored], rng, resamples=0).estimates[DEFAULT]
    threshold = float(logit(scored.rate) - logit(prior))
    where = Deployment(prior, instances=len(y))
    z = fitted.scorer.score(x)
    judged = ScoredCounts(fitted.scores, observed, fitted.spread, pool=PoolScores(fitted.pool_scores, z))
    expected = expected_metrics(judged, threshold, where)
    decided = z > threshold
    cells = [np.mean(decided & (y == 1)), np.mean(decided & (y == 0))]
    cells += [np.mean(~decided & (y == 1)), np.mean(~decided & (y == 0))]
    truth = {metric: of_cells(np.array(cells) + TINY) for metric, of_cells in CELL_METRICS.items()}
    truth["auroc"] = float(roc_auc_score(y, z))
    moved = drift(scored, np.random.default_rng([seed, POOLS.index(kind), 5]))
    return {
        "table": name,
        "seed": seed,
        "pool": kind,
        "tuples": len(data.sizes),
        "instances": len(y),
        "prior": {"truth": prior, "value": estimated.value, "ci": estimated.ci},
        "drift": {"p": moved.p_value, "gap": moved.statistic, "spread": fitted.spread},
        "matched": True,
        "metrics": {m: {"truth": truth[m], "value": expected[m].value, "ci": expected[m].ci} for m in truth},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(SOURCES))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--again", action="store_true", help="Measure draws again whose thresholds were not matched.")
    arguments = parser.parse_args()
    results = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else []
    known = {(one["table"], one["seed"]) for one in results if "matched" in one or not arguments.again}
    for name in arguments.tables:
        for seed in range(FIRST_SEED, FIRST_SEED + arguments.draws):
            if (name, seed) in known:
                continue
            measured = [measure(name, seed, kind) for kind in POOLS]
            results = [one for one in results if (one["table"], one["seed"]) != (name, seed)] + measured
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
        covered = [
            one["prior"]["ci"][0] <= one["prior"]["truth"] <= one["prior"]["ci"][1]
            for one in results
            if one["table"] == name
        ]
        print(f"{name}: {len(covered)} intervals of the prior, {np.mean(covered):.3f} cover", flush=True)


if __name__ == "__main__":
    main()
