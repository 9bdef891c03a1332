from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.datasets import load_digits

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.oracle import read_labels, read_oracle
from ntmp_cli.artifacts.shards import (
    TupleBlock,
    read_instances,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.artifacts.summary_fields import Sizes
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.data.labelled import LabelledData, binary_labels, load_labelled
from ntmp_cli.errors import UsageError
from ntmp_cli.stages.make_tuples import make_tuples

GAUSSIANS = "gaussians:dim=3,size=900,test=200"

SETTINGS: dict[str, dict[str, Any]] = {
    "digits-fixed": {"dataset": "digits", "tuples": ("3:1",), "prior": 0.5, "seed": 1},
    "digits-mixed": {"dataset": "digits", "tuples": ("2-4:~0.4", "6:1-3@0.5"), "shard_size": 50, "seed": 2},
    "gaussians-fixed": {"dataset": GAUSSIANS, "tuples": ("5:2",), "prior": 0.3, "unlabeled_size": 120, "seed": 3},
    "gaussians-noisy": {
        "dataset": GAUSSIANS,
        "tuples": ("3-5:~0.5", "4:1@2"),
        "count_noise": 0.25,
        "num_tuples": 3000,
        "tuple_share": 0.7,
        "heldout_share": 0.2,
        "shard_size": 777,
        "seed": 4,
    },
    "gaussians-no-heldout": {"dataset": GAUSSIANS, "tuples": ("3:1",), "prior": 0.6, "heldout_share": 0.0, "seed": 5},
}


@dataclass(frozen=True)
class Made:
    artifact: Artifact
    data: LabelledData
    positive: NDArray[np.bool_]
    test_positive: NDArray[np.bool_]

    @property
    def splits(self) -> list[str]:
        return [split for split, _ in self.artifact.summary.tuples.items()]

    def oracle(self, split: str, what: str) -> dict[str, NDArray[Any]]:
        return read_oracle(self.artifact, f"oracle/{split}-{what}.h5")

    def sources(self) -> dict[str, NDArray[np.int64]]:
        return {
            f"{split}-{what}": self.oracle(split, what)["source"]
            for split in self.splits
            for what in ("tuples", "unlabeled")
        }


def all_tuples(artifact: Artifact, split: str) -> TupleBlock:
    blocks = [read_tuple_shard(artifact, name) for name in tuple_shard_names(artifact, split)]
    sizes = np.concatenate([np.diff(b.offsets) for b in blocks])
    return TupleBlock(
        np.concatenate([b.instances for b in blocks]),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([b.counts for b in blocks]),
    )


def all_unlabeled(artifact: Artifact, split: str) -> NDArray[Any]:
    return np.concatenate([read_instances(artifact, name) for name in unlabeled_shard_names(artifact, split)])


@pytest.fixture(scope="module", params=SETTINGS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    config = MakeTuplesConfig(**SETTINGS[request.param])
    out = tmp_path_factory.mktemp(request.param) / "tuples"
    make_tuples(config, out)
    data = load_labelled(config.dataset)
    return Made(open_artifact(out, "tuples"), data, *binary_labels(data, ()))


def test_every_tuple_holds_exactly_its_true_count_and_no_instance_twice(made: Made) -> None:
    for split in made.splits:
        block, oracle = all_tuples(made.artifact, split), made.oracle(split, "tuples")
        assert len(oracle["true_counts"]) == len(block.counts) == getattr(made.artifact.summary.tuples, split)
        for t, (start, stop) in enumerate(zip(block.offsets[:-1], block.offsets[1:], strict=True)):
            members = oracle["source"][start:stop]
            assert len(set(members.tolist())) == stop - start
            assert made.positive[members].sum() == oracle["labels"][start:stop].sum() == oracle["true_counts"][t]


def test_stored_instances_are_those_that_the_oracle_names(made: Made) -> None:
    for split in made.splits:
        tuples, unlabeled = made.oracle(split, "tuples"), made.oracle(split, "unlabeled")
        assert np.array_equal(all_tuples(made.artifact, split).instances, made.data.x_train[tuples["source"]])
        assert np.array_equal(all_unlabeled(made.artifact, split), made.data.x_train[unlabeled["source"]])
        assert np.array_equal(tuples["labels"], made.positive[tuples["source"]])
        assert np.array_equal(unlabeled["labels"], made.positive[unlabeled["source"]])


def test_tuple_unlabeled_and_heldout_pools_share_no_instance(made: Made) -> None:
    pools = {name: set(indices.tolist()) for name, indices in made.sources().items()}
    assert sum(map(len, pools.values())) == len(set().union(*pools.values()))
    for name, indices in made.sources().items():
        if name.endswith("unlabeled"):
            assert len(indices) == len(pools[name])


def test_the_test_split_is_stored_completely_and_apart(made: Made) -> None:
    stored = read_instances(made.artifact, "test.h5")
    assert np.array_equal(stored, made.data.x_test)
    assert np.array_equal(read_labels(made.artifact), made.test_positive)
    # What tuples and U name are rows of the training split; no row of the test split is among those.
    assert max(indices.max() for indices in made.sources().values()) < len(made.data.x_train)
    rows = Counter(row.tobytes() for row in np.concatenate([made.data.x_train, made.data.x_test]))
    if made.data.name == "digits":
        assert rows == Counter(row.tobytes() for row in load_digits().images.astype(np.uint8))
    else:
        assert max(rows.values()) == 1


def test_the_summary_counts_strata_rates_and_gap_as_brute_force_does(made: Made) -> None:
    summary = made.artifact.summary
    for split in made.splits:
        block = all_tuples(made.artifact, split)
        sizes = np.diff(block.offsets)
        strata = Counter(zip(sizes.tolist(), block.counts.tolist(), strict=True))
        expected = [
            {"n": n, "m": m, "rate": m / n, "tuples": k, "instances": n * k} for (n, m), k in sorted(strata.items())
        ]
        assert [row.to_json() for row in getattr(summary.strata, split)] == expected
        assert getattr(summary.instances, split) == len(block.instances)
        assert getattr(summary.unlabeled, split) == len(all_unlabeled(made.artifact, split))
    block = all_tuples(made.artifact, "train")
    sizes = np.diff(block.offsets)
    prior = made.oracle("train", "unlabeled")["labels"].mean()
    assert summary.prior == pytest.approx(prior, abs=1e-15)
    assert summary.mean_rate == pytest.approx(np.mean(block.counts / sizes), rel=1e-12)
    # The gap is the standard deviation of the group's rate over all instances, tuples and U together.
    rates = np.concatenate([np.repeat(block.counts / sizes, sizes), np.full(summary.unlabeled.train, prior)])
    assert summary.effective_gap == pytest.approx(rates.std(), rel=1e-10)


def test_the_reuse_factor_is_the_mean_use_of_each_class_pool(made: Made) -> None:
    config = made.artifact.manifest.config
    labels = made.oracle("train", "tuples")["labels"]
    used = {name: set(indices.tolist()) for name, indices in made.sources().items()}
    in_pool = len(made.positive) * config["tuple_share"] * (1 - config["heldout_share"])
    reuse = made.artifact.summary.reuse
    pools = {}
    for name, kind in (("positive", True), ("negative", False)):
        sampled = np.count_nonzero(labels == kind)
        pools[name] = sampled / getattr(reuse, name)
        if getattr(reuse, name) >= 1:
            # A pool that is used up has been seen entirely.
            seen = sum(made.positive[i] == kind for i in used["train-tuples"])
            assert pools[name] == pytest.approx(seen, rel=1e-3)
    assert sum(pools.values()) == pytest.approx(in_pool, abs=2)


def test_the_requested_prior_of_the_unlabeled_pool_is_exact(made: Made) -> None:
    prior = made.artifact.manifest.config["prior"]
    for split in made.splits:
        labels = made.oracle(split, "unlabeled")["labels"]
        if prior is None:
            candidates = len(made.positive) * (1 - made.artifact.manifest.config["tuple_share"])
            share = made.artifact.manifest.config["heldout_share"]
            assert len(labels) == pytest.approx(candidates * (share if split == "heldout" else 1 - share), abs=1.5)
        else:
            assert abs(labels.mean() - prior) <= 1 / (2 * len(labels)) + 1e-12


def test_labels_of_an_iid_pool_scatter_about_the_prior_that_is_recorded(tmp_path: Path) -> None:
    """The recorded prior is the one that the labels were sampled with, so that seeds are repetitions of one setting."""
    positives, total, away = 0, 0, dict.fromkeys(("train", "heldout"), 0.0)
    for seed in range(12):
        config = MakeTuplesConfig(dataset=GAUSSIANS, prior=0.3, pool="iid", seed=seed)
        made = make_tuples(config, tmp_path / str(seed))
        assert (made.summary.prior, made.manifest.config["pool"]) == (0.3, "iid")
        for split in ("train", "heldout"):
            labels = read_oracle(made, f"oracle/{split}-unlabeled.h5")["labels"]
            positives, total = positives + int(labels.sum()), total + len(labels)
            away[split] = max(away[split], abs(float(labels.sum()) - 0.3 * len(labels)))
    assert stats.binomtest(positives, total, 0.3).pvalue > 1e-3
    assert min(away.values()) > 2  # a pool of exactly this prior is off by half an instance at most


def test_an_iid_pool_without_a_prior_has_that_of_the_data(tmp_path: Path) -> None:
    made = make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, pool="iid"), tmp_path / "iid")
    data = load_labelled(GAUSSIANS)
    assert made.summary.prior == binary_labels(data, ())[0].mean()
    exact = make_tuples(MakeTuplesConfig(dataset=GAUSSIANS), tmp_path / "exact")
    assert made.manifest.files == exact.manifest.files


