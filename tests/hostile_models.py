"""ONNX models that are no embedding models or detectors, or behave as none should: each is refused in one sentence."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = helper.make_opsetid("", 17)
Build = Callable[[Path], Path]
FLOAT, INT64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def tensor(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def sequence(name):
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def save(file: Path, nodes, inputs, outputs, weights=None, metadata=None) -> Path:
    """Write a model without asking the checker, which refuses some of these."""
    initializers = [numpy_helper.from_array(np.asarray(one), name) for name, one in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[OPSET], ir_version=9)
    if metadata:
        helper.set_model_props(model, metadata)
    onnx.save(model, str(file))
    return file


def op(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


IMAGES = ["n", 3, 16, 16]
VARIES = [
    op("ReduceMax", "x", "most", keepdims=0),
    op("ReduceMin", "x", "least", keepdims=0),
    op("Greater", "most least", "varies"),
    op("Cast", "varies", "i", to=INT64),
]
"""`i` is 0 for a picture of one color, as models are tried with, and 1 for any other."""
FLAT = [op("Flatten", "x", "flat"), op("MatMul", "flat w", "e")]
WEIGHT = {"w": np.random.default_rng(0).normal(size=(768, 8)).astype(np.float32)}


def embedders() -> Iterator[tuple[str, Build]]:
    """Models that are given as embedding models."""

    def one(name, nodes, inputs=None, outputs=None, weights=None, **more) -> tuple[str, Build]:
        given = [tensor("x", IMAGES)] if inputs is None else inputs
        made = [tensor("e", None)] if outputs is None else outputs
        return name, lambda file: save(file, nodes, given, made, weights, **more)

    constant = {"c": np.ones((2, 8), np.float32)}
    yield one("no input", [op("Identity", "c", "e")], [], [tensor("e", [2, 8])], constant)
    yield one("two inputs", FLAT, [tensor("x", IMAGES), tensor("y", [1])], None, WEIGHT)
    for shape in (
        None,
        [],
        ["n"],
        ["n", 768],
        ["n", 3, 16],
        ["n", 3, 16, 16, 1],
        [0, 3, 16, 16],
        [-1, 3, 16, 16],
    ):
        yield one(f"input {shape}", FLAT, [tensor("x", shape)], None, WEIGHT)
    for shape in (
        [10**6, 3, 16, 16],
        ["n", 3, 10**5, 10**5],
        ["n", 2, 16, 16],
        ["n", 7, 16, 16],
        ["n", 3, 2**40, 2**40],
    ):
        yield one(f"input {shape}", FLAT, [tensor("x", shape)], None, WEIGHT)
    for kind in (INT64, TEXT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.INT8):
        yield one(
            f"input of kind {kind}",
            [op("Identity", "x", "e")],
            [tensor("x", IMAGES, kind)],
            [tensor("e", None, kind)],
        )
    yield one("sequence input", [op("SequenceAt", "x i", "e")], [sequence("x")], None, {"i": np.array(0)})
    yield one("sequence output", [op("SequenceConstruct", "x x", "e")], None, [sequence("e")])
    yield one("split sequence", [*FLAT[:1], op("SplitToSequence", "flat", "e")], None, [sequence("e")])
    for kind in (INT64, TEXT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8):
        nodes = [*FLAT[:1], op("MatMul", "flat w", "m"), op("Cast", "m", "e", to=kind)]
        yield one(f"output of kind {kind}", nodes, None, [tensor("e", None, kind)], WEIGHT)
    for shape in (
        (),
        (0,),
        (1,),
        (8,),
        (1, 8),
        (3, 8),
        (8, 2),
        (2, 1),
        (2, 0),
        (2, 0, 8),
        (2, 8, 4, 4),
        (2, 70_000),
    ):
        yield one(
            f"constant {shape}", [op("Identity", "c", "e")], None, None, {"c": np.ones(shape, np.float32)}
        )
    for number in (np.nan, np.inf, 3e38, 0):
        weights = {"w": np.full((768, 8), number, np.float32)}
        yield one(f"weights {number}", FLAT, None, None, weights)
    yield one(
        "too large for memory", [op("ConstantOfShape", "s", "e")], None, None, {"s": np.array([2, 10**12])}
    )
    yield one("huge", [op("ConstantOfShape", "s", "e")], None, None, {"s": np.array([2, 5 * 10**6])})
    yield one("negative shape", [op("ConstantOfShape", "s", "e")], None, None, {"s": np.array([2, -8])})
    yield one("fails on real images", [*VARIES, *FLAT[:1], op("Gather", "w i", "row"), op("Add", "flat row", "e")],
              weights={"w": np.ones((1, 768), np.float32)})  # fmt: skip
    longer = [*VARIES, *FLAT[:1], op("Add", "i eight", "stop"), op("Unsqueeze", "stop axis", "stops")]
    ends = {"eight": np.array(8), "axis": np.array([0]), "one": np.array([1]), "all": np.array([10**6])}
    yield one("longer for real images", [*longer, op("Slice", "flat axis stops one", "e")], weights=ends)
    yield one("fewer rows for real images", [*VARIES, *FLAT[:1], op("Unsqueeze", "i axis", "start"), op("Slice", "flat start all axis", "e")],
              weights=ends)  # fmt: skip
    for key, text in product(
        ("size", "mean", "std", "color", "output"),
        ("[" * 3000, "9" * 5000, "1\nx = 2", "nan", "'", "-1", "{}"),
    ):
        yield one(f"metadata {key} {text[:8]!r}", FLAT, None, None, WEIGHT, metadata={key: text})


SHAPES = {
    "scrfd": {f"{width}_{stride}": (2 * (64 // stride) ** 2, width) for width in (1, 4, 10) for stride in (8, 16, 32)},
    "yunet": {f"{name}_{stride}": (1, (64 // stride) ** 2, width)
              for name, width in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)) for stride in (8, 16, 32)},
    "retinaface": {"loc": (1, 168, 4), "conf": (1, 168, 2), "landms": (1, 168, 10)},
    "maps": {f"face_rpn_{name}_stride{stride}": (1, width, 64 // stride, 64 // stride)
             for name, width in (("cls_prob", 4), ("bbox_pred", 8), ("landmark_pred", 20)) for stride in (8, 16, 32)},
}  # fmt: skip
"""Names and shapes of the outputs of every family for 64 x 64 pixels."""


def detectors() -> Iterator[tuple[str, Build]]:
    """Models that are given as detectors."""

    def one(name, arrays, kinds=None, shape=(1, 3, 64, 64), more=()) -> tuple[str, Build]:
        nodes = [op("Identity", f"c_{key}", key) for key in arrays if key not in dict(more)]
        nodes += [node for _, node in more]
        outputs = [(kinds or {}).get(key) or tensor(key, None) for key in arrays]
        weights = {f"c_{key}": array for key, array in arrays.items()}
        weights |= {"at": np.array(0), "at1": np.array([0])}
        inputs = [] if shape is None else [tensor("x", shape)]
        return name, lambda file: save(file, nodes, inputs, outputs, weights)

    for family, shapes in SHAPES.items():
        zeros = {key: np.zeros(shape, np.float32) for key, shape in shapes.items()}
        first, last = next(iter(shapes)), list(shapes)[-1]
        for shape in (
            None,
            ["n"],
            [2, 3, 64, 64],
            [1, 1, 64, 64],
            [1, 3, 64, 96],
            [1, 3, 10**5, 10**5],
            [1, 64, 64, 3],
        ):
            yield one(f"{family}, input {shape}", zeros, shape=shape)
        yield one(f"{family}, one output", {first: zeros[first]})
        for key in (first, last):
            yield one(
                f"{family} without {key}", {name: array for name, array in zeros.items() if name != key}
            )
            shape = shapes[key]
            for other in (
                (),
                (0,),
                (1,),
                shape[:-1],
                (2, *shape),
                (0, *shape[1:]),
                (*shape[:-1], 7),
                (*shape[:-1], 0),
            ):
                yield one(f"{family}, {key} {other}", zeros | {key: np.zeros(other, np.float32)})
            at = 0 if len(shape) == 2 else 2 if family == "maps" else 1
            fewer = tuple(max(1, side // 2) if axis == at else side for axis, side in enumerate(shape))
            yield one(f"{family}, half of {key}", zeros | {key: np.zeros(fewer, np.float32)})
            yield one(
                f"{family}, {key} as whole numbers",
                zeros | {key: np.zeros(shape, np.int64)},
                {key: tensor(key, None, INT64)},
            )
            yield one(
                f"{family}, {key} as text",
                zeros | {key: np.full(shape, "a", object)},
                {key: tensor(key, None, TEXT)},
            )
            listed = op("SequenceConstruct", f"c_{key}", key)
            yield one(f"{family}, {key} as a sequence", zeros, {key: sequence(key)}, more=[(key, listed)])
        for number in (np.nan, np.inf, -np.inf, 1.0, 3e38, 88.0):
            filled = {key: np.full_like(array, number) for key, array in zeros.items()}
            yield one(f"{family}, all {number}", filled)
            scored = {key: array + (array.shape[-1] < 3 or "cls" in key) for key, array in zeros.items()}
            yield one(
                f"{family}, sure of {number}",
                {key: np.where(scored[key] == 1, scored[key], number).astype(np.float32) for key in zeros},
            )
        picked = [
            (last, node)
            for node in (*VARIES, op("Unsqueeze", f"c_{last} at1", "rows"), op("Gather", "rows i", last))
        ]
        yield one(f"{family}, fails on real photos", zeros, more=picked)


def endless(file: Path, *, always: bool) -> Path:
    """An embedding model that computes for hours: on every image, or on real images only."""
    body = helper.make_graph(
        [
            op("Identity", "go", "go_on"),
            op("Add", "held held", "doubled"),
            op("Mul", "doubled half", "holds"),
        ],
        "body",
        [tensor("turn", [], INT64), tensor("go", [], TensorProto.BOOL), tensor("held", None)],
        [tensor("go_on", [], TensorProto.BOOL), tensor("holds", None)],
    )
    nodes = [*VARIES, *FLAT[:1], op("MatMul", "flat w", "m"), op("Mul", "i long", "turns")]
    nodes.append(helper.make_node("Loop", ["long" if always else "turns", "true", "m"], ["e"], body=body))
    weights = WEIGHT | {"long": np.array(10**12), "true": np.array(True), "half": np.array(0.5, np.float32)}
    return save(file, nodes, [tensor("x", IMAGES)], [tensor("e", None)], weights)


def slow_node(file: Path, when: str) -> Path:
    """An embedding model with one node that takes many minutes: when it is opened, on `all` images or `real` ones."""
    sides = [1, 3, 1500, 1500]
    more = np.array([0, 0, 1500, 1500])
    weights = {"small": np.array(sides), "more": more, "large": sides + more}
    sizes = [*VARIES, op("Mul", "i more", "wider"), op("Add", "small wider", "size")]
    nodes = {
        "open": [op("ConstantOfShape", "large", "same")],
        "all": [op("ReduceMean", "x", "one", axes=[0, 1, 2, 3]), op("Expand", "one large", "same")],
        "real": [*sizes, op("ReduceMean", "x", "one", axes=[0, 1, 2, 3]), op("Expand", "one size", "same")],
    }[when]
    nodes += [
        op("MaxPool", "same", "pooled", kernel_shape=[1500, 1500]),
        op("ReduceMean", "pooled", "mean", axes=[2, 3], keepdims=0),
        op("ReduceMean", "x", "own", axes=[2, 3], keepdims=0),
        op("Add", "mean own", "e"),
    ]
    return save(file, nodes, [tensor("x", IMAGES)], [tensor("e", [None, 3])], weights)
