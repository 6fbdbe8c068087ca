"""Projects and their forks.

Lists are requested often, and must work even if a row is damaged: each fork is summarised from a few files
(``vault/forks/fork_summary.py``) without walking a tree, and the project list loads no policy.
"""

from __future__ import annotations

import os
import time
from contextlib import closing

from msgspec import Struct

from mudroom.core.network.push import back_lines
from mudroom.core.tree.change import Summary, summarise
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.ext.decisions.queue import Decision, decisions, part_of, parts_of, whole_forks, with_parts
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint
from mudroom.ext.web.api.landing import recovered_of
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import ServerState, require_at_rest, require_fork
from mudroom.session import Session
from mudroom.session.upkeep import ForkSummary, Vault, is_unused, why_unusable

SAFE = "Sandboxed: safe to edit"
_LABELS = {
    0: ("Not sandboxed", "level 0: commands see your files and your network; only their changes are staged"),
    1: (SAFE, "level 1: commands are confined by the operating system, and work on a staged view"),
    2: (SAFE, "level 2: commands run in a container, and work on a staged view"),
}
_UNKNOWN = shape.BadgeShape(None, False, "Not known", "its level was not recorded")


def badge_of(level: int | None) -> shape.BadgeShape:
    if level not in _LABELS:
        return _UNKNOWN
    label, why = _LABELS[level]
    return shape.BadgeShape(level, level > 0, label, why)


def _badge(summary: ForkSummary, around: shape.BadgeShape) -> shape.BadgeShape:
    """Return a fork's badge. ``around``: the badge for a command that would run now, for forks without a command so
    far."""
    if summary.state == "damaged":
        return shape.BadgeShape(None, False, "Damaged", summary.problem)
    if summary.state == "mounted":
        return shape.BadgeShape(
            None, False, "Mounted", "it is a directory on this machine: programs that use it are not confined"
        )
    if summary.level is not None:
        return badge_of(summary.level)
    return badge_of(summary.brief.level) if summary.brief is not None and summary.brief.command else around


def summary_of(changes: object) -> shape.SummaryShape:
    return shape.SummaryShape(*summarise(changes))  # type: ignore[arg-type]


def me(call: ApiCall) -> shape.MeShape:
    environment = call.server.environment
    roots = [show_path(root) for root in environment.roots]
    return shape.MeShape(environment.version, roots, list(environment.certified()))


# --- projects ---


def projects(call: ApiCall) -> list[shape.ProjectRowShape]:
    rows, now = [], time.time_ns()
    for vault in call.server.vaults():
        with closing(vault):
            # the home is a part of other projects' forks only
            if not is_unused(vault, now) and vault.project != call.server.environment.home:
                rows.append(_row(call.server, vault))
    return rows


def _row(server: ServerState, vault: Vault) -> shape.ProjectRowShape:
    name, problem = os.path.basename(vault.path).decode(), why_unusable(vault)
    exists = bool(vault.project) and os.path.isdir(vault.project)
    row = shape.ProjectRowShape(name, show_path(vault.project), exists, 0, 0, 0, 0, [problem] if problem else [])
    if problem:
        return row
    try:
        forks = whole_forks(vault, server.summaries)
        row.forks = len(forks)
        row.running = sum(fork.state == "running" for fork in forks)
        row.unapplied = sum(fork.brief.summary.files for fork in forks if fork.brief is not None)
        row.remarks += [f"{fork.name}: {fork.problem}" for fork in forks if fork.problem]
        row.notices = [_notice(found) for found in decisions(vault, forks)]
        row.questions = sum(question.state == "waiting" for question in vault.approvals.rows())
    except MudroomError as error:
        row.remarks.append(error.message)
    except OSError as error:
        row.remarks.append(f"cannot be read: {error.strerror}")
    return row


