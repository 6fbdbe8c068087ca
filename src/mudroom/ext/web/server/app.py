"""The application: the page, its API, and agents' cards."""

from __future__ import annotations

import json
from _blake2 import blake2b
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route

from mudroom.ext.web.api import table
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, Raw, decode_body, decode_query
from mudroom.ext.web.server import asset, openapi
from mudroom.ext.web.server.body import Bodies
from mudroom.ext.web.server.card import card_routes
from mudroom.ext.web.server.guard import RequestGuard, hosts_of, log_fault
from mudroom.ext.web.state.refusal import Refusal, fault, refusal_of

if TYPE_CHECKING:
    from mudroom.core.network.budget import Account
    from mudroom.ext.web.server.card import Cards
    from mudroom.ext.web.server.guard import Receive, Scope, Send
    from mudroom.ext.web.server.login import Login
    from mudroom.ext.web.state.server_state import ServerState

Handler = Callable[[Request], Any]

STREAMS = 64
"""Maximum event streams: one for each browser, for each page where a browser has no shared workers, and for each
listening program."""
TAG_THRESHOLD = 4096
"""Minimum bytes for an answer to have an entity tag."""
LINKABLE = ("/", "/login")
"""Paths that other sites may link to."""


def build(
    server: ServerState,
    agents: Mapping[str, tuple[Cards, Cards]],
    base: str,
    port: int,
    login: Login,
    names: Iterable[str] = (),
    prefix: str = "",
) -> RequestGuard:
    """Return the application. ``base``: ``http://127.0.0.1:PORT`` with the prefix. ``agents``: by id, functions that
    make the card and its older form. ``names`` and ``prefix``: a reverse proxy's, as for ``RequestGuard``."""
    bodies = Bodies()
    cards, public = card_routes(server, agents, base)
    openapi_document = openapi.document(table.BASE, table.ENDPOINTS)
    routes = [
        *(
            _route(endpoint.method, table.BASE + endpoint.path, _handler(endpoint, server, bodies))
            for endpoint in table.ENDPOINTS
        ),
        _route("GET", table.BASE + "/events", _events(server, login)),
        _route("GET", table.BASE + "/openapi.json", lambda _request: JSONResponse(openapi_document)),
        _route("GET", "/login", login.enter),
        _route("GET", "/whose", lambda request: Response(login.proof(request.query_params.get("nonce", "")))),
        _route("POST", "/link", _link(login)),
        *cards,
        *(Route(path, asset.serve, methods=["GET"]) for path in asset.PUBLIC),
    ]
    return RequestGuard(
        Router(routes), hosts_of(port, names), login, public | {"/login", "/whose"} | asset.PUBLIC, LINKABLE, prefix
    )


def _route(method: str, path: str, serve: Handler) -> Route:
    """Return a route without the HEAD that comes with every GET: HEAD would use up a login code, or hold a stream."""
    route = Route(path, serve, methods=[method])
    route.methods = {method}
    return route


class Router:
    """Answers 404 or 405 where no route matches, and never redirects."""

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
        await _no_route(scope["path"], sorted(allowed))(scope, receive, send)


def _no_route(path: str, allowed: list[str]) -> Response:
    if allowed:
        refusal = Refusal(405, "bad-request", "this method is not allowed here", f"allowed: {', '.join(allowed)}")
    else:
        refusal = Refusal(404, "not-found", "no such address")
    answer = problem(refusal) if path.startswith("/api/") else _plain(refusal)
    if allowed:
        answer.headers["allow"] = ", ".join(allowed)
    return answer


def _handler(endpoint: Endpoint, server: ServerState, bodies: Bodies) -> Handler:
    async def serve(request: Request) -> Response:
        with ExitStack() as stack:
            return await answer(request, stack.enter_context(bodies.open()) if endpoint.takes is not None else None)

    async def answer(request: Request, account: Account | None) -> Response:
        try:
            body = None if account is None else decode_body(endpoint.takes, await bodies.read(request, account))
            query = decode_query(endpoint.query, dict(request.query_params))
            call = ApiCall(server, request.path_params, query, body)
            known = request.headers.get("if-none-match", "") if endpoint.method == "GET" else ""
            return await run_in_threadpool(_answer, endpoint, call, known)
        except ClientDisconnect:
            return Response(b"", 400)  # the client is gone
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told that there is no answer
            return problem(_refusal_or_fault(request, error))

    return serve


def _answer(endpoint: Endpoint, call: ApiCall, known_tags: str) -> Response:
    """Answer a call. ``known_tags``: the client's entity tags. A long answer that has not changed is not sent, parsed
    and drawn again: a page requests it whenever any part may have changed."""
    result = endpoint.handle(call)
    if isinstance(result, Raw):
        return Response(result.data, endpoint.status, dict(result.headers), result.media_type)
    data = msgspec.json.encode(result)
    if endpoint.method != "GET" or len(data) < TAG_THRESHOLD:
        return Response(data, endpoint.status, _NO_STORE, "application/json")
    tag = f'"{blake2b(data, digest_size=16).hexdigest()}"'
    if tag in known_tags:  # RFC 9110, 13.1.2; the answer is stored only in the page (``no-store``)
        return Response(b"", 304, {**_NO_STORE, "etag": tag})
    return Response(data, endpoint.status, {**_NO_STORE, "etag": tag}, "application/json")


def _refusal_or_fault(request: Request, error: Exception) -> Refusal:
    try:
        return refusal_of(error)
    except Exception as unexpected:  # noqa: BLE001 - a fault of ours: said on stderr, where no page sees it
        log_fault(request.method, request.scope["path"], unexpected)
        return fault()


_NO_STORE = {"cache-control": "no-store"}


def problem(refusal: Refusal) -> Response:
    return Response(msgspec.json.encode(refusal.problem), refusal.status, _NO_STORE, "application/json")


def _plain(refusal: Refusal) -> Response:
    return Response(f"{refusal.problem.error}\n", refusal.status, _NO_STORE, "text/plain; charset=utf-8")


def _link(login: Login) -> Handler:
    def serve(request: Request) -> Response:
        """Answer a new login code to a program that knows the token; a logged-in page needs none."""
        if not login.bearer(request.scope["headers"]):
            return Response("the token is missing\n", 403, media_type="text/plain")
        return JSONResponse({"code": login.new_code()}, headers=_NO_STORE)

    return serve


def _events(server: ServerState, login: Login) -> Handler:
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
            lines(request), headers={**_NO_STORE, "x-accel-buffering": "no"}, media_type="text/event-stream"
        )

    return serve
