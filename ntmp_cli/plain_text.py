"""Texts of users' files, made harmless where they go: terminals obey escape codes, spreadsheets run formulas.

Names of columns, data sets, classes and ids come from files that somebody else may have written.
"""

from __future__ import annotations

import re

# Control characters but line breaks and tabs, and marks that turn the direction of what follows.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FORMULA_START = r"^[=+\-@\t\r]"
PLAIN_NUMBER = r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$"
_FORMULA, _NUMBER = re.compile(FORMULA_START), re.compile(PLAIN_NUMBER)


def printable(text: str) -> str:
    """What a terminal shows and does not obey; bytes of a path that are no text, as their codes."""
    return _CONTROLS.sub("\ufffd", text.encode("utf-8", "backslashreplace").decode())


def without_formula(text: str) -> str:
    """A cell that a spreadsheet takes as text: what it would take as a formula begins with an apostrophe."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text
