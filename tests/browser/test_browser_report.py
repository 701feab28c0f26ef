"""The page in a real browser: pictures are there, nothing is wider than a phone, nothing complains."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import msgspec
import pytest

from cdp.types import Manifest
from cdp.web.report.write import write_page
from run_folder import artifacts_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed (apt-get install chromium)"),
    pytest.mark.slow,
]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0",
    "--virtual-time-budget=5000",
)  # fmt: skip
# Headless windows have a least width, so the page is shown in a frame as wide as a phone.
HARNESS = """<!doctype html><title>harness</title><iframe src="page.html" width="WIDTH" height="800"></iframe>
<pre id="answer"></pre><script>
window.addEventListener("load", () => {
  const frame = document.querySelector("iframe"), page = frame.contentDocument, view = frame.contentWindow;
  const closed = page.documentElement.scrollWidth;
  page.querySelectorAll("details").forEach(one => { one.open = true; });
  const pictures = [...page.images];
  const visible = one => { const box = one.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
  document.getElementById("answer").textContent = JSON.stringify({
    width: view.innerWidth, closed, opened: page.documentElement.scrollWidth,
    pictures: pictures.length, broken: pictures.filter(one => !one.complete || !one.naturalWidth).length,
    largest: Math.max(...pictures.map(one => one.naturalWidth)),
    drawings: page.querySelectorAll("svg").length, hidden: [...page.querySelectorAll("svg")].filter(one => !visible(one)).length,
    sections: [...page.querySelectorAll("main > section")].filter(visible).map(one => one.id),
    links: [...page.querySelectorAll("nav a")].map(one => one.getAttribute("href").slice(1)),
    background: view.getComputedStyle(page.body).backgroundColor,
  });
});
</script>"""


@pytest.fixture(scope="module")
def page(made_run, tmp_path_factory):
    return shutil.copy(made_run[0] / "report.html", tmp_path_factory.mktemp("browser") / "page.html")


@pytest.fixture(scope="module")
def page_of_embeddings(made_run, tmp_path_factory):
    """No networks, no pictures, long paths, two notes."""
    folder, record = made_run
    artifacts = artifacts_of(folder)
    paths = tuple(f"{'a-long-folder-name/' * 4}{row}" for row in range(len(artifacts.images)))
    results = msgspec.structs.replace(record.results, headline=None, committee=None)
    target = tmp_path_factory.mktemp("browser") / "page.html"
    write_page(
        msgspec.structs.replace(record, results=results, notes=["There are no probe images.", "Long. " * 40]),
        replace(artifacts, images=Manifest(paths, artifacts.truth)),
        target,
    )
    return target


def browse(page, tmp_path, *flags):
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        *flags,
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


def look(page, tmp_path, width, *flags):
    harness = page.with_name(f"harness{width}.html")
    harness.write_text(HARNESS.replace("WIDTH", str(width)))
    found = re.search(r'<pre id="answer">(.+?)</pre>', browse(harness, tmp_path, *flags), flags=re.DOTALL)
    assert found, "the page did not load"
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", [390, 1200])
def test_everything_is_there_and_nothing_overflows(page, tmp_path, width):
    seen = look(page, tmp_path, width)
    assert seen["width"] == width
    assert seen["closed"] <= width
    assert seen["opened"] <= width
    assert seen["pictures"] > 50
    assert seen["broken"] == 0
    assert seen["largest"] == 56
    assert seen["drawings"] >= 15
    assert seen["hidden"] == 0
    assert seen["sections"] == seen["links"]
    assert len(seen["sections"]) == 8


@pytest.mark.parametrize("width", [390, 1200])
def test_a_page_without_pictures_does_not_overflow_either(page_of_embeddings, tmp_path, width):
    seen = look(page_of_embeddings, tmp_path, width)
    assert max(seen["closed"], seen["opened"]) <= width
    assert (seen["pictures"], seen["hidden"]) == (0, 0)
    assert seen["sections"] == seen["links"]
    assert "headline" not in seen["sections"]


def test_dark_where_people_like_it_dark(page, tmp_path):
    light = look(page, tmp_path / "light", 390)["background"]
    dark = look(page, tmp_path / "dark", 390, "--blink-settings=preferredColorScheme=0")["background"]
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(20, 23, 27)"


def test_a_picture_of_the_page_is_not_blank(page, tmp_path):
    from PIL import Image

    browse(page, tmp_path, "--window-size=1000,1400", f"--screenshot={tmp_path / 'page.png'}")
    with Image.open(tmp_path / "page.png") as shot:
        assert len(shot.convert("RGB").getcolors(2**24)) > 50
