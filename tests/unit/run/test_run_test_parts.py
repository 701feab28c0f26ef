"""What networks are tested on: probes and distractors of two sources, and templates by protocol files."""

from pathlib import Path

import numpy as np
import pytest
from tests.drawn_images import draw_patterns
from tests.recognition_reference import people, write_ijba
from tests.refusals import refuses

from cdp.config.checks import check_recipe
from cdp.config.environment import check_environment
from cdp.config.reading import recipe_from
from cdp.config.sections import EngineSection, MeasureSettings
from cdp.data.ijb import save_templates
from cdp.run.evaluation import RecognitionSettings, measure_recognition, recognize
from cdp.run.parts import SplitSettings, make_parts
from cdp.run.plan import make_stages
from cdp.run.run_recipe import hash_sources
from cdp.run.sources import Facts, prepare, read_template_images, resolve
from cdp.run.stages import Context, Ledger
from cdp.runtime.progress import no_progress
from cdp.storage.artifacts import read_json
from cdp.storage.files import write_json
from cdp.types import Embeddings, Labels, Status, Views
from cdp.types.manifest import Manifest
from cdp.types.run_record import Headline

MEGAFACE = {"probes": "p", "distractors": "d"}
IJBA = {"templates": "t", "template_images": "i"}
PARTS = {"labeled": "a", "unlabeled": ["b"]}


def recipe_with(data, **sections):
    return recipe_from({"data": data, **sections})


@pytest.mark.parametrize(
    "data", [{"images": "x", **MEGAFACE}, {**PARTS, **IJBA}, {**PARTS, **MEGAFACE, **IJBA}]
)
def test_what_can_be_tested_on(data):
    assert check_recipe(recipe_with(data)) is None


@pytest.mark.parametrize(
    ("data", "split", "code", "fields"),
    [
        (
            {"probes": "p"},
            {},
            "recipe-keys-go-together",
            {"keys": ("data.probes", "data.distractors"), "key": "data.distractors"},
        ),
        (
            {"template_images": "i"},
            {},
            "recipe-keys-go-together",
            {"keys": ("data.templates", "data.template_images"), "key": "data.templates"},
        ),
        ({**MEGAFACE, "test": "t"}, {}, "recipe-tests-clash", {"keys": ("data.test", "data.probes")}),
        (
            MEGAFACE,
            {"probes": 0.1, "distractors": 0.1},
            "recipe-test-shares-clash",
            {"keys": ("split.probes", "split.distractors")},
        ),
    ],
)
def test_what_does_not_go_together_is_refused(data, split, code, fields):
    with refuses(code, **fields):
        check_recipe(recipe_with({"images": "x", **data}, split=split))


def test_embeddings_have_no_template_images(tmp_path):
    Views(np.eye(3)).save(tmp_path / "views")
    data = {key: str(tmp_path) for key in IJBA}
    recipe = recipe_with({"embeddings": str(tmp_path / "views"), **data})
    with refuses("recipe-key-needs-images", key="data.templates"):
        check_environment(recipe)


def test_too_few_resamplings_are_refused_before_the_run():
    with refuses("setting-out-of-range", file="", key="evaluation.replicates", value=10):
        recipe_with(PARTS, evaluation={"replicates": 10})


def test_a_folder_that_is_not_there_is_named(tmp_path):
    recipe = recipe_with({"images": str(tmp_path), **MEGAFACE})
    with refuses("recipe-path-missing", key="data.probes", file="p"):
        check_environment(recipe)


def test_given_probes_take_no_share_of_the_images():
    resolved = resolve(recipe_with({"images": "x", **MEGAFACE}), Facts("images"))
    assert resolved.test_parts == ("probes", "distractors")
    assert (resolved.recipe.split.probes, resolved.recipe.split.distractors) == (0, 0)
    assert resolved.has_bound


