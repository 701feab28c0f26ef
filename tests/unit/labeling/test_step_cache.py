"""Finished steps are found again where nothing they depend on has changed, and nowhere else."""

import gc
from dataclasses import replace

import numpy as np
import pytest

from cdp import Views
from cdp.knn import exact
from cdp.knn.settings import SearchSettings
from cdp.labeling.pipeline import label
from cdp.runtime import checkpoint
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring import fused_graph, tree_scorer, trees
from cdp.scoring.settings import ConsensusSettings, ScoringSettings

SETTINGS = ConsensusSettings.of("paper", k=10)


class Counter:
    """A workspace with a cache, and what was made when it was last used."""

    def __init__(self, folder, split):
        self.folder, self.split = folder, split

    def kept(self):
        return {entry.name: entry.stat().st_mtime_ns for entry in self.folder.glob("*-*")}

    def __call__(self, settings=SETTINGS, **how):
        """Labels, and the names of the artifacts that were made for them."""
        before = self.kept()
        labeling = label(
            how.pop("unlabeled", self.split.unlabeled),
            settings,
            labeled=how.pop("labeled", [self.split.labeled]),
            runtime=Runtime(cache=StepCache(self.folder)),
            **how,
        )
        made = [name.partition("-")[0] for name, time in self.kept().items() if before.get(name) != time]
        return labeling.labels, (made.count("graph"), made.count("mediator"))


@pytest.fixture
def counted(split, tmp_path):
    run = Counter(tmp_path / "cache", split)
    run.labels, made = run()
    assert made == (6, 1)
    return run


def test_a_second_call_finds_every_graph_and_the_mediator(counted):
    labels, made = counted()
    assert made == (0, 0)
    np.testing.assert_array_equal(labels.labels, counted.labels.labels)
    np.testing.assert_array_equal(labels.confidence, counted.labels.confidence)


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ({"threshold": 0.9}, (0, 0)),
        ({"max_cluster_size": 5, "step": 0.2, "soft_depth": 2}, (0, 0)),
        ({"grouping": "average", "threshold": 0.3}, (0, 0)),
        ({"mediator": "vote"}, (0, 0)),
        ({"inputs": ("affinity",)}, (0, 1)),
        ({"k": 9}, (6, 1)),
    ],
)
def test_a_changed_setting_makes_anew_what_depends_on_it(counted, change, made):
    assert counted(replace(SETTINGS, **change))[1] == made


def test_a_changed_member_gets_a_graph_of_its_own(counted, split):
    views = split.unlabeled
    changed = dict(views.committee) | {"member1": views.base.source[:, ::-1].copy()}
    assert counted(unlabeled=Views(views.base, changed))[1] == (1, 0)


def test_the_mediator_depends_on_identities_seed_and_the_order_of_members(counted, split):
    labeled = split.labeled
    other = Views(labeled.base, labeled.committee, np.roll(labeled.identities, 1))
    assert counted(labeled=[other])[1] == (0, 1)
    assert counted(seed=1)[1] == (0, 1)  # an exact graph does not depend on the seed
    turned = [
        Views(views.base, dict(reversed(views.committee.items())), views.identities)
        for views in (labeled, split.unlabeled)
    ]
    assert counted(labeled=turned[:1], unlabeled=turned[1])[1] == (0, 1)


def test_a_tuned_call_finds_everything_too(large_split, tmp_path):
    run = Counter(tmp_path / "cache", large_split)
    best = ConsensusSettings.of(k=10, mediator="mlp")
    assert run(best)[1] == (6, 1)
    assert run(best)[1] == (0, 0)
    assert run(replace(best, beta=2.0))[1] == (0, 0)


def test_given_graphs_are_not_kept(split, tmp_path):
    run = Counter(tmp_path / "cache", split)
    graphs = label(split.unlabeled, SETTINGS, labeled=[split.labeled]).graphs
    assert run(graphs=graphs)[1] == (3, 1)  # of the labeled part


def test_without_a_folder_nothing_is_read_or_written(split):
    cache = StepCache()
    assert cache.hash(split.unlabeled.base.source) == ""
    cache.put("graph", "x", object())
    assert cache.get("graph", "x", object) is None


