"""Which method trains where none is named: `count`, or `ure` where a setting of the risk is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.config import TrainConfig
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.learning.methods.ure import RiskSettings
from ntmp_cli.settings import load
from ntmp_cli.stages.pipeline import resolve

# Values that are not the default, and some that are: it is the asking that counts.
RISK = {
    "clamp": "abs",
    "clamp_scope": "class",
    "loss": "sigmoid",
    "mixing": "flat",
    "margin": 0.01,
    "margin_policy": "skip",
    "tuple_weights": "random",
    "intercept": "shares",
}
OTHERS = {"epochs": 3, "lr": 0.5, "model": "linear", "warmup": "none", "entropy_weight": 0.5}


def words(settings: dict[str, object]) -> list[object]:
    return [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", value)]


def as_yaml(folder: Path, settings: dict[str, object]) -> list[object]:
    file = folder / "settings.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return ["--config", file]


def as_sets(settings: dict[str, object]) -> list[object]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def method(ntmp_done, tuples, tmp_path):
    """(method in the manifest, its name in tables) of a tiny training."""

    def trained(*more: object) -> tuple[str, str]:
        out = tmp_path / "run"
        shape = ("--model", "linear", "--epochs", 1, "--prior", 0.5)
        label = ntmp_done("train", "--tuples", tuples, *shape, *more, "--json", "--out", out).json["method"]
        return open_artifact(out).manifest.config["method"], label

    return trained


def test_the_settings_of_the_risk_are_all_tried():
    # --count-noise is also one of `count`, and so asks for no other method.
    assert RISK.keys() == RiskSettings.model_fields.keys() - {"count_noise"}


def test_without_a_name_it_is_count(method):
    assert method() == ("count", "count")


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"clamp": "abs"}, "ure+abs"),
        ({"clamp": "none"}, "ure"),
        ({"clamp_scope": "source"}, "ure+relu/source"),
        ({"loss": "logistic"}, "ure+relu"),
        ({"mixing": "flat"}, "ure+relu"),
    ],
)
@pytest.mark.parametrize("way", ["options", "yaml", "set"])
def test_a_setting_of_the_risk_means_the_risk(settings, label, way, method, tmp_path):
    given = {"options": words(settings), "yaml": as_yaml(tmp_path, settings), "set": as_sets(settings)}
    assert method(*given[way]) == ("ure", label)


@pytest.mark.parametrize("way", ["options", "yaml", "set"])
def test_a_method_that_is_named_wins(way, method, tmp_path):
    settings = {"clamp": "abs", "method": "count-plain"}
    given = {"options": words(settings), "yaml": as_yaml(tmp_path, settings), "set": as_sets(settings)}
    assert method(*given[way]) == ("count-plain", "count-plain")


def test_a_method_named_in_the_file_wins_over_a_clamp_on_the_command_line(method, tmp_path):
    assert method(*as_yaml(tmp_path, {"method": "uu"}), "--clamp", "abs") == ("uu", "uu")


def test_a_method_named_on_the_command_line_wins_over_a_clamp_in_the_file(method, tmp_path):
    assert method(*as_yaml(tmp_path, {"clamp": "abs"}), "--method", "count") == ("count", "count")


@pytest.mark.parametrize("name", sorted(RISK))
def test_every_setting_of_the_risk_names_it_even_at_its_default(name, tmp_path):
    default = RiskSettings.model_fields[name].default
    for value in (RISK[name], default):
        _, file = as_yaml(tmp_path, {"prior": 0.5, name: value})
        configs = [
            load(TrainConfig, file),
            load(TrainConfig, None, ["prior=0.5", f"{name}={value}"]),
            load(TrainConfig, None, [], {"prior": 0.5, name: value}),
        ]
        assert [config.method for config in configs] == ["ure"] * 3
        assert configs[0] == configs[1] == configs[2]


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_no_other_setting_changes_the_method(name, tmp_path):
    _, file = as_yaml(tmp_path, {"prior": 0.5, name: OTHERS[name]})
    assert load(TrainConfig, file).method == "count"
    assert load(TrainConfig, None, ["prior=0.5", f"{name}={OTHERS[name]}"]).method == "count"


def test_runs_of_a_study_choose_in_the_same_way():
    runs = {"a": {}, "b": {"clamp": "abs"}, "c": {"method": "count", "clamp": "abs"}}
    study = resolve(PipelineConfig(make_tuples={"prior": 0.5}, runs=runs), "study")
    assert {name: config.method for (name, _), config in study.trainings.items()} == {
        "a": "count",
        "b": "ure",
        "c": "count",
    }
    shared = PipelineConfig(make_tuples={"prior": 0.5}, train={"loss": "ramp"}, runs={"a": {}, "d": {"method": "uu"}})
    study = resolve(shared, "study")
    assert {name: config.method for (name, _), config in study.trainings.items()} == {"a": "ure", "d": "uu"}
