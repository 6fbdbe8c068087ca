"""What the review asks of a session. Every call is made in one thread of its own, one after the other: the screen never
waits for a disk, and a session is never used by two at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from mudroom.core.journal.event import Event
from mudroom.core.merge.merge import PartialChoice
from mudroom.core.text.hunk import select
from mudroom.core.tree.change import Change, Remark, Summary
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import MudroomError
from mudroom.review.activity import DroppedChanges, preview, roll_back
from mudroom.review.rows import difference, is_masked_conflict, look, stamp_of
from mudroom.tui.choice import Choice, Item, Pick, items_of
from mudroom.tui.diffrow import FileRows, FileText

if TYPE_CHECKING:
    from mudroom.core.merge.resolution_words import Take
    from mudroom.session import ApplyResult, ForkConflict, LandingResult, Session

OnVerify = Callable[[tuple[bytes, ...]], Callable[[bytes], None]]

P = ParamSpec("P")
T = TypeVar("T")


class Busy(MudroomError):
    """Somebody else has the vault, or the fork; nothing has begun."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who} is at work in this project", "try again when it has ended")
        self.who = who


class ForkVanished(MudroomError):
    """The fork is gone."""

    def __init__(self) -> None:
        super().__init__("the fork is gone", "somebody else has applied or discarded it")


class SeenFork(NamedTuple):
    """A fork, as it is looked at."""

    fork: str
    fingerprint: str
    changes: tuple[Change, ...]
    items: tuple[Item, ...]
    tags: Mapping[bytes, tuple[str, ...]]
    """Of each change, by path, what to filter by."""
    remarks: tuple[Remark, ...]
    conflicts: tuple[ForkConflict, ...]
    level: int | None
    credentials: tuple[str, ...]
    running: bool = False
    """A command is at work in it: what that changes is not here yet, nor are its conflicts known."""
    summary: Summary = Summary()

    @property
    def decided(self) -> dict[bytes, bool]:
        """By path of a conflict, whether it is decided."""
        return {one.path: one.decided for one in self.conflicts}