def test_templates_alone_are_a_test():
    resolved = resolve(recipe_with({**PARTS, **IJBA}), Facts("images"))
    assert resolved.test_parts == ("templates",)
    assert "There are no probe images, so identification was not measured" in resolved.notes[-1]
    stages = {stage.name: stage for stage in make_stages(resolved)}
    assert stages["split"].makes["protocol"] == "parts/protocol.npz"
    assert {"protocol", "joint/small_resnet of templates"} <= set(stages["measure recognition"].needs)
    assert "networks/small_vgg of templates" in stages["measure members"].needs


def manifest(prefix, identities, names=None):
    return Manifest(
        tuple(f"/{prefix}/{row}.png" for row in range(len(identities))), np.array(identities), names
    )


def cut(probes, distractors):
    labeled = manifest("labeled", [0, 0, 1, 1])
    sources = {"labeled images": labeled, "unlabeled images": manifest("unlabeled", [-1, -1])}
    settings = SplitSettings(recipe_with(PARTS).split, False, True, 0, 0)
    return make_parts(settings, {**sources, "probe images": probes, "distractor images": distractors})


def test_probes_and_distractors_are_compared_by_name():
    probes = manifest("p", [0, 0, 1, 1], ("ann", "bob"))
    parts = cut(probes, manifest("d", [0, 1, -1], ("cy", "dan")))
    assert not set(parts["probes"].identities) & set(parts["distractors"].identities)
    assert parts["distractors"].identities[2] == -1
    assert parts["probes"].locations == probes.locations
    with refuses("distractors-show-probes", keys=("data.probes", "data.distractors"), row=1, count=1):
        cut(probes, manifest("d", [0, 1], ("cy", "bob")))
    with refuses("distractors-show-probes", keys=("data.probes", "data.distractors"), row=1, count=1):
        cut(manifest("p", [3, 3]), manifest("d", [4, 3]))


def test_names_and_numbers_cannot_be_compared():
    parts = cut(manifest("p", [0, 0], ("ann",)), manifest("d", [0, 1]))
    assert parts["distractors"].identities.tolist() == [-1, -1]
    assert parts["probes"].identities.tolist() == [0, 0]


def test_a_probe_without_a_mate_is_found_before_anything_is_trained():
    with refuses("probes-without-mate", keys=("data.probes", "data.distractors"), row=2, count=1):
        cut(manifest("p", [0, 0, 1]), manifest("d", [-1]))


@pytest.fixture
def ijba(tmp_path):
    """The keys of [data] for an IJB-A of two splits, with an image that no split names."""
    _, names, _ = write_ijba(tmp_path / "protocol", n_splits=2)
    drawn = draw_patterns(tmp_path / "drawn", n_identities=8, n_images=6)
    rows = [f"drawn/{location}" for location in drawn.locations]
    for name, row in zip(names, rows, strict=True):
        image = tmp_path / "faces" / name
        image.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / row).rename(image)
    (tmp_path / "faces" / "img" / "more.png").write_bytes(b"never read")
    return {"templates": str(tmp_path / "protocol"), "template_images": str(tmp_path / "faces")}


def test_only_images_of_templates_are_embedded(ijba):
    images, protocols = read_template_images(recipe_with({**PARTS, **ijba}))
    assert images.n_images < 8 * 6 + 1
    assert (images.identities == -1).all()
    assert not any("more" in location for location in images.locations)
    used = np.unique(np.concatenate([one.images for one in protocols]))
    assert used.tolist() == list(range(images.n_images))
    (split, *_), line = protocols, 1
    text = (split_file(ijba)).read_text().splitlines()[line]
    assert text.split(",")[2] == images.locations[split.images[line - 1]]


def split_file(ijba):
    return Path(ijba["templates"]) / "split1" / "verify_metadata_1.csv"


