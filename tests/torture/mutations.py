"""Ways to damage files: bytes of any file, and the parts of formats that a reader has to believe."""

from __future__ import annotations

import copy
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np

HOSTILE_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 5, -5, 7.5, 1e308, -1e308, 1e-320, 2**31, 2**63, -(2**63), 10**30,
    "", "text", "nan", "\x1b[31mred", "\x00", "../../etc/passwd", "=cmd|' /C calc'!A0", "é" * 300, "9" * 400,
    [], {}, [None], [[]], {"a": {}}, ["x"] * 50, [1e308] * 3,
]  # fmt: skip
MAGIC_NUMBERS = [
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f",
    b"\x00" * 8,
    b"\xff" * 8,
    b"\x00\x00\xc0\x7f",
]


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """One to four changes at random places."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not data:
            return rng.randbytes(rng.randrange(64))
        at = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(len(data), 256))
        size = rng.choice([1, 2, 4, 8, 64, 512])
        match rng.randrange(9):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + size]
            case 4:
                data[at:at] = rng.randbytes(size)
            case 5:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case 6:
                magic = rng.choice(MAGIC_NUMBERS)
                data[at : at + len(magic)] = magic
            case 7:
                data[at:at] = data[at : at + size]
            case 8:
                other = rng.randrange(len(data))
                data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
    return bytes(data)


def mutate_file(path: Path, rng: random.Random) -> None:
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


# --- JSON ---------------------------------------------------------------------------------------


def mutate_json(document: Any, rng: random.Random) -> Any:
    """Replace, remove, add or double one value anywhere in a document."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    if not places:
        return rng.choice(HOSTILE_VALUES)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0 | 1 | 2:
            holder[key] = rng.choice(HOSTILE_VALUES)
        case 3:
            del holder[key]
        case 4 if isinstance(holder, dict):
            holder[rng.choice(["later", "", "\x1b[2J", "a" * 300])] = rng.choice(HOSTILE_VALUES)
        case 4:
            holder.insert(key, rng.choice(HOSTILE_VALUES))
        case 5:
            value = holder[key]
            holder[key] = -value if isinstance(value, int | float) else [value]
    return document


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, child in value.items():
            yield value, key
            yield from _places(child)
    elif isinstance(value, list):
        for index, child in enumerate(value[:30]):
            yield value, index
            yield from _places(child)


def mutate_json_file(path: Path, rng: random.Random) -> None:
    text = json.dumps(mutate_json(json.loads(path.read_bytes()), rng))
    if rng.random() < 0.1:
        text = text.replace("0", rng.choice(["NaN", "Infinity", "1e999", "[" * 5000]), 1)
    path.write_text(text)


def mutate_json_lines(path: Path, rng: random.Random) -> None:
    lines = path.read_text().splitlines()
    if not lines:
        path.write_text(json.dumps(rng.choice(HOSTILE_VALUES)) + "\n")
        return
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0 | 1 | 2:
            lines[at] = json.dumps(mutate_json(json.loads(lines[at]), rng))
        case 3:
            lines[at] = rng.choice(["", "{", "5", "[]", "null", '{"a": NaN}', "[" * 5000])
    path.write_text("\n".join(lines) + "\n")


# --- arrays -------------------------------------------------------------------------------------


def mutate_array(values: np.ndarray, rng: random.Random) -> Any:
    """Another type, another shape, or values that no array of its kind has; None to remove it."""
    match rng.randrange(10):
        case 0:
            return values.astype(rng.choice(["f8", "f4", "f2", "i8", "u1", "c8", "i1", "?"]))
        case 1:
            return values[: rng.randrange(len(values) + 1)] if values.ndim else values
        case 2:
            return np.concatenate([values, values]) if values.ndim else values
        case 3:
            return values[None]
        case 4:
            return values.ravel()
        case 5:
            return None
        case 6:
            return np.array(["text"] * max(1, len(np.atleast_1d(values))), dtype="S4")
        case 7 if values.size and values.dtype.kind in "iuf":
            changed = values.astype("f8") if values.dtype.kind == "f" else values.astype("i8")
            changed.flat[rng.randrange(values.size)] = rng.choice([-1, 5, -(2**40), 2**40])
            return changed.astype(values.dtype) if rng.random() < 0.7 else changed
        case 8 if values.size:
            changed = values.astype("f4")
            changed.flat[rng.randrange(values.size)] = rng.choice([np.nan, np.inf, -np.inf, 3e38])
            return changed
        case _:
            return np.zeros_like(values)


def mutate_hdf5(path: Path, rng: random.Random) -> None:
    """Change one data set, attribute or link of an HDF5 file."""
    import h5py

    with h5py.File(path, "r+") as file:
        name = rng.choice(list(file))
        match rng.randrange(8):
            case 0:
                file.attrs[rng.choice(["element", "version"])] = rng.choice([0, 2, "tuples", "x", np.arange(3), 1.5])
            case 1:
                del file[name]
                file[name] = h5py.SoftLink("/elsewhere")
            case 2:
                del file[name]
                file[name] = h5py.ExternalLink("/etc/passwd", "/")
            case 3:
                shape, dtype = file[name].shape, file[name].dtype
                del file[name]
                inner = tuple(max(1, size) for size in shape[1:])
                file.create_dataset(name, (10**9, *inner), dtype, chunks=(2**16, *inner) if shape else None)
            case 4:
                file.create_group("extra") if rng.random() < 0.5 else file.create_dataset("extra", data=np.arange(3))
            case _:
                changed = mutate_array(file[name][()], rng)
                del file[name]
                if changed is not None:
                    file[name] = changed


def mutate_safetensors(path: Path, rng: random.Random) -> None:
    """Change the header, or one tensor."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    if rng.random() < 0.5:
        header = json.dumps(mutate_json(json.loads(content[8 : 8 + size]), rng)).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
        return
    from safetensors.numpy import load, save

    tensors = load(content)
    if not tensors:
        path.write_bytes(mutate_bytes(content, rng))
        return
    name = rng.choice(list(tensors))
    changed = mutate_array(tensors[name], rng)
    if changed is None or changed.dtype.kind not in "fiub":
        del tensors[name]
    else:
        tensors[name] = np.ascontiguousarray(changed)
    path.write_bytes(save(tensors))


# --- text ---------------------------------------------------------------------------------------

CELLS = [
    "", " ", "NA", "nan", "inf", "-inf", "1e400", "-1", "0.5", "99999999999999999999", "text", '"', '""', "'", "a\nb",
    "\0", "\x1b[31m", "=1+1", "é", "\ufeff", "x" * 5000, "1,2", "true", "2001-99-99", "../x.png", "0x10", "1_000",
    "١",
]  # fmt: skip


def mutate_table(text: str, rng: random.Random, delimiter: str = ",") -> bytes:
    """Change cells, rows, columns, line ends or the encoding of a delimited table."""
    rows = [line.split(delimiter) for line in text.splitlines()]
    for _ in range(rng.choice([1, 1, 2, 5])):
        row = rng.randrange(len(rows)) if rng.random() < 0.7 else 0
        column = rng.randrange(max(1, len(rows[row])))
        match rng.randrange(8):
            case 0 | 1 | 2:
                rows[row][column : column + 1] = [rng.choice(CELLS)]
            case 3:
                del rows[row][column : column + 1]
            case 4:
                rows[row].insert(column, rng.choice(CELLS))
            case 5:
                rows.insert(row, list(rows[row]))
            case 6:
                for cells in rows:
                    del cells[column : column + 1]
            case 7 if len(rows) > 2:
                del rows[row]
    end = rng.choice(["\n", "\n", "\n", "\r\n", "\r"])
    encoding = rng.choice(["utf-8"] * 6 + ["latin-1", "utf-16", "utf-8-sig"])
    return end.join(delimiter.join(cells) for cells in rows).encode(encoding, "replace") + end.encode()


YAML_TEXTS = [
    "{", "[" * 3000, "a: b: c", "- 1", "epochs: 2001-99-99", "epochs: !!python/object:os.system x", "epochs: &a [*a]",
    "\t", "epochs: 1e999", "lr: .nan", "lr: .inf", "seed: -1", "seed: 0x" + "f" * 5000, "seed: " + "9" * 5000,
    "? [a]\n: 1", "epochs: !!binary aGk=", "epochs: !!set {a}", "\x00", "\ufeff{}", "prior: yes", "prior: 1_0",
    "model: \"a\\0b\"", "---\n---\n", "<<: {a: 1}", "epochs: |\n  x", "method: [count]", "null", "5", "epochs: ~",
    "weights: {a: {b: {c: {d: 1}}}}", "seed: 1.5",
]  # fmt: skip


def yaml_text(good: str, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return mutate_bytes(good.encode(), rng)
    lines = good.splitlines()
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(YAML_TEXTS))
    return "\n".join(lines).encode("utf-8", "replace")
