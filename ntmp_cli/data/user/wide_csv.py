"""CSV tables of many columns of numbers, read without pyarrow's costs per column and block.

pyarrow reads far ahead of what it is asked for, and its readers cost some kilobytes per column and some microseconds
per column and block. Here, the numbers of some rows are one column of CSV: their delimiters become line ends. The
memory is that of a block, and the numbers are those of pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from ntmp_cli.data.user.arrow_columns import number_scalar, numbers_of

# Tables of fewer columns are read by pyarrow.
WIDE_COLUMNS = 1000
# pyarrow finds the types of so many columns at a time, for which it needs tens of kilobytes each.
COLUMNS_OF_HEAD = 4000
# Ids, counts and other columns that are not numbers lie among so many columns at either end; otherwise pyarrow reads.
MOST_AT_AN_END = 64
# Bytes of text whose numbers are read at a time, and by a thread.
PIECE_BYTES, BYTES_PER_THREAD = 4 * 2**20, 2**20


@dataclass(frozen=True)
class WideLayout:
    """Where the numbers of a row are: between `before` columns and `after` columns of any kind."""

    names: Sequence[str]
    before: int
    after: int
    delimiter: bytes

    @classmethod
    def of(cls, names: Sequence[str], is_number: Sequence[bool], delimiter: str) -> WideLayout | None:
        """The layout of a wide table; None if pyarrow should read it."""
        others = np.flatnonzero(~np.array(is_number, bool))
        before = int(others[others < MOST_AT_AN_END].max(initial=-1)) + 1
        after = len(names) - int(others[others >= before].min(initial=len(names)))
        if len(names) < WIDE_COLUMNS or after > MOST_AT_AN_END:
            return None
        return cls(names, before, after, delimiter.encode())

    @property
    def numbers(self) -> Sequence[str]:
        return self.names[self.before : len(self.names) - self.after]

    @property
    def others(self) -> Sequence[str]:
        return [*self.names[: self.before], *self.names[len(self.names) - self.after :]]


@dataclass(frozen=True)
class WideReading:
    """How pyarrow reads the same table: the conversion of columns, and a reader of what is below the header."""

    layout: WideLayout
    others: Sequence[str]
    """The wanted columns outside the numbers."""
    conversion: Callable[[Sequence[str]], Any]
    """The options of pyarrow for these columns."""
    by_pyarrow: Callable[[bytes, IO[bytes]], Iterator[Any]]
    """Reads all rows from the first one that is not plain: with quoted numbers, mistakes and the like."""

    def batches(self, stream: IO[bytes], wanted: Sequence[str], block: int) -> Iterator[Any]:
        """Blocks of all rows below the header, with the wanted columns, of about `block` bytes of text each."""
        read, size = list[_Piece](), 0
        for text, kept in pieces_of_lines(stream, block):
            piece = self._piece(text)
            if piece is not None:
                read, size = [*read, piece], size + len(text)
            if read and (piece is None or size >= block):
                yield self._batch(read, wanted)
                read, size = [], 0
            if piece is None:
                yield from self.by_pyarrow(text + kept, stream)
                return
        if read:
            yield self._batch(read, wanted)

    def _batch(self, pieces: Sequence[_Piece], wanted: Sequence[str]) -> Any:
        numbers = np.concatenate([piece.numbers for piece in pieces])
        columns = dict(zip(self.layout.numbers, _columns_of(numbers), strict=True))
        if self.others:
            others = pa.concat_tables([piece.others for piece in pieces]).combine_chunks()
            columns |= {name: others.column(name).chunk(0) for name in self.others}
        return pa.RecordBatch.from_arrays([columns[name] for name in wanted], names=list(wanted))

    def _piece(self, text: bytes) -> _Piece | None:
        """The rows of these lines; None if they are not plain."""
        lines = [line for line in (line.removesuffix(b"\r") for line in text.split(b"\n")) if line]
        split = _split(lines, self.layout)
        if split is None:
            return None
        try:
            name, others = self.layout.numbers[0], None  # all numbers are converted alike
            chunks = self._read(split[0], [name], [name]).column(name).chunks
            cells = [numbers_of(chunk.fill_null(number_scalar(np.nan))) for chunk in chunks]
            if self.others:
                others = self._read(split[1], self.layout.others, self.others)
                others.validate(full=True)
            numbers = np.concatenate([*cells, np.empty(0)]).reshape(len(lines), len(self.layout.numbers))
        except (pa.ArrowInvalid, ValueError):  # pyarrow says what is wrong, when it reads the rows
            return None
        return _Piece(numbers, others) if others is None or others.num_rows == len(lines) else None

    def _read(self, text: bytes, names: Sequence[str], wanted: Sequence[str]) -> Any:
        return pacsv.read_csv(
            pa.BufferReader(text),
            read_options=pacsv.ReadOptions(column_names=list(names), block_size=max(BYTES_PER_THREAD, len(text) // 4)),
            parse_options=pacsv.ParseOptions(delimiter=self.layout.delimiter.decode(), ignore_empty_lines=False),
            convert_options=self.conversion(wanted),
        )


class _Piece(NamedTuple):
    """Some rows: their numbers, and the wanted columns outside of them."""

    numbers: NDArray[np.float64]
    others: Any


def _columns_of(numbers: NDArray[np.float64]) -> Iterator[Any]:
    rows = len(numbers)
    buffer = pa.py_buffer(np.ascontiguousarray(numbers.T))
    for start in range(0, buffer.size, 8 * max(1, rows)):
        yield pa.Array.from_buffers(pa.float64(), rows, [None, buffer.slice(start, 8 * rows)])


def _split(lines: Sequence[bytes], layout: WideLayout) -> tuple[bytes, bytes] | None:
    """The numbers, one per line, and the other columns as CSV; None if a line has quoted numbers or is ragged."""
    sign, columns = layout.delimiter, len(layout.names)
    numbers, others = [], []
    for line in lines:
        if line.count(sign) != columns - 1:
            return None
        *first, rest = line.split(sign, layout.before)
        rest, *last = rest.rsplit(sign, layout.after)
        if not all(map(_is_plain, (*first, *last))):
            return None
        numbers.append(rest)
        others.append(sign.join((*first, *last)))
    body = sign.join((*numbers, b""))
    if b'"' in body or b"\r" in body:
        return None
    return body.translate(bytes.maketrans(sign, b"\n")), b"\n".join((*others, b""))


def _is_plain(cell: bytes) -> bool:
    """Whether a cell is without quotes, or quoted as a whole: then its delimiters and those of the row are the same."""
    return b"\r" not in cell and (b'"' not in cell or (cell.count(b'"') == 2 and cell[:1] == cell[-1:] == b'"'))


def pieces_of_lines(stream: IO[bytes], longest: int) -> Iterator[tuple[bytes, bytes]]:
    """Whole lines below the first one, and the beginning of the next line, which was read too."""
    is_header, kept = True, b""
    while piece := stream.read(PIECE_BYTES):
        end = piece.rfind(b"\n") + 1
        if not end and len(kept) > max(longest, PIECE_BYTES):
            raise pa.ArrowInvalid("a row is longer than a block")
        lines, kept = (kept + piece[:end], piece[end:]) if end else (b"", kept + piece)
        if is_header and lines:
            lines, is_header = lines.partition(b"\n")[2], False
        if lines:
            yield lines, kept
    if kept and not is_header:
        yield kept, b""


def header_names(header: bytes, most: int, parsing: Any) -> list[str]:
    """The names in a header of at most so many columns."""
    texts = {f"f{j}": pa.string() for j in range(most)}
    read = pacsv.read_csv(
        pa.BufferReader(header),
        read_options=pacsv.ReadOptions(autogenerate_column_names=True, block_size=len(header) + 1),
        parse_options=parsing,
        convert_options=pacsv.ConvertOptions(column_types=texts, null_values=[], true_values=[], false_values=[]),
    )
    return [column[0].as_py() for column in read.columns]
