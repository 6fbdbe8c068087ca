"""Several commands in one fork at the same time: what runs in the background, and what runs beside it.

A fork is mounted once. The first background command makes a sandbox that stays (``tending.py``); until the last one has
ended every command of the fork is run in there, from this process or, by a socket in the vault (``visits.py``), from
another one. What they see is the same view, /tmp, network and processes; what they may do is the same, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.background import Background
from mudroom.core.confinement.limit import reached_else
from mudroom.core.tree.change import Changeset
from mudroom.deciding import Case
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.holding import Holding, common_of, nothing
from mudroom.sandbox.client.capture import GRACE, CapturedOutput, Watch, attend
from mudroom.starting import Ran, Stdio, relay_for
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import CollectedCommand
from mudroom.vault.store.fork import Fork
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from mudroom.core.background import BackgroundEnd, BackgroundStart
    from mudroom.core.result import Result
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.sandbox.client.held import JoinedCommand
    from mudroom.sandbox.host.processes import ProcessUsage
    from mudroom.tending import Tended
    from mudroom.vault.apply.transaction import Recovery
    from mudroom.vault.forks.background import StreamPart
    from mudroom.visits import Visit

MARK = b"MUDROOM_BACKGROUND"
"""A variable with the id of a background command, for it and all that it starts: by it they are told apart outside."""


class Joining(Holding):
    """The part of a session that knows the background; what it leaves open is the session's (``session.py``)."""

    _refused: Callable[[str, tuple[bytes, ...], bytes, Case], Result]

    def close(self) -> None:
        """What runs in the background ends first."""
        for tended in list(self._tended.values()):
            tended.end()
        for tended in list(self._tended.values()):
            tended.wait()
        super().close()

    # --- in the background ---

    def start(
        self,
        argv: Sequence[bytes],
        *,
        fork: str | None = None,
        cwd: bytes | None = None,
        timeout: float | None = None,
    ) -> Background:
        """Start a command in the background of a fork (a new one if none is named). Until it ends, every other command
        of this fork is run beside it, in the same sandbox; it ends with this session.

        It is judged as ``run`` does, and by what the policy says of the background; what is refused has not been
        started (``Background.refused``). A program that is not there ends with 127. Raises UsageError if what runs
        there was started under other settings, and what ``run`` raises.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom exec --background --fork NAME -- COMMAND")
        self._grant = self.granted()
        command, where = tuple(argv), cwd or self.project
        with self._judged_in_background():
            case = self._case(command, where)
            if case.verdict.action == "deny":
                return Background.none(self, self._refused(fork or "", command, where, case))
            place, is_new = self._place(fork)
            try:
                if case.verdict.action == "require_approval":
                    case = self._asked(place, fork or "", command, where)
                if case.allowed:
                    with self._beside(place) as beside:
                        background = self._start(place, beside, command, where, timeout, case)
                    if background is not None:
                        return background
            except BaseException:
                if is_new and fork is None:
                    self._take_back_unused(place)
                raise
        if is_new:
            self._take_back(place)
        refused = case.changed() if case.allowed else case
        return Background.none(self, self._refused(fork or "", command, where, refused))

    def _start(
        self,
        fork: Fork,
        beside: Tended | Visit | None,
        argv: tuple[bytes, ...],
        cwd: bytes,
        timeout: float | None,
        case: Case,
    ) -> Background | None:
        """None: it is not what was approved any more."""
        from mudroom.core.background import BackgroundStart
        from mudroom.tending import Tended

        self._notes = []
        identity = self._new_id()
        point: str | None = None
        at = beside
        if at is None:
            opened = self._open(fork, case, argv)
            if opened is None:
                return None
            at, point = opened
        else:
            self._require_same(at)
            if not self._is_unchanged(case, fork):
                return None
            if case.verdict.action != "allow":
                point = self._checkpoint_beside(at, fork, argv)
        try:
            environment, inside = self._inside(fork, at, cwd)
            environment[MARK] = identity.encode()
            out_of, agent = timeout or self.settings.timeout, self.agent or ""
            started = BackgroundStart(
                identity, fork.name, argv, inside, self._clock(), os.getpid(), self._grant.level, agent, out_of
            )
            self._journal_start(started, cwd, case, point)  # first: what cannot be written down is not started
            if isinstance(at, Tended):
                at.start(started, environment)
            else:
                at.start(started, environment, self._terms()())
        finally:
            if beside is None and isinstance(at, Tended):
                at.begin()
        return Background(self, started)

    def _take_back_unused(self, fork: Fork) -> None:
        tended = self._tended.get(fork.name)
        if tended is not None and not tended.behind:
            tended.wait()  # nobody needs it, so it ends
        super()._take_back_unused(fork)

    def _journal_start(self, started: BackgroundStart, cwd: bytes, case: Case, point: str | None) -> None:
        from mudroom.core.result import text, verdict_to_json

        data = {
            "id": started.id,
            "command": [text(word) for word in started.command],
            "cwd": text(cwd),
            "agent": self.agent,
            "verdict": verdict_to_json(case.final),
            "checkpoint": point,
            "level": started.level,
            "timeout": started.timeout,
        }
        self.vault.journal.append("background", started.fork, data, time=started.time)

    def _checkpoint_beside(
        self, beside: Tended | Visit, fork: Fork, argv: Sequence[bytes], *, joins: bool = True
    ) -> str:
        """Freeze what the fork holds, before a command; its name. ``joins``: the command is to join those there."""
        from mudroom.tending import Tended

        stem, keep = self._stem(argv), self.settings.keep_applies
        if isinstance(beside, Tended):
            name = beside.checkpoint(stem, self._clock(), keep=keep)
        else:
            name = beside.checkpoint(stem, self._clock(), keep=keep, terms=self._terms()() if joins else None)
        self.vault.journal.append("checkpoint", fork.name, {"checkpoint": name, "automatic": True}, time=self._clock())
        return name

    def backgrounds(self, name: str | None = None) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        """What has been started in the background of a fork, or of all, oldest first; the last of those that are
        over are among them."""
        from mudroom.vault.forks.background import Book

        forks = self.vault.forks() if name is None else [self.vault.fork(name)]
        found = []
        for fork in forks:
            rows = Book(fork).rows()
            if any(ended is None for _started, ended in rows):
                with fork.lock_if_free("looking at what is left") as free:
                    if free:  # whoever held it has been killed
                        self._settle(fork)
                        rows = Book(fork).rows()
            found += rows
        return sorted(found, key=lambda row: row[0].time)

    def background(self, identity: str) -> Background:
        """One of them by its id, whoever has started it. Raises UsageError if there is none."""
        for started, _ended in self.backgrounds():
            if started.id == identity:
                return Background(self, started)
        raise UsageError(f"there is no background command {identity}", "mudroom ps --all shows those of this project")

    def foreground(self) -> list[tuple[str, str, int]]:
        """What else runs in forks just now: the fork, who has its lock, as that says itself, and since when, in
        nanoseconds since 1970."""
        found = []
        for fork in self.vault.forks():
            since = fork.interrupted
            if since is None or os.path.exists(fork.path + b"/background/sandbox"):
                continue
            with fork.lock_if_free("looking at what runs") as free:
                if free:
                    continue
            with open(fork.path + b"/lock", "rb") as stream:
                found.append((fork.name, stream.read(4096).decode("utf-8", "replace").strip(), since))
        return found

    def printed(
        self, name: str, marks: Sequence[str] = ("", ""), limit: int = 1 << 16
    ) -> tuple[StreamPart, StreamPart]:
        """What the command in the foreground of a fork has printed since the ``marks`` of an earlier answer, or the end
        of it, as far as it is captured; of the last one if none runs."""
        from mudroom.vault.forks.background import read_part
        from mudroom.vault.forks.live_output import PLACE

        place = self.vault.fork(name).path + PLACE
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)

    def printed_at(self, name: str) -> int | None:
        """When that was printed last, in nanoseconds since 1970; None: nothing is there."""
        from mudroom.vault.forks.live_output import PLACE

        times = []
        for stream in (b"/stdout", b"/stderr"):
            try:
                times.append(os.stat(self.vault.fork(name).path + PLACE + stream).st_mtime_ns)
            except FileNotFoundError:
                continue
        return max(times, default=None)

    def usages(self) -> dict[str, ProcessUsage]:
        """What the processes of background commands use just now, by id."""
        from mudroom.sandbox.host.processes import usages

        running = [started for started, ended in self.backgrounds() if ended is None]
        roots = {self._root(started) for started in running}
        return {name: usage for root in roots for name, usage in usages(root, MARK).items()}

    def _root(self, started: BackgroundStart) -> int:
        """From whom the processes of a command descend: who holds it, or the first of its container."""
        from mudroom.vault.forks.background import Book

        common = Book(self.vault.fork(started.fork)).common() or {}
        return int(common.get("root", started.keeper))

    def keep(self) -> None:
        """Block until nothing is left in the background that this session holds."""
        while self._tended:
            next(iter(self._tended.values())).wait()

    def end(self, name: str, identities: Sequence[str] | None = None, grace: float = GRACE) -> None:
        """End background commands of a fork: SIGTERM, after ``grace`` seconds SIGKILL. None: all that runs there, and
        blocks until the fork is free again."""
        fork = self.vault.fork(name)
        tended = self._tended.get(name)
        if tended is not None:
            tended.end(identities, grace)
            if identities is None:
                tended.wait()
            return
        visit = self._visit(fork)
        if visit is None:
            return
        try:
            with visit:
                visit.end(identities, grace)
        except UsageError:
            raise
        except MudroomError:
            pass  # who held them is gone, and they with it
        if identities is None:
            with fork.lock("waiting for the end of what runs in the background"):
                pass

    @contextmanager
    def alone(
        self, what: str, waiting: Callable[[str], None] = lambda _who: None, stopping: Callable[[], None] = lambda: None
    ) -> Iterator[list[Recovery]]:
        """As any workbench; what this session has in the background is stopped like that of all others."""
        with ExitStack() as aside:
            for tended in list(self._tended.values()):
                aside.enter_context(tended.aside())
            with super().alone(what, waiting, stopping) as recovered:
                yield recovered

    # --- beside it ---

    def _run_beside(
        self, beside: Tended | Visit, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio,
        timeout: float | None,
    ) -> tuple[Ran, Changeset]:  # fmt: skip
        """Run a command in a sandbox that is there, and collect what the fork holds then."""
        from mudroom.tending import Tended

        self._notes = []
        with ExitStack() as turn:
            turn.enter_context(self._turn())
            self._require_same(beside)
            self._notes += self._grant.notes
            environment, inside = self._inside(fork, beside, cwd)
            relay = relay_for(stdio)
            numbers = relay.numbers if relay is not None else ()
            if numbers and common_of(beside)[0] == "landlock":
                raise Unsupported(
                    "a terminal beside a command in the background", "user namespaces", "none are permitted here"
                )
            given = relay.descriptors if relay is not None else (stdio.stdin, stdio.stdout, stdio.stderr)
            flows = _flows(beside)
            try:
                with CapturedOutput(*given, self.settings.output_limit, stdio.on_output) as output:
                    running = self._joined(beside, argv, environment, inside, output.descriptors, numbers)
                    self._running = running
                    if relay is not None:
                        relay.began(running)
                    watch = None if self._alone else Watch(LOOK, self._stand_aside)
                    ended, timed_out = attend(running, output, timeout, nothing, watch)
                    running.close()
            finally:
                self._running = None
                if relay is not None:
                    relay.close()
            if not isinstance(beside, Tended):
                turn.close()  # who collects has one of its own; who waits for that while holding ours waits for ever
            self._collect(beside, fork, CollectedCommand(argv, ended.status, self._clock(), self._grant.level))
            cut = self.settings.output_limit if any(stream.truncated for stream in output.streams) else None
            out_of = timeout if timed_out else None
            limits = reached_else(self.settings.limits, ended.status & 0x7F, out_of, cut)
            record = self.vault.fork(fork.name).record
            changeset = record.changeset if record is not None else Changeset()
            ran = Ran(0, ended, timed_out, output, limits, None, tuple(_flows(beside)[len(flows) :]))
        return ran, changeset

    def _collect(self, beside: Tended | Visit, fork: Fork, command: CollectedCommand) -> None:
        try:
            beside.collect(command)
            return
        except UsageError:
            raise
        except MudroomError:  # who held the sandbox is gone, and all that ran in it
            self._notes.append("what ran in the background of the fork was ended, and this command with it")
        place = self.vault.fork(fork.name)
        with place.lock("looking at what is left"):
            self._settle(place)

    def _stand_aside(self) -> float:
        return self.vault.turn.stand_aside(nothing, nothing)

    def _joined(
        self, beside: Tended | Visit, argv: tuple[bytes, ...], environment: dict[bytes, bytes], inside: bytes,
        descriptors: tuple[int, int, int], numbers: Sequence[int],
    ) -> JoinedCommand:  # fmt: skip
        from mudroom.tending import Tended

        if isinstance(beside, Tended):
            return beside.held.run(argv, environment, inside, descriptors, numbers)
        return beside.run(argv, environment, inside, descriptors, numbers, self._terms()())

    # --- what else is done to a fork meanwhile ---

    def changes(self, name: str) -> Changeset:
        with self._beside(self.vault.fork(name)) as beside:
            if beside is not None:
                beside.collect(None)
                record = self.vault.fork(name).record
                return record.changeset if record is not None else Changeset()
        return super().changes(name)

    def checkpoint(self, name: str, point: str) -> Checkpoint:
        """Freeze what a fork holds under a name. What runs in its background is stopped while that is copied."""
        with self._beside(self.vault.fork(name)) as beside:
            if beside is None:
                return super().checkpoint(name, point)
            beside.checkpoint(point, self._clock())
            made = self.vault.fork(name).state.checkpoint(point)
        if made is None:
            raise MudroomError(f"the checkpoint {point} was not made", "try again")
        self.vault.journal.append("checkpoint", name, {"checkpoint": point}, time=self._clock())
        return made

    def new_fork(
        self, name: str, *, parent: str | None = None, at: str | None = None, snapshot: bool = False, named: bool = True
    ) -> Fork:
        """As any workbench; of what a fork holds in whose background something runs, by a checkpoint of it."""
        if parent is not None:
            with self._beside(self.vault.fork(parent)) as beside:
                if beside is not None:
                    above = self.vault.fork(parent)
                    at = at or self._checkpoint_beside(beside, above, (b"fork", name.encode()), joins=False)
                    made = stacking.fork_of(self.vault, above, name, self._clock(), at)
                    self.vault.journal.append("fork", name, {"parent": parent, "at": at}, time=self._clock())
                    return made
        return super().new_fork(name, parent=parent, at=at, snapshot=snapshot, named=named)

    def rollback(
        self,
        name: str,
        point: str | None = None,
        *,
        require: Callable[[], None] = lambda: None,
        end: bool = False,
    ) -> Checkpoint | None:
        """``end``: what runs in the background of the fork first; it is refused else."""
        if end:
            self.end(name)
        return super().rollback(name, point, require=require)

    def discard(self, name: str, reviewed: str | None = None, *, end: bool = False) -> None:
        """``end``: what runs in the background of the fork first; it is refused else."""
        if end:
            self.end(name)
        self._require_free(self.vault.fork(name))
        super().discard(name, reviewed)

    def _settle(self, fork: Fork) -> None:
        super()._settle(fork)
        if os.path.isdir(fork.path + b"/background"):
            from mudroom.vault.forks.background import Book

            Book(fork).settle(self._clock())


def _flows(beside: Tended | Visit) -> list[Any]:
    """What the gate has seen until now; of another process's, nothing is known here."""
    from mudroom.tending import Tended

    return list(beside.gate.flows) if isinstance(beside, Tended) and beside.gate is not None else []
