"""A small but complete run folder: made-up embeddings labeled in earnest, drawn images, plausible figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from cdp import CDP, candidate_pairs, measure_labels, measure_pairs, propagate
from cdp.consensus.pair_features import collect_opinions
from cdp.evaluate.agreement import agreement
from cdp.evaluate.importance import permutation_importance
from cdp.graph.search import knn_graphs
from cdp.lab.synthetic import synthetic_views
from cdp.types import ALL_INPUTS, Manifest
from cdp.types.opinions import block_columns

K, THRESHOLD = 8, 0.8
NETWORKS = ("small_resnet", "small_vgg", "small_inception")


def make_run_folder(folder: Path, *, n_identities: int = 90, seed: int = 3) -> dict[str, Any]:
    """Fill `folder` as `cdp run` would, and return what run.json says."""
    split = synthetic_views(
        n_identities,
        7.0,
        labeled=0.4,
        members=2,
        dimensions=24,
        noise=0.75,
        junk=0.06,
        seed=seed,
    )
    labeled, unlabeled = split.labeled, split.unlabeled
    cdp = CDP(k=K, threshold=THRESHOLD, inputs=ALL_INPUTS, max_size=40, threads=1).fit(labeled)
    graphs = knn_graphs(list(unlabeled), K, "exact", threads=1)
    consensus = cdp.consensus(unlabeled, graphs)
    labels = propagate(consensus, 40, 0.1)
    figures = measure_labels(labels, unlabeled.identities)
    pairs = candidate_pairs(graphs[0])
    measured = measure_pairs(consensus, pairs, unlabeled.identities)
    matrix = collect_opinions(pairs, unlabeled, graphs, ALL_INPUTS).matrix(ALL_INPUTS)
    ends = unlabeled.identities[pairs.ids]
    importance = permutation_importance(cdp.mediator_, matrix, ends[:, 0] == ends[:, 1], seed=0, repeats=3)
    folder.mkdir(parents=True, exist_ok=True)
    draw_images(folder, unlabeled.identities)
    cdp.mediator_.save(folder / "mediator")
    consensus.save(folder / "consensus")
    labels.save(folder / "labels")
    for name, graph in zip(NETWORKS, graphs, strict=True):
        graph.save(folder / "graphs" / name / "unlabeled")
    n_labeled, n_kept = labeled.n_images, int((labels.labels >= 0).sum())
    run = {
        "kind": "Run",
        "format": 1,
        "cdp": "0.1.0",
        "command": "cdp run recipes/small-faces.toml --out work/small-faces",
        "recipe": {
            "seed": 0,
            "base": {"network": "small_resnet"},
            "consensus": {"k": K, "threshold": THRESHOLD},
        },
        "recipe_text": 'seed = 0\n\n[data]\nimages = "drawn"\n\n[consensus]\nk = 8\nthreshold = 0.8\n',
        "versions": {"python": "3.11.9", "numpy": "2.4.6", "torch": "2.13.0"},
        "cores": 2,
        "seed": 0,
        "started": "2025-01-01T10:00:00",
        "seconds": 512.3,
        "parts": {
            "labeled": {"images": n_labeled, "identities": len(np.unique(labeled.identities))},
            "unlabeled": {"images": unlabeled.n_images, "identities": figures.identities_true},
            "validation": {"images": 120, "identities": 20},
            "probes": {"images": 1000, "identities": 100},
            "distractors": {"images": 1000, "identities": 100},
        },
        "stages": stages(),
        "results": {
            "headline": headline(n_labeled, n_labeled + n_kept, n_labeled + unlabeled.n_images),
            "labels": {
                "threshold": THRESHOLD,
                "coverage": figures.coverage,
                "identities_found": figures.identities_found,
                "fates": {
                    "labeled": n_kept,
                    "no accepted pair": figures.fates["no_accepted_pair"],
                    "isolated by a split": figures.fates["isolated"] + figures.fates["unsplittable"],
                },
                "sizes": sorted(labels.sizes.tolist()),
                "true": {
                    "identities_true": figures.identities_true,
                    "identities_true_shared": figures.identities_true_shared,
                    "sizes": sorted(np.unique(unlabeled.identities, return_counts=True)[1].tolist()),
                    "pairs": {
                        "precision": measured.precision,
                        "recall": measured.recall,
                        "candidates": measured.candidates,
                        "accepted": measured.accepted,
                    },
                    "discards_kept": scores(figures.discards_kept),
                    "discards_removed": scores(figures.discards_removed),
                },
            },
            "tuning": {"chosen": THRESHOLD, "curve": tuning_curve()},
            "mediator": {
                "columns": cdp.mediator_.columns,
                "blocks": block_columns(cdp.mediator_.committee, cdp.mediator_.inputs),
                "importance": [
                    {"block": block, "drop": drop, "sd": deviation} for block, drop, deviation in importance
                ],
            },
            "committee": {
                "members": members(),
                "agreement": {"names": list(NETWORKS), "matrix": agreement(graphs).tolist()},
            },
        },
    }
    write_run(folder, run)
    return run


def write_run(folder: Path, run: dict[str, Any]) -> None:
    (folder / "run.json").write_text(json.dumps(run, indent=2, allow_nan=False), encoding="utf-8")


def draw_images(folder: Path, identities) -> Manifest:
    """A face of two or three shapes per identity; every image a little shifted and of its own brightness."""
    place = folder / "images"
    place.mkdir()
    generator = np.random.default_rng(11)
    for row, identity in enumerate(identities.tolist()):
        own = np.random.default_rng(identity)
        back, skin, hair = own.integers(40, 256, (3, 3))
        width, height, gap = own.integers(11, 17), own.integers(13, 18), own.integers(4, 8)
        light = generator.uniform(0.65, 1.1)
        x, y = 20 + generator.integers(-3, 4, 2)

        def tone(color, light=light):
            return tuple(int(min(255, part * light)) for part in color)

        image = Image.new("RGB", (40, 40), tone(back))
        pen = ImageDraw.Draw(image)
        pen.ellipse((x - width - 1, y - height - 3, x + width + 1, y + 4), fill=tone(hair))
        pen.ellipse((x - width, y - height + 4, x + width, y + height), fill=tone(skin))
        for side in (-1, 1):
            pen.ellipse((x + side * gap - 2, y - 3, x + side * gap + 2, y + 1), fill=(20, 20, 30))
        pen.line((x - gap, y + 8, x + gap, y + 8 + int(own.integers(-2, 3))), fill=(120, 30, 40), width=2)
        image.save(place / f"{row:04d}.png")
    manifest = Manifest(
        tuple(f"images/{row:04d}.png" for row in range(len(identities))),
        identities,
        tuple(f"person {number}" for number in range(int(identities.max()) + 1)),
        str(folder),
    )
    (folder / "parts").mkdir()
    manifest.save(folder / "parts" / "unlabeled.csv")
    return manifest


def scores(groups) -> dict[str, Any]:
    return {
        name: {"precision": score.precision, "recall": score.recall, "f": score.f}
        for name, score in (("pairwise", groups.pairwise), ("bcubed", groups.bcubed))
    }


def figure(value: float, spread: float) -> dict[str, float]:
    return {"value": value, "low": round(value - spread, 4), "high": round(value + spread, 4)}


def headline(labeled: int, joint: int, everything: int) -> dict[str, Any]:
    def rates(*values: float) -> list[dict[str, float]]:
        return [
            {"fpr": fpr, **figure(value, 0.031)} for fpr, value in zip((0.01, 0.001), values, strict=True)
        ]

    def model(key: str, title: str, images: int, rank1: float, *values: float) -> dict[str, Any]:
        return {
            "key": key,
            "title": title,
            "images": images,
            "rank1": figure(rank1, 0.027),
            "tpr": rates(*values),
        }

    return {
        "network": "small_resnet",
        "probes": 1000,
        "distractors": 1000,
        "models": [
            model("labeled", "labeled only", labeled, 0.513, 0.482, 0.236),
            model("cdp", "with pseudo-labels", joint, 0.764, 0.701, 0.452),
            model("all", "all labels", everything, 0.801, 0.752, 0.498),
        ],
        "gap_closed": {
            "rank1": figure(0.872, 0.06),
            "tpr": [{"fpr": 0.01, **figure(0.811, 0.08)}, {"fpr": 0.001, **figure(0.824, 0.11)}],
        },
    }


def stages() -> list[dict[str, Any]]:
    times = [
        ("draw faces", "draw", 4.2, 211e6),
        ("split", "split", 0.3, 215e6),
        *((f"train {name}", "train", 30.0 + 9 * at, 800e6 + 3e7 * at) for at, name in enumerate(NETWORKS)),
        *((f"embed {name}", "embed", 6.0 + at, 640e6) for at, name in enumerate(NETWORKS)),
        ("graphs", "graphs", 2.4, 655e6),
        ("mediator", "mediator", 11.7, 702e6),
        ("consensus", "consensus", 1.1, 690e6),
        ("labels", "labels", 0.05, 690e6),
        ("join small_resnet", "joint", 171.0, 1.31e9),
        ("bound small_resnet", "bound", 166.0, 1.29e9),
        ("evaluate", "evaluate", 21.0, 900e6),
    ]
    return [
        {
            "name": name,
            "group": group,
            "seconds": time,
            "peak_memory": int(peak),
            "fresh": group == "draw",
            "key": name,
        }
        for name, group, time, peak in times
    ]


def tuning_curve() -> list[dict[str, float]]:
    thresholds = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    precision = [0.71, 0.79, 0.86, 0.92, 0.96, 0.98, 0.99]
    recall = [0.93, 0.92, 0.9, 0.86, 0.72, 0.58, 0.31]
    coverage = [0.97, 0.96, 0.94, 0.91, 0.82, 0.7, 0.44]
    return [
        {"threshold": t, "f": 2 * p * r / (p + r), "precision": p, "recall": r, "coverage": c}
        for t, p, r, c in zip(thresholds, precision, recall, coverage, strict=True)
    ]


def members() -> list[dict[str, Any]]:
    known = [(1_388_896, 0.513, 0.61), (1_106_112, 0.474, 0.57), (962_304, 0.452, 0.55)]
    return [
        {
            "name": name,
            "role": "base" if at == 0 else "member",
            "parameters": parameters,
            "rank1": figure(rank1, 0.03),
            "tpr": [{"fpr": 0.01, **figure(rank1 - 0.04, 0.03)}, {"fpr": 0.001, **figure(rank1 - 0.2, 0.03)}],
            "edge_precision": edges,
        }
        for at, (name, (parameters, rank1, edges)) in enumerate(zip(NETWORKS, known, strict=True))
    ]
