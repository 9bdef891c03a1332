"""`ntmp train --encoder`: features are computed once, checked when used again, and can be had again from the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.distinct_instances import digests, instance_files
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, WEIGHTS
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.shards import read_instances, read_tuple_shard, tuple_shard_names
from ntmp_cli.artifacts.stored_scorer import load_score
from ntmp_cli.learning.encoders import EncoderRequest, build_encoder
from ntmp_cli.learning.models import build_scorer, predict

pytestmark = pytest.mark.slow  # many trainings

ENCODERS = ["pca", "random", "pixels"]
TRAINING = ("--prior", "0.5", "--trust", "prior", "--epochs", "1", "--json")


def features_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("features-*"))


def modified(path: Path) -> dict[str, int]:
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in sorted(path.rglob("*"))}


@pytest.fixture(scope="module")
def runs(ntmp_done, tuples, tmp_path_factory) -> Path:
    """One run per encoder, side by side: their features lie beside them."""
    folder = tmp_path_factory.mktemp("runs")
    for encoder in ENCODERS:
        out = folder / encoder
        ntmp_done("train", "--tuples", tuples, *TRAINING, "--model", "mlp", "--encoder", encoder, "--out", out)
    return folder


@pytest.mark.parametrize("encoder", ENCODERS)
def test_features_are_made_once_and_used_again(encoder, ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, *TRAINING, "--model", "linear", "--encoder", encoder)
    first = ntmp_done(*training, "--out", tmp_path / "first")
    (features,) = features_in(tmp_path)
    assert features.name.startswith(f"features-{encoder}-")
    assert f"features of {tuples} by {encoder} are computed once and kept in {features}\n" in first.err
    before, sha256 = modified(features), open_artifact(features).sha256
    second = ntmp_done(*training, "--seed", 1, "--out", tmp_path / "second")
    assert "computed once" not in second.err
    assert features_in(tmp_path) == [features]
    assert open_artifact(features).sha256 == sha256
    assert modified(features) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [features.name, "first", "second"]


def test_another_method_shares_the_features_and_another_folder_has_its_own(ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, *TRAINING, "--encoder", "pca")
    ntmp_done(*training, "--method", "kmeans", "--out", tmp_path / "a" / "run")
    (features,) = features_in(tmp_path / "a")
    before = modified(features)
    ntmp_done(*training, "--method", "discriminant", "--features", tmp_path / "a", "--out", tmp_path / "b" / "run")
    assert modified(features) == before
    assert features_in(tmp_path / "b") == []
    ntmp_done(*training, "--method", "discriminant", "--features", tmp_path / "c", "--out", tmp_path / "b" / "again")
    (same,) = features_in(tmp_path / "c")
    assert open_artifact(same).sha256 == open_artifact(features).sha256


@pytest.mark.parametrize(
    ("name", "how"),
    [("test.h5", "damaged"), ("train/tuples-00000.h5", "truncated"), (ENCODER_WEIGHTS, "removed")],
)
def test_damaged_features_are_made_again(name, how, ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, *TRAINING, "--model", "linear", "--encoder", "pca")
    ntmp_done(*training, "--out", tmp_path / "first")
    (features,) = features_in(tmp_path)
    sha256, file = open_artifact(features).sha256, features / name
    whole = file.read_bytes()
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(whole[:-1] + (bytes([whole[-1] ^ 1]) if how == "damaged" else b""))
    second = ntmp_done(*training, "--out", tmp_path / "second")
    assert f"warning: {features}/{name}: " in second.err
    assert "; it is made again\n" in second.err
    assert file.read_bytes() == whole
    assert open_artifact(features).sha256 == sha256
    open_artifact(features).verify()
    for run in ("first", "second"):
        assert open_artifact(tmp_path / run).sha256 == open_artifact(tmp_path / "first").sha256


def test_features_of_other_tuples_are_not_taken_for_these(ntmp_done, tuples, tmp_path):
    other = tmp_path / "other"
    ntmp_done("make-tuples", "--prior", 0.5, "--num-tuples", 20, "--unlabeled-size", 30, "--seed", 9, "--out", other)
    for number, source in enumerate((tuples, other)):
        training = ("train", "--tuples", source, *TRAINING, "--model", "linear", "--encoder", "pixels")
        ntmp_done(*training, "--features", tmp_path / "f", "--out", tmp_path / f"run-{number}")
    assert len(features_in(tmp_path / "f")) == 2


# --- instances that several tuples directories share ----------------------------------------------

SMALL = ("make-tuples", "--prior", 0.5, "--num-tuples", 60, "--unlabeled-size", 90)
PATCHES = "patches:filters=7,size=3,components=6"


@pytest.fixture(scope="module")
def two_tuples(ntmp_done, tmp_path_factory) -> tuple[Path, Path]:
    """Two samples from one data set, which have test instances and many others in common."""
    folder = tmp_path_factory.mktemp("two")
    for number in range(2):
        ntmp_done(*SMALL, "--seed", number, "--out", folder / f"t{number}")
    return folder / "t0", folder / "t1"


def train_patches(ntmp_done, tuples: Path, out: Path, *more: object):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--method", "discriminant", "--encoder", PATCHES)
    return ntmp_done(*training, *more, "--out", out)


def features_of_test(folder: Path) -> np.ndarray:
    return read_instances(open_artifact(folder, "features"), "test.h5")


def test_an_encoder_that_was_fitted_before_is_read_from_its_file(two_tuples, ntmp_done, tmp_path):
    train_patches(ntmp_done, two_tuples[0], tmp_path / "a" / "first")
    weights = tmp_path / "a" / "first" / ENCODER_WEIGHTS
    train_patches(ntmp_done, two_tuples[1], tmp_path / "b" / "again", "--encoder-weights", weights)
    train_patches(ntmp_done, two_tuples[1], tmp_path / "c" / "fitted")
    assert (tmp_path / "b" / "again" / ENCODER_WEIGHTS).read_bytes() == weights.read_bytes()
    assert (tmp_path / "c" / "fitted" / ENCODER_WEIGHTS).read_bytes() != weights.read_bytes()
    first, again, fitted = (features_of_test(*features_in(tmp_path / name)) for name in "abc")
    assert np.allclose(first, again, atol=1e-5)
    assert not np.allclose(first, fitted, atol=1e-2)


def test_an_instance_that_another_directory_has_is_not_encoded_again(two_tuples, ntmp_done, tmp_path):
    train_patches(ntmp_done, two_tuples[0], tmp_path / "first")
    weights = tmp_path / "first" / ENCODER_WEIGHTS
    (before,) = features_in(tmp_path)
    ended = train_patches(ntmp_done, two_tuples[1], tmp_path / "second", "--encoder-weights", weights)
    raw = [open_artifact(path) for path in two_tuples]
    distinct = [{row.tobytes() for name, read in instance_files(source) for row in read()} for source in raw]
    taken = f"features of {len(distinct[0] & distinct[1])} of {len(distinct[1])} distinct instances are taken from"
    assert f"{taken} {before}\n" in ended.err
    # Elsewhere the same features are computed from the instances, and are the same.
    alone = train_patches(ntmp_done, two_tuples[1], tmp_path / "alone" / "run", "--encoder-weights", weights)
    assert "are taken from" not in alone.err
    (shared,) = set(features_in(tmp_path)) - {before}
    (computed,) = features_in(tmp_path / "alone")
    for name, read in instance_files(open_artifact(shared, "features")):
        expected = dict(instance_files(open_artifact(computed, "features")))[name]()
        assert np.allclose(read(), expected, atol=1e-5), name
    assert (shared / "digests.h5").read_bytes() == (computed / "digests.h5").read_bytes()


def test_features_of_another_fit_or_of_a_damaged_directory_are_not_taken(two_tuples, ntmp_done, tmp_path):
    train_patches(ntmp_done, two_tuples[0], tmp_path / "first")
    (before,) = features_in(tmp_path)
    assert "are taken from" not in train_patches(ntmp_done, two_tuples[1], tmp_path / "fitted").err
    damaged = bytearray((before / "test.h5").read_bytes())
    damaged[-1] ^= 1
    (before / "test.h5").write_bytes(damaged)
    weights = tmp_path / "first" / ENCODER_WEIGHTS
    ended = train_patches(ntmp_done, two_tuples[1], tmp_path / "again", "--encoder-weights", weights)
    assert "are taken from" not in ended.err


def test_equal_bytes_that_stand_for_other_numbers_have_other_digests():
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    plain = digests(rows, 255.0)
    assert len(set(plain.tolist())) == 3
    for other in (digests(rows, 16.0), digests(rows.view(np.int8), 255.0), digests(rows.reshape(3, 2, 2), 255.0)):
        assert not set(plain.tolist()) & set(other.tolist())
    assert (digests(rows[::-1], 255.0) == plain[::-1]).all()


def test_weights_of_another_encoder_are_refused(two_tuples, ntmp, ntmp_done, tmp_path):
    train_patches(ntmp_done, two_tuples[0], tmp_path / "first")
    weights = tmp_path / "first" / ENCODER_WEIGHTS
    training = ("train", "--tuples", two_tuples[1], "--prior", 0.5, "--encoder-weights", weights)
    for encoder in ("pca", "patches:filters=8,size=3,components=6"):
        ended = ntmp(*training, "--encoder", encoder, "--out", tmp_path / "run")
        assert ended.code == 3
        assert f"{weights}: not weights of the encoder {encoder} for instances of shape (1, 8, 8)" in ended.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_features_are_what_the_encoder_makes_of_the_instances(encoder, runs, tuples):
    """In the order of the tuples, with their boundaries and counts."""
    (features,) = [open_artifact(path) for path in features_in(runs) if f"-{encoder}-" in path.name]
    source = open_artifact(tuples)
    network = restored(runs / encoder, encoder, features.summary.instance.shape[0])
    for split in ("train", "heldout"):
        assert tuple_shard_names(features, split) == tuple_shard_names(source, split)
        for name in tuple_shard_names(source, split):
            raw, coded = read_tuple_shard(source, name), read_tuple_shard(features, name)
            assert np.array_equal(raw.offsets, coded.offsets)
            assert np.array_equal(raw.counts, coded.counts)
            expected = network(torch.from_numpy(raw.instances).float() / 16)
            assert np.allclose(coded.instances, expected.numpy(), atol=1e-5)
    assert not any(entry.path.startswith("oracle") for entry in features.manifest.files)


def restored(run: Path, encoder: str, dim: int) -> torch.nn.Module:
    """The encoder from the run alone: its file of weights and its name."""
    network = build_encoder(encoder, EncoderRequest((1, 8, 8), seed=77, dim=dim))
    network.load_state_dict(load_file(run / ENCODER_WEIGHTS))
    return network


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_run_alone_scores_raw_instances_as_it_did(encoder, runs, tuples):
    run = open_artifact(runs / encoder)
    assert run.summary.encoder == encoder
    (dim,) = run.summary.features.shape
    assert dim == {"pca": min(100, dim), "random": 512, "pixels": 64}[encoder]
    state = load_file(run.path / WEIGHTS)
    scorer = build_scorer(run.summary.model, [dim], state["factor"].numpy(), state["shift"].numpy(), seed=5)
    scorer.load_state_dict(state)
    raw = torch.from_numpy(read_instances(open_artifact(tuples), "test.h5")).float() / 16
    with torch.inference_mode():
        scores = predict(scorer, restored(run.path, encoder, dim)(raw).numpy())
    expected = read_scores(run)["test"]
    assert np.allclose(scores, expected, atol=1e-4)
    assert np.ptp(expected) > 1e-3


def test_a_run_with_an_encoder_can_be_evaluated_and_shows_it(ntmp_done, runs, tuples, tmp_path):
    ended = ntmp_done("evaluate", runs / "pca", runs / "random", "--metric", "auroc", "--json", "--out", tmp_path / "e")
    assert len(ended.json["rows"]) == 2
    assert {row["variant"] for row in ended.json["rows"]} == {"encoder=pca", "encoder=random"}
    training = ("train", "--tuples", tuples, *TRAINING[:-1], "--model", "mlp", "--encoder", "random")
    assert "random, 512 numbers" in ntmp_done(*training, "--if-exists", "skip", "--out", runs / "random").out


def test_features_can_be_inspected_but_not_trained_on(ntmp, ntmp_done, runs, tmp_path):
    features = features_in(runs)[0]
    shown = ntmp_done("inspect", features, "--json").json
    assert (shown["kind"], shown["verified"]) == ("features", True)
    assert "features" in ntmp_done("inspect", features).out
    ended = ntmp("train", "--tuples", features, "--prior", 0.5, "--out", tmp_path / "run")
    assert ended.code == 3
    assert "expected kind 'tuples', found 'features'" in ended.err
    assert list(tmp_path.iterdir()) == []


# --- the last hidden layer of a run --------------------------------------------------------------


@pytest.fixture(scope="module")
def network(ntmp_done, tuples, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("network") / "run"
    ntmp_done("train", "--tuples", tuples, *TRAINING, "--method", "ure", "--model", "mlp", "--out", out)
    return out


def test_clusters_are_found_in_the_last_hidden_layer_of_a_network(network, ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--method", "kmeans", "--encoder", f"run:{network}")
    ntmp_done(*training, "--out", tmp_path / "run")
    run, trained = open_artifact(tmp_path / "run"), open_artifact(network)
    assert (run.summary.encoder, run.summary.features.shape) == ("penultimate:mlp", (300,))
    assert trained.sha256 in {entry["sha256"] for entry in run.manifest.inputs}
    assert str(network) not in (tmp_path / "run" / "manifest.json").read_text()
    # The features are what the network's last layer sees: with that layer they give the network's own scores.
    (features,) = features_in(tmp_path)
    hidden = torch.from_numpy(read_instances(open_artifact(features), "test.h5"))
    weights = load_file(network / WEIGHTS)
    last = sorted(name for name in weights if name.endswith(".bias") and weights[name].shape == (1,))[0]
    scores = hidden @ weights[last.replace(".bias", ".weight")][0] + weights[last]
    assert np.allclose(scores.numpy(), read_scores(trained)["test"], atol=1e-4)
    # The run stands alone: its encoder lies in it.
    raw = read_instances(open_artifact(tuples), "test.h5")
    assert np.allclose(load_score(run)(raw), read_scores(run)["test"], atol=1e-4)


@pytest.mark.parametrize("method", ["attention-mil", "count"])
def test_other_methods_learn_from_the_hidden_layer_too(method, network, ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--method", method, "--epochs", 1)
    more = ("--model", "linear", "--trust", "prior") if method == "count" else ()
    ended = ntmp_done(*training, *more, "--encoder", f"run:{network}", "--out", tmp_path / "run")
    assert "frozen encoder" not in ended.err


def test_attention_on_raw_pixels_is_warned_of(ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--method", "attention-mil", "--epochs", 1)
    ended = ntmp_done(*training, "--out", tmp_path / "run")
    assert "attention-mil is meant for features of a frozen encoder and learns from raw pixels here" in ended.err
    ended = ntmp_done(*training, "--encoder", "pixels", "--out", tmp_path / "chosen")
    assert "frozen encoder" not in ended.err


def test_a_run_without_hidden_layer_or_of_other_instances_is_no_encoder(network, runs, ntmp, ntmp_done, tmp_path):
    data = ("make-tuples", "--dataset", "gaussians:size=200,test=20", "--prior", 0.5, "--num-tuples", 9)
    ntmp_done(*data, "--out", tmp_path / "t")
    training = ("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--method", "kmeans", "--out", tmp_path / "r")
    vectors = ("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--method", "ure", "--model", "linear")
    ntmp_done(*vectors, "--epochs", 1, "--out", tmp_path / "linear")
    for encoder, code, message in (
        (network, 2, "was trained on instances of shape (1, 8, 8), but those of"),
        (runs / "pca", 2, "not a network on raw instances"),
        (tmp_path / "linear", 2, "the network of the encoder has no hidden layer"),
        (tmp_path / "nowhere", 3, "nowhere"),
    ):
        ended = ntmp(*training, "--encoder", f"run:{encoder}")
        assert (ended.code, ended.err.count("error: ")) == (code, 1), ended.err
        assert message in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linear", "t"]


# --- mistakes -----------------------------------------------------------------------------------

MISTAKES = {
    "unknown encoder": (("--encoder", "pcaa"), 2, "error: unknown encoder 'pcaa'; did you mean 'pca'?\n"),
    "unknown torchvision model": (("--encoder", "torchvision:resnet9999"), 2, "error: "),
    "weights that are not there": (
        ("--encoder", "torchvision:resnet18", "--encoder-weights", "/nowhere/w.pt"),
        (2, 3),
        "/nowhere/w.pt",
    ),
    "weights for what has none": (
        ("--encoder", "random", "--encoder-weights", "/nowhere/w.pt"),
        2,
        "error: encoder random takes no weights, but got '/nowhere/w.pt'\n",
    ),
    "weights of an earlier fit that are not there": (
        ("--encoder", "pca", "--encoder-weights", "/nowhere/w.safetensors"),
        3,
        "error: /nowhere/w.safetensors: no such weights file\n",
    ),
    "a description of CLIP that is not there": (
        ("--encoder", "clip", "--clip-model", "/nowhere/c.json", "--clip-weights", "random"),
        3,
        "error: /nowhere/c.json: cannot be read",
    ),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_one_message_and_writes_nothing(mistake, ntmp, tuples, tmp_path):
    more, codes, message = MISTAKES[mistake]
    ended = ntmp("train", "--tuples", tuples, "--prior", 0.5, *more, "--out", tmp_path / "run")
    assert ended.code in (codes if isinstance(codes, tuple) else (codes,)), ended.err
    assert message in ended.err
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_of_images_refuses_vectors(ntmp, ntmp_done, tmp_path):
    data = "gaussians:size=200,test=20"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.5, "--num-tuples", 9, "--out", tmp_path / "t")
    weights = tmp_path / "w.pt"
    torch.save({}, weights)
    for more in (("torchvision:resnet18", "--encoder-weights", weights), ("clip", "--clip-weights", "random")):
        ended = ntmp("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--encoder", *more, "--out", tmp_path / "r")
        assert ended.code == 2
        assert "needs images with 1 or 3 channels, but an instance has shape (2,)" in ended.err
        assert ended.err.count("error: ") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "w.pt"]


def test_a_file_of_weights_that_does_not_fit_is_refused(ntmp, tuples, tmp_path):
    weights = tmp_path / "w.pt"
    weights.write_bytes(b"not weights")
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--encoder", "torchvision:resnet18")
    ended = ntmp(*training, "--encoder-weights", weights, "--out", tmp_path / "run")
    assert ended.code == 3
    assert f"error: {weights}: not a file of weights" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["w.pt"]
