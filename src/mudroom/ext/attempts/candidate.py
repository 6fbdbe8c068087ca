"""The candidates of a try, side by side: its distinct results, and the differences between their forks. Read-only: it
writes no file and marks no changes as reviewed.

1. A record describes the attempts when they were judged. If a fork has changed since, or is gone, the candidate says so
   (``standing``); its counts come from the present fork.
2. Attempts with the same result are one candidate. It is read from the first fork that still has that result.
3. Differences are found in the present forks, within bounds. Everything left uncompared is counted.
"""

from __future__ import annotations

import os
import threading
from _blake2 import blake2b
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice

from mudroom.core.tree.change import Change, Changeset, Verb, summarise
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts.agreement import EXTENTS, Content, Extent, agreement, changed_paths
from mudroom.ext.attempts.record import Tries, is_running, load, tries
from mudroom.ext.attempts.value import AttemptRecord, TryRecord, ranked
from mudroom.stage.source import Source
from mudroom.typing import TYPE_CHECKING, Literal, NamedTuple
from mudroom.vault.forks.damage import UNREADABLE, damage_of, require_files
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.record_view import RecordView, view_record
from mudroom.vault.forks.result_digest import result_digest

if TYPE_CHECKING:
    from mudroom.session import Session
    from mudroom.vault.store.fork import Fork
    from mudroom.vault.store.store import Vault

MOST_COMPARED = 16
"""Candidates compared path by path: the best ones."""
MOST_PATHS = 50_000
"""Paths compared."""
MOST_FILES = 200_000
"""Files read."""
MOST_BYTES = 256 << 20
"""Bytes read."""
_CHUNK = 1 << 20
_DIGESTS = 1_000
_CACHED = 4
"""Comparisons kept, each with up to ``MOST_PATHS`` paths."""

Standing = Literal["ready", "changed", "running", "gone", "damaged", "none"]
"""A candidate's fork: as judged; changed since; running a command; discarded or applied; unreadable; or the attempt had
no fork."""


class Candidate(NamedTuple):
    """One result of a try."""

    numbers: tuple[int, ...]
    """The attempts with this result."""
    attempt: AttemptRecord
    """The attempt whose fork is shown."""
    standing: Standing
    best: bool
    problem: str = ""
    """Why the fork cannot be read."""
    lost: tuple[tuple[str, Standing], ...] = ()
    """Other forks with this result that have changed since they were judged, or are gone."""
    added: int = 0
    modified: int = 0
    """Includes renamed files."""
    deleted: int = 0
    lines: int = 0
    """Lines added and removed."""

    @property
    def fork(self) -> str:
        """The fork to review, or empty."""
        return self.attempt.fork if self.standing in ("ready", "changed", "running") else ""


class ResultGroup(NamedTuple):
    """Candidates with the same result at a path."""

    candidates: tuple[int, ...]
    """Indexes into ``TryReview.candidates``."""
    verb: Verb
    lines_added: int
    lines_removed: int


class ComparedPath(NamedTuple):
    path: bytes
    extent: Extent
    groups: tuple[ResultGroup, ...]
    unchanged: tuple[int, ...]
    """Candidates that did not change the path."""
    compared: bool
    """False if contents with equal size were not read."""


_Comparison = tuple[tuple[ComparedPath, ...], int]
"""The compared paths, and how many were left out."""
_Key = tuple[tuple[int, str, str], ...]


class TryReview(NamedTuple):
    record: TryRecord
    running: bool
    """Attempts may still end."""
    candidates: tuple[Candidate, ...]
    """Best first."""
    compared: tuple[int, ...]
    """Indexes of the compared candidates: those with readable changes."""
    paths: tuple[ComparedPath, ...]
    """In walking order, at most ``MOST_PATHS``."""
    paths_left: int
    """Changed paths that were not compared."""
    candidates_left: int
    """Candidates with changes that were not compared."""
    fingerprint: str
    """Changes whenever the record or a compared fork changes."""

    def counts(self) -> dict[Extent, int]:
        """Return how many paths have each extent."""
        counts = dict.fromkeys(EXTENTS, 0)
        for path in self.paths:
            counts[path.extent] += 1
        return counts


def all_tries(session: Session) -> Tries:
    """Return the records of all tries in the project, and the damaged tries' names."""
    return tries(session.vault.path)


