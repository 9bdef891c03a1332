"""Texts of users' files are harmless where they go: terminals do not obey them, spreadsheets do not run them."""

from __future__ import annotations

import os

import pytest

from ntmp_cli.commands.terminal import PlainConsole
from ntmp_cli.errors import is_memory_error
from ntmp_cli.plain_text import printable, without_formula


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "a\rb", "\x07", "\x9b31m", "\u202eevil", "\x00", "\x7f", "\x0b", "\u2069"]
)
def test_no_text_reaches_a_terminal_as_a_code(text, capsys):
    console = PlainConsole(force_terminal=True, color_system=None)
    console.print(text, markup=False)
    assert not set(capsys.readouterr().out) & (set(text) - set("[31mredabvil"))
    assert printable(text).count("\ufffd") == 1


def test_colours_of_the_console_itself_stay(capsys):
    PlainConsole(force_terminal=True, color_system="standard").print("[red]x[/red]")
    assert capsys.readouterr().out == "\x1b[31mx\x1b[0m\n"


def test_plain_text_stays_as_it_is():
    assert printable("prévu\tπ = ½\n") == "prévu\tπ = ½\n"


def test_bytes_of_a_path_that_are_no_text_are_shown_by_their_codes():
    assert printable(os.fsdecode(b"caf\xe9")) == "caf\\udce9"


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+SUM(A1)", "-2+3", "@x", "\tx", "\rx", "-", "-5 "])
def test_a_formula_begins_with_an_apostrophe(text):
    assert without_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=b", "-5", "+3.2e-4", "-.5", "-5,", "5-3", "x@y", "'=1"])
def test_numbers_and_texts_stay_as_they_are(text):
    assert without_formula(text) == text


def test_memory_errors_of_libraries_are_known():
    assert is_memory_error(MemoryError())
    assert is_memory_error(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert is_memory_error(ImportError("x.so: failed to map segment from shared object"))
    assert not is_memory_error(RuntimeError("shapes do not match"))
    assert not is_memory_error(ValueError("not enough memory"))
