"""Streamable HTTP on loopback, for clients on this machine. MCP, "Transports"; RFC 9110, 9112; HTML standard for SSE.

Rules of this file:
1. Every request needs the token (``Authorization: Bearer``), this server's Host, and no other site's Origin. So a page
   in a browser, or a name that an attacker resolves to 127.0.0.1 (DNS rebinding), gets no access.
2. A request is one POST. Its answer is JSON; if a message comes before it, the answer is an event stream.
3. A client that closes a request's connection cancels the request: its command ends.
4. ``initialize`` opens a session (``Mcp-Session-Id``). A 2026-07-28 request needs none: it brings its envelope, and
   clients with the same name share a fork.
5. A connection has a thread; at most ``MOST_CONNECTIONS`` connections and ``MOST_SESSIONS`` sessions are allowed. A
   further session ends the one that has been without a request longest, since clients that crash do not end theirs. A
   client whose session is gone gets 404, and opens another.
"""

from __future__ import annotations

import errno
import hmac
import secrets
import select
import socket
import threading
import time
from collections.abc import Mapping

import h11

from mudroom.errors import MudroomError
from mudroom.ext.agents.mcp import message, revision
from mudroom.ext.agents.mcp.call import Call
from mudroom.ext.agents.mcp.connection import McpConnection
from mudroom.ext.agents.mcp.message import MOST, Id, Json, RpcError, RpcRequest
from mudroom.ext.agents.mcp.server import Server
from mudroom.typing import NamedTuple

