"""One actor's work on one project: fork + view + sandbox + vault, put together. The only file that knows every room.

    with Session.open("/path/to/project", state=…, home=…, environ=os.environb) as session:
        result = session.run([b"npm", b"install"])
        print(result.changeset)
        session.apply(result.fork)

What happens at a ``run``, in order: a fork, its view made ready, spec → plan → launcher, wait, collect the changes,
record them, journal. Nothing reaches the project before ``apply``.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.confine import Confinement
from mudroom.core.change import Changeset
from mudroom.core.fallback import Mode
from mudroom.core.path import is_below, show
from mudroom.core.plan import Plan, explain
from mudroom.core.result import Denial, Result
from mudroom.core.settings import Settings
from mudroom.core.spec import Copy
from mudroom.desk import Desk
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.sandbox.capture import SIGTERM, Output, attend
from mudroom.sandbox.client import Client, Exit, Running, StepFailed
from mudroom.stage.overlay import OverlayView
from mudroom.stage.preflight import check_project, find_project, foreign
from mudroom.stage.view import View
from mudroom.vault import stacking
from mudroom.vault.fork import Fork
from mudroom.vault.gather import Command, Progress, gather, stand_on_copy, take_snapshot, view_of
from mudroom.vault.opened import OpenFork
from mudroom.vault.store import Vault, open_vault

__all__ = ["CAPTURED", "Client", "Landed", "Session", "Stdio", "find_project"]

if TYPE_CHECKING:
    from mudroom.core.stack import Checkpoint
    from mudroom.stage.files import Files
    from mudroom.vault.apply import Applied, Recovered
    from mudroom.vault.compare import Comparison
    from mudroom.vault.land import Landed
    from mudroom.vault.record import ForkRecord

_CLOCK_REALTIME_COARSE = 5
"""The clock that file systems stamp with: linux/time.h, ktime_get_coarse_real_ts64. Python has no name for it."""


class Stdio(NamedTuple):
    """Descriptors for the command. None: captured (or, for stdin, empty)."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """The command stays in the caller's session and terminal, for job control and Ctrl-C."""


class Ran(NamedTuple):
    """A command that has ended."""

    view: View
    started: int
    """Nanoseconds, by the clock that file systems stamp with."""
    ended: Exit
    timed_out: bool
    output: Output


DEFAULTS = Settings()
CAPTURED = Stdio()


