"""The ONNX graph of a network of common layers, written layer by layer.

`torch.onnx.export` takes any network, but importing it takes longer than everything else an export does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from ntmp_cli.learning.models import AttentionHead, ResidualBlock, Scorer
from ntmp_cli.learning.tables.exporting import INPUT, OUTPUTS, Graph, RawColumns, feature_nodes

# Compared exactly: a subclass may compute something else.
KNOWN = {
    *(nn.Sequential, ResidualBlock, AttentionHead, nn.Identity, nn.ReLU, nn.Tanh, nn.Flatten, nn.Linear),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.Conv2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d),
}


class UnknownLayer(Exception):
    """A layer that this module has no node for."""


def layer_graph(scorer: nn.Module, columns: RawColumns | None, temperature: float, rows: Tensor) -> bytes:
    """The graph of a scorer, from raw columns where they are numbers, else from rows; or `UnknownLayer` is raised."""
    from onnx import TensorProto, helper

    if type(scorer) is not Scorer:
        raise UnknownLayer
    writer = _Writer(Graph(helper, [], []))
    graph = writer.graph
    if columns is None:
        x = graph.add("Cast", [INPUT], "single", to=TensorProto.FLOAT)
    else:
        x = feature_nodes(graph, columns, TensorProto)
    x = graph.add("Mul", [x, writer.constant(scorer.factor)], "scaled_input")
    x = graph.add("Sub", [x, writer.constant(scorer.shift)], "normalised_input")
    x = writer.layer(scorer.network, x)
    score = graph.add("Squeeze", [x, graph.constant("last_axis", np.array([-1]))], OUTPUTS[0])
    divisor = graph.constant("temperature", np.array(temperature, dtype=np.float32))
    graph.add("Sigmoid", [graph.add("Div", [score, divisor], "scaled_score")], OUTPUTS[1])
    return graph.serialized(str(rows.dtype).removeprefix("torch."), rows.shape[1:])


class _Writer:
    """Appends the nodes of layers to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def constant(self, tensor: Tensor) -> str:
        values = tensor.detach().cpu().contiguous().numpy()
        return self.graph.constant(f"constant_{len(self.graph.constants)}", values)

    def add(self, kind: str, x: str, *constants: Tensor | None, **attributes: Any) -> str:
        names = [self.constant(tensor) for tensor in constants if tensor is not None]
        return self.graph.add(kind, [x, *names], f"{kind.lower()}_{len(self.graph.nodes)}", **attributes)

    def layer(self, layer: nn.Module, x: str) -> str:
        """Append a layer; the name of its output."""
        if type(layer) not in KNOWN:
            raise UnknownLayer
        match layer:
            case nn.Sequential():
                for inner in layer:
                    x = self.layer(inner, x)
                return x
            case ResidualBlock():
                both = [self.layer(layer.main, x), self.layer(layer.shortcut, x)]
                return self.add("Relu", self.graph.add("Add", both, f"sum_{len(self.graph.nodes)}"))
            case AttentionHead():
                return self.layer(layer.margin, self.layer(layer.hidden, x))
            case nn.Identity():
                return x
            case nn.ReLU():
                return self.add("Relu", x)
            case nn.Tanh():
                return self.add("Tanh", x)
            case nn.Flatten(start_dim=1, end_dim=-1):
                return self.add("Flatten", x, axis=1)
            case nn.Linear():
                product = self.add("MatMul", x, layer.weight.T)  # of inputs of any rank, as in torch
                return product if layer.bias is None else self.add("Add", product, layer.bias)
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                statistics = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
                if any(tensor is None for tensor in statistics):
                    raise UnknownLayer
                return self.add("BatchNormalization", x, *statistics, epsilon=layer.eps)
            case nn.Conv2d(padding_mode="zeros", padding=(int(), int())):
                shape: dict[str, Any] = {"strides": layer.stride, "pads": (*layer.padding, *layer.padding)}
                shape |= {"dilations": layer.dilation, "group": layer.groups}
                return self.add("Conv", x, layer.weight, layer.bias, **shape)
            case nn.MaxPool2d(kernel_size=int(), stride=int(), padding=0, dilation=1):
                shape = {"kernel_shape": [layer.kernel_size] * 2, "strides": [layer.stride] * 2}
                return self.add("MaxPool", x, ceil_mode=int(layer.ceil_mode), **shape)
            case nn.AdaptiveAvgPool2d(output_size=1):
                return self.add("GlobalAveragePool", x)
        raise UnknownLayer
