"""Documentation that cannot go stale: the command reference, the README's commands, the sample configurations."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from ntmp_cli.app import run
from ntmp_cli.config import PipelineConfig, load
from ntmp_cli.stages.pipeline import resolve

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


@pytest.mark.parametrize("path", sorted((ROOT / "sample_configs").glob("*.yaml")), ids=lambda path: path.name)
def test_sample_configuration_is_valid(path: Path) -> None:
    study = resolve(load(PipelineConfig, path), str(path))
    assert study.trainings
