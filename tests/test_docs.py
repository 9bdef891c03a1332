"""Documentation that cannot go stale: the command reference, the README's commands, the sample configurations."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from ntmp_cli.app import run
from ntmp_cli.config import CountNoiseSweepConfig, GapSweepConfig, GridSweepConfig, PipelineConfig, PriorSweepConfig
from ntmp_cli.settings import load
from ntmp_cli.stages.pipeline import resolve
from ntmp_cli.stages.sweep import resolve as resolve_sweep

ROOT = Path(__file__).parents[1]


def test_command_reference_is_what_the_program_says() -> None:
    spec = importlib.util.spec_from_file_location("write_commands", ROOT / "docs" / "write_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text(encoding="utf-8") == module.render(), "run `make docs`"


def readme_commands() -> list[str]:
    """The `ntmp` lines of the README's section on the pipeline, in order."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The pipeline")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("ntmp ")]


def test_readme_pipeline_runs_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_configs").symlink_to(ROOT / "sample_configs")
    monkeypatch.chdir(tmp_path)
    commands = readme_commands()
    assert [shlex.split(line)[1] for line in commands] == [
        *("make-tuples", "inspect", "train", "train", "evaluate", "report", "run"),
    ]
    # As typed, but with less training: what is tested is that the words fit together.
    shorter = {"train": ["--epochs", "2"], "run": ["--set", "train.epochs=1", "--set", "seeds=[0]"]}
    for line in commands:
        _, command, *words = shlex.split(line.replace("--epochs 30 ", ""))
        expanded = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        assert run([command, *expanded, *shorter.get(command, [])]) == 0, line
    assert (tmp_path / "work" / "report" / "results.tex").is_file()
    assert (tmp_path / "work" / "quickstart" / "report" / "learning-curves.png").is_file()


SAMPLES = sorted((ROOT / "sample_configs").glob("*.yaml"))
SWEEPS = {
    "sweep-prior.yaml": PriorSweepConfig,
    "sweep-count-noise.yaml": CountNoiseSweepConfig,
    "sweep-gap.yaml": GapSweepConfig,
    "sweep-grid.yaml": GridSweepConfig,
}


@pytest.mark.parametrize("path", [path for path in SAMPLES if path.name not in SWEEPS], ids=lambda path: path.name)
def test_sample_configuration_is_valid(path: Path) -> None:
    study = resolve(load(PipelineConfig, path), str(path))
    assert study.trainings


@pytest.mark.parametrize("name", SWEEPS)
def test_sample_sweep_is_planned_as_its_first_lines_say(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROOT / "sample_configs" / name
    text = path.read_text(encoding="utf-8")
    (line,) = re.findall(r"^#   (ntmp sweep .*)$", text, flags=re.MULTILINE)
    (promised,) = re.findall(r"(\d+) trainings", text)
    assert len(resolve_sweep(load(SWEEPS[name], path)).cells) == int(promised)
    (tmp_path / "sample_configs").symlink_to(ROOT / "sample_configs")
    monkeypatch.chdir(tmp_path)
    assert run([*shlex.split(line)[1:], "--dry-run"]) == 0
    assert f"{promised} cells, 0 done" in capsys.readouterr().out
