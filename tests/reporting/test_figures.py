from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from ntmp_cli.evaluation.intervals import wilson_interval
from ntmp_cli.reporting.figures import (
    Curve,
    Diagram,
    learning_curves,
    mean_bins,
    reliability_diagrams,
    seed_band,
    tuple_montage,
)
from ntmp_cli.reporting.iteration_curves import accuracy_by_iteration, accuracy_points


def curves(labels: list[str], groups: list[str], *, seeds: int = 2, epochs: int = 4) -> list[Curve]:
    rng = np.random.default_rng(0)
    return [
        Curve(
            label=label,
            group=group,
            seed=seed,
            epochs=list(range(1, epochs + 1)),
            train_loss=rng.random(epochs).tolist(),
            heldout_risk=[None, *rng.random(epochs - 1).tolist()],
            accuracy=[(epoch, float(rng.random())) for epoch in range(2, epochs + 1, 2)],
        )
        for group in groups
        for label in labels
        for seed in range(seeds)
    ]


def opened(png: bytes) -> Image.Image:
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return image


def test_learning_curves_are_the_same_bytes_every_time() -> None:
    study = curves(["ure+abs", "uu"], ["digits 3:1 π=0.5"])
    first = learning_curves(study, title="Study")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9}):  # a user's own matplotlibrc
        second = learning_curves(study, title="Study")
    assert set(first) == {"svg", "png"}
    assert first == second
    assert b"<dc:date>" not in first["svg"]


def test_accuracy_is_plotted_by_steps_of_the_optimiser_and_only_where_there_are_any() -> None:
    curve = Curve("ure", "mnist", 0, [1, 2, 3], [1.0] * 3, [None] * 3, [(1, 0.5), (3, 0.75)], [10, 20, 30])
    assert accuracy_points(curve) == [(10, 50.0), (30, 75.0)]
    fitted = Curve("kmeans", "mnist", 0, [1], [None], [None], [(1, 0.6)])
    assert accuracy_by_iteration([fitted], title="Study") == {}
    figure = accuracy_by_iteration([curve, fitted, replace(curve, group="svhn", seed=1)], title="Study")
    assert figure["svg"].count(b'<g id="axes_') == 2
    assert b"training iterations" in figure["svg"]
    assert b"kmeans" not in figure["svg"]


@pytest.mark.slow
def test_learning_curves_grow_by_a_row_per_group() -> None:
    one = opened(learning_curves(curves(["ure"], ["a"]), title="Study")["png"])
    three = opened(learning_curves(curves(["ure"], ["a", "b", "c"]), title="Study")["png"])
    assert one.width == three.width == 1000
    assert 250 < one.height < 400
    assert 2 * one.height < three.height < 3 * one.height


def test_learning_curves_svg_is_well_formed() -> None:
    svg = learning_curves(curves(["a<b>&c"], ["d<e>"]), title="$x^ & <y>$")["svg"]
    assert ElementTree.fromstring(svg).tag.endswith("svg")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(
            [*curves(["uu"], ["digits"]), Curve("kmeans", "digits", 0, [], [], [], [(1, 0.6)])], id="one accuracy"
        ),
        pytest.param([Curve("uu", "digits", 0, [1, 2], [math.nan, math.inf], [1.0, 2.0], [])], id="not finite"),
        pytest.param(curves([f"method {i} lr=0.00{i}" for i in range(31)], ["digits"]), id="more than the palette"),
        pytest.param(curves(["_hidden", "a" * 200], ["g" * 300]), id="odd labels"),
    ],
)
def test_learning_curves_show_whatever_was_recorded(recorded: list[Curve]) -> None:
    assert opened(learning_curves(recorded, title="Study " * 40)["png"]).width == 1000


def axes_of(svg: bytes) -> int:
    return len(set(re.findall(rb'id="(axes_\d+)"', svg)))


@pytest.mark.parametrize(
    "at_once",
    [
        pytest.param([Curve("kmeans", "digits", 0, [], [], [], [])], id="nothing recorded"),
        pytest.param([Curve("count", "t.csv", s, [1], [None], [0.9], [(1, 0.6)]) for s in (0, 1)], id="one epoch"),
    ],
)
def test_what_was_computed_at_once_has_no_learning_curve(at_once: list[Curve]) -> None:
    assert learning_curves(at_once, title="Study") == {}
    beside = [*at_once, *curves(["uu"], ["digits"]), *curves(["uu"], ["other"])]
    groups = {"digits", "other"}
    assert axes_of(learning_curves(beside, title="Study")["svg"]) == 3 * len(groups)


def test_no_panel_of_a_figure_is_empty() -> None:
    untested = [replace(curve, accuracy=[]) for curve in curves(["uu"], ["digits"])]
    assert axes_of(learning_curves(untested, title="Study")["svg"]) == 2
    assert axes_of(reliability_diagrams(diagrams(["uu"], ["digits"], ("none",)), title="Study")["svg"]) == 1


def test_no_curves_give_no_figure() -> None:
    assert learning_curves([], title="Study") == {}


