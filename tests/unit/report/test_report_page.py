"""The page: every number of run.json is on it, and it reads well when parts are missing."""

import copy
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from cdp.consensus.mediator import Mediator
from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.report.artifacts import Artifacts, read_artifacts, thumbnails
from cdp.report.headline import verdict
from cdp.report.page import build_page
from cdp.report.write import write_report
from cdp.types import Manifest
from run_folder import write_run

VOID = {"img", "br", "meta"}


class Checker(HTMLParser):
    """Holds the open tags, and gathers text, pictures and ids."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.images, self.ids, self.links = [], [], [], [], []
        self.untitled = 0

    def handle_starttag(self, tag, attributes):
        held = dict(attributes)
        self.ids += [held["id"]] if "id" in held else []
        self.links += [held["href"]] if "href" in held else []
        self.images += [held] if tag == "img" else []
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


@pytest.fixture(scope="module")
def artifacts(made_run):
    return read_artifacts(made_run[0], "small_resnet")


@pytest.fixture
def run(made_run):
    return copy.deepcopy(made_run[1])


@pytest.fixture(scope="module")
def full(made_run, artifacts):
    return check(build_page(made_run[1], artifacts))


def test_every_figure_of_the_run_is_on_the_page(full, run):
    results = run["results"]
    expected = []
    for model in results["headline"]["models"]:
        expected += [model["title"], f"{model['images']:,}"]
        for figure in (model["rank1"], *model["tpr"]):
            expected += [f"{100 * figure[key]:.1f}" for key in ("value", "low", "high")]
    gap = results["headline"]["gap_closed"]
    for figure in (gap["rank1"], *gap["tpr"]):
        expected += [f"{100 * figure[key]:.1f}" for key in ("value", "low", "high")]
    labels = results["labels"]
    expected += [f"{100 * labels['coverage']:.1f} %"]
    expected += [f"{name}: {number:,}" for name, number in labels["fates"].items()]
    true = labels["true"]
    for score in (true["pairs"], *true["discards_kept"].values(), *true["discards_removed"].values()):
        expected += [f"{100 * score[key]:.1f} %" for key in ("precision", "recall")]
    expected += [f"{true['pairs']['accepted']:,} of {true['pairs']['candidates']:,} candidate pairs"]
    for point in results["tuning"]["curve"]:
        expected += [f"{100 * point[key]:.1f} %" for key in ("f", "precision", "recall", "coverage")]
    expected += results["mediator"]["columns"]
    expected += [f"{entry['drop']:.3f}".replace("-", "−") for entry in results["mediator"]["importance"]]
    for member in results["committee"]["members"]:
        expected += [member["name"], f"{member['parameters']:,}", f"{100 * member['edge_precision']:.1f} %"]
    expected += [f"{100 * share:.0f}" for row in results["committee"]["agreement"]["matrix"] for share in row]
    expected += [stage["name"] for stage in run["stages"]]
    expected += ["8 min 32 s", "2 min 51 s", "1.3 GB", run["command"], *run["versions"].values()]
    expected += ["threshold = 0.8", "started", "2025-01-01T10:00:00"]
    missing = [words for words in expected if words not in full.text]
    assert missing == []


def test_the_sizes_are_counted_in_doubling_bins(full, run):
    sizes, true = run["results"]["labels"]["sizes"], run["results"]["labels"]["true"]["sizes"]
    found = sum(3 <= size <= 4 for size in sizes)
    there = sum(3 <= size <= 4 for size in true)
    assert f"3–4 images: {found} groups found, {there} true identities" in full.text


def test_the_groups_say_what_is_wrong_with_them(full, artifacts):
    labels, truth = artifacts.labels.labels, artifacts.manifest.identities
    wrong = sum(
        int((truth[labels == group] != np.bincount(truth[labels == group]).argmax()).sum())
        for group in range(labels.max() + 1)
    )
    assert wrong > 0
    assert f"{wrong} images in the others do not belong there" in full.text
    kinds = [image["class"].split()[1:] for image in full.images]
    assert ["missed"] in kinds
    assert ["stranger"] in kinds
    for image in full.images:
        assert image["src"].startswith("data:image/jpeg;base64,")
        row = int(image["alt"].split(".")[0])
        assert image["alt"].startswith(f"{row:04d}.png, identity person {truth[row]}, ")
        assert ("missed" in image["class"]) == (labels[row] < 0)
        assert ("discarded" in image["alt"]) == (labels[row] < 0)
    groups = re.findall(r"label (\d+) \d+ images?, confidence", full.text)
    assert len(groups) == len(set(groups))


def test_the_same_run_gives_the_same_page_and_a_small_one(made_run, run):
    first = build_page(run, read_artifacts(made_run[0], "small_resnet"))
    assert first == build_page(run, read_artifacts(made_run[0], "small_resnet"))
    assert len(first) < 3_000_000


def test_without_truth_only_what_is_known(run, artifacts):
    run["results"]["labels"]["true"] = None
    run["parts"]["unlabeled"]["identities"] = None
    for member in run["results"]["committee"]["members"]:
        member["edge_precision"] = None
    manifest = artifacts.manifest
    blind = Manifest(manifest.locations, np.full(len(manifest), -1), root=manifest.root)
    page = check(build_page(run, replace(artifacts, manifest=blind)))
    assert "Their true identities are not known" in page.text
    assert "colored by its label" in page.text
    assert "discarded, though near this group" in page.text
    assert "Groups with most discarded images nearby" in page.text
    assert "Typical failure" not in page.text
    assert "a mistake" not in page.text
    assert "BCubed" not in page.text
    assert any("missed" in image["class"] for image in page.images)
    assert not any("stranger" in image["class"] for image in page.images)


def test_without_a_bound(run, artifacts):
    headline = run["results"]["headline"]
    headline["models"] = headline["models"][:2]
    headline["gap_closed"] = None
    page = check(build_page(run, artifacts))
    assert (
        "Pseudo-labels raised rank-1 from 51.3 % to 76.4 %. The run trained no network on all true labels, so nobody "
        "knows how far one could get." in page.text
    )
    assert "+25.1 points" in page.text
    assert "gap closed" not in page.text


def test_with_a_vote_without_tuning_and_members(run, artifacts):
    run["results"] |= {"mediator": None, "tuning": None, "committee": {"members": [], "agreement": None}}
    page = check(build_page(run, replace(artifacts, weights=None)))
    assert "This run accepted pairs by vote" in page.text
    assert "Thresholds tried" not in page.text
    assert "This run kept no figures of single committee members." in page.text


def test_how_the_threshold_was_chosen_is_told(full, run, artifacts):
    assert "the best F was taken." in full.text
    run["results"]["tuning"]["recall_weight"] = 2.0
    page = check(build_page(run, artifacts))
    assert "the best mean was taken, recall 2 times as important as precision." in page.text
    assert "the best F was taken" not in page.text


def test_labels_that_were_mended_are_called_so(full, run, artifacts):
    assert "right by the truth" not in full.text
    run["recipe"] = {**(run.get("recipe") or {}), "consensus": {"mend": "all"}}
    page = check(build_page(run, artifacts))
    assert "This run put the labels right by the truth (splits and mixtures)" in page.text


def test_rounds_are_told_one_by_one(full, run, artifacts):
    assert "round by round" not in full.text
    first = copy.deepcopy(run["results"]["labels"])
    first |= {"coverage": 0.4567, "identities_found": 3_210}
    first["true"]["discards_kept"]["pairwise"] |= {"precision": 0.1234, "recall": 0.2345, "f": 0.1617}
    unknown = {**first, "true": None, "coverage": 0.5678}
    run["results"]["earlier_rounds"] = [first, unknown]
    page = check(build_page(run, artifacts))
    assert "1 45.7 % 3,210 12.3 % 23.4 % 16.2 % 2 56.8 % 3,210" in page.text
    assert "Labels, round by round" in page.text


def test_members_that_were_not_measured(run, artifacts):
    for member in run["results"]["committee"]["members"]:
        member |= {"rank1": None, "tpr": None}
    page = check(build_page(run, artifacts))
    assert "Rank-1 alone" not in page.text
    assert "Edge precision" in page.text
    assert "1,388,896" in page.text


def test_weights_that_do_not_fit_their_names_are_not_drawn(run, artifacts):
    run["results"]["mediator"]["columns"].pop()
    page = check(build_page(run, artifacts))
    assert "The weights of this mediator are not in the run folder." in page.text


def test_almost_nothing_is_known():
    page = check(build_page({"kind": "Run", "format": 1}, Artifacts()))
    for words in (
        "This run measured no recognition figures",
        "This run made no labels.",
        "There are no groups to show.",
        "No pair was accepted, so there is no graph to draw.",
        "This run recorded no stages.",
    ):
        assert words in page.text


def test_nothing_was_labeled(run, artifacts):
    from cdp import ConsensusGraph, Labels

    n_images = artifacts.labels.n_images
    empty = Labels.from_array(np.full(n_images, -1))
    nothing = ConsensusGraph(np.empty((0, 2), np.int32), np.empty(0), n_images)
    score = {"precision": None, "recall": None, "f": None}
    labels = run["results"]["labels"]
    labels |= {
        "coverage": 0.0,
        "identities_found": 0,
        "sizes": [],
        "fates": {"labeled": 0, "no accepted pair": n_images},
    }
    labels["true"] |= {
        "discards_kept": {"pairwise": score, "bcubed": score},
        "discards_removed": {"pairwise": score, "bcubed": score},
        "pairs": {"precision": None, "recall": 0.0, "candidates": 10, "accepted": 0},
    }
    page = check(build_page(run, replace(artifacts, labels=empty, consensus=nothing)))
    assert "0.0 % of the unlabeled images got a label, in 0 pseudo-identities" in page.text
    assert "precision is undefined" in page.text


def test_text_is_escaped(run, artifacts):
    nasty = '<img src=x onerror="alert(1)">&'
    run["command"] = f"cdp run {nasty}"
    run["recipe_text"] = nasty
    run["results"]["headline"]["models"][0]["title"] = nasty
    run["stages"][0]["name"] = nasty
    run["results"]["committee"]["members"][0]["name"] = nasty
    run["results"]["committee"]["agreement"]["names"][0] = nasty
    run["versions"][nasty] = nasty
    manifest = artifacts.manifest
    names = tuple(f"{nasty}{number}" for number in range(len(manifest.names)))
    hostile = Manifest(manifest.locations, manifest.identities, names, manifest.root)
    text = build_page(run, replace(artifacts, manifest=hostile))
    page = check(text)
    assert "<img src=x" not in text
    assert page.text.count(nasty) >= 6
    assert all(image["src"].startswith("data:") for image in page.images)


def model(key, value, spread=0.01):
    return {
        "key": key,
        "title": key,
        "rank1": {"value": value, "low": value - spread, "high": value + spread},
    }


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
            "Pseudo-labels did not help here: rank-1 fell from 50.0 % to 40.0 %, while all true labels would have given "
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
            "The two 95 % intervals overlap, so this test alone does not settle the difference.",
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
    gap = None if share is None else {"rank1": {"value": share, "low": None, "high": None}}
    assert verdict(models, gap) == words


def test_writing(made_run, tmp_path):
    page = write_report(made_run[0], tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    check(page.read_text(encoding="utf-8"))
    with pytest.raises(OutputExistsError, match=r"page.html is there already; choose another name"):
        write_report(made_run[0], page)
    assert write_report(made_run[0], page, force=True) == page
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(StoreError, match=r"cannot be written \(No such file or directory\)"):
        write_report(made_run[0], tmp_path / "nowhere" / "page.html")


def test_folders_that_are_not_runs(tmp_path, run):
    with pytest.raises(InputError, match=r"no run.json there; give the folder that `cdp run --out` wrote"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"run.json is damaged; run the recipe again"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match="not written by `cdp run`"):
        write_report(tmp_path)
    write_run(tmp_path, {**run, "format": 2, "cdp": "9.0"})
    with pytest.raises(
        InputError, match=r"was written by a newer cdp \(9.0\); fetch the newer source and run pip install"
    ):
        write_report(tmp_path)


def test_a_run_folder_without_artifacts_has_a_report(tmp_path, run):
    write_run(tmp_path, run)
    page = check(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "There are no groups to show." in page.text
    assert "That closes 87.2 % of the gap." in page.text
    assert write_report(tmp_path) == tmp_path / "report.html"


def test_parts_of_different_runs_are_refused(made_run, tmp_path, artifacts):
    shutil.copytree(made_run[0], tmp_path / "run")
    (tmp_path / "run" / "parts" / "unlabeled.csv").unlink()
    artifacts.manifest.take(range(10)).save(tmp_path / "run" / "parts" / "unlabeled.csv")
    with pytest.raises(
        InputError, match=r"different numbers of images \(unlabeled.csv 10, labels \d+, consensus"
    ):
        write_report(tmp_path / "run")


def test_an_unreadable_image_becomes_a_question_mark(made_run, tmp_path, run):
    shutil.copytree(made_run[0], tmp_path / "run")
    for file in (tmp_path / "run" / "images").iterdir():
        file.write_bytes(b"nothing")
    page = check(build_page(run, read_artifacts(tmp_path / "run", "small_resnet")))
    assert page.images == []
    assert "A question mark stands for an image that could not be read." in page.text


def test_thumbnails_are_small_squares(artifacts):
    source = thumbnails(artifacts.manifest)(3)
    assert source is not None
    assert len(source) < 4_000


def test_what_is_read_from_the_folder(made_run, artifacts):
    mediator = Mediator.load(made_run[0] / "mediator")
    np.testing.assert_array_equal(artifacts.weights, mediator.classifier.weights_[0][0])
    assert artifacts.base_graph.n_images == artifacts.labels.n_images
    other = read_artifacts(made_run[0], "small_vgg").base_graph
    assert not np.array_equal(other.neighbors, artifacts.base_graph.neighbors)
    assert read_artifacts(made_run[0], "nobody").base_graph is None


def paths_of(value, path=()):
    """Every place in run.json, of lists the first entry only."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from paths_of(value[0], (*path, 0))


# What an entry is called is never unknown; without it there would be nothing to report about.
NAMES = {"kind", "format", "key", "title", "name", "fpr", "threshold", "block", "names", "columns"}


@pytest.mark.slow
def test_any_value_may_be_unknown(run):
    tried = 0
    for path in list(paths_of(run)):
        if not path or path[-1] in NAMES or path[-1] == 0:
            continue
        changed = copy.deepcopy(run)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = None
        try:
            check(build_page(changed, Artifacts()))
        except Exception as error:
            raise AssertionError(f"{path} is null") from error
        tried += 1
    assert tried > 100
