from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ntmp_cli.data.user import mapping as mapping_module
from ntmp_cli.data.user.mapping import FeatureMapping, Hashed, Numeric, OneHot, TableFeatures, fit_table, text_code

NUMBERS = st.floats(-1e6, 1e6) | st.just(np.nan) | st.floats(-1e100, 1e100)
TABLES = arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 4)), elements=NUMBERS)
TEXTS = st.text(max_size=6)


def blocks(cells: np.ndarray, size: int) -> list[np.ndarray]:
    return [cells[start : start + size] for start in range(0, len(cells), size)]


def names(cells: np.ndarray) -> list[str]:
    return [f"c{j}" for j in range(cells.shape[1])]


@given(TABLES)
def test_every_number_becomes_a_finite_feature_and_missing_ones_the_mean(cells):
    fitted = fit_table(names(cells), {}, [cells], hash_width=4)
    x = fitted.apply(cells)
    assert x.dtype == np.float32
    assert x.shape == (len(cells), fitted.width)
    assert np.isfinite(x).all()
    start = 0
    for j, column in enumerate(fitted.columns):
        missing = np.isnan(cells[:, j])
        assert (x[missing, start] == 0).all()
        assert column.indicator == missing.any()
        if column.indicator:
            assert np.array_equal(x[:, start + 1], missing)
        start += 1 + column.indicator


@given(
    arrays(np.float64, st.tuples(st.integers(2, 40), st.integers(1, 3)), elements=st.integers(-1000, 1000).map(float)),
    st.integers(1, 7),
)
def test_standardisation_is_scikit_learns_whatever_the_blocks(cells, size):
    fitted = fit_table(names(cells), {}, blocks(cells, size), hash_width=4)
    assert np.allclose(fitted.apply(cells), StandardScaler().fit_transform(cells), atol=1e-5)


@given(st.lists(TEXTS, min_size=1, max_size=30))
def test_one_hot_is_scikit_learns(texts):
    cells = np.array([[text_code(text)] for text in texts])
    fitted = fit_table(["c"], {"c": {text_code(text): text for text in texts}}, [cells], hash_width=4)
    (column,) = fitted.columns
    assert column == OneHot(name="c", categories=tuple(sorted(set(texts))))
    expected = OneHotEncoder(categories=[sorted(set(texts))], sparse_output=False).fit_transform(
        np.array(texts, dtype=object)[:, None]
    )
    assert np.array_equal(fitted.apply(cells), expected)


@given(st.lists(TEXTS | st.none(), min_size=1, max_size=30), st.integers(1, 16))
def test_a_hashed_text_lights_one_feature_always_the_same(texts, width):
    fitted = TableFeatures(columns=(Hashed(name="c", width=width, indicator=True),))
    cells = np.array([[np.nan if text is None else text_code(text)] for text in texts])
    x = fitted.apply(cells)
    for row, text in zip(x, texts, strict=True):
        assert row.sum() == 1
        assert row.argmax() == (width if text is None else int(text_code(text)) % width)


@settings(max_examples=30)
@given(TABLES)
def test_a_mapping_that_was_stored_maps_alike(cells):
    mapping = FeatureMapping(features=fit_table(names(cells), {}, [cells], hash_width=4))
    again = FeatureMapping.model_validate_json(mapping.model_dump_json())
    assert again == mapping
    assert np.array_equal(again.features.apply(cells), mapping.features.apply(cells))


def test_a_large_offset_costs_no_digits():
    """Time stamps in seconds do not fit into float32; their standardised values do."""
    seconds = 1.7e9 + np.arange(1000.0)
    x = fit_table(["t"], {}, blocks(seconds[:, None], 64), 4).apply(seconds[:, None])[:, 0]
    assert np.allclose(x, (np.arange(1000) - 499.5) / np.arange(1000).std(), atol=1e-5)


def test_a_constant_column_is_zero_and_not_its_rounding():
    cells = np.full((1000, 1), 0.1)
    assert (fit_table(["c"], {}, blocks(cells, 7), 4).apply(cells) == 0).all()


def test_categories_that_training_did_not_see_are_all_zeros():
    fitted = TableFeatures(columns=(OneHot(name="c", categories=("a", "b")), Numeric(name="n", mean=1, scale=2)))
    x = fitted.apply(np.array([[text_code("z"), 3.0], [text_code("b"), np.nan]]))
    assert x.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_codes_of_texts_are_whole_numbers_that_a_float_holds():
    # Stored runs depend on this value.
    assert text_code("red") == 244716414365860.0
    assert text_code("") != text_code(" ")
    assert 0 <= text_code("ü") < 2**52


def test_a_mapping_of_another_version_is_refused():
    with pytest.raises(ValueError, match="version"):
        FeatureMapping.model_validate({"version": 2, "features": {"kind": "table", "columns": []}})


@pytest.mark.parametrize("columns", [1, 64, 65, 130, 500])
def test_statistics_of_some_columns_at_a_time_are_the_same_bits(columns, monkeypatch):
    cells = np.random.default_rng(columns).normal(size=(300, columns)) * 10.0 ** np.arange(columns).clip(0, 12)
    cells[np.random.default_rng(1).random(cells.shape) < 0.1] = np.nan
    at_once = mapping_module._moments(cells)
    monkeypatch.setattr(mapping_module, "MOMENT_CELLS", 1)
    assert mapping_module.block_statistics(cells, ()).moments.tobytes() == at_once.tobytes()
