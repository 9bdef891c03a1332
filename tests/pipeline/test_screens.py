"""What a person sees: every result fits 80 columns unless more is asked for, and no path or number is cut."""

from __future__ import annotations

import contextlib
import os

import pytest
from rich.cells import cell_len

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.row_types import read_history
from ntmp_cli.registry import REGISTRIES


@pytest.fixture(autouse=True)
def no_width_of_its_own(monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def too_long(text: str, width: int = 80, *, but: str = "") -> list[str]:
    """Lines that do not fit, without those that hold the path `but`, which are never broken."""
    return [line for line in text.splitlines() if cell_len(line) > width and not (but and but in line)]


@pytest.mark.parametrize("kind", REGISTRIES)
def test_lists_fit(kind, ntmp_done):
    assert too_long(ntmp_done("list", kind).out) == []


@pytest.mark.parametrize("kind", ["tuples", "run", "evaluation", "report"])
def test_inspected_artefacts_fit(kind, ntmp_done, study):
    out = ntmp_done("inspect", study.every[kind]).out
    assert too_long(out, but=str(study.every[kind])) == []
    assert f"directory{' ' * (out.index(str(study.every[kind])) - 9)}{study.every[kind]}\n" in out


def test_designs_priors_audits_and_trainings_fit(ntmp_done, tmp_path):
    tuples = tmp_path / "tuples"
    enough = ("--n", 3, "--m", 1, "--prior", 0.5, "--num-tuples", 400, "--unlabeled-size", 400)
    assert (
        too_long(ntmp_done("make-tuples", "--dataset", "digits", *enough, "--out", tuples).out, but=str(tuples)) == []
    )
    mixed = ("--tuple", "3:1@0.5", "--tuple", "5:2@0.5", "--prior", 0.3, "--num-tuples", 5000)
    estimate = ("--score", "discriminant", "--resamples", 20, "--out", tmp_path / "p")
    training = ("--prior", 0.5, "--model", "linear", "--epochs", 1, "--out", tmp_path / "r")
    for words in (
        ("design", *mixed),
        ("audit", "--tuples", tuples),
        ("estimate-prior", "--tuples", tuples, *estimate),
        ("train", "--tuples", tuples, *training),
    ):
        assert too_long(ntmp_done(*words).out, but=str(tmp_path)) == [], words[0]


def test_results_fit_and_the_verdict_comes_first(ntmp_done, study, tmp_path):
    words = ("evaluate", study.run_abs, study.run_none, "--reference", "ure+abs", "--out", tmp_path / "e")
    out = ntmp_done(*words).out
    assert too_long(out) == []
    verdict = " ".join(out.partition("\n\n")[0].split())
    assert verdict.endswith(".")
    assert (study.report / "words.md").read_text().split("\n\n")[1].startswith(verdict)
    shown = ntmp_done(*words, "--if-exists", "skip", "--wide").out
    assert "Cliff's δ" in shown
    assert "Cliff's δ" not in out


def test_the_width_of_a_terminal_is_respected(ntmp_done, study, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert too_long(ntmp_done("inspect", study.evaluation).out, 60, but=str(study.evaluation)) == []
    assert too_long(ntmp_done("list", "metrics").out, 60) == []
    monkeypatch.setenv("COLUMNS", "200")
    assert too_long(ntmp_done("list", "methods").out) != []


def test_a_wide_table_is_not_folded_in_a_pipe(ntmp_done, study, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = ("evaluate", study.run_abs, study.run_none, "--reference", "ure+abs", "--out", tmp_path / "e", "--wide")
    (header,) = [line for line in ntmp_done(*words).out.splitlines() if "macro_f1" in line]
    assert header.split()[:3] == ["dataset", "tuples", "π"]
    assert header.rstrip().endswith("Cliff's δ")


@pytest.mark.slow
def test_a_sweep_shows_short_names_and_what_tells_points_apart(ntmp_done, tmp_path):
    small = ("make_tuples.num_tuples=40", "make_tuples.unlabeled_size=60", "make_tuples.prior=0.5", "train.epochs=1")
    settings = [word for value in (*small, "train.model=linear") for word in ("--set", value)]
    varied = ("--vary", "train.lr=[0.01,0.001]", "--vary", "train.weight_decay=[0.0,0.001]")
    words = ("sweep", "grid", *settings, *varied, "--seed", 0, "--seed", 1, "--jobs", 1, "--out", tmp_path / "s")
    out = ntmp_done(*words).out
    assert too_long(out, but=str(tmp_path)) == []
    assert out.splitlines()[1].split() == ["lr", "weight_decay", "ap", "95", "%", "interval"]
    wide = ntmp_done(*words, "--wide").out.splitlines()[1].split()
    judged = ["run", "train.lr", "train.weight_decay", "seeds", "ap", "std", "95", "%", "interval"]
    assert wide == [*judged, "accuracy", "tpr", "fpr", "f1"]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_on_a_terminal_its_own_width_counts():
    """A terminal of 70 columns, seen through the process's own stdout."""
    import fcntl
    import struct
    import subprocess
    import sys
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 70, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    ended = subprocess.Popen(
        [sys.executable, "-m", "ntmp_cli", "list", "metrics"], stdin=theirs, stdout=theirs, env=environment
    )
    os.close(theirs)
    chunks = []
    with contextlib.suppress(OSError):  # Linux ends a terminal that nobody holds with an error
        while chunk := os.read(ours, 65536):
            chunks.append(chunk)
    os.close(ours)
    assert ended.wait() == 0
    lines = b"".join(chunks).decode().replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()
    assert 60 < max(map(cell_len, lines)) <= 70


def test_train_and_inspect_show_the_variance_ratio_of_random_tuple_weights(tmp_path, ntmp_done):
    sizes = ["--prior", 0.8, "--num-tuples", 100, "--unlabeled-size", 200]
    ntmp_done("make-tuples", "--dataset", "gaussians", "--tuple", "3:1", *sizes, "--out", tmp_path / "tuples")
    common = ["--tuples", tmp_path / "tuples", "--method", "ure", "--clamp", "none", "--model", "linear", "--epochs", 2]
    random = ntmp_done("train", *common, "--tuple-weights", "random", "--out", tmp_path / "random")
    plain = ntmp_done("train", *common, "--out", tmp_path / "plain")
    run = open_artifact(tmp_path / "random", "run")
    ratio = read_history(run)[run.summary.selected_epoch - 1]["tuple_weight_variance_ratio"]
    for shown in (random, ntmp_done("inspect", tmp_path / "random")):
        assert f"{ratio:.2f} times the variance of equal ones" in shown.out
    for shown in (plain, ntmp_done("inspect", tmp_path / "plain")):
        assert "random tuple weights" not in shown.out
