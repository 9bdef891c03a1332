"""What `make` installs: the package alone for the demo, versions that are known to work, the slow tests apart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
# The peers of the benchmarks are installed by those who run them.
SET_UP = [
    *PROJECT["dependencies"],
    *(requirement for name, extra in EXTRAS.items() if name != "bench" for requirement in extra),
]


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def commands_of(target: str) -> str:
    """What `make` would run on a fresh machine."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    # Tests are run by `make` themselves: what it hands to its children would change the answer.
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=outside).stdout


@pytest.mark.parametrize("line", sorted(set(SET_UP)))
def test_every_requirement_has_a_version_that_fulfils_it(line):
    requirement = Requirement(line)
    version = constraints()[canonical(requirement.name)]
    assert requirement.specifier.contains(version)
    assert "+" not in version  # a local version, as torch's +cpu, exists in few places


def test_the_dev_extra_has_what_the_other_extras_have():
    others = {requirement for name, extra in EXTRAS.items() if name not in ("dev", "bench") for requirement in extra}
    assert others <= set(EXTRAS["dev"])


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_demo_installs_the_package_alone():
    assert "[dev]" not in commands_of("demo")
    assert "--constraint constraints.txt --editable ." in commands_of("demo")
    assert "[dev]" in commands_of("test")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_two_test_targets_run_every_test_once():
    assert '-m "not slow"' in commands_of("test")
    assert commands_of("test-slow").rstrip().endswith("-m slow")
    assert {"make check", "make test", "make test-slow"} <= set((ROOT / ".ci" / "run").read_text().splitlines())


# --- the release: `make release-check` builds and installs it --------------------------------------


def test_every_file_of_the_package_goes_into_the_wheel():
    package = ROOT / "ntmp_cli"
    declared = PYPROJECT["tool"]["setuptools"]["package-data"]["ntmp_cli"]
    shipped = {path for pattern in declared for path in package.glob(pattern)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others == shipped


def test_changes_and_citation_have_the_version_and_one_date():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, flags=re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest is not None
    assert newest.groups() == (PROJECT["version"], str(citation["date-released"]))


def test_the_metadata_name_the_pythons_that_are_tested():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    tested = tests["jobs"]["tests"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert named == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"
