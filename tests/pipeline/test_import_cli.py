"""Users' own data through the commands: what is understood, what is refused, and that all formats mean the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import own_data
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.shards import (
    read_instances,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.stages.import_tuples import import_tuples

TRAINING = ("--prior", own_data.PRIOR, "--model", "linear", "--epochs", 2, "--select", "last")


@pytest.fixture(scope="module")
def csv(tmp_path_factory) -> Path:
    return own_data.write_csv(tmp_path_factory.mktemp("csv"))


@pytest.fixture(scope="module")
def imported(csv, ntmp_done) -> Path:
    out = csv / "imported"
    files = ("--unlabeled", csv / "unlabeled.csv", "--test", csv / "test.csv")
    ntmp_done("import-tuples", csv / "tuples.csv", *files, "--out", out)
    return out


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return own_data.write_pictures(tmp_path_factory.mktemp("pictures"))


def stored(path: Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Instances, sizes and counts of tuples, and unlabeled instances."""
    artifact = open_artifact(path, "tuples")
    blocks = [read_tuple_shard(artifact, name) for name in tuple_shard_names(artifact, split)]
    return (
        np.concatenate([b.instances for b in blocks]),
        np.concatenate([np.diff(b.offsets) for b in blocks]),
        np.concatenate([b.counts for b in blocks]),
        np.concatenate([read_instances(artifact, name) for name in unlabeled_shard_names(artifact, split)]),
    )


def payload(path: Path) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in open_artifact(path).manifest.files}


# --- what is stored -------------------------------------------------------------------------------


def test_stored_tuples_are_the_users_rows_standardised_by_training_rows(imported):
    c = own_data.cases()
    tables = {split: stored(imported, split) for split in ("train", "heldout")}
    assert [len(tables[s][2]) for s in tables] == [45, 5]
    assert [len(tables[s][3]) for s in tables] == [180, 20]
    mapping = json.loads((imported / "mapping.json").read_text())["features"]["columns"]
    mean, scale = (np.array([column[key] for column in mapping]) for key in ("mean", "scale"))
    # Undo the mapping, and every row must be one of the user's, with the count of its tuple.
    rows = {tuple(np.round(x, 3)): (t, m) for x, t, m in zip(c.x, c.tuple_id, c.count, strict=True)}
    owners = []
    raw_training = [tables["train"][3] * scale + mean]
    for split, (x, sizes, counts, _) in tables.items():
        raw = x * scale + mean
        if split == "train":
            raw_training.append(raw)
        start = 0
        for size, count in zip(sizes, counts, strict=True):
            matches = {nearest(rows, row) for row in raw[start : start + size]}
            ((t, m),) = matches
            assert (m, size) == (count, 5)
            owners.append(t)
            start += size
    assert sorted(owners) == list(range(50))
    assert np.allclose(np.concatenate(raw_training).mean(axis=0), mean, rtol=1e-5)
    assert np.allclose(np.concatenate(raw_training).std(axis=0), scale, rtol=1e-4)


def nearest(rows: dict[tuple[float, ...], tuple[int, int]], row: np.ndarray) -> tuple[int, int]:
    keys = np.array(list(rows))
    return list(rows.values())[int((np.abs(keys - row) / np.abs(keys).max(axis=0)).sum(axis=1).argmin())]


def test_csv_parquet_and_arrays_give_the_same_instances(imported, tmp_path, ntmp_done):
    own_data.write_parquet(tmp_path)
    files = ("--unlabeled", tmp_path / "unlabeled.parquet", "--test", tmp_path / "test.parquet")
    ntmp_done("import-tuples", tmp_path / "tuples.parquet", *files, "--out", tmp_path / "p")
    assert payload(tmp_path / "p") == payload(imported)

    c = own_data.cases()
    ids = np.array([f"t{t}" for t in c.tuple_id])
    np.savez_compressed(tmp_path / "a.npz", x=c.x, tuple_id=ids, count=c.count, unlabeled=c.unlabeled)
    np.savez(tmp_path / "test.npz", x=c.x_test, label=c.y_test)
    ntmp_done("import-tuples", tmp_path / "a.npz", "--test", tmp_path / "test.npz", "--out", tmp_path / "n")
    named = {"mapping.json"}  # an array's columns are called x0, x1, …
    assert {k: v for k, v in payload(tmp_path / "n").items() if k not in named} == {
        k: v for k, v in payload(imported).items() if k not in named
    }

    (tmp_path / "npy").mkdir()
    for name, values in {"x": c.x, "tuple_id": ids, "count": c.count, "unlabeled": c.unlabeled}.items():
        np.save(tmp_path / "npy" / f"{name}.npy", np.asfortranarray(values))
    ntmp_done("import-tuples", tmp_path / "npy", "--test", tmp_path / "test.npz", "--out", tmp_path / "f")
    assert payload(tmp_path / "f") == payload(tmp_path / "n")


