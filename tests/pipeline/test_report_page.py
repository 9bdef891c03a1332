"""A report of a hostile study as its reader meets it: in a browser, from the file system, and through TeX."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from page_reader import Reader, violations

pytestmark = pytest.mark.slow  # a browser opens the page

# The name of a data set is whatever a file may be called.
NAME = '"><img src=x onerror=alert(1)><script>é中 & 100% of $x_1^2$ {#~}\\.npz'
# Number of the method's column in the table of results.
METHOD = 5


@pytest.fixture(scope="module")
def work(ntmp_done, tmp_path_factory) -> Path:
    """Two seeds of three methods, one of them an oracle, on arrays with a bad name; and a report of them."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    x = (rng.normal(size=(600, 4)) + 1.5 * labels[:, None]).astype(np.float32)
    arrays = {"x_train": x[:400], "y_train": labels[:400], "x_test": x[400:], "y_test": labels[400:]}
    np.savez(folder / NAME, **arrays)
    runs = []
    for seed in (0, 1):
        tuples = folder / f"tuples-{seed}"
        drawing = ("--tuple", "3:1", "--prior", 0.5, "--num-tuples", 30, "--unlabeled-size", 60, "--positive", 1)
        ntmp_done("make-tuples", "--dataset", f"npz:{folder / NAME}", *drawing, "--seed", seed, "--out", tuples)
        for method in ("ure", "discriminant", "supervised"):
            runs.append(folder / f"{method}-{seed}")
            training = ("--prior", 0.5, "--model", "linear", "--method", method, "--seed", seed)
            training += () if method == "discriminant" else ("--epochs", 2)
            ntmp_done("train", "--tuples", tuples, *training, "--out", runs[-1])
    ntmp_done("evaluate", *runs, "--reference", "discriminant", "--out", folder / "eval")
    ntmp_done("report", folder / "eval", "--title", "A <b>study</b>", "--out", folder / "report")
    return folder


# The browser ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(browser, work) -> Reader:
    return Reader(browser, work / "report", viewport={"width": 1280, "height": 900})


def test_the_page_opens_from_the_file_system_without_a_word_and_without_the_network(reader):
    assert reader.page.title() == "A <b>study</b>"
    assert reader.page.locator("h1").text_content() == "A <b>study</b>"
    images = reader.page.locator("img")
    assert images.count() == 4
    assert all(images.nth(i).evaluate("image => image.complete && image.naturalWidth > 100") for i in range(4))
    assert reader.said == []
    assert {url for url in reader.asked if not url.startswith("data:")} == {reader.url}


def test_a_data_set_named_like_a_script_is_text(reader):
    assert set(reader.column("results", 1)) == {f"npz:{NAME}"}
    assert reader.page.locator("script").count() == 1
    assert reader.page.locator("img[src='x']").count() == 0


def test_a_click_sorts_numbers_up_then_down_then_back(reader):
    before = reader.column("results", METHOD)
    assert reader.sort("results", "accuracy (%)") == "ascending"
    up = [float(text.split()[0]) for text in reader.column("results", METHOD + 1)]
    assert up == sorted(up)
    assert reader.sort("results", "accuracy (%)") == "descending"
    assert [float(text.split()[0]) for text in reader.column("results", METHOD + 1)] == up[::-1]
    assert reader.sort("results", "accuracy (%)") is None
    assert reader.column("results", METHOD) == before == ["discriminant", "supervised", "ure+relu"]


def test_a_key_sorts_too_and_what_has_no_number_stays_last(reader):
    for direction in ("ascending", "descending"):
        assert reader.sort("results", "p (Holm)", "Enter") == direction
        # Two pairs, one comparison: the smallest p there is. The reference and the oracle have none.
        assert reader.column("results", METHOD + 7) == ["0.5", "—", "—"]
    assert reader.sort("results", "method", "Space") == "ascending"
    assert reader.page.locator("table[data-name='results'] th[aria-sort]").count() == 1
    assert reader.column("results", METHOD) == ["discriminant", "supervised", "ure+relu"]


def test_filtering_keeps_the_rows_that_hold_every_word(reader):
    box = reader.page.locator("input[data-filter='results']")
    box.fill("SUPER 3:1")
    assert reader.column("results", METHOD) == ["supervised"]
    assert reader.page.locator("output[data-count='results']").text_content() == "1 of 3 rows"
    box.fill("")
    assert len(reader.column("results", METHOD)) == 3


