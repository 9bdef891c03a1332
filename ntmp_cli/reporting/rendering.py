"""A table of values, and its text as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Column:
    """A heading, and the names of the raw values behind it in CSV; hidden columns are in CSV only."""

    header: str
    fields: tuple[str, ...]
    numeric: bool = False
    shown: bool = True


@dataclass(frozen=True)
class TableCell:
    """The displayed `text`, its raw values (such as mean and std), and whether it is the best."""

    text: str
    values: tuple[str | float | None, ...]
    best: bool = False

    @property
    def number(self) -> float | None:
        """The mean of a metric or a difference, as a fraction; nan where undefined, None where absent."""
        value = self.values[0]
        return None if isinstance(value, str) else value


@dataclass(frozen=True)
class Table:
    """A caption, columns, and blocks of rows that are compared with each other."""

    caption: str
    columns: tuple[Column, ...]
    blocks: tuple[tuple[tuple[TableCell, ...], ...], ...]

    def with_notes(self, notes: Sequence[str]) -> Table:
        """The same with further sentences in the caption."""
        return replace(self, caption=" ".join([self.caption, *(f"{note}." for note in notes)]))

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(column.header for column in self.columns if column.shown)

    @property
    def rows(self) -> tuple[tuple[TableCell, ...], ...]:
        return tuple(row for block in self.blocks for row in block)

    def shown(self, row: tuple[TableCell, ...]) -> list[TableCell]:
        """The cells of `row` that belong to shown columns."""
        return [cell for cell, column in zip(row, self.columns, strict=True) if column.shown]


def to_markdown(table: Table) -> str:
    """The caption as a paragraph and a GitHub-flavoured pipe table; the best cells in bold."""
    lines = [
        [escape_markdown(header) for header in table.headers],
        ["---:" if column.numeric else "---" for column in table.columns if column.shown],
        *([_markdown_cell(cell) for cell in table.shown(row)] for row in table.rows),
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{escape_markdown(table.caption)}\n\n{body}\n"


def _markdown_cell(cell: TableCell) -> str:
    text = escape_markdown(cell.text)
    return f"**{text}**" if cell.best else text


def escape_markdown(text: str) -> str:
    """`text` as literal Markdown on one line; underscores inside a word need no escape."""
    text = re.sub(r"[\\`*|<>\[\]~&$#]", r"\\\g<0>", _one_line(text))
    text = re.sub(r"^(\d*)([+.)-])(?= )", r"\1\\\2", text)  # would start a list
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def to_csv(table: Table) -> str:
    """Raw values in full precision: fractions, not percent; `nan` is undefined, empty is absent."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field for column in table.columns for field in column.fields)
    for row in table.rows:
        writer.writerow(itertools.chain.from_iterable(cell.values for cell in row))
    return out.getvalue()


def to_latex(table: Table) -> str:
    """A `table` environment that compiles without packages; the best cells in bold."""
    alignment = "".join("r" if column.numeric else "l" for column in table.columns if column.shown)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.caption)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\hline",
        _latex_row([escape_latex(header) for header in table.headers]),
        r"\hline",
    ]
    for block in table.blocks:
        lines += [_latex_row([_latex_cell(cell) for cell in table.shown(row)]) for row in block]
        lines.append(r"\hline")
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}", ""])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: TableCell) -> str:
    text = escape_latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else text


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "_&%#${}"},
    # In the default font encoding these print as other characters.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # At the start of a row these would be read as arguments of the \\ before it.
    **{char: f"{{{char}}}" for char in "[]*"},
    # Signs of these tables that pdflatex does not know as characters.
    "±": r"$\pm$",
    "−": r"$-$",
    "—": "---",
    "π": r"$\pi$",
    "α": r"$\alpha$",
    "Δ": r"$\Delta$",
    "δ": r"$\delta$",
    "×": r"$\times$",
    "Δ_op": r"$\Delta_{\mathrm{op}}$",
    "ᾱ": r"$\bar{\alpha}$",
    "π̂": r"$\hat{\pi}$",
}
_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327", "`'^~\"rvc", strict=True))
# The longest sign first; then whatever pdflatex may not know.
_SPECIAL = re.compile("|".join([*map(re.escape, sorted(_LATEX, key=len, reverse=True)), r"[^\x00-\x7f]"]))


def escape_latex(text: str) -> str:
    """`text` as literal LaTeX on one line, in characters that every engine knows; a rare one is named by its number."""
    composed = unicodedata.normalize("NFC", _one_line(text))
    return _SPECIAL.sub(lambda match: _LATEX.get(match[0]) or _letter(match[0]), composed)


def _letter(char: str) -> str:
    base, *marks = list(unicodedata.normalize("NFD", char))
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        letter = f"\\{base}" if base in "ij" else base  # an accent takes the place of the dot
        return f"{{\\{_ACCENTS[marks[0]]}{{{letter}}}}}"
    return rf"\texttt{{U+{ord(char):04X}}}"


def _one_line(text: str) -> str:
    """White space and control characters as single spaces: a line break would end a cell or a caption."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
