"""Embedding models in ONNX files: what is known of them, what they are given, what is said of wrong ones."""

import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX models need the extra onnx")
pytest.importorskip("onnx")

from PIL import Image
from tests.drawn_images import draw_patterns
from tests.onnx_builders import embedder
from tests.refusals import refuses

from cdp.data.manifests import read_manifest
from cdp.nets import onnx_inputs
from cdp.nets.convention_trial import change_faces, list_candidates, score_conventions, settle_conventions
from cdp.nets.embed_images import embed_images
from cdp.nets.embedding_checks import odd_embeddings, same_person_share
from cdp.nets.model_cards import KnownModel
from cdp.nets.onnx_inputs import InputConventions, InputFacts, find_conventions
from cdp.nets.onnx_models import open_models, open_onnx_model, prepare_pixels, read_onnx_model
from cdp.runtime.runtime import Runtime
from cdp.storage.array_files import hash_contents
from cdp.storage.artifacts import read_card
from cdp.types import Views
from cdp.types.manifest import Manifest


@pytest.fixture
def images(tmp_path):
    return draw_patterns(tmp_path / "images", n_identities=5, n_images=4)


def pixels_of(manifest, row=0):
    with Image.open(f"{manifest.root}/{manifest.locations[row]}") as opened:
        return np.asarray(opened.convert("RGB"))


def by_hand(file, image, mean, std, bgr=False):
    """One embedding written out: order, subtract, divide, run, divide by the length."""
    import onnxruntime

    values = (image[..., ::-1] if bgr else image).astype(np.float64)
    values = ((values - mean) / std).transpose(2, 0, 1)[None].astype(np.float32)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (row,) = session.run(["embedding"], {"x": values})[0]
    return row / np.linalg.norm(row)


@pytest.mark.parametrize(
    ("name", "mean", "std", "bgr"),
    [
        ("w600k_r50", 127.5, 127.5, False),
        ("glintr100", 127.5, 127.5, False),
        ("face_recognition_sface_2021dec", 0, 1, False),
        ("edgeface_s_gamma_05", 127.5, 127.5, False),
        ("adaface_ir50_ms1mv2", 127.5, 127.5, True),
    ],
)
def test_known_families_get_their_images_as_they_want_them(tmp_path, images, name, mean, std, bgr):
    file = embedder(tmp_path / f"{name}.onnx")
    made = embed_images(images, open_models([file]), tmp_path / "views")
    expected = by_hand(file, pixels_of(images), mean, std, bgr)
    np.testing.assert_allclose(made.views.base.source[0], expected, atol=1e-5)


def test_a_card_counts_more_than_the_name_and_the_model_more_than_its_family(tmp_path, images):
    file = embedder(tmp_path / "w600k_mine.onnx", scaled=True)
    about = read_onnx_model(file).conventions
    assert (about.mean, about.std, about.known_from["mean"]) == ((0, 0, 0), (1, 1, 1), "model")
    assert about.known_from["color"] == "InsightFace"
    file.with_suffix(".toml").write_text('color = "BGR"\nmean = [1, 2, 3]\nstd = 4.5\n')
    model = open_onnx_model(file)
    assert model.model.conventions.known_from["mean"] == "card"
    image = pixels_of(images)
    expected = by_hand(file, image, np.array([1, 2, 3]), 4.5, bgr=True)
    np.testing.assert_allclose(model.embed(image.transpose(2, 0, 1)[None])[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"color": "BGR", "mean": "[1.5, 2, 3]", "std": "4"}, ("BGR", (1.5, 2, 3), (4, 4, 4))),
        (
            {"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": "Normalized_0_1"},
            ("BGR", (0, 0, 0), (255, 255, 255)),
        ),
        (
            {"Image.BitmapPixelFormat": "Rgb8", "Image.NominalPixelRange": "Normalized_1_1"},
            ("RGB", (127.5,) * 3, (127.5,) * 3),
        ),
    ],
)
def test_what_stands_in_the_model_is_read(tmp_path, metadata, expected):
    about = read_onnx_model(embedder(tmp_path / "mine.onnx", metadata=metadata)).conventions
    assert (about.color, about.mean, about.std) == expected
    assert about.known_from["color"] == about.known_from["std"] == about.known_from["size"] == "model"


