"""The closed-form linear classifier (SPEC section 4b), from first and second moments in one pass."""

from __future__ import annotations

import numpy as np

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import looks_mirrored
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.discriminant import Discriminant, Moments, fit
from ntmp_cli.learning.method import FitData, FittedMethod, Heldout, HeldoutRisk, LinearFit, methods
from ntmp_cli.learning.methods.count import require_orientation, tuple_nll

SIGN_TEST_TUPLES = 20_000


@methods.register("discriminant")
class ClosedForm(FittedMethod):
    """Linear discriminant in closed form from the moments of tuples and U: in seconds (SPEC 4b)."""

    def fit(self, data: FitData) -> LinearFit:
        found = self.discriminant(data)
        facts = {
            "separation": found.separation,
            "components": found.components,
            "first_order_weight": found.first_order_weight,
            "second_order_weight": found.second_order_weight,
            "first_order_z": found.first_order_z,
            "oriented_by": found.oriented_by,
        }
        return LinearFit(found.weight, found.bias, facts)

    def discriminant(self, data: FitData, *, trusts_prior: bool = True) -> Discriminant:
        """The classifier with all that is known of it; unless the prior is trusted, counts alone name the classes."""
        require_orientation(self.config, self.task)
        moments: Moments | None = None
        for x, sizes, counts in data.tuples():
            moments = moments or Moments(x.shape[1])
            moments.add_tuples(x, sizes, counts)
        assert moments is not None, "a tuples directory holds tuples"
        for x in data.unlabeled():
            moments.add_unlabeled(x)
        try:
            found = fit(moments, self.config.prior)
        except (ZeroDivisionError, ValueError) as error:
            raise NotIdentifiableError(
                f"no class means can be told from these tuples: {error}",
                hint="Use tuples with more than one member, or of several rates, or another unlabeled pool.",
            ) from None
        # With n = 2m throughout the likelihood is symmetric: then the weak first order is all there is.
        if not (found.oriented and trusts_prior) and not self.task.symmetric:
            found = found.decided(mirrored=self._is_mirrored(found, data))
        return found

    def _is_mirrored(self, found: Discriminant, data: FitData) -> bool:
        """Where π is too near the tuples' rate only the counts themselves know which side is which (SPEC section 5)."""
        scores, sizes, counts = [], [], []
        for x, n, m in data.tuples():
            scores.append(found.scores(x))
            sizes.append(n)
            counts.append(m)
            if sum(map(len, sizes)) >= SIGN_TEST_TUPLES:
                break
        law = count_noise(self.config.count_noise)
        return looks_mirrored(
            np.concatenate(scores), CountObservations(np.concatenate(sizes), np.concatenate(counts), law)
        )

    def heldout_risk(self, heldout: Heldout) -> HeldoutRisk | None:
        return tuple_nll(heldout, self.config, self.task)