class ReviewModel:
    def __init__(self, session: Session, fork: str) -> None:
        self.session, self.fork = session, fork
        self.project = session.project
        self._thread = ThreadPoolExecutor(1, "mudroom-review")
        self._wanted = 0
        self.recovered: list[str] = []
        """What a killed mudroom had left unfinished, and was dealt with here."""
        self.is_applying = False
        """Whether the vault is had alone: the project may be written to."""

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call of the session, in its thread."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """Waits for what has begun, and begins nothing more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    # --- looking ---

    def see(self) -> SeenFork:
        """Look at the fork; an apply is held to this from here on."""
        self._require_there()
        found = look(self.session, self.fork)
        record = self.session.forks.record(self.fork)
        conflicts: Sequence[ForkConflict] = ()
        running = not self._is_at_rest()
        if not running and self._may_conflict(found.changes):
            conflicts = self.session.changes.conflicts(self.fork)
        return SeenFork(
            self.fork,
            found.fingerprint,
            found.changes,
            items_of(found.changes),
            found.tags,
            found.remarks,
            tuple(conflicts),
            record.level if record is not None else None,
            self.session.forks.opened_credentials(self.fork),
            running,
            found.summary,
        )

    def _may_conflict(self, changes: Sequence[Change]) -> bool:
        """What the project has as it was cannot; to find out how it goes together takes longer than all the rest."""
        return not all(change.original_known for change in changes) or bool(self.session.changes.drift(self.fork))

    def fingerprint(self) -> str | None:
        """Of what the fork holds now; None if it is gone."""
        return look(self.session, self.fork).fingerprint if self.session.vault.has_fork(self.fork) else None

    def _is_at_rest(self) -> bool:
        """Whether no command holds the fork; its end may be far off, and is not waited for."""
        with self.session.vault.fork(self.fork).lock_if_free("mudroom review") as free:
            return free

    def _require_at_rest(self) -> None:
        self._require_there()
        if not self._is_at_rest():
            raise Busy(f"a command in {self.fork}")

    def _require_there(self) -> None:
        if not self.session.vault.has_fork(self.fork):
            raise ForkVanished

    def stamp(self) -> tuple[object, ...] | None:
        """Something that differs whenever the fork has changed; None if it is gone. Costs a few looks at files: it may
        be asked for at any time, by any thread."""
        place = self.session.vault.path + b"/forks/" + self.fork.encode()
        try:
            os.stat(place)
        except OSError:
            return None
        return tuple(map(stamp_of, (place, place + b"/record", place + b"/state", place + b"/running")))

    async def show(self, item: Item) -> FileRows | None:
        """What there is to see of one change; None if another one was asked for meanwhile."""
        self._wanted += 1
        mine = self._wanted
        return await self.ask(lambda: self._show(item) if mine == self._wanted else None)

    def _show(self, item: Item) -> FileRows:
        self._require_there()
        change = item.change
        if item.is_repository:
            return FileRows((f"a repository, as a whole: {len(item.inside):,} changes in it",))
        found = difference(self.session, self.fork, change.path)
        base, staged = change.base, change.staged
        mode = None
        if base is not None and staged is not None and base.kind == staged.kind and base.mode != staged.mode:
            mode = (base.mode, staged.mode)
        divisible = found.is_divisible
        notes = [*_about(change), *_KINDS.get(found.kind, ())]
        if mode is not None and not divisible:
            notes.append(f"permissions {mode[0]:04o} → {mode[1]:04o}")
        text = FileText(*found.texts.sides, found.texts.blocks) if found.texts is not None else None
        return FileRows(tuple(notes), mode if divisible else None, text, divisible, found.moved)

    # --- doing ---

    def alone(self, what: str, do: Callable[[], T]) -> T:
        """With the vault alone. Raises Busy at once if somebody else has it."""

        def waiting(other: str) -> None:
            raise Busy(show(other.encode()))

        with self.session.alone(f"{what} (mudroom review, process {os.getpid()})", waiting) as found:
            self.recovered += [
                f"apply {one.name} of {show(one.fork.encode())} {_RECOVERED[one.outcome]}" for one in found
            ]
            self.is_applying = True
            try:
                return do()
            finally:
                self.is_applying = False

    def apply(
        self, seen: SeenFork, chosen: Choice, on_verify: Callable[[tuple[bytes, ...]], Callable[[bytes], None]]
    ) -> LandingResult:
        """``on_verify``: as ``Session.apply`` has it. Raises ForkMoved if it is not what was looked at, Busy."""
        self._require_there()

        def land() -> LandingResult:
            parts = self._parts(chosen.picks)
            return self.session.changes.apply(
                self.fork,
                chosen.paths,
                parts=parts,
                exact=bool(chosen.paths),
                git=chosen.git,
                reviewed=seen.fingerprint,
                on_verify=on_verify,
            )

        return self.alone(f"applying {self.fork}", land)

    def _parts(self, picks: Mapping[bytes, Pick]) -> dict[bytes, PartialChoice]:
        """Read again now: if it is not what was looked at, the fingerprint says so."""
        parts: dict[bytes, PartialChoice] = {}
        if not picks:
            return parts
        for change, old, new in self.session.changes.texts(self.fork, list(picks)):
            pick = picks.get(change.path)
            if pick is None or change.staged is None:
                continue
            if old is None or new is None:
                raise MudroomError(f"{show_path(change.path)} cannot be read any more", "R looks again")
            content = new if pick.blocks is None else select(old, new, pick.blocks)
            mode = change.staged.mode if pick.mode or change.base is None else change.base.mode
            parts[change.path] = PartialChoice(content, mode)
        if parts.keys() != picks.keys():
            raise MudroomError("the fork is not what was looked at", "R looks again")
        return parts

    def undo(self, name: str) -> ApplyResult:
        return self.alone("undo", lambda: self.session.changes.undo(name))

    def last_apply(self) -> str:
        """The one that an undo would take back; empty: there is none."""
        done = [one["apply"] for one in self.session.changes.applies() if one["state"] == "applied"]
        return done[-1] if done else ""

    def discard(self, seen: SeenFork) -> None:
        """Raises ForkMoved if it is not what was looked at, Busy."""
        self._require_there()
        self.alone(f"discarding {self.fork}", lambda: self.session.forks.discard(self.fork, seen.fingerprint))

    # --- its course ---

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        self._require_there()
        return self.session.vault.fork(self.fork).state.checkpoints

    def dropped(self, point: str) -> DroppedChanges:
        """What a rollback would drop; one is held to this."""
        self._require_at_rest()
        return preview(self.session, self.fork, point)

    def roll_back(self, point: str, dropped: DroppedChanges) -> str:
        """Returns the checkpoint by which what was dropped can be had back; empty: nothing was. Raises ForkMoved if it
        would be something else."""
        self._require_at_rest()
        before = roll_back(self.session, self.fork, point, dropped.fingerprint)
        return before.name if before is not None else ""

    def events(self, last: int) -> list[Event]:
        """The end of the journal, newest first."""
        return list(self.session.vault.journal.events(last=last))[::-1]

    # --- conflicts ---

    def conflicts(self) -> list[ForkConflict]:
        self._require_at_rest()
        return self.session.changes.conflicts(self.fork)

    def is_masked(self, conflict: ForkConflict) -> bool:
        """Whether nobody is shown what is in it. Any thread may ask."""
        return is_masked_conflict(self.session, conflict)

    def decide(self, conflict: ForkConflict, take: Take, content: bytes | None = None) -> None:
        self._require_at_rest()
        self.session.changes.decide(self.fork, conflict, take, content)

    def keep_both(self, conflict: ForkConflict) -> None:
        """The fork's beside the project's, which changes the fork: what is in it now is what is looked at."""
        self._require_at_rest()
        self.session.changes.keep_both(self.fork, conflict)

    def undecide(self, conflict: ForkConflict) -> bool:
        self._require_at_rest()
        return self.session.changes.forget_decision(self.fork, conflict.path, conflict.decision)


