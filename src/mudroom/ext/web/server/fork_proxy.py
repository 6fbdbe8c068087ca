"""A reverse proxy to the servers that run in forks: ``http://3000.FORK--PROJECT.localhost:PORT/``.

Every server in a fork is hostile to the page, to other forks and to the user's browser.

1. A fork's host is an origin of its own: neither the page's cookie nor its key is ever sent there. The host's own
   cookie is not passed on, and no server can set or clear it. Cookies stay with their host, or the ports of their fork.
2. A fork is a site of its own for a browser: no page of another can set a cookie for it. A request must come from a
   page of the same fork: Origin and Sec-Fetch-Site (Fetch Metadata) say so, and a browser that does not say it is
   refused. A link from anywhere may be followed.
3. Only a port that a process of the fork listens on is reached: not the gate's, nor what the gate leads to.
4. A connection inside has one request. What arrives is parsed and written anew: no byte of a request begins another.
5. Another user, and a command in a sandbox, is refused before anything else is looked at.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, quote, urlencode

import h11
from starlette.concurrency import run_in_threadpool

from mudroom.core.network.loopback import OWN_PORTS
from mudroom.errors import MudroomError
from mudroom.ext.web.server.fork_address import ForkAddress, first_port, label_of, labelled, parse_host
from mudroom.ext.web.server.login import header_values
from mudroom.session.confinement.namespace_listener import ports_behind
from mudroom.session.upkeep import why_unusable
from mudroom.stage import disk
from mudroom.vault.forks.endpoint import ports_of, remember

if TYPE_CHECKING:
    import socket

    from mudroom.ext.web.server.guard import Hosts, Raw, Receive, Scope, Send
    from mudroom.ext.web.server.login import Login
    from mudroom.ext.web.state.server_state import ServerState
    from mudroom.vault.store.fork import Fork

ENTER = "/.mudroom/enter"
"""The path, on a fork's host, at which a browser that is logged in to the page is let in."""
HEAD_LIMIT = 64 << 10
IDLE = 600.0
"""Seconds until an answer begins."""
PATIENCE = 5.0
"""Seconds until a server accepts, and until a host process says which ports are served."""
MOST, MOST_PER_FORK = 256, 128
"""Open requests, so that no page of a fork takes all connections of the server (``server.CONNECTIONS``)."""
MOST_INTERIM = 100
FRESH = 2.0
"""Seconds for which a port that was served counts as served, and a path as a fork's."""
_CHUNK = 1 << 16
_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))  # fmt: skip
"""Headers of one connection: RFC 9110, 7.6.1."""
_KEPT_BACK = frozenset(
    (b"host", b"expect", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
)
_OWN_COOKIES = b"mudroom-"
"""The beginning of the names of all logins: browsers send cookies to every port of a host (RFC 6265, 8.5)."""
_TAKEN_OUT = frozenset((b"clear-site-data", b"alt-svc"))
"""Headers of answers: the first clears the fork's login (W3C Clear Site Data, 4.2.3), the second leads elsewhere."""


class _Refused(Exception):
    def __init__(self, status: int, why: str, hint: str = "") -> None:
        super().__init__(f"{why} ({hint})" if hint else why)
        self.status = status


class ForkProxy:
    """Owner: the event loop of the page's server. ``_lock`` guards ``_served`` and ``_found``, for threads."""

    def __init__(self, server: ServerState, login: Login, hosts: Hosts, prefix: str = "") -> None:
        from mudroom.ext.agents.links.fork_dial import inner_sockets

        self._server, self._login, self._hosts, self._prefix = server, login, hosts, prefix
        self._sockets = inner_sockets()
        self._open: dict[str, int] = {}
        """Open requests, by the fork's zone."""
        self._served: dict[bytes, tuple[float, tuple[int, ...]]] = {}
        """By the path of a command's listener: until when the ports count."""
        self._found: dict[str, tuple[float, Fork]] = {}
        """By zone: until when a fork's path counts. Which fork has it is looked up for each connection."""
        self._lock = threading.Lock()

    def close(self) -> None:
        self._sockets.close()

    def address(self, headers: Raw) -> ForkAddress | None:
        """Return the fork that a request names, or None. A name of the page, or below one, is never a fork's."""
        values = header_values(headers, b"host")
        address = parse_host(values[0]) if len(values) == 1 else None
        if address is None or address.served not in self._hosts.ports:
            return None
        host = b"." + values[0].lower().partition(b":")[0]
        named = (name.partition(b":")[0] for name in self._hosts.names)
        return None if any(host.endswith(b"." + name) for name in named if name != b"localhost") else address

    async def serve(self, scope: Scope, receive: Receive, send: Send, address: ForkAddress) -> None:
        """Answer a request to a fork's host."""
        try:
            self._check(scope, address)
            if address.is_typed:
                location = address.origin.encode() + _target(scope)
                await _send_all(send, 308, [(b"location", location)], b"")
            elif scope["path"] == ENTER:
                await _send_all(send, *self._enter(scope, address))
            elif not self._is_let_in(scope, address):
                await _send_all(send, *self._to_login(scope, address))
            else:
                async with self._connected(address) as (reader, writer):
                    await _exchange(receive, send, address, self._request(scope, address), reader, writer)
        except _Refused as refused:
            await _send_all(send, refused.status, [], f"{refused}\n".encode())

    async def tunnel(
        self, scope: Scope, address: ForkAddress, client: asyncio.StreamReader, answer: asyncio.StreamWriter
    ) -> None:
        """Serve a request for a WebSocket (RFC 6455) to the end of its connection."""
        try:
            try:
                self._check(scope, address)
                if address.is_typed or not self._is_let_in(scope, address):
                    raise _Refused(401, "this browser is not logged in here", f"{address.origin}/ opens it")
                if any(header_values(scope["headers"], name) for name in (b"content-length", b"transfer-encoding")):
                    raise _Refused(400, "a request for a WebSocket has no content")
                async with self._connected(address) as (reader, writer):
                    await _relay(self._request(scope, address, upgrade=True), address, client, answer, reader, writer)
            except _Refused as refused:
                text = f"{refused}\n".encode()
                head = f"HTTP/1.1 {refused.status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
                answer.write(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text)
                await answer.drain()
        except OSError:
            pass  # either end has gone
        finally:
            answer.close()

    # --- who is let in ---

    def _check(self, scope: Scope, address: ForkAddress) -> None:
        """Raise _Refused if a request may not pass, whoever is logged in."""
        from mudroom.ext.web.server.guard import STRANGER

        headers: Raw = scope["headers"]
        stranger = scope.get("state", {}).get(STRANGER)
        if stranger is not None:
            raise _Refused(403, f"the request comes from {stranger if isinstance(stranger, str) else 'another user'}")
        if not scope["raw_path"].startswith(b"/"):
            raise _Refused(400, "the request target is not a path")  # RFC 9112, 3.2: absolute forms are for proxies
        if header_values(headers, b"transfer-encoding") and header_values(headers, b"content-length"):
            raise _Refused(400, "the request has two lengths")  # RFC 9112, 6.1: request smuggling
        origins = header_values(headers, b"origin")
        if any(not _is_of(origin, address) for origin in origins):
            raise _Refused(403, "the request comes from another site")
        if _is_navigation(scope):
            return
        # "same-site" is a server of this machine at another port, too, and without an Origin it does not say which
        own = (b"same-origin", b"none", *((b"same-site",) if origins else ()))
        if any(site not in own for site in header_values(headers, b"sec-fetch-site")):
            raise _Refused(403, "the request comes from another site")

    def _is_let_in(self, scope: Scope, address: ForkAddress) -> bool:
        headers: Raw = scope["headers"]
        if self._login.bearer(headers):
            return True
        says = bool(header_values(headers, b"sec-fetch-site") or header_values(headers, b"origin"))
        return says and self._login.knows_fork(headers, address.zone)

    def _enter(self, scope: Scope, address: ForkAddress) -> tuple[int, Raw, bytes]:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        cookie = self._login.enter_fork(address.zone, query.get("code", [""])[0]) if scope["method"] == "GET" else ""
        target = query.get("to", ["/"])[0]
        if not cookie:
            raise _Refused(403, "this address has been used, or is too old", f"open {address.origin}/ again")
        if not target.startswith("/") or target[1:2] in ("/", "\\"):
            target = "/"
        location = quote(target, safe="/?#[]@!$&'()*+,;=:%~-._")
        return 303, [(b"location", location.encode()), (b"set-cookie", cookie.encode())], b""

    def _to_login(self, scope: Scope, address: ForkAddress) -> tuple[int, Raw, bytes]:
        """Send a browser to the page, which sends it back if it is logged in there; tell any other what it needs."""
        if not _is_navigation(scope):
            hint = "a program sends the token of mudroom serve --token: Authorization: Bearer TOKEN"
            raise _Refused(401, "the request is not logged in", f"a browser opens {address.origin}/; {hint}")
        wanted = quote(address.host + _target(scope).decode("latin-1"), safe="")
        page = f"http://127.0.0.1:{address.served}{self._prefix}/#/visit/{wanted}"
        return 303, [(b"location", page.encode())], b""

    def visit(self, wanted: str) -> str:
        """Return an address that lets the page's browser in, once, and leads to ``HOST/PATH``. Raise MudroomError if it
        is no fork's."""
        host, slash, path = wanted.partition("/")
        address = self.address([(b"host", host.encode("ascii", "replace"))])
        if address is None:
            raise MudroomError(
                "this is not the address of a fork", "FORK--PROJECT.localhost, with the port of the page"
            )
        query = urlencode({"code": self._login.new_code(address.zone), "to": slash + path or "/"})
        return f"{address.origin}{ENTER}?{query}"

    def _request(self, scope: Scope, address: ForkAddress, *, upgrade: bool = False) -> h11.Request:
        """Return the request as the server inside gets it."""
        headers: Raw = scope["headers"]
        dropped = _HOP | _KEPT_BACK | _named(headers)
        if self._login.bearer(headers):
            dropped |= {b"authorization"}
        passed = [(b"host", address.host.encode())]
        for name, value in headers:
            if name == b"cookie":
                pairs = [pair.strip() for pair in value.split(b";")]
                value = b"; ".join(pair for pair in pairs if not pair.startswith(_OWN_COOKIES))
            if name not in dropped and not name.startswith(b"x-mudroom-") and (value or name != b"cookie"):
                passed.append((name, value))
        if upgrade:
            passed += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        else:
            passed += [(b"connection", b"close")]
            if header_values(headers, b"transfer-encoding"):
                passed += [(b"transfer-encoding", b"chunked")]
        return h11.Request(method=scope["method"], target=_target(scope), headers=passed)

    # --- the connection inside ---

    @asynccontextmanager
    async def _connected(
        self, address: ForkAddress
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield a connection to the server inside. Raise _Refused if there is none."""
        zone = address.zone
        if self._open.get(zone, 0) >= MOST_PER_FORK or sum(self._open.values()) >= MOST:
            raise _Refused(503, f"too many requests to {zone} are open")
        self._open[zone] = self._open.get(zone, 0) + 1
        try:
            try:
                inner = await run_in_threadpool(self._connect, address)
            except MudroomError as error:
                raise _Refused(502, error.message, error.hint or "") from error
            try:
                reader, writer = await asyncio.open_connection(sock=inner)
            except BaseException:
                inner.close()
                raise
            try:
                yield reader, writer
            finally:
                writer.transport.abort()
        finally:
            self._open[zone] -= 1
            if not self._open[zone]:
                del self._open[zone]

    def _connect(self, address: ForkAddress) -> socket.socket:
        """Return a connected socket. Raise _Refused, or MudroomError if there is no server."""
        import select
        import socket

        from mudroom.ext.agents.links.fork_connection import connect_inside
        from mudroom.ext.agents.links.fork_grants import identity_of
        from mudroom.session.confinement.dialler import DialledFork

        fork = self._fork(address)
        identity = identity_of(fork)
        port = self._port(fork, address.port)
        pending = connect_inside(self._sockets, fork, identity, port, f"{fork.name}:{port}", DialledFork(-1, ""))
        try:
            if pending.fileno() >= 0:
                poller = select.poll()
                poller.register(pending.fileno(), select.POLLIN)
                if not poller.poll(PATIENCE * 1000):
                    raise MudroomError(f"{fork.name}:{port} does not accept connections", "mudroom ps shows what runs")
            connected = socket.socket(fileno=pending.result().descriptor)
            connected.setblocking(False)
            return connected
        finally:
            pending.close()

    def _fork(self, address: ForkAddress) -> Fork:
        """Return the fork that is meant. Raise _Refused if there is none, or several have this label."""
        now = time.monotonic()
        with self._lock:
            until, fork = self._found.get(address.zone, (0.0, None))
        if fork is not None and now < until:
            return fork
        vaults = self._server.vaults()
        try:
            vault = labelled(vaults, address.project)
            if vault is None or why_unusable(vault) or disk.stat_at(None, vault.path).st_uid != disk.user():
                raise _Refused(404, f"no project of mudroom here has the name {address.project}", "mudroom vault ls")
            forks = [fork for fork in vault.forks() if label_of(fork.name) == address.fork]
            if len(forks) != 1:
                why = "several forks have" if forks else f"no fork of {address.project} has"
                raise _Refused(404, f"{why} the name {address.fork}", "mudroom ls shows the forks of a project")
            with self._lock:
                self._found = {zone: row for zone, row in self._found.items() if row[0] > now}
                self._found[address.zone] = now + FRESH, forks[0]
            return forks[0]
        finally:
            for vault in vaults:
                vault.close()

    def _port(self, fork: Fork, wanted: int | None) -> int:
        """Return the port inside. Raise _Refused if no process of the fork serves it."""
        if wanted in OWN_PORTS:
            raise _Refused(403, f"port {wanted} inside is the gate's own")
        now = time.monotonic()
        with self._lock:
            until, ports = self._served.get(fork.namespace_listener, (0.0, ()))
        if until < now or (wanted is not None and wanted not in ports):
            try:
                ports = ports_behind(fork.namespace_listener, PATIENCE)
            except OSError as error:
                why = f"no command with a network of its own runs in {fork.name}"
                raise _Refused(502, why, "mudroom exec --background starts one") from error
            with self._lock:
                self._served = {path: row for path, row in self._served.items() if row[0] > now}
                self._served[fork.namespace_listener] = now + FRESH, ports
        port = first_port(fork, ports) if wanted is None else wanted
        if port is None or port not in ports:
            what = f"port {wanted}" if wanted is not None else "any port"
            served = ", ".join(map(str, ports))
            raise _Refused(
                502, f"nothing in {fork.name} serves {what}", f"served: {served}" if served else "mudroom ps"
            )
        if wanted is None and (before := ports_of(fork)).first is None:
            remember(fork, before._replace(first=port))
        return port


# --- one request ---


async def _exchange(
    receive: Receive,
    send: Send,
    address: ForkAddress,
    request: h11.Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    writer.write(_bytes(connection, request))

    async def upload() -> None:
        """Send the body, then wait until the browser goes away: the connection inside ends with it."""
        try:
            while (message := await receive())["type"] == "http.request":
                if connection.our_state is h11.SEND_BODY:
                    writer.write(_bytes(connection, h11.Data(data=message.get("body", b""))))
                    if not message.get("more_body"):
                        writer.write(_bytes(connection, h11.EndOfMessage()))
                    await writer.drain()
        except (OSError, h11.ProtocolError):
            return  # the server inside does not want it; its answer may come
        writer.transport.abort()

    uploading = asyncio.create_task(upload())
    begun = False
    try:
        async with asyncio.timeout(IDLE):
            head = await _head(connection, reader)
        headers = _answer_headers(head, address)
        begun = True
        await send({"type": "http.response.start", "status": head.status_code, "headers": headers})
        while isinstance(event := await _next(connection, reader), h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (OSError, EOFError, h11.ProtocolError) as error:
        if not begun:
            raise _Refused(502, _why(error)) from error
        # else cut off here as it was there: uvicorn closes the connection within the answer
    finally:
        uploading.cancel()


async def _relay(
    request: h11.Request,
    address: ForkAddress,
    client: asyncio.StreamReader,
    answer: asyncio.StreamWriter,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Relay a WebSocket both ways, if the server takes it, or else its answer."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    writer.write(_bytes(connection, request) + _bytes(connection, h11.EndOfMessage()))
    try:
        async with asyncio.timeout(IDLE):
            head = await _head(connection, reader)
        if head.status_code != 101:
            raise _Refused(502, f"the server in the fork takes no WebSocket here: it answers {head.status_code}")
        headers = _answer_headers(head, address)
        lines = [b"HTTP/1.1 101 Switching Protocols", b"Connection: Upgrade", b"Upgrade: websocket"]
        answer.write(b"\r\n".join([*lines, *(name + b": " + value for name, value in headers), b"", b""]))
        answer.write(connection.trailing_data[0])
    except (OSError, EOFError, h11.ProtocolError) as error:
        raise _Refused(502, _why(error)) from error
    both = [asyncio.create_task(_pump(client, writer)), asyncio.create_task(_pump(reader, answer))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other direction ends as well


async def _head(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response | h11.InformationalResponse:
    """Return an answer's head; of those before it (1xx) only 101."""
    for _interim in range(MOST_INTERIM):
        head = await _next(connection, reader)
        if head.status_code == 101 or 200 <= head.status_code < 600:
            return cast("h11.Response", head)
        if isinstance(head, h11.Response):
            raise EOFError(f"its answer has the status {head.status_code}")
    raise EOFError(f"it answered with {head.status_code} and with nothing else")


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        data = await reader.read(_CHUNK)
        if not data and connection.their_state is h11.SEND_RESPONSE:
            raise EOFError("it closed the connection without a response")
        connection.receive_data(data)
    return event


def _why(error: BaseException) -> str:
    why = f"it sent no answer within {IDLE:g} s" if isinstance(error, TimeoutError) else str(error)
    return (
        f"the server in the fork: {f'its answer is not HTTP: {why}' if isinstance(error, h11.ProtocolError) else why}"
    )


def _answer_headers(head: h11.Response | h11.InformationalResponse, address: ForkAddress) -> Raw:
    headers = [(bytes(name), bytes(value)) for name, value in head.headers]
    dropped = _HOP | _TAKEN_OUT | _named(headers)
    if header_values(headers, b"transfer-encoding"):
        dropped |= {b"content-length"}  # RFC 9112, 6.3: it does not count
    passed = []
    for name, value in headers:
        if name == b"set-cookie":
            value = _own_cookie(value, address)
        if name not in dropped and (value or name != b"set-cookie"):
            passed.append((name, value))
    return [*passed, (b"origin-agent-cluster", b"?1")]


def _own_cookie(value: bytes, address: ForkAddress) -> bytes:
    """Return a cookie that reaches its host only, or the ports of its fork; empty for a cookie of ours."""
    first, *attributes = value.split(b";")
    if first.strip().startswith(_OWN_COOKIES):
        return b""
    zone = address.zone.encode()
    kept = [
        attribute
        for attribute in attributes
        if (pair := attribute.partition(b"="))[0].strip().lower() != b"domain"
        or pair[2].strip().lstrip(b".").lower() == zone
    ]
    return b";".join([first, *kept])


def _named(headers: Raw) -> frozenset[bytes]:
    """Return the headers that ``Connection`` names: they are for one connection."""
    values = header_values(headers, b"connection")
    return frozenset(word.strip().lower() for value in values for word in value.split(b",")) - {b"host", b"cookie"}


def _is_of(origin: bytes, address: ForkAddress) -> bool:
    """Return whether an Origin is a port of this fork."""
    other = parse_host(origin.removeprefix(b"http://")) if origin.startswith(b"http://") else None
    return other is not None and other._replace(port=None) == address._replace(port=None)


def _is_navigation(scope: Scope) -> bool:
    """Return whether the user has followed a link, or typed the address. https://www.w3.org/TR/fetch-metadata/"""
    headers: Raw = scope["headers"]
    expected = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
    return scope["method"] == "GET" and all(header_values(headers, name) == [value] for name, value in expected.items())


def _target(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def _bytes(connection: h11.Connection, event: Any) -> bytes:
    return connection.send(event) or b""


async def _send_all(send: Send, status: int, headers: Raw, body: bytes) -> None:
    headers = [
        *headers, (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"),
        (b"origin-agent-cluster", b"?1"), *([(b"connection", b"close")] if status == 400 else []),
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
