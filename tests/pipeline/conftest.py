"""The commands as a user runs them, and one tiny study that the tests share."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from page_reader import BROWSERS, FLAGS

from ntmp_cli.app import run
from ntmp_cli.sweeps.calls import Call, CallOutcome, perform
from ntmp_cli.sweeps.engine import Resources, engines

# 40 tuples, 60 unlabeled instances: a stage takes some hundredths of a second.
TINY_TUPLES = ("--dataset", "digits", "--n", "3", "--m", "1", "--prior", "0.5", "--num-tuples", "40")
TINY_TUPLES += ("--unlabeled-size", "60")
TINY_TRAINING = ("--prior", "0.5", "--model", "linear", "--epochs", "2", "--select", "last")


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative: by that signal) and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there is an error."""
        result = json.loads(self.out)
        assert isinstance(result, dict)
        return result


Command = Callable[..., Ended]


def command(*arguments: object) -> Ended:
    """Run one `ntmp` command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Ended(code, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Ended:
    """Run one `ntmp` command that must succeed."""
    ended = command(*arguments)
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only get slower with more threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright (extra `dev`) is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser was found: none of {', '.join(BROWSERS)} is on the PATH")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def ntmp() -> Command:
    return command


@pytest.fixture(scope="session")
def ntmp_done() -> Command:
    return done


@dataclass(frozen=True)
class Study:
    """Directories of one tiny pipeline. Tests read them; those that change something take a copy."""

    tuples: Path
    run_abs: Path
    run_none: Path
    evaluation: Path
    report: Path

    @property
    def every(self) -> dict[str, Path]:
        return {"tuples": self.tuples, "run": self.run_abs, "evaluation": self.evaluation, "report": self.report}


@pytest.fixture(scope="session")
def tuples(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("shared") / "tuples"
    done("make-tuples", *TINY_TUPLES, "--out", out)
    return out


@pytest.fixture(scope="session")
def study(tuples) -> Study:
    work = tuples.parent
    for clamp in ("abs", "none"):
        done("train", "--tuples", tuples, *TINY_TRAINING, "--clamp", clamp, "--out", work / f"run-{clamp}-0")
    runs = [work / "run-abs-0", work / "run-none-0"]
    done("evaluate", *runs, "--reference", "ure+abs", "--out", work / "eval")
    done("report", work / "eval", "--out", work / "report")
    return Study(tuples, *runs, work / "eval", work / "report")


# --- processes ----------------------------------------------------------------------------------


@dataclass
class Process:
    """A command that runs in a process of its own."""

    pid: int
    folder: Path
    launcher: Launcher

    def wait(self) -> Ended:
        code = self.launcher.ask({"wait": self.pid})
        return Ended(code, (self.folder / "stdout").read_text(), (self.folder / "stderr").read_text())


@dataclass
class Launcher:
    """Talks to process_launcher.py."""

    server: subprocess.Popen[str]
    folder: Path
    started: int = field(default=0)

    def ask(self, request: dict[str, Any]) -> int:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def start(self, *arguments: object, **moment: Any) -> Process:
        self.started += 1
        folder = self.folder / str(self.started)
        folder.mkdir()
        files = {name: str(folder / name) for name in ("stdout", "stderr")}
        for file in files.values():
            Path(file).touch()
        pid = self.ask({"argv": [str(argument) for argument in arguments], **files, **moment})
        return Process(pid, folder, self)

    def run(self, *arguments: object, **moment: Any) -> Ended:
        return self.start(*arguments, **moment).wait()

    def run_several(self, commands: list[list[str]], folder: Path, packages: Path | None, **environment: str) -> Any:
        """(code, stdout, stderr) of commands that run one after the other in one new process."""
        self.started += 1
        answer = self.folder / f"{self.started}.json"
        where = {"folder": str(folder), "packages": packages and str(packages), "environment": environment}
        pid = self.ask({"commands": commands, "answer": str(answer), **where})
        assert self.ask({"wait": pid}) == 0
        return json.loads(answer.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def launcher(tmp_path_factory) -> Iterator[Launcher]:
    """Starts commands as processes that can be killed."""
    script = Path(__file__).with_name("process_launcher.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Launcher(server, tmp_path_factory.mktemp("processes"))
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """The names of calls, which an engine in this process carries out."""
    names: list[str] = []

    def here(calls: Sequence[Call], resources: Resources) -> Iterator[CallOutcome]:
        for call in calls:
            names.append(call.name)
            yield perform(call)

    monkeypatch.setattr(engines, "get", lambda name: here)
    return names


@pytest.fixture
def first_block(waiting_training, tmp_path) -> Any:
    """One table waits after its first block."""
    return type(waiting_training)(tmp_path / "process", 1)
