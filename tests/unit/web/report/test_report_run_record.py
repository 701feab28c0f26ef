"""run.json: what is written can be read, old files open, and whatever is wrong is said in one sentence."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from cdp.errors import CdpError, InputError, StoreError
from cdp.storage.artifacts import read_run_record, write_run_record
from cdp.types.run_record import (
    RUN_FORMAT,
    Agreement,
    LabelFigures,
    PairScores,
    Results,
    RunRecord,
    StageRecord,
)
from cdp.web.report.page import build_page
from cdp.web.report.report_inputs import Artifacts

OLD = Path(__file__).with_name("run_format1.json")
LABELS = LabelFigures(coverage=0.5, identities_found=3)


@pytest.fixture(scope="module")
def plain(made_run):
    return json.loads((made_run[0] / "run" / "run.json").read_text(encoding="utf-8"))


def read(tmp_path, value):
    file = tmp_path / "run.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return read_run_record(file)


def test_what_is_written_can_be_read(made_run, tmp_path):
    record = made_run[1]
    assert read_run_record(made_run[0] / "run" / "run.json") == record
    write_run_record(tmp_path / "run.json", record)
    assert (tmp_path / "run.json").read_bytes() == (made_run[0] / "run" / "run.json").read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_run_json_of_the_first_format_opens(tmp_path):
    record = read_run_record(OLD)
    assert (record.format, RUN_FORMAT) == (1, 1)
    assert [model.key for model in record.results.headline.models] == ["labeled", "cdp", "all"]
    assert record.results.labels.statuses == {
        "labeled": 169,
        "no_accepted_pair": 1,
        "isolated": 6,
        "unsplittable": 0,
    }
    assert record.results.labels.true.pairs.accepted == 380
    assert len(record.stages) == 23
    assert (record.device, record.notes, record.stages[0].steps) == (None, [], {})
    assert "23 stages" in build_page(record, Artifacts())


def test_only_labels_are_needed(tmp_path):
    record = RunRecord(results=Results(labels=LABELS), notes=["There are no probe images."])
    write_run_record(tmp_path / "run.json", record)
    assert read_run_record(tmp_path / "run.json") == record
    again = read(
        tmp_path, {"kind": "Run", "format": 1, "results": {"labels": {"coverage": 1, "identities_found": 2}}}
    )
    assert again.results.headline is None


def test_numbers_of_numpy_and_paths_are_written_as_plain_ones(tmp_path):
    labels = LabelFigures(coverage=np.float32(0.5), identities_found=np.int64(3), sizes=list(np.arange(2)))
    write_run_record(
        tmp_path / "run.json", RunRecord(results=Results(labels=labels), recipe={"data": Path("a")})
    )
    record = read_run_record(tmp_path / "run.json")
    assert (record.results.labels.coverage, record.results.labels.sizes) == (0.5, [0, 1])
    assert record.recipe == {"data": "a"}


def test_a_record_that_could_not_be_read_again_is_not_written(tmp_path):
    for stage, words in (
        (StageRecord(name="a", seconds="long"), r"stages\[0\].seconds is text where a number belongs"),
        (StageRecord(name="a", seconds=float("nan")), r"stages\[0\].seconds is null where a number belongs"),
    ):
        with pytest.raises(InputError, match=f"run.json: {words}; nothing was written."):
            write_run_record(tmp_path / "run.json", RunRecord(results=Results(labels=LABELS), stages=[stage]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="a matrix of 2 rows and columns is needed, one per name"):
        Agreement(names=["a", "b"], matrix=[[1.0, 0.5]])


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{", StoreError, "is damaged; run the recipe again, finished stages are kept."),
        ("", StoreError, "is damaged"),
        ('{"kind": NaN}', StoreError, "is damaged"),
        ('{"kind": ' + "[" * 100_000, StoreError, "is damaged"),
        ("[]", StoreError, "the record is a list where a table belongs; run the recipe again"),
        ("{}", InputError, "not written by `cdp run`; give the folder that `cdp run --out` wrote."),
        ('{"kind": "Labels", "format": 1}', InputError, "not written by `cdp run`"),
        ('{"kind": "Run", "format": "1"}', InputError, "not written by `cdp run`"),
        ('{"kind": "Run", "format": 2, "cdp": "9.0"}', InputError, r"written by a newer cdp \(9.0\); open it with that"),
        ('{"kind": "Run", "format": 1}', StoreError, "the record lacks results; run the recipe again"),
        ('{"kind": "Run", "format": 1, "results": "good"}', StoreError, "results is text where a table belongs"),
        ('{"kind": "Run", "format": 1, "results": {"labels": null}}', StoreError, "results.labels is null where a table"),
    ],
)  # fmt: skip
def test_files_that_are_no_record(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        read(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"no run.json there; give the folder that `cdp run --out` wrote."):
        read_run_record(tmp_path / "run.json")
    with pytest.raises(InputError, match=r": cannot be read \(Is a directory\)"):
        read_run_record(tmp_path)
    (tmp_path / "loop.json").symlink_to("loop.json")
    with pytest.raises(
        InputError, match=r"loop.json: cannot be read \(Too many levels of symbolic links\)\.$"
    ):
        read_run_record(tmp_path / "loop.json")
    (tmp_path / "latin.json").write_bytes(b'{"kind": "Run", "format": 1, "command": "caf\xe9"}')
    with pytest.raises(StoreError, match=r"latin.json is damaged"):
        read_run_record(tmp_path / "latin.json")


def paths_of(value, path=()):
    """Every place in run.json, of lists the first entry only; what a recipe holds may be anything."""
    if path:
        yield path
    if path in (("recipe",), ("differences",)):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from paths_of(value[0], (*path, 0))


def places_changed(plain, change):
    """run.json with a change at one place, for all places."""
    for path in list(paths_of(plain)):
        changed = copy.deepcopy(plain)
        around = changed
        for key in path[:-1]:
            around = around[key]
        change(around, path[-1])
        yield path, changed


def test_a_wrong_type_anywhere_is_one_sentence(plain, tmp_path):
    def spoil(around, key):
        was = around[key]
        around[key] = [] if was is None else 7 if isinstance(was, str) else "nonsense"

    tried = 0
    for path, changed in places_changed(plain, spoil):
        with pytest.raises(CdpError) as caught:
            read(tmp_path, changed)
        words = str(caught.value).partition("run.json")[2]
        assert words.endswith(".")
        assert "\n" not in words
        if path[0] not in ("kind", "format"):
            assert f"{path[0]}" in words
            assert " where " in words
        tried += 1
    assert tried > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [dict.__delitem__, lambda around, key: dict.__setitem__(around, key, None)]
)
def test_what_is_missing_or_unknown_is_refused_or_left_out(plain, tmp_path, change):
    n_pages = n_refused = 0
    for path, changed in places_changed(
        plain, lambda around, key: isinstance(key, str) and change(around, key)
    ):
        try:
            record = read(tmp_path, changed)
        except CdpError:
            n_refused += 1
            continue
        try:
            build_page(record, Artifacts())
        except Exception as error:
            raise AssertionError(f"without {path}") from error
        n_pages += 1
    assert min(n_pages, n_refused) > 20


def test_f_of_accepted_pairs():
    assert PairScores(candidates=4, accepted=2, precision=1.0, recall=0.5).f == pytest.approx(2 / 3)
    assert PairScores(candidates=4, accepted=0, recall=0.0).f is None
