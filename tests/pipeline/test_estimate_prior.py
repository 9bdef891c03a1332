"""estimate-prior as a user runs it, and trainings that use the estimate."""

from __future__ import annotations

import json

import numpy as np
import pytest
from forged import copied, rehash

from ntmp_cli.artifacts import hdf5, open_artifact
from ntmp_cli.prior.paper_protocol import ProxyScores, paper_estimate

LIGHT = ("--model", "linear", "--epochs", 6, "--lr", 0.05, "--resamples", 50)


@pytest.fixture(scope="module")
def gaussian(ntmp_done, tmp_path_factory):
    """(tuples, its prior directory, the JSON that was printed) of two clouds that a line tells apart."""
    folder = tmp_path_factory.mktemp("gaussian")
    sizes = ("--num-tuples", 600, "--unlabeled-size", 800)
    data = ("--dataset", "gaussians", "--n", 3, "--m", 1, "--prior", 0.7, *sizes)
    ntmp_done("make-tuples", *data, "--heldout-share", 0.3, "--out", folder / "tuples")
    ended = ntmp_done("estimate-prior", "--tuples", folder / "tuples", *LIGHT, "--json", "--out", folder / "prior")
    return folder / "tuples", folder / "prior", ended.json


def test_the_prior_is_found_without_a_label_and_told_whole(gaussian):
    _, out, estimate = gaussian
    assert estimate["prior"] == pytest.approx(0.7, abs=0.06)
    assert estimate["ci"][0] < 0.7 < estimate["ci"][1]
    assert estimate["estimator"] == "em-affine"
    assert set(estimate["estimators"]) == {"best-bin", "em", "em-affine", "moments", "paper", "tail-ratio"}
    assert estimate["estimators"]["em-affine"]["value"] == estimate["prior"]
    assert estimate["upper_bound"]["confident"] > 0.7
    written = json.loads((out / "prior.json").read_text())
    assert {key: estimate[key] for key in written} == written
    assert (out / "prior.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "prior.svg").read_bytes().startswith(b"<?xml")
    assert open_artifact(out, "prior").entries("scores.h5")


def test_the_same_seed_gives_the_same_bytes(gaussian, ntmp_done, tmp_path):
    tuples, out, estimate = gaussian
    again = ntmp_done("estimate-prior", "--tuples", tuples, *LIGHT, "--json", "--out", tmp_path / "again").json
    assert again["manifest_sha256"] == estimate["manifest_sha256"]
    kept = ntmp_done("estimate-prior", "--tuples", tuples, *LIGHT, "--if-exists", "skip", "--out", out)
    assert kept.err == ""  # nothing was trained


def test_people_see_every_estimator_and_its_interval(gaussian, ntmp_done):
    tuples, out, estimate = gaussian
    shown = ntmp_done("estimate-prior", "--tuples", tuples, *LIGHT, "--if-exists", "skip", "--out", out).out
    assert f"{estimate['prior']:.4f}, 95% interval" in shown
    for name in estimate["estimators"]:
        assert name in shown


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"paper_protocol": ...}, 0, "rate of the tuples"),  # directories of earlier versions lack it
        ({"upper_bound": ...}, 3, "prior.json: damaged: row 0.upper_bound"),
        ({"estimators": {"em": 0.5}}, 3, "prior.json: damaged: row 0.estimators.em"),
        ({"identified": False, "mirror": None}, 0, " or 0.2"),
    ],
)
def test_a_kept_prior_is_read_with_checks(changes, code, said, gaussian, ntmp, tmp_path):
    tuples, out, _ = gaussian
    kept = copied(out, tmp_path / "prior")
    content = {**json.loads((kept / "prior.json").read_text()), **changes}
    (kept / "prior.json").write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    rehash(kept)
    ended = ntmp("estimate-prior", "--tuples", tuples, *LIGHT, "--if-exists", "skip", "--out", kept)
    assert (ended.code, said in ended.out + ended.err) == (code, True), ended.err


@pytest.mark.parametrize("more", [("--score", "discriminant"), ("--folds", 2), ("--warmup", "discriminant")])
@pytest.mark.slow
def test_other_ways_to_scores_find_it_too(gaussian, ntmp_done, tmp_path, more):
    tuples, _, _ = gaussian
    estimate = ntmp_done("estimate-prior", "--tuples", tuples, *LIGHT, *more, "--json", "--out", tmp_path / "p").json
    assert estimate["prior"] == pytest.approx(0.7, abs=0.06)