def test_parts_larger_than_memory_are_joined_on_disk_in_a_cache_folder_that_is_not_there_yet(
    large_split, tmp_path
):
    from cdp.runtime.settings import RuntimeSettings

    settings = ConsensusSettings.of(k=10, mediator="vote")
    expected = label(large_split.unlabeled, settings, validation=large_split.labeled)
    folder = tmp_path / "new" / "cache"
    work = Runtime(RuntimeSettings(memory_budget="1KB"), StepCache(folder))
    with pytest.warns(
        UserWarning, match=r"memory_budget = 1KB is too little for .* images in . models: about"
    ):
        found = label(large_split.unlabeled, settings, validation=large_split.labeled, runtime=work)
    np.testing.assert_array_equal(found.labels.labels, expected.labels.labels)
    del work, found
    gc.collect()
    assert not list(folder.glob(".cdp-spill*"))


def test_keys_follow_settings_inputs_and_version():
    keys = {
        step_key("graph", 1, SearchSettings()),
        step_key("mediator", 1, SearchSettings()),
        step_key("graph", 2, SearchSettings()),
        step_key("graph", 1, SearchSettings(k=3)),
        step_key("graph", 1, ScoringSettings()),
        step_key("graph", 1, SearchSettings(), "hash"),
        step_key("graph", 1, None),
    }
    assert len(keys) == 7
    assert step_key("graph", 1, SearchSettings()) in keys


@pytest.mark.slow
def test_trees_are_not_grown_again_for_another_threshold(large_split, tmp_path, monkeypatch):
    grown = []
    estimate = tree_scorer.score_by_trees
    monkeypatch.setattr(
        tree_scorer,
        "score_by_trees",
        lambda *args, **named: grown.append(1) or estimate(*args, **named),
    )
    work = Runtime(cache=StepCache(tmp_path))

    def again(**given):
        settings = ConsensusSettings.of(k=10, **given)
        return label(large_split.unlabeled, settings, labeled=[large_split.labeled], runtime=work)

    first = again()
    again(beta=2)
    again(threshold=0.4)
    np.testing.assert_array_equal(again().labels.labels, first.labels.labels)
    assert len(grown) == 1
    again(disjoint=False)
    assert len(grown) == 2


@pytest.mark.parametrize(
    ("stopped", "kept"),
    [
        ("k-NN graph base", "lists-*"),
        ("fused k-NN graph", "lists-*"),
        ("trees, pass 1 of 2", "scores-*"),
        ("trees, pass 2 of 2", "scores-*"),
    ],
)
def test_a_step_that_was_stopped_goes_on_where_it_was(split, tmp_path, stopped, kept):
    folder = tmp_path / "cache"
    told = []

    def tell(step, done, total):
        told.append((step, done))

    def stop(step, done, total):
        tell(step, done, total)
        if step == stopped and 0 < done < total:
            raise KeyboardInterrupt

    def run(**how):
        settings = ConsensusSettings.of(k=10)
        return label(split.unlabeled, settings, labeled=[split.labeled], runtime=Runtime(**how))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "_SECONDS", 0.0)
        patch.setattr(checkpoint, "_LONGEST_SHARE", np.inf)
        patch.setattr(exact, "BLOCK_ROWS", 300)
        patch.setattr(fused_graph, "_MOST_ROWS", 100)
        patch.setattr(trees, "PAIRS_PER_BLOCK", 1000)
        with pytest.raises(KeyboardInterrupt):
            run(cache=StepCache(folder), progress=stop)
        assert len(list(folder.glob(kept))) == 1
        first = min(done for step, done in told if step == stopped and done)
        told.clear()
        resumed = run(cache=StepCache(folder), progress=tell)
        assert first not in {done for step, done in told if step == stopped}
        assert not [*folder.glob("lists-*"), *folder.glob("scores-*")]
    expected = run()
    np.testing.assert_array_equal(resumed.labels.labels, expected.labels.labels)
    np.testing.assert_array_equal(resumed.labels.confidence, expected.labels.confidence)


def test_of_one_model_no_second_copy_of_its_graph_is_kept(split, tmp_path):
    one = [Views(part.base, identities=part.identities) for part in (split.unlabeled, split.labeled)]
    label(one[0], ConsensusSettings.of(k=10), labeled=[one[1]], runtime=Runtime(cache=StepCache(tmp_path)))
    assert list(tmp_path.glob("graph-*"))
    assert not list(tmp_path.glob("fused-*"))
