"""Do the networks have the paper's sizes, and does every family see small grey and color images?"""

import pytest
import torch
from tests.refusals import refuses

from cdp.nets.embedding import build_network, count_parameters, initialize
from cdp.nets.trunks import find_trunk, load_trunks, network_names, register_trunk

# Paper, Table 1, in millions, at 224 x 224 with 35,012 classes.
TABLE_1 = {
    "nasnet_a_tiny": 20.1,
    "vgg16": 75.6,
    "resnet18": 23.5,
    "resnet34": 33.6,
    "inception_v3": 33.0,
    "resnet50": 36.3,
    "resnet101": 55.3,
    "inception_resnet_v2": 66.1,
    "densenet121": 28.9,
}
SMALL = ["small_resnet", "small_densenet", "small_inception", "small_vgg", "small_nasnet"]


@pytest.mark.parametrize("name", TABLE_1)
def test_parameter_counts_are_those_of_table_1(name):
    count = count_parameters(name, size=224, classes=35_012)
    assert count == pytest.approx(1e6 * TABLE_1[name], rel=0.03)


def test_all_are_listed_the_papers_first():
    assert network_names()[:9] == list(dict.fromkeys(network_names()))[:9]
    assert set(network_names()[:9]) == set(TABLE_1)
    assert set(SMALL) <= set(network_names())


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("channels", "size"), [(1, 32), (3, 48)])
def test_small_relatives_embed_grey_and_color(name, channels, size):
    network = build_network(name, size=size, channels=channels, dimensions=24)
    assert sum(parameter.numel() for parameter in network.parameters()) < 4e6
    vectors = network(torch.randn(2, channels, size, size))
    assert vectors.shape == (2, 24)
    assert torch.isfinite(vectors).all()


def test_tiny_nasnet_runs_and_is_differentiable():
    network = build_network("nasnet_a_tiny", size=64, dimensions=8)
    network(torch.randn(2, 3, 64, 64)).sum().backward()
    silent = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert silent == []


def test_other_trunks_of_timm_can_be_named():
    assert find_trunk("mobilenetv3_small_050").group == "timm"
    network = build_network("mobilenetv3_small_050", size=32, channels=1, dimensions=8)
    assert network.eval()(torch.zeros(1, 1, 32, 32)).shape == (1, 8)


def test_a_transformer_of_timm_is_told_the_size():
    with torch.device("meta"):
        network = build_network("vit_tiny_patch16_224", size=64, dimensions=8, seed=None)
        assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 8)


def test_an_unknown_name_gets_the_nearest():
    with refuses("network-unknown", network="resnet_18"):
        find_trunk("resnet_18")


def test_too_small_images_are_refused_with_the_way_out():
    with refuses("network-images-too-small", network="inception_v3", expected=75, found=64):
        build_network("inception_v3", size=64)


def test_the_decorator_registers_a_trunk_once():
    @register_trunk("mine_for_test", about="mine")
    def mine(channels):
        return torch.nn.Conv2d(channels, 4, 3, 4)

    assert find_trunk("mine_for_test").about == "mine"
    assert build_network("mine_for_test", size=32, dimensions=5)(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    with refuses("trunk-name-taken", name="mine_for_test"):
        register_trunk("mine_for_test")(lambda channels: torch.nn.Identity())
    with refuses("trunk-name-wrong", name="a/b"):
        register_trunk("a/b")


def test_a_trunk_must_give_a_map():
    @register_trunk("flat_for_test")
    def flat(channels):
        return torch.nn.Sequential(torch.nn.Conv2d(channels, 4, 3), torch.nn.Flatten())

    with refuses("network-map-wrong", network="flat_for_test", found=(1, 3600)):
        build_network("flat_for_test", size=32)


def test_a_file_of_trunks_is_run(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import torch\nfrom cdp.nets import register_trunk\n"
        "@register_trunk('from_file')\ndef make(channels):\n    return torch.nn.Conv2d(channels, 2, 1)\n"
    )
    load_trunks(file)
    assert find_trunk("from_file").group == "yours"
    file.write_text("1 / 0")
    with refuses("trunks-file-fails", file=tmp_path / "own.py"):
        load_trunks(file)
    with refuses("trunks-file-unreadable", file=tmp_path / "absent.py"):
        load_trunks(tmp_path / "absent.py")


def test_xavier_is_uniform_within_its_bound_and_seeded():
    layer = torch.nn.Linear(300, 100)
    initialize(layer, 7)
    bound = (6 / 400) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert layer.bias.abs().max() == 0
    other = torch.nn.Linear(300, 100)
    initialize(other, 7)
    assert torch.equal(layer.weight, other.weight)


def test_output_e_is_bn_dropout_fc_bn():
    network = build_network("small_resnet", size=32, output="E")
    kinds = [type(layer).__name__ for layer in network.head]
    assert kinds == ["BatchNorm2d", "Dropout", "Flatten", "Linear", "BatchNorm1d"]
