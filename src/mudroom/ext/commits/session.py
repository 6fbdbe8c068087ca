"""A fork's commits, for a session: list them, bring them as a branch, or make an apply's files one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from mudroom.core.registry import part
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import ancestors, show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.commits.git.commits import require_dulwich
from mudroom.ext.commits.landing import bring_commits as bring_to_branch
from mudroom.ext.commits.landing import load_refs, move_refs, save_refs
from mudroom.session.forks import Forks
from mudroom.stage.exclude import ignored
from mudroom.stage.ignored_paths import read_ignore_file
from mudroom.stage.source import OpenSource, Source
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.apply.landing import LandingResult, read_record
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.store import require_own

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.core.tree.entry import Entry
    from mudroom.ext.commits.git.commit_diff import CommitDiff
    from mudroom.ext.commits.git.log import CommitLog, ForkLog
    from mudroom.ext.commits.git.one_commit import OneCommit
    from mudroom.ext.commits.git.transfer import Commits
    from mudroom.ext.commits.git.user_settings import UserFiles
    from mudroom.session import Session

# --- listing ---


def list_commits(session: Session, fork: str, repository: bytes = b".git", *, cheaply: bool = False) -> CommitLog:
    """Return the fork's commits that the project's repository lacks, oldest first: from its HEAD, and from the
    branches, tags and stash that it changed. Raise UsageError if the project has no repository there, or the fork's
    cannot be read. ``cheaply``: refuse a repository that needs much reading."""
    with _open_log(session, fork, repository, cheaply=cheaply) as log:
        return log.read()


def commit_diff(session: Session, fork: str, commit: str, repository: bytes = b".git") -> CommitDiff:
    """Return a listed commit's changes against its first parent. ``commit``: its id, a prefix, or a ref in the fork.
    Secrets are masked. Raise UsageError as ``list_commits`` does, and if there is no such commit."""
    return next(commit_diffs(session, fork, [commit], repository))


def commit_diffs(
    session: Session, fork: str, commits: Sequence[str] = (), repository: bytes = b".git"
) -> Iterator[CommitDiff]:
    """Yield the changes of these commits, or of all listed ones, one at a time. See ``commit_diff``."""
    work_tree = repository.removesuffix(b".git")
    with _open_log(session, fork, repository) as log:
        from mudroom.ext.commits.git.commit_diff import read_commit_diff

        names = [log.find(commit) for commit in commits] if commits else log.names()
        for found in names:
            yield read_commit_diff(log, found, lambda path: session.forks.secrets.hides(work_tree + path))


@contextmanager
def _open_log(session: Session, fork: str, repository: bytes, *, cheaply: bool = False) -> Iterator[ForkLog]:
    require_dulwich()
    from mudroom.ext.commits.git.fork_refs import OriginalFiles
    from mudroom.ext.commits.git.log import LogSource, open_log

    changeset, vault = session.changes.of(fork), session.vault
    with OpenFork(vault, vault.fork(fork)) as opened:
        original = OriginalFiles(opened.ground(changeset), {change.path: change for change in changeset.changes})
        source = LogSource(opened.merged(), original, changeset.changes)
        with open_log(vault.source, repository, source, cheaply=cheaply) as log:
            yield log


# --- as a branch ---


def bring_commits(session: Session, fork: str, *, branch: str | None = None, repository: bytes = b".git") -> Commits:
    """Bring a fork's commits into the project's repository: its HEAD as a branch (default: ``mudroom/<fork>``), its
    other branches, tags, notes and stashes under their names. The project's files, index and HEAD stay unchanged.
    Hold the vault's lock. Raise UsageError, with no ref changed, if there are no commits or they cannot be brought."""
    forks, vault = session.forks, session.vault
    require_own(vault)
    forks.secrets.look()
    with forks.at_rest(fork) as resting:
        record = read_record(resting)
        commits = bring_to_branch(vault, resting, record, branch, repository, forks.clock(), session.signing)
    data = {
        "branch": commits.branch,
        "head": commits.head,
        "commits": len(commits.commits),
        "before": commits.before,
        "apply": commits.name,
    }
    if commits.name:
        forks.journal("commits", fork, data)
    return commits


# --- an apply as one commit ---


class CommitRequest(NamedTuple):
    message: str
    user: UserFiles
    """The user's git settings, for name and mail address."""
    trace: bool = False
    """Whether an Agent Trace record becomes the commit's note."""


