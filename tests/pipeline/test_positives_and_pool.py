"""Tuples of one class and a pool of known prior: learned from, predicted with; what they cannot tell is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ntmp_cli.artifacts import open_artifact


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    """Positives and a pool, imported, and a linear run."""
    folder, rng = tmp_path_factory.mktemp("positives"), np.random.default_rng(1)
    positives, of_pool = rng.normal(size=(120, 2)) + 2, rng.random(400) < 0.2
    pool = rng.normal(size=(400, 2)) + 2 * of_pool[:, None]
    rows = [f"{number},1,{a:.3f},{b:.3f}" for number, (a, b) in enumerate(positives)]
    (folder / "positives.csv").write_text("\n".join(["tuple_id,count,a,b", *rows]), encoding="utf-8")
    (folder / "pool.csv").write_text("\n".join(["a,b", *(f"{a:.3f},{b:.3f}" for a, b in pool)]), encoding="utf-8")
    made = ntmp_done(
        "import-tuples", folder / "positives.csv", "--unlabeled", folder / "pool.csv", "--out", folder / "t"
    )
    assert "of one class: training needs tuples of both, or a pool and its --prior" in made.err
    ntmp_done("train", "--tuples", folder / "t", "--prior", 0.2, "--model", "linear", "--out", folder / "run")
    return folder


def test_a_given_prior_is_enough(work, tmp_path, ntmp_done):
    run = open_artifact(work / "run", "run").summary
    assert (run.prior_source, run.tuple_rate) == ("given", 1.0)
    ntmp_done("predict", work / "run", work / "pool.csv", "--out", tmp_path / "p.csv")
    labels = [line.rpartition(",")[2] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert 0.08 < labels.count("1") / 400 < 0.3


def test_the_next_step_is_a_prior_and_no_estimate_of_it(work, ntmp_done):
    shown = " ".join(ntmp_done("inspect", work / "t").out.split())
    assert "unknown: tuples of one class do not determine it, so `train` needs --prior" in shown
    (advice,) = ntmp_done("audit", "--tuples", work / "t", "--json").json["before_training"]["advice"]
    assert advice.endswith("tuples of one class do not determine it: pass --prior.")


def test_without_a_prior_nothing_is_trained(work, tmp_path, ntmp):
    ended = ntmp("train", "--tuples", work / "t", "--model", "linear", "--out", tmp_path / "r")
    assert ended.code == 4
    assert "all tuple instances are of one class" in ended.err
    assert "Give an unlabeled pool and its class prior" in ended.err


@pytest.mark.parametrize("command", ["audit", "explain"])
def test_counts_of_one_class_judge_nothing(work, tmp_path, ntmp, command):
    where = ["--run", work / "run"] if command == "audit" else [work / "run"]
    ended = ntmp(command, *where, "--tuples", work / "t", "--out", tmp_path / "o")
    assert ended.code == 4
    assert "all tuple instances are of one class" in ended.err