def _notice(found: Decision) -> shape.NoticeShape:
    is_damaged = found.kind == "damaged"
    badge = shape.BadgeShape(None, False, "Damaged", found.problem) if is_damaged else badge_of(found.level)
    return shape.NoticeShape(
        found.kind,
        found.fork,
        found.agent,
        found.size,
        badge,
        found.exit_code,
        found.command,
        found.since,
        list(found.order),
        found.words,
        found.action,
        found.question,
    )


def _refused_undo(session: Session) -> str:
    """Return the last undone apply if its undo left files to decide about; an empty string also if its plan is
    damaged: the rest of the project is shown."""
    try:
        return session.changes.refused_undo(None)
    except MudroomError:
        return ""


def _ways_back(session: Session, apply: str) -> list[str]:
    try:
        return back_lines(session.changes.ways_back(apply))
    except MudroomError as error:
        return [f"it cannot be read: {error.message}"]


def project(call: ApiCall) -> shape.ProjectShape:
    with call.server.session_with_notes(call.path["project"]) as (session, notes):
        badge, notes_around = _present_badge(session)
        refused = _refused_undo(session)
        applies = [
            shape.ApplyShape(
                applied.name,
                applied.state,
                applied.fork,
                applied.time // 10**6,
                applied.written,
                applied.removed,
                applied.conflicts,
                applied.kept,
                applied.name == refused,
                _ways_back(session, applied.name) if applied.state == "applied" else [],
            )
            for applied in reversed(session.changes.applied())
        ]
        return shape.ProjectShape(
            call.path["project"],
            show_path(session.project),
            badge,
            _forks(call, session, badge),
            applies,
            _verify(session),
            [*notes, *notes_around],
            os.path.lexists(session.project + b"/.git"),
        )


def _present_badge(session: Session) -> tuple[shape.BadgeShape, tuple[str, ...]]:
    """Return the badge for a user's command that would run now, with notes."""
    try:
        grant = session.granted()
    except MudroomError as error:  # refused by the policy, or not possible on this machine
        return shape.BadgeShape(None, False, "Nothing runs here", error.message), ((error.hint,) if error.hint else ())
    return badge_of(grant.level), grant.notes


def _verify(session: Session) -> str:
    settings = session.actor.policy
    return show_words(settings.verify) if settings.verify and settings.verify_when != "never" else ""


# --- forks ---


def _forks(call: ApiCall, session: Session, around: shape.BadgeShape) -> list[shape.ForkShape]:
    summaries = call.server.summaries.all(session.vault)
    forks = [_fork_of(call.server, session, summary, around) for summary in summaries]
    for fork in forks:
        if fork.state == "running" and os.path.lexists(session.vault.fork(fork.name).namespace_listener):
            fork.host = call.server.fork_hosts(session.vault, fork.name, ())[0]
    return forks


def _fork_of(server: ServerState, session: Session, summary: ForkSummary, around: shape.BadgeShape) -> shape.ForkShape:
    fork = _fork(with_parts(session.vault, server.summaries, summary), around)
    fork.also_in = [tied.label() for tied in parts_of(session.vault, summary)]
    if (first := part_of(session.vault, summary)) is not None:
        fork.part_of = shape.PartOfShape(os.fsdecode(first.vault), show_path(first.path))
    return fork


def _fork(summary: ForkSummary, around: shape.BadgeShape) -> shape.ForkShape:
    brief = summary.brief
    ran = brief is not None and bool(brief.command)
    return shape.ForkShape(
        summary.name,
        summary.agent,
        summary.named,
        summary.created // 10**6,
        summary.parent,
        show_words(brief.command) if brief is not None else "",
        summary.state,
        _badge(summary, around),
        shape.SummaryShape(*(brief.summary if brief is not None else Summary())),
        summary.checkpoints,
        list(summary.credentials),
        summary.snapshot,
        brief.exit_code if brief is not None and ran else None,
        summary.problem,
        summary.fingerprint,
        summary.endpoint,
    )


