"""Are the losses what their equations say? Each is compared with a twin written from its paper."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse
from tests.refusals import refuses

from cdp.nets.losses import ArcFace, CosFace, Softmax, SoftTargets


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(9, 6, generator=generator), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 2])


def by_hand(logits, target):
    """-log of the softmax of the true class, in double precision, one image at a time."""
    losses = []
    for row, true in zip(np.asarray(logits, np.float64), target, strict=True):
        losses.append(math.log(sum(math.exp(value - row.max()) for value in row)) + row.max() - row[true])
    return np.array(losses)


def cosines(vectors, weights):
    vectors, weights = vectors.double().numpy(), weights.detach().double().numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ (weights / np.linalg.norm(weights, axis=1, keepdims=True)).T


def test_softmax(batch):
    vectors, targets = batch
    head = Softmax(6, 5)
    logits = (vectors @ head.weight.T + head.bias).detach()
    expected = by_hand(logits, targets)
    assert head(vectors, targets).item() == pytest.approx(expected.mean(), rel=1e-5)
    assert head(vectors, targets, reduction="sum").item() == pytest.approx(expected.sum(), rel=1e-5)


def test_arcface(batch):
    vectors, targets = batch
    head = ArcFace(6, 5, margin=0.5, scale=20)
    # One image far on the other side of its class: theta + m passes pi.
    vectors = vectors.clone()
    vectors[0] = -head.weight[targets[0]].detach() + 0.01 * vectors[0]
    logits = cosines(vectors, head.weight)
    for row, true in enumerate(targets):
        theta = math.acos(logits[row, true])
        past = theta + 0.5 > math.pi
        logits[row, true] = math.cos(theta) - 0.5 * math.sin(0.5) if past else math.cos(theta + 0.5)
    expected = by_hand(20 * logits, targets)
    assert head(vectors, targets, reduction="sum").item() == pytest.approx(expected.sum(), rel=1e-4)


def test_cosface(batch):
    vectors, targets = batch
    head = CosFace(6, 5, margin=0.35, scale=20)
    logits = cosines(vectors, head.weight)
    logits[np.arange(9), targets] -= 0.35
    assert head(vectors, targets).item() == pytest.approx(by_hand(20 * logits, targets).mean(), rel=1e-5)


def test_a_margin_of_zero_is_softmax_on_cosines(batch):
    vectors, targets = batch
    torch.manual_seed(1)
    arc = ArcFace(6, 5, margin=0.0, scale=10)
    expected = by_hand(10 * cosines(vectors, arc.weight), targets)
    assert arc(vectors, targets).item() == pytest.approx(expected.mean(), rel=1e-4)


def test_gradients_stay_finite_where_an_image_lies_on_its_class():
    head = ArcFace(4, 3)
    vectors = head.weight.detach().clone().requires_grad_()
    head(vectors, torch.arange(3)).backward()
    assert torch.isfinite(vectors.grad).all()
    assert torch.isfinite(head.weight.grad).all()


def test_soft_targets_that_are_one_hot_are_plain_targets(batch):
    vectors, targets = batch
    head = Softmax(6, 5)
    soft = SoftTargets(torch.arange(9), targets, torch.ones(9), 9)
    torch.testing.assert_close(head(vectors, soft), head(vectors, targets))


def test_soft_targets_follow_the_equation(batch):
    vectors, _ = batch
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.ones(5), 9)
    rows, columns = np.nonzero(shares > 0)
    soft = SoftTargets(
        torch.from_numpy(rows), torch.from_numpy(columns), torch.from_numpy(shares[rows, columns]).float(), 9
    )
    head = Softmax(6, 5)
    chances = torch.log_softmax((vectors @ head.weight.T + head.bias).detach().double(), 1).numpy()
    assert head(vectors, soft, reduction="sum").item() == pytest.approx(-(shares * chances).sum(), rel=1e-5)


@pytest.mark.parametrize("loss", [Softmax, CosFace])
def test_siblings_are_left_out_of_the_softmax(batch, loss):
    vectors, targets = batch
    torch.manual_seed(3)
    classifier = loss(6, 5)
    plain = classifier(vectors, targets)
    kin = {0: [1], 1: [0, 3], 3: [1], 2: [], 4: []}
    matrix = np.zeros((5, 5), bool)
    for one, others in kin.items():
        matrix[one, others] = True
    classifier.set_siblings(sparse.csr_array(matrix))
    if loss is Softmax:
        logits = (vectors @ classifier.weight.T + classifier.bias).detach().double().numpy()
    else:
        logits = cosines(vectors, classifier.weight)
        logits[np.arange(9), targets] -= classifier.margin
        logits *= classifier.scale
    expected = [
        by_hand(np.delete(row, kin[true])[None], [true - sum(other < true for other in kin[true])])[0]
        for row, true in zip(logits, targets.tolist(), strict=True)
    ]
    found = classifier(vectors, targets)
    assert found.item() == pytest.approx(np.mean(expected), rel=1e-4)
    assert found < plain
    found.backward()
    assert torch.isfinite(classifier.weight.grad).all()
    classifier.set_siblings(sparse.csr_array((5, 5), dtype=bool))
    assert classifier(vectors, targets).item() == pytest.approx(plain.item())
    assert "siblings" not in classifier.state_dict()


def test_label_smoothing_is_off_by_default_and_the_same_for_soft_targets(batch):
    vectors, targets = batch
    torch.manual_seed(2)
    head = Softmax(6, 5, label_smoothing=0.1)
    soft = SoftTargets(torch.arange(9), targets, torch.ones(9), 9)
    torch.testing.assert_close(head(vectors, soft), head(vectors, targets))
    assert Softmax(6, 5).label_smoothing == 0


def test_they_work_in_somebody_elses_loop(batch):
    vectors, targets = batch
    for head in (Softmax(6, 5), ArcFace(6, 5, scale=8), CosFace(6, 5, scale=8)):
        optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
        first = head(vectors, targets).item()
        for _ in range(30):
            optimizer.zero_grad()
            loss = head(vectors, targets)
            loss.backward()
            optimizer.step()
        assert loss.item() < first


def test_what_makes_no_sense_is_refused(batch):
    vectors, targets = batch
    with refuses("classes-too-few", found=1):
        Softmax(6, 1)
    with refuses("margin-out-of-range", loss="ArcFace", value=28.6):
        ArcFace(6, 5, margin=28.6)
    with refuses("margin-out-of-range", loss="CosFace", value=1.2):
        CosFace(6, 5, margin=1.2)
    with refuses("scale-out-of-range", loss="CosFace", value=0):
        CosFace(6, 5, scale=0)
    with refuses("margin-with-soft-labels", loss="ArcFace"):
        ArcFace(6, 5)(vectors, SoftTargets(torch.arange(9), targets, torch.ones(9), 9))


@pytest.mark.parametrize(
    ("ours", "name", "margins"),
    [(ArcFace, "ArcFaceLoss", (0.5, math.degrees(0.5))), (CosFace, "CosFaceLoss", (0.35, 0.35))],
    ids=["arcface", "cosface"],
)
def test_they_agree_with_pytorch_metric_learning(batch, ours, name, margins):
    losses = pytest.importorskip(
        "pytorch_metric_learning.losses", reason="an oracle that need not be installed"
    )
    vectors, targets = batch
    head = ours(6, 5, margin=margins[0], scale=20)
    oracle = getattr(losses, name)(5, 6, margin=margins[1], scale=20)
    with torch.no_grad():
        oracle.W.copy_(head.weight.T)
    torch.testing.assert_close(head(vectors, targets), oracle(vectors, targets), rtol=1e-4, atol=1e-5)
