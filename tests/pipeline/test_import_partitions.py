"""import-tuples --engine: the bytes of one process, whoever reads and writes; what is done is not done again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import own_data
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from worker_commands import files_of, started, wait_for

from ntmp_cli.artifacts import import_shards, import_work
from ntmp_cli.sweeps.calls import Call, CallOutcome, perform
from ntmp_cli.sweeps.engine import Resources, engines


def write_tables(folder: Path, ending: str) -> Path:
    """Tuples in four tables, their rows anywhere; unlabeled rows in two; a table of test rows."""
    write: Any = pacsv.write_csv if ending == "csv" else pq.write_table
    for name, parts in (("tuples", 4), ("unlabeled", 2), ("test", 1)):
        table = own_data.tables()[name]
        colours = pa.array(np.random.default_rng(len(table)).choice(["red", "green", "blue"], len(table)))
        table = table.append_column("colour", pa.array(colours, mask=np.arange(len(table)) % 7 == 3))
        (folder / name).mkdir(parents=True)
        size = -(-len(table) // parts)
        for number in range(parts):
            write(table.slice(number * size, size), folder / name / f"{number}.{ending}")
    return folder


def words_of(folder: Path) -> tuple[object, ...]:
    return (folder / "tuples", "--unlabeled", folder / "unlabeled", "--test", folder / "test")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tables"), "csv")


@pytest.fixture
def called(called, monkeypatch) -> list[str]:
    """Blocks and shards are small, so that there are many."""
    monkeypatch.setattr(import_shards, "SHARD_BYTES", 4000)
    monkeypatch.setattr(import_work, "BLOCKS_PER_CALL", 2)
    monkeypatch.setattr("ntmp_cli.stages.import_tuples.STATISTICS_ROWS", 64)
    return called


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_workers_write_the_bytes_of_one_process(ending, called, tmp_path, ntmp_done):
    folder = write_tables(tmp_path / "in", ending)
    ntmp_done("import-tuples", *words_of(folder), "--out", tmp_path / "one")
    assert called == []
    ntmp_done("import-tuples", *words_of(folder), "--jobs", 1, "--out", tmp_path / "workers")
    assert files_of(tmp_path / "workers") == files_of(tmp_path / "one")
    tuples = [name for name in called if name.startswith("train/tuples-")]
    statistics = [name for name in called if name.isdigit()]
    assert (len(called), len(tuples) > 2, len(statistics) > 1) == (len(set(called)), True, True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "one", "workers"]


def test_blocks_laws_labels_and_a_file_of_counts_are_read_alike(called, tmp_path, ntmp_done):
    folder = tmp_path / "in"
    folder.mkdir()
    rng = np.random.default_rng(3)
    for number in range(3):
        lines = ["tuple_id,patient,label,id,x,y"]
        for row in range(60):
            owner = int(rng.integers(0, 20))
            label = "1" if row == 7 else ""
            lines.append(f"t{owner},p{owner % 5},{label},r{number}-{row},{rng.normal():.3f},{rng.integers(0, 2)}")
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
    counts = ["tuple_id,count,count_law", *(f"t{owner},{2 + owner % 3},gaussian:1" for owner in range(20))]
    (tmp_path / "counts.csv").write_text("\n".join(counts) + "\n")
    words = (folder, "--counts", tmp_path / "counts.csv", "--block-column", "patient", "--categorical", "y")
    ntmp_done("import-tuples", *words, "--out", tmp_path / "one")
    ntmp_done("import-tuples", *words, "--jobs", 1, "--out", tmp_path / "workers")
    assert files_of(tmp_path / "workers") == files_of(tmp_path / "one")
    assert called


def test_tables_behind_urls_are_read_alike(tables, called, tmp_path, ntmp_done):
    urls = (f"file://{tables}/tuples/*.csv", "--unlabeled", f"file://{tables}/unlabeled/")
    ntmp_done("import-tuples", *urls, "--out", tmp_path / "one")
    ntmp_done("import-tuples", *urls, "--jobs", 1, "--out", tmp_path / "workers")
    assert files_of(tmp_path / "workers") == files_of(tmp_path / "one")
    assert called


def test_the_next_attempt_does_only_what_is_missing(tables, called, tmp_path, monkeypatch, ntmp, ntmp_done):
    out, words = tmp_path / "out", ("import-tuples", *words_of(tables), "--jobs", 1, "--out")
    ntmp_done(*words, tmp_path / "at-once")
    every = list(called)

    def failing_at(number: int) -> None:
        called.clear()

        def here(calls: Sequence[Call], resources: Resources) -> Iterator[CallOutcome]:
            for call in calls:
                called.append(call.name)
                lost = len(called) >= number
                yield CallOutcome(call.name, "its process was killed", 1) if lost else perform(call)

        monkeypatch.setattr(engines, "get", lambda name: here)

    reading, computing = every[:7], [name for name in every if name.isdigit()]
    writing = every[7 + len(computing) :]
    assert (len(computing), len(writing) > 4) == (4, True)
    failing_at(4)
    ended = ntmp(*words, out)
    assert (ended.code, called, "4 of 7 tables could not be read" in ended.err) == (1, reading, True)
    assert f"  {tables / 'tuples' / '3.csv'}: its process was killed\n" in ended.err
    assert not any(name in ended.err for name in reading)
    failing_at(4 + 2)
    ended = ntmp(*words, out)
    assert (ended.code, called, "3 of 4 blocks could not be computed" in ended.err) == (
        1,
        reading[3:] + computing,
        True,
    )
    failing_at(3 + 3)
    ended = ntmp(*words, out)
    assert (ended.code, called, "shards could not be written" in ended.err) == (1, computing[1:] + writing, True)
    assert not out.exists()
    failing_at(10**6)
    ntmp_done(*words, out)
    assert called == writing[2:]
    assert files_of(out) == files_of(tmp_path / "at-once")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["at-once", "out"]


def test_a_table_that_changed_is_read_again_and_no_other(tables, called, tmp_path, monkeypatch, ntmp, ntmp_done):
    folder = Path(shutil.copytree(tables, tmp_path / "in"))
    words = ("import-tuples", *words_of(folder), "--jobs", 1, "--out", tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(import_work, "WORKER", "ntmp_cli.stages.no_such_module")
        assert ntmp(*words).code == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in"]  # nothing was done, so nothing is left
    here = engines.get("local")

    def without_shards(calls: Sequence[Call], resources: Resources) -> Iterator[CallOutcome]:
        reading = calls[0].function.endswith(":read_table")
        yield from here(calls, resources) if reading else (CallOutcome(call.name, "lost", 1) for call in calls)

    with monkeypatch.context() as patched:
        patched.setattr(engines, "get", lambda name: without_shards)
        assert ntmp(*words).code == 1
    assert len(called) == 7 * 1 + 7  # those of the module that does not exist were called too
    called.clear()
    header, *lines = (folder / "tuples" / "2.csv").read_text().splitlines(keepends=True)
    (folder / "tuples" / "2.csv").write_text("".join([header, *lines[:-1]]))
    (folder / "unlabeled" / "1.csv").unlink()
    ntmp_done(*words)
    assert len([name for name in called if len(name) == 32]) == 1
    ntmp_done("import-tuples", *words_of(folder), "--out", tmp_path / "one")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")


def test_problems_are_listed_as_by_one_process_and_nothing_is_left(tables, called, tmp_path, ntmp):
    folder = Path(shutil.copytree(tables, tmp_path / "in"))
    good = (folder / "tuples" / "1.csv").read_text()
    words = ("import-tuples", *words_of(folder), "--out", tmp_path / "out")
    header, first, *rest = good.splitlines(keepends=True)
    wrong_count = ",".join([first.split(",")[0], "9", *first.split(",")[2:]])
    wrong = "".join([header, wrong_count, *rest])  # only all tables together tell
    for content in (good + "torn\n", wrong):
        (folder / "tuples" / "1.csv").write_text(content)
        one, workers = ntmp(*words), ntmp(*words, "--jobs", 1)
        assert (one.code, workers.code) == (3, 3)
        problems = one.err[one.err.index("error:") :]
        assert workers.err.endswith(problems)
        place = f"{folder / 'tuples' / '1.csv'} row "
        assert ("read again by one process: " + place in workers.err) == (content != wrong)
        assert [file.name for file in tmp_path.iterdir()] == ["in"]


def test_texts_below_the_first_rows_make_categories_as_by_one_process(tables, called, tmp_path, monkeypatch, ntmp_done):
    monkeypatch.setattr(import_shards, "SHARD_BYTES", 2**24)
    folder = Path(shutil.copytree(tables, tmp_path / "in"))
    header, *lines = (folder / "tuples" / "3.csv").read_text().splitlines(keepends=True)
    assert header.split(",")[-2] == '"compactness"'
    lines[5] = ",".join([*lines[5].split(",")[:-2], "high", lines[5].split(",")[-1]])
    (folder / "tuples" / "3.csv").write_text("".join([header, *lines]))
    options = ("--max-categories", 1000)
    alone = ntmp_done("import-tuples", *words_of(folder), *options, "--out", tmp_path / "one")
    ended = ntmp_done("import-tuples", *words_of(folder), *options, "--jobs", 1, "--out", tmp_path / "workers")
    place = f"{folder / 'tuples' / '3.csv'} row 6, column 'compactness': 'high' is not a number"
    assert f"the tables are read again by one process: {place}" in ended.err
    again = "texts below the first rows of 'compactness': the column holds categories; all is read again"
    assert again in alone.err
    assert again in ended.err
    assert files_of(tmp_path / "workers") == files_of(tmp_path / "one")


def test_what_workers_cannot_read_is_refused(tables, tmp_path, ntmp):
    np.savez(tmp_path / "t.npz", x=np.zeros((4, 2)), offsets=[0, 2, 4], counts=[1, 1])
    ended = ntmp("import-tuples", tmp_path / "t.npz", "--jobs", 2, "--out", tmp_path / "out")
    assert (ended.code, "t.npz: not a table of features" in ended.err) == (2, True)
    words = ("import-tuples", *words_of(tables), "--out", tmp_path / "out")
    ended = ntmp(*words, "--engine", "rai")
    assert (ended.code, "unknown engine 'rai'; did you mean 'ray'" in ended.err) == (2, True)
    for more in ((), ("--jobs", 2), ("--engine", "local")):
        ended = ntmp(*words, *more, "--ray-address", "auto")
        assert (ended.code, "--ray-address needs --engine ray" in ended.err) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["t.npz"]


# Processes -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_worker_and_an_interrupted_command_cost_what_they_were_doing(tables, first_block, tmp_path, ntmp_done):
    ntmp_done("import-tuples", *words_of(tables), "--out", tmp_path / "one")
    records = tmp_path / ".out.import" / "rows" / "_ntmp" / "done"
    words = (*words_of(tables), "--jobs", 2, "--out", tmp_path / "out")
    with started("import-tuples", *words, **first_block.environment) as command:
        victim = first_block.process(command)
        wait_for(lambda: len(list(records.glob("*.json"))) == 6, command)
        os.kill(victim, signal.SIGKILL)
        _, err = command.communicate()
    assert command.returncode == 0, err
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")
    shutil.rmtree(tmp_path / "out")
    first_block.file.unlink()
    with started("import-tuples", *words, **first_block.environment) as command:
        first_block.process(command)
        wait_for(lambda: len(list(records.glob("*.json"))) == 6, command)
        command.send_signal(signal.SIGINT)
        command.communicate()
    assert command.returncode == 130
    written = {file: file.stat().st_mtime_ns for file in records.glob("*.json")}
    assert len(written) == 6
    with started("import-tuples", *words, **first_block.environment) as command:  # nothing waits twice
        wait_for(lambda: len(list(records.glob("*.json"))) == 7 or command.poll() is not None, command)
        kept = {file: file.stat().st_mtime_ns for file in written if file.exists()}
        _, err = command.communicate()
    assert command.returncode == 0, err
    assert kept.items() <= written.items()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")


@pytest.mark.slow
def test_a_ray_cluster_writes_the_bytes_of_one_process(tables, first_block, ray_cluster, tmp_path, ntmp_done):
    pytest.importorskip("ray")
    ntmp_done("import-tuples", *words_of(tables), "--out", tmp_path / "one")
    with ray_cluster(first_block.environment) as address:
        words = (*words_of(tables), "--engine", "ray", "--ray-address", address, "--out", tmp_path / "out")
        with started("import-tuples", *words) as command:
            victim = first_block.process(command)
            records = tmp_path / ".out.import" / "rows" / "_ntmp" / "done"
            wait_for(lambda: len(list(records.glob("*.json"))) == 6, command)
            os.kill(victim, signal.SIGKILL)
            _, err = command.communicate()
        assert command.returncode == 0, err
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")