def is_try(session: Session, name: str) -> bool:
    """Return whether a try has this name, readable or not. Forks are not considered."""
    try:
        load(session.vault.path, name)
    except UsageError:
        return False
    except MudroomError:
        return True
    return True


class ComparisonCache:
    """The last comparisons, for a server. Equal fork fingerprints mean equal files. ``_lock`` guards the entries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Comparison] = OrderedDict()
        self._digests: OrderedDict[tuple[str, str], str] = OrderedDict()

    def get(self, key: _Key) -> _Comparison | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: _Key, comparison: _Comparison) -> None:
        with self._lock:
            self._entries[key] = comparison
            while len(self._entries) > _CACHED:
                self._entries.popitem(last=False)

    def digest(self, key: tuple[str, str]) -> str | None:
        with self._lock:
            return self._digests.get(key)

    def put_digest(self, key: tuple[str, str], digest: str) -> None:
        with self._lock:
            self._digests[key] = digest
            while len(self._digests) > _DIGESTS:
                self._digests.popitem(last=False)


def review_try(session: Session, name: str, cache: ComparisonCache | None = None) -> TryReview:
    """Return a try's candidates and their differences. Raise UsageError if there is no such try, MudroomError if its
    record is damaged."""
    record = load(session.vault.path, name)
    running = not record.ended and is_running(session.vault.path, name)
    candidates: list[Candidate] = []
    changesets: dict[int, Changeset] = {}
    stamps: list[object] = [record._replace(attempts=()), running]
    key: list[tuple[int, str, str]] = []
    candidates_left = 0
    for place, group in enumerate(_results(record)):
        candidate, changeset, stamp = _candidate(session, record, group, cache)
        if changeset is not None and changeset.changes:
            if len(changesets) < MOST_COMPARED:
                changesets[place] = changeset
            else:
                candidates_left += 1
        candidates.append(candidate)
        stamps.append((candidate._replace(attempt=candidate.attempt._replace(report=b"")), stamp))
        if place in changesets:
            key.append((place, candidate.attempt.fork, stamp))
    fingerprint = blake2b(repr(stamps).encode(), digest_size=16).hexdigest()
    compared = cache.get(tuple(key)) if cache is not None else None
    if compared is None:
        compared = _compare(session.vault, candidates, changesets)
        if cache is not None:
            cache.put(tuple(key), compared)
    return TryReview(record, running, tuple(candidates), tuple(changesets), *compared, candidates_left, fingerprint)


def _results(record: TryRecord) -> list[list[AttemptRecord]]:
    """Group the attempts by result, the best result first. Each group is in attempt order."""
    groups: dict[int, list[AttemptRecord]] = {}
    for attempt in ranked(record.attempts, record.score):
        groups.setdefault(attempt.same_as or attempt.number, []).append(attempt)
    return [sorted(group, key=lambda attempt: attempt.number) for group in groups.values()]


def _candidate(
    session: Session, record: TryRecord, group: Sequence[AttemptRecord], cache: ComparisonCache | None
) -> tuple[Candidate, Changeset | None, str]:
    """Return a result's candidate, its changes if they can be compared, and their fingerprint."""
    best = any(attempt.number == record.best for attempt in group)
    numbers = tuple(attempt.number for attempt in group)
    chosen: tuple[Candidate, Changeset | None, str] | None = None
    lost: list[tuple[str, Standing]] = []
    for attempt in group:
        standing, problem, changeset, stamp = _read(session, attempt, cache)
        counted = _counted(attempt, changeset)
        found = Candidate(numbers, attempt, standing, best, problem, (), *counted), changeset, stamp
        if chosen is None or standing == "ready" or (not chosen[0].fork and found[0].fork):
            chosen = found
        if standing == "ready":
            break
        if attempt.fork:
            lost.append((attempt.fork, standing))
    assert chosen is not None
    others = tuple(one for one in lost if one[0] != chosen[0].attempt.fork)
    return chosen[0]._replace(lost=others), chosen[1], chosen[2]


