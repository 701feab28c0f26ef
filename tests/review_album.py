"""A small album: patterns as faces on photos, grouped by made-up embeddings, without any model."""

from pathlib import Path

import numpy as np
from PIL import Image
from tests.review_collection import BY_VOTE

from cdp.collection.collection import Collection, open_collection
from cdp.collection.creation import Origin, label_into
from cdp.collection.outputs import write_outputs
from cdp.faces.face import Face
from cdp.faces.face_tables import write_face_tables
from cdp.runtime.runtime import Runtime
from cdp.types import Manifest, Views

SIZES = (7, 5, 4, 3)
BOX = (120.0, 40.0, 184.0, 104.0)
WIDE, HIGH = 300, 200


def make_album(home: Path) -> Collection:
    """Four people on 19 photos of one face each: `home/photos` and `home/album`."""
    generator = np.random.default_rng(5)
    people = np.repeat(np.arange(len(SIZES)), SIZES)
    n_faces = len(people)
    album, photos = home / "album", home / "photos"
    faces = album / "faces" / "0001"
    (faces / "crops").mkdir(parents=True)
    photos.mkdir()
    left, top, right, bottom = map(int, BOX)
    names = [f"shot {row:02d} & <b>.png" for row in range(n_faces)]
    crops = tuple(f"crops/{row:03d}.png" for row in range(n_faces))
    for row, person in enumerate(people.tolist()):
        color = np.random.default_rng(person).integers(60, 220, (4, 4, 3))
        face = np.kron(color, np.ones((16, 16, 1))).astype(np.uint8)
        photo = np.full((HIGH, WIDE, 3), 90, np.uint8)
        photo[top:bottom, left:right] = face
        Image.fromarray(photo).save(photos / names[row])
        Image.fromarray(face).save(faces / crops[row])
    unknown = np.full(n_faces, -1)
    found = [Face(row, BOX, path=crops[row]) for row in range(n_faces)]
    listed = Manifest(tuple(names), unknown, root=str(photos))
    none = np.empty((0, 2), np.int64)
    write_face_tables(Manifest(crops, unknown, root=str(faces)), found, [], none, listed, faces, faces)
    centers = generator.normal(size=(len(SIZES), 24))
    base, other = (
        (centers[people] + 0.3 * generator.normal(size=(n_faces, 24))).astype(np.float32) for _ in range(2)
    )
    views = Views(base, {"other": other}, None, list(crops))
    label_into(album, views, [], BY_VOTE, Origin(images=faces), Runtime())
    write_outputs(open_collection(album))
    return open_collection(album)
