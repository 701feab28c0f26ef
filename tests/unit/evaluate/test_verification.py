import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refuses

import recognition_reference as slow
from cdp.data.lfw_pairs import read_pairs
from cdp.evaluate.bootstrap import draw_identities, joined_identities
from cdp.evaluate.roc_kernels import best_accuracy, fold_accuracies, order_pairs, walk
from cdp.evaluate.templates import pool_templates
from cdp.evaluate.verification import (
    ScoredPairs,
    compare_verification,
    measure_verification,
    name_fpr,
    score_pairs,
)
from cdp.types import Embeddings

FPRS = (0.5, 0.1, 0.02, 0.001)


def scored(n_pairs=200, n_people=15, seed=0, coarse=False, shift=0.5):
    generator = np.random.default_rng(seed)
    identities = generator.integers(0, n_people, (n_pairs, 2))
    identities[: n_pairs // 2, 1] = identities[: n_pairs // 2, 0]
    same = identities[:, 0] == identities[:, 1]
    similarity = np.clip(0.3 * generator.normal(size=n_pairs) + shift * same, -1, 1).astype(np.float32)
    if coarse:
        similarity = np.round(similarity, 1)
    return ScoredPairs(similarity, same, identities, np.repeat(np.arange(10), n_pairs // 10))


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_figures_are_the_twins(coarse, seed):
    pairs = scored(seed=seed, coarse=coarse)
    result = measure_verification(pairs, fprs=FPRS, replicates=0)
    for figure in result.tpr:
        tpr, false_accepts = slow.tpr_at_fpr(pairs.similarity, pairs.same, figure.fpr)
        assert figure.false_accepts == false_accepts
        assert figure.tpr == (None if false_accepts == 0 else pytest.approx(tpr))
        if figure.tpr is not None:
            accepted = pairs.similarity > np.float32(figure.threshold)
            assert (accepted & pairs.same).sum() / pairs.same.sum() == pytest.approx(tpr)
            assert (accepted & ~pairs.same).sum() == false_accepts
    assert result.eer == pytest.approx(slow.equal_error_rate(pairs.similarity, pairs.same))
    assert result.best_accuracy == pytest.approx(slow.best_accuracy(pairs.similarity, pairs.same))
    assert (
        (pairs.similarity > np.float32(result.best_threshold)) == pairs.same
    ).mean() == result.best_accuracy
    np.testing.assert_allclose(
        result.accuracy.folds, slow.fold_accuracies(pairs.similarity, pairs.same, pairs.folds)
    )
    assert result.accuracy.sd == pytest.approx(np.std(result.accuracy.folds))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=30).filter(
        lambda rows: len({same for _, same in rows}) == 2
    ),
    st.floats(0.01, 1),
)
def test_ties_and_extremes(rows, fpr):
    similarity = np.array([value / 5 for value, _ in rows], np.float32)
    same = np.array([same for _, same in rows])
    ordered = order_pairs(similarity, same, np.zeros((len(rows), 2), np.int64), None)
    found = walk(ordered, np.ones(1), np.array([fpr]))
    assert (found.tpr[0], found.false_accepts[0]) == pytest.approx(slow.tpr_at_fpr(similarity, same, fpr))
    assert found.eer == pytest.approx(slow.equal_error_rate(similarity, same))
    assert best_accuracy(ordered)[0] == pytest.approx(slow.best_accuracy(similarity, same))


def test_resampling_equals_writing_the_pairs_out():
    pairs = scored(coarse=True)
    fold = fold_accuracies(pairs.similarity, pairs.same, pairs.folds)
    ordered = order_pairs(pairs.similarity, pairs.same, pairs.identities, fold.correct)
    for replicate in range(5):
        drawn = draw_identities(15, 3, replicate)
        found = walk(ordered, drawn, np.array(FPRS))
        similarity, same = slow.repeat_pairs(pairs.similarity, pairs.same, pairs.identities, drawn)
        for at, fpr in enumerate(FPRS):
            assert found.tpr[at] == pytest.approx(slow.tpr_at_fpr(similarity, same, fpr)[0])
        assert found.eer == pytest.approx(slow.equal_error_rate(similarity, same))
        correct, _ = slow.repeat_pairs(fold.correct, pairs.same, pairs.identities, drawn)
        share = pairs.same.mean()
        expected = share * correct[same].mean() + (1 - share) * correct[~same].mean()
        assert found.accuracy == pytest.approx(expected)


def test_a_figure_that_rests_on_no_false_accept_is_refused():
    result = measure_verification(scored(), replicates=20)
    impostors = result.impostors
    for figure in result.tpr:
        if figure.fpr * impostors < 1:
            assert figure.tpr is None
            assert figure.interval is None
            assert f"{impostors:,} impostor pairs allow" in figure.reason
        else:
            assert figure.false_accepts == int(figure.fpr * impostors)
    assert [figure.tpr is None for figure in result.tpr] == [
        False,
        False or impostors < 100,
        True,
        True,
        True,
        True,
    ]
    curve = result.curve
    assert np.isnan(curve[curve[:, 0] * impostors < 0.999, 1]).all()
    tied = ScoredPairs(
        np.float32([1] * 10 + [0.5] * 30), np.arange(40) < 5, np.stack([np.arange(40)] * 2, axis=1)
    )
    assert "tie" in measure_verification(tied, fprs=[0.1], replicates=0).tpr[0].reason


def test_intervals_hold_the_figure_and_do_not_depend_on_threads():
    one = measure_verification(scored(), replicates=60, threads=1)
    two = measure_verification(scored(), replicates=60, threads=2)
    np.testing.assert_array_equal(one.replicates, two.replicates)
    assert one.accuracy.interval.low <= one.accuracy.mean <= one.accuracy.interval.high
    assert one.eer_interval.low <= one.eer <= one.eer_interval.high
    assert one.tpr[0].interval.low <= one.tpr[0].tpr <= one.tpr[0].interval.high


def test_intervals_over_identities_are_wider_than_over_pairs():
    """Few people in many pairs: pairs are not independent."""
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(10), 200)
    easy = generator.normal(size=10)
    similarity = np.concatenate([0.2 * easy[people], generator.normal(size=2000) * 0.2 - 0.2]).astype(
        np.float32
    )
    ends = np.concatenate([np.stack([people, people], axis=1), generator.integers(10, 400, (2000, 2))])
    grouped = measure_verification(ScoredPairs(similarity, np.arange(4000) < 2000, ends), replicates=100)
    alone = ends.copy()
    alone[:2000] = 1000 + np.arange(2000)[:, None]
    single = measure_verification(ScoredPairs(similarity, np.arange(4000) < 2000, alone), replicates=100)

    def width(result):
        return result.tpr[0].interval.high - result.tpr[0].interval.low

    assert width(grouped) > 2 * width(single)


