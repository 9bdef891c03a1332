"""What `evaluate` says about several runs: comparisons, calibration, and which runs it never puts together."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logit
from sklearn.metrics import brier_score_loss

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.oracle import read_oracle
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.evaluation.calibration import temperature_by_counts, temperature_by_labels

TUPLES = ("--dataset", "digits", "--tuple", "3:1", "--prior", 0.3, "--num-tuples", 60, "--unlabeled-size", 80)
TUPLES_ELSEWHERE = tuple(0.8 if word == 0.3 else word for word in TUPLES)
HELDOUT = ("--heldout-share", 0.3)
TRAINING = ("--prior", 0.3, "--model", "linear", "--epochs", 2, "--select", "last")


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="ascii").splitlines()]


@pytest.fixture(scope="module")
def runs(ntmp_done, tmp_path_factory) -> Path:
    """Three seeds of two methods, one of them also once more on tuples of fewer instances."""
    folder = tmp_path_factory.mktemp("statistics")
    for seed in range(3):
        ntmp_done("make-tuples", *TUPLES, *HELDOUT, "--seed", seed, "--out", folder / f"tuples-{seed}")
        for method in ("ure", "discriminant"):
            out = folder / f"run-{method}-{seed}"
            trained = ("train", "--tuples", folder / f"tuples-{seed}", "--method", method, "--seed", seed)
            ntmp_done(*trained, *TRAINING, "--out", out)
    return folder


@pytest.fixture(scope="module")
def evaluation(runs, ntmp_done) -> Path:
    ntmp_done("evaluate", *sorted(runs.glob("run-*")), "--reference", "discriminant", "--out", runs / "eval")
    return runs / "eval"


def test_comparisons_are_in_the_json_and_on_disk(runs, evaluation, ntmp_done, tmp_path):
    options = ("--reference", "discriminant", "--metric", "ap", "--json", "--out", tmp_path / "e")
    result = ntmp_done("evaluate", *sorted(runs.glob("run-*")), *options).json
    (comparison,) = result["comparisons"]
    assert comparison in [{**row, "family_size": 1} for row in lines(evaluation, "comparisons.jsonl")]
    assert (comparison["method"], comparison["reference"], comparison["pairs"], comparison["missing"]) == (
        *("ure+relu", "discriminant", 3),
        [],
    )
    values = {(row["method"], row["seed"]): row["value"] for row in result["rows"]}
    differences = [values["ure+relu", seed] - values["discriminant", seed] for seed in range(3)]
    assert comparison["difference"] == pytest.approx(np.mean(differences))
    assert comparison["smallest_p"] == 0.25
    assert {row["method"]: row["mean_rank"] for row in result["rankings"]}.keys() == {"ure+relu", "discriminant"}
    for group in result["summary"]:
        assert group["ci_low"] <= group["mean"] <= group["ci_high"]


def test_a_run_without_its_partner_is_named(runs, ntmp_done, tmp_path):
    chosen = [path for path in sorted(runs.glob("run-*")) if path.name != "run-ure-1"]
    options = ("--reference", "discriminant", "--metric", "ap", "--out", tmp_path / "e")
    result = ntmp_done("evaluate", *chosen, *options, "--json").json
    (comparison,) = result["comparisons"]
    assert (comparison["pairs"], comparison["missing"]) == (2, ["seed 1: no run of ure+relu"])
    ended = ntmp_done("evaluate", *chosen, *options, "--if-exists", "overwrite", "--wide")
    assert "2 paired seeds; two seeds cannot prove it." in ended.out
    assert "Missing pairs: ure+relu seed 1: no run of ure+relu" in " ".join(ended.out.split())


def test_runs_on_data_without_the_reference_are_named(runs, ntmp_done, tmp_path):
    elsewhere = tmp_path / "t"
    ntmp_done("make-tuples", *TUPLES_ELSEWHERE, "--out", elsewhere)
    ntmp_done("train", "--tuples", elsewhere, "--method", "ure", *TRAINING, "--out", tmp_path / "alone")
    given = [*sorted(runs.glob("run-*")), tmp_path / "alone"]
    ended = ntmp_done("evaluate", *given, "--reference", "discriminant", "--json", "--out", tmp_path / "e")
    assert "--reference discriminant: it has no run on the data and prior of these" in ended.err
    assert "which are not compared: ure+relu (digits 3:1" in ended.err


def test_without_a_reference_the_first_run_given_is_it(runs, ntmp_done, tmp_path):
    for first in ("discriminant", "ure"):
        given = sorted(runs.glob("run-*"), key=lambda path: first not in path.name)
        ended = ntmp_done("evaluate", *given, "--metric", "ap", "--json", "--out", tmp_path / first)
        (comparison,) = ended.json["comparisons"]
        reference = {"ure": "ure+relu"}.get(first, first)
        assert comparison["reference"] == ended.json["reference"] == reference
        assert (comparison["pairs"], comparison["p_holm"] is None, comparison["cliff"] is None) == (3, False, False)
        assert f"compared with {reference}, because no --reference is given" in ended.err


def test_one_method_has_nothing_to_be_compared_with(runs, ntmp_done, tmp_path):
    alone = sorted(runs.glob("run-ure-*"))
    result = ntmp_done("evaluate", *alone, "--json", "--out", tmp_path / "e").json
    assert (result["reference"], result["comparisons"]) == (None, [])
    ended = ntmp_done("evaluate", *alone, "--reference", "ure+relu", "--json", "--out", tmp_path / "f")
    assert "nothing to compare, because there is no other method" in ended.err


@pytest.mark.slow
def test_a_variant_is_named_as_the_tables_show_it(runs, ntmp, ntmp_done, tmp_path):
    for seed in range(3):
        training = ("train", "--tuples", runs / f"tuples-{seed}", "--method", "ure", "--seed", seed)
        ntmp_done(*training, *TRAINING, "--lr", 0.01, "--out", tmp_path / f"run-{seed}")
    given = [*sorted(runs.glob("run-ure-*")), *sorted(tmp_path.glob("run-*"))]
    options = ("--metric", "ap", "--json", "--out")
    result = ntmp_done("evaluate", *given, "--reference", "ure+relu lr=0.01", *options, tmp_path / "e").json
    (comparison,) = result["comparisons"]
    assert (comparison["variant"], comparison["reference_variant"], comparison["pairs"]) == ("lr=0.001", "lr=0.01", 3)
    ntmp_done("report", tmp_path / "e", "--out", tmp_path / "r")
    assert "every method minus ure+relu lr=0.01 on the same seeds" in (tmp_path / "r" / "comparisons.md").read_text()
    ended = ntmp_done("evaluate", *given, "--reference", "ure+relu", *options, tmp_path / "f")
    assert ended.json["comparisons"] == []
    assert "name one of its variants: 'ure+relu lr=0.001', 'ure+relu lr=0.01'" in ended.err
    by_default = ntmp_done("evaluate", *given, *options, tmp_path / "g").json
    assert (by_default["reference"], len(by_default["comparisons"])) == ("ure+relu lr=0.001", 1)
    ended = ntmp("evaluate", *given, "--reference", "ure+relu lr=0.02", *options, tmp_path / "h")
    assert (ended.code, "did you mean 'ure+relu lr=0.01'" in ended.err) == (2, True)


def test_tables_show_the_statistics_and_how_small_p_can_get(evaluation, ntmp_done, tmp_path):
    ntmp_done("report", evaluation, "--out", tmp_path / "r")
    for name, words in {
        "results.md": ("p (Holm)", "95 % CI of the difference", "Cliff's δ", "0.25 with 3 pairs"),
        "results.tex": ("p (Holm)", r"95 \% CI of the difference", r"Cliff's $\delta$", "0.25 with 3 pairs"),
        "results.csv": ("accuracy_p_holm", "accuracy_cliff_low", "accuracy_ci_low", "accuracy_difference_high"),
    }.items():
        text = (tmp_path / "r" / name).read_text(encoding="utf-8")
        assert all(word in text for word in words), name
    assert (tmp_path / "r" / "reliability.svg").stat().st_size > 0


# --- calibration --------------------------------------------------------------------------------


def test_temperatures_are_fitted_to_the_heldout_labels_and_counts(runs, evaluation):
    temperatures = {(row["run"], row["by"]): row for row in lines(evaluation, "temperatures.jsonl")}
    assert len(temperatures) == 12
    for seed in range(3):
        run = open_artifact(runs / f"run-discriminant-{seed}")
        scores = {name: values.astype(float) for name, values in read_scores(run).items()}
        tuples = open_artifact(runs / f"tuples-{seed}")
        labels = read_oracle(tuples, "oracle/heldout-unlabeled.h5")["labels"].astype(bool)
        by_labels = temperature_by_labels(scores["heldout_unlabeled"], labels)
        sizes, counts = (scores[f"heldout_{name}"].astype(int) for name in ("sizes", "counts"))
        by_counts = temperature_by_counts(scores["heldout_tuples"], sizes, counts, logit(0.3) - logit(1 / 3))
        for by, fit in (("labels", by_labels), ("counts", by_counts)):
            row = temperatures[f"run-discriminant-{seed}", by]
            assert row["temperature"] == pytest.approx(fit.value)
            assert row["fit"] == fit.fit
            assert row["heldout_nll"] <= row["heldout_nll_unscaled"]


def test_calibration_metrics_are_those_of_the_test_scores(runs, evaluation):
    rows = {(row["run"], row["metric"]): row["value"] for row in lines(evaluation, "rows.jsonl")}
    run = open_artifact(runs / "run-discriminant-0")
    z = read_scores(run)["test"].astype(float)
    labels = read_oracle(run, "oracle/test-labels.h5")["labels"].astype(bool)
    for metric, temperature in (("brier", 1.0), ("brier_scaled_labels", rows[run.path.name, "temperature_labels"])):
        expected = brier_score_loss(labels, 1 / (1 + np.exp(-z / temperature)))
        assert rows[run.path.name, metric] == pytest.approx(expected)


def test_reliability_holds_the_bins_behind_the_errors(evaluation):
    rows = {(row["run"], row["metric"]): row["value"] for row in lines(evaluation, "rows.jsonl")}
    diagrams = lines(evaluation, "reliability.jsonl")
    assert len(diagrams) == 6 * 3 * 2
    for row in diagrams:
        suffix = "" if row["scaling"] == "none" else f"_scaled_{row['scaling']}"
        suffix = ("_at_prior" if row["weighting"] == "at prior" else "") + suffix
        bins = [bin for bin in zip(row["mass"], row["confidence"], row["frequency"], strict=True) if bin[0]]
        error = math.fsum(mass * abs(confidence - frequency) for mass, confidence, frequency in bins)
        assert error == pytest.approx(rows[row["run"], f"ece{suffix}"])
        terms = row["brier"]
        total = terms["reliability"] - terms["resolution"] + terms["uncertainty"] + terms["within"]
        assert total == pytest.approx(rows[row["run"], f"brier{suffix}"])


@pytest.mark.slow
def test_without_heldout_data_what_needs_it_is_undefined(ntmp_done, tmp_path):
    ntmp_done("make-tuples", *TUPLES, "--heldout-share", 0, "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--clamp", "abs", *TRAINING, "--out", tmp_path / "r")
    ntmp_done("evaluate", tmp_path / "r", "--out", tmp_path / "e")
    values = {row["metric"]: row["value"] for row in lines(tmp_path / "e", "rows.jsonl")}
    assert {name for name, value in values.items() if value is None} >= {
        *("temperature_labels", "temperature_counts", "ece_scaled_labels", "nll_at_prior_scaled_counts"),
    }
    assert values["ece"] is not None
    assert {row["fit"] for row in lines(tmp_path / "e", "temperatures.jsonl")} == {"no held-out data"}
    ntmp_done("report", tmp_path / "e", "--out", tmp_path / "p")


def test_a_run_without_heldout_labels_is_calibrated_by_counts_alone(runs, ntmp_done, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "run-ure-0", run)
    (run / "oracle" / "heldout-unlabeled.h5").unlink()
    manifest = json.loads((run / "manifest.json").read_bytes())
    manifest["files"] = [entry for entry in manifest["files"] if "heldout" not in entry["path"]]
    (run / "manifest.json").write_text(json.dumps(manifest))
    ntmp_done("evaluate", run, runs / "run-discriminant-0", "--out", tmp_path / "e")
    fits = {row["by"]: row["fit"] for row in lines(tmp_path / "e", "temperatures.jsonl") if row["run"] == "run"}
    assert fits["labels"] == "no labels"
    assert fits["counts"] != "no labels"


# --- what is never put together -----------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(runs, ntmp_done) -> Path:
    """A method on tuples that only their settings tell from the others: other classes are positive."""
    made = ("make-tuples", *TUPLES, *HELDOUT, "--positive", 0, "--positive", 1, "--positive", 2, "--positive", 3)
    ntmp_done(*made, "--out", runs / "other-tuples")
    trained = ("train", "--tuples", runs / "other-tuples", "--method", "kmeans", "--prior", 0.3, "--select", "last")
    ntmp_done(*trained, "--out", runs / "other-run")
    return runs / "other-run"


def test_runs_on_different_tuples_are_in_different_cells(runs, elsewhere, ntmp_done, tmp_path):
    chosen = [runs / "run-ure-0", runs / "run-discriminant-0", elsewhere]
    result = ntmp_done(
        "evaluate", *chosen, "--reference", "discriminant", "--metric", "ap", "--json", "--out", tmp_path / "e"
    ).json
    cells = {group["method"]: group["tuples"] for group in result["summary"]}
    assert cells["ure+relu"] == cells["discriminant"] != cells["kmeans"]
    assert cells["kmeans"].startswith("3:1 [positive=0+1+2+3,test=")
    pairs = {row["method"]: (row["pairs"], row["missing"]) for row in result["comparisons"] if row["scope"] == "cell"}
    assert pairs == {"ure+relu": (1, []), "kmeans": (0, ["seed 0: no run of discriminant"])}
    assert {group["variant"] for group in result["summary"]} == {""}


def test_runs_that_claim_the_same_tuples_but_saw_others_are_refused(runs, ntmp, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(runs / "run-ure-0", changed)
    manifest = json.loads((changed / "manifest.json").read_bytes())
    manifest["inputs"][0]["sha256"] = "0" * 64
    manifest["summary"]["tuples_content"] = "1" * 64
    (changed / "manifest.json").write_text(json.dumps(manifest))
    ended = ntmp("evaluate", runs / "run-discriminant-0", changed, "--out", tmp_path / "e")
    assert ended.code == 2
    assert (
        "error: runs run-discriminant-0 and changed name the same tuples (digits 3:1, seed 0) but were trained on "
        "different ones\nTrain both on the same directory, or evaluate them apart.\n"
    ) in ended.err
    assert not (tmp_path / "e").exists()
    # The same files under another manifest, as another version would write it, are the same tuples.
    manifest["summary"]["tuples_content"] = open_artifact(runs / "run-ure-0").summary.tuples_content
    (changed / "manifest.json").write_text(json.dumps(manifest))
    assert ntmp("evaluate", runs / "run-discriminant-0", changed, "--out", tmp_path / "e").code == 0


def test_a_run_and_something_else_are_refused(runs, evaluation, ntmp, tmp_path):
    ended = ntmp("evaluate", runs / "run-ure-0", evaluation, "--out", tmp_path / "e")
    assert ended.code == 3
    assert "eval: expected kind 'run', found 'evaluation'\n" in ended.err


def test_evaluate_needs_no_torch(runs, tmp_path):
    code = (
        "import sys; from ntmp_cli.app import run\n"
        f"run(['evaluate', {str(runs / 'run-ure-0')!r}, '--out', {str(tmp_path / 'e')!r}])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
    assert (tmp_path / "e" / "manifest.json").is_file()
