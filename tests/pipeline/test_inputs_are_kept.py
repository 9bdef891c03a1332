"""No command writes over an input, into one, or around one; every byte of the inputs stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import own_data
import pytest

OVERWRITE = ("--if-exists", "overwrite")


@dataclass(frozen=True)
class Place:
    """Where the input under test lies, and the tiny study that everything else comes from."""

    input: Path
    study: Path

    def __getitem__(self, name: str) -> Path:
        return self.study / name


def copied(name: str) -> Callable[[Place], None]:
    return lambda at: shutil.copytree(at[name], at.input) and None


def npz(at: Place) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 2)).astype(np.float32), np.arange(60) % 2
    np.savez(at.input, x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])


def images(at: Place) -> None:
    pictures = own_data.write_pictures(at.input.parent)
    shutil.move(pictures / "test", at.input)
    shutil.rmtree(pictures / "tuples", ignore_errors=True)


def data_root(at: Place) -> None:
    at.input.mkdir()
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (200, 28, 28), dtype=np.uint8), np.arange(200) % 10
    np.savez(at.input / "mnist.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])


def table(name: str) -> Callable[[Place], None]:
    return lambda at: shutil.copyfile(at["tables"] / f"{name}.csv", at.input) and None


def weights(at: Place) -> None:
    at.input.write_bytes(b"weights")


def settings(text: str) -> Callable[[Place], None]:
    return lambda at: at.input.write_text(text) and None


def imported(**other: str) -> Callable[[Place], list[object]]:
    """An import with one of its four files under test, the others from the study."""

    def words(at: Place) -> list[object]:
        files = {name: at["tables"] / f"{name}.csv" for name in ("tuples", "unlabeled", "test")}
        files |= dict.fromkeys(other.values(), at.input)
        tables = ["import-tuples", files["tuples"], "--unlabeled", files["unlabeled"], "--test", files["test"]]
        return tables + (["--counts", files["counts"]] if "counts" in files else [])

    return words


@dataclass(frozen=True)
class Case:
    """A command: how its input is made, its words but for OUT, and the option that names the output."""

    make: Callable[[Place], object]
    words: Callable[[Place], list[object]]
    name: str = "input"
    out: str = "--out"
    suffix: str = ""
    overwrites: bool = True

    @property
    def is_file(self) -> bool:
        return "." in self.name


MAKE = ["make-tuples", "--prior", 0.5, "--num-tuples", 9]
TRAIN = ["train", "--prior", 0.5, "--model", "linear", "--epochs", 1]
TUPLES, RUN, PRIOR = copied("tuples"), copied("run-abs-0"), copied("prior")
CASES = {
    "make-tuples npz": Case(npz, lambda at: [*MAKE, "--dataset", f"npz:{at.input}", "--positive", "1"], "x.npz"),
    "make-tuples folder": Case(images, lambda at: [*MAKE, "--dataset", f"folder:{at.input}", "--positive", "even"]),
    "import-tuples INPUT": Case(table("tuples"), imported(it="tuples"), "x.csv"),
    "import-tuples --unlabeled": Case(table("unlabeled"), imported(it="unlabeled"), "x.csv"),
    "import-tuples --test": Case(table("test"), imported(it="test"), "x.csv"),
    "import-tuples --counts": Case(table("counts"), imported(it="counts"), "x.csv"),
    "estimate-prior": Case(TUPLES, lambda at: ["estimate-prior", "--tuples", at.input, "--epochs", 1]),
    "train --tuples": Case(TUPLES, lambda at: [*TRAIN, "--tuples", at.input]),
    "train --prior-from": Case(
        PRIOR, lambda at: ["train", "--tuples", at["gaussians"], "--prior-from", at.input, "--epochs", 1]
    ),
    "train --prior over --prior-from": Case(
        PRIOR, lambda at: [*TRAIN, "--tuples", at["gaussians"], "--prior-from", at.input]
    ),
    "train --encoder-weights": Case(
        weights, lambda at: [*TRAIN, "--tuples", at["tuples"], "--encoder-weights", at.input], "w.pth"
    ),
    "train --clip-weights": Case(
        weights, lambda at: [*TRAIN, "--tuples", at["tuples"], "--clip-weights", at.input], "w.pt"
    ),
    "evaluate": Case(RUN, lambda at: ["evaluate", at["run-none-0"], at.input]),
    "report": Case(copied("eval"), lambda at: ["report", at.input]),
    "report --prior": Case(PRIOR, lambda at: ["report", at["eval"], "--prior", at.input]),
    "design": Case(TUPLES, lambda at: ["design", "--tuples", at.input]),
    "audit --tuples": Case(TUPLES, lambda at: ["audit", "--tuples", at.input]),
    "audit --run": Case(RUN, lambda at: ["audit", "--tuples", at["tuples"], "--run", at.input, "--epochs", 1]),
    "export": Case(RUN, lambda at: ["export", at.input, "--format", "torchscript"]),
    "--config": Case(settings("prior: 0.5\n"), lambda at: ["make-tuples", "--config", at.input], "c.yaml"),
    "predict RUN": Case(RUN, lambda at: ["predict", at.input, at["digits.npy"]], suffix=".csv"),
    "predict INPUT": Case(
        table("test"), lambda at: ["predict", at["own-run"], at.input], "x.csv", overwrites=True, suffix=".csv"
    ),
    "inspect --figure": Case(TUPLES, lambda at: ["inspect", at.input], out="--figure", suffix=".png", overwrites=False),
    "sweep --tuples": Case(
        TUPLES,
        lambda at: ["sweep", "grid", "--tuples", at.input, "--vary", "train.lr=[0.01]", "--set", "train.prior=0.5"],
        overwrites=False,
    ),
    "sweep --prior-from": Case(
        PRIOR,
        lambda at: ["sweep", "prior", "--tuples", at["gaussians"], "--prior-from", at.input, "--set", "train.epochs=1"],
        overwrites=False,
    ),
    "run with images": Case(
        images,
        lambda at: ["run", at["study.yaml"], "--set", f"make_tuples.dataset=folder:{at.input}"],
        overwrites=False,
    ),
    "train --tensorboard": Case(
        TUPLES,
        lambda at: [*TRAIN, "--tuples", at.input, "--out", at.input.parent / "run"],
        out="--tensorboard",
        overwrites=False,
    ),
}
# Tables, figures and folders of folders do not replace a directory; of files there is no inside.
FILE_OUTPUTS = {name for name, case in CASES.items() if case.suffix}
STUDIES = {name for name in CASES if name.startswith(("sweep", "run")) or "tensorboard" in name}
FILES = {name for name, case in CASES.items() if case.is_file}


@pytest.fixture(scope="module")
def shared(study, ntmp_done, tmp_path_factory) -> Path:
    """The tiny study and what the other commands read, made once."""
    folder = tmp_path_factory.mktemp("inputs") / "study"
    shutil.copytree(study.tuples.parent, folder)
    easy = ("--dataset", "gaussians:size=2000,separation=4,test=50", "--prior", 0.6, "--num-tuples", 300)
    ntmp_done("make-tuples", *easy, "--out", folder / "gaussians")
    light = ("--model", "linear", "--epochs", 3, "--lr", 0.05, "--resamples", 20)
    ntmp_done("estimate-prior", "--tuples", folder / "gaussians", *light, "--out", folder / "prior")
    (folder / "tables").mkdir()
    own_data.write_csv(folder / "tables")
    rows = (folder / "tables" / "tuples.csv").read_text().splitlines()[1:]
    pairs = dict(row.replace('"', "").split(",")[:2] for row in rows)
    counts = "".join(f"{name},{count}\n" for name, count in pairs.items())
    (folder / "tables" / "counts.csv").write_text(f"tuple_id,count\n{counts}")
    files = [folder / "tables" / f"{name}.csv" for name in ("tuples", "unlabeled")]
    ntmp_done("import-tuples", files[0], "--unlabeled", files[1], "--out", folder / "own")
    ntmp_done(*TRAIN, "--tuples", folder / "own", "--out", folder / "own-run")
    np.save(folder / "digits.npy", np.zeros((3, 1, 8, 8), np.uint8))
    (folder / "study.yaml").write_text(
        "seeds: [0]\nmake_tuples: {positive: ['even'], prior: 0.5, num_tuples: 9}\n"
        "train: {epochs: 1}\nruns: {only: {}}\n"
    )
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below, and what the files hold."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def refused(case: Case, at: Place, out: Path, how: str, ntmp) -> None:
    """The command says which input is in the way, with exit code 2, and changes nothing."""
    before = content(at.input.parents[1])
    more = OVERWRITE if case.overwrites else ()
    ended = ntmp(*case.words(at), *more, case.out, out)
    assert ended.code == 2, ended.err
    assert f"{how} the input {at.input}" in ended.err
    assert ended.err.endswith("and inputs are never changed\nWrite to another place, outside of every input.\n"), (
        ended.err
    )
    assert str(out) in ended.err
    assert content(at.input.parents[1]) == before


def prepared(name: str, shared: Path, tmp_path: Path, *folders: str) -> tuple[Case, Place]:
    case = CASES[name]
    at = Place(tmp_path.joinpath("world", *folders, case.name), shared)
    at.input.parent.mkdir(parents=True, exist_ok=True)
    case.make(at)
    return case, at


@pytest.mark.parametrize("name", sorted(CASES.keys() - (FILE_OUTPUTS - FILES) - STUDIES))
def test_an_output_that_is_the_input_is_refused(name, ntmp, shared, tmp_path):
    case, at = prepared(name, shared, tmp_path)
    refused(case, at, at.input, "is", ntmp)


@pytest.mark.parametrize("name", sorted(CASES.keys() - (FILE_OUTPUTS - FILES) - STUDIES))
def test_an_output_that_is_a_link_to_the_input_is_refused(name, ntmp, shared, tmp_path):
    case, at = prepared(name, shared, tmp_path)
    link = at.input.parent / f"link{case.suffix}"
    link.symlink_to(at.input)
    refused(case, at, link, "is", ntmp)


@pytest.mark.parametrize("name", sorted(CASES.keys() - FILES))
@pytest.mark.parametrize("inside", ["new", "deep/new"])
def test_an_output_inside_the_input_is_refused(name, inside, ntmp, shared, tmp_path):
    case, at = prepared(name, shared, tmp_path)
    refused(case, at, at.input / f"{inside}{case.suffix}", "lies inside", ntmp)


@pytest.mark.parametrize("name", sorted(CASES.keys() - FILE_OUTPUTS - STUDIES))
def test_an_output_around_the_input_is_refused(name, ntmp, shared, tmp_path):
    """The folder around it is an artefact, and would be replaced."""
    around = tmp_path / "world" / "around"
    shutil.copytree(shared / "eval", around)
    case, at = prepared(name, shared, tmp_path, "around", "deep")
    refused(case, at, around, "contains", ntmp)


def test_an_output_around_the_data_root_is_refused_and_one_beside_its_files_is_not(ntmp, ntmp_done, shared, tmp_path):
    """Any folder may hold data sets; what is read are the files of one of them."""
    root = tmp_path / "world" / "data"
    words = [*MAKE, "--dataset", "mnist", "--data-root", root]
    root.parent.mkdir()
    data_root(Place(root, shared))
    shutil.copyfile(shared / "eval" / "manifest.json", root / "manifest.json")
    before = content(root)
    ended = ntmp(*words, *OVERWRITE, "--out", root)
    assert ended.code == 2
    assert f"error: {root}: contains the input {root / 'mnist.npz'}, and inputs are never changed\n" in ended.err
    assert content(root) == before
    ntmp_done(*words, "--out", root / "tuples")
    assert before.items() <= content(root).items()


def test_images_that_a_table_names_are_inputs(ntmp, shared, tmp_path):
    around = tmp_path / "around"
    shutil.copytree(shared / "eval", around)
    pictures = own_data.write_pictures(around / "pictures")
    files = sorted(pictures.rglob("*.png"))[:12]
    rows = "".join(f"t{i // 3},1,{file}\n" for i, file in enumerate(files[:9]))
    (tmp_path / "rows.csv").write_text(f"tuple_id,count,image\n{rows}")
    (tmp_path / "more.csv").write_text("image\n" + "".join(f"{file}\n" for file in files[9:]))
    before = content(around)
    words = ["import-tuples", tmp_path / "rows.csv", "--unlabeled", tmp_path / "more.csv", "--allow-outside"]
    ended = ntmp(*words, *OVERWRITE, "--out", around)
    assert ended.code == 2, ended.err
    assert f"error: {around}: contains the input {pictures}" in ended.err
    assert content(around) == before


def test_features_of_an_encoder_are_not_kept_inside_the_tuples(ntmp, shared, tmp_path):
    case, at = prepared("train --tuples", shared, tmp_path)
    before = content(tmp_path)
    words = [*case.words(at), "--encoder", "random", "--features", at.input / "kept", "--out", tmp_path / "run"]
    ended = ntmp(*words)
    assert ended.code == 2, ended.err
    assert f"lies inside the input {at.input}" in ended.err
    assert content(tmp_path) == before


# --- what is no such case -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_study_may_lie_beside_its_data_and_settings(ntmp, ntmp_done, shared, tmp_path):
    npz(Place(tmp_path / "x.npz", shared))
    settings = (
        (shared / "study.yaml")
        .read_text()
        .replace("epochs: 1}", "epochs: 1, trust: prior}")
        .replace("['even']", f"['1'], dataset: 'npz:{tmp_path}/x.npz'")
    )
    (tmp_path / "study.yaml").write_text(settings)
    for _ in range(2):
        ntmp_done("run", tmp_path / "study.yaml", "--out", tmp_path)
    assert (tmp_path / "report" / "index.html").exists()
    shutil.move(tmp_path / "study.yaml", tmp_path / "report" / "study.yaml")
    ended = ntmp("run", tmp_path / "report" / "study.yaml", "--out", tmp_path)
    assert ended.code == 2
    where = tmp_path / "report"
    assert f"error: {where}: contains the input {where / 'study.yaml'}, and inputs are never changed\n" in ended.err


@pytest.mark.slow
def test_a_sweep_may_lie_beside_its_tuples_and_settings(ntmp, ntmp_done, shared, tmp_path):
    shutil.copytree(shared / "tuples", tmp_path / "tuples" / "mine")
    (tmp_path / "cells").mkdir()
    text = "train: {prior: 0.5, epochs: 1, model: linear}\nvary: {train: {lr: [0.01]}}\nseeds: [0]\n"
    (tmp_path / "sweep.yaml").write_text(text)
    words = ["sweep", "grid", "--tuples", tmp_path / "tuples" / "mine", "--out", tmp_path, "--jobs", 1]
    ntmp_done(*words, "--config", tmp_path / "sweep.yaml")
    (tmp_path / "cells" / "sweep.yaml").write_text(text)
    ended = ntmp(*words, "--config", tmp_path / "cells" / "sweep.yaml")
    assert ended.code == 2
    assert f"error: {tmp_path / 'cells'}: contains the input" in ended.err


def test_an_output_beside_its_input_is_made(ntmp_done, shared, tmp_path):
    _, at = prepared("evaluate", shared, tmp_path)
    ntmp_done("evaluate", at.input, "--out", at.input.with_name("input-2"))
    ntmp_done("predict", at.input, shared / "digits.npy", "--out", at.input.with_name("input.csv"))
    ntmp_done("inspect", shared / "tuples", "--figure", at.input.with_name("input.png"))
    assert all(at.input.with_name(name).exists() for name in ("input-2", "input.csv", "input.png"))
    ntmp_done(*TRAIN, "--tuples", shared / "tuples", "--tensorboard", tmp_path, "--out", tmp_path / "run")
    assert (tmp_path / "run" / "manifest.json").exists()
