"""The commands of docs/guides/pipeline.md as a user types them, and the fields that scripts rely on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import statistics
from pathlib import Path

import pytest
from PIL import Image

from ntmp_cli import __version__
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.learning.method import methods
from ntmp_cli.settings import load
from ntmp_cli.stages.pipeline import resolve

SAMPLE_CONFIGS = Path(__file__).parents[2] / "sample_configs"
HEX = re.compile("[0-9a-f]{64}")


def sha256_of(path: Path) -> str:
    return open_artifact(path).sha256


def typed(ntmp, line: str):
    """A command line as a shell would pass it on: quotes and wildcards resolved."""
    program, *words = shlex.split(line)
    assert program == "ntmp"
    arguments = []
    for word in words:
        arguments += sorted(Path().glob(word)) if "*" in word else [word]
    return ntmp(*arguments)


# --- the contract -------------------------------------------------------------------------------


def test_the_pipeline_as_it_is_typed(ntmp_done, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in (
        "ntmp make-tuples --dataset digits --n 3 --m 1 --prior 0.5 --seed 0 --out work/tuples",
        "ntmp inspect work/tuples",
        "ntmp train --tuples work/tuples --prior 0.5 --method ure --clamp abs --epochs 2 --seed 0 --out work/run-abs-0",
        "ntmp train --tuples work/tuples --prior 0.5 --method ure --clamp none --epochs 1 --seed 0 "
        "--out work/run-ure-0",
        "ntmp evaluate work/run-*-* --reference ure+abs --out work/eval",
        "ntmp report work/eval --out work/report",
    ):
        assert typed(ntmp_done, line).out
    assert sorted(p.name for p in Path("work").iterdir()) == ["eval", "report", "run-abs-0", "run-ure-0", "tuples"]
    for path in Path("work").iterdir():
        open_artifact(path).verify()
    assert "ure+abs" in Path("work/report/results.md").read_text()
    assert open_artifact(Path("work/run-abs-0")).summary.model == "mlp"


def test_default_size_is_that_of_the_training_split(ntmp_done, tmp_path):
    made = ntmp_done("make-tuples", "--n", 3, "--m", 1, "--prior", 0.5, "--out", tmp_path / "t", "--json").json
    assert made["tuples"] == 479  # 1,437 training digits in threes
    assert made["strata"] == [{"n": 3, "m": 1, "rate": 1 / 3, "tuples": 479, "instances": 1437}]


def test_make_tuples_json(ntmp_done, tmp_path):
    out = tmp_path / "t"
    ended = ntmp_done(
        *("make-tuples", "--tuple", "3:1", "--tuple", "5:2@0.5", "--prior", 0.5, "--num-tuples", 60, "--json"),
        *("--out", out),
    )
    made = ended.json
    assert ended.out.count("\n") == 1
    assert made["kind"] == "tuples"
    assert made["out"] == str(out)
    assert made["manifest_sha256"] == sha256_of(out)
    assert made["tuples"] == 60
    assert [(s["n"], s["m"]) for s in made["strata"]] == [(3, 1), (5, 2)]
    assert sum(s["tuples"] for s in made["strata"]) == 60
    # √D/S₀ by its definition, over the strata and U.
    groups = [(s["instances"], s["rate"]) for s in made["strata"]] + [(made["unlabeled"], made["prior"])]
    s0, s1, s2 = (sum(n * rate**power for n, rate in groups) for power in range(3))
    assert made["effective_gap"] == pytest.approx((s0 * s2 - s1**2) ** 0.5 / s0, rel=1e-9)


def test_train_json(ntmp_done, tuples, tmp_path):
    out = tmp_path / "r"
    ended = ntmp_done(
        *("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 3, "--clamp", "abs"),
        *("--select", "last", "--json", "--out", out),
    )
    run = ended.json
    assert ended.out.count("\n") == 1
    assert (run["kind"], run["out"], run["manifest_sha256"]) == ("run", str(out), sha256_of(out))
    assert (run["method"], run["epochs"], run["selected_epoch"]) == ("ure+abs", 3, 3)
    assert [record["epoch"] for record in run["history"]] == [1, 2, 3]
    assert run["history"] == [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    for record in run["history"]:
        assert record.keys() >= {"loss", "risk_terms", "negative_rate", "heldout_risk", "batches", "skipped", "lr"}


def test_select_best_keeps_the_epoch_of_least_heldout_risk(ntmp_done, tuples, tmp_path):
    run = ntmp_done(
        *("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 4, "--lr", 0.5),
        *("--select", "best", "--json", "--out", tmp_path / "r"),
    ).json
    risks = [record["heldout_risk"] for record in run["history"]]
    assert run["selected_epoch"] == 1 + risks.index(min(risks))
    assert run["heldout_risk"] == min(risks)


def test_evaluate_json(ntmp_done, study, tmp_path):
    out = tmp_path / "e"
    ended = ntmp_done("evaluate", study.run_abs, study.run_none, "--reference", "ure+abs", "--json", "--out", out)
    evaluation = ended.json
    assert ended.out.count("\n") == 1
    assert (evaluation["kind"], evaluation["manifest_sha256"]) == ("evaluation", sha256_of(out))
    metrics = ntmp_done("list", "metrics", "--json").json["metrics"]
    # Neither run scores bags.
    assert len(evaluation["rows"]) == 2 * sum(not name.startswith("bag_") for name in metrics)
    for row in evaluation["rows"]:
        assert row.keys() >= {"dataset", "n", "m", "prior", "method", "seed", "metric", "value"}
        assert (row["dataset"], row["n"], row["m"], row["prior"], row["seed"]) == ("digits", 3, 1, 0.5, 0)
    assert {row["method"] for row in evaluation["rows"]} == {"ure", "ure+abs"}
    asked = {"ap", "auroc", "accuracy", "tpr", "fpr", "f1", "macro_f1"}
    assert {row["metric"] for row in evaluation["rows"]} >= asked
    values = {(row["method"], row["metric"]): row["value"] for row in evaluation["rows"]}
    assert {(g["method"], g["metric"]): g["mean"] for g in evaluation["summary"]} == values


def test_report_json(ntmp_done, study, tmp_path):
    out = tmp_path / "p"
    report = ntmp_done("report", study.evaluation, "--json", "--out", out).json
    assert (report["kind"], report["out"], report["manifest_sha256"]) == ("report", str(out), sha256_of(out))
    tables = ("accuracy-grid", "comparisons", "main-results", "results", "small-comparison")
    names = [f"{name}.{kind}" for name in tables for kind in ("csv", "md", "tex")]
    figures = ("accuracy-by-iteration", "learning-curves", "methods", "reliability")
    names += [f"{name}.{kind}" for name in figures for kind in ("png", "svg")]
    assert report["files"] == [str(out / name) for name in sorted([*names, "index.html", "words.md"])]
    assert all(Path(name).stat().st_size for name in report["files"])


def test_run_json(ntmp_done, tmp_path):
    result = ntmp_done(*QUICKSTART, "--out", tmp_path / "q", "--json").json
    assert (result["kind"], result["out"]) == ("pipeline", str(tmp_path / "q"))
    assert result["manifest_sha256"] == sha256_of(tmp_path / "q" / "report")
    for step in result["steps"]:
        assert step["manifest_sha256"] == sha256_of(tmp_path / "q" / step["step"])
        assert step["kind"] == open_artifact(tmp_path / "q" / step["step"]).kind


def test_every_result_names_its_kind_and_manifest(ntmp_done, study):
    for kind, path in study.every.items():
        result = ntmp_done("inspect", path, "--json").json
        assert result["kind"] == kind
        assert HEX.fullmatch(result["manifest_sha256"])


# --- what goes where ----------------------------------------------------------------------------


def test_results_go_to_stdout_and_progress_to_stderr(ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 2)
    for number, extra in enumerate(([], ["--json"])):
        ended = ntmp_done(*training, *extra, "--out", tmp_path / f"r{number}")
        assert re.search(r"(?m)^epoch 2/2 loss \d\.\d+ ", ended.err)
        for part in (r"held-out -?\d\.\d+", r"positive [+-]\d\.\d+", r"negative [+-]\d\.\d+", r"[\d,]+/s"):
            assert re.search(part, ended.err), part
        assert "epoch 2/2" not in ended.out
    assert ended.json["epochs"] == 2


def test_quiet_says_nothing_on_stderr(ntmp_done, tuples, tmp_path):
    ended = ntmp_done("--quiet", "train", "--tuples", tuples, "--prior", 0.6, "--epochs", 1, "--out", tmp_path / "r")
    assert ended.err == ""
    assert ended.out


def test_warnings_go_to_stderr_and_leave_the_json_alone(ntmp_done, tuples, tmp_path):
    training = ("train", "--tuples", tuples, "--prior", 0.6, "--model", "linear", "--epochs", 1)
    ended = ntmp_done(*training, "--json", "--out", tmp_path / "r")
    assert "warning: --prior 0.6 differs from the prior of the unlabeled pool 0.5\n" in ended.err
    assert ended.json["kind"] == "run"


@pytest.mark.slow
def test_a_wide_report_lists_its_files_one_per_line(ntmp_done, study, tmp_path):
    lines = ntmp_done("report", study.evaluation, "--out", tmp_path / "p", "--wide").out.splitlines()
    files = {str(path) for path in (tmp_path / "p").iterdir() if path.name != "manifest.json"}
    assert set(lines) >= files


# --- list and version ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("datasets", ["digits", "gaussians", "mnist", "fashion-mnist", "cifar10", "svhn", "npz", "folder"]),
        ("methods", ["ure"]),
        ("models", ["linear", "mlp", "resnet20", "convnet"]),
        ("metrics", ["ap", "auroc", "accuracy", "tpr", "fpr", "f1", "macro_f1"]),
        ("priors", ["moments"]),
        ("count-laws", ["exact", "off-by-one"]),
    ],
)
def test_list_names_every_choice_with_a_description(kind, names, ntmp_done):
    listed = ntmp_done("list", kind, "--json").json
    assert listed["kind"] == kind
    assert set(names) <= listed[kind].keys()
    assert all(listed[kind].values())
    shown = " ".join(ntmp_done("list", kind).out.split())
    for name, description in listed[kind].items():
        assert " ".join(f"{name} {description}".split()) in shown


def test_version(ntmp_done):
    assert ntmp_done("--version").out == f"ntmp {__version__}\n"


def test_without_a_command_the_help_is_shown(ntmp):
    ended = ntmp()
    assert ended.code == 2
    assert "Usage: ntmp [OPTIONS] COMMAND" in ended.out
    assert ended.err == ""


# --- inspect ------------------------------------------------------------------------------------


def test_inspect_shows_the_facts_of_tuples_before_settings_and_files(ntmp_done, study):
    shown = ntmp_done("inspect", study.tuples).out
    facts = ["digits, instances 1×8×8 uint8", "mean rate ᾱ", "prior π of U", "effective gap √D/S₀"]
    order = [*facts, "settings", "lineage (SHA-256)", "train/tuples-00000.h5", "all 10 files match their hashes"]
    places = [shown.find(text) for text in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)
    assert re.search(r"^3 +1 +0\.3333 +40 +120 *$", shown, re.MULTILINE)


@pytest.mark.parametrize("kind", ["run", "evaluation", "report"])
def test_inspect_shows_every_kind(kind, ntmp_done, study):
    path = study.every[kind]
    shown = ntmp_done("inspect", path).out
    assert re.search(rf"^kind +{kind}\b", shown, re.MULTILINE)
    assert "lineage (SHA-256)" in shown
    count = len(open_artifact(path).manifest.files)
    assert f"all {count} files match their hashes (ntmp {__version__})" in shown


@pytest.mark.parametrize("kind", ["tuples", "run", "evaluation", "report"])
def test_inspect_json_holds_the_whole_manifest(kind, ntmp_done, study):
    path = study.every[kind]
    shown = ntmp_done("inspect", path, "--json").json
    manifest = json.loads((path / "manifest.json").read_bytes())
    for field in ("kind", "config", "seed", "inputs", "files", "summary", "package_version", "format_version"):
        assert shown[field] == manifest[field]
    assert shown["verified"] is True
    assert shown["figure"] is None


def test_lineage_leads_from_the_report_back_to_the_tuples(study):
    report, evaluation, run, tuples = map(open_artifact, (study.report, study.evaluation, study.run_abs, study.tuples))
    assert report.manifest.inputs == ({"kind": "evaluation", "sha256": evaluation.sha256},)
    assert {"kind": "run", "sha256": run.sha256} in evaluation.manifest.inputs
    assert run.manifest.inputs == ({"kind": "tuples", "sha256": tuples.sha256},)
    assert [(i["kind"], i["name"]) for i in tuples.manifest.inputs] == [("dataset", "digits")]


def test_inspect_draws_a_montage_of_tuples(ntmp_done, study, tmp_path):
    figure = tmp_path / "new folder" / "tuples.png"
    shown = ntmp_done("inspect", study.tuples, "--figure", figure, "--json").json
    assert shown["figure"] == str(figure)
    with Image.open(figure) as image:
        assert image.format == "PNG"
        assert min(image.size) > 100
        assert len(image.convert("L").getcolors()) > 16  # sixteen gray values of a digit, and letters


@pytest.mark.parametrize("kind", ["run", "evaluation", "report"])
def test_a_montage_of_anything_but_tuples_is_refused(kind, ntmp, study, tmp_path):
    ended = ntmp("inspect", study.every[kind], "--figure", tmp_path / "x.png")
    assert ended.code == 2
    assert f"a montage needs a tuples directory of images, this is of kind '{kind}'" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_montage_of_feature_vectors_is_refused(ntmp, ntmp_done, tmp_path):
    data = "gaussians:size=200,test=20"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.5, "--num-tuples", 9, "--out", tmp_path / "t")
    ended = ntmp("inspect", tmp_path / "t", "--figure", tmp_path / "x.png")
    assert ended.code == 2
    assert "a montage needs a tuples directory of images, this is made of feature vectors" in ended.err
    assert "`ntmp explain" in ended.err
    assert not (tmp_path / "x.png").exists()


def test_a_montage_is_a_png_and_nothing_else(ntmp, study, tmp_path):
    ended = ntmp("inspect", study.tuples, "--figure", tmp_path / "x.pdf")
    assert ended.code == 2
    assert f"--figure {tmp_path}/x.pdf: the montage is a PNG file" in ended.err
    assert list(tmp_path.iterdir()) == []


# --- evaluate -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seed_1(ntmp_done, study, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("more") / "run-abs-1"
    ntmp_done(
        *("train", "--tuples", study.tuples, "--prior", 0.5, "--model", "linear", "--epochs", 2, "--seed", 1),
        *("--clamp", "abs", "--select", "last", "--out", out),
    )
    return out


def test_evaluate_groups_seeds_of_a_method(ntmp_done, study, seed_1, tmp_path):
    result = ntmp_done("evaluate", study.run_abs, seed_1, study.run_none, "--json", "--out", tmp_path / "e").json
    groups = {(group["method"], group["metric"]): group for group in result["summary"]}
    values = [row["value"] for row in result["rows"] if (row["method"], row["metric"]) == ("ure+abs", "ap")]
    assert len(values) == 2
    together = groups["ure+abs", "ap"]
    assert (together["seeds"], groups["ure", "ap"]["seeds"]) == (2, 1)
    assert together["mean"] == pytest.approx(statistics.mean(values))
    assert together["std"] == pytest.approx(statistics.stdev(values))
    assert groups["ure", "ap"]["std"] is None


def test_evaluate_tells_runs_of_other_settings_apart(ntmp_done, study, tmp_path):
    longer = ("train", "--tuples", study.tuples, "--prior", 0.5, "--model", "linear", "--epochs", 3)
    ntmp_done(*longer, "--clamp", "abs", "--select", "last", "--out", tmp_path / "longer")
    result = ntmp_done(
        "evaluate", study.run_abs, tmp_path / "longer", "--metric", "ap", "--json", "--out", tmp_path / "e"
    ).json
    assert [(g["variant"], g["seeds"]) for g in result["summary"]] == [("epochs=2", 1), ("epochs=3", 1)]


def test_evaluate_refuses_a_run_given_twice(ntmp, study, tmp_path):
    ended = ntmp("evaluate", study.run_abs, study.run_abs, "--out", tmp_path / "e")
    assert ended.code == 2
    assert "error: run run-abs-0 is given twice" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_evaluate_refuses_two_runs_of_the_same_seed(ntmp, study, tmp_path):
    shutil.copytree(study.run_abs, tmp_path / "copy")
    ended = ntmp("evaluate", study.run_abs, tmp_path / "copy", "--out", tmp_path / "e")
    assert ended.code == 2
    assert "runs run-abs-0 and copy are both seed 0 of ure+abs on digits 3:1 with prior 0.5" in ended.err
    assert not (tmp_path / "e").exists()


def test_a_run_carries_what_evaluation_needs_without_its_tuples(ntmp_done, study, tmp_path):
    shutil.copytree(study.run_abs, tmp_path / "elsewhere")
    alone = ntmp_done("evaluate", tmp_path / "elsewhere", "--json", "--out", tmp_path / "e").json
    beside = json.loads((study.evaluation / "summary.json").read_bytes())
    kept = [group for group in beside if group["method"] == "ure+abs"]
    assert [g["mean"] for g in alone["summary"]] == [g["mean"] for g in kept]


# --- run ----------------------------------------------------------------------------------------

SMALL = (
    "seeds=[0]",
    "make_tuples.num_tuples=30",
    "make_tuples.unlabeled_size=40",
    "train.model=linear",
    "train.epochs=1",
)
QUICKSTART = ("run", SAMPLE_CONFIGS / "quickstart.yaml", *(word for value in SMALL for word in ("--set", value)))
RUNS = ["runs/plain-0", "runs/relu-0", "runs/abs-0", "runs/count-0"]
STEPS = ["tuples-0", *RUNS, "evaluation", "report"]


@pytest.fixture(scope="module")
def quickstart(ntmp_done, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("study") / "quickstart"
    first = ntmp_done(*QUICKSTART, "--out", out, "--json")
    assert [(step["step"], step["skipped"]) for step in first.json["steps"]] == [(name, False) for name in STEPS]
    return out


def modified(out: Path) -> dict[str, int]:
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in out.rglob("*")}


def test_a_second_run_skips_everything(ntmp_done, quickstart):
    before = modified(quickstart)
    second = ntmp_done(*QUICKSTART, "--out", quickstart)
    assert "0 steps done, 7 unchanged" in second.out
    assert f"report: {quickstart}/report/index.html" in second.out
    assert second.err.splitlines() == [f"unchanged {name}" for name in STEPS]
    assert modified(quickstart) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "redone"),
    [
        ("report.title=Another", {"report"}),
        ("evaluate.metrics=[ap, accuracy]", {"evaluation", "report"}),
        ("runs.relu.clamp_scope=source", {"runs/relu-0", "evaluation", "report"}),
        pytest.param("train.epochs=2", {*RUNS, "evaluation", "report"}, marks=pytest.mark.slow),
        pytest.param("make_tuples.num_tuples=31", set(STEPS), marks=pytest.mark.slow),
    ],
)
def test_a_changed_setting_redoes_only_what_depends_on_it(change, redone, ntmp_done, quickstart, tmp_path):
    shutil.copytree(quickstart, tmp_path / "q")
    result = ntmp_done(*QUICKSTART, "--set", change, "--out", tmp_path / "q", "--json").json
    assert {step["step"] for step in result["steps"] if not step["skipped"]} == redone
    for step in result["steps"]:
        open_artifact(tmp_path / "q" / step["step"]).verify()
    again = ntmp_done(*QUICKSTART, "--set", change, "--out", tmp_path / "q", "--json").json
    assert all(step["skipped"] for step in again["steps"])


def test_a_removed_step_is_made_again_and_the_rest_is_kept(ntmp_done, quickstart, tmp_path):
    shutil.copytree(quickstart, tmp_path / "q")
    shutil.rmtree(tmp_path / "q" / "runs" / "relu-0")
    result = ntmp_done(*QUICKSTART, "--out", tmp_path / "q", "--json").json
    # The same bytes come back, so nothing that depends on them is stale.
    assert {step["step"] for step in result["steps"] if not step["skipped"]} == {"runs/relu-0"}


def test_the_quickstart_has_three_seeds_of_four_methods():
    file = SAMPLE_CONFIGS / "quickstart.yaml"
    study = resolve(load(PipelineConfig, file), str(file))
    assert len(study.tuples) == 3
    labels = {key: methods.get(config.method).label(config) for key, config in study.trainings.items()}
    expected = {"plain": "ure", "relu": "ure+relu", "abs": "ure+abs", "count": "count"}
    assert labels == {(name, str(seed)): label for name, label in expected.items() for seed in range(3)}
