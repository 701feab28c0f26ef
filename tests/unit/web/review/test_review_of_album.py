"""The review page of an album over HTTP: photos by row, the same place after naming, and two people of one name."""

import re

import pytest
from tests.review_album import HIGH, WIDE, make_album
from tests.review_collection import TOKEN, Browser

pytest.importorskip("starlette", reason="the review page needs the extra review")

from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, named, read_corrections
from cdp.web.review.same_names import find_namesakes
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app


@pytest.fixture
def album(tmp_path):
    return make_album(tmp_path)


@pytest.fixture
def browser(album):
    return Browser(web_app(Session(album.folder), TOKEN))


def rows_of(album, number):
    return [row for row, one in enumerate(album.identity.tolist()) if one == number]


def hidden(text, name):
    return re.findall(rf'name="{name}" value="([^"]*)"', text)


def test_the_photo_of_a_face_is_shown_by_row(browser, album):
    answer = browser.get("photo/3")
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.picture().size == (WIDE, HIGH)
    assert browser.get("photo/999").status == 404
    for path in ("photo/-1", "photo/..%2Fsecret.png", "photo/shot%2000.png"):
        assert browser.get(path).status == 404
    page = browser.get("group/0").text
    assert page.count(" data-photo>") == len(rows_of(album, 0))
    assert 'title="shot 00 &amp; &lt;b&gt;.png, confidence ' in page
    assert str(album.folder.parent) not in page


def test_a_photo_that_is_gone_is_one_empty_pixel(browser, album):
    (album.folder.parent / "photos" / "shot 03 & <b>.png").unlink()
    answer = browser.get("photo/3")
    assert answer.status == 200
    assert 'width="1" height="1"' in answer.text
    assert browser.get("picture/3").picture().size == (64, 64)


def test_the_report_leads_to_photos_by_row(browser):
    page = browser.get("report").text
    assert '<a href="photo/0" data-row="0"' in page
    assert "../photos" not in page


def test_groups_come_largest_first(browser):
    page = browser.get("groups").text
    assert re.findall(r'id="g(\d+)"', page) == ["0", "1", "2", "3"]
    assert "7 faces" in page


def test_after_naming_the_same_page_is_shown_with_the_name(browser, album):
    page = browser.get("group/2?page=1").text
    back = hidden(page, "back")[0]
    assert back == f"/{TOKEN}/group/2?page=1"
    answer = browser.post("name", {"image": rows_of(album, 2), "name": "Ann", "back": back})
    assert answer.headers["location"].startswith(f"{back}&said=")
    after = browser.follow(answer).text
    assert "<h1>Ann<em" in after
    assert hidden(after, "back")[0] == back
    undone = browser.post("undo", {"number": [0], "back": back})
    assert undone.headers["location"].startswith(f"{back}&said=")
    assert "<h1>person 2" in browser.follow(undone).text


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("who", ["same", "different"])
def test_a_name_that_another_has_is_asked_about(browser, album, who, applied):
    one, other = rows_of(album, 0), rows_of(album, 1)
    browser.post("name", {"image": one, "name": "Ann"})
    if applied:
        browser.post("apply", {})
    back = f"/{TOKEN}/group/1"
    asked = browser.post("name", {"image": other, "name": " Ann ", "back": back})
    assert asked.status == 200
    assert "Is this the same Ann?" in asked.text
    assert len(read_corrections(album.folder)) == 1, "nothing is written before the answer"
    form = next(part for part in asked.text.split("<form") if f'name="who" value="{who}"' in part)
    fields = {name: hidden(form, name) for name in ("image", "other", "name", "who", "back")}
    done = browser.post("name", fields)
    assert done.headers["location"].startswith(f"{back}?said=")
    browser.post("apply", {})
    now = open_collection(album.folder)
    if who == "same":
        assert now.names == {0: "Ann"}
        assert len({*now.identity[one].tolist(), *now.identity[other].tolist()}) == 1
    else:
        assert now.names == {0: "Ann", 1: "Ann"}
        page = browser.get("groups").text
        assert "Ann (person 0)" in page
        assert "Ann (person 1)" in page
        assert browser.post("name", {"image": other, "name": "Ann"}).status == 303, "it was said already"


def test_selected_groups_are_asked_about_too(browser, album):
    browser.post("name", {"image": rows_of(album, 0), "name": "Ann"})
    fields = {"how": "name", "group": ["2"], "shown2": rows_of(album, 2), "name": "Ann"}
    asked = browser.post("groups", fields)
    assert "Is this the same Ann?" in asked.text
    assert browser.post("groups", fields | {"name": "Bob"}).status == 303
    assert browser.post("groups", {"how": "name", "name": "Bob"}).headers["location"].count("refused=") == 1


def test_moving_to_one_of_two_people_of_a_name(browser, album):
    for number in (0, 1):
        rows = rows_of(album, number)
        append_corrections(album.folder, [named("Ann", *rows)])
        browser.post(
            "name",
            {"image": rows, "other": rows_of(album, 0)[:1] * number, "name": "Ann", "who": "different"},
        )
    browser.post("apply", {})
    fields = {"how": "move", "group": "2", "shown": rows_of(album, 2), "image": rows_of(album, 2)[:1]}
    assert "refused=" in browser.post("images", fields | {"target": "Ann"}).headers["location"]
    assert "said=" in browser.post("images", fields | {"target": "Ann (person 1)"}).headers["location"]
    assert '<option value="Ann (person 1)">' in browser.get("group/2").text


def test_namesakes_are_other_groups_that_carry_the_name(album):
    index = Session(album.folder).index
    said = [named("Ann", 0, 1), named("Bob", *rows_of(album, 2))]
    assert find_namesakes("Ann", [2, 3], index, said) == [], "images of the same group"
    (found,) = find_namesakes("Ann", rows_of(album, 1), index, said)
    assert (found.group, set(found.rows)) == (0, {0, 1})
    assert find_namesakes("Cid", rows_of(album, 1), index, said) == []