def test_latex_is_copied_and_where_the_clipboard_is_missing_it_is_selected(reader, browser, work):
    latex = (work / "report" / "results.tex").read_text()
    reader.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reader.page.locator("button[data-copy='results-latex']").click()
    copied = reader.page.locator("output[data-copied='results-latex']")
    copied.get_by_text("copied").wait_for()
    assert reader.page.evaluate("navigator.clipboard.readText()") == latex
    without = Reader(browser, work / "report")
    without.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    without.page.locator("button[data-copy='results-latex']").click()
    assert without.page.evaluate("getSelection().toString() || document.activeElement.value") == latex
    assert without.page.locator("output[data-copied='results-latex']").text_content() in (
        "copied",
        "selected: press Ctrl+C or ⌘C",
    )


def test_settings_and_lineage_of_every_run_are_one_click_away(reader, work):
    assert reader.page.locator("details.run").count() == 6
    run = reader.page.locator("details.run", has_text="ure-1")
    manifest = json.loads((work / "ure-1" / "manifest.json").read_bytes())
    lineage = run.get_by_text(manifest["inputs"][0]["sha256"])
    assert not lineage.is_visible()
    run.locator("summary").click()
    assert lineage.is_visible()
    shown = dict(zip(*(run.locator(tag).all_text_contents() for tag in ("dt", "dd")), strict=True))
    assert (shown["lr"], shown["clamp"]) == (json.dumps(manifest["config"]["lr"]), manifest["config"]["clamp"])


@pytest.mark.parametrize("width", [1400, 1280, 1024])
def test_on_a_desktop_nothing_is_wider_than_the_page(browser, work, width):
    reader = Reader(browser, work / "report", viewport={"width": width, "height": 900})
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    if width >= 1280:  # below, wide tables scroll in their own boxes
        assert reader.too_wide() == []


def test_the_chart_has_its_values_as_text(reader):
    text = reader.page.locator("#methods img").get_attribute("alt")
    assert text.startswith("Mean accuracy (%) of every method. npz:")
    assert "supervised" in text


def test_a_link_of_the_table_of_runs_opens_the_settings_of_the_run(browser, work):
    reader = Reader(browser, work / "report")
    link = reader.page.locator("table[data-name='all-runs']").get_by_role("link", name="ure-1", exact=True)
    link.press("Enter")
    run = reader.page.locator("details.run", has_text="ure-1")
    assert run.evaluate("run => run.open")
    assert run.locator("summary").evaluate("summary => summary === document.activeElement")
    box = reader.page.locator("input[data-filter='run-list']")
    box.fill("discriminant-0")
    assert reader.page.locator("output[data-count='run-list']").text_content() == "1 of 6 runs"
    assert not run.is_visible()
    assert reader.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(browser, work, scheme):
    assert violations(browser, work / "report", scheme) == []


