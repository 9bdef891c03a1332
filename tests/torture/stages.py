"""Commands that publish something, on tiny data, each with its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus import ESTIMATION, SIMULATED, TRAINING

Words = tuple[object, ...]


@dataclass(frozen=True)
class Stage:
    """A command without its output; `words(corpus, seed)`, `name` of the output, option that names it."""

    name: str
    words: Callable[[Path, int], Words]
    output: str = "out"
    option: str = "--out"
    skips: bool = True
    """Whether --if-exists has skip."""

    def command(self, corpus: Path, seed: int, folder: Path) -> Words:
        return *self.words(corpus, seed), self.option, folder / self.output


STAGES = [
    Stage("make-tuples", lambda at, seed: ("make-tuples", *SIMULATED, "--seed", seed)),
    Stage(
        "import-tuples",
        lambda at, seed: ("import-tuples", at / "rows.csv", "--unlabeled", at / "unlabeled.csv", "--seed", seed),
    ),
    Stage(
        "train",
        lambda at, seed: ("train", "--tuples", at / "tuples", *TRAINING, "--checkpoint-seconds", 0, "--seed", seed),
    ),
    Stage(
        "train table",
        lambda at, seed: ("train", "--tuples", at / "imported", "--model", "linear", "--prior", 0.5, "--seed", seed),
    ),
    Stage("evaluate", lambda at, seed: ("evaluate", at / "run", "--metric", "auroc" if seed else "ap")),
    Stage("report", lambda at, seed: ("report", at / "evaluation", "--title", f"report {seed}")),
    Stage("design", lambda at, seed: ("design", "--tuples", at / "tuples", "--prior", (3 + seed) / 10)),
    Stage("audit", lambda at, seed: ("audit", "--tuples", at / "tuples", "--seed", seed)),
    Stage(
        "estimate-prior",
        lambda at, seed: ("estimate-prior", "--tuples", at / "gaussians", *ESTIMATION, "--seed", seed),
    ),
    Stage("explain", lambda at, seed: ("explain", at / "run", "--tuples", at / "tuples", "--seed", seed)),
    Stage("export", lambda at, seed: ("export", at / ("encoded-run" if seed else "run"), "--format", "torchscript")),
    Stage(
        "predict csv",
        lambda at, seed: ("predict", at / "run", at / "digits.npy", "--prior", (3 + seed) / 10),
        "out.csv",
        skips=False,
    ),
    Stage("predict parquet", lambda at, seed: ("predict", at / "run", at / "digits.npy"), "out.parquet", skips=False),
]
BY_NAME = {stage.name: stage for stage in STAGES}


def identity(path: Path) -> str | None:
    """What is at an output: the hash of a whole artefact or file, None for nothing; raises where it is neither."""
    import hashlib

    from ntmp_cli.artifacts import open_artifact

    if not path.exists():
        return None
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    artifact = open_artifact(path)
    artifact.verify()
    return artifact.sha256


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
