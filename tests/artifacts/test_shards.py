"""Shards come back as they were written, in shards of any size; each kind of tampering has its message."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_artifacts import tuples_summary

from ntmp_cli.app import run
from ntmp_cli.artifacts import Artifact, Plan, open_artifact, publishing
from ntmp_cli.artifacts.shards import (
    DIGESTS,
    TupleBlock,
    read_digests,
    read_instance_range,
    read_instances,
    read_sizes_and_counts,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
    write_digests,
    write_instances,
    write_tuple_shards,
)
from ntmp_cli.errors import ArtifactError

SHARD = "train/tuples-00000.h5"
POOL = "train/unlabeled-00000.h5"


def block_of(sizes: list[int], counts: list[int], start: int = 0, dtype: str = "uint8") -> TupleBlock:
    """Tuples whose instances are numbered from `start`, so that every one can be recognised."""
    numbers = start + np.arange(sum(sizes))
    instances = np.stack([numbers % 251, numbers // 251], axis=1).astype(dtype)
    return TupleBlock(instances, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.array(counts, np.int64))


def store(out: Path, blocks: list[TupleBlock], shard_size: int) -> Artifact:
    with publishing(out, Plan("tuples", {})) as staging:
        write_tuple_shards(staging, "train", iter(blocks), shard_size=shard_size, scale=4.0)
        first = blocks[0].instances
        write_instances(staging, POOL, iter([first[:2], first[2:]]), len(first), scale=4.0)
        staging.summary = tuples_summary(blocks, len(first), 4.0)
    return open_artifact(out)


# A tuple is (n, m) with 0 <= m <= n; a block is a list of tuples; a stream is a list of blocks.
tuples = st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
streams = st.lists(st.lists(tuples, min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(stream=streams, shard_size=st.integers(1, 9))
def test_any_blocks_in_any_shard_size_come_back_the_same(stream, shard_size):
    blocks, start = [], 0
    for pairs in stream:
        blocks.append(block_of([n for n, _ in pairs], [m for _, m in pairs], start))
        start += len(blocks[-1].instances)
    with tempfile.TemporaryDirectory() as folder:
        artifact = store(Path(folder) / "tuples", blocks, shard_size)
        names = tuple_shard_names(artifact, "train")
        read = [read_tuple_shard(artifact, name) for name in names]
        rows = [entry.rows for entry in artifact.entries("train/tuples-")]

    expected = [pair for pairs in stream for pair in pairs]
    assert rows == [len(block.counts) for block in read]
    assert rows[:-1] == [shard_size] * (len(rows) - 1)
    assert sum(rows) == len(expected)
    assert [int(n) for block in read for n in np.diff(block.offsets)] == [n for n, _ in expected]
    assert [int(m) for block in read for m in block.counts] == [m for _, m in expected]
    for block in read:
        assert block.offsets[0] == 0
        assert block.offsets[-1] == len(block.instances)
    np.testing.assert_array_equal(
        np.concatenate([block.instances for block in read]), np.concatenate([block.instances for block in blocks])
    )


def test_shards_keep_type_and_shape_of_instances(tmp_path):
    images = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    artifact = store(tmp_path / "t", [TupleBlock(images, np.array([0, 2]), np.array([1]))], 1)
    for read in (read_tuple_shard(artifact, SHARD).instances, read_instances(artifact, POOL)):
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, images)


def test_shards_are_numbered_in_the_order_of_the_stream(tmp_path):
    artifact = store(tmp_path / "t", [block_of([1] * 12, [0] * 12)], 1)
    names = tuple_shard_names(artifact, "train")
    assert names == [f"train/tuples-{number:05d}.h5" for number in range(12)]
    assert [int(read_tuple_shard(artifact, name).instances[0, 0]) for name in names] == list(range(12))
    assert unlabeled_shard_names(artifact, "train") == [POOL]


def test_a_range_of_instances_is_read_without_the_rest(tmp_path):
    artifact = store(tmp_path / "t", [block_of([3, 3], [1, 1])], 9)
    np.testing.assert_array_equal(read_instance_range(artifact, POOL, 2, 5)[:, 0], [2, 3, 4])


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 2), (1, None), (1, 3), (2, 4), (0, 4), (4, None)])
def test_some_tuples_of_a_shard_are_those_of_the_whole(start, stop, tmp_path):
    sizes = [2, 3, 1, 4]
    artifact = store(tmp_path / "t", [block_of(sizes, [1, 3, 0, 2])], 9)
    whole, part = read_tuple_shard(artifact, SHARD), read_tuple_shard(artifact, SHARD, start, stop)
    assert np.diff(part.offsets).tolist() == sizes[start:stop]
    assert part.offsets[0] == 0
    assert part.counts.tolist() == [1, 3, 0, 2][start:stop]
    first, last = whole.offsets[start], whole.offsets[-1 if stop is None else stop]
    np.testing.assert_array_equal(part.instances, whole.instances[first:last])


def test_counts_of_any_whole_type_are_stored_as_64_bits(tmp_path):
    numbers = TupleBlock(np.zeros((3, 2), np.uint8), np.array([0, 3]), np.array([2], np.int16))
    artifact = store(tmp_path / "t", [numbers], 9)
    assert read_tuple_shard(artifact, SHARD).counts.dtype == np.int64


def test_hashes_of_instances_come_back(tmp_path):
    hashes = np.array([bytes(range(16)), b"x" * 15 + b"y"], "S16")
    blocks = [block_of([3], [1])]
    with publishing(tmp_path / "t", Plan("tuples", {})) as staging:
        write_tuple_shards(staging, "train", iter(blocks), shard_size=9, scale=4.0)
        write_instances(staging, POOL, iter([blocks[0].instances]), 3, scale=4.0)
        write_digests(staging, hashes)
        staging.summary = tuples_summary(blocks, 3, 4.0)
    assert read_digests(open_artifact(tmp_path / "t")).tolist() == hashes.tolist()


def test_hashes_of_another_number_than_the_manifest_says_are_refused(tmp_path, rehash):
    blocks = [block_of([3], [1])]
    with publishing(tmp_path / "t", Plan("tuples", {})) as staging:
        write_tuple_shards(staging, "train", iter(blocks), shard_size=9, scale=4.0)
        write_instances(staging, POOL, iter([blocks[0].instances]), 3, scale=4.0)
        write_digests(staging, np.array([b"x" * 16, b"y" * 16], "S16"))
        staging.summary = tuples_summary(blocks, 3, 4.0)
    with h5py.File(tmp_path / "t" / DIGESTS, "r+") as file:
        replacing("digests", file["digests"][:1])(file)
    rehash(tmp_path / "t")
    with pytest.raises(ArtifactError, match="has 1 rows, but the manifest says 2"):
        read_digests(open_artifact(tmp_path / "t"))


# --- tampering: the manifest's hashes are made to fit, so that only the content can tell ---------


def replacing(name: str, values: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = values

    return change


def link_softly(file: h5py.File) -> None:
    file["instances2"] = file["instances"][()]
    del file["instances"]
    file["instances"] = h5py.SoftLink("/instances2")


def link_out(file: h5py.File) -> None:
    del file["instances"]
    file["instances"] = h5py.ExternalLink("../../elsewhere.h5", "/instances")


def make_virtual(file: h5py.File) -> None:
    shape, dtype = file["instances"].shape, file["instances"].dtype
    del file["instances"]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[:] = h5py.VirtualSource("../../elsewhere.h5", "instances", shape)
    file.create_virtual_dataset("instances", layout)


def store_outside(file: h5py.File) -> None:
    shape, dtype = file["instances"].shape, file["instances"].dtype
    del file["instances"]
    file.create_dataset("instances", shape, dtype, external="/etc/passwd")


def make_group(file: h5py.File) -> None:
    del file["instances"]
    file.create_group("instances")


def setting(name: str, value: object) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.__setitem__(name, value)


def forget_the_element(file: h5py.File) -> None:
    del file.attrs["element"]


def forget_the_counts(file: h5py.File) -> None:
    del file["counts"]


def halve(file: h5py.File) -> None:
    """A shard in good order, but without its second tuple."""
    for name, rows in (("instances", 3), ("offsets", 2), ("counts", 1)):
        replacing(name, file[name][:rows])(file)


LINK = "'instances' is a link to another file, which is refused"
OUTSIDE = "'instances' is not data stored in this file"
BOUNDARIES = "tuple boundaries do not fit the instances"
COUNT = "a recorded count lies outside 0..n"
NOT_FINITE = "instances hold NaN or infinite values"

# The shard under test holds two tuples of three instances, (3,1) and (3,2).
TAMPERINGS = [
    (link_softly, LINK),
    (link_out, LINK),
    (make_virtual, OUTSIDE),
    (store_outside, OUTSIDE),
    (make_group, OUTSIDE),
    (forget_the_counts, "has no data set 'counts'"),
    (setting("element", "scores"), "expected an HDF5 file of 'tuples', found 'scores'"),
    (forget_the_element, "expected an HDF5 file of 'tuples', found 'None'"),
    (setting("version", 2), "'tuples' version 2, but this ntmp reads version 1"),
    (replacing("instances", np.array([[np.nan, 0]] + [[0, 0]] * 5, np.float32)), NOT_FINITE),
    (replacing("instances", np.array([[0, 0]] * 5 + [[-np.inf, 0]], np.float64)), NOT_FINITE),
    (replacing("counts", [1, 4]), COUNT),
    (replacing("counts", [-1, 2]), COUNT),
    (replacing("counts", [1, 2, 2]), BOUNDARIES),
    (replacing("counts", [1]), BOUNDARIES),
    (replacing("offsets", [0, 3, 7]), BOUNDARIES),
    (replacing("offsets", [0, 3, 5]), BOUNDARIES),
    (replacing("offsets", [1, 3, 6]), BOUNDARIES),
    (replacing("offsets", [0, 8, 6]), BOUNDARIES),
    (replacing("offsets", [0, 0, 6]), BOUNDARIES),
    (replacing("offsets", [0, 6]), BOUNDARIES),
    (replacing("offsets", [[0, 3, 6]]), BOUNDARIES),
    (replacing("offsets", 6), BOUNDARIES),
    (replacing("offsets", [0.0, 2.5, 6.0]), BOUNDARIES),
    (replacing("counts", [[1, 2], [1, 2]]), BOUNDARIES),
    (replacing("counts", [np.nan, 1.0]), BOUNDARIES),
    (replacing("instances", 6), BOUNDARIES),
    (halve, "has 1 rows, but the manifest says 2"),
    (
        replacing("instances", np.zeros((6, 3), np.float32)),
        "instances of shape (3,) float32, but the manifest says (2,) float32",
    ),
    (
        replacing("instances", np.zeros((6, 2), np.uint8)),
        "instances of shape (2,) uint8, but the manifest says (2,) float32",
    ),
]


@pytest.fixture
def tuples_dir(tmp_path) -> Path:
    return store(tmp_path / "tuples", [block_of([3, 3], [1, 2], dtype="float32")], 9).path


@pytest.mark.parametrize(("tamper", "message"), TAMPERINGS)
def test_each_tampering_with_a_shard_is_named(tamper, message, tuples_dir, rehash):
    with h5py.File(tuples_dir / SHARD, "r+") as file:
        tamper(file)
    rehash(tuples_dir)
    artifact = open_artifact(tuples_dir)
    artifact.verify()
    with pytest.raises(ArtifactError) as caught:
        read_tuple_shard(artifact, SHARD)
    assert caught.value.message == f"{tuples_dir / SHARD}: {message}"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("counts", [[1, 4], [-1, 2]])
def test_counts_are_checked_when_they_are_read_without_instances(counts, tuples_dir, rehash):
    with h5py.File(tuples_dir / SHARD, "r+") as file:
        replacing("counts", counts)(file)
    rehash(tuples_dir)
    with pytest.raises(ArtifactError) as caught:
        read_sizes_and_counts(open_artifact(tuples_dir), SHARD)
    assert caught.value.message == f"{tuples_dir / SHARD}: {COUNT}"


@pytest.mark.parametrize("content", [b"", b"just text\n", b"\x89HDF\r\n\x1a\n and then nothing"])
def test_a_file_that_is_not_hdf5_is_named(content, tuples_dir, rehash):
    (tuples_dir / SHARD).write_bytes(content)
    rehash(tuples_dir)
    with pytest.raises(ArtifactError, match="damaged: not a readable HDF5 file"):
        read_tuple_shard(open_artifact(tuples_dir), SHARD)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unlabeled_instances_that_are_not_finite_are_named(bad, tuples_dir, rehash):
    with h5py.File(tuples_dir / POOL, "r+") as file:
        file["instances"][4, 1] = bad
    rehash(tuples_dir)
    artifact = open_artifact(tuples_dir)
    for read in (
        lambda: read_instances(artifact, POOL),
        lambda: read_instance_range(artifact, POOL, 3, 6),
    ):
        with pytest.raises(ArtifactError) as caught:
            read()
        assert caught.value.message == f"{tuples_dir / POOL}: {NOT_FINITE}"
        assert caught.value.hint == "Make the tuples again from finite data."


def test_a_pool_of_other_length_than_the_manifest_says_is_refused(tuples_dir, rehash):
    with h5py.File(tuples_dir / POOL, "r+") as file:
        replacing("instances", file["instances"][:4])(file)
    rehash(tuples_dir)
    artifact = open_artifact(tuples_dir)
    for read in (lambda: read_instances(artifact, POOL), lambda: read_instance_range(artifact, POOL, 0, 2)):
        with pytest.raises(ArtifactError, match="has 4 rows, but the manifest says 6"):
            read()


def test_a_range_of_a_shard_of_other_length_is_refused(tuples_dir, rehash):
    with h5py.File(tuples_dir / SHARD, "r+") as file:
        halve(file)
    rehash(tuples_dir)
    with pytest.raises(ArtifactError, match="has 1 rows, but the manifest says 2"):
        read_tuple_shard(open_artifact(tuples_dir, "tuples"), SHARD, 0, 1)


def test_a_pool_is_not_taken_for_a_shard_of_tuples(tuples_dir):
    with pytest.raises(ArtifactError, match="expected an HDF5 file of 'tuples', found 'instances'"):
        read_tuple_shard(open_artifact(tuples_dir), POOL)


def test_a_damaged_shard_is_refused_by_its_hash_before_it_is_opened(tuples_dir):
    content = bytearray((tuples_dir / SHARD).read_bytes())
    content[len(content) // 2] ^= 4
    (tuples_dir / SHARD).write_bytes(content)
    with pytest.raises(ArtifactError, match="damaged: its contents do not match the recorded hash"):
        read_tuple_shard(open_artifact(tuples_dir), SHARD)


def test_inspect_finds_a_damaged_shard(tuples_dir, capsys):
    (tuples_dir / SHARD).write_bytes((tuples_dir / SHARD).read_bytes()[:-7])
    assert run(["inspect", str(tuples_dir)]) == 3
    assert f"{tuples_dir / SHARD}: truncated: " in capsys.readouterr().err


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    first, second = (store(tmp_path / name, [block_of([3, 2], [1, 0])], 1) for name in ("a", "b"))
    for entry in first.manifest.files:
        assert (first.path / entry.path).read_bytes() == (second.path / entry.path).read_bytes()
    assert first.sha256 == second.sha256
