"""The Ray engine on a real cluster of two nodes: a worker killed in mid-training costs nothing but time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ntmp_cli.app import run
from ntmp_cli.sweeps.engine import Resources
from ntmp_cli.sweeps.engines import ray as engine

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

SETTINGS = ("make_tuples.prior=0.5", "make_tuples.num_tuples=40", "make_tuples.unlabeled_size=60")
SETTINGS += ("train.model=linear", "train.method=ure", "train.select=last")
WORDS = ("sweep", "grid", "--vary", "train.epochs=[2,20]", "--seed", "0", "--seed", "1")
WORDS += tuple(word for value in SETTINGS for word in ("--set", value))


@pytest.fixture(scope="module")
def address(waiting_training, ray_cluster) -> Iterator[str]:
    with ray_cluster(waiting_training.environment) as address:
        yield address


def processes(log: Path, what: str) -> list[int]:
    """Which processes began, or ended, the training that this is the log of."""
    return [int(pid) for pid in re.findall(rf"process (\d+) {what} ", log.read_text())] if log.exists() else []


def others_than(victim: int, logs: Path) -> set[int]:
    return {pid for log in logs.glob("*.log") for pid in processes(log, "begins")} - {victim}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for name in ("cells", "tuples", "results")
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def test_a_killed_worker_costs_nothing_and_the_bytes_are_those_of_the_local_engine(address, waiting_training, tmp_path):
    on_ray, here = tmp_path / "ray", tmp_path / "local"
    command = [sys.executable, "-m", "ntmp_cli", *WORDS, "--engine", "ray", "--ray-address", address, "--json"]
    with subprocess.Popen(
        [*command, "--out", str(on_ray)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sweep:
        victim = waiting_training.process(sweep)
        while others_than(victim, on_ray / "logs") == set():  # its node is busy: the other node trains too
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        out, err = sweep.communicate()
    assert sweep.returncode == 0, err
    result = json.loads(out)
    assert (result["cells"], result["trained"], result["failed"]) == (4, 4, [])
    names = [f"epochs={epochs},seed={seed}" for epochs in (2, 20) for seed in (0, 1)]
    begun = {name: processes(on_ray / "logs" / f"{name}.log", "begins") for name in names}
    ended = {name: processes(on_ray / "logs" / f"{name}.log", "ends") for name in names}
    assert {name: len(pids) for name, pids in ended.items()} == dict.fromkeys(names, 1)  # each finishes once
    (killed,) = [name for name in names if begun[name] != ended[name]]
    assert begun[killed] == [victim, *ended[killed]]
    assert victim not in ended[killed]
    assert run([*WORDS, "--jobs", "1", "--out", str(here)]) == 0
    assert contents(on_ray) == contents(here)


def test_an_address_without_a_cluster_is_a_usage_error(tmp_path, monkeypatch, capsys):
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_COLOR_PREFIX"):
        monkeypatch.setenv(name, "0")
    assert run([*WORDS, "--engine", "ray", "--ray-address", "127.0.0.1:1", "--out", str(tmp_path / "s")]) == 2
    assert "--ray-address 127.0.0.1:1: no Ray cluster to join there" in capsys.readouterr().err


def test_a_node_that_does_not_start_ends_the_sweep_with_a_message(tmp_path):
    nowhere = {**os.environ, "RAY_TMPDIR": "/proc/nowhere"}  # where Ray would keep its sockets and logs
    command = [sys.executable, "-m", "ntmp_cli", *WORDS, "--engine", "ray", "--out", str(tmp_path / "s")]
    ended = subprocess.run(command, capture_output=True, text=True, env=nowhere)
    assert ended.returncode == 2, ended.stderr
    assert "--engine ray: Ray did not start on this machine: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [((), "Ray did not start on this machine"), (("--ray-address", "auto"), "--ray-address auto: no Ray cluster")],
)
def test_a_start_that_does_not_end_ends_the_sweep_with_a_message(words, message, tmp_path, monkeypatch, capsys):
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_COLOR_PREFIX", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "0")
    released = threading.Event()
    monkeypatch.setattr(engine, "START_SECONDS", 0.1)
    monkeypatch.setattr(engine, "_init", lambda *_: released.wait())
    try:
        assert run([*WORDS, "--engine", "ray", *words, "--out", str(tmp_path / "s")]) == 2
    finally:
        released.set()
    error = capsys.readouterr().err
    assert message in error
    assert "no answer in 0.1 seconds" in error


class SlowRay:
    """Counts its shutdowns; `init` waits until it is released."""

    def __init__(self) -> None:
        self.released, self.shutdowns, self.undone = threading.Event(), 0, threading.Event()

    def init(self, *_: object, **__: object) -> None:
        self.released.wait()

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.undone.set()


def test_a_start_that_ends_after_the_sweep_was_stopped_is_undone():
    slow = SlowRay()
    connection = engine._Connection(slow, Resources(jobs=1))
    assert next(connection.wait()) is None  # here a sweep can be stopped
    connection.close()
    assert slow.shutdowns == 0
    slow.released.set()
    assert slow.undone.wait(60)


def test_a_connection_is_closed_once():
    slow = SlowRay()
    slow.released.set()
    connection = engine._Connection(slow, Resources(jobs=1))
    assert set(connection.wait()) <= {None}
    connection.close()
    assert slow.shutdowns == 1
