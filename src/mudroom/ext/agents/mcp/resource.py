"""Resources: the fork's files, its changes, its journal.

``mudroom:///changes`` the fork's diff · ``mudroom:///journal`` the fork's last events, an object a line ·
``mudroom:///remarks`` the user's
remarks that wait for the agent · ``mudroom:///files/PATH`` a file in the fork, the path percent-encoded (RFC 3986)
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from urllib.parse import quote, unquote_to_bytes

from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.tree.change import counted_changes
from mudroom.core.tree.path import show
from mudroom.ext.agents.mcp.message import INVALID_PARAMS, RESOURCE_NOT_FOUND, Json, RpcError
from mudroom.ext.agents.tools.change import secrets_of
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.review import remarks_of
from mudroom.ext.agents.tools.tool import decoded
from mudroom.ext.agents.tools.workspace import ToolWorkspace, bounded
from mudroom.typing import Any
from mudroom.vault.forks.review import not_reviewed

CHANGES, JOURNAL, REMARKS = "mudroom:///changes", "mudroom:///journal", "mudroom:///remarks"
FILES = "mudroom:///files/"
LARGEST = 8_000_000
"""Bytes in a resource."""
_EVENTS = 200
_LISTED = 500

TEMPLATES: list[Json] = [
    {
        "uriTemplate": FILES + "{+path}",
        "name": "file",
        "title": "A file of the fork",
        "description": "A file of the staged copy of the project, by its path in the project.",
    }
]


def listed(workspace: ToolWorkspace) -> list[Json]:
    """Return the resources: the changes, the journal and the changed files. A fork that does not exist has no files."""
    resources: list[Json] = [
        _row(CHANGES, "changes", "What the fork would change in the project", "text/x-diff"),
        _row(JOURNAL, "journal", "What has happened in the fork", "application/x-ndjson"),
        _row(REMARKS, "remarks", "What the user has said about the changes, and sent", "text/plain"),
    ]
    name = workspace.fork_or_none
    if name is not None and workspace.session.vault.find(name) is not None:
        changes = list(counted_changes(workspace.session.changes.of(name).changes))
        resources += [
            _row(uri_of(change.path), show(change.path), f"{change.verb} in the fork", None)
            for change in changes[:_LISTED]
            if change.staged is not None and change.staged.kind == "file"
        ]
    return resources


def _row(uri: str, name: str, description: str, kind: str | None) -> Json:
    row: Json = {"uri": uri, "name": name, "description": description}
    return row if kind is None else row | {"mimeType": kind}


def uri_of(path: bytes) -> str:
    return FILES + quote(path)


def contents(workspace: ToolWorkspace, uri: str) -> list[Json]:
    """Return a resource's contents. Raise RpcError if there is none, or it is too large."""
    if uri == CHANGES:
        session = workspace.session
        lines = session.changes.diff(workspace.fork, without=secrets_of(session))
        in_use = session.changes.look(workspace.fork).in_use
        head = [not_reviewed(workspace.fork, in_use).encode() + b"\n"] if in_use else []
        return [_text(uri, _bounded(itertools.chain(head, lines)), "text/x-diff")]
    if uri == JOURNAL:
        return [_text(uri, _journal(workspace), "application/x-ndjson")]
    if uri == REMARKS:
        return [_text(uri, remarks_of(workspace).fetched(again=True), "text/plain")]
    if not uri.startswith(FILES):
        raise RpcError(RESOURCE_NOT_FOUND, "there is no such resource: resources/list has them", {"uri": uri[:1_000]})
    return [_file(workspace, uri)]


def _text(uri: str, text: str, kind: str) -> Json:
    return {"uri": uri, "mimeType": kind, "text": text}


def _bounded(lines: Any) -> str:
    parts, size = list[str](), 0
    for line in lines:
        parts.append(decoded(line))
        size += len(line)
        if size > LARGEST:
            parts.append("[… the rest is left out: the tool diff shows parts]\n")
            break
    return "".join(parts)


def _journal(workspace: ToolWorkspace) -> str:
    events = workspace.session.vault.journal.events(last=_EVENTS, where=EventFilter(forks=(workspace.fork,)))
    rows = (
        {
            "number": event.number,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.time // 10**9)),
            "kind": event.kind,
            **json.loads(event.data),
        }
        for event in events
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def _file(workspace: ToolWorkspace, uri: str) -> Json:
    tree = workspace.tree()
    try:
        at = workspace.path(tree, unquote_to_bytes(uri[len(FILES) :]).decode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise RpcError(INVALID_PARAMS, "the URI holds a lone surrogate") from None
    except ToolError as error:
        raise RpcError(INVALID_PARAMS, error.message, {"uri": uri[:1_000]}) from None
    entry = tree.look(at) if at else None
    if entry is None or entry.kind != "file":
        raise RpcError(RESOURCE_NOT_FOUND, f"{show(at)} is no file of the fork", {"uri": uri[:1_000]})
    if entry.size > LARGEST:
        raise RpcError(INVALID_PARAMS, f"{show(at)} has {entry.size:,} bytes, more than {LARGEST:,}: the tool read")
    try:
        content = bounded(tree, at, LARGEST)
    except OSError as error:
        raise RpcError(RESOURCE_NOT_FOUND, f"{show(at)}: {error.strerror}", {"uri": uri[:1_000]}) from None
    except ToolError as error:
        raise RpcError(INVALID_PARAMS, error.message, {"uri": uri[:1_000]}) from None
    try:
        return {"uri": uri, "mimeType": "text/plain", "text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"uri": uri, "mimeType": "application/octet-stream", "blob": base64.b64encode(content).decode()}
