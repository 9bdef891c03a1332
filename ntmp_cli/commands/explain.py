"""`ntmp explain`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import IfExists, Json, Out, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import ExplainConfig

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]
Tuples = Annotated[Path, typer.Option("--tuples", help="Tuples that the run was trained on.", show_default=False)]


@with_config(ExplainConfig)
def command(
    config: ExplainConfig, run: Run, tuples: Tuples, out: Out, if_exists: IfExists = "fail", json: Json = False
) -> None:
    """Explain which features matter to a classifier. Creates a table and a figure; for images, a saliency map.

    Example: ntmp explain work/run-count-0 --tuples work/tuples --out work/explanation

    The importance of a feature is how much the count likelihood of unseen tuples falls when the feature is permuted.
    No label is used.
    """
    from ntmp_cli.commands.views import explanation_view
    from ntmp_cli.stages.explain import explain

    explained = explain(config, run, tuples, out, if_exists=if_exists)
    facts = explained.read_json("explanation.json")
    show({**identity(explained, out), **facts}, json, lambda console: explanation_view(console, out, facts))
