"""Who may ask the server for what: this machine, with the token, and changes only from the page itself."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MOST_BODY = 2_000_000
"""Bytes that a form may have: a selection of some hundred thousand images."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not no-referrer: browsers would then send `Origin: null` with forms, and no write could be accepted.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests from other machines, without the token, and writes from another site.

    The token is the first part of the path, so that no link or form needs to repeat it. A server on loopback
    is still reached by every page in the user's browser: hence the token, the check of `Host` (any name may
    lead to loopback) and the check of where a write comes from.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await PlainTextResponse(f"{refusal[1]}\n", refusal[0], headers=_HEADERS)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        prefix = f"/{self._token}"
        inner = {**scope, "root_path": prefix}
        await self._app(inner, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if host_name(headers.get("host", "")) not in LOOPBACK:
            return 421, "This server answers on 127.0.0.1 and localhost only."
        first = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return 403, "Open the address that cdp review printed; it contains a token."
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST":
            return 405, "Only GET and POST are allowed."
        if not is_same_origin(headers):
            return 403, "Changes are accepted from the review page only."
        length = headers.get("content-length", "")
        if not is_number(length) or int(length) > MOST_BODY:
            return 413, "The form is too long, or has no length."
        return None


def is_number(text: str) -> bool:
    """Test whether text is a whole number of a sensible length; `int` takes more, and fails on long ones."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def host_name(host: str) -> str:
    """`127.0.0.1` of `127.0.0.1:8123`; empty if it is no host."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_same_origin(headers: Headers) -> bool:
    """Return whether a write comes from a page of this server; one of unknown origin does not."""
    sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    own = _own_origins(headers.getlist("host"))
    said = [site == "same-origin" for site in sites] + [origin in own for origin in origins]
    return bool(said) and all(said)


def _own_origins(hosts: Iterable[str]) -> set[str]:
    return {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
