"""`ntmp sweep` as a user runs it: continues where it stopped, loses no cell to another's failure, same bytes always."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ntmp_cli.artifacts import folder_lock, open_artifact
from ntmp_cli.reporting.words import window_words

pytestmark = pytest.mark.slow  # a sweep has processes of its own

TINY = ("make_tuples.num_tuples=40", "make_tuples.unlabeled_size=60", "train.model=linear", "train.select=last")
SMALL = tuple(word for value in (*TINY, "train.epochs=2") for word in ("--set", value))
PRIOR = ("sweep", "prior", "--prior", 0.5, *SMALL, "--seed", 0, "--seed", 1)
PRIOR += ("--offset", -0.15, "--offset", 0, "--offset", 0.1)


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte that equal sweeps share: all but timings."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("cells", "tuples", "results")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def modified(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if "logs" not in path.parts}


@pytest.fixture(scope="module")
def swept(ntmp_done, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "prior"
    result = ntmp_done(*PRIOR, "--jobs", 2, "--out", out, "--json").json
    assert (result["kind"], result["sweep"], result["complete"]) == ("sweep", "prior", True)
    assert (result["cells"], result["trained"], result["kept"], result["failed"]) == (4, 4, 0, [])
    assert (result["out"], result["results"]) == (str(out), str(out / "results"))
    assert result["manifest_sha256"] == open_artifact(out / "results", "sweep").sha256
    assert [left["offset"] for left in result["left_out"]] == [-0.15]
    return out


def test_a_sweep_leaves_runs_rows_windows_and_a_figure(swept, ntmp_done):
    names = [f"offset={offset},seed={seed}" for offset in ("0", "0.1") for seed in (0, 1)]
    assert sorted(path.name for path in (swept / "cells").iterdir()) == names
    assert sorted(path.name for path in (swept / "tuples").iterdir()) == ["seed=0", "seed=1"]
    for path in (*(swept / "cells").iterdir(), *(swept / "tuples").iterdir(), swept / "results"):
        open_artifact(path).verify()
    rows = [json.loads(line) for line in (swept / "results" / "rows.jsonl").read_text().splitlines()]
    metrics = ntmp_done("list", "metrics", "--json").json["metrics"]
    assert len(rows) == 4 * len(metrics)
    assert {(row["offset"], row["prior"], row["method"]) for row in rows} == {
        (0.0, 0.5, "ure+relu"),
        (0.1, 0.6, "ure+relu"),
    }
    header, *lines = (swept / "results" / "rows.csv").read_text().splitlines()
    assert len(lines) == len(rows)
    assert {"cell", "offset", "seed", "metric", "value"} <= set(header.split(","))
    assert (swept / "results" / "sweep.png").read_bytes()[:4] == b"\x89PNG"
    assert (swept / "results" / "sweep.svg").read_bytes().startswith(b"<?xml")


def test_rows_agree_with_evaluate_but_for_the_prior_that_cells_were_made_to_believe(swept, ntmp_done, tmp_path):
    cells = sorted((swept / "cells").iterdir())
    evaluated = ntmp_done("evaluate", *cells, "--out", tmp_path / "e", "--json").json["rows"]
    rows = [json.loads(line) for line in (swept / "results" / "rows.jsonl").read_text().splitlines()]
    mine = {(row["cell"], row["metric"]): row["value"] for row in rows if not row["metric"].startswith("bag_")}
    theirs = {(row["run"], row["metric"]): row["value"] for row in evaluated}
    assert mine.keys() == theirs.keys()
    other = {key for key in mine if mine[key] != theirs[key]}
    # The world keeps its prior of 0.5 when a cell believes in 0.6.
    assert {cell for cell, _ in other} <= {f"offset=0.1,seed={seed}" for seed in (0, 1)}
    assert all("_at_prior" in metric for _, metric in other)
    for seed in (0, 1):
        cell = f"offset=0.1,seed={seed}"
        at_half = (mine[cell, "tpr"] + 1 - mine[cell, "fpr"]) / 2
        assert mine[cell, "accuracy_at_prior"] == pytest.approx(at_half)


def test_points_are_means_over_seeds(swept, ntmp_done):
    rows = [json.loads(line) for line in (swept / "results" / "rows.jsonl").read_text().splitlines()]
    points = json.loads((swept / "results" / "summary.json").read_text())
    assert {p["seeds"] for p in points if p["metric"].startswith("bag_")} == {0}  # no run scores bags
    for p in points:
        if p["metric"].startswith("bag_"):
            continue
        values = [r["value"] for r in rows if (r["offset"], r["metric"]) == (p["offset"], p["metric"])]
        assert (p["seeds"], p["planned"]) == (2, 2)
        assert p["mean"] == pytest.approx(sum(values) / 2)
        # t intervals of two values are wider than these, and cut off where the metric ends.
        assert max(0, p["low"]) <= min(values) + 1e-12
        assert p["high"] >= max(values) - 1e-12


def test_a_second_run_repeats_nothing(swept, ntmp_done):
    before = modified(swept)
    ended = ntmp_done(*PRIOR, "--out", swept)
    assert "0 cells trained, 4 unchanged, 0 failed" in ended.out
    assert "left out offset=-0.15: π̃ = 0.35" in ended.out
    assert "window none" in ended.out or "window [" in ended.out
    assert modified(swept) == before


def test_dry_run_lists_what_is_done_and_makes_nothing(swept, ntmp_done, tmp_path):
    before = modified(swept)
    listed = ntmp_done(*PRIOR, "--offset", 0.2, "--out", swept, "--dry-run", "--json").json
    assert (listed["total"], listed["done"]) == (6, 4)
    assert [cell["cell"] for cell in listed["cells"] if not cell["done"]] == ["offset=0.2,seed=0", "offset=0.2,seed=1"]
    assert modified(swept) == before
    fresh = ntmp_done(*PRIOR, "--out", tmp_path / "new", "--dry-run")
    assert "4 cells, 0 done, 4 to train" in fresh.out
    assert not (tmp_path / "new").exists()


def test_a_changed_or_lost_cell_alone_is_trained_again_with_the_same_bytes(swept, ntmp_done, tmp_path):
    out = tmp_path / "s"
    shutil.copytree(swept, out)
    shutil.rmtree(out / "cells" / "offset=0,seed=1")
    with (out / "cells" / "offset=0.1,seed=0" / "model.safetensors").open("r+b") as file:
        file.write(b"damage")
    result = ntmp_done(*PRIOR, "--jobs", 1, "--offset", 0.2, "--out", out, "--json").json
    assert (result["trained"], result["kept"]) == (4, 2)  # one lost, one damaged, two new
    before = contents(swept)
    after = contents(out)
    assert {name: after[name] for name in before if not name.startswith("results")} == {
        name: value for name, value in before.items() if not name.startswith("results")
    }
    # Back to the plan of before, trained by another number of processes: all bytes are the same.
    assert ntmp_done(*PRIOR, "--out", out, "--json").json["trained"] == 0
    results = {name: value for name, value in contents(out).items() if name.startswith("results")}
    assert results == {name: value for name, value in before.items() if name.startswith("results")}


def test_failed_cells_are_reported_with_their_logs_and_the_rest_is_published(ntmp, tmp_path):
    """One training diverges; tuples of the other prior cannot be drawn, for want of positives."""
    out = tmp_path / "s"
    words = ("sweep", "grid", *SMALL, "--set", "make_tuples.unlabeled_size=500", "--seed", 0, "--jobs", 1, "--out", out)
    words += ("--vary", "make_tuples.prior=[0.5,0.999]", "--vary", "train.lr=[0.01,1.0e+30]")
    ended = ntmp(*words, "--json")
    assert ended.code == 4  # that of the first cell that failed
    result = ended.json
    assert (result["complete"], result["trained"]) == (False, 1)
    names = ["prior=0.5,lr=1e+30,seed=0", "prior=0.999,lr=0.01,seed=0", "prior=0.999,lr=1e+30,seed=0"]
    assert [failed["cell"] for failed in result["failed"]] == names
    assert "error: 3 of 4 cells failed" in ended.err
    assert "prior=0.999,lr=0.01,seed=0 and 1 more: " in ended.err  # the same cause is told once
    for failed in result["failed"]:
        assert failed["message"] in ended.err
        assert failed["message"] in Path(failed["log"]).read_text()
        assert not (out / "cells" / failed["cell"]).exists()
    assert f"log: {result['failed'][0]['log']}" in ended.err
    summary = open_artifact(out / "results", "sweep").summary
    assert (summary.complete, summary.failed) == (False, tuple(names))
    assert [p["mean"] is None for p in result["points"] if p["metric"] == "ap"] == [False, True, True, True]
    listed = ntmp(*words, "--dry-run", "--json").json
    assert [cell["cell"] for cell in listed["cells"] if cell["done"]] == ["prior=0.5,lr=0.01,seed=0"]


def test_own_tuples_are_trained_on_with_several_seeds(ntmp_done, ntmp, tuples, tmp_path):
    words = ("sweep", "prior", "--tuples", tuples, "--prior", 0.5, "--offset", 0, "--seed", 0, "--seed", 1)
    words += ("--set", "train.method=discriminant", "--jobs", 1)
    result = ntmp_done(*words, "--judge", "macro_f1", "--out", tmp_path / "s", "--json").json
    assert (result["trained"], result["metric"]) == (2, "macro_f1")
    assert not (tmp_path / "s" / "tuples").exists()
    # Without test labels there is nothing to measure, and that is said before anything is trained.
    blind = tmp_path / "blind"
    shutil.copytree(tuples, blind)
    manifest = json.loads((blind / "manifest.json").read_text())
    manifest["files"] = [entry for entry in manifest["files"] if "test-labels" not in entry["path"]]
    manifest["summary"]["test_labels"] = False
    (blind / "manifest.json").write_text(json.dumps(manifest))
    ended = ntmp(*words[:2], "--tuples", blind, *words[4:], "--out", tmp_path / "b")
    assert ended.code == 3
    assert "holds no test labels" in ended.err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("prior",), 2, "prior: required, but not given (--prior)"),
        (("prior", "--prior", 0.35), 4, "itself lies within"),
        (("prior", "--prior", 0.5, "--metric", "app"), 2, "unknown metric 'app'; did you mean 'ap'"),
        (("prior", "--prior", 0.5, "--set", "train.method=urr"), 2, "unknown method 'urr'"),
        (("prior", "--prior", 0.5, "--set", "train.epoch=3"), 2, "epoch: unknown setting; did you mean 'epochs'"),
        (("prior", "--prior", 0.5, "--engine", "rey"), 2, "unknown engine 'rey'; did you mean 'ray'"),
        (("prior", "--prior", 0.5, "--offset", 0.1), 2, "0 must be among the offsets"),
        (("count-noise",), 2, "train with runs.count: prior: required"),
        (("gap", "--set", "make_tuples.tuples=3:5"), 2, "write tuple specs in quotes"),
        (("grid",), 2, "vary: required"),
        (("grid", "--vary", "train.lr"), 2, "expected KEY=VALUE"),
        (("grid", "--vary", "train.lr=0.1"), 2, "vary.train.lr"),
        (("prior", "--prior", 0.5, "--tuples", "nowhere"), 3, "nowhere: no such directory"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_runs(words, code, says, ntmp, tmp_path):
    ended = ntmp("sweep", *words, "--out", tmp_path / "s")
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert not (tmp_path / "s" / "cells").exists()


def test_two_sweeps_do_not_work_in_one_place(ntmp, tmp_path):
    with folder_lock(tmp_path / "s") as mine:
        assert mine
        ended = ntmp(*PRIOR, "--out", tmp_path / "s")
    assert ended.code == 2
    assert "another sweep is running in this folder" in ended.err


def test_without_ray_the_engine_says_what_to_install(ntmp, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    ended = ntmp(*PRIOR, "--engine", "ray", "--out", tmp_path / "s")
    assert ended.code == 2
    assert "--engine ray needs the package ray" in ended.err
    assert "pip install 'ntmp[ray]'" in ended.err


def test_a_sweep_that_is_stopped_continues_with_the_same_bytes(ntmp_done, waiting_training, tmp_path):
    """SIGTERM in mid-training: exit 130, its worker gone; a rerun ends as a training that was never stopped."""
    out = tmp_path / "s"
    words = ("sweep", "grid", *SMALL, "--set", "make_tuples.prior=0.5", "--set", "train.method=ure", "--seed", 0)
    words += ("--vary", "train.epochs=[1,20]", "--jobs", 1, "--out", out)
    command = [sys.executable, "-m", "ntmp_cli", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=waiting_training.environment
    ) as sweep:
        worker = waiting_training.process(sweep)
        sweep.send_signal(signal.SIGTERM)
        _, err = sweep.communicate()
    assert sweep.returncode == 130, err
    assert "interrupted; 1 of 2 cells are done" in err
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert not (out / "results").exists()
    assert (out / "cells" / ".epochs=20,seed=0.checkpoint" / "state.pt").exists()
    again = ntmp_done(*words, "--json").json
    assert (again["trained"], again["kept"]) == (1, 1)
    assert sorted(path.name for path in (out / "cells").iterdir()) == ["epochs=1,seed=0", "epochs=20,seed=0"]
    settings = ("--prior", 0.5, "--method", "ure", "--model", "linear", "--select", "last", "--epochs", 20)
    ntmp_done("train", "--tuples", out / "tuples" / "seed=0", *settings, "--out", tmp_path / "alone")
    assert open_artifact(tmp_path / "alone").sha256 == open_artifact(out / "cells" / "epochs=20,seed=0").sha256


def test_a_report_shows_the_figure_and_the_windows_of_a_sweep(swept, study, ntmp_done, tmp_path):
    results = open_artifact(swept / "results", "sweep")
    ntmp_done("report", study.evaluation, "--sweep", swept / "results", "--out", tmp_path / "r")
    assert (tmp_path / "r" / "sweep-1.svg").read_bytes() == results.file("sweep.svg").read_bytes()
    page = (tmp_path / "r" / "index.html").read_text()
    assert "Sweep of prior: 4 of 4 trainings, judged by" in page
    assert window_words(results.summary.windows[0].to_json()) in page
    assert results.sha256 in page
    assert [entry["kind"] for entry in open_artifact(tmp_path / "r").manifest.inputs] == ["evaluation", "sweep"]
