"""What a summary may say: every rule refuses a manifest that breaks it, with exit code 3 and the name of the field."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ntmp_cli.app import run
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.manifest import KINDS
from ntmp_cli.artifacts.runs import train_config
from ntmp_cli.artifacts.summaries import SUMMARIES
from ntmp_cli.errors import ArtifactError

Document = dict[str, Any]
Change = Callable[[Document], object]

TUPLES = ("--dataset", "digits", "--n", "3", "--m", "1", "--prior", "0.5", "--seed", "0")
SMALL = ("--num-tuples", "40", "--unlabeled-size", "60")
TRAINING = ("--prior", "0.5", "--model", "linear", "--epochs", "2", "--select", "last")
CELL = ("make_tuples.prior=0.5", "make_tuples.num_tuples=40", "train.epochs=1", "train.model=linear", "train.lr=0.01")


def done(*words: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = run([str(word) for word in words])
    assert code == 0, err.getvalue()


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """A real manifest of every kind, and by further names of those that have more than one form."""
    work = tmp_path_factory.mktemp("summaries")
    done("make-tuples", *TUPLES, *SMALL, "--out", work / "tuples")
    done("train", "--tuples", work / "tuples", *TRAINING, "--out", work / "run")
    done("train", "--tuples", work / "tuples", *TRAINING, "--encoder", "pixels", "--out", work / "encoded run")
    (features,) = work.glob("features-*")
    done("evaluate", work / "run", "--out", work / "evaluation")
    done("report", work / "evaluation", "--out", work / "report")
    done("design", "--tuples", work / "tuples", "--out", work / "design")
    done("audit", "--tuples", work / "tuples", "--out", work / "audit")
    judging = ("--run", work / "run", "--epochs", 1, "--folds", 2)
    done("audit", "--tuples", work / "tuples", *judging, "--out", work / "judging audit")
    done("export", work / "run", "--format", "torchscript", "--out", work / "export")
    done("explain", work / "run", "--tuples", work / "tuples", "--out", work / "explanation")
    done("make-tuples", *TUPLES, "--heldout-share", 0.3, "--out", work / "all tuples")
    estimating = ("--score", "discriminant", "--resamples", 20)
    done("estimate-prior", "--tuples", work / "all tuples", *estimating, "--out", work / "prior")
    done(
        "train",
        "--tuples",
        work / "all tuples",
        "--prior-from",
        work / "prior",
        *TRAINING[2:],
        "--out",
        work / "estimated run",
    )
    places = {
        name: work / name for name in ("encoded run", "judging audit", "estimated run", *KINDS) if name != "sweep"
    }
    places |= {"features": features}
    return {name: json.loads((path / "manifest.json").read_bytes()) for name, path in places.items()}


@pytest.fixture(scope="module")
def manifest(manifests: dict[str, Document], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Document]:
    """The manifest of a kind, for a test to change; a sweep has processes of its own and is made when it is needed."""

    def of(kind: str) -> Document:
        if kind == "sweep" and kind not in manifests:
            out = tmp_path_factory.mktemp("sweep") / "sweep"
            words = ("sweep", "count-noise", "--rate", 0, "--seed", 0, "--jobs", 1, "--set", "train.method=count")
            done(*words, *(word for setting in CELL for word in ("--set", setting)), "--out", out)
            manifests[kind] = json.loads((out / "results" / "manifest.json").read_bytes())
        return copy.deepcopy(manifests[kind])

    return of


def slow_sweeps(cases: Iterable[Any]) -> list[Any]:
    """Cases of a test by kind, those of sweeps for `make test-slow`."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=[pytest.mark.slow] * (row[0] == "sweep")) for row in rows]


def written(document: Document, folder: Path) -> Path:
    """A directory with this manifest and nothing else: a summary is judged before any file is opened."""
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(document))
    return folder


def setting(**values: Any) -> Change:
    """Replace fields of the summary; `strata__train__0__m` stands for strata.train.0.m."""

    def change(document: Document) -> None:
        for path, value in values.items():
            *parents, leaf = (int(key) if key.isdecimal() else key for key in path.split("__"))
            place = document["summary"]
            for key in parents:
                place = place[key]
            place[leaf] = value

    return change


