from __future__ import annotations

import html
import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from summary_rows import group

from ntmp_cli.reporting.page import Page, PageFigure, PageRun, PageTable, render_page
from ntmp_cli.reporting.results_table import results_table
from ntmp_cli.reporting.single_run import NextStep, SingleRun

DECISIONS = {"tp": 1000, "fp": 2, "fn": 3, "tn": 4}
HOSTILE = "</textarea></title></style><script>alert('x')</script><img src=x onerror=alert(1)>\" onclick=\"alert(2)"


def page(text: str) -> bytes:
    rows = [group("a", 0.9, dataset=text), group(text, 0.8, dataset=text, variant=f"v{text}")]
    table = results_table(rows, title=text)
    return render_page(
        Page(
            title=text,
            verdict=text,
            summary=[text],
            single=SingleRun(
                {text: text}, DECISIONS, {"svg": b"<svg/>"}, (NextStep(text, f"ntmp {text}"), NextStep(text))
            ),
            chart=PageFigure("methods", text, text, b"<svg/>"),
            comparisons=PageTable("comparisons", text, table),
            tables=[PageTable("results", text, table)],
            figures=[PageFigure("curves", text, text, b"<svg/>", [text])],
            run_table=PageTable("all-runs", text, table),
            runs=[PageRun(text, text, {text: text}, {text: text}, {text: [text]}, {text: text})],
            lineage={text: text},
            version="0",
        )
    )


class Structure(HTMLParser):
    """Every tag with the names of its attributes, in order."""

    def __init__(self, document: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.feed(document.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))


def tags(document: bytes) -> list[tuple[str, ...]]:
    return Structure(document).tags


def without_long_words(found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A cell with a long word has a class, so that it is broken."""
    return [("td",) if tag == ("td", "class") else tag for tag in found]


PLAIN = tags(page("digits"))


def test_text_from_outside_is_text() -> None:
    document = page(HOSTILE)
    assert document.count(b"<script>") == document.count(b"</script>") == 1
    assert b"<img src=x" not in document
    assert html.escape(HOSTILE, quote=False)[:20].encode() in document
    assert without_long_words(tags(document)) == without_long_words(PLAIN)


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))))
def test_no_text_changes_the_structure_of_the_page(text: str) -> None:
    assert without_long_words(tags(page(text))) == without_long_words(PLAIN)


def test_nothing_refers_to_anything_outside() -> None:
    document = page("digits").decode()
    assert not re.findall(r"https?:", document)
    assert re.findall(r"\b(?:src|href)=\"([^\"]{0,5})", document) == [
        "#cont",
        "#summ",
        "#tabl",
        "#figu",
        "#runs",
        "#line",
        "data:",
        "data:",
        "data:",
        "#run-",
        "#run-",
    ]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)
    assert policy
    assert html.unescape(policy[1]).startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_the_same_values_give_the_same_bytes() -> None:
    assert page("digits") == page("digits")


def test_the_verdict_comes_first_then_the_chart_then_the_comparisons() -> None:
    document = page("digits").decode()
    order = ['<h2 class="verdict">digits</h2>', 'id="methods"', 'id="comparisons"', 'id="tables"', 'id="results"']
    places = [document.index(mark) for mark in order]
    assert places == sorted(places)


def test_a_page_without_chart_and_comparisons_has_neither() -> None:
    empty = Page("t", "v", [], None, None, None, [], [], None, [], {}, "0")
    document = render_page(empty).decode()
    assert "<figure>" not in document
    assert "<table" not in document