def test_the_chosen_estimator_is_the_one_used(gaussian, ntmp_done, tmp_path):
    tuples, _, estimate = gaussian
    chosen = ("--estimator", "moments")
    other = ntmp_done("estimate-prior", "--tuples", tuples, *LIGHT, *chosen, "--json", "--out", tmp_path / "p").json
    assert other["prior"] == estimate["estimators"]["moments"]["value"]


@pytest.mark.parametrize(
    ("more", "scored"),
    [
        ((), "both"),
        pytest.param(("--model", "mlp"), "heldout", marks=pytest.mark.slow),
        pytest.param(("--model", "mlp", "--folds", 2), "train", marks=pytest.mark.slow),
    ],
    ids=["table", "held-out", "folds"],
)
@pytest.mark.slow
def test_the_papers_estimator_has_a_score_model_of_its_own(gaussian, ntmp_done, tmp_path, more, scored):
    """U is small here, so that proxy and U are scored in ten folds; its numbers are those of these scores alone."""
    tuples, _, estimate = gaussian
    chosen = (*LIGHT, *more, "--estimator", "paper", "--json", "--out", tmp_path / "p")
    result = ntmp_done("estimate-prior", "--tuples", tuples, *chosen).json
    with hdf5.read(open_artifact(tmp_path / "p").file("scores.h5"), "scores") as file:
        stored = {name: hdf5.array(file, name) for name in file}
    facts = result["paper_protocol"]
    assert facts["score_model"] == "two-layer network"
    assert facts["validated_by"] == "10 folds"
    assert (facts["proxies"], facts["unlabeled"]) == (len(stored["paper_proxy"]), len(stored["paper_unlabeled"]))
    summary = open_artifact(tuples).summary
    assert facts["unlabeled"] == summary.unlabeled.train + summary.unlabeled.heldout
    # In tuples of (3, 1) every tuple that is scored has one proxy.
    tuples_of = {"train": summary.tuples.train, "heldout": summary.tuples.heldout}
    assert facts["proxies"] == tuples_of.get(scored, sum(tuples_of.values()))
    scores = ProxyScores(stored["paper_proxy"].astype(float), stored["paper_unlabeled"].astype(float))
    again = paper_estimate(scores, np.random.default_rng(0), resamples=10)
    assert result["estimators"]["paper"]["value"] == pytest.approx(again.estimate.value, abs=1e-3)
    assert result["neyman_pearson_as_in_the_paper"]["value"] == pytest.approx(again.bound.value, abs=1e-3)
    assert estimate["paper_protocol"] is None
    with_words = ("estimate-prior", "--tuples", tuples, *LIGHT, *more, "--estimator", "paper", "--out", tmp_path / "q")
    shown = " ".join(ntmp_done(*with_words).out.split())
    words = f"two-layer network on {facts['proxies']:,} positive proxies against U, by 10 folds"
    assert f"{words}; Neyman–Pearson bound {result['neyman_pearson_as_in_the_paper']['value']:.4f}" in shown


def test_training_takes_the_estimate_and_records_where_it_came_from(gaussian, ntmp_done, tmp_path):
    tuples, prior, estimate = gaussian
    shape = ("--model", "linear", "--epochs", 2)
    ntmp_done("train", "--tuples", tuples, "--prior-from", prior, *shape, "--out", tmp_path / "run")
    run = open_artifact(tmp_path / "run", "run")
    assert run.manifest.config["prior"] == estimate["prior"]
    assert {"kind": "prior", "sha256": estimate["manifest_sha256"]}.items() <= run.manifest.inputs[1].items()
    assert (run.summary.prior_source, run.summary.trained_prior) == ("estimated", estimate["prior"])
    assert run.summary.prior == open_artifact(tuples).summary.prior  # results are compared at the pool's own prior


def test_a_given_prior_overrides_the_estimate(gaussian, ntmp_done, tmp_path):
    tuples, prior, _ = gaussian
    shape = ("--model", "linear", "--epochs", 1, "--prior", 0.6)
    ended = ntmp_done("train", "--tuples", tuples, "--prior-from", prior, *shape, "--out", tmp_path / "run")
    run = open_artifact(tmp_path / "run", "run")
    assert run.manifest.config["prior"] == 0.6
    assert [given["kind"] for given in run.manifest.inputs] == ["tuples"]
    assert (run.summary.prior_source, run.summary.trained_prior, run.summary.prior) == ("given", 0.6, 0.6)
    assert "prior 0.6 is used instead of the estimate" in ended.err


