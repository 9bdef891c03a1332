"""What users write into a column of counts: 2, 1-3, >=1, <6, 25%, a proportion, a number with noise, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Exact, NoiseLaw, PooledTest, Round, Suppress, law_text, parse_law
from ntmp_cli.counting.percentages import percent_range
from ntmp_cli.counting.recorded import are_records
from ntmp_cli.data.user.arrow_columns import filled, numbers_of
from ntmp_cli.errors import ONE_COUNT, UsageError

CountsAre = Literal["counts", "proportions", "percentages"]
"""What plain numbers in the column are."""

NONE = -1
PASS_KIND = "then pass --counts-are {}"
PASS_LAW = "then pass --count-law gaussian:SD, or the law that it is"
# From this many noisy records on, values that are all between 0 and 1 are probably proportions.
FEWEST_SHARES = 5
LIKE_SHARES = "all counts are fractions between 0 and 1: are these proportions? "
# Percentages with more decimals than this are treated as not rounded.
MOST_DECIMALS = 4
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*(?:-|–|\.\.|to)\s*({_NUMBER})")
_SIGNED_RANGE = re.compile(rf"([+-]?{_NUMBER})\.\.([+-]?{_NUMBER})")
_BOUND = re.compile(rf"(>=|=>|≥|>|<=|=<|≤|<)\s*({_NUMBER})")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_NAMED_NUMBER = rf"(?:[^\W\d]\w*\s*[:=]\s*)?{_NUMBER}"
_SEVERAL = re.compile(rf"[\[({{]?\s*{_NAMED_NUMBER}(?:\s*[;,|]\s*{_NAMED_NUMBER}|\s+{_NAMED_NUMBER})+\s*[\])}}]?")
_DECIMAL_COMMA = re.compile(r"\d+,\d+\s*%?")


class CellError(ValueError):
    """What is wrong with a cell; the message completes "the count TEXT …"."""


class CountCell(NamedTuple):
    """A count before the size of its tuple is known: low to high (inf: no upper limit), or a percentage."""

    low: float
    high: float
    percent: float | None = None
    decimals: int = 0
    """Decimals of the percentage; −1 if it was rounded to tens."""


def parse_cell(text: str, counts_are: CountsAre = "counts") -> CountCell:
    """The meaning of a cell that is not empty."""
    if found := _PERCENT.fullmatch(text):
        return _percentage(found[1], 0)
    if found := _BOUND.fullmatch(text):
        sign, value = found[1], float(found[2])
        if sign in (">=", "=>", "≥", ">"):
            return CountCell(np.floor(value) + 1 if sign == ">" else np.ceil(value), np.inf)
        return CountCell(0.0, np.ceil(value) - 1 if sign == "<" else np.floor(value))
    if found := _RANGE.fullmatch(text) or _SIGNED_RANGE.fullmatch(text):
        return CountCell(float(found[1]), float(found[2]))
    if _THOUSANDS.fullmatch(text):
        raise CellError(f"has a thousands separator: write {text.replace(',', '')}")
    if _DECIMAL_COMMA.fullmatch(text):
        raise CellError(f"has a decimal comma: write {text.replace(',', '.')}")
    if _SEVERAL.fullmatch(text):
        raise CellError(f"holds several numbers: {ONE_COUNT}")
    try:
        value = float(text)
    except ValueError:
        raise CellError("is not 0, 1, 2 …, nor a range such as 1-3, >=1, <6, nor a percentage such as 25%") from None
    if counts_are != "counts":
        most = 1 if counts_are == "proportions" else 100
        if not 0 <= value <= most:
            raise CellError(f"is not between 0 and {most}, the range of {counts_are}")
        return _percentage(text, 2 if counts_are == "proportions" else 0)
    return CountCell(value, value)


def _percentage(text: str, places: int) -> CountCell:
    """A percentage, or a proportion, whose decimal point is moved to the right by `places`."""
    # A plain 0 or 1 among proportions is exact, not rounded.
    has_decimals = "e" not in text.lower() and (places == 0 or "." in text)
    decimals = len(text.partition(".")[2]) if has_decimals else MOST_DECIMALS + places
    value = float(text) * 10**places
    if value > 100:
        raise CellError("is more than 100 %")
    return CountCell(np.nan, np.nan, value, min(decimals - places, MOST_DECIMALS))


@dataclass
class CountColumn:
    """The distinct cells of a column of counts, each with its law; rows refer to them by number."""

    counts_are: CountsAre = "counts"
    law: NoiseLaw = field(default_factory=Exact)
    """The law of cells that give none."""
    advice: str = PASS_KIND
    """Advice if plain numbers are not counts; `{}` is replaced by what they are."""
    noise_advice: str = PASS_LAW
    """Advice if a number can only be a count with noise; empty if no law can be given."""
    entries: list[tuple[CountCell, NoiseLaw]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    _known: dict[tuple[str, str | None], int | str] = field(default_factory=dict)
    _numbers: dict[tuple[CountCell, NoiseLaw], int] = field(default_factory=dict)

    def code(self, text: str | None, law: str | None = None) -> int | str:
        """The number of a cell, NONE if it is empty; or what is wrong with it."""
        if text is None:
            return NONE
        if (text, law) not in self._known:
            try:
                self._known[text, law] = self._number(text, law)
            except CellError as error:
                self._known[text, law] = f"the count {text} {error}"
            except UsageError as error:
                self._known[text, law] = error.message
        return self._known[text, law]

    def _number(self, text: str, law_name: str | None) -> int:
        cell, law = parse_cell(text, self.counts_are), self.law if law_name is None else parse_law(law_name)
        self._require_recordable(cell, law)
        if (cell, law) not in self._numbers:
            self._numbers[cell, law] = len(self.entries)
            self.entries.append((cell, law))
            self.texts.append(text)
        return self._numbers[cell, law]

    def _require_recordable(self, cell: CountCell, law: NoiseLaw) -> None:
        """Refuse records that are impossible for tuples of any size."""
        low, high = cell.low, cell.high
        if cell.percent is not None:
            return
        if not np.isfinite(low):
            raise CellError("is not 0, 1, 2 …")
        if low > high:
            raise CellError("is empty: its first number is larger than its second")
        if low == high and not law.possible(np.array([low]), np.array([2**53]))[0]:
            if not isinstance(law, Exact):
                raise CellError(f"cannot be recorded by {law_text(law)}: it gives {law.records}")
            raise CellError(f"is not 0, 1, 2 …{self._hint(low)}")
        if (
            low < high
            and isinstance(law, Exact)
            and (low != np.floor(low) or (high != np.floor(high) and high < np.inf))
        ):
            raise CellError(f"is a range of numbers that are not whole{self._hint(high)}")

    def _hint(self, number: float) -> str:
        """A hint on what a number that is not a count may be."""
        hints = []
        if 0 < number <= 100:
            kind = "proportions" if number <= 1 else "percentages"
            hints.append(f"are these {kind}? {self.advice.format(kind)}")
        if self.noise_advice and (number < 0 or (number > 1 and number != np.floor(number))):
            hints.append(f"was noise added? {self.noise_advice}")
        return "".join(f"; {hint}" for hint in hints)

    def _percentage_hint(self, cell: CountCell, n: int) -> str:
        """What a count above the size may be: a percentage, if some count is this percentage of the size."""
        if cell.low != cell.high or not 1 < cell.low <= 100:
            return ""
        low, high = percent_range(np.array([cell.low]), np.array([n]), 0)
        return self._hint(cell.low) if low[0] <= high[0] else ""

    def codes(self, texts: Any, laws: Any = None) -> tuple[NDArray[np.int32], dict[int, str]]:
        """The numbers of a column of text, and what is wrong with which rows."""
        coded = texts.dictionary_encode()
        if laws is None:
            found = [self.code(text) for text in coded.dictionary.to_pylist()]
            rows = numbers_of(filled(coded.indices, len(found)))
            by_row = [found[at] if at < len(found) else NONE for at in range(len(found) + 1)]
            return _split(np.asarray(rows), by_row)
        pairs = list(zip(texts.to_pylist(), laws.to_pylist(), strict=True))
        distinct = list(dict.fromkeys(pairs))
        place = {pair: number for number, pair in enumerate(distinct)}
        return _split(np.array([place[pair] for pair in pairs]), [self.code(*pair) for pair in distinct])

    def described(self, code: int, other: int) -> tuple[str, str]:
        """Two cells as they are written, with their laws where these differ."""
        first, second = ((self.texts[at], law_text(self.entries[at][1])) for at in (code, other))
        if first[1] == second[1]:
            return first[0], second[0]
        return f"{first[0]} ({first[1]})", f"{second[0]} ({second[1]})"

    def record(self, code: int, n: int) -> tuple[float, float, str]:
        """Low, high and law of a tuple of n members; raises CellError if that is impossible."""
        (cell, law), text = self.entries[code], self.texts[code]
        if cell.percent is not None:
            return self._of_percentage(cell, law, n)
        low, high = cell.low, cell.high if np.isfinite(cell.high) else max(float(n), cell.low)
        if cell.low < cell.high and isinstance(law, Round | Suppress | PooledTest):
            if isinstance(law, Suppress) and (low, cell.high) == (0, law.smallest - 1):
                low = 1.0  # suppressed counts are written `<K`, so a zero is not one of them
            law = Exact()
        elif isinstance(law, Suppress) and low == high == 0 and self.writes_suppressed(law):
            law = Exact()
        if cell.low > n and isinstance(law, Exact):
            raise CellError(f"has count {text} but only {n} row{'s'[: n != 1]}{self._percentage_hint(cell, n)}")
        if cell.low < cell.high < np.inf and cell.high > n and isinstance(law, Exact):
            high = float(n)
        if cell.low == cell.high and not law.possible(np.array([low]), np.array([n]))[0]:
            raise CellError(f"has {n} rows and count {text}, which {law_text(law)} cannot give: it gives {law.records}")
        return low, high, law_text(law)

    def _of_percentage(self, cell: CountCell, law: NoiseLaw, n: int) -> tuple[float, float, str]:
        assert cell.percent is not None
        if not isinstance(law, Exact):
            value = cell.percent * n / 100
            if not law.possible(np.array([value]), np.array([n]))[0]:
                raise CellError(f"has a count of {value:g}, which {law_text(law)} cannot give: it gives {law.records}")
            return value, value, law_text(law)
        low, high = percent_range(np.array([cell.percent]), np.array([n]), cell.decimals)
        if low[0] > high[0]:
            raise CellError(f"has {n} row{'s'[: n != 1]}, and no count of {n} is {cell.percent:g} %")
        return float(low[0]), float(high[0]), "exact"

    def writes_suppressed(self, law: Suppress) -> bool:
        """Whether suppressed counts are written as `<K`, so that zeros are true counts."""
        hidden = CountCell(0.0, float(law.smallest - 1))
        return law.smallest > 1 and any(cell == hidden for cell, _ in self.entries)

    def read_as_fractions(self) -> None:
        """Give all percentages the most decimals of any: in a column of floating-point numbers 0.5 may be 0.50."""
        decimals = [cell.decimals for cell, _ in self.entries if cell.percent is not None]
        if decimals:
            self.entries = [
                (cell if cell.percent is None else cell._replace(decimals=max(decimals)), law)
                for cell, law in self.entries
            ]


def look_like_shares(sizes: NDArray[Any], counts: NDArray[Any]) -> bool:
    """Whether noisy records are all between 0 and 1, and most of them not integers."""
    if not are_records(counts) or (counts["low"] != counts["high"]).any():
        return False
    many = counts["low"][sizes > 1]
    if len(many) < FEWEST_SHARES:
        return False
    return bool(((many >= 0) & (many <= 1)).all() and (many != np.floor(many)).mean() > 0.5)


def _split(rows: NDArray[Any], found: list[int | str]) -> tuple[NDArray[np.int32], dict[int, str]]:
    numbers = np.array([NONE if isinstance(value, str) else value for value in found], dtype=np.int32)
    wrong = np.array([isinstance(value, str) for value in found], dtype=np.bool_)
    bad = np.flatnonzero(wrong[rows]) if len(rows) else np.empty(0, np.int64)
    return numbers[rows], {int(row): str(found[int(rows[row])]) for row in bad.tolist()}


def range_texts(low: NDArray[Any], high: NDArray[Any]) -> Any:
    """A column of text for two arrays of ends."""
    ends = zip(low.tolist(), high.tolist(), strict=True)
    return pa.array([f"{a:.17g}" if a == b else f"{a:.17g}..{b:.17g}" for a, b in ends], pa.string())
