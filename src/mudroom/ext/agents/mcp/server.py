"""The server: one session, any number of clients, the method table.

Rules of this folder:
1. All calls use one session, so a call costs as much as a command in a session. The session's launcher is started
   before the first client speaks.
2. Nothing lands in the project, unless the policy says ``mcp.apply``: then there is a further tool.
3. A client is confined to one fork: that of ``--fork``, or its own, named after it. Its name for itself is used for
   nothing else: the policy's rules are those for ``--agent`` or ``--card``.
4. A cancelled request ends its command, and gets no answer. A client that goes away cancels its requests.
5. A client's message is bounded before it is parsed, and checked before it is used; a wrong message is answered, and
   the next is served.
6. ``message``, ``revision`` are pure; ``stdio`` and ``http`` carry bytes and decide nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping

from mudroom.errors import MudroomError
from mudroom.ext.agents.mcp import message, resource, revision
from mudroom.ext.agents.mcp.approval import WAIT, ClientApprover, ClientForHosts, InputNeeded
from mudroom.ext.agents.mcp.call import Call, Send
from mudroom.ext.agents.mcp.connection import McpConnection
from mudroom.ext.agents.mcp.message import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Json,
    RpcAnswer,
    RpcError,
    RpcMessage,
    RpcNotification,
    RpcRequest,
)
from mudroom.ext.agents.mcp.revision import McpPeer
from mudroom.ext.agents.tools.apply import APPLY
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.table import TOOLS
from mudroom.ext.agents.tools.table import call as call_tool
from mudroom.ext.agents.tools.tool import Tool, ToolContext, ToolResult
from mudroom.ext.agents.tools.workspace import ToolWorkspace, fork_stem
from mudroom.sandbox.client.cancellation import Cancelled
from mudroom.session import Session
from mudroom.typing import Any, NamedTuple

INSTRUCTIONS = """\
You work on a staged copy of the user's project: a fork. bash, write, edit and the other tools change the fork only; \
nothing lands in the project before the user applies it, so be bold, and use these tools instead of any others for \
files and commands. Paths are those of the project. checkpoint before something risky, rollback if it went wrong, diff \
to see your work. A refusal says what is allowed instead; why explains the rules."""
_OPEN_WORLD = ("bash",)
"""Tools that may reach other hosts."""
_CLOSING = 20.0
"""Seconds for a gone client's commands to end, and to be collected."""


class Options(NamedTuple):
    fork: str | None = None
    """None: a separate fork for each client."""
    elicits: bool = True
    """Whether clients may ask their user about commands and hosts."""
    asks: bool = True
    """False: a command that needs an approval is refused."""
    patience: float = WAIT
    """Seconds for an answer in the queue."""
    version: str = ""


class Server:
    """``_lock`` guards the workspaces; the rest is never rebound."""

    def __init__(self, session: Session, options: Options, log: Callable[[str], None] = lambda line: None) -> None:
        self.session, self.options, self._log = session, options, log
        self.tools: Mapping[str, Tool] = {**TOOLS, "apply": APPLY} if session.actor.policy.mcp_apply else TOOLS
        self.info = {"name": "mudroom", "title": "mudroom", "version": options.version}
        self.hosts = ClientForHosts(session)
        if options.asks and options.elicits:
            session.machine.ask_about_hosts(self.hosts)
        self._lock = threading.Lock()
        self._workspaces: dict[str, ToolWorkspace] = {}
        """Workspaces that several connections share, by fork."""

    # --- one message ---

    def begin(self, connection: McpConnection, request: RpcRequest, send: Send) -> Call:
        """Return a request's call. Raise RpcError if it is answered with an error at once."""
        try:
            return connection.begin(request, self._peer(connection, request), send)
        except RpcError as problem:
            problem.identity = request.id
            raise

    def answer(self, connection: McpConnection, call: Call) -> Json | None:
        """Return the answer to a call; None if it was cancelled. Ends the call."""
        try:
            method = _METHODS.get(call.method)
            if method is None:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {ascii(call.method)[:100]}")
            value = method(self, connection, call)
            answer = message.result(call.id, revision.shaped(call.peer, call.method, value, self.info))
        except RpcError as problem:
            answer = message.error(problem, call.id)
        except Cancelled:
            return None
        except (MudroomError, OSError, ToolError) as problem:
            answer = message.error(RpcError(INTERNAL_ERROR, str(problem)), call.id)
        except Exception as problem:  # noqa: BLE001 - the other requests of the server go on
            self._log(f"{call.method}: {type(problem).__name__}: {problem}")
            sys.excepthook(*sys.exc_info())
            answer = message.error(RpcError(INTERNAL_ERROR, f"mudroom failed: {type(problem).__name__}"), call.id)
        finally:
            connection.end(call)
        return None if call.cancellation.is_set else answer

    def take(self, connection: McpConnection, other: RpcMessage) -> None:
        """Take a message that is not answered."""
        if isinstance(other, RpcAnswer):
            connection.heard(other)
        elif isinstance(other, RpcNotification) and other.method == "notifications/cancelled":
            connection.cancel(other.params.get("requestId"))

    def _peer(self, connection: McpConnection, request: RpcRequest) -> McpPeer:
        if request.method == "initialize":
            peer = revision.introduced(request.params)
            connection.peer = peer
            return peer
        peer_of_request = revision.enveloped(request.params) or connection.peer
        if peer_of_request is None:
            if request.method == "ping":
                return McpPeer(revision.HANDSHAKES[-1])
            if request.method not in _METHODS:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {ascii(request.method)[:100]}")
            raise RpcError(INVALID_REQUEST, "initialize first, or send the envelope of 2026-07-28 in params._meta")
        return peer_of_request

    # --- workspaces ---

    def workspace(self, connection: McpConnection, peer: McpPeer) -> ToolWorkspace:
        with self._lock:
            if connection.workspace is None:
                shared = self.options.fork
                if shared is not None:
                    connection.workspace = self._workspaces.get(shared)
                    if connection.workspace is None:
                        connection.workspace = self._workspaces[shared] = ToolWorkspace(self.session, shared)
                else:
                    connection.workspace = ToolWorkspace(self.session, stem=fork_stem(peer.name))
            return connection.workspace

    def close(self, connection: McpConnection) -> None:
        """End a gone client's commands, and wait for them. Its fork stays, unless nothing was done in it."""
        connection.close()
        idle = threading.Event()
        for _try in range(int(_CLOSING * 20)):
            if connection.is_idle() or idle.wait(0.05):
                break
        with self._lock:
            workspace = connection.workspace
        if workspace is not None and connection.is_idle() and self.options.fork is None:
            try:
                workspace.close()
            except (MudroomError, OSError) as problem:
                self._log(f"the fork {workspace.fork_or_none} stays: {problem}")


