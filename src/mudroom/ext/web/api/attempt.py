"""Tries: the list, a try's candidates with the paths where they differ, and an attempt's report. All forks of a project
compared with each other.

Names, notes and reports come from an agent. They are escaped, except reports: a page draws them as a terminal does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.ext.attempts.candidate import Candidate, ComparedPath, TryReview, all_tries, review_try
from mudroom.ext.attempts.candidate_text import note
from mudroom.ext.attempts.record import is_running, load
from mudroom.ext.attempts.session.matrix import MatrixCell, matrix
from mudroom.ext.attempts.session.verdict import is_open, verify_cells, verify_command, with_verdicts
from mudroom.ext.attempts.value import TryRecord, distinct
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of
from mudroom.ext.web.api.review import AGAIN, Index
from mudroom.ext.web.state.refusal import Refusal, refusing_missing

if TYPE_CHECKING:
    from mudroom.ext.web.state.job import JobReporter
    from mudroom.ext.web.state.server_state import ServerState
    from mudroom.session import Session

FEW = 2_000
MOST = 20_000
MOST_FORKS = 30
"""Forks that are compared with each other."""
MOST_PATHS = 8
"""Paths of a cell."""
VERIFY_BUDGET = 120.0
"""Seconds for a job that verifies forks."""
_LONGEST = 2_000
"""Characters sent from a command."""
_MS = 10**6
"""Nanoseconds."""


class TryQuery(Struct):
    extent: Literal["", "different", "some", "unknown", "same"] = ""
    """Only paths with this extent."""
    first: Index = 0
    count: Annotated[int, Meta(ge=0, le=MOST)] = FEW
    reviewed: str = ""
    """The previous page's fingerprint: if a fork has changed since, the next page is refused."""


def forks_matrix(call: ApiCall) -> shape.MatrixShape:
    with call.server.session(call.path["project"]) as session:
        names = [fork.name for fork in session.vault.forks()]
        shown, verify = names[-MOST_FORKS:], verify_command(session)
        cells = with_verdicts(session, _compared(call.server, session, call.path["project"], shown))
    return shape.MatrixShape(shown, [_cell(cell) for cell in cells], len(names) - len(shown), show_words(verify))


def _compared(server: ServerState, session: Session, project: str, names: Sequence[str]) -> list[MatrixCell]:
    with server.locks.hold("compare", project, ""):
        return matrix(session, names, cache=server.matrices)


def verify_forks(call: ApiCall) -> shape.JobShape:
    """Run the policy's verify command where no verdict is known, in the background. One such job at a time."""
    project, server = call.path["project"], call.server
    with server.session(project) as session, server.locks.hold("start", project, ""):
        if not verify_command(session):
            raise Refusal(400, "bad-request", "the policy has no verify command", "verify.command in the policy")
        running = (job for job in server.jobs.of(project) if job.what == "verify-forks" and job.state == "running")
        return next(running, None) or server.jobs.start(project, "", "verify-forks", partial(_verify, server, project))


def _verify(server: ServerState, project: str, reporter: JobReporter) -> dict[str, int]:
    with server.session(project) as session:
        names = [fork.name for fork in session.vault.forks()][-MOST_FORKS:]
        cells = _compared(server, session, project, names)
        cells = verify_cells(session, cells, server.cancellation, budget=VERIFY_BUDGET, report=reporter.phase)
    return {"verified": sum(cell.verified is not None for cell in cells), "open": sum(map(is_open, cells))}


def _cell(cell: MatrixCell) -> shape.MatrixCellShape:
    paths = [shape.MatrixPathShape(id_of(path), show_path(path)) for path in cell.conflicts[:MOST_PATHS]]
    count = None if cell.problem else len(cell.conflicts)
    at = cell.verified_at // _MS
    return shape.MatrixCellShape(cell.one, cell.other, count, paths, cell.problem, cell.verified, at)


def tries(call: ApiCall) -> list[shape.TryRowShape]:
    with call.server.session(call.path["project"]) as session:
        listed = all_tries(session)
        rows = [_row(record, running=_is_running(session, record)) for record in reversed(listed.records)]
    problem = "its record is damaged"
    damaged = [shape.TryRowShape(name, "", "", 0, 0, False, 0, 0, 0, 0, problem) for name in reversed(listed.damaged)]
    return [*rows, *damaged]


