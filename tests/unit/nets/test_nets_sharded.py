"""Is the sharded, sampled classifier a softmax classifier, and does it only touch what it sampled?"""

import numpy as np
import pytest
import torch
from tests.refusals import refuses

from cdp.nets.losses import SoftTargets
from cdp.nets.sharded import PartialSoftmax


def twin_step(weight, velocity, vectors, targets, rate, momentum, decay):
    """Softmax cross-entropy and SGD with momentum by hand, in double precision."""
    logits = vectors @ weight.T
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(len(targets)), targets]).mean()
    chances[np.arange(len(targets)), targets] -= 1
    velocity = momentum * velocity + chances.T @ vectors / len(targets) + decay * weight
    return loss, weight - rate * velocity, velocity


def test_all_classes_on_one_process_is_plain_softmax_and_sgd():
    head = PartialSoftmax(5, 7, seed=1)
    weight, velocity = head.weight.double().numpy().copy(), np.zeros((7, 5))
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        vectors = torch.randn(11, 5, generator=generator)
        targets = torch.randint(0, 7, (11,), generator=generator)
        loss = head(vectors, targets)
        loss.backward()
        head.update(0.3, 0.9, 0.01)
        expected, weight, velocity = twin_step(
            weight, velocity, vectors.double().numpy(), targets.numpy(), 0.3, 0.9, 0.01
        )
        assert loss.item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(head.weight.numpy(), weight, atol=1e-5)


def test_a_sample_holds_every_true_class_and_only_the_sample_learns():
    head = PartialSoftmax(5, 1000, sample=0.02, seed=1)
    before = head.weight.clone()
    targets = torch.tensor([3, 500, 999, 3])
    vectors = torch.randn(4, 5, requires_grad=True)
    loss = head(vectors, targets)
    sampled = head._sampled.clone()
    logits = vectors.detach() @ before[sampled].T
    columns = torch.searchsorted(sampled, targets)
    torch.testing.assert_close(loss.detach(), torch.nn.functional.cross_entropy(logits, columns))
    loss.backward()
    assert vectors.grad.abs().sum() > 0
    head.update(0.1, 0.9, 0.0)
    assert len(sampled) == 20
    assert set(targets.tolist()) <= set(sampled.tolist())
    changed = (head.weight != before).any(dim=1).nonzero()[:, 0]
    assert set(changed.tolist()) <= set(sampled.tolist())
    head(vectors, targets)
    assert not torch.equal(head._sampled, sampled)


def test_initialization_does_not_depend_on_the_number_of_processes():
    from cdp.nets.processes import World

    whole = PartialSoftmax(4, 9001, seed=5).weight
    parts = [PartialSoftmax(4, 9001, seed=5, world=World(rank, 3)).weight for rank in range(3)]
    assert torch.equal(torch.cat(parts), whole)
    assert whole.abs().max() <= (6 / 9005) ** 0.5
    assert len(torch.unique(whole)) > 30_000


def test_what_it_cannot_do_is_said():
    with refuses("sample-out-of-range", value=0):
        PartialSoftmax(4, 10, sample=0)
    with refuses("sampling-with-soft-labels"):
        PartialSoftmax(4, 10)(torch.zeros(1, 4), SoftTargets(*[torch.zeros(1)] * 3, 1))