def test_seed_band_is_mean_and_sample_deviation_of_the_seeds_that_have_an_epoch() -> None:
    band = seed_band([[(1, 1.0), (2, 5.0)], [(1, 3.0)], [(4, 0.0), (1, 8.0)]])
    assert band.epochs.tolist() == [1, 2, 4]
    assert band.mean.tolist() == [4.0, 5.0, 0.0]
    assert band.std[0] == pytest.approx(np.std([1, 3, 8], ddof=1))
    assert np.isnan(band.std[1:]).all()


def test_montage_is_the_same_bytes_every_time_and_shows_every_instance() -> None:
    images = np.random.default_rng(0).random((4, 3, 8, 8))
    images[1, 2] = np.nan
    captions = ["1 of 3 positive", "1 of 2 positive", "2 of 3 positive", "0 of 3 positive"]
    png = tuple_montage(images, captions, "digits")
    assert png == tuple_montage(images, captions, "digits")
    image = opened(png)
    assert 300 < image.width < 500
    assert 350 < image.height < 450


@pytest.mark.parametrize("shape", [(1, 1, 28, 28), (2, 3, 32, 32, 3), (2, 2, 1, 1), (1, 2, 300, 200, 3)])
def test_montage_takes_any_size_of_image(shape: tuple[int, ...]) -> None:
    image = opened(tuple_montage(np.zeros(shape), ["1 of 3 positive"] * shape[0], "A $title$ longer than it is wide"))
    assert image.width > 80 * shape[1]
    assert image.height > 60 * shape[0]


def test_montage_paints_pixels_and_leaves_padding_white() -> None:
    images = np.zeros((1, 2, 4, 4, 3))
    images[0, 0] = (1.0, 0.0, 0.0)
    images[0, 1] = np.nan
    pixels = np.asarray(opened(tuple_montage(images, ["c"], "t")).convert("RGB")).reshape(-1, 3).tolist()
    assert pixels.count([255, 0, 0]) == 80 * 80
    assert pixels.count([255, 255, 255]) > 80 * 80


def test_montage_wants_a_caption_per_tuple() -> None:
    with pytest.raises(ValueError, match="1 captions for 2 tuples"):
        tuple_montage(np.zeros((2, 1, 2, 2)), ["one"], "digits")


def diagrams(labels: list[str], groups: list[str], scalings: tuple[str, ...] = ("none", "labels")) -> list[Diagram]:
    rng = np.random.default_rng(1)
    return [
        Diagram(label, group, scaling, [0.1, 0.9], [float(rng.random()), 0.8], [50.0, 50.0])
        for group in groups
        for label in labels
        for scaling in scalings
        for _ in range(2)
    ]


@pytest.mark.slow
def test_reliability_diagrams_are_the_same_bytes_every_time_and_grow_by_a_row_per_group() -> None:
    first, repeated = (reliability_diagrams(diagrams(["a", "b"], ["g"]), title="t") for _ in range(2))
    assert first == repeated
    assert set(first) == {"svg", "png"}
    two = reliability_diagrams(diagrams(["a"], ["g", "h"]), title="t")
    assert opened(two["png"]).height > 1.7 * opened(first["png"]).height
    assert ElementTree.fromstring(first["svg"]).tag.endswith("svg")


def test_no_diagrams_give_no_figure() -> None:
    assert reliability_diagrams([], title="t") == {}


def test_bins_are_means_over_seeds_with_the_interval_of_one_test_split() -> None:
    first = Diagram("a", "g", "none", [0.1, 0.5], [0.0, 1.0], [100.0, 40.0])
    second = Diagram("a", "g", "none", [0.2, 0.6], [0.4, 0.2], [100.0, 60.0])
    confidence, frequency, low, high = mean_bins([first, second])
    assert confidence.tolist() == pytest.approx([0.15, 0.55])
    assert frequency.tolist() == pytest.approx([0.2, 0.6])
    assert [low[0], high[0]] == pytest.approx(wilson_interval(0.2, 100))
    assert [low[1], high[1]] == pytest.approx(wilson_interval(0.6, 50))
    again = mean_bins([first, second, first, second])
    assert [values.tolist() for values in again] == [
        pytest.approx(values) for values in (confidence, frequency, low, high)
    ]


def test_the_end_of_the_warm_up_is_marked_in_every_panel_that_has_points() -> None:
    plain = curves(["count", "ure"], ["digits"])
    warmed = [replace(curve, warmup_end=2) if curve.label == "count" else curve for curve in plain]
    assert b"warm-up ends" not in learning_curves(plain, title="t")["svg"]
    assert learning_curves(warmed, title="t")["svg"].count(b"<!-- warm-up ends -->") == 3


def test_importing_evaluation_and_reporting_loads_nothing_heavy() -> None:
    code = (
        "import sys, ntmp_cli.evaluation.metrics, ntmp_cli.evaluation.summary, ntmp_cli.reporting.figures, "
        "ntmp_cli.reporting.results_table\n"
        "sys.exit(' '.join({'torch', 'matplotlib', 'rich', 'sklearn', 'scipy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pyplot_is_never_loaded() -> None:
    code = (
        "import sys; from ntmp_cli.reporting.figures import Curve, learning_curves\n"
        "learning_curves([Curve('a', 'b', 0, [1, 2], [1, 2], [1, 2], [(1, 0.5)])], title='t')\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