def test_comparison_is_paired():
    good, bad = scored(shift=0.9), scored(shift=0.5)
    measured = [measure_verification(pairs, fprs=(0.1,), replicates=60) for pairs in (good, bad)]
    verdicts = {line.name: line.verdict for line in compare_verification(*measured)}
    assert verdicts == {"accuracy": "better", "eer": "better", "tpr at fpr 1e-1": "better"}
    reverse = compare_verification(*measured[::-1])
    assert {line.verdict for line in reverse} == {"worse"}
    itself = compare_verification(measured[0], measured[0])
    assert all(line.difference == 0 and line.verdict == "no significant difference" for line in itself)


def test_splits_are_averaged():
    parts = [scored(seed=seed) for seed in range(3)]
    result = measure_verification(parts, fprs=(0.1,), replicates=20)
    single = [measure_verification(part, fprs=(0.1,), replicates=0).tpr[0].tpr for part in parts]
    assert result.tpr[0].tpr == pytest.approx(np.mean(single))
    assert result.tpr[0].sd == pytest.approx(np.std(single))
    assert result.splits == 3
    assert result.accuracy is None


def test_templates_are_the_twins(monkeypatch):
    monkeypatch.setattr("cdp.evaluate.templates._TEMPLATES", 2)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(40, 8)).astype(np.float16)
    images = generator.permutation(40)[:30]
    templates = np.concatenate([np.arange(5), generator.integers(0, 5, 25)])
    media = generator.integers(0, 4, 30)
    for weights in (None, generator.uniform(0.5, 1, 30)):
        pooled = pool_templates(Embeddings(vectors), images, templates, media, weights)
        for number in range(5):
            own = templates == number
            expected = slow.template(
                vectors[images[own]], media[own].tolist(), None if weights is None else weights[own]
            )
            np.testing.assert_allclose(pooled.vectors[number], expected, atol=1e-6)
    with refuses("template-empty", template=1):
        pool_templates(Embeddings(vectors), [0, 1], [0, 2], [0, 0])