def test_offsets_mean_the_same_as_ids(tmp_path, ntmp_done):
    c = own_data.cases()
    order = np.argsort(c.tuple_id, kind="stable")
    counts = c.count[order][::5]
    np.savez(tmp_path / "o.npz", x=c.x[order], offsets=np.arange(0, 251, 5), counts=counts, unlabeled=c.unlabeled)
    np.savez(tmp_path / "i.npz", x=c.x[order], tuple_id=c.tuple_id[order], count=c.count[order], unlabeled=c.unlabeled)
    for name in ("o", "i"):
        ntmp_done("import-tuples", tmp_path / f"{name}.npz", "--out", tmp_path / name)
    assert payload(tmp_path / "o") == payload(tmp_path / "i")


@pytest.mark.parametrize("block", [600, 5000])
def test_small_blocks_give_the_same_bytes(block, csv, imported, tmp_path):
    files = Inputs(csv / "tuples.csv", csv / "unlabeled.csv", csv / "test.csv")
    import_tuples(ImportTuplesConfig(), files, tmp_path / "out", block_bytes=block)
    assert payload(tmp_path / "out") == payload(imported)


def test_unlabeled_rows_may_be_rows_without_tuple_id(csv, imported, tmp_path, ntmp_done):
    tables = own_data.tables()
    nothing = pa.nulls(200, pa.string())
    outside = tables["unlabeled"].add_column(0, "tuple_id", nothing).add_column(1, "count", pa.nulls(200, pa.int64()))
    pq.write_table(pa.concat_tables([tables["tuples"], outside]), tmp_path / "one.parquet")
    ntmp_done("import-tuples", tmp_path / "one.parquet", "--test", csv / "test.csv", "--out", tmp_path / "out")
    assert payload(tmp_path / "out") == payload(imported)


def test_counts_may_lie_in_a_file_of_their_own_under_other_names(csv, imported, tmp_path, ntmp_done):
    tuples = own_data.tables()["tuples"]
    counts = tuples.select(["tuple_id", "count"]).group_by("tuple_id").aggregate([("count", "max")])
    pq.write_table(counts.rename_columns(["crate", "rejects"]), tmp_path / "counts.parquet")
    pq.write_table(tuples.drop_columns("count").rename_columns(["crate", *own_data.FEATURES]), tmp_path / "t.parquet")
    names = ("--tuple-column", "crate", "--count-column", "rejects")
    files = ("--unlabeled", csv / "unlabeled.csv", "--test", csv / "test.csv", "--counts", tmp_path / "counts.parquet")
    ntmp_done("import-tuples", tmp_path / "t.parquet", *files, *names, "--out", tmp_path / "out")
    assert {k: v for k, v in payload(tmp_path / "out").items() if k != "mapping.json"} == {
        k: v for k, v in payload(imported).items() if k != "mapping.json"
    }


def test_the_same_command_gives_the_same_bytes_and_can_be_skipped(csv, imported, tmp_path, ntmp_done):
    words = ("import-tuples", csv / "tuples.csv", "--unlabeled", csv / "unlabeled.csv", "--test", csv / "test.csv")
    again = ntmp_done(*words, "--out", tmp_path / "again", "--json").json
    assert again["manifest_sha256"] == open_artifact(imported).sha256
    assert ntmp_done(*words, "--out", tmp_path / "again", "--if-exists", "skip", "--json").json == again
    other = ntmp_done(*words, "--seed", 1, "--out", tmp_path / "other", "--json").json
    assert other["manifest_sha256"] != again["manifest_sha256"]


def test_nothing_is_set_aside_when_none_is_asked_for(csv, tmp_path, ntmp_done):
    words = ("--unlabeled", csv / "unlabeled.csv", "--heldout-share", 0, "--out", tmp_path / "out", "--json")
    made = ntmp_done("import-tuples", csv / "tuples.csv", *words).json
    assert made["tuples"] == {"train": 50}
    assert made["unlabeled"] == {"train": 200}


def test_no_path_of_this_machine_enters_the_manifest(imported):
    assert str(imported.parent) not in (imported / "manifest.json").read_text()


