"""Is batch normalization over processes that of torch, and does it fit timm's networks?"""

import pytest
import torch
from torch import distributed, nn

from cdp.nets.embedding import build_network
from cdp.nets.processes import SharedBatchNorm, World, joined_world, share_batch_norm


@pytest.fixture
def group_of_one(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("shape", [(12, 5), (6, 5, 3, 4)], ids=["vectors", "maps"])
def test_it_normalizes_like_torch(group_of_one, shape):
    torch.manual_seed(0)
    plain = nn.BatchNorm1d(5) if len(shape) == 2 else nn.BatchNorm2d(5)
    nn.init.uniform_(plain.weight)
    twin = nn.BatchNorm1d(5) if len(shape) == 2 else nn.BatchNorm2d(5)
    twin.load_state_dict(plain.state_dict())
    shared = SharedBatchNorm(twin)
    for _ in range(3):
        values = (3 + 2 * torch.randn(shape)).requires_grad_()
        copy = values.detach().clone().requires_grad_()
        weights = torch.randn(shape)
        (plain(values) * weights).sum().backward()
        (shared(copy) * weights).sum().backward()
        torch.testing.assert_close(copy.grad, values.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.weight.grad, plain.weight.grad, rtol=1e-4, atol=1e-4)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(shared.state_dict()[name], tensor)
    values = torch.randn(shape)
    torch.testing.assert_close(shared.eval()(values), plain.eval()(values))


@pytest.mark.parametrize("name", ["densenet121", "small_nasnet"])
def test_names_and_activations_survive_the_exchange(group_of_one, name):
    network = build_network(name, size=32, dimensions=8)
    images = torch.randn(4, 3, 32, 32)
    before, names = network.train()(images), set(network.state_dict())
    shared = share_batch_norm(build_network(name, size=32, dimensions=8), World(0, 2)).train()
    assert set(shared.state_dict()) == names
    assert not any(isinstance(part, nn.BatchNorm2d) for part in shared.modules())
    torch.testing.assert_close(shared(images), before, rtol=1e-3, atol=1e-3)


def test_alone_nothing_is_opened(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined_world() as world:
        assert (world.rank, world.n_processes, world.is_first, world.is_shared) == (0, 1, True, False)
    assert not distributed.is_initialized()
