import json
import struct

import numpy as np
import pytest
from tests.refusals import refuses

import recognition_reference as slow
from cdp.data.megaface import (
    is_noisy,
    read_distractor_list,
    read_feature,
    read_features,
    read_noise_list,
    read_probe_list,
    write_features,
)
from cdp.types import Embeddings


def test_lists_and_features_of_a_devkit_tree(tmp_path):
    probes, identities, distractors, paths, others = slow.write_megaface(tmp_path)
    listed = read_probe_list(tmp_path / "lists" / "facescrub.json")
    assert listed.paths == tuple(paths)
    assert listed.identities == tuple(f"Ann_{who}" for who in identities)
    assert read_distractor_list(tmp_path / "lists" / "megaface.json_10_1") == tuple(others[:10])
    np.testing.assert_array_equal(read_features(tmp_path / "facescrub", paths, "_net.bin").source, probes)
    np.testing.assert_array_equal(
        read_features(tmp_path / "megaface", others, "_net.bin").source, distractors
    )


def test_written_features_are_the_devkits_byte_for_byte(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float64)
    paths = ["a/1.png", "a/2.png", "b c/3.png"]
    write_features(tmp_path, paths, Embeddings(vectors), "_x.bin")
    for path, vector in zip(paths, vectors, strict=True):
        expected = struct.pack("<4i5f", 5, 1, 4, 5, *vector)
        assert (tmp_path / f"{path}_x.bin").read_bytes() == expected
    np.testing.assert_array_equal(read_features(tmp_path, paths, "_x.bin").source, vectors.astype(np.float32))
    with refuses("features-paths-differ", folder=tmp_path, expected=3, found=1):
        write_features(tmp_path, paths[:1], Embeddings(vectors))


def test_noise_lists(tmp_path):
    file = tmp_path / "noise.txt"
    file.write_text("# comment\nAnn_0_3.png\n\n17\t3/17@N00/17.jpg\r\n  # more\n")
    noise = read_noise_list(file)
    assert noise == {"Ann_0_3.png", "3/17@N00/17.jpg"}
    paths = ["Ann_0/Ann_0_3.png", "Ann_0/Ann_0_33.png", "set/3/17@N00/17.jpg", "4/17@N00/17.jpg"]
    assert is_noisy(paths, noise).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("content", "code", "fields"),
    [
        (b"\x01\x00", "feature-too-short", {"found": 2}),
        (struct.pack("<4i2f", 2, 2, 4, 5, 0, 0), "feature-header-wrong", {"found": (2, 2, 4, 5)}),
        (struct.pack("<4i2f", 3, 1, 4, 5, 0, 0), "feature-size-wrong", {"expected": 28, "found": 24}),
        (struct.pack("<4i", 0, 1, 4, 5), "feature-header-wrong", {"found": (0, 1, 4, 5)}),
    ],
)
def test_damaged_feature_files(tmp_path, content, code, fields):
    file = tmp_path / "x.bin"
    file.write_bytes(content)
    with refuses(code, **fields):
        read_feature(file)


def test_missing_and_unlike_features(tmp_path):
    slow.write_feature(tmp_path / "a.png_net.bin", [1, 2])
    slow.write_feature(tmp_path / "b.png_net.bin", [1, 2, 3])
    slow.write_feature(tmp_path / "z.png_net.bin", [0, 0])
    with refuses("feature-missing", file=tmp_path / "a.png_other.bin"):
        read_features(tmp_path, ["a.png"], "_other.bin")
    with refuses("feature-missing", file=tmp_path / "c.png_net.bin"):
        read_features(tmp_path, ["a.png", "c.png"], "_net.bin")
    with refuses("feature-dimensions-differ", file=tmp_path / "b.png_net.bin", expected=2, found=3):
        read_features(tmp_path, ["a.png", "b.png"], "_net.bin")
    with refuses("embeddings-zero-length", folder=tmp_path, row=1, count=1):
        read_features(tmp_path, ["a.png", "z.png"], "_net.bin")
    with refuses("features-folder-missing", folder=tmp_path / "nowhere"):
        read_features(tmp_path / "nowhere", ["a.png"])


@pytest.mark.parametrize(
    ("content", "code", "fields"),
    [
        ('{"path": ["a", "b", "a"], "id": ["x", "x", "y"]}', "image-name-repeated", {"names": ("a",)}),
        ('{"path": ["a"], "id": ["x", "y"]}', "megaface-ids-differ", {"expected": 1, "found": 2}),
        ('{"path": ["a"]}', "megaface-list-missing", {"key": "id"}),
        ('["a"]', "megaface-list-missing", {"key": "path"}),
        ('{"path": ["a"', "megaface-not-json", {}),
        ('{"path": [["a"]], "id": ["x"]}', "megaface-list-not-names", {"key": "path"}),
    ],
)
def test_bad_probe_lists(tmp_path, content, code, fields):
    file = tmp_path / "probes.json"
    file.write_text(content)
    with refuses(code, **fields):
        read_probe_list(file)


def test_numbers_may_be_identities(tmp_path):
    file = tmp_path / "probes.json"
    file.write_text(json.dumps({"path": ["a", "b"], "id": [3, 3]}))
    assert read_probe_list(file).identities == ("3", "3")
