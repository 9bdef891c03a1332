"""Files on a disk that is full: one message, nothing left, and libraries in C that never hear of it."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
from small_artifacts import write_report

from ntmp_cli.artifacts import Plan, hdf5, locking, open_artifact, publishing
from ntmp_cli.artifacts.locking import lock_if_free
from ntmp_cli.artifacts.table_writer import writing_table
from ntmp_cli.artifacts.writing import Sink, disk_errors, made_parents, replacing
from ntmp_cli.errors import OutputError


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes: the disk is full, for all that a writer can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


TOO_LARGE = os.strerror(errno.EFBIG)


# --- HDF5 ---------------------------------------------------------------------------------------


def write_all_kinds(path: Path) -> None:
    """Contiguous data, data in blocks, and data of a length that is not known before."""
    with hdf5.create(path, "tuples") as file:
        file.reserve("instances", (40, 30), np.dtype(np.float32), scale=2.0)
        start = 0
        for block in range(4):
            start = file.fill("instances", start, np.full((10, 30), block, dtype=np.float32))
        file.put("counts", np.arange(40))
        for _ in range(30):
            file.append("labels", np.arange(1000, dtype=np.int16))


def open_hdf5_objects() -> int:
    gc.collect()
    kinds = h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET | h5py.h5f.OBJ_GROUP | h5py.h5f.OBJ_ATTR
    return int(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, kinds))


def test_a_file_is_read_back_as_it_was_written(tmp_path):
    write_all_kinds(tmp_path / "x.h5")
    with hdf5.read(tmp_path / "x.h5", "tuples") as file:
        assert hdf5.dataset(file, "instances").attrs["scale"] == 2.0
        assert np.array_equal(hdf5.array(file, "instances")[:, 0], np.repeat(np.arange(4), 10))
        assert np.array_equal(hdf5.array(file, "counts"), np.arange(40))
        assert np.array_equal(hdf5.array(file, "labels"), np.tile(np.arange(1000), 30))


def test_wherever_the_disk_is_full_hdf5_ends_in_one_error_and_lets_go(tmp_path):
    write_all_kinds(tmp_path / "whole.h5")
    size = (tmp_path / "whole.h5").stat().st_size
    limits = [*range(0, size, 1601), size - 1]
    for limit in limits:
        with largest_file(limit), pytest.raises(OSError, match=TOO_LARGE):
            write_all_kinds(tmp_path / "cut.h5")
        assert (tmp_path / "cut.h5").stat().st_size <= limit
    assert open_hdf5_objects() == 0
    with largest_file(size):
        write_all_kinds(tmp_path / "cut.h5")
    assert (tmp_path / "cut.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_writer_stops_at_the_first_error_of_the_disk(tmp_path):
    filled = []

    def write() -> None:
        with hdf5.create(tmp_path / "x.h5", "tuples") as file:
            file.reserve("instances", (10, 10_000), np.dtype(np.uint8))
            for row in range(10):
                filled.append(row)
                file.fill("instances", row, np.zeros((1, 10_000), np.uint8))

    with largest_file(25_000), pytest.raises(OSError, match=TOO_LARGE):
        write()
    assert filled == [0, 1, 2]


def test_an_error_of_the_work_is_not_hidden_by_the_disk_unless_it_is_full(tmp_path):
    with pytest.raises(ZeroDivisionError), hdf5.create(tmp_path / "x.h5", "tuples"):
        raise ZeroDivisionError
    with largest_file(10), pytest.raises(KeyboardInterrupt), hdf5.create(tmp_path / "x.h5", "tuples"):
        raise KeyboardInterrupt


# --- the file that keeps errors for itself ------------------------------------------------------


def test_a_sink_is_a_file(tmp_path):
    with Sink(tmp_path / "x") as sink:
        assert sink.write(b"hello world") == 11
        assert sink.seek(6) == 6
        sink.write(memoryview(b"there"))
        sink.seek(-5, 2)
        assert (sink.read(3), sink.tell(), sink.read(9)) == (b"the", 9, b"re")
        assert sink.seek(20) == 20
        sink.write(b"!")
        sink.truncate(22)
        sink.seek(10)
        assert sink.read(100) == b"e" + bytes(9) + b"!" + bytes(1)
    assert (tmp_path / "x").read_bytes() == b"hello there" + bytes(9) + b"!" + bytes(1)


def test_after_an_error_a_sink_still_reads_what_was_written_to_it(tmp_path):
    sink = Sink(tmp_path / "x")
    with largest_file(6):
        assert sink.write(b"hello world") == 11
        sink.seek(3)
        sink.write(b"LO")
        sink.seek(0)
        assert sink.read(11) == b"helLO world"
        sink.seek(0)
        assert sink.read(4) == b"helL"
        sink.seek(9)
        assert sink.read(9) == b"ld"
        sink.truncate(5)
        sink.seek(0)
        assert sink.read(11) == b"helLO"
    with pytest.raises(OSError, match=TOO_LARGE):
        sink.check()
    with pytest.raises(OSError, match=TOO_LARGE), sink:
        pass


def test_growing_a_file_can_fail_too(tmp_path):
    with pytest.raises(OSError, match=TOO_LARGE), largest_file(6), Sink(tmp_path / "x") as sink:
        sink.truncate(7)


def test_files_get_the_rights_that_the_user_asks_for(tmp_path):
    with Sink(tmp_path / "sink"):
        pass
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "sink").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


# --- one message --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("file", [None, "out", "out/x.h5", ".out.partial-1", ".out.partial-1/train/x.h5"])
def test_a_full_disk_is_one_message_about_the_output(number, file, tmp_path):
    named = () if file is None else (str(tmp_path / file),)
    with pytest.raises(OutputError) as caught, disk_errors(tmp_path / "out"):
        raise OSError(number, "so it is", *named)
    assert caught.value.message == f"{tmp_path / 'out'}: cannot be written: so it is"
    assert caught.value.hint == "Nothing was changed. Free some space, or write elsewhere."
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("number", "file"), [(errno.EACCES, "out"), (errno.EIO, "tuples/x.h5"), (errno.EIO, ".ou.t")])
def test_other_errors_are_passed_on(number, file, tmp_path):
    with pytest.raises(OSError, match="so it is") as caught, disk_errors(tmp_path / "out"):
        raise OSError(number, "so it is", str(tmp_path / file))
    assert caught.value.errno == number


@pytest.mark.parametrize("size", [0, 3, 2999])
def test_an_artefact_on_a_full_disk_leaves_nothing_not_even_its_parents(size, tmp_path):
    out = tmp_path / "new" / "deep" / "out"
    with (
        largest_file(size),
        pytest.raises(OutputError, match="cannot be written: File too large"),
        publishing(out, Plan("report", {})) as staging,
    ):
        staging.add_bytes("a.txt", b"x" * 3000)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_does_not_fit_publishes_nothing_and_keeps_the_old(put, tmp_path):
    put(tmp_path / "out")
    before = open_artifact(tmp_path / "out").sha256
    with (
        largest_file(100),
        pytest.raises(OutputError),
        publishing(tmp_path / "out", Plan("report", {}), if_exists="overwrite") as staging,
    ):
        write_report(staging, "a.txt", b"small")
    assert open_artifact(tmp_path / "out").sha256 == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_copy_that_does_not_fit_publishes_nothing(put, tmp_path):
    source = put(tmp_path / "source", b"x" * 3000)
    with largest_file(1000), pytest.raises(OutputError), publishing(tmp_path / "out", Plan("report", {})) as staging:
        staging.carry(source, "deep/rows.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_table_on_a_full_disk_leaves_the_old_one(name, size, tmp_path):
    out = tmp_path / name
    out.write_bytes(b"old")
    block = pa.RecordBatch.from_arrays([pa.array(np.random.default_rng(0).random(5000))], names=["score"])

    def write() -> None:
        with writing_table(out, "overwrite") as table:
            for _ in range(3):
                table.write(block)

    with largest_file(size), pytest.raises(OutputError):
        write()
    assert out.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_replacing_is_all_or_nothing(tmp_path):
    out = tmp_path / "new" / "figure.png"

    def fail() -> None:
        with replacing(out) as partial:
            partial.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with replacing(out) as partial:
        partial.write_bytes(b"whole")
        assert not out.exists()
    assert out.read_bytes() == b"whole"
    assert [path.name for path in out.parent.iterdir()] == ["figure.png"]


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    """Only a loss of power would show it: the flushes are counted."""
    out, flushed, fsync = tmp_path / "figure.png", [], os.fsync

    def noted(handle: int) -> None:
        flushed.append((os.path.samestat(os.fstat(handle), partial.stat()), out.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with replacing(out) as partial:
        partial.write_bytes(b"whole")
        assert flushed == []
    assert (True, False) in flushed


def test_parents_that_others_use_stay(tmp_path):
    with pytest.raises(FileNotFoundError), made_parents(tmp_path / "a" / "b" / "out"):
        (tmp_path / "a" / "other").write_bytes((tmp_path / "missing").read_bytes())
    assert list(tmp_path.iterdir()) == []

    def fail() -> None:
        with made_parents(tmp_path / "a" / "b" / "out"):
            (tmp_path / "a" / "other").touch()
            raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        fail()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from ntmp_cli.artifacts.writing import replacing
with replacing(Path(sys.argv[1])) as partial:
    partial.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path):
    out = tmp_path / "out.csv"
    assert subprocess.run([sys.executable, "-c", KILLED_WRITER, str(out)]).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.csv.partial-")
    with replacing(out) as partial:
        partial.write_bytes(b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_temporary_that_another_process_removes_before_it_is_locked_is_made_again(is_folder, tmp_path, monkeypatch):
    removed = []

    def lock_after_removal(path: Path) -> int | None:
        if not removed:
            removed.append(path)
            locking.remove(path)
        return lock_if_free(path)

    monkeypatch.setattr(locking, "lock_if_free", lock_after_removal)
    path, handle = locking.new_temporary(tmp_path / "out", is_folder=is_folder)
    assert handle is not None
    os.close(handle)
    assert path not in removed
    assert path.is_dir() == is_folder
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_living_writer_has_so_far_is_left_alone(tmp_path):
    out = tmp_path / "out.csv"
    with replacing(out) as slow:
        slow.write_bytes(b"slow")
        with replacing(out) as fast:
            fast.write_bytes(b"fast")
        assert slow.read_bytes() == b"slow"
        assert out.read_bytes() == b"fast"
    assert out.read_bytes() == b"slow"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_the_folder_of_an_output_is_made_with_those_above_it(tmp_path):
    path, handle = locking.new_temporary(tmp_path / "a" / "b" / "out", is_folder=True)
    assert handle is not None
    os.close(handle)
    assert path.parent == tmp_path / "a" / "b"
    assert path.is_dir()


def test_a_replaced_file_is_not_locked_any_more(tmp_path):
    with replacing(tmp_path / "out") as partial:
        assert lock_if_free(partial) is None
    handle = lock_if_free(tmp_path / "out")
    assert handle is not None
    os.close(handle)


def test_removing_what_killed_writers_left_keeps_no_file_open(tmp_path, monkeypatch):
    (tmp_path / ".out.partial-0123").write_bytes(b"half")
    handles, opening = [], os.open

    def noted(*arguments: object) -> int:
        handles.append(opening(*arguments))
        return handles[-1]

    monkeypatch.setattr(os, "open", noted)
    locking.remove_stale(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
    assert handles
