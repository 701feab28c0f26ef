"""`cdp embed --model` against bare onnxruntime: the same model, from JPEG files against arrays that are ready in memory.

The two take turns, several times. Throughput is images per second of wall clock; on a machine with other work CPU seconds per image
say more, because all of both is computing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from cdp.nets.embed_images import embed_images
from cdp.nets.onnx_models import open_models
from cdp.runtime.parallel import count_threads
from cdp.types.manifest import Manifest

_BATCH = 16


def measure(quick: bool = False) -> dict[str, float]:
    """Throughput of embedding as a share of bare onnxruntime's, for a network of MobileFaceNet's size."""
    n_images, n_turns, depth = (64, 1, 2) if quick else (320, 3, 5)
    with tempfile.TemporaryDirectory(prefix="cdp-benchmark-") as home:
        folder = Path(home)
        manifest = _draw(folder / "images", n_images)
        model = _build(folder / "arcface.onnx", depth)
        ready = np.random.default_rng(0).normal(size=(_BATCH, 3, 112, 112)).astype(np.float32)
        models, bare = open_models([model], "cpu"), _bare(model, ready, n_images)
        spent: dict[str, list[tuple[float, float]]] = {"bare": [], "cdp": []}
        for turn in range(n_turns + 1):
            out = folder / f"views{turn}"
            for name, run in {
                "bare": bare,
                "cdp": lambda out=out: embed_images(manifest, models, out),
            }.items():
                times = _time(run)
                if turn:  # the first turn warms up
                    spent[name].append(times)
    wall, cpu = ({name: sum(one[at] for one in times) for name, times in spent.items()} for at in (0, 1))
    figures = {
        "images": n_images * n_turns,
        "threads": count_threads(),
        "ms_per_image_bare": round(1000 * cpu["bare"] / n_images / n_turns, 2),
        "ms_per_image_cdp": round(1000 * cpu["cdp"] / n_images / n_turns, 2),
        "share_of_bare_throughput_cpu": round(cpu["bare"] / cpu["cdp"], 3),
        "share_of_bare_throughput_wall": round(wall["bare"] / wall["cdp"], 3),
    }
    for name, value in figures.items():
        print(f"{name:32} {value}")
    return figures


def _time(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _bare(model: Path, ready: np.ndarray, n_images: int) -> Callable[[], object]:
    """The session on all cores, one batch per thread: no decoding, no files."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run() -> None:
        with ThreadPoolExecutor(count_threads()) as pool:
            list(pool.map(lambda _: session.run(None, {"x": ready}), range(n_images // len(ready))))

    return run


def _draw(folder: Path, n_images: int) -> Manifest:
    """Photos of faces' size, as JPEG; smooth noise, which costs as much to decode as faces do."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(n_images):
        coarse = Image.fromarray(generator.integers(0, 256, (14, 14, 3), dtype=np.uint8))
        coarse.resize((112, 112), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.jpg", quality=90)
    names = tuple(f"{number:05d}.jpg" for number in range(n_images))
    return Manifest(names, np.full(n_images, -1), root=str(folder))


def _build(file: Path, depth: int) -> Path:
    """A plain convolutional network; at depth 5 it multiplies half a billion times per image, as MobileFaceNet does."""
    generator = np.random.default_rng(0)
    nodes, weights, at, width = [], {}, "x", 3
    for stage, channels in enumerate((32, 64, 128)):
        for layer in range(depth if stage else 1):
            name, stride = f"{stage}_{layer}", 1 if layer else 2
            fan = width * 9
            weights[f"w{name}"] = generator.normal(0, fan**-0.5, (channels, width, 3, 3)).astype(np.float32)
            attributes = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1, 1, 1, 1]}
            nodes.append(helper.make_node("Conv", [at, f"w{name}"], [f"c{name}"], **attributes))
            nodes.append(helper.make_node("Relu", [f"c{name}"], [f"r{name}"]))
            at, width = f"r{name}", channels
    weights["last"] = generator.normal(size=(width, 512)).astype(np.float32)
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "last"], ["embedding"]),
    ]
    sides = {"x": ["n", 3, 112, 112], "embedding": ["n", 512]}
    taken, given = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sides.items()
    )
    values = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "plain", [taken], [given], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file