def test_on_a_phone_wide_tables_scroll_inside_their_own_box(browser, work):
    phone = Reader(browser, work / "report", viewport={"width": 390, "height": 844}, is_mobile=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    box = phone.page.locator("#results .scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert phone.said == []


def test_on_paper_nothing_is_cut_and_tools_are_gone(browser, work):
    paper = Reader(browser, work / "report", viewport={"width": 700, "height": 1000})
    paper.page.emulate_media(media="print")
    assert not paper.page.locator("button[data-copy='results-latex']").is_visible()
    assert paper.page.locator("#results .scroll").evaluate("box => getComputedStyle(box).overflowX") == "visible"
    assert paper.page.pdf(format="A4").startswith(b"%PDF")


def test_the_first_screen_has_the_verdict_the_chart_and_the_comparisons(reader, work):
    """On a screen of 1280 × 900 the verdict and the chart are seen whole, and the first rows of the table."""
    verdict = reader.page.locator("h2.verdict")
    assert verdict.text_content() in (work / "report" / "words.md").read_text()
    assert reader.page.locator("#summary p").first.text_content().startswith("Upper bound, trained on labels")
    boxes = [verdict, reader.page.locator("#methods img"), reader.page.locator("#comparisons tbody tr").first]
    bottoms = [box.evaluate("box => box.getBoundingClientRect().bottom + window.scrollY") for box in boxes]
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] < 900
    assert reader.column("comparisons", 2) == ["ure+relu"] * 4
    assert set(reader.column("comparisons", 3)) == {"too few pairs"}


# The files -----------------------------------------------------------------------------------------


def test_every_table_compiles(work, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    tables = sorted((work / "report").glob("*.tex"))
    assert [path.stem for path in tables] == [
        *("accuracy-grid", "comparisons", "main-results", "results", "small-comparison")
    ]
    body = "\n".join(path.read_text() for path in tables)
    (tmp_path / "all.tex").write_text(f"\\documentclass{{article}}\n\\begin{{document}}\n{body}\\end{{document}}\n")
    ended = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size > 10_000


def test_words_never_make_a_winner_of_two_seeds_or_of_an_oracle(work):
    words = (work / "report" / "words.md").read_text()
    assert "The test cannot decide" in words
    assert "significant" not in words
    assert "two seeds cannot prove it" in words
    assert "Upper bound, trained on labels: supervised" in words


def test_words_cover_every_metric_of_the_results_table(work):
    words = (work / "report" / "words.md").read_text()
    for metric in ("accuracy", "ap", "auroc", "macro_f1"):
        assert words.count(f" discriminant in {metric} on average") == 1  # ure; an oracle is not compared


def test_captions_say_where_the_study_operates(work):
    manifest = json.loads((work / "tuples-0" / "manifest.json").read_bytes())
    (stratum,) = manifest["summary"]["strata"]["train"]
    for name in ("results.md", "accuracy-grid.md", "main-results.md"):
        text = (work / "report" / name).read_text()
        assert "0.1667 for 3:1 at π = 0.5" in text
        assert f"(3, 1) × {stratum['tuples']}" in text


def test_the_terminal_shows_the_verdict_a_table_and_where_the_page_is(work, ntmp_done, tmp_path):
    ended = ntmp_done("report", work / "eval", "--out", tmp_path / "r")
    verdict = (work / "report" / "words.md").read_text().split("\n\n")[1]
    assert verdict.startswith(" ".join(ended.out.partition("\n\n")[0].split())[:60])
    assert ended.out.endswith(f"page: {tmp_path / 'r' / 'index.html'}\n")
    assert "Operating gap" not in ended.out


def test_the_terminal_shows_every_table_and_file_if_asked(work, ntmp_done, tmp_path):
    ended = ntmp_done("report", work / "eval", "--out", tmp_path / "r", "--wide")
    assert ended.out.count("Operating gap") == 3
    assert f"{tmp_path / 'r' / 'comparisons.csv'}\n" in ended.out


def test_an_evaluation_of_other_data_is_not_set_beside_the_paper(work, ntmp, tmp_path):
    ended = ntmp("report", work / "eval", "--compare", "paper", "--out", tmp_path / "r")
    assert ended.code == 2
    assert ended.err.startswith("error: --compare paper: no cell of this evaluation is in the paper\n")
    assert not (tmp_path / "r").exists()


def test_the_papers_cells_stand_beside_ours(work, ntmp_done, tmp_path):
    """Digits under the name of a set of the paper's: what is shown is ours, the paper's, and the difference."""
    arrays = np.load(work / NAME)
    images = {
        k: np.clip(v, 0, 1).reshape(-1, 2, 2).repeat(14, 1).repeat(14, 2) if v.ndim == 2 else v
        for k, v in arrays.items()
    }
    data = tmp_path / "data"
    data.mkdir()
    stored = {"x_train": (255 * images["x_train"]).astype(np.uint8), "y_train": images["y_train"]}
    stored |= {"x_test": (255 * images["x_test"]).astype(np.uint8), "y_test": images["y_test"]}
    np.savez(data / "mnist.npz", **stored)
    made = ("--dataset", "mnist", "--tuple", "3:1", "--prior", 0.5, "--num-tuples", 30, "--unlabeled-size", 60)
    ntmp_done("make-tuples", *made, "--data-root", data, "--out", tmp_path / "t")
    training = ("--prior", 0.5, "--model", "linear", "--method", "ure", "--clamp", "relu", "--epochs", 1)
    ntmp_done("train", "--tuples", tmp_path / "t", *training, "--out", tmp_path / "run")
    ntmp_done("evaluate", tmp_path / "run", "--out", tmp_path / "e")
    ntmp_done("report", tmp_path / "e", "--compare", "paper", "--out", tmp_path / "r")
    (row,) = (tmp_path / "r" / "beside-the-paper.csv").read_text().splitlines()[1:]
    cells = row.split(",")
    rows = [json.loads(line) for line in (tmp_path / "e" / "rows.jsonl").read_text().splitlines()]
    ours = next(row["value"] for row in rows if row["metric"] == "accuracy")
    assert cells[:5] == ["mnist", "3:1", "3", "1", "0.5"]
    assert float(cells[-4]) == pytest.approx(0.9887)
    assert cells[-2] == "ure+relu/source"
    assert float(cells[-1]) == pytest.approx(ours - 0.9887)
    assert "Nothing was tested" in (tmp_path / "r" / "words.md").read_text()
