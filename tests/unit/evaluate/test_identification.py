import numpy as np
import pytest
from tests.refusals import refuses

import recognition_reference as slow
from cdp.evaluate import rank_kernels
from cdp.evaluate.identification import (
    compare_identification,
    growing_sizes,
    mate_pairs,
    measure_identification,
)
from cdp.types import Embeddings


def signs(n_images, seed):
    """Rows of +-1: all arithmetic is exact, and nearly everything ties."""
    return np.random.default_rng(seed).choice(np.float32([-1, 1]), size=(n_images, 16))


def found_ranks(result, size=-1):
    pairs = zip(result.pairs.probes.tolist(), result.pairs.mates.tolist(), strict=True)
    return dict(zip(pairs, (result.n_better[size] + 1).tolist(), strict=True))


@pytest.mark.parametrize("make", ["random", "ties", "copies"])
def test_ranks_are_the_twins(make, monkeypatch):
    monkeypatch.setattr(rank_kernels, "PROBE_ROWS", 7)
    monkeypatch.setattr(rank_kernels, "DISTRACTOR_ROWS", 11)
    monkeypatch.setattr(rank_kernels, "_TABLES", 10)
    probes, identities = slow.people(8, 4, noise=1.2)
    distractors = np.random.default_rng(9).normal(size=(60, 16)).astype(np.float32)
    if make == "ties":
        probes, distractors = signs(32, 1), signs(60, 2)
    if make == "copies":
        distractors[5:25] = probes[:20]
    order = np.random.default_rng(3).permutation(32)
    probes, identities = probes[order], identities[order]
    result = measure_identification(Embeddings(probes), identities, Embeddings(distractors), threads=2)
    expected = slow.ranks(probes, identities, distractors)
    assert found_ranks(result) == expected
    assert result.rate(1) == np.mean([rank == 1 for rank in expected.values()])
    assert result.rate(5) == np.mean([rank <= 5 for rank in expected.values()])
    steps, rates = result.cmc()
    for step, rate in zip(steps, rates, strict=True):
        assert rate == pytest.approx(np.mean([rank <= step for rank in expected.values()]))
    assert rates[-1] == 1


def test_many_similarities_near_one_and_minus_one():
    probes = np.float32([[1, 0], [1, 1e-4], [-1, 0], [-1, 1e-4]])
    distractors = np.float32([[1, 0], [1, 5e-5], [-1, 2e-5], [0, 1], [-1, 0]])
    result = measure_identification(Embeddings(probes), [0, 0, 1, 1], Embeddings(distractors))
    assert found_ranks(result) == slow.ranks(probes, [0, 0, 1, 1], distractors)


def test_other_mates_are_not_in_the_gallery():
    probes = np.float32([[1, 0], [1, 0.1], [0, 1]])
    result = measure_identification(Embeddings(probes), ["a", "a", "a"], Embeddings(np.float32([[-1, -1]])))
    assert result.rate() == 1
    assert len(result.pairs) == 6


def test_a_copy_of_the_mate_among_the_distractors_is_a_miss():
    probes = np.float32([[1, 0.3], [0.7, 1]])
    alone = measure_identification(Embeddings(probes), [0, 0], Embeddings(np.float32([[-1, 0]])))
    tied = measure_identification(Embeddings(probes), [0, 0], Embeddings(probes[1:]))
    assert alone.rate() == 1
    assert found_ranks(tied) == {(0, 1): 2, (1, 0): 2}


def test_growing_draws_are_nested_and_end_with_all():
    probes, identities = slow.people(6, 3, noise=1.5)
    distractors = np.random.default_rng(1).normal(size=(150, 16)).astype(np.float32)
    result = measure_identification(Embeddings(probes), identities, Embeddings(distractors))
    assert result.sizes == growing_sizes(150) == (10, 100, 150)
    assert (np.diff(result.n_better, axis=0) >= 0).all()
    assert found_ranks(result) == slow.ranks(probes, identities, distractors)
    again = measure_identification(Embeddings(probes), identities, Embeddings(distractors), threads=1)
    np.testing.assert_array_equal(again.n_better, result.n_better)


