"""import-tuples and predict by URL: the bytes are those of files on a disk, and no message shows credentials."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import own_data
import pytest
from s3_server import BUCKET, s3_server

from ntmp_cli.storage import StorageUrl, file_pieces

pytestmark = pytest.mark.slow  # a server of its own

fsspec = pytest.importorskip("fsspec")

SECRET = "sEcReT"


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    """A folder of two Parquet files, one of CSV, and an unlabeled table."""
    folder = own_data.write_csv(own_data.write_parquet(tmp_path_factory.mktemp("rows")))
    lines = (folder / "tuples.csv").read_text().splitlines(keepends=True)
    (folder / "set").mkdir()
    half = len(lines) // 2
    (folder / "set" / "a.csv").write_text("".join(lines[:half]))
    (folder / "set" / "b.csv").write_text("".join([lines[0], *lines[half:]]))
    return folder


@pytest.fixture(scope="module")
def trained(rows, ntmp_done) -> Path:
    ntmp_done("import-tuples", rows / "set", "--unlabeled", rows / "unlabeled.parquet", "--out", rows / "t")
    ntmp_done("train", "--tuples", rows / "t", "--prior", own_data.PRIOR, "--out", rows / "run")
    return rows / "run"


def copied(folder: Path, to: StorageUrl) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix in (".csv", ".parquet"):
            (to / str(file.relative_to(folder))).write(file_pieces(file))


@pytest.fixture
def memory(rows) -> Iterator[StorageUrl]:
    store = fsspec.filesystem("memory").store
    store.clear()
    url = StorageUrl("memory://bucket/data")
    copied(rows, url)
    yield url
    store.clear()


@pytest.fixture(scope="module")
def s3(rows) -> Iterator[StorageUrl]:
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        url = StorageUrl(f"s3://{BUCKET}/data")
        copied(rows, url)
        yield url


def payload(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def same_as_on_a_disk(url: StorageUrl, rows: Path, trained: Path, tmp_path: Path, ntmp_done) -> None:
    unlabeled = ("--unlabeled", f"{url.raw}/unlabeled.parquet")
    ntmp_done("import-tuples", f"{url.raw}/set/", *unlabeled, "--out", tmp_path / "t")
    assert payload(tmp_path / "t") == payload(rows / "t")
    ntmp_done("predict", trained, rows / "set" / "*.csv", "--out", tmp_path / "here.parquet")
    result = ntmp_done("predict", trained, f"{url.raw}/set/*.csv", "--out", f"{url.raw}/out/there.parquet", "--json")
    assert result.json["out"] == f"{url}/out/there.parquet"
    assert b"".join((url / "out/there.parquet").pieces()) == (tmp_path / "here.parquet").read_bytes()
    ntmp_done("predict", trained, rows / "test.parquet", "--out", tmp_path / "here.csv")
    ntmp_done("predict", trained, f"{url.raw}/test.parquet", "--out", f"{url.raw}/out/there.csv")
    assert b"".join((url / "out/there.csv").pieces()) == (tmp_path / "here.csv").read_bytes()


def test_files_behind_urls_give_the_bytes_of_files_on_a_disk(memory, rows, trained, tmp_path, ntmp_done):
    same_as_on_a_disk(memory, rows, trained, tmp_path, ntmp_done)


def test_an_output_behind_a_url_is_replaced_only_when_asked_and_never_left_in_part(memory, trained, ntmp, ntmp_done):
    words = ("predict", trained, f"{memory.raw}/test.csv", "--out", f"{memory.raw}/scored.csv")
    ntmp_done(*words)
    before = b"".join((memory / "scored.csv").pieces())
    ended = ntmp(*words)
    assert (ended.code, "scored.csv: exists already" in ended.err) == (2, True)
    ntmp_done(*words, "--if-exists", "overwrite")
    assert b"".join((memory / "scored.csv").pieces()) == before
    (memory / "bad.csv").write(iter([b"".join((memory / "test.csv").pieces()), b"torn\n"]))
    ended = ntmp("predict", trained, f"{memory.raw}/bad.csv", "--out", f"{memory.raw}/other.csv")
    assert ended.code == 3
    assert not (memory / "other.csv").exists()


@pytest.mark.parametrize(
    ("source", "out", "code", "message"),
    [
        ("{}/none.csv", "o.csv", 3, "memory://bucket/data/none.csv: no such file"),
        ("{}/x.npz", "o.csv", 3, "memory://bucket/data/x.npz: no such file"),
        ("{}", "o.csv", 2, "memory://bucket/data: neither a table nor a folder of tables"),
        ("{}/test.csv", "{}/test.csv", 2, "memory://bucket/data/test.csv: is the input"),
        ("{}/test.csv", "{}/scored.npz", 2, "--out memory://bucket/data/scored.npz: not the name of a table"),
        ("nonsense://a.csv", "o.csv", 2, "nonsense://: not supported"),
    ],
)
def test_what_cannot_be_meant_is_one_message(source, out, code, message, memory, trained, tmp_path, ntmp):
    where = out.format(memory.raw) if out.startswith("{") else tmp_path / out
    ended = ntmp("predict", trained, source.format(memory.raw), "--out", where)
    assert (ended.code, "Traceback" in ended.err) == (code, False)
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def test_an_s3_server_gives_the_bytes_of_files_on_a_disk(s3, rows, trained, tmp_path, ntmp_done):
    same_as_on_a_disk(s3, rows, trained, tmp_path, ntmp_done)


def test_credentials_in_a_url_are_in_no_message_and_no_output(s3, rows, trained, tmp_path, ntmp, ntmp_done):
    with_key = f"s3://AKIAKEY:{SECRET}@{BUCKET}/data"
    ended = ntmp_done("import-tuples", f"{with_key}/set", "--out", tmp_path / "t", "--json")
    ended_dry = ntmp_done("import-tuples", f"{with_key}/set", "--dry-run")
    scored = ntmp_done("predict", trained, f"{with_key}/test.csv", "--out", f"{with_key}/scored.csv")
    outputs = [ended.out + ended.err, ended_dry.out + ended_dry.err, scored.out + scored.err]
    for name in ("none.csv", "no*ne.csv", "scored.csv"):
        failed = ntmp("predict", trained, f"{with_key}/{name}", "--out", f"{with_key}/scored.csv")
        assert failed.code in (2, 3)
        assert "s3://***@bucket/data/" in failed.err
        outputs.append(failed.out + failed.err)
    nowhere = ntmp("predict", trained, f"s3://AKIAKEY:{SECRET}@no-such/x.csv", "--out", f"{with_key}/new.csv")
    assert (nowhere.code, "Traceback" in nowhere.err) == (3, False)
    outputs.append(nowhere.err)
    everything = "".join(outputs).encode() + b"".join(payload(tmp_path).values())
    assert SECRET.encode() not in everything
    assert b"AKIAKEY" not in everything


def test_files_of_a_web_server_are_read(rows, trained, tmp_path, ntmp, ntmp_done):
    pytest.importorskip("aiohttp")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(rows)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        for name in ("test.csv", "test.parquet"):
            ntmp_done("predict", trained, rows / name, "--out", tmp_path / f"here-{name}")
            ntmp_done("predict", trained, f"{url}/{name}?token={SECRET}", "--out", tmp_path / f"there-{name}")
            assert (tmp_path / f"there-{name}").read_bytes() == (tmp_path / f"here-{name}").read_bytes()
        failed = ntmp("predict", trained, f"{url}/none.csv?token={SECRET}", "--out", tmp_path / "o.csv")
        assert (failed.code, SECRET in failed.err, "Traceback" in failed.err) == (3, False, False)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
