"""CLIP through open_clip (extra `clip`): images and sentences as unit vectors of one space.

Radford et al. (2021), "Learning transferable visual models from natural language supervision".
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.learning.encoders import Encoder, require_images, three_channels
from ntmp_cli.vision import torchvision_module

log = logging.getLogger(__name__)

DEFAULT_MODEL = "ViT-B-32"
RANDOM_WEIGHTS = "random"

_CONFIG_KEYS = ("embed_dim", "vision_cfg", "text_cfg")
_FILE_HINT = "Set `clip_weights` to a file of weights for this model."
_DOWNLOAD_HINT = "Download them where there is a network, and set `clip_weights` to the file."


class ClipImageEncoder(Encoder):
    """CLIP's image side behind its preprocessing: images in [0, 1] of any size to unit vectors."""

    mean: Tensor
    std: Tensor

    def __init__(self, visual: nn.Module, dim: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(dim)
        self.visual = visual
        size: Any = visual.image_size
        self.size = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        self.register_buffer("mean", torch.tensor(mean).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(3, 1, 1))
        self.freeze()

    def forward(self, images: Tensor) -> Tensor:
        require_images("CLIP", tuple(images.shape[1:]), hint="Use another encoder.")
        x = (self._resize(three_channels(images)) - self.mean) / self.std
        outputs = self.visual(x)
        # CoCa's image side also returns its tokens.
        embeddings: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return functional.normalize(embeddings, dim=-1)

    def _resize(self, images: Tensor) -> Tensor:
        if tuple(images.shape[-2:]) == self.size:
            return images
        resized = functional.interpolate(images, self.size, mode="bicubic", antialias=True)
        return resized.clamp(0, 1)  # bicubic weights overshoot at edges


@dataclass(frozen=True)
class ClipModel:
    """Both sides of CLIP. The probability of a prompt is softmax(logit_scale · cosine)."""

    image_encoder: ClipImageEncoder
    logit_scale: float
    dim: int
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)

    def embed_text(self, prompts: Sequence[str]) -> Tensor:
        """Unit vectors (P, dim), one per prompt; the end of a prompt beyond the context is cut off."""
        if not prompts:
            raise UsageError("CLIP got no prompts", hint="Give at least one sentence per class.")
        tokens = self.tokenizer(list(prompts)).to(self.model.logit_scale.device)
        with torch.no_grad():
            embeddings: Tensor = self.model.encode_text(tokens, normalize=True)
        return embeddings


def load_clip(model: str, weights: str | None, *, seed: int = 0) -> ClipModel:
    """CLIP with weights. `model` is an architecture of open_clip or a JSON file that describes one.

    `weights` is a tag that open_clip knows for the architecture (which downloads them), a file, or
    `random`: weights sampled with `seed`, whose scores mean nothing, to try out the pipeline.
    """
    if weights is None:
        raise UsageError(f"CLIP model {model} needs weights, and none were given", hint=_weights_hint(model))
    if weights == RANDOM_WEIGHTS:
        log.warning("CLIP has random weights: its scores are meaningless")
        return clip_architecture(model, seed=seed)
    open_clip = _open_clip()
    architecture = _architecture(open_clip, model)
    path, preprocessing = _find_weights(open_clip, architecture, weights)
    with _quiet():
        network = _construct(open_clip, architecture, seed)
        _load(open_clip, network, architecture.name, path)
        return _assemble(open_clip, architecture, network, preprocessing)


def clip_architecture(model: str, *, seed: int = 0) -> ClipModel:
    """CLIP with weights sampled with `seed`, for a state dict to be loaded."""
    open_clip = _open_clip()
    architecture = _architecture(open_clip, model)
    with _quiet():
        return _assemble(open_clip, architecture, _construct(open_clip, architecture, seed), {})


@dataclass(frozen=True)
class _Architecture:
    """What to build: `config` as in open_clip's files; `builtin` unless it came from a user's file."""

    name: str
    config: dict[str, Any]
    preprocessing: dict[str, Any]
    builtin: bool


