"""At the edge: a server on this machine's loopback address, until it is stopped."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from cdp.errors import InputError, MissingExtraError, StoreError, install_command

HOST = "127.0.0.1"


def serve(
    folder: str | Path,
    *,
    port: int = 0,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the review of a collection until the process is interrupted.

    Args:
        folder: the collection.
        port: to listen on; 0 = any that is free.
        started: called with the address, token included, once the server answers.

    Raises:
        InputError: this is no collection, or the port is taken.
        MissingExtraError: the extra `review` is not installed.
    """
    try:
        import uvicorn
        from starlette.applications import Starlette as _  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            f"The review page needs a web server; run {install_command('review')}.",
            code="review-extra-missing",
        ) from None
    from cdp.storage.files import check_writable
    from cdp.web.review.session import Session
    from cdp.web.review.web_app import web_app

    check_writable(folder)  # answers are written there
    token = secrets.token_urlsafe(24)
    listening = _listen(port)
    with listening:
        app = web_app(Session(folder), token)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        started(f"http://{HOST}:{listening.getsockname()[1]}/{token}/")
        server.run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    """Return a socket on the loopback address, open before anything is promised."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno is not None and port:
            raise InputError(
                f"--port {port}: {error.strerror}; choose another, or 0 for any that is free.",
                code="port-not-free",
                value=port,
            ) from None
        raise StoreError(
            f"no port of {HOST} can be listened on ({error.strerror}).", code="port-none-free"
        ) from None
    return listening
