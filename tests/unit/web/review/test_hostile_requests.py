"""The review server under requests that no page of ours sends; `python -m benchmarks requests` sends many more."""

import asyncio
import socket
import threading
import time

import pytest
import uvicorn
from tests.hostile_requests import attack
from tests.review_collection import TOKEN, Browser, make_collection

from cdp.collection.corrections import JOURNAL, append_corrections, named
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("review") / "faces"
    make_collection(folder)
    append_corrections(folder, [named("Anna", 0, 1)])
    return folder


def test_every_request_is_answered_and_nothing_wrong_is_written(folder):
    assert list(attack(folder, 400)) == []


@pytest.mark.parametrize(
    "path", ["?said=" + "9" * 5000, "group/" + "9" * 30, "thumbnail/" + "9" * 5000, "group/" + "9" * 5000]
)
def test_a_number_of_any_length_is_no_failure(folder, path):
    assert Browser(web_app(Session(folder), TOKEN)).get(path).status < 500


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1_0"])
def test_a_length_that_is_no_number_is_refused(folder, length):
    browser = Browser(web_app(Session(folder), TOKEN))
    assert browser.post("undo", {}, **{"content-length": length}).status == 413


def test_a_journal_that_was_damaged_meanwhile_is_one_sentence(folder, tmp_path):
    made = make_collection(tmp_path / "faces")
    browser = Browser(web_app(Session(made.folder), TOKEN))
    (made.folder / JOURNAL).write_text("{}\n")
    for path in ("", "groups", "history"):
        answer = browser.get(path)
        assert answer.status == 500
        assert "corrections.jsonl: line 1 is damaged" in answer.text
        assert "Traceback" not in answer.text


RAW = [
    b"",
    b"\r\n" * 1000,
    b"GET",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00" + bytes(500),
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"POST /secret/do/undo HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 10\r\n\r\nab",
    b"POST /secret/do/undo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFF\r\n",
    b"POST /secret/do/undo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"GET /secret/ HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\n\r\n",
    b"GET /secret/\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /secret/ HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
]


def test_the_server_still_answers_after_bytes_that_are_no_request(folder):
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        web_app(Session(folder), TOKEN), log_level="critical", lifespan="off", access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    before = (folder / JOURNAL).read_bytes()
    address = listening.getsockname()
    waiting = []
    for content in RAW * 2:
        peer = socket.create_connection(address, timeout=10)
        peer.sendall(content)
        waiting.append(peer)  # never closed by us, while others ask
    deadline = time.monotonic() + 20
    answer = b""
    while not answer.startswith(b"HTTP/1.1 200") and time.monotonic() < deadline:
        with socket.create_connection(address, timeout=10) as peer:
            peer.sendall(b"GET /secret/groups HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = peer.recv(4096)
    for peer in waiting:
        peer.close()
    server.should_exit = True
    thread.join(20)
    assert answer.startswith(b"HTTP/1.1 200")
    assert (folder / JOURNAL).read_bytes() == before