def test_recorded_counts_differ_from_the_truth_only_at_the_noise_rate(made: Made) -> None:
    noise = made.artifact.manifest.config["count_noise"]
    for split in made.splits:
        block, truth = all_tuples(made.artifact, split), made.oracle(split, "tuples")["true_counts"]
        off = np.abs(block.counts - truth)
        assert off.max() <= 1
        assert ((block.counts >= 0) & (block.counts <= np.diff(block.offsets))).all()
        if noise == 0:
            assert off.max() == 0
        else:
            assert stats.binomtest(int(off.sum()), len(off), noise).pvalue > 1e-3
            assert made.artifact.summary.count_noise == noise


def test_without_a_heldout_share_nothing_is_held_out(made: Made) -> None:
    held_out = [entry.path for entry in made.artifact.entries() if "heldout" in entry.path]
    assert bool(held_out) == (made.artifact.manifest.config["heldout_share"] > 0)


@pytest.mark.parametrize(("specs", "mean"), [(("3:1",), 3), (("2-6:1",), 4), (("2:1@0.75", "10:3@0.25"), 4)])
def test_by_default_tuples_have_as_many_instances_as_the_training_split(
    tmp_path: Path, specs: tuple[str, ...], mean: float
) -> None:
    artifact = make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=specs), tmp_path / "out")
    assert artifact.summary.tuples == Sizes(train=round(900 / mean), heldout=round(900 / mean * 0.1))
    assert artifact.summary.instances.train == pytest.approx(900, rel=0.1)


