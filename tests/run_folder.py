"""A small but complete run folder: made-up embeddings labeled in earnest, drawn images, plausible recognition."""

from pathlib import Path

import numpy as np
from msgspec.structs import replace
from PIL import Image, ImageDraw

from cdp.consensus.settings import ConsensusSettings, plain
from cdp.lab.synthetic import synthetic_views
from cdp.labeling.figures import measure_labeling
from cdp.labeling.output import write_labeling
from cdp.labeling.pipeline import label
from cdp.types import ALL_INPUTS, Manifest, Views
from cdp.types.run_record import (
    Committee,
    Figure,
    Headline,
    ModelFigures,
    PartRecord,
    RateFigure,
    RecognitionFigures,
    RunRecord,
    StageRecord,
    write_run_record,
)

NETWORKS = ("small_resnet", "small_vgg", "small_inception")


def make_run_folder(folder: Path) -> RunRecord:
    """Fill `folder` as `cdp run` would, and return what run.json says."""
    split = synthetic_views(150, 7.0, labeled=0.6, members=2, dimensions=24, noise=0.75, junk=0.06, seed=3)
    settings = ConsensusSettings.of("paper", k=8, inputs=ALL_INPUTS, max_size=40, tune=True)
    made = label(split.unlabeled, settings, labeled=[split.labeled])
    results = measure_labeling(made, split.unlabeled, names=list(NETWORKS))
    folder.mkdir(parents=True, exist_ok=True)
    images = draw_images(folder, split.unlabeled.identities)
    write_labeling(folder / "labels", made, results, paths=images.locations)
    record = RunRecord(
        cdp="0.1.0",
        command="cdp run recipes/small-faces.toml --out work/small-faces",
        recipe={"seed": 0, "consensus": plain(settings)},
        recipe_text="seed = 0\n\n[consensus]\nk = 8\nmax_size = 40\n",
        differences={"consensus.k": 8, "consensus.max_size": 40},
        versions={"python": "3.11.9", "numpy": "2.4.6", "torch": "2.13.0"},
        cores=2,
        device="cpu",
        seed=0,
        started="2025-01-01T10:00:00",
        seconds=512.3,
        parts={
            "labeled": part_of(split.labeled),
            "unlabeled": part_of(split.unlabeled),
            "probes": PartRecord(images=1000, identities=100),
            "distractors": PartRecord(images=1000, identities=100),
        },
        stages=stages(made.seconds),
        results=replace(
            results,
            headline=headline(split.labeled.n_images, made.labels.labels >= 0),
            committee=with_recognition(results.committee),
        ),
        notes=list(made.notes),
    )
    write_run_record(folder / "run.json", record)
    return record


def part_of(views: Views) -> PartRecord:
    return PartRecord(images=views.n_images, identities=len(np.unique(views.identities)))


def figure(value: float, spread: float) -> Figure:
    return Figure(value=value, low=round(value - spread, 4), high=round(value + spread, 4))


def rates(spread: float, *values: float) -> list[RateFigure]:
    found = [figure(value, spread) for value in values]
    return [
        RateFigure(fpr=fpr, value=one.value, low=one.low, high=one.high)
        for fpr, one in zip((0.01, 0.001), found, strict=True)
    ]


def headline(n_labeled: int, is_labeled) -> Headline:
    def model(key: str, title: str, images: int, rank1: float, *values: float) -> ModelFigures:
        return ModelFigures(
            key=key, title=title, images=images, rank1=figure(rank1, 0.027), tpr=rates(0.031, *values)
        )

    return Headline(
        network=NETWORKS[0],
        probes=1000,
        distractors=1000,
        models=[
            model("labeled", "labeled only", n_labeled, 0.513, 0.482, 0.236),
            model("cdp", "with pseudo-labels", n_labeled + int(is_labeled.sum()), 0.764, 0.701, 0.452),
            model("all", "all labels", n_labeled + len(is_labeled), 0.801, 0.752, 0.498),
        ],
        gap_closed=RecognitionFigures(rank1=figure(0.872, 0.06), tpr=rates(0.1, 0.811, 0.824)),
    )


def with_recognition(committee: Committee) -> Committee:
    known = [(1_388_896, 0.513), (1_106_112, 0.474), (962_304, 0.452)]
    members = [
        replace(
            member,
            parameters=parameters,
            rank1=figure(rank1, 0.03),
            tpr=rates(0.03, rank1 - 0.04, rank1 - 0.2),
        )
        for member, (parameters, rank1) in zip(committee.members, known, strict=True)
    ]
    return replace(committee, members=members)


def stages(steps: dict[str, float]) -> list[StageRecord]:
    times = [
        ("split", "split", 0.3, 215e6),
        *((f"train {name}", "train", 30.0 + 9 * at, 800e6 + 3e7 * at) for at, name in enumerate(NETWORKS)),
        *((f"embed {name}", "embed", 6.0 + at, 640e6) for at, name in enumerate(NETWORKS)),
        ("label", "label", sum(steps.values()) + 1, 702e6),
        ("train with pseudo-labels", "joint", 171.0, 1.31e9),
        ("train with all labels", "bound", 166.0, 1.29e9),
        ("measure recognition", "evaluate", 21.0, 900e6),
    ]
    return [
        StageRecord(
            name=name,
            group=group,
            seconds=time,
            peak_memory=int(peak),
            fresh=name == "split",
            key=name,
            steps=steps if name == "label" else {},
        )
        for name, group, time, peak in times
    ]


def draw_images(folder: Path, identities) -> Manifest:
    """A face of two or three shapes per identity; every image a little shifted and of its own brightness."""
    (folder / "images").mkdir()
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
        image.save(folder / "images" / f"{row:04d}.png")
    locations = tuple(f"../images/{row:04d}.png" for row in range(len(identities)))
    names = tuple(f"person {number}" for number in range(int(identities.max()) + 1))
    manifest = Manifest(locations, identities, names, str(folder / "parts"))
    (folder / "parts").mkdir()
    manifest.save(folder / "parts" / "unlabeled.csv")
    return manifest
