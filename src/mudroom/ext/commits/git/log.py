"""The commits in a fork that the project's repository lacks, as a list for a review.

The fork's repository was written by an agent. It is read as data, within limits: the returned texts are escaped for
display and shortened, and any damage raises UsageError.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.core.text.escaping import escape_line
from mudroom.core.text.regex import regex
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.core.ref_plan import HEAD, HEADS, STASH, TAGS
from mudroom.ext.commits.git.commits import directories_in_view, require_dulwich
from mudroom.ext.commits.git.fork_refs import ForkFiles, SideFiles, SideRefs, changed_refs
from mudroom.ext.commits.git.history import History
from mudroom.ext.commits.git.objects import ForkObjects
from mudroom.ext.commits.git.read import READ_LIMIT, Allowance, refusal
from mudroom.ext.commits.git.repository import Repository
from mudroom.stage.source import Source
from mudroom.typing import NamedTuple
from mudroom.vault.git.place import find_repository

COMMITS_LISTED = 2_000
"""Maximum commits in a list: the newest ones."""
REFS_READ = 1_000
"""Maximum branches, tags and stashes read from a fork."""
_MESSAGE_LINES, _MESSAGE_LIMIT, _SUBJECT_LENGTH, _NAME_LENGTH = 400, 32 << 10, 200, 200
_CHEAP = 64 << 20
"""Bytes read from a fork's repository for a preview: about a thousand packed commits."""
_IDENTITY = regex(rb"(?s)(.*?)(?: ([0-9]{1,18}))?(?: ([+-])([0-9]{2})([0-9]{2}))?\Z")
_LAST_TIME = 253_402_300_799  # the end of the year 9999
_LISTED = (HEADS, TAGS, STASH)


class CommitIdentity(NamedTuple):
    """A commit's author or committer, with the time."""

    name: str
    """Name and mail address, escaped for display."""
    time: int
    """Seconds since 1970; 0 if unknown."""
    zone: int
    """Minutes east of UTC."""

    @property
    def date(self) -> str:
        """The time in its own zone, as ISO 8601: 2026-11-22 18:55:12 +0100."""
        at = time.gmtime(min(self.time + self.zone * 60, _LAST_TIME))
        sign, zone = "-" if self.zone < 0 else "+", abs(self.zone)
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', at)} {sign}{zone // 60:02}{zone % 60:02}"


class LoggedCommit(NamedTuple):
    id: str
    subject: str
    """One line, escaped for display."""
    message: str
    """Lines, each escaped for display; a long message ends with ``…``."""
    author: CommitIdentity
    committer: CommitIdentity
    parents: tuple[str, ...]
    refs: tuple[str, ...]
    """HEAD and full names of the fork's refs that point to it, escaped for display."""
    labels: tuple[str, ...]
    """The refs as git shows them: ``HEAD -> main``, ``side``, ``tag: v1``, ``refs/stash``."""


class CommitLog(NamedTuple):
    repository: bytes
    branch: str
    """Full name of the branch at the fork's HEAD, escaped for display; empty if HEAD is detached."""
    commits: tuple[LoggedCommit, ...]
    """Oldest first: the newest ``COMMITS_LISTED`` at most."""
    total: int
    """Number of commits, including those not listed."""


class ForkLog:
    """A fork's repository beside the project's; from ``open_log``."""

    def __init__(
        self, repository: bytes, live: Repository, history: History, branch: bytes, tips: Mapping[bytes, bytes]
    ) -> None:
        """``branch``: HEAD's branch. ``tips``: object ids for the fork's refs, by full name."""
        self.repository, self.live, self.history = repository, live, history
        self._branch, self._tips = branch, tips

    def read(self, limit: int = COMMITS_LISTED) -> CommitLog:
        """Return the commits. Raise UsageError if an object is missing, damaged or refused."""
        points = self._commits_of_refs()
        names = self._ordered(points)
        commits = tuple(self._describe(name, points.get(name, ())) for name in names[max(0, len(names) - limit) :])
        return CommitLog(self.repository, show(self._branch), commits, len(names))

    def names(self) -> list[bytes]:
        """Return the ids of the listed commits, oldest first."""
        return self._ordered(self._commits_of_refs())[-COMMITS_LISTED:]

    def find(self, commit: str) -> bytes:
        """Return a listed commit's full id, given an id, a prefix (at least 4 digits), or a ref. Raise UsageError if
        there is no match, or several."""
        points = self._commits_of_refs()
        names = self._ordered(points)
        word = os.fsencode(commit)
        by_ref = {ref: name for name, refs in points.items() for ref in refs}
        for full in (word, b"refs/heads/" + word, b"refs/tags/" + word, b"refs/" + word):
            if by_ref.get(full) in names:
                return by_ref[full]
        matches = [name for name in names if len(word) >= 4 and name.startswith(word.lower())]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(f"{len(matches)} commits of the fork begin with {show(word)}", "give more digits")
        raise UsageError(f"the fork has no new commit {show(word[:80])}", "mudroom diff --commits lists them")

    def describe(self, name: bytes) -> LoggedCommit:
        return self._describe(name, self._commits_of_refs().get(name, ()))

    def _commits_of_refs(self) -> dict[bytes, tuple[bytes, ...]]:
        """Return refs by the commit that they lead to."""
        points: dict[bytes, tuple[bytes, ...]] = {}
        for ref, name in self._tips.items():
            name = self.history.peel(name)
            if self.history.is_commit(name):
                points[name] = (*points.get(name, ()), ref)
        return points

    def _ordered(self, points: Mapping[bytes, tuple[bytes, ...]]) -> list[bytes]:
        """Return the new commits, parents before children, otherwise by commit time."""
        hidden: set[bytes] = set()
        for tip, refs in points.items():
            if refs == (STASH,):
                hidden |= set(self.history.commit(tip).parents[1:])  # the stash's staged and untracked files
        new = self.history.new_commits(*points)
        return _by_time(self.history, [name for name in new if name not in hidden or name in points])

    def _describe(self, name: bytes, refs: Sequence[bytes]) -> LoggedCommit:
        text = self.history.commit(name)
        header = self.history.content(name, b"commit").partition(b"\n\n")[0].split(b"\n")
        paragraph = text.message.strip().partition(b"\n\n")[0]
        return LoggedCommit(
            name.decode(),
            _one_line(b" ".join(paragraph.split()), _SUBJECT_LENGTH),
            _message(text.message),
            _identity(header, b"author "),
            _identity(header, b"committer "),
            tuple(parent.decode() for parent in text.parents),
            tuple(show(ref) for ref in refs),
            _labels(refs, self._branch),
        )


