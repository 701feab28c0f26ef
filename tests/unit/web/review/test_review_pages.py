"""The review page over HTTP: what is asked, what is written, who may write, and what is shown of whose files."""

import json
import re
import shutil

import numpy as np
import pytest
from tests.review_collection import BY_SIMILARITY, N_IMAGES, N_PEOPLE, TOKEN, Browser, make_collection

pytest.importorskip("starlette", reason="the review page needs the extra review")

from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, different, read_corrections, read_journal, same
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_collection(tmp_path_factory.mktemp("review") / "faces").folder


@pytest.fixture
def folder(made, tmp_path):
    """A collection that a test may change; its pictures lie where they were made."""
    return shutil.copytree(made, tmp_path / "faces")


@pytest.fixture
def browser(folder):
    return Browser(web_app(Session(folder), TOKEN))


def groups_of(folder):
    identity = open_collection(folder).identity
    return {int(one): np.flatnonzero(identity == one).tolist() for one in np.unique(identity[identity >= 0])}


def two_groups(folder):
    return list(groups_of(folder).values())[:2]


def hidden(text, name):
    return [int(one) for one in re.findall(rf'name="{name}" value="(\d+)"', text)]


def test_pages_are_there(browser, folder):
    group = next(iter(groups_of(folder)))
    for path in (
        "",
        "groups",
        f"group/{group}",
        "alone",
        "history",
        "changes",
        "groups?order=large&page=9",
        "group/999",
    ):
        answer = browser.get(path)
        assert answer.status == 200, path
        assert answer.headers["content-type"].startswith("text/html")
        assert "<script>" not in answer.text
        assert " style=" not in answer.text
    assert f"{len(groups_of(folder))} groups" in browser.get("groups").text
    assert "This group no longer exists" in browser.get("group/999").text
    assert browser.get("nowhere").status == 404
    assert browser.get("report").status == 200


def test_pictures_are_made_on_demand_and_only_of_rows(browser):
    small, large = browser.get("thumbnail/3"), browser.get("picture/3")
    assert (small.picture().size, small.headers["content-type"]) == ((96, 96), "image/jpeg")
    assert large.picture().size == (32, 32)
    assert "max-age" in small.headers["cache-control"]
    assert browser.get(f"thumbnail/{N_PEOPLE * N_IMAGES}").status == 404
    for path in (
        "thumbnail/..%2F..%2Fetc%2Fpasswd",
        "thumbnail/-1",
        "picture/1e3",
        "thumbnail/",
        "thumbnail//etc/passwd",
    ):
        assert browser.get(path).status == 404, path


def test_an_image_that_cannot_be_read_is_a_question_mark(folder):
    session = Session(folder)
    browser = Browser(web_app(session, TOKEN))
    session.pictures._paths = ["/nowhere.png"] * session.n_images
    answer = browser.get("thumbnail/5")
    assert (answer.status, answer.headers["content-type"]) == (200, "image/svg+xml")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "", "sec-fetch-site": ""}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": ""}, 421),
        ({"content-length": "3000000"}, 413),
        ({"content-length": ""}, 413),
    ],
)
def test_writes_come_from_the_page_itself_only(browser, folder, headers, status):
    one, other = two_groups(folder)
    answer = browser.post("answer", {"how": "same", "one": one, "other": other}, **headers)
    assert answer.status == status
    assert read_journal(folder) == []
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_either_word_of_the_browser_is_enough_and_a_tunnel_may_change_the_port(browser, folder):
    one, other = two_groups(folder)
    fields = {"how": "same", "one": one, "other": other}
    tunnel = {"host": "localhost:9000", "origin": "http://localhost:9000", "sec-fetch-site": ""}
    assert browser.post("answer", fields, **tunnel).status == 303
    assert browser.post("answer", fields, origin="").status == 303


