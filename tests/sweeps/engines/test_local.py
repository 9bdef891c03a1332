"""The local engine: every call once, whatever happens to the processes that carry them out."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ntmp_cli.sweeps.calls import Call, CallOutcome, perform
from ntmp_cli.sweeps.engine import Resources, engines, usable_cores

HERE = Path(__file__).parent
local = engines.get("local")


def call(folder: Path, name: str, function: str, threads: int = 1, **arguments: object) -> Call:
    return Call(name, f"worker_functions:{function}", arguments, str(folder / f"{name}.log"), threads)


def noting(folder: Path, number: int, threads: int = 1) -> list[Call]:
    return [call(folder, f"c{i}", "note", threads, file=str(folder / f"c{i}.done")) for i in range(number)]


def all_of(calls: list[Call], jobs: int, threads: int = 1) -> list[CallOutcome]:
    with closing(local(calls, Resources(jobs, threads))) as outcomes:
        return [outcome for outcome in outcomes if outcome is not None]


@pytest.mark.parametrize(("jobs", "threads"), [(1, 1), (3, 2), (20, 1)])
def test_every_call_is_carried_out_once_by_so_many_processes(jobs, threads, tmp_path):
    calls = noting(tmp_path, 8, threads)
    outcomes = all_of(calls, jobs, threads)
    assert sorted(o.name for o in outcomes) == sorted(c.name for c in calls)
    assert {o.error for o in outcomes} == {None}
    lines = [(tmp_path / f"{c.name}.done").read_text().split() for c in calls]
    assert [len(line) for line in lines] == [2] * 8  # one line each: process and threads
    assert {line[1] for line in lines} == {str(threads)}
    assert len({line[0] for line in lines}) <= min(jobs, 8)
    if jobs == 1:
        assert len({line[0] for line in lines}) == 1  # a process lives on from call to call


def test_a_call_whose_process_is_killed_is_repeated_as_often_as_on_a_cluster(tmp_path):
    calls = [call(tmp_path, "victim", "die", file=str(tmp_path / "victim.done"), times=3), *noting(tmp_path, 3)]
    outcomes = {o.name: o for o in all_of(calls, 2)}
    assert [outcomes[c.name].error for c in calls] == [None] * 4
    assert len((tmp_path / "victim.done").read_text().splitlines()) == 4


def test_a_call_that_kills_every_process_fails_and_the_others_go_on(tmp_path):
    calls = [call(tmp_path, "victim", "die", file=str(tmp_path / "victim.done"), times=9), *noting(tmp_path, 3)]
    outcomes = {o.name: o for o in all_of(calls, 1)}
    assert outcomes["victim"].exit_code == 1
    assert "was killed by SIGKILL, 4 times" in str(outcomes["victim"].error)
    assert len((tmp_path / "victim.done").read_text().splitlines()) == 4
    assert [outcomes[f"c{i}"].error for i in range(3)] == [None] * 3


def test_a_failed_call_says_why_and_its_log_says_where(tmp_path):
    outcomes = {o.name: o for o in all_of([call(tmp_path, "r", "refuse"), call(tmp_path, "s", "fail")], 1)}
    assert outcomes["r"] == CallOutcome("r", "no answer exists", 4)
    assert outcomes["s"] == CallOutcome("s", "ZeroDivisionError: a bug", 1)
    assert "Change the design." in (tmp_path / "r.log").read_text()
    log = (tmp_path / "s.log").read_text()
    assert "Traceback" in log
    assert "printed before the error" in log


def test_a_function_that_does_not_exist_is_a_failure_of_its_call(tmp_path):
    lost = Call("lost", "worker_functions:nothing", {}, str(tmp_path / "lost.log"), 1)
    assert "AttributeError" in str(perform(lost).error)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but that nobody waited for is not alive.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def pid_in(file: Path) -> int:
    limit = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < limit, "the worker never began"
        time.sleep(0.02)
    return int(file.read_text().split()[0])


def gone_soon(pid: int) -> bool:
    limit = time.monotonic() + 30
    while alive(pid) and time.monotonic() < limit:
        time.sleep(0.02)
    return not alive(pid)


def test_closing_the_engine_ends_its_processes(tmp_path):
    file = tmp_path / "wait.done"
    outcomes = local([call(tmp_path, "wait", "wait", file=str(file), seconds=600)], Resources(1))
    assert next(outcomes) is None
    pid = pid_in(file)
    outcomes.close()
    assert not alive(pid)


ORPHAN_MAKER = """
import sys
sys.path.insert(0, sys.argv[1])
from ntmp_cli.sweeps.calls import Call
from ntmp_cli.sweeps.engine import Resources, engines
call = Call("wait", "worker_functions:wait", {"file": sys.argv[2], "seconds": 600}, sys.argv[2] + ".log", 1)
list(engines.get("local")([call], Resources(1)))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_a_sweep_that_is_killed(number, tmp_path):
    file = tmp_path / "wait.done"
    with subprocess.Popen([sys.executable, "-c", ORPHAN_MAKER, str(HERE), str(file)]) as sweep:
        pid = pid_in(file)
        sweep.send_signal(number)
        sweep.wait()
    assert gone_soon(pid)


def test_jobs_default_to_the_cores_that_cells_can_have():
    assert Resources().jobs_here == usable_cores()
    assert Resources(threads=10_000).jobs_here == 1
    assert Resources(jobs=7, threads=10_000).jobs_here == 7


def test_an_unknown_engine_is_named_with_the_choices(tmp_path):
    from ntmp_cli.errors import UsageError

    with pytest.raises(UsageError, match="unknown engine 'lokal'; did you mean 'local'"):
        engines.get("lokal")


def test_a_log_that_does_not_fit_on_the_disk_does_not_change_how_a_call_ended(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        fine = perform(call(tmp_path, "fine", "wait", file=os.devnull, seconds=0))
        refused = perform(call(tmp_path, "refused", "refuse"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fine == CallOutcome("fine")
    assert refused == CallOutcome("refused", "no answer exists", 4)
    assert (tmp_path / "fine.log").read_bytes() == b""
