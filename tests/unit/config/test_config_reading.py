"""Recipes from TOML: defaults, paths, and a sentence for every mistake."""

from pathlib import Path

import pytest
from tests.refusals import refuses

from cdp.config.environment import check_paths
from cdp.config.reading import read_recipe, recipe_from
from cdp.config.sections import ConsensusSection, RunRecipe
from cdp.scoring.settings import default_of
from cdp.settings import settings_of


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.toml"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_what_is_left_out_has_its_default(write):
    assert read_recipe(write("")) == RunRecipe()
    recipe = read_recipe(write("seed = 4\n[consensus]\nk = 30\nbeta = 2\n[evaluation]\nfpr = [0.5]\n"))
    assert (recipe.seed, recipe.consensus.k, recipe.evaluation.fpr) == (4, 30, (0.5,))
    assert repr(recipe.consensus.beta) == "2.0"
    assert recipe.train == RunRecipe().train


def test_a_recipe_written_elsewhere_is_read(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbfseed = 4\r\n[base]\r\nnetwork = 'x'\r\n")
    assert read_recipe(file).base.network == "x"


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        (
            "[consenus]\nk = 3",
            "recipe-section-unknown", {"key": "consenus"},
        ),
        (
            "[engine]\nthread = 3",
            "recipe-key-unknown", {"section": "engine", "key": "thread"},
        ),
        (
            "[engine]\nepochs = 3",
            "recipe-key-unknown", {"section": "engine", "key": "epochs"},
        ),
        (
            "[base]\nfolds = 3",
            "recipe-key-unknown", {"section": "base", "key": "folds"},
        ),
        (
            '[consensus]\npreset = "papers"',
            "preset-unknown", {"key": "preset", "value": "papers"},
        ),
        ("[base]\nqq = 3", "recipe-key-unknown", {"section": "base", "key": "qq"}),
        ("threshold = 0.9", "recipe-section-unknown", {"key": "threshold"}),
        ("sede = 9", "recipe-section-unknown", {"key": "sede"}),
        ("consensus = 3", "recipe-section-expected", {"key": "consensus", "value": 3}),
        ("[[data]]\nimages = 'x'", "recipe-section-expected", {"key": "data", "value": [{'images': 'x'}]}),
        ('[consensus]\nk = "20"', "setting-type-wrong", {"key": "consensus.k", "value": "20"}),
        ("[consensus]\nk = 20.0", "setting-type-wrong", {"key": "consensus.k", "value": 20.0}),
        ("[consensus]\nk = true", "setting-type-wrong", {"key": "consensus.k", "value": True}),
        ("[consensus.k]\nx = 1", "setting-type-wrong", {"key": "consensus.k", "value": {'x': 1}}),
        ("[consensus]\ndisjoint = 1", "setting-type-wrong", {"key": "consensus.disjoint", "value": 1}),
        ("[consensus]\nthreshold = 'best'", "setting-type-wrong", {"key": "consensus.threshold", "value": "best"}),
        ("[train]\nrate = 2025-01-01", "setting-type-wrong", {"key": "train.rate"}),
        ("[committee]\nnetworks = 'a'", "setting-type-wrong", {"key": "committee.networks", "value": "a"}),
        ("[data]\nimages = ['a']", "setting-type-wrong", {"key": "data.images", "value": ['a']}),
        ("[data]\nunlabeled = ['a', 3]", "setting-type-wrong", {"key": "data.unlabeled[1]", "value": 3}),
        ("[evaluation]\nfpr = [0.1, 'x']", "setting-type-wrong", {"key": "evaluation.fpr[1]", "value": "x"}),
        ("[consensus]\nthreshold = 96", "threshold-out-of-range", {"key": "consensus.threshold", "value": 96}),
        ("[consensus]\nthreshold = nan", "setting-out-of-range", {"key": "consensus.threshold"}),
        ("seed = 1\n[base]\nnetwork = \n", "recipe-syntax-wrong", {}),
        (
            "[base]\nnetwork = small_resnet",
            "recipe-syntax-wrong", {},
        ),
        ("[consensus]\nk = 1\nk = 2", "recipe-syntax-wrong", {}),
        ("[base]\nnetwork = '''x", "recipe-syntax-wrong", {}),
    ],
)  # fmt: skip
def test_mistakes_are_named(write, text, code, fields):
    file = write(text)
    with refuses(code, **fields):
        read_recipe(file)


def test_files_that_cannot_be_read(tmp_path):
    missing = tmp_path / "none.toml"
    with refuses("recipe-missing", file=tmp_path / "none.toml") as caught:
        read_recipe(missing)
    assert (
        str(caught.value)
        == f"{missing}: no such file; `cdp data recipe {missing}` writes a recipe to start from."
    )
    with refuses("recipe-unreadable", file=tmp_path):
        read_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[base]\nnetwork = "\xe9"')
    with refuses("text-not-utf8", file=tmp_path / "latin.toml"):
        read_recipe(tmp_path / "latin.toml")


