"""Keys as options of the command line."""

import pytest
from tests.recipe_words import RefusedError, overrides_of

from cdp.config.keys import option_of
from cdp.config.sections import SECTIONS
from cdp.settings import settings_of


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--consensus.max-cluster-size 600", {"consensus.max_cluster_size": 600}),
        ("--max-cluster-size 600 --max-cluster-size 700", {"consensus.max_cluster_size": 700}),
        ("--seed 3", {"seed": 3}),
        ("--joint.epochs 2.5 --train.epochs=3", {"joint.epochs": 2.5, "train.epochs": 3.0}),
        # What both trainings have is set for both, unless one of them is named.
        ("--epochs 3", {"train.epochs": 3.0, "joint.epochs": 3.0}),
        ("--size 64 --joint.size 32", {"train.size": 64, "joint.size": 32}),
        ("--no-flip", {"train.flip": False, "joint.flip": False}),
        ("--labeled-share=-1", {"joint.labeled_share": -1.0}),
        ("--min-votes=all", {"consensus.min_votes": None}),
        ("--split.labeled 1/4", {"split.labeled": 0.25}),
        ("--threshold auto", {"consensus.threshold": None}),
        ("--disjoint --k 3", {"consensus.disjoint": True, "consensus.k": 3}),
        ("--threshold 0.3", {"consensus.threshold": 0.3}),
        ("--no-consensus.disjoint", {"consensus.disjoint": False}),
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
    found = overrides_of(args.split())
    assert found == expected
    assert {key: type(value) for key, value in found.items()} == {
        key: type(one) for key, one in expected.items()
    }


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ("--validation.x 3", "No such option: --validation.x."),
        ("--epochs x", "[recipe-option-value-wrong]"),
        ("--max-cluster-sise 3", "--max-cluster-size"),
        ("--qqq 3", "No such option: --qqq."),
        ("--no-k", "No such option: --no-k."),
        ("--engine.tread 3", "--engine.threads"),
        ("--consenus.k 3", "--consensus.k"),
        ("--k", "--k"),
        ("--k 2.5", "[recipe-option-value-wrong]"),
        ("--train.rate x", "[recipe-option-value-wrong]"),
        ("--split.labeled 1/0", "[recipe-option-value-wrong]"),
        ("--disjoint maybe", "maybe"),
        ("600", "600"),
        ("--threshold 101", "[setting-out-of-range]"),
        ("--threshold best", "[recipe-option-value-wrong]"),
        ("--min-votes none", "a whole number or all is needed"),
        ("--mediator mpl", "[setting-choice-unknown]"),
        ("--inputs affinity,x", "[setting-choice-unknown]"),
    ],
)
def test_wrong_options_are_named(args, answer):
    with pytest.raises(RefusedError) as caught:
        overrides_of(args.split())
    assert answer in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_every_key_has_an_option():
    words, expected = [], {}
    for section, kind in SECTIONS.items():
        for name, one in settings_of(kind).items():
            key = f"{section}.{name}"
            expected[key] = one.default
            if one.kind is bool and one.none:  # a flag says true or false; None is to leave it out
                words.append(option_of(key))
                expected[key] = True
            elif one.kind is bool and not one.many:
                words.append(option_of(key) if one.default else option_of(key).replace("--", "--no-", 1))
            else:
                text = ",".join(map(str, one.default)) if one.many else one.shown(one.default).strip('"')
                words.append(f"{option_of(key)}={text}")
    assert overrides_of(words) == expected
