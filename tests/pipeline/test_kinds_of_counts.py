"""Counts that are ranges, percentages or noisy, from the user's file to a prediction."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from forged import rehash, replace_arrays

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples, under_noise
from ntmp_cli.counting.recorded import are_records, as_text
from ntmp_cli.counting.strata import strata_of
from ntmp_cli.tuple_source import TupleSource

GAUSSIANS = "gaussians:dim=3,separation=3,size=600,test=100"


def rows_of(source: TupleSource) -> tuple[np.ndarray, np.ndarray]:
    parts = [source.read_tuples(name, 0, rows)[1:] for name, rows in source.tuple_shards()]
    return np.concatenate([sizes for sizes, _ in parts]), np.concatenate([counts for _, counts in parts])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def table_of(rng: np.random.Generator, cells: list[str], size: int = 4) -> str:
    """A table of tuples of one size with these cells, whose feature a tells the class."""
    lines = ["tuple_id,count,a,b"]
    for t, cell in enumerate(cells):
        lines += [f"t{t},{cell},{a:.4f},{b:.4f}" for a, b in rng.normal(size=(size, 2))]
    return "\n".join(lines) + "\n"


def test_one_column_may_hold_every_kind_of_count(ntmp, tmp_path):
    cells = ["2", "1-3", ">=1", "<=2", "<3", "25%", "", "0"]
    path = write(tmp_path / "t.csv", table_of(np.random.default_rng(0), cells))
    ended = ntmp("import-tuples", path, "--heldout-share", "0", "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    assert "groups without a count are not tuples: their 4 rows were put into the pool" in ended.err
    tuples = open_artifact(tmp_path / "out", "tuples")
    _, counts = rows_of(StoredTuples(tuples))
    assert [as_text(count) for count in counts] == ["2", "1-3", "1-4", "0-2", "0-2", "1", "0"]
    assert ended.json["unlabeled"]["train"] == 4
    # What the manifest says of the strata is what the shards hold.
    task = StoredTuples(tuples).task
    assert task.strata == [row[:3] for row in strata_of(*rows_of(StoredTuples(tuples)))]
    assert task.knowledge is not None
    assert [m for _, m, _ in task.rated_strata] == [0, 1, 2]


def test_ranges_are_shown_as_they_were_recorded(ntmp_done, tmp_path):
    cells = ["0-1", "1-2", "2-3", "0-3", "1-4", "2-4"]
    path = write(tmp_path / "t.csv", table_of(np.random.default_rng(0), cells))
    shown = ntmp_done("import-tuples", path, "--heldout-share", "0", "--dry-run").out
    rows = [line.split() for line in shown.splitlines() if line.startswith("4 ")]
    assert [row[1] for row in rows] == sorted(cells, key=lambda cell: next(r[2] for r in rows if r[1] == cell))
    assert all(len(row[2]) <= 6 for row in rows)
    ntmp_done("import-tuples", path, "--heldout-share", "0", "--out", tmp_path / "out")
    assert open_artifact(tmp_path / "out", "tuples").summary.spec == "4:0-4"
    noisy = write(tmp_path / "n.csv", table_of(np.random.default_rng(0), ["0", "1", "2", "3"]))
    ntmp_done("import-tuples", noisy, "--count-law", "off-by-one:0.1", "--heldout-share", "0", "--out", tmp_path / "n")
    assert open_artifact(tmp_path / "n", "tuples").summary.spec == "4:0-3 (off-by-one:0.1)"


def test_bad_cells_of_every_kind_are_listed_with_their_rows(ntmp, tmp_path):
    cells = {
        "0.25": "the count 0.25 is not 0, 1, 2 …; are these proportions? then pass --counts-are proportions",
        '"1,234"': "the count 1,234 has a thousands separator: write 1234",
        '"0,5"': "the count 0,5 has a decimal comma: write 0.5",
        "3-1": "the count 3-1 is empty: its first number is larger than its second",
        "few": "the count few is not 0, 1, 2 …, nor a range such as 1-3, >=1, <6, nor a percentage such as 25%",
        "37%": "tuple 't5' has 4 rows, and no count of 4 is 37 %",
        "5-6": "tuple 't6' has count 5-6 but only 4 rows",
        "5": "tuple 't7' has count 5 but only 4 rows",
        "75": "tuple 't8' has count 75 but only 4 rows; are these percentages? then pass --counts-are percentages",
    }
    lines = ["tuple_id,count,a"]
    for t, cell in enumerate(cells):
        lines += [f"t{t},{cell},1", *[f"t{t},,{row}" for row in range(3)]]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ended = ntmp("import-tuples", path, "--out", tmp_path / "out")
    listed = [f"  {path} row {4 * t + 1}: {what}" for t, what in enumerate(cells.values())]
    assert (ended.code, ended.err.splitlines()[1:-1]) == (3, listed)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "ranges.npz"])
def test_shares_get_the_same_hint_in_every_format(kind, ntmp, tmp_path):
    x, shares = np.arange(12.0).reshape(6, 2), np.repeat([0.25, 0.5], 3)
    columns = {"tuple_id": np.repeat([0, 1], 3), "count": shares, "a": x[:, 0], "b": x[:, 1]}
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        pacsv.write_csv(pa.table(columns), path)
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        ends = {"counts": shares[::3]} if kind == "npz" else {"counts_low": shares[::3] / 2, "counts_high": shares[::3]}
        np.savez(path, x=x, offsets=[0, 3, 6], **ends)
    ended = ntmp("import-tuples", path, "--out", tmp_path / "out")
    assert (ended.code, "are these proportions? then pass --counts-are proportions" in ended.err) == (3, True)


def test_noisy_counts_that_look_like_proportions_are_warned_of(ntmp_done, tmp_path):
    cells = ["0.25", "0.5", "0.75", "0", "0.25", "0.5"]
    path = write(tmp_path / "t.csv", table_of(np.random.default_rng(0), cells))
    ended = ntmp_done("import-tuples", path, "--count-law", "gaussian:1", "--out", tmp_path / "out")
    assert "between 0 and 1: are these proportions? then pass --counts-are proportions" in ended.err


def test_shares_and_laws_are_named_by_options_and_kept(ntmp_done, tmp_path):
    rng = np.random.default_rng(1)
    shares = write(tmp_path / "s.csv", table_of(rng, ["0.25", "0.50", "0", "1.00"]))
    ntmp_done("import-tuples", shares, "--counts-are", "proportions", "--heldout-share", "0", "--out", tmp_path / "s")
    _, counts = rows_of(StoredTuples(open_artifact(tmp_path / "s", "tuples")))
    assert counts.tolist() == [1, 2, 0, 4]
    noisy = write(tmp_path / "n.csv", table_of(rng, ["-1.5", "2.25", "7", "3"]))
    law = ("--count-law", "gaussian:2", "--heldout-share", "0")
    ntmp_done("import-tuples", noisy, *law, "--out", tmp_path / "n")
    tuples = open_artifact(tmp_path / "n", "tuples")
    _, counts = rows_of(StoredTuples(tuples))
    assert [as_text(count) for count in counts] == [f"{c} (gaussian:2)" for c in ("-1.5", "2.25", "7", "3")]
    (stratum,) = tuples.summary.strata.train
    assert (stratum.n, stratum.m, stratum.counts, stratum.known) == (4, 10.75 / 4, "gaussian:2", True)


def test_tuples_may_differ_in_their_law(ntmp, tmp_path):
    lines = ["tuple_id,count,count_law,a"]
    for t, (count, law) in enumerate((("1.5", "gaussian:2"), ("1", ""), ("0", "suppress:2"), ("1", "laplace:1"))):
        lines += [f"t{t},{count},{law},{row}" for row in range(3)]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ended = ntmp("import-tuples", path, "--heldout-share", "0", "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    _, counts = rows_of(StoredTuples(open_artifact(tmp_path / "out", "tuples")))
    assert [as_text(c) for c in counts] == ["1.5 (gaussian:2)", "1", "0 (suppress:2)", "1 (laplace:1)"]
    wrong = write(tmp_path / "w.csv", path.read_text().replace("laplace:1", "laplas:1"))
    ended = ntmp("import-tuples", wrong, "--out", tmp_path / "w")
    assert ended.code == 3
    assert f"{wrong} row 10: unknown count-law 'laplas'; did you mean 'laplace'?" in ended.err


def test_arrays_may_give_the_ends_of_ranges(ntmp, tmp_path):
    x = np.random.default_rng(2).normal(size=(9, 2))
    arrays = {"x": x, "offsets": np.array([0, 3, 5, 9]), "counts_low": np.array([1, 0, 4])}
    np.savez(tmp_path / "a.npz", **arrays, counts_high=np.array([2, 0, 4]))
    share = ("--heldout-share", "0")
    assert ntmp("import-tuples", tmp_path / "a.npz", *share, "--out", tmp_path / "a").code == 0
    sizes, counts = rows_of(StoredTuples(open_artifact(tmp_path / "a", "tuples")))
    assert sizes.tolist() == [3, 2, 4]
    assert [as_text(count) for count in counts] == ["1-2", "0", "4"]
    np.savez(tmp_path / "b.npz", **arrays, counts_high=np.array([2, 0]))
    ended = ntmp("import-tuples", tmp_path / "b.npz", *share, "--out", tmp_path / "b")
    assert (ended.code, "counts_low and counts_high have different lengths" in ended.err) == (3, True)


def test_zeros_beside_no_small_counts_are_pointed_out(ntmp, tmp_path):
    cells = ["0"] * 6 + ["6", "7", "9", "8"]
    path = write(tmp_path / "t.csv", table_of(np.random.default_rng(3), cells, size=10))
    ended = ntmp("import-tuples", path, "--out", tmp_path / "out")
    assert ended.code == 0
    assert "6 tuples have count 0 and none has 1 to 5" in ended.err
    assert "--count-law suppress:6" in ended.err
    quiet = write(tmp_path / "q.csv", path.read_text().replace("t9,8", "t9,1"))
    assert "suppress" not in ntmp("import-tuples", quiet, "--out", tmp_path / "q").err


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "how",
    [
        ("--record", "at-least-one"),
        ("--record", "range:2"),
        ("--record", "percent"),
        ("--count-law", "gaussian:1"),
        ("--count-law", "detect:0.9,0.95"),
        ("--count-law", "round:3"),
        ("--count-law", "suppress:2"),
        ("--count-law", "pooled-test:0.95,0.95"),
    ],
    ids=lambda how: " ".join(how),
)
def test_every_way_to_record_counts_is_simulated_trained_and_evaluated(how, ntmp_done, tmp_path):
    """A learner for tables and a network, each with the likelihood of what was recorded; the classes are 3 apart."""
    tuples = tmp_path / "tuples"
    sizes = ("--tuple", "6:~0.4", "--num-tuples", "80", "--prior", "0.5")
    ntmp_done("make-tuples", "--dataset", GAUSSIANS, *sizes, *how, "--out", tuples)
    ntmp_done("train", "--tuples", tuples, "--model", "linear", "--epochs", "8", "--out", tmp_path / "run")
    ended = ntmp_done("evaluate", tmp_path / "run", "--metric", "auroc", "--out", tmp_path / "eval", "--json")
    assert open_artifact(tmp_path / "run", "run").summary.task.unlabeled > 0
    rows = pacsv.read_csv(tmp_path / "eval" / "rows.csv").to_pylist()
    assert ended.json["kind"] == "evaluation"
    assert [row["value"] > 0.9 for row in rows] == [True]


def test_methods_of_rates_use_known_ones_and_refuse_where_there_are_none(ntmp, ntmp_done, tmp_path):
    sizes = ("--dataset", GAUSSIANS, "--tuple", "6:~0.4", "--num-tuples", "60", "--prior", "0.6")
    training = ("--epochs", "1", "--model", "linear", "--select", "last")
    ntmp_done("make-tuples", *sizes, "--record", "at-least-one", "--out", tmp_path / "some")
    ended = ntmp("train", "--tuples", tmp_path / "some", "--method", "ure", *training, "--out", tmp_path / "a")
    zeros = open_artifact(tmp_path / "some", "tuples").summary.strata.train[0].tuples
    assert (ended.code, f"method ure uses the {zeros} of 60 tuples whose rate is known" in ended.err) == (0, True)
    ntmp_done("make-tuples", *sizes, "--count-law", "round:4", "--out", tmp_path / "none")
    for method in ("ure", "uu", "llp-js", "kmeans", "attention-mil"):
        ended = ntmp("train", "--tuples", tmp_path / "none", "--method", method, "--out", tmp_path / "b")
        assert (ended.code, ended.err.splitlines()[0]) == (
            4,
            f"error: method {method} needs tuples whose rate is known, and none of these has one: "
            "ranges and rounded counts have no rate",
        )
    ended = ntmp("train", "--tuples", tmp_path / "none", "--method", "discriminant", "--out", tmp_path / "b")
    assert (ended.code, "needs tuples whose count is known" in ended.err) == (4, True)
    assert not (tmp_path / "b").exists()


def test_noise_of_mean_zero_leaves_the_rate_of_a_stratum_known(ntmp_done, tmp_path):
    sizes = ("--dataset", GAUSSIANS, "--tuple", "5:1", "--num-tuples", "60", "--prior", "0.6")
    ntmp_done("make-tuples", *sizes, "--count-law", "gaussian:1", "--out", tmp_path / "t")
    training = ("--epochs", "10", "--lr", "0.05", "--model", "linear", "--method", "ure", "--select", "last")
    ntmp_done("train", "--tuples", tmp_path / "t", *training, "--out", tmp_path / "run")
    ntmp_done("evaluate", tmp_path / "run", "--metric", "auroc", "--out", tmp_path / "eval")
    assert pacsv.read_csv(tmp_path / "eval" / "rows.csv")["value"][0].as_py() > 0.9


def test_training_may_replace_the_law_that_is_kept(ntmp, ntmp_done, tmp_path):
    sizes = ("--dataset", GAUSSIANS, "--tuple", "5:~0.4", "--num-tuples", "60", "--prior", "0.5")
    ntmp_done("make-tuples", *sizes, "--count-law", "geometric:1", "--out", tmp_path / "t")
    training = ("--tuples", tmp_path / "t", "--epochs", "1", "--model", "linear", "--select", "last")
    for law, name in ((("--count-law", "gaussian:1.3"), "other"), ((), "kept")):
        ntmp_done("train", *training, *law, "--out", tmp_path / name)
    scores = [open_artifact(tmp_path / name, "run") for name in ("other", "kept")]
    assert [run.summary.task.knowledge.counts[0] for run in scores] == ["gaussian:1.3", "geometric:1"]
    ended = ntmp("train", *training, "--count-law", "exact", "--out", tmp_path / "e")
    assert (ended.code, "cannot have 5 members and a count of" in ended.err) == (3, True)
    ended = ntmp("train", *training, "--count-law", "gausian:2", "--out", tmp_path / "e")
    assert (ended.code, "unknown count-law 'gausian'; did you mean 'gaussian'?" in ended.err) == (2, True)
    ended = ntmp("train", *training, "--count-law", "round:2", "--count-noise", "0.1", "--out", tmp_path / "e")
    assert (ended.code, "count_law and count_noise are two laws of noise: give one of them" in ended.err) == (2, True)


def test_two_ways_to_record_a_count_are_refused(ntmp, tmp_path):
    making = ("make-tuples", "--dataset", GAUSSIANS, "--out", tmp_path / "t")
    ended = ntmp(*making, "--record", "percent", "--count-law", "round:2")
    assert (ended.code, "cannot be combined" in ended.err) == (2, True)
    ended = ntmp(*making, "--record", "percent", "--count-noise", "0.1")
    assert (ended.code, "counts are recorded in one way" in ended.err) == (2, True)
    ended = ntmp(*making, "--count-law", "round:2", "--count-noise", "0.1")
    assert (ended.code, "counts are recorded in one way" in ended.err) == (2, True)
    ended = ntmp(*making, "--record", "range:0")
    assert ended.code == 2
    assert not list(tmp_path.iterdir())


def test_tuples_of_a_seed_do_not_depend_on_how_they_are_recorded(ntmp_done, tmp_path):
    sizes = ("--dataset", GAUSSIANS, "--tuple", "5:~0.4", "--num-tuples", "30")
    for name, how in (("a", ()), ("b", ("--record", "range:1")), ("c", ("--count-law", "laplace:1"))):
        ntmp_done("make-tuples", *sizes, *how, "--out", tmp_path / name)
    x = [
        StoredTuples(open_artifact(tmp_path / name, "tuples")).read_tuples("train/tuples-00000.h5", 0, 30)
        for name in "abc"
    ]
    assert np.array_equal(x[0][0], x[1][0])
    assert np.array_equal(x[0][0], x[2][0])
    exact, (low, high) = x[0][2], (x[1][2]["low"], x[1][2]["high"])
    assert not are_records(exact)
    assert ((low <= exact) & (exact <= high) & (high - low <= 1)).all()


def test_predictions_take_every_kind_of_count(ntmp_done, tmp_path):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    y = x[:, 0] > 0
    lines = ["tuple_id,count,a,b"]
    for t in range(100):
        m = int(y[4 * t : 4 * t + 4].sum())
        cell = [str(m), f"{m}-{min(m + 1, 4)}", f">={m}"][t % 3]
        lines += [f"t{t},{cell},{a:.5f},{b:.5f}" for a, b in x[4 * t : 4 * t + 4]]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ntmp_done("import-tuples", path, "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    ntmp_done("predict", tmp_path / "run", path, "--with-counts", "--out", tmp_path / "p.csv")
    scored = pacsv.read_csv(tmp_path / "p.csv")
    posterior = np.array(scored["posterior"].to_pylist())
    assert ((posterior > 0.5) == y).mean() > 0.9
    sums = posterior.reshape(100, 4).sum(axis=1)
    exact = np.arange(100) % 3 == 0
    counts = y.reshape(100, 4).sum(axis=1)
    assert sums[exact] == pytest.approx(counts[exact], abs=1e-6)
    assert (sums >= counts - 1e-6).all()


def test_laws_are_listed(ntmp_done):
    listed = ntmp_done("list", "count-laws", "--json").json["count-laws"]
    assert listed["gaussian"].startswith("SD: normal noise")
    assert len(listed) == 9


def test_a_few_labels_are_tuples_of_one_row(ntmp, tmp_path):
    lines = ["tuple_id,count,label,a", "x,1-2,yes,1", "x,1-2,,2", "x,1-2,,3", "y,1,no,1", "y,1,,2", ",,yes,5", ",,,6"]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ended = ntmp("import-tuples", path, "--heldout-share", "0", "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    assert "3 rows have a label; each becomes a tuple of one row" in ended.err
    sizes, counts = rows_of(StoredTuples(open_artifact(tmp_path / "out", "tuples")))
    # What is left of x has one or none of two, what is left of y is positive.
    known = [(int(n), as_text(count)) for n, count in zip(sizes, counts, strict=True)]
    assert known == [(2, "0-1"), (1, "1"), (1, "1"), (1, "0"), (1, "1")]
    assert ended.json["unlabeled"]["train"] == 1
    wrong = write(tmp_path / "w.csv", "tuple_id,count,label,a\nx,0,1,1\nx,0,,2\ny,1,,3\n")
    ended = ntmp("import-tuples", wrong, "--out", tmp_path / "w")
    assert ended.code == 3
    assert f"{wrong} row 1: tuple 'x' has count 0, which its labels contradict" in ended.err
    many = write(tmp_path / "m.csv", "tuple_id,count,label,a\nx,1,cat,1\nx,1,dog,2\ny,1,bird,3\n")
    ended = ntmp("import-tuples", many, "--out", tmp_path / "m")
    assert (ended.code, "ntmp is binary: one count per tuple" in ended.err) == (2, True)


def test_a_law_of_noise_that_training_is_given_is_not_that_of_labels(ntmp_done, tmp_path):
    """The tuple of one row z has a noisy count like the others; the labelled rows of x and y do not."""
    rows = ["tuple_id,count,label,a", "x,1,1,1", "x,1,,2", "x,1,,3", "y,1,0,1", "y,1,,2", "z,1,,4"]
    rows += [f"w{t},{t % 3},,{t}.{row}" for t in range(20) for row in range(3)]
    path = write(tmp_path / "t.csv", "\n".join(rows) + "\n")
    ntmp_done("import-tuples", path, "--heldout-share", "0.3", "--out", tmp_path / "out")
    tuples = open_artifact(tmp_path / "out", "tuples")
    assert sum(number for _, number in tuples.summary.labelled.items()) == 2
    source = under_noise(tuples, 0.1)
    sizes, counts = rows_of(source)
    held = source.heldout()
    every = [*zip(sizes, counts, strict=True), *zip(held.sizes, held.counts, strict=True)]
    assert sorted(as_text(count) for n, count in every if n == 1) == sorted(
        ["0", "1", "1 (off-by-one:0.1)", "1 (off-by-one:0.1)"]  # labels of x and y; what is left of y, and z
    )
    assert all("off-by-one" in as_text(count) for n, count in every if n > 1)
    assert ntmp_done("train", "--tuples", tmp_path / "out", "--count-noise", "0.1", "--out", tmp_path / "run").code == 0
    stored = open_artifact(tmp_path / "run", "run").summary.task.knowledge.counts
    assert {"0", "1"} & set(stored)
    shown = ntmp_done("inspect", tmp_path / "run").out
    assert max(len(line) for line in shown.splitlines() if str(tmp_path) not in line) <= 80
    assert not re.search(r"None|\\{|\\.\\d{7}", shown), shown


def grouped_table(path: Path, groups: int, seed: int, spread: float = 0.0) -> dict[str, int]:
    """Groups of 3 to 50 rows with their counts; the true ones are returned."""
    rng, lines, true = np.random.default_rng(seed), ["district,count,a,b"], {}
    intercepts = spread * np.random.default_rng([seed, 1]).normal(size=groups)
    for t in range(groups):
        x = rng.normal(size=(int(rng.integers(3, 51)), 2))
        y = rng.random(len(x)) < 1 / (1 + np.exp(0.5 - intercepts[t] - 2 * x[:, 0]))
        true[f"d{t}"] = int(y.sum())
        lines += [f"d{t},{y.sum()},{a:.4f},{b:.4f}" for a, b in x]
    path.write_text("\n".join(lines) + "\n")
    return true


@pytest.mark.parametrize(
    ("select", "said"), [("last", "is inside with this probability"), ("best", "also chosen the epoch")]
)
def test_the_interval_of_a_network_says_whether_its_epoch_was_chosen_by_the_same_tuples(
    select, said, ntmp_done, tmp_path
):
    grouped_table(tmp_path / "t.csv", 120, 1)
    grouped_table(tmp_path / "new.csv", 5, 2)
    write(tmp_path / "pool.csv", "a,b\n" + "".join(f"{0.1 * row - 3},0\n" for row in range(60)))
    words = ("--tuple-column", "district", "--unlabeled", tmp_path / "pool.csv", "--heldout-share", 0.5)
    ntmp_done("import-tuples", tmp_path / "t.csv", *words, "--out", tmp_path / "tuples")
    training = ("--model", "mlp", "--prior", 0.5, "--epochs", 2, "--select", select)
    ntmp_done("train", "--tuples", tmp_path / "tuples", *training, "--out", tmp_path / "run")
    words = ("predict", tmp_path / "run", tmp_path / "new.csv", "--by", "district", "--out", tmp_path / "g.csv")
    assert said in ntmp_done(*words, "--json").json["guarantee"]


@pytest.mark.parametrize("command", ["make-tuples", "design"])
@pytest.mark.parametrize("record", ["half", "range:0", "range:x"])
def test_unknown_records_are_refused_with_the_known_ones(command, record, ntmp, tmp_path):
    out = ("--out", tmp_path / "out")
    ended = ntmp(command, "--tuple", "3:1", "--prior", 0.5, "--record", record, *out)
    assert ended.code == 2
    assert "record: choose exact, at-least-one, percent or range:W" in ended.err


def test_counts_of_new_groups_have_an_interval(ntmp, ntmp_done, tmp_path):
    grouped_table(tmp_path / "t.csv", 150, 1)
    true = grouped_table(tmp_path / "new.csv", 200, 2)
    ntmp_done("import-tuples", tmp_path / "t.csv", "--tuple-column", "district", "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    predict = ("predict", tmp_path / "run", tmp_path / "new.csv", "--by", "district")
    facts = ntmp_done(*predict, "--out", tmp_path / "g.csv", "--json").json
    table = pacsv.read_csv(tmp_path / "g.csv").to_pylist()
    assert [row["district"] for row in table] == list(true)
    assert (facts["groups"], facts["calibration_tuples"], facts["confidence"]) == (200, 150, 0.9)
    assert facts["expected"] == pytest.approx(sum(true.values()), rel=0.05)
    # 150 tuples in five folds: Eq. 116.
    assert facts["guaranteed_confidence"] == pytest.approx(1 - 0.2 - 2 * min(1.6 / 31, (1 - 5 / 150) / 6))
    assert facts["guarantee"].startswith("CV+: about this share")
    assert "at least 70%" in facts["guarantee"]
    inside = np.mean([row["low"] <= true[row["district"]] <= row["high"] for row in table])
    assert 0.8 < inside < 0.97
    assert all(0 <= row["low"] <= row["q50"] <= row["high"] <= row["rows"] for row in table)
    assert all(row["expected"] / row["rows"] < row["at_least_one"] <= 1 for row in table)
    wide = ntmp_done(*predict, "--confidence", "0.99", "--out", tmp_path / "w.csv", "--json").json
    assert wide["guarantee"] is None  # 150 tuples are too few for so high a level
    write(tmp_path / "large.csv", "district,a,b\n" + "".join(f"big,{row},0\n" for row in range(80)))
    large = ("predict", tmp_path / "run", tmp_path / "large.csv", "--by", "district", "--out", tmp_path / "l.csv")
    ended = ntmp(*large)
    assert (ended.code, "1 of 1 groups have sizes that no tuple had" in ended.err) == (0, True)
    ended = ntmp(*predict, "--prior", "0.2", "--out", tmp_path / "p.csv")
    assert (ended.code, "--prior and --by" in ended.err) == (2, True)
    ended = ntmp(*predict[:-1], "town", "--out", tmp_path / "p.csv")
    assert (ended.code, "has no column 'town'" in ended.err) == (3, True)
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.slow
def test_expected_counts_of_groups_that_differ_follow_their_rows(ntmp_done, tmp_path):
    """Where districts have an intercept of their own, rows still tell which of two groups has more positives."""
    grouped_table(tmp_path / "t.csv", 150, 1, spread=1.5)
    ntmp_done("import-tuples", tmp_path / "t.csv", "--tuple-column", "district", "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    assert open_artifact(tmp_path / "run", "run").summary.spread > 0.5
    write(tmp_path / "new.csv", "district,a,b\n" + "low,-1.5,0\n" * 20 + "high,1.5,0\n" * 20)
    words = ("predict", tmp_path / "run", tmp_path / "new.csv", "--by", "district", "--out", tmp_path / "g.csv")
    ntmp_done(*words)
    low, high = (row["expected"] / row["rows"] for row in pacsv.read_csv(tmp_path / "g.csv").to_pylist())
    # In truth 0.07 and 0.86; a line that knew nothing of the intercepts gave 0.42 and 0.49.
    assert low < 0.3 < 0.55 < high


@pytest.fixture(scope="module")
def district_run(ntmp_done, tmp_path_factory):
    """A run on 30 districts, and the table that it was trained on."""
    folder = tmp_path_factory.mktemp("districts")
    grouped_table(folder / "t.csv", 30, 1)
    ntmp_done("import-tuples", folder / "t.csv", "--tuple-column", "district", "--out", folder / "tuples")
    ntmp_done("train", "--tuples", folder / "tuples", "--model", "linear", "--out", folder / "run")
    return folder


def test_fits_of_folds_that_do_not_fit_the_scores_are_refused(ntmp, district_run, tmp_path):
    shutil.copytree(district_run / "run", tmp_path / "run")
    replace_arrays(tmp_path / "run" / "scores.h5", heldout_folds=np.full(30, 7))
    rehash(tmp_path / "run")
    words = ("predict", tmp_path / "run", district_run / "t.csv", "--by", "district", "--out", tmp_path / "g.csv")
    ended = ntmp(*words)
    assert (ended.code, "'heldout_folds' do not fit the fits of the folds" in ended.err) == (3, True)
    assert not (tmp_path / "g.csv").exists()


def test_a_classifier_of_scikit_learn_keeps_no_fits_of_folds_and_says_so(ntmp_done, district_run, tmp_path):
    words = ("--model", "sklearn:linear_model.LogisticRegression", "--out", tmp_path / "run")
    ntmp_done("train", "--tuples", district_run / "tuples", *words)
    words = ("predict", tmp_path / "run", district_run / "t.csv", "--by", "district", "--out", tmp_path / "g.csv")
    facts = ntmp_done(*words, "--json").json
    assert facts["guarantee"].startswith("cross-fitted")
    assert facts["guaranteed_confidence"] is None


@pytest.mark.parametrize(
    ("blocks", "said"), [(6, "tuples of one block are alike"), (1, "a fit that saw the tuples may have scored them")]
)
def test_intervals_by_tuples_of_blocks_promise_nothing(blocks, said, ntmp_done, district_run, tmp_path):
    """Groups of other blocks were inside in 76 and 30 % of the cases, with patients that differ."""
    header, *rows = (district_run / "t.csv").read_text().splitlines()
    own = [f"{row},{int(row.partition(',')[0][1:]) % blocks}" for row in rows]
    path = write(tmp_path / "t.csv", "\n".join([f"{header},patient", *own]) + "\n")
    words = ("--tuple-column", "district", "--block-column", "patient", "--heldout-share", 0)
    ntmp_done("import-tuples", path, *words, "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    words = ("predict", tmp_path / "run", path, "--by", "district", "--out", tmp_path / "g.csv", "--json")
    ended = ntmp_done(*words)
    assert (ended.json["guaranteed_confidence"], ended.json["calibration_tuples"]) == (None, 30)
    assert ended.json["guarantee"].startswith(f"none: {said}")
    assert f"intervals of groups have no guarantee: {said}" in ended.err


def test_labelled_rows_do_not_calibrate_counts_of_groups(ntmp_done, district_run, tmp_path):
    """A group of one row has both counts, whatever sizes the tuples had."""
    _, *rows = (district_run / "t.csv").read_text().splitlines()
    lines = ["district,count,label,a,b", *(f",,{row % 2},{row / 10},0" for row in range(40))]
    for district, count, *features in (row.split(",") for row in rows):
        lines.append(",".join([district, count, "", *features]))
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ntmp_done("import-tuples", path, "--tuple-column", "district", "--heldout-share", 0, "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    new = write(tmp_path / "new.csv", "district,a,b\none,9,0\n" + "two,9,0\n" * 20)
    words = ("predict", tmp_path / "run", new, "--by", "district", "--out", tmp_path / "g.csv", "--json")
    facts = ntmp_done(*words).json
    assert (facts["calibration_tuples"], facts["groups_of_unseen_sizes"]) == (30, 0)
    assert facts["seen_sizes"][0] > 1
    one, _ = pacsv.read_csv(tmp_path / "g.csv").to_pylist()
    assert (one["low"], one["high"]) == (0, 1)


def test_counts_by_group_never_overwrite_a_file_that_a_pattern_names(ntmp, district_run, tmp_path):
    for name in ("a.csv", "b.csv"):
        shutil.copyfile(district_run / "t.csv", tmp_path / name)
    before = (tmp_path / "a.csv").read_bytes()
    words = ("predict", district_run / "run", tmp_path / "*.csv", "--by", "district", "--out", tmp_path / "a.csv")
    ended = ntmp(*words, "--if-exists", "overwrite")
    assert (ended.code, "inputs are never changed" in ended.err) == (2, True)
    assert (tmp_path / "a.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "rows"), "--by rows: a column of the output has this name"),
        (("--by", "q05"), "--by q05: a column of the output has this name"),
        (("--by", "district", "--threshold", "f1"), "--threshold and --by"),
    ],
)
def test_counts_by_group_refuse_what_would_be_lost(ntmp, district_run, tmp_path, words, message):
    """A name that two columns would have, and a setting that changes no count."""
    write(tmp_path / "new.csv", "district,rows,q05,a,b\nd0,x,x,1,2\nd0,y,y,2,3\n")
    ended = ntmp("predict", district_run / "run", tmp_path / "new.csv", *words, "--out", tmp_path / "g.csv")
    assert (ended.code, message in ended.err) == (2, True)
    assert not (tmp_path / "g.csv").exists()


def test_training_estimates_a_law_that_is_not_known(ntmp, ntmp_done, tmp_path):
    rng = np.random.default_rng(6)
    x = rng.normal(size=(600, 2))
    counts = (x[:, 0] > 0).reshape(100, 6).sum(axis=1) + rng.normal(0, 1.5, 100)
    lines = ["tuple_id,count,a,b"]
    for t in range(100):
        lines += [f"t{t},{counts[t]:.4f},{a:.5f},{b:.5f}" for a, b in x[6 * t : 6 * t + 6]]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    ntmp_done("import-tuples", path, "--count-law", "gaussian:5", "--out", tmp_path / "tuples")
    training = ("train", "--tuples", tmp_path / "tuples", "--count-law", "gaussian:auto")
    ended = ntmp_done(*training, "--model", "linear", "--out", tmp_path / "run")
    assert "by the likelihood of the counts (95 % interval: sd " in ended.err
    law = open_artifact(tmp_path / "run", "run").summary.task.knowledge.counts[0]
    assert 1.2 < float(law.removeprefix("gaussian:")) < 1.9
    ntmp_done("predict", tmp_path / "run", path, "--with-counts", "--out", tmp_path / "p.csv")
    posterior = np.array(pacsv.read_csv(tmp_path / "p.csv")["posterior"].to_pylist())
    assert ((posterior > 0.5) == (x[:, 0] > 0)).mean() > 0.9
    ended = ntmp("import-tuples", path, "--count-law", "gaussian:auto", "--out", tmp_path / "no")
    assert (ended.code, "its parameters must be numbers" in ended.err) == (2, True)
    assert "Give a rough number here; `ntmp train --count-law gaussian:auto` replaces it" in ended.err


@pytest.mark.parametrize("method", ["count", "ure"])
def test_networks_are_trained_under_an_estimated_law(method, ntmp_done, tmp_path):
    """The law is one of the tuples: a linear model estimates it, whatever is trained."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(600, 2))
    counts = (x[:, 0] > 0).reshape(100, 6).sum(axis=1) + rng.normal(0, 1.5, 100)
    lines = ["tuple_id,count,a,b"]
    for t in range(100):
        lines += [f"t{t},{counts[t]:.4f},{a:.5f},{b:.5f}" for a, b in x[6 * t : 6 * t + 6]]
    path = write(tmp_path / "t.csv", "\n".join(lines) + "\n")
    pool = write(tmp_path / "u.csv", "a,b\n" + "".join(f"{a:.5f},{b:.5f}\n" for a, b in rng.normal(0.5, 1, (200, 2))))
    law = ("--count-law", "gaussian:5")
    ntmp_done("import-tuples", path, *law, "--unlabeled", pool, "--out", tmp_path / "tuples")
    words = ("--method", method, "--model", "mlp", "--prior", "0.7", "--epochs", "2", "--count-law", "gaussian:auto")
    ended = ntmp_done("train", "--tuples", tmp_path / "tuples", *words, "--out", tmp_path / "run")
    assert "by the likelihood of the counts (95 % interval: sd " in ended.err
    found = open_artifact(tmp_path / "run", "run").summary.task.knowledge.counts[0]
    assert 1.2 < float(found.removeprefix("gaussian:")) < 1.9


