"""Same seed, same bytes: on every run, in every process, and tuples whatever the shard size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.oracle import read_oracle
from ntmp_cli.artifacts.shards import read_instances, read_tuple_shard, tuple_shard_names, unlabeled_shard_names

STUDY = """
seeds: [0, 1]
make_tuples: {dataset: digits, tuples: ["3:1", "4:1-3@0.5"], prior: 0.5, num_tuples: 50, unlabeled_size: 60,
              count_noise: 0.1, shard_size: 20}
train: {epochs: 2, batch_size: 64}
runs:
  plain: {clamp: none, model: linear}
  abs: {model: mlp, select: best}
"""


def artifacts(out: Path) -> dict[str, Path]:
    return {str(p.parent.relative_to(out)): p.parent for p in sorted(out.rglob("manifest.json"))}


@pytest.fixture(scope="module")
def twins(ntmp_done, launcher, tmp_path_factory) -> tuple[Path, Path]:
    """The whole pipeline twice: in this process, and in one with another hash seed, elsewhere."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "study.yaml").write_text(STUDY)
    ntmp_done("run", folder / "study.yaml", "--out", folder / "first")
    second = launcher.run("run", folder / "study.yaml", "--out", folder / "deeper" / "second")
    assert second.code == 0, second.err
    return folder / "first", folder / "deeper" / "second"


@pytest.mark.slow
def test_the_whole_pipeline_gives_identical_manifests(twins):
    first, second = map(artifacts, twins)
    assert list(first) == list(second)
    assert list(first) == [
        *("evaluation", "report", "runs/abs-0", "runs/abs-1", "runs/plain-0", "runs/plain-1"),
        *("tuples-0", "tuples-1"),
    ]
    for name in first:
        assert (first[name] / "manifest.json").read_bytes() == (second[name] / "manifest.json").read_bytes(), name


@pytest.mark.slow
def test_every_payload_file_is_identical_but_those_named_as_unhashed(twins):
    first, second = twins
    names = [sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()) for out in twins]
    assert names[0] == names[1]
    unhashed = {
        f"{name}/{file}"
        for name, path in artifacts(first).items()
        for file in json.loads((path / "manifest.json").read_bytes())["unhashed"]
    }
    differing = {name for name in names[0] if (first / name).read_bytes() != (second / name).read_bytes()}
    assert unhashed == {f"runs/{name}/timing.jsonl" for name in ("abs-0", "abs-1", "plain-0", "plain-1")}
    assert differing <= unhashed


@pytest.mark.slow
def test_seeds_differ_from_each_other(twins):
    first = artifacts(twins[0])
    for one, other in (("tuples-0", "tuples-1"), ("runs/abs-0", "runs/abs-1")):
        sizes = [{e.path: e.sha256 for e in open_artifact(first[name]).manifest.files} for name in (one, other)]
        shared = {path for path in sizes[0] if sizes[0][path] == sizes[1].get(path)}
        # Only the test split is the same for every seed.
        assert shared == {path for path in sizes[0] if path in ("test.h5", "oracle/test-labels.h5")}


def everything(path: Path) -> dict[str, np.ndarray]:
    """All that a tuples directory holds, shards joined."""
    artifact = open_artifact(path)
    content = {"test": read_instances(artifact, "test.h5")}
    for split in ("train", "heldout"):
        blocks = [read_tuple_shard(artifact, name) for name in tuple_shard_names(artifact, split)]
        content[f"{split} instances"] = np.concatenate([block.instances for block in blocks])
        content[f"{split} sizes"] = np.concatenate([np.diff(block.offsets) for block in blocks])
        content[f"{split} counts"] = np.concatenate([block.counts for block in blocks])
        pool = [read_instances(artifact, name) for name in unlabeled_shard_names(artifact, split)]
        content[f"{split} unlabeled"] = np.concatenate(pool)
        for part in ("tuples", "unlabeled"):
            for name, column in read_oracle(artifact, f"oracle/{split}-{part}.h5").items():
                content[f"{split} {part} {name}"] = column
    return content


MIXED = ("make-tuples", "--tuple", "3:1", "--tuple", "4:~0.5@0.5", "--prior", 0.5, "--count-noise", 0.1)


def test_another_shard_size_gives_the_same_tuples(ntmp_done, tmp_path):
    for size in (1, 7, 1000):
        options = ("--num-tuples", 30, "--shard-size", size, "--seed", 3)
        ntmp_done(*MIXED, *options, "--out", tmp_path / str(size))
    contents = [everything(tmp_path / str(size)) for size in (1, 7, 1000)]
    shards = [len(tuple_shard_names(open_artifact(tmp_path / str(size)), "train")) for size in (1, 7, 1000)]
    assert shards == [30, 5, 1]
    for other in contents[1:]:
        assert contents[0].keys() == other.keys()
        for name, values in contents[0].items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.slow
def test_shards_and_memory_do_not_change_what_is_learned(ntmp_done, tmp_path):
    runs = []
    for size in (7, 1000):
        options = ("--num-tuples", 30, "--shard-size", size, "--out", tmp_path / f"t{size}")
        ntmp_done(*MIXED, *options)
        out = tmp_path / f"r{size}"
        ntmp_done("train", "--tuples", tmp_path / f"t{size}", "--prior", 0.5, "--epochs", 2, "--out", out)
        runs.append(out)
    for name in ("model.safetensors", "history.jsonl", "scores.h5"):
        assert (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes(), name


def test_another_seed_gives_other_tuples(ntmp_done, tmp_path):
    contents = []
    for seed in (0, 1):
        ntmp_done(*MIXED, "--num-tuples", 30, "--seed", seed, "--out", tmp_path / str(seed))
        contents.append(everything(tmp_path / str(seed)))
    np.testing.assert_array_equal(contents[0]["test"], contents[1]["test"])
    for name in ("train tuples source", "train unlabeled source", "heldout unlabeled source"):
        assert set(contents[0][name].tolist()) != set(contents[1][name].tolist()), name


def test_the_seed_of_a_training_changes_its_weights_but_not_its_data(ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 1)
    for seed in (0, 1):
        ntmp_done(*training, "--seed", seed, "--out", tmp_path / str(seed))
    weights = [(tmp_path / seed / "model.safetensors").read_bytes() for seed in "01"]
    labels = [(tmp_path / seed / "oracle" / "test-labels.h5").read_bytes() for seed in "01"]
    assert weights[0] != weights[1]
    assert labels[0] == labels[1]