# --- what follows ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_imported_tuples_are_trained_evaluated_reported_and_inspected(imported, tmp_path, ntmp_done):
    ntmp_done("train", "--tuples", imported, "--prior", own_data.PRIOR, "--epochs", 30, "--out", tmp_path / "run")
    rows = ntmp_done("evaluate", tmp_path / "run", "--out", tmp_path / "eval", "--json").json["rows"]
    metrics = {row["metric"]: row["value"] for row in rows}
    assert metrics["auroc"] > 0.9  # measured .97 without a single label
    assert {(row["dataset"], row["tuples"], row["n"]) for row in rows} == {("tuples.csv", "5:1-5", None)}
    ntmp_done("report", tmp_path / "eval", "--out", tmp_path / "report")
    shown = ntmp_done("inspect", imported).out
    assert "unknown: `train` estimates it unless --prior is given" in shown
    assert "radius" in shown
    assert "numeric" in shown
    ntmp_done("inspect", tmp_path / "run")


def test_training_does_not_standardise_what_is_standardised(csv, tmp_path, ntmp_done):
    """A rare category must not be blown up: it would be worth 1/√(share)."""
    tables = own_data.tables()
    kind = pa.array(["rare" if i == 0 else "common" for i in range(250)])
    pq.write_table(tables["tuples"].append_column("kind", kind), tmp_path / "t.parquet")
    pq.write_table(tables["unlabeled"].append_column("kind", pa.array(["common"] * 200)), tmp_path / "u.parquet")
    words = ("--unlabeled", tmp_path / "u.parquet", "--heldout-share", 0)
    ntmp_done("import-tuples", tmp_path / "t.parquet", *words, "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", *TRAINING, "--model", "mlp", "--out", tmp_path / "r")
    from safetensors.numpy import load_file

    state = load_file(tmp_path / "r" / "model.safetensors")
    assert (state["factor"] == 1).all()
    assert (state["shift"] == 0).all()


