from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image
from summary_rows import group

from ntmp_cli.evaluation.summary import SummaryRow, cell_of
from ntmp_cli.reporting.baselines import Baseline
from ntmp_cli.reporting.dots import NO_BASELINES, Baselines, dots_as_text, dots_caption, method_dots

BLUE = (0x00, 0x72, 0xB2)


MAJORITY = {cell_of(group("a", 0.9)): Baseline("majority class", 0.6, "always answering the more frequent class")}


def pixels(summary: list[SummaryRow], metric: str = "accuracy", baselines: Baselines = NO_BASELINES) -> np.ndarray:
    with Image.open(io.BytesIO(method_dots(summary, metric, baselines)["png"])) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def blue(summary: list[SummaryRow], metric: str = "accuracy") -> int:
    return int((np.abs(pixels(summary, metric) - BLUE).sum(-1) < 30).sum())


def test_the_same_values_give_the_same_bytes_whatever_matplotlibrc_says() -> None:
    summary = [group("a", 0.9), group("supervised", 0.95)]
    first = method_dots(summary, "accuracy")
    with matplotlib.rc_context({"font.size": 20}):
        assert method_dots(summary, "accuracy") == first
    assert set(first) == {"svg", "png"}


def test_wider_intervals_are_longer_lines() -> None:
    narrow, wide = ([group("a", 0.9, std=std), group("b", 0.5, std=0.1)] for std in (0.001, 0.08))
    assert blue(wide) > blue(narrow) + 100


def test_an_oracle_is_not_in_the_colour_of_the_methods() -> None:
    assert blue([group("supervised", 0.9)]) == 0
    assert blue([group("count", 0.9)]) > 100
    assert blue([group("count", 0.9), group("supervised", 0.9)]) < blue([group("count", 0.9), group("ure", 0.9)])


def test_the_best_is_on_top() -> None:
    """Of two methods the upper line is the one of the better mean, also where less is better."""
    for metric in ("accuracy", "ece"):
        image = pixels([group("a", 0.9, metric, std=0.0), group("b", 0.1, metric, std=0.0)], metric)
        marked = np.argwhere(np.abs(image - BLUE).sum(-1) < 30)
        top, bottom = marked[marked[:, 0].argmin()], marked[marked[:, 0].argmax()]
        assert (top[1] > bottom[1]) == (metric == "accuracy")


def test_panels_are_added_by_cell_three_in_a_row() -> None:
    one, three, four = (
        pixels([group("a", 0.9, prior=prior / 10) for prior in range(1, count + 1)]) for count in (1, 3, 4)
    )
    assert one.shape == three.shape
    assert four.shape[0] == pytest.approx(2 * one.shape[0] - 25, abs=2)


def test_nothing_without_values_and_one_seed_is_a_dot() -> None:
    assert method_dots([group("a", None)], "accuracy") == {}
    assert method_dots([group("a", 0.9, std=None, seeds=1)], "accuracy")["svg"].startswith(b"<?xml")


def test_the_caption_explains_what_is_there() -> None:
    assert dots_caption([group("a", 0.9)], "accuracy") == (
        "Dots: means over seeds. Lines: 95 % t intervals of the mean."
    )
    assert dots_caption([group("supervised", 0.9, std=None, seeds=1)], "accuracy") == (
        "Dots: values of one seed. Hollow, with a dashed line: trained on labels, an upper bound."
    )
    assert dots_caption([group("a", 0.9)], "accuracy", MAJORITY).endswith(
        "Dotted line: always answering the more frequent class."
    )


def test_the_majority_class_and_the_upper_bound_are_lines_over_the_whole_panel() -> None:
    vermilion = (0xD5, 0x5E, 0x00)
    rows = [group("a", 0.9), group("b", 0.8), group("supervised", 0.95)]
    assert not (np.abs(pixels(rows) - vermilion).sum(-1) < 120).any()
    found = np.abs(pixels(rows, baselines=MAJORITY) - vermilion).sum(-1) < 120
    # In one column the dots of the line reach over a third of the figure: titles, axis and legend have the rest.
    assert max(int(np.ptp(np.flatnonzero(column))) for column in found.T if column.any()) > found.shape[0] / 3


@pytest.mark.parametrize(("rows", "dashed"), [(2, 0), (3, 3)])
def test_an_upper_bound_has_a_dashed_line_a_separator_and_a_name_in_the_legend(rows: int, dashed: int) -> None:
    summary = [group("a", 0.9), group("b", 0.8), group("supervised", 0.95)][:rows]
    assert method_dots(summary, "accuracy")["svg"].count(b"stroke-dasharray") == dashed
    assert method_dots(summary, "accuracy", MAJORITY)["svg"].count(b"stroke-dasharray") == dashed + 2


def test_readers_who_do_not_see_the_figure_get_its_values() -> None:
    rows = [group("a", 0.8), group("b", 0.9), group("supervised", 0.95), group("c", None)]
    assert dots_as_text(rows, "accuracy") == (
        "Mean accuracy (%) of every method. mnist 3:1 π=0.5: b 90.00, a 80.00, supervised 95.00."
    )
