"""predict --engine: one table per table, the same bytes whoever scores them, and nothing is scored twice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import own_data
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from s3_server import BUCKET, s3_server
from worker_commands import files_of, started, wait_for

from ntmp_cli.storage import StorageUrl, file_pieces

NAMES = ("a.csv", "b.parquet", "c.csv", "d.csv")


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    """A run, and a folder of four tables: one of Parquet, one of TSV, one without rows."""
    folder = own_data.write_csv(own_data.write_parquet(tmp_path_factory.mktemp("work")))
    ntmp_done("import-tuples", folder / "tuples.csv", "--unlabeled", folder / "unlabeled.csv", "--out", folder / "t")
    words = ("--prior", own_data.PRIOR, "--model", "linear", "--out", folder / "run")
    ntmp_done("train", "--tuples", folder / "t", *words)
    new = folder / "new"
    new.mkdir()
    header, *lines = (folder / "test.csv").read_text().splitlines(keepends=True)
    (new / "a.csv").write_text("".join([header, *lines[:50]]))
    pq.write_table(pacsv.read_csv(folder / "test.csv").slice(50, 40), new / "b.parquet")
    (new / "c.tsv").write_text("".join([header, *lines[90:]]).replace(",", "\t"))
    (new / "d.csv").write_text(header)
    return folder


@pytest.fixture
def new(work, tmp_path) -> Path:
    """A copy of the tables that a test may change."""
    return Path(shutil.copytree(work / "new", tmp_path / "new"))


def test_every_table_gives_one_with_the_rows_that_one_process_gives(work, new, called, tmp_path, ntmp_done):
    out = tmp_path / "out"
    facts = ntmp_done("predict", work / "run", new, "--jobs", 1, "--out", out, "--json").json
    assert called == list(NAMES)
    whole = ntmp_done("predict", work / "run", work / "test.csv", "--out", tmp_path / "whole.csv", "--json").json
    assert (facts["tables"], facts["kept"]) == (4, 0)
    same = whole.keys() - {"out"}
    assert {key: facts[key] for key in same} == {key: whole[key] for key in same}
    for name, first, rows in (("a.csv", 0, 50), ("c.csv", 90, 29)):
        lines = (tmp_path / "whole.csv").read_text().splitlines()
        assert (out / name).read_text().splitlines() == [lines[0], *lines[1 + first : 1 + first + rows]]
    scored = pacsv.read_csv(tmp_path / "whole.csv").slice(50, 40)
    assert pq.read_table(out / "b.parquet")["id"].to_pylist() == scored["id"].to_pylist()
    assert (out / "d.csv").read_text().splitlines() == lines[:1]
    manifest = json.loads((out / "_manifest.json").read_text())
    assert (manifest["kind"], manifest["rows"], manifest["run_sha256"]) == ("predictions", 119, whole["run_sha256"])
    assert [file["path"] for file in manifest["files"]] == list(NAMES)
    for file in manifest["files"]:
        content = (out / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert sum(file["positive"] for file in manifest["files"]) == manifest["positive"] == whole["positive"]
    assert str(tmp_path) not in (out / "_manifest.json").read_text()


def test_only_what_is_missing_changed_or_damaged_is_scored_again(work, new, called, tmp_path, ntmp, ntmp_done):
    words = ("predict", work / "run", new / "*", "--jobs", 1, "--out", tmp_path / "out", "--json")
    ntmp_done(*words)
    first = files_of(tmp_path / "out")

    def again(*more: object) -> list[str]:
        called.clear()
        facts = ntmp_done(*words, *more).json
        assert facts["kept"] == facts["tables"] - len(called)
        return list(called)

    assert again() == []
    assert files_of(tmp_path / "out") == first
    content = bytearray((tmp_path / "out" / "a.csv").read_bytes())
    content[-2] ^= 1
    (tmp_path / "out" / "a.csv").write_bytes(content)
    assert again() == ["a.csv"]
    (tmp_path / "out" / "b.parquet").unlink()
    assert again() == ["b.parquet"]
    next(iter((tmp_path / "out" / "_ntmp" / "done").iterdir())).write_text("{")
    assert len(again()) == 1
    assert files_of(tmp_path / "out") == first
    (new / "c.tsv").write_text((new / "c.tsv").read_text().rpartition("\n")[0].rpartition("\n")[0] + "\n")
    assert again() == ["c.csv"]
    shutil.copyfile(new / "a.csv", new / "z.csv")
    assert again() == ["z.csv"]
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["rows"] == 119 - 1 + 50
    (new / "z.csv").unlink()
    ended = ntmp(*words)
    assert (ended.code, "holds z.csv, written from a table that is no longer among" in ended.err) == (2, True)
    assert again("--if-exists", "overwrite") == list(NAMES)
    assert not (tmp_path / "out" / "z.csv").exists()
    ended = ntmp(*words, "--prior", 0.2)
    assert (ended.code, "from another run or other settings (config)" in ended.err) == (2, True)


def test_a_table_that_cannot_be_scored_costs_no_other(work, new, called, tmp_path, ntmp, ntmp_done):
    good = (new / "c.tsv").read_text()
    (new / "c.tsv").write_text(good + "torn\n")
    words = ("predict", work / "run", new, "--jobs", 1, "--out", tmp_path / "out")
    ended = ntmp(*words)
    assert (ended.code, "Traceback" in ended.err) == (3, False)
    assert "1 of 4 tables could not be scored" in ended.err
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["_ntmp", "a.csv", "b.parquet", "d.csv"]
    (new / "c.tsv").write_text(good)
    called.clear()
    ntmp_done(*words)
    assert called == ["c.csv"]
    ntmp_done(*words[:-1], tmp_path / "at-once")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "at-once")


def test_folders_below_a_pattern_are_kept_and_equal_names_refused(work, new, called, tmp_path, ntmp, ntmp_done):
    for day in ("1", "2"):
        (tmp_path / "days" / day).mkdir(parents=True)
        shutil.copyfile(new / "a.csv", tmp_path / "days" / day / "part.csv")
    words = ("--jobs", 1, "--out", tmp_path / "out")
    ntmp_done("predict", work / "run", tmp_path / "days" / "*" / "*.csv", *words)
    assert called == ["1/part.csv", "2/part.csv"]
    assert (tmp_path / "out/1/part.csv").read_bytes() == (tmp_path / "out/2/part.csv").read_bytes()
    shutil.copyfile(new / "c.tsv", new / "a.tsv")
    ended = ntmp("predict", work / "run", new, "--jobs", 1, "--out", tmp_path / "other")
    assert (ended.code, "would both give a.csv" in ended.err) == (2, True)


def test_the_output_is_a_folder_of_tables_for_the_next_reader(work, new, called, tmp_path, ntmp_done):
    ntmp_done("predict", work / "run", new / "[ac].*", "--jobs", 1, "--out", tmp_path / "out")
    from ntmp_cli.data.user.table_sets import table_paths

    assert table_paths(tmp_path / "out") == [tmp_path / "out" / "a.csv", tmp_path / "out" / "c.csv"]


@pytest.mark.parametrize(
    ("source", "words", "code", "message"),
    [
        ("new", ("--with-counts",), 2, "--with-counts: not with --engine, which scores every table alone"),
        ("new", ("--by", "id"), 2, "--by: not with --engine"),
        ("new", ("--out", "scored.csv"), 2, "--out scored.csv: not a folder"),
        ("new", ("--out", "-"), 2, "--out -: not a folder"),
        ("new", ("--out", "new"), 2, "new: is the input"),
        ("new", ("--out", "run"), 2, "is the input"),
        ("new", ("--out", "full"), 2, "full: exists and was not written by ntmp predict --engine"),
        ("new", ("--out", "full", "--if-exists", "overwrite"), 2, "so it is never replaced"),
        ("new", ("--out", "full/note.txt"), 2, "--out full/note.txt: is a file"),
        ("new", ("--engine", "rai"), 2, "unknown engine 'rai'; did you mean 'ray'"),
        ("-", (), 2, "-: standard input is one table"),
        ("none/*.csv", (), 3, "none/*.csv: no table matches"),
        ("run", (), 2, "run: neither a table nor a folder of tables"),
        ("unlabeled.parquet", ("--threshold", "f2"), 2, "f2"),
        ("other.csv", (), 3, "other.csv: has no column 'radius'"),
    ],
)
def test_what_cannot_be_meant_is_one_message_and_leaves_nothing(
    source, words, code, message, work, new, tmp_path, monkeypatch, ntmp
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(work / "run", "run")
    shutil.copyfile(work / "unlabeled.parquet", "unlabeled.parquet")
    Path("other.csv").write_text("x\n1\n")
    Path("full").mkdir()
    Path("full/note.txt").write_text("mine")
    before = {str(file) for file in Path().rglob("*")}
    ended = ntmp("predict", "run", source, "--jobs", 1, "--out", "out", *words)
    assert (ended.code, "Traceback" in ended.err) == (code, False)
    assert message in ended.err.replace("\n", " ")
    assert {str(file) for file in Path().rglob("*")} == before


def test_an_address_needs_the_engine_that_joins_it(work, new, tmp_path, ntmp):
    ended = ntmp("predict", work / "run", new, "--ray-address", "auto", "--out", tmp_path / "o.csv")
    assert (ended.code, "--ray-address needs --engine ray" in ended.err) == (2, True)


def test_a_folder_where_no_table_could_be_scored_is_not_left(work, called, tmp_path, ntmp):
    (tmp_path / "bad.csv").write_bytes((work / "test.csv").read_bytes() + b"torn\n")
    ended = ntmp("predict", work / "run", tmp_path / "bad.csv", "--jobs", 1, "--out", tmp_path / "out")
    assert ended.code == 3
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]


def test_records_that_name_files_elsewhere_are_not_followed(work, new, called, tmp_path, ntmp_done):
    words = ("predict", work / "run", new, "--jobs", 1, "--out", tmp_path / "out")
    ntmp_done(*words)
    (tmp_path / "kept.csv").write_text("mine")
    for record in (tmp_path / "out" / "_ntmp" / "done").iterdir():
        forged = {**json.loads(record.read_text()), "name": "../kept.csv"}
        record.write_text(json.dumps(forged))
    ntmp_done(*words, "--if-exists", "overwrite")
    assert (tmp_path / "kept.csv").read_text() == "mine"


# Processes -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_worker_costs_its_table_and_nothing_else(work, first_block, tmp_path, ntmp_done):
    out, waited = tmp_path / "out", first_block.environment
    words = ("predict", work / "run", work / "new", "--out")
    with started(*words, out, "--jobs", 2, "--json", **waited) as command:
        victim = first_block.process(command)
        wait_for(lambda: len(list(out.glob("_ntmp/done/*"))) == 3, command)
        written = {name: (out / name).stat().st_mtime_ns for name in NAMES if (out / name).exists()}
        os.kill(victim, signal.SIGKILL)
        answer, err = command.communicate()
    assert command.returncode == 0, err
    assert (json.loads(answer)["tables"], json.loads(answer)["kept"]) == (4, 0)
    assert len(written) == 3
    assert {name: (out / name).stat().st_mtime_ns for name in written} == written
    ntmp_done(*words, tmp_path / "one", "--jobs", 1)
    assert files_of(out) == files_of(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_command_goes_on_where_it_stopped(number, work, first_block, tmp_path, ntmp_done):
    out = tmp_path / "out"
    words = ("predict", work / "run", work / "new", "--jobs", 2, "--json", "--out")
    with started(*words, out, **first_block.environment) as command:
        worker = first_block.process(command)
        wait_for(lambda: len(list(out.glob("_ntmp/done/*"))) == 3, command)
        command.send_signal(number)
        command.communicate()
    assert command.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    limit = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists() and time.monotonic() < limit:  # no worker outlives its command
        time.sleep(0.02)
    assert not Path(f"/proc/{worker}").exists()
    assert [file.name for file in out.iterdir() if file.name.startswith(".")] == []
    assert not (out / "_manifest.json").exists()
    assert ntmp_done(*words, out).json["kept"] == 3
    ntmp_done(*words, tmp_path / "at-once")
    assert files_of(out) == files_of(tmp_path / "at-once")


@pytest.mark.slow
def test_a_ray_cluster_and_an_s3_server_give_the_bytes_of_one_process(
    work, first_block, ray_cluster, tmp_path, monkeypatch, ntmp_done
):
    pytest.importorskip("ray")
    with s3_server() as environment, ray_cluster({**first_block.environment, **environment}) as address:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        url = StorageUrl(f"s3://{BUCKET}/data")
        for file in (work / "new").iterdir():
            (url / "new" / file.name).write(file_pieces(file))
        records, out = url / "out/_ntmp/done", url / "out"
        words = ("predict", work / "run", f"{url.raw}/new/*", "--engine", "ray", "--ray-address", address, "--json")
        with started(*words, "--out", f"{out.raw}/", **environment) as command:
            victim = first_block.process(command)
            wait_for(lambda: len(records.children()) == 3, command)
            written = {name: (out / name).modified_ns() for name in NAMES if (out / name).exists()}
            os.kill(victim, signal.SIGKILL)
            answer, err = command.communicate()
        assert command.returncode == 0, err
        assert (json.loads(answer)["tables"], json.loads(answer)["kept"]) == (4, 0)
        assert len(written) == 3
        assert {name: (out / name).modified_ns() for name in written} == written
        with started(*words, "--out", out.raw, **environment) as command:
            answer, err = command.communicate()
        assert command.returncode == 0, err
        assert json.loads(answer)["kept"] == 4
        ntmp_done("predict", work / "run", work / "new", "--jobs", 1, "--out", tmp_path / "one")
        here = files_of(tmp_path / "one")
        assert {name: b"".join((out / name).pieces()) for name in here} == here
        assert sorted(child.name for child in out.children()) == sorted({name.split("/")[0] for name in here})
