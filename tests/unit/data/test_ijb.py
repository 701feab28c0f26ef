import dataclasses

import numpy as np
import pytest
from tests.refusals import refuses

import recognition_reference as slow
from cdp.data.ijb import (
    ijba_splits,
    load_templates,
    read_detector_scores,
    read_ijb_pack,
    read_ijba_split,
    read_templates,
    save_templates,
)
from cdp.data.image_names import ImageNames


def members(protocol):
    """{template: set of (row, media group)} with media numbered by first appearance."""
    found = {}
    for image, template, medium in zip(protocol.images, protocol.templates, protocol.media, strict=True):
        found.setdefault(int(protocol.template_ids[template]), []).append((int(image), int(medium)))
    return found


def test_ijba_split(tmp_path):
    _, names, splits = slow.write_ijba(tmp_path)
    assert ijba_splits(tmp_path) == list(range(1, 11))
    known = ImageNames(tuple(names), "list")
    for number in (1, 10):
        expected, subjects, pairs = splits[number - 1]
        split = read_ijba_split(tmp_path, number, known)
        for template, listed in members(split).items():
            rows, media = expected[template]
            assert [row for row, _ in listed] == rows.tolist()
            assert len({medium for _, medium in listed}) == len(set(media)) == 2
        assert split.template_ids[split.ends].tolist() == [list(pair) for pair in pairs]
        assert split.same.tolist() == [subjects[one] == subjects[other] for one, other in pairs]
        assert split.subjects.tolist() == [subjects[template] for template in split.template_ids.tolist()]
        in_order = read_ijba_split(tmp_path, number)
        assert in_order.images.tolist() == list(range(len(split.images)))


def test_several_people_in_one_file_are_told_by_sighting(tmp_path):
    split = tmp_path / "split1"
    split.mkdir()
    header = "TEMPLATE_ID,SUBJECT_ID,FILE,MEDIA_ID,SIGHTING_ID"
    rows = ["1,7,a.jpg,1,10", "2,8,a.jpg,1,11", "3,7,b.jpg,2,12"]
    (split / "verify_metadata_1.csv").write_text("\n".join([header, *rows]) + "\n")
    (split / "verify_comparisons_1.csv").write_text("1,2\n1,3\n")
    with refuses(
        "ijba-image-several-people", file=tmp_path / "split1/verify_metadata_1.csv", line=3, name="a.jpg"
    ):
        read_ijba_split(tmp_path, 1, ImageNames(("a.jpg", "b.jpg"), "list"))
    named = read_ijba_split(tmp_path, 1, ImageNames(("b.jpg#12", "a.jpg#11", "a.jpg#10"), "list"))
    assert named.images.tolist() == [2, 1, 0]
    crops = read_ijba_split(tmp_path, 1, ImageNames(("b#12.png", "a#11.png", "a#10.png"), "list"))
    assert crops.images.tolist() == [2, 1, 0], "as image files are named"


def test_a_folder_of_either_kind_is_read_and_kept(tmp_path):
    _, names, _ = slow.write_ijba(tmp_path / "ijba", n_splits=2)
    vectors, *_ = slow.write_ijbc(tmp_path / "ijbc" / "meta")
    folders = {"ijba": tuple(names), "ijbc": tuple(f"{row + 1}.jpg" for row in range(len(vectors)))}
    for folder, images in folders.items():
        protocols = read_templates(tmp_path / folder, ImageNames(images, "list"))
        assert [one.name for one in protocols] == (["split 1", "split 2"] if folder == "ijba" else ["ijbc"])
        save_templates(tmp_path / "kept.npz", protocols)
        for one, again in zip(protocols, load_templates(tmp_path / "kept.npz"), strict=True):
            for field in dataclasses.fields(one):
                np.testing.assert_array_equal(getattr(again, field.name), getattr(one, field.name))
    with refuses("ijba-splits-missing", folder=tmp_path):
        read_templates(tmp_path, ImageNames(("a.jpg",), "list"))


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_bad_ijba(tmp_path):
    slow.write_ijba(tmp_path, n_splits=2)
    metadata = tmp_path / "split1" / "verify_metadata_1.csv"
    comparisons = tmp_path / "split1" / "verify_comparisons_1.csv"
    text, pairs = metadata.read_text(), comparisons.read_text()

    def refused(code, **fields):
        with refuses(code, **fields):
            read_ijba_split(tmp_path, 1)
        metadata.write_text(text)
        comparisons.write_text(pairs)

    comparisons.write_text(pairs + "1,999\n")
    refused("ijb-template-without-media", file=comparisons, line=67, template=999)
    comparisons.write_text(pairs + pairs.splitlines()[0] + "\n")
    refused("pair-repeated", file=comparisons, lines=(1, 67))
    comparisons.write_text("1;2\n")
    refused("ijba-comparison-wrong", file=comparisons, line=1)
    metadata.write_text(text + text.splitlines()[3] + "\n")
    refused("ijb-lines-repeated", file=metadata, lines=(4, 38))
    metadata.write_text(text.replace("MEDIA_ID", "MEDIUM"))
    refused("ijba-columns-missing", file=metadata, columns=("MEDIA_ID",))
    metadata.write_text(text.splitlines()[0] + "\n")
    refused("ijba-metadata-empty", file=metadata)
    first = text.splitlines()[1].split(",")
    change(metadata, ",".join(first[:2]), f"{first[0]},77")
    refused("ijba-template-two-subjects", file=metadata, template=0, line=2)
    metadata.write_text(text + "1,2\n")
    refused("ijba-fields-differ", file=metadata, line=38, expected=10, found=2)
    with refuses(
        "image-name-unknown",
        name="frame/1.png",
        source="list",
        asked_by=f"{metadata}: line 3",
    ):
        read_ijba_split(tmp_path, 1, ImageNames((text.splitlines()[1].split(",")[2],), "list"))
    (tmp_path / "split2").rename(tmp_path / "split3")
    with refuses("ijba-split-gap", folder=tmp_path, found=(1, 3)):
        ijba_splits(tmp_path)
    with refuses("ijba-splits-missing", folder=tmp_path / "split1"):
        ijba_splits(tmp_path / "split1")


