"""Distillation: is it its equation, is it nothing where it is not asked for, and is it resumed?"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.refusals import refuses

from cdp.nets.joint import PseudoPart, train_joint
from cdp.nets.loop import LoopOptions
from cdp.nets.losses import Distillation, teacher_dimensions, teacher_rows
from cdp.nets.weights import WEIGHTS, load_network
from cdp.types import Labels, Views


@pytest.fixture
def teachers() -> Views:
    """Two models' views of 40 images."""
    generator = np.random.default_rng(5)
    return Views(generator.normal(size=(40, 6)), {"other": generator.normal(size=(40, 4))})


def test_the_loss_follows_the_equation(teachers):
    generator = np.random.default_rng(1)
    embeddings = generator.normal(size=(7, 5)).astype(np.float32)
    rows = np.array([3, 1, 39, 0, 0, 12, 5])
    loss = Distillation(5, teacher_dimensions(teachers), seed=2)
    weight = loss.weight.detach().double().numpy()
    expected = 0.0
    for vector, row in zip(embeddings.astype(np.float64), rows, strict=True):
        seen = np.concatenate(
            [model.source[row] / np.linalg.norm(model.source[row]) for model in teachers]
        ) / np.sqrt(2)
        through = weight @ vector
        expected += 1 - through @ seen / np.linalg.norm(through) / np.linalg.norm(seen)
    found = loss(torch.from_numpy(embeddings), teacher_rows(teachers, rows))
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_cosines_of_teachers_are_the_mean_of_the_models_cosines(teachers):
    together = teacher_rows(teachers, np.arange(40)).numpy()
    mean = sum(model.block(0, 40) @ model.block(0, 40).T for model in teachers) / 2
    np.testing.assert_allclose(together @ together.T, mean, atol=1e-5)


def test_a_batch_without_images_has_no_loss_and_a_gradient():
    loss = Distillation(3, 4, seed=0)
    nothing = loss(torch.empty(0, 3), torch.empty(0, 4))
    nothing.backward()
    assert nothing.item() == 0
    assert loss.weight.grad is not None


def parts_of(strangers, teachers) -> tuple[PseudoPart, PseudoPart]:
    labels = np.where(np.arange(40) % 5 == 0, -1, strangers.classes)
    plain = PseudoPart(strangers, Labels.from_array(labels))
    return plain, replace(plain, teachers=teachers)


def weights(folder):
    return load_file(folder / WEIGHTS)


def test_without_a_weight_teachers_change_nothing(people, strangers, quick, out, teachers):
    plain, taught = parts_of(strangers, teachers)
    alone = weights(train_joint(people, [plain], "thumb", out / "alone", recipe=quick))
    unused = weights(train_joint(people, [taught], "thumb", out / "unused", recipe=quick))
    folder = train_joint(people, [taught], "thumb", out / "taught", recipe=quick, distill=2.0)
    assert alone.keys() == unused.keys() == weights(folder).keys()
    assert all(torch.equal(alone[name], unused[name]) for name in alone)
    assert any(not torch.equal(alone[name], value) for name, value in weights(folder).items())
    assert load_network(folder).network.dimensions == quick.dimensions


def test_distillation_is_resumed_and_follows_its_teachers(people, strangers, quick, out, teachers):
    class StopError(Exception):
        pass

    def stop(name: str, done: int, total: int) -> None:
        if name.startswith("train") and done > total / 2:
            raise StopError

    _, taught = parts_of(strangers, teachers)
    often = LoopOptions(checkpoint_every=2, log_every=1)
    whole = train_joint(people, [taught], "thumb", out / "whole", recipe=quick, distill=2.0, options=often)
    stopping = replace(often, progress=stop)
    with pytest.raises(StopError):
        train_joint(people, [taught], "thumb", out, recipe=quick, distill=2.0, options=stopping)
    again = train_joint(people, [taught], "thumb", out, recipe=quick, distill=2.0, options=often)
    one, other = weights(whole), weights(again)
    assert all(torch.equal(one[name], other[name]) for name in one)
    with refuses("network-trained-differently"):
        train_joint(people, [taught], "thumb", out, recipe=quick, distill=3.0)


def test_teachers_must_have_seen_the_same_images(people, strangers, quick, out, teachers):
    labels = Labels.from_array(strangers.classes)
    with refuses("pseudo-rows-differ", what="rows in the teachers' views", expected=40, found=39):
        PseudoPart(strangers, labels, teachers=teachers.take(np.arange(39)))
    with refuses("distill-negative", key="distill", value=-1):
        train_joint(people, [PseudoPart(strangers, labels)], "thumb", out, recipe=quick, distill=-1)
