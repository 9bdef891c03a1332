"""Would a release work? `make release-check` builds it, installs its wheel in a fresh environment, and uses it there.

1. `python -m build` makes a source archive, and the wheel from that archive alone.
2. Wheel and archive hold every tracked file that they should, and no other; version and date agree everywhere.
3. The wheel is installed with the versions of constraints.txt. `ntmp --help`, the Python package and the quickstart run
   in an empty folder.

Nothing is left behind: all of it happens in a temporary folder.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Tracked files that a source archive does not need: they belong to the repository.
REPOSITORY_ONLY = (".ci/", ".github/", ".gitignore", ".dockerignore", ".pre-commit-config.yaml")
USE_IN_PYTHON = "from ntmp_cli import NTMPClassifier, TupleKFold, __version__; print(__version__)"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ntmp-release-") as name:
        folder = Path(name)
        step("build a source archive and a wheel")
        archive, wheel = build(folder)
        step("compare them with the tracked files")
        check_archive(archive)
        check_wheel(wheel)
        check_version()
        step("install the wheel in a fresh environment")
        programs = fresh_environment(folder / "fresh")
        constraints = ROOT / "constraints.txt"
        call([programs / "python", "-m", "pip", "install", "--quiet", "--constraint", constraints, wheel], folder)
        call([programs / "python", "-m", "pip", "check"], folder)
        step("use it")
        use(programs, archive, folder / "user")
    step(f"ntmp {PROJECT['version']} can be released")


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive and the wheel that `python -m build` makes of the tracked files."""
    source = folder / "source"
    for name in tracked_files():  # a copy: no file that git does not know, and nothing is written to the repository
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    programs = fresh_environment(folder / "builder")
    call([programs / "python", "-m", "pip", "install", "--quiet", "build"], folder)
    call([programs / "python", "-m", "build", "--outdir", folder / "dist", source], folder)
    (archive,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return archive, wheel


def check_archive(archive: Path) -> None:
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    missing = [name for name in tracked_files() if name not in names and not name.startswith(REPOSITORY_ONLY)]
    require(not missing, f"the source archive lacks {missing}")


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as members:
        names = set(members.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(members.read(metadata))
    package = {name for name in tracked_files() if name.startswith("ntmp_cli/")}
    installed = {name for name in names if ".dist-info/" not in name}
    require(installed == package, f"the wheel differs from ntmp_cli/: {sorted(installed ^ package)}")
    require(any(name.endswith("/licenses/LICENSE") for name in names), "the wheel lacks the licence")
    for field in ("Version", "Summary", "Requires-Python", "License-Expression", "Classifier", "Project-URL"):
        require(fields[field], f"the metadata lack {field}")
    require("# ntmp" in fields.get_payload(), "the metadata lack the README")


def check_version() -> None:
    """The newest section of the changes and the citation are of this version and have one date."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, flags=re.MULTILINE)
    require(newest, "CHANGELOG.md: the newest section has no version with a date")
    require(newest[1] == PROJECT["version"], f"CHANGELOG.md: newest version is {newest[1]}")
    require(f"\nversion: {newest[1]}\n" in citation, "CITATION.cff: another version")
    require(f"\ndate-released: {newest[2]}\n" in citation, "CITATION.cff: another date")


def use(programs: Path, archive: Path, folder: Path) -> None:
    """What a new user does first, in a folder without the repository."""
    folder.mkdir()
    with tarfile.open(archive) as members:
        (name,) = (name for name in members.getnames() if name.endswith("sample_configs/quickstart.yaml"))
        (folder / "quickstart.yaml").write_bytes(members.extractfile(name).read())
    require("Usage: ntmp" in call([programs / "ntmp", "--help"], folder), "ntmp --help shows no usage")
    require(
        PROJECT["version"] in call([programs / "python", "-c", USE_IN_PYTHON], folder), "another version is imported"
    )
    print(call([programs / "ntmp", "run", "quickstart.yaml", "--out", "quickstart"], folder))
    require((folder / "quickstart" / "report" / "index.html").is_file(), "the quickstart wrote no page")


def tracked_files() -> list[str]:
    return call(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT).splitlines()


def fresh_environment(folder: Path) -> Path:
    """The folder with the programs of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def call(command: list[str | Path], folder: Path) -> str:
    """What a command prints. The environment of the repository is hidden from it."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=outside, capture_output=True, text=True, check=False)
    require(
        done.returncode == 0, f"{' '.join(words)} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def step(text: str) -> None:
    print(f"release-check: {text}", flush=True)


def require(holds: object, message: str) -> None:
    if not holds:
        sys.exit(f"release-check: {message}")


if __name__ == "__main__":
    main()
