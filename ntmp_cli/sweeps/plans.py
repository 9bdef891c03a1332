"""Which trainings a sweep consists of: pure functions from its settings to cells."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.config.studies import (
    CountNoiseSweepConfig,
    GapSweepConfig,
    GridSweepConfig,
    PriorSweepConfig,
    SweepConfig,
)
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.settings import build

# Values such as π̂ + δ are rounded to decimals: the digits of binary fractions would appear in names.
DIGITS = 10
LONGEST_NAME = 120
DEFAULT_METHOD = TrainConfig.model_fields["method"].default
# Default runs of a sweep of count noise.
NOISE_RUNS: dict[str, dict[str, Any]] = {"count": {"method": "count"}, "ure+abs": {"method": "ure", "clamp": "abs"}}


@dataclass(frozen=True)
class SweepCell:
    """One training: its position on the axes of the sweep, and the settings of its two stages."""

    name: str
    run: str
    position: Mapping[str, Any]
    seed: int
    tuples_name: str
    tuples: MakeTuplesConfig | None  # None: tuples that the user gave
    training: TrainConfig


@dataclass(frozen=True)
class LeftOut:
    """A point of the grid that is left out, and the reason."""

    position: Mapping[str, Any]
    why: str


@dataclass(frozen=True)
class SweepPlan:
    """All cells of a sweep; `axis` names the x axis of its plot, None for a grid."""

    kind: str
    config: SweepConfig
    axis: str | None
    cells: tuple[SweepCell, ...]
    left_out: tuple[LeftOut, ...] = ()
    prior: float | None = None  # π̂, where the cells are trained with others
    mean_rates: Mapping[str, float] = field(default_factory=dict)  # ᾱ by tuple spec, where the plan depends on it

    @property
    def reference(self) -> str | None:
        """The run that all others are compared with; None if there is only one run."""
        return None if len(self.runs) < 2 else self.config.reference or self.runs[0]

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.run for cell in self.cells))


@dataclass(frozen=True)
class _Point:
    position: dict[str, Any]
    make_tuples: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


def plan_prior(config: PriorSweepConfig, prior: float, mean_rate: float, *, given_tuples: bool = False) -> SweepPlan:
    """π̃ = π̂ + δ, kept in (0, 1) and away from ᾱ by ε₀; U itself does not change."""
    points, left_out = [], []
    for offset in config.offsets:
        wrong_prior = round(prior + offset, DIGITS)
        if not 0 < wrong_prior < 1:
            left_out.append(LeftOut({"offset": offset}, f"π̃ = {wrong_prior:g} is not in (0, 1)"))
        elif (near := _too_near(wrong_prior, mean_rate, config.margin, "π̃")) is not None:
            left_out.append(LeftOut({"offset": offset}, near))
        else:
            points.append(_Point({"offset": offset}, {}, {"prior": wrong_prior}))
    if not any(point.position["offset"] == 0 for point in points):
        raise NotIdentifiableError(
            f"the estimate π̂ = {prior:g} itself lies within ε₀ = {config.margin:g} of the mean tuple rate "
            f"ᾱ = {mean_rate:.4g}, so that nothing can be compared with it",
            hint="Use tuples of another rate, or a smaller --margin.",
        )
    shared: dict[str, dict[str, Any]] = {"make_tuples": {"prior": prior}, "train": {"method": "ure"}}
    # Some of these priors contradict the counts; the sweep measures the effect.
    cells = tuple(
        replace(cell, training=_trusting_prior(cell.training)) for cell in _cells(config, points, shared, given_tuples)
    )
    return SweepPlan("prior", config, "offset", cells, tuple(left_out), prior, {"": mean_rate})


def plan_count_noise(config: CountNoiseSweepConfig) -> SweepPlan:
    """The flip probability p of recorded counts; `count` and the clamped risk side by side unless others are named."""
    names_method = "method" in config.train or build(TrainConfig, config.train, "train").method != DEFAULT_METHOD
    if not config.runs and not names_method:
        config = config.model_copy(update={"runs": NOISE_RUNS})
    points = [_Point({"count_noise": rate}, {"count_noise": rate}) for rate in config.rates]
    return SweepPlan("count-noise", config, "count_noise", _cells(config, points))


def plan_gap(config: GapSweepConfig, mean_rates: Mapping[str, float]) -> SweepPlan:
    """π of U varied with α fixed, for one or several tuple specs (by name: ᾱ); training knows π.

    The name of the only spec of `make_tuples` is empty: it is no coordinate.
    """
    points, left_out = [], []
    for spec, mean_rate in mean_rates.items():
        for prior in config.priors:
            position: dict[str, Any] = {"tuples": spec} if spec else {}
            position |= {"prior": prior, "gap": round(abs(prior - mean_rate), DIGITS)}
            if (near := _too_near(prior, mean_rate, config.margin, "π")) is not None:
                left_out.append(LeftOut(position, near))
            else:
                making = {"tuples": spec} if spec else {}
                points.append(_Point(position, {**making, "prior": prior}, {"prior": prior}))
    if not points:
        raise UsageError("priors: every point lies within --margin of the mean tuple rate")
    cells = _cells(config, points, {"train": {"method": "ure"}})
    return SweepPlan("gap", config, "gap", cells, tuple(left_out), mean_rates=dict(mean_rates))


def plan_grid(config: GridSweepConfig, *, given_tuples: bool = False) -> SweepPlan:
    """Every combination of the varied settings."""
    if given_tuples and config.vary.get("make_tuples"):
        raise UsageError("--vary make_tuples.…: given --tuples are not made again", hint="Leave one of them out.")
    points = []
    for chosen in crossed(config.vary):
        position = {f"{group}.{key}": value for group, values in chosen.items() for key, value in values.items()}
        points.append(_Point(position, chosen.get("make_tuples", {}), chosen.get("train", {})))
    return SweepPlan("grid", config, None, _cells(config, points, {}, given_tuples))


def crossed(vary: Mapping[Any, Mapping[str, Sequence[Any]]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Every combination of the values of all settings, by their groups; one without settings where nothing varies."""
    axes = [(group, key, values) for group, keys in vary.items() for key, values in keys.items()]
    for group, key, values in axes:
        if key == "seed":
            raise UsageError(f"vary.{group}.seed: seeds are given once, by --seed or the list `seeds`")
        if not values or len({json.dumps(value, default=str) for value in values}) < len(values):
            raise UsageError(f"vary.{group}.{key}: needs at least one value, and each of them once")
    for combination in itertools.product(*(values for _, _, values in axes)):
        chosen: dict[str, dict[str, Any]] = {group: {} for group in vary}
        for (group, key, _), value in zip(axes, combination, strict=True):
            chosen[group][key] = value
        yield chosen


