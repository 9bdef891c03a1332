"""Texts of users' files that harm where they go: escape codes, formulas, paths elsewhere; and too little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import own_data
import pytest
from forged import change_manifest, copied
from PIL import Image


@pytest.mark.parametrize("option", ["--tuples", "--out"])
def test_a_name_that_is_no_text_is_refused_where_it_is_given(option, tuples, ntmp, tmp_path):
    words = {"--tuples": tuples, "--out": tmp_path / "out", option: tmp_path / os.fsdecode(b"caf\xe9")}
    ended = ntmp("train", "--prior", 0.5, *(word for pair in words.items() for word in pair))
    assert (ended.code, ended.err) == (
        2,
        f"error: {tmp_path}/caf\\udce9: not UTF-8 text\nRename the file, or set the locale to UTF-8.\n",
    )


def test_links_in_a_circle_are_named(ntmp, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for words in (("inspect", tmp_path / "a"), ("make-tuples", "--dataset", f"npz:{tmp_path / 'a'}", "--prior", 0.5)):
        out = () if words[0] == "inspect" else ("--out", tmp_path / "out")
        ended = ntmp(*words, *out)
        assert (ended.code, str(tmp_path / "a") in ended.err) == (3, True), ended.err
    ended = ntmp("make-tuples", "--dataset", "digits", "--prior", 0.5, "--out", tmp_path / "a")
    assert ended.code in (2, 3), ended.err


# --- terminals, figures -------------------------------------------------------------------------


def test_escape_codes_of_a_manifest_do_not_reach_the_terminal(study, ntmp, tmp_path):
    run = copied(study.run_abs, tmp_path / "run")
    change_manifest(run, lambda document: document["summary"].update(dataset="\x1b]0;owned\x07\x1b[2Jdigits"))
    ended = ntmp("inspect", run)
    assert ended.code == 0
    assert "digits" in ended.out
    assert "\x1b" not in ended.out + ended.err
    ended = ntmp("inspect", run, "--json")
    assert "\x1b" not in ended.out


def test_escape_codes_of_column_names_do_not_reach_the_terminal(ntmp, tmp_path):
    (tmp_path / "t.csv").write_text("tuple_id,count,\x1b[31mred\n1,1,x\n1,1,2\n2,0,3\n2,0,4\n")
    ended = ntmp("import-tuples", tmp_path / "t.csv", "--dry-run")
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.slow
def test_figures_of_names_with_control_characters_are_xml(study, ntmp, tmp_path):
    run = copied(study.run_abs, tmp_path / "run")
    change_manifest(run, lambda document: document["summary"].update(dataset="dig\x1b[31m\x08its\ufffe"))
    assert ntmp("evaluate", run, "--out", tmp_path / "evaluation").code == 0
    assert ntmp("report", tmp_path / "evaluation", "--out", tmp_path / "report").code == 0
    figures = list((tmp_path / "report").rglob("*.svg"))
    assert figures
    for figure in figures:
        xml.etree.ElementTree.fromstring(figure.read_bytes())


# --- spreadsheets -------------------------------------------------------------------------------


def test_ids_that_are_formulas_are_quoted_unless_asked_otherwise(ntmp, tmp_path):
    own_data.write_csv(tmp_path)
    words = ("import-tuples", tmp_path / "tuples.csv", "--unlabeled", tmp_path / "unlabeled.csv")
    assert ntmp(*words, "--out", tmp_path / "tuples").code == 0
    words = ("train", "--tuples", tmp_path / "tuples", "--prior", 0.6, "--model", "linear", "--epochs", 1)
    assert ntmp(*words, "--out", tmp_path / "run").code == 0
    head, *rows = (tmp_path / "unlabeled.csv").read_text().splitlines()[:5]
    ids = ["=1+1", "-5", "plain", "@x"]
    named = [f'"{name}",{row}' for name, row in zip(ids, rows, strict=True)]
    (tmp_path / "new.csv").write_text("\n".join([f'"id",{head}', *named]) + "\n")

    def ids_in(*extra: str) -> tuple[list[str], str]:
        out = tmp_path / f"scored{len(extra)}.csv"
        ended = ntmp("predict", tmp_path / "run", tmp_path / "new.csv", *extra, "--out", out)
        assert ended.code == 0, ended.err
        return [line.split(",")[0].strip('"') for line in out.read_text().splitlines()[1:]], ended.err

    quoted, said = ids_in()
    assert quoted == ["'=1+1", "-5", "plain", "'@x"]
    assert "2 ids begin like formulas of a spreadsheet" in said
    raw, said = ids_in("--raw-ids")
    assert raw == ids
    assert "formulas" not in said


# --- paths elsewhere ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../outside/0.png", "sub/../../outside/0.png", "ABSOLUTE"])
def test_images_outside_of_the_tables_folder_need_a_permission(path, ntmp, tmp_path):
    for folder in ("outside", "inside"):
        (tmp_path / folder).mkdir()
        for number in range(4):
            pixels = np.random.default_rng(number).integers(0, 255, (6, 6), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    path = str(tmp_path / "outside" / "0.png") if path == "ABSOLUTE" else path
    table = tmp_path / "inside" / "t.csv"
    (tmp_path / "inside" / "sub").mkdir()
    table.write_text(f"tuple_id,count,image\n1,1,{path}\n1,1,1.png\n2,0,2.png\n2,0,./3.png\n")
    ended = ntmp("import-tuples", table, "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"{table} row 1: {path} lies outside of the table's folder" in ended.err
    assert ended.err.endswith("pass --allow-outside.\n")
    assert not (tmp_path / "out").exists()
    assert ntmp("import-tuples", table, "--allow-outside", "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize("path", ["ABSOLUTE", "THROUGH A LINK", "..inside/0.png", "sub/../0.png"])
def test_images_inside_of_the_tables_folder_need_no_permission(path, ntmp, tmp_path, monkeypatch):
    for folder in ("inside", "inside/..inside", "inside/sub"):
        (tmp_path / folder).mkdir()
    for name in ("0.png", "1.png", "2.png", "3.png", "..inside/0.png"):
        Image.fromarray(np.full((6, 6), len(name), dtype=np.uint8)).save(tmp_path / "inside" / name)
    (tmp_path / "link").symlink_to("inside")
    monkeypatch.chdir(tmp_path)
    absolute = {"ABSOLUTE": tmp_path / "inside" / "0.png", "THROUGH A LINK": (tmp_path / "inside").resolve() / "0.png"}
    table = Path("link" if path == "THROUGH A LINK" else "inside") / "t.csv"
    table.write_text(f"tuple_id,count,image\n1,1,{absolute.get(path, path)}\n1,1,1.png\n2,0,2.png\n2,0,3.png\n")
    ended = ntmp("import-tuples", table, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err


# --- memory -------------------------------------------------------------------------------------

PROGRAM = """
import resource, sys
from ntmp_cli.app import run
import ntmp_cli.stages.import_tuples
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**27, resource.RLIM_INFINITY))
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.slow
def test_too_little_memory_is_called_that(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "x.npy", np.zeros((400, 50_000), np.uint8))
    np.save(data / "offsets.npy", np.arange(0, 401, 2))
    np.save(data / "counts.npy", np.ones(200, np.int64))
    out = tmp_path / "new" / "out"
    words = [sys.executable, "-c", PROGRAM, "import-tuples", str(data), "--out", str(out)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 3, ended.stderr
    assert "not enough memory" in ended.stderr
    assert not out.parent.exists()


# --- features that say nothing ------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_constant_features_are_warned_of(model, ntmp, tmp_path):
    rows = "".join(f"{t},{t % 3},7\n" for t in range(60) for _ in range(2) if t % 3 < 3)
    (tmp_path / "t.csv").write_text("tuple_id,count,x\n" + rows)
    (tmp_path / "u.csv").write_text("x\n" + "7\n" * 50)
    words = ("import-tuples", tmp_path / "t.csv", "--unlabeled", tmp_path / "u.csv", "--heldout-share", 0.2)
    assert ntmp(*words, "--out", tmp_path / "tuples").code == 0
    extra = ("--epochs", 1) if model == "mlp" else ()
    words = ("train", "--tuples", tmp_path / "tuples", "--prior", 0.4, "--method", "count", "--model", model, *extra)
    ended = ntmp(*words, "--out", tmp_path / "run")
    assert "all instances have the same score" in ended.err, ended.err