def _read(
    session: Session, attempt: AttemptRecord, cache: ComparisonCache | None
) -> tuple[Standing, str, Changeset | None, str]:
    """Return the standing of an attempt's fork, a reason, and its changes with their fingerprint."""
    if not attempt.fork:
        return "none", "", None, ""
    try:
        fork = session.vault.find(attempt.fork)
    except UsageError as error:  # no fork can have that name
        return "damaged", error.message, None, ""
    if fork is None:
        return "gone", "", None, ""
    try:
        if not session.forks.is_at_rest(attempt.fork):
            return "running", "", None, ""
        view = view_record(session.vault.reading, session.forks.record(attempt.fork))
        require_files(fork)
        changed = bool(attempt.reviewed) and view.fingerprint != attempt.reviewed
        if changed and attempt.fingerprint:  # the same contents in other files: a layer was copied
            changed = _digest(session.vault, fork, view, cache) != attempt.fingerprint
    # the fork may be discarded while it is read
    except UNREADABLE as error:
        problem = damage_of(fork, error)
        return ("gone", "", None, "") if problem is None else ("damaged", problem, None, "")
    return "changed" if changed else "ready", "", view.changeset, view.fingerprint


def _digest(vault: Vault, fork: Fork, view: RecordView, cache: ComparisonCache | None) -> str:
    """Return a fork's result digest, as a try records it."""
    key = fork.name, view.fingerprint
    known = cache.digest(key) if cache is not None else None
    if known is not None:
        return known
    digest = result_digest(vault, fork, view.changeset.changes)
    if cache is not None:
        cache.put_digest(key, digest)
    return digest


def _counted(attempt: AttemptRecord, changeset: Changeset | None) -> tuple[int, int, int, int]:
    if changeset is None:
        return attempt.added, attempt.modified, attempt.deleted, attempt.lines
    summary = summarise(changeset.changes)
    lines = summary.lines_added + summary.lines_removed
    return summary.added, summary.modified + summary.renamed, summary.deleted, lines


def _compare(vault: Vault, candidates: Sequence[Candidate], changesets: Mapping[int, Changeset]) -> _Comparison:
    places = list(changesets)
    by_path = [{change.path: change for change in changeset.changes} for changeset in changesets.values()]
    paths = changed_paths(changesets.values())
    with _Contents(vault, [candidates[place].attempt.fork for place in places], by_path) as contents:
        rows = tuple(_row(path, places, by_path, contents) for path in islice(paths, MOST_PATHS))
    return rows, max(0, len(paths) - MOST_PATHS)


def _row(
    path: bytes, places: Sequence[int], by_path: Sequence[Mapping[bytes, Change]], content: Content
) -> ComparedPath:
    agreed = agreement(path, by_path, content)
    groups = []
    for members in agreed.groups:
        change = by_path[members[0]][path]
        numbers = tuple(places[member] for member in members)
        groups.append(ResultGroup(numbers, change.verb, change.lines_added, change.lines_removed))
    unchanged = tuple(places[member] for member in agreed.unchanged)
    return ComparedPath(path, agreed.extent, tuple(groups), unchanged, agreed.compared)


class _Contents:
    """Digests of fork files, within bounds. Owner: the caller, in one thread. A file that differs from its record has
    no digest."""

    def __init__(self, vault: Vault, forks: Sequence[str], changes: Sequence[Mapping[bytes, Change]]) -> None:
        self._vault, self._forks, self._changes = vault, forks, changes
        self._opened: dict[int, tuple[OpenFork, Source] | None] = {}
        self._files, self._bytes = MOST_FILES, MOST_BYTES

    def __enter__(self) -> _Contents:
        return self

    def __exit__(self, *_error: object) -> None:
        for opened in self._opened.values():
            if opened is not None:
                opened[0].close()

    def __call__(self, path: bytes, number: int) -> Hashable | None:
        entry = self._changes[number][path].staged
        source = self._source(number)
        if entry is None or source is None or not self._files or entry.size > self._bytes:
            return None
        self._files -= 1
        self._bytes -= entry.size
        try:
            descriptor = source.open(path)
        except OSError:
            return None
        try:
            now = os.fstat(descriptor)
            if (now.st_size, now.st_mtime_ns) != (entry.size, entry.mtime):
                return None
            digest = blake2b(digest_size=16)
            for chunk in _chunks(descriptor, entry.size):
                digest.update(chunk)
            return digest.digest()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _source(self, number: int) -> Source | None:
        """Return a candidate's files, or None if its fork is gone meanwhile."""
        if number not in self._opened:
            try:
                opened = OpenFork(self._vault, self._vault.fork(self._forks[number]))
                self._opened[number] = opened, opened.staged()
            except UNREADABLE:
                self._opened[number] = None
        found = self._opened[number]
        return found[1] if found is not None else None


def _chunks(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield a file's content, at most ``size`` bytes."""
    while size > 0 and (chunk := os.read(descriptor, min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk
