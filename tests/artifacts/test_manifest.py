"""What a manifest says, and one message per way in which a directory can be damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from small_artifacts import as_report

from ntmp_cli import __version__
from ntmp_cli.app import run
from ntmp_cli.artifacts import Plan, manifest, open_artifact, publishing
from ntmp_cli.artifacts.manifest import MANIFEST, FileEntry, Manifest, carries_manifest
from ntmp_cli.artifacts.summaries import ReportSummary
from ntmp_cli.artifacts.summary_fields import Summary
from ntmp_cli.errors import ArtifactError


@pytest.fixture
def made(tmp_path, put) -> Path:
    return put(tmp_path / "eval", b"three\n").path


def test_manifest_says_what_where_from_and_the_hash_of_every_file(made):
    document = json.loads((made / "manifest.json").read_bytes())
    assert document == {
        "format": "ntmp",
        "format_version": 1,
        "package_version": __version__,
        "kind": "report",
        "config": {"reference": None, "metrics": ["ap"]},
        "seed": None,
        "inputs": [{"kind": "run", "sha256": "0" * 64}],
        "files": [
            {"path": "deep/rows.txt", "bytes": 6, "sha256": hashlib.sha256(b"three\n").hexdigest(), "rows": 1},
        ],
        "summary": {"files": ["deep/rows.txt"]},
        "unhashed": [],
    }


# The hash of a manifest names an artefact in the lineage of later ones, so that its bytes must stay the same.
GOLDEN = b"""{
 "config": {
  "a": [
   1,
   0.1,
   null,
   true
  ],
  "b": {},
  "name": "caf\\u00e9 \\u03c0"
 },
 "files": [
  {
   "bytes": 6,
   "path": "deep/rows.txt",
   "rows": 1,
   "sha256": "f0f8ecd7ec5f02b09b3e1ee0cd6fbc2bb9e2ae5d4ed0e1a5d1d1f3f7b7c5a000"
  }
 ],
 "format": "ntmp",
 "format_version": 1,
 "inputs": [
  {
   "kind": "tuples",
   "sha256": "00"
  }
 ],
 "kind": "run",
 "package_version": "0.0.0",
 "seed": 7,
 "summary": {
  "1e-07": 1e-07,
  "large": 12345678901234567890
 },
 "unhashed": [
  "timing.jsonl"
 ]
}
"""


class Numbers(Summary):
    """Numbers whose spelling could change."""

    large: int
    small: float = Field(alias="1e-07")

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def test_the_bytes_of_a_manifest_never_change():
    files = (FileEntry("deep/rows.txt", 6, "f0f8ecd7ec5f02b09b3e1ee0cd6fbc2bb9e2ae5d4ed0e1a5d1d1f3f7b7c5a000", 1),)
    manifest = Manifest(
        kind="run",
        config={"name": "café π", "b": {}, "a": [1, 0.1, None, True]},
        seed=7,
        inputs=({"sha256": "00", "kind": "tuples"},),
        files=files,
        summary=Numbers(**{"large": 12345678901234567890, "1e-07": 1e-7}),
        unhashed=("timing.jsonl",),
        package_version="0.0.0",
    )
    assert manifest.to_bytes() == GOLDEN


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_manifest_without_a_spelling_in_json_is_not_written(value):
    manifest = Manifest("report", {"lr": value}, None, (), (), ReportSummary(files=("a.txt",)))
    with pytest.raises(ValueError, match="not JSON compliant"):
        manifest.to_bytes()


def test_an_artifact_is_identified_by_the_hash_of_its_manifest(made):
    assert open_artifact(made).sha256 == hashlib.sha256((made / "manifest.json").read_bytes()).hexdigest()


def test_an_untouched_artifact_passes_inspection(made, capsys):
    assert run(["inspect", str(made)]) == 0
    assert "all 1 files match their hashes" in capsys.readouterr().out


def truncate(path: Path, edit: Any) -> None:
    (path / "deep/rows.txt").write_bytes(b"thr")


def lengthen(path: Path, edit: Any) -> None:
    (path / "deep/rows.txt").write_bytes(b"three\nfour\n")


def flip_a_bit(path: Path, edit: Any) -> None:
    content = bytearray((path / "deep/rows.txt").read_bytes())
    content[2] ^= 1
    (path / "deep/rows.txt").write_bytes(content)


def lose_a_file(path: Path, edit: Any) -> None:
    (path / "deep/rows.txt").unlink()


def turn_a_file_into_a_folder(path: Path, edit: Any) -> None:
    (path / "deep/rows.txt").unlink()
    (path / "deep/rows.txt").mkdir()


def add_a_file(path: Path, edit: Any) -> None:
    (path / "deep/notes.txt").write_text("mine")


def lose_the_manifest(path: Path, edit: Any) -> None:
    (path / "manifest.json").unlink()


def cut_the_manifest(path: Path, edit: Any) -> None:
    content = (path / "manifest.json").read_bytes()
    (path / "manifest.json").write_bytes(content[: len(content) // 2])


def binary_manifest(path: Path, edit: Any) -> None:
    (path / "manifest.json").write_bytes(b"\xff\xfe\x00")


def manifest_of_a_web_page(path: Path, edit: Any) -> None:
    (path / "manifest.json").write_text('{"name": "My App", "start_url": "/"}')


def manifest_that_is_a_list(path: Path, edit: Any) -> None:
    (path / "manifest.json").write_text('["ntmp"]')


def changing(**fields: Any) -> Callable[[Path, Any], None]:
    return lambda path, edit: edit(path, lambda document: document.update(fields))


def dropping(field: str) -> Callable[[Path, Any], None]:
    return lambda path, edit: edit(path, lambda document: document.pop(field))


def listing(name: Any) -> Callable[[Path, Any], None]:
    entry = {"path": name, "bytes": 6, "sha256": "0" * 64, "rows": None}
    return lambda path, edit: edit(path, lambda document: document["files"].append(entry))


def changing_the_file(**fields: Any) -> Callable[[Path, Any], None]:
    return lambda path, edit: edit(path, lambda document: document["files"][0].update(fields))


WRONG_FIELDS = "manifest.json: damaged: fields are missing, unknown or of the wrong type"

DAMAGES = [
    (truncate, "eval/deep/rows.txt: truncated: 3 bytes, expected 6"),
    (lengthen, "eval/deep/rows.txt: too long: 11 bytes, expected 6"),
    (flip_a_bit, "eval/deep/rows.txt: damaged: its contents do not match the recorded hash"),
    (lose_a_file, "eval/deep/rows.txt: listed in the manifest but missing"),
    (turn_a_file_into_a_folder, "eval/deep/rows.txt: listed in the manifest but missing"),
    (add_a_file, "eval: holds files that the manifest does not list: deep/notes.txt"),
    (lose_the_manifest, "eval: not an ntmp artefact: it has no manifest.json"),
    (cut_the_manifest, "manifest.json: damaged: not valid JSON"),
    (binary_manifest, "manifest.json: damaged: not valid JSON"),
    (manifest_of_a_web_page, "manifest.json: not the manifest of an ntmp artefact"),
    (manifest_that_is_a_list, "manifest.json: not the manifest of an ntmp artefact"),
    (changing(format="zarr"), "manifest.json: not the manifest of an ntmp artefact"),
    (changing(kind="cake"), "manifest.json: unknown kind 'cake'"),
    (
        changing(format_version=2),
        f"manifest.json: format version 2, but this ntmp {__version__} reads version 1",
    ),
    (dropping("format_version"), "manifest.json: format version None, but this ntmp"),
    (dropping("summary"), WRONG_FIELDS),
    (dropping("files"), WRONG_FIELDS),
    (changing(colour="red"), WRONG_FIELDS),
    (changing(kind=["run"]), WRONG_FIELDS),
    (changing(summary=None), WRONG_FIELDS),
    (changing(files=[["deep/rows.txt"]]), WRONG_FIELDS),
    (changing(inputs=["run"]), WRONG_FIELDS),
    (changing(inputs=[{"kind": "run", "sha256": "0" * 64}, "run"]), WRONG_FIELDS),
    (changing(unhashed=["timing.jsonl", 7]), WRONG_FIELDS),
    (changing(inputs=[{"kind": "run"}]), WRONG_FIELDS),
    (changing(inputs=[{"kind": "run", "sha256": 7}]), WRONG_FIELDS),
    (changing(seed=-1), WRONG_FIELDS),
    (changing(seed="0"), WRONG_FIELDS),
    (changing(config={"lr": float("nan")}), WRONG_FIELDS),
    (changing_the_file(rows=-1), WRONG_FIELDS),
    (changing_the_file(rows=True), WRONG_FIELDS),
    (changing_the_file(bytes=6.0), WRONG_FIELDS),
    (changing_the_file(sha256=None), WRONG_FIELDS),
    (listing("deep/rows.txt"), WRONG_FIELDS),
    (listing(7), WRONG_FIELDS),
    (listing("../evil"), "manifest.json: lists a file outside its directory: ../evil"),
    (listing("deep/../../evil"), "manifest.json: lists a file outside its directory: deep/../../evil"),
    (listing("/etc/passwd"), "manifest.json: lists a file outside its directory: /etc/passwd"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_each_damage_is_named_and_exits_3(damage, message, made, edit, capsys):
    damage(made, edit)
    assert run(["inspect", str(made)]) == 3
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert "internal error" not in captured.err
    assert captured.out == ""


def test_a_manifest_may_have_as_many_bytes_as_allowed(made, monkeypatch):
    size = (made / MANIFEST).stat().st_size
    monkeypatch.setattr(manifest, "MOST_MANIFEST_BYTES", size)
    assert open_artifact(made).path == made
    monkeypatch.setattr(manifest, "MOST_MANIFEST_BYTES", size - 1)
    with pytest.raises(ArtifactError, match="too large for a manifest"):
        open_artifact(made)


def test_no_such_directory(tmp_path, capsys):
    assert run(["inspect", str(tmp_path / "nowhere")]) == 3
    assert f"error: {tmp_path}/nowhere: no such directory\n" in capsys.readouterr().err


def test_a_file_is_not_an_artefact(tmp_path, capsys):
    (tmp_path / "thing").write_text("x")
    assert run(["inspect", str(tmp_path / "thing")]) == 3
    assert f"error: {tmp_path}/thing: is a file, not an ntmp artefact\n" in capsys.readouterr().err


def test_wrong_kind_is_refused_with_the_command_that_writes_the_right_one(made):
    with pytest.raises(ArtifactError) as caught:
        open_artifact(made, "run")
    assert caught.value.exit_code == 3
    assert caught.value.message == f"{made}: expected kind 'run', found 'report'"
    assert caught.value.hint == "Pass the directory written by `ntmp train`."


def test_using_a_damaged_file_is_refused_even_without_inspection(made):
    (made / "deep/rows.txt").write_bytes(b"thrEe\n")
    artifact = open_artifact(made)
    with pytest.raises(ArtifactError, match="do not match the recorded hash") as caught:
        artifact.file("deep/rows.txt")
    assert caught.value.hint == "Make the directory again with `ntmp report`, or restore it from a copy."


def test_using_a_file_that_the_manifest_does_not_list_is_refused(made):
    (made / "extra.txt").write_text("x")
    with pytest.raises(ArtifactError, match=r"the manifest lists no file 'extra\.txt'"):
        open_artifact(made).file("extra.txt")


def test_unhashed_files_belong_to_the_artifact_but_may_differ(tmp_path, plan):
    out = tmp_path / "eval"
    with publishing(out, plan()) as staging:
        staging.add_bytes("rows.txt", b"x")
        staging.add_unhashed("timing.jsonl", b"0.1\n")
        as_report(staging)
    (out / "timing.jsonl").write_bytes(b"0.2\n")
    open_artifact(out).verify()


def test_the_manifest_holds_no_path_of_the_host(made, tmp_path):
    assert str(tmp_path).encode() not in (made / "manifest.json").read_bytes()


def test_a_copied_artifact_is_the_same_artifact(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    copy = open_artifact(tmp_path / "copy")
    copy.verify()
    assert copy.sha256 == open_artifact(made).sha256


@pytest.mark.parametrize(
    ("content", "is_artifact"),
    [
        (None, False),
        (b'{"format": "ntmp", "format_version": 99}', True),
        (b'{"format": "zarr"}', False),
        (b'{"name": "My App"}', False),
        (b"[]", False),
        (b"not json", False),
        (b"\xff\xfe", False),
    ],
)
def test_a_directory_is_an_artefact_only_by_the_content_of_its_manifest(content, is_artifact, tmp_path):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    assert carries_manifest(tmp_path) is is_artifact


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[1, 1e999]", '{"a": -1e999}'])
def test_json_of_artefacts_holds_only_finite_numbers_unless_asked_otherwise(text):
    with pytest.raises(ValueError, match="is not a number"):
        manifest.strict_json(text.encode())
    assert manifest.strict_json(text.encode(), finite=False) is not None


def test_of_many_files_that_are_not_listed_the_first_five_are_named(made):
    for letter in "abcdefg":
        (made / letter).write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"does not list: a, b, c, d, e$"):
        open_artifact(made).verify()


def test_a_file_is_hashed_once(made, monkeypatch):
    hashed, hashing = [], manifest.sha256_file
    monkeypatch.setattr(manifest, "sha256_file", lambda path: hashed.append(path) or hashing(path))
    artifact = open_artifact(made)
    hashed.clear()
    for _ in range(3):
        artifact.file("deep/rows.txt")
    assert hashed == [made / "deep/rows.txt"]


def test_a_plan_is_the_same_wherever_its_inputs_are():
    assert Plan("report", {}, reads=(Path("here"),)) == Plan("report", {}, reads=(Path("there"),))
    assert Plan("report", {}, 1) != Plan("report", {}, 2)
