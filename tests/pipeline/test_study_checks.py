"""What `ntmp run` finds out before it starts, and what it mends by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ntmp_cli.app import run
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.stages.pipeline import resolve

pytestmark = pytest.mark.slow  # whole studies

STUDY = """
seeds: [0]
make_tuples: {{dataset: gaussians, tuples: ["3:1"], prior: 0.8, num_tuples: 60, unlabeled_size: 60}}
train: {{model: linear, epochs: 1, trace_every: {trace_every}}}
runs:
  relu: {{clamp: relu}}
{rest}
"""


def study(folder: Path, rest: str = "", trace_every: int = 1) -> list[str]:
    file = folder / "study.yaml"
    file.write_text(STUDY.format(rest=rest, trace_every=trace_every), encoding="utf-8")
    return ["run", str(file), "--out", str(folder / "out")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("report: {metrics: [acuracy]}", "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ("report: {compare: paper}", "report.compare: paper: the paper has no results on these data"),
        ("evaluate: {metrics: [apx]}", "unknown metric 'apx'"),
        ("evaluate: {reference: ure+abs}", "no run is of method 'ure+abs'; choose from: ure+relu"),
        ("  other: {model: lienar}", "unknown model 'lienar'; did you mean 'linear'?"),
        ("  other: {method: uer}", "unknown method 'uer'; did you mean 'ure'?"),
        ("train_on: {minst: {lr: 0.1}}", "unknown dataset 'minst'; did you mean 'mnist'?"),
        ("train_on: {gaussians: {seed: 1}}", "train_on.gaussians.seed: seeds are given once"),
        ("vary: {make_tuples: {seed: [1, 2]}}", "vary.make_tuples.seed: seeds are given once"),
        ("vary: {make_tuples: {prior: [0.2, 0.2]}}", "vary.make_tuples.prior: needs at least one value, and each"),
        ("vary: {make_tuples: {prior: [0.2, 1.5]}}", "make_tuples, prior 1.5: prior: input should be less than 1"),
        ("vary: {train: {lr: [0.1]}}", "vary.train"),
    ],
)
def test_a_misspelt_name_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str, message: str
) -> None:
    assert run(study(tmp_path, wrong)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


VARIED = """
vary:
  make_tuples:
    dataset: [gaussians, digits]
    prior: [0.2, 0.8]
train_on:
  digits: {lr: 0.5, clamp_scope: source}
"""


def test_a_study_crosses_what_varies_and_trains_each_data_set_with_its_own_settings(tmp_path: Path) -> None:
    command = [*study(tmp_path, f"  left-out: {{clamp: abs}}\n{VARIED}"), "--set", "runs.left-out=null"]
    assert run(command) == 0
    out = tmp_path / "out"
    names = [f"dataset={name},prior={prior}-0" for name in ("digits", "gaussians") for prior in (0.2, 0.8)]
    assert sorted(path.name for path in out.glob("tuples-*")) == [f"tuples-{name}" for name in names]
    configs = {path.name: json.loads((path / "manifest.json").read_text())["config"] for path in out.glob("runs/*")}
    assert sorted(configs) == [f"relu-{name}" for name in names]
    for name, config in configs.items():
        own = (0.5, "source") if "digits" in name else (0.001, "class")
        assert (config["lr"], config["clamp_scope"]) == own
        assert f"prior={config['prior']:g}" in name
    rows = [json.loads(line) for line in (out / "evaluation" / "rows.jsonl").read_text().splitlines()]
    assert {(row["dataset"], row["prior"]) for row in rows} == {
        (d, p) for d in ("digits", "gaussians") for p in (0.2, 0.8)
    }


def test_a_study_that_names_no_seeds_has_the_papers_five() -> None:
    study = resolve(PipelineConfig(make_tuples={"prior": 0.5}, runs={"only": {"method": "ure"}}), "study.yaml")
    assert list(study.tuples) == [seed for _, seed in study.trainings] == ["0", "1", "2", "3", "4"]


def test_a_run_of_count_may_estimate_its_prior_and_a_run_of_another_method_may_not() -> None:
    def runs(method: str) -> PipelineConfig:
        groups = {"known": {}, "estimated": {"method": method, "prior": "estimate"}}
        return PipelineConfig(make_tuples={"prior": 0.5}, seeds=(0,), runs=groups, estimate_prior={})

    trainings = resolve(runs("count"), "study.yaml").trainings
    assert trainings["estimated", "0"].prior == "estimate"
    with pytest.raises(UsageError, match=r"runs\.estimated: prior: only the method 'count' estimates it") as refused:
        resolve(runs("ure"), "study.yaml")
    assert "`estimate_prior: {}`" in (refused.value.hint or "")


@pytest.mark.parametrize(("beside", "warned"), [("  relu: {{clamp: relu}}", False), ("", True)])
def test_settings_of_all_runs_are_missed_only_where_no_run_uses_them(
    beside: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The paper's tables have K-means beside networks, whose learning rate it does not need."""
    text = STUDY.replace("  relu: {{clamp: relu}}", beside).format(rest="  km: {method: kmeans}", trace_every=1)
    file = tmp_path / "study.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["run", str(file), "--out", str(tmp_path / "out")]) == 0
    assert ("kmeans is computed at once and does not use --epochs, --trace-every" in capsys.readouterr().err) == warned


def test_a_setting_of_its_own_that_has_no_effect_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study(tmp_path, "  km: {method: kmeans, epochs: 2, lr: 0.1}")) == 0
    assert "kmeans is computed at once and does not use --epochs, --lr\n" in capsys.readouterr().err


def test_a_bare_tuple_spec_in_yaml_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("make_tuples: {tuples: [3:1]}\nruns: {a: {prior: 0.5}}\n", encoding="utf-8")
    assert run(["run", str(file), "--out", str(tmp_path / "out")]) == 2
    assert 'write tuple specs in quotes, as in ["3:1"]' in capsys.readouterr().err


def test_a_damaged_step_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study(tmp_path)) == 0
    history = tmp_path / "out" / "runs" / "relu-0" / "history.jsonl"
    before = history.read_bytes()
    history.write_bytes(before[:-10])
    capsys.readouterr()
    assert run([*study(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert "history.jsonl: truncated" in printed.err
    assert [step["step"] for step in json.loads(printed.out)["steps"] if not step["skipped"]] == ["runs/relu-0"]
    assert history.read_bytes() == before


def test_a_file_that_somebody_added_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study(tmp_path)) == 0
    notes = tmp_path / "out" / "runs" / "relu-0" / "notes.txt"
    notes.write_text("mine", encoding="utf-8")
    assert run(study(tmp_path)) == 3
    assert "holds files that the manifest does not list: notes.txt" in capsys.readouterr().err
    assert notes.read_text(encoding="utf-8") == "mine"


def test_a_run_without_a_trace_has_no_accuracy_curve(tmp_path: Path) -> None:
    assert run(study(tmp_path, trace_every=0)) == 0
    curve = json.loads((tmp_path / "out" / "evaluation" / "curves.jsonl").read_text(encoding="utf-8"))
    assert curve["accuracy"] == []


def test_an_output_below_a_file_is_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["make-tuples", "--out", str(tmp_path / "file" / "tuples")]) == 2
    assert f"because {tmp_path / 'file'} is a file" in capsys.readouterr().err
