"""Running commands, their output, and their resources."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mudroom.core.journal.event import data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import printable
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import UsageError
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_fork
from mudroom.session import Background, Session
from mudroom.session.upkeep import usage_of
from mudroom.vault.forks.live_output import PLACE

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.vault.forks.background import StreamPart

_MS = 10**6
"""Nanoseconds."""
_SLACK = 2 * 10**9
"""Nanoseconds between a command's last output and its journal event."""
_LIMIT = 64 << 10
"""Bytes sent at once from a stream."""
_LONGEST = 2000
"""Characters shown for a command in a list."""
_PATIENCE = 20.0
"""Seconds to wait for a command to end, beyond the grace period."""


class CommandsQuery(Struct):
    all: bool = False
    fork: str = ""


def commands(call: ApiCall) -> shape.CommandsShape:
    query: CommandsQuery = call.query
    with call.server.session(call.path["project"]) as session:
        usages = session.sandboxes.usages()
        rows = [_row(row, ended, usages.get(row.id)) for row, ended in session.sandboxes.backgrounds()]
        for fork, command, since in session.sandboxes.foreground():
            shown = show(command.encode("utf-8", "replace"))
            row = shape.CommandShape("", fork, "", shown, "foreground", since // _MS)
            row.ports = [*session.sandboxes.foreground_ports(fork)]
            rows.append(row)
        for row in rows:
            row.hosts = call.server.fork_hosts(session.vault, row.fork, row.ports) if row.ports else []
        if query.all and query.fork and not any(row.fork == query.fork and not row.id for row in rows):
            rows += _last_foreground(session, require_fork(session, query.fork))
    selected = [row for row in rows if query.fork in ("", row.fork) and (query.all or row.state != "ended")]
    return shape.CommandsShape(selected)


def _row(started: BackgroundStart, ended: BackgroundEnd | None, used: ProcessUsage | None) -> shape.CommandShape:
    row = shape.CommandShape(
        started.id,
        started.fork,
        started.agent,
        show_words(started.command)[:_LONGEST],
        "running" if ended is None else "ended",
        started.time // _MS,
        level=started.level,
    )
    if ended is not None:
        row.ended, row.exit_code, row.timed_out = ended.time // _MS, ended.exit_code, ended.timed_out
    elif used is not None:
        row.cpu, row.memory, row.processes, row.ports = round(used.cpu, 2), used.memory, used.processes, [*used.ports]
    return row


def _last_foreground(session: Session, fork: str) -> list[shape.CommandShape]:
    """Return the fork's last foreground command, if its output is still stored."""
    when = _printed_at(session, fork)
    if when is None:
        return []
    # archived events are not searched: this is polled
    event = next(session.vault.journal.newest(EventFilter(("run",), (fork,)), archived=False), None)
    if event is None:
        return []
    data, ended = data_of(event), wall(event)
    began = ended - _number(data, "duration_ms") * _MS
    if not began - _SLACK <= when <= ended + _SLACK:
        return []  # the output of another command
    words = data.get("command")
    command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
    row = shape.CommandShape(
        "", fork, printable(data.get("agent") or ""), printable(command)[:_LONGEST], "ended", began // _MS
    )
    row.ended, row.exit_code, row.timed_out = ended // _MS, _number(data, "exit_code"), bool(data.get("timed_out"))
    return [row]


def _printed_at(session: Session, fork: str) -> int | None:
    """Return when the fork last had foreground output, in nanoseconds since 1970; None if never."""
    times = []
    for stream in (b"/stdout", b"/stderr"):
        try:
            times.append(os.stat(session.vault.fork(fork).path + PLACE + stream).st_mtime_ns)
        except FileNotFoundError:
            continue
    return max(times, default=None)


def _number(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and abs(value) < 1 << 40 else 0


def _background(session: Session, identity: str) -> Background:
    try:
        return session.background(identity)
    except UsageError:
        raise Refusal(404, "not-found", "there is no such command here", "its fork may have been discarded") from None


class OutputQuery(Struct):
    stamp: str = ""


def output(call: ApiCall) -> shape.OutputShape:
    """Return new output, and at most its end: cheap to poll."""
    query: OutputQuery = call.query
    with call.server.session(call.path["project"]) as session:
        command = _background(session, call.path["command"])
        ended = command.poll() is not None  # before reading, so that its last output is read after it ended
        return _output(command.id, ended, command.printed(_marks(query.stamp), _LIMIT))


def foreground_output(call: ApiCall) -> shape.OutputShape:
    """Return the output of another process's foreground command, as far as it is captured."""
    query: OutputQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        ended = all(fork != name for fork, _what, _since in session.sandboxes.foreground())
        return _output("", ended, session.sandboxes.printed(name, _marks(query.stamp), _LIMIT))


def _marks(stamp: str) -> tuple[str, str]:
    parts = stamp.split("-")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def _output(identity: str, ended: bool, parts: tuple[StreamPart, StreamPart]) -> shape.OutputShape:
    (out, out_mark), (err, err_mark) = (_text(part, ended) for part in parts)
    changed = any(part.data or part.before is not None for part in parts)
    stamp = f"{out_mark}-{err_mark}"
    return shape.OutputShape(identity, out, err, ended, stamp, changed, parts[0].before, parts[1].before)


def _text(part: StreamPart, ended: bool) -> tuple[str, str]:
    """Return the output as text, and the mark at its end. An incomplete character at the end is left for the next
    request; one at the beginning is dropped."""
    data = part.data
    if part.before:
        skipped = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
        data = data[skipped:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=ended)
    held = len(decoder.getstate()[0])
    return text, str(int(part.mark) - held) if held else part.mark


def start(call: ApiCall) -> shape.CommandShape:
    request: shape.StartRequestShape = call.body
    words = [_word(word) for word in request.command]
    if not words or not words[0]:
        raise Refusal(400, "bad-request", "no command was given")
    if request.timeout is not None and not 0 < request.timeout < 1e7:
        raise Refusal(400, "bad-request", "the time limit is not valid", "seconds, more than 0")
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        busy = next((command for fork, command, _since in session.sandboxes.foreground() if fork == name), None)
        if busy is not None:
            raise Refusal(409, "busy", f"{show(busy.encode('utf-8', 'replace'))} runs in {name}", "wait for its end")
        # the second of two simultaneous starts would not yet find the sandbox to join, and would wait for the fork
        # until the first command ends
        with call.server.locks.hold("start", call.path["project"], name):
            identity = call.server.environment.start(session.project, name, words, request.timeout)
        return _started_row(session, identity)


def _word(word: str) -> bytes:
    if "\0" in word:
        raise Refusal(400, "bad-request", "a word of a command cannot hold a NUL")
    return os.fsencode(word)


def _started_row(session: Session, identity: str) -> shape.CommandShape:
    for started, ended in session.sandboxes.backgrounds():
        if started.id == identity:
            return _row(started, ended, None)
    raise Refusal(409, "failed", "the command was started, but its fork is gone already")


def end(call: ApiCall) -> shape.CommandShape:
    request: shape.EndRequestShape = call.body
    if not 0 <= request.grace <= 600:
        raise Refusal(400, "bad-request", "the grace is not between 0 and 600 seconds")
    with call.server.session(call.path["project"]) as session:
        command = _background(session, call.path["command"])
        if command.poll() is None:
            session.sandboxes.end(command.fork, [command.id], request.grace)
            if command.wait(request.grace + _PATIENCE) is None:
                raise Refusal(
                    409, "busy", "the command was asked to end, and has not ended yet", "look again in a while"
                )
        return _started_row(session, command.id)


class UsageQuery(Struct):
    disk: bool = True
    """False: running commands only, without a walk over the vault."""


def usage(call: ApiCall) -> shape.UsageShape:
    query: UsageQuery = call.query
    with call.server.session(call.path["project"]) as session:
        usages = session.sandboxes.usages().values()
        cpu, memory = sum(usage_.cpu for usage_ in usages), sum(usage_.memory for usage_ in usages)
        totals = shape.UsageShape(0, [], memory, round(cpu, 2), sum(usage_.processes for usage_ in usages))
        if query.disk:
            disk = usage_of(session)
            totals.total, totals.remarks = disk.size, list(disk.remarks)
            totals.amounts = [shape.AmountShape(what, *getattr(disk, what)) for what in _KINDS]
    return totals


_KINDS = ("forks", "layers", "snapshots", "applies", "caches", "trash", "journal")

_AT = "/projects/{project}"
ENDPOINTS = (
    Endpoint(
        "GET", _AT + "/commands", "The commands that run in the forks of a project",
        commands, shape.CommandsShape, query=CommandsQuery
    ),
    Endpoint(
        "GET",
        _AT + "/commands/{command}/output",
        "The end of the output of a background command",
        output,
        shape.OutputShape,
        query=OutputQuery,
    ),
    Endpoint(
        "GET",
        _AT + "/forks/{fork}/output",
        "The output of the foreground command of a fork, or of the last one if none runs",
        foreground_output,
        shape.OutputShape,
        query=OutputQuery,
    ),
    Endpoint(
        "POST", _AT + "/forks/{fork}/commands", "Start a command in the background of a fork",
        start, shape.CommandShape,
        shape.StartRequestShape, status=201,
    ),
    Endpoint("POST", _AT + "/commands/{command}/end", "End a command", end, shape.CommandShape, shape.EndRequestShape),
    Endpoint("GET", _AT + "/usage", "Memory, processor and disk", usage, shape.UsageShape, query=UsageQuery),
)  # fmt: skip