def test_a_long_video_counts_as_much_as_a_photograph():
    vectors = np.float32([[1, 0]] * 9 + [[0, 1]])
    pooled = pool_templates(Embeddings(vectors), np.arange(10), np.zeros(10, int), [7] * 9 + [8])
    np.testing.assert_allclose(pooled.vectors[0], np.sqrt([0.5, 0.5]), atol=1e-6)


def test_same_pairs_join_identities():
    ends = np.array([[0, 1], [1, 2], [3, 4], [2, 3]])
    joined = joined_identities(ends, np.array([True, True, True, False]), 6)
    assert [len(set(joined[[0, 1, 2]])), len(set(joined[[3, 4]])), len(set(joined))] == [1, 1, 3]


def test_intervals_do_not_depend_on_how_identities_are_numbered():
    pairs = scored()
    other = np.random.default_rng(1).permutation(15)[pairs.identities]
    renamed = ScoredPairs(pairs.similarity, pairs.same, other, pairs.folds)
    one, two = (measure_verification(given, replicates=20) for given in (pairs, renamed))
    np.testing.assert_array_equal(one.replicates, two.replicates)


def test_bad_pairs():
    embeddings = Embeddings(np.eye(4, dtype=np.float32))
    with refuses("verification-row-unknown", pair=1, images=[1, 4], n_images=4):
        score_pairs(embeddings, [[0, 1], [1, 4]], [1, 0])
    with refuses("verification-identities-contradict", pair=0, count=1, identities=(5, 6)) as caught:
        score_pairs(embeddings, [[0, 1], [1, 2]], [1, 0], identities=[5, 6, 7, 8])
    assert str(caught.value) == (
        "Verification: pair 0 (counted from 0) is listed as same, but its identities are 5 and 6 (1 in all); "
        "correct one of the two files."
    )
    with refuses("verification-one-sided"):
        score_pairs(embeddings, [[0, 1]], [1])
    unknown = score_pairs(embeddings, [[0, 1], [1, 2]], [1, 0], identities=[5, 5, -1, -1])
    assert len(np.unique(unknown.identities)) == 2
    with refuses("fprs-out-of-range", value=[2.0]):
        measure_verification(scored(), fprs=(2.0,))


def test_names_of_rates():
    assert [name_fpr(fpr) for fpr in (0.1, 1e-3, 1e-6, 0.05, 1)] == ["1e-1", "1e-3", "1e-6", "0.05", "1e0"]


@pytest.mark.parametrize(("name", "known"), [("mobilefacenet", 98.87), ("sface", 99.28), ("openface", 90.63)])
def test_known_accuracy_of_real_networks(shared_data, name, known):
    folder = shared_data / "lfw"
    embeddings = Embeddings(np.load(folder / f"{name}.npy", mmap_mode="r"))
    pairs = read_pairs(folder / "pairs.csv", embeddings.n_images)
    identities = np.load(folder / "identities.npy")
    result = measure_verification(
        score_pairs(embeddings, pairs.ends, pairs.same, identities=identities, folds=pairs.folds),
        replicates=0,
    )
    assert 100 * result.accuracy.mean == pytest.approx(known, abs=0.1)
    assert [figure.false_accepts for figure in result.tpr] == [300, 30, 3, 0, 0, 0]
