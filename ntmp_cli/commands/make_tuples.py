"""`ntmp make-tuples`"""

from __future__ import annotations

from typing import Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import DataRoot, IfExists, Json, Out, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import MakeTuplesConfig


@with_config(
    MakeTuplesConfig,
    complete={"dataset": names_of("datasets")},
    short_forms={"n": "Tuple length; --n 3 --m 1 is short for --tuple 3:1.", "m": "Positives per tuple."},
)
def command(
    config: MakeTuplesConfig,
    out: Out,
    if_exists: IfExists = "fail",
    data_root: DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is missing.")] = False,
    json: Json = False,
) -> None:
    """Turn a labelled data set into counted tuples and an unlabeled pool. Creates a tuples directory.

    Example: ntmp make-tuples --dataset digits --n 3 --m 1 --prior 0.5 --seed 0 --out work/tuples
    """
    from ntmp_cli.commands.views import tuples_view
    from ntmp_cli.stages.make_tuples import make_tuples

    tuples = make_tuples(config, out, data_root=data_root, download=download, if_exists=if_exists)
    summary = tuples.summary
    result = {
        **identity(tuples, out),
        "tuples": summary.tuples.train,
        "strata": [row.to_json() for row in summary.strata.train],
        "effective_gap": summary.effective_gap,
        "instances": summary.instances.train,
        "unlabeled": summary.unlabeled.train,
        "prior": summary.prior,
        "warnings": summary.warnings,
    }
    show(result, json, lambda console: tuples_view(console, out, summary))
