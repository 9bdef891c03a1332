"""The page of one run, of hundreds of runs, in the dark and on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_reader import Reader, violations

from ntmp_cli.reporting.page import Page, PageTable, render_page
from ntmp_cli.reporting.run_details import page_run, run_table

pytestmark = pytest.mark.slow  # a browser opens the pages

RUNS = 300


@pytest.fixture(scope="module")
def single(ntmp_done, tmp_path_factory) -> Path:
    """The report of one run, on arrays."""
    folder = tmp_path_factory.mktemp("single")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 500)
    x = (rng.normal(size=(500, 4)) + 1.5 * labels[:, None]).astype(np.float32)
    np.savez(folder / "own.npz", x_train=x[:300], y_train=labels[:300], x_test=x[300:], y_test=labels[300:])
    made = ("--tuple", "3:1", "--prior", 0.5, "--num-tuples", 30, "--unlabeled-size", 60, "--positive", 1)
    ntmp_done("make-tuples", "--dataset", f"npz:{folder / 'own.npz'}", *made, "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--method", "discriminant", "--prior", 0.5, "--out", folder / "run")
    ntmp_done("evaluate", folder / "run", "--out", folder / "eval")
    ntmp_done("report", folder / "eval", "--out", folder / "report")
    return folder / "report"


def test_the_page_of_one_run_begins_with_its_accuracy_and_errors(browser, single):
    reader = Reader(browser, single, viewport={"width": 1280, "height": 900})
    verdict = reader.page.locator("h2.verdict").text_content()
    assert verdict.startswith("discriminant classifies ")
    assert "95 % interval" in verdict
    assert "majority class" in verdict
    assert verdict in (single / "words.md").read_text()
    cells = [int(text) for text in reader.page.locator("table.matrix tbody td").all_text_contents()]
    assert sum(cells) == 200
    accuracy = reader.page.locator("dl.facts dd").first.text_content()
    assert accuracy == f"{(cells[0] + cells[3]) / 2:.1f} %"
    assert reader.page.locator("#accuracy img").evaluate("image => image.complete && image.naturalWidth > 100")
    assert "ntmp predict run new.csv --out scored.csv" in reader.page.locator("ol.next code").all_text_contents()
    assert reader.page.locator("#methods").count() == 0
    assert reader.too_wide() == []
    assert reader.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing_in_the_page_of_one_run(browser, single, scheme):
    assert violations(browser, single, scheme) == []


def test_the_page_follows_the_dark_mode_of_the_system_but_is_printed_on_white(browser, single):
    dark, light = (Reader(browser, single, color_scheme=scheme).page for scheme in ("dark", "light"))
    background = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(background) == "rgb(255, 255, 255)"
    assert dark.evaluate(background) == "rgb(20, 24, 29)"
    figure = "getComputedStyle(document.querySelector('figure img')).filter"
    assert "invert" in dark.evaluate(figure)
    dark.emulate_media(media="print", color_scheme="dark")
    assert dark.evaluate(background) == "rgb(255, 255, 255)"
    assert dark.evaluate(figure) == "none"


def test_the_first_key_leads_to_the_content(browser, single):
    page = Reader(browser, single).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """A page of hundreds of runs, without training them."""
    runs = [a_run(number) for number in range(RUNS)]
    rows: list[Any] = [{"run": run["run"], "metric": "accuracy", "value": run["seed"] / RUNS} for run in runs]
    empty = Page("Many", "Many runs.", [], None, None, None, [], [], None, [], {}, "0")
    table = PageTable("all-runs", "All runs", run_table(runs, rows, ["accuracy"]))
    folder = tmp_path_factory.mktemp("many")
    page = replace(empty, run_table=table, runs=[page_run(run) for run in runs])
    (folder / "index.html").write_bytes(render_page(page))
    return folder


def a_run(number: int) -> dict[str, Any]:
    group = {"dataset": "digits", "tuples": "3:1", "prior": 0.5, "method": f"m{number % 5}", "variant": ""}
    task = {"strata": [[3, 1, 40]], "unlabeled": 60}
    trained = {"model": "mlp", "parameters": 10, "epochs": 5, "selected_epoch": 4, "mean_rate": 0.3, "task": task}
    lineage = {"sha256": f"{number:064x}", "inputs": [], "package_version": "0", "config": {"lr": 0.1 * number}}
    return {
        **group,
        **trained,
        **lineage,
        "trained_prior": 0.5,
        "tuples_config": {},
        "seed": number,
        "run": f"r{number}",
    }


def test_hundreds_of_runs_are_sorted_filtered_and_opened(browser, many):
    reader = Reader(browser, many, viewport={"width": 1280, "height": 900})
    assert reader.sort("all-runs", "accuracy") == "ascending"
    assert reader.sort("all-runs", "accuracy") == "descending"
    assert reader.column("all-runs", 1)[:2] == ["r299", "r298"]
    reader.page.locator("input[data-filter='all-runs']").fill("m3 r1")
    shown = reader.column("all-runs", 1)
    assert len(shown) == sum(number % 5 == 3 and str(number)[0] == "1" for number in range(RUNS))
    assert reader.page.locator("output[data-count='all-runs']").text_content() == f"{len(shown)} of {RUNS} rows"
    reader.page.locator("table[data-name='all-runs'] tbody tr:not([hidden]) a").first.click()
    assert reader.page.locator("details[open]").count() == 1
    assert reader.page.locator("details[open] summary b").text_content() == shown[0]


def test_a_long_table_scrolls_in_a_box_that_keeps_its_headings(browser, many):
    page = Reader(browser, many, viewport={"width": 1280, "height": 900}).page
    box = page.locator("#all-runs .scroll")
    assert box.evaluate("box => box.clientHeight") <= 0.76 * 900
    box.evaluate("box => box.scrollTo(0, 3000)")
    top = box.evaluate("box => box.getBoundingClientRect().top")
    assert page.locator("#all-runs th").first.evaluate("th => th.getBoundingClientRect().top") == pytest.approx(
        top, abs=3
    )
