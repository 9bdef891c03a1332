"""`ntmp design` as a user runs it: the verdict first, one JSON object, nothing written unless asked."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.runs import open_run
from ntmp_cli.artifacts.stored_scorer import load_network
from ntmp_cli.artifacts.stored_tuples import StoredTuples

SPECS = ("--tuple", "3:1@0.5", "--tuple", "3:2@0.5", "--prior", "0.5", "--num-tuples", 6000, "--unlabeled-size", 9000)


def test_a_mixture_around_the_prior_is_identifiable_only_by_strata(ntmp_done):
    facts = ntmp_done("design", *SPECS, "--json").json
    assert (facts["kind"], facts["out"]) == ("design", None)
    assert facts["strata"] == [
        {"n": 3, "m": 1, "rate": 1 / 3, "tuples": 3000.0, "instances": 9000.0},
        {"n": 3, "m": 2, "rate": 2 / 3, "tuples": 3000.0, "instances": 9000.0},
    ]
    known = facts["identifiable"]
    assert (known["unbiased_risk"], known["unbiased_risk_pooled"], known["count_likelihood"]) == (True, False, True)
    # gap² = V/f: rates 1/6 from their mean, a third of the instances unlabeled.
    assert facts["conditioning"]["gap"] == pytest.approx((1 / 36 / (1 / 3)) ** 0.5)
    assert facts["conditioning"]["condition_number_pooled"] is None
    first = facts["changes"][0]["text"]
    assert first.startswith(
        "`count`, the default, needs no change. For `--method ure`, keep `--mixing stratified`: the "
    )


def test_not_identifiable_is_an_answer_with_the_verdict_first(ntmp_done):
    ended = ntmp_done("design", "--tuple", "2:1", "--prior", 0.5)
    lines = ended.out.splitlines()
    assert lines[0] == "Design: expected of 2:1"
    assert lines[2] == "What to change"
    assert " ".join(line.strip() for line in lines[3:5]).startswith(
        "• `count`, the default, cannot identify the orientation: every tuple is half positive, as is U;"
    )
    assert ended.err == ""


def test_counts_learn_where_the_risk_cannot(ntmp_done):
    facts = ntmp_done("design", "--tuple", "5:1", "--prior", 0.2, "--json").json
    assert facts["identifiable"]["unbiased_risk"] is False
    assert facts["identifiable"]["count_likelihood"] is True
    (first, *_) = facts["changes"]
    assert first["grave"] is False
    assert first["text"].startswith("`count`, the default, learns from these tuples")
    assert facts["conditioning"]["inflation_over_labels"] is None
    assert facts["prior_error"]["paper_bound"] == {
        **{"value": None, "excess_risk": None},
        **{"vacuous": True, "excess_vacuous": True},
    }


def test_advice_followed_on_the_command_line_keeps_the_margin(ntmp_done):
    base = ("--prior", 0.35, "--unlabeled-size", 40000, "--json")
    facts = ntmp_done("design", "--tuple", "3:1", "--num-tuples", 20000, *base).json
    assert facts["margin"]["kept"] is False
    assert facts["margin"]["additions"]
    for added in facts["margin"]["additions"]:
        total = 20000 + int(added["tuples"])
        mixed = ("--tuple", "3:1@20000", "--tuple", f"{added['n']}:{added['m']}@{added['tuples']}")
        after = ntmp_done("design", *mixed, "--num-tuples", total, *base).json
        assert after["margin"]["kept"] is True, added
        assert after["conditioning"]["gap"] == pytest.approx(0.05, rel=0.05)
    low, high = facts["margin"]["priors_to_avoid"]
    assert (low, high) == pytest.approx((1 / 3 - 0.05, 1 / 3 + 0.05))


def test_the_variance_is_given_for_exact_and_for_iid_pools(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.6, "--num-tuples", 1000, "--unlabeled-size", 2000)
    facts = ntmp_done(*words, "--json").json["conditioning"]
    # One stratum: 4π²(1−π)²/N_T + (π(1−α) + (1−π)α)²/N_U; the pool's term grows by 1 + π(1−π)(1−2e)²/(e(1−e)).
    tuples, pool = (2 * 0.24) ** 2 / 3000, (0.6 * 2 / 3 + 0.4 / 3) ** 2 / 2000
    scale = 5000 / (0.6 - 1 / 3) ** 2
    assert facts["inflation_over_labels"] == pytest.approx(scale * (tuples + pool))
    grown = scale * (tuples + pool * (1 + 0.24 * 0.64 / 0.09))
    assert facts["inflation_iid_pool"] == pytest.approx({"error_rate": 0.1, "stratified": grown, "pooled": grown})
    shown = " ".join(ntmp_done(*words).out.split())
    assert f"variance of the risk, i.i.d. pool {grown:.3g} times" in shown


def test_a_bound_above_the_losses_own_is_called_vacuous(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.4, "--prior-error", 0.02)
    facts = ntmp_done(*words, "--json").json
    error = facts["prior_error"]
    assert error["paper_bound"]["value"] == pytest.approx(2 * 0.02 / (0.4 - 1 / 3) ** 2)
    assert error["paper_bound_either_sign"]["value"] == pytest.approx(2 * 0.02 / (0.4 - 1 / 3 - 0.02) ** 2)
    assert error["paper_bound"]["excess_risk"] == pytest.approx(2 * error["paper_bound"]["value"])
    assert error["paper_bound"]["vacuous"] is True
    assert error["largest_bias"]["vacuous"] is False
    (line,) = [line for line in ntmp_done(*words).out.splitlines() if line.startswith("the paper's bound 2B|δ|/γ²")]
    assert line.rstrip().endswith("B, vacuous")


def test_an_excess_risk_above_the_losses_bound_is_called_vacuous_where_the_bias_is_not(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.5, "--prior-error", 0.01, "--loss", "logistic")
    facts = ntmp_done(*words, "--json").json["prior_error"]["paper_bound"]
    assert (facts["value"], facts["excess_risk"]) == (pytest.approx(0.72), pytest.approx(1.44))
    assert (facts["vacuous"], facts["excess_vacuous"]) == (False, True)
    shown = " ".join(ntmp_done(*words).out.split())
    assert "the paper's bound 2B|δ|/γ² 0.72 B, excess risk 1.44 B (vacuous)" in shown
    assert "B none: values in B hold once scores are bounded" in shown


def test_the_error_of_the_prior_has_a_sign(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.5, "--prior-error")
    away, towards = (ntmp_done(*words, error, "--json").json["prior_error"] for error in (0.02, -0.02))
    assert (away["trained_prior"], towards["trained_prior"]) == (0.52, 0.48)
    assert away["paper_bound"]["value"] == pytest.approx(1.44)
    assert towards["paper_bound"]["value"] == pytest.approx(1.8595, abs=1e-4)
    assert away["paper_bound_either_sign"] == towards["paper_bound_either_sign"] == towards["paper_bound"]
    assert away["largest_bias"]["value"] == pytest.approx(0.02 * (0.52 * 2 / 3 + 0.48 / 3) / (0.52 - 1 / 3))
    assert "If π̂ = 0.52 is trained with (δ = +0.02)" in ntmp_done(*words, 0.02).out


def test_an_uncertain_estimate_near_the_rate_is_advised_away_from_it(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.38, "--prior-error", 0.1, "--json")
    facts = ntmp_done(*words).json
    shrunk = facts["prior_error"]["shrunk"]
    (advice,) = [change["text"] for change in facts["changes"] if "shrink it away" in change["text"]]
    assert f"`--prior {shrunk['prior']:.3g}` lowers the largest bias" in advice
    # Followed: of the priors from 0.28 to 0.48, the farthest from what is trained with has the bias that was said.
    for trained, worst in ((0.38, "worst_bias_of_estimate"), (shrunk["prior"], "worst_bias")):
        at_end = ("--prior", 0.28, "--prior-error", trained - 0.28, "--json")
        biased = ntmp_done("design", "--tuple", "3:1", *at_end).json["prior_error"]["largest_bias"]["value"]
        assert biased >= shrunk[worst] * (1 - 1e-9)
    assert shrunk["worst_bias"] < shrunk["worst_bias_of_estimate"] - 0.2
    far = ntmp_done("design", "--tuple", "3:1", "--prior", 0.6, "--prior-error", 0.1, "--json").json
    assert far["prior_error"]["shrunk"] is None


def test_lipschitz_losses_have_bounds_by_the_largest_score(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.6, "--loss", "logistic")
    unbounded = ntmp_done(*words, "--json").json["loss"]
    assert (unbounded["bound"], unbounded["in_paper"], unbounded["range"]) == (None, None, None)
    assert "values in B hold once scores are bounded" in " ".join(ntmp_done(*words).out.split())
    bounded = ntmp_done(*words, "--score-bound", 5, "--json").json["loss"]
    assert bounded["in_paper"] == 5
    assert bounded["range"] == pytest.approx(5)  # log(1 + e⁵) − log(1 + e⁻⁵)
    assert "L·G = 5, scores within ±5" in ntmp_done(*words, "--score-bound", 5).out
    # Small scores: the range of the sigmoid loss is nearly 2 L G, and a bound up to that says something.
    sigmoid = ntmp_done("design", "--tuple", "3:1", "--prior", 0.5, "--score-bound", 0.1, "--json").json
    assert sigmoid["loss"]["in_paper"] == pytest.approx(0.025)
    assert sigmoid["loss"]["largest_in_paper"] == pytest.approx(2, rel=0.01)
    error = ("--prior-error", 0.02, "--json")
    small = ntmp_done("design", "--tuple", "3:1", "--prior", 0.5, "--score-bound", 0.1, *error).json
    assert small["prior_error"]["paper_bound"]["value"] == pytest.approx(1.44)
    assert small["prior_error"]["paper_bound"]["vacuous"] is False


def test_errors_of_the_mean_rate_can_be_given(ntmp_done):
    words = ("design", "--tuple", "3:1", "--prior", 0.6, "--rate-error", 0.02, "--rate-proxy", 0.01)
    facts = ntmp_done(*words, "--json").json["rate_error"]
    gap, reach = 0.6 - 1 / 3, 0.01 * (2 * math.log(2 / 0.05)) ** 0.5
    assert facts["always"]["bound"]["value"] == pytest.approx(2 * 0.02 / (gap - 0.02) ** 2)
    assert facts["sub_gaussian"]["reach"] == pytest.approx(reach)
    assert facts["sub_gaussian"]["bound"]["value"] == pytest.approx(2 * reach / (gap - reach) ** 2)
    assert "sub-Gaussian, v = 0.01" in ntmp_done(*words).out
    assert ntmp_done("design", "--tuple", "3:1", "--prior", 0.6, "--json").json["rate_error"] is None


# --- a run's own weights ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlp_run(ntmp_done, tuples, tmp_path_factory):
    out = tmp_path_factory.mktemp("mlp") / "run"
    ntmp_done("train", "--tuples", tuples, "--method", "ure", "--model", "mlp", "--epochs", 1, "--out", out)
    return out


def test_the_bound_of_a_linear_run_is_that_of_its_weights_and_instances(ntmp_done, tuples, study):
    facts = ntmp_done("design", "--tuples", tuples, "--run", study.run_abs, "--json").json["generalisation"]
    network = load_network(open_run(study.run_abs))
    weight, bias = (parameter.detach().double().numpy() for parameter in network.network[-1].parameters())
    assert facts["norms"] == pytest.approx([float(np.sqrt((weight**2).sum() + bias[0] ** 2))])
    stored = StoredTuples(open_artifact(tuples, "tuples"))
    raw = np.concatenate([stored.read_tuples(name, 0, rows)[0] for name, rows in stored.tuple_shards()])
    x = network.inputs(torch.from_numpy(raw)).double().reshape(len(raw), -1).numpy()
    radius = float(np.sqrt((x**2).sum(axis=1).mean() + 1))
    assert facts["radius"]["tuples"] == pytest.approx(radius, rel=1e-5)
    assert facts["radius"]["measured"] is True
    assert facts["rademacher"]["tuples"] == pytest.approx(facts["norms"][0] * radius / len(raw) ** 0.5, rel=1e-5)
    assert facts["excess_risk"] == facts["complexity_term"] + facts["deviation_term"]
    assert (facts["loss"], facts["range"] <= 1) == ("sigmoid", True)


def test_the_bound_of_a_network_is_called_vacuous(ntmp_done, tuples, mlp_run):
    shown = " ".join(ntmp_done("design", "--tuples", tuples, "--run", mlp_run).out.split())
    assert "product of the norms of 5 layers" in shown
    assert "vacuous: no two risks differ by more than" in shown


def test_a_run_alone_is_judged_by_what_it_says_of_itself(ntmp_done, tuples, mlp_run, tmp_path):
    facts = ntmp_done("design", "--run", mlp_run, "--json", "--out", tmp_path / "d").json
    assert (facts["source"], facts["prior"], facts["tuples"]) == ("digits tuples of a run", 0.5, 40)
    assert facts["generalisation"]["vacuous"] is True
    assert facts["generalisation"]["radius"]["measured"] is False
    measured = ntmp_done("design", "--tuples", tuples, "--run", mlp_run, "--json").json["generalisation"]
    assert measured["radius"]["tuples"] < facts["generalisation"]["radius"]["tuples"]
    made = open_artifact(tmp_path / "d", "design")
    assert list(made.manifest.inputs) == [{"kind": "run", "sha256": open_artifact(mlp_run).sha256}]
    assert "## Generalisation of the run (ure+relu, mlp)" in (tmp_path / "d" / "design.md").read_text()


def test_scores_without_a_known_bound_say_why(ntmp_done, tuples, tmp_path):
    ntmp_done("train", "--tuples", tuples, "--method", "attention-mil", "--epochs", 1, "--out", tmp_path / "run")
    facts = ntmp_done("design", "--tuples", tuples, "--run", tmp_path / "run", "--json").json["generalisation"]
    assert facts["reason"].startswith("the bound is known only for chains of linear layers and ReLU")
    shown = " ".join(ntmp_done("design", "--run", tmp_path / "run").out.split())
    assert "bound on the excess risk no bound: the bound is known only for chains" in shown


def test_a_run_of_other_tuples_is_refused(ntmp, ntmp_done, mlp_run, tmp_path):
    made = ("make-tuples", "--dataset", "digits", "--n", 3, "--m", 1, "--prior", 0.5, "--num-tuples", 40, "--seed", 7)
    ntmp_done(*made, "--out", tmp_path / "t")
    ended = ntmp("design", "--tuples", tmp_path / "t", "--run", mlp_run)
    assert ended.code == 2
    assert "was not trained on" in ended.err


def test_noisy_counts_are_advised_against_strata(ntmp_done):
    facts = ntmp_done("design", "--tuple", "3:1", "--prior", 0.6, "--count-noise", 0.1, "--json").json
    noise = facts["count_noise"]
    assert [(s["n"], s["m"]) for s in noise["recorded"]] == [(3, 0), (3, 1), (3, 2)]
    assert noise["largest_bias_stratified"]["value"] > 0.05
    assert noise["largest_bias_pooled"]["value"] == 0
    assert "`--count-noise 0.1`" in facts["changes"][0]["text"]
    assert any("`--mixing pooled`" in change["text"] for change in facts["changes"][1:])


def test_a_tuples_directory_is_judged_by_its_recorded_counts(ntmp_done, tuples, tmp_path):
    facts = ntmp_done("design", "--tuples", tuples, "--json").json
    made = open_artifact(tuples).summary
    assert (facts["source"], facts["prior_from"]) == ("digits tuples", "as simulated")
    assert (facts["prior"], facts["tuples"], facts["unlabeled"]) == (made.prior, 40, 60)
    assert facts["conditioning"]["effective_gap"] == pytest.approx(made.effective_gap)
    given = ntmp_done("design", "--tuples", tuples, "--prior", 0.3, "--json").json
    assert (given["prior"], given["prior_from"]) == (0.3, "given")
    # The truth is not looked at: without its files the answer is the same.
    copy = shutil.copytree(tuples, tmp_path / "copy")
    shutil.rmtree(copy / "oracle")
    assert ntmp_done("design", "--tuples", copy, "--json").json == facts


def test_noise_of_simulated_counts_is_taken_out_of_what_is_judged(ntmp_done, tmp_path):
    made = ("make-tuples", "--dataset", "digits", "--n", 3, "--m", 1, "--prior", 0.5, "--num-tuples", 2000)
    ntmp_done(*made, "--count-noise", 0.2, "--out", tmp_path / "noisy")
    facts = ntmp_done("design", "--tuples", tmp_path / "noisy", "--json").json
    assert facts["count_noise"]["noise"] == 0.2
    main = max(facts["strata"], key=lambda s: s["tuples"])
    assert (main["n"], main["m"]) == (3, 1)
    assert main["tuples"] > 1900  # of which some 1,600 are recorded as such
    assert facts["source"].endswith("true counts estimated from the recorded ones")


def test_out_publishes_numbers_page_and_figure_and_the_same_bytes_again(ntmp_done, tmp_path):
    words = ("design", *SPECS, "--json")
    first = ntmp_done(*words, "--out", tmp_path / "a").json
    second = ntmp_done(*words, "--out", tmp_path / "b").json
    assert first["manifest_sha256"] == second["manifest_sha256"]
    made = open_artifact(tmp_path / "a", "design")
    made.verify()
    assert sorted(entry.path for entry in made.entries()) == [
        *("design.json", "design.md", "variance-inflation.png", "variance-inflation.svg"),
    ]
    numbers = json.loads((tmp_path / "a" / "design.json").read_text())
    assert numbers == {key: first[key] for key in numbers}
    page = (tmp_path / "a" / "design.md").read_text()
    assert page.startswith("# Design: expected of 3:1@0.5+3:2@0.5\n\n## What to change\n\n- `count`, the default,")
    assert "![Variance of the risk against the prior of U](variance-inflation.svg)" in page
    assert ntmp_done("inspect", tmp_path / "a", "--json").json["kind"] == "design"
    assert ntmp_done(*words, "--out", tmp_path / "a", "--if-exists", "skip").json == first


def test_lineage_names_the_tuples(ntmp_done, tuples, tmp_path):
    ntmp_done("design", "--tuples", tuples, "--out", tmp_path / "d")
    made = open_artifact(tmp_path / "d", "design")
    assert list(made.manifest.inputs) == [{"kind": "tuples", "sha256": open_artifact(tuples).sha256}]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "a design comes from a tuples directory or from tuple specs\n"),
        (("--tuple", "3:1", "--tuples", "t", "--prior", 0.5), 2, "from tuple specs, not both\n"),
        (("--tuple", "3:4", "--prior", 0.5), 2, "tuple spec '3:4': m = 4 positives do not fit into a tuple of n = 3\n"),
        (("--tuple", "3:1"), 2, "prior: required with tuple specs, but not given (--prior)\n"),
        (("--tuple", "3:1", "--prior", 1), 2, "prior: input should be less than 1"),
        (("--tuple", "3:1", "--prior", 0.5, "--num-tuples", 0), 2, "num_tuples: input should be greater than"),
        (("--tuples", "nowhere"), 3, "nowhere: no such directory\n"),
        (("--run", "nowhere"), 3, "nowhere: no such directory\n"),
        (("--tuple", "3:1", "--run", "r", "--prior", 0.5), 2, "from tuple specs, not both\n"),
        (
            ("--tuple", "3:1", "--prior", 0.9, "--prior-error", 0.1),
            2,
            "prior_error: +0.1 and the prior 0.9 give 1, which is not between 0 and 1 (--prior-error)\n",
        ),
    ],
)
def test_impossible_designs_are_refused(ntmp, words, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = ntmp("design", *words, "--out", "out")
    assert ended.code == code
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert list(tmp_path.iterdir()) == []


def test_sizes_of_a_directory_cannot_be_asked_otherwise(ntmp, tuples):
    ended = ntmp("design", "--tuples", tuples, "--num-tuples", 5)
    assert ended.code == 2
    assert f"--num-tuples: the tuples directory {tuples} already has its sizes" in ended.err


def test_a_run_is_no_design_source(ntmp, study):
    ended = ntmp("design", "--tuples", study.run_abs)
    assert ended.code == 3
    assert "expected kind 'tuples', found 'run'" in ended.err


def test_counts_with_a_law_of_noise_have_no_second_noise(ntmp, ntmp_done, tmp_path):
    """Means of strata are no counts: rounded down, they would give a design of other tuples."""
    data = ("--dataset", "gaussians:dim=2,size=200,test=20", "--tuple", "3:1", "--tuple", "3:2", "--prior", 0.3)
    ntmp_done("make-tuples", *data, "--num-tuples", 40, "--count-law", "gaussian:1", "--out", tmp_path / "t")
    ended = ntmp("design", "--tuples", tmp_path / "t", "--count-noise", 0.1)
    assert (ended.code, "has ranges, or counts with a law of noise already" in ended.err) == (2, True)
    facts = ntmp_done("design", "--tuples", tmp_path / "t", "--json").json
    assert facts["count_noise"] is None
    assert "estimated from the recorded ones" not in facts["source"]


# What is recorded -----------------------------------------------------------------------------------


def test_noise_and_ranges_say_what_they_cost_against_exact_counts(ntmp_done):
    def recording(*words):
        return ntmp_done("design", *SPECS, *words, "--json").json["recording"]

    assert recording() is None
    noisy, some = recording("--count-law", "gaussian:1"), recording("--record", "at-least-one")
    assert (noisy["recorded"], some["recorded"]) == ("gaussian:1", "at-least-one")
    assert 0.1 < noisy["share_of_exact"] < 0.9
    assert 0.1 < some["share_of_exact"] < 0.9
    assert noisy["exact_share_of_labels"] == some["exact_share_of_labels"]
    shown = " ".join(ntmp_done("design", *SPECS, "--count-law", "gaussian:1").out.split())
    factor = 1 / noisy["share_of_exact"]
    assert f"of the information of exact counts; {factor:.3g} times as many tuples have the same" in shown


def test_a_design_knows_the_law_that_is_kept_with_the_tuples(ntmp_done, tmp_path):
    sizes = ("--tuple", "6:2@0.5", "--tuple", "6:4@0.5", "--prior", 0.5, "--num-tuples", 40, "--unlabeled-size", 60)
    ntmp_done("make-tuples", "--dataset", "gaussians", *sizes, "--count-law", "gaussian:1", "--out", tmp_path / "t")
    kept = ntmp_done("design", "--tuples", tmp_path / "t", "--json").json["recording"]
    assert (kept["recorded"], kept["one_rate_by_size"]) == ("gaussian:1", True)
    shown = " ".join(ntmp_done("design", "--tuples", tmp_path / "t").out.split())
    assert "all of one size have their mean rate; if rates differ, it costs less" in shown
    other = ntmp_done("design", "--tuples", tmp_path / "t", "--count-law", "gaussian:2", "--json").json["recording"]
    assert other["share_of_exact"] < kept["share_of_exact"]


def _stored(ntmp_done, path: Path, cells: list[str], *words: object) -> Path:
    """Tuples of six rows with these cells of counts."""
    rows = [f"t{t},{(7 * t + 3 * i) % 10},{cell}" for t, cell in enumerate(cells) for i in range(6)]
    path.with_suffix(".csv").write_text("\n".join(["tuple_id,x,count", *rows]) + "\n")
    ntmp_done("import-tuples", path.with_suffix(".csv"), "--out", path, *words)
    return path


def test_stored_ranges_say_what_they_cost_against_exact_counts(ntmp_done, tmp_path):
    """Ranges have no rate, so that there is no risk; the likelihood of the counts learns from them."""
    tuples = _stored(ntmp_done, tmp_path / "t", ["1-3", "0-2", "2-4", "1-3"] * 10)
    facts = ntmp_done("design", "--tuples", tuples, "--out", tmp_path / "d", "--json").json
    assert facts["recording"]["recorded"] == "ranges"
    assert 0.2 < facts["recording"]["share_of_exact"] < 0.8
    known = facts["identifiable"]
    assert (known["count_likelihood"], known["unbiased_risk"], facts["conditioning"]) == (True, False, None)
    page = (tmp_path / "d" / "design.md").read_text()
    assert "## If counts are recorded as ranges" in page
    assert "of the information of exact counts" in page
    assert not list((tmp_path / "d").glob("variance-inflation.*"))
    assert "variance-inflation" not in page
    shown = " ".join(ntmp_done("design", "--tuples", tuples).out.split())
    assert "methods that need rates, such as `ure`, refuse them" in shown


def test_stored_counts_of_several_kinds_cost_as_all_of_them_together(ntmp_done, tmp_path):
    tuples = _stored(ntmp_done, tmp_path / "t", ["2", "0-5", "1", "<=3"] * 10, "--heldout-share", 0)
    facts = ntmp_done("design", "--tuples", tuples, "--json").json
    assert facts["recording"]["recorded"] == "20 exact counts, 20 ranges"
    assert 0.4 < facts["recording"]["share_of_exact"] < 0.7
    assert facts["source"].endswith("without 20 whose rate is not known")
    assert facts["conditioning"]["gap"] > 0


def test_tuples_that_are_known_to_have_a_positive_are_a_design(ntmp_done, tmp_path):
    """The zeros alone have a rate; `count` learns from the others as well, and so does the run of it."""
    tuples = _stored(ntmp_done, tmp_path / "t", ["0", ">=1", ">=1"] * 20)
    ntmp_done("train", "--tuples", tuples, "--model", "linear", "--out", tmp_path / "r")
    of_tuples, of_run = (
        ntmp_done("design", *words, "--json").json for words in (("--tuples", tuples), ("--run", tmp_path / "r"))
    )
    assert of_tuples["identifiable"]["count_likelihood"] is True
    assert 0 < of_tuples["recording"]["share_of_exact"] < 0.8
    assert of_run["recording"] == of_tuples["recording"]


def test_records_that_say_nothing_are_named(ntmp_done, tmp_path):
    tuples = _stored(ntmp_done, tmp_path / "t", ["0-6"] * 20)
    facts = ntmp_done("design", "--tuples", tuples, "--json").json
    assert facts["recording"]["share_of_exact"] == 0
    assert facts["changes"][0]["grave"] is True
    assert facts["changes"][0]["text"].startswith("Record counts more exactly")


def test_two_ways_to_record_a_count_are_refused(ntmp):
    ended = ntmp("design", *SPECS, "--record", "percent", "--count-law", "gaussian:1")
    assert ended.code == 2
    assert "--record percent and --count-law gaussian:1 cannot be combined" in ended.err


def test_a_gap_of_just_the_margin_keeps_it(ntmp_done):
    """0.3 − 0.25 is a little less than 0.05 in floating-point numbers."""
    assert ntmp_done("design", "--tuple", "20:5", "--prior", 0.3, "--json").json["margin"]["kept"] is True