def test_without_test_labels_training_works_and_evaluation_says_what_is_missing(csv, tmp_path, ntmp, ntmp_done):
    ntmp_done("import-tuples", csv / "tuples.csv", "--unlabeled", csv / "unlabeled.csv", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", *TRAINING, "--out", tmp_path / "r")
    ntmp_done("train", "--tuples", tmp_path / "t", *TRAINING, "--encoder", "pca", "--out", tmp_path / "rp")
    ended = ntmp("evaluate", tmp_path / "r", "--out", tmp_path / "e")
    assert ended.code == 3
    assert ended.err == (
        f"error: {tmp_path}/r: has no test labels: its tuples were imported without a labelled test file\n"
        "Import again with `ntmp import-tuples … --test FILE`, a table with a label column.\n"
    )
    assert not (tmp_path / "e").exists()
    ended = ntmp("train", "--tuples", tmp_path / "t", *TRAINING, "--method", "supervised", "--out", tmp_path / "s")
    assert ended.code == 2
    assert "has no true labels of its training instances" in ended.err


# --- categories and missing values ------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path) -> Path:
    """40 tuples of three; numbers and colours with gaps, and a column of many texts."""
    lines = ["id,tuple_id,count,size,colour,street"]
    for row in range(180):
        owner, count = (f"t{row % 40}", row % 4) if row < 120 else ("", "")
        count = "" if count == "" else (row % 40) % 4
        size = "" if row % 10 == 3 else f"{row / 7:.3f}"
        colour = ("red", "green", "NA", "blue")[row % 4]
        lines.append(f"i{row},{owner},{count},{size},{colour},street {row}")
    (tmp_path / "mixed.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "mixed.csv"


CATEGORIES = ("--categorical", "colour", "--categorical", "street", "--hash-width", 8)


def test_a_dry_run_shows_what_was_understood_and_writes_nothing(mixed, ntmp_done):
    before = sorted(mixed.parent.iterdir())
    understood = ntmp_done("import-tuples", mixed, *CATEGORIES, "--dry-run", "--json").json
    assert sorted(mixed.parent.iterdir()) == before
    assert understood["tuples"] == {"train": 36, "heldout": 4}
    assert understood["unlabeled"] == {"train": 54, "heldout": 6}
    assert understood["features"] == [
        {"name": "size", "kind": "numeric", "missing": 18, "categories": None},
        {"name": "colour", "kind": "one-hot", "missing": 45, "categories": ["blue", "green", "red"]},
        {"name": "street", "kind": "hashed", "missing": 0, "categories": None},
    ]
    assert understood["first_rows"][3] == {
        **{"tuple_id": "t3", "count": "3", "id": "i3"},
        **{"size": None, "colour": "blue", "street": "street 3"},
    }
    assert sum(row["tuples"] for row in understood["strata"]["train"]) == 36
    shown = ntmp_done("import-tuples", mixed, *CATEGORIES, "--dry-run").out
    assert "nothing was written" in shown
    assert "one-hot (blue, green, red)" in shown
    assert "tuple_id=t0, count=0, id=i0, size=0.0, colour=red" in shown


def test_categories_and_missing_values_become_features(mixed, tmp_path, ntmp_done):
    ntmp_done("import-tuples", mixed, *CATEGORIES, "--heldout-share", 0, "--out", tmp_path / "t")
    x, sizes, _, outside = stored(tmp_path / "t", "train")
    assert (sizes == 3).all()
    assert x.shape[1] == outside.shape[1] == 1 + 1 + 3 + 1 + 8
    rows = [row for t in range(40) for row in (t, t + 40, t + 80)]
    missing = np.array([row % 10 == 3 for row in rows])
    assert np.array_equal(x[:, 1], missing)
    assert (x[missing, 0] == 0).all()
    sizes_there = np.array([row / 7 for row in range(180) if row % 10 != 3]).round(3)
    expected = (np.array([row / 7 for row in rows]).round(3) - sizes_there.mean()) / sizes_there.std()
    assert np.allclose(x[~missing, 0], expected[~missing], atol=1e-5)
    colours = np.array([[row % 4 == k for k in (3, 1, 0, 2)] for row in rows])  # blue, green, red, missing
    assert np.array_equal(x[:, 2:6], colours)
    assert (x[:, 6:].sum(axis=1) == 1).all()


# --- pictures -------------------------------------------------------------------------------------


def test_folders_of_images_are_tuples(pictures, tmp_path, ntmp_done):
    words = ("import-tuples", pictures / "tuples", "--test", pictures / "test", "--positive", "even")
    made = ntmp_done(*words, "--heldout-share", 0, "--out", tmp_path / "t", "--json").json
    assert (made["tuples"], made["unlabeled"], made["test"]) == ({"train": 30}, {"train": 60}, 40)
    x, sizes, _, outside = stored(tmp_path / "t", "train")
    assert (x.dtype, x.shape[1:], set(sizes.tolist())) == (np.uint8, (1, 8, 8), {4})
    first = sorted((pictures / "tuples" / "t0").iterdir())
    expected = np.stack([np.asarray(Image.open(file)) for file in first])
    assert np.array_equal(x[:4, 0], expected)
    assert len(outside) == 60
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--epochs", 2, "--out", tmp_path / "r")
    ntmp_done("evaluate", tmp_path / "r", "--out", tmp_path / "e")
    ntmp_done("inspect", tmp_path / "t", "--figure", tmp_path / "m.png")


def test_a_table_of_image_paths_is_the_folder_of_images(tmp_path, ntmp, ntmp_done):
    pictures = own_data.write_pictures(tmp_path / "pictures")
    ntmp_done("import-tuples", pictures / "tuples", "--out", tmp_path / "folder")
    counts = dict(line.split(",") for line in (pictures / "tuples" / "counts.csv").read_text().split()[1:])
    files = sorted((pictures / "tuples").glob("*/*.png"))
    lines = ["image,tuple_id,count"]
    for file in files:
        owner = file.parent.name
        inside = owner != "unlabeled"
        lines.append(f"{file.relative_to(pictures)},{owner if inside else ''},{counts[owner] if inside else ''}")
    table = pictures / "paths.csv"
    table.write_text("\n".join(lines) + "\n")
    ntmp_done("import-tuples", table, "--out", tmp_path / "table")
    assert payload(tmp_path / "table") == payload(tmp_path / "folder")
    # An image that has changed is another import, though the table is the same.
    Image.new("L", (8, 8), 99).save(files[0])
    ended = ntmp("import-tuples", table, "--if-exists", "skip", "--out", tmp_path / "table")
    assert ended.code == 2
    assert "exists, but from other inputs or settings (its inputs differ)" in ended.err


def test_mixed_sizes_and_colours_are_brought_together_by_resize(pictures, tmp_path, ntmp_done):
    shutil.copytree(pictures / "tuples", tmp_path / "p")
    Image.new("RGB", (20, 12), (255, 0, 0)).save(tmp_path / "p" / "t0" / "odd-one.png")
    made = ntmp_done("import-tuples", tmp_path / "p", "--resize", 6, "--out", tmp_path / "t", "--json").json
    assert made["features"] == [{"name": "image", "kind": "3×6×6 uint8", "missing": 0, "width": 1}]
    x = stored(tmp_path / "t", "train")[0]
    assert x.shape[1:] == (3, 6, 6)


# --- mistakes -------------------------------------------------------------------------------------

FOOT = "Rows are counted from 1, without the header. Correct them and try again.\n"


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


GOOD_U = "a,b\n1,2\n3,4\n5,6\n"

MISTAKES = {
    "count above n": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,3,4\ny,3,1,2\ny,3,1,2\n",
        "1 problem in the data, nothing was written\n  {t} row 3: tuple 'y' has count 3 but only 2 rows\n",
    ),
    "counts that disagree": (
        "tuple_id,count,a,b\nx,1,1,2\nx,2,3,4\n",
        "1 problem in the data, nothing was written\n  {t} row 1: tuple 'x' has count 1 here and 2 in another row\n",
    ),
    "counts that are none": (
        "tuple_id,count,a,b\nx,1.5,1,2\nx,1.5,3,4\ny,-1,1,2\nz,,1,2\n",
        "3 problems in the data, nothing was written\n"
        "  {t} row 1: the count 1.5 is not 0, 1, 2 …; are these percentages? then pass --counts-are percentages"
        "; was noise added? then pass --count-law gaussian:SD, or the law that it is\n"
        "  {t} row 2: the count 1.5 is not 0, 1, 2 …; are these percentages? then pass --counts-are percentages"
        "; was noise added? then pass --count-law gaussian:SD, or the law that it is\n"
        "  {t} row 3: the count -1 is not 0, 1, 2 …"
        "; was noise added? then pass --count-law gaussian:SD, or the law that it is\n",
    ),
    "count without tuple": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,3,4\n,1,1,2\n",
        "1 problem in the data, nothing was written\n  {t} row 3: has a count but no tuple id\n",
    ),
    "values that are no numbers": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,oops,4\nx,1,5,6\nx,two,5,what?\n",
        "3 problems in the data, nothing was written\n  {t} row 2, column 'a': 'oops' is not a number\n"
        "  {t} row 4, column 'b': 'what?' is not a number\n"
        "  {t} row 4: the count two is not 0, 1, 2 …, nor a range such as 1-3, >=1, <6, nor a percentage such as 25%\n",
    ),
    "a value that is no number, and a tuple that cannot be": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,3,oops\ny,3,1,2\ny,3,1,2\n",
        "2 problems in the data, nothing was written\n  {t} row 2, column 'b': 'oops' is not a number\n"
        "  {t} row 3: tuple 'y' has count 3 but only 2 rows\n",
    ),
    "infinite values": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,inf,4\nx,1,5,-1e300\n",
        "2 problems in the data, nothing was written\n  {t} row 2, column 'a': inf is too large or not a number\n"
        "  {t} row 3, column 'b': -1e+300 is too large or not a number\n",
    ),
    "ragged rows": (
        "tuple_id,count,a,b\nx,1,1,2\nx,1,3\nx,1,1,2,9\nx,1,1,z\n",
        "3 problems in the data, nothing was written\n  {t} row 2: 3 values, but the header has 4 columns\n"
        "  {t} row 3: 5 values, but the header has 4 columns\n  {t} row 4, column 'b': 'z' is not a number\n",
    ),
    "ids that are there twice": (
        "id,tuple_id,count,a,b\n7,x,1,1,2\n8,x,1,3,4\n7,x,1,3,4\n",
        "1 problem in the data, nothing was written\n  {t} row 3: id '7' occurs already, at {t} row 1\n",
    ),
    "text": (
        "tuple_id,count,a,b\nx,1,1,\nx,1,2,red\nx,1,2,?\nx,1,2,blue\n",
        "2 problems in the data, nothing was written\n  {t} row 2, column 'b': 'red' is not a number\n"
        "  {t} row 4, column 'b': 'blue' is not a number\n",
    ),
    "dates": (
        "tuple_id,count,a,b\nx,1,1,2020-01-01\nx,1,2,2020-01-02\n",
        "1 problem in the data, nothing was written\n"
        "  {t} row 1, column 'b': holds date32[day], which cannot be a feature: leave it out with --ignore\n",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_problem_is_listed_with_its_row_and_nothing_is_written(mistake, ntmp, tmp_path):
    content, message = MISTAKES[mistake]
    t, u = table(tmp_path, content), table(tmp_path, GOOD_U, "u.csv")
    words = ("--numeric", "a", "--numeric", "b", "--out", tmp_path / "out")
    ended = ntmp("import-tuples", t, "--unlabeled", u, *words)
    assert (ended.code, ended.err) == (3, "error: " + message.format(t=t) + FOOT)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "u.csv"]