@pytest.mark.slow
def test_an_estimate_that_equals_the_given_prior_is_still_told_apart_from_it(gaussian, ntmp_done, tmp_path):
    """Where a prior came from is said, not guessed from its value.

    A network, because learners for tables use the pool only with a prior that was not estimated from the same pool.
    """
    tuples, prior, estimate = gaussian
    shape = ("--model", "mlp", "--epochs", 1)
    ntmp_done("train", "--tuples", tuples, "--prior", repr(estimate["prior"]), *shape, "--out", tmp_path / "given")
    ntmp_done("train", "--tuples", tuples, "--prior-from", prior, *shape, "--out", tmp_path / "estimated")
    given, estimated = (open_artifact(tmp_path / name) for name in ("given", "estimated"))
    assert given.manifest.config["prior"] == estimated.manifest.config["prior"]
    assert (given.summary.prior_source, estimated.summary.prior_source) == ("given", "estimated")
    assert (given.path / "model.safetensors").read_bytes() == (estimated.path / "model.safetensors").read_bytes()


def test_simulated_tuples_know_their_prior(ntmp_done, tuples, tmp_path):
    ntmp_done("train", "--tuples", tuples, "--epochs", 1, "--out", tmp_path / "run")
    summary = open_artifact(tmp_path / "run", "run").summary
    assert (summary.prior_source, summary.trained_prior, summary.prior_ci) == ("known", 0.5, None)


def test_the_unbiased_risk_does_not_estimate_its_prior(ntmp, tuples, tmp_path):
    ended = ntmp("train", "--tuples", tuples, "--method", "ure", "--prior", "estimate", "--out", tmp_path / "run")
    assert ended.code == 2
    assert "only the method 'count' estimates it while training" in ended.err
    assert "`ntmp estimate-prior` does: pass its directory by --prior-from" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("model", ["auto", pytest.param("mlp", marks=pytest.mark.slow)])
def test_count_estimates_the_prior_in_the_same_training(gaussian, ntmp_done, tmp_path, model):
    """A network, or a learner for tables: the same data, and the interval covers what the simulation knows."""
    tuples = gaussian[0]
    words = ("--prior", "estimate", "--model", model, *(() if model == "auto" else ("--epochs", 6)))
    shown = ntmp_done("train", "--tuples", tuples, *words, "--out", tmp_path / "run").out
    summary = open_artifact(tmp_path / "run", "run").summary
    assert summary.prior_source == "estimated"
    low, high = summary.prior_ci
    assert low < summary.unlabeled_prior < high
    assert summary.prior == summary.unlabeled_prior
    assert "estimated on the unlabeled pool, interval" in shown


def test_train_refuses_a_prior_of_other_tuples(gaussian, ntmp, tuples, tmp_path):
    _, prior, _ = gaussian
    ended = ntmp("train", "--tuples", tuples, "--prior-from", prior, "--out", tmp_path / "run")
    assert ended.code == 3
    assert "was estimated on other tuples than" in ended.err
    assert not (tmp_path / "run").exists()


def test_train_refuses_a_directory_that_is_no_prior(ntmp, tuples, tmp_path):
    ended = ntmp("train", "--tuples", tuples, "--prior-from", tuples, "--out", tmp_path / "run")
    assert ended.code == 3
    assert "expected kind 'prior', found 'tuples'" in ended.err


