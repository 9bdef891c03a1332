"""Summaries of small artefacts, so that tests can publish any files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ntmp_cli.artifacts import Staging
from ntmp_cli.artifacts.shards import TupleBlock
from ntmp_cli.artifacts.summaries import ReportSummary, TuplesSummary
from ntmp_cli.artifacts.summary_fields import InstanceSummary, PoolSizes, Sizes, Strata, StratumRow


def as_report(staging: Staging) -> None:
    """Say the summary of a report that consists of the files announced so far."""
    staging.summary = ReportSummary(files=tuple(entry.path for entry in staging.entries()))


def write_report(staging: Staging, name: str, content: bytes) -> None:
    """A report of one file."""
    staging.add_bytes(name, content)
    as_report(staging)


def tuples_summary(blocks: Sequence[TupleBlock], unlabeled: int, scale: float) -> TuplesSummary:
    """What a tuples directory with these training tuples says."""
    pairs = Counter((int(n), int(m)) for b in blocks for n, m in zip(np.diff(b.offsets), b.counts, strict=True))
    strata = tuple(StratumRow.of(n, m, tuples) for (n, m), tuples in sorted(pairs.items()))
    tuples, first = sum(row.tuples for row in strata), blocks[0].instances
    return TuplesSummary(
        dataset="numbers",
        spec="mixed",
        instance=InstanceSummary(
            shape=first.shape[1:], dtype=first.dtype.name, scale=scale, standardised=False, resize=None
        ),
        tuples=Sizes(train=tuples),
        instances=Sizes(train=sum(row.instances for row in strata)),
        unlabeled=PoolSizes(train=unlabeled),
        test=0,
        test_labels=False,
        strata=Strata(train=strata),
        mean_rate=sum(row.tuples * row.rate for row in strata) / tuples,
        prior=None,
        effective_gap=None,
        reuse=None,
        count_noise=None,
        positive_classes=(),
        features=(),
        notes=(),
        warnings=(),
        knowledge=None,
        labelled=None,
    )
