"""What runs, what it prints, and what it uses."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mudroom.core.journal.event import data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import shown
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.session import Background, Session
from mudroom.session.upkeep import usage_of
from mudroom.web import shape
from mudroom.web.api.endpoint import ApiCall, Endpoint
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_state import require_fork

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.session import StreamPart, Used

_MS = 10**6
"""Nanoseconds."""
_SLACK = 2 * 10**9
"""Nanoseconds, between what a command printed last and the event that tells of it."""
_LIMIT = 64 << 10
"""Bytes of a stream that are sent at once."""
_LONGEST = 2000
"""Characters of a command in a list."""
_PATIENCE = 20.0
"""Seconds that are waited, beyond the grace, for a command that was asked to end."""


class CommandsQuery(Struct):
    all: bool = False
    fork: str = ""


def commands(call: ApiCall) -> shape.CommandsShape:
    query: CommandsQuery = call.query
    with call.server.session(call.path["project"]) as session:
        used = session.sandboxes.usages()
        rows = [_row(one, ended, used.get(one.id)) for one, ended in session.sandboxes.backgrounds()]
        rows += [
            shape.CommandShape("", fork, "", show(what.encode("utf-8", "replace")), "foreground", since // _MS)
            for fork, what, since in session.sandboxes.foreground()
        ]
        if query.all and query.fork and not any(row.fork == query.fork and not row.id for row in rows):
            rows += _last(session, require_fork(session, query.fork))
    wanted = [one for one in rows if query.fork in ("", one.fork) and (query.all or one.state != "ended")]
    return shape.CommandsShape(wanted)


def _row(started: BackgroundStart, ended: BackgroundEnd | None, used: Used | None) -> shape.CommandShape:
    row = shape.CommandShape(
        started.id,
        started.fork,
        started.agent,
        show(b" ".join(started.command))[:_LONGEST],
        "running" if ended is None else "ended",
        started.time // _MS,
        level=started.level,
    )
    if ended is not None:
        row.ended, row.exit_code, row.timed_out = ended.time // _MS, ended.exit_code, ended.timed_out
    elif used is not None:
        row.cpu, row.memory, row.processes, row.ports = round(used.cpu, 2), used.memory, used.processes, [*used.ports]
    return row


def _last(session: Session, fork: str) -> list[shape.CommandShape]:
    """The last command that ran in the foreground of a fork, if what it has printed is still there. Of one that the
    journal has archived meanwhile nothing is told: this is asked for again and again."""
    when = session.sandboxes.printed_at(fork)
    if when is None:
        return []
    event = next(session.vault.journal.newest(EventFilter(("run",), (fork,)), archived=False), None)
    if event is None:
        return []
    data, ended = data_of(event), wall(event)
    began = ended - _number(data, "duration_ms") * _MS
    if not began - _SLACK <= when <= ended + _SLACK:
        return []  # that is another one's
    words = data.get("command")
    command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
    row = shape.CommandShape("", fork, shown(data.get("agent") or ""), shown(command)[:_LONGEST], "ended", began // _MS)
    row.ended, row.exit_code, row.timed_out = ended // _MS, _number(data, "exit_code"), bool(data.get("timed_out"))
    return [row]


def _number(data: Mapping[str, Any], name: str) -> int:
    found = data.get(name)
    return found if isinstance(found, int) and abs(found) < 1 << 40 else 0


def _background(session: Session, identity: str) -> Background:
    try:
        return session.sandboxes.background(identity)
    except UsageError:
        raise Refusal(404, "not-found", "there is no such command here", "its fork may have been discarded") from None


class OutputQuery(Struct):
    stamp: str = ""


def output(call: ApiCall) -> shape.OutputShape:
    """Cheap to ask again and again: only what is new is sent, and no more than the last of it."""
    query: OutputQuery = call.query
    with call.server.session(call.path["project"]) as session:
        command = _background(session, call.path["command"])
        ended = command.poll() is not None  # first: what it prints last is read after that
        return _output(command.id, ended, command.printed(_marks(query.stamp), _LIMIT))


def foreground_output(call: ApiCall) -> shape.OutputShape:
    """The same of what runs in the foreground of another process, as far as that captures it."""
    query: OutputQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        ended = all(fork != name for fork, _what, _since in session.sandboxes.foreground())
        return _output("", ended, session.sandboxes.printed(name, _marks(query.stamp), _LIMIT))


def _marks(stamp: str) -> tuple[str, str]:
    given = stamp.split("-")
    return (given[0], given[1]) if len(given) == 2 else ("", "")


def _output(identity: str, ended: bool, parts: tuple[StreamPart, StreamPart]) -> shape.OutputShape:
    (out, out_mark), (err, err_mark) = (_text(part, ended) for part in parts)
    changed = any(part.data or part.before is not None for part in parts)
    stamp = f"{out_mark}-{err_mark}"
    return shape.OutputShape(identity, out, err, ended, stamp, changed, parts[0].before, parts[1].before)


def _text(part: StreamPart, ended: bool) -> tuple[str, str]:
    """As text, and the mark at its end. A character that is not whole yet is left for the next time; one whose
    beginning is not there any more is left out."""
    data = part.data
    if part.before:
        skipped = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
        data = data[skipped:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=ended)
    held = len(decoder.getstate()[0])
    return text, str(int(part.mark) - held) if held else part.mark


def start(call: ApiCall) -> shape.CommandShape:
    asked: shape.StartRequestShape = call.body
    words = [_word(word) for word in asked.command]
    if not words or not words[0]:
        raise Refusal(400, "bad-request", "no command was given")
    if asked.timeout is not None and not 0 < asked.timeout < 1e7:
        raise Refusal(400, "bad-request", "that is no time limit", "seconds")
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        busy = next((what for fork, what, _since in session.sandboxes.foreground() if fork == name), None)
        if busy is not None:
            raise Refusal(409, "busy", f"{show(busy.encode('utf-8', 'replace'))} runs in {name}", "wait for its end")
        # of two that start at once the second would not see yet what it can join, and would wait for the fork instead,
        # until what the first has started ends
        with call.server.locks.hold("start", call.path["project"], name):
            identity = call.server.environment.start(session.project, name, words, asked.timeout)
        return _one(session, identity)


def _word(word: str) -> bytes:
    if "\0" in word:
        raise Refusal(400, "bad-request", "a word of a command cannot hold a NUL")
    return os.fsencode(word)


def _one(session: Session, identity: str) -> shape.CommandShape:
    for started, ended in session.sandboxes.backgrounds():
        if started.id == identity:
            return _row(started, ended, None)
    raise Refusal(409, "failed", "the command was started, and is gone already")


def end(call: ApiCall) -> shape.CommandShape:
    asked: shape.EndRequestShape = call.body
    if not 0 <= asked.grace <= 600:
        raise Refusal(400, "bad-request", "the grace is not between 0 and 600 seconds")
    with call.server.session(call.path["project"]) as session:
        command = _background(session, call.path["command"])
        if command.poll() is None:
            session.sandboxes.end(command.fork, [command.id], asked.grace)
            if command.wait(asked.grace + _PATIENCE) is None:
                raise Refusal(409, "busy", "it was asked to end, and has not ended yet", "look again in a while")
        return _one(session, command.id)


class UsageQuery(Struct):
    disk: bool = True
    """False: what runs only, which costs no walk over the vault."""


def usage(call: ApiCall) -> shape.UsageShape:
    query: UsageQuery = call.query
    with call.server.session(call.path["project"]) as session:
        used = session.sandboxes.usages().values()
        cpu, memory = sum(one.cpu for one in used), sum(one.memory for one in used)
        found = shape.UsageShape(0, [], memory, round(cpu, 2), sum(one.processes for one in used))
        if query.disk:
            held = usage_of(session)
            found.total, found.remarks = held.size, list(held.remarks)
            found.amounts = [shape.AmountShape(what, *getattr(held, what)) for what in _KINDS]
    return found


_KINDS = ("forks", "layers", "snapshots", "applies", "caches", "trash", "journal")

_AT = "/projects/{project}"
ENDPOINTS = (
    Endpoint(
        "GET", _AT + "/commands", "What runs in the forks of a project",
        commands, shape.CommandsShape, query=CommandsQuery
    ),
    Endpoint(
        "GET",
        _AT + "/commands/{command}/output",
        "What a command in the background has printed, the last of it",
        output,
        shape.OutputShape,
        query=OutputQuery,
    ),
    Endpoint(
        "GET",
        _AT + "/forks/{fork}/output",
        "What the command in the foreground of a fork has printed, or the last one if none runs",
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