def test_a_law_is_not_estimated_on_images(ntmp, ntmp_done, tmp_path):
    made = ("make-tuples", "--dataset", "digits", "--tuple", "6:~0.3", "--prior", "0.5", "--num-tuples", "50")
    ntmp_done(*made, "--count-law", "gaussian:1", "--out", tmp_path / "tuples")
    words = ("train", "--tuples", tmp_path / "tuples", "--model", "mlp", "--count-law", "gaussian:auto")
    ended = ntmp(*words, "--out", tmp_path / "run")
    assert (ended.code, "not on images" in ended.err, "Pass --encoder" in ended.err) == (2, True, True)


@pytest.mark.slow
def test_seeds_of_noisy_counts_are_one_setting_and_have_a_report(ntmp_done, tmp_path):
    """The mean of noisy counts differs from seed to seed, and is no whole number."""
    data = ("--dataset", GAUSSIANS, "--n", 3, "--m", 1, "--prior", 0.6, "--num-tuples", 80, "--unlabeled-size", 100)
    for seed in (0, 1):
        tuples, run = tmp_path / f"tuples-{seed}", tmp_path / f"run-{seed}"
        ntmp_done("make-tuples", *data, "--count-law", "gaussian:0.5", "--seed", seed, "--out", tuples)
        ntmp_done("train", "--tuples", tuples, "--model", "linear", "--seed", seed, "--out", run)
    words = ("evaluate", tmp_path / "run-0", tmp_path / "run-1", "--metric", "ap", "--out", tmp_path / "evaluation")
    ntmp_done(*words)
    (row,) = json.loads((tmp_path / "evaluation" / "summary.json").read_text())
    assert (row["seeds"], row["n"], row["m"]) == (2, None, None)
    ntmp_done("report", tmp_path / "evaluation", "--out", tmp_path / "report")


