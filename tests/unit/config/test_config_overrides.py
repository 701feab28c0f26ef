"""Keys as options of the command line."""

import pytest
from tests.refusals import refuses

from cdp.config.reading import option_of, parse_overrides
from cdp.config.sections import SECTIONS
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
    ("args", "code", "fields"),
    [
        ("--epochs 3", "recipe-option-ambiguous", {"option": "--epochs", "keys": ('train.epochs', 'joint.epochs')}),
        ("--no-flip", "recipe-option-ambiguous", {"option": "--no-flip", "keys": ('train.flip', 'joint.flip')}),
        ("--size 3", "recipe-option-ambiguous", {"option": "--size", "keys": ('train.size', 'joint.size')}),
        ("--max-sise 3", "recipe-option-unknown", {"option": "--max-sise"}),
        ("--qqq 3", "recipe-option-unknown", {"option": "--qqq"}),
        ("--no-k", "recipe-option-unknown", {"option": "--no-k"}),
        (
            "--engine.tread 3",
            "recipe-option-unknown", {"option": "--engine.tread"},
        ),
        (
            "--consenus.k 3",
            "recipe-option-unknown", {"option": "--consenus.k"},
        ),
        ("--k", "recipe-option-value-missing", {"option": "--k"}),
        ("--k --tune", "recipe-option-value-missing", {"option": "--k"}),
        ("--k 2.5", "recipe-option-value-wrong", {"option": "--k", "value": "2.5"}),
        ("--rate x", "recipe-option-ambiguous", {"option": "--rate", "keys": ('train.rate', 'joint.rate')}),
        ("--train.rate x", "recipe-option-value-wrong", {"option": "--train.rate", "value": "x"}),
        ("--split.labeled 1/0", "recipe-option-value-wrong", {"option": "--split.labeled", "value": "1/0"}),
        ("--tune=maybe", "recipe-option-value-wrong", {"option": "--tune", "value": "maybe"}),
        ("--tune maybe", "recipe-argument-unexpected", {"option": "maybe", "value": ""}),
        ("600", "recipe-argument-unexpected", {"option": "600", "value": ""}),
        ("-k 3", "recipe-argument-unexpected", {"option": "-k", "value": ""}),
        ("--no-tune=true", "recipe-option-takes-no-value", {"option": "--no-tune", "value": "true"}),
        ("--threshold 96", "setting-out-of-range", {"key": "--threshold", "value": 96.0}),
        ("--mediator mpl", "setting-choice-unknown", {"key": "--mediator", "value": "mpl"}),
        ("--inputs affinity,x", "setting-choice-unknown", {"key": "--inputs[1]", "value": "x"}),
    ],
)  # fmt: skip
def test_wrong_options_are_named(args, code, fields):
    with refuses(code, **fields):
        parse_overrides(args.split())


def test_every_key_has_an_option():
    for section, kind in SECTIONS.items():
        for name, one in settings_of(kind).items():
            key = f"{section}.{name}"
            text = ",".join(map(str, one.default)) if one.many else str(one.default)
            assert parse_overrides([f"{option_of(key)}={text}"]) == {key: one.default}
