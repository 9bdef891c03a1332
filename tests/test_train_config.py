"""The settings of a training are composed of what every training has and what its method declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.methods.count import CountSettings
from ntmp_cli.learning.methods.ure import RiskSettings
from ntmp_cli.settings import MethodSettings, load

NAMES = methods.names()
# One value per setting of a method that is not its default.
OTHER_VALUES: dict[str, Any] = {
    "assume": "prior<0.5",
    "clamp": "abs",
    "clamp_scope": "source",
    "clip_prompts": ("a cat", "a dog"),
    "count_noise": 0.25,
    "entropy_weight": 0.5,
    "loss": "ramp",
    "margin": 0.125,
    "margin_policy": "skip",
    "mask_rate": 0.5,
    "mixing": "flat",
    "tuple_weights": "random",
    "intercept": "shares",
    "self_training": 0.5,
    "membership": 0.5,
    "trust": "counts",
    "teacher": "work/run",
    "warmup": "none",
}


def settings_of(name: str) -> dict[str, Any]:
    return {key: OTHER_VALUES[key] for key in methods.get(name).settings.model_fields}


def test_every_setting_of_a_method_is_tried_here():
    declared = {key for name in NAMES for key in methods.get(name).settings.model_fields}
    assert declared == OTHER_VALUES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_a_method_are_given_and_stored_flat(name):
    given = {"method": name, "prior": 0.3, "epochs": 7, **settings_of(name)}
    config = TrainConfig.model_validate(given)
    assert type(config.settings) is methods.get(name).settings
    assert config.settings.model_dump() == settings_of(name)
    stored = config.model_dump()
    assert given.items() <= stored.items()
    assert not {"settings", "ignored"} & stored.keys()
    assert TrainConfig.model_validate(stored) == config
    assert TrainConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("name", NAMES)
def test_what_was_given_alone_is_stored_alone_on_request(name):
    given = {"method": name, "prior": 0.3, **settings_of(name)}
    assert TrainConfig.model_validate(given).model_dump(exclude_unset=True) == given


def test_no_setting_of_a_method_has_the_name_of_a_shared_one():
    assert (
        not {key for name in NAMES for key in methods.get(name).settings.model_fields} & TrainConfig.model_fields.keys()
    )


def test_a_setting_of_several_methods_is_the_same_in_all():
    """The command line has one option for it."""
    seen: dict[str, Any] = {}
    for name in NAMES:
        for key, field in methods.get(name).settings.model_fields.items():
            same = (field.annotation, field.default, field.description, field.metadata)
            assert seen.setdefault(key, same) == same, (name, key)


def test_settings_are_described_with_the_methods_that_have_them():
    described = TrainConfig.described()
    assert described["clamp"].description == "Correction f of the partial risks. (ure)"
    assert described["margin"].description.endswith("(count, ure, uu, uucor)")
    assert not {"settings", "ignored"} & described.keys()
    # The model of the method itself stays as it was.
    assert RiskSettings.model_fields["clamp"].description == "Correction f of the partial risks."


# --- which method ----------------------------------------------------------------------------------


def test_a_clamp_alone_means_the_risk():
    config = TrainConfig(clamp="abs")
    assert (config.method, config.settings, config.ignored) == ("ure", RiskSettings(clamp="abs"), ())


def test_without_any_setting_of_a_method_it_is_count():
    assert TrainConfig() == TrainConfig(method="count")
    assert TrainConfig().settings == CountSettings()


def test_settings_that_imply_a_method_are_settings_of_it_and_of_no_second_one():
    implying = {name: methods.get(name).implied_by for name in NAMES if methods.get(name).implied_by}
    assert implying == {"ure": RiskSettings.model_fields.keys() - {"count_noise"}}


def test_settings_of_other_methods_are_set_aside_by_name():
    config = TrainConfig(method="discriminant", clamp="abs", warmup="none", count_noise=0.1)
    assert config.ignored == ("clamp", "warmup")
    assert config.settings.model_dump() == {"count_noise": 0.1}
    assert not {"clamp", "warmup"} & config.model_dump().keys()


def test_a_setting_of_another_method_that_is_left_out_is_not_set_aside():
    assert TrainConfig(method="count", clamp=None).ignored == ()


def test_a_value_of_another_method_need_not_be_valid():
    """It has no effect; the warning says so."""
    assert TrainConfig(method="count", clamp="unheard of").ignored == ("clamp",)


# --- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epohcs": 3}, "epohcs: unknown setting; did you mean 'epochs'?"),
        ({"clmap": "abs"}, "clmap: unknown setting; did you mean 'clamp'?"),
        ({"method": "count", "entropy_wieght": 1}, "entropy_wieght: unknown setting; did you mean 'entropy_weight'?"),
        ({"clamp": "absolute"}, "clamp: input should be 'none', 'relu' or 'abs' (got 'absolute')"),
        ({"method": "count", "count_noise": 1}, "count_noise: input should be less than 1 (got 1)"),
        ({"epochs": 0}, "epochs: input should be greater than or equal to 1 (got 0)"),
        ({"method": "cuont"}, "unknown method 'cuont'; did you mean 'count'?"),
    ],
)
def test_a_mistake_is_named_as_the_user_wrote_it(values, message, tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    for given in ((file, []), (None, [f"{key}={value}" for key, value in values.items()])):
        with pytest.raises(UsageError) as error:
            load(TrainConfig, *given)
        assert error.value.message.endswith(message)
        assert "settings" not in error.value.message.removeprefix(str(tmp_path))


def test_problems_of_shared_and_of_own_settings_are_shown_together():
    with pytest.raises(UsageError) as error:
        load(TrainConfig, None, ["epochs=0", "mask_rate=2", "warmpu=risk"])
    assert error.value.message.splitlines()[0] == "configuration: 3 problems"
    assert {line.split(":")[0].strip() for line in error.value.message.splitlines()[1:]} == {
        "epochs",
        "mask_rate",
        "warmpu",
    }


def test_a_config_without_a_prior_says_so_when_it_is_needed():
    assert TrainConfig(prior=0.3).known_prior() == 0.3
    with pytest.raises(UsageError) as error:
        TrainConfig().known_prior()
    assert error.value.message.startswith("configuration: prior: required, but not given (--prior X, or --prior-from")
    with pytest.raises(UsageError, match="only the method 'count' estimates it while training"):
        TrainConfig(prior="estimate").known_prior()


def test_configs_and_settings_are_immutable():
    config = TrainConfig(clamp="abs")
    for target, name in ((config, "epochs"), (config.settings, "clamp")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(target, name, 1)
    assert issubclass(type(config.settings), MethodSettings)