def test_bad_rows_far_down_a_long_file_are_found_in_every_block(ntmp, tmp_path):
    lines = [f"t{row // 2},1,{row},{row}" for row in range(200_000)]
    for row in (0, 77_777, 199_999):
        lines[row] = f"t{row // 2},1,{row},x{row}"
    lines[150_000] = "t75000,1,3"
    t = table(tmp_path, "tuple_id,count,a,b\n" + "\n".join(lines) + "\n")
    ended = ntmp("import-tuples", t, "--unlabeled", table(tmp_path, GOOD_U, "u.csv"), "--out", tmp_path / "out")
    assert ended.code == 3
    names = sorted(
        ended.err.splitlines()[1:-1], key=lambda line: int(line.split(" row ")[1].split(",")[0].split(":")[0])
    )
    assert names == [
        f"  {t} row 1, column 'b': 'x0' is not a number",
        f"  {t} row 77778, column 'b': 'x77777' is not a number",
        f"  {t} row 150001: 3 values, but the header has 4 columns",
        f"  {t} row 200000, column 'b': 'x199999' is not a number",
    ]


def test_tuples_are_judged_across_the_block_in_which_reading_went_wrong(ntmp, tmp_path):
    """Rows before it were handed out by the fast reader, those after it by the careful one: none is lost or doubled."""
    lines = [f"t{i // 2},1,{i},{i}" for i in range(200_000)]
    lines[150_000] = "t75000,1,1,x"
    lines[199_999] = "t99999,5,1,1"
    t = table(tmp_path, "tuple_id,count,a,b\n" + "\n".join(lines) + "\n,,1,2\n")
    ended = ntmp("import-tuples", t, "--out", tmp_path / "out")
    assert ended.code == 3
    assert ended.err.splitlines()[:-1] == [
        "error: 3 problems in the data, nothing was written",
        f"  {t} row 150001, column 'b': 'x' is not a number",
        f"  {t} row 199999: tuple 't99999' has count 1 here and 5 in another row",
        f"  {t} row 199999: tuple 't99999' has count 5 but only 2 rows",
    ]