def contents(artifact: Artifact) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for split, _ in artifact.summary.tuples.items():
        block = all_tuples(artifact, split)
        arrays |= {f"{split}-{key}": getattr(block, key) for key in ("instances", "offsets", "counts")}
        arrays[f"{split}-u"] = all_unlabeled(artifact, split)
        for what in ("tuples", "unlabeled"):
            oracle = read_oracle(artifact, f"oracle/{split}-{what}.h5")
            arrays |= {f"{split}-{what}-{key}": values for key, values in oracle.items()}
    return arrays


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[Any]]:
    """More tuples than one block of the sampler."""
    config = MakeTuplesConfig(dataset=GAUSSIANS, tuples=("2-4:~0.5",), num_tuples=5000, count_noise=0.1, seed=9)
    return contents(make_tuples(config, tmp_path_factory.mktemp("reference") / "out"))


@pytest.mark.parametrize("shard_size", [1000, 4096, 4999, 12_000])
def test_the_shard_size_does_not_change_what_is_sampled(
    tmp_path: Path, reference: dict[str, NDArray[Any]], shard_size: int
) -> None:
    config = MakeTuplesConfig(
        dataset=GAUSSIANS, tuples=("2-4:~0.5",), num_tuples=5000, count_noise=0.1, seed=9, shard_size=shard_size
    )
    artifact = make_tuples(config, tmp_path / "out")
    assert len(tuple_shard_names(artifact, "train")) == -(-5000 // shard_size)
    stored = contents(artifact)
    assert stored.keys() == reference.keys()
    assert all(np.array_equal(stored[key], reference[key]) for key in reference)


def test_another_seed_samples_other_tuples(tmp_path: Path) -> None:
    first, second = (
        contents(make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, seed=seed), tmp_path / str(seed))) for seed in (0, 1)
    )
    assert not np.array_equal(first["train-tuples-source"], second["train-tuples-source"])
    assert not np.array_equal(first["train-unlabeled-source"], second["train-unlabeled-source"])


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.texts.append(record.getMessage())


