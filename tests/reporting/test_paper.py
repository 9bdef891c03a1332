from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from summary_rows import group

from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.comparisons import MethodVariant
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.evaluation.summary import cell_of
from ntmp_cli.learning.method import methods
from ntmp_cli.reporting.paper import RunSetting, beside_the_paper, matches, paper_cells


def test_the_cells_of_the_paper_are_complete_and_fractions() -> None:
    cells = paper_cells()
    assert Counter(cell.metric for cell in cells) == {
        **{"accuracy": 3 * 3 * 4 * 7, "ap": 6 + 4, "auroc": 6 + 4, "best_f1": 6},
        **{"ece_scaled_labels": 4, "brier_scaled_labels": 4},
    }
    assert len(set(cells)) == len(cells)
    assert all(0 <= cell.mean <= 1 and (cell.std is None or 0 <= cell.std < 0.4) for cell in cells)


def test_the_paper_is_named_in_our_words() -> None:
    assert {cell.metric for cell in paper_cells()} <= set(metrics.names())
    assert {cell.method.partition("+")[0] for cell in paper_cells()} <= set(methods.names())
    assert {cell.dataset for cell in paper_cells()} == {"mnist", "fashion-mnist", "cifar10", "svhn"}


@pytest.mark.parametrize(
    ("method", "place", "mean"),
    [
        ("ure+relu/source", {"dataset": "mnist", "n": 3, "m": 1, "prior": 0.5}, 0.9887),
        ("ure+abs/source", {"dataset": "mnist", "n": 3, "m": 1, "prior": 0.2}, 0.9550),
        ("ure", {"dataset": "svhn", "n": 7, "m": 2, "prior": 0.5}, 0.8696),
        ("kmeans++", {"dataset": "cifar10", "n": 5, "m": 2, "prior": 0.8}, 0.5271),
    ],
)
def test_accuracy_is_found_by_data_set_tuples_prior_and_method(method: str, place: Any, mean: float) -> None:
    row = group(method, mean + 0.01, **place)
    (line,) = beside_the_paper([row], {}, title="Study").rows
    shown = dict(zip(("ours", "paper", "difference"), (cell.text for cell in line[-3:]), strict=True))
    assert shown["ours"] == f"{100 * mean + 1:.2f} ± 1.00"
    assert shown["paper"].startswith(f"{100 * mean:.2f} ± ")
    assert shown["difference"] == "+1.00"
    assert line[-1].number == pytest.approx(0.01)
    assert line[4].text == "the paper"


@pytest.mark.parametrize(("method", "paper"), [("ure+abs", "95.50 ± 0.09"), ("ure+relu", "96.44 ± 0.05")])
def test_a_clamp_per_class_is_ours_and_stands_beside_the_same_clamp_per_source(method: str, paper: str) -> None:
    row = group(method, 0.9, dataset="mnist", n=3, m=1, prior=0.2)
    table = beside_the_paper([row], {}, title="Study")
    (line,) = table.rows
    assert (line[4].text, line[-2].text) == ("ours", f"{paper} ({method}/source)")
    assert "for a clamp per class the same clamp per source" in table.caption


@pytest.mark.parametrize(
    "changes",
    [
        {"prior": 0.4},
        {"dataset": "digits"},
        {"n": 4},
        {"tuples": "3:1 [count_noise=0.1]"},
        {"metric": "accuracy_at_prior"},
    ],
)
def test_other_settings_are_not_set_beside_the_paper(changes: dict[str, Any]) -> None:
    row = group("ure", 0.9)
    row.update(changes)  # type: ignore[typeddict-item]
    assert not any(matches(cell, row, RunSetting(0.0, False)) for cell in paper_cells())


def test_calibration_is_matched_by_the_gap_and_the_small_table_by_the_frozen_encoder() -> None:
    calibrated = group("ure", 0.4, "ap", dataset="fashion-mnist", prior=7 / 12)
    small = group("ure", 0.9, "ap")
    facts = {
        (cell_of(calibrated), MethodVariant("ure", "")): RunSetting(0.25, False),
        (cell_of(small), MethodVariant("ure", "")): RunSetting(1 / 6, True),
    }
    table = beside_the_paper([calibrated, small], facts, title="Study")
    assert [row[-2].text for row in table.rows] == ["0.3600 ± 0.0330", "0.9200 ± 0.0100"]
    assert [row[-1].text for row in table.rows] == ["+0.0400", "−0.0200"]
    assert "names the gap or the encoder, but not (n, m) and π" in table.caption
    assert "no difference is tested" in table.caption


def test_accuracy_on_features_is_marked_beside_the_accuracy_on_pixels() -> None:
    row = group("ure", 0.9, dataset="mnist", n=3, m=1, prior=0.5)
    entry = (cell_of(row), MethodVariant("ure", ""))
    table = beside_the_paper([row], {entry: RunSetting(1 / 6, True)}, title="Study")
    ((*_, paper, _),) = table.rows
    assert (table.rows[0][4].text, paper.text) == ("the paper, on features", "87.53 ± 0.46")
    assert "the features of a frozen encoder, the paper's on pixels" in table.caption
    on_pixels = beside_the_paper([row], {entry: RunSetting(1 / 6, False)}, title="Study")
    assert on_pixels.rows[0][4].text == "the paper"
    assert "On features" not in on_pixels.caption


def test_a_method_that_the_paper_lacks_stands_beside_its_best() -> None:
    """MNIST (3,1) at .5: the best of seven is URE+ReLU, with 98.87."""
    means = {
        cell.method: cell.mean for cell in paper_cells() if (cell.dataset, cell.n, cell.prior) == ("mnist", 3, 0.5)
    }
    best = max(means, key=lambda name: means[name])
    table = beside_the_paper([group("count", 0.9882, prior=0.5, dataset="mnist")], {}, title="Study")
    ((*_, paper, difference),) = table.rows
    assert paper.text.startswith(f"{100 * means[best]:.2f} ± ")
    assert paper.text.endswith(f"({best})")
    assert (best, difference.text) == ("ure+relu/source", "−0.05")
    assert table.rows[0][4].text == "ours"
    assert "otherwise the paper's best method in the same setting" in table.caption


def test_the_best_of_a_calibration_is_the_smallest() -> None:
    row = group("count", 0.02, "ece_scaled_labels", dataset="fashion-mnist", prior=7 / 12)
    facts = {(cell_of(row), MethodVariant("count", "")): RunSetting(0.25, False)}
    ((*_, paper, _),) = beside_the_paper([row], facts, title="Study").rows
    assert paper.text.endswith("(ure+abs/source)")


def test_an_oracle_competes_with_no_method() -> None:
    with pytest.raises(UsageError, match="no cell of this evaluation"):
        beside_the_paper([group("supervised", 0.99, prior=0.5, dataset="mnist")], {}, title="Study")


def test_a_study_of_something_else_is_told_what_the_paper_has() -> None:
    with pytest.raises(UsageError, match="--compare paper: no cell of this evaluation is in the paper") as error:
        beside_the_paper([group("ure", 0.9, dataset="digits")], {}, title="Study")
    assert "fashion-mnist" in (error.value.hint or "")
