"""A classifier of table rows as an ONNX graph: raw rows in, score and probability out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError
from ntmp_cli.learning.tables.scorer import TableScorer
from ntmp_cli.learning.tables.trees import NodeArrays

INPUT, OUTPUTS = "rows", ("score", "probability")
OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8


class RawColumns(NamedTuple):
    """From numeric columns to features: standardised, missing values as the mean, indicators where a column has one."""

    means: Sequence[float]
    scales: Sequence[float]
    indicators: Sequence[bool]

    @property
    def order(self) -> list[int]:
        """Positions of the features in the concatenation of all values and all indicators."""
        order: list[int] = []
        for column, indicator in enumerate(self.indicators):
            order += [column, len(self.means) + column] if indicator else [column]
        return order


@dataclass
class Graph:
    """Nodes and constants of a graph under construction."""

    helper: Any
    nodes: list[Any]
    constants: list[Any]

    def constant(self, name: str, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def serialized(self, dtype: str, shape: Sequence[int]) -> bytes:
        """The checked model, whose input has rows of this type and shape."""
        from onnx import TensorProto, checker

        given = self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        info = self.helper.make_tensor_value_info
        model = self.helper.make_model(
            self.helper.make_graph(
                self.nodes,
                "ntmp",
                [info(INPUT, given, ["rows_given", *shape])],
                [info(name, TensorProto.FLOAT, ["rows_given"]) for name in OUTPUTS],
                self.constants,
            ),
            opset_imports=[self.helper.make_opsetid(domain, version) for domain, version in OPSETS.items()],
            ir_version=IR_VERSION,
        )
        checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def table_onnx(scorer: TableScorer, columns: RawColumns | None, temperature: float) -> bytes:
    """The graph of a scorer; its input is raw columns if all are numeric, otherwise features."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise UsageError("the format onnx needs the package onnx", hint="pip install 'ntmp[export]'") from None
    graph = Graph(helper, [], [])
    features = INPUT if columns is None else feature_nodes(graph, columns, TensorProto)
    wide = graph.add("Cast", [features], "features_double", to=TensorProto.DOUBLE)
    weight = graph.constant("weight", scorer.weight.astype(np.float64)[:, None])
    linear = graph.add("MatMul", [wide, weight], "linear")
    total = graph.add("Add", [linear, graph.constant("bias", np.array([[scorer.bias]]))], "sum_0")
    for number, ensemble in enumerate(scorer.ensembles, start=1):
        single = f"trees_{number}"
        graph.add(
            "TreeEnsembleRegressor",
            [features],
            single,
            domain="ai.onnx.ml",
            **_tree_attributes(ensemble.trees.nodes(ensemble.stages), ensemble.weight),
        )
        added = graph.add("Cast", [single], f"{single}_double", to=TensorProto.DOUBLE)
        total = graph.add("Add", [total, added], f"sum_{number}")
    flat = graph.add("Squeeze", [total, graph.constant("axis", np.array([1], dtype=np.int64))], "flat")
    divisor = graph.constant("temperature", np.array(temperature))
    graph.add("Cast", [flat], OUTPUTS[0], to=TensorProto.FLOAT)
    calibrated = graph.add("Sigmoid", [graph.add("Div", [flat, divisor], "scaled")], "calibrated")
    graph.add("Cast", [calibrated], OUTPUTS[1], to=TensorProto.FLOAT)
    width = len(scorer.weight) if columns is None else len(columns.means)
    return graph.serialized("float32" if columns is None else "float64", (width,))


def feature_nodes(graph: Graph, columns: RawColumns, proto: Any) -> str:
    means, scales = (np.array(values, dtype=np.float64) for values in (columns.means, columns.scales))
    centred = graph.add("Sub", [INPUT, graph.constant("means", means)], "centred")
    standardised = graph.add("Div", [centred, graph.constant("scales", scales)], "standardised")
    missing = graph.add("IsNaN", [INPUT], "missing")
    filled = graph.add("Where", [missing, graph.constant("zero", np.array(0.0)), standardised], "filled")
    indicators = graph.add("Cast", [missing], "indicators", to=proto.DOUBLE)
    both = graph.add("Concat", [filled, indicators], "both", axis=1)
    order = graph.constant("order", np.array(columns.order, dtype=np.int64))
    chosen = graph.add("Gather", [both, order], "chosen", axis=1)
    return graph.add("Cast", [chosen], "features", to=proto.FLOAT)


def _tree_attributes(trees: Sequence[NodeArrays], weight: float) -> dict[str, Any]:
    """Thresholds are rounded down to float32, which splits float32 features exactly as in double precision."""
    attributes: dict[str, list[Any]] = {
        name: []
        for name in (
            *("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes"),
            *("nodes_truenodeids", "nodes_falsenodeids", "target_treeids", "target_nodeids"),
            *("target_ids", "target_weights"),
        )
    }
    for number, tree in enumerate(trees):
        nodes, leaf = np.arange(len(tree.feature)), tree.feature < 0
        attributes["nodes_treeids"] += [number] * len(nodes)
        attributes["nodes_nodeids"] += nodes.tolist()
        attributes["nodes_featureids"] += np.maximum(tree.feature, 0).tolist()
        attributes["nodes_values"] += _rounded_down(tree.threshold).tolist()
        attributes["nodes_modes"] += np.where(leaf, "LEAF", "BRANCH_LEQ").tolist()
        attributes["nodes_truenodeids"] += np.maximum(tree.left, 0).tolist()
        attributes["nodes_falsenodeids"] += np.maximum(tree.right, 0).tolist()
        attributes["target_treeids"] += [number] * int(leaf.sum())
        attributes["target_nodeids"] += nodes[leaf].tolist()
        attributes["target_ids"] += [0] * int(leaf.sum())
        attributes["target_weights"] += (weight * tree.value[leaf]).tolist()
    return {**attributes, "n_targets": 1, "aggregate_function": "SUM", "post_transform": "NONE"}


def _rounded_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    single = values.astype(np.float32)
    return np.where(single.astype(np.float64) > values, np.nextafter(single, np.float32(-np.inf)), single)
