"""A small collection of drawn patterns, with the mistakes that a review is there for."""

import asyncio
import io
import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from PIL import Image

from cdp.collection.collection import Collection
from cdp.collection.creation import create_collection
from cdp.scoring.settings import ConsensusSettings
from cdp.types import Views

TOKEN = "secret"
ORIGIN = "http://127.0.0.1:8000"
N_PEOPLE, N_IMAGES = 8, 6
BY_VOTE = ConsensusSettings.of(preset="paper", mediator="vote", threshold=0.5, k=8, max_cluster_size=30)
BY_SIMILARITY = ConsensusSettings.of(mediator="similarity", k=8, max_cluster_size=30)
"""Groups by similarity, of which the first question is whether two of them are one person."""


def make_collection(
    folder: Path, *, pictures: bool = True, paths: bool = True, settings: ConsensusSettings = BY_VOTE
) -> Collection:
    """Eight people of six images as two models see them; of the last two people one looks like the other."""
    generator = np.random.default_rng(3)
    people = np.repeat(np.arange(N_PEOPLE), N_IMAGES)
    faces = generator.normal(size=(N_PEOPLE, 24))
    faces[-1] = faces[-2] + 0.35 * generator.normal(size=24)

    def embed(noise: float) -> np.ndarray:
        return (faces[people] + noise * generator.normal(size=(len(people), 24))).astype(np.float32)

    names = [str(folder.parent / f"{row} <b>'&.png") for row in range(len(people))]
    for row, name in enumerate(names if pictures else ()):
        color = np.random.default_rng(int(people[row])).integers(40, 220, (4, 4, 3))
        pixels = np.kron(color, np.ones((8, 8, 1))) + np.random.default_rng(row).normal(0, 12, (32, 32, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(name)
    views = Views(embed(0.45), {"other": embed(0.5)}, None, names if paths else None)
    return create_collection(folder, views, settings=settings)


class Browser:
    """Calls an ASGI application as a browser on its own page would."""

    def __init__(self, app, token: str = TOKEN) -> None:
        self.app, self.token = app, token

    def get(self, path: str = "", **headers: str):
        return self.request("GET", path, b"", headers)

    def post(self, path: str, fields, **headers: str):
        sent = {"origin": ORIGIN, "sec-fetch-site": "same-origin"} | headers
        sent |= {"content-type": "application/x-www-form-urlencoded"}
        return self.request("POST", f"do/{path}", urlencode(fields, doseq=True).encode(), sent)

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str], whole: str | None = None):
        whole = f"/{self.token}/{path}" if whole is None else whole
        place, _, query = whole.partition("?")
        told = {"host": "127.0.0.1:8000", "content-length": str(len(body))} | headers
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": place, "raw_path": place.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in told.items() if value],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        }  # fmt: skip
        return asyncio.run(self._call(scope, body))

    async def _call(self, scope, body):
        sent = []

        asked = []

        async def receive():
            asked.append(1)
            if len(asked) > 1:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:]))

    def follow(self, answer):
        """The page that an answer leads to."""
        assert answer.status == 303, answer.text
        return self.request("GET", "", b"", {}, whole=answer.headers["location"])


class Answer:
    """Status, headers and body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def notice(self) -> str:
        found = re.search(r'<div class="notice.*?<span>(.*?)</span>', self.text, flags=re.DOTALL)
        return found[1] if found else ""

    def picture(self) -> Image.Image:
        return Image.open(io.BytesIO(self.body))
