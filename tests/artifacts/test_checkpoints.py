"""A checkpoint is all or nothing, tied to its plan, and read without running code from it."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from ntmp_cli.artifacts import Plan
from ntmp_cli.artifacts.checkpoints import CheckpointStore
from ntmp_cli.errors import ArtifactError, UsageError

PLAN = Plan("run", {"epochs": 3}, 0, ({"kind": "tuples", "sha256": "0" * 64},))
OTHER = Plan("run", {"epochs": 4}, 0, PLAN.inputs)
STATE = {
    "model": {"weight": torch.arange(3.0)},
    "losses": [torch.tensor(0.5)],
    "best_risk": float("inf"),
    "records": [{"epoch": 1, "fields": {"loss": 0.25}, "test_scores": None}],
}


def store(out: Path, plan: Plan = PLAN, *, resume: str = "yes", every_seconds: float = 0.0) -> CheckpointStore:
    return CheckpointStore(out, plan, resume=resume, every_seconds=every_seconds)


def test_a_saved_state_comes_back(tmp_path):
    store(tmp_path / "run").save(STATE)
    loaded = store(tmp_path / "run").load()
    assert torch.equal(loaded["model"]["weight"], STATE["model"]["weight"])
    assert loaded["losses"] == [torch.tensor(0.5)]
    assert loaded["best_risk"] == float("inf")
    assert loaded["records"] == STATE["records"]


def test_a_later_state_replaces_an_earlier_one(tmp_path):
    checkpoints = store(tmp_path / "run")
    for epoch in (1, 2):
        checkpoints.save({"epoch": epoch})
    assert checkpoints.load() == {"epoch": 2}
    assert [p.name for p in (tmp_path / ".run.checkpoint").iterdir()] == ["state.pt"]


def test_checkpoints_lie_beside_the_output_and_not_in_it(tmp_path):
    store(tmp_path / "run").save(STATE)
    assert [p.name for p in tmp_path.iterdir()] == [".run.checkpoint"]


def test_an_output_that_is_a_link_has_its_checkpoint_beside_its_target(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk/run-0")
    store(tmp_path / "run").save(STATE)
    assert store(tmp_path / "disk" / "run-0").exists()


def test_without_a_checkpoint_there_is_nothing_to_load(tmp_path):
    assert not store(tmp_path / "run").exists()
    assert store(tmp_path / "run").load() is None


def test_a_checkpoint_is_ignored_unless_resuming(tmp_path):
    store(tmp_path / "run").save(STATE)
    assert store(tmp_path / "run", resume="no").exists()
    assert store(tmp_path / "run", resume="no").load() is None


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    store(tmp_path / "run").save(STATE)
    with pytest.raises(UsageError) as caught:
        store(tmp_path / "run", OTHER).load()
    where = tmp_path / ".run.checkpoint" / "state.pt"
    assert caught.value.message == f"{where}: the checkpoint belongs to other tuples or settings"
    assert caught.value.hint == "Repeat the interrupted command exactly, or start again without --resume."


def test_if_same_starts_afresh_from_another_plan_and_goes_on_with_its_own(tmp_path):
    store(tmp_path / "run").save({"epoch": 2})
    assert store(tmp_path / "run", OTHER, resume="if-same").load() is None
    assert store(tmp_path / "run", PLAN, resume="if-same").load() == {"epoch": 2}


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_text(path: Path) -> None:
    path.write_bytes(b"not a checkpoint")


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_other_content(path: Path) -> None:
    torch.save([1, 2, 3], path)


@pytest.mark.parametrize("damage", [damage_cut, damage_text, damage_empty, damage_other_content])
@pytest.mark.parametrize("resume", ["yes", "if-same"])
def test_a_damaged_checkpoint_is_refused(damage, resume, tmp_path):
    store(tmp_path / "run").save(STATE)
    file = tmp_path / ".run.checkpoint" / "state.pt"
    damage(file)
    with pytest.raises(ArtifactError) as caught:
        store(tmp_path / "run", resume=resume).load()
    assert caught.value.message == f"{file}: damaged: not a readable checkpoint"
    assert caught.value.hint == "Start again without --resume."
    assert caught.value.exit_code == 3


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_no_code_from_a_checkpoint_is_run(tmp_path):
    checkpoints = store(tmp_path / "run")
    checkpoints.save(STATE)
    file, evil = tmp_path / ".run.checkpoint" / "state.pt", tmp_path / "evil"
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, pickle.dumps(Evil(evil)) if name.endswith("data.pkl") else content)
    with pytest.raises(ArtifactError, match="not a readable checkpoint"):
        checkpoints.load()
    assert not evil.exists()


def test_a_half_written_checkpoint_does_not_hide_the_one_before(tmp_path, monkeypatch):
    checkpoints = store(tmp_path / "run")
    checkpoints.save({"epoch": 1})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save({"epoch": 2})
    assert checkpoints.load() == {"epoch": 1}


def test_a_checkpoint_is_due_when_its_time_has_passed_since_the_last_one(tmp_path):
    assert store(tmp_path / "run", every_seconds=0.0).due()
    patient = store(tmp_path / "run", every_seconds=3600.0)
    assert not patient.due()
    patient.save(STATE)
    assert not patient.due()


def test_removing_takes_the_whole_folder(tmp_path):
    checkpoints = store(tmp_path / "run")
    checkpoints.save(STATE)
    (tmp_path / ".run.checkpoint" / "state.tmp").write_bytes(b"left by a kill")
    checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    checkpoints.remove()


def test_of_several_processes_one_writes_and_all_go_on_from_it(tmp_path):
    writer = store(tmp_path / "run")
    other = CheckpointStore(tmp_path / "run", PLAN, resume="yes", every_seconds=0.0, writes=False)
    other.save({"epoch": 1})
    assert not other.exists()
    assert (writer.due(), other.due()) == (True, False)
    writer.save({"epoch": 2})
    other.remove()
    assert other.load() == {"epoch": 2}
