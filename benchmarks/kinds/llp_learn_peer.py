"""Scores of test rows by a classifier of llp-learn, read from and written to NumPy files.

    PYTHON benchmarks/kinds/llp_learn_peer.py em|dllp|mixbag TASK.npz SCORES.npy

PYTHON is that of an environment of its own (Python 3.11), because llp-learn pins old versions:

    python3.11 -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install llp-learn==1.6.0 torchvision==0.15.2

Features are standardised. EM is with logistic regression as it comes. DLLP and MixBag have their network of one layer
of 100 units, a bag being a batch, and learn for 20,000 steps, at most 100 epochs; MixBag without consistency loss.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from llp_learn.dllp import DLLP
from llp_learn.em import EM
from llp_learn.mixbag import MixBag
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

STEPS, MOST_EPOCHS = 20_000, 100
NETWORK = {"lr": 1e-3, "model_type": "simple-mlp", "n_jobs": 0, "device": "cpu", "random_state": 0}


def main(kind: str, task: str, scores: str) -> None:
    """Fit to the tuples of `task` and write the scores of its test rows."""
    torch.set_num_threads(1)
    data = np.load(task)
    standardise = StandardScaler().fit(data["x"])
    x, test_x = (standardise.transform(data[name]).astype(np.float32) for name in ("x", "test_x"))
    rates = data["counts"] / data["sizes"]
    if kind == "em":
        model = EM(LogisticRegression(max_iter=5000), random_state=0)
        model.fit(x, data["ids"], rates)
        np.save(scores, model.model.decision_function(test_x))
        return
    epochs = min(MOST_EPOCHS, STEPS // len(rates))
    if kind == "dllp":
        model = DLLP(n_epochs=epochs, **NETWORK)
    else:
        model = MixBag(n_epochs=epochs, consistency="none", choice="uniform", confidence_interval=0.05, **NETWORK)
    model.fit(x, data["ids"], rates.astype(np.float32))
    model.model.eval()
    with torch.no_grad():
        logits = model.model(torch.from_numpy(test_x))
    np.save(scores, (logits[:, 1] - logits[:, 0]).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
