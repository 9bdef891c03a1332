"""run: a study from one file; a second run repeats only steps that have changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntmp_cli.artifacts import Artifact, refuse_overlap
from ntmp_cli.artifacts.evaluations import Evaluation
from ntmp_cli.artifacts.named_files import encoder_run, weights_files
from ntmp_cli.config import EstimatePriorConfig, MakeTuplesConfig, TrainConfig
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.data.labelled import datasets, named_paths
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.learning.encoders import get_encoder
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.model_choice import require_model, unused_by_closed_form
from ntmp_cli.learning.results import Watcher
from ntmp_cli.prior.estimator import priors
from ntmp_cli.reporting.paper import paper_cells
from ntmp_cli.settings import build
from ntmp_cli.stages.cross_fit_options import CrossFitOptions
from ntmp_cli.stages.estimate_prior import estimate_prior
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.report import report
from ntmp_cli.stages.train import TrainOptions, estimates_prior, train, training_epochs
from ntmp_cli.sweeps.plans import crossed, folder_name


@dataclass(frozen=True)
class Step:
    """One step of the pipeline: done, or skipped because nothing had changed."""

    name: str
    artifact: Artifact
    evaluation: Evaluation | None = None
    """The tables, where this step made them."""

    @property
    def skipped(self) -> bool:
        return self.artifact.kept


@dataclass(frozen=True)
class Study:
    """The resolved settings of every stage call, by the end of its folder's name: the seed, after what varies."""

    tuples: dict[str, MakeTuplesConfig]
    trainings: dict[tuple[str, str], TrainConfig]
    estimates: dict[str, EstimatePriorConfig]
    config: PipelineConfig = field(repr=False)

    def reads(self) -> list[Path]:
        """The files that are named by settings."""
        named = [path for tuples in self.tuples.values() for path in named_paths(tuples.dataset)]
        for settings in (*self.trainings.values(), *self.estimates.values()):
            named += weights_files(settings)
        return named

    def folders(self) -> list[str]:
        """The folders below OUT."""
        stages = [f"tuples-{cell}" for cell in self.tuples] + [f"prior-{cell}" for cell in self.estimates]
        return [*stages, "runs", "evaluation", "report"]


def resolve(config: PipelineConfig, where: str) -> Study:
    """Check every setting of every stage before anything runs."""
    _require_plain_names(config, where)
    tuples: dict[str, MakeTuplesConfig] = {}
    trainings: dict[tuple[str, str], TrainConfig] = {}
    estimates: dict[str, EstimatePriorConfig] = {}
    for chosen, seed in itertools.product(crossed(config.vary), config.seeds):
        varied = chosen.get("make_tuples", {})
        cell = f"{folder_name(varied)}-{seed}" if varied else str(seed)
        tuples[cell] = build(
            MakeTuplesConfig, {**config.make_tuples, **varied, "seed": seed}, f"{where}: make_tuples{_of(varied)}"
        )
        # The prior of U is known by construction here, so that it need not be written twice.
        known = tuples[cell].prior
        shared = {} if known is None or config.estimate_prior is not None else {"prior": known}
        shared |= {**config.train, **config.train_on.get(tuples[cell].dataset, {})}
        for name, settings in config.runs.items():
            trainings[name, cell] = build(
                TrainConfig, {**shared, **settings, "seed": seed}, f"{where}: train with runs.{name}{_of(varied)}"
            )
        if config.estimate_prior is not None:
            settings = {**config.estimate_prior, "seed": seed}
            estimates[cell] = build(EstimatePriorConfig, settings, f"{where}: estimate_prior")
    for estimate in estimates.values():
        priors.get(estimate.estimator)
    for (name, _), training in trainings.items():
        if not (estimates and training.prior is None) and not estimates_prior(training):
            training.known_prior(f"{where}: train with runs.{name}")
    _require_known_names(config, list(tuples.values()), list(trainings.values()))
    _require_data_of_the_paper(config, tuples.values(), where)
    return Study(tuples, trainings, estimates, config)


def _used_elsewhere(study: Study) -> frozenset[str]:
    """Settings that all runs share, where some run is trained in steps and uses them."""
    if all(unused_by_closed_form(training) for training in study.trainings.values()):
        return frozenset()
    return frozenset(key for group in (study.config.train, *study.config.train_on.values()) for key in group)


