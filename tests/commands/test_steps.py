"""Long steps: a bar with counts on a terminal, a line now and then in a batch log, nothing with --quiet."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from ntmp_cli.commands import steps
from ntmp_cli.commands.steps import describe_step, steps_on_stderr
from ntmp_cli.progress import Step, listening, long_step

_STEP = """
import logging, sys, time
from ntmp_cli.commands import steps
from ntmp_cli.progress import long_step
logging.getLogger("ntmp_cli").setLevel(logging.INFO if sys.argv[1] == "loud" else logging.ERROR)
steps.SHOWN_AFTER = 0.0
with steps.steps_on_stderr(), long_step("scoring new.csv", 4000, "rows") as advance:
    for _ in range(10):
        advance(100)
        time.sleep(0.05)
print("result")
"""


@pytest.mark.parametrize(
    ("step", "done", "seconds", "line"),
    [
        (Step("fitting"), 0, 61.0, "fitting: 61 s so far"),
        (Step("reading -", None, "rows"), 12_000, 30.0, "reading -: 12,000 rows in 30 s"),
        (Step("reading a", 4000, "rows"), 0, 30.0, "reading a: 0 of 4,000 rows, 30 s so far"),
        (Step("reading a", 4000, "rows"), 1000, 60.0, "reading a: 1,000 of 4,000 rows, about 3 min left"),
        (Step("reading a", 4000, "rows"), 2000, 30.0, "reading a: 2,000 of 4,000 rows, about 30 s left"),
        (Step("reading a", 4000, "rows"), 4400, 30.0, "reading a: 4,400 of 4,400 rows, about 0 s left"),
    ],
)
def test_a_line_says_what_is_done_and_how_long_the_rest_takes(step, done, seconds, line):
    assert describe_step(step, done, seconds) == line


def test_steps_need_no_listener():
    with long_step("anything", 3, "rows") as advance:
        advance(3)


def test_steps_report_to_the_listener_of_their_context():
    seen: list[object] = []

    @contextmanager
    def listener(step):
        seen.append(step)
        yield seen.append

    with listening(listener), long_step("reading", 5, "rows") as advance:
        advance(2)
    with long_step("unheard"):
        pass
    assert seen == [Step("reading", 5, "rows"), 2]


def test_a_batch_log_gets_a_line_now_and_then(monkeypatch, caplog):
    monkeypatch.setattr(steps, "BETWEEN_LINES", 0.01)
    monkeypatch.setattr(steps, "on_terminal", lambda: False)
    caplog.set_level(logging.INFO, "ntmp_cli")
    monkeypatch.setattr(logging.getLogger("ntmp_cli"), "propagate", True)
    with steps_on_stderr(), long_step("scoring", 10, "rows") as advance:
        advance(4)
        for _ in range(500):  # as long as it takes, on any machine
            if caplog.messages:
                break
            time.sleep(0.01)
    assert caplog.messages[0].startswith("scoring: 4 of 10 rows, about ")


def test_quiet_logs_have_no_such_line(monkeypatch, caplog):
    monkeypatch.setattr(steps, "BETWEEN_LINES", 0.001)
    monkeypatch.setattr(steps, "on_terminal", lambda: False)
    caplog.set_level(logging.ERROR, "ntmp_cli")
    with steps_on_stderr(), long_step("scoring", 10, "rows"):
        time.sleep(0.05)
    assert caplog.messages == []


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
@pytest.mark.parametrize("mode", ["loud", "quiet"])
def test_a_terminal_shows_a_bar_with_counts_unless_told_not_to(mode):
    ours, theirs = os.openpty()
    words = [sys.executable, "-c", _STEP, mode]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    root = Path(__file__).parents[2]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env=environment, cwd=root) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert process.stdout is not None
        assert process.stdout.read() == b"result\n"
    os.close(ours)
    assert process.returncode == 0
    assert (b"scoring new.csv" in shown and b"of 4,000 rows" in shown) == (mode == "loud")


def test_an_error_inside_a_step_leaves_no_bar(monkeypatch, caplog):
    monkeypatch.setattr(steps, "on_terminal", lambda: True)
    monkeypatch.setattr(steps, "SHOWN_AFTER", 0.0)
    caplog.set_level(logging.INFO, "ntmp_cli")

    def rows():
        with long_step("scoring", 3, "rows"):
            yield 1
            yield 2

    kept = rows()

    def fail():
        next(kept)
        time.sleep(0.1)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), steps_on_stderr():
        fail()
    assert steps._started == []
    kept.close()
