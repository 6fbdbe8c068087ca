"""Routes for messages between an editor and an agent, and mudroom's amendments to them.

    from      message                                   way
    editor    initialize                                amend: terminals, and file calls by an agent outside
    editor    session/new, load, resume, fork           amend: the directory has to be in the project; else refuse
    editor    session/prompt                            pass, after a first note in a new session
    editor    an answer to mudroom's own question       take
    agent     fs/*, terminal/*                          answer; an error if mudroom does not know it
    agent     session/request_permission                refuse if the policy denies it; else amend: mudroom's verdict
    agent     session/update with a terminal            amend: its output as text, since the editor has no such terminal
    agent     the answer to initialize                  amend: no login that the editor would perform on the host
    agent     the answer to session/prompt              pass, after a summary of the fork's changes
    agent     $/cancel_request for a call to mudroom    take
    agent     an answer to no open request              drop: it would be unamended, and is not waited for
    either    all other requests, answers and           pass
              notifications, known or not

Rules of this file:

1. ``pass`` is the line as it came, in its side's order.
2. The table decides by the method alone, so no parameter changes which side answers a call.
3. Protocol version 2 has no file calls and terminals: the agent works itself. Its messages pass, and its sandbox stages
   its writes.

``MessageRouter`` is pure: it returns steps, and the edge (``bridge.py``) performs them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from mudroom.core.command.verdict import Verdict
from mudroom.ext.agents.acp.message import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    AcpMessage,
    Identifier,
    Malformed,
    answer,
    error,
    key_of,
    line_of,
)
from mudroom.ext.agents.acp.permission import (
    command_of,
    refusal_of,
    refusal_text,
    text_content,
    tool_call_of,
    verdict_text,
    with_text,
)
from mudroom.ext.agents.acp.session_text import AgentPlace, chunk, effect, first_words, tool_update
from mudroom.typing import Any, Literal, NamedTuple

ANSWERED = frozenset(
    (
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "terminal/wait_for_exit",
        "terminal/kill",
        "terminal/release",
    )
)
"""Agent requests that mudroom answers (ACP schema v1, ``CLIENT_METHODS``)."""
KEPT = ("fs/", "terminal/")
"""Prefixes of methods that are never passed from the agent to the editor: it would perform them in the project."""
PLACED = frozenset(("session/new", "session/load", "session/resume", "session/fork"))
"""Editor requests that name a directory."""
AUTH_REQUIRED = -32000
"""Authentication required (ACP schema v1, ``ErrorCode``)."""
_LOGIN = "terminal-auth"
"""A name in ``_meta``: the editor runs the command beside it on the host when the user logs in."""
MOST_REMEMBERED = 1000
"""Most tool calls whose content is remembered."""
MOST_REMEMBERED_BYTES = 32 << 20
"""Most bytes in the lines that brought this content."""
MOST_SHOWN, MOST_SHOWING = 16, 4
"""Most terminals that a tool call shows as text; most tool calls, the latest, that are updated when a terminal's output
changes."""
MOST_REDRAWN = 1 << 20
"""A tool call below this size in bytes is updated with its terminal."""
MOST_CALLS = 1000
"""Most agent calls that are open at the same time."""


class Pass(NamedTuple):
    """Send a line."""

    to: Literal["editor", "agent"]
    line: bytes


class AgentCall(NamedTuple):
    """Answer an agent's call."""

    message: AcpMessage


class Cancel(NamedTuple):
    """Cancel an agent's call that is being answered."""

    key: str
    """Its identifier's key (``message.py:key_of``)."""


class Answered(NamedTuple):
    """The editor has answered mudroom's own question."""

    question: str
    result: Mapping[str, Any]


class TurnEnd(NamedTuple):
    """A turn has ended: send a summary of the fork's changes, then the line."""

    session: str
    line: bytes


Step = Pass | AgentCall | Cancel | Answered | TurnEnd


class Surroundings(NamedTuple):
    """Functions that the edge provides."""

    directory: Callable[[str], str | None]
    """Return the real path of a directory that an editor names, or None if it is not in the project."""
    verdict: Callable[[tuple[bytes, ...]], Verdict]
    """Return the policy's verdict about a command."""
    terminal: Callable[[str], str | None]
    """Return the text in one of mudroom's terminals, or None if mudroom has none with this identifier."""