def test_proportions_of_a_parquet_file_are_predicted_with_as_they_were_imported(ntmp_done, tmp_path):
    """0.6 of a column of floats may be 0.60, where others have two decimals: 12 of 20, and not 11 to 13."""
    rng = np.random.default_rng(0)
    x, owner = rng.normal(size=(800, 2)), np.repeat(np.arange(40), 20)
    counts = np.bincount(owner, x[:, 0] + rng.normal(size=800) > 0)
    columns = {"tuple_id": [f"g{t}" for t in owner], "count": counts[owner] / 20, "a": x[:, 0], "b": x[:, 1]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    ntmp_done("import-tuples", tmp_path / "t.parquet", "--counts-are", "proportions", "--out", tmp_path / "tuples")
    ntmp_done("train", "--tuples", tmp_path / "tuples", "--model", "linear", "--out", tmp_path / "run")
    words = ("predict", tmp_path / "run", tmp_path / "t.parquet", "--with-counts", "--probabilities", "always")
    ntmp_done(*words, "--out", tmp_path / "p.csv")
    posterior = pacsv.read_csv(tmp_path / "p.csv").column("posterior").to_numpy()
    assert np.bincount(owner, posterior) == pytest.approx(counts)


@pytest.mark.slow
def test_posteriors_of_ranges_do_not_depend_on_the_prior_of_the_pool(ntmp_done, tmp_path):
    """ "At least one" of five: the posterior is at the rate of the tuples, wherever the run will be used."""
    rng = np.random.default_rng(3)
    y = rng.random(600) < 0.3
    x = y + rng.normal(0, 0.7, len(y))
    some = y[:500].reshape(100, 5).any(axis=1)
    owners = [*(f"t{i // 5},{'>=1' if some[i // 5] else 0}" for i in range(500)), *[","] * 100]
    lines = [f"{owner},{value}" for owner, value in zip(owners, x.tolist(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id,count,x", *lines]) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    posteriors = []
    for prior in (0.1, 0.6):
        run, out = tmp_path / f"run-{prior}", tmp_path / f"{prior}.csv"
        ntmp_done("train", "--tuples", tmp_path / "t", "--model", "linear", "--prior", prior, "--out", run)
        words = ("--with-counts", "--probabilities", "always", "--out", out)
        ntmp_done("predict", run, tmp_path / "t.csv", *words)
        header, *rows = (line.split(",") for line in out.read_text().replace('"', "").splitlines())
        posteriors.append([float(row[header.index("posterior")]) for row in rows[:500]])
    np.testing.assert_allclose(*posteriors, atol=0.12)  # the fits differ a little: a given prior orients them
    assert np.mean(posteriors[0]) == pytest.approx(y[:500].mean(), abs=0.08)


def test_small_counts_that_are_written_as_ranges_are_not_suppressed(ntmp_done, tmp_path):
    """Zeros beside `<3` are zeros; a warning said that they may be suppressed counts."""
    cells = ["0"] * 6 + ["<3"] * 5 + ["3", "4", "5"] * 3
    source = write(tmp_path / "t.csv", table_of(np.random.default_rng(3), cells, size=6))
    ended = ntmp_done("import-tuples", source, "--out", tmp_path / "t")
    assert "suppress" not in ended.err


def test_rows_of_one_tuple_under_two_laws_are_named_with_them(ntmp, tmp_path):
    rows = ["tuple_id,count,count_law,x", "a,1,exact,0.5", "a,1,gaussian:1,0.25"]
    ended = ntmp("import-tuples", write(tmp_path / "t.csv", "\n".join(rows)), "--out", tmp_path / "t")
    assert ended.code == 3
    assert "tuple 'a' has count 1 (exact) here and 1 (gaussian:1) in another row" in ended.err


def test_counts_of_several_classes_in_one_cell_are_refused_as_such(ntmp, tmp_path):
    source = write(tmp_path / "t.csv", table_of(np.random.default_rng(3), ["1", "1;2", "cats:1 dogs:2"]))
    ended = ntmp("import-tuples", source, "--out", tmp_path / "t")
    assert ended.code == 3
    for cell in ("1;2", "cats:1 dogs:2"):
        assert f"the count {cell} holds several numbers: ntmp is binary: one count per tuple" in ended.err


def test_two_columns_of_counts_are_refused(ntmp, tmp_path):
    """The last one was taken, and the other became a feature."""
    source = write(tmp_path / "t.csv", "tuple_id,cats,dogs,x\na,1,1,0.5\na,1,1,0.25\n")
    ended = ntmp("import-tuples", source, "--count-column", "cats", "--count-column=dogs", "--out", tmp_path / "t")
    assert ended.code == 2
    assert "--count-column is given 2 times" in ended.err
    assert "ntmp is binary: one count per tuple" in ended.err
    assert not (tmp_path / "t").exists()


def test_a_prior_from_ranges_does_not_blame_the_scores_for_a_missing_cross_check(ntmp_done, tmp_path):
    """Moments use exact counts alone; the warning was that scores carry hardly any class information."""
    sizes = ("--tuple", "6:~0.4", "--prior", 0.3, "--num-tuples", 150, "--unlabeled-size", 150)
    ntmp_done("make-tuples", "--dataset", GAUSSIANS, *sizes, "--record", "range:2", "--out", tmp_path / "t")
    known = ntmp_done("estimate-prior", "--tuples", tmp_path / "t", "--out", tmp_path / "p", "--json").json
    assert any("there is no cross-check by moments" in text for text in known["warnings"])
    assert not any("hardly any class information" in text for text in known["warnings"])