def test_ijbc_pack(tmp_path):
    vectors, templates, media, scores, pairs = slow.write_ijbc(tmp_path / "meta")
    pack = read_ijb_pack(tmp_path, len(vectors))
    assert pack.template_ids[pack.templates].tolist() == templates.tolist()
    assert pack.template_ids[pack.ends].tolist() == [[one, other] for one, other, _ in pairs]
    assert pack.same.tolist() == [bool(same) for _, _, same in pairs]
    assert len(set(pack.media.tolist())) == len(set(media.tolist()))
    np.testing.assert_array_equal(read_detector_scores(tmp_path, pack), scores)
    backwards = ImageNames(tuple(f"{row + 1}.jpg" for row in range(len(vectors)))[::-1], "list")
    assert read_ijb_pack(tmp_path, len(vectors), backwards).images.tolist() == list(range(len(vectors)))[::-1]


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "fields"),
    [
        (
            "template_pair_label",
            "0 1 1\n",
            "0 555 1\n",
            "ijb-template-without-media",
            {"line": 1, "template": 555},
        ),
        ("template_pair_label", "0 1 1\n", "0 1 2\n", "ijb-label-wrong", {"line": 1, "value": 2}),
        ("template_pair_label", "0 10 0\n", "0 1 1\n", "pair-repeated", {}),
        (
            "template_pair_label",
            "0 1 1\n",
            "0 1\n",
            "ijb-columns-wrong",
            {"columns": ("first", "second", "label")},
        ),
        (
            "face_tid_mid",
            "2.jpg 0 900\n",
            "2.jpg x 900\n",
            "ijb-columns-wrong",
            {"columns": ("name", "template", "media")},
        ),
        ("face_tid_mid", "2.jpg 0 900\n", "", "ijb-images-differ", {"expected": 59, "found": 60}),
    ],
)
def test_bad_ijbc(tmp_path, file, old, new, code, fields):
    vectors, *_ = slow.write_ijbc(tmp_path)
    change(tmp_path / f"ijbc_{file}.txt", old, new)
    with refuses(code, **fields):
        read_ijb_pack(tmp_path, len(vectors))


def test_bad_ijbc_media(tmp_path):
    vectors, *_ = slow.write_ijbc(tmp_path)
    names = ImageNames(tuple(f"{row + 1}.jpg" for row in range(len(vectors))), "list")
    change(tmp_path / "ijbc_face_tid_mid.txt", "2.jpg 0 900\n", "3.jpg 0 900\n")
    with refuses("ijb-lines-repeated", file=tmp_path / "ijbc_face_tid_mid.txt", lines=(2, 3)):
        read_ijb_pack(tmp_path, len(vectors), names)
    change(tmp_path / "ijbc_face_tid_mid.txt", "3.jpg 0 900\n", "x.jpg 0 900\n")
    with refuses(
        "image-name-unknown", name="x.jpg", source="list", asked_by=tmp_path / "ijbc_face_tid_mid.txt: line 2"
    ):
        read_ijb_pack(tmp_path, len(vectors), names)
    pack = None
    change(tmp_path / "ijbc_face_tid_mid.txt", "x.jpg 0 900\n", "2.jpg 0 900\n")
    pack = read_ijb_pack(tmp_path, len(vectors), names)
    change(tmp_path / "ijbc_name_5pts_score.txt", "1.jpg 0.5 ", "1.jpg ")
    with refuses("ijb-score-line-wrong", line=1, file=tmp_path / "ijbc_name_5pts_score.txt"):
        read_detector_scores(tmp_path, pack)
    (tmp_path / "ijbb_face_tid_mid.txt").write_text("1.jpg 1 1\n")
    with refuses("ijb-file-missing", folder=tmp_path, pattern="*_face_tid_mid.txt"):
        read_ijb_pack(tmp_path, len(vectors))
