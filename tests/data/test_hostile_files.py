"""Files that were made to harm: sizes that their bytes do not hold, bytes that unpack without end, devices, Latin-1."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ntmp_cli import unpacking
from ntmp_cli.app import run
from ntmp_cli.data import formats
from ntmp_cli.data.formats import read_idx, read_image, read_npz, read_svhn_mat
from ntmp_cli.data.sources.folder import read_all
from ntmp_cli.data.user import images
from ntmp_cli.data.user.arrays import ArrayRows, open_arrays
from ntmp_cli.data.user.images import ImageFormat, all_images
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.table_files import as_text, open_table
from ntmp_cli.errors import DataError

MEGABYTE = 2**20
BLOCK = 2**20


@pytest.fixture
def little(monkeypatch):
    """A limit of one megabyte for small files, so that a bomb of two is enough."""
    monkeypatch.delenv(unpacking.LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(unpacking, "LEAST", MEGABYTE)


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def bombs(folder: Path) -> dict[str, Path]:
    """Files of some kilobytes that unpack to two megabytes or more."""
    size = 2 * MEGABYTE
    idx = folder / "bomb-idx3.gz"
    idx.write_bytes(gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", size, 1, 1) + bytes(size)))
    body = zlib.compress(struct.pack("<II", 14, size) + bytes(size))
    mat = folder / "bomb.mat"
    mat.write_bytes(bytes(124) + struct.pack("<H", 0x0100) + b"IM" + struct.pack("<II", 15, len(body)) + body)
    npz = folder / "bomb.npz"
    np.savez_compressed(npz, x=np.zeros(size, np.uint8), y=np.zeros(2, np.uint8))
    table = folder / "bomb.csv.gz"
    table.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * (size // 4)))
    parquet = folder / "bomb.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(size, np.int8))}), parquet)
    return {"idx": idx, "mat": mat, "npz": npz, "csv": table, "parquet": parquet}


def read_all_rows(path: Path) -> int:
    table = open_table(path)
    return sum(batch.num_rows for batch in table.batches(dict.fromkeys(table.types, "number"), Problems()))


BOMB_READERS = {
    "idx": lambda path: read_idx(path, 3),
    "mat": read_svhn_mat,
    "npz": lambda path: read_npz(path, (("x", "y"),)),
    "npz rows": lambda path: open_arrays(path, BLOCK),
    "csv": read_all_rows,
    "parquet": read_all_rows,
}


@pytest.mark.parametrize("kind", BOMB_READERS)
def test_a_file_that_unpacks_to_too_much_is_refused(kind, little, tmp_path):
    path = bombs(tmp_path)[kind.partition(" ")[0]]
    assert path.stat().st_size < 20_000
    with pytest.raises(DataError, match=r"bytes unpack to [\d,]+ or more, and [\d,]+ are allowed") as caught:
        BOMB_READERS[kind](path)
    assert "--unpack-limit-mb" in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["idx", "npz", "npz rows", "csv", "parquet"])
def test_a_larger_limit_lets_it_pass(kind, little, tmp_path, monkeypatch):
    monkeypatch.setenv(unpacking.LIMIT_VARIABLE, "64")
    BOMB_READERS[kind](bombs(tmp_path)[kind.partition(" ")[0]])


def test_the_option_sets_the_limit_for_this_process_and_its_children(monkeypatch, capsys):
    monkeypatch.setenv(unpacking.LIMIT_VARIABLE, "")
    assert run(["--unpack-limit-mb", "7", "list", "metrics"]) == 0
    assert unpacking.unpack_limit(1) == 7 * MEGABYTE
    assert run(["--unpack-limit-mb", "0", "list", "metrics"]) == 2


def test_the_limits_are_those_of_the_documents(monkeypatch):
    monkeypatch.setenv(unpacking.LIMIT_VARIABLE, "")
    assert unpacking.unpack_limit(1) == 512 * MEGABYTE
    assert unpacking.unpack_limit(1, unpacking.LEAST_IMAGE) == 64 * MEGABYTE


def test_large_files_may_unpack_to_more():
    assert unpacking.unpack_limit(10**9) == 100 * 10**9


def test_images_are_bounded_alone_and_together(tmp_path, monkeypatch):
    for number in range(3):
        Image.new("RGB", (200, 200)).save(tmp_path / f"{number}.png")
    files = sorted(tmp_path.glob("*.png"))
    assert read_image(files[0]).shape == (200, 200, 3)
    monkeypatch.setattr("ntmp_cli.data.formats.LEAST_IMAGE", 100_000)  # of 160,000 bytes in 500 or so
    with pytest.raises(DataError, match="unpack to 160,000 or more"):
        read_image(files[0])
    monkeypatch.undo()
    monkeypatch.setattr(unpacking, "LEAST", 300_000)
    with pytest.raises(DataError, match="unpack to 360,000 or more"):
        read_all(tmp_path, files, None)
    assert len(read_all(tmp_path, files, 8)) == 3


def test_few_large_images_are_held_at_a_time(tmp_path, monkeypatch):
    for number in range(5):
        Image.new("RGB", (100, 100)).save(tmp_path / f"{number}.png")
    monkeypatch.setattr(images, "BYTES_AT_ONCE", 70_000)  # two of 30,000 bytes
    blocks = [len(rows.cells) for rows in all_images(tmp_path, ImageFormat()).rows(Problems())]
    assert blocks == [1, 2, 2]


def test_no_more_is_unpacked_than_is_allowed(little, tmp_path, monkeypatch):
    asked, reading = [], formats._read_at_most
    monkeypatch.setattr(formats, "_read_at_most", lambda stream, size: asked.append(size) or reading(stream, size))
    with pytest.raises(DataError, match="are allowed"):
        read_idx(bombs(tmp_path)["idx"], 3)
    assert asked == [MEGABYTE + 1]


# --- sizes that the bytes do not hold -----------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 10**12), (10**12, 2), (-1, 4), (2, -(10**12)), (17,)])
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_announces_more_than_there_is_is_refused_at_once(shape, packed, tmp_path):
    content, path = npy_header(shape) + bytes(64), tmp_path / ("x.npz" if packed else "x.npy")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
            archive.writestr("y.npy", npy_header((2,), "|u1") + bytes(2))
        with pytest.raises(DataError, match="the header announces shape"):
            read_npz(path, (("x", "y"),))
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match="the header announces shape"):
        open_arrays(path, BLOCK)


def test_a_trillion_columns_without_a_row_are_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy_header((0, 10**12)))
    with pytest.raises(DataError, match="has no rows"):
        ArrayRows(open_arrays(tmp_path / "x.npy", BLOCK), "x", {})


# --- devices, pipes -----------------------------------------------------------------------------


@pytest.mark.parametrize("read", [read_all_rows, read_image, lambda path: open_arrays(path, BLOCK)])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused(read, kind, tmp_path):
    for ending in (".csv", ".parquet", ".npz", ".png"):
        path = tmp_path / f"x{ending}"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        if (read is read_all_rows) == (ending in (".csv", ".parquet")):
            with pytest.raises(DataError, match="not a regular file"):
                read(path)


# --- text ---------------------------------------------------------------------------------------


def test_a_latin_1_header_is_said_to_be_no_utf_8(tmp_path, capsys):
    path = tmp_path / "latin.csv"
    path.write_bytes(b"tuple_id,count,pr\xe9nom\n1,1,2\n")
    assert run(["import-tuples", str(path), "--out", str(tmp_path / "out")]) == 3
    assert capsys.readouterr().err == f"error: {path}: not UTF-8 text\nSave the table as CSV in UTF-8.\n"
    assert [file.name for file in tmp_path.iterdir()] == ["latin.csv"]


def test_ids_beyond_64_bits_are_kept_as_text():
    assert as_text(pa.array([1e300, 2.0])).to_pylist() == ["1e+300", "2"]


def test_a_damaged_parquet_file_is_refused_wherever_it_is_damaged(tmp_path):
    table = pa.table({"a": np.arange(500.0), "t": [f"x{i % 7}" for i in range(500)]})
    pq.write_table(table, tmp_path / "good.parquet")
    good, rng = (tmp_path / "good.parquet").read_bytes(), np.random.default_rng(0)
    outcomes = set()
    for _ in range(120):
        damaged = bytearray(good)
        for at in rng.integers(4, len(good) - 8, 3):
            damaged[at] = rng.integers(256)
        (tmp_path / "bad.parquet").write_bytes(damaged)
        try:
            outcomes.add(read_table(tmp_path / "bad.parquet"))
        except DataError:
            outcomes.add("refused")
    assert "refused" in outcomes


def read_table(path: Path) -> str:
    table = open_table(path)
    for batch in table.batches({name: table.kind_of(name) or "text" for name in table.types}, Problems()):
        batch.to_pylist()
    return "read"


def test_a_gzipped_table_is_read_to_its_end(tmp_path):
    rows = io.BytesIO()
    rows.write(b"a,b\n" + b"1,2\n" * 300_000)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(rows.getvalue()))
    assert read_all_rows(tmp_path / "t.csv.gz") == 300_000


def test_counts_that_are_no_numbers_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), offsets=np.array([0, 2, 4]), counts=np.array([1j, 2j]))
    rows = ArrayRows(open_arrays(tmp_path / "a.npz", BLOCK), "x", {}, offsets=True)
    with pytest.raises(DataError, match=r"'counts' holds .*, expected numbers or texts"):
        list(rows.rows(Problems()))


@pytest.mark.parametrize("counts", [np.array(["a", "b"]), np.array([b"a", b"b"])])
def test_texts_that_are_no_counts_are_refused(counts, tmp_path, capsys):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((4, 2)), offsets=np.array([0, 2, 4]), counts=counts)
    assert run(["import-tuples", str(path), "--out", str(tmp_path / "out")]) == 3
    assert "a.npz row 1: " in capsys.readouterr().err


def test_counts_that_are_no_utf_8_text_are_refused(tmp_path):
    counts = np.array([b"\xff", b"1"])
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), offsets=np.array([0, 2, 4]), counts=counts)
    rows = ArrayRows(open_arrays(tmp_path / "a.npz", BLOCK), "x", {}, offsets=True)
    with pytest.raises(DataError, match="'counts' is not UTF-8 text"):
        list(rows.rows(Problems()))


def test_ids_that_are_no_text_are_refused(tmp_path):
    ids = np.array([b"\xff\xfe", b"b"])
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), tuple_id=ids)
    with pytest.raises(DataError, match="'tuple_id' is not UTF-8 text"):
        list(ArrayRows(open_arrays(tmp_path / "a.npz", BLOCK), "x", {"tuple": "tuple_id"}).rows(Problems()))


def test_latin_1_among_the_first_values_is_said_to_be_no_utf_8(tmp_path, capsys):
    path = tmp_path / "latin.csv"
    path.write_bytes(b"tuple_id,count,a,b\n1,1,caf\xe9,r\n1,1,the,s\n2,0,x,r\n2,0,y,s\n")
    assert run(["import-tuples", str(path), "--out", str(tmp_path / "out")]) == 3
    assert "not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tuple_id", "count"])
@pytest.mark.parametrize("values", [[[1, 2]] * 4, [{"a": 1}] * 4, [b"\xff"] * 4])
def test_columns_of_lists_and_bytes_are_no_ids_or_counts(name, values, tmp_path, capsys):
    table = {"tuple_id": [1, 1, 2, 2], "count": [1, 1, 0, 0], "x": [0.1, 0.2, 0.3, 0.4], name: values}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    assert run(["import-tuples", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out")]) == 3
    assert f"column '{name}' holds" in capsys.readouterr().err


def test_dates_can_be_ids(tmp_path):
    import datetime

    days = [datetime.date(2024, 1, 1 + t // 2) for t in range(4)]
    table = {"tuple_id": days, "count": [1, 1, 0, 0], "x": [0.1, 0.2, 0.3, 0.4]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    assert run(["import-tuples", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out")]) == 0


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows_before", [0, 200_000])
def test_ragged_rows_that_are_no_text_are_reported_once(rows_before, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"tuple_id,count,a\n" + b"1,1,2\n" * rows_before + b"1,1,caf\xff,9\n1,1,x\n")
    words = [sys.executable, "-m", "ntmp_cli", "import-tuples", str(path), "--out", str(tmp_path / "out")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    assert f"error: {path}: not" in ended.stderr
