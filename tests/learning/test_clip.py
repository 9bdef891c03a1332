from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ntmp_cli.errors import ArtifactError, NtmpError, UsageError
from ntmp_cli.learning.clip import ClipModel, clip_architecture, load_clip
from ntmp_cli.learning.encoders import EncoderRequest, build_encoder
from ntmp_cli.vision import torchvision_module

torchvision_module()  # before open_clip, which imports torchvision
import open_clip  # noqa: E402

PROMPTS = ["a photo of a cat", "a photo of a dog", "tiny"]
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def config() -> dict[str, Any]:
    """A CLIP small enough for a test; the vocabulary is the one that open_clip ships."""
    return {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        "text_cfg": {"context_length": 10, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("clip") / "tiny.json", config())


@pytest.fixture(scope="module")
def clip(tiny: str) -> ClipModel:
    return load_clip(tiny, "random", seed=3)


def write(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def images(shape: tuple[int, ...], count: int = 5, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((count, *shape)).astype(np.float32))


def normalised(x: Tensor) -> Tensor:
    return (x - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)


def refused(kind: type[NtmpError], model: str, weights: str | None) -> NtmpError:
    with pytest.raises(kind) as error:
        load_clip(model, weights)
    assert "\n" not in error.value.message
    assert error.value.hint is not None
    return error.value


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 40, 50), (1, 32, 32)])
def test_embeddings_of_images_of_any_size_have_length_one(clip: ClipModel, shape: tuple[int, ...]) -> None:
    embeddings = clip.image_encoder(images(shape))
    assert embeddings.shape == (5, 12)
    assert clip.dim == clip.image_encoder.dim == 12
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(5), atol=1e-5)
    assert not embeddings.requires_grad


def test_embeddings_of_prompts_have_length_one(clip: ClipModel) -> None:
    embeddings = clip.embed_text(PROMPTS)
    assert embeddings.shape == (3, 12)
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(3), atol=1e-5)
    assert not embeddings.requires_grad


def test_cosines_are_those_of_open_clip(clip: ClipModel) -> None:
    """The same architecture and state in open_clip itself, whose forward gives both sides and the scale."""
    reference = open_clip.CLIP(**config()).eval()
    reference.load_state_dict(clip.model.state_dict())
    x = images((3, 32, 32))
    tokens = open_clip.SimpleTokenizer(context_length=10)(PROMPTS)
    with torch.no_grad():
        image_side, text_side, scale = reference(normalised(x), tokens)
    expected = image_side @ text_side.T
    assert torch.allclose(clip.image_encoder(x) @ clip.embed_text(PROMPTS).T, expected, atol=1e-5)
    assert clip.logit_scale == pytest.approx(float(scale))
    assert clip.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)


def test_a_grey_image_is_a_colour_image_with_equal_channels(clip: ClipModel) -> None:
    x = images((1, 28, 28))
    assert torch.allclose(clip.image_encoder(x), clip.image_encoder(x.repeat(1, 3, 1, 1)), atol=1e-6)


def test_images_are_resized_as_open_clip_does(clip: ClipModel) -> None:
    """Against the transform for PIL images; a byte of rounding is all that may differ."""
    transforms = torchvision_module().transforms
    # Away from black and white, because PIL also cuts off what overshoots between its two passes.
    x = ((0.3 + 0.4 * images((3, 48, 48))) * 255).round() / 255
    preprocess = open_clip.image_transform(32, is_train=False)
    expected = torch.stack([preprocess(transforms.functional.to_pil_image(image)) for image in x])
    resized = normalised(clip.image_encoder._resize(x))
    assert float((resized - expected).abs().max()) < 1.01 / 255 / min(STD)


def test_the_image_encoder_stays_frozen(clip: ClipModel) -> None:
    clip.image_encoder.train()
    assert not any(module.training for module in clip.image_encoder.modules())
    assert not any(parameter.requires_grad for parameter in clip.model.parameters())


