"""Recipes from TOML: defaults, paths, and a sentence for every mistake."""

from pathlib import Path

import pytest

from cdp.config.environment import check_paths
from cdp.config.reading import read_recipe, recipe_from, recipe_from_options
from cdp.config.sections import ConsensusSection, RunRecipe
from cdp.consensus.settings import default_of
from cdp.errors import InputError
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
    recipe = read_recipe(write("seed = 4\n[consensus]\nk = 30\nthreshold = 1\n[evaluation]\nfpr = [0.5]\n"))
    assert (recipe.seed, recipe.consensus.k, recipe.evaluation.fpr) == (4, 30, (0.5,))
    assert repr(recipe.consensus.threshold) == "1.0"
    assert recipe.train == RunRecipe().train


def test_a_recipe_written_elsewhere_is_read(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbfseed = 4\r\n[base]\r\nnetwork = 'x'\r\n")
    assert read_recipe(file).base.network == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[consenus]\nk = 3",
            "[consenus] is not a section. Did you mean consensus? There are data, split, base, committee, "
            "train, joint, consensus, evaluation and engine.",
        ),
        (
            "[engine]\nthread = 3",
            "engine.thread is not a key. Did you mean threads? [engine] has device, threads, memory_budget, "
            "engine, ray_address and checkpoint_every.",
        ),
        (
            "[engine]\nepochs = 3",
            "engine.epochs is not a key. It is a key of [train] and [joint]. [engine] has device, threads, memory_budget, "
            "engine, ray_address and checkpoint_every.",
        ),
        (
            "[base]\nfolds = 3",
            "base.folds is not a key. It is a key of [train]. [base] has network and weights.",
        ),
        (
            '[consensus]\npreset = "papers"',
            "preset = 'papers': choose one of best, paper. Did you mean paper?",
        ),
        ("[base]\nqq = 3", "base.qq is not a key. [base] has network and weights."),
        ("threshold = 0.9", "threshold stands outside the sections; it belongs into [consensus]."),
        ("sede = 9", "sede is not a key. Did you mean seed? Outside the sections there is seed."),
        ("consensus = 3", "consensus = 3: a section is needed, written [consensus], not a whole number."),
        ("[[data]]\nimages = 'x'", "data = [{'images': 'x'}]: a section is needed, written [data], not a list."),
        ('[consensus]\nk = "20"', 'consensus.k = "20": a whole number is needed, not text.'),
        ("[consensus]\nk = 20.0", "consensus.k = 20: a whole number is needed, not a number with a point."),
        ("[consensus]\nk = true", "consensus.k = true: a whole number is needed, not true or false."),
        ("[consensus.k]\nx = 1", "consensus.k = {'x': 1}: a whole number is needed, not a table."),
        ("[consensus]\ntune = 1", "consensus.tune = 1: true or false is needed, not a whole number."),
        ("[train]\nrate = 2025-01-01", "train.rate = 2025-01-01: a number is needed, not a date."),
        ("[committee]\nnetworks = 'a'", 'committee.networks = "a": a list of texts is needed, not text.'),
        ("[data]\nimages = ['a']", 'data.images = ["a"]: text is needed, not a list.'),
        ("[data]\nunlabeled = ['a', 3]", "data.unlabeled[1] = 3: text is needed, not a whole number."),
        ("[evaluation]\nfpr = [0.1, 'x']", 'evaluation.fpr[1] = "x": a number is needed, not text.'),
        ("[consensus]\nthreshold = 96", "consensus.threshold = 96: a probability from 0 to 1. Did you mean 0.96?"),
        ("[consensus]\nthreshold = nan", "consensus.threshold = nan: a probability from 0 to 1."),
        ("seed = 1\n[base]\nnetwork = \n", "line 3 (network =): Invalid value."),
        (
            "[base]\nnetwork = small_resnet",
            "line 2 (network = small_resnet): Invalid value. Text needs quotes; true and false are written small.",
        ),
        ("[consensus]\nk = 1\nk = 2", "line 3 (k = 2): Cannot overwrite a value."),
        ("[base]\nnetwork = '''x", "line 2 (network = '''x): Expected \"'''\"."),
    ],
)  # fmt: skip
def test_mistakes_are_named(write, text, message):
    file = write(text)
    with pytest.raises(InputError) as caught:
        read_recipe(file)
    assert str(caught.value) == f"{file}: {message}"


def test_files_that_cannot_be_read(tmp_path):
    missing = tmp_path / "none.toml"
    with pytest.raises(InputError) as caught:
        read_recipe(missing)
    assert (
        str(caught.value)
        == f"{missing}: no such file; `cdp recipe new {missing}` writes a recipe to start from."
    )
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\); give a recipe file"):
        read_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[base]\nnetwork = "\xe9"')
    with pytest.raises(InputError, match="not UTF-8 text; save it again as UTF-8"):
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
    given = read_recipe(file, ["--data.images", "data/other.zip", "--data.test", "data/lfw"]).data
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
    data = read_recipe(file, ["--data.images", "other", "--unlabeled", "a,b"]).data
    here = tmp_path.resolve() / "here"
    assert (data.images, data.unlabeled) == (str(here / "other"), (str(here / "a"), str(here / "b")))
    assert data.test == str(tmp_path.resolve() / "t")
    assert read_recipe(file, ["--data.images="]).data.images == ""


def test_a_preset_sets_what_is_not_given(write):
    paper = {name: default_of(name, "paper") for name in settings_of(ConsensusSection) if name != "preset"}
    for recipe in (
        read_recipe(write('[consensus]\npreset = "paper"\n')),
        read_recipe(write(""), ["--preset", "paper"]),
        recipe_from_options(["--consensus.preset", "paper"]),
    ):
        assert {name: getattr(recipe.consensus, name) for name in paper} == paper
        assert recipe.consensus.preset == "paper"
    own = read_recipe(write('[consensus]\npreset = "paper"\ngrouping = "average"\n'), ["--tune"])
    assert (own.consensus.grouping, own.consensus.tune) == ("average", True)
    assert own.consensus.inputs == paper["inputs"]
    # The command line's preset moves what the file leaves open, and nothing that it sets.
    moved = read_recipe(write("[consensus]\ntune = true\n"), ["--preset", "paper"])
    assert (moved.consensus.tune, moved.consensus.grouping) == (True, "components")


def test_the_command_line_wins_and_may_mend_the_file(write):
    file = write('seed = 1\n[consensus]\nk = "wrong"\nmax_size = 9\n')
    recipe = read_recipe(file, ["--k", "7", "--seed=2"])
    assert (recipe.seed, recipe.consensus.k, recipe.consensus.max_size) == (2, 7, 9)
    assert read_recipe(file, {"consensus.k": 7, "seed": 2}) == recipe


def test_plain_values_make_a_recipe():
    recipe = RunRecipe(seed=3)
    assert recipe_from(recipe.as_dict()) == recipe
    assert recipe_from({"data": {"images": "a/b"}}).data.images == "a/b"
    assert recipe_from({}, {"joint.epochs": 2}).joint.epochs == 2
    with pytest.raises(
        InputError,
        match=r"^base\.net is not a key\. \[base\] has network and weights\.$|Did you mean network",
    ):
        recipe_from({"base": {"net": "x"}})


def test_nothing_comes_from_the_environment(write, monkeypatch):
    file = write("")
    for name in ("CDP_SEED", "CDP_CONSENSUS_K", "SEED"):
        monkeypatch.setenv(name, "5")
    assert read_recipe(file) == RunRecipe()
