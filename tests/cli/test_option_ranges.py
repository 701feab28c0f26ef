"""Values without a meaning: one sentence that names the option, however odd the value; never a traceback."""

import os
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp import Views
from cdp.cli.main import app
from cdp.cli.train_commands import RunOptions
from cdp.collection.collection_settings import GrowthSettings
from cdp.errors import InputError
from cdp.faces.align_settings import AlignSettings
from cdp.nets.recipe import Recipe
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import settings_of
from cdp_lab.cli.lab_main import app as lab
from cdp_lab.study.design import Options

HUGE = "9" * 400
LONG = "a" * 300

COMMANDS = {
    "label": "label views --mediator vote --out out",
    "learn": "label views --labeled views --out out",
    "verify": "eval verification --embeddings views --pairs pairs.csv",
    "identify": "eval identification --probes views --distractors others",
    "split": "data split photos --out out",
    "check": "data check photos",
    "faces": "faces --out out.zip",
    "demo": "demo --embeddings --out out",
    "train": "train photos --network small_vgg --out out",
    "embed": "embed photos --networks nets --base small --out out",
    "networks": "train --list-networks",
    "baselines": "baselines views --validation views --methods kmeans --out out.json",
    "run": "run --embeddings views --out out",
    "study": "study committee_size recipe.toml --out out",
}
WRONG = [
    *(("label", "--seed", value) for value in ("-1", "nan", HUGE)),
    ("learn", "--seed", str(2**32)),
    *(("label", "--k", value) for value in ("0", "-1", str(2**31), HUGE)),
    *(("label", option, str(10**20)) for option in ("--max-cluster-size", "--soft-depth", "--min-votes")),
    *(("label", "--threads", value) for value in ("-1", "4097", HUGE)),
    *(("label", "--memory-budget", value) for value in ("0", "-1", "nan", HUGE, f"{HUGE}GB")),
    *(("label", "--threshold", value) for value in ("nan", "inf", "-0.1")),
    *(("label", "--dim", value) for value in ("0", "-1", HUGE)),
    *(("verify", "--folds", value) for value in ("-1", "0", "1", HUGE)),
    *(("verify", "--replicates", value) for value in ("-1", HUGE)),
    *(("verify", "--fprs", value) for value in ("nan", "0", "-1")),
    *(("verify", "--seed", value) for value in ("-1", HUGE)),
    *(("identify", "--threads", value) for value in ("-1", HUGE)),
    *(("identify", "--sizes", value) for value in ("0", "-1")),
    *(("identify", "--ranks", value) for value in ("0", "-1")),
    *(("split", "--seed", value) for value in ("-1", HUGE)),
    *(("split", "--unlabeled-parts", value) for value in ("0", "-1", str(10**30), HUGE)),
    *(("split", "--labeled", value) for value in ("nan", HUGE, f"{HUGE}%")),
    *(("check", "--threads", value) for value in ("-1", HUGE)),
    *(("faces", "--seed", value) for value in ("-1", HUGE)),
    *(("faces", "--threads", value) for value in ("-1", HUGE)),
    *(("faces", "--difficulty", value) for value in ("nan", "-1")),
    *(("demo", "--seed", value) for value in ("-1", "nan", HUGE)),
    *(("train", option, "nan") for option in ("--weight-decay", "--rate", "--momentum")),
    *(("train", "--seed", value) for value in ("-1", HUGE)),
    *(("embed", "--batch", value) for value in ("-1", HUGE)),
    *(("networks", "--classes", value) for value in ("0", HUGE)),
    *(("networks", "--size", value) for value in ("0", HUGE)),
    *(("baselines", "--seed", value) for value in ("-1", str(2**32))),
    *(("run", "--seed", value) for value in ("-1", str(2**32), HUGE)),
    *(("run", "--train.weight_decay", value) for value in ("nan", "inf")),
    *(("train", option, str(2**64)) for option in ("--size", "--scale", "--checkpoint-every", "--batch")),
    *(
        ("run", option, str(2**64))
        for option in ("--evaluation.pairs", "--split.unlabeled-parts", "--split.use-parts", "--k")
    ),
    *(("run", option, "x\udcff") for option in ("--data.skip", "--data.root")),
    *(("study", "--seeds", value) for value in ("0", "-1")),
    *(("study", "--pair-recall", value) for value in ("nan", "2")),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    embeddings = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    Views(embeddings, None, np.arange(12) // 2).save(folder / "views")
    Views(embeddings).save(folder / "others")
    pairs = "".join(f"{row},{row + 1},{1 - row % 2}\n" for row in range(11))
    (folder / "pairs.csv").write_text(f"first_row,second_row,same\n{pairs}")
    (folder / "recipe.toml").write_text('[data]\nembeddings = "views"\n')
    (folder / "photos").mkdir()
    return folder


def refuse(home, monkeypatch, words, codes=(2,)):
    monkeypatch.chdir(home)
    before = sorted(home.iterdir())
    result = CliRunner().invoke(lab if words[0] in ("faces", "baselines", "study") else app, words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in codes, result.output
    assert result.stderr.count("Error") == 1
    assert sorted(home.iterdir()) == before
    return result.stderr.replace("\n", " ")


@pytest.mark.parametrize(("command", "option", "value"), WRONG, ids=lambda text: text[:20])
def test_a_value_without_a_meaning_names_its_option(home, monkeypatch, command, option, value):
    said = refuse(home, monkeypatch, [*COMMANDS[command].split(), option, value])
    name = option.removeprefix("--").replace("-", "_")
    assert option in said or name in said


@pytest.mark.parametrize(
    "out", [LONG, "/proc/nowhere/x", f"{LONG}/x", "pairs.csv/x"], ids=lambda out: out[:16]
)
@pytest.mark.parametrize("command", ["label", "split", "run", "baselines"])
def test_an_output_that_cannot_be_made_is_named(home, monkeypatch, command, out):
    words = COMMANDS[command].split()
    words[words.index("--out") + 1] = out
    said = refuse(home, monkeypatch, words, codes=(1,))
    assert re.search(rf"{re.escape(out)}(/run)?: cannot be written \(.*\[output-unwritable\]", said)


@pytest.mark.parametrize("command", ["label", "split", "run", "baselines", "train", "embed", "demo"])
@pytest.mark.parametrize(
    ("out", "code"),
    [("out\udcff", "path-not-utf8"), ("loop", "output-unwritable"), ("loop/x", "output-unwritable")],
)
def test_an_output_that_nothing_can_be_written_to_is_found_out_first(home, monkeypatch, command, out, code):
    if not (home / "loop").is_symlink():
        (home / "loop").symlink_to("loop")
    words = [*COMMANDS[command].split(), "--out", out]
    said = refuse(home, monkeypatch, words, codes=(1, 2))
    assert f"[{code}]" in said or ("output-is-a-link" in said and out == "loop")


def test_a_collection_that_is_a_link_to_itself_is_no_collection(home, monkeypatch):
    if not (home / "loop").is_symlink():
        (home / "loop").symlink_to("loop")
    for words in (
        "show loop",
        "add loop views",
        "regroup loop",
        "forget loop 1 --yes",
        "export loop --out out",
        "review loop --no-browser",
    ):
        refuse(home, monkeypatch, words.split(), codes=(1, 2))


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(home, monkeypatch, tmp_path):
    for ending in ("py", "toml", "npy", "csv", "onnx"):
        os.mkfifo(tmp_path / f"pipe.{ending}")
    for words in (
        f"train --list-networks --trunks {tmp_path}/pipe.py",
        f"run {tmp_path}/pipe.toml --out out",
        f"label views --labeled {tmp_path}/pipe.npy --out out",
        f"label views --corrections {tmp_path}/pipe.csv --out out",
        f"data check {tmp_path}/pipe.csv",
    ):
        assert "pipe." in refuse(home, monkeypatch, words.split(), codes=(1, 2))


def test_a_whole_number_is_never_too_large_for_compiled_code():
    """Every whole number that can be set has an upper end within 64 bits, whether its setting says one or not."""
    for owner in (ConsensusSettings, RuntimeSettings, AlignSettings, GrowthSettings, Recipe, RunOptions):
        for name, known in settings_of(owner).items():
            if known.kind is int:
                with pytest.raises(InputError):
                    known.convert((2**64,) if known.many else 2**64, name)


@pytest.mark.parametrize(
    "words",
    [
        f"label {LONG} --mediator vote --out out",
        f"data split {LONG}.csv --out out",
        f"data check {LONG}",
        f"show {LONG}",
        f"add {LONG} views",
        f"regroup {LONG}",
        f"export {LONG} --out out",
        f"review {LONG} --no-browser",
        f"eval labels {LONG} --identities views",
        f"run {LONG}.toml --out out",
        f"run --images {LONG} --out out",
        f"data recipe {LONG} --check",
        f"data recipe {LONG}",
    ],
    ids=lambda words: words.split(LONG)[0].strip(),
)
def test_a_name_beyond_the_limit_of_the_file_system_is_named(home, monkeypatch, words):
    said = refuse(home, monkeypatch, words.split(), codes=(1, 2))
    assert LONG in said
    assert "File name too long" in said


def test_a_share_that_is_no_number():
    for value in (float("nan"), -0.1, 1.1):
        with pytest.raises(InputError, match=r"pair_recall = .*: a share from 0 to 1"):
            Options(pair_recall=value)