def test_another_protocol_is_another_source(ijba, tmp_path):
    people_folder = draw_patterns(tmp_path / "people", n_identities=4, n_images=2).root
    resolved = prepare(recipe_with({"images": people_folder, **ijba}))
    assert resolved.test_parts == ("probes", "distractors", "templates")
    before = hash_sources(resolved, Ledger(tmp_path / "run"))
    assert set(before) == {"images", "template images"}
    comparisons = split_file(ijba).with_name("verify_comparisons_1.csv")
    comparisons.write_text("".join(comparisons.read_text().splitlines(keepends=True)[:-1]))
    after = hash_sources(resolved, Ledger(tmp_path / "run"))
    assert after["images"] == before["images"]
    assert after["template images"] != before["template images"]


@pytest.fixture
def folder(tmp_path, ijba):
    """A run's folder up to the embeddings of its test parts."""
    images, protocols = read_template_images(recipe_with({**PARTS, **ijba}))
    (tmp_path / "parts").mkdir()
    save_templates(tmp_path / "parts" / "protocol.npz", protocols)
    vectors, identities = people(8, 4, noise=0.5, seed=1)
    others, _ = people(10, 2, noise=0.5, seed=2)
    tables = {
        "probes": manifest("p", identities),
        "distractors": manifest("d", [-1] * len(others)),
        "templates": images,
        "labeled": manifest("l", [0, 0]),
        "unlabeled": manifest("u", [-1, -1, -1]),
    }
    for name, table in tables.items():
        table.save(tmp_path / "parts" / f"{name}.csv")
    pictures = np.random.default_rng(3).normal(size=(images.n_images, 16))
    for network in ("networks/a", "joint/a", "bound/a"):
        for name, rows in (("probes", vectors), ("distractors", others), ("templates", pictures)):
            shaken = rows + (0.3 if network == "networks/a" else 0.1) * np.roll(rows, 1, axis=0)
            Views(shaken.astype(np.float32)).save(tmp_path / "embeddings" / network / name)
    status = np.full(3, Status.LABELED)
    Labels(np.array([0, 0, 1]), status, np.ones(3, np.float32)).save(tmp_path / "labels")
    write_json(tmp_path / "parts" / "counts.json", {})
    return tmp_path


@pytest.mark.parametrize(
    "parts", [("probes", "distractors"), ("templates",), ("probes", "distractors", "templates")]
)
@pytest.mark.parametrize("replicates", [0, 20])
def test_what_is_not_given_is_left_out(folder, parts, replicates):
    context = Context(folder, folder / "steps", EngineSection(threads=1), no_progress)
    tested = (("labeled", "networks/a"), ("cdp", "joint/a"), ("all", "bound/a"))
    measure = MeasureSettings(fpr=(0.2,), replicates=replicates, pairs=500)
    measure_recognition(RecognitionSettings(measure, tested, "a", parts, 0), context)
    headline = read_json(folder / "recognition.json", Headline)
    assert (headline.probes is None) == ("probes" not in parts)
    assert (headline.template_images is None) == ("templates" not in parts)
    assert [model.images for model in headline.models] == [2, 5, 5]
    for figures in headline.models:
        assert (figures.rank1.value is None) == ("probes" not in parts)
        assert [rate.fpr for rate in figures.tpr] == ([0.2] if "probes" in parts else [])
        assert [rate.fpr for rate in figures.templates] == ([0.2] if "templates" in parts else [])
        for figure in (*figures.tpr, *figures.templates):
            assert figure.value is not None
            assert (figure.low is None) == (replicates == 0)


def test_templates_are_rows_of_the_embeddings(folder):
    context = Context(folder, folder / "steps", EngineSection(threads=1), no_progress)
    images = Manifest.load(folder / "parts" / "templates.csv")
    # Person p has the images 6p to 6p + 5; whoever sees them as nearly one vector recognizes everybody.
    person = np.array(
        [int(location.rpartition("/")[2].partition(".")[0]) // 6 for location in images.locations]
    )
    noise = np.random.default_rng(0).normal(0, 0.1, (len(person), 8))
    seen = {"templates": Embeddings((np.eye(8)[person] + noise).astype(np.float32))}
    found = recognize(MeasureSettings(fpr=(0.1,), replicates=0), 0, context, seen).figures()
    assert found.templates[0].value == 1.0
