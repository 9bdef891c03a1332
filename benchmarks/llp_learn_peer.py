"""Scores of test rows by llp-learn's EM with logistic regression, read from and written to NumPy files.

    PYTHON benchmarks/llp_learn_peer.py TASK.npz SCORES.npy

PYTHON is that of an environment of its own, because llp-learn pins old versions of NumPy, scikit-learn and torch. Its
EM needs the first two alone:

    python3 -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install 'numpy~=1.24.2' 'scikit-learn~=1.2.2' 'scipy~=1.10.1'
    ENVIRONMENT/bin/pip install --no-deps llp-learn==1.6.0

`table_rows.py` calls this with the environment variable LLP_LEARN_PYTHON as PYTHON. Features are standardised as
for the other linear models; the rest is llp-learn's default: random first labels, at most 100 rounds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from llp_learn.em import EM
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler


def main(task: Path, scores: Path) -> None:
    """Fit to the tuples of `task` and write the scores of its test rows."""
    data = np.load(task)
    standardise = StandardScaler().fit(data["x"])
    model = EM(LogisticRegression(max_iter=5000), random_state=0)
    model.fit(standardise.transform(data["x"]), data["ids"], data["counts"] / data["sizes"])
    np.save(scores, model.model.decision_function(standardise.transform(data["test_x"])))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
