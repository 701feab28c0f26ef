"""Tiny ONNX models for tests: embedders that project pixels, and detectors that see a marked corner of a face."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = helper.make_opsetid("", 17)


def save(file: Path, nodes, inputs, outputs, weights=None, metadata=None) -> Path:
    graph = helper.make_graph(
        nodes,
        "tiny",
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[OPSET], ir_version=9)
    if metadata:
        helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(file))
    return file


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def embedder(
    file: Path,
    *,
    size=16,
    dimensions=8,
    seed=0,
    batch="n",
    channels=3,
    scaled=False,
    constant=False,
    not_finite=False,
    norm_output=False,
    channels_last=False,
    half=False,
    metadata=None,
) -> Path:
    """Average pooling to 4 x 4 and a random projection: enough to tell drawn patterns apart."""
    generator = np.random.default_rng(seed)
    number = np.float16 if half else np.float32
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    weights = {"w": generator.normal(size=(channels * 16, dimensions)).astype(number)}
    if constant:
        weights["w"] *= 0
        weights["b"] = np.ones(dimensions, number)
    nodes, at = [], "x"
    if channels_last:
        nodes.append(helper.make_node("Transpose", [at], ["first"], perm=[0, 3, 1, 2]))
        at = "first"
    if scaled:
        weights |= {"mean": np.array(127.5, number), "factor": np.array(1 / 128, number)}
        nodes.append(helper.make_node("Sub", [at, "mean"], ["centered"]))
        nodes.append(helper.make_node("Mul", ["centered", "factor"], ["scaled"]))
        at = "scaled"
    nodes += [
        helper.make_node(
            "AveragePool", [at], ["pool"], kernel_shape=[size // 4] * 2, strides=[size // 4] * 2
        ),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["product"]),
    ]
    last = "product"
    if constant:
        nodes.append(helper.make_node("Add", [last, "b"], ["sum"]))
        last = "sum"
    if not_finite:
        nodes.append(helper.make_node("Log", [last], ["log"]))
        last = "log"
    nodes.append(helper.make_node("Identity", [last], ["embedding"]))
    outputs = [value("embedding", [batch, dimensions], kind)]
    if norm_output:
        nodes.append(helper.make_node("ReduceL2", [last], ["norm"], axes=[1], keepdims=1))
        outputs.append(value("norm", [batch, 1], kind))
    shape = [batch, size, size, channels] if channels_last else [batch, channels, size, size]
    return save(file, nodes, [value("x", shape, kind)], outputs, weights, metadata)
