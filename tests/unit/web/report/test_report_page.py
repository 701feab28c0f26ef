"""The page: every number of run.json is on it, and it reads well when parts are missing."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.refusals import refuses

from cdp import ConsensusGraph, Labels
from cdp.errors import StoreError
from cdp.scoring.mediator import Mediator
from cdp.types import Manifest, Status
from cdp.types.run_record import (
    Committee,
    Ensemble,
    Figure,
    Importance,
    LabelFigures,
    ModelFigures,
    PartRecord,
    RecognitionFigures,
    Results,
    RunRecord,
    StageRecord,
)
from cdp.web.report.graph_view import MOST_NODES
from cdp.web.report.headline import verdict
from cdp.web.report.page import build_page
from cdp.web.report.report_inputs import (
    Artifacts,
    SplitGroups,
    first_layer,
    thumbnails,
)
from cdp.web.report.survey import survey_groups
from cdp.web.report.write import write_page
from cdp.web.words import counted
from run_folder import artifacts_of

VOID = {"img", "br", "meta"}


class Checker(HTMLParser):
    """Holds the open tags, and gathers text, pictures and ids."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.images, self.ids, self.links = [], [], [], [], []
        self.untitled = 0

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.images += [given] if tag == "img" else []
        if self.open and self.open[-1] == "svg?":
            self.open.pop()
            self.untitled += tag != "title"
        if tag not in VOID:
            self.open.append(tag)
        if tag == "svg":
            self.open.append("svg?")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], []):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def check(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.untitled == 0
    assert len(checker.ids) == len(set(checker.ids))
    assert {link.removeprefix("#") for link in checker.links} <= set(checker.ids)
    assert not re.search(r"https?://|<script|url\(|@import", page)
    assert not re.search(r"\bNone\b|\bnan\b", checker.text)
    return checker


def having(record, **places):
    """The record with other values at some places: `results__labels__true=None`."""
    plain = msgspec.to_builtins(record)
    for path, value in places.items():
        around, (*way, last) = plain, path.split("__")
        for key in way:
            around = around[int(key) if isinstance(around, list) else key]
        around[int(last) if isinstance(around, list) else last] = msgspec.to_builtins(value)
    return msgspec.convert(plain, RunRecord)


@pytest.fixture(scope="module")
def record(made_run):
    return made_run[1]


@pytest.fixture(scope="module")
def artifacts(made_run):
    return artifacts_of(made_run[0])


@pytest.fixture(scope="module")
def full(record, artifacts):
    return check(build_page(record, artifacts))


def blind(artifacts):
    """The same images of whom no identity is known."""
    images = artifacts.images
    return replace(artifacts, images=Manifest(images.locations, np.full(len(images), -1), root=images.root))


def test_every_figure_of_the_run_is_on_the_page(full, record):
    results = record.results
    expected = []
    for model in results.headline.models:
        expected += [model.title, f"{model.images:,}"]
    for figures in (*results.headline.models, results.headline.gap_closed, *results.committee.members):
        for one in (figures.rank1, *figures.tpr):
            expected += [f"{100 * value:.1f}".replace("-", "−") for value in (one.value, one.low, one.high)]
    labels, true = results.labels, results.labels.true
    expected += [f"{100 * labels.coverage:.1f} %", f"{labels.threshold:g}"]
    expected += [f"{name.replace('_', ' ')}: {number:,}" for name, number in labels.statuses.items()]
    for groups in (true.discards_kept, true.discards_removed):
        for score in (groups.pairwise, groups.bcubed):
            expected += [f"{100 * value:.1f} %" for value in (score.precision, score.recall, score.f)]
    expected += [f"{100 * value:.1f} %" for value in (true.pairs.precision, true.pairs.recall, true.pairs.f)]
    expected += [f"{true.pairs.accepted:,} of {true.pairs.candidates:,} candidate pairs"]
    for point in results.tuning.curve:
        expected += [
            f"{100 * value:.1f} %"
            for value in (point.f, point.precision, point.recall, point.coverage)
            if value is not None
        ]
    expected += results.mediator.columns
    expected += [f"{one.drop:.3f}".replace("-", "−") for one in results.mediator.importance]
    for member in results.committee.members:
        expected += [member.name, f"{member.parameters:,}", f"{100 * member.edge_precision:.1f} %"]
    expected += [f"{100 * share:.0f}" for row in results.committee.agreement.matrix for share in row]
    expected += [stage.name for stage in record.stages]
    expected += [record.command, *record.versions.values(), record.started, *record.differences]
    expected += record.recipe_text.split("\n")
    assert [words for words in expected if words not in full.text] == []
    assert set(labels.statuses) == {status.name.lower() for status in Status}


def test_time_memory_and_device(full, record, artifacts):
    assert (
        f"on {record.cores} cores; networks and exact search ran on {record.device}. The longest" in full.text
    )
    stages = [
        StageRecord(name="train", seconds=171, peak_memory=1_310_000_000),
        StageRecord(name="label", seconds=100, steps={"graphs": 30, "groups": 12}),
        StageRecord(name="label again", group="label", seconds=20, steps={"graphs": 20}),
    ]
    page = check(build_page(having(record, stages=stages, device=None, seconds=291), artifacts))
    assert "The run took 4 min 51 s on 2 cores. The longest part was train (2 min 51 s)." in page.text
    assert "Time: train 2 min 51 s; graphs 50 s; groups 12 s; label 58 s" in page.text
    assert "Peak memory: train 1.3 GB" in page.text
    assert "– graphs label 20 s" in page.text


def test_sentence_and_tile_count_the_same_groups(record, artifacts):
    found = record.results.labels.identities_found
    page = check(build_page(having(record, results__labels__true__identities_found=found - 1), artifacts))
    assert f"in {found} pseudo-identities;" in page.text
    assert f"{found} pseudo-identities found {found - 1} among the images that count" in page.text


def test_the_sizes_are_counted_in_doubling_bins(full, record):
    labels = record.results.labels
    for low, high, name in (
        (1, 1, "1 image"),
        (2, 2, "2 images"),
        (3, 4, "3–4 images"),
        (5, 8, "5–8 images"),
    ):
        found = sum(low <= size <= high for size in labels.true.sizes_found)
        true = sum(low <= size <= high for size in labels.true.sizes)
        words = f"{counted(found, 'group')} found, {counted(true, 'true identity', 'true identities')}"
        assert f"{name}: {words}" in full.text


def test_the_groups_say_what_is_wrong_with_them(full, artifacts):
    labels, truth = artifacts.labels.labels, artifacts.truth
    wrong = sum(
        int((truth[labels == group] != np.bincount(truth[labels == group]).argmax()).sum())
        for group in range(labels.max() + 1)
    )
    assert wrong > 0
    assert f"{counted(wrong, 'image')} in the others do not belong there" in full.text
    kinds = [image["class"].split()[1:] for image in full.images]
    assert ["missed"] in kinds
    assert ["other"] in kinds
    rows = {location: row for row, location in enumerate(artifacts.images.locations)}
    for image in full.images:
        assert image["src"].startswith("data:image/jpeg;base64,")
        name, identity, about = image["alt"].split(", ", 2)
        row = rows[name]
        assert identity == f"identity {artifacts.identity(truth[row])}"
        assert ("missed" in image["class"]) == (labels[row] < 0)
        assert about.startswith("discarded: " if labels[row] < 0 else f"person {labels[row]}, confidence ")
    groups = re.findall(r"person (\d+) \d+ images?, confidence", full.text)
    assert len(groups) == len(set(groups))


def test_groups_that_may_be_one_are_shown_the_most_probable_first(record, artifacts):
    found = (SplitGroups(2, 0, 0.245), SplitGroups(1, 3, 0.1))
    text = build_page(record, replace(artifacts, split_groups=found))
    sizes = artifacts.labels.sizes
    assert f"{sizes[2]} and {sizes[0]} images, probability 0.24" in text
    assert text.index("person 2 and person 0") < text.index("person 1 and person 3")
    assert "Groups most likely to be one identity" not in build_page(
        record, replace(artifacts, split_groups=())
    )


def test_every_section_calls_groups_by_the_numbers_of_the_table(record, artifacts):
    numbers = 1000 + np.arange(artifacts.labels.n_identities)
    page = build_page(record, replace(artifacts, numbers=numbers))
    found = {int(one) for one in re.findall(r"\bperson (\d+)", page)}
    assert found
    assert found <= set(numbers.tolist())
    assert re.search(r"<title>image \d+, identity \d+, person 10\d\d</title>", page)


def test_the_same_run_gives_the_same_page_and_a_small_one(made_run, record):
    first = build_page(record, artifacts_of(made_run[0]))
    assert first == build_page(record, artifacts_of(made_run[0]))
    assert len(first) < 3_000_000


def test_without_truth_only_what_is_known(record, artifacts):
    unknown = {f"results__committee__members__{at}__edge_precision": None for at in range(3)}
    changed = having(record, results__labels__true=None, parts__unlabeled__identities=None, **unknown)
    page = check(build_page(changed, blind(artifacts)))
    assert "True identities are unknown" in page.text
    assert "colored by its label" in page.text
    assert "discarded image near this group" in page.text
    assert "Groups with most discarded images nearby" in page.text
    for words in ("Mixed groups", "a mistake", "BCubed", "edge precision"):
        assert words not in page.text
    assert any("missed" in image["class"] for image in page.images)
    assert not any("other" in image["class"] for image in page.images)


def test_without_a_bound(record, artifacts):
    headline = record.results.headline
    changed = having(
        record, results__headline__models=headline.models[:2], results__headline__gap_closed=None
    )
    page = check(build_page(changed, artifacts))
    before, after = (100 * model.rank1.value for model in headline.models[:2])
    assert "No network was trained on all true labels, so the upper bound is unknown." in page.text
    assert f"{after - before:+.1f} points".replace("-", "−") in page.text
    assert "gap closed" not in page.text


def test_a_run_on_embeddings_has_everything_but_pictures_and_recognition(record, artifacts):
    members = [
        {"name": member.name, "role": member.role, "edge_precision": member.edge_precision}
        for member in record.results.committee.members
    ]
    note = "There are no probe images, so recognition was not measured; give data.test or split.probes."
    changed = having(record, results__headline=None, results__committee__members=members, notes=[note])
    identities = artifacts.truth
    page = check(build_page(changed, replace(artifacts, images=None, identities=identities)))
    assert page.images == []
    assert note in page.text.partition("How good")[0]
    assert "Recognition was not measured" in page.text
    assert "headline" not in page.ids
    assert "Did it help?" not in page.text
    assert "Image paths are unknown; images are listed by row" in page.text
    labels = artifacts.labels
    row = int(survey_groups(labels, identities).members(0)[0])
    assert f"row {row} {labels.confidence[row]:.2f}" in page.text
    for words in (
        "Mixed groups",
        "Accepted pairs",
        "First-layer weights",
        "Edge precision",
        "Agreement",
    ):
        assert words in page.text
    for words in ("Rank-1 alone", "parameters", "rank-1"):
        assert words not in page.text


def test_labels_alone_have_a_report(made_run, artifacts, tmp_path):
    """What `cdp label --report` writes: no networks, no truth, thumbnails where the views have paths to images."""
    made = made_run[1].results
    record = RunRecord(
        command="cdp label unlabeled --out work/groups/",
        results=Results(
            labels=LabelFigures(coverage=0.5, identities_found=artifacts.labels.n_identities, threshold_kind="mean probability", threshold=0.3),
            tuning=made.tuning,
            mediator=made.mediator,
        ),
        stages=[StageRecord(name="label", seconds=3.0, steps={"graphs": 1.0, "groups": 2.0})],
        parts={"unlabeled": PartRecord(images=artifacts.labels.n_images)},
    )  # fmt: skip
    write_page(record, blind(artifacts), tmp_path / "report.html")
    page = check((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Consensus-driven propagation: groups unlabeled" in page.text
    assert "threshold on the mean probability between groups" in page.text
    assert "First-layer weights" in page.text
    assert "Single models were not measured." in page.text
    assert len(page.images) > 20
    without = check(build_page(record, replace(artifacts, images=None)))
    assert without.images == []
    assert "listed by row" in without.text


def test_where_the_images_lie_and_whose_they_are(made_run, artifacts):
    table = Manifest.load(made_run[0] / "run" / "parts" / "unlabeled.csv")
    assert artifacts.images.names == table.names
    np.testing.assert_array_equal(artifacts.truth, table.identities)
    assert [Path(artifacts.images.root, one) for one in artifacts.images.locations] == [
        Path(one) for one in table.locations
    ]


def test_notes_are_shown_on_top(full, record, artifacts):
    note = "The labels were corrected by the truth (splits), so nothing but the truth could have made them."
    assert 'class="notes"' not in build_page(having(record, notes=[]), artifacts)
    page = check(build_page(having(record, notes=[note, "Second."]), artifacts))
    assert f"{note} Second." in page.text.partition("Did it help?")[0]


def test_with_a_vote_without_tuning_and_members(record, artifacts):
    changed = having(
        record,
        results__labels__threshold_kind="similarity",
        results__mediator=None,
        results__tuning=None,
        results__committee=Committee(),
    )
    page = check(build_page(changed, replace(artifacts, weights=None)))
    assert "Pairs were accepted by vote" in page.text
    assert "threshold on the base's similarity" in page.text
    assert "Thresholds tried" not in page.text
    assert "Single models were not measured." in page.text


def test_accepted_pairs_of_average_linkage_are_called_so(record, artifacts):
    page = check(build_page(having(record, results__labels__setting="threshold"), artifacts))
    assert "Before propagation: " in page.text
    page = check(build_page(having(record, results__labels__threshold_kind="mean probability"), artifacts))
    assert "candidate pairs are in one group, and count as accepted." in page.text
    assert "Before propagation" not in page.text


def test_how_the_threshold_was_chosen_is_told(full, record, artifacts):
    assert "the best F was taken." in full.text
    page = check(build_page(having(record, results__tuning__beta=2.0), artifacts))
    assert "the best F-beta was taken, with beta 2." in page.text
    assert "the best F was taken" not in page.text


def test_rounds_are_told_one_by_one(full, record, artifacts):
    assert "round by round" not in full.text
    first = msgspec.to_builtins(record.results.labels) | {"coverage": 0.4567, "identities_found": 3_210}
    first["true"]["discards_kept"]["pairwise"] = {"precision": 0.1234, "recall": 0.2345, "f": 0.1617}
    unknown = {**first, "true": None, "coverage": 0.5678}
    page = check(build_page(having(record, results__earlier_rounds=[first, unknown]), artifacts))
    assert "1 45.7 % 3,210 12.3 % 23.4 % 16.2 % 2 56.8 % 3,210" in page.text
    assert "Labels, round by round" in page.text


def test_an_ensemble_stands_below_the_members(record, artifacts):
    best = Ensemble(names=["small_resnet", "small_vgg"], rank1=Figure(value=0.6543))
    page = check(build_page(having(record, results__committee__ensemble=best), artifacts))
    assert "small_resnet + small_vgg ensemble — 65.4 %" in page.text


def test_weights_that_do_not_fit_their_names_are_not_drawn(record, artifacts):
    changed = having(record, results__mediator__columns=record.results.mediator.columns[1:])
    assert "The weights of this mediator are not available." in check(build_page(changed, artifacts)).text


def test_inputs_that_only_harm(record, artifacts):
    importance = [Importance(block="affinity", drop=-0.25), Importance(block="relationship")]
    page = check(build_page(having(record, results__mediator__importance=importance), artifacts))
    assert "No single kind of input is indispensable" in page.text
    assert "affinity −0.250; relationship —" in page.text
    only = having(record, results__mediator__importance=importance[:1])
    assert "affinity −0.250" in check(build_page(only, artifacts)).text


def test_almost_nothing_is_known():
    record = RunRecord(results=Results(labels=LabelFigures(coverage=0.0, identities_found=0)))
    page = check(build_page(record, Artifacts()))
    for words in (
        "Recognition was not measured",
        "No groups.",
        "The accepted pairs are not available, so there is no graph.",
        "No mediator with weights",
        "No stages recorded.",
        "Consensus-driven propagation: a run",
    ):
        assert words in page.text


def test_nothing_was_labeled(record, artifacts):
    n_images = artifacts.labels.n_images
    empty = Labels.from_array(np.full(n_images, -1))
    nothing = ConsensusGraph(np.empty((0, 2), np.int32), np.empty(0), n_images)
    changed = having(
        record,
        results__labels__coverage=0.0,
        results__labels__identities_found=0,
        results__labels__sizes=[],
        results__labels__true__discards_removed={},
        results__labels__true__pairs={"recall": 0.0, "candidates": 10, "accepted": 0},
    )
    page = check(build_page(changed, replace(artifacts, labels=empty, consensus=nothing)))
    assert "0.0 % of the unlabeled images are labeled, in 0 pseudo-identities" in page.text
    assert "precision is undefined" in page.text
    assert "No pair was accepted, so there is no graph." in page.text


def test_groups_that_are_too_large_to_draw(record):
    n_images = MOST_NODES + 1
    labels = Labels.from_array(np.zeros(n_images, np.int64))
    chain = np.stack([np.arange(n_images - 1), np.arange(1, n_images)], axis=1)
    graph = ConsensusGraph(chain, np.full(len(chain), 0.1), n_images)
    page = check(build_page(record, Artifacts(labels=labels, consensus=graph)))
    assert "All groups are too large to draw, so there is no graph." in page.text
    smaller = ConsensusGraph(chain[:99], np.full(99, 0.1), 100)
    page = check(
        build_page(record, Artifacts(labels=Labels.from_array(np.zeros(100, np.int64)), consensus=smaller))
    )
    assert "Shown: 1 of 1 group and 99 of 99 accepted pairs." in page.text


def test_text_is_escaped(record, artifacts):
    nasty = '<img src=x onerror="alert(1)">&'
    changed = having(
        record,
        command=f"cdp run {nasty}",
        recipe_text=nasty,
        device=nasty,
        notes=[nasty],
        results__headline__models__0__title=nasty,
        stages__0__name=nasty,
        results__committee__members__0__name=nasty,
        results__committee__agreement__names__0=nasty,
        versions={nasty: nasty},
        differences={nasty: nasty},
    )
    images = artifacts.images
    names = tuple(f"{nasty}{number}" for number in range(len(images.names)))
    hostile = Manifest(images.locations, images.identities, names, images.root)
    text = build_page(changed, replace(artifacts, images=hostile))
    page = check(text)
    assert "<img src=x" not in text
    assert page.text.count(nasty) >= 9
    assert all(image["src"].startswith("data:") for image in page.images)
    paths = Manifest(tuple(f"{nasty}{row}" for row in range(len(images))), images.identities)
    assert "<img src=x" not in build_page(changed, replace(artifacts, images=paths))


def model(key, value, spread=0.01):
    rank1 = Figure(value=value, low=value - spread, high=value + spread)
    return ModelFigures(key=key, title=key, rank1=rank1)


@pytest.mark.parametrize(
    ("values", "share", "spread", "words"),
    [
        (
            (0.5, 0.7, 0.8),
            0.667,
            0.01,
            "Pseudo-labels raised rank-1 from 50.0 % to 70.0 %; all true labels gave 80.0 %. That closes 66.7 % of the gap.",
        ),
        (
            (0.5, 0.4, 0.8),
            -0.33,
            0.01,
            "Pseudo-labels did not help: rank-1 fell from 50.0 % to 40.0 %, while all true labels gave "
            "80.0 %.",
        ),
        (
            (0.5, 0.9, 0.8),
            1.33,
            0.01,
            "Pseudo-labels raised rank-1 from 50.0 % to 90.0 %, more than all true labels gave (80.0 %).",
        ),
        (
            (0.5, 0.51, 0.8),
            0.033,
            0.02,
            "Pseudo-labels raised rank-1 from 50.0 % to 51.0 %; all true labels gave 80.0 %. That closes 3.3 % of the gap. "
            "The 95 % intervals overlap, so this test does not settle the difference.",
        ),
        (
            (0.5, 0.6, 0.5),
            None,
            0.01,
            "Pseudo-labels raised rank-1 from 50.0 % to 60.0 %. All true labels gave 50.0 %, no clear gain over the labeled "
            "part alone, so there is no gap to close.",
        ),
        (
            (0.5, 0.5, 0.8),
            0.0,
            0.01,
            "Pseudo-labels changed nothing: rank-1 stayed at 50.0 %; all true labels gave 80.0 %. That closes 0.0 % of the "
            "gap.",
        ),
    ],
)
def test_the_verdict_also_works_when_it_disappoints(values, share, spread, words):
    models = {
        key: model(key, value, spread) for key, value in zip(("labeled", "cdp", "all"), values, strict=True)
    }
    gap = None if share is None else RecognitionFigures(rank1=Figure(value=share))
    assert verdict(models, gap) == words


def test_writing(artifacts, record, tmp_path):
    write_page(record, artifacts, tmp_path / "page.html")
    check((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(StoreError, match=r"page.html: cannot be written"):
        write_page(record, artifacts, tmp_path / "page.html" / "page.html")


def test_a_record_without_artifacts_has_a_report(record, full):
    page = check(build_page(record, Artifacts()))
    assert "No groups." in page.text
    assert page.text.partition("Did it help?")[0] == full.text.partition("Did it help?")[0]


def test_parts_of_different_runs_are_refused(artifacts):
    with refuses("images-counts-differ"):
        replace(artifacts, images=artifacts.images.take(range(10)))
    with refuses("images-counts-differ"):
        Artifacts(labels=Labels.from_array([0, 0, 1]), identities=np.zeros(2, np.int64))


def test_an_unreadable_image_becomes_a_question_mark(artifacts, tmp_path, record):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    shutil.copyfile(Path(artifacts.images.root, artifacts.images.locations[0]), good)
    bad.write_bytes(b"nothing")
    paths = (str(good), *[str(bad)] * (len(artifacts.images) - 1))
    images = Manifest(paths, artifacts.truth, root=str(tmp_path))
    page = check(build_page(record, replace(artifacts, images=images)))
    assert len(page.images) <= 2
    assert "A question mark is an image that could not be read." in page.text
    good.unlink()
    page = check(build_page(record, replace(artifacts, images=images)))
    assert page.images == []
    assert "The images could not be read; they are listed by path with their confidence." in page.text
    assert re.search(r"bad.png [01].\d\d ", page.text)


def test_thumbnails_are_small_squares(artifacts):
    source = thumbnails(artifacts.images)(3)
    assert source is not None
    assert len(source) < 4_000
    assert thumbnails(None) is None


def test_what_is_read_from_the_folder(made_run, artifacts):
    mediator = Mediator.load(made_run[0] / "run" / "labels" / "mediator")
    np.testing.assert_array_equal(artifacts.weights, mediator.classifier.weights_[0][0])
    assert first_layer(replace(mediator, classifier=object())) is None
    assert artifacts.base_graph.n_images == artifacts.consensus.n_images == artifacts.labels.n_images