PATH = "/mcp"
HOST = "127.0.0.1"
MOST_CONNECTIONS = 200
MOST_SESSIONS = 64
IDLE = 3_600.0
"""Seconds after which a session without requests is ended."""
PATIENCE = 60.0
"""Seconds that a client may take to send a request, from the answer before it, or to read a piece of an answer. The
limit is for the whole request: any local user may connect, and send a byte a minute."""
SHORTAGE = 0.1
"""Seconds without new connections when descriptors are short."""
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO, errno.EINTR)
"""Transient errors of accept(2), except network errors, which loopback does not have."""
_PIECE = 1 << 16
_HANG_UP = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)
"""Only Linux reports that the other side has closed its half, poll(2); Windows has no poll(2)."""
_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"
_STATUS = {message.METHOD_NOT_FOUND: 404, message.HEADER_MISMATCH: 400, message.UNSUPPORTED_VERSION: 400}
"""HTTP status for errors in 2026-07-28; other errors are answered with 200."""
_NAMED_BY = {"tools/call": "name", "resources/read": "uri"}
_FIXED = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class _Refused(Exception):
    """A request that is answered with a status and one line."""

    def __init__(self, status: int, why: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers


class _Kept(NamedTuple):
    """A session of one client, or shared by all clients with the same name."""

    connection: McpConnection
    used: list[float]
    """The time of its last request, as a list with one item."""

    @property
    def has_fork(self) -> bool:
        workspace = self.connection.workspace
        return workspace is not None and workspace.fork_or_none is not None


def _least_used(connections: Mapping[str, _Kept], before: float, *, with_fork: bool) -> str | None:
    """Return the idle connection whose last request is the oldest, those without a fork first. None: none is that old,
    or all have a fork and ``with_fork`` is False."""
    idle = {name: (kept.has_fork, kept.used[0]) for name, kept in connections.items() if kept.connection.is_idle()}
    old = {name: rank for name, rank in idle.items() if rank[1] <= before and (with_fork or not rank[0])}
    return min(old, key=lambda name: old[name], default=None)


class McpListener:
    """Accepts connections. ``_lock`` guards the sessions, the shared connections and the thread count."""

    def __init__(self, server: Server, port: int, token: str) -> None:
        """Raise MudroomError if the port is taken."""
        self._server, self.token = server, token
        self._lock = threading.Lock()
        self._sessions: dict[str, _Kept] = {}
        self._shared: dict[str, _Kept] = {}
        self._threads = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, port))
            self._socket.listen(64)
        except OSError as error:
            self._socket.close()
            raise MudroomError(f"port {port}: {error.strerror}", "mudroom mcp --http 0 takes any free one") from error
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}{PATH}"

    def __enter__(self) -> McpListener:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()
        with self._lock:
            connections = [kept.connection for kept in (*self._sessions.values(), *self._shared.values())]
            self._sessions.clear()
            self._shared.clear()
        for connection in connections:
            self._server.close(connection)

    def serve(self) -> None:
        """Accept connections until an exception ends the thread."""
        while True:
            try:
                accepted, _address = self._socket.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                threading.Event().wait(SHORTAGE)
                continue
            with self._lock:
                is_full = self._threads >= MOST_CONNECTIONS
                self._threads += not is_full
            if is_full:
                accepted.close()
                continue
            try:
                threading.Thread(target=self._attend, args=(accepted,), daemon=True).start()
            except RuntimeError:  # no more threads here
                accepted.close()
                with self._lock:
                    self._threads -= 1

    def _attend(self, accepted: socket.socket) -> None:
        try:
            with accepted:
                accepted.settimeout(PATIENCE)
                _Exchange(self, accepted).serve()
        except (OSError, h11.ProtocolError):
            pass  # the client is gone; its calls are cancelled
        finally:
            with self._lock:
                self._threads -= 1

    # --- for exchanges ---

    @property
    def server(self) -> Server:
        return self._server

    def opened(self, connection: McpConnection) -> str:
        """Keep a new session's connection; return the session's id."""
        identity = secrets.token_urlsafe(24)
        self._keep(self._sessions, identity, connection, with_fork=True)  # the client of an ended session gets 404
        return identity

    def _keep(self, connections: dict[str, _Kept], name: str, connection: McpConnection, *, with_fork: bool) -> None:
        """Keep a connection, and end those that have timed out; if there are too many, also the least recently used.
        ``with_fork``: even if it has a fork. Raise _Refused if none can be ended."""
        now, ended = time.monotonic(), list[McpConnection]()
        with self._lock:
            while (old := _least_used(connections, now - IDLE, with_fork=True)) is not None:
                ended.append(connections.pop(old).connection)
            if len(connections) >= MOST_SESSIONS:
                old = _least_used(connections, now, with_fork=with_fork)
                if old is None:
                    raise _Refused(503, f"{MOST_SESSIONS} clients are served: wait for one of them, or end one")
                ended.append(connections.pop(old).connection)
            connections[name] = _Kept(connection, [now])
        for other in ended:
            self._server.close(other)

    def of_session(self, identity: str) -> McpConnection:
        with self._lock:
            kept = self._sessions.get(identity)
            if kept is None:
                raise _Refused(404, "there is no such session: initialize again")
            kept.used[0] = time.monotonic()
            return kept.connection

    def of_client(self, name: str) -> McpConnection:
        """Return the connection that clients without sessions share, by their name."""
        with self._lock:
            kept = self._shared.get(name)
            if kept is not None:
                kept.used[0] = time.monotonic()
                return kept.connection
        connection = McpConnection()
        self._keep(self._shared, name, connection, with_fork=False)  # the client would get another fork without notice
        return connection

    def ended(self, identity: str) -> None:
        with self._lock:
            kept = self._sessions.pop(identity, None)
        if kept is None:
            raise _Refused(404, "there is no such session")
        self._server.close(kept.connection)


