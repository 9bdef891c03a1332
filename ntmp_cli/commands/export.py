"""`ntmp export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import IfExists, Json, Out, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import ExportConfig

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]


@with_config(ExportConfig)
def command(config: ExportConfig, run: Run, out: Out, if_exists: IfExists = "fail", json: Json = False) -> None:
    """Export a run as ONNX or TorchScript. Creates a directory with the model and its description, export.json.

    The model takes raw rows if all columns are numeric, otherwise the encoded features that export.json describes.

    Example: ntmp export work/run-0 --format onnx --out work/exported
    """
    from ntmp_cli.commands.views import export_view
    from ntmp_cli.stages.export import FACTS, export

    exported = export(config, run, out, if_exists=if_exists)
    summary, features = exported.summary, exported.read_json(FACTS).get("features")
    show(
        {**identity(exported, out), **summary.to_json()},
        json,
        lambda console: export_view(console, out, summary, features),
    )
