"""Writes the artifacts of the present format, once per format: `python tests/golden/make_golden.py`."""

from pathlib import Path

import numpy as np

from cdp import CDP, knn_graph
from cdp.storage.artifacts import FORMAT
from cdp_lab.synthetic import synthetic_views


def main() -> None:
    folder = Path(__file__).parent / f"format{FORMAT}"
    split = synthetic_views(40, 6, members=2, dimensions=8, seed=3)
    views = split.unlabeled.take(np.arange(60))
    model = CDP("paper", k=5).fit(split.labeled)
    model.predict(views)
    views.save(folder / "views", force=True)
    knn_graph(views.base, 5).save(folder / "knn", force=True)
    model.labeling_.accepted.save(folder / "consensus", force=True)
    model.labeling_.labels.save(folder / "labels", force=True)
    model.mediator_.save(folder / "mediator", force=True)


if __name__ == "__main__":
    main()
