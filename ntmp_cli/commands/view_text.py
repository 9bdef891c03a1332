"""Text layout in a terminal: pairs, paragraphs, and tables that wrap long names."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Spaces between columns.
GAP = 2


def new_table(*names: str) -> Table:
    """A table whose first columns are names; long names are wrapped, never truncated."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def print_table(console: Console, table: Table) -> None:
    console.print()
    console.print(table)


def print_pairs(console: Console, values: Mapping[str, Any], title: str | None = None) -> None:
    if title:
        console.print(f"\n{title}")
    indent = max((cell_len(name) for name in values), default=0) + GAP
    for name, value in values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        lines = wrapped(text, console.width - indent) or [""]
        label = Text(name + " " * (indent - cell_len(name)), style="dim")
        console.print(Text.assemble(label, lines[0]), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(" " * indent + line), soft_wrap=True)


def print_line(console: Console, text: str) -> None:
    """A line that is never wrapped, for paths: scripts read it as one line."""
    console.print(Text(text), soft_wrap=True)


def print_text(
    console: Console, text: str, *, style: str = "", first: str = "", then: str = "", width: int | None = None
) -> None:
    """A paragraph, wrapped between words only: a path longer than a line is not broken."""
    lines = wrapped(text, min(console.width, width or console.width) - max(len(first), len(then)))
    for at, line in enumerate(lines):
        console.print(Text((then if at else first) + line, style=style), soft_wrap=True)


def wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