def _trusting_prior(training: TrainConfig) -> TrainConfig:
    """The same settings, with orientation by the prior if the method has an orientation."""
    if getattr(training.settings, "trust", "none") is not None:
        return training
    return training.model_copy(update={"settings": training.settings.model_copy(update={"trust": "prior"})})


def _too_near(prior: float, mean_rate: float, margin: float, symbol: str) -> str | None:
    gap = abs(prior - mean_rate)
    if gap >= margin - 1e-12:
        return None
    return f"{symbol} = {prior:g} is {gap:.3g} from the mean tuple rate ᾱ = {mean_rate:.4g}, less than {margin:g}"


def _cells(
    config: SweepConfig,
    points: Sequence[_Point],
    shared: Mapping[str, Mapping[str, Any]] | None = None,
    given_tuples: bool = False,
) -> tuple[SweepCell, ...]:
    """Points × runs × seeds. `shared` holds the sweep's defaults for settings that the user did not give."""
    _require_no_seed(config)
    if given_tuples and config.make_tuples:
        raise UsageError("make_tuples: given --tuples are not made again", hint="Leave one of them out.")
    assumed = shared or {}
    cells = []
    for (run, run_settings), point, seed in itertools.product((config.runs or {"": {}}).items(), points, config.seeds):
        making = {**assumed.get("make_tuples", {}), **config.make_tuples, **point.make_tuples}
        # The prior of U is known by construction here, so that it need not be written twice.
        known = {} if given_tuples or making.get("prior") is None else {"prior": making["prior"]}
        settings = {**known, **assumed.get("train", {}), **config.train, **run_settings, **point.train, "seed": seed}
        where = f"train with runs.{run}" if run else "train"
        training = build(TrainConfig, settings, where)
        training.known_prior(where)
        tuples = None if given_tuples else build(MakeTuplesConfig, {**making, "seed": seed}, "make_tuples")
        position = _parsed_position(point, training, tuples)
        cells.append(
            SweepCell(
                name=folder_name({**({"run": run} if run else {}), **position, "seed": seed}),
                run=run,
                position=position,
                seed=seed,
                tuples_name=folder_name({**_tuples_position(position, point.make_tuples), "seed": seed}),
                tuples=tuples,
                training=training,
            )
        )
    return tuple(cells)


def _require_no_seed(config: SweepConfig) -> None:
    groups = {"make_tuples": config.make_tuples, "train": config.train}
    for group, values in {**groups, **{f"runs.{name}": settings for name, settings in config.runs.items()}}.items():
        if "seed" in values:
            raise UsageError(f"{group}.seed: seeds are given once, by --seed or the list `seeds`")


def _parsed_position(point: _Point, training: TrainConfig, tuples: MakeTuplesConfig | None) -> dict[str, Any]:
    """Values of a grid as the settings parse them: in YAML 1e-3 is text, as a learning rate it is a number.

    A setting that the method does not have stays as it was given.
    """
    settings = {f"train.{name}": value for name, value in training.model_dump().items()}
    if tuples is not None:
        settings |= {f"make_tuples.{name}": value for name, value in tuples.model_dump().items()}
    return {key: settings.get(key, value) for key, value in point.position.items()}


def _tuples_position(position: Mapping[str, Any], make_tuples: Mapping[str, Any]) -> dict[str, Any]:
    """The coordinates that tuples depend on."""
    return {
        key: value for key, value in position.items() if key.rpartition(".")[2] in make_tuples and key[:5] != "train"
    }


def folder_name(coordinates: Mapping[str, Any]) -> str:
    """A folder name from the coordinates of a cell; a hash replaces what a folder name cannot hold."""
    name = ",".join(f"{key.rpartition('.')[2]}={_text(value)}" for key, value in coordinates.items())
    if re.fullmatch(r"[\w.+,=-]+", name, flags=re.ASCII) and len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(json.dumps(dict(coordinates), sort_keys=True, default=str).encode()).hexdigest()[:10]
    return f"{re.sub(r'[^A-Za-z0-9.+,=-]+', '_', name)[:LONGEST_NAME]}-{digest}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    text = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    # A colon is not for folders everywhere: 3:1 is 1-of-3.
    return re.sub(r"^(\d+):(\d+)$", r"\2-of-\1", text)
