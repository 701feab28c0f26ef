"""How fast the loop is: against the bare forward-backward step, and embedding against decoding.

    python -m benchmarks.training [--threads 2] [--quick]

The bare step repeats forward, backward and update on one batch that is in memory already. The loop does the same
with fresh images: gathered, augmented, logged. Both take turns, so that a busy machine slows both alike.
Mark: the loop runs at 85 % of the bare step or more.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cdp.blocks import spans
from cdp.nets.extract import embed_block
from cdp.nets.label_spaces import Batch, LabelSpace, Plan
from cdp.nets.loop import make_optimizer, prepare_model, train_step
from cdp.nets.objective import Objective
from cdp.nets.pixels import PixelFormat, stream_pixels
from cdp.nets.processes import World
from cdp.nets.recipe import Recipe
from cdp.nets.weights import TrainedNetwork
from cdp.types.manifest import Manifest

NETWORKS = ("small_resnet", "small_inception", "small_vgg")
RECIPE = Recipe(epochs=1000, batch=128, size=32, color=False, flip=True, rotate=10, zoom=0.1, shift=0.1)
N_IMAGES, N_CLASSES, ROUNDS = 8192, 400, 6


def make_plan() -> Plan:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (N_IMAGES, 1, 32, 32), np.uint8)
    space = LabelSpace(
        "labeled", pixels, np.arange(N_IMAGES), generator.integers(0, N_CLASSES, N_IMAGES), N_CLASSES
    )
    return Plan([space], RECIPE, World())


def speed(step: Callable[[], int], seconds: float) -> float:
    """Images per second over at least so many seconds."""
    start, n_images = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        n_images += step()
    return n_images / (time.perf_counter() - start)


def measure_training(name: str, seconds: float) -> tuple[float, float]:
    """(bare, loop) images per second."""
    plan = make_plan()
    objective = Objective(name, RECIPE, plan, World())
    optimizer = make_optimizer(objective, RECIPE)
    model = prepare_model(objective, RECIPE)
    objective.train()

    def run(batch: Batch) -> int:
        train_step(model, objective, optimizer, batch, 1e-3, RECIPE)
        return len(batch.images)

    with plan.batches(0) as batches:
        batch = next(batches)
        run(batch)
        pairs = []
        for _ in range(ROUNDS):
            bare = speed(lambda: run(batch), seconds / ROUNDS)
            pairs.append((bare, speed(lambda: run(next(batches)), seconds / ROUNDS)))
        batches.close()  # type: ignore[attr-defined]
    bare_median, loop_median = np.median(np.array(pairs), axis=0)
    return float(bare_median), float(loop_median)


def draw_faces(folder: Path, n_images: int) -> Manifest:
    """JPEG files of 112 x 112, the usual size of aligned faces."""
    generator = np.random.default_rng(0)
    locations = []
    for row in range(n_images):
        coarse = Image.fromarray(generator.integers(0, 256, (14, 14, 3), np.uint8)).resize((112, 112))
        stream = io.BytesIO()
        coarse.save(stream, "JPEG", quality=90)
        (folder / f"{row}.jpg").write_bytes(stream.getvalue())
        locations.append(f"{row}.jpg")
    return Manifest(tuple(locations), np.zeros(n_images, np.int64), None, str(folder))


def measure_embedding(name: str, seconds: float, threads: int) -> tuple[float, float]:
    """(decoding alone, network alone) images per second."""
    recipe = Recipe(size=32, color=False)
    objective = Objective(name, recipe, make_plan(), World())
    trained = TrainedNetwork(name, objective.network.eval(), recipe, "")  # type: ignore[arg-type]
    pixels = np.zeros((256, 1, 32, 32), np.uint8)

    def embed() -> int:
        embed_block(trained, pixels, False)
        return 256

    with tempfile.TemporaryDirectory() as home:
        manifest = draw_faces(Path(home), 2048)

        def blocks() -> Iterator[int]:
            while True:
                for _, block in stream_pixels(manifest, PixelFormat.of(recipe), spans(2048, 64), threads):
                    yield len(block)

        endless = blocks()
        decoding = speed(lambda: next(endless), seconds)
    return decoding, speed(embed, seconds)


def measure(quick: bool = False, threads: int = 0) -> dict[str, object]:
    """Print and give all rates."""
    if threads:
        torch.set_num_threads(threads)
    threads = torch.get_num_threads()
    seconds = 1.5 if quick else 12.0
    training, embedding = {}, {}
    print(f"{'training, images/s':20} {'bare':>8} {'loop':>8} {'share':>7}")
    for name in NETWORKS:
        bare, loop = measure_training(name, seconds)
        training[name] = {"bare": round(bare, 1), "loop": round(loop, 1), "share": round(loop / bare, 3)}
        verdict = "" if loop >= 0.85 * bare else "   below 85 %"
        print(f"{name:20} {bare:8,.0f} {loop:8,.0f} {100 * loop / bare:6.1f} %{verdict}")
    print(f"\n{'embedding, images/s':20} {'decode':>8} {'network':>8}   limited by")
    for name in NETWORKS:
        decoding, network = measure_embedding(name, seconds / 4, threads)
        embedding[name] = {"decode": round(decoding, 1), "network": round(network, 1)}
        limit = "the network" if network < decoding else "decoding"
        print(f"{name:20} {decoding:8,.0f} {network:8,.0f}   {limit}")
    return {"threads": threads, "training": training, "embedding": embedding}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    measure(options.quick, options.threads)
