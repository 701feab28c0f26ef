"""Public detectors and models, where their files are given: from photos with a folder per person to embeddings that tell them apart."""

import os

import pytest

pytest.importorskip("onnxruntime", reason="ONNX models need the extra onnx")

from cdp.data.manifests import read_manifest
from cdp.faces.align_photos import align_faces
from cdp.nets.embed_images import embed_images
from cdp.nets.embedding_checks import same_person_share
from cdp.nets.onnx_models import open_models

NEEDED = ("CDP_TEST_DETECTOR", "CDP_TEST_MODEL", "CDP_TEST_PHOTOS")


@pytest.mark.slow
@pytest.mark.skipif(not all(os.environ.get(name) for name in NEEDED), reason=f"needs {', '.join(NEEDED)}")
def test_a_public_model_tells_people_apart(tmp_path):
    detector, model, photos = (os.environ[name] for name in NEEDED)
    faces = align_faces(read_manifest(photos), detector, tmp_path / "faces")
    made = embed_images(faces.manifest, open_models([model]), tmp_path / "views")
    assert made.notes == []
    share, n_pairs = same_person_share(made.views.base.source, faces.manifest.identities)
    assert n_pairs >= 20, "give photos of people who are on two photos or more, alone"
    assert share > 0.9
