"""What is served: the page, its API, and the cards of agents."""

from __future__ import annotations

import asyncio
import json
from _blake2 import blake2b
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route

from mudroom.web.api import table
from mudroom.web.api.endpoint import BODY_LIMIT, ApiCall, Endpoint, Raw, decoded, queried
from mudroom.web.server import asset, openapi
from mudroom.web.server.card import card_routes
from mudroom.web.server.guard import RequestGuard, hosts_of, log_fault
from mudroom.web.state.refusal import Refusal, fault, refusal_of

if TYPE_CHECKING:
    from mudroom.web.server.card import Cards
    from mudroom.web.server.guard import Receive, Scope, Send
    from mudroom.web.server.login import Login
    from mudroom.web.state.server_state import ServerState

Serving = Callable[[Request], Any]

STREAMS = 64
"""Streams of events, at a time: one for each browser, for each page where a browser has no shared workers, and for each
program that listens."""
BODY_SECONDS = 30
"""In which the body of a request has to be here."""
TAGGED = 4096
"""Bytes from which on an answer has a tag."""
DOORS = ("/", "/login")
"""What other sites may link to."""


def build(
    server: ServerState,
    agents: Mapping[str, tuple[Cards, Cards]],
    base: str,
    port: int,
    login: Login,
    names: Iterable[str] = (),
    prefix: str = "",
) -> RequestGuard:
    """``base``: ``http://127.0.0.1:PORT``, and the prefix. ``agents``: of those whose cards are served, what makes
    them. ``names`` and ``prefix``: of a proxy before us, as ``RequestGuard`` has them."""
    cards, public = card_routes(agents, base)
    described = openapi.document(table.BASE, table.ENDPOINTS)
    routes = [
        *(_only(one.method, table.BASE + one.path, _serving(one, server)) for one in table.ENDPOINTS),
        _only("GET", table.BASE + "/events", _events(server, login)),
        _only("GET", table.BASE + "/openapi.json", lambda _request: JSONResponse(described)),
        _only("GET", "/login", login.enter),
        _only("GET", "/whose", lambda request: Response(login.proof(request.query_params.get("nonce", "")))),
        _only("POST", "/link", _link(login)),
        *cards,
        *(Route(path, asset.serve, methods=["GET"]) for path in asset.PUBLIC),
    ]
    return RequestGuard(
        Rooms(routes), hosts_of(port, names), login, public | {"/login", "/whose"} | asset.PUBLIC, DOORS, prefix
    )


def _only(method: str, path: str, serve: Serving) -> Route:
    """Without the HEAD that comes with every GET: it would use up an address, or hold a stream."""
    route = Route(path, serve, methods=[method])
    route.methods = {method}
    return route


class Rooms:
    """The routes, and what is answered where there is none. Nobody is sent elsewhere."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed: set[str] = set()
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                scope.update(child)
                await route.handle(scope, receive, send)
                return
            if match is Match.PARTIAL:
                allowed |= route.methods or set()
        await _missing(scope["path"], sorted(allowed))(scope, receive, send)


def _missing(path: str, allowed: list[str]) -> Response:
    if allowed:
        refusal = Refusal(405, "bad-request", "that cannot be done with it", f"what can: {', '.join(allowed)}")
    else:
        refusal = Refusal(404, "not-found", "there is nothing of that name")
    answer = problem(refusal) if path.startswith("/api/") else _plain(refusal)
    if allowed:
        answer.headers["allow"] = ", ".join(allowed)
    return answer


def _serving(one: Endpoint, server: ServerState) -> Serving:
    async def serve(request: Request) -> Response:
        try:
            body = decoded(one.takes, await _body(request)) if one.takes is not None else None
            query = queried(one.query, dict(request.query_params))
            call = ApiCall(server, request.path_params, query, body)
            known = request.headers.get("if-none-match", "") if one.method == "GET" else ""
            return await run_in_threadpool(_answer, one, call, known)
        except ClientDisconnect:
            return Response(b"", 400)  # nobody hears it
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told that there is no answer
            return problem(_refusal(request, error))

    return serve


def _answer(one: Endpoint, call: ApiCall, known: str) -> Response:
    """``known``: the tags of answers that are there already. What is long is not sent again, nor read, nor drawn: a
    page asks for all of it whenever some of it may be another one."""
    found = one.handle(call)
    if isinstance(found, Raw):
        return Response(found.data, one.status, dict(found.headers), found.media_type)
    data = msgspec.json.encode(found)
    if one.method != "GET" or len(data) < TAGGED:
        return Response(data, one.status, _FRESH, "application/json")
    tag = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    if tag in known:  # RFC 9110, 13.1.2; it is still stored nowhere but in the page (``no-store``)
        return Response(b"", 304, {**_FRESH, "etag": tag})
    return Response(data, one.status, {**_FRESH, "etag": tag}, "application/json")


def _refusal(request: Request, error: Exception) -> Refusal:
    try:
        return refusal_of(error)
    except Exception as unexpected:  # noqa: BLE001 - a fault of ours: said on stderr, where no page sees it
        log_fault(request.method, request.scope["path"], unexpected)
        return fault()


_FRESH = {"cache-control": "no-store"}


def problem(refusal: Refusal) -> Response:
    return Response(msgspec.json.encode(refusal.problem), refusal.status, _FRESH, "application/json")


def _plain(refusal: Refusal) -> Response:
    return Response(f"{refusal.problem.error}\n", refusal.status, _FRESH, "text/plain; charset=utf-8")


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":  # what a form of another site can send is not even read
        raise Refusal(415, "bad-request", "a request is application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise Refusal(413, "bad-request", f"a request has at most {BODY_LIMIT:,} bytes")
    except TimeoutError:
        raise Refusal(408, "bad-request", f"the request has not come within {BODY_SECONDS} seconds") from None
    return bytes(body)


def _link(login: Login) -> Serving:
    def serve(request: Request) -> Response:
        """A new address, for programs that know the token; a page that is logged in needs none."""
        if not login.bearer(request.scope["headers"]):
            return Response("the token is missing\n", 403, media_type="text/plain")
        return JSONResponse({"code": login.new_code()}, headers=_FRESH)

    return serve


def _events(server: ServerState, login: Login) -> Serving:
    """Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html"""

    async def lines(request: Request) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        async for message in server.hub.listen():
            if not login.knows(request.scope["headers"]):
                return  # logged out meanwhile
            if message is None:
                yield b": nothing new\n\n"
                continue
            kind, data = message
            yield f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()

    async def serve(request: Request) -> Response:
        if server.hub.listeners >= STREAMS:
            hint = "close a browser that has this page, or end a program that listens"
            return problem(Refusal(503, "busy", f"{STREAMS} streams of events are open already", hint))
        return StreamingResponse(
            lines(request), headers={**_FRESH, "x-accel-buffering": "no"}, media_type="text/event-stream"
        )

    return serve