def one_try(call: ApiCall) -> shape.TryShape:
    query: TryQuery = call.query
    with call.server.session(call.path["project"]) as session:
        review = _reviewed(call, session)
    if query.reviewed and query.reviewed != review.fingerprint:
        raise Refusal(409, "moved", "a candidate has changed since the page before this one", AGAIN)
    counts = review.counts()
    total = counts[query.extent] if query.extent else len(review.paths)
    of_extent = (path for path in review.paths if query.extent in ("", path.extent))
    return shape.TryShape(
        _row(review.record, running=review.running),
        [_candidate(review, place) for place in range(len(review.candidates))],
        shape.ExtentCountsShape(**counts),
        total,
        query.first,
        [_path(path) for path in islice(of_extent, query.first, query.first + query.count)],
        review.paths_left,
        review.candidates_left,
        review.fingerprint,
        review.record.base_fork,
        review.record.end,
        _line(review.record.note),
    )


def attempt(call: ApiCall) -> shape.AttemptShape:
    number = call.path["attempt"]
    with call.server.session(call.path["project"]) as session, refusing_missing():
        record = load(session.vault.path, call.path["try"])
    found = record.attempt(int(number)) if number.isascii() and number.isdigit() and len(number) < 10 else None
    if found is None:
        raise Refusal(404, "not-found", f"{record.name} has no such attempt")
    return shape.AttemptShape(
        found.number,
        found.fork,
        show_words(found.command)[:_LONGEST],
        found.state,
        found.exit_code,
        found.judged,
        _line(found.note),
        found.report.decode("utf-8", "replace"),
    )


def _reviewed(call: ApiCall, session: Session) -> TryReview:
    with refusing_missing():
        return review_try(session, call.path["try"], call.server.comparisons)


def _is_running(session: Session, record: TryRecord) -> bool:
    return not record.ended and is_running(session.vault.path, record.name)


def _row(record: TryRecord, *, running: bool) -> shape.TryRowShape:
    return shape.TryRowShape(
        record.name,
        show_words(record.command)[:_LONGEST],
        show_words(record.judge)[:_LONGEST],
        record.started // _MS,
        record.ended // _MS,
        running,
        len(record.attempts),
        distinct(record.attempts),
        sum(attempt.state == "passed" for attempt in record.attempts),
        record.best,
    )


def _candidate(review: TryReview, place: int) -> shape.CandidateShape:
    candidate: Candidate = review.candidates[place]
    attempt = candidate.attempt
    score = attempt.score if attempt.score is not None and math.isfinite(attempt.score) else None
    return shape.CandidateShape(
        list(candidate.numbers),
        candidate.fork,
        candidate.standing,
        candidate.best,
        attempt.state,
        attempt.exit_code,
        attempt.judged,
        score,
        candidate.added,
        candidate.modified,
        candidate.deleted,
        candidate.lines,
        round(attempt.seconds, 3) if math.isfinite(attempt.seconds) else 0.0,
        place in review.compared,
        note(candidate),
    )


def _path(path: ComparedPath) -> shape.ComparedPathShape:
    return shape.ComparedPathShape(
        id_of(path.path),
        show_path(path.path),
        path.extent,
        [
            shape.ResultGroupShape(list(group.candidates), group.verb, group.lines_added, group.lines_removed)
            for group in path.groups
        ],
        list(path.unchanged),
        path.compared,
    )


def _line(text: str) -> str:
    return show(text.encode("utf-8", "surrogateescape"))


_AT = "/projects/{project}/tries"
ENDPOINTS = (
    Endpoint(
        "GET",
        "/projects/{project}/matrix",
        "Which forks conflict with the project and with each other",
        forks_matrix,
        shape.MatrixShape,
    ),
    Endpoint(
        "POST",
        "/projects/{project}/matrix/verify",
        "Run the policy's verify command on forks, alone and in pairs, where no verdict is known",
        verify_forks,
        shape.JobShape,
        status=202,
    ),
    Endpoint("GET", _AT, "The tries of a project, the newest first", tries, list[shape.TryRowShape]),
    Endpoint(
        "GET",
        _AT + "/{try}",
        "The candidates of a try, and the paths where they differ",
        one_try,
        shape.TryShape,
        query=TryQuery,
    ),
    Endpoint(
        "GET",
        _AT + "/{try}/attempts/{attempt}",
        "One attempt, with the output of its judge",
        attempt,
        shape.AttemptShape,
    ),
)
