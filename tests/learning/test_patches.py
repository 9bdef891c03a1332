from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.learning import patches
from ntmp_cli.learning.encoders import EncoderRequest, build_encoder
from ntmp_cli.learning.patches import (
    PatchFeatures,
    PatchSettings,
    leading_eigenvectors,
    normalised,
    spherical_kmeans,
    zca,
)

SPEC = "patches:filters=6,size=3,grid=2,components=5"
SHAPE = (3, 8, 7)


def images(count: int = 40, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def in_pieces(x: Tensor, size: int = 17) -> Callable[[], Iterator[Tensor]]:
    return lambda: iter(torch.split(x, size))


def fitted(x: Tensor, size: int = 17, spec: str = SPEC) -> PatchFeatures:
    encoder = build_encoder(spec, EncoderRequest(tuple(x.shape[1:]), seed=0, pieces=in_pieces(x, size)))
    assert isinstance(encoder, PatchFeatures)
    return encoder


def test_responses_equal_a_loop_over_patches() -> None:
    x = images()
    encoder = fitted(x)
    image = normalised(x[:1])[0].double()
    weight, bias = encoder.weight.double().flatten(1), encoder.bias.double()
    rows, columns = SHAPE[1] - 2, SHAPE[2] - 2
    maps = torch.stack(
        [weight @ image[:, i : i + 3, j : j + 3].flatten() + bias for i in range(rows) for j in range(columns)]
    ).view(rows, columns, 6)
    # Regions of an uneven side share the middle row or column, as in adaptive average pooling.
    halves = [[slice(0, -(-side // 2)), slice(side // 2, side)] for side in (rows, columns)]
    expected = [
        torch.stack([part(maps)[r, c].mean(dim=(0, 1)) for r in halves[0] for c in halves[1]], dim=1)
        for part in (lambda m: (m - 1).clamp(min=0), lambda m: (-m - 1).clamp(min=0))
    ]
    assert torch.allclose(encoder.responses(x[:1])[0].double(), torch.cat(expected).flatten(), atol=1e-5)


def test_a_traced_graph_takes_any_number_of_images() -> None:
    x = images()
    encoder = fitted(x, spec=f"{SPEC},views=2")
    graph = torch.jit.trace(encoder, x[:2])
    for count in (1, 2, 9):
        assert torch.allclose(graph(x[:count]), encoder(x[:count]), atol=1e-4)


def test_blocks_of_filters_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    encoder = fitted(x)
    whole = encoder.responses(x)
    monkeypatch.setattr(patches, "RESPONSES_AT_ONCE", 1)  # one filter at a time
    assert torch.allclose(encoder.responses(x), whole, atol=1e-6)


def test_features_of_the_fitted_images_are_white() -> None:
    x = images(300)
    features = fitted(x)(x).double().numpy()
    assert np.allclose(features.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(np.cov(features, rowvar=False, bias=True), np.eye(5), atol=1e-2)


def test_the_contrast_of_an_image_does_not_matter() -> None:
    x = images() * 0.5 + 0.5
    low = x * 0.6 + 0.1
    assert torch.allclose(fitted(x)(x), fitted(x)(low), atol=0.05)


def test_it_does_not_depend_on_how_the_images_are_cut() -> None:
    x = images()
    one, many = fitted(x, 40), fitted(x, 7)
    assert one.weight.shape == many.weight.shape
    assert torch.allclose(one.responses(x[:20]), torch.cat([one.responses(x[:3]), one.responses(x[3:20])]), atol=1e-6)


def test_two_views_give_an_image_and_its_mirror_image_the_same_features() -> None:
    x = images()
    one, two = fitted(x), fitted(x, spec=f"{SPEC},views=2")
    assert torch.allclose(two(x), two(x.flip(3)), atol=1e-5)
    assert not torch.allclose(one(x), one(x.flip(3)), atol=0.1)
    # Both have the same filters; with two views their responses are averaged.
    assert torch.equal(one.weight, two.weight)
    assert torch.allclose(two.responses(x), (one.responses(x) + one.responses(x.flip(3))) / 2, atol=1e-6)


def test_whitened_rows_have_nearly_unit_covariance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 4)) @ rng.normal(size=(4, 4)) * 3 + 5
    shift, matrix = zca(rows)
    assert np.allclose(np.cov((rows - shift) @ matrix, rowvar=False), np.eye(4), atol=0.1)
    assert np.allclose(matrix, matrix.T)


def test_leading_eigenvectors_by_subspace_iteration_are_those_of_the_whole_matrix(monkeypatch) -> None:
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    spectrum = np.arange(1, 301) ** -1.5
    matrix = torch.from_numpy((rotation * spectrum) @ rotation.T).float()
    exact, vectors = leading_eigenvectors(matrix, 20, rng)
    assert np.allclose(exact, spectrum[:20], rtol=1e-4)
    monkeypatch.setattr(patches, "ALL_AT_ONCE", 100)
    values, approximate = leading_eigenvectors(matrix, 20, rng)
    assert np.allclose(values, exact, rtol=1e-4)
    assert np.allclose(np.abs((vectors * approximate).sum(axis=0)), 1, atol=1e-3)


def test_spherical_kmeans_recovers_directions_up_to_sign() -> None:
    rng = np.random.default_rng(3)
    true = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    rows = rng.choice([-1, 1], (4000, 1)) * true[rng.integers(0, 4, 4000)] * rng.uniform(1, 3, (4000, 1))
    directions = spherical_kmeans(rows + rng.normal(scale=0.02, size=rows.shape), 12, rng)
    assert np.allclose(np.linalg.norm(directions, axis=1), 1, atol=1e-5)
    assert (np.abs(directions @ true.T).max(axis=0) > 0.99).all()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("patches:filter=8", "encoder patches has no setting 'filter'; did you mean 'filters'?"),
        ("patches:filters=0", "encoder patches: filters is '0'; it must be a whole number from 1 on"),
        ("patches:views=3", "encoder patches: views is 3; an image has one view, or two with its mirror image"),
        ("patches:size=x", "encoder patches: size is 'x'; it must be a whole number from 1 on"),
        ("patches:size=8", "encoder patches: patches of 8 pixels on a grid of 2 do not fit into images of 8 × 7"),
    ],
)
def test_settings_that_cannot_be_are_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        fitted(images(), spec=spec)
    assert error.value.message == message


def test_settings_have_defaults() -> None:
    assert PatchSettings.parse("") == PatchSettings(800, 6, 2, 800)
    assert PatchSettings.parse("filters=1600, components=1200") == PatchSettings(1600, 6, 2, 1200)


def test_vectors_and_equal_images_are_refused() -> None:
    with pytest.raises(UsageError, match="encoder patches needs images"):
        build_encoder("patches", EncoderRequest((5,), seed=0, pieces=in_pieces(torch.rand(9, 5))))
    with pytest.raises(DataError, match="all images are equal"):
        fitted(torch.full((9, *SHAPE), 0.3))
    with pytest.raises(DataError, match="at least two images"):
        fitted(images(1))
