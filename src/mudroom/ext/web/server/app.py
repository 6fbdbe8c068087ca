"""The application: the page, its API, and agents' cards."""

from __future__ import annotations

import asyncio
import json
import sys
from _blake2 import blake2b
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route

from mudroom.core.network.budget import FLOOR, Account, MemoryBudget
from mudroom.core.registry import is_installed
from mudroom.errors import MudroomError
from mudroom.ext.web.api import table
from mudroom.ext.web.api.endpoint import BODY_LIMIT, ApiCall, Endpoint, Raw, decode_body, decode_query
from mudroom.ext.web.server import asset, openapi
from mudroom.ext.web.server.guard import PUSH_WORKER, Hosts, Receive, RequestGuard, Scope, Send, hosts_of, log_fault
from mudroom.ext.web.state.refusal import Refusal, fault, refusal_of

if TYPE_CHECKING:
    from mudroom.ext.web.server.fork_proxy import ForkProxy
    from mudroom.ext.web.server.login import Login
    from mudroom.ext.web.state.server_state import ServerState


# --- Agents' A2A cards, and their interfaces, which lead to the running agents (``agent_forward.py``) ---


Cards = Callable[[str], dict[str, Any]]
"""A function that makes an agent's card, given its endpoint's URL. Called for each request, because the policy may
change."""


def card_routes(
    server: ServerState, agents: Mapping[str, tuple[Cards, Cards]], base: str
) -> tuple[list[Route], set[str]]:
    """Return the routes and the public paths. ``agents``: by id, functions for the card and its older form."""
    if not agents:
        return [Route("/api/v1/agents", _index([]), methods=["GET"])], set()
    from mudroom.ext.agents.core.a2a import WELL_KNOWN, WELL_KNOWN_OLD, paths_of
    from mudroom.ext.web.server.agent_forward import forwarding

    routes, public = [], set()
    paths = paths_of(list(agents))
    for agent, path in paths.items():
        for prefix in (path, "") if len(agents) == 1 else (path,):
            for name, cards in zip((WELL_KNOWN, WELL_KNOWN_OLD), agents[agent], strict=True):
                routes.append(Route(_decoded_path(prefix) + name, _card(cards, f"{base}{path}/a2a"), methods=["GET"]))
                public.add(_decoded_path(prefix) + name)
        routes.append(Route(_decoded_path(path) + "/a2a", forwarding(server, agent), methods=["POST"]))
    rows = [{"agent": agent, "card": base + path + WELL_KNOWN} for agent, path in paths.items()]
    routes.append(Route("/api/v1/agents", _index(rows), methods=["GET"]))
    return routes, public


def _decoded_path(path: str) -> str:
    """Return the path with its percent-encoding decoded, as in a request."""
    from urllib.parse import unquote

    return unquote(path)


def _card(cards: Cards, url: str) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        try:
            return JSONResponse(cards(url), headers={"cache-control": "no-cache"})
        except MudroomError as error:  # the policy cannot be read, so the card is not known
            return JSONResponse({"error": error.message}, 503)

    return answer


def _index(agents: list[dict[str, str]]) -> Callable[[Request], Response]:
    def answer(_request: Request) -> Response:
        return JSONResponse({"schema": "mudroom.served/1", "agents": agents})

    return answer


# --- Request bodies: read as they arrive, within a common memory budget ---
# Rules: the bytes read are charged to one budget until the request is answered. A body without room is not read further
# until other requests are answered or have ended; small bodies always have room. A body that stops arriving ends early,
# so that it does not keep its share.


BODY_SECONDS, BODY_PAUSE = 30, 5
"""Seconds for a request body to arrive, and between two of its parts."""
BODIES = 64 << 20
"""Twice the bytes that all bodies hold together: the budget reserves half for another command, and there is none."""


class Bodies:
    """For the server's event loop only."""

    def __init__(self) -> None:
        self._share = MemoryBudget(BODIES).share()

    @property
    def held(self) -> int:
        return self._share.held

    @contextmanager
    def open(self) -> Iterator[Account]:
        """Yield an account for one body, which is closed with the request."""
        account = self._share.open(lambda: None)
        account.enter()
        try:
            yield account
        finally:
            self._share.end_connection(account)
            account.leave()

    async def read(self, request: Request, account: Account) -> bytearray:
        """Return the body. Raise Refusal if it is too long or does not arrive, ClientDisconnect if the client goes
        away."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":  # another site's form can send other types: such a body is not even read
            raise Refusal(415, "bad-request", "a request is application/json")
        body, parts = bytearray(), request.stream()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while (part := await _next(parts)) is not None:
                    body += part
                    if len(body) > BODY_LIMIT:
                        raise Refusal(413, "bad-request", f"a request has at most {BODY_LIMIT:,} bytes")
                    await self._hold(account, len(part))
        except TimeoutError:
            raise Refusal(408, "bad-request", f"the request has not come within {BODY_SECONDS} seconds") from None
        return body

    async def _hold(self, account: Account, length: int) -> None:
        if account.held + length <= FLOOR:
            account.hold(length)
            return
        granted = asyncio.get_running_loop().create_future()

        def grant() -> bool:
            if granted.done():
                return False  # the time is over, and the task is told in a later turn
            granted.set_result(None)
            return True

        self._share.wait(account, length, grant)
        try:
            await granted
        finally:
            if granted.cancelled():
                self._share.give_up(account)


async def _next(parts: AsyncGenerator[bytes, None]) -> bytes | None:
    """Return the next part, or None at the end. Raise Refusal if it does not arrive."""
    try:
        async with asyncio.timeout(BODY_PAUSE):
            return await anext(parts, None)
    except TimeoutError:
        raise Refusal(408, "bad-request", f"no further part of the request came in {BODY_PAUSE} seconds") from None


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
    bodies, hosts = Bodies(), hosts_of(port, names)
    forks = _fork_proxy(server, login, hosts, prefix)
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
        *([_route("POST", table.BASE + "/visit", _visit(forks))] if forks is not None else []),
        *cards,
        *(Route(path, asset.serve, methods=["GET"]) for path in asset.PUBLIC),
    ]
    open_paths = public | {"/login", "/whose"} | asset.PUBLIC
    worker = asset.ASSETS[PUSH_WORKER.removeprefix("/")].data
    return RequestGuard(Router(routes), hosts, login, open_paths, LINKABLE, prefix, forks, worker)


def _fork_proxy(server: ServerState, login: Login, hosts: Hosts, prefix: str) -> ForkProxy | None:
    if sys.platform != "linux" or not is_installed("agents"):
        return None
    from mudroom.ext.web.server.fork_proxy import ForkProxy

    return ForkProxy(server, login, hosts, prefix)


def _visit(forks: ForkProxy) -> Handler:
    def serve(request: Request) -> Response:
        """Answer an address that lets this browser in at a fork's host: the page is logged in."""
        try:
            address = forks.visit(request.query_params.get("to", ""))
        except MudroomError as error:
            return problem(Refusal(404, "not-found", error.message, error.hint or ""))
        return JSONResponse({"address": address}, headers=_NO_STORE)

    return serve


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