def test_without_the_token_there_is_nothing(browser, folder):
    for token in ("", "wrong", TOKEN[:-1], TOKEN + "x"):
        other = Browser(browser.app, token)
        assert other.get().status == 403
        assert other.get("thumbnail/0").status == 403
        assert other.post("apply", {}).status == 403
    assert browser.request("PUT", "", b"", {"origin": "http://127.0.0.1:8000"}).status == 405


def test_headers_are_strict(browser):
    headers = browser.get().headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ):
        assert rule in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_merging_is_on_disk_before_the_page_says_so_and_apply_shows_what_changed(browser, folder):
    (first, one), (second, other) = list(groups_of(folder).items())[:2]
    fields = {"group": [first, second], f"shown{first}": one, f"shown{second}": other, "how": "merge"}
    page = browser.follow(browser.post("groups", fields))
    assert "one person" in page.notice
    assert page.notice.startswith("On disk: ")
    (entry,) = read_corrections(folder)
    assert (entry.kind, entry.source, set(entry.images)) == ("same", "review", {*one, *other})
    assert "waits for Apply" in browser.get("groups?order=number").text
    page = browser.follow(browser.post("apply", {}))
    assert "1 entry applied in" in page.text
    assert f"person {second} is now part of person {first}" in page.text
    assert set(groups_of(folder)[first]) == {*one, *other}
    assert "waits for Apply" not in browser.get("groups?order=number").text


def test_splitting_moving_rejecting(browser, folder):
    (first, one), (second, other) = list(groups_of(folder).items())[:2]
    where = {"group": first, "shown": one}
    browser.post("images", {**where, "image": one[:2], "how": "split"})
    browser.post("images", {**where, "image": one[2], "how": "reject"})
    browser.post(
        "images",
        {"group": second, "shown": other, "image": other[0], "how": "move", "target": f"person {first}"},
    )
    browser.post("apply", {})
    identity = open_collection(folder).identity
    assert identity[one[0]] == identity[one[1]] != first
    assert identity[one[2]] == -1
    assert identity[other[0]] == first
    assert set(identity[one[3:]]) == {first}


def test_taking_out_says_of_each_image_that_it_is_somebody_else(browser, folder):
    first, one = next(iter(groups_of(folder).items()))
    browser.post("images", {"group": first, "shown": one, "image": one[:2], "how": "out"})
    found = read_corrections(folder)
    assert [entry.kind for entry in found] == ["different", "different"]
    assert [entry.images[0] for entry in found] == one[:2]


def test_naming_and_searching(browser, folder):
    first, one = next(iter(groups_of(folder).items()))
    name = '<script>alert(1)</script> "Anna" & O\'Neil'
    browser.post("name", {"group": first, "image": one, "name": f"  {name.replace(' ', '   ')} "})
    browser.post("apply", {})
    assert open_collection(folder).names == {first: name}
    page = browser.get("groups?find=anna").text
    assert "1 group" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "No matching groups." in browser.get("groups?find=%3Cb%3E").text
    assert f"group/{first}" in browser.get(f"groups?find={first}").text
    move = {"group": -1, "shown": [40], "image": [40], "how": "move", "target": name.upper()}
    assert "one person" in browser.follow(browser.post("images", move)).notice
    assert "nobody called" in browser.follow(browser.post("images", {**move, "target": "Bob"})).notice


def test_undo_takes_back_what_one_action_wrote(browser, folder):
    first, one = next(iter(groups_of(folder).items()))
    browser.post("images", {"group": first, "shown": one, "image": one[:2], "how": "split"})
    browser.post("name", {"image": one[2:], "name": "Anna"})
    assert len({entry.when for entry in read_journal(folder)}) == 2
    page = browser.follow(browser.post("undo", {}))
    assert f"undone: {len(one) - 2} images" in page.notice
    assert "called &#39;Anna&#39;" in page.notice
    assert {entry.kind for entry in read_corrections(folder)} == {"same", "different"}
    browser.post("undo", {})
    assert read_corrections(folder) == []
    assert "Nothing to undo" in browser.follow(browser.post("undo", {})).notice
    history = browser.get("history").text
    assert history.count("undone</em>") == 2
    browser.post("apply", {})
    assert groups_of(folder)[first] == one