def test_lists_are_measured_one_by_one():
    probes, identities = slow.people(6, 3, noise=1.5)
    distractors = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)
    lists = [Embeddings(distractors), Embeddings(distractors[30:40])]
    result = measure_identification(Embeddings(probes), identities, lists)
    assert result.sizes == (10, 50)
    assert found_ranks(result, 0) == slow.ranks(probes, identities, distractors[30:40])
    assert found_ranks(result, 1) == slow.ranks(probes, identities, distractors)


def test_resampling_repeats_whole_identities():
    probes, identities = slow.people(9, 3, noise=1.6)
    distractors = Embeddings(np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32))
    result = measure_identification(
        Embeddings(probes), identities, distractors, sizes=[40], ranks=[1], replicates=50, seed=7
    )
    hit = result.n_better[0] == 0
    for replicate in (0, 49):
        drawn = np.random.default_rng([7, replicate]).integers(0, 9, 9)
        written_out = np.concatenate([hit[result.pairs.identities == person] for person in drawn])
        assert result.replicates[replicate, 0] == pytest.approx(written_out.mean())
    band = result.figures[0].interval
    assert band.low <= result.rate() <= band.high


def test_a_network_does_not_differ_from_itself():
    probes, identities = slow.people(9, 3, noise=1.6)
    distractors = np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32)

    def measure(vectors):
        return measure_identification(Embeddings(vectors), identities, Embeddings(distractors), replicates=40)

    same = compare_identification(measure(probes), measure(probes))
    assert {line.verdict for line in same} == {"no significant difference"}
    good = slow.people(9, 3, noise=0.1)[0]
    better = compare_identification(measure(good), measure(probes))
    assert better[-1].name.startswith("rank-20")
    assert compare_identification(measure(good), measure(probes))[1].verdict == "better"


@pytest.mark.parametrize(
    ("identities", "code", "fields"),
    [
        ([0, 0, 1], "probes-without-mate", {"row": 2, "count": 1}),
        ([0, 0, -1], "probe-identities-missing", {"row": 2, "count": 1}),
        ([0, 0], "probe-identities-differ", {"expected": 3, "found": 2}),
    ],
)
def test_bad_probes(identities, code, fields):
    with refuses(code, **fields):
        measure_identification(Embeddings(signs(3, 0)), identities, Embeddings(signs(4, 1)))


def test_distractors_that_are_probes_are_named():
    with refuses("distractors-show-probes", row=1, count=2):
        measure_identification(
            Embeddings(signs(4, 0)),
            [5, 5, 6, 6],
            Embeddings(signs(4, 1)),
            distractor_identities=[9, 5, -1, 6],
        )


def test_bad_settings():
    probes, distractors = Embeddings(signs(4, 0)), Embeddings(signs(6, 1))
    people = [0, 0, 1, 1]
    with refuses("sizes-out-of-range", value=[7], most=6):
        measure_identification(probes, people, distractors, sizes=[7])
    with refuses("ranks-too-small", value=[0]):
        measure_identification(probes, people, distractors, ranks=[0])
    with refuses("replicates-too-few", value=3):
        measure_identification(probes, people, distractors, replicates=3)
    with refuses("distractor-dimensions-differ", expected=16, found=5):
        measure_identification(probes, people, Embeddings(np.ones((3, 5), np.float32)))


def test_pairs_are_all_ordered_pairs():
    pairs = mate_pairs(["b", "a", "b", "a", "b"])
    listed = set(zip(pairs.probes.tolist(), pairs.mates.tolist(), strict=True))
    assert listed == {(0, 2), (0, 4), (2, 0), (2, 4), (4, 0), (4, 2), (1, 3), (3, 1)}
    assert len(pairs) == 8
