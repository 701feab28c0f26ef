"""A review that goes on while images are removed: rows are other images then, and no answer is about the wrong ones."""

import re
import shutil

import numpy as np
import pytest
from tests.refusals import refuses
from tests.review_collection import TOKEN, Browser, make_collection

pytest.importorskip("starlette", reason="the review page needs the extra review")

from cdp.collection import removal
from cdp.collection.collection import open_collection
from cdp.collection.corrections import JOURNAL, append_corrections, read_journal, rejected
from cdp.collection.removal import remove_images
from cdp.errors import StoreError
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_collection(tmp_path_factory.mktemp("review") / "faces").folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "faces")


def remove(folder, *rows):
    opened = open_collection(folder)
    return remove_images(opened, np.isin(np.arange(opened.n_images), rows))


def submit(browser, page, **fields):
    """Send the first form of a page that names images."""
    action = next(one for one in re.findall(r'action="([^"]+)"', page) if "/do/answer" in one)
    path = action.partition("/do/")[2].replace("&amp;", "&")
    fields = {
        name: re.findall(rf'name="{name}" value="(\d+)"', page)[:1] for name in ("one", "other")
    } | fields
    return browser.post(path, fields)


def test_an_answer_of_a_page_from_before_is_refused(folder):
    browser = Browser(web_app(Session(folder), TOKEN))
    page = browser.get("").text
    for _ in range(
        2
    ):  # the second time the state of the collection is the same as before, but for the images
        remove(folder, 0)
        answer = submit(browser, page, how="same")
        assert "removed+from+the+collection" in answer.headers["location"]
        assert read_journal(folder) == []
        page = browser.get("").text
    assert "said=" in submit(browser, page, how="same").headers["location"]
    assert len(read_journal(folder)) == 1


def test_pictures_are_those_of_the_images_that_stay(folder):
    session = Session(folder)
    before = session.pictures.thumbnail(6)
    address = session.view("x").address("thumbnail", 0)
    remove(folder, *range(6))
    assert session.view("x").address("thumbnail", 0) != address, "browsers keep a picture by its address"
    assert session.pictures.thumbnail(0) == before


def test_what_is_said_while_images_are_removed_is_refused(folder, monkeypatch):
    """It waits for the journal, which is another one then."""
    handle_of = removal.writing_folder
    seen = []

    def writing(*values, **more):
        with pytest.raises(BlockingIOError):
            lock_now(folder / JOURNAL)
        seen.append(1)
        return handle_of(*values, **more)

    monkeypatch.setattr(removal, "writing_folder", writing)
    remove(folder, 0)
    assert seen == [1]


def lock_now(file):
    import fcntl

    with file.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_journal_that_was_replaced_while_it_was_waited_for_is_refused(folder, monkeypatch):
    from cdp.collection import corrections

    def replaced_meanwhile(handle, shown, *, waits):
        shutil.copy(shown, folder / "copy")
        (folder / "copy").rename(shown)

    monkeypatch.setattr(corrections, "lock_file", replaced_meanwhile)
    with refuses("journal-replaced", StoreError):
        append_corrections(folder, [rejected(1)])
    assert read_journal(folder) == []


def test_a_collection_that_is_gone_is_a_sentence_on_every_page(folder):
    browser = Browser(web_app(Session(folder), TOKEN))
    assert browser.get("report").status == 200
    shutil.rmtree(folder)
    for page in ("", "groups", "group/0", "alone", "history", "changes", "report"):
        answer = browser.get(page)
        assert answer.status == 500
        assert str(folder) in answer.text
    for action, fields in (
        ("name", {"image": [0], "name": "Ann"}),
        ("images", {"how": "reject", "image": [5], "shown": [5]}),
        ("undo", {"number": [0]}),
        ("apply", {}),
    ):
        answer = browser.post(action, fields)
        assert answer.status == 303
        assert "refused=" in answer.headers["location"]
