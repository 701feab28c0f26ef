"""Known people among the images: named where they are, and nobody else."""

import numpy as np
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.collection.creation import create_collection
from cdp.collection.labeled_identities import look_up_identities
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph


def test_a_group_gets_the_name_of_whom_it_is_tied_to_and_strangers_get_none():
    # 40 known people of 4 images; groups 0 to 9 show the first ten of them, 10 to 19 nobody known, weakly tied to one.
    known = np.concatenate([np.full(40, -1), np.repeat(np.arange(40), 4)])
    labels = np.repeat(np.arange(20), 2).astype(np.int32)
    ids, doubt = [], []
    for person in range(40):
        images = list(range(40 + 4 * person, 44 + 4 * person))
        pairs = [(one, other) for one in images for other in images if one < other]
        ids += [*pairs, (images[0], (images[0] + 4 - 40) % 160 + 40)]
        doubt += [*[0.1] * 6, 0.7]
        if person < 20:
            ids += [(2 * person, image) for image in images] + [(2 * person + 1, image) for image in images]
            doubt += [0.2 if person < 10 else 0.99] * 8
    scored = ConsensusGraph(np.sort(np.array(ids), axis=1), np.array(doubt), 200)
    found = look_up_identities(scored, labels, known, 20)
    assert found.person.tolist() == [*range(10), *[-1] * 10]
    assert (found.probability[:10] > 0.8).all()
    assert (found.probability[10:] == 0).all()
    nobody = look_up_identities(scored, labels, np.where(known < 5, known, -1), 20)
    assert (nobody.person == -1).all()


def test_a_collection_names_known_people(small_views, tmp_path):
    # Of every person some images are known, so that the same people are on both sides.
    known = np.arange(300) % 2 == 0
    others = small_views.take(~known)
    collection = create_collection(
        tmp_path / "faces",
        Views(others.base, others.committee),
        labeled=[small_views.take(known)],
        settings=ConsensusSettings.of(k=8, disjoint=False),
        names={number: f"person {number}" for number in range(40)},
    )
    assert len(collection.names) > 20
    right = []
    for identity, name in collection.named.items():
        truth = others.identities[collection.identity == identity]
        right.append(name.name == f"person {np.bincount(truth).argmax()}")
        assert (name.source, 0 < name.probability <= 1) == ("labeled", True)
    assert np.mean(right) > 0.95


def test_names_are_those_of_the_labeled_embeddings(small_views, tmp_path):
    known = np.arange(300) % 2 == 0
    others, labeled = small_views.take(~known), small_views.take(known)
    labeled.save(tmp_path / "labeled")
    odd = {3: " ", 4: "a\nb", 5: "\x1b[31m"}
    texts = [odd.get(number, f"person {number}") for number in labeled.identities.tolist()]
    np.save(tmp_path / "labeled" / "identities.npy", np.array(texts))
    words = ["--labeled", str(tmp_path / "labeled"), "--no-disjoint", "--k", "8", "--quiet"]
    Views(others.base, others.committee).save(tmp_path / "others")
    done = CliRunner().invoke(
        app, ["label", str(tmp_path / "others"), *words, "--out", str(tmp_path / "faces")]
    )
    assert done.exit_code == 0, done.output
    names = set(open_collection(tmp_path / "faces").names.values())
    assert len([name for name in names if name.startswith("person ")]) > 20
    assert all(name.isprintable() and name.strip() for name in names)
    made = create_collection(
        tmp_path / "made",
        tmp_path / "others",
        labeled=[tmp_path / "labeled"],
        settings=ConsensusSettings.of(k=8, disjoint=False),
    )
    assert set(made.names.values()) == names
