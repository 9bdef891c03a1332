"""The guide for Python runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"


@pytest.mark.slow
def test_the_blocks_of_the_guide_run_one_after_the_other():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert len(blocks) == 3
    assert names["model"].score(names["people"], names["ill"]) > 0.75
    assert names["search"].best_params_["estimator__C"] in (0.01, 0.1, 1)
