"""The digits that come with scikit-learn: a real data set that needs no download."""

from __future__ import annotations

import numpy as np

from ntmp_cli.data.labelled import LabelledData, SourceRequest, datasets
from ntmp_cli.data.sources._shared import fixed_split, refuse_argument, refuse_resize


@datasets.register("digits")
def digits(request: SourceRequest) -> LabelledData:
    """1,797 handwritten digits of 8x8 pixels, bundled; even digits are positive."""
    from sklearn.datasets import load_digits

    refuse_argument("digits", request)
    refuse_resize("digits", request)
    bunch = load_digits()
    # Pixels are whole numbers from 0 to 16.
    x = bunch.images.astype(np.uint8)[:, np.newaxis]
    y = bunch.target.astype(np.int64)
    train, test = fixed_split(len(x), "digits")
    return LabelledData(
        name="digits",
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=tuple(str(digit) for digit in range(10)),
        positive=("0", "2", "4", "6", "8"),
        scale=16.0,
    )
