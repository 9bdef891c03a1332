"""A report as one self-contained HTML page: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ntmp_cli.reporting.rendering import Table, TableCell, to_latex
from ntmp_cli.reporting.single_run import SingleRun

LONG_WORD = 24


@dataclass(frozen=True)
class PageTable:
    """A table under its heading; `name` is unique on the page."""

    name: str
    heading: str
    table: Table


@dataclass(frozen=True)
class PageFigure:
    """A figure under its heading, with its caption and further lines about it."""

    name: str
    heading: str
    caption: str
    svg: bytes
    lines: Sequence[str] = ()
    text: str = ""
    """What the figure shows, for readers who do not see it; its heading where this is empty."""


@dataclass(frozen=True)
class PageRun:
    """A run: a line about it, its results, its settings and its lineage (name to SHA-256)."""

    name: str
    about: str
    facts: Mapping[str, str]
    settings: Mapping[str, Any]
    tuples_settings: Mapping[str, Any]
    lineage: Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """Everything that a page shows, in its order."""

    title: str
    verdict: str
    summary: Sequence[str]
    single: SingleRun | None
    chart: PageFigure | None
    comparisons: PageTable | None
    tables: Sequence[PageTable]
    figures: Sequence[PageFigure]
    run_table: PageTable | None
    runs: Sequence[PageRun]
    lineage: Mapping[str, str]
    version: str


def render_page(page: Page) -> bytes:
    """The page as UTF-8: text from outside is escaped, and a content policy forbids whatever is not in the file."""
    style, script = _template_text("page.css"), _template_text("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    html = (
        _environment()
        .get_template("page.html.j2")
        .render(page=page, style=Markup(style), script=Markup(script), policy=policy)
    )
    return html.encode("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ntmp_cli.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "data_uri": _data_uri,
        "sort_key": _sort_key,
        "heading": _heading,
        "number": _number,
        "has_long_word": _has_long_word,
        "latex": to_latex,
        "setting": _setting,
    }
    return environment


def _template_text(name: str) -> str:
    return files("ntmp_cli.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _sort_key(cell: TableCell) -> str:
    """What a numeric column is sorted by; empty where there is no number, which goes last."""
    number = cell.number
    return "" if number is None or number != number else repr(number)


def _heading(text: str) -> str:
    """A line may break after an underscore of a metric's name, but not inside a symbol such as Δ_op."""
    return re.sub(r"(?<=\w\w_)", "\u200b", text)


def _number(text: str) -> str:
    """A line may break before a spread, not inside it."""
    return text.replace("± ", "±\u00a0")


def _has_long_word(text: str) -> bool:
    """Whether a cell has a word so long that it must be broken, because its column would be too wide."""
    return any(len(word) > LONG_WORD for word in text.split())


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