def _fork_shape_of(call: ApiCall, session: Session, name: str) -> shape.ForkShape:
    summary = call.server.summaries.get(session.vault.fork(name))
    if summary is None:
        raise Refusal(404, "not-found", f"there is no fork named {name}")
    return _fork_of(call.server, session, summary, _present_badge(session)[0])


def new_fork(call: ApiCall) -> shape.ForkShape:
    request: shape.ForkRequestShape = call.body
    if request.at and not request.parent:
        raise Refusal(400, "bad-request", "a checkpoint needs the fork it belongs to")
    if request.snapshot and request.parent:
        raise Refusal(400, "bad-request", "a fork of a fork stands on what that one stands on")
    with call.server.session(call.path["project"]) as session:
        if request.parent:
            _require_copyable(session, request.parent)
        session.forks.new(request.name, parent=request.parent or None, at=request.at or None, snapshot=request.snapshot)
        return _fork_shape_of(call, session, request.name)


def _require_copyable(session: Session, name: str) -> None:
    """Raise Refusal if a command runs in the foreground, because the copy would wait for it. Background commands are no
    obstacle."""
    require_fork(session, name)
    if not has_background(session, name):
        require_at_rest(session, name)


def has_background(session: Session, name: str) -> bool:
    """Return whether a process holds background commands in the fork."""
    fork = session.vault.fork(name)
    return fork.interrupted is not None and os.path.exists(fork.path + b"/background/socket")


def rename(call: ApiCall) -> shape.ForkShape:
    request: shape.RenameRequestShape = call.body
    with call.server.session(call.path["project"]) as session:
        session.forks.rename(require_at_rest(session, call.path["fork"]), request.name)
        return _fork_shape_of(call, session, request.name)


class DiscardQuery(Struct):
    end: bool = False
    """End background commands first; otherwise they are a reason to refuse."""
    reviewed: str = ""
    """The reviewed changes' fingerprint: other changes are not discarded. Empty: discard whatever the fork holds."""


def discard(call: ApiCall) -> shape.DoneShape:
    query: DiscardQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        if query.end:
            session.sandboxes.end(name)
        elif has_background(session, name):
            running = [started.id for started, ended in session.sandboxes.backgrounds(name) if ended is None]
            hint = f"mudroom ps --end {running[0]} ends it; " if running else ""
            raise Refusal(409, "busy", f"a command runs in the background of {name}", f"{hint}end=true ends all there")
        with call.server.hold_vault(session, f"discard {name}") as recovered:
            for remark in recovered_of(remark for remark in recovered if remark.fork == name):
                message = f"{remark.path} {remark.text}; {name} was not thrown away"
                raise Refusal(409, "moved", message, "look at it again")
            session.forks.discard(require_at_rest(session, name), query.reviewed or None)
    return shape.DoneShape()


def drop_effect(call: ApiCall) -> shape.DoneShape:
    """Drop one held effect, named as in ``PushShape.name``: only as it was shown."""
    with call.server.session(call.path["project"]) as session:
        name = require_at_rest(session, call.path["fork"])
        session.changes.drop_pushes(name, (call.path["effect"],))
    return shape.DoneShape()


_FORKS = "/projects/{project}/forks"
ENDPOINTS = (
    Endpoint("GET", "/me", "The version and the roots of this server", me, shape.MeShape),
    Endpoint("GET", "/projects", "Every project that has a vault here", projects, list[shape.ProjectRowShape]),
    Endpoint("GET", "/projects/{project}", "One project with its forks and applies", project, shape.ProjectShape),
    Endpoint("POST", _FORKS, "Make a fork", new_fork, shape.ForkShape, shape.ForkRequestShape, status=201),
    Endpoint("POST", _FORKS + "/{fork}/rename", "Rename a fork", rename, shape.ForkShape, shape.RenameRequestShape),
    Endpoint("DELETE", _FORKS + "/{fork}", "Discard a fork", discard, shape.DoneShape, query=DiscardQuery),
    Endpoint("DELETE", _FORKS + "/{fork}/effects/{effect}", "Drop one held effect", drop_effect, shape.DoneShape),
)
