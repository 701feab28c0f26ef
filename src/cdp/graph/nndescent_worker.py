"""The process behind `NNDescentWorker`: reads one question per line, writes the neighbors it found to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Answer until standard input ends."""
    from pynndescent import NNDescent

    # Answers go out on the real standard output; whatever a library prints goes to standard error.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        question = json.loads(line)
        folder = Path(question["folder"])
        vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        # On unit vectors the Euclidean order is the cosine order, and it is the library's fastest metric.
        index = NNDescent(
            np.asarray(vectors), metric="euclidean", n_neighbors=question["k"], random_state=question["seed"]
        )
        np.save(folder / "neighbors.npy", index.neighbor_graph[0].astype(np.int32))
        answers.write("done\n")
        answers.flush()


if __name__ == "__main__":
    main()
