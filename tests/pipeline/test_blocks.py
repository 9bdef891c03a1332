"""Groups within groups: tuples of one block stay on one side of every split."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import own_data
import pyarrow.parquet as pq
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples

# Tuple t of 60, three rows each, is of patient t // 5 of twelve.
TUPLES, PATIENTS = 60, 12


def lines(patient: str = "p{0}", count: str = "{1}") -> list[str]:
    rng = np.random.default_rng(0)
    rows = [(t, t % 4) for t in range(TUPLES) for _ in range(3)]
    return [
        f"t{t},{count.format(t, m)},{patient.format(t // 5)},{rng.normal():.4f},{rng.normal() + m:.4f}"
        for t, m in [rows[i] for i in rng.permutation(len(rows))]
    ]


@pytest.fixture
def slides(tmp_path) -> Path:
    path = tmp_path / "slides.csv"
    path.write_text("\n".join(["tuple_id,count,patient,a,b", *lines()]) + "\n")
    return path


def stored_blocks(path: Path) -> dict[str, list[str]]:
    return json.loads((path / "blocks.json").read_text())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_blocks_are_held_out_whole_and_stored_with_the_tuples(seed, slides, tmp_path, ntmp_done):
    words = ("--block-column", "patient", "--heldout-share", 0.25, "--seed", seed, "--out", tmp_path / "t")
    made = ntmp_done("import-tuples", slides, *words, "--json").json
    assert made["tuples"] == {"train": 45, "heldout": 15}
    assert [row["name"] for row in made["features"]] == ["a", "b"]
    blocks = stored_blocks(tmp_path / "t")
    ids = json.loads((tmp_path / "t" / "tuple-ids.json").read_text())
    for split, names in ids.items():
        assert blocks[split] == [f"p{int(name[1:]) // 5}" for name in names]
    assert not set(blocks["train"]) & set(blocks["heldout"])
    codes = StoredTuples(open_artifact(tmp_path / "t", "tuples")).blocks()
    assert codes is not None
    assert codes.dtype == np.int64
    named = [*blocks["train"], *blocks["heldout"]]
    assert len(set(zip(codes.tolist(), named, strict=True))) == len(set(codes.tolist())) == PATIENTS


def test_tuples_without_a_block_column_stand_alone(slides, tmp_path, ntmp_done):
    ntmp_done("import-tuples", slides, "--ignore", "patient", "--out", tmp_path / "t")
    assert StoredTuples(open_artifact(tmp_path / "t", "tuples")).blocks() is None
    assert not (tmp_path / "t" / "blocks.json").exists()


def test_blocks_are_trained_audited_and_predicted_with_and_are_no_feature(slides, tmp_path, ntmp_done):
    ntmp_done("import-tuples", slides, "--block-column", "patient", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--model", "linear", "--out", tmp_path / "r")
    ntmp_done("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r", "--out", tmp_path / "a")
    ended = ntmp_done("predict", tmp_path / "r", slides, "--out", tmp_path / "p.csv")
    assert "patient" not in ended.err


@pytest.mark.slow
def test_an_audit_by_networks_judges_blocks_by_folds_without_them(slides, tmp_path, ntmp, ntmp_done):
    """A block is scattered over the stored order, so that folds are too: every row still has the count of its id."""
    pool = [f"{a:.4f},{b:.4f}" for a, b in np.random.default_rng(1).normal(size=(80, 2))]
    (tmp_path / "pool.csv").write_text("\n".join(["a,b", *pool]) + "\n")
    words = ("--unlabeled", tmp_path / "pool.csv", "--block-column", "patient", "--out", tmp_path / "t")
    ntmp_done("import-tuples", slides, *words)
    short = ("--epochs", 1, "--self-training", 0)
    ntmp_done("train", "--tuples", tmp_path / "t", "--model", "mlp", "--prior", 0.4, *short, "--out", tmp_path / "r")
    audit = ("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r", "--epochs", 1)
    ntmp_done(*audit, "--out", tmp_path / "a")
    with (tmp_path / "a" / "tuples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["id"]: int(row["count"]) for row in rows if row["split"] == "train"} == {
        name: int(name[1:]) % 4 for name in json.loads((tmp_path / "t" / "tuple-ids.json").read_text())["train"]
    }
    ended = ntmp(*audit, "--folds", 20)
    assert ended.code == 2
    assert "blocks of tuples, and a block is not divided among the 20 folds\n" in ended.err


def test_arrays_and_files_of_counts_may_name_the_blocks(slides, tmp_path, ntmp_done):
    words = ("--block-column", "patient", "--heldout-share", 0.25)
    ntmp_done("import-tuples", slides, *words, "--out", tmp_path / "csv")
    cells = [line.split(",") for line in slides.read_text().splitlines()[1:]]
    order = sorted(range(len(cells)), key=lambda i: int(cells[i][0][1:]))
    x = np.array([[float(value) for value in cells[i][3:]] for i in order])
    arrays = {"offsets": np.arange(0, 3 * TUPLES + 1, 3), "counts": np.arange(TUPLES) % 4}
    by_tuple = np.array([f"p{t // 5}" for t in range(TUPLES)])
    np.savez(tmp_path / "o.npz", x=x, patient=by_tuple, **arrays)
    rows = {"tuple_id": np.repeat(np.arange(TUPLES), 3), "count": np.repeat(arrays["counts"], 3)}
    np.savez(tmp_path / "r.npz", x=x, patient=np.repeat(by_tuple, 3), **rows)
    for name in ("o", "r"):
        ntmp_done("import-tuples", tmp_path / f"{name}.npz", *words, "--out", tmp_path / name)
    assert stored_blocks(tmp_path / "o") == stored_blocks(tmp_path / "r")
    # Order of first appearance, in which tuples are numbered, differs between the files; their blocks do not.
    table = [f"t{t},{t % 4},p{t // 5}" for t in range(TUPLES)]
    (tmp_path / "counts.csv").write_text("\n".join(["tuple_id,count,patient", *table]) + "\n")
    bare = [",".join([row[0], *row[3:]]) for row in cells]
    (tmp_path / "bare.csv").write_text("\n".join(["tuple_id,a,b", *bare]) + "\n")
    files = (tmp_path / "bare.csv", "--counts", tmp_path / "counts.csv")
    ntmp_done("import-tuples", *files, *words, "--out", tmp_path / "apart")
    assert stored_blocks(tmp_path / "apart") == stored_blocks(tmp_path / "csv")


def test_a_table_of_images_may_name_blocks(tmp_path, ntmp_done):
    folder = own_data.write_pictures(tmp_path / "pictures")
    counts = dict(line.split(",") for line in (folder / "tuples" / "counts.csv").read_text().split()[1:])
    rows = ["image,tuple_id,count,patient"]
    for file in sorted((folder / "tuples").glob("t*/*.png")):
        owner = file.parent.name
        rows.append(f"{file.relative_to(folder)},{owner},{counts[owner]},{int(owner[1:]) % 6}")
    (folder / "paths.csv").write_text("\n".join(rows) + "\n")
    words = ("--block-column", "patient", "--heldout-share", 0.2, "--out", tmp_path / "t")
    ntmp_done("import-tuples", folder / "paths.csv", *words)
    blocks = stored_blocks(tmp_path / "t")
    assert (len(blocks["train"]), len(blocks["heldout"])) == (25, 5)
    assert not set(blocks["train"]) & set(blocks["heldout"])


def test_tuples_of_two_blocks_or_of_none_are_problems(tmp_path, ntmp):
    path = tmp_path / "t.csv"
    path.write_text("tuple_id,count,ward,a\nx,1,n,1\nx,1,s,2\ny,0,,1\ny,0,?,2\nz,1,n,1\nz,1,,2\n")
    ended = ntmp("import-tuples", path, "--block-column", "ward", "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (
        3,
        "error: 2 problems in the data, nothing was written\n"
        f"  {path} row 1: tuple 'x' is in block 'n' here and in 's' in another row\n"
        f"  {path} row 3: tuple 'y' has no block in any of its rows\n"
        "Rows are counted from 1, without the header. Correct them and try again.\n",
    )


def test_a_file_of_counts_names_the_block_of_every_tuple(tmp_path, ntmp):
    (tmp_path / "t.csv").write_text("tuple_id,a\nx,1\nx,2\ny,3\n")
    (tmp_path / "c.csv").write_text("tuple_id,count,ward\nx,1,n\ny,1,\n")
    words = ("--counts", tmp_path / "c.csv", "--out", tmp_path / "out")
    ended = ntmp("import-tuples", tmp_path / "t.csv", "--block-column", "ward", *words)
    assert ended.code == 3
    assert f"  {tmp_path}/t.csv: tuple 'y' has no block in the file of counts\n" in ended.err
    ended = ntmp("import-tuples", tmp_path / "t.csv", "--block-column", "wart", *words)
    assert (ended.code, ended.err) == (
        3,
        f"error: {tmp_path}/t.csv: has no column 'wart', the block of every tuple (--block-column), and neither has "
        f"{tmp_path}/c.csv\nGive the block in the rows of a tuple, or in the file of counts.\n",
    )


def test_arrays_of_blocks_have_one_per_tuple(tmp_path, ntmp):
    arrays = {"x": np.ones((4, 2)), "offsets": np.array([0, 2, 4]), "counts": np.array([1, 1])}
    np.savez(tmp_path / "a.npz", ward=np.arange(4), **arrays)
    ended = ntmp("import-tuples", tmp_path / "a.npz", "--block-column", "ward", "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (
        3,
        f"error: {tmp_path}/a.npz: 'ward' has shape (4,), but x has 2 tuples\nStore one block per tuple.\n",
    )


def test_a_single_block_is_not_divided(tmp_path, ntmp_done):
    path = tmp_path / "slides.csv"
    path.write_text("\n".join(["tuple_id,count,patient,a,b", *lines(patient="p")]) + "\n")
    ended = ntmp_done("import-tuples", path, "--block-column", "patient", "--out", tmp_path / "t", "--json")
    assert ended.json["tuples"] == {"train": TUPLES}
    assert ended.json["warnings"] == ["all tuples are in block 'p', and blocks are not divided: no tuples are held out"]


def test_parquet_categories_name_blocks_too(slides, tmp_path, ntmp_done):
    import pyarrow.csv as pacsv

    table = pacsv.read_csv(slides)
    at = table.column_names.index("patient")
    coded = table.set_column(at, "patient", table["patient"].dictionary_encode())
    pq.write_table(coded, tmp_path / "slides.parquet")
    for path, out in ((slides, "a"), (tmp_path / "slides.parquet", "b")):
        ntmp_done("import-tuples", path, "--block-column", "patient", "--out", tmp_path / out)
    assert stored_blocks(tmp_path / "a") == stored_blocks(tmp_path / "b")
