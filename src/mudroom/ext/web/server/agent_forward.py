"""Requests from the page's user to a running agent (A2A, JSON-RPC binding), forwarded to its server in its sandbox.

Rules: the answer is an agent's data, and this origin is the page's. So it is passed on only as JSON or as an event
stream, without its headers. The request's credentials are not sent inside. If a request cannot be forwarded, the answer
is a JSON-RPC error with the command that helps.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import h11
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.errors import MudroomError
from mudroom.ext.web.state.refusal import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from mudroom.ext.agents.links.agent_door import OpenAgent
    from mudroom.ext.web.state.server_state import ServerState

BODY_LIMIT = 1 << 20
"""Bytes in a request."""
HEAD_LIMIT = 64 << 10
IDLE = 600.0
"""Seconds for a request and its answer's head, and between two parts of an answer."""
MOST_INTERIM = 100
"""Responses (1xx) before an answer: a server could send them without end, even after the user has gone."""
KINDS = ("application/json", "text/event-stream")
_PASSED = ("a2a-version", "a2a-extensions")
"""Headers sent inside, from the A2A specification."""
_BODILESS = (204, 205, 304)
"""Statuses for answers without a body (RFC 9110 6.4.1, 15.3.6)."""
_CHUNK = 1 << 16


def forwarding(server: ServerState, agent: str) -> Callable[[Request], Any]:
    """Return the handler for an agent's interface."""
    from mudroom.ext.agents.core.a2a import UNSUPPORTED, is_forwarded, rpc_error

    async def answer(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_LIMIT:
                return Response("too large\n", 413)
        try:
            call = json.loads(body)
        except (ValueError, RecursionError):
            error = {"code": -32700, "message": "Parse error"}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error})
        if not is_forwarded(call):
            return JSONResponse(rpc_error(call, UNSUPPORTED, "This method is not forwarded to agents"))
        try:
            opened = await run_in_threadpool(_open, server, agent, request.query_params.get("fork"), call["method"])
        except (MudroomError, Refusal) as error:
            return JSONResponse(rpc_error(call, UNSUPPORTED, str(error)))
        passed = [(name, value) for name in _PASSED if (value := request.headers.get(name))]
        return await _exchange(opened, body, passed, call)

    return answer


def _open(server: ServerState, agent: str, fork: str | None, method: str) -> OpenAgent:
    """Open a connection to the running agent. Raise MudroomError or Refusal if the agent does not run, runs in several
    forks, or its port is not shown."""
    from mudroom.ext.agents.links.agent_door import open_agent, running_agents

    places = []
    for vault in server.vaults():
        with closing(vault):
            try:
                forks = running_agents(vault, agent)
            except (MudroomError, OSError):
                continue  # an unusable vault; the page names it
            places += [(os.path.basename(vault.path).decode(), found.name) for found in forks]
    chosen = [place for place in places if fork in (None, place[1])]
    if not chosen:
        raise MudroomError(f"{agent} is not running; mudroom agent run starts it")
    if len(chosen) > 1:
        names = ", ".join(sorted(name for _project, name in chosen))
        raise MudroomError(f"{agent} is running in several forks; add ?fork= to the address: {names}")
    project, name = chosen[0]
    with server.session(project) as session:
        opened = open_agent(session, agent, name)
        told = {"forwarded": method, "agent": agent, "port": opened.endpoint.port}
        session.vault.journal.append("net", name, told, time=time.time_ns())
        return opened


async def _exchange(opened: OpenAgent, body: bytes, passed: list[tuple[str, str]], call: Any) -> Response:
    from mudroom.ext.agents.core.a2a import rpc_error

    reader, writer = await _streams(opened.connection)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    try:
        request = h11.Request(
            method="POST", target=opened.endpoint.path, headers=_fields(opened.endpoint, body, passed)
        )
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        async with asyncio.timeout(IDLE):
            await writer.drain()
            head = await _head(connection, reader)
        kind = next((value for name, value in head.headers if name == b"content-type"), b"").decode("latin-1")
        kind = kind.partition(";")[0].strip().lower()
        if kind not in KINDS:
            raise MudroomError("its answer is neither JSON nor an event stream")
    except (MudroomError, OSError, h11.ProtocolError) as error:
        writer.close()
        why = str(error)
        if isinstance(error, TimeoutError):  # without a text
            why = f"it sent no answer within {IDLE:g} s"
        if isinstance(error, h11.ProtocolError):
            why = f"its answer is not HTTP: {error}"
        return JSONResponse(rpc_error(call, -32603, f"The agent's server: {why}"), 502)
    except BaseException:  # the page's user has gone
        writer.close()
        raise
    return StreamingResponse(_body(connection, reader, writer), head.status_code, media_type=kind)


def _fields(endpoint: AgentEndpoint, body: bytes, passed: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        ("Host", f"localhost:{endpoint.port}"),
        ("Content-Type", "application/json"),
        ("Accept", ", ".join(KINDS)),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *passed,
    ]


async def _streams(connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(sock=connection)
    except BaseException:
        connection.close()
        raise


async def _head(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    """Return the answer's head. Raise MudroomError if its status cannot be a JSON-RPC answer's."""
    for _interim in range(MOST_INTERIM):
        head = await _next(connection, reader)
        if not isinstance(head, h11.InformationalResponse):
            if not 200 <= head.status_code < 600 or head.status_code in _BODILESS:
                raise MudroomError(f"its answer has the status {head.status_code}")
            return cast("h11.Response", head)
    raise MudroomError(f"it answered with {head.status_code} and with nothing else")


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        async with asyncio.timeout(IDLE):
            data = await reader.read(_CHUNK)
        if not data and connection.their_state is h11.SEND_RESPONSE:  # h11 names only its own states
            raise MudroomError("it closed the connection without a response")
        connection.receive_data(data)
    return event


async def _body(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    """Yield the answer's parts. A truncated answer is truncated here, too: the exception ends the response."""
    try:
        while isinstance(event := await _next(connection, reader), h11.Data):
            yield bytes(event.data)
    finally:
        writer.close()