def test_the_seed_decides_random_weights_and_nothing_else(tiny: str) -> None:
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    first, again, other = (load_clip(tiny, "random", seed=seed).embed_text(PROMPTS) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_random_weights_are_warned_of(tiny: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ntmp_cli"):
        load_clip(tiny, "random")
    assert [record.getMessage() for record in caplog.records] == ["CLIP has random weights: its scores are meaningless"]


def test_loading_leaves_the_handlers_of_the_root_logger_alone(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    level = logging.getLogger("huggingface_hub").level
    load_clip(tiny, "random")
    assert logging.getLogger().handlers == []
    assert logging.getLogger("huggingface_hub").level == level


def test_weights_are_read_from_a_file(clip: ClipModel, tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(clip.model.state_dict(), path)
    loaded = load_clip(tiny, str(path), seed=8)
    x = images((3, 32, 32))
    assert torch.equal(loaded.image_encoder(x), clip.image_encoder(x))
    assert torch.equal(loaded.embed_text(PROMPTS), clip.embed_text(PROMPTS))


def test_a_published_description_brings_its_own_normalisation(tmp_path: Path) -> None:
    preprocessing = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
    path = write(tmp_path / "open_clip_config.json", {"model_cfg": config(), "preprocess_cfg": preprocessing})
    encoder = load_clip(path, "random").image_encoder
    assert encoder.mean.flatten().tolist() == preprocessing["mean"]
    assert encoder.std.flatten().tolist() == preprocessing["std"]


def test_an_architecture_of_open_clip_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "Tiny-8", config())
    source = clip_architecture("Tiny/8", seed=4)
    path = tmp_path / "weights.pt"
    torch.save(source.model.state_dict(), path)
    # A tag is open_clip's word for a download; here the file is there already.
    tag = {"file": str(path), "mean": [0.1, 0.2, 0.3], "std": STD}
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda model, name: tag if name == "known" else {})
    loaded = load_clip("Tiny-8", "known")
    assert torch.equal(loaded.embed_text(PROMPTS), source.embed_text(PROMPTS))
    assert loaded.image_encoder.mean.flatten().tolist() == pytest.approx(tag["mean"])


def test_the_context_length_is_that_of_the_description(clip: ClipModel) -> None:
    assert clip.tokenizer(PROMPTS).shape == (3, 10)
    assert clip.embed_text(["word " * 50]).shape == (1, 12)


def test_the_clip_encoder_is_the_image_side(clip: ClipModel, tiny: str) -> None:
    encoder = build_encoder("clip", EncoderRequest((1, 28, 28), seed=3, weights="random", clip_model=tiny))
    x = images((1, 28, 28))
    assert encoder.dim == 12
    assert torch.equal(encoder(x), clip.image_encoder(x))


def test_a_clip_encoder_is_restored_without_weights_and_without_a_warning(
    clip: ClipModel, tiny: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="ntmp_cli"):
        restored = build_encoder("clip", EncoderRequest((3, 32, 32), seed=0, clip_model=tiny, dim=12))
    restored.load_state_dict(clip.image_encoder.state_dict())
    x = images((3, 32, 32))
    assert torch.equal(restored(x), clip.image_encoder(x))
    assert caplog.records == []


def test_missing_weights_are_refused(tiny: str) -> None:
    error = refused(UsageError, "ViT-B-32", None)
    assert error.message == "CLIP model ViT-B-32 needs weights, and none were given"
    assert error.hint == (
        "Set `clip_weights` to a file, or to a tag of open_clip such as laion2b_s34b_b79k, which downloads them."
    )
    assert refused(UsageError, tiny, None).hint == "Set `clip_weights` to a file."


def test_weights_that_are_neither_file_nor_tag_are_refused(tiny: str) -> None:
    assert refused(UsageError, "ViT-B-32", "no.pt").message == (
        "CLIP weights 'no.pt' for ViT-B-32 are neither a file nor a tag that open_clip knows"
    )
    assert refused(UsageError, tiny, "openai").message == f"CLIP weights 'openai' for {tiny} are not a file"


def test_weights_for_another_activation_are_refused() -> None:
    error = refused(UsageError, "ViT-B-32", "openai")
    assert error.message == "CLIP weights 'openai' were trained with QuickGELU, which ViT-B-32 does not use"
    assert error.hint == "Set `clip_model` to ViT-B-32-quickgelu."


def test_weights_that_cannot_be_downloaded_are_one_message(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_: object) -> str:
        logging.getLogger("huggingface_hub.utils").warning("attempt 1")
        raise OSError("no\nroute")

    monkeypatch.setattr(open_clip, "download_pretrained", unreachable)
    error = refused(ArtifactError, "ViT-B-32", "laion2b_s34b_b79k")
    assert error.message == "CLIP weights 'laion2b_s34b_b79k' for ViT-B-32 could not be downloaded: no route"
    assert error.hint == "Download them where there is a network, and set `clip_weights` to the file."
    shown = capfd.readouterr()
    assert (shown.out, "attempt" in shown.err) == ("", False)


@pytest.mark.parametrize("content", [b"text, not weights", b""])
def test_a_file_that_holds_no_weights_is_refused(content: bytes, tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    assert refused(ArtifactError, tiny, str(path)).message.startswith(f"{path}: not weights of CLIP model {tiny}: ")


def test_weights_of_another_model_are_refused(clip: ClipModel, tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    state = clip.model.state_dict()
    del state["ln_final.weight"]
    torch.save(state, path)
    assert "ln_final.weight" in refused(ArtifactError, tiny, str(path)).message


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    assert refused(UsageError, "ViT-B32", "x").message == "unknown CLIP model 'ViT-B32'; did you mean 'ViT-B-32'?"
    assert refused(UsageError, "zzz", "x").message == "unknown CLIP model 'zzz'"


def test_a_description_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    assert refused(ArtifactError, str(path), "random").message.startswith(f"{path}: cannot be read")
    path.write_text("{")
    assert refused(UsageError, str(path), "random").message.startswith(f"{path}: not JSON: ")
    write(path, [1])
    assert "no embed_dim and no vision_cfg and no text_cfg" in refused(UsageError, str(path), "random").message
    write(path, config() | {"depth": 3})
    assert "cannot be built: " in refused(UsageError, str(path), "random").message
    small = config()
    small["text_cfg"]["vocab_size"] = 100
    write(path, small)
    assert "vocab_size 100 is too small" in refused(UsageError, str(path), "random").message


def test_no_prompts_are_refused(clip: ClipModel) -> None:
    with pytest.raises(UsageError, match="CLIP got no prompts"):
        clip.embed_text([])


def test_images_with_other_channels_are_refused(clip: ClipModel) -> None:
    with pytest.raises(UsageError, match="CLIP needs images with 1 or 3 channels"):
        clip.image_encoder(images((2, 32, 32)))


def test_a_missing_package_is_one_message(monkeypatch: pytest.MonkeyPatch, tiny: str) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(UsageError) as error:
        load_clip(tiny, "random")
    assert error.value.message == "CLIP needs open_clip: pip install 'ntmp[clip]'"
