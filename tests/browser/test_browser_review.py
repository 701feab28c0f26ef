"""The review page in a real browser: by mouse and by keys, on a phone, in the dark, with a server that is killed."""

import csv
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.review_album import HIGH, WIDE, make_album
from tests.review_collection import BY_SIMILARITY, make_collection

from cdp.collection.collection import open_collection
from cdp.collection.corrections import read_corrections, read_journal

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
pytest.importorskip("starlette", reason="the review page needs the extra review")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed (apt-get install chromium)"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_collection(tmp_path_factory.mktemp("review") / "<i>faces &").folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / made.name)


class Server:
    """`cdp review` as the shell starts it."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "cdp", "review", str(folder), "--no-browser", "--quiet"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.process.stderr.read()

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


@pytest.fixture
def server(folder):
    made = Server(folder)
    yield made
    made.stop(signal.SIGKILL)


@pytest.fixture
def page(chromium, server):
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.goto(server.address)
    yield opened
    assert opened.complaints == []
    context.close()


def groups_of(folder):
    identity = open_collection(folder).identity
    return {int(one): np.flatnonzero(identity == one).tolist() for one in np.unique(identity[identity >= 0])}


def test_merging_naming_splitting_and_undo_by_mouse(page, server, folder):
    (first, one), (second, other), (third, _) = list(groups_of(folder).items())[:3]
    page.goto(f"{server.address}groups?order=number")
    page.check(f'input[name=group][value="{first}"]')
    page.check(f'input[name=group][value="{second}"]')
    page.click("button:has-text('Merge')")
    assert "On disk: " in page.text_content(".notice")
    assert read_corrections(folder)[0].kind == "same"
    page.goto(f"{server.address}group/{first}")
    page.fill("input[name=name]", "Ann <b>O'Neil</b>")
    page.click("button:text-is('Name')")
    page.click("button:has-text('Apply')")
    assert "is now part of" in page.text_content("main")
    merged = groups_of(folder)[first]
    assert set(merged) == {*one, *other}
    assert open_collection(folder).names == {first: "Ann <b>O'Neil</b>"}
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as stream:
        named = {int(row["row"]) for row in csv.DictReader(stream) if row["name"] == "Ann <b>O'Neil</b>"}
    assert named == set(merged), "the table is up to date once the page says so"
    page.goto(f"{server.address}report")
    assert "Ann <b>O'Neil</b>" in page.text_content("main")
    page.goto(f"{server.address}group/{first}")
    assert page.text_content("h1") == "Ann <b>O'Neil</b>"
    page.locator(".shot img").first.dblclick()
    # Not wait_for_function: to poll, it evaluates text in the page, which the page's policy refuses.
    playwright.expect(page.locator("#viewer img")).to_have_js_property("naturalWidth", 32)
    page.keyboard.press("Escape")
    page.goto(f"{server.address}group/{third}")  # what was confirmed by merging could not be split
    page.locator(".shot input").nth(0).check()
    page.click("button:has-text('Split off')")
    assert {one.kind for one in read_corrections(folder)} == {"same", "name", "different"}
    page.click(".notice button:has-text('Undo')")
    assert "undone" in page.text_content(".notice")
    assert {one.kind for one in read_corrections(folder)} == {"same", "name"}


def test_everything_by_keys_alone(page, server, folder):
    first, one = next(iter(groups_of(folder).items()))
    page.keyboard.press("2")
    page.wait_for_url("**/groups")
    page.keyboard.press("/")
    page.keyboard.type(str(first))
    page.keyboard.press("Enter")
    page.wait_for_url("**find=*")
    page.keyboard.press("Enter")  # opens the group
    page.wait_for_url(f"**/group/{first}")
    for key in ("ArrowRight", "Shift+ArrowRight", "s"):
        page.keyboard.press(key)
    page.wait_for_selector(".notice")
    found = read_corrections(folder)
    assert {entry.kind for entry in found} == {"same", "different"}
    page.keyboard.press("e")
    page.keyboard.type("Anna")
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice:has-text('Anna')")
    page.keyboard.press("u")
    page.wait_for_selector(".notice:has-text('undone')")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.wait_for_url("**/changes")
    assert len(groups_of(folder)[first]) < len(one)
    page.keyboard.press("1")
    page.wait_for_url(server.address)
    if page.query_selector("[data-key=n]"):
        before = len(read_journal(folder))
        page.keyboard.press("n")
        page.wait_for_selector(".notice")
        assert len(read_journal(folder)) > before


def test_not_this_person_leaves_the_question_open(chromium, tmp_path):
    folder = make_collection(tmp_path / "faces", settings=BY_SIMILARITY).folder
    server = Server(folder)
    try:
        page = chromium.new_page()
        page.goto(server.address)
        card = page.locator(".card").first
        key = card.locator("input[name=question]").get_attribute("value")
        left = card.locator(".side").first.locator(".shot input")
        rows = [int(left.nth(at).get_attribute("value")) for at in range(left.count())]
        left.first.check()
        card.locator("button:has-text('Not this person')").click()
        (entry,) = read_corrections(folder)
        assert (entry.kind, entry.images[0]) == ("different", rows[0])
        assert entry.images[1] in rows[1:]
        card = page.locator(".card").first
        assert card.locator("input[name=question]").get_attribute("value") == key
        assert card.locator(".shot.leaving").count() == 1
        card.locator("button:has-text('Yes, one person')").click()
        page.click("nav button:has-text('Apply')")
        assert "is now part of" in page.text_content("main")
    finally:
        server.stop(signal.SIGKILL)
    identity = open_collection(folder).identity
    assert identity[rows[0]] != identity[rows[1]]
    assert len(set(identity[rows[1:]].tolist())) == 1


def test_a_killed_server_loses_nothing(page, server, folder, chromium):
    first = next(iter(groups_of(folder)))
    page.goto(f"{server.address}group/{first}")
    page.fill("input[name=name]", "Anna")
    page.click("button:text-is('Name')")
    server.stop(signal.SIGKILL)
    page.goto("about:blank")
    page.complaints.clear()  # pictures that were still asked for when the server was killed
    again = Server(folder)
    try:
        page.goto(f"{again.address}history")
        assert "called 'Anna'" in page.text_content("main")
        page.click("nav button:has-text('Apply')")
        assert "is called 'Anna'" in page.text_content("main")
    finally:
        said = again.stop()
    assert "all answers are saved; run the same command again to continue" in said
    assert open_collection(folder).names == {first: "Anna"}


def test_a_phone_in_the_dark(server, folder, chromium):
    first = next(iter(groups_of(folder)))
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    for path in ("", "groups", f"group/{first}", "alone", "history", "changes"):
        page.goto(server.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    page.goto(f"{server.address}groups")
    assert page.evaluate(
        "[...document.querySelectorAll('.shot img')].every(one => !one.complete || one.naturalWidth)"
    )
    context.close()


@pytest.fixture
def album(tmp_path):
    return make_album(tmp_path).folder


@pytest.fixture
def album_page(chromium, album):
    server = Server(album)
    context = chromium.new_context(viewport={"width": 1000, "height": 420})
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.address = server.address
    yield opened
    assert opened.complaints == []
    context.close()
    server.stop(signal.SIGKILL)


def test_a_click_on_a_face_shows_its_photo_with_a_box(album_page, album):
    page, large = album_page, album_page.locator("#viewer img")
    page.goto(f"{page.address}group/0")
    page.locator(".shot img").first.click()
    playwright.expect(large).to_have_js_property("naturalWidth", WIDE)
    playwright.expect(large).to_have_js_property("naturalHeight", HIGH)
    assert page.text_content("#viewer p").startswith("shot ")
    page.keyboard.press("Escape")
    assert page.locator(".shot input:checked").count() == 0
    page.locator(".shot input").first.check()
    page.locator(".shot img").nth(1).click()
    assert page.locator(".shot input:checked").count() == 2, "with one selected, a click selects"
    assert not page.is_visible("#viewer")
    for photo in (album.parent / "photos").iterdir():
        photo.unlink()
    page.goto(f"{page.address}group/1")
    page.locator(".shot img").first.click()
    playwright.expect(large).to_have_js_property("naturalWidth", 64)
    assert "The photo is gone or cannot be read" in page.text_content("#viewer p")


def test_naming_leaves_everything_where_it_was(album_page):
    page = album_page
    page.goto(f"{page.address}groups?order=large")
    page.evaluate("window.scrollTo({top: 90, behavior: 'instant'})")
    page.check('input[name=group][value="2"]')
    page.fill("input[name=name]", "Ann")
    top = page.evaluate("window.scrollY")
    assert top > 0
    page.keyboard.press("Enter")  # not Merge, which is the first button
    page.wait_for_selector(".notice:has-text('Ann')")
    page.wait_for_load_state()
    assert page.evaluate("window.scrollY") == top
    assert page.url.startswith(f"{page.address}groups?order=large")
    assert page.locator("#g2.current").count() == 1
    page.goto(f"{page.address}group/1")
    page.fill("input[name=name]", "Bob")
    page.click("button:text-is('Name')")
    page.wait_for_selector(".notice:has-text('Bob')")
    assert page.url.startswith(f"{page.address}group/1?said=")


def test_two_people_of_one_name(album_page, album):
    page = album_page
    for number in (0, 1):
        page.goto(f"{page.address}group/{number}")
        page.fill("input[name=name]", "Ann")
        page.click("button:text-is('Name')")
    page.wait_for_selector("h1:has-text('Is this the same Ann?')")
    page.keyboard.press("n")
    page.wait_for_url("**/group/1?said=*")
    assert page.text_content("h1").startswith("Ann (person 1)")
    page.goto(f"{page.address}group/2")
    page.fill("input[name=name]", "Ann")
    page.click("button:text-is('Name')")
    playwright.expect(page.locator("button:has-text('The same person')")).to_have_count(2)
    page.locator("button:has-text('The same person')").first.click()
    page.wait_for_url("**/group/2?said=*")
    page.click("nav button:has-text('Apply')")
    page.wait_for_url("**/changes")
    assert open_collection(album).names == {0: "Ann", 1: "Ann"}
    assert {number: len(rows) for number, rows in groups_of(album).items()} == {0: 11, 1: 5, 3: 3}


def test_an_album_fits_a_phone(chromium, album_page):
    context = chromium.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    for path in ("", "groups", "group/0", "history", "report"):
        page.goto(album_page.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
    assert page.locator("#people .box").count() > 10
    context.close()
