"""Cells of a column of counts: every way to write one, and every mistake, in words that help."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.percentages import percent_range
from ntmp_cli.data.user.count_cells import NONE, CellError, CountColumn


def record(text: str, n: int, counts_are: str = "counts", law: str = "exact") -> tuple[float, float, str]:
    column = CountColumn(counts_are, parse_law(law))  # type: ignore[arg-type]
    code = column.code(text)
    if isinstance(code, str):
        raise CellError(code)
    return column.record(code, n)


@pytest.mark.parametrize(
    ("text", "n", "low", "high"),
    [
        ("2", 5, 2, 2),
        ("2.0", 5, 2, 2),
        ("1-3", 5, 1, 3),
        ("1–3", 5, 1, 3),
        ("1..3", 5, 1, 3),
        ("1 to 3", 5, 1, 3),
        ("3-9", 5, 3, 5),
        (">=1", 5, 1, 5),
        ("≥1", 5, 1, 5),
        (">1", 5, 2, 5),
        ("<=2", 5, 0, 2),
        ("< 6", 20, 0, 5),
        ("<6", 3, 0, 3),
        ("25%", 8, 2, 2),
        ("37%", 500, 183, 187),
        ("37.0%", 500, 185, 185),
        ("50 %", 3, 2, 1),
        ("0%", 3, 0, 0),
        ("100%", 3, 3, 3),
    ],
)
def test_a_cell_is_a_range_of_counts(text: str, n: int, low: int, high: int) -> None:
    if low > high:
        with pytest.raises(CellError, match="no count of 3 is 50 %"):
            record(text, n)
    else:
        assert record(text, n) == (low, high, "exact")


@pytest.mark.parametrize(
    ("text", "counts_are", "n", "expected"),
    [
        ("0.25", "proportions", 8, (2, 2)),
        ("0.3", "proportions", 40, (10, 14)),
        ("0.30", "proportions", 40, (12, 12)),
        ("1", "proportions", 4, (4, 4)),
        ("37", "percentages", 500, (183, 187)),
        ("25%", "proportions", 8, (2, 2)),
    ],
)
def test_bare_numbers_may_be_shares(text: str, counts_are: str, n: int, expected: tuple[int, int]) -> None:
    assert record(text, n, counts_are)[:2] == expected


@pytest.mark.parametrize("decimals", [-1, 0, 1, 2])
@pytest.mark.parametrize("n", [1, 3, 7, 40, 999])
def test_a_percentage_leaves_all_counts_open_that_round_to_it(n: int, decimals: int) -> None:
    exact = 100 * np.arange(n + 1) / n
    rounded = np.round(exact, decimals)
    for percent in np.unique(rounded):
        low, high = percent_range(np.array([percent]), np.array([n]), decimals)
        inside = np.flatnonzero(rounded == percent)
        halves = np.flatnonzero(np.isclose(np.abs(exact - percent), 0.5 * 10.0**-decimals))
        assert low[0] == min([*inside, *halves])
        assert high[0] == max([*inside, *halves])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.25", "is not 0, 1, 2 …; are these proportions? then pass --counts-are proportions"),
        (
            "1.5",
            "the count 1.5 is not 0, 1, 2 …; are these percentages? then pass --counts-are percentages; was noise ",
        ),
        ("-1", "the count -1 is not 0, 1, 2 …; was noise added? then pass --count-law gaussian:SD"),
        ("1,234", "has a thousands separator: write 1234"),
        ("0,25", "has a decimal comma: write 0.25"),
        ("37,5%", "has a decimal comma: write 37.5%"),
        ("3-1", "is empty: its first number is larger than its second"),
        ("1.5-3", "is a range of numbers that are not whole"),
        ("many", "the count many is not 0, 1, 2 …, nor a range such as 1-3"),
        ("120%", "is more than 100 %"),
        ("7", "has count 7 but only 5 rows"),
        ("6-8", "has count 6-8 but only 5 rows"),
    ],
)
def test_a_cell_that_is_no_count_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(CellError) as error:
        record(text, 5)
    assert message in str(error.value)


def test_numbers_that_are_no_shares_are_refused_as_shares() -> None:
    with pytest.raises(CellError, match="is not between 0 and 1, the range of proportions"):
        record("2", 5, "proportions")


@pytest.mark.parametrize(
    ("text", "law", "expected"),
    [
        ("-3.5", "gaussian:2", (-3.5, -3.5, "gaussian:2")),
        ("12", "geometric:0.5", (12, 12, "geometric:0.5")),
        ("50%", "gaussian:2", (4.0, 4.0, "gaussian:2")),
        ("10", "round:5", (10, 10, "round:5")),
        ("0", "suppress:6", (0, 0, "suppress:6")),
        ("<6", "suppress:6", (1, 5, "exact")),
        ("1-3", "round:5", (1, 3, "exact")),
        ("1-3", "off-by-one:0.1", (1, 3, "off-by-one:0.1")),
    ],
)
def test_a_law_says_what_a_cell_may_be(text: str, law: str, expected: tuple[float, float, str]) -> None:
    assert record(text, 8, law=law) == expected


def test_a_law_refuses_what_it_cannot_give() -> None:
    with pytest.raises(CellError, match="cannot be recorded by round:5: it gives a multiple of 5"):
        record("7", 8, law="round:5")
    with pytest.raises(CellError, match=r"has 8 rows and count 9, which detect:0\.9,0\.9 cannot give"):
        record("9", 8, law="detect:0.9,0.9")


def test_zeros_are_counts_where_suppressed_ones_are_written_otherwise() -> None:
    column = CountColumn(law=parse_law("suppress:6"))
    zero, hidden = column.code("0"), column.code("<6")
    assert isinstance(zero, int)
    assert isinstance(hidden, int)
    assert column.record(zero, 20) == (0, 0, "exact")
    assert column.record(hidden, 20) == (1, 5, "exact")


def test_columns_are_read_at_once_with_empty_cells_and_mistakes_by_row() -> None:
    column = CountColumn()
    codes, wrong = column.codes(pa.array(["1", None, "x", "1.0", "2-3", "x"]))
    assert codes.tolist()[:2] == [0, NONE]
    assert codes[3] == codes[0]
    assert wrong.keys() == {2, 5}
    laws = pa.array([None, None, "gaussian:1", None, "gausian:1", None])
    codes, wrong = column.codes(pa.array(["1", None, "1", "1.0", "2", "2-3"]), laws)
    assert codes[0] == codes[3] != codes[2]
    assert "unknown count-law 'gausian'" in wrong[4]


def test_floating_point_numbers_have_the_decimals_of_the_one_with_most() -> None:
    column = CountColumn("proportions")
    half, third = column.code("0.5"), column.code("0.333333")
    assert isinstance(half, int)
    assert isinstance(third, int)
    assert column.record(half, 20)[:2] == (9, 11)
    column.read_as_fractions()
    assert column.record(half, 20)[:2] == (10, 10)
    assert column.record(third, 3)[:2] == (1, 1)
