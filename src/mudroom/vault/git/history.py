"""The history of a fork's repository and of the one that the project has, read as one.

An object that the project's repository has is read from there, any other from the fork's, and is checked.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from mudroom.vault.git.check import CommitText, check_commit, parse_commit, tagged
from mudroom.vault.git.live import Repository
from mudroom.vault.git.objects import ForkObjects
from mudroom.vault.git.read import refusal

COMMIT_LIMIT = 100_000


class History:
    """Every method raises UsageError for an object that is missing, damaged or refused."""

    def __init__(self, live: Repository, fork: ForkObjects) -> None:
        self._live, self._fork = live, fork
        self._commits: dict[bytes, CommitText] = {}

    # --- objects ---

    def content(self, name: bytes, kind: bytes) -> bytes:
        found, data = self._read(name)
        if found != kind:
            raise refusal(f"the object {name.decode()} is a {found.decode()}, not a {kind.decode()}")
        return data

    def _read(self, name: bytes) -> tuple[bytes, bytes]:
        found = self._live.get(name) if self._live.has(name) else self._fork.get(name)
        if found is None:
            raise refusal(f"the object {name.decode()} is missing")
        return found

    def peel(self, name: bytes) -> bytes:
        """The commit that an annotated tag is of; the name of anything else is given back."""
        for _step in range(5):
            kind, data = self._read(name)
            if kind != b"tag":
                return name
            try:
                name, _kind = tagged(data)
            except ValueError as error:
                raise refusal(f"the tag {name.decode()} {error}") from None
        raise refusal("a tag of a tag of a tag is not followed")

    def commit(self, name: bytes) -> CommitText:
        found = self._commits.get(name)
        if found is None:
            data = self.content(name, b"commit")
            try:
                if not self._live.has(name):
                    check_commit(data)
                found = self._commits[name] = parse_commit(data)
            except ValueError as error:
                raise refusal(f"the commit {name.decode()} {error}") from None
        return found

    # --- which commits ---

    def new_commits(self, head: bytes) -> list[bytes]:
        """Those that no branch or tag of the repository leads to, parents first."""
        new, met = self._only_in_fork(head)
        tips = self._live.tips()
        if met - tips:
            new |= self._unreached(met, tips)
        order: list[bytes] = []
        done: set[bytes] = set()
        pending = [(head, False)]
        while pending:
            name, is_after = pending.pop()
            if is_after:
                order.append(name)
            elif name in new and name not in done:
                done.add(name)
                pending.append((name, True))
                pending += [(above, False) for above in reversed(self.commit(name).parents)]
        return order

    def _only_in_fork(self, head: bytes) -> tuple[set[bytes], set[bytes]]:
        """The commits that the repository does not have, and the first ones before them that it has."""
        brought: set[bytes] = set()
        met: set[bytes] = set()
        pending = [head]
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
        """Those of the repository's commits that ``starts`` lead to but no tip does.

        Latest first, as git does it (commit-reach.c, paint_down_to_common): no more of the history is read than is
        later than what is found. Clocks that went wrong make it read more, or call a commit new that is not.
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
            found = self._live_commit(name)
            if found is None:
                return
            name, time, parents[name] = found
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
        while undecided:
            _time, name = heapq.heappop(heap)
            undecided.discard(name)
            for above in parents[name]:
                reach(above, by_tip if marks[name] & by_tip else by_start)
        return {name for name, mark in marks.items() if mark == by_start}

    def _live_commit(self, name: bytes) -> tuple[bytes, int, tuple[bytes, ...]] | None:
        """Name, time and parents of a commit of the repository, or of what a tag of it is of; None if it is cut off
        there (a shallow clone), or no commit."""
        try:
            for _step in range(5):
                kind, data = self._live.get(name) or (b"", b"")
                if kind == b"commit":
                    commit = parse_commit(data)
                    return name, commit.time, commit.parents
                if kind != b"tag":
                    break
                name, _kind = tagged(data)
        except ValueError:
            pass  # the user's own history: git says what is wrong with it
        return None

    def leads_to(self, head: bytes, wanted: bytes) -> bool:
        """Whether ``wanted`` is ``head``, or one of the commits before it."""
        seen, pending = {head}, [(0, head)]
        while pending:
            _time, name = heapq.heappop(pending)
            if name == wanted:
                return True
            for above in self._before(name):
                if above not in seen:
                    seen.add(above)
                    found = self._live_commit(above) if self._live.has(above) else None
                    heapq.heappush(pending, (-found[1] if found is not None else -self.commit(above).time, above))
        return False

    def _before(self, name: bytes) -> tuple[bytes, ...]:
        """The parents of a commit, as far as they are there: the history of a shallow clone ends somewhere."""
        if not self._live.has(name):
            return self.commit(name).parents
        found = self._live_commit(name)
        return tuple(above for above in found[2] if self._live.has(above)) if found is not None else ()
