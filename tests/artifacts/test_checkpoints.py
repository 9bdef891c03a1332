"""A checkpoint is all or nothing, tied to its plan, and read without running code from it."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from ntmp_cli.artifacts import Plan
from ntmp_cli.artifacts.checkpoints import HASH_BYTES, MAGIC, CheckpointStore
from ntmp_cli.errors import ArtifactError, OutputError, UsageError

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


def test_if_same_starts_afresh_from_another_plan_and_resumes_the_same(tmp_path):
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
    # `ntmp run` and sweeps have no --resume to leave out.
    again = {"yes": "Start again without --resume.", "if-same": f"Remove {file.parent} and start again."}
    assert caught.value.hint == again[resume]
    assert caught.value.exit_code == 3


def test_no_bit_of_a_checkpoint_can_be_flipped_unseen(tmp_path):
    checkpoints = store(tmp_path / "run")
    checkpoints.save(STATE)
    file = tmp_path / ".run.checkpoint" / "state.pt"
    whole = file.read_bytes()
    head = range(8 * (len(MAGIC) + 2 * HASH_BYTES))
    rest = range(len(head), 8 * len(whole), 211)  # a bit of every 26th byte, each time the next one
    for bit in (*head, *rest):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with pytest.raises(ArtifactError, match="damaged: not a readable checkpoint"):
            checkpoints.load()
        assert file.read_bytes() == flipped
    file.write_bytes(whole)
    assert torch.equal(checkpoints.load()["model"]["weight"], STATE["model"]["weight"])


@pytest.mark.parametrize("change", [lambda whole: whole[:-1], lambda whole: whole + b"\0", lambda whole: whole[1:]])
def test_a_checkpoint_of_another_length_is_damaged(change, tmp_path):
    checkpoints = store(tmp_path / "run")
    checkpoints.save(STATE)
    file = tmp_path / ".run.checkpoint" / "state.pt"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ArtifactError, match="damaged: not a readable checkpoint"):
        checkpoints.load()


def test_a_checkpoint_of_another_version_is_of_another_training(tmp_path, monkeypatch):
    store(tmp_path / "run").save(STATE)
    monkeypatch.setattr("ntmp_cli.artifacts.checkpoints.__version__", "0.0.1")
    with pytest.raises(UsageError, match="belongs to other tuples or settings"):
        store(tmp_path / "run").load()
    assert store(tmp_path / "run", resume="if-same").load() is None


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_no_code_from_a_checkpoint_is_run(tmp_path):
    checkpoints = store(tmp_path / "run")
    checkpoints.save(STATE)
    file, evil = tmp_path / ".run.checkpoint" / "state.pt", tmp_path / "evil"
    whole, start = file.read_bytes(), len(MAGIC) + 2 * HASH_BYTES
    with zipfile.ZipFile(io.BytesIO(whole[start:])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    state = io.BytesIO()
    with zipfile.ZipFile(state, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, pickle.dumps(Evil(evil)) if name.endswith("data.pkl") else content)
    # With a hash that fits, as somebody who wants it to be read would make it.
    body = whole[start - HASH_BYTES : start] + state.getvalue()
    file.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    with pytest.raises(ArtifactError, match="not a readable checkpoint"):
        checkpoints.load()
    assert not evil.exists()


def test_a_half_written_checkpoint_does_not_hide_the_one_before(tmp_path, monkeypatch):
    checkpoints = store(tmp_path / "run")
    checkpoints.save({"epoch": 1})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        checkpoints.save({"epoch": 2})
    assert checkpoints.load() == {"epoch": 1}
    assert [p.name for p in (tmp_path / ".run.checkpoint").iterdir()] == ["state.pt"]


def test_a_first_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OutputError):
        store(tmp_path / "run").save(STATE)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_checkpoint(tmp_path):
    (tmp_path / ".run.checkpoint").mkdir()
    (tmp_path / ".run.checkpoint" / ".state.pt.partial-0123").write_bytes(b"half")
    store(tmp_path / "run").save(STATE)
    assert [p.name for p in (tmp_path / ".run.checkpoint").iterdir()] == ["state.pt"]


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


def test_of_several_trainings_with_one_output_the_first_keeps_checkpoints(tmp_path, caplog):
    first, second = store(tmp_path / "run"), store(tmp_path / "run")
    first.save({"epoch": 1})
    with caplog.at_level("WARNING", logger="ntmp_cli"):
        second.save({"epoch": 7})
        second.save({"epoch": 8})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / '.run.checkpoint'}: another training writes its checkpoints there; this one writes none"
    ]
    second.remove()  # it has published; the other goes on
    assert first.load() == {"epoch": 1}
    first.save({"epoch": 2})
    assert first.load() == {"epoch": 2}
    first.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_ended_leaves_the_folder_to_the_next(tmp_path):
    first = store(tmp_path / "run")
    first.save({"epoch": 1})
    first.close()
    second = store(tmp_path / "run")
    second.save({"epoch": 2})
    assert second.load() == {"epoch": 2}


def test_a_kept_output_leaves_the_checkpoint_of_a_running_training(tmp_path):
    running, done = store(tmp_path / "run"), store(tmp_path / "run")
    running.save({"epoch": 1})
    done.remove()
    assert running.load() == {"epoch": 1}