def _open_clip() -> Any:
    torchvision_module()  # open_clip imports torchvision, which may need stand-ins
    try:
        return importlib.import_module("open_clip")
    except ImportError as error:
        raise UsageError("CLIP needs open_clip: pip install 'ntmp[clip]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence other packages: one message where a download fails, and none otherwise.

    open_clip's calls of `logging.info` would install a handler that prints on stderr from then on,
    and the hub's client warns of each of its attempts.
    """
    root, hub = logging.getLogger(), logging.getLogger("huggingface_hub")
    placeholder, level = logging.NullHandler(), hub.level
    root.addHandler(placeholder)
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        root.removeHandler(placeholder)


def _architecture(open_clip: Any, model: str) -> _Architecture:
    if model.endswith(".json"):
        return _read_architecture(Path(model))
    name = model.replace("/", "-")  # as in the papers: ViT-B/32
    names = open_clip.list_models()
    if name not in names:
        close = did_you_mean(name, names)
        raise UsageError(
            # open_clip knows too many architectures to list them.
            f"unknown CLIP model '{model}'" + (f"; {close}" if close.startswith("did") else ""),
            hint=f"Name an architecture of open_clip, such as {DEFAULT_MODEL}, or a .json file that describes one.",
        )
    return _Architecture(name, open_clip.get_model_config(name), {}, builtin=True)


def _read_architecture(path: Path) -> _Architecture:
    """A file with embed_dim, vision_cfg and text_cfg; these may lie in `model_cfg`, as in published files."""
    hint = f"A CLIP model is described by a JSON object with {', '.join(_CONFIG_KEYS)}."
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror})", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}", hint=hint) from error
    description = content if isinstance(content, dict) else {}
    config = description.get("model_cfg", description)
    missing = [key for key in _CONFIG_KEYS if key not in config]
    if missing:
        raise UsageError(f"{path}: no {' and no '.join(missing)} for a CLIP model", hint=hint)
    return _Architecture(str(path), config, description.get("preprocess_cfg", {}), builtin=False)


def _find_weights(open_clip: Any, architecture: _Architecture, weights: str) -> tuple[Path, dict[str, Any]]:
    """(file, its preprocessing where open_clip knows it)."""
    if Path(weights).is_file():
        return Path(weights), {}
    tag = open_clip.get_pretrained_cfg(architecture.name, weights) if architecture.builtin else None
    if not tag:
        kinds = "neither a file nor a tag that open_clip knows" if architecture.builtin else "not a file"
        raise UsageError(
            f"CLIP weights '{weights}' for {architecture.name} are {kinds}", hint=_weights_hint(architecture.name)
        )
    if tag.get("quick_gelu", False) and not architecture.config.get("quick_gelu", False):
        # The weights would load without complaint, and the embeddings would be a little wrong.
        raise UsageError(
            f"CLIP weights '{weights}' were trained with QuickGELU, which {architecture.name} does not use",
            hint=f"Set `clip_model` to {architecture.name}-quickgelu.",
        )
    return _download(open_clip, architecture.name, weights, tag), tag


def _download(open_clip: Any, name: str, weights: str, tag: dict[str, Any]) -> Path:
    log.info("fetching CLIP weights '%s' for %s", weights, name)
    try:
        with _quiet():
            return Path(open_clip.download_pretrained(tag))
    except Exception as error:  # the hub's client, the network and the disk raise different errors
        raise ArtifactError(
            f"CLIP weights '{weights}' for {name} could not be downloaded: {_one_line(error)}", hint=_DOWNLOAD_HINT
        ) from error


def _construct(open_clip: Any, architecture: _Architecture, seed: int) -> Any:
    """A randomly initialised network; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            if architecture.builtin:
                return open_clip.create_model(architecture.name, pretrained=None, pretrained_text=False)
            config = dict(architecture.config)
            kind = open_clip.CustomTextCLIP if config.pop("custom_text", False) else open_clip.CLIP
            return kind(**config)
        except Exception as error:  # a wrong number in the description can raise anything
            raise UsageError(
                f"CLIP model {architecture.name} cannot be built: {_one_line(error)}",
                hint=f"Try an architecture of open_clip, such as {DEFAULT_MODEL}.",
            ) from error


def _load(open_clip: Any, network: Any, name: str, path: Path) -> None:
    """Load a checkpoint that must fit exactly."""
    try:
        open_clip.load_checkpoint(network, str(path), strict=True, weights_only=True)
    except Exception as error:  # a foreign file can fail in any way inside the reader
        # torch would advise to run the code in the file.
        reason = "it holds more than tensors" if "weights_only" in str(error) else _one_line(error)
        raise ArtifactError(f"{path}: not weights of CLIP model {name}: {reason}", hint=_FILE_HINT) from error


def _assemble(open_clip: Any, architecture: _Architecture, network: Any, preprocessing: dict[str, Any]) -> ClipModel:
    network.requires_grad_(False).eval()
    preprocessing = architecture.preprocessing | preprocessing
    dim = int(architecture.config["embed_dim"])
    mean = preprocessing.get("mean", open_clip.OPENAI_DATASET_MEAN)
    std = preprocessing.get("std", open_clip.OPENAI_DATASET_STD)
    return ClipModel(
        image_encoder=ClipImageEncoder(network.visual, dim, mean, std),
        logit_scale=float(network.logit_scale.exp()),
        dim=dim,
        model=network,
        tokenizer=_tokenizer(open_clip, architecture, network),
    )


def _tokenizer(open_clip: Any, architecture: _Architecture, network: Any) -> Any:
    """The tokenizer of the architecture; CLIP's comes with open_clip and needs no network."""
    if architecture.builtin:
        try:
            return open_clip.get_tokenizer(architecture.name)
        except Exception as error:  # other tokenizers are downloaded, and need further packages
            raise UsageError(
                f"the tokenizer of CLIP model {architecture.name} is not available: {_one_line(error)}",
                hint=f"Use an architecture with CLIP's tokenizer, such as {DEFAULT_MODEL}.",
            ) from error
    tokenizer = open_clip.SimpleTokenizer(context_length=network.context_length)
    if network.vocab_size < tokenizer.vocab_size:
        raise UsageError(
            f"{architecture.name}: vocab_size {network.vocab_size} is too small for CLIP's tokenizer",
            hint=f"Set vocab_size in text_cfg to {tokenizer.vocab_size}.",
        )
    return tokenizer


def _weights_hint(model: str) -> str:
    tag = (
        "" if model.endswith(".json") else ", or to a tag of open_clip such as laion2b_s34b_b79k, which downloads them"
    )
    return f"Set `clip_weights` to a file{tag}."


def _one_line(error: Exception, most: int = 300) -> str:
    """The text of another package's error, short enough for a message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 1] + "…"
