"""Training that starts from given weights: trunks of timm by their names, networks of cdp, and what does not fit."""

import pytest

pytest.importorskip("torch", reason="the networks need the extra nets")

import torch
from safetensors.torch import save_file
from tests.drawn_images import draw_patterns
from tests.refusals import refuses

from cdp.nets.loop import LoopOptions
from cdp.nets.recipe import Recipe
from cdp.nets.supervised import train_supervised
from cdp.nets.weights import build_for, hash_start, load_network, load_start, read_start

QUICK = Recipe(epochs=1, batch=16, size=32, dimensions=8, rate=0)


@pytest.fixture
def published(tmp_path):
    """A trunk as timm publishes one: its own names, and a classifier that has no place here."""
    trunk = build_for("resnet10t", Recipe(size=32, seed=5)).trunk.model
    tensors = {name: one.clone() for name, one in trunk.state_dict().items()} | {
        "fc.weight": torch.ones(10, 512)
    }
    save_file(tensors, str(tmp_path / "published.safetensors"))
    return tmp_path / "published.safetensors"


def test_a_trunk_is_filled_by_timms_names_and_the_head_stays_fresh(published):
    network = build_for("resnet10t", QUICK)
    tensors = read_start(str(published), "resnet10t")
    fresh = load_start(network, tensors, "published")
    assert fresh
    assert all(name.startswith("head.") for name in fresh)
    for name, one in network.trunk.model.state_dict().items():
        assert torch.equal(one, tensors[name])
    with refuses("start-tensor-differs", file="published", tensor="conv1.0.weight", expected=(24, 3, 3, 3)):
        load_start(build_for("resnet10t", QUICK), {"layer1.0.conv1.weight": torch.ones(1)}, "published")


@pytest.mark.slow
def test_training_starts_from_them_and_is_another_run(tmp_path, published):
    people = draw_patterns(tmp_path / "people", n_identities=4, n_images=4, side=32)
    options = LoopOptions(start_from=str(published))
    (folder,) = train_supervised(people, ["resnet10t"], tmp_path / "nets", recipe=QUICK, options=options)
    trained = load_network(folder).network.trunk.model.state_dict()
    # At a rate of zero only the statistics of the batches move.
    for name, one in read_start(str(published), "resnet10t").items():
        if name in trained and not any(word in name for word in ("running", "batches")):
            torch.testing.assert_close(trained[name], one)
    with refuses("network-trained-differently", folder=folder):
        train_supervised(people, ["resnet10t"], tmp_path / "nets", recipe=QUICK)
    # A trained network is a start too, head and all.
    again = build_for("resnet10t", QUICK)
    assert load_start(again, read_start(str(folder), "resnet10t"), str(folder)) == []
    assert hash_start(str(folder), "resnet10t") != hash_start(str(published), "resnet10t")


def test_what_is_no_file_of_weights_is_named(tmp_path):
    with refuses("weights-source-unknown", file=tmp_path / "weights.pt"):
        read_start(str(tmp_path / "weights.pt"), "resnet18")
    with refuses("weights-missing", file=tmp_path / "absent.safetensors"):
        read_start(str(tmp_path / "absent.safetensors"), "resnet18")
