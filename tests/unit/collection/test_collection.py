"""Collections: made, opened, corrected, extended, killed."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refuses
from tests.review_collection import make_collection
from typer.testing import CliRunner

from cdp import CDP, Views, measure_labels
from cdp.cli.main import app
from cdp.collection import extension
from cdp.collection.collection import open_collection
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.combined_views import read_all_views
from cdp.collection.corrections import (
    append_corrections,
    different,
    named,
    read_journal,
    rejected,
    same,
    undo_corrections,
)
from cdp.collection.creation import create_collection
from cdp.collection.extension import extend
from cdp.collection.image_root import find_image_root
from cdp.collection.questions import KINDS, open_questions
from cdp.collection.regrouping import regroup
from cdp.collection.retraining import retrain
from cdp.collection.scored_files import read_scored_pairs as read_stored
from cdp.collection.scored_files import read_share
from cdp.errors import BusyError, InputError
from cdp.knn.exact import exact_graph, extend_graph
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.scoring import tree_scorer
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.tree_scorer import TreeScorer
from cdp.scoring.trees import TreeScores
from cdp.storage import files
from cdp.storage.artifacts import read_card
from cdp.storage.files import locked
from cdp.types import Labels, Status
from cdp.types.constraints import said_of_pairs

SETTINGS = ConsensusSettings.of(k=8, mediator="trees")


@pytest.fixture(scope="module")
def halves(small_views):
    """Known people, and the others' images: first and second batch."""
    known = small_views.identities < 25
    others = small_views.take(~known)
    return small_views.take(known), others.take(slice(0, 80)), others.take(slice(80, None))


def read_scored_pairs(collection):
    work = Runtime()
    place = collection.scored_place
    with read_all_views(collection, None, work, read_share(place)) as views:
        state = collection.state
        return read_stored(place, collection.settings, state.threshold, views, state.seed, work)


def bare(views):
    return Views(views.base, views.committee, None, views.paths)


@pytest.fixture
def faces(halves, tmp_path):
    known, first, _ = halves
    return create_collection(tmp_path / "faces", bare(first), labeled=[known], settings=SETTINGS)


def test_a_new_collection_has_the_labels_of_the_pipeline(halves, faces):
    known, first, _ = halves
    labels = label(bare(first), SETTINGS, labeled=[known]).labels
    np.testing.assert_array_equal(faces.identity, labels.labels)
    np.testing.assert_array_equal(faces.confidence, labels.confidence)
    np.testing.assert_array_equal(faces.status, labels.status)
    assert list(faces.paths) == list(first.paths)
    assert faces.paths[-1] == first.paths[-1]
    assert [event.kind for event in faces.events] == ["created"]
    assert faces.names == {}


def test_groups_follow_corrections_and_go_back_when_they_are_undone(faces):
    start = faces.identity.copy()
    one, other = (int(np.flatnonzero(start == number)[0]) for number in (0, 1))
    in_two = np.flatnonzero(start == 2)
    said = [
        same(one, other),
        different(int(in_two[0]), int(in_two[1])),
        named("Anna", one),
        rejected(int(in_two[-1])),
    ]
    append_corrections(faces.folder, said)
    corrected, changes = regroup(faces)
    assert corrected.identity[one] == corrected.identity[other]
    assert corrected.identity[in_two[0]] != corrected.identity[in_two[1]]
    assert corrected.status[in_two[-1]] == Status.REJECTED
    assert corrected.names == {corrected.identity[one]: "Anna"}
    assert {"regrouped", "merged", "named"} <= {event.kind for event in changes.events}
    assert corrected.events[-len(changes.events) :] == list(changes.events)
    undo_corrections(faces.folder, range(4))
    again, _ = regroup(corrected)
    np.testing.assert_array_equal(Labels.from_array(again.identity).labels, Labels.from_array(start).labels)
    assert faces.identity.tolist() == start.tolist()  # a picture of the folder as it was


def test_contradictions_are_told_by_path_and_change_nothing(faces):
    append_corrections(faces.folder, [same(0, 1), same(1, 2), different(0, 2)])
    paths = faces.paths
    with pytest.raises(InputError) as error:
        regroup(faces)
    assert str(error.value) == (
        f"Corrections contradict each other: {paths[0]} and {paths[2]} are said to be different, and {paths[0]} = {paths[1]} = "
        f"{paths[2]} are said to be the same; undo one of them."
    )
    assert open_collection(faces.folder).state == faces.state


