"""How the suite runs: the same examples every time, and slow tests only where they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No limits of time in either profile: another machine, or a busy one, needs longer.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same-examples", derandomize=True, database=None, **UNTIMED)
settings.register_profile("random", print_blob=True, **UNTIMED)  # `make test-random`
settings.load_profile("same-examples")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `thinned(k)`, every k-th combination of parameters stays; the others are slow."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thinned"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for family in families.values():
        step = family[0].get_closest_marker("thinned").args[0]
        for number, item in enumerate(sorted(family, key=lambda item: item.nodeid)):
            if number % step:
                item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class WaitingTraining:
    """In processes with this environment one training waits at a step until it is signalled."""

    file: Path
    step: int = 12

    @property
    def environment(self) -> dict[str, str]:
        hook = str(Path(__file__).with_name("waiting"))
        path = os.pathsep.join(filter(None, [hook, os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, "WAITING_FILE": str(self.file), "WAITING_STEP": str(self.step)}

    def process(self, sweep: subprocess.Popen[str]) -> int:
        """Wait until a training of the sweep waits; its process id."""
        while not self.file.exists():
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.01)
        return int(self.file.read_text())


@pytest.fixture(scope="module")
def waiting_training(tmp_path_factory: pytest.TempPathFactory) -> WaitingTraining:
    return WaitingTraining(tmp_path_factory.mktemp("waiting") / "process")


@contextmanager
def _ray_cluster(environment: dict[str, str]) -> Iterator[str]:
    script = Path(__file__).parent / "sweeps" / "engines" / "ray_cluster.py"
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,  # the workers have that of their cluster
        process_group=0,  # signals meant for the tests do not reach it: the end of its input ends it in good order
    ) as cluster:
        assert cluster.stdout is not None
        lines = iter(cluster.stdout.readline, "")
        try:
            yield next(line.split()[1] for line in lines if line.startswith("address "))
        finally:
            cluster.communicate("")


@pytest.fixture(scope="session")
def ray_cluster() -> Callable[[dict[str, str]], AbstractContextManager[str]]:
    """Starts a Ray cluster of two nodes with this environment; its address."""
    return _ray_cluster