def _of(varied: Mapping[str, Any]) -> str:
    return "".join(f", {key} {value}" for key, value in varied.items())


def _require_data_of_the_paper(config: PipelineConfig, tuples: Iterable[MakeTuplesConfig], where: str) -> None:
    """Refuse a comparison with the paper that could only fail after all trainings."""
    if config.report.compare != "paper":
        return
    known = sorted({cell.dataset for cell in paper_cells()})
    if not any(made.dataset in known for made in tuples):
        raise UsageError(
            f"{where}: report.compare: paper: the paper has no results on these data",
            hint=f"It has {', '.join(known)}; or leave `compare` out.",
        )


def _require_plain_names(config: PipelineConfig, where: str) -> None:
    """Seeds are given once, and the names of runs can be folders."""
    groups = {name: getattr(config, name) or {} for name in ("make_tuples", "estimate_prior", "train")}
    groups |= {f"train_on.{name}": values for name, values in config.train_on.items()}
    groups |= {f"runs.{name}": values for name, values in config.runs.items()}
    for group, values in groups.items():
        if "seed" in values:
            raise UsageError(f"{where}: {group}.seed: seeds are given once, by the list `seeds`")
    for name in config.runs:
        if Path(name).name != name:
            raise UsageError(
                f"{where}: runs: '{name}' cannot be the name of a folder", hint="Use letters, digits and dashes."
            )
    if len(set(config.seeds)) != len(config.seeds):
        raise UsageError(f"{where}: seeds: a seed is given twice")


def _require_known_names(
    config: PipelineConfig, tuples: Sequence[MakeTuplesConfig], trainings: Sequence[TrainConfig]
) -> None:
    require_known_names(tuples, trainings)
    for dataset in config.train_on:
        datasets.get(dataset.partition(":")[0])
    labels = {methods.get(training.method).label(training) for training in trainings}
    for metric in (*config.evaluate.metrics, *config.report.metrics):
        metrics.get(metric)
    reference = config.evaluate.reference
    # A variant is shown as its method and the settings that set it apart, which are known once runs are compared.
    if reference is not None and reference not in labels and reference.partition(" ")[0] not in labels:
        raise UsageError(f"evaluate.reference: no run is of method '{reference}'; {did_you_mean(reference, labels)}")


def require_known_names(tuples: Iterable[MakeTuplesConfig], trainings: Iterable[TrainConfig]) -> None:
    """Check the name of the reference before hours of training."""
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
    """Run make-tuples, train, evaluate and report, yielding each step."""
    refuse_overlap(out, study.reads(), study.folders())
    for cell, tuples in study.tuples.items():
        made = make_tuples(tuples, out / f"tuples-{cell}", data_root=data_root, download=download, if_exists="refresh")
        yield Step(f"tuples-{cell}", made)
    for cell, settings in study.estimates.items():
        options = CrossFitOptions("refresh", device, watching=watching)
        prior = estimate_prior(settings, out / f"tuples-{cell}", out / f"prior-{cell}", options)
        yield Step(f"prior-{cell}", prior)
    runs, used_elsewhere = [], _used_elsewhere(study)
    for (name, cell), training in study.trainings.items():
        runs.append(out / "runs" / f"{name}-{cell}")
        source = out / f"prior-{cell}" if training.prior is None else None
        with watching(training_epochs(training, out / f"tuples-{cell}")) as watcher:
            elsewhere = used_elsewhere - study.config.runs[name].keys()
            train_options = TrainOptions("refresh", "if-same", device, watcher=watcher, used_elsewhere=elsewhere)
            run = train(training, out / f"tuples-{cell}", runs[-1], train_options, prior_from=source)
        yield Step(f"runs/{name}-{cell}", run)
    evaluation = evaluate(study.config.evaluate, runs, out / "evaluation", if_exists="refresh")
    yield Step("evaluation", evaluation.artifact, evaluation)
    priors = [out / f"prior-{cell}" for cell in study.estimates]
    page, _ = report(study.config.report, out / "evaluation", out / "report", priors=priors, if_exists="refresh")
    yield Step("report", page)