class MessageRouter:
    """Guarded by its holder's lock. State grows with open editor requests, sessions, and tool calls up to a limit."""

    def __init__(self, place: AgentPlace, around: Surroundings) -> None:
        self._place, self._around = place, around
        self._open: dict[str, tuple[Identifier, str, str]] = {}
        """Editor requests that the agent has not answered: identifier, method, session."""
        self._asked: set[str] = set()
        self._calls: set[str] = set()
        """Agent calls that are being answered, by key."""
        self._notices: dict[str, list[str]] = {}
        """Notes for a session's first turn, by its identifier; until it has one, by its request's key."""
        self._contents: OrderedDict[tuple[str, str], list[Any]] = OrderedDict()
        """Tool call content as the agent sent it, by session and tool call, the latest last."""
        self._sizes: dict[tuple[str, str], int] = {}
        """Bytes in the line that brought each."""
        self._remembered = 0
        self._shows: dict[str, list[tuple[str, str]]] = {}
        """Tool calls that show one of mudroom's terminals, by the terminal."""
        self._version = 1
        self._directories: dict[str, str] = {}
        """Each session's directory by its identifier, and that of each open request for a session by its key."""

    # --- own questions ---

    def ask(self, question: str) -> None:
        """Expect the editor's answer to a question that mudroom asks."""
        self._asked.add(question)

    def directory_of(self, session: object) -> str:
        """Return a session's directory; the project if mudroom has not seen the session begin."""
        return self._directories.get(session, self._place.project) if isinstance(session, str) else self._place.project

    # --- from the editor ---

    def from_editor(self, message: AcpMessage | Malformed) -> list[Step]:
        if isinstance(message, Malformed):
            return [Pass("editor", error(message.id, message.code, message.reason))] if message.awaits else []
        if message.kind == "response":
            question = message.id
            if isinstance(question, str) and question in self._asked:
                self._asked.discard(question)
                return [Answered(question, message.result)]
            return [Pass("agent", message.raw)]
        if message.kind == "notification":
            return [Pass("agent", message.raw)]
        return self._request_of_editor(message)

    def _request_of_editor(self, message: AcpMessage) -> list[Step]:
        key, session = key_of(message.id), message.params.get("sessionId")
        if key in self._open:
            return [Pass("editor", error(message.id, INVALID_REQUEST, "a request with this id is open already"))]
        line, before = message.raw, list[Step]()
        if message.method == "initialize":
            line = self._initialize(message)
        elif message.method in PLACED:
            placed = self._placed(message, key)
            if isinstance(placed, Pass):
                return [placed]
            line = placed
        elif message.method == "session/prompt" and self._version == 1 and isinstance(session, str):
            words = self._notices.pop(session, None)
            if words:
                before = [Pass("editor", chunk(session, "\n".join(words) + "\n\n", 0))]
        self._open[key] = (message.id, message.method, session if isinstance(session, str) else "")
        return [*before, Pass("agent", line)]

    def _initialize(self, message: AcpMessage) -> bytes:
        """Name the calls that the agent is to make, whatever the editor itself supports.

        An agent outside is confined by its calls alone, which only version 1 has. An agent inside has the fork's files
        itself, and is told that file calls are not available. They would show it the same files, but without modes and
        without bytes that are not text. For gemini (0.61) they would also lack files that do not exist yet: it takes
        the error for a failure. Its terminals are mudroom's in both cases, so each command is judged. All calls are
        answered.
        """
        params = message.params
        version = params.get("protocolVersion")
        if self._place.inside and version != 1:
            return message.raw
        has = params.get("clientCapabilities")
        has = has if isinstance(has, dict) else {}
        files = has.get("fs")
        files = files if isinstance(files, dict) else {}
        wanted = not self._place.inside
        capabilities = {**has, "fs": {**files, "readTextFile": wanted, "writeTextFile": wanted}, "terminal": True}
        if isinstance(has.get("auth"), dict):
            capabilities["auth"] = {**has["auth"], "terminal": False}  # it would run ``mudroom acp``, not the agent
        if isinstance(has.get("_meta"), dict):
            capabilities["_meta"] = {name: value for name, value in has["_meta"].items() if name != _LOGIN}
        return message.with_params({**params, "protocolVersion": 1, "clientCapabilities": capabilities})

    def _placed(self, message: AcpMessage, key: str) -> bytes | Pass:
        """Return the line for a request that names a directory, or its refusal."""
        params, project = message.params, self._place.project
        named = params.get("cwd")
        if named is None and message.method in ("session/resume", "session/fork"):
            return message.raw
        directory = self._around.directory(named) if isinstance(named, str) else None
        if directory is None:
            shown = named if isinstance(named, str) else "no directory"
            text = (
                f"{shown}: this mudroom works in the project {project}; open that in the editor, or start another "
                f"with: mudroom acp --project {shown if isinstance(named, str) else 'DIR'} -- {self._place.agent}"
            )
            return Pass("editor", error(message.id, INVALID_PARAMS, text, {"cwd": named, "project": project}))
        self._directories[key] = directory
        notices = [first_words(self._place)]
        changed = {**params, "cwd": directory}
        others = params.get("additionalDirectories")
        if isinstance(others, list) and others:
            kept = [self._around.directory(other) if isinstance(other, str) else None for other in others]
            left = [str(other) for other, real in zip(others, kept, strict=True) if real is None]
            changed["additionalDirectories"] = [real for real in kept if real is not None]
            if left:
                notices.append(
                    f"Not given to the agent, since it is outside the project: {', '.join(left)}. `run.read` of the "
                    "policy shows a directory to it, read-only."
                )
        servers = params.get("mcpServers")
        names = [str(row.get("name")) for row in servers if isinstance(row, dict)] if isinstance(servers, list) else []
        if names:
            where = "in its sandbox" if self._place.inside else "on the host, where nothing of theirs is staged"
            notices.append(f"MCP servers run with the agent, {where}: {', '.join(names)}.")
        self._notices[key] = notices
        return message.raw if changed == params else message.with_params(changed)

    def close(self, code: int, reason: str) -> list[bytes]:
        """Return errors for the editor's open requests: the agent has ended."""
        lines = [error(identifier, code, reason) for identifier, _method, _session in self._open.values()]
        self._open.clear()
        return lines

    def answered(self, call: AcpMessage) -> None:
        """Note that an agent's call has been answered, or cancelled."""
        self._calls.discard(key_of(call.id))

    # --- from the agent ---

    def from_agent(self, message: AcpMessage | Malformed) -> list[Step]:
        if isinstance(message, Malformed):
            return [Pass("agent", error(message.id, message.code, message.reason))] if message.awaits else []
        if message.kind == "response":
            return self._response_of_agent(message)
        if message.kind == "request":
            if message.method in ANSWERED:
                return [self._call(message)]
            if message.method.startswith(KEPT):
                text = f"mudroom answers file calls and terminals here, and knows no {message.method}"
                return [Pass("agent", error(message.id, METHOD_NOT_FOUND, text))]
            if message.method == "session/request_permission":
                return self._permission(message)
        elif message.method == "session/update":
            return [Pass("editor", self._update(message))]
        elif message.method == "$/cancel_request":
            key = _key_in(message.params.get("requestId"))
            if key in self._calls:
                return [Cancel(key)]
        elif message.method.startswith(KEPT):
            return []  # no answer is expected, and the editor must not perform it
        return [Pass("editor", message.raw)]

    def _call(self, message: AcpMessage) -> Step:
        key = key_of(message.id)
        if key in self._calls:
            return Pass("agent", error(message.id, INVALID_REQUEST, "a call with this id is open already"))
        if len(self._calls) >= MOST_CALLS:
            return Pass("agent", error(message.id, INVALID_REQUEST, f"{MOST_CALLS} calls are open: wait for one"))
        self._calls.add(key)
        return AgentCall(message)

    def _response_of_agent(self, message: AcpMessage) -> list[Step]:
        key = key_of(message.id)
        opened = self._open.pop(key, None)
        if opened is None:
            return []
        _identifier, method, session = opened
        if method == "initialize":
            version = message.result.get("protocolVersion", 1)
            if not self._place.inside and version != 1 and "error" not in message.body:
                text = f"the agent speaks version {version} of ACP only, in which it asks no editor for files"
                hint = f"start it without --outside: mudroom acp -- {self._place.agent}"
                return [Pass("editor", error(message.id, INVALID_REQUEST, f"{text} ({hint})"))]
            self._version = version if isinstance(version, int) else 1
            return [Pass("editor", self._without_logins(message))]
        if method in PLACED:
            notices, directory = self._notices.pop(key, []), self._directories.pop(key, None)
            made = message.result.get("sessionId", session)
            if "error" in message.body:
                return [Pass("editor", self._with_login_hint(message))]
            if isinstance(made, str) and made:
                self._notices[made] = notices
                if directory is not None:
                    self._directories[made] = directory
        elif method == "session/prompt" and session and self._version == 1:
            return [TurnEnd(session, message.raw)]
        return [Pass("editor", message.raw)]

    def _without_logins(self, message: AcpMessage) -> bytes:
        """Return the line that answers ``initialize``. For an agent inside, leave out logins that the editor would
        perform on the host: it would run a command that the answer names (``_meta``), or the agent's own command."""
        if not self._place.inside:
            return message.raw
        result = dict(message.result)
        for name, methods in message.result.items():
            if name.casefold() == "authmethods" and isinstance(methods, list):
                result[name] = [method for method in methods if not _is_login_on_host(method)]
        return message.raw if result == message.result else line_of({**message.body, "result": result})

    def _with_login_hint(self, message: AcpMessage) -> bytes:
        """Return the line for a refused session. If a login is missing, add a hint where to log in."""
        failure = message.body["error"]
        if not self._place.inside or not isinstance(failure, dict) or failure.get("code") != AUTH_REQUIRED:
            return message.raw
        hint = f"log in outside the editor: mudroom agent run -- {self._place.agent}"
        return line_of({**message.body, "error": {**failure, "message": f"{failure.get('message', '')} ({hint})"}})

    def _permission(self, message: AcpMessage) -> list[Step]:
        params = message.params
        session = params.get("sessionId")
        call, name = tool_call_of(params), session if isinstance(session, str) else ""
        command = command_of(call)
        verdict = self._around.verdict(command) if command else None
        call_id = call.get("toolCallId")
        key = (name, call_id if isinstance(call_id, str) else "")
        known = self._contents.get(key, [])
        if verdict is not None and verdict.action == "deny":
            text = refusal_text(verdict)
            steps: list[Step] = [Pass("agent", answer(message.id, refusal_of(params.get("options"))))]
            if key[1] and self._version == 1:
                content = call.get("content") if isinstance(call.get("content"), list) else known
                shown = [*self._shown(list(content or ())), text_content(text)]
                steps.append(Pass("editor", tool_update(name, key[1], shown)))
            return steps
        amended = with_text(params, verdict_text(verdict, effect(self._place)), known)
        if isinstance(amended.get("toolCall"), dict):
            amended["toolCall"] = {**amended["toolCall"], "content": self._shown(amended["toolCall"]["content"])}
        return [Pass("editor", message.with_params(amended))]

    # --- terminals in the agent's updates ---

    def _update(self, message: AcpMessage) -> bytes:
        """Return an update's line. Tool call content is remembered, and mudroom's terminals are shown as text."""
        update, session = message.params.get("update"), message.params.get("sessionId")
        if not isinstance(update, dict) or update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            return message.raw
        content, call = update.get("content"), update.get("toolCallId")
        if not isinstance(content, list) or not isinstance(call, str) or not isinstance(session, str):
            return message.raw
        key = (session, call)
        self._remember(key, content, len(message.raw))
        shown = self._shown(content)
        if shown == content:
            return message.raw
        if self._sizes.get(key, MOST_REDRAWN) < MOST_REDRAWN:
            for terminal in self._texts(content):
                keys = self._shows.setdefault(terminal, [])
                keys[:] = [*(other for other in keys if other != key), key][-MOST_SHOWING:]
        return message.with_params({**message.params, "update": {**update, "content": shown}})

    def _remember(self, key: tuple[str, str], content: list[Any], size: int) -> None:
        self._contents[key] = content
        self._contents.move_to_end(key)
        self._remembered += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while len(self._contents) > MOST_REMEMBERED or self._remembered > MOST_REMEMBERED_BYTES:
            old, _content = self._contents.popitem(last=False)
            self._remembered -= self._sizes.pop(old)
            for terminal, keys in list(self._shows.items()):
                keys[:] = [key for key in keys if key != old]
                if not keys:
                    del self._shows[terminal]

    def _shown(self, content: list[Any]) -> list[Any]:
        """Return the content with mudroom's terminals as text: each once, and only the first ``MOST_SHOWN``. An agent
        may name terminals in as many items as a line holds, and each text costs work."""
        texts, shown = self._texts(content), list[Any]()
        for item in content:
            terminal = _terminal_of(item)
            if terminal not in texts:
                shown.append(item)
            elif text := texts[terminal]:
                shown.append(text_content(text))
                texts[terminal] = ""
        return shown

    def _texts(self, content: list[Any]) -> dict[str, str]:
        """Return the texts of mudroom's terminals in a content; empty for those that are not shown."""
        texts: dict[str, str] = {}
        for terminal in filter(None, dict.fromkeys(map(_terminal_of, content))):
            text = self._around.terminal(terminal)
            if text is not None:
                texts[terminal] = text if len(texts) < MOST_SHOWN else ""
        return texts

    def changed(self, terminal: str) -> list[bytes]:
        """Return updates for the tool calls that show this terminal, whose output has changed."""
        return [
            tool_update(session, call, self._shown(self._contents[session, call]))
            for session, call in self._shows.get(terminal, ())
        ]


def _is_login_on_host(method: Any) -> bool:
    """Return whether an editor would perform this login by a command. Names are compared without case, as Go does."""
    if not isinstance(method, dict):
        return False
    for name, value in method.items():
        if name.casefold() == "type" and value == "terminal":
            return True
        if name.casefold() == "_meta" and isinstance(value, dict) and any(key.casefold() == _LOGIN for key in value):
            return True
    return False


def _key_in(identifier: Any) -> str:
    """Return the key for an identifier in parameters; empty if it is not an identifier."""
    is_one = isinstance(identifier, str | int | float) and not isinstance(identifier, bool)
    return key_of(identifier) if is_one else ""


def _terminal_of(item: Any) -> str:
    """Return the identifier of the terminal that a content item shows; empty if it is something else."""
    if not isinstance(item, dict) or item.get("type") != "terminal":
        return ""
    terminal = item.get("terminalId")
    return terminal if isinstance(terminal, str) else ""
