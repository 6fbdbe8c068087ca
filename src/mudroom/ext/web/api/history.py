"""History: checkpoints and rollbacks, the journal, and network requests."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mudroom.core.journal.event import Event, data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.journal.event_text import event_words, flow_text, gravity, printable
from mudroom.core.network.flow import flow_from_json
from mudroom.ext.review.activity import points, preview, roll_back, search
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint
from mudroom.ext.web.api.project import summary_of
from mudroom.ext.web.api.review import row_of
from mudroom.ext.web.state.job import JobReporter
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_fork

_MS = 10**6
"""Nanoseconds."""
_ROWS = 2000
"""Preview rows sent; ``total`` counts all."""
_MOST = 500
"""Events in one answer."""
_DATA = 64 << 10
"""Characters sent from an event's data."""


# --- checkpoints ---


def timeline(call: ApiCall) -> shape.TimelineShape:
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        rows = [
            shape.CheckpointShape(point.name, point.time // _MS, point.automatic, current)
            for point, current in points(session, name)
        ]
        return shape.TimelineShape(name, session.vault.fork(name).created // _MS, rows)


def checkpoint(call: ApiCall) -> shape.CheckpointShape:
    asked: shape.CheckpointRequestShape = call.body
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        _require_idle(session, name)
        point = session.forks.checkpoint(name, asked.name)
        return shape.CheckpointShape(point.name, point.time // _MS, point.automatic, True)


class PreviewQuery(Struct):
    checkpoint: str


def preview_rollback(call: ApiCall) -> shape.PreviewShape:
    query: PreviewQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        _require_point(session, name, query.checkpoint)
        result = preview(session, name, query.checkpoint)
    rows = [row_of(change) for change in result.rows[:_ROWS]]
    summary = summary_of(result.changes)
    return shape.PreviewShape(query.checkpoint, result.fingerprint, summary, rows, len(result.rows))


def rollback(call: ApiCall) -> shape.RolledBackShape:
    asked: shape.RollbackRequestShape = call.body
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        _require_point(session, name, asked.checkpoint)
        _require_idle(session, name)
        before = roll_back(session, name, asked.checkpoint, asked.fingerprint)
    return shape.RolledBackShape(asked.checkpoint, before.name if before is not None else "")


def _require_point(session: Any, fork: str, name: str) -> None:
    if session.vault.fork(fork).state.checkpoint(name) is None:
        raise Refusal(
            404, "not-found", f"{fork} has no checkpoint {printable(name)}", "it may have been dropped meanwhile"
        )


def _require_idle(session: Any, fork: str) -> None:
    """Raise Refusal if another process's command runs in the foreground."""
    # such a command holds the fork until it ends, which may be long: do not wait
    busy = next((command for name, command, _since in session.sandboxes.foreground() if name == fork), None)
    if busy is not None:
        raise Refusal(409, "busy", f"{printable(busy)} runs in {fork}", "try again when it has ended")


# --- the journal ---


class EventsQuery(Struct):
    kind: str = ""
    """Kinds, separated by commas."""
    fork: str = ""
    agent: str = ""
    verdict: str = ""
    grep: str = ""
    since: int | None = None
    """Milliseconds since 1970."""
    before: int | None = None
    """An event's number: only older events."""
    count: int = 100


def events(call: ApiCall) -> shape.EventsShape:
    query: EventsQuery = call.query
    since = None if query.since is None else _bounded(query.since, -(1 << 43), 1 << 43) * _MS
    kinds = tuple(kind.strip() for kind in query.kind.split(",") if kind.strip())
    forks = (query.fork,) if query.fork else ()
    where = EventFilter(kinds, forks, query.agent or None, since, None, query.verdict or None, query.grep or None)
    with call.server.session(call.path["project"]) as session:
        head = session.vault.journal.head().number
        page = search(session, where, _before(query.before), _bounded(query.count, 1, _MOST))
    return shape.EventsShape([_event(event) for event in page.events], head, page.following)


def _before(number: int | None) -> int:
    return 1 << 62 if number is None else _bounded(number, 0, 1 << 62)


def _bounded(number: int, least: int, most: int) -> int:
    return max(least, min(number, most))


def _event(event: Event) -> shape.EventShape:
    data = data_of(event)
    if len(event.data) > _DATA:
        data = {"…": f"{len(event.data):,} characters: mudroom log --json has them"}
    line = "  ".join(event_words(event))
    plain: dict[str, Any] = _to_json(data)
    return shape.EventShape(
        event.number, wall(event) // _MS, printable(event.kind), printable(event.fork), line, gravity(event), plain
    )


def _to_json(value: Any) -> Any:
    """Return a value that every JSON parser accepts: the journal may have been edited."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_to_json(str(key)): _to_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 53:
        return str(value)  # larger numbers are not exact in a page: ECMA-262, Number.MAX_SAFE_INTEGER
    return value


def verify(call: ApiCall) -> shape.JobShape:
    name = call.path["project"]
    server = call.server
    with server.session(name):
        pass  # refuse an unknown project at once

    def work(reporter: JobReporter) -> dict[str, Any]:
        with server.session(name) as session:
            check = session.vault.journal.examine(
                lambda done, total: reporter.phase("checking the journal", done, total)
            )
        problems = check.problems
        return {
            "intact": not problems,
            "events": check.head.number,
            "head": f"{check.head.number}:{check.head.digest}",
            "problems": problems,
        }

    return server.jobs.start(name, "", "verify-journal", work)


# --- the network ---


class FlowsQuery(Struct):
    fork: str = ""
    denied: bool = False
    before: int | None = None
    count: int = 100


def flows(call: ApiCall) -> shape.FlowsShape:
    query: FlowsQuery = call.query
    where = EventFilter(("flow",), (query.fork,) if query.fork else (), verdict="deny" if query.denied else None)
    with call.server.session(call.path["project"]) as session:
        page = search(session, where, _before(query.before), _bounded(query.count, 1, _MOST))
    return shape.FlowsShape([_flow(event) for event in page.events], page.following)


def _flow(event: Event) -> shape.FlowShape:
    time, fork = wall(event) // _MS, printable(event.fork)
    try:
        flow = flow_from_json({key: value for key, value in data_of(event).items() if key != "clock"})
    except ValueError as error:  # from a newer mudroom, or the journal was edited
        return shape.FlowShape(event.number, time, fork, "?", 0, "?", "", printable(error), 0, 0, printable(error))
    port, sent, received = (_bounded(number, 0, 1 << 53) for number in (flow.port, flow.sent, flow.received))
    rule, reason = printable(flow.rule), printable(flow.reason)
    host, verdict, times = printable(flow.host), flow.verdict, 1 + _bounded(flow.repeats, 0, 1 << 53)
    line = flow_text(flow)
    return shape.FlowShape(event.number, time, fork, host, port, verdict, rule, reason, sent, received, line, times)


_FORK = "/projects/{project}/forks/{fork}"
_AT = "/projects/{project}"
ENDPOINTS = (
    Endpoint("GET", _FORK + "/checkpoints", "The checkpoints of a fork, oldest first", timeline, shape.TimelineShape),
    Endpoint(
        "POST", _FORK + "/checkpoints", "Make a checkpoint of a fork", checkpoint, shape.CheckpointShape,
        shape.CheckpointRequestShape, status=201,
    ),
    Endpoint(
        "GET", _FORK + "/rollback", "The changes that a rollback would drop",
        preview_rollback, shape.PreviewShape, query=PreviewQuery,
    ),
    Endpoint(
        "POST", _FORK + "/rollback", "Drop the previewed changes",
        rollback, shape.RolledBackShape, shape.RollbackRequestShape
    ),
    Endpoint("GET", _AT + "/events", "The journal, newest first", events, shape.EventsShape, query=EventsQuery),
    Endpoint("POST", _AT + "/journal/verify", "Verify that the journal was not edited", verify, shape.JobShape),
    Endpoint(
        "GET", _AT + "/flows", "Network requests, allowed and denied", flows, shape.FlowsShape, query=FlowsQuery,
    ),
)  # fmt: skip
