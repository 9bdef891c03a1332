"""Readers return the exact pixels, and refuse every file that is not what it should be."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from ntmp_cli.data import formats
from ntmp_cli.data.formats import (
    npy_header,
    read_cifar_batch,
    read_idx,
    read_image,
    read_npz,
    read_svhn_mat,
)
from ntmp_cli.errors import DataError

XY = (("x", "y"),)


def refusal(read, *arguments) -> DataError:
    """The DataError that reading ends in; its message starts with the file and it says what to do."""
    with pytest.raises(DataError) as caught:
        read(*arguments)
    assert caught.value.message.startswith(f"{arguments[0]}: ")
    assert caught.value.hint
    return caught.value


# --- all formats --------------------------------------------------------------------------------

READERS = {
    "idx": lambda path: read_idx(path, 3),
    "cifar": read_cifar_batch,
    "mat": read_svhn_mat,
    "npz": lambda path: read_npz(path, XY),
    "image": read_image,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_missing_file_is_named(tmp_path, read):
    assert "no such file" in refusal(read, tmp_path / "absent").message


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_directory_is_refused(tmp_path, read):
    assert "cannot be read" in refusal(read, tmp_path).message


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("content", [b"", b"\0", b"hello, I am a text file\n" * 20, bytes(range(256)) * 20])
def test_foreign_file_is_refused(write, tmp_path, read, content):
    message = refusal(read, write.bytes(tmp_path / "foreign", content)).message
    assert re.search(r": not an? (readable )?(IDX|CIFAR-10|MATLAB 5|npz|image)", message)


@pytest.fixture
def good_files(write, tmp_path, rng) -> dict[str, Path]:
    """One readable file per format, large enough to be cut anywhere."""
    image = tmp_path / "image.png"
    Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(image)
    x = rng.integers(0, 256, (4, 6, 5), dtype=np.uint8)
    return {
        "idx": write.idx(tmp_path / "good-idx.gz", x),
        "cifar": write.pickle(tmp_path / "batch", {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]}),
        "mat": write.mat(
            tmp_path / "good.mat",
            X=rng.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8),
            y=np.array([[1], [2]], np.uint8),
        ),
        "npz": write.npz(tmp_path / "good.npz", x=x, y=np.arange(4)),
        "image": image,
    }


@pytest.mark.parametrize("kind", READERS)
def test_truncated_file_is_refused_wherever_it_ends(write, tmp_path, good_files, kind):
    data = good_files[kind].read_bytes()
    READERS[kind](good_files[kind])
    for length in {1, 3, 7, len(data) // 4, len(data) // 2, len(data) * 3 // 4, len(data) - 30}:
        message = refusal(READERS[kind], write.bytes(tmp_path / "cut", data[:length])).message
        assert re.search(r": not an? (readable )?(IDX|CIFAR-10|MATLAB 5|npz|image)", message)
        assert "pickled" not in message  # numpy's advice to load unsafely what it cannot read


# --- IDX ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_is_read_exactly(write, tmp_path, rng, suffix):
    images = rng.integers(0, 256, (4, 6, 5), dtype=np.uint8)
    read = read_idx(write.idx(tmp_path / f"images{suffix}", images), 3)
    np.testing.assert_array_equal(read, images)
    assert read.dtype == np.uint8
    assert read.flags.writeable


def test_idx_compression_is_recognised_by_content_not_by_name(write, tmp_path):
    labels = np.arange(5, dtype=np.uint8)
    packed = write.idx(tmp_path / "labels.gz", labels)
    np.testing.assert_array_equal(read_idx(packed.rename(tmp_path / "labels"), 1), labels)


@pytest.mark.parametrize(
    ("code", "kind", "dtype", "values"),
    [
        (0x08, "B", "u1", [1, 200]),
        (0x09, "b", "i1", [1, -2]),
        (0x0B, "h", "i2", [1, -300]),
        (0x0C, "i", "i4", [-2, 70_000]),
        (0x0D, "f", "f4", [0.5, -1e20]),
        (0x0E, "d", "f8", [0.1, -1e200]),
    ],
)
def test_idx_of_every_type_is_read_in_big_endian_order(write, tmp_path, code, kind, dtype, values):
    data = bytes([0, 0, code, 1]) + struct.pack(f">I2{kind}", 2, *values)
    read = read_idx(write.bytes(tmp_path / "numbers", data), 1)
    assert read.dtype == np.dtype(f"={dtype}")
    np.testing.assert_array_equal(read, np.array(values, dtype))


def test_idx_labels_in_place_of_images_are_refused(write, tmp_path):
    error = refusal(read_idx, write.idx(tmp_path / "labels", np.zeros(5, np.uint8)), 3)
    assert "expected 3 dimensions, found 1" in error.message
    assert "swapped" in error.hint


def test_idx_with_unknown_type_is_refused(write, tmp_path):
    assert "not an IDX file" in refusal(read_idx, write.bytes(tmp_path / "a", b"\0\0\x07\x01" * 4), 1).message


def test_idx_that_is_too_short_is_called_truncated(write, tmp_path):
    path = write.idx(tmp_path / "images", np.zeros((4, 6, 5), np.uint8))
    write.bytes(path, path.read_bytes()[:-1])
    assert "truncated (the header announces 120 bytes" in refusal(read_idx, path, 3).message


def test_idx_that_is_too_long_is_refused(write, tmp_path):
    path = write.idx(tmp_path / "images", np.zeros((4, 6, 5), np.uint8))
    write.bytes(path, path.read_bytes() + b"\0")
    assert "longer than its header says" in refusal(read_idx, path, 3).message


def test_idx_header_that_announces_terabytes_does_not_reserve_them(write, tmp_path):
    data = bytes([0, 0, 8, 3]) + struct.pack(">3I", *[2**32 - 1] * 3) + b"data"
    for path, content in (("raw", data), ("packed.gz", gzip.compress(data))):
        assert "truncated" in refusal(read_idx, write.bytes(tmp_path / path, content), 3).message


def test_idx_with_damaged_compression_is_refused(write, tmp_path):
    path = write.idx(tmp_path / "images.gz", np.arange(120, dtype=np.uint8).reshape(4, 6, 5))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    assert "CRC check failed" in refusal(read_idx, write.bytes(path, bytes(data)), 3).message


# --- CIFAR-10 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_cifar_batch_is_read_exactly(write, tmp_path, rng, protocol):
    pixels = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = {"data": pixels, "labels": [3, 1, 4, 1], "batch_label": "x", "filenames": ["a.png"] * 4}
    images, labels = read_cifar_batch(write.pickle(tmp_path / "batch", batch, protocol))
    np.testing.assert_array_equal(images, pixels.reshape(4, 3, 32, 32))
    assert labels.tolist() == [3, 1, 4, 1]
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
    assert images.flags.writeable


def test_cifar_batch_in_fortran_order_is_read_exactly(write, tmp_path, rng):
    pixels = np.asfortranarray(rng.integers(0, 256, (2, 3072), dtype=np.uint8))
    images, _ = read_cifar_batch(write.pickle(tmp_path / "batch", {"data": pixels, "labels": [0, 9]}))
    np.testing.assert_array_equal(images, pixels.reshape(2, 3, 32, 32))


def test_cifar_batch_as_python_2_wrote_it_is_read_exactly(write, tmp_path, rng):
    """The published files hold byte strings where Python 3 would write text or bytes."""
    pixels = rng.integers(0, 256, (2, 3072), dtype=np.uint8)

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    dtype = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\0K\1\x87R(K\3"
        + text(b"|")
        + b"NNN"
        + b"J\xff\xff\xff\xff" * 2
        + b"K\0tb"
    )
    raw = b"T" + struct.pack("<i", pixels.size) + pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
        b"(K\1K\2M\0\x0c\x86" + dtype + b"\x89" + raw + b"tb"
    )
    data = b"\x80\2}(" + text(b"data") + array + text(b"labels") + b"](K\6K\7e" + b"u."
    images, labels = read_cifar_batch(write.bytes(tmp_path / "batch", data))
    np.testing.assert_array_equal(images, pixels.reshape(2, 3, 32, 32))
    assert labels.tolist() == [6, 7]


class Runs:
    """Unpickling this calls `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.mkdir, os.system, eval, exec, __import__, getattr])
def test_cifar_pickle_that_would_run_code_is_refused_and_does_not_run(write, tmp_path, function, protocol):
    marker = tmp_path / "marker"
    argument = {os.mkdir: str(marker), os.system: f"mkdir {marker}"}.get(
        function, f"__import__('os').mkdir({str(marker)!r})"
    )
    batch = {"data": np.zeros((1, 3072), np.uint8), "labels": [1], "evil": Runs(function, argument)}
    error = refusal(read_cifar_batch, write.pickle(tmp_path / "batch", batch, protocol))
    assert "refused" in error.message
    assert not marker.exists()


def test_cifar_pickle_that_names_other_parts_of_numpy_is_refused(write, tmp_path):
    error = refusal(read_cifar_batch, write.pickle(tmp_path / "batch", {"data": Runs(np.fromfile, "x")}))
    assert "fromfile, which is refused" in error.message


def test_cifar_pickle_that_decodes_by_another_codec_is_refused(write, tmp_path):
    data = b"\x80\2c_codecs\nencode\nX\1\0\0\0aX\4\0\0\0zlib\x86R."
    assert "'zlib' is not expected" in refusal(read_cifar_batch, write.bytes(tmp_path / "batch", data)).message


def test_cifar_array_of_objects_is_refused(write, tmp_path):
    batch = {"data": np.array([[1], None], dtype=object), "labels": [1, 2]}
    assert "type 'O8'" in refusal(read_cifar_batch, write.pickle(tmp_path / "batch", batch)).message


def test_cifar_array_that_does_not_fit_its_shape_is_refused(write, tmp_path):
    content = pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]}, protocol=2)
    assert content.count(b"K\2M\0\x0c\x86") == 1
    path = write.bytes(tmp_path / "batch", content.replace(b"K\2M\0\x0c\x86", b"K\3M\0\x0c\x86"))
    refusal(read_cifar_batch, path)


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {"data": PIXELS},
        {"data": PIXELS, "fine_labels": [1, 2]},  # CIFAR-100
        {"data": "text", "labels": [1, 2]},
        {"data": PIXELS[:, :100], "labels": [1, 2]},
        {"data": PIXELS.astype(np.int64), "labels": [1, 2]},
        {"data": PIXELS, "labels": [1]},
        {"data": PIXELS, "labels": [1, "2"]},
        {"data": PIXELS, "labels": [1, 10]},
        {"data": PIXELS, "labels": [1, 10**40]},
        {"data": PIXELS, "labels": None},
    ],
)
def test_cifar_batch_with_other_content_is_refused(write, tmp_path, batch):
    message = refusal(read_cifar_batch, write.pickle(tmp_path / "batch", batch)).message
    assert "not a CIFAR-10 batch" in message or "'data' is not" in message or "'labels' is not" in message


# --- SVHN ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("label_type", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_svhn_is_read_exactly_and_label_10_is_digit_0(write, tmp_path, rng, label_type):
    x = rng.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    y = np.array([[10], [1], [9], [10]], label_type)
    images, digits = read_svhn_mat(write.mat(tmp_path / "train_32x32.mat", X=x, y=y))
    assert digits.tolist() == [0, 1, 9, 0]
    assert images.shape == (4, 3, 32, 32)
    assert images.flags.c_contiguous
    assert images[2, 1, 5, 7] == x[5, 7, 1, 2]
    np.testing.assert_array_equal(x, loadmat(tmp_path / "train_32x32.mat")["X"])
    np.testing.assert_array_equal(images, np.moveaxis(x, (3, 2), (0, 1)))


def test_an_element_of_a_mat_file_that_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "train.mat"
    path.write_bytes(bytes(124) + struct.pack("<H", 0x0100) + b"IM" + struct.pack("<II", 9, 8) + bytes(8))
    assert "unknown element of type 9 and 8 bytes" in refusal(read_svhn_mat, path).message


@pytest.mark.parametrize("compressed", [True, False])
def test_svhn_damaged_anywhere_is_refused_or_read_and_never_crashes(write, tmp_path, rng, compressed):
    """scipy.io.loadmat ends the whole process on some of these."""
    path = tmp_path / "train.mat"
    x = rng.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8)
    savemat(path, {"X": x, "y": np.array([[1], [2]], np.uint8)}, do_compression=compressed)
    data = path.read_bytes()
    for position in (*range(124, 200), *range(len(data) - 64, len(data))):
        for value in (0, 14, 17, 255):
            damaged = bytearray(data)
            damaged[position] = value
            with contextlib.suppress(DataError):
                images, digits = read_svhn_mat(write.bytes(path, bytes(damaged)))
                # Where it was read, the damage was in pixels, labels or padding.
                assert (images.shape, images.dtype, digits.shape) == ((2, 3, 32, 32), np.uint8, (2,))
                assert ((digits >= 0) & (digits <= 9)).all()


def test_svhn_beside_text_and_other_variables_is_read(tmp_path):
    variables = {"note": "text", "z": np.array([1j]), "X": IMAGES, "cell": np.array([1, "a"], object), "y": [[1], [2]]}
    savemat(tmp_path / "train.mat", variables)
    assert read_svhn_mat(tmp_path / "train.mat")[1].tolist() == [1, 2]


IMAGES = np.zeros((32, 32, 3, 2), np.uint8)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"X": IMAGES}, "no arrays X and y"),
        ({"X": IMAGES, "y": np.array([[1]])}, "for each of 2 images"),
        ({"X": IMAGES, "y": np.array([[1], [11]])}, "from 1 to 10"),
        ({"X": IMAGES, "y": np.array([[1], [np.nan]])}, "from 1 to 10"),
        ({"X": IMAGES[..., 0], "y": np.array([[1], [2]])}, "expected H x W x 3 x N bytes"),
        ({"X": IMAGES.astype(float), "y": np.array([[1], [2]])}, "expected H x W x 3 x N bytes"),
    ],
)
def test_svhn_with_other_content_is_refused(write, tmp_path, variables, problem):
    assert problem in refusal(read_svhn_mat, write.mat(tmp_path / "train.mat", **variables)).message


# --- npz ----------------------------------------------------------------------------------------


def test_npz_returns_the_first_complete_choice_of_names(write, tmp_path):
    path = write.npz(tmp_path / "a.npz", a=[1], b=[2], c=[3])
    assert set(read_npz(path, (("a", "absent"), ("a", "b"), ("c",)))) == {"a", "b"}


def test_npz_without_the_names_lists_what_it_holds(write, tmp_path):
    error = refusal(read_npz, write.npz(tmp_path / "a.npz", images=[1], labels=[2]), XY)
    assert "holds images, labels" in error.message
    assert "Expected x, y." in error.hint


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_headers_of_arrays_are_read(version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asfortranarray(np.zeros((3, 2), dtype=np.int16)), version=version)
    stream.seek(0)
    assert npy_header(stream) == ((3, 2), True, np.dtype(np.int16))
    assert len(stream.read()) == 12


def test_headers_of_other_versions_are_refused():
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.zeros(3), version=(3, 0))
    stream.seek(0)
    with pytest.raises(ValueError, match=r"version \(3, 0\) of the npy format"):
        npy_header(stream)


def test_npz_with_objects_is_refused_without_running_them(write, tmp_path):
    marker = tmp_path / "marker"
    evil = np.array([Runs(os.mkdir, str(marker)), None], dtype=object)
    error = refusal(read_npz, write.npz(tmp_path / "a.npz", x=evil, y=[1, 2]), XY)
    assert "x is an array of Python objects" in error.message
    assert not marker.exists()


def test_npy_in_place_of_npz_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4))
    assert "not an npz file" in refusal(read_npz, tmp_path / "a.npy", XY).message


def test_npz_with_a_flipped_bit_is_refused(write, tmp_path):
    path = write.npz(tmp_path / "a.npz", x=np.arange(500), y=np.arange(500))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    assert "Bad CRC-32" in refusal(read_npz, write.bytes(path, bytes(data)), XY).message


# --- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_colour_image_is_read_exactly(tmp_path, rng, suffix):
    pixels = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = tmp_path / f"image.{suffix}"
    Image.fromarray(pixels).save(path)
    np.testing.assert_array_equal(read_image(path), pixels)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif"])
def test_gray_image_is_read_exactly_with_one_channel(tmp_path, rng, suffix):
    pixels = rng.integers(0, 256, (5, 7), dtype=np.uint8)
    path = tmp_path / f"image.{suffix}"
    Image.fromarray(pixels).save(path)
    np.testing.assert_array_equal(read_image(path), pixels)


def test_16_bit_gray_is_scaled_not_clipped(tmp_path):
    pixels = np.array([[0, 255, 256], [0x1234, 0x8000, 0xFFFF]], np.uint16)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").tolist() == [[0, 0, 1], [0x12, 0x80, 0xFF]]


def test_32_bit_pixels_are_refused(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "image.tif")
    assert "32-bit" in refusal(read_image, tmp_path / "image.tif").message


def test_black_and_white_image_is_read_as_0_and_255(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").tolist() == [[255, 0]]


def test_transparency_is_dropped(tmp_path, rng):
    pixels = rng.integers(0, 256, (5, 7, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    np.testing.assert_array_equal(read_image(tmp_path / "image.png"), pixels[..., :3])


def test_palette_image_shows_its_colours_even_with_transparency(tmp_path):
    image = Image.fromarray(np.array([[0, 1], [1, 2]], np.uint8))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "image.png", transparency=b"\x00\x80\xff")
    assert read_image(tmp_path / "image.png").tolist() == [
        [[10, 20, 30], [40, 50, 60]],
        [[40, 50, 60], [70, 80, 90]],
    ]


def test_image_is_resized_to_the_requested_size(tmp_path):
    Image.fromarray(np.full((5, 9, 3), 77, np.uint8)).save(tmp_path / "image.png")
    resized = read_image(tmp_path / "image.png", 4)
    assert resized.shape == (4, 4, 3)
    assert (resized == 77).all()


def test_truncated_jpeg_is_refused(write, tmp_path, rng):
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "JPEG")
    data = stream.getvalue()
    assert "truncated" in refusal(read_image, write.bytes(tmp_path / "image.jpg", data[: len(data) // 2])).message


def test_a_type_of_arrays_that_is_not_expected_is_named_by_its_beginning():
    with pytest.raises(pickle.UnpicklingError, match=r"^arrays of type 'aaaaaaaaaaaaaaaaaaaa' are not expected here$"):
        formats._PickledDtype(21 * "a")
