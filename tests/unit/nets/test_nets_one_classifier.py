"""One classifier for labeled and pseudo-labeled parts: with true labels it is supervised training on all of them, bit for bit."""

import numpy as np
import torch
from safetensors.torch import load_file
from scipy import sparse
from tests.refusals import refuses

from cdp.data.manifests import merge_manifests
from cdp.nets.joint import PseudoPart, train_joint
from cdp.nets.supervised import train_supervised
from cdp.nets.weights import WEIGHTS, read_network_settings
from cdp.types import Labels


def test_with_true_labels_it_is_the_bound(people, strangers, quick, out):
    labels = Labels.from_array(strangers.classes)
    part = PseudoPart(strangers, labels)
    joint = train_joint(people, [part], "thumb", out / "joint", recipe=quick, one_classifier=True)
    (bound,) = train_supervised(merge_manifests([people, strangers]), ["thumb"], out / "bound", recipe=quick)
    one, other = load_file(joint / WEIGHTS), load_file(bound / WEIGHTS)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_discarded_images_are_left_out_and_siblings_are_moved(people, strangers, quick, out):
    labels = Labels.from_array(np.where(np.arange(40) % 5 == 0, -1, strangers.classes))
    kin = sparse.csr_array(([True, True], ([1, 3], [3, 1])), shape=(5, 5))
    part = PseudoPart(strangers, labels, siblings=kin)
    folder = train_joint(people, [part], "thumb", out, recipe=quick, one_classifier=True)
    (space,) = read_network_settings(folder).spaces.values()
    assert (space.images, space.classes, space.weight) == (48 + 32, 6 + 5, 1.0)
    plain = PseudoPart(strangers, labels)
    without = train_joint(people, [plain], "thumb", out / "plain", recipe=quick, one_classifier=True)
    one, other = load_file(folder / WEIGHTS), load_file(without / WEIGHTS)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_what_it_does_not_go_with(people, strangers, quick, out):
    part = PseudoPart(strangers, Labels.from_array(strangers.classes))
    for given, code, fields in (
        ({"labeled_share": 0.5}, "one-classifier-clashes", {"key": "lambda"}),
        ({"distill": 1.0}, "one-classifier-clashes", {"key": "distill"}),
    ):
        with refuses(code, **fields):
            train_joint(people, [part], "thumb", out, recipe=quick, one_classifier=True, **given)
