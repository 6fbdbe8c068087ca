"""Bringing a fork into the project, and taking it back: jobs.

What can be known at once is answered at once: a fork that is gone, a choice that cannot be, something else in the fork
than what was looked at. The job finds out the rest, holding the vault; nobody is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from mudroom.core.merge.apply_summary import landed_words, turned_words
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.web import shape
from mudroom.web.api.choice import ChosenChanges, chosen
from mudroom.web.api.endpoint import ApiCall, Endpoint, id_of
from mudroom.web.state.job import problem_of
from mudroom.web.state.refusal import Refusal
from mudroom.web.state.server_state import ServerState, require_at_rest, require_fork

if TYPE_CHECKING:
    from collections.abc import Callable

    from mudroom.core.merge.merge import Conflict
    from mudroom.core.tree.change import Remark
    from mudroom.session import ApplyResult, LandingResult, Session, Verification
    from mudroom.session.upkeep import Recovery
    from mudroom.web.state.job import JobMessage

_OFTEN = 0.1
"""Seconds between two words about how far something is."""


def apply(call: ApiCall) -> shape.JobShape:
    asked: shape.ApplyRequestShape = call.body
    project, server = call.path["project"], call.server
    with server.session(project) as session:
        fork = require_at_rest(session, call.path["fork"])
        if session.changes.fingerprint(fork) != asked.reviewed:
            raise Refusal(409, "moved", "the fork is not what was looked at any more; nothing was applied", _AGAIN)
        changes = session.changes.of(fork).changes
        if not changes:
            raise Refusal(400, "bad-request", f"{fork} holds no changes")
        what = None if asked.files is None else chosen(session, fork, changes, asked.files, git=asked.git)
    return server.jobs.start(project, fork, "apply", lambda told: _apply(server, project, fork, what, asked, told))


_AGAIN = "look at it again"
_NOTHING = "; nothing was applied"


def _apply(
    server: ServerState,
    project: str,
    fork: str,
    what: ChosenChanges | None,
    asked: shape.ApplyRequestShape,
    told: JobMessage,
) -> shape.LandedShape:
    def verifying(command: tuple[bytes, ...]) -> Callable[[bytes], None]:
        told.phase(f"verifying: {show_words(command)}", 0, 0)
        return told.output

    with server.session(project) as session:
        session.forks.tell_progress(_now_and_then(told))
        with server.alone(session, f"apply {fork}") as recovered, _after(recovered, "applied"):
            require_fork(session, fork)
            landed = session.changes.apply(
                fork,
                what.paths if what is not None else (),
                parts=what.parts if what is not None else None,
                exact=what is not None,
                reviewed=asked.reviewed,
                git=asked.git,
                backups=asked.backups,
                markers=asked.markers,
                on_verify=verifying,
            )
    found = landed_of(landed)
    found.remarks[:0] = recovered_of(recovered)
    return found


@contextmanager
def _after(recovered: Sequence[Recovery], done: str) -> Iterator[None]:
    """What goes wrong is told with what was dealt with before: that has happened. Raises Refusal (``recovered``)."""
    try:
        yield
    except Exception as error:
        if not recovered:
            raise
        first = "; ".join(f"{one.path} {one.text}" for one in recovered_of(recovered))
        why = problem_of(error)
        raise Refusal(
            409, "recovered", f"{first}. Nothing more was {done}: {why.error.removesuffix(_NOTHING)}", why.hint
        ) from error


def undo(call: ApiCall) -> shape.JobShape:
    return _turn(call, "undo")


def redo(call: ApiCall) -> shape.JobShape:
    return _turn(call, "redo")


_TURNS: dict[str, tuple[str, str]] = {"undo": ("applied", "undone"), "redo": ("undone", "redone")}
"""What an apply has to be, and what it has become."""
_REACHED = {"undo": ("deferred", "undone"), "redo": ("finished",)}
"""Outcomes of dealing with an apply that was cut off by which it has become that."""


def _turn(call: ApiCall, what: Literal["undo", "redo"]) -> shape.JobShape:
    asked: shape.UndoRequestShape = call.body
    project, server = call.path["project"], call.server
    with server.session(project) as session:
        _require_turnable(session, what, asked.apply)

    def work(told: JobMessage) -> shape.LandedShape:
        with server.session(project) as session:
            session.forks.tell_progress(_now_and_then(told))
            with server.alone(session, what) as recovered, _after(recovered, _TURNS[what][1]):
                is_there = (
                    one.applied for one in recovered if one.name == asked.apply and one.outcome in _REACHED[what]
                )
                applied = next(is_there, None) or (session.changes.undo if what == "undo" else session.changes.redo)(
                    asked.apply or None
                )
        found = turned(applied, what)
        found.remarks[:0] = recovered_of(recovered)
        return found

    return server.jobs.start(project, "", what, work)


def _require_turnable(session: Session, what: str, name: str) -> None:
    """Raises Refusal. What was cut off is dealt with by the job, before anything else."""
    states = {one["apply"]: one["state"] for one in session.changes.applies()}
    needed = _TURNS[what][0]
    if not name and not {needed, "interrupted"} & set(states.values()):
        raise Refusal(400, "bad-request", f"there is nothing to {what} in this project")
    if name and name not in states:
        raise Refusal(404, "not-found", "there is no such apply here", "it may be older than what is kept")
    cut_off = ("interrupted", "deferred") if what == "undo" else ("interrupted",)
    if name and states[name] not in (needed, *cut_off):
        raise Refusal(409, "decided", f"{name} is {states[name]} already")


def jobs(call: ApiCall) -> list[shape.JobShape]:
    return call.server.jobs.of(call.path["project"])


def job(call: ApiCall) -> shape.JobShape:
    return call.server.jobs.get(call.path["job"])


# --- in the words of the API ---


def landed_of(landed: LandingResult) -> shape.LandedShape:
    applied, verified = landed.applied, landed.verified
    failed = verified is not None and not verified.passed
    return shape.LandedShape(
        "unverified" if failed else "conflicts" if applied.conflicts else "applied",
        applied.written,
        applied.removed,
        conflict_rows(applied.conflicts),
        [show_path(path) for path in landed.merged],
        [show_path(path) for path in landed.withheld],
        remarks_of(applied.remarks),
        applied.name,
        landed.remaining,
        _verified(verified) if verified is not None else "",
        [show_path(path) for path in landed.kept],
        summary="" if failed else landed_words(applied.written, applied.removed, len(landed.kept)),
    )


def turned(applied: ApplyResult, what: Literal["undo", "redo"]) -> shape.LandedShape:
    return shape.LandedShape(
        "conflicts" if applied.conflicts else "undone" if what == "undo" else "redone",
        applied.written,
        applied.removed,
        conflict_rows(applied.conflicts),
        [],
        [],
        remarks_of(applied.remarks),
        applied.name,
        0,
        again=[show_path(path) for path in applied.again],
        holder=applied.holder,
        summary=turned_words(what, applied.written, applied.removed, len(applied.again), applied.holder),
    )


def conflict_rows(conflicts: Iterable[Conflict]) -> list[shape.ConflictRowShape]:
    return [shape.ConflictRowShape(id_of(one.path), show_path(one.path), one.reason) for one in conflicts]


def remarks_of(remarks: Iterable[Remark]) -> list[shape.RemarkShape]:
    return [shape.RemarkShape(id_of(one.path), show_path(one.path), one.text) for one in remarks]


_RECOVERED = {
    "deferred": "was cut off before it touched the project; the fork is whole",
    "finished": "was cut off in the middle; it is finished now",
    "undone": "was being undone when it was cut off; that is finished now",
}


def recovered_of(found: Iterable[Recovery]) -> list[shape.RemarkShape]:
    """What was dealt with before anything else, in words."""
    return [shape.RemarkShape("", f"apply {one.name} of {one.fork}", _RECOVERED[one.outcome]) for one in found]


def _verified(verified: Verification) -> str:
    how = "took too long" if verified.timed_out else f"exited with {verified.exit_code}"
    return f"{show_words(verified.command)} " + ("succeeded" if verified.passed else how)


def _now_and_then(told: JobMessage) -> Callable[[str, int, int], None]:
    """What is called for every file tells whoever looks a few times a second, and always at the end."""
    last, before = "", 0.0

    def progress(label: str, done: int, total: int) -> None:
        nonlocal last, before
        now = time.monotonic()
        if label == last and done < total and now - before < _OFTEN:
            return
        last, before = label, now
        told.phase(label, done, total)

    return progress


ENDPOINTS = (
    Endpoint(
        "POST",
        "/projects/{project}/forks/{fork}/apply",
        "Bring what was chosen of a fork into the project",
        apply,
        shape.JobShape,
        shape.ApplyRequestShape,
        status=202,
    ),
    Endpoint(
        "POST",
        "/projects/{project}/undo",
        "Take an apply back",
        undo,
        shape.JobShape,
        shape.UndoRequestShape,
        status=202,
    ),
    Endpoint(
        "POST",
        "/projects/{project}/redo",
        "Apply again what was undone",
        redo,
        shape.JobShape,
        shape.UndoRequestShape,
        status=202,
    ),
    Endpoint("GET", "/projects/{project}/jobs", "What takes a while here, or has lately", jobs, list[shape.JobShape]),
    Endpoint("GET", "/jobs/{job}", "How far something is that takes a while", job, shape.JobShape),
)
