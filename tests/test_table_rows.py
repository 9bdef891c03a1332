"""benchmarks/table_rows.py: kept results are those of the code, whatever is written about it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import table_rows, tables

BEFORE = '''
"""A module."""

class Model:
    """A model."""

    rate: float
    """Of learning."""

    def fit(self) -> str:
        """Fit it."""
        return "fitted"  # at once
'''


def digest(tmp_path: Path, code: str) -> str:
    file = tmp_path / "model.py"
    file.write_text(code)
    return table_rows._digest.__wrapped__((str(file),))


def test_other_words_in_docstrings_and_comments_keep_results_and_other_code_does_not(tmp_path: Path) -> None:
    before = digest(tmp_path, BEFORE)
    reworded = BEFORE
    for old, new in {
        "A module": "The module",
        "A model": "Models",
        "Of learning": "Per step",
        "Fit it": "Fits",
    }.items():
        reworded = reworded.replace(old, new)
    assert reworded != BEFORE
    assert digest(tmp_path, reworded.replace("# at once", "# in one step")) == before
    assert digest(tmp_path, BEFORE.replace('        """Fit it."""\n', "")) == before
    assert digest(tmp_path, BEFORE.replace('"fitted"', '"trained"')) != before


def test_numbers_of_the_page_are_read_from_its_table_alone() -> None:
    page = (Path(__file__).parents[1] / "docs" / "tables.md").read_text(encoding="utf-8")
    cells = tables._cells(page)
    assert {row for _, row in cells} <= table_rows.ROWS.keys()
    assert {name for name, _ in cells} == {*tables.NAMES}
