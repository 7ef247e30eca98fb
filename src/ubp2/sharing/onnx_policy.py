"""The policy of a run as an ONNX graph: obs [N, D] in, action [N, A] in the environment's own bounds out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ubp2.errors import UserError

__all__ = ["write_onnx"]

OPSET, IR_VERSION = 18, 9  # the first with Mish, and the file format of its time: old runtimes read them, too


def write_onnx(metadata: dict[str, Any], arrays: dict[str, np.ndarray], path: Path) -> None:
    """Write what `numpy_policy.Policy` computes as a graph, checked, with the metadata in its properties."""
    try:
        import onnx
    except ImportError:
        raise UserError(
            "--format onnx needs the package onnx: pip install 'ubp2[onnx]'; --format numpy needs nothing more"
        ) from None
    graph = _Graph(onnx.helper)
    said = graph.network("policy", _states(graph, metadata, arrays), metadata, arrays)
    _actions(graph, said, metadata)
    sizes = {"obs": metadata["obs_dim"], "action": metadata["action_dim"]}
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", size]) for n, size in sizes.items()]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    made = onnx.helper.make_graph(graph.nodes, "policy", ends[:1], ends[1:], weights)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION, producer_name="ubp2")
    onnx.helper.set_model_props(model, {"metadata": json.dumps(metadata)})
    onnx.checker.check_model(model, full_check=True)
    partial = path.with_name(f".{path.name}.tmp")
    try:
        partial.write_bytes(model.SerializeToString())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


class _Graph:
    """Nodes in the order in which they compute, and the constants that they read."""

    def __init__(self, helper: Any) -> None:
        self._helper = helper
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        self.constants[name] = np.asarray(value, dtype)
        return name

    def node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add an operation, and return the name of its output."""
        name = output or f"{operator.lower()}.{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def network(self, name: str, x: str, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
        """Linear, LayerNorm and Mish for each hidden layer, then linear, and LayerNorm where there is one."""

        def own(part: str, layer: int) -> str:
            key = f"{name}.{part}.{layer}"
            return self.constant(key, arrays[key])

        layers = sum(key.startswith(f"{name}.weight.") for key in arrays)
        for layer in range(layers):
            x = self.node("Gemm", x, own("weight", layer), own("bias", layer))
            if f"{name}.scale.{layer}" in arrays:
                epsilon = metadata["layer_norm_epsilon"]
                x = self.node("LayerNormalization", x, own("scale", layer), own("offset", layer), epsilon=epsilon)
            x = x if layer == layers - 1 else self.node("Mish", x)
        return x


def _states(graph: _Graph, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """What the policy network reads: the normalised observation, or the latent of it."""
    centred = graph.node("Sub", "obs", graph.constant("mean", arrays["mean"]))
    units = graph.node("Div", centred, graph.constant("scale", arrays["scale"]))
    z = _bent(graph, units, metadata)
    if "encoder.weight.0" not in arrays:
        return z
    z = graph.network("encoder", z, metadata, arrays)
    groups = graph.constant("groups", [0, -1, metadata["simnorm_group"]], np.int64)
    z = graph.node("Softmax", graph.node("Reshape", z, groups), axis=2)
    return graph.node("Reshape", z, graph.constant("flat", [0, -1], np.int64))


def _bent(graph: _Graph, x: str, metadata: dict[str, Any]) -> str:
    """Linear up to a limit, then logarithmic."""
    limit, tail = (graph.constant(name, metadata[name]) for name in ("clip", "tail"))
    size = graph.node("Abs", x)
    beyond = graph.node("Relu", graph.node("Sub", size, limit))
    grown = graph.node("Log", graph.node("Add", beyond, graph.constant("one", 1.0)))
    bent = graph.node("Add", graph.node("Min", size, limit), graph.node("Mul", grown, tail))
    return graph.node("Mul", graph.node("Sign", x), bent)


def _actions(graph: _Graph, said: str, metadata: dict[str, Any]) -> None:
    """The mode of the policy: tanh of the first half, stretched to the bounds of the environment."""
    ends = {"start": [0], "end": [metadata["action_dim"]], "axis": [1]}
    cut = [graph.constant(name, value, np.int64) for name, value in ends.items()]
    squashed = graph.node("Tanh", graph.node("Slice", said, *cut))
    low, high = (np.array(metadata[name], np.float64) for name in ("action_low", "action_high"))
    stretched = graph.node("Mul", squashed, graph.constant("half", (high - low) / 2))
    graph.node("Add", stretched, graph.constant("centre", (high + low) / 2), output="action")