def test_a_question_is_answered_and_not_asked_again(browser, folder):
    seen = set()
    for how in ("same", "different", "later", "split"):
        page = browser.get().text
        key = re.search(r'name="question" value="([^"]+)"', page)
        if key is None:
            break
        form = page[key.start() - 20_000 if key.start() > 20_000 else 0 : key.end()]
        form = form[form.rindex("<form") :]
        asked = {"one": hidden(form, "one"), "other": hidden(form, "other"), "question": key[1]}
        assert asked["one"]
        assert asked["other"]
        assert key[1] not in seen
        browser.post("answer", {**asked, "how": how})
        if how != "later":
            seen.add(key[1])
    assert seen
    assert "of about" in browser.get().text or "expected precision" in browser.get().text


def test_contradictions_are_refused_with_the_chain_and_not_written(browser, folder):
    one, other = two_groups(folder)
    append_corrections(folder, [same(one[0], one[1]), different(one[1], other[0])])
    page = browser.follow(browser.post("answer", {"how": "same", "one": one[:1], "other": other[:1]}))
    assert "refused" in page.text
    assert len(read_journal(folder)) == 2
    assert page.notice


@pytest.mark.parametrize(
    ("action", "fields", "said"),
    [
        ("images", {"how": "split", "shown": [1, 2]}, "Select images first"),
        (
            "images",
            {"how": "split", "group": 0, "shown": [1], "image": ["1; rm"]},
            "not a row; reload the page",
        ),
        ("images", {"how": "fly", "shown": [0, 1], "image": [0], "group": 0}, "is not an action"),
        ("answer", {"how": "same", "one": [1], "other": [10**6]}, "There is no image 1000000"),
        ("answer", {"how": "same", "one": [1], "other": [10**15]}, "not a row; reload the page"),
        ("groups", {"how": "merge", "group": [1], "shown1": [5]}, "Select two groups or more"),
        ("name", {"image": [1], "name": "   "}, "Type a name first"),
        ("name", {"image": [1], "name": "a\u202eb"}, "printable"),
        ("nonsense", {}, "is not an action"),
        ("undo", {"number": [77]}, "Already undone"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(browser, folder, action, fields, said):
    page = browser.follow(browser.post(action, fields))
    assert said in page.notice
    assert read_journal(folder) == []


def test_nobody_is_led_elsewhere(browser):
    for back in ("//evil.example/", "https://evil.example/", f"/{TOKEN}/../../x", "/other/", f"/{TOKEN}/\n"):
        answer = browser.post("name", {"image": [1], "name": "Anna", "back": back})
        assert answer.headers["location"].startswith(f"/{TOKEN}/?said=")


def test_two_tabs_and_another_process_do_not_overwrite_each_other(folder):
    tabs = [Browser(web_app(Session(folder), TOKEN)) for _ in range(2)]
    groups = list(groups_of(folder).values())
    tabs[0].post("name", {"image": groups[0], "name": "Anna"})
    tabs[1].post("name", {"image": groups[1], "name": "Bob"})
    append_corrections(folder, [different(groups[2][0], groups[3][0])], source="import")
    assert [entry.id for entry in read_journal(folder)] == [0, 1, 2]
    assert ">Apply 3<" in tabs[0].get().text
    tabs[0].post("apply", {})
    # The other server notices that the groups are others now.
    assert "Bob" in tabs[1].get("groups?find=bob").text
    assert ">Apply<" in tabs[1].get().text


def test_a_new_session_goes_on_where_the_last_one_was_killed(folder, browser):
    one = two_groups(folder)[0]
    browser.post("name", {"image": one, "name": "Anna"})
    with (folder / "corrections.jsonl").open("ab") as journal:
        journal.write(b'{"kind":"sa')  # a writer that was killed in the middle of a line
    again = Browser(web_app(Session(folder), TOKEN))
    with pytest.warns(UserWarning, match="the last line was cut off"):
        page = again.get().text
    assert ">Apply 1<" in page
    again.post("name", {"image": one, "name": "Anne"})
    lines = (folder / "corrections.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["Anna", "Anne"]


def test_embeddings_alone_are_reviewed_by_row_number(tmp_path):
    made = make_collection(tmp_path / "faces", pictures=False, paths=False)
    browser = Browser(web_app(Session(made.folder), TOKEN))
    for path in ("", "groups", f"group/{made.identity[0]}"):
        page = browser.get(path).text
        assert "<img src" not in page
        assert 'class="box"' in page
    assert browser.get("thumbnail/0").headers["content-type"] == "image/svg+xml"


def test_the_report_of_the_collection_is_linked(folder):
    browser = Browser(web_app(Session(folder), TOKEN))
    assert f'href="/{TOKEN}/report"' in browser.get().text
    assert '<a href="./">Review these groups</a></footer>' in browser.get("report").text
    answer = browser.get("report")
    assert "script-src" not in answer.headers["content-security-policy"]


def test_what_is_said_of_a_group_is_not_said_of_the_images_that_leave_it(browser, folder):
    first, one = next(iter(groups_of(folder).items()))
    browser.post("images", {"group": first, "shown": one, "image": one[:2], "how": "split"})
    page = browser.get(f"group/{first}").text
    assert page.count('class="shot leaving"') == 2
    naming = page[page.index("do/name") :].partition("</form>")[0]
    assert set(hidden(naming, "image")) == set(one[2:])
    assert (
        "Anna"
        in browser.follow(browser.post("name", {"image": hidden(naming, "image"), "name": "Anna"})).notice
    )
    browser.post("apply", {})
    assert set(groups_of(folder)[first]) == set(one[2:])


@pytest.fixture(scope="module")
def made_by_similarity(tmp_path_factory):
    return make_collection(tmp_path_factory.mktemp("similarity") / "faces", settings=BY_SIMILARITY).folder


@pytest.mark.parametrize("side", ["one", "other"])
def test_not_this_person_takes_an_image_out_of_its_own_group(made_by_similarity, tmp_path, side):
    folder = shutil.copytree(made_by_similarity, tmp_path / "faces")
    browser = Browser(web_app(Session(folder), TOKEN))
    asked = first_question(browser)
    identity = open_collection(folder).identity
    groups = [{int(identity[row]) for row in asked[name]} for name in ("one", "other")]
    assert [len(numbers) for numbers in groups] == [1, 1]
    assert groups[0] != groups[1]
    leaves, *stay = asked[side]
    browser.post("answer", {**asked, "image": leaves, "how": "out"})
    (entry,) = read_corrections(folder)
    assert (entry.kind, entry.images[0]) == ("different", leaves)
    assert entry.images[1] in stay
    # The question is still open, and its answer does not speak of the image that leaves.
    again = first_question(browser)
    assert again["question"] == asked["question"]
    assert again[side] == stay
    page = browser.follow(browser.post("answer", {**again, "how": "same"}))
    assert "refused" not in page.text
    browser.post("apply", {})
    identity = open_collection(folder).identity
    assert len({int(identity[row]) for row in (*again["one"], *again["other"])}) == 1
    assert identity[leaves] != identity[stay[0]]


def first_question(browser):
    form = browser.get().text.partition("do/answer")[2].partition("</form>")[0]
    key = re.search(r'name="question" value="([^"]+)"', form)[1]
    return {"question": key, "one": hidden(form, "one"), "other": hidden(form, "other")}


def test_corrections_from_photos_and_tables_do_not_count_as_answered_questions(browser, folder):
    first, second = two_groups(folder)
    append_corrections(folder, [different(first[0], second[0])], source="photo")
    assert re.search(r"\b0 of about [\d,]+ useful questions answered", browser.get("").text)
    append_corrections(folder, [different(first[1], second[1])], source="review")
    assert re.search(r"\b1 of about [\d,]+ useful questions answered", browser.get("").text)
