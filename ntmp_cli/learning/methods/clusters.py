"""Clustering baselines: two clusters, named by the proportions that are known.

Two clusters of k-means are cut by the plane midway between their centres, so the scorer is linear:
|x − c₋|² − |x − c₊|² = 2x·(c₊ − c₋) + |c₋|² − |c₊|² (Eq. 85).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import FitData, FittedMethod, LinearFit, methods

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

# Above this many numbers the data are not held in memory: k-means then goes through them in pieces.
IN_MEMORY = 2**28
STARTS = 10
BLOCK = 4096
PASSES = 3


class _Clusters(FittedMethod):
    start = "k-means++"

    def fit(self, data: FitData) -> LinearFit:
        centres, algorithm = two_centres(data, self.start, self.config.seed)
        weight, bias = plane_between(*centres)
        shares = positive_shares(data, weight, bias)
        rates = [m / n for n, m, _ in sorted(self.task.strata)] + [self.prior]
        if not first_is_positive(shares, rates):
            weight, bias = -weight, -bias
            shares = [(size, 1 - share) for size, share in shares]
        return LinearFit(weight, bias, {"algorithm": algorithm, "share_unlabeled": shares[-1][1]})


@methods.register("kmeans")
class KMeans(_Clusters):
    """k-means with two clusters from random starts, named by matching proportions to π."""

    start = "random"


@methods.register("kmeans++")
class KMeansPlusPlus(_Clusters):
    """k-means with two clusters from k-means++ starts, named by matching proportions to π."""


@methods.register("cluster-classifier")
class ClusterClassifier(_Clusters):
    """A logistic regression on the pseudo-labels of k-means++ clusters."""

    def fit(self, data: FitData) -> LinearFit:
        import numpy as np
        from sklearn.linear_model import SGDClassifier

        clusters = super().fit(data)
        model = SGDClassifier(loss="log_loss", alpha=1e-4, average=True, random_state=self.config.seed)
        rng = np.random.default_rng(self.config.seed)
        for _ in range(PASSES):
            for piece in data.instances():
                x = piece[rng.permutation(len(piece))]
                model.partial_fit(x, x @ clusters.weight + clusters.bias > 0, classes=[False, True])
        return LinearFit(model.coef_[0].astype(np.float64), float(model.intercept_[0]), clusters.fields)


def two_centres(data: FitData, start: str, seed: int) -> tuple[Floats, str]:
    """Centres of two clusters of all instances, the best of ten starts; in pieces where the data are large."""
    import numpy as np
    from sklearn.cluster import KMeans as Exact
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    settings: dict[str, Any] = {"n_clusters": 2, "init": start, "n_init": STARTS, "random_state": seed}
    pieces, numbers = [], 0
    for x in data.instances():
        pieces.append(x)
        numbers += x.size
        if numbers > IN_MEMORY:
            break
    with warnings.catch_warnings():
        # Fewer distinct points than clusters: the check below raises for it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model: Any
        if numbers <= IN_MEMORY:
            model, algorithm = Exact(**settings).fit(np.concatenate(pieces)), "kmeans"
        else:
            model, algorithm = (
                MiniBatchKMeans(batch_size=BLOCK, **settings).fit(np.concatenate(pieces)),
                "minibatch-kmeans",
            )
            pieces.clear()
            for x in data.instances():
                for block in np.array_split(x, -(-len(x) // BLOCK)):
                    model.partial_fit(block)
    centres = np.asarray(model.cluster_centers_, dtype=np.float64)
    if np.allclose(centres[0], centres[1], rtol=1e-6, atol=0):  # equal up to the rounding of single precision
        raise NotIdentifiableError("all instances are equal: there are no two clusters")
    return centres, algorithm


def plane_between(first: Floats, second: Floats) -> tuple[Floats, float]:
    """x·weight + bias > 0 where the first centre is nearer."""
    return 2 * (first - second), float(second @ second - first @ first)


def positive_shares(data: FitData, weight: Floats, bias: float) -> list[tuple[int, float]]:
    """(instances, share with a positive score) of every stratum, by (n, m), and last of U."""
    import numpy as np

    inside: dict[tuple[int, int], list[int]] = {}
    for x, sizes, counts in data.tuples():
        positive = (x @ weight + bias > 0).astype(np.int64)
        per_tuple = np.add.reduceat(positive, np.cumsum(sizes) - sizes)
        for n, m in {*zip(sizes.tolist(), counts.tolist(), strict=True)}:
            in_stratum = (sizes == n) & (counts == m)
            total = inside.setdefault((n, m), [0, 0])
            total[0] += n * int(in_stratum.sum())
            total[1] += int(per_tuple[in_stratum].sum())
    unlabeled = np.concatenate([x @ weight + bias > 0 for x in data.unlabeled()])
    shares = [(size, positive / size) for _, (size, positive) in sorted(inside.items())]
    return [*shares, (len(unlabeled), float(unlabeled.mean()))]


def first_is_positive(shares: list[tuple[int, float]], rates: list[float]) -> bool:
    """Whether the cluster with these shares is the positive one.

    U decides: the cluster whose share is nearer to π. At π = ½ both are equally near, and the tuples decide, by the
    mean squared mismatch of their shares and rates; where that is a tie too, the sign is not identifiable.
    """
    groups = list(zip(shares, rates, strict=True))
    for evidence in (groups[-1:], groups[:-1]):
        total = sum(size for (size, _), _ in evidence)
        # (s − r)² − (1 − s − r)² = (2s − 1)(1 − 2r)
        excess = sum(size * (2 * share - 1) * (1 - 2 * rate) for (size, share), rate in evidence) / total
        if abs(excess) > 1e-9:
            return excess < 0
    raise NotIdentifiableError(
        "the positive cluster is not identifiable: tuples and unlabeled pool are half positive",
        hint="Add tuples of another rate, or an unlabeled pool whose prior is not 0.5.",
    )
