"""Schedules, augmentation, decoding and the plan of batches: pure functions of seed and step?"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.refusals import refuses

from cdp.nets.augment import augment, center_crop, draw_numbers, to_float
from cdp.nets.label_spaces import LabelSpace, Plan
from cdp.nets.loop import one_cycle_rate, paper_rate
from cdp.nets.pixels import PixelFormat, decode_pixels, stream_pixels
from cdp.nets.processes import World
from cdp.nets.recipe import Recipe
from cdp.types.manifest import Manifest


def test_the_papers_schedule_falls_at_two_and_three_of_three_and_a_half():
    rates = [paper_rate(step, 70, 0.5) for step in range(70)]
    assert rates[:40] == [0.5] * 40
    assert rates[40:60] == [0.05] * 20
    assert rates[60:] == [0.005] * 10


def test_one_cycle_rises_once_and_falls_once():
    rates = np.array([one_cycle_rate(step, 100, 0.4) for step in range(100)])
    assert rates.argmax() == 25
    assert rates.max() == pytest.approx(0.4)
    assert (np.diff(rates[:26]) > 0).all()
    assert (np.diff(rates[25:]) < 0).all()
    assert rates[0] == pytest.approx(0.4 / 25)
    assert rates[-1] == pytest.approx(0.4 / 10_000)
    assert one_cycle_rate(0, 1, 0.4) > 0


@pytest.fixture
def images():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (10, 3, 20, 20), np.uint8))


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(size=16, scale=20, flip=True, shift=0.1),
        Recipe(size=16, scale=20, flip=True, shift=0.1, rotate=20, zoom=0.2),
    ],
    ids=["crop", "warp"],
)
def test_augmentation_changes_an_image_alike_in_any_batch(images, recipe):
    numbers = draw_numbers(5, 10)
    whole = augment(images, numbers, recipe)
    assert whole.shape == (10, 3, 16, 16)
    assert whole.abs().max() <= 1
    torch.testing.assert_close(augment(images[1::3], numbers[1::3], recipe), whole[1::3])
    before = images.clone()
    augment(images, numbers, recipe)
    assert torch.equal(images, before)


def test_without_augmentation_an_image_stays_as_it_is(images):
    recipe = Recipe(size=20)
    assert torch.equal(augment(images, draw_numbers(0, 10), recipe), to_float(images))
    assert torch.equal(center_crop(images, 20), to_float(images))
    assert torch.equal(center_crop(images, 16), to_float(images[..., 2:18, 2:18]))


@pytest.mark.parametrize("kind", [{}, {"rotate": 1e-9}], ids=["crop", "warp"])
def test_mirrored_images_are_exactly_mirrored(images, kind):
    numbers = np.full((10, 5), 0.5)
    numbers[:, 0] = np.repeat([0.1, 0.9], 5)
    changed = augment(images, numbers, Recipe(size=20, flip=True, **kind))
    torch.testing.assert_close(changed[:5], to_float(images[:5].flip(-1)), atol=1e-5, rtol=0)
    torch.testing.assert_close(changed[5:], to_float(images[5:]), atol=1e-5, rtol=0)


def test_decoding_to_memory_and_to_disk_agree(people, tmp_path):
    pixel_format = PixelFormat(16)
    in_memory = decode_pixels(people, pixel_format, threads=1)
    kept = decode_pixels(people, pixel_format, folder=tmp_path / "pixels", memory_budget=0, threads=2)
    assert isinstance(kept, np.memmap)
    assert in_memory.shape == (48, 3, 16, 16)
    np.testing.assert_array_equal(in_memory, kept)
    again = decode_pixels(people, pixel_format, folder=tmp_path / "pixels", memory_budget=0)
    np.testing.assert_array_equal(in_memory, again)
    assert not list((tmp_path / "pixels").glob(".*.partial*"))
    grey = decode_pixels(people, PixelFormat(16, color=False))
    assert grey.shape == (48, 1, 16, 16)


def test_streaming_keeps_the_order(people):
    blocks = list(stream_pixels(people, PixelFormat(16), [(8, 16), (16, 40)], 2))
    assert [start for start, _ in blocks] == [8, 16]
    np.testing.assert_array_equal(
        np.concatenate([block for _, block in blocks]), decode_pixels(people, PixelFormat(16))[8:40]
    )


def test_an_image_smaller_than_the_crop_is_enlarged(people):
    """It used to be refused, after minutes of training where it was an unlabeled one."""
    assert decode_pixels(people, PixelFormat.of(Recipe(size=24))).shape[-1] == 24


def test_an_unreadable_image_stops_with_its_path_and_row(people, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    broken = Manifest((*people.locations[:3], str(tmp_path / "broken.png")), [0, 0, 0, 0], None, people.root)
    with refuses("image-undecodable", row=3, file=tmp_path / "broken.png"):
        decode_pixels(broken, PixelFormat.of(Recipe(size=16)))


def make_space(name, n_images, weight=1.0):
    pixels = np.zeros((n_images, 1, 8, 8), np.uint8)
    return LabelSpace(name, pixels, np.arange(n_images), np.arange(n_images) % 3, 3, weight)


@pytest.mark.parametrize("sizes", [(50,), (50, 333), (1000, 7, 31)])
def test_an_epoch_sees_every_image_once_and_no_batch_is_a_leftover(sizes):
    plan = Plan([make_space(str(size), size) for size in sizes], Recipe(batch=64, epochs=2), World())
    for epoch in range(2):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        for index, size in enumerate(sizes):
            seen = np.concatenate([plan.positions(index, step) for step in steps])
            assert sorted(seen) == list(range(size))
        totals = [sum(len(plan.positions(index, step)) for index in range(len(sizes))) for step in steps]
        assert max(totals) - min(totals) <= len(sizes)
        assert max(totals) <= 64 + len(sizes)
    assert not np.array_equal(plan.order(0, 0), plan.order(0, 1))


def test_processes_share_every_batch_without_overlap():
    space, recipe = make_space("all", 101), Recipe(batch=20, size=8, color=False)
    alone = Plan([space], recipe, World())
    pair = [Plan([space], recipe, World(rank, 2)) for rank in range(2)]
    for step in range(alone.steps_per_epoch):
        shared = [plan.gather(step)[0][0] for plan in pair]
        assert sorted(np.concatenate(shared)) == sorted(alone.positions(0, step))


@pytest.mark.parametrize(
    ("wrong", "code", "fields"),
    [
        ({"epochs": 0}, "setting-out-of-range", {"key": "epochs", "value": 0}),
        ({"rate": -1}, "setting-out-of-range", {"key": "rate", "value": -1}),
        ({"schedule": "cosine"}, "setting-choice-unknown", {"key": "schedule", "value": "cosine"}),
        ({"size": 4}, "setting-out-of-range", {"key": "size", "value": 4}),
        ({"size": 32, "scale": 28}, "scale-below-size", {"scale": 28, "size": 32}),
        ({"loss": "arcface", "sample_classes": 0.1}, "sampling-needs-softmax", {}),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(wrong, code, fields):
    with refuses(code, **fields):
        replace(Recipe(), **wrong)