_RECOVERED = {
    "deferred": "was cut off before it touched the project",
    "finished": "was cut off in the middle; it is finished now",
    "undone": "was being undone when it was cut off; that is finished now",
}
_KINDS = {
    "large": ("a text that is too large to be shown",),
    "masked": ("a secret: it is not shown",),
    "unknown": ("what it was is not known any more",),
    "image": ("a picture: mudroom serve shows it",),
}


def forks_of(session: Session) -> list[tuple[str, int, int]]:
    """Every fork that can be looked at: name, when it was made (nanoseconds since 1970), changed files."""
    found = []
    for fork in session.vault.forks():
        try:
            seen = look(session, fork.name)
        except (MudroomError, OSError):
            continue
        found.append((fork.name, fork.state.created, len(seen.rows)))
    return found


def _about(change: Change) -> list[str]:
    """In words, what its lines do not tell."""
    found = []
    base, staged = change.base, change.staged
    if change.source:
        found.append(f"renamed from {show_path(change.source)}")
    if change.verb == "added":
        found.append("new" if change.entry.kind == "file" else f"new {change.entry.kind}")
    if change.verb == "deleted":
        found.append("deleted")
    if base is not None and staged is not None and base.kind != staged.kind:
        found.append(f"{base.kind} becomes {staged.kind}")
    for side, entry in (("was a link to", base), ("link to", staged)):
        if entry is not None and entry.kind == "symlink":
            found.append(f"{side} {show_path(entry.target)}")
    if change.link_to:
        found.append(f"another name of {show_path(change.link_to)}")
    if change.binary and staged is not None:
        found.append(f"binary, {staged.size:,} bytes")
    if staged is not None and staged.mode & 0o6000:
        found.append(f"its permissions let it act as its owner: {staged.mode:04o}")
    elif change.verb == "added" and staged is not None and staged.kind == "file" and staged.mode & 0o111:
        found.append(f"executable ({staged.mode:04o})")
    if not change.original_known:
        found.append("edited in the project while the command ran: what it was is not known")
    return found
