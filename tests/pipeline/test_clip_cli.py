"""clip-mil from the command line: what it scores is CLIP's own cosine, and nothing is fetched unasked."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, HISTORY
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.shards import read_instances, unlabeled_shard_names
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.learning.clip import load_clip
from ntmp_cli.vision import torchvision_module

torchvision_module()  # before open_clip, which imports torchvision
import open_clip  # noqa: E402

EVEN, ODD = "a photo of an even digit", "a photo of an odd digit"
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
# As large as the digits, so that nothing is resized; the vocabulary is the one that open_clip ships.
CONFIG = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 8, "layers": 1, "width": 16, "head_width": 8, "patch_size": 4},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("clip") / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whoever asks for an address fails at once, and the test with him."""

    def refuse(*_: object, **__: object) -> object:
        raise OSError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def training(tuples: Path, model: object, *more: object) -> tuple[object, ...]:
    return ("train", "--tuples", tuples, "--prior", 0.5, "--method", "clip-mil", "--clip-model", model, *more)


@pytest.fixture(scope="module")
def runs(ntmp_done, tuples, tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    random = ("--clip-weights", "random", "--json")
    two = training(tuples, tiny, *random, "--clip-prompt", EVEN, "--clip-prompt", ODD)
    ntmp_done(*two, "--out", folder / "two")
    ntmp_done(*training(tuples, tiny, *random, "--clip-prompt", EVEN), "--out", folder / "one")
    return folder


def cosines(tiny: Path, raw: np.ndarray) -> tuple[np.ndarray, float]:
    """Cosines of raw digits with both prompts by open_clip itself, and its scale; only the weights are ours."""
    network = open_clip.CLIP(**CONFIG).eval()
    network.load_state_dict(load_clip(str(tiny), "random", seed=0).model.state_dict())
    x = torch.from_numpy(raw).float().div(16).repeat(1, 3, 1, 1)
    x = (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
    with torch.no_grad():
        images, words, scale = network(x, open_clip.SimpleTokenizer(context_length=12)([EVEN, ODD]))
    return (images @ words.T).double().numpy(), float(scale)


def test_scores_are_the_log_odds_of_clip_itself(runs, tuples, tiny):
    run = open_artifact(runs / "two")
    scores = read_scores(run)["test"]
    cosine, scale = cosines(tiny, read_instances(open_artifact(tuples), "test.h5"))
    expected = scale * (cosine[:, 0] - cosine[:, 1])
    assert np.ptp(expected) > 0.1
    assert np.allclose(scores, expected, atol=1e-3)
    # They are the log-odds of the softmax over both prompts.
    share = torch.softmax(torch.from_numpy(scale * cosine), dim=1)[:, 0].numpy()
    assert np.allclose(1 / (1 + np.exp(-scores)), share, atol=1e-3)


def test_bags_are_scored_by_their_mean_and_evaluated(runs, tuples, tiny, ntmp_done, tmp_path):
    scores, source = read_scores(open_artifact(runs / "two")), StoredTuples(open_artifact(tuples))
    heldout = source.heldout()
    assert heldout is not None
    (n,) = set(heldout.sizes.tolist())
    for raw, stored in ((heldout.tuples, "heldout_bags"), (heldout.unlabeled, "heldout_unlabeled_bags")):
        cosine, scale = cosines(tiny, raw[: len(raw) // n * n])
        expected = scale * (cosine[:, 0] - cosine[:, 1]).reshape(-1, n).mean(axis=1)
        assert np.allclose(scores[stored], expected, atol=1e-3)
    # With π = 1/2 above the rate 1/3, bags of U are the positive ones.
    bags = np.concatenate([scores["heldout_bags"], scores["heldout_unlabeled_bags"]])
    is_pool = np.arange(len(bags)) >= len(scores["heldout_bags"])
    result = ntmp_done("evaluate", runs / "two", "--json", "--out", tmp_path / "e").json
    values = {row["metric"]: row["value"] for row in result["rows"]}
    assert values["bag_auroc"] == pytest.approx(roc_auc_score(is_pool, bags))
    assert values["bag_accuracy"] == pytest.approx(np.mean((bags > 0) == is_pool))


def test_one_prompt_has_its_threshold_where_the_share_of_positives_of_u_lies_above(runs, tuples, tiny):
    run, source = open_artifact(runs / "one"), open_artifact(tuples)
    scores = read_scores(run)["test"]
    cosine, scale = cosines(tiny, read_instances(source, "test.h5"))
    raw = np.concatenate([read_instances(source, name) for name in unlabeled_shard_names(source, "train")])
    outside = scale * cosines(tiny, raw)[0][:, 0]
    offset = scores - scale * cosine[:, 0]
    assert np.ptp(offset) < 1e-3
    assert (outside + offset.mean() > 0).mean() == pytest.approx(0.5, abs=1.5 / len(raw))
    assert -offset.mean() == pytest.approx(np.quantile(outside, 0.5), abs=1e-3)


@pytest.mark.parametrize("prior", [0.2, 0.7])
def test_the_share_above_the_threshold_is_the_prior_that_is_told(prior, ntmp_done, tuples, tiny, runs, tmp_path):
    more = ("--clip-weights", "random", "--clip-prompt", EVEN, "--features", runs, "--json")
    words = [word if word != 0.5 else prior for word in training(tuples, tiny, *more)]
    ntmp_done(*words, "--out", tmp_path / "run")
    source = open_artifact(tuples)
    raw = np.concatenate([read_instances(source, name) for name in unlabeled_shard_names(source, "train")])
    test, scale = cosines(tiny, read_instances(source, "test.h5"))
    scores = read_scores(open_artifact(tmp_path / "run"))["test"]
    offset = (scores - scale * test[:, 0]).mean()
    above = (scale * cosines(tiny, raw)[0][:, 0] + offset > 0).mean()
    assert above == pytest.approx(prior, abs=1.5 / len(raw))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("normalize", ["auto", "channel", "none"])
def test_no_normalisation_changes_a_cosine(normalize, ntmp_done, tuples, tiny, runs, tmp_path):
    more = ("--clip-weights", "random", "--clip-prompt", EVEN, "--clip-prompt", ODD, "--features", runs)
    ntmp_done(*training(tuples, tiny, *more), "--normalize", normalize, "--out", tmp_path / "run")
    expected, scores = (read_scores(open_artifact(path))["test"] for path in (runs / "two", tmp_path / "run"))
    assert np.allclose(scores, expected, atol=1e-5)


def test_a_run_carries_its_encoder_and_says_what_it_looked_for(runs):
    run = open_artifact(runs / "two")
    run.verify()
    assert run.summary.encoder == "clip"
    features = run.summary.features
    assert (features.shape, features.dtype, features.scale) == ((12,), "float32", 1.0)
    assert run.file(ENCODER_WEIGHTS).stat().st_size > 1000
    (record,) = read_json_lines(run, HISTORY)
    assert record["prompts"] == [EVEN, ODD]
    assert record["logit_scale"] == pytest.approx(1 / 0.07, rel=1e-5)
    # One description, one file of features for both runs, and no path of this machine in it.
    (features,) = runs.glob("features-clip-*")
    assert open_artifact(features).manifest.config["clip_model"].startswith("sha256:")


def test_runs_can_be_evaluated(ntmp_done, runs, tmp_path):
    words = ("--metric", "auroc", "--metric", "accuracy", "--json", "--out", tmp_path / "e")
    rows = ntmp_done("evaluate", runs / "two", runs / "one", *words).json["rows"]
    assert len(rows) == 4
    assert {row["method"] for row in rows} == {"clip-mil"}
    assert all(0 <= row["value"] <= 1 for row in rows)


def test_random_weights_are_warned_of(ntmp_done, tuples, tiny, tmp_path):
    more = ("--clip-weights", "random", "--clip-prompt", EVEN)
    ended = ntmp_done(*training(tuples, tiny, *more), "--out", tmp_path / "run")
    assert "warning: CLIP has random weights: its scores are meaningless\n" in ended.err


# --- mistakes -----------------------------------------------------------------------------------

PROMPT = ("--clip-prompt", EVEN)
MISTAKES = {
    "no prompt": (("--clip-weights", "random"), 2, "error: clip-mil needs a positive prompt\nPass --clip-prompt "),
    "no weights": (PROMPT, 2, "needs weights, and none were given\n"),
    "weights that are not there": ((*PROMPT, "--clip-weights", "/nowhere/w.pt"), 2, "'/nowhere/w.pt'"),
    "three prompts": (
        (*PROMPT, *PROMPT, *PROMPT, "--clip-weights", "random"),
        2,
        "error: configuration: clip_prompts: ",
    ),
}


@pytest.mark.parametrize("builtin", [False, True], ids=["a file", "an architecture of open_clip"])
@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_one_message_and_writes_nothing(mistake, builtin, ntmp, tuples, tiny, tmp_path):
    more, code, message = MISTAKES[mistake]
    ended = ntmp(*training(tuples, "ViT-B-32" if builtin else tiny, *more), "--out", tmp_path / "run")
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert "the network was used" not in ended.err
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_weights_that_must_be_fetched_without_a_network_are_one_message(ntmp, tuples, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    more = (*PROMPT, "--clip-weights", "laion2b_s34b_b79k")
    ended = ntmp(*training(tuples, "ViT-B-32", *more), "--out", tmp_path / "work" / "run")
    assert ended.code == 3
    (line,) = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: CLIP weights 'laion2b_s34b_b79k' for ViT-B-32 could not be downloaded: ")
    assert "the network was used" not in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "work").exists()


def test_vectors_are_refused(ntmp, ntmp_done, tiny, tmp_path):
    data = "gaussians:size=200,test=20"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.5, "--num-tuples", 9, "--out", tmp_path / "t")
    ended = ntmp(*training(tmp_path / "t", tiny, *PROMPT, "--clip-weights", "random"), "--out", tmp_path / "run")
    assert ended.code == 2
    assert "needs images with 1 or 3 channels" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
