"""Requests that no page of ours sends: wrong paths, numbers, forms, headers; the server answers each, and writes only what is right."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.review_collection import TOKEN, Browser

from cdp.collection.corrections import JOURNAL, read_journal
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app

NUMBERS = (
    "0", "1", "7", "-1", "99", "2147483648", "9" * 20, "9" * 5000, "1e3", "0x1", "\u0663", "\u00b2", "1.5", "", " ", "nan", "None", "1_0",
)  # fmt: skip
TEXTS = (
    "Anna", "", " ", "a" * 5000, "<script>", "\0", "\n", "\x1b[31m", "\u202e", "{{7*7}}", "{% raw %}", "../../etc/passwd", "%2e%2e%2f",
    "\udcff", "\U0001f600", "'; DROP", "=cmd()", "//evil", "http://evil", "\\\\evil",
)  # fmt: skip
PAGES = (
    "",
    "groups",
    "group/{}",
    "alone",
    "history",
    "changes",
    "report",
    "style.css",
    "thumbnail/{}",
    "picture/{}",
    "photo/{}",
    "x/{}",
)
ACTIONS = ("apply", "undo", "answer", "images", "groups", "name", "name", "groups", "x", "", "../undo")
FIELDS = (
    "image",
    "group",
    "shown",
    "shown1",
    "number",
    "how",
    "name",
    "who",
    "other",
    "question",
    "back",
    "to",
    "selected",
    "x",
)
HOWS = ("same", "different", "reject", "merge", "name", "later", "move", "split", "keep", "x")
LIKELY = (
    ("name=Anna", "image=1", "image=2"),
    ("name=Berta", "image=30"),
    ("how=reject", "image=5", "group=0", "shown=5"),
    ("how=merge", "group=0", "group=1", "shown0=1", "shown1=9"),
    ("how=name", "name=Carl", "group=1", "shown1=9"),
    ("number=0",),
    ("question=1-9", "how=same", "first=1", "second=9"),
    ("question=1-9", "how=later"),
)
"""Forms that are right, or nearly: so that some of the answers are written."""
HEADERS = {
    "host": ("127.0.0.1:8000", "evil", "", "[::1", "localhost:99999", "127.0.0.1@evil", "\xb2"),
    "origin": ("http://127.0.0.1:8000", "null", "http://evil", "", "file://", "http://[::1"),
    "sec-fetch-site": ("same-origin", "cross-site", "none", ""),
    "content-length": ("0", "-1", "9" * 5000, "\xb2", "1e9", "", "99999999"),
    "content-type": (
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json",
        "\xff",
    ),
    "range": ("bytes=0-", "bytes=-1", "bytes=9-1"),
    "if-modified-since": ("x",),
    "cookie": ("a=b; " * 500,),
}


def attack(folder: Path, n_requests: int, seed: int = 0) -> Iterator[str]:
    """Send requests; yields what is wrong with how one was answered. Answers that were on disk before stay there as they were."""
    random = Random(seed)
    browser = Browser(web_app(Session(folder), TOKEN))
    journal = folder / JOURNAL
    for number in range(n_requests):
        before = journal.read_bytes() if journal.exists() else b""
        method, path, body, headers = _request(random)
        shown = f"request {number}: {method} {path[:80]!a} {body[:80]!a} { ({k: v[:20] for k, v in headers.items()})!a}"
        try:
            answer = browser.request(method, path, body, headers)
        except Exception as error:
            yield f"{shown}: {type(error).__name__}: {error}"
            continue
        if not 200 <= answer.status < 500:
            yield f"{shown}: status {answer.status}"
        if "Traceback" in answer.text if answer.headers.get("content-type", "").startswith("text") else False:
            yield f"{shown}: a traceback"
        leads = answer.headers.get("location", f"/{TOKEN}/")
        if not leads.startswith(f"/{TOKEN}/") or leads.startswith("//"):
            yield f"{shown}: leads to {leads}"
        after = journal.read_bytes() if journal.exists() else b""
        if not after.startswith(before):
            yield f"{shown}: changed what was on disk"
        if after != before and method != "POST":
            yield f"{shown}: wrote without being asked to"
    read_journal(folder)
    Session(folder).view("x")


def _request(random: Random) -> tuple[str, str, bytes, dict[str, str]]:
    method = random.choice(("GET", "GET", "POST", "POST", "POST", "HEAD", "PUT", "OPTIONS", "TRACE", "X"))
    headers = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"} if method == "POST" else {}
    if random.random() < 0.3:
        name = random.choice(list(HEADERS))
        headers[name] = random.choice(HEADERS[name])
    if method == "POST" and random.random() < 0.9:
        headers.setdefault("content-type", "application/x-www-form-urlencoded")
        path = f"do/{random.choice(ACTIONS)}"
    else:
        path = random.choice(PAGES).replace("{}", random.choice(NUMBERS))
    query = "&".join(
        f"{_word(random, ('page', 'order', 'find', 'said', 'refused', 'x'))}={_word(random)}"
        for _ in range(random.choice((0, 0, 1, 3)))
    )
    fields = [_field(random) for _ in range(random.choice((0, 0, 1, 2, 5)))]
    if random.random() < 0.6:
        fields += random.choice(LIKELY)
        random.shuffle(fields)
    body = "&".join(fields).encode("utf-8", "surrogateescape")
    if random.random() < 0.05:
        body = random.randbytes(random.choice((1, 100, 5000)))
    return method, path + (f"?{query}" if query else ""), body if method == "POST" else b"", headers


def _word(random: Random, words: tuple[str, ...] = (*NUMBERS, *TEXTS)) -> str:
    return random.choice(words).encode("utf-8", "surrogateescape").decode("latin-1")


def _field(random: Random) -> str:
    name = random.choice(FIELDS)
    values = (
        HOWS if name in ("how", "who") and random.random() < 0.8 else (*NUMBERS, *NUMBERS[:5] * 3, *TEXTS)
    )
    return f"{name}={random.choice(values)}"