@pytest.mark.slow
def test_half_positive_tuples_ask_for_outside_knowledge(ntmp, ntmp_done, tmp_path):
    sizes = ("--num-tuples", 600, "--unlabeled-size", 800, "--heldout-share", 0.3)
    data = ("--dataset", "gaussians", "--n", 2, "--m", 1, "--prior", 0.7, *sizes)
    ntmp_done("make-tuples", *data, "--out", tmp_path / "t")
    open_side = ("estimate-prior", "--tuples", tmp_path / "t", *LIGHT, "--out", tmp_path / "p")
    estimate = ntmp_done(*open_side, "--json").json
    assert estimate["identified"] is False
    assert sorted((estimate["prior"], estimate["mirror"])) == pytest.approx([0.3, 0.7], abs=0.06)
    ended = ntmp_done(*open_side, "--if-exists", "overwrite")
    assert "known only up to its mirror" in " ".join(ended.out.split())
    assert "--assume 'prior<0.5'" in ended.out
    training = ntmp("train", "--tuples", tmp_path / "t", "--prior-from", tmp_path / "p", "--out", tmp_path / "r")
    assert training.code == 4
    assert "do not determine which" in training.err
    for assumed, expected in (("prior>0.5", 0.7), ("prior<0.5", 0.3)):
        estimate = ntmp_done(
            *("estimate-prior", "--tuples", tmp_path / "t", *LIGHT, "--assume", assumed),
            *("--if-exists", "overwrite", "--json", "--out", tmp_path / "p"),
        ).json
        assert estimate["prior"] == pytest.approx(expected, abs=0.06)


@pytest.mark.slow
def test_a_score_model_that_learned_nothing_gives_the_whole_range(gaussian, ntmp_done, tmp_path):
    tuples, _, _ = gaussian
    lazy = ("--model", "mlp", "--epochs", 1, "--lr", 1e-7, "--resamples", 20)
    ended = ntmp_done("estimate-prior", "--tuples", tuples, *lazy, "--out", tmp_path / "p", "--json")
    assert ended.json["ci"] == [0.0, 1.0]
    assert any("almost uninformative" in text for text in ended.json["warnings"])
    assert "it is trained for 4" in ended.err


@pytest.mark.slow
def test_rows_of_a_table_are_scored_by_learners_for_tables(gaussian, ntmp_done, tmp_path):
    """All tuples are used, and no network is trained."""
    tuples, _, _ = gaussian
    ended = ntmp_done("estimate-prior", "--tuples", tuples, "--resamples", 20, "--out", tmp_path / "p", "--json")
    facts = ntmp_done("inspect", tuples, "--json").json["summary"]["tuples"]
    assert ended.json["tuples"] == facts["train"] + facts["heldout"]
    low, high = ended.json["ci"]
    assert low <= 0.7 <= high
    assert high - low < 0.2


@pytest.mark.slow
def test_the_first_commands_of_the_readme_give_a_prior(ntmp_done, tmp_path):
    """On these tuples the estimate used to end with exit 4, and with it the chain of commands."""
    tuples = ("--dataset", "digits", "--n", 3, "--m", 1, "--prior", 0.5, "--seed", 7, "--out", tmp_path / "t")
    ntmp_done("make-tuples", *tuples)
    estimate = ("estimate-prior", "--tuples", tmp_path / "t", "--resamples", 20, "--out", tmp_path / "p")
    low, high = ntmp_done(*estimate, "--json").json["ci"]
    assert low <= 0.5 <= high


@pytest.mark.slow
def test_folds_that_share_instances_are_warned_of(ntmp_done, tmp_path):
    """Digits' tuples use every instance about twice: a fold's scores come from a model that has seen it."""
    tuples = ("--dataset", "digits", "--n", 3, "--m", 1, "--prior", 0.5, "--out", tmp_path / "t")
    ntmp_done("make-tuples", *tuples)
    ended = ntmp_done(
        *("estimate-prior", "--tuples", tmp_path / "t", "--score", "discriminant", "--folds", 2),
        *("--resamples", 20, "--out", tmp_path / "p"),
    )
    assert "of the instances are in tuples of more than one fold" in ended.err


@pytest.mark.slow
def test_two_of_seven_digits_give_a_prior(ntmp_done, tmp_path):
    """They ended with exit 4 after too few epochs, and the hint that was printed did so again."""
    tuples = ("--dataset", "digits", "--n", 7, "--m", 2, "--prior", 0.2, "--out", tmp_path / "t")
    ntmp_done("make-tuples", *tuples)
    estimate = ("estimate-prior", "--tuples", tmp_path / "t", "--resamples", 20, "--out", tmp_path / "p")
    answer = ntmp_done(*estimate, "--json").json
    low, high = answer["ci"]
    assert low <= 0.2 <= high
    assert answer["tuple_rate"] == pytest.approx(2 / 7)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("words", [(), ("--model", "mlp", "--epochs", 2, "--folds", 2)], ids=["table", "network"])