def dropping(name: str) -> Change:
    return lambda document: document["summary"].pop(name)


def unlisting(name: str) -> Change:
    """Take a file out of the list of files."""

    def change(document: Document) -> None:
        kept = [entry for entry in document["files"] if entry["path"] != name]
        assert len(kept) == len(document["files"]) - 1
        document["files"] = kept

    return change


def listing(name: str) -> Change:
    entry = {"path": name, "bytes": 1, "sha256": "0" * 64, "rows": None}
    return lambda document: document["files"].append(entry)


def with_rows(name: str, rows: int | None) -> Change:
    """Say another number of rows of a file."""

    def change(document: Document) -> None:
        (entry,) = [entry for entry in document["files"] if entry["path"] == name]
        entry["rows"] = rows

    return change


NAN = float("nan")
SHARD, POOL = "train/tuples-00000.h5", "train/unlabeled-00000.h5"
FEATURE = {"name": "age", "kind": "numeric", "missing": 0, "width": 3}
WINDOW = {"run": "count", "metric": "accuracy", "max_width": 0.1, "critical_ci": None}
MORE = {"strata__train__0__tuples": 41, "strata__train__0__instances": 123}

# Kind, what is changed, and what the message says after "manifest.json: summary.".
REFUSALS: list[tuple[str, Change, str]] = [
    # Every kind: nothing missing, nothing unknown, nothing converted, nothing that is not a finite number.
    ("tuples", dropping("spec"), "spec: field required"),
    ("tuples", setting(colour="red"), "colour: extra inputs are not permitted (got 'red')"),
    ("tuples", setting(test="359"), "test: input should be a valid integer (got '359')"),
    ("tuples", setting(test_labels=1), "test_labels: input should be a valid boolean (got 1)"),
    ("tuples", setting(mean_rate=NAN), "mean_rate: input should be a finite number (got nan)"),
    ("run", setting(loss=float("inf")), "loss: input should be a finite number (got inf)"),
    ("run", setting(task=None), "task: "),
    # Ranges of a tuples directory.
    ("tuples", setting(dataset=""), "dataset: string should have at least 1 character"),
    ("tuples", setting(unlabeled__train=-5), "unlabeled.train: input should be greater than or equal to 0 (got -5)"),
    ("tuples", setting(test=-1), "test: input should be greater than or equal to 0 (got -1)"),
    ("tuples", setting(count_noise=9), "count_noise: input should be less than or equal to 1 (got 9)"),
    ("tuples", setting(prior=1.5), "prior: input should be less than or equal to 1 (got 1.5)"),
    ("tuples", setting(effective_gap=-0.1), "effective_gap: input should be greater than or equal to 0 (got -0.1)"),
    ("tuples", setting(reuse__positive=-1.0), "reuse.positive: input should be greater than or equal to 0"),
    ("tuples", setting(instance__scale=0), "instance.scale: input should be greater than 0 (got 0)"),
    ("tuples", setting(instance__dtype="object"), "instance.dtype: string should match pattern"),
    ("tuples", setting(instance__shape=[8, 8]), "instance.shape: an instance is a vector (D) or an image (C, H, W)"),
    ("tuples", setting(instance__shape=[1, 0, 8]), "instance.shape.1: input should be greater than or equal to 1"),
    ("tuples", setting(instance__resize=9), "instance.resize: 9 does not fit images of shape (1, 8, 8)"),
    ("tuples", setting(strata__train__0__n=0), "strata.train.0.n: input should be greater than or equal to 1"),
    ("tuples", setting(strata__train__0__m=4), "strata.train.0.m: 4 positives in a tuple of 3"),
    ("tuples", setting(strata__train__0__rate=0.5), "strata.train.0.rate: 0.5, but m/n is 0.333"),
    ("tuples", setting(strata__train__0__instances=40), "strata.train.0.instances: 40, but there are 40 tuples of 3"),
    # Fields that disagree.
    ("tuples", setting(tuples__train=39), "tuples: train 39, heldout 4, but the strata add up to other numbers"),
    (
        "tuples",
        setting(instances__heldout=13),
        "instances: train 120, heldout 13, but the strata add up to other numbers",
    ),
    ("tuples", setting(strata__heldout=None), "tuples: train 40, heldout 4, but the strata add up to other numbers"),
    ("tuples", setting(mean_rate=0.4), "mean_rate: 0.4 is not the mean rate of the strata"),
    ("tuples", setting(prior=None), "effective_gap: must be given if and only if the prior is known"),
    ("tuples", setting(test=0), "test_labels: there are no test instances"),
    (
        "tuples",
        setting(instance__shape=[64], features=[FEATURE]),
        "features: have 3 numbers, an instance has 64",
    ),
    # Files that disagree.
    (
        "tuples",
        setting(**MORE, tuples__train=41, instances__train=123),
        "tuples.train: 41, but the files train/tuples-* have 40 rows",
    ),
    ("tuples", setting(unlabeled__train=61), "unlabeled.train: 61, but the files train/unlabeled-* have 60 rows"),
    ("tuples", setting(unlabeled__heldout=None), "unlabeled.heldout: 0, but the files heldout/unlabeled-* have"),
    ("tuples", setting(test=5), "test: 5, but test.h5 has 359 rows"),
    ("tuples", with_rows(SHARD, 39), "tuples.train: 40, but the files train/tuples-* have 39 rows"),
    ("tuples", with_rows(SHARD, None), "tuples.train: a file train/tuples-* has no rows"),
    ("tuples", unlisting(POOL), "unlabeled.train: 60, but the files train/unlabeled-* have 0 rows"),
    ("tuples", unlisting("test.h5"), "test: 359, but test.h5 has 0 rows"),
    ("tuples", setting(test_labels=False), "test_labels: False, but oracle/test-labels.h5 is listed"),
    ("tuples", unlisting("oracle/test-labels.h5"), "test_labels: True, but oracle/test-labels.h5 is not listed"),
    ("features", setting(encoder=""), "encoder: string should have at least 1 character"),
    ("features", unlisting("encoder.safetensors"), "encoder: the file encoder.safetensors is not listed"),
    ("features", listing("oracle/test-labels.h5"), "test_labels: False, but oracle/test-labels.h5 is listed"),
    # Runs.
    ("run", setting(task__unlabeled=-5), "task.unlabeled: input should be greater than or equal to 0 (got -5)"),
    ("run", setting(task__strata=[[3, 4, 40]]), "task.strata.0: 4 positives in a tuple of 3"),
    ("run", setting(task__strata=[]), "task.strata: tuple should have at least 1 item"),
    ("run", setting(m=2), "n, m: (3, 2), but the strata say (3, 1)"),
    ("run", setting(n=None, m=None), "n, m: (None, None), but the strata say (3, 1)"),
    ("run", setting(mean_rate=0.5), "mean_rate: 0.5 is not the mean rate of the strata"),
    ("run", setting(tuple_rate=0.5), "tuple_rate: 0.5 is not the share of positives of the strata"),
    ("run", setting(trained_prior=0), "trained_prior: input should be greater than 0 (got 0)"),
    ("run", setting(trained_prior=1), "trained_prior: input should be less than 1 (got 1)"),
    ("run", setting(prior=0.4), "prior: 0.4 is not the prior that results are reported at"),
    ("estimated run", setting(prior=0.4), "prior: 0.4 is not the prior that results are reported at"),
    (
        "run",
        setting(prior_source="guessed"),
        "prior_source: input should be 'given', 'known', 'estimated' or 'tuples' (got 'guessed')",
    ),
    ("run", setting(unlabeled_prior=-0.5), "unlabeled_prior: input should be greater than or equal to 0"),
    ("run", setting(count_noise=9), "count_noise: input should be less than 1 (got 9)"),
    ("run", setting(tuples_content="5de3"), "tuples_content: string should match pattern"),
    ("run", setting(tuples_seed=-1), "tuples_seed: input should be greater than or equal to 0"),
    ("run", setting(parameters=-1), "parameters: input should be greater than or equal to 0"),
    ("run", setting(batch_size=0), "batch_size: input should be greater than or equal to 1"),
    ("run", setting(instance__scale=-16.0), "instance.scale: input should be greater than 0"),
    ("run", setting(selected_epoch=0), "selected_epoch: input should be greater than or equal to 1"),
    ("run", setting(selected_epoch=3), "selected_epoch: 3 of 2 epochs"),
    ("run", setting(features__shape=[64]), "features: differ from the instances, but there is no encoder"),
    ("run", setting(epochs=3), "epochs: 3, but history.jsonl has 2 rows"),
    ("run", with_rows("history.jsonl", 1), "epochs: 2, but history.jsonl has 1 rows"),
    ("run", unlisting("model.safetensors"), "model: the file model.safetensors is not listed"),
    ("run", unlisting("scores.h5"), "model: the file scores.h5 is not listed"),
    ("run", setting(encoder="pixels"), "encoder: pixels, but encoder.safetensors is not listed"),
    ("encoded run", unlisting("encoder.safetensors"), "encoder: pixels, but encoder.safetensors is not listed"),
    ("encoded run", setting(encoder=None), "features: differ from the instances, but there is no encoder"),
    # Priors.
    ("prior", setting(prior=0), "prior: input should be greater than 0 (got 0)"),
    ("prior", setting(prior=NAN), "prior: input should be a finite number (got nan)"),
    ("prior", setting(ci=[0.6, 0.4]), "ci: the lower limit 0.6 is above the upper one 0.4"),
    ("prior", setting(ci=[0.4, 1.6]), "ci.1: input should be less than or equal to 1 (got 1.6)"),
    ("prior", setting(ci=[0.4]), "ci.1: field required"),
    ("prior", setting(confidence=95), "confidence: input should be less than 1 (got 95)"),
    ("prior", unlisting("prior.json"), "prior: the file prior.json is not listed"),
    # Evaluations and reports.
    ("evaluation", setting(metrics=[]), "metrics: tuple should have at least 1 item"),
    ("evaluation", setting(methods=["count", "count"]), "methods: a name is listed twice"),
    ("evaluation", setting(methods=["count", "ure"]), "runs: 1, fewer than methods or data sets"),
    ("evaluation", setting(reference="ure"), "reference: ure is not among the methods"),
    ("evaluation", setting(family="everything"), "family: input should be 'cell', 'dataset', 'metric' or 'all'"),
    ("evaluation", setting(runs=2), "runs: 2 with"),
    ("evaluation", with_rows("rows.jsonl", 1), "but rows.jsonl has 1 rows"),
    ("evaluation", unlisting("summary.json"), "metrics: the file summary.json is not listed"),
    ("report", unlisting("index.html"), "files: differ from the files that the manifest lists"),
    ("report", setting(files=[]), "files: tuple should have at least 1 item"),
    # Designs, sweeps, audits, exports.
    ("design", setting(gap=-1.0), "gap: input should be greater than or equal to 0"),
    ("design", setting(unbiased_risk="yes"), "unbiased_risk: input should be a valid boolean (got 'yes')"),
    ("design", unlisting("design.json"), "source: the file design.json is not listed"),
    ("sweep", setting(sweep="cake"), "sweep: string should match pattern"),
    ("sweep", setting(cells=2), "cells: 2, but 1 are trained and 0 failed"),
    ("sweep", setting(complete=False), "complete: False, but 0 cells failed"),
    ("sweep", setting(windows=[]), "windows: 0, but windows.json has 1 rows"),
    (
        "sweep",
        setting(windows__0__window=[0.5, 0.1]),
        "windows.0.window: the lower limit 0.5 is above the upper one 0.1",
    ),
    ("sweep", setting(windows__0__max_width=NAN), "windows.0.max_width: input should be a finite number"),
    ("sweep", with_rows("rows.jsonl", 0), "trained: 1 cells, but rows.jsonl has 0 rows"),
    ("audit", setting(flagged=1), "count_noise: must be given if and only if tuples were judged"),
    ("audit", setting(flagged=1, count_noise=0.1), "flagged: 1, but tuples.csv has None rows"),
    ("judging audit", setting(flagged=99), "flagged: 99, but tuples.csv has"),
    ("judging audit", setting(count_noise=9), "count_noise: input should be less than or equal to 1 (got 9)"),
    ("judging audit", setting(flagged=None, count_noise=None), "flagged: None, but tuples.csv has"),
    ("export", setting(temperature=0), "temperature: input should be greater than 0 (got 0)"),
    ("export", setting(prior=1.0), "prior: input should be less than 1 (got 1.0)"),
    ("export", setting(input__shape=[None]), "input.shape: tuple should have at least 2 items"),
    ("export", setting(file="model.onnx"), "file: the file model.onnx is not listed"),
    ("explanation", setting(judged=0), "judged: input should be greater than or equal to 1 (got 0)"),
    ("explanation", unlisting("explanation.png"), "judged: the file explanation.png is not listed"),
]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    slow_sweeps(REFUSALS),
    ids=[f"{kind}: {message[:40]}" for kind, _, message in REFUSALS],
)
def test_a_summary_that_breaks_a_rule_is_refused_by_field(
    kind: str,
    change: Change,
    message: str,
    manifest: Callable[[str], Document],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = manifest(kind)
    change(document)
    folder = written(document, tmp_path / "in")
    assert run(["inspect", str(folder)]) == 3
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {folder}/manifest.json: summary.")
    assert message in captured.err
    assert f"Make the directory again with `{KINDS[document['kind']]}`, or restore it from a copy." in captured.err
    assert captured.out == ""


def test_every_kind_has_its_model() -> None:
    assert list(SUMMARIES) == list(KINDS)


@pytest.mark.parametrize("kind", slow_sweeps([*KINDS, "encoded run", "judging audit", "estimated run"]))
def test_a_real_manifest_is_read_and_written_again_with_the_same_bytes(
    kind: str, manifest: Callable[[str], Document], tmp_path: Path
) -> None:
    artifact = open_artifact(written(manifest(kind), tmp_path / "in"))
    assert type(artifact.summary) is SUMMARIES[artifact.kind]
    assert json.loads(artifact.manifest.to_bytes()) == manifest(kind)


@pytest.mark.parametrize("kind", slow_sweeps(KINDS))
def test_every_field_of_a_summary_is_required(kind: str, manifest: Callable[[str], Document], tmp_path: Path) -> None:
    """No reader has to check whether a field exists."""
    assert all(field.is_required() for field in SUMMARIES[kind].model_fields.values())
    assert manifest(kind)["summary"].keys() == SUMMARIES[kind].model_fields.keys()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "features"])