class Session:
    def __init__(
        self,
        vault: Vault,
        *,
        home: bytes,
        environ: Mapping[bytes, bytes],
        settings: Settings = DEFAULTS,
        client: Client | None = None,
        clock: Callable[[], int] = time.time_ns,
        new_id: Callable[[], str] = lambda: os.urandom(4).hex(),
        progress: Progress | None = None,
    ) -> None:
        self.vault = vault
        self.project = vault.project
        self.settings = settings
        self.confinement = Confinement(vault, home, environ)
        self._clock = clock
        self._new_id = new_id
        self._progress = progress
        self._client = client
        self._owns_client = client is None
        self._notes: list[str] = []
        self._running: Running | None = None
        self._looked = False
        self._desk = Desk(vault, clock)
        self._last: dict[str, Running] = {}
        """By fork: the last command, whose mount may not be gone yet."""
        self._merged: str | None = None
        """A layer that was made of many while a command ran, for the fork to stand on afterwards."""

    @classmethod
    def open(
        cls, project: bytes, *, state: bytes, home: bytes, environ: Mapping[bytes, bytes], **options: Any
    ) -> Session:
        """A session on ``project``, a directory. Raises UsageError if it cannot be staged."""
        if sys.platform != "linux":
            raise Unsupported("mudroom", "Linux", sys.platform, "macOS and Windows are not built yet")
        real, real_home = os.path.realpath(project), os.path.realpath(home)
        if real_home == b"/":  # a service account without a home: the private one still has to be somewhere
            real_home = b"/home/nobody"
        check_project(real, real_home, os.path.realpath(state))
        return cls(open_vault(os.path.realpath(state), real), home=real_home, environ=environ, **options)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """What file tools have written is brought into its forks; then everything is let go."""
        for name in self._desk.in_use():
            self.flush(name)
            self._desk.drop(name)
        self.vault.close()
        if self._client is not None and self._owns_client:
            self._client.close()

    # --- running ---

    def run(
        self,
        argv: Sequence[bytes],
        *,
        fork: str | None = None,
        cwd: bytes | None = None,
        stdio: Stdio = CAPTURED,
        timeout: float | None = None,
    ) -> Result:
        """Run a command in a fork (a new one if none is named) and say what it changed.

        A command that fails is a result. Raises CommandNotStarted if there is no such program, Unsupported if this
        machine can confine nothing at all, MudroomError if mudroom itself fails; the project is untouched in any case.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom run -- COMMAND")
        place = self.new_fork("run-" + self._new_id(), named=False) if fork is None else self._fork_for_command(fork)
        try:
            return self._run(place, tuple(argv), cwd or self.project, stdio, timeout)
        except CommandNotStarted:
            if fork is None:
                self.vault.discard(place)
            raise

    def interrupt(self) -> None:
        """Ask the running command to end (SIGTERM), from a signal handler or another thread."""
        if self._running is not None:
            self._running.signal(SIGTERM)

    def explain(self, cwd: bytes) -> list[str]:
        """What would be done to confine a command here, step by step. Nothing is run."""
        mode: Mode = "copy" if self.settings.view == "copy" else "overlay"
        fork = Fork("example", self.vault.path + b"/forks/example", self.vault.path)
        here = fork.path + b"/upper"
        mount = OverlayView(self.project, (), here, fork.path + b"/work").mount()
        view = mount if mode == "overlay" else Copy(fork.copy_place + b"/work")
        plan, _env = self.confinement.plan(view, mode, cwd, fork.path + b"/private", self.settings)
        return list(explain(plan))

    def _fork_for_command(self, name: str) -> Fork:
        try:
            return self.vault.fork(name)
        except UsageError:
            return self.new_fork(name)

    def _run(self, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None) -> Result:
        self._notes = []
        with fork.lock(show(b" ".join(argv))):
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            wall = time.monotonic()
            mode, notes = self.confinement.first_mode(self.settings, is_copy=fork.is_copy)
            self._notes += notes
            ran, changeset = self._launch(fork, mode, argv, cwd, stdio, timeout or self.settings.timeout)
            duration = time.monotonic() - wall
            self._desk.refresh(fork)
        result = self._result(fork, argv, ran, changeset, duration)
        self._journal_run(result)
        return result

    def _result(self, fork: Fork, argv: tuple[bytes, ...], ran: Ran, changeset: Changeset, duration: float) -> Result:
        ended, output = ran.ended, ran.output
        signal = ended.status & 0x7F
        return Result(
            fork.name,
            argv,
            1,
            128 + signal if signal else ended.status >> 8,
            signal or None,
            ran.timed_out,
            duration,
            changeset,
            stdout=output.stdout.data if output.stdout is not None else b"",
            stderr=output.stderr.data if output.stderr is not None else b"",
            truncated=any(stream.truncated for stream in output.streams),
            cpu=ended.user + ended.system,
            max_rss=ended.max_rss,
            denials=tuple(Denial.from_mediator(refused) for refused in ended.refused),
            notes=tuple(self._notes),
        )

    def _launch(
        self, fork: Fork, mode: Mode, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None
    ) -> tuple[Ran, Changeset]:
        """Perform the plan; where a step is impossible here, the next weaker mode, announced in the notes."""
        while True:
            if mode != "overlay":
                stand_on_copy(self.vault, fork, self.settings, self._progress)
            with OpenFork(self.vault, fork) as opened:
                view = view_of(self.vault, fork, opened, mode, self._progress)
                view.prepare()
                try:
                    ran = self._attempt(fork, view, mode, argv, cwd, stdio, timeout)
                except StepFailed as failure:
                    mode = self._weaker(mode, failure)
                    continue
                command = Command(argv, ran.ended.status, self._clock())
                changeset = gather(fork, opened, view, command, ran.started)
                fork.end()
            if self._merged is not None:
                from mudroom.vault.deep import stand_on

                stand_on(fork, self._merged)
                self._merged = None
            return ran, changeset

    def _attempt(
        self,
        fork: Fork,
        view: View,
        mode: Mode,
        argv: tuple[bytes, ...],
        cwd: bytes,
        stdio: Stdio,
        timeout: float | None,
    ) -> Ran:
        plan, env = self.confinement.plan(view.mount(), mode, cwd, fork.path + b"/private", self.settings)
        with Output(stdio.stdin, stdio.stdout, stdio.stderr, self.settings.output_limit) as output:
            started = self._start_time()
            fork.begin(started)
            try:
                running = self._start(fork, plan, argv, env, output.descriptors, stdio)
                meanwhile = functools.partial(self._meanwhile, fork, view)
                ended, timed_out = attend(running, output, timeout, meanwhile)
                return Ran(view, started, ended, timed_out, output)
            except (StepFailed, CommandNotStarted):
                fork.end()
                raise
            finally:
                self._running = None
                self._desk.end_live(fork.name)

    def _start(
        self,
        fork: Fork,
        plan: Plan,
        argv: tuple[bytes, ...],
        env: dict[bytes, bytes],
        descriptors: tuple[int, int, int],
        stdio: Stdio,
    ) -> Running:
        """Start the command, after the last one of this fork has let go of its mount. File tools that are in use go
        through the new mount from here on."""
        before = self._last.pop(fork.name, None)
        if before is not None:
            before.gone()
        edited = fork.name in self._desk
        run = self.client.run
        running = run(plan, argv, env, descriptors, new_session=not stdio.terminal, want_view=edited)
        self._running = self._last[fork.name] = running
        if edited:
            self._desk.go_live(fork.name, running)
        return running

    def _weaker(self, mode: Mode, failure: StepFailed) -> Mode:
        following, lost = self.confinement.weaker(mode, failure, self.settings)
        self._notes.append(lost)
        self.vault.journal.append("degrade", "", {"to": following, "why": failure.message}, time=self._clock())
        return following

    def _start_time(self) -> int:
        """Now, by the clock of the file systems, and later than the last apply: what that wrote is no edit of the
        user's. Right after one, wait for the next tick of that clock (at most 4 ms)."""
        applied = os.stat(self.vault.path + b"/applies").st_mtime_ns
        while (now := time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)) <= applied:
            pass
        return now

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client()
            self._client.start()
        return self._client

    def _meanwhile(self, fork: Fork, view: View) -> None:
        """While the command runs: load what collecting needs, clean up after the command before this one, merge
        layers that have become many, and look for what the overlay could not change."""
        import mudroom.stage.collect
        import mudroom.vault.journal  # noqa: F401 - both loaded for later

        if isinstance(view, OverlayView):
            view.tidy()
        if len(fork.state.layers) > 1:
            from mudroom.vault.deep import is_deep, merge_lowest

            self._merged = merge_lowest(self.vault, fork) if is_deep(fork) else None
        if os.geteuid() and not self._looked and isinstance(view, OverlayView):
            self._looked = True
            found = next(foreign(self.project, os.geteuid(), [os.getegid()]), None)
            if found is not None:
                self._notes.append(
                    f"{show(found)} belongs to another user or group: the command cannot change it in the staged view "
                    "(--view copy can)"
                )

    # --- lines of work ---

    def new_fork(
        self, name: str, *, parent: str | None = None, at: str | None = None, snapshot: bool = False, named: bool = True
    ) -> Fork:
        """A fork of the project, or of what another fork holds now, or held at a checkpoint (``at``).

        ``snapshot``: on a frozen copy of the project instead of the live one. Raises UsageError if the name is taken.
        """
        if parent is None:
            fork = self.vault.new_fork(name, time=self._clock(), named=named)
            if snapshot:
                take_snapshot(self.vault, fork, self.settings._replace(copy_limit=1 << 62), self._progress)
        else:
            with self.at_rest(parent) as above:
                fork = stacking.fork_of(self.vault, above, name, self._clock(), at)
        if named:
            self.vault.journal.append("fork", name, {"parent": parent, "at": at}, time=self._clock())
        return fork

    def checkpoint(self, name: str, point: str) -> Checkpoint:
        """Freeze what a fork holds under a name. Raises UsageError if the name is taken."""
        with self.at_rest(name) as fork:
            made = stacking.checkpoint(self.vault, fork, point, self._clock())
        self.vault.journal.append("checkpoint", name, {"checkpoint": point}, time=self._clock())
        return made

    def rollback(self, name: str, point: str) -> Checkpoint | None:
        """Drop what a fork has changed since a checkpoint. Returns the checkpoint by which that can be had back."""
        with self.at_rest(name) as fork:
            before = stacking.rollback(self.vault, fork, point, self._clock())
        undo = before.name if before is not None else None
        self.vault.journal.append("rollback", name, {"checkpoint": point, "undo": undo}, time=self._clock())
        return before

    def rename_fork(self, name: str, new: str) -> Fork:
        with self.at_rest(name) as fork:
            renamed = stacking.rename(self.vault, fork, new)
        self.vault.journal.append("rename", new, {"was": name}, time=self._clock())
        return renamed

    @contextmanager
    def at_rest(self, name: str) -> Iterator[Fork]:
        """A fork with its lock held, nothing running in it, and all it holds written down."""
        fork = self.vault.fork(name)
        with fork.lock("mudroom"):
            stacking.require_idle(fork)
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            yield fork
        if os.path.isdir(fork.path):
            self._desk.refresh(fork)

    def compare(self, old: str, new: str) -> Comparison:
        """Two states side by side: ``base``, ``now``, ``FORK`` or ``FORK@CHECKPOINT``. To be closed."""
        from mudroom.vault.compare import Comparison

        for side in {old, new} - {"base", "now"}:
            self.changes(side.partition("@")[0])  # one that was cut off is looked at now
        return Comparison(self.vault, old, new)

    # --- its files ---

    def files(self, name: str) -> Files:
        """The files of a fork for file tools: to read and to write, in memory until something needs them on disk.

        While a command of this session runs in the fork, the same calls go through its live mount. Raises UsageError
        if there is no such fork.
        """
        from mudroom.stage.files import Files

        self.vault.fork(name)
        return Files(lambda: self._desk.tree(name))

    def flush(self, name: str) -> None:
        """Bring what file tools have written into the fork. Everything else that looks at a fork does this first."""
        if name in self._desk and not self._desk.is_live(name):
            with self.at_rest(name):
                pass

    # --- what forks hold ---

    def _settle(self, fork: Fork) -> None:
        """What a command that was cut off with mudroom itself has left behind is looked at now."""
        started = fork.interrupted
        if started is None:
            return
        with OpenFork(self.vault, fork) as opened:
            view = view_of(self.vault, fork, opened, "copy" if fork.is_copy else "overlay")
            if os.path.isdir(view.staged[0]) and (fork.has_copy or not fork.is_copy):
                gather(fork, opened, view, Command((), 9, self._clock()), started)
        fork.end()

    def changes(self, name: str) -> Changeset:
        """What a fork holds, as of its last command. One that was cut off in the middle of it is looked at now."""
        record = self.record(name)
        return record.changeset if record is not None else Changeset()

    def record(self, name: str) -> ForkRecord | None:
        """What is written down of a fork; None if nothing is."""
        fork = self.vault.fork(name)
        self.flush(name)
        if fork.interrupted is not None:
            with fork.lock_if_free("looking at what is left") as free:
                if free:
                    self._settle(fork)
        return fork.record

    def applies(self) -> list[dict[str, str]]:
        """Every apply of this project, oldest first, with its state in words."""
        from mudroom.vault.apply import ApplyDirectory

        words = {"prepare": "deferred", "ready": "interrupted", "undoing": "interrupted", "done": "applied"}
        found = []
        for path in self.vault.applies():
            place = ApplyDirectory(path)
            state = place.state()
            if state is not None:
                found.append({"apply": place.name, "state": words.get(state, state)})
        return found

    def diff(self, name: str, paths: Sequence[bytes] = ()) -> Iterator[bytes]:
        """What a fork would change as unified diff, line by line; only at and below ``paths`` if any are given."""
        from mudroom.stage.diff import diff

        changes = self.changes(name).changes
        chosen = [c for c in changes if not paths or any(is_below(c.path, path) for path in paths)]
        with OpenFork(self.vault, self.vault.fork(name)) as opened:
            yield from diff(opened.ground().read_original, opened.staged(), chosen)

    # --- landing ---

    def apply(self, name: str, paths: Sequence[bytes] = (), *, verify_fork: bool = True) -> Landed:
        """Apply a fork to the project, whole or only ``paths``. Conflicts are in what it returns, never raised.

        Hold the vault's lock. ``verify_fork``: False only if the lock has been held since the changes were collected.
        """
        from mudroom.vault.land import land

        progress = self._progress
        report = None if progress is None else lambda done, total: progress("applying", done, total)
        with self.at_rest(name) as fork:
            record = None if verify_fork else fork.record
            landed = land(self.vault, fork, time=self._clock(), paths=paths, record=record, progress=report)
        self._journal_applied("apply", name, landed.applied)
        return landed

    def undo(self, name: str | None = None) -> Applied:
        """Take an apply back: the one named, or the last. Hold the vault's lock."""
        from mudroom.vault.land import take_back

        applied = take_back(self.vault, name)
        self._journal_applied("undo", "", applied)
        return applied

    def recover(self) -> list[Recovered]:
        """Deal with what a killed mudroom left unfinished. Hold the vault's lock."""
        if not self.vault.has_unfinished():
            return []
        from mudroom.vault.land import recover_all

        found = recover_all(self.vault)
        for outcome in found:
            self._journal_applied("recover", outcome.fork, outcome.applied, outcome=outcome.outcome)
        return found

    def discard(self, name: str) -> None:
        self._desk.drop(name)
        self.vault.discard(self.vault.fork(name))
        self.vault.journal.append("discard", name, {}, time=self._clock())

    def _journal_applied(self, kind: str, fork: str, applied: Applied, **more: Any) -> None:
        if not applied.name:
            return
        data = {"apply": applied.name, "written": applied.written, "removed": applied.removed, **more}
        data["conflicts"] = len(applied.conflicts)
        self.vault.journal.append(kind, fork, data, time=self._clock())

    def _journal_run(self, result: Result) -> None:
        from mudroom.core.change import summarise
        from mudroom.core.result import text

        data = {
            "command": [text(word) for word in result.command],
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "duration_ms": round(result.duration * 1000),
            "changed": summarise(result.changeset.changes).files,
            "notes": list(result.notes),
        }
        self.vault.journal.append("run", result.fork, data, time=self._clock())
