"""Projects and their forks, and making new ones.

A list is asked for often, and shown whatever is wrong with one of its rows: each fork is told by a glance
(``vault/forks/fork_summary.py``), no tree is walked, and a list of projects loads no policy.
"""

from __future__ import annotations

import os
from contextlib import closing

from msgspec import Struct

from mudroom.core.tree.change import Summary, summarise
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.session.upkeep import ForkSummary, Vault, why_unusable
from mudroom.web import shape
from mudroom.web.api.endpoint import ApiCall, Endpoint
from mudroom.web.api.landing import recovered_of
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_state import ServerState, require_at_rest, require_fork

SAFE = "Sandboxed: safe to edit"
_LABELS = {
    0: ("Not sandboxed", "level 0: commands see your files and your network; only their changes are staged"),
    1: (SAFE, "level 1: commands are confined by the operating system, and work on a staged view"),
    2: (SAFE, "level 2: commands run in a container, and work on a staged view"),
}
_UNKNOWN = shape.BadgeShape(None, False, "Not known", "nobody has written down at which level it ran")


def badge_of(level: int | None) -> shape.BadgeShape:
    """What a level means for somebody who edits the project meanwhile."""
    if level not in _LABELS:
        return _UNKNOWN
    label, why = _LABELS[level]
    return shape.BadgeShape(level, level > 0, label, why)


def _badge(glance: ForkSummary, around: shape.BadgeShape) -> shape.BadgeShape:
    """``around``: that of a command that would run now; it is the fork's if none has run yet."""
    if glance.state == "damaged":
        return shape.BadgeShape(None, False, "Damaged", glance.problem)
    if glance.state == "mounted":
        return shape.BadgeShape(
            None, False, "Mounted", "it is a directory on this machine: nothing that works there is confined"
        )
    return badge_of(glance.brief.level) if glance.brief is not None and glance.brief.command else around


def summary_of(changes: object) -> shape.SummaryShape:
    return shape.SummaryShape(*summarise(changes))  # type: ignore[arg-type]


def me(call: ApiCall) -> shape.MeShape:
    return shape.MeShape(call.server.environment.version, [show_path(root) for root in call.server.environment.roots])


# --- projects ---


def projects(call: ApiCall) -> list[shape.ProjectRowShape]:
    rows = []
    for vault in call.server.vaults():
        with closing(vault):
            rows.append(_row(call.server, vault))
    return rows


def _row(server: ServerState, vault: Vault) -> shape.ProjectRowShape:
    name, problem = os.path.basename(vault.path).decode(), why_unusable(vault)
    exists = bool(vault.project) and os.path.isdir(vault.project)
    row = shape.ProjectRowShape(name, show_path(vault.project), exists, 0, 0, 0, 0, [problem] if problem else [])
    if problem:
        return row
    try:
        forks = server.summaries.all(vault)
        row.forks = len(forks)
        row.running = sum(fork.state == "running" for fork in forks)
        row.unapplied = sum(fork.brief.summary.files for fork in forks if fork.brief is not None)
        row.remarks += [f"{fork.name}: {fork.problem}" for fork in forks if fork.problem]
        row.questions = sum(one.state == "waiting" for one in vault.approvals.rows())
    except MudroomError as error:
        row.remarks.append(error.message)
    except OSError as error:
        row.remarks.append(f"cannot be read: {error.strerror}")
    return row


def project(call: ApiCall) -> shape.ProjectShape:
    with call.server.session_with_notes(call.path["project"]) as (session, notes):
        badge, said = _around(session)
        applies = [
            shape.ApplyShape(
                one.name, one.state, one.fork, one.time // 10**6, one.written, one.removed, one.conflicts, one.kept
            )
            for one in reversed(session.changes.applied())
        ]
        return shape.ProjectShape(
            call.path["project"],
            show_path(session.project),
            badge,
            [_fork(glance, badge) for glance in call.server.summaries.all(session.vault)],
            applies,
            _verify(session),
            [*notes, *said],
        )


def _around(session: Session) -> tuple[shape.BadgeShape, tuple[str, ...]]:
    """Of a command of the user's own that would run now, with what there is to say about that."""
    try:
        grant = session.granted()
    except MudroomError as error:  # the policy refuses it, or the machine cannot
        return shape.BadgeShape(None, False, "Nothing runs here", error.message), ((error.hint,) if error.hint else ())
    return badge_of(grant.level), grant.notes


