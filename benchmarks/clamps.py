"""The risk on little data: number of batches, and clamps that adapt to the noise of a batch; docs/results/clamps.yaml.

python -m benchmarks.clamps --seeds 310 311 312 313 314            # digits, nine cells, all variants
python -m benchmarks.clamps --seeds 310 311 312 --data mnist       # 3,000 tuples of MNIST
python -m benchmarks.clamps --seeds 310 311 312 313 314 --variants abs "abs, prior estimated" "abs, intercept by shares"
python -m benchmarks.clamps --seeds 0 1 2 --rows --variants "flood 1" shrink   # the 18 rows of the paper, our recipe

What is in the file is skipped; stop it at any time. Which variants were worth judging was chosen on the CHOICE_SEEDS of
training_store.py, by tuples 3:1; `flood` was added before other seeds were run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field

from benchmarks.paper_rows import DATA, PRIORS, TUPLES, code_version, data_root, study_of
from benchmarks.training_store import FOLDER, METRICS, TrainingKey, TrainingStore
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.config import EstimatePriorConfig, EvaluateConfig, MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.lengths import default_batch
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.methods.ure import RiskSettings, Ure
from ntmp_cli.learning.risk import LOSSES, partial_risks
from ntmp_cli.stages.estimate_prior import estimate_prior
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

if TYPE_CHECKING:
    from torch import Tensor

FILE = FOLDER / "clamps.yaml"
SIZES: dict[str, dict[str, int]] = {"digits": {}, "mnist": {"num_tuples": 3000, "unlabeled_size": 4000}}


class AdaptiveSettings(RiskSettings):
    """Of a clamp that adapts to the noise of a batch."""

    adapt: Literal["slack", "flood", "mean-abs", "mean-relu", "shrink"] = Field(
        "slack", description="How the clamp adapts."
    )
    strength: float = Field(1.0, ge=0, description="Standard errors of slack, or the weight of past batches.")


class AdaptiveUre(Ure):
    """The unbiased risk with a clamp that knows how noisy the terms of a batch are (class scope).

    slack: max(term, −c·s.e.), a term is stopped only where noise does not explain its sign.
    flood: |term − c·s.e.|, a term is stopped before noise lets it fall below zero.
    mean-abs, mean-relu: sign and stop are those of a running mean of the term, not of one batch.
    shrink: |term| weighted by how much of its size the noise leaves, t²/(t² + c·s.e.²), taken as constant.
    """

    settings = AdaptiveSettings
    implied_by = frozenset()

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        adaptive = self.config.settings
        assert isinstance(adaptive, AdaptiveSettings)
        first = prepared.tuple_instances
        terms = partial_risks(scores, prepared.plus, prepared.minus, first, adaptive.loss, "class")
        value = self._adapted(terms, self._errors(scores, prepared), adaptive).sum() * prepared.weight
        return value, torch.cat([terms.detach(), terms.new_tensor([prepared.weight])])

    def _adapted(self, terms: Tensor, errors: Tensor, adaptive: AdaptiveSettings) -> Tensor:
        if adaptive.adapt == "slack":
            return torch.maximum(terms, -adaptive.strength * errors)
        if adaptive.adapt == "flood":
            return (terms - adaptive.strength * errors).abs()
        if adaptive.adapt == "shrink":
            square = terms.detach() ** 2
            return terms.abs() * square / (square + adaptive.strength * errors**2)
        past = getattr(self, "_running", terms.detach())
        self._running = adaptive.strength * past + (1 - adaptive.strength) * terms.detach()
        factor = self._running.sign() if adaptive.adapt == "mean-abs" else (self._running > 0).to(terms)
        return factor * terms

    def _errors(self, scores: Tensor, prepared: Any) -> Tensor:
        """Standard errors of both terms: tuples are independent of each other, and so are instances of U."""
        phi, first = LOSSES[self.risk.loss], prepared.tuple_instances
        scores = scores.detach()
        each = torch.stack([prepared.plus * phi(scores), prepared.minus * phi(-scores)])
        sizes = torch.from_numpy(prepared.sizes)
        owner = torch.arange(len(sizes)).repeat_interleave(sizes)
        sums = each.new_zeros(2, len(sizes)).index_add_(1, owner, each[:, :first])
        pool = each[:, first:]
        return (sums.var(dim=1) * len(sizes) + pool.var(dim=1) * pool.shape[1]).sqrt()


def sixteen_batches(tuples: Path) -> dict[str, Any]:
    """The length of a training as it was before commit 524806e."""
    return {
        "method": "ure",
        "clamp": "abs",
        "batch_size": default_batch(open_artifact(tuples, "tuples").summary.task(), 1024, 32, None),
        "epochs": 30,
    }


def plain(**settings: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda _: {"method": "ure", **settings}


def estimated(**settings: Any) -> Callable[[Path], dict[str, Any]]:
    """The same with the estimate of `ntmp estimate-prior` in place of the known prior."""

    def of(tuples: Path) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as name:
            estimate = estimate_prior(EstimatePriorConfig(), tuples, Path(name) / "prior")
            return {"method": "ure", "prior": estimate.summary.prior, **settings}

    return of


def adaptive(adapt: str, strength: float) -> Callable[[Path], dict[str, Any]]:
    return lambda _: {"method": "ure-adaptive", "adapt": adapt, "strength": strength}


VARIANTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "abs, sixteen batches": sixteen_batches,
    "abs": plain(clamp="abs"),
    "abs, intercept by shares": plain(clamp="abs", intercept="shares"),
    "abs, prior estimated": estimated(clamp="abs"),
    "abs, prior estimated, intercept by shares": estimated(clamp="abs", intercept="shares"),
    "relu": plain(clamp="relu"),
    "none": plain(clamp="none"),
    "slack 1": adaptive("slack", 1.0),
    "slack 2": adaptive("slack", 2.0),
    "flood 1": adaptive("flood", 1.0),
    "mean-abs": adaptive("mean-abs", 0.9),
    "mean-relu": adaptive("mean-relu", 0.9),
    "shrink": adaptive("shrink", 1.0),
}


def small(data: str, spec: str, prior: float, seed: int) -> tuple[MakeTuplesConfig, dict[str, Any]]:
    """Few tuples, and the defaults of a training."""
    tuples = MakeTuplesConfig(dataset=data, tuples=(spec,), prior=prior, seed=seed, **SIZES[data])  # type: ignore[arg-type]
    return tuples, {"prior": prior, "seed": seed, "trace_every": 0}


def row_of_paper(data: str, spec: str, prior: float, seed: int) -> tuple[MakeTuplesConfig, dict[str, Any]]:
    """Tuples and training as in a row of the paper's tables, by our recipe; `abs` and `relu` are in paper.yaml."""
    study = study_of("ours", spec, data, prior, seed)
    (cell, tuples), shared = next(iter(study.tuples.items())), ("prior", "seed", "epochs", "trace_every", "augment")
    training = study.trainings["abs", cell]
    return tuples, {name: getattr(training, name) for name in shared}


