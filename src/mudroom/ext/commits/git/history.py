"""The histories in a fork's repository and in the project's, read as one.

An object in the project's repository is read from there. Any other is read from the fork's, and checked.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import suppress

from mudroom.ext.commits.git.check import CommitText, check_commit, check_tag, parse_commit, tag_target
from mudroom.ext.commits.git.objects import ForkObjects
from mudroom.ext.commits.git.read import refusal
from mudroom.ext.commits.git.repository import Repository

COMMIT_LIMIT = 100_000
_TAG_DEPTH = 5


class History:
    """Every method raises UsageError for an object that is missing, damaged or refused."""

    def __init__(self, live: Repository, fork: ForkObjects) -> None:
        self._live, self._fork = live, fork
        self._commits: dict[bytes, CommitText] = {}

    # --- objects ---

    def content(self, name: bytes, kind: bytes) -> bytes:
        actual, data = self._read(name)
        if actual != kind:
            raise refusal(f"the object {name.decode()} is a {actual.decode()}, not a {kind.decode()}")
        return data

    def _read(self, name: bytes) -> tuple[bytes, bytes]:
        content = self._live.get(name) if self._live.has(name) else self._fork.get(name)
        if content is None:
            raise refusal(f"the object {name.decode()} is missing")
        return content

    def peel(self, name: bytes) -> bytes:
        """Return the commit that an annotated tag points to; return any other object's name unchanged."""
        return self.tags(name)[-1]

    def tags(self, name: bytes) -> list[bytes]:
        """Return the annotated tags that lead from ``name`` to an object, and that object."""
        names = []
        for _step in range(_TAG_DEPTH):
            names.append(name)
            kind, data = self._read(name)
            if kind != b"tag":
                return names
            try:
                if not self._live.has(name):
                    check_tag(data)
                name, _kind = tag_target(data)
            except ValueError as error:
                raise refusal(f"the tag {name.decode()} {error}") from None
        raise refusal("its tags are nested too deep")

    def is_commit(self, name: bytes) -> bool:
        return self._read(name)[0] == b"commit"

    def commit(self, name: bytes) -> CommitText:
        commit = self._commits.get(name)
        if commit is None:
            data = self.content(name, b"commit")
            try:
                if not self._live.has(name):
                    check_commit(data)
                commit = self._commits[name] = parse_commit(data)
            except ValueError as error:
                raise refusal(f"the commit {name.decode()} {error}") from None
        return commit

    # --- which commits ---

    def new_commits(self, *heads: bytes) -> list[bytes]:
        """Return these commits and their ancestors, except those that a branch or tag in the repository reaches,
        parents first."""
        new, met = self._only_in_fork(heads)
        tips = self._live.tips()
        if met - tips:
            new |= self._unreached(met, tips)
        order: list[bytes] = []
        done: set[bytes] = set()
        pending = [(head, False) for head in reversed(heads)]
        while pending:
            name, is_after = pending.pop()
            if is_after:
                order.append(name)
            elif name in new and name not in done:
                done.add(name)
                pending.append((name, True))
                pending += [(above, False) for above in reversed(self.commit(name).parents)]
        return order

    def _only_in_fork(self, heads: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Return the commits that the repository lacks, and their nearest ancestors that it has."""
        brought: set[bytes] = set()
        met: set[bytes] = set()
        pending = [*heads]
        while pending:
            name = pending.pop()
            if self._live.has(name):
                self.commit(name)
                met.add(name)
            elif name not in brought:
                brought.add(name)
                if len(brought) > COMMIT_LIMIT:
                    raise refusal(f"it has more than {COMMIT_LIMIT:,} new commits", "")
                pending += self.commit(name).parents
        return brought, met

    def _unreached(self, starts: Iterable[bytes], tips: Iterable[bytes]) -> set[bytes]:
        """Return the repository's commits that are reachable from ``starts`` but from no tip.

        Reads the latest commits first, as git does (commit-reach.c, paint_down_to_common): history older than the
        result is not read. Wrong clocks make it read more, or report a known commit as new.
        """
        by_start, by_tip = 1, 2
        marks: dict[bytes, int] = {}
        parents: dict[bytes, tuple[bytes, ...]] = {}
        heap: list[tuple[int, bytes]] = []
        undecided: set[bytes] = set()

        def reach(name: bytes, mark: int) -> None:
            before = marks.get(name, 0)
            if before & mark:
                return
            commit = self._live_commit(name)
            if commit is None:
                return
            name, time, parents[name] = commit
            marks[name] = marks.get(name, 0) | mark
            heapq.heappush(heap, (-time, name))
            if marks[name] == by_start:
                undecided.add(name)
            else:
                undecided.discard(name)

        for name in tips:
            reach(name, by_tip)
        for name in starts:
            reach(name, by_start)
        oldest: int | None = None  # the oldest commit counted as unreached; others in its second may reach it
        while heap and (undecided or (oldest is not None and -heap[0][0] >= oldest)):
            negative, name = heapq.heappop(heap)
            undecided.discard(name)
            if marks[name] == by_start:
                oldest = -negative
            for above in parents[name]:
                reach(above, by_tip if marks[name] & by_tip else by_start)
        return {name for name, mark in marks.items() if mark == by_start}

    def live_since(self, time: int) -> Iterator[bytes]:
        """Yield the commits that the repository's tips reach, latest first, none older than ``time`` (seconds)."""
        seen: set[bytes] = set()
        heap: list[tuple[int, bytes, tuple[bytes, ...]]] = []
        pending: Iterable[bytes] = self._live.tips()
        while True:
            for tip in pending:
                commit = self._live_commit(tip)
                if commit is not None and commit[0] not in seen and commit[1] >= time:
                    seen.add(commit[0])
                    heapq.heappush(heap, (-commit[1], commit[0], commit[2]))
            if not heap:
                return
            _time, name, pending = heapq.heappop(heap)
            yield name

    def _live_commit(self, name: bytes) -> tuple[bytes, int, tuple[bytes, ...]] | None:
        """Return name, time and parents of a commit in the repository, or of the commit at a tag.

        Return None at a shallow clone's end, or if the object is not a commit.
        """
        with suppress(ValueError):  # damage in the user's own history is reported by git
            for _step in range(5):
                kind, data = self._live.get(name) or (b"", b"")
                if kind == b"commit":
                    commit = parse_commit(data)
                    return name, commit.time, commit.parents
                if kind != b"tag":
                    break
                name, _kind = tag_target(data)
        return None

    def reaches(self, head: bytes, ancestor: bytes) -> bool:
        """Return whether ``ancestor`` is ``head`` or its ancestor."""
        seen, pending = {head}, [(0, head)]
        while pending:
            _time, name = heapq.heappop(pending)
            if name == ancestor:
                return True
            for above in self._parents(name):
                if above not in seen:
                    seen.add(above)
                    commit = self._live_commit(above) if self._live.has(above) else None
                    heapq.heappush(pending, (-commit[1] if commit is not None else -self.commit(above).time, above))
        return False

    def _parents(self, name: bytes) -> tuple[bytes, ...]:
        """Return a commit's parents that are present: a shallow clone's history ends early."""
        if not self._live.has(name):
            return self.commit(name).parents
        commit = self._live_commit(name)
        return tuple(above for above in commit[2] if self._live.has(above)) if commit is not None else ()