def test_other_settings_of_groups_can_be_tried_others_cannot(faces):
    finer, _ = regroup(faces, settings=replace(faces.settings, threshold=0.9))
    assert finer.state.threshold == 0.9
    assert (finer.identity >= 0).sum() <= (faces.identity >= 0).sum()
    with refuses("regroup-needs-new-scores", keys=("min_votes",)):
        regroup(faces, settings=replace(faces.settings, min_votes=1))


def test_without_labels_another_threshold_is_another_z_score(halves, tmp_path):
    _, first, _ = halves
    made = create_collection(tmp_path / "faces", bare(first), settings=SETTINGS)
    assert made.settings.mediator == "similarity"
    n_joined = (made.identity >= 0).sum()
    free = GrowthSettings(id_stability=0)
    strict, _ = regroup(made, settings=replace(made.settings, threshold=50.0), growth=free)
    assert strict.state.threshold == 50
    assert (strict.identity >= 0).sum() < n_joined
    smaller, _ = regroup(
        made, settings=replace(made.settings, threshold=4.0, max_cluster_size=3), growth=free
    )
    assert np.bincount(smaller.identity[smaller.identity >= 0]).max() <= 3


def test_an_extended_graph_is_that_of_all_images(small_views):
    for start, stop in ((200, 300), (120, 180), (0, 20)):
        for model in small_views:
            rows = np.r_[0:start, stop:300]
            before = exact_graph(type(model)(model.source[rows]), 10, runtime=Runtime())
            found = extend_graph(
                before.insert_rows(start, stop - start), model, (start, stop), runtime=Runtime()
            )
            wanted = exact_graph(model, 10, runtime=Runtime())
            np.testing.assert_array_equal(found.neighbors, wanted.neighbors)
            np.testing.assert_array_equal(found.similarity, wanted.similarity)