def apply_as_commit(
    session: Session,
    fork: str,
    request: CommitRequest,
    paths: Sequence[bytes] = (),
    *,
    parts: Mapping[bytes, PartialChoice] | None = None,
    exact: bool = False,
    **options: Any,
) -> LandingResult:
    """``Changes.apply``, then commit the landed files on the checked-out branch; ``undo`` reverses both. ``options``
    are passed to ``apply``. Hold the vault's lock. Raise UsageError, with nothing applied, if no commit could be
    made; otherwise as ``apply`` does."""
    require_dulwich()
    from mudroom.ext.commits.git.one_commit import clean_message, covers, open_one_commit

    forks, vault = session.forks, session.vault
    require_own(vault)
    message, record = clean_message(request.message), forks.record(fork)
    changes = record.changeset.changes if record is not None else ()
    with open_one_commit(vault.source, request.user, sign=session.signing is not None) as commit:
        with OpenFork(vault, vault.fork(fork)) as opened:
            chosen = [
                change for change in changes if change.path in (parts or ()) or covers(paths, change.path, exact=exact)
            ]
            files = [change.path for change in chosen if change.entry.kind in ("file", "symlink")]
            commit.require((path for path in files if git_directory(path) is None), opened.merged())
        traced = _tracer(session, fork, [change.path for change in chosen]) if request.trace else None
        landed = session.changes.apply(fork, paths, parts=parts, exact=exact, **options)
        problem = _obstacle(landed)
        if problem:
            return landed._replace(commit_problem=problem)
        try:
            landed = _commit(forks, commit, landed, message, traced)
        except MudroomError as error:
            return landed._replace(commit_problem=str(error))
    if landed.commit is not None:
        branch = f"refs/heads/{landed.commit.branch}" if landed.commit.branch else "HEAD"
        data = {"branch": branch, "head": landed.commit.id, "commits": 1, "apply": landed.applied.name}
        forks.journal("commits", fork, data)
    return landed


def _obstacle(landed: LandingResult) -> str:
    if landed.verified is not None and not landed.verified.passed:
        return "nothing was applied"
    if landed.conflicts:
        return "there are conflicts"
    return "" if landed.applied.name else "nothing was applied"


_Tracer = Callable[[str, Sequence[bytes]], bytes]
"""Returns the record of a commit without the paths whose lines are not the fork's."""


def _tracer(session: Session, fork: str, paths: Sequence[bytes]) -> _Tracer:
    """Read now what was observed: the apply takes the changes out of the fork."""
    made: _Tracer = part("reasons", "trace", "mudroom apply --trace").tracer(session, fork, paths)
    return made


def _commit(
    forks: Forks, commit: OneCommit, landed: LandingResult, message: bytes, traced: _Tracer | None
) -> LandingResult:
    from mudroom.ext.commits.git.one_commit import CommitTime

    path = next(place for place in forks.vault.applies() if place.endswith(b"/" + landed.applied.name.encode()))
    place = ApplyDirectory(path)
    seconds = forks.clock() // 10**9
    when = CommitTime(seconds, time.localtime(seconds).tm_gmtoff // 60)
    with OpenSource(forks.vault.source) as project:
        trace = None if traced is None else lambda name: traced(name, (*landed.merged, *landed.kept))
        made = commit.make(place.load().ops, message, when, _ignored_by_git(project), trace)
    if made is None:
        return landed._replace(commit_problem="the applied files are in HEAD already, or git ignores them")
    records, done = made
    save_refs(place.path, [*load_refs(place.path), *records])
    for number, record in enumerate(records):
        failures = move_refs([record])
        if failures:
            save_refs(place.path, [earlier for earlier in load_refs(place.path) if earlier not in records[number:]])
            problem = f"{show(failures[0].ref)} {failures[0].reason}"
            if not number:
                raise UsageError(problem, "git commit")
            return landed._replace(commit=done, commit_problem=f"the commit has no note: {problem}")
    return landed._replace(commit=done)


def _ignored_by_git(project: Source) -> Callable[[bytes, Entry], bool]:
    """Return a predicate: whether ``.gitignore`` files in the project match a file or a directory above it."""
    out = ignored(project.look, partial(read_ignore_file, project))

    def is_ignored(path: bytes, entry: Entry) -> bool:
        above = ((directory, project.look(directory)) for directory in ancestors(path))
        return out(path, entry) or any(found is not None and out(directory, found) for directory, found in above)

    return is_ignored
