"""Files and runs that settings name: a manifest records hashes of their content, and no path of a machine."""

from __future__ import annotations

from pathlib import Path

from ntmp_cli.artifacts.manifest import RunArtifact, open_artifact, sha256_file
from ntmp_cli.settings import Settings

# An encoder that is the network of a run: run:DIR.
RUN = "run:"
# Settings that may name a file.
WEIGHTS_FILES = ("encoder_weights", "clip_model", "clip_weights")


def file_identity(name: str | None) -> str | None:
    """The hash of the file of this name, or the name itself if there is no such file."""
    if name is not None and Path(name).is_file():
        return f"sha256:{sha256_file(Path(name))}"
    return name


def weights_files(config: Settings) -> tuple[Path, ...]:
    """The files, or the run, that a frozen encoder is read from."""
    named = [getattr(config, name) for name in WEIGHTS_FILES]
    files = tuple(Path(name) for name in named if name is not None and Path(name).is_file())
    run = encoder_run(config)
    return files if run is None else (*files, run.path)


def encoder_run(config: Settings) -> RunArtifact | None:
    """The run whose network is the frozen encoder; None for other encoders."""
    encoder: str | None = getattr(config, "encoder", None)
    if encoder is None or not encoder.startswith(RUN):
        return None
    return open_artifact(Path(encoder.removeprefix(RUN)), "run")


def teacher_run(config: Settings) -> RunArtifact | None:
    """The run that is the first teacher of a network; None without one."""
    teacher: str | None = getattr(getattr(config, "settings", None), "teacher", None)
    return None if teacher is None else open_artifact(Path(teacher), "run")


def teacher_identity(config: Settings) -> dict[str, str]:
    """The setting `teacher` with the hash of its run instead of a path; empty without a teacher."""
    run = teacher_run(config)
    return {} if run is None else {"teacher": f"sha256:{run.sha256}"}


def encoder_identity(config: Settings) -> dict[str, str]:
    """The setting `encoder` with the hash of its run instead of a path; empty if it names no run."""
    run = encoder_run(config)
    return {} if run is None else {"encoder": f"{RUN}sha256:{run.sha256}"}
