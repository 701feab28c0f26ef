"""Does the device that was asked for reach models, batches, losses, checkpoints and embedding?

No GPU is at hand: the device `meta` stands for one. It computes shapes only, so a run on it ends with its first copy
back to the CPU; until then everything must be on it.
"""

import json

import numpy as np
import pytest
import torch
from scipy import sparse
from tests.refusals import refuses

from cdp.nets import extract, loop, processes
from cdp.nets.extract import extract_views
from cdp.nets.joint import PseudoPart, train_joint
from cdp.nets.loop import LoopOptions
from cdp.nets.losses import LOSSES, SoftTargets
from cdp.nets.processes import joined_world
from cdp.nets.recipe import Recipe
from cdp.nets.supervised import train_supervised
from cdp.nets.trunks import register_trunk
from cdp.runtime import devices
from cdp.runtime.runtime import Runtime
from cdp.types import Labels

META = torch.device("meta")


class StopError(Exception):
    """Stands for a kill."""


@pytest.fixture
def seen(monkeypatch):
    """Where every tensor was that a trunk or a loss computed with."""
    devices = []

    class Spy(torch.nn.Conv2d):
        def forward(self, images):
            devices.extend([images.device, self.weight.device])
            return super().forward(images)

    @register_trunk("spy", least_size=8)
    def spy(channels):
        return Spy(channels, 4, 3, 4, bias=False)

    for loss in LOSSES.values():
        forward = loss.forward

        def record(self, embeddings, targets, reduction="mean", forward=forward):
            values = targets.values if isinstance(targets, SoftTargets) else targets
            devices.extend([embeddings.device, values.device, self.weight.device])
            return forward(self, embeddings, targets, reduction)

        monkeypatch.setattr(loss, "forward", record)
    return devices


@pytest.mark.parametrize(
    "settings", [{}, {"rotate": 5.0}, {"loss": "arcface"}, {"sample_classes": 0.5}], ids=str
)
def test_training_is_on_the_device(people, out, seen, settings, monkeypatch):
    recipe = Recipe(epochs=1, batch=16, size=16, dimensions=6, flip=True, shift=0.1, **settings)
    steps = []
    real = loop.train_step

    def spy(model, objective, optimizer, batch, rate, recipe):
        steps.append({batch.images.device, *(tensor.device for tensor in objective.state_dict().values())})
        del seen[:]
        return real(model, objective, optimizer, batch, rate, recipe)

    monkeypatch.setattr(loop, "train_step", spy)
    # A sampled classifier asks which classes are in the batch, and `meta` does not know.
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        train_supervised(people, ["spy"], out, recipe=recipe, device="meta")
    assert steps[0] == {META}
    assert set(seen) == {META}


@pytest.mark.parametrize("is_soft", [False, True])
def test_joint_training_is_on_the_device(people, strangers, out, seen, is_soft):
    soft = sparse.csr_array(np.eye(5)[strangers.classes]) if is_soft else None
    part = PseudoPart(strangers, Labels.from_array(strangers.classes), soft)
    with pytest.raises(NotImplementedError, match="meta"):
        train_joint(people, [part], "spy", out, recipe=Recipe(epochs=1, batch=16, size=16), device="meta")
    assert seen[-8:] == [META] * 8  # the trunk once, two classifiers


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter.*")
def test_a_checkpoint_is_continued_on_another_device(people, out, seen, monkeypatch):
    recipe = Recipe(epochs=2, batch=16, size=16, dimensions=6)

    def stop(step, done, total):
        if step.startswith("train") and done > 60:
            raise StopError

    options = LoopOptions(checkpoint_every=1, log_every=1, progress=stop)
    with pytest.raises(StopError):
        train_supervised(people, ["spy"], out, recipe=recipe, device="cpu", options=options)
    found = []

    def record(model, objective, optimizer, batch, rate, recipe):
        found.append((batch.step, {state["momentum_buffer"].device for state in optimizer.state.values()}))
        raise StopError

    monkeypatch.setattr(loop, "train_step", record)
    with pytest.raises(StopError):
        train_supervised(people, ["spy"], out, recipe=recipe, device="meta")
    assert found == [(3, {META})]


def test_embedding_is_on_the_device(people, out, seen):
    train_supervised(people, ["spy"], out, recipe=Recipe(epochs=1, batch=16, size=16), device="cpu")
    del seen[:]
    with pytest.raises(NotImplementedError, match="meta"):
        extract_views(out, people, out / "views", base="spy", runtime=Runtime.of(device="meta"))
    assert seen[-2:] == [META, META]


def test_every_function_asks_for_the_device_it_was_given(people, strangers, out, monkeypatch):
    asked = []

    def resolve(name):
        asked.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(processes, "resolve_device", resolve)
    monkeypatch.setattr(extract, "resolve_device", resolve)
    recipe = Recipe(epochs=1, batch=16, size=16)
    (folder,) = train_supervised(people, ["thumb"], out, recipe=recipe, device="cuda:1")
    part = PseudoPart(strangers, Labels.from_array(strangers.classes))
    train_joint(people, [part], "thumb", out / "joint", recipe=recipe, device="cuda:2")
    extract_views(out, people, out / "views", base="thumb", members=[], runtime=Runtime.of(device="cuda:3"))
    assert asked == ["cuda:1", "cuda:2", "cuda:3"]
    # What ran is on the cards, and a network is the same run whatever computed it.
    for card in (folder, out / "joint" / "thumb", out / "views"):
        assert json.loads((card / "card.json").read_text())["settings"]["device"] == "cpu"
    written = (folder / "weights.safetensors").stat().st_mtime_ns
    train_supervised(people, ["thumb"], out, recipe=recipe, device="mps")
    assert (folder / "weights.safetensors").stat().st_mtime_ns == written


def test_an_absent_device_is_one_sentence(people, out, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for compute in (
        lambda: train_supervised(people, ["thumb"], out, device="cuda:7"),
        lambda: train_joint(people, [], "thumb", out, device="cuda:7"),
    ):
        with refuses("device-unknown", device="cuda:7"):
            compute()


@pytest.mark.parametrize(
    ("name", "n_gpus", "expected"),
    [
        ("auto", 2, "cuda:1"),
        ("cuda", 2, "cuda:1"),
        ("cpu", 2, "cpu"),
        ("auto", 0, "cpu"),
        ("cuda:0", 2, "device-shared"),
        ("cuda", 1, "device-unknown"),
    ],
)
def test_each_of_several_processes_has_a_device_of_its_own(monkeypatch, name, n_gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    opened = []
    monkeypatch.setattr(processes.distributed, "init_process_group", opened.append)
    monkeypatch.setattr(processes.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(processes.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    if expected.startswith("device-"):
        with refuses(expected), joined_world(name):
            pass
        return
    with joined_world(name) as world:
        assert (world.rank, world.n_processes, str(world.device)) == (1, 2, expected)
    assert opened == ["nccl" if "cuda" in expected else "gloo"]


def test_gpus_are_counted_only_where_torch_may_have_some(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for may_have, expected in ((False, 0), (True, 3)):
        monkeypatch.setattr(devices, "_may_have_gpu", lambda there=may_have: there)
        assert devices.count_gpus() == expected
