"""Mutated inputs of every reader: each must be used or refused with one message; nothing half-written is left."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import training_of_checkpoint
from forks import Ended, command, start, workplace
from mutations import (
    mutate_bytes,
    mutate_file,
    mutate_hdf5,
    mutate_json_file,
    mutate_json_lines,
    mutate_safetensors,
    mutate_table,
    yaml_text,
)
from results import NOT_PREPARED, Case, Run
from stages import contents

Words = Sequence[object]
# Damages the copy of an input in a folder, and names the command that reads it.
Prepare = Callable[[Path, Path, random.Random], Words]


@dataclass(frozen=True)
class Target:
    """A reader: how its input is damaged, and whether every damage must be noticed."""

    name: str
    prepare: Prepare
    must_refuse: bool = False


# --- artefacts ----------------------------------------------------------------------------------


def consumers(kind: str, at: Path, corpus: Path, out: Path) -> list[Words]:
    """Commands that read an artefact of a kind."""
    train = ("--model", "linear", "--prior", 0.5, "--epochs", 1, "--trust", "prior")
    csv = out.with_suffix(".csv")
    known: dict[str, list[Words]] = {
        "tuples": [("train", "--tuples", at, *train, "--out", out), ("audit", "--tuples", at, "--out", out)],
        "imported": [("train", "--tuples", at, "--model", "linear", "--prior", 0.5, "--out", out)],
        "run": [
            ("evaluate", at, "--out", out),
            ("predict", at, corpus / "digits.npy", "--out", csv),
            ("export", at, "--format", "torchscript", "--out", out),
        ],
        "encoded-run": [("predict", at, corpus / "digits.npy", "--out", csv)],
        "table-run": [("predict", at, corpus / "rows.csv", "--with-counts", "--out", csv)],
        "tree-run": [("predict", at, corpus / "unlabeled.csv", "--out", csv)],
        "sklearn-run": [("predict", at, corpus / "unlabeled.csv", "--out", csv)],
        "evaluation": [("report", at, "--out", out)],
        "prior": [("train", "--tuples", corpus / "gaussians", "--prior-from", at, "--model", "linear", "--out", out)],
    }
    return known.get(kind, [])


def rehash(path: Path) -> None:
    """Fit sizes and hashes of the manifest to the files, where it is still one."""
    manifest = path / "manifest.json"
    document = json.loads(manifest.read_bytes())
    for entry in document["files"]:
        content = (path / entry["path"]).read_bytes()
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest.write_text(json.dumps(document))


def damage_payload(path: Path, rng: random.Random) -> None:
    """One payload file, by its format or by its bytes."""
    file = rng.choice(
        sorted(f for f in path.rglob("*") if f.is_file() and f.name not in ("manifest.json", "timing.jsonl"))
    )
    by_format = {
        ".h5": mutate_hdf5,
        ".json": mutate_json_file,
        ".jsonl": mutate_json_lines,
        ".safetensors": mutate_safetensors,
    }
    if file.suffix in by_format and rng.random() < 0.75:
        by_format[file.suffix](file, rng)
    else:
        mutate_file(file, rng)


def artefact(kind: str, how: str) -> Target:
    """A directory of a kind with a changed manifest, with payload and fitting hashes, or with payload alone."""

    def prepare(corpus: Path, folder: Path, rng: random.Random) -> Words:
        at = folder / kind
        shutil.copytree(corpus / kind, at)
        if how == "manifest":
            (mutate_json_file if rng.random() < 0.8 else mutate_file)(at / "manifest.json", rng)
        else:
            before = contents(at)
            while contents(at) == before:  # a change may hit upon what was there
                damage_payload(at, rng)
        if how == "payload":
            rehash(at)
        if how == "stale hash":
            return ("inspect", at)
        return rng.choice([("inspect", at), *2 * consumers(kind, at, corpus, folder / "new" / "out")])

    return Target(f"{kind}: {how}", prepare, must_refuse=how == "stale hash")


ARTEFACTS = (
    *("tuples", "imported", "run", "table-run", "evaluation"),
    *("tree-run", "sklearn-run", "encoded-run", "prior", "report", "design", "audit", "export", "explanation"),
)


# --- files of users -----------------------------------------------------------------------------


def table(name: str) -> Target:
    """A table with changed cells, or with changed bytes."""

    def prepare(corpus: Path, folder: Path, rng: random.Random) -> Words:
        file = folder / name
        content = (corpus / name).read_bytes()
        if name.endswith((".csv", ".tsv")) and rng.random() < 0.7:
            content = mutate_table(content.decode(), rng, "\t" if name.endswith(".tsv") else ",")
        else:
            content = mutate_bytes(content, rng)
        file.write_bytes(content)
        out = folder / "new" / "out"
        return rng.choice(
            [
                ("import-tuples", file, "--out", out),
                ("import-tuples", corpus / "rows.csv", "--unlabeled", file, "--out", out),
                ("predict", corpus / "table-run", file, "--out", out.with_suffix(".csv")),
            ]
        )

    return Target(name, prepare)


def parquet(corpus: Path, folder: Path, rng: random.Random) -> Words:
    """Columns of other types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = pq.read_table(corpus / "rows.parquet")
    name = rng.choice(stored.column_names)
    size = stored.num_rows
    other: list[Any] = [
        pa.array([[1, 2]] * size),
        pa.array([{"a": 1}] * size),
        pa.array([b"\xff"] * size),
        pa.nulls(size),
        pa.array([None, "x"] * (size // 2)),
        pa.array([2**62] * size),
        pa.array([1e300] * size),
        pa.array([True] * size),
        pa.array(["x"] * size).dictionary_encode(),
        pa.array([float("nan")] * size),
        pa.array([10**6] * size, pa.timestamp("s")),
        pa.array([-1] * size, pa.int8()),
        pa.array(["\x1b[31m", "=1"] * (size // 2)),
    ]
    changed = stored.set_column(stored.column_names.index(name), name, rng.choice(other))
    pq.write_table(changed, folder / "rows.parquet")
    return "import-tuples", folder / "rows.parquet", "--out", folder / "new" / "out"


def arrays(corpus: Path, folder: Path, rng: random.Random) -> Words:
    """Arrays of other types and shapes, as .npz or as a folder of .npy files; or their bytes."""
    import numpy as np
    from mutations import mutate_array

    kind = rng.choice(["rows.npz", "packed.npz", "arrays"])
    at = folder / kind
    if kind == "arrays":
        shutil.copytree(corpus / kind, at)
        file = rng.choice(sorted(at.iterdir()))
    else:
        file = Path(shutil.copy(corpus / kind, at))
    if rng.random() < 0.5:
        mutate_file(file, rng)
    elif kind == "arrays":
        changed = mutate_array(np.load(file), rng)
        file.unlink() if changed is None else np.save(file, changed)
    else:
        values = dict(np.load(file))
        name = rng.choice(sorted(values))
        values[name] = mutate_array(values[name], rng)
        np.savez(file, **{key: value for key, value in values.items() if value is not None})
    return "import-tuples", at, "--out", folder / "new" / "out"


def pictures(corpus: Path, folder: Path, rng: random.Random) -> Words:
    at = folder / "pictures"
    shutil.copytree(corpus / "pictures", at)
    file = rng.choice(sorted(file for file in at.rglob("*") if file.is_file()))
    mutate_file(file, rng)
    resize = rng.choice([(), ("--resize", 8)])
    return "import-tuples", at, *resize, "--out", folder / "new" / "out"


def labelled(name: str) -> Target:
    """A labelled data set of `make-tuples`."""
    files = {
        "npz": "labelled.npz",
        "table": "labelled.csv",
        "folder": "classes",
        "mnist": "mnist",
        "cifar10": "cifar",
        "svhn": "svhn",
    }

    def prepare(corpus: Path, folder: Path, rng: random.Random) -> Words:
        source, at = corpus / files[name], folder / files[name]
        shutil.copytree(source, at) if source.is_dir() else shutil.copy(source, at)
        mutate_file(rng.choice(sorted(f for f in at.rglob("*") if f.is_file())) if at.is_dir() else at, rng)
        dataset = f"{name}:{at}" if name in ("npz", "table", "folder") else name
        root = () if name in ("npz", "table", "folder") else ("--data-root", at)
        positive = {"npz": ("--positive", 1), "table": ("--positive", "yes"), "folder": ("--positive", "cat")}.get(
            name, ()
        )
        sizes = ("--n", 2, "--m", 1, "--prior", 0.5, "--num-tuples", 8, "--unlabeled-size", 8, "--heldout-share", 0)
        return "make-tuples", "--dataset", dataset, *root, *positive, *sizes, "--out", folder / "new" / "out"

    return Target(f"make-tuples {name}", prepare)


# --- words --------------------------------------------------------------------------------------


def pipeline_file(corpus: Path, folder: Path, rng: random.Random) -> Words:
    (folder / "c.yaml").write_bytes(yaml_text((corpus / "run.yaml").read_text(), rng))
    return "run", folder / "c.yaml", "--out", folder / "new" / "out"


def config_file(corpus: Path, folder: Path, rng: random.Random) -> Words:
    out = folder / "new" / "out"
    (folder / "c.yaml").write_bytes(yaml_text((corpus / "train.yaml").read_text(), rng))
    return "train", "--config", folder / "c.yaml", "--tuples", corpus / "tuples", "--out", out


def set_option(corpus: Path, folder: Path, rng: random.Random) -> Words:
    from mutations import HOSTILE_VALUES, YAML_TEXTS

    key = rng.choice(
        ["epochs", "lr", "prior", "seed", "model", "method", "batch_size", "trust", "weights.a", "", "a.b", "é"]
    )
    value = rng.choice([json.dumps(rng.choice(HOSTILE_VALUES)), rng.choice(YAML_TEXTS).partition(": ")[2]])
    words = (
        ("--set", f"{key}={value}".replace("\0", ""), "--set", "epochs=1")
        if key != "epochs"
        else ("--set", f"{key}={value}")
    )
    base = ("--tuples", corpus / "tuples", "--model", "linear", "--prior", 0.5, "--trust", "prior")
    small = [word for word in base if key not in ("model", "prior", "trust") or word not in ("--trust", "prior")]
    return "train", *small, *(word.replace("\0", "") for word in words), "--out", folder / "new" / "out"


def checkpoint(corpus: Path, folder: Path, rng: random.Random) -> Words:
    """The state of an interrupted training, by its bytes, or by its values with a fitting hash."""
    import torch

    (folder / "new").mkdir()
    shutil.copytree(corpus / "checkpoint" / ".run.checkpoint", folder / "new" / ".out.checkpoint")
    file = folder / "new" / ".out.checkpoint" / "state.pt"
    content = file.read_bytes()
    head = len(b"ntmp checkpoint 1\n")
    plan, state = content[head + 32 : head + 64], content[head + 64 :]
    if rng.random() < 0.4:
        mutate_file(file, rng)
    else:
        import io

        if rng.random() < 0.5:
            loaded = torch.load(io.BytesIO(state), weights_only=True)
            changed = io.BytesIO()
            torch.save(_mutated_state(loaded, rng), changed)
            body = plan + changed.getvalue()
        else:
            body = plan + mutate_bytes(state, rng)
        file.write_bytes(content[:head] + hashlib.sha256(body).digest() + body)
    return *training_of_checkpoint(corpus), "--resume", "--out", folder / "new" / "out"


def _mutated_state(state: Any, rng: random.Random) -> Any:
    """One value anywhere in a training state replaced."""
    import torch
    from mutations import HOSTILE_VALUES

    keys = list(state) if isinstance(state, dict) else list(range(len(state)))
    if not keys:
        return rng.choice(HOSTILE_VALUES)
    key = rng.choice(keys)
    value = state[key]
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        state[key] = _mutated_state(value, rng)
    elif isinstance(value, torch.Tensor) and rng.random() < 0.7:
        state[key] = rng.choice(
            [value[:0] if value.ndim else value[None], value.double(), value * float("nan"), value[None]]
        )
    elif isinstance(state, dict) and rng.random() < 0.2:
        del state[key]
    elif isinstance(state, dict | list):
        state[key] = rng.choice(HOSTILE_VALUES)
    return state


def targets(*, complete: bool) -> list[Target]:
    kinds = ARTEFACTS if complete else ARTEFACTS[:5]
    return [
        *(artefact(kind, how) for kind in kinds for how in ("manifest", "payload", "stale hash")),
        *(table(name) for name in ("rows.csv", "rows.tsv", "rows.csv.gz", "rows.parquet")),
        Target("parquet types", parquet),
        Target("arrays", arrays),
        Target("pictures", pictures),
        *(labelled(name) for name in ("npz", "table", "folder", "mnist", "cifar10", "svhn")),
        Target("configuration", config_file),
        Target("pipeline", pipeline_file),
        Target("--set", set_option),
        Target("checkpoint", checkpoint),
    ]


# --- judging ------------------------------------------------------------------------------------


def problem_of(target: Target, result: Ended, folder: Path) -> str | None:
    """What no case may end in; None where it ended well."""
    if result.timed_out:
        return "no end"
    if result.code < 0:
        return f"signal {-result.code}"
    if result.code == 1 or "Traceback" in result.err:
        return "exit 1" if result.code == 1 else "traceback"
    if not result.clean:
        return f"exit {result.code}"
    if target.must_refuse and result.code == 0:
        return "accepted"
    new = folder / "new"
    left = sorted(path.name for path in new.iterdir()) if new.exists() else []
    if target.name == "checkpoint":  # it stays where it cannot be used
        left = [name for name in left if name != ".out.checkpoint"]
    if result.code and left and target.name != "pipeline":  # steps before a failed one stay
        return f"left {', '.join(left)}"
    if any(name.startswith(".") for name in left):
        return f"left {', '.join(left)}"
    if not result.code and (new / "out.csv").exists() and not _finite_table(new / "out.csv"):
        return "wrong values written"
    return None


def _finite_table(file: Path) -> bool:
    lines = file.read_text().splitlines()
    at = lines[0].replace('"', "").split(",").index("score")
    return all(math.isfinite(float(line.split(",")[at])) for line in lines[1:])


def attack(corpus: Path, seed: int, *, complete: bool = True) -> Run:
    """The readers in turn, each with another damage."""
    chosen = targets(complete=complete)

    def run(number: int) -> Case:
        target = chosen[number % len(chosen)]
        with workplace() as folder:

            def work() -> int:
                words = target.prepare(corpus, folder, random.Random(f"{seed} {number}"))
                (folder / "words").write_text("\n".join(map(str, words)))
                return command(*words)()

            result = start(work).wait()
            case = Case(target.name, f"exit {result.code}" if result.code >= 0 else f"signal {-result.code}")
            if not (folder / "words").exists():
                case.fail(NOT_PREPARED, error=result.err)
            elif problem := problem_of(target, result, folder):
                case.fail(problem, words=(folder / "words").read_text(), error=result.err)
            return case

    return run