def test_a_model_of_which_nothing_is_known_is_refused_where_nothing_may_be_tried(tmp_path):
    file = embedder(tmp_path / "mine.onnx")
    with refuses(
        "onnx-conventions-missing",
        file=tmp_path / "mine.onnx",
        keys=("color", "mean", "std"),
        card=tmp_path / "mine.toml",
    ):
        open_models([file], may_try=False)
    file.with_suffix(".toml").write_text('color = "RGB"\nmean = 127.5\nstd = 127.5\n')
    (opened,) = open_models([file], may_try=False)
    assert opened.model.conventions.size == (16, 16)
    assert opened.assumed == ""


@pytest.mark.parametrize("name", ["mobilefacenet", "MobileFaceNet_v2", "mine"])
def test_an_architecture_is_no_family(tmp_path, name):
    about = read_onnx_model(embedder(tmp_path / f"{name}.onnx")).conventions
    assert about.open_keys == ("color", "mean", "std")


def test_a_published_file_is_known_by_its_hash_whatever_its_name(tmp_path, monkeypatch):
    file = embedder(tmp_path / "w600k_renamed.onnx")
    known = KnownModel("Mine", "BGR", (1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (16, 16))
    monkeypatch.setattr(onnx_inputs, "KNOWN_MODELS", {hash_contents(file): known})
    about = read_onnx_model(file).conventions
    assert (about.color, about.mean, about.std) == (known.color, known.mean, known.std)
    assert set(about.known_from.values()) == {"hash", ""}
    assert about.assumed == ""
    file.with_suffix(".toml").write_text('color = "RGB"\n')
    about = read_onnx_model(file).conventions
    assert (about.color, about.known_from["color"], about.known_from["mean"]) == ("RGB", "card", "hash")


def test_conventions_go_through_json():
    about = find_conventions(Path("arcface.onnx"), InputFacts("", {}, (112, 96), 3, False))
    again = InputConventions.from_plain(json.loads(json.dumps(about.as_plain())))
    assert again == about


def test_what_nothing_says_is_tried_on_the_images_and_written_down(tmp_path):
    images = draw_patterns(tmp_path / "images", n_identities=12, n_images=2)
    file = embedder(tmp_path / "mine.onnx", clipped=True)
    file.with_suffix(".toml").write_text('color = "RGB"\n')
    runs = [
        embed_images(
            images, open_models([file]), tmp_path / f"views{threads}", runtime=Runtime.of(threads=threads)
        )
        for threads in (1, 3)
    ]
    opened = open_onnx_model(file)
    faces = np.stack([pixels_of(images, row).transpose(2, 0, 1) for row in range(24)])
    candidates = list_candidates(opened.model.conventions)
    scores = [score_conventions(opened.with_conventions(one), faces) for one in candidates]
    best = candidates[int(np.argmax(scores))]
    assert best.std != (1, 1, 1)
    for made, folder in zip(runs, ("views1", "views3"), strict=True):
        inputs = read_card(tmp_path / folder, "Views").settings["inputs"]["mine"]
        assert InputConventions.from_plain(inputs) == best
        assert inputs["known_from"] == {
            "size": "model", "color": "card", "mean": "trial", "std": "trial", "output": ""
        }  # fmt: skip
        (note,) = made.notes
        assert note.startswith(f"mine: {best.in_words} is assumed (tried on these faces)")
    assert runs[0].views.base.source.tobytes() == runs[1].views.base.source.tobytes()


def test_few_images_are_not_tried_on_and_all_candidates_agree_with_what_is_known(tmp_path, images):
    opened = open_onnx_model(embedder(tmp_path / "mine.onnx"))
    few = settle_conventions(opened, images.take(np.arange(5)))
    assert few.model.conventions.known_from["color"] == "usual"
    assert "too few faces" in few.assumed
    candidates = list_candidates(opened.model.conventions)
    assert len({(one.color, one.mean, one.std) for one in candidates}) == len(candidates) == 8
    bgr = [one for one in candidates if one.color == "BGR" and len(set(one.mean)) == 3]
    assert [one.mean for one in bgr] == [(103.53, 116.28, 123.675)]
    scaled = open_onnx_model(embedder(tmp_path / "scaled.onnx", scaled=True))
    assert [one.color for one in list_candidates(scaled.model.conventions)] == ["RGB", "BGR"]
    known = open_onnx_model(embedder(tmp_path / "arcface.onnx"))
    assert settle_conventions(known, images) is known


def test_a_score_is_a_gap_of_similarities(tmp_path, images):
    """The slow twin: all pairs written out."""
    opened = open_onnx_model(embedder(tmp_path / "arcface.onnx"))
    faces = np.stack([pixels_of(images, row).transpose(2, 0, 1) for row in range(9)])
    rows = [opened.embed(face[None])[0] for face in faces]
    same = [
        float(opened.embed(copy[None])[0] @ row)
        for copies in change_faces(faces)
        for copy, row in zip(copies, rows, strict=True)
    ]
    others = [float(rows[one] @ rows[other]) for one in range(9) for other in range(one)]
    expected = np.median(same) - np.quantile(others, 0.25)
    assert score_conventions(opened, faces) == pytest.approx(expected, abs=1e-5)
    broken = open_onnx_model(embedder(tmp_path / "broken_arcface.onnx", not_finite=True))
    assert score_conventions(broken, faces) == -np.inf


def test_a_narrow_model_sees_the_middle_columns(tmp_path):
    """112 x 96, as SphereFace has it: its template is that of 112 x 112 without eight columns on either side."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 112, 112, 3), np.uint8)
    for row, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    manifest = Manifest(("0.png", "1.png"), np.array([-1, -1]), root=str(tmp_path))
    file = embedder(tmp_path / "arcface.onnx", size=112, width=96)
    views = embed_images(manifest, open_models([file]), tmp_path / "views").views
    for row, image in enumerate(pixels):
        expected = by_hand(file, image[:, 8:104], 127.5, 127.5)
        np.testing.assert_allclose(views.base.source[row], expected, atol=1e-5)
    wide = open_onnx_model(embedder(tmp_path / "wide_arcface.onnx", size=64, width=128, channels_last=True))
    assert wide.pixel_format.shape == (3, 64, 128)
    assert embed_images(manifest, [wide], tmp_path / "wide").views.n_images == 2


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0ba9\nsize 38696353\n", "git-lfs"),
        (b"\n<!DOCTYPE html>\n<html lang='en'>", "html"),
        (b"\x80\x02}q\x00.", "pytorch"),
        (b"\x1f\x8b\x08\x00", "archive"),
    ],
)
def test_what_a_file_truly_is_is_said(tmp_path, content, found):
    file = tmp_path / "arcface.onnx"
    file.write_bytes(content)
    with refuses("onnx-file-other-format", file=file, found=found):
        read_onnx_model(file)


@pytest.mark.parametrize(("entry", "found"), [("model/data.pkl", "pytorch"), ("det_10g.onnx", "archive")])
def test_a_checkpoint_is_told_from_other_archives(tmp_path, entry, found):
    with ZipFile(tmp_path / "arcface.onnx", "w") as archive:
        archive.writestr(entry, b"content")
    with refuses("onnx-file-other-format", found=found):
        read_onnx_model(tmp_path / "arcface.onnx")


@pytest.mark.parametrize(
    ("card", "code", "fields"),
    [
        (
            "colour = 'RGB'",
            "onnx-card-key-unknown",
            {"key": "colour"},
        ),
        ("color = 'rgb'", "onnx-card-color-unknown", {"key": "color", "value": "rgb"}),
        ("std = 0", "onnx-card-numbers-wrong", {"key": "std", "value": 0}),
        ("mean = [1, 2]", "onnx-card-numbers-wrong", {"key": "mean", "value": [1, 2]}),
        ("size = [16, 0]", "onnx-card-size-wrong", {"value": [16, 0]}),
        ("size = 20", "onnx-size-differs", {"expected": (16, 16), "found": (20, 20)}),
        ("output = 'nothing'", "onnx-output-missing", {"output": "nothing"}),
        ("= 3", "onnx-card-syntax-wrong", {}),
    ],
)
def test_a_wrong_card_is_named(tmp_path, card, code, fields):
    file = embedder(tmp_path / "arcface.onnx")
    file.with_suffix(".toml").write_text(card)
    with refuses(code, **fields):
        read_onnx_model(file)


def test_other_layouts_give_the_same_embeddings(tmp_path, images):
    first = embedder(tmp_path / "arcface.onnx")
    plain = embed_images(images, open_models([first]), tmp_path / "plain").views.base.source
    for name, options in {
        "last": {"channels_last": True},
        "one": {"batch": 1},
        "three": {"batch": 3},
        "norm": {"norm_output": True},
    }.items():
        file = embedder(tmp_path / f"{name}_arcface.onnx", **options)
        other = embed_images(images, open_models([file]), tmp_path / name).views.base.source
        np.testing.assert_allclose(other, plain, atol=1e-6, err_msg=name)
    half = embedder(tmp_path / "half_arcface.onnx", half=True)
    rough = embed_images(images, open_models([half]), tmp_path / "half").views.base.source
    np.testing.assert_allclose(rough, plain, atol=0.02)


def test_a_gray_model_sees_gray(tmp_path, images):
    file = embedder(tmp_path / "arcface.onnx", channels=1)
    model = open_onnx_model(file)
    assert model.model.conventions.color == "gray"
    assert model.pixel_format.shape == (1, 16, 16)
    assert embed_images(images, [model], tmp_path / "views").views.n_images == 20


def test_several_models_make_views_that_do_not_depend_on_threads(tmp_path, images):
    files = [
        embedder(tmp_path / f"{name}.onnx", seed=at)
        for at, name in enumerate(("arcface", "adaface", "sface"))
    ]
    made = [
        embed_images(
            images,
            open_models(files),
            tmp_path / f"views{threads}",
            runtime=Runtime.of(threads=threads),
            batch=3,
        ).views
        for threads in (1, 4)
    ]
    assert made[0].names == ("base", "adaface", "sface")
    for one, other in zip(*made, strict=True):
        assert one.source.tobytes() == other.source.tobytes()
    np.testing.assert_array_equal(made[0].identities, images.identities)
    assert made[0].paths == images.locations


def test_flipped_images_are_averaged(tmp_path, images):
    model = open_onnx_model(embedder(tmp_path / "arcface.onnx"))
    pixels = pixels_of(images).transpose(2, 0, 1)[None]
    both = model.embed(pixels) + model.embed(np.ascontiguousarray(pixels[..., ::-1]))
    np.testing.assert_allclose(model.embed(pixels, True), both / np.linalg.norm(both), atol=1e-6)


def test_images_that_cannot_be_read_are_listed_and_have_no_row(tmp_path, images):
    broken = [3, 11]
    for row in broken:
        (tmp_path / "images" / images.locations[row]).write_bytes(b"not an image")
    models = open_models([embedder(tmp_path / "arcface.onnx")])
    with refuses("image-undecodable", row=3, file="person000/3.png"):
        embed_images(images, models, tmp_path / "strict", batch=4)
    made = embed_images(images, models, tmp_path / "views", batch=4, skip_unreadable=True)
    rows = np.delete(np.arange(20), broken)
    assert [one.row for one in made.unreadable] == broken
    assert made.unreadable[0].reason.startswith("the image cannot be decoded (not in an image format")
    assert made.manifest.locations == made.views.paths == images.take(rows).locations
    whole = embed_images(images.take(rows), models, tmp_path / "whole", batch=4).views
    np.testing.assert_allclose(made.views.base.source, whole.base.source, atol=1e-6)
    # What is listed can be left out of the next command, and the rest is a manifest.
    again = read_manifest(tmp_path / "views/images.csv")
    assert len(again) == 18
    np.testing.assert_array_equal(again.identities, made.views.identities)
    assert len((tmp_path / "views/unreadable.csv").read_text().splitlines()) == 3


def test_a_killed_run_goes_on(tmp_path, images):
    models = open_models([embedder(tmp_path / "arcface.onnx")])
    (tmp_path / "images" / images.locations[0]).write_bytes(b"")
    seen = []

    def stop(step, done, total):
        if done == 18:
            raise KeyboardInterrupt

    options = {"batch": 1, "skip_unreadable": True}
    with pytest.raises(KeyboardInterrupt):
        embed_images(
            images, models, tmp_path / "views", **options, runtime=Runtime.of(threads=1, progress=stop)
        )
    made = embed_images(
        images,
        models,
        tmp_path / "views",
        **options,
        runtime=Runtime.of(threads=1, progress=lambda step, done, total: seen.append(done)),
    )
    assert seen == [17, 18, 19, 20]
    assert [one.row for one in made.unreadable] == [0]
    fresh = embed_images(images, models, tmp_path / "fresh", **options).views
    assert fresh.base.source.tobytes() == made.views.base.source.tobytes()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("done-", b"\xff"),
        ("done-", b"[99, {}]"),
        ("done-", b'[3, {"x": "y"}]'),
        ("base.npy", b"\x93NUMPY"),
        ("base.npy", b""),
    ],
)
def test_half_done_work_that_was_damaged_is_done_again(tmp_path, images, name, damage):
    models = open_models([embedder(tmp_path / "arcface.onnx")])

    def stop(step, done, total):
        if done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_images(
            images, models, tmp_path / "views", batch=1, runtime=Runtime.of(threads=1, progress=stop)
        )
    (file,) = (tmp_path / ".views.embedding").glob(f"{name}*")
    file.write_bytes(damage)
    made = embed_images(images, models, tmp_path / "views", batch=1).views
    fresh = embed_images(images, models, tmp_path / "fresh", batch=1).views
    assert fresh.base.source.tobytes() == made.base.source.tobytes()


def test_embeddings_that_are_not_finite_are_an_error(tmp_path, images):
    models = open_models([embedder(tmp_path / "arcface.onnx", not_finite=True)])
    with refuses("embedding-not-finite", model="arcface", row=0):
        embed_images(images, models, tmp_path / "views")


def test_constant_embeddings_and_those_that_know_nobody_are_reported(tmp_path, images):
    models = open_models([embedder(tmp_path / "arcface.onnx", constant=True)])
    (note, *_) = embed_images(images, models, tmp_path / "views").notes
    assert note.startswith(
        "arcface: the embeddings are nearly the same for every image (mean similarity 1.0000)"
    )
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(400, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    identities = np.arange(400) // 4
    (said,) = odd_embeddings(rows, identities)
    assert "two images of one person are closer than two of different people in only" in said
    assert odd_embeddings(rows, np.full(400, -1)) == []
    centers = rows[identities * 4]
    good = rows + 2 * centers
    assert odd_embeddings(good / np.linalg.norm(good, axis=1, keepdims=True), identities) == []


def test_the_share_of_closer_pairs_is_the_area_under_the_roc():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(60, 4))
    rows += np.repeat(generator.normal(size=(20, 4)), 3, axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    identities = np.repeat(np.arange(20), 3)
    first = np.flatnonzero(np.arange(60) % 3 != 2)
    far = np.roll(first + 1, 20)
    close, apart = (rows[first] * rows[first + 1]).sum(1), (rows[first] * rows[far]).sum(1)
    share, n_pairs = same_person_share(rows, identities)
    assert n_pairs == 40
    assert share == pytest.approx((close[:, None] > apart).mean())


def test_what_is_no_embedding_model_is_refused(tmp_path):
    with refuses("onnx-file-missing", file=tmp_path / "absent.onnx"):
        read_onnx_model(tmp_path / "absent.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    with refuses("onnx-file-unopenable", file=tmp_path / "text.onnx"):
        read_onnx_model(tmp_path / "text.onnx")
    one = embedder(tmp_path / "a/arcface.onnx")
    other = embedder(tmp_path / "b/arcface.onnx")
    with refuses("onnx-names-repeated", files=(str(other), str(one))):
        open_models([one, other])
    with refuses("onnx-cuda-missing", device="cuda:1"):
        open_onnx_model(one, "cuda:1")


def test_small_images_are_enlarged_and_inputs_are_unchanged(tmp_path):
    Image.fromarray(np.full((5, 7, 3), 90, np.uint8)).save(tmp_path / "small.png")
    manifest = Manifest(("small.png",), np.array([-1]), root=str(tmp_path))
    views = embed_images(
        manifest, open_models([embedder(tmp_path / "arcface.onnx")]), tmp_path / "views"
    ).views
    assert isinstance(views, Views)
    pixels = np.zeros((1, 3, 4, 4), np.uint8)
    before = pixels.copy()
    about = read_onnx_model(tmp_path / "arcface.onnx").conventions
    assert prepare_pixels(pixels, about).flags.c_contiguous
    np.testing.assert_array_equal(pixels, before)
