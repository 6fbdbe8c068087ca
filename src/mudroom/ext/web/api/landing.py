"""Applying a fork, undo and redo: jobs.

Errors that can be detected at once are answered at once: a missing fork, an invalid choice, a fork that has changed
since it was reviewed. The job detects the others while it holds the vault. It does not wait for other holders.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from mudroom.core.merge.apply_summary import RECOVERY_WORDS
from mudroom.core.network.push import pushes_left
from mudroom.core.registry import part
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import ApplyUnwritten
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of
from mudroom.ext.web.state.job import JobReporter, problem_of
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import ServerState, require_at_rest, require_fork

if TYPE_CHECKING:
    from mudroom.core.merge.merge import Conflict
    from mudroom.session import ApplyResult, LandingResult, Session, Verification
    from mudroom.session.upkeep import Recovery


from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.merge.pick import Pick
from mudroom.core.tree.change import Change, Remark, counted_changes
from mudroom.core.tree.dependent_rows import needs, requirement_text, row_of, unmet_requirements
from mudroom.core.tree.flag import git_directory
from mudroom.ext.review.parts import DecidedAsWhole, read_parts
from mudroom.ext.review.roots import landed_words, options_of_choice, turned_words, whole_landing, whole_turn
from mudroom.ext.review.rows import review_fork
from mudroom.ext.web.api.endpoint import path_of

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.ext.web.shape import PickShape
    from mudroom.session import Session


class ChosenChanges(NamedTuple):
    """The choice in an apply request, converted to paths and partial files."""

    paths: tuple[bytes, ...]
    parts: dict[bytes, PartialChoice]
    """The paths chosen only in part."""


def choice_of(
    session: Session, fork: str, changes: Sequence[Change], picks: Sequence[PickShape], *, git: bool = False
) -> ChosenChanges:
    """Return the choice. ``changes``: all changes in the fork. ``git``: if any row in a repository is chosen, all its
    changes are, except unchosen hooks and settings: a partial commit would break the repository. Raise Refusal for a
    path that is not among the changes, is named twice, or cannot be divided as requested; for a partial choice in a
    file whose conflict is decided; and for an empty choice."""
    by_path = {change.path: change for change in changes}
    picked: dict[bytes, PickShape] = {}
    for pick in picks:
        path = path_of(pick.id)
        if path not in by_path:
            raise Refusal(400, "bad-request", f"the fork has no change at {show_path(path)}", "look at it again")
        if picked.setdefault(path, pick) is not pick:
            raise Refusal(400, "bad-request", f"{show_path(path)} is chosen twice")
    wanted = {
        path: Pick(None if pick.blocks is None else frozenset(pick.blocks), pick.mode) for path, pick in picked.items()
    }
    try:
        parts = read_parts(session, fork, changes, wanted)
    except DecidedAsWhole as error:
        raise Refusal(409, "decided", error.message, error.hint) from None
    for path in parts.left:
        del picked[path]
    if not picked:
        raise Refusal(400, "bad-request", "nothing was chosen")
    paths = (*picked, *(_changes_of_repositories(changes, picked) if git else ()))
    _require_together(changes, set(paths))
    return ChosenChanges(paths, parts.chosen)


def _require_together(changes: Sequence[Change], wanted: set[bytes]) -> None:
    """Raise Refusal if a row is chosen without its required rows (core/tree/dependent_rows.py): an apply takes only
    rows that were shown as chosen."""
    for path, missing in unmet_requirements(wanted, needs(row_of(change) for change in counted_changes(changes))):
        raise Refusal(400, "bad-request", requirement_text(path, missing), "choose all of them")


def _changes_of_repositories(changes: Sequence[Change], wanted: Collection[bytes]) -> list[bytes]:
    units = {git_directory(path) for path in wanted} - {None}
    return [
        change.path
        for change in changes
        if change.path not in wanted and git_directory(change.path) in units and "protected" not in change.flags
    ]


_PROGRESS_INTERVAL = 0.1
"""Seconds between progress messages."""


def apply(call: ApiCall) -> shape.JobShape:
    request: shape.ApplyRequestShape = call.body
    project, server = call.path["project"], call.server
    with server.session(project) as session:
        fork = require_at_rest(session, call.path["fork"])
        reviewed = review_fork(session, fork)
        if reviewed.fingerprint != request.reviewed:
            raise Refusal(409, "moved", "the fork has changed since it was reviewed; nothing was applied", _AGAIN)
        _require_plain_commit(request)
        changes = reviewed.changes
        if not changes and not request.pushes:
            raise Refusal(400, "bad-request", f"{fork} holds no changes")
        files = request.files
        if request.pushes and not files and (files is not None or not changes):
            choice: ChosenChanges | None = ChosenChanges((), {})  # no file, only the pushes
        else:
            choice = None if files is None else choice_of(session, fork, changes, files, git=request.git)
    return server.jobs.start(
        project, fork, "apply", lambda reporter: _apply(server, project, fork, choice, request, reporter)
    )


def _require_plain_commit(request: shape.ApplyRequestShape) -> None:
    others = {"git": request.git, "backups": request.backups, "markers": request.markers}
    for option, is_given in others.items():
        if request.commit and is_given:
            raise Refusal(400, "bad-request", f"commit makes one commit of the applied files; {option} is not for it")


_AGAIN = "look at it again"
_NOTHING = "; nothing was applied"


def _apply(
    server: ServerState,
    project: str,
    fork: str,
    choice: ChosenChanges | None,
    request: shape.ApplyRequestShape,
    reporter: JobReporter,
) -> shape.LandedShape:
    def verifying(command: tuple[bytes, ...]) -> Callable[[bytes], None]:
        reporter.phase(f"verifying: {show_words(command)}", 0, 0)
        return reporter.output

    with server.session(project) as session:
        session.forks.tell_progress(_throttled_progress(reporter))
        with server.hold_vault(session, f"apply {fork}") as recovered, _naming_recovered(recovered, "applied"):
            require_fork(session, fork)
            options: dict[str, Any] = {
                "reviewed": request.reviewed,
                "git": request.git,
                "backups": request.backups,
                "markers": request.markers,
                "pushes": request.pushes,
                "on_verify": verifying,
            }
            if choice is not None:
                options |= options_of_choice(session, fork, choice.paths, choice.parts)
            if request.commit:
                result = _apply_as_commit(server, session, fork, request.commit, options)
            else:
                result = landed_shape(session.changes.apply(fork, **options))
    result.remarks[:0] = recovered_of(recovered)
    return result


def _apply_as_commit(
    server: ServerState, session: Session, fork: str, message: str, options: dict[str, Any]
) -> shape.LandedShape:
    commits = part("commits", "session", "a commit of an apply")
    request = commits.CommitRequest(message, server.environment.git_files())
    landed: LandingResult = commits.apply_as_commit(session, fork, request, **options)
    result = landed_shape(landed)
    result.commit_problem, made = landed.commit_problem, landed.commit
    if made is not None:
        with_changes, left_out = (list(map(show_path, paths)) for paths in (made.with_changes, made.left_out))
        result.commit = shape.MadeCommitShape(made.id, made.branch, made.files, with_changes, left_out)
    return result


@contextmanager
def _naming_recovered(recovered: Sequence[Recovery], done: str) -> Iterator[None]:
    """If the body fails after applies were recovered, raise Refusal (``recovered``) that names them: the recovery has
    happened."""
    try:
        yield
    except Exception as error:
        if not recovered:
            raise
        first = "; ".join(f"{remark.path} {remark.text}" for remark in recovered_of(recovered))
        problem = problem_of(error)
        more = "" if isinstance(error, ApplyUnwritten) else f"Nothing more was {done}: "
        raise Refusal(
            409, "recovered", f"{first}. {more}{problem.error.removesuffix(_NOTHING)}", problem.hint
        ) from error


def undo(call: ApiCall) -> shape.JobShape:
    return _start_turn(call, "undo")


def redo(call: ApiCall) -> shape.JobShape:
    return _start_turn(call, "redo")


def refused(call: ApiCall) -> shape.RefusedForkShape:
    """Make a fork whose conflicts with the project are what an undo could not take back."""
    request: shape.RefusedRequestShape = call.body
    with (
        call.server.session(call.path["project"]) as session,
        call.server.hold_vault(session, "undo --decide") as recovered,
        _naming_recovered(recovered, "made"),
    ):
        if not session.changes.refused_undo(request.apply):
            raise Refusal(404, "not-found", f"the undo of {request.apply} left nothing to decide")
        return shape.RefusedForkShape(session.changes.refused(request.apply))


_TURNS: dict[str, tuple[str, str]] = {"undo": ("applied", "undone"), "redo": ("undone", "redone")}
"""The state that an apply needs, and its state afterwards."""
_DONE_BY_RECOVERY = {"undo": ("deferred", "undone"), "redo": ("finished",)}
"""Recovery outcomes that equal the requested action."""


def _start_turn(call: ApiCall, action: Literal["undo", "redo"]) -> shape.JobShape:
    request: shape.UndoRequestShape = call.body
    project, server = call.path["project"], call.server
    with server.session(project) as session:
        _require_turnable(session, action, request.apply)

    def work(reporter: JobReporter) -> shape.LandedShape:
        with server.session(project) as session:
            session.forks.tell_progress(_throttled_progress(reporter))
            with server.hold_vault(session, action) as recovered, _naming_recovered(recovered, _TURNS[action][1]):
                done_by_recovery = (
                    recovery.applied
                    for recovery in recovered
                    if recovery.name == request.apply and recovery.outcome in _DONE_BY_RECOVERY[action]
                )
                applied = next(done_by_recovery, None) or (
                    session.changes.undo if action == "undo" else session.changes.redo
                )(request.apply or None)
        result = turned_shape(applied, action, server.environment.home)
        result.remarks[:0] = recovered_of(recovered)
        return result

    return server.jobs.start(project, "", action, work)


def _require_turnable(session: Session, action: str, name: str) -> None:
    """Raise Refusal if the action is not possible. Interrupted applies are recovered by the job first."""
    states = {applied["apply"]: applied["state"] for applied in session.changes.applies()}
    needed = _TURNS[action][0]
    if not name and not {needed, "interrupted"} & set(states.values()):
        raise Refusal(400, "bad-request", f"there is nothing to {action} in this project")
    if name and name not in states:
        raise Refusal(404, "not-found", "there is no such apply here", "it may have been removed by mudroom vault gc")
    cut_off = ("interrupted", "deferred") if action == "undo" else ("interrupted",)
    if name and states[name] not in (needed, *cut_off):
        raise Refusal(409, "decided", f"{name} is {states[name]} already")


def jobs(call: ApiCall) -> list[shape.JobShape]:
    return call.server.jobs.of(call.path["project"])


def job(call: ApiCall) -> shape.JobShape:
    return call.server.jobs.get(call.path["job"])


# --- conversions ---


def landed_shape(outcome: LandingResult) -> shape.LandedShape:
    landed = whole_landing(outcome)
    applied, verified = landed.applied, landed.verified
    failed = verified is not None and not verified.passed
    return shape.LandedShape(
        "unverified" if failed else "conflicts" if applied.conflicts else "applied",
        applied.written,
        applied.removed,
        conflict_rows(applied.conflicts),
        [show_path(path) for path in landed.merged],
        [show_path(path) for path in landed.untold],
        [*remarks_of(applied.remarks), *_ref_remarks(landed)],
        applied.name,
        landed.remaining,
        _verified(verified) if verified is not None else "",
        [show_path(path) for path in landed.kept],
        summary="" if failed else landed_words(outcome),
        pushes_left=pushes_left(applied.pushes),
    )


def turned_shape(outcome: ApplyResult, action: Literal["undo", "redo"], home: bytes = b"~") -> shape.LandedShape:
    applied = whole_turn(outcome, home)
    return shape.LandedShape(
        "conflicts" if applied.conflicts else "undone" if action == "undo" else "redone",
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
        summary=turned_words(action, outcome),
        pushes_left=pushes_left(applied.pushes),
    )


def conflict_rows(conflicts: Iterable[Conflict]) -> list[shape.ConflictRowShape]:
    return [
        shape.ConflictRowShape(id_of(conflict.path), show_path(conflict.path), conflict.reason)
        for conflict in conflicts
    ]


def remarks_of(remarks: Iterable[Remark]) -> list[shape.RemarkShape]:
    return [shape.RemarkShape(id_of(remark.path), show_path(remark.path), remark.text) for remark in remarks]


def _ref_remarks(landed: LandingResult) -> list[shape.RemarkShape]:
    """Return the outcomes for git refs, as remarks."""
    if not landed.repositories:
        return []
    from mudroom.ext.commits.core.ref_plan import outcome_rows

    conflicts = {conflict.path for conflict in landed.conflicts}
    rows = [row for result in landed.repositories for row in outcome_rows(result.label, result.refs, conflicts)]
    return [shape.RemarkShape(id_of(subject.encode()), subject, words) for subject, words in rows]


def recovered_of(recovered: Iterable[Recovery]) -> list[shape.RemarkShape]:
    """Return the recovered applies as remarks."""
    return [
        shape.RemarkShape("", f"apply {recovery.name} of {recovery.fork}", RECOVERY_WORDS[recovery.outcome])
        for recovery in recovered
    ]


def _verified(verified: Verification) -> str:
    outcome = "took too long" if verified.timed_out else f"exited with {verified.exit_code}"
    return f"{show_words(verified.command)} " + ("succeeded" if verified.passed else outcome)


def _throttled_progress(reporter: JobReporter) -> Callable[[str, int, int], None]:
    """Return a progress function to be called for every file. It reports a few times a second, and always at the
    end."""
    last, before = "", 0.0

    def progress(label: str, done: int, total: int) -> None:
        nonlocal last, before
        now = time.monotonic()
        if label == last and done < total and now - before < _PROGRESS_INTERVAL:
            return
        last, before = label, now
        reporter.phase(label, done, total)

    return progress


ENDPOINTS = (
    Endpoint(
        "POST",
        "/projects/{project}/forks/{fork}/apply",
        "Apply the chosen changes of a fork to the project",
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
        "/projects/{project}/undo/decide",
        "Make a fork of what an undo could not take back, to decide its conflicts",
        refused,
        shape.RefusedForkShape,
        shape.RefusedRequestShape,
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
    Endpoint("GET", "/projects/{project}/jobs", "Running jobs, and the last finished ones", jobs, list[shape.JobShape]),
    Endpoint("GET", "/jobs/{job}", "The state of a job", job, shape.JobShape),
)
