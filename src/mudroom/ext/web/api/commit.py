"""A fork's commits: the list, and single commits with their differences.

All input is hostile. Texts come escaped from ``ext/commits/git/log.py``, lines from ``ext/review/core/difference.py``;
both are bounded there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from mudroom.core.registry import NotInstalled, part
from mudroom.core.tree.path import relpath, show_path
from mudroom.errors import UsageError
from mudroom.ext.review.core.difference import Texts
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.ext.web.api.file import hunk_shape
from mudroom.ext.web.api.review import Index
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_fork

if TYPE_CHECKING:
    from mudroom.ext.commits.git.commit_diff import CommitDiff, CommitFile
    from mudroom.ext.commits.git.log import CommitLog, LoggedCommit

LINES = 2_000
"""Approximate number of lines in an answer."""
_REPOSITORY = b".git"
_LAST_TIME = 8_640_000_000_000_000  # ECMA-262, the range of Date
_CUT = "…"


class CommitsQuery(Struct):
    repository: str = id_of(_REPOSITORY)
    """The id of the path to a ``.git``."""


class CommitQuery(Struct):
    repository: str = id_of(_REPOSITORY)
    file: str = ""
    """Only this file in the commit."""
    first: Index = 0
    """The first hunk in that file."""
    lines: Annotated[int, Meta(ge=1, le=5_000)] = LINES


def commits(call: ApiCall) -> shape.CommitListShape:
    repository = _path_of(call.query.repository)
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        try:
            log: CommitLog = _commits().list_commits(session, name, repository)
        except (NotInstalled, UsageError) as error:
            return shape.CommitListShape(name, "", 0, [], error.message)
    return shape.CommitListShape(name, log.branch, log.total, [_row(commit) for commit in log.commits])


def commit(call: ApiCall) -> shape.CommitShape:
    query: CommitQuery = call.query
    repository = _path_of(query.repository)
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        try:
            diff: CommitDiff = _commits().commit_diff(session, name, call.path["commit"], repository)
        except (NotInstalled, UsageError) as error:
            raise Refusal(404, "not-found", error.message, error.hint) from None
    files, left = [], query.lines
    for file in diff.files:
        if query.file and id_of(file.change.path) != query.file:
            continue
        shown = _file(file, query.first if query.file else 0, left)
        left -= sum(len(hunk.lines) for hunk in shown.hunks)
        files.append(shown)
    if query.file and not files:
        raise Refusal(404, "not-found", "the commit does not change that file")
    added, removed = diff.lines_added, diff.lines_removed
    committer = diff.commit.committer.name
    return shape.CommitShape(_row(diff.commit), diff.commit.message, committer, added, removed, files, diff.more)


def _commits() -> Any:
    return part("commits", "session", "the list of a fork's commits")


def _path_of(identity: str) -> bytes:
    try:
        return relpath(path_of(identity))
    except ValueError as error:
        raise Refusal(400, "bad-request", str(error)) from None


def _row(commit: LoggedCommit) -> shape.CommitRowShape:
    time = min(commit.author.time * 1000, _LAST_TIME)
    return shape.CommitRowShape(
        commit.id, commit.subject, commit.author.name, time, list(commit.labels), len(commit.parents)
    )


def _file(file: CommitFile, first: int, lines: int) -> shape.CommitFileShape:
    change = file.change
    hunks: list[shape.HunkShape] = []
    following: int | None = None
    if file.kind == "text" and lines > 0:
        page, following = Texts(file.old, file.new).page(first, lines)
        hunks = [_without_rest(hunk_shape(hunk)) for hunk in page]
    elif file.kind == "text" and file.old != file.new:
        following = first
    return shape.CommitFileShape(
        id_of(change.path),
        show_path(change.path),
        change.verb,
        file.kind,
        show_path(change.source),
        file.modes,
        change.lines_added,
        change.lines_removed,
        hunks,
        following,
    )


def _without_rest(hunk: shape.HunkShape) -> shape.HunkShape:
    """Return the hunk with a mark at the end of each cut line: a commit's lines are not sent beyond the cut."""
    for line in hunk.lines:
        if line.cut:
            end = len(line.text.encode("utf-16-le")) // 2
            line.text, line.odd, line.cut, line.until = line.text + _CUT, [*line.odd, (end, end + 1)], 0, 0
    return hunk


_AT = "/projects/{project}/forks/{fork}/commits"
ENDPOINTS = (
    Endpoint(
        "GET", _AT, "The commits of a fork that the project's repository does not have",
        commits, shape.CommitListShape, query=CommitsQuery,
    ),
    Endpoint("GET", _AT + "/{commit}", "One of these commits", commit, shape.CommitShape, query=CommitQuery),
)  # fmt: skip
