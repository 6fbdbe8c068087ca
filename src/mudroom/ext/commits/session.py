"""An apply whose files become one commit on the checked-out branch of the project."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import ancestors, show
from mudroom.errors import MudroomError, UsageError
from mudroom.session.forks import Forks
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks.open_fork import OpenFork

if TYPE_CHECKING:
    from mudroom.core.tree.entry import Entry
    from mudroom.stage.source import Source
    from mudroom.vault.apply.landing import LandingResult
    from mudroom.ext.commits.git.one_commit import MadeCommit, OneCommit
    from mudroom.ext.commits.git.user_settings import UserFiles


_IGNORE_LIMIT = 1 << 20
"""Bytes of a ``.gitignore``; a larger one is not followed."""


class CommitRequest(NamedTuple):
    message: str
    user: UserFiles
    """The user's git settings, for name and mail address."""


class CommittedApply(NamedTuple):
    landed: LandingResult
    commit: MadeCommit | None
    problem: str = ""
    """Why there is no commit; the files that were applied stay."""


def apply_as_commit(
    forks: Forks,
    name: str,
    request: CommitRequest,
    paths: Sequence[bytes],
    apply: Callable[[], LandingResult],
    parts: Mapping[bytes, object],
    *,
    exact: bool,
) -> CommittedApply:
    """Apply, and commit what has landed. ``apply``: does the apply of ``paths`` and ``parts``. Hold the vault's lock.

    Raise UsageError, with nothing applied, if no commit could be made; otherwise as the apply does.
    """
    from mudroom.ext.commits.git.commits import require_dulwich

    require_dulwich()
    from mudroom.ext.commits.git.one_commit import clean_message, covers, open_one_commit

    message = clean_message(request.message)
    vault = forks.vault
    record = forks.record(name)
    changes = record.changeset.changes if record is not None else ()
    with open_one_commit(vault.source, request.user) as commit:
        with OpenFork(vault, vault.fork(name)) as opened:
            chosen = [change for change in changes if change.path in parts or covers(paths, change.path, exact=exact)]
            files = [change.path for change in chosen if change.entry.kind in ("file", "symlink")]
            commit.require((path for path in files if git_directory(path) is None), opened.merged())
        landed = apply()
        problem = _obstacle(landed)
        if problem:
            return CommittedApply(landed, None, problem)
        try:
            return _commit(forks, commit, landed, message)
        except MudroomError as error:
            return CommittedApply(landed, None, str(error))


def _obstacle(landed: LandingResult) -> str:
    if landed.verified is not None and not landed.verified.passed:
        return "nothing was applied"
    if landed.conflicts:
        return "there are conflicts"
    return "" if landed.applied.name else "nothing was applied"


def _commit(forks: Forks, commit: OneCommit, landed: LandingResult, message: bytes) -> CommittedApply:
    from mudroom.stage.source import OpenSource
    from mudroom.ext.commits.landing import load_refs, move_refs, save_refs
    from mudroom.vault.apply.transaction import ApplyDirectory
    from mudroom.ext.commits.git.one_commit import CommitTime

    path = next(place for place in forks.vault.applies() if place.endswith(b"/" + landed.applied.name.encode()))
    place = ApplyDirectory(path)
    seconds = forks.clock() // 10**9
    when = CommitTime(seconds, time.localtime(seconds).tm_gmtoff // 60)
    with OpenSource(forks.vault.source) as project:
        made = commit.make(place.load().ops, message, when, _ignored_by_git(project))
    if made is None:
        return CommittedApply(landed, None, "the applied files are in HEAD already, or git ignores them")
    record, done = made
    save_refs(place.path, [*load_refs(place.path), record])
    failures = move_refs([record])
    if failures:
        save_refs(place.path, [earlier for earlier in load_refs(place.path) if earlier != record])
        raise UsageError(f"{show(failures[0].ref)} {failures[0].reason}", "git commit")
    return CommittedApply(landed, done)


def _ignored_by_git(project: Source) -> Callable[[bytes, Entry], bool]:
    """Return the predicate of files that the project's ``.gitignore`` files match, or a directory above them."""
    from mudroom.stage.exclude import ignored
    from mudroom.stage.source import read_all

    def read(path: bytes) -> bytes | None:
        try:
            return read_all(project, path, _IGNORE_LIMIT)
        except OSError:
            return None

    out = ignored(project.look, read)

    def is_ignored(path: bytes, entry: Entry) -> bool:
        above = ((directory, project.look(directory)) for directory in ancestors(path))
        return out(path, entry) or any(found is not None and out(directory, found) for directory, found in above)

    return is_ignored
