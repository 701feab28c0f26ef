"""The similarity transform and the crop against slow twins written from their equations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp.faces.alignment import TEMPLATE, crop_face, similarity_transform
from cdp.faces.quality import head_pose, sharpness


def umeyama(source, target):
    """Umeyama 1991, Eq. 40-42, with a singular value decomposition."""
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    a, b = source - source_mean, target - target_mean
    left, values, right = np.linalg.svd(b.T @ a / len(a))
    signs = np.array([1.0, np.sign(np.linalg.det(left) * np.linalg.det(right))])
    rotation = left @ np.diag(signs) @ right
    scale = (values * signs).sum() / (a**2).sum() * len(a)
    return np.column_stack([scale * rotation, target_mean - scale * rotation @ source_mean])


@given(st.integers(0, 10**6))
def test_the_transform_is_umeyamas(seed):
    generator = np.random.default_rng(seed)
    landmarks = generator.uniform(0, 500, (5, 2))
    np.testing.assert_allclose(
        similarity_transform(landmarks), umeyama(landmarks, TEMPLATE), rtol=1e-6, atol=1e-6
    )


@given(st.floats(0, 6.3), st.floats(0.2, 8), st.floats(-200, 900), st.floats(-200, 900))
def test_a_moved_template_is_moved_back(angle, scale, x, y):
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    transform = similarity_transform(TEMPLATE @ turn.T + (x, y))
    np.testing.assert_allclose(
        (TEMPLATE @ turn.T + (x, y)) @ transform[:, :2].T + transform[:, 2], TEMPLATE, atol=1e-6
    )
    assert np.isnan(similarity_transform(np.full((5, 2), 3.0))).all()


def slow_crop(photo, transform, size):
    """Every pixel by itself: where it comes from, and the four pixels around that place; the middle of a pixel is whole."""
    turn = np.linalg.inv(transform[:, :2])
    crop = np.zeros((size, size, 3))
    for row in range(size):
        for column in range(size):
            x, y = turn @ (np.array([column, row]) - transform[:, 2])
            left, top = int(np.floor(x)), int(np.floor(y))
            for down, share_y in ((0, 1 - (y - top)), (1, y - top)):
                for along, share_x in ((0, 1 - (x - left)), (1, x - left)):
                    at_x, at_y = (
                        np.clip(left + along, 0, photo.shape[1] - 1),
                        np.clip(top + down, 0, photo.shape[0] - 1),
                    )
                    crop[row, column] += share_x * share_y * photo[at_y, at_x]
    return crop


def test_the_crop_is_bilinear():
    generator = np.random.default_rng(0)
    photo = generator.integers(0, 256, (60, 70, 3), dtype=np.uint8)
    angle = 0.3
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    transform = np.column_stack([turn * 0.8, [-2.0, -20.0]])
    size = 24
    np.testing.assert_allclose(
        crop_face(photo, transform, size), slow_crop(photo, transform, size), atol=1.01
    )


def test_what_lies_beyond_the_photo_is_black():
    photo = np.full((20, 20, 3), 255, np.uint8)
    crop = crop_face(photo, np.array([[1.0, 0, 10], [0, 1, 10]]), 40)
    assert (crop[11:29, 11:29] == 255).all()
    assert not crop[:9].any()
    assert not crop[:, 31:].any()


def test_large_faces_are_averaged_not_sampled():
    stripes = np.zeros((900, 900, 3), np.uint8)
    stripes[:, ::2] = 255
    crop = crop_face(stripes, np.array([[0.125, 0, 0], [0, 0.125, 0]]), 100)
    assert abs(crop[5:-5, 5:-5].astype(float) - 127.5).max() <= 1


def test_turned_heads_and_blur_have_numbers():
    assert head_pose(TEMPLATE) == pytest.approx(0.006, abs=0.01)
    profile = np.array(TEMPLATE)
    profile[2, 0] = TEMPLATE[1, 0]
    assert head_pose(profile) == pytest.approx(1, abs=0.02)
    assert head_pose(np.ones((5, 2))) == np.inf
    noise = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    soft = (
        noise.astype(float) + np.roll(noise, 1, 0) + np.roll(noise, 1, 1) + np.roll(noise, (1, 1), (0, 1))
    ) / 4
    assert sharpness(noise) > 4 * sharpness(soft.astype(np.uint8))
    assert sharpness(np.full((112, 112, 3), 77, np.uint8)) == pytest.approx(0, abs=1e-9)