def test_rows_that_are_equal_are_items_of_their_own(words, ntmp_done, tmp_path):
    """Two answers give four different rows, which are in all tuples: ids tell items apart, not their features."""
    rng = np.random.default_rng(0)
    y = rng.random(420) < 0.4
    answers = (rng.random((420, 2)) < np.where(y, 0.85, 0.15)[:, None]).astype(int)
    counts = y[:300].reshape(100, 3).sum(axis=1)
    owners = [*(f"t{i // 3},{counts[i // 3]}" for i in range(300)), *[","] * 120]
    lines = [f"{owner},{a},{b}" for owner, (a, b) in zip(owners, answers, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["tuple_id,count,first,second", *lines]) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    estimate = ("estimate-prior", "--tuples", tmp_path / "t", *words, "--resamples", 20, "--out", tmp_path / "p")
    ended = ntmp_done(*estimate, "--json")
    assert "in tuples of more than one fold" not in ended.err
    assert ended.json["tuples"] == (90 if words else 100)  # folds are of the training tuples, and all judge
    low, high = ended.json["ci"]
    assert low <= y[300:].mean() <= high
    assert ntmp_done("audit", "--tuples", tmp_path / "t", "--json").json["before_training"]["repeated_instances"] == 0


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--estimator", "median"), 2, "unknown prior 'median'"),
        (("--folds", 1), 2, "folds"),
        (("--assume", "prior=0.5"), 2, "assume"),
        (("--model", "mpl"), 2, "unknown model 'mpl'"),
    ],
)
def test_what_cannot_be_meant_is_refused(ntmp, tuples, tmp_path, more, code, said):
    ended = ntmp("estimate-prior", "--tuples", tuples, *more, "--out", tmp_path / "p")
    assert ended.code == code
    assert said in ended.err
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
def test_a_study_can_estimate_its_prior_and_compare_it_with_the_known_one(ntmp_done, tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "seeds: [0, 1]\n"
        "make_tuples: {dataset: gaussians, tuples: ['3:1'], prior: 0.7, num_tuples: 300, unlabeled_size: 400}\n"
        "estimate_prior: {model: linear, epochs: 6, lr: 0.05, resamples: 50}\n"
        "train: {method: count, model: linear, epochs: 2}\n"
        "runs: {known: {prior: 0.7}, unknown: {}}\n"
    )
    estimate = ntmp_done("run", file, "--json", "--out", tmp_path / "study").json
    assert "prior-0" in json.dumps(estimate)
    unknown = open_artifact(tmp_path / "study" / "runs" / "unknown-1", "run")
    known = open_artifact(tmp_path / "study" / "runs" / "known-1", "run")
    assert [given["kind"] for given in unknown.manifest.inputs] == ["tuples", "prior"]
    assert [given["kind"] for given in known.manifest.inputs] == ["tuples"]
    assert unknown.manifest.config["prior"] != 0.7
    again = ntmp_done("run", file, "--out", tmp_path / "study")
    assert "0 steps done" in again.out
    table = (tmp_path / "study" / "report" / "results.md").read_text()
    assert "estimated" in table  # both seeds of a method whose prior was estimated are one row


def test_a_sweep_of_priors_goes_out_from_the_estimate(gaussian, ntmp, ntmp_done, tmp_path):
    tuples, prior, estimate = gaussian
    sweep = ("sweep", "prior", "--prior-from", prior, "--offset", 0, "--offset", 0.1, "--seed", 0, "--dry-run")
    plan = ntmp_done(*sweep, "--tuples", tuples, "--json", "--out", tmp_path / "sweep").json
    assert plan["prior"] == pytest.approx(estimate["prior"])
    ended = ntmp(*sweep, "--out", tmp_path / "sweep")
    assert ended.code == 2
    assert "--prior-from: needs --tuples" in ended.err


@pytest.mark.slow
def test_a_report_shows_how_the_prior_was_found(gaussian, study, ntmp_done, tmp_path):
    _, out, estimate = gaussian
    ntmp_done("report", study.evaluation, "--prior", out, "--out", tmp_path / "r")
    assert (tmp_path / "r" / "prior-1.svg").read_bytes() == (out / "prior.svg").read_bytes()
    page = (tmp_path / "r" / "index.html").read_text()
    assert f"Class prior {estimate['prior']:.4f} by em-affine, 95% interval" in page
