"""All of an artefact appears at once, or nothing does; what the user had before is never lost."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from small_artifacts import as_report

from ntmp_cli.artifacts import IfExists, Plan, Staging, existing_output, locking, open_artifact, publish, publishing
from ntmp_cli.artifacts.summaries import DesignSummary, ReportSummary
from ntmp_cli.errors import ArtifactError, UsageError

IF_EXISTS = ["fail", "skip", "overwrite", "refresh"]


def tree(path: Path) -> dict[str, bytes | None]:
    """Every path below `path` with its content: two equal trees are the same directory."""
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())


class Boom(Exception):
    pass


def stage(out: Path, plan, meanwhile: Callable[[Staging], object], if_exists: IfExists = "fail") -> None:
    """A stage that has written all its files when `meanwhile` happens."""
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes("deep/rows.txt", b"new\n")
        as_report(staging)
        meanwhile(staging)


def failing(error: type[BaseException]) -> Callable[[Staging], None]:
    def fail(staging: Staging) -> None:
        raise error

    return fail


# --- nothing, or all of it --------------------------------------------------------------------


def test_nothing_is_visible_before_success(tmp_path, plan):
    out = tmp_path / "eval"
    with publishing(out, plan()) as staging:
        staging.add_bytes("a.txt", b"a")
        as_report(staging)
        assert not out.exists()
        assert all(name.startswith(".eval.partial-") for name in names(tmp_path))
    assert tree(out).keys() == {"a.txt", "manifest.json"}
    assert names(tmp_path) == ["eval"]


def test_the_manifest_is_written_after_every_other_file(tmp_path, plan, monkeypatch):
    seen = []
    to_bytes = publish.Manifest.to_bytes

    def watched(manifest):
        (partial,) = tmp_path.glob(".eval.partial-*")
        seen.append(set(tree(partial)))
        return to_bytes(manifest)

    monkeypatch.setattr(publish.Manifest, "to_bytes", watched)
    with publishing(tmp_path / "eval", plan()) as staging:
        staging.add_bytes("a.txt", b"a")
        staging.add_bytes("b/c.txt", b"c")
        as_report(staging)
    assert seen == [{"a.txt", "b", "b/c.txt"}]


def test_every_way_to_add_a_file_lists_it_with_its_rows(tmp_path, plan):
    with publishing(tmp_path / "a", plan()) as staging:
        staging.add_bytes("a.txt", b"a", rows=3)
        staging.add_json("b.json", {"b": 1}, rows=2)
        as_report(staging)
    with publishing(tmp_path / "copy", plan()) as staging:
        staging.carry(open_artifact(tmp_path / "a"), "a.txt")
        as_report(staging)
    assert {(e.path, e.rows) for e in open_artifact(tmp_path / "a").manifest.files} == {("a.txt", 3), ("b.json", 2)}
    assert [(e.path, e.rows) for e in open_artifact(tmp_path / "copy").manifest.files] == [("a.txt", 3)]
    assert (tmp_path / "copy" / "a.txt").read_bytes() == b"a"


def test_an_exception_leaves_nothing(tmp_path, plan):
    threads = threading.enumerate()
    with pytest.raises(Boom):
        stage(tmp_path / "eval", plan(), failing(Boom))
    assert names(tmp_path) == []
    assert threading.enumerate() == threads


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
@pytest.mark.parametrize("if_exists", ["overwrite", "refresh"])
def test_an_exception_leaves_old_output_untouched(error, if_exists, tmp_path, plan, put):
    out = put(tmp_path / "eval", b"old\n").path
    before = tree(out)
    with pytest.raises(error):
        stage(out, plan(), failing(error), if_exists)
    assert tree(out) == before
    assert names(tmp_path) == ["eval"]


def test_a_file_that_was_announced_but_not_written_fails_the_stage(tmp_path, plan):
    with pytest.raises(FileNotFoundError), publishing(tmp_path / "eval", plan()) as staging:
        staging.add("never-written.h5")
    assert names(tmp_path) == []


def test_an_unknown_kind_is_an_internal_error_and_writes_nothing(tmp_path):
    with (
        pytest.raises(ValueError, match="unknown artefact kind 'cake'"),
        publishing(tmp_path / "out", publish.Plan("cake", {})),
    ):
        pass
    assert names(tmp_path) == []


DESIGN = DesignSummary(source="x", unbiased_risk=True, count_likelihood=True, gap=0.1, changes=())


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (None, "a stage of kind 'report' must set its summary"),
        (DESIGN, "a stage of kind 'report' must set its summary"),
        (ReportSummary(files=("b.txt",)), "files: differ from the files that the manifest lists"),
    ],
)
def test_a_summary_that_no_reader_would_accept_is_an_internal_error_and_publishes_nothing(
    summary, message, tmp_path, plan
):
    with pytest.raises(ValueError, match=message):
        stage(tmp_path / "out", plan(), lambda staging: setattr(staging, "summary", summary))
    assert names(tmp_path) == []


def test_missing_parents_are_made(tmp_path, put):
    put(tmp_path / "a" / "b" / "eval").verify()


def test_a_path_through_a_folder_that_is_not_there_yet_is_made_as_it_is_written(tmp_path, put):
    put(tmp_path / "absent" / ".." / "eval").verify()
    open_artifact(tmp_path / "eval").verify()


def test_the_same_content_gives_the_same_manifest_bytes(tmp_path, put):
    first, second = put(tmp_path / "one" / "eval"), put(tmp_path / "two" / "other-name")
    assert (first.path / "manifest.json").read_bytes() == (second.path / "manifest.json").read_bytes()


def test_other_content_or_settings_give_another_manifest(tmp_path, put):
    made = [put(tmp_path / "a"), put(tmp_path / "b", b"two\n"), put(tmp_path / "c", reference="ure")]
    assert len({artifact.sha256 for artifact in made}) == 3


# --- output that exists -----------------------------------------------------------------------


@pytest.mark.parametrize("if_exists", IF_EXISTS)
def test_an_empty_directory_is_filled(if_exists, tmp_path, plan, put):
    out = tmp_path / "eval"
    out.mkdir()
    assert existing_output(out, plan(), if_exists) is None
    put(out, if_exists=if_exists).verify()
    assert names(tmp_path) == ["eval"]


FOREIGN = {
    "photos": {"cat.jpg": b"precious"},
    "web page with another manifest": {"manifest.json": b'{"name": "My App"}', "index.html": b"precious"},
    "manifest that is not JSON": {"manifest.json": b"precious"},
    "hidden file": {".git": b"precious"},
}


def fill(folder: Path, content: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, value in content.items():
        (folder / name).write_bytes(value)


@pytest.mark.parametrize("if_exists", IF_EXISTS)
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_directory_is_refused_before_any_work(content, if_exists, tmp_path, plan):
    out = tmp_path / "out"
    fill(out, content)
    with pytest.raises(UsageError) as caught:
        existing_output(out, plan(), if_exists)
    assert caught.value.message == f"{out}: exists and was not written by ntmp, so it is never replaced"
    assert tree(out) == content


@pytest.mark.parametrize("if_exists", IF_EXISTS)
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_directory_that_appears_late_is_not_touched_either(content, if_exists, tmp_path, plan):
    out = tmp_path / "out"
    with pytest.raises(ArtifactError) as caught:
        stage(out, plan(), lambda staging: fill(out, content), if_exists)
    assert caught.value.message == f"{out}: appeared while this stage was running; nothing was replaced"
    assert tree(out) == content
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("if_exists", IF_EXISTS)
def test_a_file_in_the_place_of_the_output_is_never_replaced(if_exists, tmp_path, plan):
    out = tmp_path / "out"
    out.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists and was not written by ntmp"):
        existing_output(out, plan(), if_exists)
    with pytest.raises(ArtifactError, match="nothing was replaced"):
        stage(out, plan(), lambda staging: None, if_exists)
    assert out.read_bytes() == b"precious"
    assert names(tmp_path) == ["out"]


def test_fail_refuses_output_that_exists(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    with pytest.raises(UsageError) as caught:
        existing_output(out, plan(), "fail")
    assert caught.value.message == f"{out}: exists already"
    assert "--if-exists skip" in str(caught.value.hint)
    assert "--if-exists overwrite" in str(caught.value.hint)


def test_skip_keeps_output_of_the_same_plan(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    before = tree(out)
    kept = existing_output(out, plan(), "skip")
    assert kept is not None
    assert kept.kept
    assert tree(out) == before


def test_skip_verifies_what_it_keeps(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    (out / "deep/rows.txt").write_bytes(b"onE\n")
    with pytest.raises(ArtifactError, match="do not match the recorded hash"):
        existing_output(out, plan(), "skip")


def test_skip_names_the_setting_that_changed(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    with pytest.raises(UsageError) as caught:
        existing_output(out, plan(reference="ure+abs"), "skip")
    assert caught.value.message == (
        f"{out}: exists, but from other inputs or settings (reference: None there, ure+abs now)"
    )


def test_of_many_settings_that_changed_the_first_five_are_named(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    with pytest.raises(UsageError, match=r"\(a: None there, 0 now; b: .*; e: None there, 0 now\)$"):
        existing_output(out, plan(**dict.fromkeys("abcdefg", 0)), "skip")


def test_what_cannot_be_removed_stays_without_an_error(tmp_path, monkeypatch):
    (tmp_path / "left").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "rmdir", refuse)
    locking.remove(tmp_path / "left")
    assert (tmp_path / "left").is_dir()


def test_skip_says_that_inputs_changed(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    other = publish.Plan("report", plan().config, None, ({"kind": "run", "sha256": "1" * 64},))
    with pytest.raises(UsageError, match=r"from other inputs or settings \(its inputs differ\)"):
        existing_output(out, other, "skip")


def test_skip_says_that_the_kind_differs(tmp_path, put):
    out = put(tmp_path / "eval").path
    with pytest.raises(UsageError, match=r"\(it is of kind 'report'\)"):
        existing_output(out, publish.Plan("evaluation", {}), "skip")


def test_skip_does_not_trust_another_version_of_the_package(tmp_path, plan, put, edit):
    out = put(tmp_path / "eval").path
    edit(out, lambda document: document.update(package_version="0.0.1"))
    with pytest.raises(UsageError, match=r"\(written by ntmp 0\.0\.1\)"):
        existing_output(out, plan(), "skip")


def test_refresh_keeps_what_is_still_true_and_replaces_what_is_not(tmp_path, plan, put):
    out = put(tmp_path / "eval").path
    kept = existing_output(out, plan(), "refresh")
    assert kept is not None
    assert kept.kept
    assert existing_output(out, plan(reference="ure"), "refresh") is None
    put(out, b"two\n", if_exists="refresh", reference="ure")
    assert (out / "deep/rows.txt").read_bytes() == b"two\n"
    assert names(tmp_path) == ["eval"]


def test_overwrite_replaces_all_of_the_old_artifact(tmp_path, plan, put):
    out = put(tmp_path / "eval", b"old\n").path
    assert existing_output(out, plan(), "overwrite") is None
    with publishing(out, plan(), if_exists="overwrite") as staging:
        staging.add_bytes("other.txt", b"new\n")
        as_report(staging)
    assert tree(out).keys() == {"other.txt", "manifest.json"}
    assert names(tmp_path) == ["eval"]


def test_overwrite_works_where_the_system_cannot_exchange_directories(tmp_path, put, monkeypatch):
    monkeypatch.setattr(publish.ctypes, "CDLL", lambda *_, **__: object())  # a C library without renameat2
    out = put(tmp_path / "eval", b"old\n").path
    put(out, b"new\n", if_exists="overwrite").verify()
    assert (out / "deep/rows.txt").read_bytes() == b"new\n"
    assert names(tmp_path) == ["eval"]


def test_overwrite_replaces_an_artifact_of_a_later_format(tmp_path, plan, put, edit):
    out = put(tmp_path / "eval", b"old\n").path
    edit(out, lambda document: document.update(format_version=99))
    assert existing_output(out, plan(), "overwrite") is None
    put(out, b"new\n", if_exists="overwrite").verify()


# --- links ------------------------------------------------------------------------------------


def test_a_linked_parent_is_followed(tmp_path, put):
    (tmp_path / "disk").mkdir()
    (tmp_path / "work").symlink_to("disk")
    put(tmp_path / "work" / "eval").verify()
    assert names(tmp_path / "disk") == ["eval"]


@pytest.mark.parametrize("target", ["absent", "empty", "artifact"])
def test_an_output_that_is_a_link_stays_one(target, tmp_path, put):
    disk = tmp_path / "disk"
    disk.mkdir()
    if target == "empty":
        (disk / "real").mkdir()
    elif target == "artifact":
        put(disk / "real", b"old\n")
    link = tmp_path / "eval"
    link.symlink_to(disk / "real")
    put(link, b"new\n", if_exists="overwrite").verify()
    assert link.readlink() == disk / "real"
    assert (disk / "real" / "deep/rows.txt").read_bytes() == b"new\n"
    assert (names(tmp_path), names(disk)) == (["disk", "eval"], ["real"])


# --- leftovers of killed processes ------------------------------------------------------------

HOLD = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(handle, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def leave(path: Path) -> Path:
    (path / "train").mkdir(parents=True)
    (path / "train" / "tuples-00000.h5").write_bytes(b"half")
    return path


def test_staging_of_a_dead_process_is_removed(tmp_path, put):
    leave(tmp_path / ".eval.partial-0123456789ab")
    put(tmp_path / "eval")
    assert names(tmp_path) == ["eval"]


def test_staging_of_a_dead_process_is_removed_when_the_output_is_kept(tmp_path, plan, put):
    put(tmp_path / "eval")
    leave(tmp_path / ".eval.partial-0123456789ab")
    assert existing_output(tmp_path / "eval", plan(), "skip") is not None
    assert names(tmp_path) == ["eval"]


def test_staging_of_another_output_is_left_alone(tmp_path, put):
    leave(tmp_path / ".eval2.partial-0123456789ab")
    leave(tmp_path / ".val.partial-0123456789ab")
    put(tmp_path / "eval")
    assert names(tmp_path) == [".eval2.partial-0123456789ab", ".val.partial-0123456789ab", "eval"]


def test_a_name_with_wildcards_is_taken_literally(tmp_path, put):
    leave(tmp_path / ".run[1]*.partial-0123456789ab")
    leave(tmp_path / ".run1.partial-0123456789ab")
    put(tmp_path / "run[1]*")
    assert names(tmp_path) == [".run1.partial-0123456789ab", "run[1]*"]


def test_staging_of_a_live_process_is_left_alone_until_it_dies(tmp_path, put):
    left = leave(tmp_path / ".eval.partial-0123456789ab")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        put(tmp_path / "eval")
        assert names(tmp_path) == [left.name, "eval"]
        process.kill()
    put(tmp_path / "eval", if_exists="overwrite")
    assert names(tmp_path) == ["eval"]


def test_staging_that_another_process_clears_away_too_early_is_made_again(tmp_path, put, monkeypatch):
    """Between its mkdir and its lock a new folder looks like that of a dead process."""
    flock, lost = fcntl.flock, []

    def meddling(handle, operation):
        for partial in tmp_path.glob(".eval.partial-*"):
            if not lost:
                lost.append(partial)
                partial.rmdir()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", meddling)
    put(tmp_path / "eval").verify()
    assert lost
    assert names(tmp_path) == ["eval"]


def test_staging_that_another_process_holds_for_a_moment_is_made_again(tmp_path, put, monkeypatch):
    flock, held = fcntl.flock, []

    def meddling(handle, operation):
        if not held:
            (partial,) = tmp_path.glob(".eval.partial-*")
            held.append(os.open(partial, os.O_RDONLY))
            flock(held[0], fcntl.LOCK_EX)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", meddling)
    put(tmp_path / "eval").verify()
    os.close(held[0])
    put(tmp_path / "eval", if_exists="overwrite")
    assert names(tmp_path) == ["eval"]


# --- two at once ------------------------------------------------------------------------------


def test_of_two_stages_that_write_the_same_output_the_first_to_finish_wins(tmp_path, plan, put):
    out = tmp_path / "eval"
    seen = []

    def overtake(slow: Staging) -> None:
        put(out, b"fast\n")
        seen.append((slow.path / "deep/rows.txt").read_bytes())

    with pytest.raises(ArtifactError) as caught:
        stage(out, plan(), overtake)
    assert seen == [b"new\n"]
    assert caught.value.message == f"{out}: appeared while this stage was running; nothing was replaced"
    assert caught.value.exit_code == 3
    open_artifact(out).verify()
    assert (out / "deep/rows.txt").read_bytes() == b"fast\n"
    assert names(tmp_path) == ["eval"]


def test_of_many_stages_at_once_exactly_one_wins(tmp_path, plan):
    out, barrier, outcomes = tmp_path / "eval", threading.Barrier(8), []

    def stage(number: int) -> None:
        try:
            with publishing(out, plan()) as staging:
                staging.add_bytes("rows.txt", f"{number}\n".encode())
                as_report(staging)
                barrier.wait(timeout=60)
            outcomes.append(number)
        except ArtifactError as error:
            outcomes.append(error.message)

    threads = [threading.Thread(target=stage, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert refused == [f"{out}: appeared while this stage was running; nothing was replaced"] * 7
    open_artifact(out).verify()
    assert (out / "rows.txt").read_text() == f"{winner}\n"
    assert names(tmp_path) == ["eval"]


def test_of_two_overwriting_stages_the_last_one_stays_complete(tmp_path, plan, put):
    out = put(tmp_path / "eval", b"old\n").path
    with publishing(out, plan(), if_exists="overwrite") as slow:
        slow.add_bytes("deep/rows.txt", b"slow\n")
        as_report(slow)
        put(out, b"fast\n", if_exists="overwrite")
    open_artifact(out).verify()
    assert (out / "deep/rows.txt").read_bytes() == b"slow\n"
    assert names(tmp_path) == ["eval"]


# --- locks --------------------------------------------------------------------------------------


def test_a_folder_has_one_user_at_a_time_and_is_free_afterwards(tmp_path):
    with locking.folder_lock(tmp_path / "new") as first, locking.folder_lock(tmp_path / "new") as second:
        assert (first, second) == (True, False)
    with locking.folder_lock(tmp_path / "new") as again:
        assert again


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_lock_of_a_folder_that_existed_before_is_released(tmp_path, fails, wait):
    """Such a folder is not removed at the end, so that only closing its lock releases it."""
    with suppress(Boom), locking.folder_lock(tmp_path, wait=wait) as first:
        assert first
        if fails:
            raise Boom
    with locking.folder_lock(tmp_path) as second:
        assert second
    assert tmp_path.is_dir()


def test_a_lock_removes_the_empty_folder_that_it_made_and_no_other(tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("old", "new/deep"):
        with locking.folder_lock(tmp_path / name):
            assert (tmp_path / name).is_dir()
    assert (tmp_path / "old").is_dir()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_lock_that_another_has_leaves_no_file_open(tmp_path, monkeypatch):
    mine, handles, opening = locking.lock_if_free(tmp_path), [], os.open

    def noted(*arguments: object) -> int:
        handles.append(opening(*arguments))
        return handles[-1]

    monkeypatch.setattr(os, "open", noted)
    assert mine is not None
    assert locking.lock_if_free(tmp_path) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handles[0])
    os.close(mine)


def test_where_folders_cannot_be_locked_everything_still_works(tmp_path, monkeypatch):
    """As on NFS, which locks files only."""

    handles = []

    def refuse(handle: int, operation: int) -> None:
        handles.append(handle)
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(locking.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Bad file descriptor"):
        locking.lock_if_free(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handles[0])  # it is closed
    with publish.publishing(tmp_path / "out", Plan("report", {})) as staging:
        staging.add_bytes("a.txt", b"a")
        as_report(staging)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with locking.folder_lock(tmp_path / "out") as mine:
        assert mine


def test_skip_keeps_what_another_process_published_meanwhile(tmp_path, plan, put):
    with publishing(tmp_path / "out", plan(), if_exists="skip") as staging:
        staging.add_bytes("deep/rows.txt", b"one\n", rows=1)
        as_report(staging)
        faster = put(tmp_path / "out", b"one\n")
    assert open_artifact(tmp_path / "out").sha256 == faster.sha256
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_skip_does_not_keep_what_another_process_made_of_other_settings(tmp_path, plan, put):
    def publish_slowly() -> None:
        with publishing(tmp_path / "out", plan(), if_exists="skip") as staging:
            staging.add_bytes("deep/rows.txt", b"one\n", rows=1)
            as_report(staging)
            put(tmp_path / "out", b"two\n", metrics=["auroc"])

    with pytest.raises(ArtifactError, match="appeared while this stage was running"):
        publish_slowly()


def test_an_output_that_the_disk_does_not_confirm_is_published_all_the_same(tmp_path, put, monkeypatch, caplog):
    flush = publish.flush

    def failing(path: Path) -> None:
        if path == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    monkeypatch.setattr(publish, "flush", failing)
    with caplog.at_level("WARNING", logger="ntmp_cli"):
        put(tmp_path / "out")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'out'}: is complete, but the disk did not confirm it (No space left on device)"
    ]
    open_artifact(tmp_path / "out").verify()
