"""Data sets of images with boxes around people: COCO, FiftyOne, and Hugging Face's imagefolder.

Boxes are of the upright image: whoever reads one must turn it as its EXIF orientation says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdp.export.annotated_images import AnnotatedImage, annotate_images
from cdp.export.export_result import ExportResult
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_placer import ImagePlacer, photo_manifest
from cdp.export.label_lists import write_class_table
from cdp.runtime.progress import Progress, no_progress


def write_coco(
    folder: Path, grouped: GroupedImages, *, copies: bool = False, progress: Progress = no_progress
) -> ExportResult:
    """Fill a folder with `instances.json` and `images/`: a category per person, a box per face.

    Args:
        folder: to fill.
        grouped: who is on which image.
        copies: copy the images instead of linking to them.
        progress: called as images are done.

    Raises:
        InputError: only embeddings are known, or an image is not there.
    """
    found = annotate_images(grouped, "COCO")
    files = _place(folder, "images", found.images, copies, progress)
    classes, titles = grouped.classes, grouped.titles()
    images = [
        {"id": number, "file_name": file, "width": one.width, "height": one.height}
        for number, (one, file) in enumerate(zip(found.images, files, strict=True), start=1)
    ]
    annotations: list[dict[str, Any]] = []
    for number, one in enumerate(found.images, start=1):
        for row, box in zip(one.rows, one.boxes, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(classes[row]) + 1,
                    "bbox": _rounded(box),
                    "area": round(box[2] * box[3], 2),
                    "segmentation": [],
                    "iscrowd": 0,
                    "row": row,
                }
            )
    categories = [
        {"id": number, "name": titles[person], "supercategory": "person", "identity": person}
        for number, person in enumerate(grouped.people.tolist(), start=1)
    ]
    about = {"info": {"description": "People and their faces"}, "licenses": []}
    _write_json(
        folder / "instances.json",
        about | {"categories": categories, "images": images, "annotations": annotations},
    )
    return _result(grouped, found.images, found.notes)


def write_fiftyone(
    folder: Path, grouped: GroupedImages, *, copies: bool = False, progress: Progress = no_progress
) -> ExportResult:
    """Fill a folder as a FiftyOneImageDetectionDataset: `labels.json` and `data/`.

    With `classes`, labels are their positions; boxes are fractions of the image.

    Args:
        folder, grouped, copies, progress: as `write_coco` has them.

    Raises:
        InputError: only embeddings are known, or an image is not there.
    """
    found = annotate_images(grouped, "FiftyOne")
    _place(folder, "data", found.images, copies, progress)
    classes, titles = grouped.classes, grouped.titles()
    labels = {}
    for one in found.images:
        sizes = (one.width, one.height) * 2
        labels[one.name] = [
            {
                "label": int(classes[row]),
                "bounding_box": [round(side / size, 6) for side, size in zip(box, sizes, strict=True)],
                "confidence": round(float(grouped.confidence[row]), 6),
                "attributes": {"identity": int(grouped.identity[row]), "row": row},
            }
            for row, box in zip(one.rows, one.boxes, strict=True)
        ]
    called = [titles[person] for person in grouped.people.tolist()]
    _write_json(folder / "labels.json", {"classes": called, "labels": labels})
    return _result(grouped, found.images, found.notes)


def write_imagefolder(
    folder: Path, grouped: GroupedImages, *, copies: bool = False, progress: Progress = no_progress
) -> ExportResult:
    """Write a Hugging Face `imagefolder`: `images/` and `metadata.jsonl` with a line per image.

    Categories are 0, 1, 2, …; `identities.csv` says who they are.

    Args:
        folder, grouped, copies, progress: as `write_coco` has them.

    Raises:
        InputError: only embeddings are known, or an image is not there.
    """
    found = annotate_images(grouped, "An imagefolder")
    files = _place(folder, "images", found.images, copies, progress)
    classes, titles = grouped.classes, grouped.titles()
    with (folder / "metadata.jsonl").open("w", encoding="utf-8") as stream:
        for one, file in zip(found.images, files, strict=True):
            objects = {
                "id": list(one.rows),
                "bbox": [_rounded(box) for box in one.boxes],
                "area": [round(box[2] * box[3], 2) for box in one.boxes],
                "categories": [int(classes[row]) for row in one.rows],
                "names": [titles[int(grouped.identity[row])] for row in one.rows],
            }
            line = {"file_name": f"images/{file}", "width": one.width, "height": one.height}
            stream.write(json.dumps(line | {"objects": objects}, ensure_ascii=False) + "\n")
    write_class_table(folder, grouped)
    return _result(grouped, found.images, found.notes)


def _place(
    folder: Path, inside: str, images: Sequence[AnnotatedImage], copies: bool, progress: Progress
) -> list[str]:
    """Links or copies of all images in a folder of the data set; their names there."""
    (folder / inside).mkdir()
    place = ImagePlacer(folder / inside, photo_manifest([one.location for one in images]), copies)
    files = []
    for number, one in enumerate(images):
        files.append(place(number, one.name)[0])
        if number % 100 == 0:
            progress("images", number, len(images))
    progress("images", len(images), len(images))
    return files


def _result(grouped: GroupedImages, images: Sequence[AnnotatedImage], notes: tuple[str, ...]) -> ExportResult:
    people = {int(grouped.identity[row]) for one in images for row in one.rows}
    return ExportResult(len(images), len(people), notes)


def _rounded(box: Sequence[float]) -> list[float]:
    return [round(one, 2) for one in box]


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
