"""Settings are read from files that may be damaged or hostile: every problem is one UsageError."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import Field

from ntmp_cli import settings
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.settings import _assign, load, read_yaml, shown

DOUBLING = "a: &a [1, 1]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnopqrst"))
REFUSED = {
    "deep": ("epochs: " + "[" * 1100, "not valid YAML: nested too deeply"),
    "deep mapping": ("epochs: " + "{a: " * 600 + "}" * 600, "not valid YAML: nested too deeply"),
    "multiplying": (DOUBLING, "more than 100,000 values, or more than 20 levels of nesting"),
    "empty lists": (DOUBLING.replace("1, 1", "[], []"), "more than 100,000 values, or more than 20 levels of nesting"),
    "inside itself": ("epochs: &a [*a]", "more than 100,000 values, or more than 20 levels of nesting"),
    "21 levels": ("epochs: " + "[" * 21 + "]" * 21, "more than 20 levels of nesting"),
    "no date": ("epochs: 2001-99-99", "not valid YAML: month must be in 1..12"),
    "date": ("epochs: 2001-09-09", "2001-09-09 is a date, and no setting is a date; quote it"),
    "digits": ("epochs: " + "9" * 5000, "not valid YAML: Exceeds the limit (4300 digits)"),
    "hexadecimal": ("epochs: 0x" + "f" * 9000, "a number of more than 64 bits, too large for any setting"),
    "NaN": ("lr: .nan", "lr: input should be a finite number (got nan)"),
    "infinity": ("lr: .inf", "lr: input should be a finite number (got inf)"),
    "bytes": ("epochs: !!binary aGk=", "b'hi' is a bytes, and no setting is a bytes; quote it"),
    "an object": ("epochs: !!python/object:os.system x", "line 1: not valid YAML: could not determine a constructor"),
    "NUL": ("a: \x00", "not valid YAML: unacceptable character"),
    "no mapping": ("5", "expected a mapping of setting names to values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_configuration_can_be_is_refused(name: str, tmp_path: Path) -> None:
    text, says = REFUSED[name]
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load(TrainConfig, tmp_path / "c.yaml")
    assert caught.value.message.startswith(str(tmp_path / "c.yaml"))
    assert says in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("value", ["[" * 1100, "9" * 5000, "2001-99-99", "0x" + "f" * 9000, "&a [*a]", "2001-09-09"])
def test_what_no_set_value_can_be_is_refused(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(TrainConfig, None, [f"epochs={value}"])
    assert caught.value.message.startswith("--set epochs")
    assert len(caught.value.message) < 500


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"model: caf\xe9")
    with pytest.raises(UsageError, match="not valid YAML: not UTF-8 text"):
        read_yaml(tmp_path / "c.yaml")


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="/dev/zero: more than 4,194,304 bytes, too large for a configuration"):
        read_yaml(Path("/dev/zero"))


def test_as_many_bytes_as_allowed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MOST_BYTES", 100)
    (tmp_path / "c.yaml").write_bytes(b"epochs: 3\n#" + b"x" * 89)
    assert read_yaml(tmp_path / "c.yaml") == {"epochs": 3}
    (tmp_path / "c.yaml").write_bytes(b"epochs: 3\n#" + b"x" * 90)
    with pytest.raises(UsageError, match="more than 100 bytes"):
        read_yaml(tmp_path / "c.yaml")


def test_a_pipe_is_read_as_a_shell_gives_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("epochs: 3\n",))
    writer.start()
    assert read_yaml(tmp_path / "pipe") == {"epochs": 3}
    writer.join()


def test_as_many_levels_and_values_as_allowed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "MOST_VALUES", 100)
    deep = "a: " + "[" * 19 + "1" + "]" * 19  # with the key and the lists 21 values
    (tmp_path / "c.yaml").write_text(f"{deep}\nb: [{'1, ' * 77}]\n")
    assert len(read_yaml(tmp_path / "c.yaml")["b"]) == 77
    (tmp_path / "c.yaml").write_text(f"{deep}\nb: [{'1, ' * 78}]\n")
    with pytest.raises(UsageError, match="more than 100 values"):
        read_yaml(tmp_path / "c.yaml")


def test_a_set_value_joins_the_group_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("train: {epochs: 3, seed: 1}\n")
    values = [read_yaml(tmp_path / "c.yaml"), {}]
    for value in values:
        _assign(value, "train.epochs=5")
        _assign(value, "train.lr=0.1")
    assert values == [{"train": {"epochs": 5, "seed": 1, "lr": 0.1}}, {"train": {"epochs": 5, "lr": 0.1}}]
    with pytest.raises(UsageError, match=r"--set train\.epochs\.x=1: 'epochs' is not a group of settings"):
        _assign(values[0], "train.epochs.x=1")


def test_an_unknown_setting_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("epoch: 3\n")
    with pytest.raises(UsageError, match=r"epoch: unknown setting; did you mean 'epochs'"):
        load(TrainConfig, tmp_path / "c.yaml")


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert shown("a" * 300) == "'" + "a" * 199 + "…"
    assert shown("a" * 198) == "'" + "a" * 198 + "'"
    assert shown("b") == "'b'"


class Inner(settings.Settings):
    prior: float


class Outer(settings.Settings):
    prior: float
    runs: dict[str, int]
    inner: Inner
    others: dict[str, Inner] = Field(default_factory=dict)


def test_a_missing_setting_is_named_with_the_way_to_give_it() -> None:
    with pytest.raises(UsageError) as error:
        settings.build(Outer, {"inner": {}}, "study.yaml")
    assert error.value.message == (
        "study.yaml: 3 problems\n"
        "  prior: required, but not given (--prior)\n"
        "  runs: required, but not given (in the file, or --set runs=VALUE)\n"
        "  inner.prior: required, but not given (in the file, or --set inner.prior=VALUE)"
    )


def test_an_unknown_setting_of_a_named_group_is_refused() -> None:
    with pytest.raises(UsageError, match=r"others\.a\.priors: unknown setting"):
        settings.build(
            Outer, {"prior": 1, "runs": {}, "inner": {"prior": 1}, "others": {"a": {"prior": 1, "priors": 2}}}, "s"
        )


def test_numbers_of_64_bits_are_the_largest_that_a_setting_may_have() -> None:
    settings._require_plain({"seed": 2**64 - 1}, "s.yaml")
    with pytest.raises(UsageError, match="a number of more than 64 bits"):
        settings._require_plain({"seed": 2**64}, "s.yaml")


class OfMethod(settings.Settings):
    settings: Inner


def test_a_missing_setting_of_a_method_is_named_as_an_option() -> None:
    with pytest.raises(UsageError, match=r"^s: prior: required, but not given \(--prior\)$"):
        settings.build(OfMethod, {"settings": {}}, "s")