def test_the_page_of_the_format_names_every_field(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}` |")]
    assert [name for name in SUMMARIES[kind].model_fields if f"`{name}`" not in line] == []


@pytest.mark.parametrize(("missing", "more"), [(5, ""), (6, "(and 1 more)")])
def test_all_problems_are_shown_at_once_up_to_five(
    missing: int,
    more: str,
    manifest: Callable[[str], Document],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = manifest("run")
    for name in ("method", "dataset", "tuples", "model", "epochs", "loss")[:missing]:
        dropping(name)(document)
    assert run(["inspect", str(written(document, tmp_path / "in"))]) == 3
    message = capsys.readouterr().err
    assert message.count("field required") == 5
    assert more in message
    assert ("more)" in message) == bool(more)


@pytest.mark.slow
def test_a_sweep_of_the_gap_has_windows_without_a_reference_point(
    manifest: Callable[[str], Document], tmp_path: Path
) -> None:
    document = manifest("sweep")
    setting(sweep="gap", windows=[WINDOW])(document)
    artifact = open_artifact(written(document, tmp_path / "in"), "sweep")
    assert artifact.summary.windows[0].tolerance is None
    assert artifact.summary.to_json()["windows"] == [WINDOW]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prior": 0.25}, "config.prior: 0.25, but summary.trained_prior is 0.5"),
        ({"epochs": 0}, "config.epochs: input should be greater than or equal to 1 (got 0)"),
        ({"colour": "red"}, "config.colour: extra inputs are not permitted (got 'red')"),
        ({"mask_rate": 7}, "config.mask_rate: input should be less than"),
        ({"method": "cake"}, "config.method: unknown method 'cake'"),
    ],
)
def test_settings_of_a_run_that_no_training_could_have_had_are_refused(
    values: Document, message: str, manifest: Callable[[str], Document], tmp_path: Path
) -> None:
    document = manifest("run")
    document["config"].update(values)
    folder = written(document, tmp_path / "in")
    with pytest.raises(ArtifactError) as caught:
        train_config(open_artifact(folder, "run"))
    assert caught.value.message.startswith(f"{folder}/manifest.json: {message}")
    assert caught.value.exit_code == 3
