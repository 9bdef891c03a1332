"""`ntmp audit` as a user runs it: before training, after it, on simulated and on own data, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import h5py
import numpy as np
import own_data
import pytest

from ntmp_cli.config import AuditConfig
from ntmp_cli.evaluation.count_audit import CountAudit
from ntmp_cli.prior.drift import Drift
from ntmp_cli.stages.audit import _warnings

DATA = "gaussians:size=6000,separation=4,test=50"
SHORT = ("--model", "linear", "--lr", 0.02)


def judged(audit: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((audit / "tuples.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory, ntmp_done) -> Path:
    folder = tmp_path_factory.mktemp("noisy")
    words = ("--tuple", "3:0-3", "--prior", 0.6, "--num-tuples", 900, "--count-noise", 0.1)
    ntmp_done("make-tuples", "--dataset", DATA, *words, "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--prior", 0.6, "--epochs", 15, *SHORT, "--out", folder / "r")
    words = ("--tuples", folder / "t", "--run", folder / "r", "--epochs", 15)
    (folder / "facts.json").write_text(ntmp_done("audit", *words, "--out", folder / "a", "--json").out)
    return folder


def test_before_training_it_says_what_is_identifiable(tuples, ntmp_done):
    facts = ntmp_done("audit", "--tuples", tuples, "--json").json
    assert facts["after_training"] is None
    assert facts["before_training"]["identifiable"] == {"unbiased_risk": True, "count_likelihood": True}
    assert facts["before_training"]["prior"] == 0.5
    assert "count likelihood" in ntmp_done("audit", "--tuples", tuples).out


def test_after_training_every_tuple_is_judged(noisy):
    facts = json.loads((noisy / "facts.json").read_text())
    after = facts["after_training"]
    rows = judged(noisy / "a")
    assert len(rows) == after["tuples_judged"] == 990
    assert sum(row["flagged"] == "1" for row in rows) == after["flagged"]
    stored = {}
    for split in ("train", "heldout"):
        (file,) = sorted((noisy / "t" / split).glob("tuples-*.h5"))
        with h5py.File(file) as shard:
            stored[split] = shard["counts"][()]
    assert all(int(row["count"]) == stored[row["split"]][int(row["tuple"]) - 1] for row in rows)
    assert {path.name for path in (noisy / "a").iterdir()} == {
        *("audit.json", "audit.md", "audit.png", "audit.svg", "manifest.json", "tuples.csv"),
    }
    assert "Most suspicious tuples" in (noisy / "a" / "audit.md").read_text()


def test_flagged_tuples_are_wrong_and_the_noise_rate_is_right(noisy):
    after = json.loads((noisy / "facts.json").read_text())["after_training"]
    truth = {}
    for split in ("train", "heldout"):
        with h5py.File(noisy / "t" / "oracle" / f"{split}-tuples.h5") as file:
            truth[split] = file["true_counts"][()]
    rows = judged(noisy / "a")
    wrong = np.array([int(row["count"]) != truth[row["split"]][int(row["tuple"]) - 1] for row in rows])
    flagged = np.array([row["flagged"] == "1" for row in rows])
    assert wrong[flagged].mean() > 0.7
    assert flagged.sum() > 10
    low, high = after["count_noise"]["ci"]
    assert low < wrong.mean() < high
    assert 0.5 < after["expected"]["accuracy"]["ci"][0] < after["expected"]["accuracy"]["ci"][1] <= 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_a_rerun_is_skipped(noisy, tmp_path, ntmp_done):
    words = ("audit", "--tuples", noisy / "t", "--run", noisy / "r", "--epochs", 15)
    ntmp_done(*words, "--out", tmp_path / "b")
    assert (tmp_path / "b" / "manifest.json").read_bytes() == (noisy / "a" / "manifest.json").read_bytes()
    again = ntmp_done(*words, "--out", tmp_path / "b", "--if-exists", "skip", "--json").json
    assert again["after_training"] == json.loads((noisy / "facts.json").read_text())["after_training"]


@pytest.mark.slow
def test_imported_tuples_are_called_by_their_ids(tmp_path, ntmp_done):
    folder = own_data.write_csv(tmp_path)
    ntmp_done("import-tuples", folder / "tuples.csv", "--unlabeled", folder / "unlabeled.csv", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", own_data.PRIOR, "--epochs", 2, "--out", tmp_path / "r")
    words = ("--tuples", tmp_path / "t", "--run", tmp_path / "r", "--epochs", 2)
    ntmp_done("audit", *words, "--out", tmp_path / "a")
    rows = judged(tmp_path / "a")
    counts = {f"t{t}": int(m) for t, m in zip(own_data.cases().tuple_id, own_data.cases().count, strict=True)}
    assert {row["id"] for row in rows} <= counts.keys()
    assert all(counts[row["id"]] == int(row["count"]) for row in rows)


def test_a_run_on_other_tuples_is_refused(noisy, tuples, ntmp):
    ended = ntmp("audit", "--tuples", tuples, "--run", noisy / "r")
    assert ended.code == 2
    assert ended.err.startswith(f"error: {noisy / 'r'}: was not trained on {tuples}\n")


@pytest.mark.slow
def test_drift_is_looked_for_where_no_network_has_seen_an_instance(noisy, tmp_path, ntmp_done):
    """Of instances that are in several tuples a network is surer than of U: then held-out tuples are judged."""
    facts = json.loads((noisy / "facts.json").read_text())
    assert facts["before_training"]["repeated_instances"] == 0
    assert facts["after_training"]["drift"]["of"].startswith("training tuples")
    assert not any("not a mixture" in text for text in facts["after_training"]["warnings"])

    words = ("--tuple", "3:1", "--prior", 0.6, "--num-tuples", 600)
    ntmp_done("make-tuples", "--dataset", "gaussians:size=1500,separation=4,test=50", *words, "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", 0.6, "--epochs", 6, *SHORT, "--out", tmp_path / "r")
    facts = ntmp_done("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r", "--epochs", 4, "--json").json
    assert facts["before_training"]["repeated_instances"] > 0
    assert facts["after_training"]["drift"]["of"] == "held-out tuples"


def test_a_pool_of_something_else_is_noticed_on_own_data(tmp_path, ntmp_done):
    """No instance is in two tuples, so all of them are judged; half of U is neither class."""
    rng = np.random.default_rng(0)
    positive = np.arange(1200) % 3 == 0
    inside = rng.normal(size=(1200, 2)) + 3 * positive[:, None]
    outside = rng.normal(size=(800, 2)) + np.where(np.arange(800) % 2, 1.5, 3.0)[:, None]
    owner = [f"t{row // 3},1" for row in range(1200)] + [","] * 800
    cells = [f"{a:.5f},{b:.5f}" for a, b in np.concatenate([inside, outside])]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id,count,a,b", *map(",".join, zip(owner, cells, strict=True))]))
    ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--epochs", 20, *SHORT, "--out", tmp_path / "r")
    after = ntmp_done("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r", "--json").json["after_training"]
    assert after["drift"]["of"].startswith("training tuples")
    assert after["drift"]["p"] < 0.05
    assert any("not a mixture" in text for text in after["warnings"])


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.036, ["is perhaps not a mixture of the classes in the tuples: weak evidence, p = 0.036"]),
        (0.002, ["is not a mixture of the classes in the tuples (p = 0.002)"]),
        (0.06, []),
    ],
)
def test_drift_is_stated_as_a_fact_only_by_strong_evidence(p, said):
    nothing = np.zeros(0)
    exact = CountAudit(0.0, (0.0, 0.0), {}, nothing, nothing, nothing, nothing.astype(int), nothing)
    warnings = _warnings(AuditConfig(), Drift(0.1, 0.5, p, 0.1), 0.5, exact)
    assert len(warnings) == len(said)
    assert all(text in warning for text, warning in zip(said, warnings, strict=True))


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--count-law", "gaussian:1"), "--count-law gaussian:1"), (("--count-noise", 0.1), "--count-noise")],
)
def test_a_run_by_a_law_of_noise_is_refused_with_what_to_do(words, named, tmp_path, ntmp, ntmp_done):
    """Counts that were imported as exact, with labels beside them, and taken as noisy by the training."""
    rng = np.random.default_rng(0)
    rows = [f"t{i // 4},{i // 4 % 5},,{rng.normal():.3f}" for i in range(80)]
    rows += [f",,{i % 2},{rng.normal():.3f}" for i in range(6)]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id,count,label,a", *rows]) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", *words, "--model", "linear", "--out", tmp_path / "r")
    ended = ntmp("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r")
    assert ended.code == 2
    assert f"{tmp_path / 'r'}: was trained with {named}, but an audit" in ended.err
    assert f"Train on {tmp_path / 't'} without {words[0]} and audit that run" in ended.err
    ntmp_done("audit", "--tuples", tmp_path / "t")


def test_tuples_of_which_no_count_is_known_are_audited_without_a_run(ntmp_done, tmp_path):
    """As the refusal of an audit with a run advises."""
    data = ("--dataset", "gaussians:dim=2,size=200,test=20", "--tuple", "3:1", "--prior", 0.3, "--num-tuples", 40)
    ntmp_done("make-tuples", *data, "--record", "at-least-one", "--out", tmp_path / "t")
    facts = ntmp_done("audit", "--tuples", tmp_path / "t", "--json").json
    assert facts["before_training"]["advice"] == [
        "No tuple has a known rate: only the method count can learn from them."
    ]
