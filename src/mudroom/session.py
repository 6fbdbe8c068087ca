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
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.change import Changeset
from mudroom.core.entry import Entry
from mudroom.core.environment import select
from mudroom.core.fallback import AFTER, Mode
from mudroom.core.path import is_below, show
from mudroom.core.plan import Plan, explain
from mudroom.core.result import Denial, Result
from mudroom.core.settings import Settings
from mudroom.core.spec import Bind, SandboxSpec
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.sandbox.capture import SIGTERM, Output, attend
from mudroom.sandbox.client import Client, Exit, Running, StepFailed
from mudroom.sandbox.host import Host, survey, umask, without
from mudroom.sandbox.linux import compile_plan
from mudroom.stage.overlay import OverlayView, private_directories
from mudroom.stage.preflight import check_project, filesystem, find_project, foreign, mounts, submounts
from mudroom.vault.store import Fork, Vault, open_vault

__all__ = ["CAPTURED", "Client", "Landed", "Session", "Stdio", "find_project"]

if TYPE_CHECKING:
    from mudroom.stage.copy import CopyView
    from mudroom.vault.apply import Applied, Recovered
    from mudroom.vault.land import Landed
    from mudroom.vault.record import ForkRecord

_CLOCK_REALTIME_COARSE = 5
"""The clock that file systems stamp with: linux/time.h, ktime_get_coarse_real_ts64. Python has no name for it."""

_CACHES = (b".cache", b".npm")
"""Below the home: kept per vault, so that a second install is fast."""

Progress = Callable[[str, int, int], None]
"""What is going on, how much of it is done, out of how much."""


class Stdio(NamedTuple):
    """Descriptors for the command. None: captured (or, for stdin, empty)."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """The command stays in the caller's session and terminal, for job control and Ctrl-C."""