def test_paths_start_from_the_recipe_wherever_cdp_is_called(write, tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    file = write(
        '[data]\nlabeled = "a.csv"\nunlabeled = ["../b", "/c/d.tar"]\ntest = "~/t"\nroot = "."\n',
        "recipes/x.toml",
    )
    monkeypatch.setenv("HOME", "/home/me")
    base = tmp_path.resolve()
    for folder, name in (
        (tmp_path, "recipes/x.toml"),
        (tmp_path / "elsewhere", "../recipes/x.toml"),
        (tmp_path, file),
    ):
        monkeypatch.chdir(folder)
        data = read_recipe(name).data
        assert data.labeled == str(base / "recipes/a.csv")
        assert data.unlabeled == (str(base / "b"), "/c/d.tar")
        assert (data.test, data.root) == ("/home/me/t", str(base / "recipes"))
        assert (data.images, data.validation, data.skip) == ("", "", "")


def test_data_is_found_beside_the_recipe_then_here_then_in_cdp_data(write, tmp_path, monkeypatch):
    file = write('[data]\nembeddings = "data/lfw"\n')
    beside, here, shared = tmp_path / "data/lfw", tmp_path / "here/data/lfw", tmp_path / "shared/lfw"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("CDP_DATA", str(tmp_path / "shared"))
    assert read_recipe(file).data.embeddings == str(beside.resolve()), "named as written where it is nowhere"
    for folder in (shared, here, beside):
        folder.mkdir(parents=True)
        assert read_recipe(file).data.embeddings == str(folder.resolve())
    given = read_recipe(file, {"data.images": "data/other.zip", "data.test": "data/lfw"}).data
    assert (given.images, given.test) == (str(here.parent / "other.zip"), str(here))
    # Only data/ is looked for elsewhere: another path with a typing error must not find somebody else's files.
    (tmp_path / "here" / "faces").mkdir()
    assert read_recipe(write('[data]\nimages = "faces"\n')).data.images == str(tmp_path.resolve() / "faces")


@pytest.mark.parametrize("name", ["lfw", "omniglot", "omniglot_study"])
def test_the_projects_recipes_find_the_data_the_user_names(shared_data, name, monkeypatch):
    monkeypatch.setenv("CDP_DATA", str(shared_data))
    check_paths(read_recipe(Path(__file__).parents[3] / "recipes" / f"{name}.toml"))


def test_paths_of_the_command_line_start_from_the_working_directory(write, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    file = write('[data]\nimages = "faces"\ntest = "t"\n')
    monkeypatch.chdir(tmp_path / "here")
    data = read_recipe(file, {"data.images": "other", "data.unlabeled": ("a", "b")}).data
    here = tmp_path.resolve() / "here"
    assert (data.images, data.unlabeled) == (str(here / "other"), (str(here / "a"), str(here / "b")))
    assert data.test == str(tmp_path.resolve() / "t")
    assert read_recipe(file, {"data.images": ""}).data.images == ""


def test_a_preset_sets_what_is_not_given(write):
    paper = {name: default_of(name, "paper") for name in settings_of(ConsensusSection) if name != "preset"}
    for recipe in (
        read_recipe(write('[consensus]\npreset = "paper"\n')),
        read_recipe(write(""), {"consensus.preset": "paper"}),
        recipe_from({}, {"consensus.preset": "paper"}),
    ):
        assert {name: getattr(recipe.consensus, name) for name in paper} == paper
        assert recipe.consensus.preset == "paper"
    own = read_recipe(
        write('[consensus]\npreset = "paper"\ngrouping = "average"\n'), {"consensus.threshold": "auto"}
    )
    assert (own.consensus.grouping, own.consensus.threshold) == ("average", None)
    assert own.consensus.inputs == paper["inputs"]
    # The command line's preset moves what the file leaves open, and nothing that it sets.
    moved = read_recipe(write("[consensus]\nthreshold = 'auto'\n"), {"consensus.preset": "paper"})
    assert (moved.consensus.threshold, moved.consensus.grouping) == (None, "components")


def test_the_command_line_wins_and_may_mend_the_file(write):
    file = write('seed = 1\n[consensus]\nk = "wrong"\nmax_cluster_size = 9\n')
    recipe = read_recipe(file, {"consensus.k": 7, "seed": 2})
    assert (recipe.seed, recipe.consensus.k, recipe.consensus.max_cluster_size) == (2, 7, 9)
    assert read_recipe(file, {"consensus.k": 7, "seed": 2}) == recipe


def test_plain_values_make_a_recipe():
    recipe = RunRecipe(seed=3)
    assert recipe_from(recipe.as_dict()) == recipe
    assert recipe_from({"data": {"images": "a/b"}}).data.images == "a/b"
    assert recipe_from({}, {"joint.epochs": 2}).joint.epochs == 2
    with refuses("recipe-key-unknown", file="", section="base", key="net"):
        recipe_from({"base": {"net": "x"}})


def test_nothing_comes_from_the_environment(write, monkeypatch):
    file = write("")
    for name in ("CDP_SEED", "CDP_CONSENSUS_K", "SEED"):
        monkeypatch.setenv(name, "5")
    assert read_recipe(file) == RunRecipe()
