"""Time of a training step next to a busy process: OpenMP threads that spin and threads that sleep.

    python -m benchmarks contention [--quick]

One step of `small_resnet` (64 images of 32 x 32 pixels, float32), each variant in a process of its own: one or two
threads, `OMP_WAIT_POLICY` unset or PASSIVE, idle and next to one process that never waits. Wall and CPU time: the
median step of a round, and of the rounds the best, because other load only adds. All processes share the same two
cores, so that the busy one takes half of them on any machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CORES = 2
POLICIES = ("default", "passive")
BATCH, SIZE, N_CLASSES = 64, 32, 400


def measure(*, quick: bool) -> dict[str, Any]:
    n_steps, rounds = (5, 1) if quick else (10, 3)
    figures: dict[str, Any] = {"cores": sorted(os.sched_getaffinity(0))[:CORES], "steps": n_steps * rounds}
    for threads, policy in ((2, "default"), (2, "passive"), (1, "passive")):
        steps: dict[str, list[dict[str, float]]] = {"idle": [], "busy": []}  # a median per round
        for _ in range(rounds):  # in turns, so that other load hits all variants alike
            steps["idle"].append(run_steps(threads, policy, n_steps))
            with busy_process():
                steps["busy"].append(run_steps(threads, policy, n_steps))
        found = {
            f"{load}_{clock}_ms": round(1000 * min(step[clock] for step in measured), 1)
            for load, measured in steps.items()
            for clock in ("wall", "cpu")
        }
        found["ratio"] = round(found["busy_wall_ms"] / found["idle_wall_ms"], 2)
        figures[f"{threads} threads, {policy}"] = found
        print(
            f"{threads} threads  {policy:8s} idle {found['idle_wall_ms']:6.0f} ms  busy "
            f"{found['busy_wall_ms']:6.0f} ms  ratio {found['ratio']:6.2f}",
            flush=True,
        )
    return figures


def run_steps(threads: int, policy: str, n_steps: int) -> dict[str, float]:
    """Return the medians of training steps in a fresh interpreter, because OpenMP reads its environment once."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))
    }
    environment |= {"OMP_NUM_THREADS": str(threads)}
    environment |= {"OMP_WAIT_POLICY": "PASSIVE"} if policy == "passive" else {}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.contention", str(threads), str(n_steps)],
        env=environment, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=_use_few_cores,
    )  # fmt: skip
    steps: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return {clock: statistics.median(step[clock] for step in steps) for clock in ("wall", "cpu")}


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=_use_few_cores)
    try:
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def _use_few_cores() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def child(threads: int, n_steps: int) -> list[dict[str, float]]:
    """Wall and CPU seconds of each step, after a few that are not counted."""
    import numpy as np
    import torch

    from cdp.nets.label_spaces import LabelSpace, Plan
    from cdp.nets.loop import make_optimizer, train_step
    from cdp.nets.objective import Objective
    from cdp.nets.processes import World
    from cdp.nets.recipe import Recipe

    torch.set_num_threads(threads)
    recipe = Recipe(epochs=1, batch=BATCH, size=SIZE)
    generator = np.random.default_rng(0)
    pixels = generator.integers(
        0, 256, (BATCH, recipe.channels, recipe.stored_size, recipe.stored_size), np.uint8
    )
    space = LabelSpace("noise", pixels, np.arange(BATCH), np.arange(BATCH) % N_CLASSES, N_CLASSES)
    plan = Plan([space], recipe, World())
    objective = Objective("small_resnet", recipe, plan, World())
    optimizer = make_optimizer(objective, recipe)
    objective.train()
    batch = plan.finish(0, *plan.gather(0))
    steps = []
    for _ in range(n_steps + 3):
        wall, cpu = time.perf_counter(), time.process_time()
        train_step(objective, objective, optimizer, batch, 0.01, recipe)
        steps.append({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu})
    return steps[3:]


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1]), int(sys.argv[2]))))
