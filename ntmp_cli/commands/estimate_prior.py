"""`ntmp estimate-prior`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import Device, Features, IfExists, Json, Out, Threads, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import EstimatePriorConfig

Tuples = Annotated[Path, typer.Option("--tuples", help="Tuples directory with the unlabeled pool.", show_default=False)]


@with_config(
    EstimatePriorConfig,
    complete={"estimator": names_of("priors"), "model": names_of("models"), "encoder": names_of("encoders")},
)
def command(
    config: EstimatePriorConfig,
    tuples: Tuples,
    out: Out,
    if_exists: IfExists = "fail",
    device: Device = "auto",
    threads: Threads = None,
    features: Features = None,
    json: Json = False,
) -> None:
    """Estimate the class prior of the unlabeled pool, without any label. Creates a prior directory.

    `ntmp train --prior-from work/prior` uses it.

    Example: ntmp estimate-prior --tuples work/tuples --out work/prior
    """
    from ntmp_cli.artifacts.row_types import read_prior
    from ntmp_cli.commands.progress import limit_threads, watching
    from ntmp_cli.commands.views import prior_view
    from ntmp_cli.stages.cross_fit_options import CrossFitOptions
    from ntmp_cli.stages.estimate_prior import estimate_prior

    limit_threads(threads)
    prior = estimate_prior(config, tuples, out, CrossFitOptions(if_exists, device, features, watching))
    estimate = read_prior(prior)
    show({**identity(prior, out), **estimate}, json, lambda console: prior_view(console, out, estimate))