@pytest.mark.slow
def test_trained_anew_an_extended_collection_knows_what_one_made_at_once_knows(halves, faces, tmp_path):
    known, first, second = halves
    grown, changes = extend(faces, bare(second), growth=GrowthSettings(retrain_after=1, id_stability=0))
    everything = Views.concatenate([bare(first), bare(second)])
    whole = create_collection(tmp_path / "whole", everything, labeled=[known], settings=SETTINGS)
    found, wanted = (read_scored_pairs(one)[0] for one in (grown, whole))
    np.testing.assert_array_equal(found.candidates.ids, wanted.candidates.ids)
    for one, other in zip(found.tree_scores.passes, wanted.tree_scores.passes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert changes.kept == 1
    truth = np.concatenate([first.identities, second.identities])
    assert measure_labels(Labels.from_array(grown.identity), truth).discards_kept.pairwise.f > 0.9
    assert list(grown.paths) == [*first.paths, *second.paths]


@pytest.mark.slow
def test_scores_that_are_kept_are_those_that_would_be_given(halves, faces, monkeypatch):
    _, _, second = halves
    few = bare(second.take(slice(0, 2)))
    grown, _ = extend(faces, few, growth=GrowthSettings(retrain_after=9))
    kept = read_scored_pairs(grown)[0]
    reused = []

    def forget(pairs, old_ids, scores, changed):
        known = _kept_scores(pairs, old_ids, scores, changed)
        reused.append(float(np.isfinite(known.passes[0]).mean()))
        return TreeScores(
            tuple(np.full(len(pairs), np.nan, np.float32) for _ in scores.passes), scores.classifiers
        )

    _kept_scores = tree_scorer._kept_scores
    monkeypatch.setattr(tree_scorer, "_kept_scores", forget)
    # The same two images once more, from the same state: all pairs are scored again.
    asked, _ = extend(open_at(faces), few, growth=GrowthSettings(retrain_after=9))
    again = read_scored_pairs(asked)[0]
    np.testing.assert_array_equal(kept.candidates.ids, again.candidates.ids)
    for one, other in zip(kept.tree_scores.passes, again.tree_scores.passes, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 0 < reused[0] < 1


def open_at(collection):
    """Make an earlier picture of a collection count again."""
    from cdp.collection.collection_folder import switch_to

    switch_to(collection.folder, collection.state, "as it was")
    return open_collection(collection.folder)


@pytest.mark.slow
@pytest.mark.whole_training
@pytest.mark.parametrize(
    "given",
    [
        {"preset": "paper", "threshold": 0.6},
        {"mediator": "vote", "threshold": 0.3},
        {"mediator": "vote", "grouping": "components", "threshold": 0.5},
    ],
)
def test_collections_of_other_mediators_grow_as_well(halves, tmp_path, given):
    known, first, second = halves
    settings = ConsensusSettings.of(k=8, **given)
    collection = create_collection(tmp_path / "faces", bare(first), labeled=[known], settings=settings)
    grown, _ = extend(collection, bare(second))
    whole = create_collection(
        tmp_path / "whole", Views.concatenate([bare(first), bare(second)]), labeled=[known], settings=settings
    )
    np.testing.assert_array_equal(grown.scored.ids, whole.scored.ids)
    np.testing.assert_array_equal(
        Labels.from_array(grown.identity).labels, Labels.from_array(whole.identity).labels
    )


def test_corrections_hold_in_later_batches(halves, faces):
    _, _, second = halves
    append_corrections(faces.folder, [named("Anna", 0), rejected(5), same(1, 2)])
    corrected, _ = regroup(faces)
    grown, _ = extend(corrected, bare(second), growth=GrowthSettings(retrain_after=9))
    assert grown.names[grown.identity[0]] == "Anna"
    assert grown.identity[0] == corrected.identity[0]
    assert grown.identity[5] == -1
    assert grown.identity[1] == grown.identity[2] >= 0


def test_a_killed_extension_changes_nothing_and_can_be_done_again(halves, faces, monkeypatch):
    _, _, second = halves
    before = faces.identity.copy()

    def killed(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(extension, "write_groups", killed)
        with pytest.raises(KeyboardInterrupt):
            extend(faces, bare(second), growth=GrowthSettings(retrain_after=9))
    assert open_collection(faces.folder).state == faces.state
    np.testing.assert_array_equal(open_collection(faces.folder).identity, before)
    monkeypatch.setattr(extension, "search_new", killed)  # the graphs that were finished are found again
    grown, _ = extend(faces, bare(second), growth=GrowthSettings(retrain_after=9))
    assert grown.n_images == len(before) + second.n_images
    assert not (faces.folder / ".steps").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_killed_replacement_left_is_tidied_when_it_is_opened(faces, monkeypatch, is_there):
    monkeypatch.setattr(files, "_is_alive", lambda _: False)
    old = files.partial_beside(faces.folder, ".replaced")
    if is_there:
        shutil.copytree(faces.folder, old)
    else:
        faces.folder.rename(old)
    np.testing.assert_array_equal(open_collection(faces.folder).identity, faces.identity)
    assert [one.name for one in faces.folder.parent.iterdir()] == ["faces"]


def test_identities_with_numbers_keep_them(faces):
    assert faces.n_identities > 3
    free, changes = regroup(
        faces, settings=replace(faces.settings, threshold=0.02), growth=GrowthSettings(id_stability=0)
    )
    assert changes.kept < 1
    start = faces.identity
    again, _ = regroup(free, settings=faces.settings)
    held, changes = regroup(
        again, settings=replace(faces.settings, threshold=0.02), growth=GrowthSettings(id_stability=1)
    )
    assert changes.kept == 1
    one, other = (int(np.flatnonzero(held.identity == number)[0]) for number in np.unique(start)[1:3])
    append_corrections(held.folder, [same(one, other)])
    said, _ = regroup(held)
    assert said.identity[one] == said.identity[other]


def test_retrained_trees_learn_from_corrections(halves, faces):
    _, first, _ = halves
    truth = first.identities
    pairs = faces.scored.ids
    wrong = pairs[(truth[pairs[:, 0]] == truth[pairs[:, 1]])][:40]
    append_corrections(faces.folder, [same(*pair) for pair in wrong.tolist()])

    def probability(collection):
        return mean_of_said(read_scored_pairs(collection)[0], collection.constraints)

    def mean_of_said(scored, constraints):
        said = said_of_pairs(scored.candidates.ids, constraints.among(scored.candidates.n_images))
        return scored.tree_scores.passes[0][said > 0].mean()

    before = probability(faces)
    taught, changes = retrain(faces)
    assert probability(taught) > before
    assert changes.events[0].kind == "retrained"
    assert taught.state.scored > faces.state.scored
    deaf = TreeScorer(taught.settings, 0.3, taught.state.seed, taught.constraints, correction_weight=0.0)
    with read_all_views(taught, None, Runtime(), read_share(taught.scored_place)) as views:
        none = deaf.retrain(read_scored_pairs(taught)[0], views, Runtime())
    assert mean_of_said(none, taught.constraints) == pytest.approx(before, abs=1e-6)


def test_only_trees_are_retrained(halves, tmp_path):
    _, first, _ = halves
    collection = create_collection(tmp_path / "faces", bare(first), settings=SETTINGS)
    with refuses("retrain-needs-trees"):
        retrain(collection)


@pytest.mark.slow
def test_what_the_estimator_labels_is_a_collection_that_can_grow(halves, tmp_path):
    known, first, second = halves
    model = CDP(k=8).fit(known)
    labels = model.predict(bare(first))
    made = model.save(tmp_path / "faces")
    np.testing.assert_array_equal(made.identity, labels)
    grown, _ = extend(made, bare(second))
    assert grown.n_images == made.n_images + second.n_images
    said = [rejected(0)]
    assert model.predict(bare(first), corrections=said)[0] == -1
    assert model.labeling_.labels.status[0] == Status.REJECTED
    assert model.save(tmp_path / "corrected").status[0] == Status.REJECTED


def test_relative_paths_start_from_the_collection(halves, tmp_path, monkeypatch):
    _, first, _ = halves
    views = Views(first.base, first.committee, None, [f"photos/{row}.jpg" for row in range(first.n_images)])
    made = create_collection(tmp_path / "album" / "faces", views, settings=SETTINGS)
    assert find_image_root(made) == "."
    (tmp_path / "album" / "photos").mkdir()
    (tmp_path / "album" / "photos" / "0.jpg").touch()
    monkeypatch.chdir(tmp_path)
    assert find_image_root(made) == str(tmp_path / "album")


def test_embeddings_are_read_again_only_if_their_files_changed(halves, tmp_path, monkeypatch):
    _, first, _ = halves
    bare(first).save(tmp_path / "first")
    batch = create_collection(tmp_path / "faces", tmp_path / "first", settings=SETTINGS).batches[0]
    hashed = []
    monkeypatch.setattr(
        "cdp.collection.collection_folder.hash_views", lambda views: hashed.append(1) or batch.facts.models
    )
    batch.read()
    assert not hashed
    (tmp_path / "first" / "base.npy").touch()
    batch.read()
    assert hashed


@pytest.mark.slow
def test_embeddings_are_referred_to_and_checked(halves, tmp_path):
    known, first, second = halves
    bare(first).save(tmp_path / "first")
    known.save(tmp_path / "known")
    collection = create_collection(
        tmp_path / "faces", tmp_path / "first", labeled=[tmp_path / "known"], settings=SETTINGS
    )
    assert not list((tmp_path / "faces").rglob("base.npy"))
    bare(second.take(slice(0, 80))).save(tmp_path / "first", force=True)
    with refuses("collection-embeddings-changed"):
        extend(collection, bare(second))
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    with refuses("collection-embeddings-gone"):
        extend(collection, bare(second))
    with refuses("views-models-differ"):
        extend(
            create_collection(tmp_path / "other", bare(first), labeled=[known], settings=SETTINGS),
            Views(second.base),
        )


def test_one_change_at_a_time(faces):
    with locked(faces.folder), refuses("folder-busy", BusyError):
        regroup(faces)


def pairwise_f(collection, truth):
    return measure_labels(Labels.from_array(collection.identity), truth).discards_kept.pairwise.f


@pytest.mark.slow
def test_questions_are_about_what_is_wrong_and_end(halves, faces):
    _, first, _ = halves
    truth = first.identities
    rough, _ = regroup(faces, settings=replace(faces.settings, threshold=0.1))
    start = pairwise_f(rough, truth)
    for _ in range(200):
        found = open_questions(rough)
        assert (np.diff(found.value) <= 0).all()
        if not len(found) or found.value[0] < 0.2:
            break
        one, other = found.images[0].tolist()
        append_corrections(rough.folder, [(same if truth[one] == truth[other] else different)(one, other)])
        rough, _ = regroup(rough)
    assert pairwise_f(rough, truth) > max(0.95, start)
    assert found.n_worth_asking == (found.value >= 0.5).sum()
    assert set(found.kind.tolist()) <= set(range(len(KINDS)))


def test_corrections_that_contradict_each_other_are_not_recorded(faces, tmp_path):
    """Else every later command would refuse, too."""
    table = tmp_path / "table.csv"
    table.write_text("kind,row,other_row\nsame,0,1\nsame,1,2\ndifferent,0,2\n")
    done = CliRunner().invoke(app, ["regroup", str(faces.folder), "--corrections", str(table)])
    assert "corrections-contradict" in done.output
    assert read_journal(faces.folder) == []
    append_corrections(faces.folder, [same(0, 1)])
    with pytest.raises(InputError, match="contradict each other"):
        faces.refuse_contradictions([different(0, 1)])
    faces.refuse_contradictions([different(0, 2)])


def test_how_many_entries_count_is_read_once(tmp_path, monkeypatch):
    """A photo with hundreds of faces makes 100,000 entries, and each is compared with it."""
    folder = make_collection(tmp_path / "faces", pictures=False).folder
    collection, read = open_collection(folder), []
    monkeypatch.setattr("cdp.collection.collection.read_card", lambda *of: read.append(of) or read_card(*of))
    assert [collection.n_applied for _ in range(9)] == [0] * 9
    assert len(read) == 1