def test_problems_beyond_twenty_are_counted(ntmp, tmp_path):
    t = table(tmp_path, "tuple_id,count,a,b\n" + "".join(f"t{i},9,1,2\n" for i in range(23)))
    ended = ntmp("import-tuples", t, "--unlabeled", table(tmp_path, GOOD_U, "u.csv"), "--out", tmp_path / "out")
    lines = ended.err.splitlines()
    assert lines[0] == "error: 23 problems in the data, nothing was written"
    assert lines[20] == f"  {t} row 20: tuple 't19' has count 9 but only 1 row"
    assert lines[21] == "  and 3 more"


GOOD_T = "tuple_id,count,a,b\nx,1,1,2\nx,1,3,4\ny,0,1,2\n"

REFUSED = {
    "no column of tuples": (
        ("tuple,count,a,b\nx,1,1,2\n", GOOD_U),
        3,
        "{t}: has no column 'tuple_id', the tuple of every row (--tuple-column); did you mean 'tuple'?\n"
        "The columns are tuple, count, a, b.\n",
    ),
    "no column of counts": (
        ("tuple_id,a,b\nx,1,2\n", GOOD_U),
        3,
        "{t}: has no column 'count', the count of positives (--count-column, or --counts FILE)\n"
        "The columns are tuple_id, a, b.\n",
    ),
    "no features": (
        ("tuple_id,count\nx,1\n", GOOD_U),
        3,
        "{t}: has no feature column besides tuple_id, count\n"
        "Every column that is not named as an id, a count or a label is a feature.\n",
    ),
    "unlabeled rows without a feature": (
        (GOOD_T, "a,B\n1,2\n"),
        3,
        "{u}: has no column 'b', which is a feature\nThe columns are a, B.\n",
    ),
    "a column that is there twice": (
        ("tuple_id,count,a,a\nx,1,1,2\n", GOOD_U),
        3,
        "{t}: column 'a' occurs twice\nGive every column its own name.\n",
    ),
    "no tuples": (
        ("tuple_id,count,a,b\n,,1,2\n,,1,3\n", GOOD_U),
        3,
        "{t}: no row has a tuple id\nRows without a tuple id or a count are unlabeled.\n",
    ),
    "no rows": (("tuple_id,count,a,b\n", GOOD_U), 3, "{t}: has no rows\nStore one row per item.\n"),
    "an empty file": ((" \n", GOOD_U), 3, "{t}: empty\nExpected a header and rows of data.\n"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_files_that_cannot_be_meant_are_refused(mistake, ntmp, tmp_path):
    (tuples, unlabeled), code, message = REFUSED[mistake]
    t, u = table(tmp_path, tuples), table(tmp_path, unlabeled, "u.csv")
    ended = ntmp("import-tuples", t, "--unlabeled", u, "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (code, "error: " + message.format(t=t, u=u))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "u.csv"]


WORDS = {
    "no output": (
        ["--unlabeled", "{u}"],
        2,
        "--out is missing\nName the directory to create, or check the input with --dry",
    ),
    "a column that is not there": (
        ["--unlabeled", "{u}", "--categorical", "aa", "--out", "{o}"],
        3,
        "{t}: has no column 'aa', which --categorical names; did you mean 'a'?\n",
    ),
    "resizing numbers": (
        ["--unlabeled", "{u}", "--resize", "3", "--out", "{o}"],
        2,
        "--resize 3: {t} has no image files",
    ),
    "a file that is not there": (["--unlabeled", "{o}/x.csv", "--out", "{o}"], 3, "{o}/x.csv: no such file\n"),
    "standard input": (
        ["--unlabeled", "-", "--out", "{o}"],
        2,
        "an import reads its files more than once, so it cannot",
    ),
    "a test file without labels": (
        ["--unlabeled", "{u}", "--test", "{u}", "--out", "{o}"],
        3,
        "{u}: has no column 'label', the label\nThe columns are a, b.\n",
    ),
    "an unknown file": (
        ["--unlabeled", "{x}", "--out", "{o}"],
        2,
        "{x}: neither a table, nor arrays, nor a folder of ",
    ),
}


@pytest.mark.parametrize("mistake", WORDS)
def test_words_that_cannot_be_meant_are_refused(mistake, ntmp, tmp_path):
    words, code, message = WORDS[mistake]
    places = {
        **{"t": table(tmp_path, GOOD_T), "u": table(tmp_path, GOOD_U, "u.csv")},
        **{"x": table(tmp_path, "", "x.txt"), "o": tmp_path / "out"},
    }
    words = [word.format(**places) for word in words]
    ended = ntmp("import-tuples", places["t"], *words)
    assert ended.code == code
    assert ended.err.startswith("error: " + message.format(**places))
    assert not places["o"].exists()


def test_labels_that_say_nothing_must_be_named(csv, ntmp, tmp_path):
    t = own_data.tables()["test"]
    names = pa.array(["malignant" if y == 0 else "benign" for y in t["label"].to_pylist()])
    pq.write_table(t.set_column(1, "label", names), tmp_path / "test.parquet")
    words = ("import-tuples", csv / "tuples.csv", "--unlabeled", csv / "unlabeled.csv")
    words += ("--test", tmp_path / "test.parquet", "--out", tmp_path / "out")
    order = ", ".join(dict.fromkeys(names.to_pylist()))
    ended = ntmp(*words)
    assert (ended.code, ended.err) == (
        2,
        f"error: {tmp_path}/test.parquet: which labels are positive? There are {order}\n"
        "Name them with --positive LABEL, once per label.\n",
    )
    ended = ntmp(*words, "--positive", "bening")
    assert ended.code == 2
    assert f"--positive bening: no such label in {tmp_path}/test.parquet; did you mean 'benign'?" in ended.err
    assert ntmp(*words, "--positive", "benign").code == 0


def test_a_file_of_counts_lists_repeated_and_empty_tuples(ntmp, tmp_path):
    t = table(tmp_path, "tuple_id,a,b\nx,1,2\nx,3,4\n")
    counts = table(tmp_path, "tuple_id,count\nx,1\nx,2\ngone,1\nbad,-2\n", "c.csv")
    words = ("--unlabeled", table(tmp_path, GOOD_U, "u.csv"), "--counts", counts, "--out", tmp_path / "out")
    ended = ntmp("import-tuples", t, *words)
    assert (ended.code, ended.err) == (
        3,
        "error: 3 problems in the data, nothing was written\n"
        f"  {counts} row 2: tuple 'x' occurs already\n"
        f"  {counts} row 4: tuple 'bad': the count -2 is not 0, 1, 2 …"
        "; was noise added? then pass --count-law gaussian:SD, or the law that it is\n"
        f"  {t}: tuple 'gone' is empty: it has a count but no rows\n" + FOOT,
    )


def test_pictures_that_are_damaged_of_another_size_or_missing_are_listed(pictures, ntmp, tmp_path):
    p = tmp_path / "p"
    shutil.copytree(pictures / "tuples", p)
    (p / "t1" / "bad.png").write_bytes(b"no image")
    whole = sorted((p / "t2").iterdir())[0]
    whole.write_bytes(whole.read_bytes()[:70])
    Image.new("L", (9, 8)).save(p / "t3" / "wide.png")
    (p / "hollow").mkdir()
    with (p / "counts.csv").open("a") as file:
        file.write("hollow,0\n")
    ended = ntmp("import-tuples", p, "--out", tmp_path / "out")
    assert ended.code == 3
    lines = ended.err.splitlines()
    assert lines[0] == "error: 5 problems in the data, nothing was written"
    first = sorted(p.glob("t0/*.png"))[0]
    assert lines[1] == f"  {p}/hollow: tuple 'hollow' is empty: it has no images"
    assert lines[2] == f"  {p}/t1/bad.png: not an image of a known format"
    assert lines[3].startswith(f"  {whole}: not a readable image (")
    assert lines[4] == f"  {p}/t3/wide.png: is 9×8, but {first} is 8×8: bring all to one size with --resize"
    assert lines[5] == f"  {p}: tuple 'hollow' is empty: it has a count but no rows"
    assert not (tmp_path / "out").exists()


def test_a_folder_of_images_needs_its_counts(pictures, ntmp, tmp_path):
    shutil.copytree(pictures / "tuples", tmp_path / "p")
    (tmp_path / "p" / "counts.csv").unlink()
    ended = ntmp("import-tuples", tmp_path / "p", "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (
        3,
        f"error: {tmp_path}/p/counts.csv: no such file\nCounts are a table of tuple_id and count: --counts FILE.\n",
    )


ARRAYS = {
    "empty tuple": (
        {"offsets": np.array([0, 2, 2, 4]), "counts": np.array([1, 0, 1])},
        "1 problem in the data, nothing was written\n  {a} tuple 1: is empty: its offsets are equal\n" + FOOT,
    ),
    "offsets that do not end at the end": (
        {"offsets": np.array([0, 2, 3]), "counts": np.array([1, 1])},
        "{a}: offsets must rise from 0 to the 4 rows of x\nTuple t is x[offsets[t]:offsets[t+1]].\n",
    ),
    "counts that do not fit": (
        {"offsets": np.array([0, 2, 4]), "counts": np.array([1, 1, 1])},
        "{a}: offsets (3,) and counts (3,) do not fit together\nT tuples need T+1 integer offsets and T counts.\n",
    ),
    "ids that do not fit": (
        {"tuple_id": np.array([0, 0, 1]), "count": np.array([1, 1, 0, 0])},
        "{a}: 'tuple_id' has shape (3,), but x has 4 rows\nStore one tuple id per row.\n",
    ),
    "no tuples": (
        {},
        "{a}: has no array 'tuple_id', the tuple of every row, or 'offsets' of tuples\nThe arrays are x, unlabeled.\n",
    ),
    "infinite": (
        {"x": np.array([[1, np.inf], [1, 2]]), "tuple_id": np.array([0, 0]), "count": np.array([1, 1])},
        "1 problem in the data, nothing was written\n"
        "  {a} row 1, column 'x1': inf is too large or not a number\n" + FOOT,
    ),
    "unlabeled rows of another shape": (
        {"tuple_id": np.zeros(4, int), "count": np.ones(4, int), "unlabeled": np.zeros((3, 5))},
        "{a} unlabeled: its rows differ in shape or type from those of {a}\n"
        "All files of an import must have the same features.\n",
    ),
}


@pytest.mark.parametrize("mistake", ARRAYS)
def test_arrays_that_do_not_fit_together_are_refused(mistake, ntmp, tmp_path):
    given, message = ARRAYS[mistake]
    path = tmp_path / "a.npz"
    np.savez(path, **{"x": np.arange(8.0).reshape(4, 2), "unlabeled": np.ones((3, 2)), **given})
    ended = ntmp("import-tuples", path, "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (3, "error: " + message.format(a=path))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["t.parquet", "t.npz", "t.csv.gz"])
def test_a_damaged_file_is_one_message(name, ntmp, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"PAR1 something else")
    ended = ntmp("import-tuples", path, "--out", tmp_path / "out")
    assert ended.code == 3
    assert ended.err.startswith(f"error: {path}: ")
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err


def test_decimal_commas_in_a_feature_are_refused(ntmp, tmp_path):
    """Read as texts they would be categories of one row each."""
    rows = [f"t{i // 2};1;{i}.5;{'-' * (i % 2)}{i},25" for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id;count;a;b", *rows]) + "\n")
    ended = ntmp("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    assert ended.code == 3
    assert "column 'b' has decimal commas ('-7,25'): write decimal points" in ended.err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("words", [("--dry-run",), ("--out", "t")])
def test_tuples_of_one_class_are_warned_of_before_and_at_the_import(words, ntmp_done, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"t{i // 2},2,{i}" for i in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id,count,a", *rows]) + "\n")
    assert "all instances of tuples are of one class" in ntmp_done("import-tuples", "t.csv", *words).err


def test_gray_images_beside_colour_ones_are_converted_and_named(ntmp_done, tmp_path):
    for at, mode in enumerate(["L", "RGB", "L", "RGB"]):
        folder = tmp_path / "in" / f"t{at // 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (4, 4), 100 if mode == "L" else (1, 2, 3)).save(folder / f"{at}.png")
    (tmp_path / "in" / "counts.csv").write_text("tuple_id,count\nt0,1\nt1,0\n")
    ended = ntmp_done("import-tuples", tmp_path / "in", "--out", tmp_path / "out", "--json")
    first = f"images in gray ({tmp_path / 'in' / 't0' / '0.png'}) and in colour ({tmp_path / 'in' / 't0' / '1.png'})"
    assert f"{first}: gray ones get three equal channels" in ended.err
