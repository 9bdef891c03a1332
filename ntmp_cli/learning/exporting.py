"""A trained scorer as one graph from raw rows to score and probability, for programs without ntmp."""

from __future__ import annotations

import io
import logging
import warnings
import zipfile
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ntmp_cli.errors import UsageError
from ntmp_cli.learning.tables.exporting import INPUT, OUTPUTS, RawColumns
from ntmp_cli.registry import Facts, Registry

log = logging.getLogger(__name__)

# An exporter turns a module and two rows of its input into the bytes of a file.
exporters: Registry[Callable[[Exported, Tensor], bytes], Facts] = Registry(
    "format", "ntmp_cli.learning.exporting", Facts
)


class NumericColumns(nn.Module):
    """Features of raw numbers of a table: standardised, missing values as the mean, with indicators."""

    means: Tensor
    scales: Tensor

    def __init__(self, columns: RawColumns) -> None:
        super().__init__()
        self.columns = columns
        self.register_buffer("means", torch.tensor(columns.means, dtype=torch.float64))
        self.register_buffer("scales", torch.tensor(columns.scales, dtype=torch.float64))
        self.register_buffer("order", torch.tensor(columns.order))

    def forward(self, rows: Tensor) -> Tensor:
        missing = rows.isnan()
        z = torch.where(missing, torch.zeros_like(rows), (rows - self.means) / self.scales)
        return torch.cat([z, missing.to(z.dtype)], 1).float().index_select(1, self.get_buffer("order"))


class Exported(nn.Module):
    """Raw rows in; the score, log-odds at the prior of the run, and its calibrated probability out."""

    def __init__(self, features: nn.Module | None, scorer: nn.Module, temperature: float) -> None:
        super().__init__()
        self.features = nn.Identity() if features is None else features
        self.scorer, self.temperature = scorer, temperature

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        score = self.scorer(self.features(rows))
        return score, torch.sigmoid(score / self.temperature)


@exporters.register("torchscript")
def torchscript(module: Exported, rows: Tensor) -> bytes:
    """TorchScript, loaded by `torch.jit.load` in Python or C++."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        # torch calls TorchScript deprecated; C++ programs still load it.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        # The check of `trace` uses torch.testing, which imports torch.distributed and takes longer than the export.
        traced = torch.jit.trace(module, rows, check_trace=False)  # type: ignore[no-untyped-call]
        if not all(map(_same, traced(rows), module(rows))):
            log.warning(
                "the graph does not give the scores of the network: its output does not depend on its input alone"
            )
        torch.jit.save(traced, out)
    return _without_call_stacks(out.getvalue())


def _same(traced: Tensor, own: Tensor) -> bool:
    """Equality up to rounding, which may differ between a graph and its network."""
    return torch.allclose(traced, own, rtol=1e-5, atol=1e-5, equal_nan=True)


# Where torch keeps the call stack of every operation, with paths of this machine, and a hash that includes them.
_CALL_STACKS = (".debug_pkl", "/.data/serialization_id")


def _without_call_stacks(content: bytes) -> bytes:
    """The archive without entries that depend on this machine and on the caller; torch does not need them."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(out, "w") as kept:
        for name in given.namelist():
            if not name.endswith(_CALL_STACKS):
                kept.writestr(zipfile.ZipInfo(name), given.read(name))
    return out.getvalue()


@exporters.register("onnx")
def onnx(module: Exported, rows: Tensor) -> bytes:
    """ONNX, for example for onnxruntime; needs the package onnx, and onnxscript for networks of uncommon layers."""
    _require("onnx")
    from ntmp_cli.learning.layer_graph import UnknownLayer, layer_graph

    columns = module.features.columns if isinstance(module.features, NumericColumns) else None
    try:
        return layer_graph(module.scorer, columns, module.temperature, rows)
    except UnknownLayer:
        _require("onnxscript")
        return _traced_onnx(module, rows)


def _require(package: str) -> None:
    try:
        import_module(package)
    except ImportError:
        raise UsageError(f"the format onnx needs the package {package}", hint="pip install 'ntmp[export]'") from None


def _traced_onnx(module: Exported, rows: Tensor) -> bytes:
    """The graph that torch finds by running the network."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's internals
        program: Any = torch.onnx.export(
            module,
            (rows,),
            input_names=[INPUT],
            output_names=list(OUTPUTS),
            dynamic_shapes={"rows": {0: torch.export.Dim("rows_given", min=1)}},
            dynamo=True,
            verbose=False,
        )
    program.save(out)
    return _without_metadata(out.getvalue())


def _without_metadata(content: bytes) -> bytes:
    """The graph without torch's notes on its parts, which hold call stacks with paths of this machine."""
    import onnx

    model = onnx.load_from_string(content)
    parts = [*model.graph.input, *model.graph.output, *model.graph.initializer]
    for graph in (model.graph, *model.functions):
        parts += [graph, *graph.node, *graph.value_info]
    for part in parts:
        del part.metadata_props[:]
    return bytes(model.SerializeToString())
