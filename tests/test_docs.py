"""The documentation matches the program: command reference, README, guides, links, sample configurations."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ntmp_cli import __version__
from ntmp_cli.app import app, run
from ntmp_cli.config.studies import (
    CountNoiseSweepConfig,
    GapSweepConfig,
    GridSweepConfig,
    PipelineConfig,
    PriorSweepConfig,
)
from ntmp_cli.settings import load
from ntmp_cli.stages.pipeline import resolve
from ntmp_cli.stages.sweep import resolve as resolve_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_readme = script("write_readme")


def test_command_reference_is_what_the_program_says() -> None:
    module = script("write_commands")
    assert module.TARGET.read_text(encoding="utf-8") == module.render(), "run `make docs`"


def test_python_reference_is_what_the_docstrings_say() -> None:
    module = script("write_api")
    assert module.TARGET.read_text(encoding="utf-8") == module.render(), "run `make docs`"


# --- the README ---------------------------------------------------------------------------------


def test_readme_has_at_most_1000_words() -> None:
    assert len(README.split()) <= 1000


def first_words(output: str) -> list[str]:
    """The first column of each line; it ends at two spaces."""
    return [re.split(r"\s{2,}", line)[0] for line in output.splitlines()]


def printed_by(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a line of the README prints. Its only shell syntax: `| tail -n N`, and `> /dev/null` for no output."""
    command, _, kept = line.removesuffix(" > /dev/null").partition(" | tail -n ")
    assert not re.search("[|>&;*$]", command)
    assert run(shlex.split(command)[1:]) == 0, line
    output = capsys.readouterr().out.strip("\n").splitlines()
    return "" if line.endswith(" > /dev/null") else "\n".join(output[-int(kept or 0) :])


@pytest.mark.slow
def test_readme_commands_run_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With less training: sampled tuples and layouts are those of the README, scores are not."""
    typed, shown = write_readme.shell_commands(README), write_readme.shell_outputs(README)
    assert [line.split()[1] for line in typed] == ["make-tuples", "train", "train", "train", "evaluate", "report"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shorter = [line.replace("ntmp train ", "ntmp train --epochs 2 ") for line in typed]
    printed = [printed_by(line, capsys) for line in shorter]
    assert (printed[0], printed[-1]) == (shown[0], shown[-1]), "run `make docs`"
    assert first_words(printed[1]) == first_words(shown[1]), "run `make docs`"
    table = {"method", "count", "ure+relu", "supervised"}
    assert table <= set(first_words(printed[4]))
    assert table <= set(first_words(shown[4]))
    assert (tmp_path / "work" / "report" / "index.html").is_file()
    figure = write_readme.plot_figure(tmp_path / "work" / "tuples", tmp_path / "work" / "count")
    assert figure.startswith(b"\x89PNG")


@pytest.mark.slow
def test_readme_python_runs_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(write_readme.python_code(README), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    shown = write_readme.region(README, "python").partition("```text\n")[2].removesuffix("```")
    for output in (printed, shown):
        match = re.fullmatch(
            r"estimated prior (0\.\d+), test accuracy (\d\.\d+)\n\[\[.*\]\]\n", output, flags=re.DOTALL
        )
        assert match is not None, output
        assert 0.5 < float(match[1]) < 0.8  # 0.647 of the pool; over ten seeds 0.634 ± 0.023
        assert float(match[2]) > 0.9  # over ten seeds 0.956 ± 0.004


def test_readme_results_are_those_of_the_reproduction() -> None:
    reproduction = write_readme.REPRODUCTION.read_text(encoding="utf-8")
    assert write_readme.region(README, "results") == write_readme.results_table(reproduction), "run `make docs`"
    cells = re.findall(r"^\| (?:Fashion)?MNIST \| (\(.\,.\)) \| 0\.\d \|(.*)\|$", reproduction, flags=re.MULTILINE)[:18]
    accuracies = [(tuples, re.findall(r"\d\d\.\d\d", row)) for tuples, row in cells]
    assert [tuples for tuples, row in accuracies if float(row[0]) < float(row[-1])] == [write_readme.TUPLES]


def test_outputs_are_written_below_their_commands() -> None:
    text = "a\n<!-- begin shell -->\n```console\n$ one\n1\n\n1\n$ two > x\n$ three\n3\n```\n<!-- end shell -->\nb\n"
    assert write_readme.shell_commands(text) == ["one", "two > x", "three"]
    assert write_readme.shell_outputs(text) == ["1\n\n1", "", "3"]
    assert write_readme.with_region(text, "shell", "new") == "a\n<!-- begin shell -->\nnew\n<!-- end shell -->\nb\n"


def test_the_citation_is_of_this_version_and_this_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    assert citation["version"] == __version__
    assert paper["title"] in " ".join(README.split())
    assert ", ".join(author["family-names"] for author in paper["authors"]) in README


# --- all pages ----------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def options_by_command(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    if hasattr(command, "commands"):
        for word, child in command.commands.items():
            yield from options_by_command(child, (*words, word))
    else:
        yield words, {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}


OPTIONS = dict(options_by_command(get_command(app)))
GLOBAL_OPTIONS = {name for param in get_command(app).params for name in param.opts}


def commands_of(page: Path) -> list[str]:
    """Every line of a shell block that calls ntmp, continued lines joined, up to a pipe, redirection or comment."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.strip() for block in blocks for typed in block.splitlines() for line in typed.split("&&")]
    lines = [line.removeprefix("$ ") for line in lines]
    return [re.split(r" [|>#;] ?", line)[0] for line in lines if line.startswith("ntmp ")]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands_of(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_command_of_a_page_has_options_that_exist(page: Path) -> None:
    for line in commands_of(page):
        words = shlex.split(line)[1:]
        while words and words[0].startswith("--"):  # options of ntmp itself, with a value before a command
            assert words[0] in GLOBAL_OPTIONS | {"--help"}, line
            words = words[2:]
        if not words:
            continue
        known = OPTIONS.get(tuple(words[:2]), OPTIONS.get(tuple(words[:1])))
        assert known is not None, line
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


@pytest.mark.slow
def test_the_guide_to_the_pipeline_runs_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "guides" / "pipeline.md").read_text(encoding="utf-8").partition("\n## ")[0]
    commands = [line for block in re.findall(r"```sh\n(.*?)```", guide, flags=re.DOTALL) for line in block.splitlines()]
    (tmp_path / "sample_configs").symlink_to(ROOT / "sample_configs")
    monkeypatch.chdir(tmp_path)
    assert [shlex.split(line)[1] for line in commands] == [
        *("make-tuples", "inspect", "train", "train", "evaluate", "report", "run"),
    ]
    # As typed, but with less training: what is tested is that the words fit together.
    shorter = {"train": ["--epochs", "2"], "run": ["--set", "train.epochs=2", "--set", "seeds=[0]"]}
    for line in commands:
        _, command, *words = shlex.split(line.replace("--epochs 30 ", ""))
        expanded = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        assert run([command, *expanded, *shorter.get(command, [])]) == 0, line
    assert (tmp_path / "work" / "report" / "results.tex").is_file()
    assert (tmp_path / "work" / "quickstart" / "report" / "learning-curves.png").is_file()


# --- sample configurations ----------------------------------------------------------------------


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
