"""What a user can get wrong: each has its exit code and its own words, no traceback, and writes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.stages import make_tuples as make_tuples_stage


@dataclass(frozen=True)
class Place:
    """Where a mistake is made: an empty folder, and the shared study."""

    folder: Path
    study: object

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


Words = Callable[[Place], list[object]]


def making(*words: object) -> Words:
    return lambda place: ["make-tuples", *words, "--out", place.folder / "out"]


def making_from_yaml(text: str | bytes, *words: object) -> Words:
    return lambda place: [
        *("make-tuples", "--config", place.file("c.yaml", text), *words, "--out", place.folder / "out")
    ]


def making_from_npz(**arrays: object) -> Words:
    def words(place: Place) -> list[object]:
        np.savez(place.folder / "data.npz", **arrays)
        dataset = f"npz:{place.folder}/data.npz"
        return ["make-tuples", "--dataset", dataset, "--prior", 0.5, "--out", place.folder / "out"]

    return words


def training(*words: object) -> Words:
    return lambda place: [
        *("train", "--tuples", place.study.tuples, "--model", "linear", "--epochs", 1, *words),
        *("--out", place.folder / "out"),
    ]


def training_on(kind: str) -> Words:
    return lambda place: ["train", "--tuples", place.study.every[kind], "--prior", 0.5, "--out", place.folder / "out"]


def evaluating(*words: object) -> Words:
    return lambda place: ["evaluate", place.study.run_abs, *words, "--out", place.folder / "out"]


def evaluating_kind(kind: str) -> Words:
    return lambda place: ["evaluate", place.study.every[kind], "--out", place.folder / "out"]


def reporting(*words: object) -> Words:
    return lambda place: ["report", place.study.evaluation, *words, "--out", place.folder / "out"]


def reporting_kind(kind: str) -> Words:
    return lambda place: ["report", place.study.every[kind], "--out", place.folder / "out"]


def studying(text: str, *words: object) -> Words:
    return lambda place: ["run", place.file("s.yaml", text), *words, "--out", place.folder / "out"]


def plain(*words: object) -> Words:
    return lambda place: list(words)


NAN_IMAGES = np.ones((20, 4, 4), np.float32)
NAN_IMAGES[3, 1, 2] = np.nan
LABELS = np.arange(20) % 2

MISTAKES: dict[str, tuple[Words, int, str]] = {
    # make-tuples
    "m > n": (
        making("--n", 3, "--m", 4),
        2,
        "error: tuple spec '3:4': m = 4 positives do not fit into a tuple of n = 3\n",
    ),
    "unreachable prior": (
        making("--prior", 0.9, "--unlabeled-size", 600),
        2,
        "error: prior 0.9 cannot be reached: 600 unlabeled instances need 540 positives and 60 negatives, "
        "but only 311 and 336 are available\n",
    ),
    "spec not understood": (making("--tuple", "3/1"), 2, "error: tuple spec '3/1': not understood\n"),
    "spec with an empty range": (
        making("--tuple", "5:3-1"),
        2,
        "tuple spec '5:3-1': counts must be in ascending order",
    ),
    "spec without weight": (making("--tuple", "3:1@0"), 2, "tuple spec '3:1@0': the weight must be above 0"),
    "spec rate": (making("--tuple", "3:~1.5"), 2, "tuple spec '3:~1.5': the rate 1.5 is not in [0, 1]"),
    "n without m": (
        making("--n", 3),
        2,
        "n and m must be given together: --n 3 --m 1 is the short form of --tuple 3:1",
    ),
    "n, m and a spec": (
        making("--n", 3, "--m", 1, "--tuple", "5:2"),
        2,
        "give either n and m or tuple specs, not both",
    ),
    "tuple larger than the pool": (
        making("--n", 1400, "--m", 700, "--num-tuples", 1),
        2,
        "error: a tuple may need 700 different positives, but the train tuple share has ",
    ),
    "unknown dataset": (making("--dataset", "digit"), 2, "error: unknown dataset 'digit'; did you mean 'digits'?\n"),
    "dataset like no other": (making("--dataset", "xyz"), 2, "unknown dataset 'xyz'; choose from: cifar10, digits,"),
    "dataset with an argument it has not": (making("--dataset", "digits:7"), 2, "digits takes no argument"),
    "unknown class": (
        making("--positive", "11"),
        2,
        "error: --positive 11: no such class in digits; did you mean '1'?",
    ),
    "only positives": (
        making(*(word for digit in range(10) for word in ("--positive", digit))),
        2,
        "--positive: every class of digits is positive, so there is nothing to learn",
    ),
    "prior out of range": (making("--prior", 1.5), 2, "configuration: prior: input should be less than 1 (got 1.5)"),
    "prior that is no number": (
        making("--prior", "half"),
        2,
        "error: Invalid value for '--prior': ",
    ),
    "no tuples": (making("--num-tuples", 0), 2, "num_tuples: input should be greater than or equal to 1 (got 0)"),
    "two problems at once": (
        making("--prior", 0, "--seed", -1),
        2,
        "error: configuration: 2 problems\n  prior: input should be greater than 0 (got 0.0)\n"
        "  seed: input should be greater than or equal to 0 (got -1)\n",
    ),
    "resizing what is no folder": (making("--resize", 4), 2, "--resize 4: digits is not a folder of images"),
    "unknown option": (making("--pior", 0.5), 2, "error: No such option: --pior"),
    "unknown if-exists": (making("--if-exists", "maybe"), 2, "'maybe' is not one of 'fail', 'skip', 'overwrite'"),
    "no output": (plain("make-tuples"), 2, "error: Missing option '--out' / '-o'.\nSee `ntmp make-tuples --help`.\n"),
    "npz without a path": (making("--dataset", "npz"), 2, "error: npz: a path is needed\nWrite npz:PATH.\n"),
    "npz that is not there": (making("--dataset", "npz:/nowhere/x.npz"), 3, "error: /nowhere/x.npz: no such file\n"),
    "NaN pixels": (
        making_from_npz(x=NAN_IMAGES, y=LABELS),
        3,
        "instances hold NaN or infinite values, the first at row ",
    ),
    "infinite features": (
        making_from_npz(x_train=np.full((9, 2), np.inf), y_train=LABELS[:9], x_test=np.ones((4, 2)), y_test=LABELS[:4]),
        3,
        "error: npz:data.npz: 9 train instances hold NaN or infinite values, the first at row 0\n"
        "Remove or impute these rows before making tuples.\n",
    ),
    "positive class unknown": (
        making_from_npz(x=np.ones((20, 2)), y=np.arange(20) % 3),
        2,
        "error: npz:data.npz: which classes are positive? The data has 0, 1, 2\n"
        "Name them with --positive CLASS, once per class. ",
    ),
    # configuration files and --set
    "unknown key in YAML": (
        making_from_yaml("dataset: digits\nshardsize: 3\n"),
        2,
        "c.yaml: shardsize: unknown setting; did you mean 'shard_size'?",
    ),
    "unknown key in --set": (
        making("--set", "prio=0.5"),
        2,
        "error: configuration: prio: unknown setting; did you mean 'prior'?\n",
    ),
    "unknown group in --set": (making("--set", "a.b=1"), 2, "configuration: a: unknown setting; choose from: "),
    "setting taken for a group": (
        making_from_yaml("prior: 0.5\n", "--set", "prior.x=1"),
        2,
        "error: --set prior.x=1: 'prior' is not a group of settings\n",
    ),
    "--set without a value": (making("--set", "prior"), 2, "error: --set prior: expected KEY=VALUE\n"),
    "--set with broken YAML": (
        making("--set", "positive=["),
        2,
        "error: --set positive=[: the value is not valid YAML\n",
    ),
    "wrong type in YAML": (
        making_from_yaml("num_tuples: many\n"),
        2,
        "num_tuples: input should be a valid integer, unable to parse string as an integer (got 'many')",
    ),
    "fraction of a tuple": (
        making_from_yaml("num_tuples: 2.5\n"),
        2,
        "num_tuples: input should be a valid integer, got a number with a fractional part (got 2.5)",
    ),
    "wrong type in --set": (making("--set", "seed=[1]"), 2, "seed: input should be a valid integer (got [1])"),
    "spec that YAML reads as a number of base 60": (
        making_from_yaml("tuples: [3:1]\n"),
        2,
        'write tuple specs in quotes, as in ["3:1"]',
    ),
    "YAML syntax": (
        making_from_yaml("dataset: digits\nprior: 0.5\ntuples: [3, 1\nseed: 0\n"),
        2,
        "c.yaml line 4: not valid YAML: ",
    ),
    "YAML with tabs": (making_from_yaml("make:\n\tprior: 1\n"), 2, "c.yaml line 2: not valid YAML: found character"),
    "YAML that is a list": (making_from_yaml("- 1\n"), 2, "c.yaml: expected a mapping of setting names to values"),
    "YAML that is not text": (making_from_yaml(b"\xff\xfe\xff"), 2, "c.yaml: not valid YAML: not UTF-8 text"),
    "YAML that is not there": (
        making("--config", "/nowhere/c.yaml"),
        2,
        "error: /nowhere/c.yaml: cannot read the configuration (No such file or directory)\n",
    ),
    # train
    "prior that the method does not estimate": (
        training("--method", "ure", "--prior", "estimate"),
        2,
        "error: configuration: prior: only the method 'count' estimates it while training",
    ),
    "unknown method": (
        training("--prior", 0.5, "--method", "urr"),
        2,
        "error: unknown method 'urr'; did you mean 'ure'?\n`ntmp list methods` shows every choice.\n",
    ),
    "unknown model": (
        training("--prior", 0.5, "--model", "resnet"),
        2,
        "error: unknown model 'resnet'; did you mean 'resnet20'?\n",
    ),
    "unknown clamp": (training("--prior", 0.5, "--clamp", "sqrt"), 2, "'sqrt' is not one of 'none', 'relu', 'abs'"),
    "unknown clamp in --set": (
        training("--prior", 0.5, "--set", "clamp=sqrt"),
        2,
        "clamp: input should be 'none', 'relu' or 'abs' (got 'sqrt')",
    ),
    "unknown training setting": (
        training("--prior", 0.5, "--set", "epoch=3"),
        2,
        "epoch: unknown setting; did you mean 'epochs'?",
    ),
    "no tuples directory": (
        plain("train", "--tuples", "/nowhere/tuples", "--prior", 0.5, "--out", "/nowhere/run"),
        3,
        "error: /nowhere/tuples: no such directory\nPass the directory written by `ntmp make-tuples`.\n",
    ),
    "training on a run": (training_on("run"), 3, "run-abs-0: expected kind 'tuples', found 'run'\n"),
    "training on a report": (training_on("report"), 3, "report: expected kind 'tuples', found 'report'\n"),
    "device that is not there": (
        training("--prior", 0.5, "--device", "cuda:99"),
        2,
        "device cuda:99: not usable here (",
    ),
    "unknown device": (training("--prior", 0.5, "--device", "abacus"), 2, "error: device abacus: not usable here ("),
    "batch of one": (
        training("--prior", 0.5, "--batch-size", 1),
        2,
        "batch_size: input should be greater than or equal to 2",
    ),
    "no threads": (
        training("--prior", 0.5, "--threads", 0),
        2,
        "error: Invalid value for '--threads': ",
    ),
    "every batch inside the margin": (
        training("--prior", 0.5, "--margin-policy", "skip", "--margin", 0.5),
        4,
        "batches of epoch 1 lie inside the margin ε₀ and were skipped\n",
    ),
    "a loss that is no number": (
        training("--prior", 0.5, "--loss", "logistic", "--clamp", "none", "--lr", 1e38, "--optimizer", "sgd"),
        4,
        "error: the loss became ",
    ),
    # evaluate
    "evaluating tuples": (
        evaluating_kind("tuples"),
        3,
        "tuples: expected kind 'run', found 'tuples'\nPass the directory written by `ntmp train`.\n",
    ),
    "unknown metric": (
        evaluating("--metric", "acuracy"),
        2,
        "error: unknown metric 'acuracy'; did you mean 'accuracy'?\n`ntmp list metrics` shows every choice.\n",
    ),
    "reference that was not run": (
        evaluating("--reference", "ure+bas"),
        2,
        "error: --reference ure+bas: no run of that method; did you mean 'ure+abs'?\n",
    ),
    "family that is none": (
        evaluating("--family", "everything"),
        2,
        "'everything' is not one of 'cell', 'dataset', 'metric', 'all'.",
    ),
    "nothing to evaluate": (plain("evaluate", "--out", "/nowhere/eval"), 2, "error: Missing argument 'RUN...'."),
    # report
    "reporting a run": (reporting_kind("run"), 3, "run-abs-0: expected kind 'evaluation', found 'run'\n"),
    "metric not evaluated": (
        reporting("--metric", "acuracy"),
        2,
        "eval; did you mean 'accuracy'?\nEvaluate the runs again with this metric.\n",
    ),
    "comparison with nothing known": (reporting("--compare", "rumour"), 2, "'rumour' is not one of 'paper'."),
    "sweep that is none": (
        lambda place: ["report", place.study.evaluation, "--sweep", place.study.tuples, "--out", place.folder / "out"],
        3,
        "tuples: expected kind 'sweep', found 'tuples'\n",
    ),
    "title that is no text": (
        reporting("--set", "title=[a, b]"),
        2,
        "error: configuration: title: input should be a valid string (got ['a', 'b'])\n",
    ),
    # run
    "study without runs": (
        studying("seeds: [0]\n"),
        2,
        "s.yaml: runs: required, but not given (in the file, or --set runs=VALUE)",
    ),
    "study with an unknown part": (
        studying("runs: {a: {}}\nmake_tuple: {}\n"),
        2,
        "s.yaml: make_tuple: unknown setting; did you mean 'make_tuples'?",
    ),
    "study with an unknown training setting": (
        studying("train: {prior: 0.5, epoch: 3}\nruns: {a: {}}\n"),
        2,
        "s.yaml: train with runs.a: epoch: unknown setting; did you mean 'epochs'?",
    ),
    "study with an unknown setting by --set": (
        studying("runs: {a: {}}\n", "--set", "report.titel=x"),
        2,
        "s.yaml: report.titel: unknown setting; did you mean 'title'?",
    ),
    "study without a prior": (
        studying("runs: {a: {}}\n"),
        2,
        "s.yaml: train with runs.a: prior: required, but not given (--prior X, or --prior-from DIR",
    ),
    "study with a seed of its own": (
        studying("make_tuples: {prior: 0.5, seed: 3}\nruns: {a: {}}\n"),
        2,
        "s.yaml: make_tuples.seed: seeds are given once, by the list `seeds`",
    ),
    "study with a seed in a run": (
        studying("make_tuples: {prior: 0.5}\nruns: {a: {seed: 3}}\n"),
        2,
        "s.yaml: runs.a.seed: seeds are given once, by the list `seeds`",
    ),
    "study with a seed twice": (
        studying("seeds: [1, 1]\nmake_tuples: {prior: 0.5}\nruns: {a: {}}\n"),
        2,
        "s.yaml: seeds: a seed is given twice",
    ),
    "run whose name leads elsewhere": (
        studying("make_tuples: {prior: 0.5}\nruns: {../../escaped: {}}\n"),
        2,
        "s.yaml: runs: '../../escaped' cannot be the name of a folder\n",
    ),
    "study that is not there": (
        plain("run", "/nowhere/s.yaml", "--out", "/nowhere/out"),
        2,
        "error: /nowhere/s.yaml: cannot read the configuration (No such file or directory)\n",
    ),
    # the program
    "unknown command": (plain("mak-tuples"), 2, "error: No such command 'mak-tuples'."),
    "unknown kind of thing": (plain("list", "dataset"), 2, "unknown kind 'dataset'; did you mean 'datasets'?"),
    "option of another command": (plain("list", "models", "--seed", 1), 2, "error: No such option: --seed"),
}


@pytest.mark.parametrize(("words", "code", "text"), MISTAKES.values(), ids=MISTAKES.keys())
def test_each_mistake_has_its_code_and_its_words(words, code, text, ntmp, study, tmp_path):
    arguments = words(Place(tmp_path, study))
    before = sorted(tmp_path.rglob("*"))
    ended = ntmp(*arguments)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert text in ended.err
    assert ended.err.startswith("error: ") or "\nerror: " in ended.err
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/nowhere").exists()


# --- data that are not there --------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist", "cifar10", "svhn"])
def test_a_data_set_that_is_not_there_says_what_to_do(dataset, ntmp, tmp_path, monkeypatch):
    monkeypatch.delenv("NTMP_DATA", raising=False)
    root = tmp_path / "data"
    root.mkdir()
    ended = ntmp("make-tuples", "--dataset", dataset, "--data-root", root, "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"error: {dataset}: not found; searched\n  {root}/" in ended.err
    assert "Pass --data-root or set NTMP_DATA to the folder that holds it, or pass --download.\n" in ended.err
    assert [path.name for path in tmp_path.rglob("*")] == ["data"]


def test_the_data_root_may_come_from_the_environment(ntmp, tmp_path, monkeypatch):
    monkeypatch.setenv("NTMP_DATA", str(tmp_path / "from-environment"))
    ended = ntmp("make-tuples", "--dataset", "mnist", "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"searched\n  {tmp_path}/from-environment/MNIST/raw/" in ended.err


# --- output that exists -------------------------------------------------------------------------


def test_output_that_exists_is_refused_and_kept(ntmp, study):
    before = {path: path.read_bytes() for path in study.run_abs.rglob("*") if path.is_file()}
    ended = ntmp("train", "--tuples", study.tuples, "--prior", 0.5, "--epochs", 1, "--out", study.run_abs)
    assert ended.code == 2
    assert f"error: {study.run_abs}: exists already\n" in ended.err
    assert "--if-exists skip (keep it) or --if-exists overwrite." in ended.err
    assert {path: path.read_bytes() for path in study.run_abs.rglob("*") if path.is_file()} == before


def test_skip_keeps_equal_output_and_refuses_other_output_with_the_setting(ntmp, ntmp_done, study, tmp_path):
    out = tmp_path / "run"
    training = ("train", "--tuples", study.tuples, "--prior", 0.5, "--model", "linear", "--out", out)
    first = ntmp_done(*training, "--epochs", 1, "--json").json
    modified = (out / "manifest.json").stat().st_mtime_ns
    kept = ntmp_done(*training, "--epochs", 1, "--if-exists", "skip", "--json").json
    assert kept == first
    assert (out / "manifest.json").stat().st_mtime_ns == modified
    ended = ntmp(*training, "--epochs", 2, "--if-exists", "skip")
    assert ended.code == 2
    assert f"error: {out}: exists, but from other inputs or settings (epochs: 1 there, 2 now)\n" in ended.err
    replaced = ntmp_done(*training, "--epochs", 2, "--if-exists", "overwrite", "--json").json
    assert replaced["epochs"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("if_exists", ["fail", "skip", "overwrite"])
@pytest.mark.parametrize(
    "words",
    [
        making("--num-tuples", 5, "--prior", 0.5),
        training("--prior", 0.5),
        evaluating(),
        reporting(),
    ],
    ids=["make-tuples", "train", "evaluate", "report"],
)
def test_no_command_replaces_a_foreign_directory(words, if_exists, ntmp, study, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text('{"name": "My App"}')
    (out / "thesis.tex").write_text("precious")
    ended = ntmp(*words(Place(tmp_path, study)), "--if-exists", if_exists)
    assert ended.code == 2
    assert f"error: {out}: exists and was not written by ntmp, so it is never replaced\n" in ended.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["manifest.json", "out", "thesis.tex"]
    assert (out / "thesis.tex").read_text() == "precious"


# --- input that is damaged ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("tuples", "train/tuples-00000.h5", lambda path: ["train", "--tuples", path, "--prior", 0.5]),
        ("tuples", "train/unlabeled-00000.h5", lambda path: ["train", "--tuples", path, "--prior", 0.5]),
        ("tuples", "test.h5", lambda path: ["train", "--tuples", path, "--prior", 0.5]),
        ("run", "scores.h5", lambda path: ["evaluate", path]),
        ("run", "oracle/test-labels.h5", lambda path: ["evaluate", path]),
        ("run", "oracle/heldout-unlabeled.h5", lambda path: ["evaluate", path]),
        ("run", "history.jsonl", lambda path: ["evaluate", path]),
        ("evaluation", "summary.json", lambda path: ["report", path]),
        ("evaluation", "curves.jsonl", lambda path: ["report", path]),
        ("evaluation", "comparisons.jsonl", lambda path: ["report", path]),
        ("evaluation", "reliability.jsonl", lambda path: ["report", path]),
    ],
)
def test_a_stage_refuses_damaged_input(kind, name, words, ntmp, study, tmp_path):
    path = tmp_path / "in"
    shutil.copytree(study.every[kind], path)
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)
    ended = ntmp(*words(path), "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"error: {path / name}: damaged: its contents do not match the recorded hash\n" in ended.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


# --- requests without an answer -----------------------------------------------------------------


@pytest.fixture(scope="module")
def not_identifiable(ntmp_done, tmp_path_factory) -> Path:
    """Tuples whose only rate is the prior of U."""
    out = tmp_path_factory.mktemp("hopeless") / "tuples"
    words = ("--n", 2, "--m", 1, "--prior", 0.5, "--num-tuples", 20, "--unlabeled-size", 40)
    ended = ntmp_done("make-tuples", *words, "--out", out)
    warning = (
        "warning: the unlabeled prior π = 0.5 equals the only tuple rate α = 0.5: no unbiased risk is identifiable"
    )
    assert ended.err.startswith(warning)
    return out


def test_tuples_without_a_risk_are_written_with_a_warning(not_identifiable):
    artifact = open_artifact(not_identifiable)
    artifact.verify()
    assert len(artifact.summary.warnings) == 1
    assert artifact.summary.effective_gap == 0


@pytest.mark.parametrize("clamp", ["none", "relu", "abs"])
def test_training_on_tuples_without_a_risk_exits_4(clamp, ntmp, not_identifiable, tmp_path):
    training = ("train", "--tuples", not_identifiable, "--prior", 0.5, "--clamp", clamp)
    ended = ntmp(*training, "--out", tmp_path / "out")
    assert (ended.code, ended.out) == (4, "")
    assert (
        "error: the risk is not identifiable: every tuple's rate equals the prior π = 0.5 (effective gap √D/S₀ = 0)\n"
    ) in ended.err
    assert "Mix in tuples of another rate, such as 3:2 beside 3:1," in ended.err
    assert list(tmp_path.iterdir()) == []


def test_pooling_several_rates_at_the_prior_exits_4_and_names_the_way_out(ntmp, ntmp_done, tmp_path):
    made = ("make-tuples", "--tuple", "4:1", "--tuple", "4:3", "--prior", 0.5, "--num-tuples", 2)
    seed = 0
    while True:  # one tuple of either rate
        result = ntmp_done(*made, "--seed", seed, "--if-exists", "overwrite", "--json", "--out", tmp_path / "t").json
        if len(result["strata"]) == 2:
            break
        seed += 1
    training = ("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--model", "linear", "--epochs", 1)
    ended = ntmp(*training, "--mixing", "pooled", "--out", tmp_path / "r")
    assert ended.code == 4
    assert "the mean tuple rate ᾱ = 0.5 equals the prior π = 0.5\n" in ended.err
    assert "Use the method ure with stratified mixing if the tuples have several rates" in ended.err
    ntmp_done(*training, "--mixing", "stratified", "--out", tmp_path / "r")


def test_a_small_gap_is_warned_about_with_its_numbers(ntmp_done, tmp_path):
    words = ("--n", 2, "--m", 1, "--prior", 0.48, "--num-tuples", 20, "--unlabeled-size", 100)
    ended = ntmp_done("make-tuples", *words, "--json", "--out", tmp_path / "t")
    assert ended.err.startswith("warning: the gap |π − α| = |0.48 − 0.5| = 0.02 is below 0.05: ")
    assert len(ended.json["warnings"]) == 1


def test_select_best_without_heldout_tuples_warns_and_keeps_the_last_epoch(ntmp_done, tmp_path):
    ntmp_done("make-tuples", "--prior", 0.5, "--num-tuples", 60, "--heldout-share", 0, "--out", tmp_path / "t")
    ended = ntmp_done(
        *("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--model", "linear", "--epochs", 2),
        *("--select", "best", "--json", "--out", tmp_path / "r"),
    )
    assert f"warning: {tmp_path}/t: no held-out tuples were set aside, so the last epoch is kept\n" in ended.err
    assert ended.json["selected_epoch"] == 2
    assert [record["heldout_risk"] for record in ended.json["history"]] == [None, None]


def test_a_network_for_images_refuses_features(ntmp, ntmp_done, tmp_path):
    data = "gaussians:size=200,test=20"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.5, "--num-tuples", 9, "--out", tmp_path / "t")
    ended = ntmp("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--model", "resnet20", "--out", tmp_path / "r")
    assert ended.code == 2
    assert "error: model resnet20 needs images, but an instance has shape (2,)\nUse the model mlp.\n" in ended.err


def test_a_metric_that_was_not_evaluated_cannot_be_reported(ntmp, ntmp_done, study, tmp_path):
    ntmp_done("evaluate", study.run_abs, "--metric", "ap", "--out", tmp_path / "e")
    ended = ntmp("report", tmp_path / "e", "--metric", "auroc", "--out", tmp_path / "p")
    assert ended.code == 2
    assert f"error: --metric auroc: not in the evaluation {tmp_path}/e; choose from: ap\n" in ended.err
    assert not (tmp_path / "p").exists()


# --- what is not the user's mistake ------------------------------------------------------------------


def fail_with(error: BaseException) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


MAKING = ("make-tuples", "--prior", 0.5, "--num-tuples", 5, "--out")


def test_ctrl_c_before_publishing_leaves_nothing(ntmp, tmp_path, monkeypatch):
    monkeypatch.setattr(make_tuples_stage, "write_instances", fail_with(KeyboardInterrupt()))
    ended = ntmp(*MAKING, tmp_path / "out")
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == "error: interrupted; nothing was published\n"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_exits_3_and_leaves_nothing(ntmp, tmp_path, monkeypatch):
    error = OSError(28, "No space left on device", "/somewhere/test.h5")
    monkeypatch.setattr(make_tuples_stage, "write_instances", fail_with(error))
    ended = ntmp(*MAKING, tmp_path / "out")
    assert ended.code == 3
    assert ended.err == (
        "error: /somewhere/test.h5: No space left on device\nCheck the path, its permissions and the free space.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_of_ours_exits_1_and_shows_where_when_asked(debug, ntmp, tmp_path, monkeypatch):
    monkeypatch.setattr(make_tuples_stage, "write_instances", fail_with(ZeroDivisionError("oh")))
    if debug:
        monkeypatch.setenv("NTMP_DEBUG", "1")
    else:
        monkeypatch.delenv("NTMP_DEBUG", raising=False)
    ended = ntmp(*MAKING, tmp_path / "out")
    assert ended.code == 1
    assert "error: internal error: ZeroDivisionError: oh\nSet NTMP_DEBUG=1" in ended.err
    assert ("Traceback" in ended.err) is debug
    assert list(tmp_path.iterdir()) == []
