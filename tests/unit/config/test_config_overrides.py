"""Keys as options of the command line."""

import pytest

from cdp.config.reading import option_of, parse_overrides
from cdp.config.sections import SECTIONS
from cdp.errors import InputError
from cdp.settings import settings_of


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--consensus.max-size 600", {"consensus.max_size": 600}),
        ("--consensus.max_size=600", {"consensus.max_size": 600}),
        ("--max-size 600 --max-size 700", {"consensus.max_size": 700}),
        ("--seed 3", {"seed": 3}),
        ("--joint.epochs 2.5 --train.epochs=3", {"joint.epochs": 2.5, "train.epochs": 3.0}),
        ("--labeled-share -1", {"joint.labeled_share": -1.0}),
        ("--quorum=-1", {"consensus.quorum": -1}),
        ("--split.labeled 1/4", {"split.labeled": 0.25}),
        ("--tune", {"consensus.tune": True}),
        ("--tune --k 3", {"consensus.tune": True, "consensus.k": 3}),
        ("--tune true --k 3", {"consensus.tune": True, "consensus.k": 3}),
        ("--tune=no", {"consensus.tune": False}),
        ("--tune False", {"consensus.tune": False}),
        ("--no-tune", {"consensus.tune": False}),
        ("--no-consensus.tune", {"consensus.tune": False}),
        ("--consensus.no-tune", {"consensus.tune": False}),
        ("--no-train.color", {"train.color": False}),
        ("--networks a,b:1", {"committee.networks": ("a", "b:1")}),
        ("--networks=", {"committee.networks": ()}),
        ("--images a --embeddings b", {"data.images": "a", "data.embeddings": "b"}),
        # [data] wins over the share of the same name.
        ("--labeled a --unlabeled b", {"data.labeled": "a", "data.unlabeled": ("b",)}),
        ("--preset paper --device cuda:1", {"consensus.preset": "paper", "engine.device": "cuda:1"}),
        ("--unlabeled x-{0,1}.tar,y", {"data.unlabeled": ("x-{0,1}.tar", "y")}),
        ("--fpr 0.1,1/1000", {"evaluation.fpr": (0.1, 0.001)}),
        ("--network small_vgg", {"base.network": "small_vgg"}),
        ("--data.images a=b", {"data.images": "a=b"}),
        ("--method exact", {"consensus.method": "exact"}),
        ("", {}),
    ],
)
def test_options_become_values(args, expected):
    found = parse_overrides(args.split())
    assert found == expected
    assert {key: type(value) for key, value in found.items()} == {
        key: type(one) for key, one in expected.items()
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--epochs 3", "--epochs is in [train] and [joint]; write --train.epochs or --joint.epochs."),
        ("--no-flip", "--no-flip is in [train] and [joint]; write --no-train.flip or --no-joint.flip."),
        ("--size 3", "--size is in [train] and [joint]; write --train.size or --joint.size."),
        ("--max-sise 3", "--max-sise is not a key of the recipe. Did you mean --max-size? `cdp recipe new -` shows all keys."),
        ("--qqq 3", "--qqq is not a key of the recipe. `cdp recipe new -` shows all keys."),
        ("--no-k", "--no-k is not a key of the recipe. `cdp recipe new -` shows all keys."),
        (
            "--engine.tread 3",
            "--engine.tread is not a key of the recipe. Did you mean --engine.threads? [engine] has device, threads, "
            "memory_budget, engine, ray_address and checkpoint_every.",
        ),
        (
            "--consenus.k 3",
            "--consenus.k is not a key of the recipe. Did you mean --consensus.k? `cdp recipe new -` shows all keys.",
        ),
        ("--k", "--k: a value is missing; a whole number is needed."),
        ("--k --tune", "--k: a value is missing; a whole number is needed."),
        ("--k 2.5", '--k = "2.5": a whole number is needed.'),
        ("--rate x", "--rate is in [train] and [joint]; write --train.rate or --joint.rate."),
        ("--train.rate x", '--train.rate = "x": a number is needed.'),
        ("--split.labeled 1/0", '--split.labeled = "1/0": a number is needed.'),
        ("--tune=maybe", '--tune = "maybe": true or false is needed.'),
        ("--tune maybe", "maybe: not expected here; a key of the recipe is set by --SECTION.KEY VALUE, e.g. --consensus.k 30."),
        ("600", "600: not expected here; a key of the recipe is set by --SECTION.KEY VALUE, e.g. --consensus.k 30."),
        ("-k 3", "-k: not expected here; a key of the recipe is set by --SECTION.KEY VALUE, e.g. --consensus.k 30."),
        ("--no-tune=true", "--no-tune=true: takes no value; write --no-tune alone."),
        ("--threshold 96", "--threshold = 96: a probability from 0 to 1. Did you mean 0.96?"),
        ("--mediator mpl", '--mediator = "mpl": choose one of trees, mlp, vote, similarity. Did you mean mlp?'),
        ("--inputs affinity,x", '--inputs[1] = "x": choose one of relationship, affinity, distribution, common_neighbors.'),
    ],
)  # fmt: skip
def test_wrong_options_are_named(args, message):
    with pytest.raises(InputError) as caught:
        parse_overrides(args.split())
    assert str(caught.value) == message


def test_every_key_has_an_option():
    for section, kind in SECTIONS.items():
        for name, one in settings_of(kind).items():
            key = f"{section}.{name}"
            text = ",".join(map(str, one.default)) if one.many else str(one.default)
            assert parse_overrides([f"{option_of(key)}={text}"]) == {key: one.default}
