"""Does embedding keep the manifest's rows, go on mid-file, and read back as views? And the ensemble?"""

import json
import shutil

import numpy as np
import pytest
import torch
from tests.refusals import refuses

from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.nets.augment import center_crop
from cdp.nets.ensemble import ensemble
from cdp.nets.extract import extract_views
from cdp.nets.pixels import PixelFormat, decode_pixels
from cdp.nets.supervised import train_supervised
from cdp.nets.weights import load_network
from cdp.runtime.runtime import Runtime
from cdp.types import Views


class StopError(Exception):
    """Stands for the plug being pulled."""


@pytest.fixture(scope="module")
def trained(people, tmp_path_factory):
    from cdp.nets.recipe import Recipe

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    recipe = Recipe(epochs=2, batch=16, rate=0.02, size=16, dimensions=8)
    train_supervised(people, ["thumb", "thumb:1"], folder, recipe=recipe)
    grey = Recipe(epochs=1, batch=16, rate=0.02, size=12, scale=16, dimensions=6, color=False)
    train_supervised(people, ["thumb:2"], folder, recipe=grey)
    return folder


def by_hand(folder, manifest):
    """One image at a time, straight from the definition."""
    network = load_network(folder)
    pixels = decode_pixels(manifest, PixelFormat.of(network.recipe))
    vectors = []
    with torch.inference_mode():
        for image in pixels:
            vector = network.network(center_crop(torch.from_numpy(image[None]), network.recipe.size))[
                0
            ].numpy()
            vectors.append(vector / np.linalg.norm(vector))
    return np.array(vectors)


def test_views_row_by_row(trained, strangers, tmp_path):
    views = extract_views(trained, strangers, tmp_path / "views", base="thumb", batch=16)
    assert views.names == ("base", "thumb-1", "thumb-2")
    assert views.paths == strangers.locations
    np.testing.assert_array_equal(views.identities, strangers.identities)
    np.testing.assert_allclose(views.base.source, by_hand(trained / "thumb", strangers), atol=1e-5)
    np.testing.assert_allclose(
        views.committee["thumb-2"].source, by_hand(trained / "thumb-2", strangers), atol=1e-5
    )
    assert json.loads((tmp_path / "views" / "card.json").read_text())["kind"] == "Views"
    assert not list(tmp_path.glob(".views*"))


def test_flips_are_averaged(trained, people, tmp_path):
    flipped = extract_views(trained, people, tmp_path / "a", base="thumb", members=[], flip=True)
    network = load_network(trained / "thumb")
    images = center_crop(torch.from_numpy(decode_pixels(people, PixelFormat(16))), 16)
    with torch.inference_mode():
        one, two = (
            torch.nn.functional.normalize(network.network(side)) for side in (images, images.flip(-1))
        )
    np.testing.assert_allclose(
        flipped.base.vectors, torch.nn.functional.normalize(one + two).numpy(), atol=1e-5
    )
    assert len(flipped.committee) == 0


@pytest.mark.parametrize("stop_at", [1, 17, 39])
def test_stopped_mid_file_it_goes_on(trained, tmp_path, people, stop_at):
    calls = 0

    def stop(step, done, total):
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise StopError

    def count(step, done, total):
        nonlocal calls
        calls += 1

    whole = extract_views(trained, people, tmp_path / "whole", base="thumb-1", batch=2)
    with pytest.raises(StopError):
        extract_views(
            trained, people, tmp_path / "cut", base="thumb-1", batch=2, runtime=Runtime.of(progress=stop)
        )
    assert not (tmp_path / "cut").exists()
    calls = 0
    again = extract_views(
        trained, people, tmp_path / "cut", base="thumb-1", batch=2, runtime=Runtime.of(progress=count)
    )
    # 24 blocks for each of two forms of the images; flushed every 16 blocks
    assert calls == 48 - {1: 0, 17: 16, 39: 24}[stop_at]
    for one, two in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one.source, two.source)


def test_half_done_work_of_other_settings_is_not_used(trained, tmp_path, people):
    def stop(step, done, total):
        if done >= 40:
            raise StopError

    with pytest.raises(StopError):
        extract_views(
            trained, people, tmp_path / "views", base="thumb", batch=2, runtime=Runtime.of(progress=stop)
        )
    views = extract_views(trained, people, tmp_path / "views", base="thumb", batch=2, flip=True)
    fresh = extract_views(trained, people, tmp_path / "fresh", base="thumb", batch=2, flip=True)
    np.testing.assert_array_equal(views.base.source, fresh.base.source)


def test_wrong_names_and_existing_folders_are_refused(trained, people, tmp_path):
    with refuses("network-not-trained", folder=trained, network="resnet"):
        extract_views(trained, people, tmp_path / "views", base="resnet")
    with refuses("networks-folder-missing", folder=tmp_path / "absent"):
        extract_views(tmp_path / "absent", people, tmp_path / "views", base="thumb")
    (tmp_path / "views").mkdir()
    with refuses("output-exists", OutputExistsError, file=tmp_path / "views"):
        extract_views(trained, people, tmp_path / "views", base="thumb")
    extract_views(trained, people, tmp_path / "views", base="thumb", force=True)


def test_views_are_not_written_through_a_link(trained, people, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "views").symlink_to(tmp_path / "real")
    with refuses("output-is-a-link", file=tmp_path / "views"):
        extract_views(trained, people, tmp_path / "views", base="thumb", force=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["real", "views"]


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"recipe": {"size": "16"}}, StoreError, "card-settings-damaged"),
        ({"recipe": {"size": 2}}, StoreError, "card-settings-damaged"),
        ({"recipe": None}, StoreError, "card-settings-damaged"),
        ({"recipe": {"sorcery": 1}}, InputError, "network-settings-unknown"),
        ({"network": 18}, StoreError, "card-settings-damaged"),
    ],
)
def test_a_network_with_a_damaged_card_is_named(trained, tmp_path, change, error, code):
    folder = shutil.copytree(trained / "thumb", tmp_path / "thumb")
    card = json.loads((folder / "card.json").read_text())
    for key, value in change.items():
        card["settings"][key] = {**card["settings"][key], **value} if isinstance(value, dict) else value
    (folder / "card.json").write_text(json.dumps(card))
    named = {"file": folder / "card.json"} if error is StoreError else {"folder": folder}
    with refuses(code, error, **named):
        load_network(folder)


def test_the_ensembles_similarity_is_the_mean_similarity(small_views):
    joined = ensemble(small_views, ["base", "wide"])
    assert joined.base.dimensions == 64
    vectors = joined.base.vectors
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    base, wide = small_views.base.vectors, small_views.committee["wide"].vectors
    np.testing.assert_allclose(vectors @ vectors.T, (base @ base.T + wide @ wide.T) / 2, atol=1e-5)
    assert isinstance(joined, Views)
    with refuses("ensemble-model-unknown", model="tall"):
        ensemble(small_views, ["base", "tall"])
    with refuses("ensemble-too-few-models"):
        ensemble(small_views, ["base"])