def _verify(session: Session) -> str:
    settings = session.actor.policy
    return show_words(settings.verify) if settings.verify and settings.verify_when != "never" else ""


# --- forks ---


def _fork(glance: ForkSummary, around: shape.BadgeShape) -> shape.ForkShape:
    brief = glance.brief
    ran = brief is not None and bool(brief.command)
    return shape.ForkShape(
        glance.name,
        glance.agent,
        glance.named,
        glance.created // 10**6,
        glance.parent,
        show_words(brief.command) if brief is not None else "",
        glance.state,
        _badge(glance, around),
        shape.SummaryShape(*(brief.summary if brief is not None else Summary())),
        glance.checkpoints,
        list(glance.credentials),
        glance.snapshot,
        _exit_code(brief.exit_code) if brief is not None and ran else None,
        glance.problem,
        glance.fingerprint,
    )


def _exit_code(status: int) -> int:
    """As shells have it, of what wait(2) gives."""
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def _told(call: ApiCall, session: Session, name: str) -> shape.ForkShape:
    found = call.server.summaries.one(session.vault.fork(name))
    if found is None:
        raise Refusal(404, "not-found", f"there is no fork named {name}")
    return _fork(found, _around(session)[0])


def new_fork(call: ApiCall) -> shape.ForkShape:
    asked: shape.ForkRequestShape = call.body
    if asked.at and not asked.parent:
        raise Refusal(400, "bad-request", "a checkpoint is of a fork: name that, too")
    if asked.snapshot and asked.parent:
        raise Refusal(400, "bad-request", "a fork of a fork stands on what that one stands on")
    with call.server.session(call.path["project"]) as session:
        if asked.parent:
            _require_still(session, asked.parent)
        session.forks.new(asked.name, parent=asked.parent or None, at=asked.at or None, snapshot=asked.snapshot)
        return _told(call, session, asked.name)


def _require_still(session: Session, name: str) -> None:
    """What runs in its background can be copied beside that; a command in the foreground would be waited for."""
    require_fork(session, name)
    if not has_background(session, name):
        require_at_rest(session, name)


def has_background(session: Session, name: str) -> bool:
    """Whether there is somebody who holds commands in its background."""
    fork = session.vault.fork(name)
    return fork.interrupted is not None and os.path.exists(fork.path + b"/background/socket")


def rename(call: ApiCall) -> shape.ForkShape:
    asked: shape.RenameRequestShape = call.body
    with call.server.session(call.path["project"]) as session:
        session.forks.rename(require_at_rest(session, call.path["fork"]), asked.name)
        return _told(call, session, asked.name)


class DiscardQuery(Struct):
    end: bool = False
    """What runs in its background first; it is refused else."""
    reviewed: str = ""
    """What was looked at (the fingerprint of its changes): nothing else is thrown away. Without it anything is."""


def discard(call: ApiCall) -> shape.DoneShape:
    query: DiscardQuery = call.query
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        if query.end:
            session.sandboxes.end(name)
        elif has_background(session, name):
            raise Refusal(409, "busy", f"something runs in the background of {name}", "end it first, or end=true")
        with call.server.alone(session, f"discard {name}") as recovered:
            for one in recovered_of(one for one in recovered if one.fork == name):
                said = f"{one.path} {one.text}; {name} was not thrown away"
                raise Refusal(409, "moved", said, "look at it again")
            session.forks.discard(require_at_rest(session, name), query.reviewed or None)
    return shape.DoneShape()


_FORKS = "/projects/{project}/forks"
ENDPOINTS = (
    Endpoint("GET", "/me", "Who this server is, and what requests have to bring", me, shape.MeShape),
    Endpoint("GET", "/projects", "Every project that has a vault here", projects, list[shape.ProjectRowShape]),
    Endpoint("GET", "/projects/{project}", "One project with its forks and applies", project, shape.ProjectShape),
    Endpoint("POST", _FORKS, "Make a fork", new_fork, shape.ForkShape, shape.ForkRequestShape, status=201),
    Endpoint(
        "POST", _FORKS + "/{fork}/rename", "Give a fork another name", rename, shape.ForkShape, shape.RenameRequestShape
    ),
    Endpoint("DELETE", _FORKS + "/{fork}", "Throw a fork away", discard, shape.DoneShape, query=DiscardQuery),
)
