"""The commits of a fork that the project's repository does not have, as a list for a review.

The fork's repository was written by an agent. It is read as data, within limits: the texts that are returned are
escaped for display and shortened, and damage is one UsageError.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dulwich.refs import Ref, check_ref_format

from mudroom.core.text.escaping import escape_line
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.stage.source import Source
from mudroom.vault.git.check import is_id
from mudroom.vault.git.history import History
from mudroom.vault.git.objects import ForkObjects
from mudroom.vault.git.read import Allowance, read_small, refusal
from mudroom.vault.git.repository import Repository, find_repository

COMMITS_LISTED = 2_000
"""Commits in a list, at most: the newest ones."""
REFS_READ = 1_000
"""Branches, tags and stashes of a fork that are read, at most."""
_MESSAGE_LINES, _MESSAGE_LIMIT, _SUBJECT_LENGTH, _NAME_LENGTH = 400, 32 << 10, 200, 200
_READ_LIMIT = 2 << 30
_PACKED_REFS_LIMIT = 64 << 20
_IDENTITY = re.compile(rb"(.*?)(?: ([0-9]{1,18}))?(?: ([+-])([0-9]{2})([0-9]{2}))?\Z", re.DOTALL)
_LAST_TIME = 253_402_300_799  # the end of the year 9999
HEAD, STASH = b"HEAD", b"refs/stash"
_LISTED = (b"refs/heads/", b"refs/tags/", STASH)
_REF_LIMIT, _SYMBOLIC_LIMIT = 4096, 5  # refs.h, SYMREF_MAXDEPTH


class CommitIdentity(NamedTuple):
    """Author or committer of a commit, with the time."""

    name: str
    """Name and mail address, escaped for display."""
    time: int
    """Seconds since 1970; 0 if it is not known."""
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
    """Full name of the branch that the fork's HEAD is on, escaped for display; empty if it is on none."""
    commits: tuple[LoggedCommit, ...]
    """Oldest first. At most ``COMMITS_LISTED``, the newest ones."""
    total: int
    """Number of commits, with those that are not listed."""


class ForkLog:
    """The repository of a fork beside that of the project; from ``open_log``."""

    def __init__(
        self, repository: bytes, live: Repository, history: History, branch: bytes, tips: Mapping[bytes, bytes]
    ) -> None:
        """``branch``: that HEAD is on. ``tips``: object ids of the fork's refs, by full name."""
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
        """Return the full id of a listed commit, by its id, the beginning of its id (4 digits), or a ref. Raise
        UsageError if there is none, or several."""
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
        """Return the refs of each commit to which one leads."""
        points: dict[bytes, tuple[bytes, ...]] = {}
        for ref, name in self._tips.items():
            name = self.history.peel(name)
            points[name] = (*points.get(name, ()), ref)
        return points

    def _ordered(self, points: Mapping[bytes, tuple[bytes, ...]]) -> list[bytes]:
        """Return the new commits, parents before children, otherwise by commit time."""
        new: dict[bytes, None] = {}
        hidden: set[bytes] = set()
        for tip, refs in points.items():
            if refs == (STASH,):
                hidden |= set(self.history.commit(tip).parents[1:])  # the staged and the untracked files
            new.update(dict.fromkeys(self.history.new_commits(tip)))
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


@contextmanager
def open_log(project: bytes, repository: bytes, view: Source, changes: Iterable[Change]) -> Iterator[ForkLog]:
    """Open the repository of a fork for reading. ``view``: the whole fork. ``changes``: those of the fork, by which its
    changed refs are known. Raise UsageError if the project has no repository there, or it cannot be read."""
    place = find_repository(project, repository)
    root = os.path.realpath(project)
    if not (is_below(place.git, root) and is_below(place.common, root)):
        raise UsageError(
            f"{show(repository)} belongs to a repository outside of the project, to which no fork can commit",
            "run mudroom in the directory of the main repository",
        )
    git, common = place.git[len(root) + 1 :], place.common[len(root) + 1 :]
    with Repository(place) as live:
        path = common + b"/objects"
        with ForkObjects(view, path, live.format.name, live.packs(), Allowance(_READ_LIMIT)) as objects:
            refs = _ForkRefs(view, git, common, live.format.hex_length)
            tips = _tips(refs, refs.changed(changes), live.tips())
            yield ForkLog(repository, live, History(live, objects), refs.branch, tips)


def _tips(refs: _ForkRefs, names: set[bytes], known: Container[bytes]) -> dict[bytes, bytes]:
    """Return the objects of the fork's HEAD and refs that no ref of the project points to. Branches come first."""
    tips: dict[bytes, bytes] = {}
    for name in (HEAD, *sorted(names | {refs.branch}, key=lambda name: (not name.startswith(_LISTED[0]), name))):
        value = refs.value(name) if name else b""
        if value and value not in known:
            tips[name] = value
        if len(tips) > REFS_READ:
            raise refusal(f"it has more than {REFS_READ:,} changed refs", "")
    return tips


class _ForkRefs:
    """The refs of a fork's repository: gitrepository-layout(5). ``git``: directory of HEAD. ``common``: directory of
    the branches."""

    def __init__(self, view: Source, git: bytes, common: bytes, id_length: int) -> None:
        self._view, self._git, self._common, self._id_length = view, git, common, id_length
        head = self._read(git + b"/HEAD")
        self.branch = head[4:].strip() if head.startswith(b"ref:") else b""
        data = read_small(view, common + b"/packed-refs", _PACKED_REFS_LIMIT) or b""
        rows = (line.split(b" ", 1) for line in data.split(b"\n"))
        self._packed = {row[1]: row[0] for row in rows if len(row) == 2 and is_id(row[0])}

    def changed(self, changes: Iterable[Change]) -> set[bytes]:
        """Return the branches, tags and stash whose files the fork has changed."""
        names: set[bytes] = set()
        for change in changes:
            path = change.path
            if path == self._common + b"/packed-refs":
                names |= self._packed.keys()
            elif path.startswith(self._common + b"/refs/") and change.staged is not None:
                names |= {path[len(self._common) + 1 :]} if change.staged.kind == "file" else set()
        return {name for name in names if name.startswith(_LISTED) and not name.endswith(b".lock")}

    def value(self, name: bytes) -> bytes:
        """Return the object that a ref leads to, b"" if there is none. Raise UsageError if it is malformed."""
        for _step in range(_SYMBOLIC_LIMIT):
            is_long = any(len(part) > 250 for part in name.split(b"/"))
            if name != HEAD and (not name.startswith(b"refs/") or is_long or not check_ref_format(Ref(name))):
                raise refusal(f"{show(name[:80])} is not the name of a ref")
            path = (self._git if name == HEAD else self._common) + b"/" + name
            entry = self._view.look(path)
            text = self._read(path) if entry is not None and entry.kind != "directory" else self._packed.get(name, b"")
            if not text.startswith(b"ref:"):
                if text and not (is_id(text) and len(text) == self._id_length):
                    raise refusal(f"{show(name)} does not name an object")
                return text
            name = text[4:].strip()
        raise refusal(f"{show(name)} leads in a circle, or too far")

    def _read(self, path: bytes) -> bytes:
        return (read_small(self._view, path, _REF_LIMIT) or b"").strip()


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
