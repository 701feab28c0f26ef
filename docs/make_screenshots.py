"""The pictures of an album's pages in the docs, from drawn photos: `make docs-pictures`. Needs Chromium."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from tests.drawn_photos import build_models, photograph

HERE = Path(__file__).parent / "pictures"
WIDTH = 1100
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Label easy photos for the report, and harder ones for a question."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started:
        home = Path(name)
        browser = next(found for found in map(shutil.which, BROWSERS) if found)
        chromium = started.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": 640})
        build_models(home / "models")
        photograph(home / "photos")
        keep_photos(sorted((home / "photos").glob("photo*.png"))[1:5])
        page.goto((label(home, "photos") / "report.html").as_uri())
        page.set_viewport_size({"width": WIDTH, "height": 1250})
        keep(page, "album-report")
        page.set_viewport_size({"width": WIDTH, "height": 640})
        photograph(home / "harder", difficulty=0.22)
        review(page, label(home, "harder"))


def label(home: Path, photos: str) -> Path:
    """The collection `album-<photos>`, called `album` in its pages."""
    album = home / f"of-{photos}" / "album"
    album.parent.mkdir()
    cdp("label", str(home / photos), "--models", str(home / "models"), "--out", str(album))
    return album


def cdp(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "cdp", *words, "--quiet"], check=True)


def review(page: Page, album: Path) -> None:
    command = [sys.executable, "-m", "cdp", "review", str(album), "--no-browser", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        page.goto(server.stdout.readline().strip())
        page.wait_for_load_state("networkidle")
        keep(page, "album-review")
        server.send_signal(signal.SIGINT)


def keep(page: Page, name: str) -> None:
    _save(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), name)


def keep_photos(photos: list[Path]) -> None:
    side = 160
    sheet = Image.new("RGB", (side * len(photos), side))
    for number, photo in enumerate(photos):
        sheet.paste(Image.open(photo).resize((side, side)), (side * number, 0))
    _save(sheet, "album-photos")


def _save(picture: Image.Image, name: str) -> None:
    picture.save(HERE / f"{name}.webp", quality=85, method=6)
    print(f"docs/pictures/{name}.webp")


if __name__ == "__main__":
    main()