# --- methods ---


def _initialize(server: Server, _connection: McpConnection, call: Call) -> Json:
    return {
        "protocolVersion": call.peer.revision,
        "capabilities": _capabilities(),
        "serverInfo": server.info,
        "instructions": INSTRUCTIONS,
    }


def _discover(server: Server, _connection: McpConnection, _call: Call) -> Json:
    del server
    return {
        "supportedVersions": [*revision.HANDSHAKES, *revision.ENVELOPED],
        "capabilities": _capabilities(),
        "instructions": INSTRUCTIONS,
    }


def _capabilities() -> Json:
    return {"tools": {"listChanged": False}, "resources": {"listChanged": False, "subscribe": False}}


def _ping(_server: Server, _connection: McpConnection, _call: Call) -> Json:
    return {}


def _list_tools(server: Server, _connection: McpConnection, call: Call) -> Json:
    return {"tools": [shape_of(tool, call.peer) for tool in server.tools.values()]}


def shape_of(tool: Tool, peer: McpPeer) -> Json:
    """Return a tool as the client's revision describes it."""
    shape: Json = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    if peer.knows_structure:
        shape |= {"title": tool.title, "outputSchema": tool.output_schema}
    if peer.revision != "2024-11-05":
        shape["annotations"] = {
            "title": tool.title,
            "readOnlyHint": tool.hints.read_only,
            "destructiveHint": tool.hints.destructive,
            "idempotentHint": tool.hints.idempotent,
            "openWorldHint": tool.name in _OPEN_WORLD,
        }
    return shape


def _call_tool(server: Server, connection: McpConnection, call: Call) -> Json:
    name, arguments = call.params.get("name"), call.params.get("arguments")
    if not isinstance(name, str) or name not in server.tools:
        shown = ascii(name)[:100] if isinstance(name, str) else "no name"
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {shown}; the tools are {', '.join(server.tools)}")
    if not isinstance(arguments, (dict, type(None))):
        raise RpcError(INVALID_PARAMS, "arguments has to be an object")
    session, options = server.session, server.options
    responses = call.params.get("inputResponses")
    needed = InputNeeded(responses if isinstance(responses, dict) else {})
    timeout = session.actor.settings.approval_timeout

    def ask(method: str, params: Json, until: Callable[[], bool]) -> Mapping[str, Any] | None:
        return connection.ask(call, method, params, timeout, until)

    approver = ClientApprover(
        session.vault.approvals,
        call,
        ask,
        needed,
        min(options.patience, timeout),
        elicits=options.elicits,
    )
    context = ToolContext(
        call.cancellation, approver if options.asks else None, on_output=call.output, on_progress=call.progress
    )
    workspace = server.workspace(connection, call.peer)
    with server.hosts.serving(workspace, call, ask):
        done = call_tool(workspace, name, arguments, context, server.tools)
    if needed.requests:
        return {"resultType": "input_required", "inputRequests": needed.requests}
    return _shape_of_result(done, call.peer)


def _shape_of_result(done: ToolResult, peer: McpPeer) -> Json:
    shape: Json = {"content": [{"type": "text", "text": done.text}], "isError": done.is_error}
    if peer.knows_structure:
        shape["structuredContent"] = done.data
    return shape


def _list_resources(server: Server, connection: McpConnection, call: Call) -> Json:
    return {"resources": resource.listed(server.workspace(connection, call.peer))}


def _list_templates(_server: Server, _connection: McpConnection, _call: Call) -> Json:
    return {"resourceTemplates": resource.TEMPLATES}


def _read_resource(server: Server, connection: McpConnection, call: Call) -> Json:
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "resources/read needs uri, a string")
    return {"contents": resource.contents(server.workspace(connection, call.peer), uri)}


_METHODS: Mapping[str, Callable[[Server, McpConnection, Call], Json]] = {
    "initialize": _initialize,
    "server/discover": _discover,
    "ping": _ping,
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
}
AT_ONCE = frozenset({"initialize", "server/discover", "ping", "tools/list", "resources/templates/list"})
"""Methods that need neither files nor locks: answered in the thread that reads."""
