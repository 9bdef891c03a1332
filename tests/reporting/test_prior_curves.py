from __future__ import annotations

from summary_rows import group

from ntmp_cli.reporting.prior_curves import metrics_against_prior


def test_metrics_are_plotted_against_the_prior_only_where_there_are_several() -> None:
    several = [group(name, 0.9 - p, "tpr", prior=p) for name in ("a", "b") for p in (0.2, 0.5, 0.8)]
    alone = [group("a", 0.5, "tpr", dataset="svhn")]
    images = metrics_against_prior([*several, *alone], title="Study")
    assert images.keys() == {"svg", "png"}
    assert b"<svg" in images["svg"]
    assert metrics_against_prior([*several, *alone], title="Study") == images
    assert metrics_against_prior(alone, title="Study") == {}
    assert metrics_against_prior([group("a", 0.9, prior=p) for p in (0.2, 0.5)], title="Study") == {}
