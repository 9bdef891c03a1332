"""run: a study from one file, doing again only what has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ntmp_cli.artifacts import Artifact, refuse_overlap
from ntmp_cli.artifacts.evaluations import Evaluation
from ntmp_cli.artifacts.named_files import encoder_run, weights_files
from ntmp_cli.config import EstimatePriorConfig, MakeTuplesConfig, PipelineConfig, TrainConfig
from ntmp_cli.data.labelled import datasets, named_paths
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.learning.encoders import get_encoder
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.model_choice import require_model
from ntmp_cli.learning.results import Watcher
from ntmp_cli.prior.estimator import priors
from ntmp_cli.settings import build
from ntmp_cli.stages.cross_fit_options import CrossFitOptions
from ntmp_cli.stages.estimate_prior import estimate_prior
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.report import report
from ntmp_cli.stages.train import TrainOptions, train, training_epochs


@dataclass(frozen=True)
class Step:
    """One arrow of the pipeline that was walked, or skipped because nothing had changed."""

    name: str
    artifact: Artifact
    evaluation: Evaluation | None = None
    """The tables, where this step made them."""

    @property
    def skipped(self) -> bool:
        return self.artifact.kept


@dataclass(frozen=True)
class Study:
    """The resolved settings of every stage call."""

    tuples: dict[int, MakeTuplesConfig]
    trainings: dict[tuple[str, int], TrainConfig]
    estimates: dict[int, EstimatePriorConfig]
    config: PipelineConfig = field(repr=False)

    def reads(self) -> list[Path]:
        """The files that are named by settings."""
        named = [path for tuples in self.tuples.values() for path in named_paths(tuples.dataset)]
        for settings in (*self.trainings.values(), *self.estimates.values()):
            named += weights_files(settings)
        return named

    def folders(self) -> list[str]:
        """What is made below OUT."""
        stages = [f"tuples-{seed}" for seed in self.tuples] + [f"prior-{seed}" for seed in self.estimates]
        return [*stages, "runs", "evaluation", "report"]


def resolve(config: PipelineConfig, where: str) -> Study:
    """Check every setting of every stage before anything runs."""
    for group in ("make_tuples", "estimate_prior", "train", *(f"runs.{name}" for name in config.runs)):
        values = config.runs[group[5:]] if group.startswith("runs.") else getattr(config, group) or {}
        if "seed" in values:
            raise UsageError(f"{where}: {group}.seed: seeds are given once, by the list `seeds`")
    for name in config.runs:
        if Path(name).name != name:
            raise UsageError(
                f"{where}: runs: '{name}' cannot be the name of a folder", hint="Use letters, digits and dashes."
            )
    if len(set(config.seeds)) != len(config.seeds):
        raise UsageError(f"{where}: seeds: a seed is given twice")
    # The prior of U is known by construction here, so that it need not be written twice.
    known = config.make_tuples.get("prior")
    shared = {} if known is None or config.estimate_prior is not None else {"prior": known}
    tuples = {
        seed: build(MakeTuplesConfig, {**config.make_tuples, "seed": seed}, f"{where}: make_tuples")
        for seed in config.seeds
    }
    trainings = {
        (name, seed): build(
            TrainConfig, {**shared, **config.train, **settings, "seed": seed}, f"{where}: train with runs.{name}"
        )
        for name, settings in config.runs.items()
        for seed in config.seeds
    }
    estimates = {
        seed: build(EstimatePriorConfig, {**config.estimate_prior, "seed": seed}, f"{where}: estimate_prior")
        for seed in config.seeds
        if config.estimate_prior is not None
    }
    for estimate in estimates.values():
        priors.get(estimate.estimator)
    for (name, _), training in () if estimates else trainings.items():
        training.known_prior(f"{where}: train with runs.{name}")
    _require_known_names(config, tuples[config.seeds[0]], list(trainings.values()))
    return Study(tuples, trainings, estimates, config)


def _require_known_names(config: PipelineConfig, tuples: MakeTuplesConfig, trainings: Sequence[TrainConfig]) -> None:
    require_known_names([tuples], trainings)
    labels = {methods.get(training.method).label(training) for training in trainings}
    for metric in (*config.evaluate.metrics, *config.report.metrics):
        metrics.get(metric)
    reference = config.evaluate.reference
    # A variant is shown as its method and the settings that set it apart, which are known once runs are compared.
    if reference is not None and reference not in labels and reference.partition(" ")[0] not in labels:
        raise UsageError(f"evaluate.reference: no run is of method '{reference}'; {did_you_mean(reference, labels)}")


def require_known_names(tuples: Iterable[MakeTuplesConfig], trainings: Iterable[TrainConfig]) -> None:
    """A misspelt name in the last step should not be noticed after hours of training."""
    for settings in tuples:
        datasets.get(settings.dataset.partition(":")[0])
        for text in settings.tuples:
            parse_spec(text)
    for training in trainings:
        methods.get(training.method)
        require_model(training.model)
        if training.encoder is not None and encoder_run(training) is None:
            get_encoder(training.encoder)


def run_pipeline(
    study: Study,
    out: Path,
    *,
    data_root: Path | None = None,
    download: bool = False,
    device: str = "auto",
    watching: Callable[[int], AbstractContextManager[Watcher | None]] = lambda epochs: nullcontext(),
) -> Iterator[Step]:
    """Walk make-tuples, train, evaluate and report, yielding each step as it is done."""
    refuse_overlap(out, study.reads(), study.folders())
    for seed, tuples in study.tuples.items():
        made = make_tuples(tuples, out / f"tuples-{seed}", data_root=data_root, download=download, if_exists="refresh")
        yield Step(f"tuples-{seed}", made)
    for seed, settings in study.estimates.items():
        options = CrossFitOptions("refresh", device, watching=watching)
        prior = estimate_prior(settings, out / f"tuples-{seed}", out / f"prior-{seed}", options)
        yield Step(f"prior-{seed}", prior)
    runs = []
    for (name, seed), training in study.trainings.items():
        runs.append(out / "runs" / f"{name}-{seed}")
        source = out / f"prior-{seed}" if training.prior is None else None
        with watching(training_epochs(training, out / f"tuples-{seed}")) as watcher:
            train_options = TrainOptions(if_exists="refresh", resume="if-same", device=device, watcher=watcher)
            run = train(training, out / f"tuples-{seed}", runs[-1], train_options, prior_from=source)
        yield Step(f"runs/{name}-{seed}", run)
    evaluation = evaluate(study.config.evaluate, runs, out / "evaluation", if_exists="refresh")
    yield Step("evaluation", evaluation.artifact, evaluation)
    priors = [out / f"prior-{seed}" for seed in study.estimates]
    page, _ = report(study.config.report, out / "evaluation", out / "report", priors=priors, if_exists="refresh")
    yield Step("report", page)
