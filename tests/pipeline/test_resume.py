"""Trainings that were killed or interrupted go on to the same bytes as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.checkpoints import CheckpointStore
from ntmp_cli.artifacts.priors import Prior
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.training_data import training_shares
from ntmp_cli.stages.train import training_plan

KILL, INT, TERM = signal.SIGKILL, signal.SIGINT, signal.SIGTERM
EPOCHS, STEPS = 5, 6
SAME = ("manifest.json", "model.safetensors", "history.jsonl", "scores.h5", "oracle/test-labels.h5")
# Averaged weights, and the best epoch is not the last: all of the state that a checkpoint must carry.
SETTINGS = ("--method", "ure", "--prior", 0.5, "--model", "mlp", "--epochs", EPOCHS, "--ema", 0.99)
SETTINGS += ("--select", "best", "--lr", 0.03)


def training(tuples: Path, *more: object) -> tuple[object, ...]:
    return "train", "--tuples", tuples, *SETTINGS, "--checkpoint-seconds", 0, *more


def content(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in SAME}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def uninterrupted(launcher, tuples, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    ended = launcher.run(*training(tuples), "--json", "--out", out)
    assert ended.code == 0, ended.err
    # What the tests below presume.
    assert [record["batches"] for record in ended.json["history"]] == [STEPS] * EPOCHS
    assert 1 < ended.json["selected_epoch"] < EPOCHS
    return out


def interrupt(launcher, tuples, out: Path, at: tuple[int, int], *signals: int, resume: bool = False):
    more = ("--resume",) if resume else ()
    return launcher.run(*training(tuples), *more, "--out", out, at_step=at, signals=signals)


@pytest.mark.slow
@pytest.mark.parametrize("at", [(2, 1), (3, 4), (5, 6)])
def test_resuming_after_a_kill_gives_the_same_bytes(at, launcher, tuples, uninterrupted, tmp_path):
    out = tmp_path / "run"
    assert interrupt(launcher, tuples, out, at, KILL).code == -KILL
    assert names(tmp_path) == [".run.checkpoint"]
    # It would be killed again in epoch 1, did it not go on from the checkpoint.
    ended = interrupt(launcher, tuples, out, (1, 1), KILL, resume=True)
    assert ended.code == 0, ended.err
    assert content(out) == content(uninterrupted)
    assert names(tmp_path) == ["run"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("at", "stopped"),
    [((1, 2), (1, 2)), ((3, 4), (3, 4)), ((4, 6), (5, 0)), ((5, 5), (5, 5))],
    ids=["first epoch", "mid-epoch", "between epochs", "last batch"],
)
def test_resuming_after_an_interrupt_gives_the_same_bytes(
    number, at, stopped, launcher, tuples, uninterrupted, tmp_path
):
    out = tmp_path / "run"
    ended = interrupt(launcher, tuples, out, at, number)
    assert ended.code == 130
    epoch, step = stopped
    message = f"error: interrupted in epoch {epoch} of {EPOCHS}, step {step} of {STEPS}; the state is saved\n"
    assert message in ended.err
    assert "Repeat the command to continue; a single training needs the setting `resume`." in ended.err
    assert ended.out == ""
    assert names(tmp_path) == [".run.checkpoint"]
    ended = interrupt(launcher, tuples, out, (1, 1), KILL, resume=True)
    assert ended.code == 0, ended.err
    assert content(out) == content(uninterrupted)
    assert names(tmp_path) == ["run"]


def test_an_interrupt_after_the_last_step_does_not_waste_the_training(launcher, tuples, uninterrupted, tmp_path):
    ended = interrupt(launcher, tuples, tmp_path / "run", (EPOCHS, STEPS), INT)
    assert ended.code == 0, ended.err
    assert content(tmp_path / "run") == content(uninterrupted)


def test_a_training_can_be_interrupted_again_and_again(launcher, tuples, uninterrupted, tmp_path):
    out = tmp_path / "run"
    moments = [((1, 3), INT), ((1, 5), INT), ((3, 2), KILL), ((4, 6), TERM)]
    for number, (at, sent) in enumerate(moments):
        ended = interrupt(launcher, tuples, out, at, sent, resume=number > 0)
        assert ended.code == (-KILL if sent == KILL else 130)
    assert interrupt(launcher, tuples, out, (1, 1), KILL, resume=True).code == 0
    assert content(out) == content(uninterrupted)


def test_a_second_ctrl_c_stops_at_once(launcher, tuples, tmp_path):
    ended = interrupt(launcher, tuples, tmp_path / "run", (1, 2), INT, INT)
    assert ended.code == 130
    assert "error: interrupted; nothing was published\n" in ended.err
    assert names(tmp_path) == []


@pytest.mark.slow
def test_resuming_inside_a_later_window_of_large_data(launcher, tmp_path):
    """Data beyond the memory budget are visited window by window; the order must come back, too."""
    tuples, data = tmp_path / "tuples", "gaussians:dim=100,size=4000,test=50"
    options = ("--dataset", data, "--prior", 0.5, "--num-tuples", 900, "--shard-size", 200)
    assert launcher.run("make-tuples", *options, "--out", tuples).code == 0
    settings = {"prior": 0.5, "model": "mlp", "epochs": 2, "batch_size": 500, "memory_mb": 1}
    assert training_shares(StoredTuples(open_artifact(tuples)), TrainConfig(**settings))[0].windows == 2
    options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
    command = ("train", "--tuples", tuples, *options)
    assert launcher.run(*command, "--out", tmp_path / "whole").code == 0
    ended = launcher.run(*command, "--out", tmp_path / "cut", at_step=(2, 8), signals=[INT])
    assert (ended.code, "in epoch 2 of 2, step 8 of 10" in ended.err) == (130, True)
    assert launcher.run(*command, "--resume", "--out", tmp_path / "cut").code == 0
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_resuming_without_a_checkpoint_starts_at_the_first_epoch(launcher, tuples, uninterrupted, tmp_path):
    out = tmp_path / "run"
    ended = launcher.run(*training(tuples), "--resume", "--out", out)
    assert ended.code == 0
    assert f"{out}: no checkpoint to resume from; starting at the first epoch\n" in ended.err
    assert content(out) == content(uninterrupted)


# --- a checkpoint that does not fit -------------------------------------------------------------


@pytest.fixture
def interrupted(launcher, tuples, tmp_path) -> Path:
    out = tmp_path / "run"
    assert interrupt(launcher, tuples, out, (2, 3), INT).code == 130
    return out


def test_without_resume_a_warning_is_given_and_the_training_starts_afresh(
    ntmp, launcher, tuples, uninterrupted, interrupted
):
    ended = launcher.run(*training(tuples), "--out", interrupted)
    assert ended.code == 0
    assert (
        f"warning: {interrupted}: a checkpoint of an earlier, unfinished run is ignored; --resume continues it\n"
    ) in ended.err
    assert content(interrupted) == content(uninterrupted)
    assert names(interrupted.parent) == ["run"]


@pytest.mark.parametrize("change", [("--epochs", 6), ("--seed", 1), ("--clamp", "none"), ("--ema", 0)])
def test_a_checkpoint_of_other_settings_is_refused(change, ntmp, tuples, interrupted):
    state = interrupted.parent / ".run.checkpoint" / "state.pt"
    before = state.read_bytes()
    ended = ntmp(*training(tuples, *change), "--resume", "--out", interrupted)
    assert ended.code == 2
    assert f"error: {state}: the checkpoint belongs to other tuples or settings\n" in ended.err
    assert "or start again without --resume." in ended.err
    assert state.read_bytes() == before
    assert names(interrupted.parent) == [".run.checkpoint"]


def test_a_checkpoint_of_other_tuples_is_refused(ntmp, ntmp_done, interrupted, tmp_path):
    other = tmp_path / "elsewhere" / "tuples"
    ntmp_done("make-tuples", "--prior", 0.5, "--num-tuples", 40, "--seed", 9, "--out", other)
    ended = ntmp(*training(other), "--resume", "--out", interrupted)
    assert ended.code == 2
    assert "the checkpoint belongs to other tuples or settings" in ended.err


def test_a_damaged_checkpoint_is_refused(ntmp, tuples, interrupted):
    state = interrupted.parent / ".run.checkpoint" / "state.pt"
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])
    ended = ntmp(*training(tuples), "--resume", "--out", interrupted)
    assert ended.code == 3
    assert f"error: {state}: damaged: not a readable checkpoint\nStart again without --resume.\n" in ended.err
    assert not interrupted.exists()


def test_a_flipped_bit_is_noticed_and_nothing_is_lost(ntmp, launcher, tuples, uninterrupted, interrupted):
    """Most bits of a checkpoint are those of weights, and any weights can be trained on."""
    state = interrupted.parent / ".run.checkpoint" / "state.pt"
    whole = state.read_bytes()
    for byte in range(0, len(whole), len(whole) // 12):
        flipped = bytearray(whole)
        flipped[byte] ^= 4
        state.write_bytes(flipped)
        ended = ntmp(*training(tuples), "--resume", "--out", interrupted)
        assert ended.code == 3
        assert f"error: {state}: damaged: not a readable checkpoint\nStart again without --resume.\n" in ended.err
        assert state.read_bytes() == flipped
        assert names(interrupted.parent) == [".run.checkpoint"]
    state.write_bytes(whole)
    assert launcher.run(*training(tuples), "--resume", "--out", interrupted).code == 0
    assert content(interrupted) == content(uninterrupted)


def of_other_shape(value):
    return torch.zeros(tuple(2 * size for size in value.shape)) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("group", ["model", "average", "optimizer", "weights"])
def test_a_checkpoint_of_other_shapes_is_refused(group, launcher, tuples, interrupted):
    """Such as another version of ntmp or torch could leave; its bytes are as they were written."""
    plan = training_plan(config(), open_artifact(tuples), Prior(config().known_prior(), "given"))
    store = CheckpointStore(interrupted, plan, resume="yes", every_seconds=0)
    state = store.load()
    tensors = state["optimizer"]["state"][0] if group == "optimizer" else state[group]
    for name in list(tensors):
        tensors[name] = of_other_shape(tensors[name])
    store.save(state)
    ended = launcher.run(*training(tuples), "--resume", "--out", interrupted)
    assert ended.code == 3, ended.err
    assert f"error: {store.file}: the checkpoint does not fit this training: {group}" in ended.err
    assert ended.err.endswith("Start again without --resume.\n")
    assert names(interrupted.parent) == [".run.checkpoint"]


def config() -> TrainConfig:
    """The settings of the trainings above."""
    settings = {"method": "ure", "prior": 0.5, "model": "mlp", "epochs": EPOCHS, "ema": 0.99}
    return TrainConfig(**settings, select="best", lr=0.03)


@pytest.mark.slow
def test_a_study_with_a_damaged_checkpoint_says_what_to_remove(launcher, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "make_tuples: {prior: 0.5, num_tuples: 40, unlabeled_size: 60}\ntrain: {model: linear, epochs: 3}\n"
        "seeds: [0]\nruns: {only: {clamp: abs}}\n"
    )
    study = ("run", tmp_path / "study.yaml", "--out", tmp_path / "cut")
    assert launcher.run(*study, at_step=(2, 3), signals=[INT]).code == 130
    folder = tmp_path / "cut" / "runs" / ".only-0.checkpoint"
    (folder / "state.pt").write_bytes((folder / "state.pt").read_bytes()[:-1])
    ended = launcher.run(*study)
    assert ended.code == 3
    assert ended.err.endswith(f"damaged: not a readable checkpoint\nRemove {folder} and start again.\n")
    shutil.rmtree(folder)
    assert launcher.run(*study).code == 0


# --- the other ways in --------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_study_goes_on_where_it_stopped(launcher, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "make_tuples: {prior: 0.5, num_tuples: 40, unlabeled_size: 60}\n"
        "train: {model: linear, epochs: 3}\n"
        "seeds: [0]\nruns: {only: {clamp: abs}}\n"
    )
    whole, cut = (("run", tmp_path / "study.yaml", "--out", tmp_path / name) for name in ("whole", "cut"))
    assert launcher.run(*whole).code == 0
    ended = launcher.run(*cut, at_step=(2, 3), signals=[INT])
    assert ended.code == 130
    assert "interrupted in epoch 2 of 3, step 3 of 6; the state is saved" in ended.err
    assert names(tmp_path / "cut" / "runs") == [".only-0.checkpoint"]
    again = launcher.run(*cut, at_step=(1, 1), signals=[KILL])
    assert again.code == 0, again.err
    assert again.err.startswith("unchanged tuples-0\n")
    assert content(tmp_path / "cut/runs/only-0") == content(tmp_path / "whole/runs/only-0")
    assert names(tmp_path / "cut" / "runs") == ["only-0"]


@pytest.mark.slow
def test_a_changed_study_does_not_go_on_from_the_old_checkpoint(launcher, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "make_tuples: {prior: 0.5, num_tuples: 40, unlabeled_size: 60}\n"
        "train: {model: linear, epochs: 3}\n"
        "seeds: [0]\nruns: {only: {clamp: abs}}\n"
    )
    study = ("run", tmp_path / "study.yaml", "--out", tmp_path / "cut")
    assert launcher.run(*study, at_step=(2, 3), signals=[INT]).code == 130
    assert launcher.run(*study, "--set", "train.lr=0.01", at_step=(1, 1), signals=[KILL]).code == -KILL
    assert launcher.run(*study, "--set", "train.lr=0.01").code == 0
    assert names(tmp_path / "cut" / "runs") == ["only-0"]


@pytest.mark.slow
def test_ctrl_c_stops_the_program_itself(tuples, tmp_path):
    """As a user has it: a process of its own, and a signal from outside at no particular moment."""
    words = ["train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 5000, "--threads", 1]
    words += ["--checkpoint-seconds", 0, "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "ntmp_cli", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        state = tmp_path / ".run.checkpoint" / "state.pt"
        while not state.exists() and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "of 5000, step" in err
    assert "; the state is saved\nRepeat the command to continue; a single training needs the setting `resume`." in err
    assert "Traceback" not in err
    assert out == ""
    assert names(tmp_path) == [".run.checkpoint"]
