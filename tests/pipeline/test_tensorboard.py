"""--tensorboard writes what the history says, and nothing is lost without the package."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import HISTORY
from ntmp_cli.commands.progress import watching
from ntmp_cli.learning.results import EpochRecord

TUPLES = ("make-tuples", "--dataset", "digits", "--prior", 0.5, "--num-tuples", 40, "--unlabeled-size", 60)
TRAINING = ("train", "--prior", 0.5, "--model", "linear", "--epochs", 3, "--clamp", "abs")


@pytest.fixture
def tuples(ntmp_done, tmp_path: Path) -> Path:
    ntmp_done(*TUPLES, "--out", tmp_path / "tuples")
    return tmp_path / "tuples"


def test_events_hold_the_history_of_the_run(ntmp_done, tuples: Path, tmp_path: Path) -> None:
    ntmp_done(*TRAINING, "--tuples", tuples, "--tensorboard", tmp_path / "events", "--out", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    history = read_json_lines(open_artifact(tmp_path / "run", "run"), HISTORY)
    for key in ("loss", "heldout_risk", "risk_terms/positive", "negative_rate/negative", "lr"):
        group, _, part = key.partition("/")
        expected = [record[group][part] if part else record[group] for record in history]
        scalars = events.Scalars(key)
        assert [event.step for event in scalars] == [1, 2, 3]
        assert [event.value for event in scalars] == pytest.approx(expected, rel=1e-6)
    assert all(event.value > 0 for event in events.Scalars("instances_per_second"))


def test_the_run_is_the_same_with_and_without(ntmp_done, tuples: Path, tmp_path: Path) -> None:
    plain = ntmp_done(*TRAINING, "--tuples", tuples, "--out", tmp_path / "a", "--json").json
    watched = ntmp_done(
        *TRAINING, "--tuples", tuples, "--out", tmp_path / "b", "--tensorboard", tmp_path / "events", "--json"
    ).json
    assert plain["manifest_sha256"] == watched["manifest_sha256"]


def test_without_the_package_one_message_says_how_to_get_it(
    ntmp, tuples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    ended = ntmp(*TRAINING, "--tuples", tuples, "--tensorboard", tmp_path / "events", "--out", tmp_path / "run")
    assert ended.code == 2
    assert ended.err == "error: --tensorboard needs the package tensorboard\npip install 'ntmp[tensorboard]'\n"
    assert not (tmp_path / "run").exists()


def test_events_that_cannot_be_written_are_one_warning_and_cost_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    monkeypatch.setattr(handler, "emit", lambda record: said.append(record.getMessage()))
    logging.getLogger("ntmp_cli").addHandler(handler)
    try:
        with watching(3, tmp_path / "events") as watcher:
            shutil.rmtree(tmp_path / "events")  # as good as a full disk: the next write fails
            for epoch in (1, 2, 3):
                watcher.epoch(EpochRecord(epoch, {"epoch": epoch, "loss": 0.5, "heldout_risk": None}, None, 1.0, 10))
    finally:
        logging.getLogger("ntmp_cli").removeHandler(handler)
    assert said == [f"--tensorboard {tmp_path / 'events'}: no more events are written (No such file or directory)"]
    assert "Traceback" not in capfd.readouterr().err
