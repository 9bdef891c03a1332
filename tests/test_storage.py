"""URLs as places of files: never shown with credentials, patterns as on a disk, one message per mistake."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ntmp_cli.artifacts import refuse_overlap
from ntmp_cli.data.user.table_sets import require_input, table_paths
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.storage import StorageUrl, location, on_disk, redacted

fsspec = pytest.importorskip("fsspec")

NAMES = ("a.csv", "b.csv", "sub/c.csv", "sub/.hidden.csv", "other/d.csv", "odd % ?[1]*.csv", "notes.txt")


@pytest.fixture
def memory() -> Iterator[StorageUrl]:
    """A folder in the memory of this process."""
    fsspec.filesystem("memory").store.clear()
    yield StorageUrl("memory://bucket")
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/new/a.parquet", "s3://bucket/new/a.parquet"),
        ("s3://KEY:SECRET@bucket/new", "s3://***@bucket/new"),
        ("s3://KEY:SEC/RET@bucket/new", "s3://***@bucket/new"),
        ("s3://KEY@bucket/new", "s3://***@bucket/new"),
        ("s3://bucket/new?access_key=KEY&secret_key=SECRET", "s3://bucket/new?***"),
        ("https://host/a.csv?sig=SECRET", "https://host/a.csv?***"),
        ("abfs://container@account/a.csv", "abfs://container@account/a.csv"),
        ("abfs://KEY:SECRET@account/a.csv", "abfs://***@account/a.csv"),
        ("cannot open 's3://KEY:SECRET@b/x' or https://h/y?k=SECRET", "cannot open 's3://***@b/x' or https://h/y?***"),
        ("no URL: a?b@c", "no URL: a?b@c"),
    ],
)
def test_credentials_are_never_shown(url, shown):
    assert redacted(url) == shown
    if not url.startswith(("no", "cannot")):
        assert str(location(url)) == shown
        assert "SEC" not in repr(location(url))


def test_paths_stay_paths_and_file_urls_become_paths():
    assert location("a/b.csv") == Path("a/b.csv")
    assert location("-") == Path("-")
    assert location("file:///a%20b/c.csv") == Path("/a b/c.csv")
    with pytest.raises(UsageError, match="names the machine 'host'"):
        location("file://host/c.csv")


def test_patterns_name_what_they_name_on_a_disk(memory, tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        (memory / name).write(iter([name.encode()]))
        assert b"".join((memory / name).pieces()) == name.encode()
    for pattern in ("*.csv", "[ab].csv", "*/*.csv", "s*/c.csv", "sub/*.csv", "sub/.*", "none*", "*"):
        there = StorageUrl(f"{memory.raw}/{pattern}").matches()
        here = glob.glob(str(tmp_path / pattern))  # noqa: PTH207 - what a shell would name
        assert sorted(url.relative_to(memory) for url in there) == sorted(os.path.relpath(p, tmp_path) for p in here)
        for url in there:
            assert not url.is_pattern
            if url.is_file():
                assert url.size() == len(b"".join(url.pieces())) > 0


def test_a_folder_of_tables_is_one_data_set(memory):
    (memory / "rows/b.csv").write(iter([b"x\n"]))
    (memory / "rows/a.csv").write(iter([b"x\n"]))
    (memory / "rows/_done").write(iter([b"x\n"]))
    assert [url.name for url in table_paths(memory / "rows")] == ["a.csv", "b.csv"]
    assert table_paths(memory / "rows/a.csv") is None
    (memory / "rows/readme.txt").write(iter([b"x\n"]))
    assert table_paths(memory / "rows") is None
    with pytest.raises(UsageError, match="neither a table nor a folder of tables"):
        on_disk(memory / "rows")


def test_what_is_not_there_is_said(memory):
    with pytest.raises(DataError, match=r"memory://bucket/none\.csv: no such file"):
        require_input(memory / "none.csv")
    with pytest.raises(DataError, match=r"memory://bucket/\*\.csv: no table matches"):
        require_input(StorageUrl("memory://bucket/*.csv"))
    with pytest.raises(DataError, match="no such file"):
        list((memory / "none.csv").pieces())


def test_an_output_is_never_an_input(memory):
    for out in (memory / "new/a.csv", memory / "new", memory / "new/a.csv/deeper"):
        with pytest.raises(UsageError, match="inputs are never changed"):
            refuse_overlap(out, [memory / "new/a.csv"])
    with pytest.raises(UsageError, match="inputs are never changed"):
        refuse_overlap(StorageUrl("s3://bucket/new"), [StorageUrl("s3://KEY:SECRET@bucket/new/")])
    refuse_overlap(memory / "newer", [memory / "new", Path("new")])


@pytest.mark.skipif(importlib.util.find_spec("adlfs") is not None, reason="the package is there")
def test_a_missing_package_is_a_message():
    with pytest.raises(UsageError, match=r"az:// needs a package .*adlfs"):
        location("az://container/a.csv").exists()
    with pytest.raises(UsageError, match="://: not supported"):
        location("nonsense://a.csv").exists()
