"""A disk that is full ends every stage with one message and exit code 3, and leaves no trace.

A limit on the size of files (RLIMIT_FSIZE) stands for the disk: writes fail in the same places, with another reason,
and no right to mount one is needed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import own_data
import pytest
from test_resume import content, interrupt, training

REASON = "cannot be written: File too large\nNothing was changed. Free some space, or write elsewhere.\n"
LINEAR = ("--model", "linear", "--epochs", 1, "--trust", "prior")

Words = Callable[[Path], list[object]]
STAGES: dict[str, Words] = {
    "make-tuples": lambda at: ["make-tuples", "--prior", 0.5, "--num-tuples", 40, "--shard-size", 20],
    "import-tuples": lambda at: ["import-tuples", at / "tuples.csv", "--unlabeled", at / "unlabeled.csv"],
    "estimate-prior": lambda at: [
        *("estimate-prior", "--tuples", at / "gaussians", "--model", "linear", "--epochs", 3, "--lr", 0.05),
        *("--resamples", 20),
    ],
    "train": lambda at: ["train", "--tuples", at / "tuples", "--prior", 0.5, *LINEAR],
    "train --encoder": lambda at: [
        *("train", "--tuples", at / "tuples", "--prior", 0.5, "--method", "discriminant", "--encoder", "random"),
    ],
    "evaluate": lambda at: ["evaluate", at / "run-abs-0"],
    "report": lambda at: ["report", at / "eval"],
    "design": lambda at: ["design", "--tuples", at / "tuples"],
    "audit": lambda at: ["audit", "--tuples", at / "tuples"],
    "export": lambda at: ["export", at / "run-abs-0", "--format", "torchscript"],
    "predict csv": lambda at: ["predict", at / "run-abs-0", at / "digits.npy"],
    "predict parquet": lambda at: ["predict", at / "run-abs-0", at / "digits.npy"],
    "inspect": lambda at: ["inspect", at / "tuples"],
}
# These differ from the others only in how long they take.
LONG = ("report", "estimate-prior", "design")
NAMES = {"predict csv": "out.csv", "predict parquet": "out.parquet", "inspect": "out.png"}


@pytest.fixture(scope="module")
def shared(study, ntmp_done, tmp_path_factory) -> Path:
    """What the stages read."""
    folder = tmp_path_factory.mktemp("full") / "study"
    shutil.copytree(study.tuples.parent, folder)
    own_data.write_csv(folder)
    easy = ("--dataset", "gaussians:size=2000,separation=4,test=50", "--prior", 0.6, "--num-tuples", 300)
    ntmp_done("make-tuples", *easy, "--out", folder / "gaussians")
    np.save(folder / "digits.npy", np.random.default_rng(0).integers(0, 16, (300, 1, 8, 8), dtype=np.uint8))
    return folder


def sizes(out: Path) -> list[int]:
    """Of every file that a stage wrote, with what it keeps beside its output."""
    return sorted({path.stat().st_size for path in out.parent.rglob("*") if path.is_file()})


def output(name: str, folder: Path) -> tuple[str, Path]:
    return "--figure" if name == "inspect" else "--out", folder / "new" / NAMES.get(name, "out")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in STAGES]
)
def test_a_full_disk_ends_a_stage_with_one_message_and_leaves_nothing(name, launcher, shared, tmp_path):
    words, (option, out) = STAGES[name](shared), output(name, tmp_path / "whole")
    ended = launcher.run(*words, option, out)
    assert ended.code == 0, ended.err
    written = sizes(out)
    # No byte fits; all files but the largest do; the smaller half of them does.
    for limit in sorted({0, written[-1] - 1, written[len(written) // 2] - 1}):
        folder = tmp_path / str(limit)
        folder.mkdir()
        option, out = output(name, folder)
        ended = launcher.run(*words, option, out, file_size=limit)
        assert (limit, ended.code) == (limit, 3), ended.err
        assert ended.err.endswith(REASON), ended.err
        assert f"error: {folder / 'new'}" in ended.err
        assert "Traceback" not in ended.err
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["make-tuples", "train", "predict csv"])
def test_a_full_disk_leaves_the_old_output_as_it_was(name, launcher, shared, tmp_path):
    words, (option, out) = STAGES[name](shared), output(name, tmp_path)
    assert launcher.run(*words, option, out).code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ended = launcher.run(*words, "--if-exists", "overwrite", option, out, file_size=sizes(out)[-1] - 1)
    assert (ended.code, ended.err.endswith(REASON)) == (3, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from ntmp_cli.app import run
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("limit", [4096, 16384])
def test_the_interpreter_survives_a_full_disk_to_its_end(limit, tmp_path):
    """As a user has it: what was left open inside HDF5 would end the process by SIGSEGV when it leaves."""
    words = ["make-tuples", "--dataset", "digits", "--prior", "0.5", "--out", str(tmp_path / "out")]
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(limit), *words], capture_output=True, text=True)
    assert ended.returncode == 3
    assert ended.stderr == f"error: {tmp_path / 'out'}: {REASON}"
    assert ended.stdout == ""
    assert list(tmp_path.iterdir()) == []


# --- checkpoints --------------------------------------------------------------------------------


def test_a_first_checkpoint_that_does_not_fit_ends_the_training_and_leaves_nothing(launcher, tuples, tmp_path):
    ended = launcher.run(*training(tuples), "--out", tmp_path / "run", file_size=4096)
    assert ended.code == 3
    assert f"error: {tmp_path / '.run.checkpoint' / 'state.pt'}: {REASON}" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("stopped_by_user", [False, True])
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(launcher, tuples, tmp_path, stopped_by_user):
    whole, out = tmp_path / "whole", tmp_path / "cut" / "run"
    assert launcher.run(*training(tuples), "--out", whole).code == 0
    assert interrupt(launcher, tuples, out, (2, 3), signal.SIGINT).code == 130
    state = out.parent / ".run.checkpoint" / "state.pt"
    before = state.read_bytes()
    moment = {"at_step": (2, 5), "signals": [signal.SIGINT]} if stopped_by_user else {}
    ended = launcher.run(*training(tuples), "--resume", "--out", out, file_size=len(before) - 1, **moment)
    assert (ended.code, ended.err.endswith(f"error: {state}: {REASON}")) == (3, True)
    assert {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()} == {state: before}
    assert launcher.run(*training(tuples), "--resume", "--out", out).code == 0
    assert content(out) == content(whole)
