"""train: tuples become a scorer, with its history and its scores on test and held-out instances."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntmp_cli.artifacts import (
    IfExists,
    Plan,
    RunArtifact,
    TuplesArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
    refuse_overlap,
)
from ntmp_cli.artifacts.checkpoints import CheckpointStore, Resume
from ntmp_cli.artifacts.feature_rows import column_names
from ntmp_cli.artifacts.layout import MODEL_CARD
from ntmp_cli.artifacts.named_files import (
    WEIGHTS_FILES,
    encoder_identity,
    encoder_run,
    file_identity,
    teacher_identity,
    teacher_run,
    weights_files,
)
from ntmp_cli.artifacts.priors import Prior, estimated_prior
from ntmp_cli.artifacts.run_writer import run_summary, write_run
from ntmp_cli.artifacts.stored_tuples import StoredTuples, under_noise
from ntmp_cli.artifacts.true_labels import true_targets
from ntmp_cli.config import ESTIMATE, TrainConfig
from ntmp_cli.counting.laws import law_text, parse_law
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.evaluation.expected_of_run import expected_in_use
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.learning.augmentation_choice import with_augmentation
from ntmp_cli.learning.lengths import with_length
from ntmp_cli.learning.method import GradientMethod, Method, methods
from ntmp_cli.learning.model_choice import (
    TABLE_METHOD,
    is_estimator,
    is_table_training,
    network_name,
    require_model,
    unused_by_closed_form,
    unused_by_tables,
)
from ntmp_cli.learning.rated_source import source_for
from ntmp_cli.learning.results import Trained, Watcher
from ntmp_cli.learning.tables.law_estimate import estimate_law, is_auto
from ntmp_cli.learning.tables.training import law_scoring, scores_without_prior, train_table
from ntmp_cli.plugins import plugin_settings
from ntmp_cli.ranks import is_first_process, number_of_processes
from ntmp_cli.reporting.model_card import run_card
from ntmp_cli.tuple_source import TupleSource

if TYPE_CHECKING:
    from ntmp_cli.learning.loop import Environment
    from ntmp_cli.learning.teacher import Teacher
    from ntmp_cli.learning.trainer import Training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainOptions:
    """How a training is carried out; nothing here changes what is learned."""

    if_exists: IfExists = "fail"
    resume: Resume = "no"
    device: str = "auto"
    checkpoint_seconds: float = 30.0
    watcher: Watcher | None = None
    features: Path | None = None
    """Folder that keeps features of a frozen encoder; by default the one that `out` lies in."""
    used_elsewhere: frozenset[str] = frozenset()
    """Settings that other trainings of a study use: no warning is due where this one does not."""


DEFAULT_OPTIONS = TrainOptions()


def train(
    config: TrainConfig,
    tuples_path: Path,
    out: Path,
    options: TrainOptions = DEFAULT_OPTIONS,
    prior_from: Path | None = None,
) -> RunArtifact:
    """Train on a tuples directory and publish a run directory.

    The prior is the config's, else the one of the prior directory `prior_from`, else the one that the tuples know, else
    `count` estimates it.
    """
    tuples = open_artifact(tuples_path, "tuples")
    require_model(config.model)
    on_table = is_table_training(config, StoredTuples(tuples).instance)
    if not on_table:
        _require_pool(config, tuples)
    prior = resolve_prior(config, tuples, prior_from)
    in_vain = unused_by_closed_form(config) - options.used_elsewhere
    config = _resolved(config, tuples).model_copy(update={"prior": prior.value, "ranks": _ranks(config)})
    plan = training_plan(config, tuples, prior)
    store = CheckpointStore(
        out, plan, resume=options.resume, every_seconds=options.checkpoint_seconds, writes=is_first_process()
    )
    refuse_overlap(out, () if prior_from is None else (prior_from,))  # also where --prior was given over it
    if kept := existing_output(out, plan, options.if_exists):
        store.remove()
        return kept
    _report_checkpoint(store, options.resume, out)
    _warn_of_other_prior(prior, tuples)
    if in_vain and not on_table:
        log.warning("--method %s is computed at once and does not use %s", config.method, _options(in_vain))

    def publish(trained: Trained, source: StoredTuples) -> None:
        try:
            with publishing(out, plan, if_exists=options.if_exists) as staging:
                scores = write_run(staging, trained, tuples, source)
                staging.summary = run = run_summary(config, trained, tuples, source, prior)
                expected = expected_in_use(run, scores, source.blocks())
                staging.add_bytes(MODEL_CARD, run_card(run, expected, column_names(tuples.summary.features)).encode())
        except ArtifactError:
            if options.if_exists == "fail" and out.exists():  # another training of this output was faster
                store.remove()
            raise
        store.remove()

    if on_table:
        _warn_of_networks_settings(config)
        if is_estimator(config.model):
            from ntmp_cli.learning.tables.estimator_scorer import dump_estimator, named_estimator

            # Refuses what could not be published before anything is computed.
            dump_estimator(named_estimator(config.model, config.estimator))
        source = _stored(config, tuples)
        publish(train_table(config, source, prior_is_known=prior.source in ("given", "known")), source)
    else:
        with closing(store):  # where it failed, the next training of this output may keep checkpoints
            _train_network(config, tuples, prior, (options, store), publish)
    return open_artifact(out, "run")


def training_epochs(config: TrainConfig, tuples_path: Path) -> int:
    """How many epochs a training will have; 1 where it has none."""
    require_model(config.model)
    return _resolved(config, open_artifact(tuples_path, "tuples")).epochs or 1


def _resolved(config: TrainConfig, tuples: TuplesArtifact) -> TrainConfig:
    """With a number of epochs and an augmentation, where a network is trained."""
    source = StoredTuples(tuples)
    if is_table_training(config, source.instance):
        return config
    augmented = with_augmentation(config, tuples.summary.dataset, source.instance.shape)
    return with_length(augmented, source.instance, source.task)


def _stored(config: TrainConfig, tuples: TuplesArtifact) -> StoredTuples:
    """The tuples under the law of noise that the settings name, else under the one that was recorded."""
    if config.count_law is None:
        return under_noise(tuples, getattr(config.settings, "count_noise", 0.0))
    if not is_auto(config.count_law):
        return StoredTuples(tuples, parse_law(config.count_law))
    shape = StoredTuples(tuples).instance.shape
    if len(shape) > 1:
        raise UsageError(
            f"--count-law {config.count_law}: a law is estimated on rows of a table or on features, not on images",
            hint="Pass --encoder, such as --encoder pca, or give the parameter as a number.",
        )
    scoring = law_scoring(config)
    found = estimate_law(config.count_law, lambda law: scores_without_prior(scoring, StoredTuples(tuples, law)))
    limits = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in found.intervals.items())
    log.info("count law %s by the likelihood of the counts (95 %% interval: %s)", law_text(found.law, digits=3), limits)
    return StoredTuples(tuples, found.law)


def _usable(config: TrainConfig, source: StoredTuples) -> TupleSource:
    """The tuples that the method can use."""
    return source_for(config.method, methods.get(config.method).counts_needed, source)


def _require_pool(config: TrainConfig, tuples: TuplesArtifact) -> None:
    if tuples.summary.unlabeled.train:
        return
    learner = f"method {config.method}"
    if issubclass(methods.get(config.method), GradientMethod):
        learner = f"a network (model {network_name(config.model)}, {learner})"
    raise UsageError(
        f"{tuples.path}: there is no unlabeled pool, and {learner} needs one",
        hint="Import with --unlabeled FILE; on tables, --method count with --model auto, linear or trees needs none.",
    )


def _train_network(
    config: TrainConfig,
    tuples: TuplesArtifact,
    resolved: Prior,
    how: tuple[TrainOptions, CheckpointStore],
    publish: Callable[[Trained, StoredTuples], None],
) -> None:
    """Train a network, in this process or together with others, of which the first publishes."""
    from ntmp_cli.learning.devices import choose_device
    from ntmp_cli.learning.loop import Environment
    from ntmp_cli.learning.network_prior import network_prior
    from ntmp_cli.learning.processes import process_group
    from ntmp_cli.learning.trainer import Training

    options, store = how
    if config.prior is not None and not is_auto(config.count_law):
        # Refuses what the method cannot learn before anything is computed.
        methods.get(config.method)(config, _usable(config, _stored(config, tuples)).task)
    device = choose_device(options.device)
    with process_group(device) as processes:
        environment = Environment(device, store, processes, options.watcher)
        source = _source(config, tuples, options.features or store.beside, environment)
        prior = None
        if config.prior is None:
            prior = processes.first_rank_then_others(lambda: network_prior(config, source, device))
            config = config.model_copy(update={"prior": prior.value})
        method = methods.get(config.method)(config, _usable(config, source).task)
        _warn_of_unused(config, method, tuples.summary.instance.shape)
        training = Training(
            config,
            source,
            prior_is_known=resolved.source in ("given", "known"),
            true_labels=partial(true_targets, tuples),
            teacher=_teacher(config, tuples, options.device),
            environment=environment,
        )
        trained = replace(_interruptible(training, store), prior=prior)
        if processes.rank == 0:
            publish(trained, source)
        processes.broadcast("published")


def _teacher(config: TrainConfig, tuples: TuplesArtifact, device: str) -> Teacher | None:
    """The run that the settings name as a teacher, as it scores instances of these tuples."""
    from ntmp_cli.artifacts.stored_scorer import load_score
    from ntmp_cli.learning.teacher import Teacher

    run = teacher_run(config)
    if run is None:
        return None
    if config.encoder is not None or run.summary.instance != tuples.summary.instance:
        what = f"features of the encoder {config.encoder}" if config.encoder else "other instances than these"
        raise UsageError(
            f"teacher: {run.path} scores raw instances of shape {run.summary.instance.shape}, but the network learns "
            f"from {what}",
            hint="Teach a network without encoder, by a run on the same kind of instances.",
        )
    return Teacher(load_score(run, device), run.summary.trained_prior)


def train_cell(training: dict[str, Any], tuples: str, out: str, features: str, device: str) -> None:
    """The same by plain arguments, as a worker process of a sweep calls it; continues an interrupted attempt."""
    options = TrainOptions(if_exists="refresh", resume="if-same", device=device, features=Path(features))
    train(TrainConfig.model_validate(training), Path(tuples), Path(out), options)


def _interruptible(training: Training, store: CheckpointStore) -> Trained:
    """Train; a training of several epochs saves its state before it stops."""
    from ntmp_cli.learning.oriented_training import train_oriented
    from ntmp_cli.learning.resuming import UnfitStateError

    if not issubclass(methods.get(training.config.method), GradientMethod):
        return train_oriented(training)
    with stop_requested() as stop:
        try:
            return train_oriented(replace(training, environment=replace(training.environment, stop=stop)))
        except UnfitStateError as error:
            raise store.unusable(error.message) from None


def resolve_prior(config: TrainConfig, tuples: TuplesArtifact, prior_from: Path | None) -> Prior:
    """The config's prior, else the one of `prior_from`, else the one that the tuples know; else without a value.

    An estimate that is given in vain is mentioned.
    """
    if config.prior == ESTIMATE:
        return _left_to_training(config)
    estimate = None if prior_from is None else estimated_prior(prior_from, tuples)
    if config.prior is not None:
        if estimate is not None:
            log.info("prior %g is used instead of the estimate %.4f in %s", config.prior, estimate.value, prior_from)
        return Prior(config.known_prior(), "given")
    if estimate is not None:
        return estimate
    known = tuples.summary.prior
    return Prior(known, "known") if known is not None and 0 < known < 1 else _left_to_training(config)


def estimates_prior(config: TrainConfig) -> bool:
    """Whether the training is asked to estimate the prior, and can."""
    return config.prior == ESTIMATE and config.method == TABLE_METHOD


def _left_to_training(config: TrainConfig) -> Prior:
    if config.method != TABLE_METHOD:
        config.known_prior()  # says what is missing
    return Prior(None, "estimated")


def training_plan(config: TrainConfig, tuples: TuplesArtifact, prior: Prior) -> Plan:
    """The plan of a training with these settings on these tuples."""
    others = (prior.estimate, encoder_run(config), teacher_run(config))
    inputs = (tuples, *(artifact for artifact in others if artifact is not None))
    resolved = _resolved(config, tuples)
    settings = {**resolved.model_dump(mode="json"), "prior": prior.value, "ranks": _ranks(config)}
    files = {name: file_identity(settings[name]) for name in WEIGHTS_FILES}
    files |= encoder_identity(config) | teacher_identity(config)
    plugins = plugin_settings({"methods": [config.method], "models": [config.model], "encoders": [config.encoder]})
    reads = (*(artifact.path for artifact in inputs), *weights_files(config))
    return Plan("run", {**settings, **files, **plugins}, config.seed, tuple(map(describe_input, inputs)), reads)


def _ranks(config: TrainConfig) -> int:
    """One rank per process, unless one process is to reproduce the batches of several."""
    processes = number_of_processes()
    if config.ranks not in (None, processes) and processes > 1:
        raise UsageError(f"--ranks {config.ranks}: {processes} processes are {processes} ranks", hint="Leave it out.")
    return config.ranks or processes


def _report_checkpoint(store: CheckpointStore, resume: Resume, out: Path) -> None:
    if resume == "yes" and not store.exists():
        log.info("%s: no checkpoint to resume from; starting at the first epoch", out)
    if store.exists() and resume == "no":
        log.warning("%s: a checkpoint of an earlier, unfinished run is ignored; --resume continues it", out)


def _source(config: TrainConfig, tuples: TuplesArtifact, folder: Path, environment: Environment) -> StoredTuples:
    """What is trained on: the tuples as they are, or their features."""
    encoder, processes = methods.get(config.method).encoder or config.encoder, environment.processes
    source: TuplesArtifact = tuples
    if encoder is not None:
        from ntmp_cli.stages.features import encode_tuples

        source = processes.first_rank_then_others(
            lambda: encode_tuples(tuples, encoder, config, folder, environment.device)
        )
    stored = _stored(config, source)
    if config.select != "last" and processes.rank == 0 and stored.heldout() is None:
        log.warning("%s: no held-out tuples were set aside, so the last epoch is kept", tuples.path)
    return stored


def _warn_of_other_prior(prior: Prior, tuples: TuplesArtifact) -> None:
    """A wrong prior biases the risk; simulated tuples know theirs."""
    known = tuples.summary.prior
    if prior.source == "given" and known is not None and prior.value and abs(known - prior.value) > 0.005:
        log.warning("--prior %g differs from the prior of the unlabeled pool %.4g", prior.value, known)


def _warn_of_networks_settings(config: TrainConfig) -> None:
    if unused := unused_by_tables(config) | set(config.ignored):
        log.warning("--model %s on a table does not use %s; --model mlp would", config.model, _options(unused))


def _options(names: set[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names))


def _warn_of_unused(config: TrainConfig, method: Method, shape: tuple[int, ...]) -> None:
    """No setting is silently without effect."""
    given = {name for name in config.model_fields_set if getattr(config, name) is not None}
    encoder = method.encoder or config.encoder
    unused = set(config.ignored)
    if encoder != "clip":
        unused |= given & {"clip_model", "clip_weights"}
    if config.model != method.model_name():
        unused |= given & {"model"}
    if encoder != config.encoder:
        unused |= given & {"encoder"}
    if (encoder or "").partition(":")[0] not in ("torchvision", "patches", "pca"):
        unused |= given & {"encoder_weights"}
    if unused:
        log.warning("--method %s does not use %s", config.method, _options(unused))
    if method.expects_encoder and encoder is None and len(shape) > 1:
        log.warning(
            "--method %s is meant for features of a frozen encoder and learns from raw pixels here; give one, such as "
            "--encoder pca, torchvision:NAME, or run:DIR",
            config.method,
        )
