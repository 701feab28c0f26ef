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
    width=None,
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
    cells=4,
    contrast=False,
    clipped=False,
    metadata=None,
) -> Path:
    """Average pooling to 4 x 4 and a random projection: enough to tell drawn patterns apart.

    With `contrast` it does not see how bright a color is on the whole, only where. With `clipped` it sees values of -1..1 only.
    """
    generator = np.random.default_rng(seed)
    number = np.float16 if half else np.float32
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    weight = generator.normal(size=(channels, cells**2, dimensions))
    weight -= contrast * weight.mean(axis=1, keepdims=True)
    weights = {"w": weight.reshape(channels * cells**2, dimensions).astype(number)}
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
    if clipped:
        weights |= {"low": np.array(-1, number), "high": np.array(1, number)}
        nodes.append(helper.make_node("Clip", [at, "low", "high"], ["clipped"]))
        at = "clipped"
    width = width or size
    kernel = [size // cells, width // cells]
    nodes += [
        helper.make_node("AveragePool", [at], ["pool"], kernel_shape=kernel, strides=kernel),
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
    shape = [batch, size, width, channels] if channels_last else [batch, channels, size, width]
    return save(file, nodes, [value("x", shape, kind)], outputs, weights, metadata)


STRIDES = (8, 16, 32)


def _output_order(names, arrays, file, size):
    nodes, weights = [], {}
    for name, array in zip(names, arrays, strict=True):
        weights[f"c_{name}"] = array.astype(np.float32)
        nodes.append(helper.make_node("Identity", [f"c_{name}"], [name]))
    outputs = [value(name, list(array.shape)) for name, array in zip(names, arrays, strict=True)]
    return save(file, nodes, [value("x", [1, 3, size, size])], outputs, weights)


def constant_detector(file: Path, kind: str, faces, *, size=64) -> Path:
    """A detector that finds the same faces on every photo; `faces` are (score, box, landmarks) in pixels of `size`.

    Its outputs are encoded as the publishers of each kind encode theirs, the inverse of what is tested.
    """
    n_anchors = {"scrfd": 2, "yunet": 1, "retinaface": 2}[kind]
    levels = {stride: (size // stride) ** 2 * n_anchors for stride in STRIDES}
    empty = {
        (width, stride): np.zeros((rows, width)) for stride, rows in levels.items() for width in (1, 2, 4, 10)
    }
    priors = {8: (16, 32), 16: (64, 128), 32: (256, 512)}
    for number, (score, box, landmarks) in enumerate(faces):
        stride = STRIDES[number % 3]
        box, landmarks = np.array(box, float), np.array(landmarks, float)
        column, row = (int(x) // stride for x in (box[:2] + box[2:]) / 2)
        at = (row * (size // stride) + column) * n_anchors
        corner = np.array([column, row])
        if kind == "scrfd":
            empty[1, stride][at] = score
            empty[4, stride][at] = [*(corner - box[:2] / stride), *(box[2:] / stride - corner)]
            empty[10, stride][at] = (landmarks / stride - corner).ravel()
        elif kind == "yunet":
            empty[1, stride][at] = score
            middle, sides = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
            empty[4, stride][at] = [*(middle / stride - corner), *np.log(sides / stride)]
            empty[10, stride][at] = (landmarks / stride - corner).ravel()
        else:
            side, center = priors[stride][0], (corner + 0.5) * stride
            empty[2, stride][at] = [0, score]
            middle, sides = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
            empty[4, stride][at] = [*((middle - center) / (0.1 * side)), *(np.log(sides / side) / 0.2)]
            empty[10, stride][at] = ((landmarks - center) / (0.1 * side)).ravel()
    if kind == "scrfd":
        names = [f"{width}_{stride}" for width in (1, 4, 10) for stride in STRIDES]
        arrays = [empty[width, stride] for width in (1, 4, 10) for stride in STRIDES]
    elif kind == "yunet":
        widths = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
        names = [f"{name}_{stride}" for name in widths for stride in STRIDES]
        arrays = [empty[width, stride][None] for width in widths.values() for stride in STRIDES]
    else:
        names = ["loc", "conf", "landms"]
        arrays = [np.concatenate([empty[width, stride] for stride in STRIDES])[None] for width in (4, 2, 10)]
        arrays[1][..., 0] = 1 - arrays[1][..., 1]
    return _output_order(names, arrays, file, size)


def marker_detector(file: Path, relative, *, size=128) -> Path:
    """A detector in SCRFD's layout that sees faces whose top left 8 x 8 pixels are (0, 255, side of the face).

    Its landmarks lie at `relative` places of a face, (5, 2) in sides.
    """
    kernels = np.zeros((15, 3), np.float32)
    bias = np.zeros(15, np.float32)
    kernels[0, :2], bias[0] = (
        (-4, 4),
        -7,
    )  # of pixels (p - 127.5) / 128: 1 where green is full and there is no red
    lengths = np.concatenate([[0, 0, 1, 1], np.ravel(relative)])
    kernels[1:, 2], bias[1:] = lengths * 128 / 8, lengths * 127.5 / 8
    nodes = [
        helper.make_node("AveragePool", ["x"], ["pool"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Conv", ["pool", "kernels", "bias"], ["maps"]),
        helper.make_node("Transpose", ["maps"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["last", "shape"], ["rows"]),
        helper.make_node("Split", ["rows", "widths"], ["raw", "box_8", "points_8"], axis=1),
        helper.make_node("Clip", ["raw", "zero", "one"], ["score_8"]),
    ]
    weights = {
        "kernels": kernels[:, :, None, None],
        "bias": bias,
        "shape": np.array([-1, 15], np.int64),
        "widths": np.array([1, 4, 10], np.int64),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
    }
    widths = {"score": 1, "box": 4, "points": 10}
    outputs = []
    for name, width in widths.items():
        for stride in STRIDES:
            rows = (size // stride) ** 2
            outputs.append(value(f"{name}_{stride}", [rows, width]))
            if stride > 8:
                weights[f"c_{name}_{stride}"] = np.zeros((rows, width), np.float32)
                nodes.append(helper.make_node("Identity", [f"c_{name}_{stride}"], [f"{name}_{stride}"]))
    return save(file, nodes, [value("x", [1, 3, size, size])], outputs, weights)
