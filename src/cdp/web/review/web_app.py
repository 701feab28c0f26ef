"""The server's routes: pages to read, and forms, whose answers go to the journal first."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from cdp.errors import CdpError, InputError
from cdp.web.rendering import packaged, render
from cdp.web.review import answers, review_pages
from cdp.web.review.group_index import ORDERS
from cdp.web.review.guards import Guard, is_number
from cdp.web.review.review_views import Notice, View
from cdp.web.review.session import Session

_KEPT = {"Cache-Control": "private, max-age=86400, immutable"}
_REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="4" fill="#1668b8"/>'
    '<circle cx="8" cy="6.4" r="2.9" fill="#fff"/><path d="M2.8 14a5.2 5.2 0 0 1 10.4 0z" fill="#fff"/></svg>'
)
_NO_PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96"><rect width="96" height="96" fill="#8884"/>'
    '<text x="48" y="60" font-size="34" text-anchor="middle" font-family="sans-serif" fill="#888">?</text>'
    "</svg>"
)
_NO_PHOTO = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
"""One pixel, by which the script of the page knows that it shows the crop instead."""

_BACK = b' <a href="./">Review these groups</a>'
_MOST_FIELDS = 250_000
Endpoint = Callable[[Request], Awaitable[Response]]


def web_app(session: Session, token: str) -> Guard:
    """Return the whole application behind its guard; every address starts with the token."""
    routes = Routes(session, f"/{token}")
    pages: dict[str, Callable[[Request], Response]] = {
        "/": routes.questions,
        "/groups": routes.groups,
        "/group/{number}": routes.group,
        "/alone": routes.alone,
        "/history": routes.history,
        "/changes": routes.changes,
        "/report": routes.report,
        "/style.css": routes.style,
        "/review.js": routes.script,
        "/icon.svg": routes.icon,
        "/thumbnail/{row}": routes.thumbnail,
        "/picture/{row}": routes.picture,
        "/photo/{row}": routes.photo,
    }
    starlette = Starlette(
        routes=[
            *(Route(path, _in_a_thread(endpoint), methods=["GET"]) for path, endpoint in pages.items()),
            Route("/do/{action}", routes.act, methods=["POST"]),
        ]
    )
    return Guard(starlette, token)


def _in_a_thread(endpoint: Callable[[Request], Response]) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await run_in_threadpool(endpoint, request)
        except (CdpError, OSError) as error:  # of files that were damaged or removed meanwhile
            return PlainTextResponse(f"{_in_words(error)}\n", 500)

    return answer


def _in_words(error: CdpError | OSError) -> str:
    if isinstance(error, CdpError):
        return str(error)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{where}{error.strerror or error}; check that the collection still exists."


class Routes:
    """One method per address."""

    def __init__(self, session: Session, prefix: str) -> None:
        self._session, self._prefix = session, prefix

    def questions(self, request: Request) -> Response:
        """Return the questions, the most valuable first."""
        view = self._view()
        cards = review_pages.question_cards(view, self._session.questions())
        return self._html(request, view, "questions", cards)

    def groups(self, request: Request) -> Response:
        """Return all groups, or those of a name."""
        view, query = self._view(), request.query_params
        order = query.get("order", "")
        order = order if order in ORDERS else next(iter(ORDERS))
        page = review_pages.groups_page(view, order, query.get("find", "")[:200], _page(request))
        return self._html(request, view, "groups", page)

    def group(self, request: Request) -> Response:
        """Show one group."""
        view = self._view()
        page = review_pages.group_page(view, _number(request, "number"), _page(request))
        return self._html(request, view, "images", page)

    def alone(self, request: Request) -> Response:
        """Return the images in no group."""
        view = self._view()
        return self._html(request, view, "images", review_pages.alone_page(view, _page(request)))

    def history(self, request: Request) -> Response:
        """Return the journal."""
        view = self._view()
        page = review_pages.history_page(view, self._session.history(), _page(request))
        return self._html(request, view, "entries", page)

    def changes(self, request: Request) -> Response:
        """Return what the last Apply changed."""
        view = self._view()
        return self._html(request, view, "entries", review_pages.changes_page(view, *self._session.changes()))

    def _html(self, request: Request, view: View, template: str, page: object) -> Response:
        return self._drawn(view, template, page, _own_address(request), self._notice(request), stays=True)

    def _drawn(
        self, view: View, template: str, page: object, back: str, notice: Notice | None = None, *, stays: bool
    ) -> Response:
        """Return a page; its forms lead to `back`, which is the page itself if it `stays`."""
        return HTMLResponse(
            render(
                f"{template}.html",
                view=view,
                page=page,
                title=f"{view.title}: review",
                notice=notice,
                keys=review_pages.KEYS,
                back=back,
                stays=stays,
            )
        )

    def report(self, _: Request) -> Response:
        """Return the collection's report."""
        file = self._session.report
        headers = {"Content-Security-Policy": _REPORT_POLICY}
        page = file.read_bytes().replace(b"</footer>", _BACK + b"</footer>", 1)
        # Photos are opened by row: where they are on the disk leads nowhere from here.
        page = re.sub(rb'<a href="[^"]*" data-row="(\d+)"', rb'<a href="photo/\1" data-row="\1"', page)
        return HTMLResponse(page, headers=headers)

    def style(self, _: Request) -> Response:
        """Return how it looks."""
        return Response(packaged("style.css"), media_type="text/css", headers=_KEPT)

    def script(self, _: Request) -> Response:
        """Keys and large pictures."""
        return Response(packaged("review/review.js"), media_type="text/javascript", headers=_KEPT)

    def icon(self, _: Request) -> Response:
        """Return the icon of the tab."""
        return Response(_ICON, media_type="image/svg+xml", headers=_KEPT)

    def thumbnail(self, request: Request) -> Response:
        """Return a small picture."""
        return self._picture(_number(request, "row"), self._session.pictures.thumbnail)

    def picture(self, request: Request) -> Response:
        """Return a large picture."""
        return self._picture(_number(request, "row"), self._session.pictures.large)

    def photo(self, request: Request) -> Response:
        """Return the photo of a face; an empty picture says that it is gone."""
        return self._picture(_number(request, "row"), self._session.photo, _NO_PHOTO)

    def _picture(self, row: int, make: Callable[[int], bytes], otherwise: str = _NO_PICTURE) -> Response:
        if not 0 <= row < self._session.n_images:
            return PlainTextResponse("There is no such image.\n", 404)
        try:
            return Response(make(row), media_type="image/jpeg", headers=_KEPT)
        except InputError:
            return Response(otherwise, media_type="image/svg+xml")

    async def act(self, request: Request) -> Response:
        """Whatever a form asks for: on disk first, then back to a page that says so."""
        fields = await _read_form(request)
        action = request.path_params["action"]
        back = self._back(fields)
        try:
            await run_in_threadpool(self._session.refuse_other_rows, request.query_params.get("rows", ""))
            to = await run_in_threadpool(self._do, action, fields, back)
            if isinstance(to, Response):
                return to
        except (CdpError, OSError) as error:
            # Shown, not stored: the address carries a sentence for the next page, which escapes it.
            return RedirectResponse(_with(back, refused=_in_words(error)), 303)
        return RedirectResponse(to, 303)

    def _do(self, action: str, fields: dict[str, list[str]], back: str) -> str | Response:
        session = self._session
        if action == "apply":
            session.apply()
            return f"{self._prefix}/changes"
        if action == "undo":
            return _with(back, said=_numbers(session.undo(answers.rows_of(fields, "number"))))
        if action == "answer" and fields.get("how") == ["later"]:
            session.postpone((fields.get("question") or [""])[0])
            return back
        if action == "name" or (action == "groups" and fields.get("how") == ["name"]):
            return self._name(fields, back)
        doing: dict[str, Callable[[], Sequence[Any]]] = {
            "answer": lambda: answers.answer_question(fields, session.index, session.view("").leaving),
            "images": lambda: answers.change_images(fields, session.index, session.view("").leaving),
            "groups": lambda: answers.change_groups(fields),
        }
        if action not in doing:
            raise InputError(
                f"{action!r} is not an action; reload the page.", code="action-unknown", value=action
            )
        return _with(back, said=_numbers(session.record(doing[action]())))

    def _name(self, fields: dict[str, list[str]], back: str) -> str | Response:
        """Record a name; if others have it and nobody said yet who is who, ask."""
        session = self._session
        name, rows = answers.person_name(fields), answers.images_to_name(fields)
        if not fields.get("who") and (others := session.namesakes(name, rows)):
            view = self._view()
            page = review_pages.same_name_page(view, name, rows, others)
            return self._drawn(view, "same_name", page, back, stays=False)
        return _with(back, said=_numbers(session.record(answers.name_images(fields))))

    def _view(self) -> View:
        return self._session.view(self._prefix)

    def _notice(self, request: Request) -> Notice | None:
        if words := request.query_params.get("refused", ""):
            return Notice(words[:1000], refused=True)
        numbers = [int(one) for one in request.query_params.get("said", "").split("-") if is_number(one)][:2]
        message = self._session.message_between(numbers[0], numbers[-1]) if numbers else None
        return Notice(*message) if message else None

    def _back(self, fields: dict[str, list[str]]) -> str:
        """Return the page that a form came from, if it is one of ours."""
        asked = (fields.get("back") or [""])[0]
        parts = urlsplit(asked)
        own = asked.startswith(f"{self._prefix}/") and not parts.netloc and not parts.scheme
        return asked if own and ".." not in asked and asked.isprintable() else f"{self._prefix}/"


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Fields of a form as lists of texts; the guard has limited its length."""
    kind = request.headers.get("content-type", "").split(";")[0]
    body = await request.body()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:  # not UTF-8, or too many fields
        return {}


def _own_address(request: Request) -> str:
    """Return the address of a page without its notice."""
    query = request.scope["query_string"].decode("latin-1")
    return _with(str(request.scope["path"]) + (f"?{query}" if query else ""))


def _with(address: str, **query: str) -> str:
    """Return an address with other values in its query, those of earlier notices left out."""
    from urllib.parse import parse_qsl, urlencode

    parts = urlsplit(address)
    kept = [(key, value) for key, value in parse_qsl(parts.query) if key not in ("said", "refused")]
    return parts._replace(query=urlencode([*kept, *query.items()])).geturl()


def _numbers(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}-{numbers[-1]}" if numbers else ""


def _page(request: Request) -> int:
    text = request.query_params.get("page", "1")
    return int(text) if is_number(text) else 1


def _number(request: Request, name: str) -> int:
    """Parse a row or a number in an address; -1 if it is none."""
    text = request.path_params[name]
    return int(text) if is_number(text) else -1
