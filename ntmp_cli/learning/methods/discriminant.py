"""The closed-form linear classifier, from first and second moments in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import FitData, FittedMethod, HeldoutRisk, HeldoutScores, LinearFit, methods
from ntmp_cli.learning.methods.count import tuple_nll
from ntmp_cli.learning.methods.ure import CountNoiseSettings

if TYPE_CHECKING:
    from ntmp_cli.counting.laws import NoiseLaw
    from ntmp_cli.learning.discriminant import Discriminant

SIGN_TEST_TUPLES = 20_000


@methods.register("discriminant")
class ClosedForm(FittedMethod):
    """Linear discriminant in closed form from the moments of tuples and U: in seconds."""

    settings = CountNoiseSettings
    counts_needed = "exact"

    def fit(self, data: FitData) -> LinearFit:
        classifier = self.discriminant(data)
        facts = {
            "separation": classifier.separation,
            "components": classifier.components,
            "first_order_weight": classifier.first_order_weight,
            "second_order_weight": classifier.second_order_weight,
            "first_order_z": classifier.first_order_z,
            "oriented_by": classifier.oriented_by,
        }
        return LinearFit(classifier.weight, classifier.bias, facts)

    def discriminant(self, data: FitData, *, trusts_prior: bool = True) -> Discriminant:
        """The classifier with the facts of its fit; the counts orient it unless the prior is trusted."""
        from ntmp_cli.learning.discriminant import fit
        from ntmp_cli.learning.groups import require_orientation
        from ntmp_cli.learning.moments import Moments

        require_orientation(self.task.symmetric, self.prior)
        moments: Moments | None = None
        for x, sizes, counts in data.tuples():
            moments = moments or Moments(x.shape[1])
            moments.add_tuples(x, sizes, counts)
        assert moments is not None, "there are tuples"
        for x in data.unlabeled():
            moments.add_unlabeled(x)
        heldout: Moments | None = None
        if (judge := data.heldout()) is not None:
            heldout = Moments(moments.features)
            heldout.add_tuples(judge.tuples, judge.sizes, judge.counts)
            if len(judge.unlabeled):
                heldout.add_unlabeled(judge.unlabeled)
        try:
            classifier = fit(moments, self.prior, heldout=heldout)
        except (ZeroDivisionError, ValueError) as error:
            raise NotIdentifiableError(
                f"these tuples do not identify the class means: {error}",
                hint="Use tuples with more than one member, or of several rates, or another unlabeled pool.",
            ) from None
        # With n = 2m throughout the likelihood is symmetric: then the weak first order decides alone.
        if not (classifier.oriented and trusts_prior) and not self.task.symmetric:
            classifier = classifier.decided(mirrored=self._is_mirrored(classifier, data))
        return classifier

    def _is_mirrored(self, classifier: Discriminant, data: FitData) -> bool:
        """Where π is too near the tuples' rate the likelihood of the counts decides the orientation."""
        import numpy as np

        from ntmp_cli.counting.observations import CountObservations
        from ntmp_cli.counting.recalibration import looks_mirrored

        scores, sizes, counts = [], [], []
        for x, n, m in data.tuples():
            scores.append(classifier.scores(x))
            sizes.append(n)
            counts.append(m)
            if sum(map(len, sizes)) >= SIGN_TEST_TUPLES:
                break
        observed = CountObservations(np.concatenate(sizes), np.concatenate(counts), self._law())
        return looks_mirrored(np.concatenate(scores), observed)

    def heldout_risk(self, heldout: HeldoutScores) -> HeldoutRisk | None:
        from ntmp_cli.learning.groups import rate_shift

        return tuple_nll(heldout, rate_shift(self.prior, self.task.rate, self.task.instances), self._law())

    def _law(self) -> NoiseLaw:
        from ntmp_cli.counting.laws import count_noise

        assert isinstance(self.config.settings, CountNoiseSettings)
        return count_noise(self.config.settings.count_noise)
