"""The files of sample_configs/paper: every one is valid and says how large it is; some are run with one epoch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.paper_smoke import command_of, files, smoke, stand_ins
from ntmp_cli.config.studies import CountNoiseSweepConfig, GapSweepConfig, PipelineConfig, PriorSweepConfig
from ntmp_cli.settings import load
from ntmp_cli.stages.pipeline import resolve
from ntmp_cli.stages.sweep import resolve as resolve_sweep

SWEEPS = {"prior": PriorSweepConfig, "count-noise": CountNoiseSweepConfig, "gap": GapSweepConfig}
PAPER_COLUMNS = ("ure+abs/source", "ure+relu/source", "ure", "uucor", "uu", "kmeans", "kmeans++")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NTMP_DATA", raising=False)
        return stand_ins(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_a_file_names_its_command_and_its_number_of_trainings(file: Path) -> None:
    words = command_of(file)
    if words[0] == "run":
        trainings = len(resolve(load(PipelineConfig, file), str(file)).trainings)
    else:
        trainings = len(resolve_sweep(load(SWEEPS[words[1]], file)).cells)
    promised = re.findall(r"(\d+)\s+(?:# )?trainings", file.read_text(encoding="utf-8"))
    assert promised == [str(trainings)]


@pytest.mark.parametrize("file", [file for file in files() if "-ours" not in file.stem], ids=lambda file: file.stem)
def test_the_literal_files_follow_the_paper_and_have_a_twin_with_our_recipe(file: Path) -> None:
    assert file.with_stem(f"{file.stem}-ours") in files()
    words = command_of(file)
    if words[0] == "run":
        study = resolve(load(PipelineConfig, file), str(file))
        pairs = [(training, study.tuples[cell].dataset) for (_, cell), training in study.trainings.items()]
    else:
        pairs = [
            (cell.training, cell.tuples.dataset)
            for cell in resolve_sweep(load(SWEEPS[words[1]], file)).cells
            if cell.tuples
        ]
    for training, dataset in pairs:
        colour = dataset in ("cifar10", "svhn")
        assert (training.lr, training.model) == ((5e-4, "resnet20") if colour else (1e-4, "auto"))
        assert (training.epochs, training.select, training.ema, training.schedule) == (100, "last", 0.0, "constant")
        assert (training.optimizer, training.weight_decay) == ("adam", 0.0)
        if training.method == "ure" and training.settings.clamp != "none":  # type: ignore[attr-defined]
            assert training.settings.clamp_scope == "source"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_accuracy_table_has_the_columns_of_the_paper_in_its_order(data: Path, tmp_path: Path) -> None:
    (file,) = (file for file in files() if file.stem == "accuracy-5-2")
    small = ("vary.make_tuples.dataset=[mnist]", "vary.make_tuples.prior=[0.5]")
    report = smoke(file, tmp_path / "out", data, settings=small)
    header, line = (report / "accuracy-grid.csv").read_text(encoding="utf-8").splitlines()
    columns = [name.removesuffix(" mean") for name in header.split(",") if name.endswith(" mean")]
    assert columns == list(PAPER_COLUMNS)
    assert float(dict(zip(header.split(","), line.split(","), strict=True))["gap"]) == pytest.approx(0.1)
    values = dict(zip(header.split(","), line.split(","), strict=True))
    # With one (n, m) the objectives of `uu` and `ure` are the same.
    assert values["uu mean"] == values["ure mean"]


@pytest.mark.slow
def test_the_figure_of_the_gap_has_several_tuples_on_one_axis_and_its_tests(data: Path, tmp_path: Path) -> None:
    (file,) = (file for file in files() if file.stem == "figure-delta")
    small = ('tuples=["3:1","5:2"]', "priors=[0.2,0.8]")
    results = smoke(file, tmp_path / "out", data, seeds=(0,), settings=small)
    tests = json.loads((results / "tests.json").read_text(encoding="utf-8"))
    assert [(row["run"], row["reference"], row["scope"]) for row in tests] == [
        *[("abs", "ure", "point")] * 4,
        ("abs", "ure", "overall"),
    ]
    svg = (results / "sweep.svg").read_text(encoding="utf-8")
    assert svg.count('<g id="axes_') == 4
    for label in ("abs 3:1, π &lt; ᾱ", "ure 5:2, π &gt; ᾱ", "std of ap over seeds"):
        assert f"<!-- {label} -->" in svg
    assert "Data: mnist." in json.loads((results / "manifest.json").read_text(encoding="utf-8"))["summary"]["caption"]


# Every third one: `make paper-smoke` runs all of them.
@pytest.mark.slow
@pytest.mark.parametrize("file", files()[::3], ids=lambda file: file.stem)
def test_a_file_runs(file: Path, data: Path, tmp_path: Path) -> None:
    made = smoke(file, tmp_path / "out", data)
    figures = {"figure-measure": "metrics-against-prior", "figure-compared": "accuracy-by-iteration"}
    name = "sweep" if made.name == "results" else figures.get(file.stem.removesuffix("-ours"), "methods")
    assert (made / f"{name}.png").is_file()