class Ran(NamedTuple):
    """A command that has ended."""

    view: OverlayView | CopyView
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
        self._home = home
        self._environ = environ
        self._clock = clock
        self._new_id = new_id
        self._progress = progress
        self._client = client
        self._owns_client = client is None
        self._host: Host | None = None
        self._mode: Mode = "overlay"
        self._notes: list[str] = []
        self._running: Running | None = None
        self._looked = False
        self._collected: dict[str, ForkRecord] = {}
        self._umask = umask()

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
        place = self.vault.new_fork("run-" + self._new_id()) if fork is None else self._fork_for_command(fork)
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
        fork = Fork("example", self.vault.path + b"/forks/example")
        plan, _env = self._plan(fork, self._view(fork, mode), mode, cwd)
        return list(explain(plan))

    def _fork_for_command(self, name: str) -> Fork:
        try:
            return self.vault.fork(name)
        except UsageError:
            return self.vault.new_fork(name)

    def _run(self, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None) -> Result:
        self._notes = []
        known = self._known(fork)
        wall = time.monotonic()
        ran = self._launch(fork, argv, cwd, stdio, timeout or self.settings.timeout)
        duration = time.monotonic() - wall
        ended, output = ran.ended, ran.output
        changeset = self._collect(fork, ran.view, argv, ran.started, known, ended)
        signal = ended.status & 0x7F
        result = Result(
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
        self._journal_run(result)
        return result

    def _launch(self, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None) -> Ran:
        """Perform the plan; where a step is impossible here, the next weaker mode, announced in the notes."""
        mode: Mode = self._first_mode(fork)
        while True:
            view = self._view(fork, mode)
            view.prepare(frozenset(self.settings.copy_exclude))
            plan, env = self._plan(fork, view, mode, cwd)
            with Output(stdio.stdin, stdio.stdout, stdio.stderr, self.settings.output_limit) as output:
                started = self._start_time()
                try:
                    running = self.client.run(plan, argv, env, output.descriptors, new_session=not stdio.terminal)
                    self._running = running
                    meanwhile = functools.partial(self._meanwhile, view)
                    ended, timed_out = attend(running, output, timeout, meanwhile)
                    return Ran(view, started, ended, timed_out, output)
                except StepFailed as failure:
                    mode = self._weaker(mode, failure)
                finally:
                    self._running = None

    def _start_time(self) -> int:
        """Now, by the clock of the file systems, and later than the last apply: what that wrote is no edit of the
        user's. Right after one, wait for the next tick of that clock (at most 4 ms)."""
        applied = os.stat(self.vault.path + b"/applies").st_mtime_ns
        while (now := time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)) <= applied:
            pass
        return now

    def _first_mode(self, fork: Fork) -> Mode:
        if self._mode == "landlock":
            return "landlock"
        if fork.is_copy or self.settings.view == "copy":
            return "copy"
        inside = submounts(self.project, mounts())
        if inside and self.settings.view == "auto":
            self._notes.append(
                f"{show(inside[0].path)} is mounted inside the project, which no overlay can span: working in a copy"
            )
            return "copy"
        return self._mode

    def _weaker(self, mode: Mode, failure: StepFailed) -> Mode:
        following = AFTER.get((mode, failure.op))
        if following is None:
            raise failure
        if self.settings.view == "overlay" and mode == "overlay":
            raise Unsupported("the overlay view", "a kernel overlay in a user namespace", failure.message)
        where = ""
        if following.mode == "copy":
            where = f" (on {filesystem(self.project, mounts()) or 'this file system'})"
        if following.mode == "landlock" and not self.host.landlock_abi:
            raise Unsupported(
                "a sandbox",
                "user namespaces, or Landlock in the kernel",
                failure.message,
                "permit one of them; mudroom doctor says how",
            )
        self._notes.append(following.lost + where)
        self.vault.journal.append("degrade", "", {"to": following.mode, "why": failure.message}, time=self._clock())
        self._mode = following.mode
        return following.mode

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client()
            self._client.start()
        return self._client

    @property
    def host(self) -> Host:
        if self._host is None:
            search = self._environ.get(b"PATH", b"/usr/bin:/bin").split(b":")
            self._host = survey(self._home, [entry for entry in search if entry.startswith(b"/")])
        return self._host

    def _view(self, fork: Fork, mode: Mode) -> OverlayView | CopyView:
        if mode == "overlay":
            return OverlayView(self.project, fork.path)
        from mudroom.stage.copy import CopyView

        progress = self._progress
        report = None if progress is None else lambda done, total: progress("copying the project", done, total)
        view = CopyView(self.project, fork.path, limit=self.settings.copy_limit, progress=report)
        record = self._record(fork)
        if record is not None:
            view.manifest = record.manifest
        return view

    def _plan(
        self, fork: Fork, view: OverlayView | CopyView, mode: Mode, cwd: bytes
    ) -> tuple[Plan, dict[bytes, bytes]]:
        host, scratch = self.host, self.vault.scratch
        confined = mode == "landlock"
        home, tmp = self._home, b"/tmp"
        if confined:
            scratch = fork.path + b"/private"
            home, tmp = private_directories(scratch)
            cwd = view.content + cwd[len(self.project) :]
        env = select(
            self._environ,
            home=home,
            cwd=cwd,
            network=self.settings.network != "none",
            extra=self.settings.environment,
        )
        env[b"TMPDIR"] = tmp
        spec = SandboxSpec(
            project=self.project,
            view=view.mount(),
            cwd=cwd,
            home=home,
            scratch=scratch,
            namespaces=not confined,
            network=self.settings.network,
            links=host.links,
            binds=self._binds(host, confined),
            masks=host.masks,
            devices=host.devices,
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            umask=self._umask,
        )
        try:
            return compile_plan(spec, host.machine), env
        except ValueError as error:
            raise Unsupported("a system call filter", "x86_64 or aarch64", str(error)) from error

    def _binds(self, host: Host, confined: bool) -> tuple[Bind, ...]:
        system = without(host.system, host.masks) if confined else host.system
        binds = [*system, *host.home, *(Bind(path, path) for path in self.settings.read)]
        if not confined:
            for name in _CACHES:
                cache = self.vault.cache + b"/" + name.lstrip(b".")
                os.makedirs(cache, mode=0o700, exist_ok=True)
                binds.append(Bind(cache, self._home + b"/" + name, writable=True))
        own = self.project + b"/.mudroom"
        if os.path.isdir(own) and not os.path.islink(own):
            binds.append(Bind(own, own))
        return tuple(bind for bind in binds if not is_below(self.vault.path, bind.path))

    def _meanwhile(self, view: OverlayView | CopyView) -> None:
        """While the command runs: load what collecting needs, clean up after the command before this one, and look
        for what the overlay could not change."""
        import mudroom.stage.collect
        import mudroom.vault.journal  # noqa: F401 - both loaded for later

        if isinstance(view, OverlayView):
            view.tidy()
        if os.geteuid() and not self._looked and isinstance(view, OverlayView):
            self._looked = True
            found = next(foreign(self.project, os.geteuid(), [os.getegid()]), None)
            if found is not None:
                self._notes.append(
                    f"{show(found)} belongs to another user or group: the command cannot change it in the staged view "
                    "(--view copy can)"
                )

    # --- collecting ---

    def _collect(
        self,
        fork: Fork,
        view: OverlayView | CopyView,
        argv: tuple[bytes, ...],
        started: int,
        known: Mapping[bytes, Entry | None],
        ended: Exit,
    ) -> Changeset:
        from mudroom.stage.collect import collect

        changeset = collect(view, self.project, started, known)
        if changeset.changes or changeset.remarks or fork.is_copy:
            from mudroom.vault.record import FORMAT, ForkRecord, save

            manifest = None if isinstance(view, OverlayView) else view.manifest
            record = ForkRecord(FORMAT, fork.name, view.kind, argv, self._clock(), ended.status, changeset, manifest)
            save(fork.record_path, record, durable=False)
            self._collected = {fork.name: record}
        elif os.path.exists(fork.record_path):
            os.unlink(fork.record_path)
        return changeset

    def _known(self, fork: Fork) -> dict[bytes, Entry | None]:
        """The originals of what earlier commands of this fork changed."""
        record = self._record(fork)
        return {} if record is None else {change.path: change.base for change in record.changeset.changes}

    def _record(self, fork: Fork) -> ForkRecord | None:
        if not os.path.exists(fork.record_path):
            return None
        from mudroom.vault.record import ForkRecord, load

        return load(fork.record_path, ForkRecord)

    def changes(self, name: str) -> Changeset:
        """What a fork holds, as of its last command. One that was cut off in the middle of it is looked at now."""
        fork = self.vault.fork(name)
        record = self._record(fork)
        if record is not None:
            return record.changeset
        if not os.path.isdir(fork.path + b"/upper"):
            return Changeset()
        created = os.stat(fork.path).st_ctime_ns  # of its last subdirectory, made just before the command started
        return self._collect(fork, self._view(fork, "overlay"), (), created, {}, Exit(9, 0.0, 0.0, 0))

    def record(self, name: str) -> ForkRecord | None:
        """What is written down of a fork; None in the middle of its first command."""
        return self._record(self.vault.fork(name))

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
        return diff(self.project, self.content(name), chosen)

    def content(self, name: str) -> bytes:
        """The directory in which the staged files of a fork lie at their own paths."""
        fork = self.vault.fork(name)
        return fork.path + (b"/copy" if fork.is_copy else b"/upper")

    # --- landing ---

    def apply(self, name: str, paths: Sequence[bytes] = (), *, verify_fork: bool = True) -> Landed:
        """Apply a fork to the project, whole or only ``paths``. Conflicts are in what it returns, never raised.

        Hold the vault's lock. ``verify_fork``: False only if the lock has been held since the changes were collected.
        """
        from mudroom.vault.land import land

        progress = self._progress
        report = None if progress is None else lambda done, total: progress("applying", done, total)
        landed = land(
            self.vault,
            self.vault.fork(name),
            time=self._clock(),
            paths=paths,
            record=None if verify_fork else self._collected.get(name),
            progress=report,
        )
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