@pytest.fixture
def listener() -> Iterator[Listener]:
    """What the stage logs, whatever the command line's tests have made of the parent logger."""
    handler, logger = Listener(), logging.getLogger("ntmp_cli.stages.make_tuples")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("specs", "prior", "expected"),
    [
        (
            ("2:1",),
            0.5,
            "the unlabeled prior π = 0.5 equals the only tuple rate α = 0.5: no unbiased risk is identifiable from "
            "these tuples; change --prior or mix tuples of another rate (--tuple)",
        ),
        (
            ("2:1", "4:2"),
            0.5,
            "the unlabeled prior π = 0.5 equals the only tuple rate α = 0.5: no unbiased risk is identifiable from "
            "these tuples; change --prior or mix tuples of another rate (--tuple)",
        ),
        (
            ("5:2",),
            0.44,
            "the gap |π − α| = |0.44 − 0.4| = 0.04 is below 0.05: the risk estimate will be noisy; move --prior or "
            "mix tuples of another rate (--tuple)",
        ),
    ],
)
def test_a_prior_at_the_only_tuple_rate_is_warned_about(
    tmp_path: Path, listener: Listener, specs: tuple[str, ...], prior: float, expected: str
) -> None:
    config = MakeTuplesConfig(dataset=GAUSSIANS, tuples=specs, prior=prior, unlabeled_size=100)
    artifact = make_tuples(config, tmp_path / "out")
    assert list(artifact.summary.warnings) == listener.texts == [expected]


@pytest.mark.parametrize("specs", [("3:1",), ("2:1", "3:1"), ("2:~0.5",), ("4:1-3",)])
def test_tuples_that_identify_the_risk_raise_no_warning(
    tmp_path: Path, listener: Listener, specs: tuple[str, ...]
) -> None:
    artifact = make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=specs, prior=0.5), tmp_path / "out")
    assert list(artifact.summary.warnings) == listener.texts == []
    assert artifact.summary.effective_gap > 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tuples": ("3:4",)}, "m = 4 positives do not fit"),
        ({"prior": 0.9, "unlabeled_size": 400}, "prior 0.9 cannot be reached: 400 unlabeled instances need 360 pos"),
        ({"tuples": ("500:2",)}, "a tuple may need 498 different negatives, but the train tuple share has"),
        ({"tuples": ("30:2",)}, "a tuple may need 28 different negatives, but the heldout tuple share has"),
        ({"tuple_share": 0.9999}, "no instances are left for the unlabeled pool"),
        (
            {"unlabeled_size": 406},
            "an unlabeled pool of 406 was requested, but only 405 instances are available for it",
        ),
    ],
)
def test_an_impossible_request_is_refused_and_nothing_is_written(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, **settings), tmp_path / "out")
    assert message in error.value.message
    assert list(tmp_path.iterdir()) == []
