from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from ntmp_cli.evaluation.ranks import average_ranks


@given(st.lists(st.one_of(st.integers(-3, 3), st.floats(allow_nan=False)), max_size=30))
def test_ranks_are_those_of_scipy(values):
    numbers = np.array(values, dtype=float)
    assert average_ranks(numbers).tolist() == rankdata(numbers).tolist()