def _by_time(history: History, names: list[bytes]) -> list[bytes]:
    waiting = dict.fromkeys(names, 0)
    children: dict[bytes, list[bytes]] = {}
    for name in names:
        for parent in dict.fromkeys(history.commit(name).parents):
            if parent in waiting:
                waiting[name] += 1
                children.setdefault(parent, []).append(name)
    place = {name: number for number, name in enumerate(names)}
    ready = [(history.commit(name).time, place[name], name) for name in names if not waiting[name]]
    heapq.heapify(ready)
    order = []
    while ready:
        _time, _place, name = heapq.heappop(ready)
        order.append(name)
        for child in children.get(name, ()):
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, (history.commit(child).time, place[child], child))
    return order


class LogSource(NamedTuple):
    """A fork as a log reads it."""

    view: Source
    """The whole fork, as a command sees it."""
    original: SideFiles
    """The files as they were when the fork began."""
    changes: Sequence[Change]
    """The fork's changes: refs are read only if their files are among them."""


@contextmanager
def open_log(project: bytes, repository: bytes, source: LogSource, *, cheaply: bool = False) -> Iterator[ForkLog]:
    """Open a fork's repository for reading. ``cheaply``: read at most ``_CHEAP`` bytes. Raise UsageError if the project
    has no repository there, or the fork's cannot be read."""
    require_dulwich()
    place = find_repository(project, repository)
    git, common = directories_in_view(project, repository, source.view, place)
    with Repository(place) as live:
        path, length = common + b"/objects", live.format.hex_length
        allowance = Allowance(_CHEAP if cheaply else READ_LIMIT)
        with ForkObjects(source.view, path, live.format.name, live.packs(), allowance) as objects:
            refs = SideRefs(ForkFiles(source.view), git, common, length)
            base = SideRefs(source.original, git, common, length)
            names = changed_refs(source.changes, git, common, base, refs).names
            branch = refs.head() if refs.head().startswith(b"refs/") else b""
            tips = _tips(refs, {name for name in names if name.startswith(_LISTED)} | {branch}, live.tips())
            yield ForkLog(repository, live, History(live, objects), branch, tips)


def _tips(refs: SideRefs, names: set[bytes], known: Container[bytes]) -> dict[bytes, bytes]:
    """Return object ids for the fork's HEAD and refs that no ref in the project points to. Branches come first."""
    tips: dict[bytes, bytes] = {}
    for name in (HEAD, *sorted(names, key=lambda name: (not name.startswith(HEADS), name))):
        value = refs.value(name) if name else b""
        if value and value not in known:
            tips[name] = value
        if len(tips) > REFS_READ:
            raise refusal(f"it has more than {REFS_READ:,} changed refs", "")
    return tips


def _labels(refs: Sequence[bytes], branch: bytes) -> tuple[str, ...]:
    is_on = HEAD in refs and branch in refs
    labels = ["HEAD -> " + show(branch.removeprefix(b"refs/heads/"))] if is_on else []
    others = [ref for ref in refs if not (is_on and ref in (HEAD, branch))]
    labels += [show(ref.removeprefix(b"refs/heads/").replace(b"refs/tags/", b"tag: ")) for ref in others]
    return tuple(labels)


def _identity(header: list[bytes], field: bytes) -> CommitIdentity:
    line = next((line[len(field) :] for line in header if line.startswith(field)), b"")
    match = _IDENTITY.match(line)
    assert match is not None
    name, seconds, sign, hours, minutes = match.groups()
    zone = (int(hours) * 60 + int(minutes)) * (-1 if sign == b"-" else 1) if hours is not None else 0
    return CommitIdentity(_one_line(name, _NAME_LENGTH), int(seconds or 0), zone)


def _one_line(text: bytes, length: int) -> str:
    return escape_line(text.replace(b"\t", b" "), widest=length).text


def _message(message: bytes) -> str:
    whole = message.strip(b"\n")
    lines = whole[:_MESSAGE_LIMIT].split(b"\n")
    shown = [escape_line(line.rstrip()).text for line in lines[:_MESSAGE_LINES]]
    is_cut = len(whole) > _MESSAGE_LIMIT or len(lines) > _MESSAGE_LINES
    return "\n".join((*shown, "…") if is_cut else shown)