def measure(
    tuples_config: MakeTuplesConfig, training: dict[str, Any], variants: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The test metrics of these variants on the same tuples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tuples = make_tuples(tuples_config, folder / "tuples", data_root=data_root()).path
        found = {}
        for number, variant in enumerate(variants):
            out = folder / str(number)
            train(TrainConfig(**{**training, **VARIANTS[variant](tuples)}), tuples, out, TrainOptions(device="cpu"))
            evaluation = evaluate(EvaluateConfig(metrics=METRICS), [out], folder / f"{number}-evaluation")
            found[variant] = {row["metric"]: row["value"] for row in evaluation.rows}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--data", choices=tuple(SIZES), default="digits")
    parser.add_argument("--rows", action="store_true", help="the paper's rows on all of MNIST and FashionMNIST")
    parser.add_argument("--tuples", nargs="+", choices=TUPLES, default=TUPLES)
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=tuple(VARIANTS))
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    methods.register("ure-adaptive")(AdaptiveUre)  # not on import: tests that import this module list all methods
    recipe, of_cell, data_sets = ("ours", row_of_paper, DATA) if options.rows else ("default", small, [options.data])
    store, commit = TrainingStore.load(options.file), code_version()
    for seed, data, spec, prior in product(options.seeds, data_sets, options.tuples, PRIORS):
        n, m = map(int, spec.split(":"))
        keys = {name: TrainingKey(recipe, data, n, m, prior, name, seed) for name in options.variants}
        missing = [name for name, key in keys.items() if key not in store.trainings]
        started = time.process_time()
        for name, values in (measure(*of_cell(data, spec, prior, seed), missing) if missing else {}).items():
            store.add(keys[name], values, commit=commit)
            print(*keys[name], *(f"{value:.3f}" for value in values.values() if value is not None), flush=True)
        if missing:
            print(f"  {time.process_time() - started:.0f} s of CPU", flush=True)
            store.save(options.file)


if __name__ == "__main__":
    main()