class _Exchange:
    """One TCP connection: requests and answers in turn. Owner: its thread. ``_lock`` is held for each event in a
    stream, which the call's threads send, too."""

    def __init__(self, listener: McpListener, accepted: socket.socket) -> None:
        self._listener, self._socket = listener, accepted
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_PIECE)
        self._lock = threading.Lock()
        self._is_stream = False
        self._until = 0.0
        """The time until which the whole present request has to be here."""

    def serve(self) -> None:
        while True:
            self._until = time.monotonic() + PATIENCE
            self._is_stream = False
            try:
                request = self._next()
                if not isinstance(request, h11.Request):
                    return
                self._handle(request)
            except h11.RemoteProtocolError as error:
                if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                    raise
                why = str(error).partition(": bytearray(")[0]  # without the received bytes: the token may be in them
                self._respond(400, f"this is not HTTP/1.1: {why}\n".encode("ascii", "replace"), b"text/plain")
                return
            except _Refused as refused:
                self._respond(refused.status, refused.why.encode() + b"\n", b"text/plain", *refused.headers)
            if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    def _next(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the request takes too long")
            self._socket.settimeout(left)
            data = self._socket.recv(_PIECE)
            self._socket.settimeout(PATIENCE)
            self._http.receive_data(data)

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._socket.sendall(data)

    def _respond(self, status: int, body: bytes, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
        fields = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *_FIXED, *headers]
        if self._http.their_state is not h11.DONE:
            fields.append((b"connection", b"close"))  # the rest of the request is not read
        self._send(h11.Response(status_code=status, headers=fields))
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _json(self, note: Json, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        self._respond(status, message.encoded(note), b"application/json", *headers)

    # --- one request ---

    def _handle(self, request: h11.Request) -> None:
        headers = self._checked(request)
        if request.method == b"DELETE":
            self._listener.ended(headers.get(_SESSION, ""))
            self._respond(200, b"", b"text/plain")
            return
        if request.method != b"POST":
            raise _Refused(405, "POST one message, or DELETE the session", (b"allow", b"POST, DELETE"))
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "the content type has to be application/json")
        accepted = headers.get("accept", "")
        if "*/*" not in accepted and not ("application/json" in accepted and "text/event-stream" in accepted):
            raise _Refused(406, "accept application/json and text/event-stream")
        try:
            self._take(message.parse(self._body(headers)), headers)
        except RpcError as problem:
            status = _STATUS.get(problem.code, 400)
            self._json(message.error(problem), status)

    def _checked(self, request: h11.Request) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, value in request.headers:
            key = name.decode("ascii")
            if key in headers:
                if key in ("host", "authorization", "origin", _SESSION, _VERSION, "mcp-method", "mcp-name"):
                    raise _Refused(400, f"{key} is there twice")
                headers[key] += ", " + value.decode("latin-1")
                continue
            headers[key] = value.decode("latin-1")
        own = {f"{host}:{self._listener.port}" for host in (HOST, "localhost")}
        if headers.get("host", "").lower() not in own:
            raise _Refused(421, f"this is {self._listener.url}")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in own}:
            raise _Refused(403, "requests of other sites are refused")
        scheme, _space, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._listener.token.encode()):
            raise _Refused(401, "the token is missing or wrong", (b"www-authenticate", b"Bearer"))
        if request.target.partition(b"?")[0] != PATH.encode():
            raise _Refused(404, f"the path is {PATH}")
        return headers

    def _body(self, headers: Mapping[str, str]) -> bytes:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > MOST:
            raise _Refused(413, f"a message of more than {MOST:,} bytes is too large")
        pieces, size = list[bytes](), 0
        while not isinstance(event := self._next(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the request was cut off")
            size += len(event.data)
            if size > MOST:
                raise _Refused(413, f"a message of more than {MOST:,} bytes is too large")
            pieces.append(bytes(event.data))
        return b"".join(pieces)

    def _take(self, parsed: message.RpcMessage, headers: Mapping[str, str]) -> None:
        server = self._listener.server
        if not isinstance(parsed, RpcRequest):
            identity = headers.get(_SESSION)
            if identity is not None:
                server.take(self._listener.of_session(identity), parsed)
            self._respond(202, b"", b"text/plain")
            return
        more: list[tuple[bytes, bytes]] = []
        connection = self._connection(parsed, headers)
        call = server.begin(connection, parsed, self._event)
        if parsed.method == "initialize" and not call.peer.is_enveloped:
            try:
                more.append((_SESSION.encode(), self._listener.opened(connection).encode()))
            except _Refused:
                connection.end(call)
                raise
        self._answer(connection, call, more)

    def _connection(self, request: RpcRequest, headers: Mapping[str, str]) -> McpConnection:
        if request.method == "initialize":
            return McpConnection()
        try:
            peer = revision.enveloped(request.params)
        except RpcError as problem:
            problem.identity = request.id
            raise
        if peer is not None:
            _require_same(request, peer.revision, headers)
            return self._listener.of_client(peer.name)
        identity = headers.get(_SESSION)
        if identity is None:
            raise _Refused(400, "initialize first; then each request names its Mcp-Session-Id")
        return self._listener.of_session(identity)

    def _answer(self, connection: McpConnection, call: Call, more: list[tuple[bytes, bytes]]) -> None:
        """Answer a call. It runs in its own thread, while this one watches the connection."""
        done = _Done()
        answers: list[Json | None] = []

        def run() -> None:
            try:
                answers.append(self._listener.server.answer(connection, call))
            finally:
                done.set()

        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads here
            connection.end(call)
            done.close()
            raise _Refused(503, "no thread can be started: try again") from None
        try:
            self._watch(call, done)
        finally:
            thread.join()
            done.close()
        answer = answers[0] if answers else None
        if answer is None:
            raise OSError("the call was cancelled")
        if self._is_stream:
            with self._lock:
                self._send(h11.Data(data=_event(answer)))
                self._send(h11.EndOfMessage())
            return
        status = 200
        if call.peer.is_enveloped and "error" in answer:
            status = _STATUS.get(answer["error"]["code"], 200)
        self._json(answer, status, *more)

    def _watch(self, call: Call, done: _Done) -> None:
        """Wait until the call is done. If the client closes the connection, cancel the call."""
        poller = select.poll()
        poller.register(done.fileno(), select.POLLIN)
        poller.register(self._socket, _HANG_UP)
        while True:
            ready = dict(poller.poll())
            if done.fileno() in ready:
                return
            call.cancellation.cancel()
            poller.unregister(self._socket)

    def _event(self, note: Json) -> None:
        """Send a message in the present request's stream; the first message begins the stream. Raise OSError if the
        client is gone."""
        with self._lock:
            try:
                if not self._is_stream:
                    fields = [(b"content-type", b"text/event-stream"), *_FIXED, (b"x-accel-buffering", b"no")]
                    self._send(h11.Response(status_code=200, headers=fields))
                    self._is_stream = True
                self._send(h11.Data(data=_event(note)))
            except h11.LocalProtocolError as error:
                raise OSError(str(error)) from error


class _Done:
    """An event with a descriptor. Owner: the exchange's thread, which makes and closes it; ``set`` is called once."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()

    def set(self) -> None:
        self._write.send(b"\0")

    def fileno(self) -> int:
        return self._read.fileno()

    def close(self) -> None:
        self._read.close()
        self._write.close()


def _event(note: Json) -> bytes:
    return b"event: message\r\ndata: " + message.encoded(note) + b"\r\n\r\n"


def _require_same(request: RpcRequest, version: str, headers: Mapping[str, str]) -> None:
    """Raise RpcError if a header differs from the message: it would mislead a proxy that routes by headers."""
    key = _NAMED_BY.get(request.method)
    name = request.params.get(key) if key is not None else None
    wanted = {_VERSION: version, "mcp-method": request.method}
    if isinstance(name, str):
        wanted["mcp-name"] = name
    for header, value in wanted.items():
        given = headers.get(header)
        if given is None or (given if header != "mcp-name" else _unwrapped(given)) != value:
            raise _mismatch(header, request.id)


def _mismatch(header: str, identity: Id) -> RpcError:
    return RpcError(message.HEADER_MISMATCH, f"the header {header} does not match the message", identity=identity)


def _unwrapped(value: str) -> str | None:
    """Return a header's value; a non-ASCII value is ``=?base64?…?=`` (2026-07-28, "Header Encoding")."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    import base64
    import binascii

    try:
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
