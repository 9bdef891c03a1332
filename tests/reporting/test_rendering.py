from __future__ import annotations

import csv
import io
import math
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_rows import group, table

from ntmp_cli.commands.result_views import results_view
from ntmp_cli.reporting import rendering
from ntmp_cli.reporting.rendering import escape_latex, escape_markdown


def test_markdown() -> None:
    built = table(group("a|b", 0.9), group("b", 0.8), group("c_d", None), title="Results")
    assert rendering.to_markdown(built).splitlines()[2:] == [
        "| dataset | tuples | π | method | accuracy (%) |",
        "| --- | --- | ---: | --- | ---: |",
        r"| digits | 3:1 | 0.5 | a\|b | **90.00 ± 0.31** |",
        "| digits | 3:1 | 0.5 | b | 80.00 ± 0.31 |",
        "| digits | 3:1 | 0.5 | c_d | undefined |",
    ]


@given(st.text())
def test_markdown_cells_keep_their_text_and_their_column(text: str) -> None:
    line = rendering.to_markdown(table(group(text, 0.9, variant="x"), title=text)).splitlines()[-1]
    cells = re.findall(r"\| ((?:\\.|[^|\\])*) (?=\|)", line)
    assert len(cells) == 6
    assert re.sub(r"\\(.)", r"\1", cells[3]) == one_line(text)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# x", r"\# x"),
        ("1. x", r"1\. x"),
        ("- x", r"\- x"),
        ("_x_", r"\_x\_"),
        ("a_b", "a_b"),
        ("3:~0.5", r"3:\~0.5"),
    ],
)
def test_markdown_does_not_read_text_as_markup(text: str, escaped: str) -> None:
    assert escape_markdown(text) == escaped


def test_csv_holds_raw_values() -> None:
    third = 1 / 3
    built = table(
        group('a,"b', third),
        group("b", None),
        group("c", 0.5, seeds=1, std=None, tuples="mix", n=None, m=None),
        reference="b",
    )
    rows = list(csv.DictReader(io.StringIO(rendering.to_csv(built))))
    assert rows[0] == {
        "dataset": "digits",
        "tuples": "3:1",
        "n": "3",
        "m": "1",
        "prior": "0.5",
        "gap": "",
        "method": 'a,"b',
        "variant": "",
        "seeds": "5",
        "accuracy_mean": repr(third),
        "accuracy_std": "0.0031",
        "accuracy_undefined": "0",
        "accuracy_ci_low": repr(third - 0.01),
        "accuracy_ci_high": repr(third + 0.01),
        "accuracy_minus_reference": "nan",
    }
    assert math.isnan(float(rows[1]["accuracy_mean"]))
    assert (rows[2]["n"], rows[2]["accuracy_std"], rows[2]["accuracy_minus_reference"]) == ("", "", "")


def test_latex() -> None:
    built = table(group("ure+abs", 0.9), group("[c_d]", 0.8), title="100% of $")
    assert rendering.to_latex(built).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{100\% of \$. Mean $\pm$ standard deviation over 5 seeds; (n, m) = (3, 1) with $\alpha$ = "
        r"0.3333; $\pi$ = 0.5. Bold: best mean of each data set, tuples and $\pi$.}",
        r"\begin{tabular}{llrlr}",
        r"\hline",
        r"dataset & tuples & $\pi$ & method & accuracy (\%) \\",
        r"\hline",
        r"digits & 3:1 & 0.5 & ure+abs & \textbf{90.00 $\pm$ 0.31} \\",
        r"digits & 3:1 & 0.5 & {[}c\_d{]} & 80.00 $\pm$ 0.31 \\",
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]


# What a TeX engine makes of the escapes; anything else special is an error.
LATEX_TOKEN = re.compile(
    r"\\text(?P<name>backslash|asciitilde|asciicircum|less|greater|bar)\{\}"
    r"|\\(?P<escaped>[_&%#${}])"
    r"|\{(?P<grouped>[\[\]*])\}"
    r"|(?P<maths>\$(?:\\pm|\\pi|\\alpha|\\Delta|\\delta|\\times|\\Delta_\{\\mathrm\{op\}\}|\\bar\{\\alpha\}|\\hat\{\\pi\}|-)\$)"
    r"|\{\\(?P<accent>[`'^~\"rvc])\{\\?(?P<letter>[A-Za-z])\}\}"
    r"|\\texttt\{U\+(?P<number>[0-9A-F]+)\}"
    r"|(?P<plain>[^\\_&%#${}~^<>|\[\]*\x80-\U0010ffff])"
)


NAMES = {"backslash": "\\", "asciitilde": "~", "asciicircum": "^", "less": "<", "greater": ">", "bar": "|"}


MATHS = {r"$\pm$": "±", r"$\pi$": "π", r"$\alpha$": "α", r"$\Delta$": "Δ", r"$\delta$": "δ", "$-$": "−"}
MATHS |= {r"$\times$": "×", r"$\Delta_{\mathrm{op}}$": "Δ_op", r"$\bar{\alpha}$": "ᾱ", r"$\hat{\pi}$": "π̂"}
ACCENTS = dict(zip("`'^~\"rvc", "\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327", strict=True))


def typeset(latex: str) -> str:
    out, at = [], 0
    while at < len(latex):
        token = LATEX_TOKEN.match(latex, at)
        assert token, f"unescaped {latex[at]!r} in {latex!r}"
        groups = token.groupdict()
        out.append(
            NAMES.get(groups["name"])
            or MATHS.get(groups["maths"])
            or groups["escaped"]
            or groups["grouped"]
            or (groups["accent"] and unicodedata.normalize("NFC", groups["letter"] + ACCENTS[groups["accent"]]))
            or (groups["number"] and chr(int(groups["number"], 16)))
            or groups["plain"]
        )
        at = token.end()
    return "".join(out)


def one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@given(st.text() | st.text(alphabet="_&%#${}~^\\<>|[]*ab \n±π−δéïçα\u0304\u0302中Δop"))
def test_latex_escapes_every_special_character(text: str) -> None:
    assert typeset(escape_latex(text)) == unicodedata.normalize("NFC", one_line(text)).replace("—", "---")


def test_terminal_table_shows_text_literally_and_best_in_bold() -> None:
    from rich.console import Console

    built = table(group("[red]a[/red]", 0.9), group("b", 0.8), group("b", 0.7, prior=0.2))
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(results_view(built))
    shown = console.export_text(styles=True)
    assert "[red]a[/red]" in shown
    assert "\x1b[1m90.00 ± 0.31\x1b[0m" in shown


def test_terminal_table_cuts_nothing_when_it_is_narrow() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=40, record=True)
    console.print(results_view(table(group("attention-mil", 0.9), group("cluster-classifier", 0.8))))
    assert "…" not in console.export_text()
