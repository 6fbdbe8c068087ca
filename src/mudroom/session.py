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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.applying import Applying
from mudroom.confine import Confinement, Rlimits
from mudroom.core.change import Changeset
from mudroom.core.fallback import Mode
from mudroom.core.limit import Reached, Reading, difference, explain_limits, needed, reached, reached_else
from mudroom.core.path import show
from mudroom.core.plan import Plan, explain
from mudroom.core.result import Denial, Result
from mudroom.core.settings import Settings
from mudroom.core.spec import Copy
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.granting import PLAIN, Grant, granted
from mudroom.sandbox.capture import SIGTERM, Output, Watch, attend
from mudroom.sandbox.client import Client, Exit, Running, StepFailed
from mudroom.sandbox.denial import denials
from mudroom.stage.overlay import OverlayView
from mudroom.stage.preflight import check_project, find_project, foreign
from mudroom.stage.view import View
from mudroom.vault import stacking
from mudroom.vault.fork import Fork
from mudroom.vault.gather import Command, Progress, gather, keep_artifacts, stand_on_copy, view_of
from mudroom.vault.opened import OpenFork
from mudroom.vault.store import Vault, open_vault
from mudroom.vault.turn import LOOK

__all__ = ["CAPTURED", "Applied", "Client", "Conflicted", "Landed", "Session", "Stdio", "Verified", "find_project"]

if TYPE_CHECKING:
    from mudroom.core.card import AgentCard
    from mudroom.core.flow import Flow
    from mudroom.core.hosts import HostRule
    from mudroom.core.landing import Landing
    from mudroom.core.why import Why
    from mudroom.gateway import Approver, Doorkeeper, Gateway
    from mudroom.sandbox.cgroup import Leaf
    from mudroom.sandbox.limiter import Limiter
    from mudroom.sandbox.terminal import Relay
    from mudroom.stage.source import Source
    from mudroom.vault.apply import Applied
    from mudroom.vault.conflicted import Conflicted
    from mudroom.vault.land import Check, Landed, Verified


MOST_HELD = 64
"""Commands that are over, and whose mounts may not be gone yet."""


class Stdio(NamedTuple):
    """Descriptors for the command. None: captured (or, for stdin, empty)."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Those that are terminals stay with the caller: the command gets a pseudo-terminal of its own, or pipes, and what
    goes on there is relayed (``sandbox/terminal.py``). For the main thread: signals are heeded meanwhile."""


class Ran(NamedTuple):
    """A command that has ended."""

    view: View
    started: int
    """Nanoseconds, by the clock that file systems stamp with."""
    ended: Exit
    timed_out: bool
    output: Output
    reached: tuple[Reached, ...] = ()
    use: Reading | None = None
    flows: tuple[Flow, ...] = ()


def refused_hosts(flows: Sequence[Flow]) -> list[Denial]:
    """One for each host and port, however often it was tried."""
    times: dict[tuple[str, str], int] = {}
    for flow in flows:
        if flow.verdict == "deny":
            key = (f"{flow.host}:{flow.port}" if flow.port else flow.host, flow.reason)
            times[key] = times.get(key, 0) + 1
    return [Denial("network", host.encode(), reason, count) for (host, reason), count in times.items()]


def relay_for(stdio: Stdio) -> Relay | None:
    if not stdio.terminal:
        return None
    from mudroom.sandbox.terminal import Relay

    return Relay((stdio.stdin, stdio.stdout, stdio.stderr))


DEFAULTS = Settings()
CAPTURED = Stdio()


class Session(Applying):
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
        card: AgentCard | None = None,
        level: int | None = None,
        approver: Approver | None = None,
        rules: Callable[[], Sequence[HostRule]] = tuple,
        remember: Callable[[HostRule], None] = lambda _rule: None,
    ) -> None:
        """``card``: of the agent whose session this is. ``level``: asked for by the user; the policy decides.
        ``approver``: whom the gate asks about a host; None: what no rule allows is refused. ``rules``: those of the
        gate, asked for whenever a command first uses the network. ``remember``: keeps an answer that is to stay."""
        super().__init__(vault, settings, clock, progress)
        self.confinement = Confinement(vault, home, environ)
        self.card, self.level = card, level
        self._home = home
        self._grant = PLAIN
        self._new_id = new_id
        self._client = client
        self._owns_client = client is None
        self._running: Running | None = None
        self._looked = False
        self._limiter: Limiter | None = None
        self._gateway: Gateway | None = None
        self._gate_answers = (rules, remember, approver)
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
        super().close()
        self.confinement.close()
        if self._gateway is not None:
            self._gateway.close()
        if self._limiter is not None:
            self._limiter.close()
        for running in self._last.values():
            running.close()
        self._last.clear()
        if self._client is not None and self._owns_client:
            self._client.close()

    def _forget(self, name: str) -> None:
        super()._forget(name)
        running = self._last.pop(name, None)
        if running is not None:
            running.gone()

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
        self._grant = self.granted()
        place = self.new_fork("run-" + self._new_id(), named=False) if fork is None else self._fork_for_command(fork)
        try:
            return self._run(place, tuple(argv), cwd or self.project, stdio, timeout)
        except (CommandNotStarted, Unsupported, UsageError):
            if fork is None:
                self.vault.discard(place)
            raise

    def granted(self) -> Grant:
        """At which level the next command runs, and which credentials are open to it. Raises UsageError if the policy
        refuses, Unsupported if the machine cannot."""
        return granted(self.settings, self.card, self.level, self._home, self.confinement.variables)

    def interrupt(self) -> None:
        """Ask the running command to end (SIGTERM), from a signal handler or another thread."""
        if self._running is not None:
            self._running.signal(SIGTERM)

    def explain(self, cwd: bytes) -> list[str]:
        """What would be done to confine a command here, step by step. Nothing is run."""
        return [*explain(self._example(cwd)), *explain_limits(self.settings.limits)]

    def why_path(self, path: bytes) -> Why:
        """What a command of this session finds at an absolute path, and why."""
        from mudroom.core.why import Why, why_place

        self.look_for_secrets()
        inside = path[len(self.project) + 1 :]
        if path.startswith(self.project + b"/") and inside in self.vault.mask.paths:
            return Why(show(path), "empty", "it is a secret; secrets.show in the policy shows it", True)
        return why_place(self._example(self.project), path, show(path))

    def _example(self, cwd: bytes) -> Plan:
        mode: Mode = "copy" if self.settings.view == "copy" else "overlay"
        fork = Fork("example", self.vault.path + b"/forks/example", self.vault.path)
        here = fork.path + b"/upper"
        mount = OverlayView(self.project, (), here, fork.path + b"/work").mount()
        view = mount if mode == "overlay" else Copy(fork.copy_place + b"/work")
        private = fork.path + b"/private"
        return self.confinement.plan(view, mode, cwd, private, self.settings, grant=self.granted())[0]

    def _fork_for_command(self, name: str) -> Fork:
        try:
            return self.vault.fork(name)
        except UsageError:
            return self.new_fork(name)

    def _run(self, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None) -> Result:
        self._notes = []
        with self._locked(fork, show(b" ".join(argv))), self._turn():
            stacking.require_idle(fork)
            self._notes += self.look_for_secrets()
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            wall = time.monotonic()
            mode, notes = self.confinement.first_mode(self.settings, is_copy=fork.is_copy)
            self._notes += [*self._grant.notes, *notes, *self.confinement.missing_credentials(self.settings)]
            ran, changeset = self._launch(fork, mode, argv, cwd, stdio, timeout or self.settings.timeout)
            duration = time.monotonic() - wall
            self._desk.refresh(fork)
        result = self._result(fork, argv, ran, changeset, duration)
        self._journal_run(result)
        return result

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Side by side with other agents, unless the vault is ours alone."""
        if self._alone:
            yield
            return
        self.vault.turn.begin()
        try:
            yield
        finally:
            self.vault.turn.end()

    def _result(self, fork: Fork, argv: tuple[bytes, ...], ran: Ran, changeset: Changeset, duration: float) -> Result:
        ended, output = ran.ended, ran.output
        signal = ended.status & 0x7F
        return Result(
            fork.name,
            argv,
            self._grant.level,
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
            denials=(*denials(ended.refused), *refused_hosts(ran.flows)),
            reached=ran.reached,
            use=ran.use,
            notes=tuple(self._notes),
            credentials=self._grant.credentials,
        )

    def _launch(
        self, fork: Fork, mode: Mode, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None
    ) -> tuple[Ran, Changeset]:
        """Perform the plan; where a step is impossible here, the next weaker mode, announced in the notes."""
        while True:
            if mode != "overlay":
                self._notes += stand_on_copy(self.vault, fork, self.settings, self._progress)
            with OpenFork(self.vault, fork) as opened:
                view = view_of(self.vault, fork, opened, mode, self._progress)
                view.prepare()
                try:
                    ran = self._attempt(fork, view, mode, argv, cwd, stdio, timeout)
                except StepFailed as failure:
                    mode = self._weaker(mode, failure)
                    continue
                command = Command(argv, ran.ended.status, self._clock(), self._grant.level)
                changeset = gather(fork, opened, view, command, ran.started)
                if fork.has_copy:
                    keep_artifacts(fork, argv, {stream.name: stream.data for stream in ran.output.streams})
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
        stand_ins = self._hold_limits(mode)
        place = fork.path + b"/private"
        relay = relay_for(stdio)
        given = relay.descriptors if relay is not None else (stdio.stdin, stdio.stdout, stdio.stderr)
        gated, port = self._at_the_gate(fork, mode, relay)
        with gated as keeper, self._group(fork) as leaf, Output(*given, self.settings.output_limit) as output:
            plan, env = self.confinement.plan(
                view.mount(), mode, cwd, place, self.settings, stand_ins, self._grant, port
            )
            started = self._start_time()
            fork.begin(started)
            try:
                running = self._start(fork, plan, argv, env, output.descriptors, relay, leaf, keeper)
                meanwhile = functools.partial(self._meanwhile, fork, view)
                look = functools.partial(self.vault.turn.stand_aside, running.pause, running.resume)
                watch = None if self._alone else Watch(LOOK, look)
                ended, timed_out = attend(running, output, timeout, meanwhile, watch, keeper)
                done, use = self._reached(leaf, ended, timeout if timed_out else None, output)
                return Ran(view, started, ended, timed_out, output, done, use, self._flows(fork, keeper))
            except (StepFailed, CommandNotStarted):
                fork.end()
                raise
            finally:
                self._running = None
                self._desk.end_live(fork.name)
                if relay is not None:
                    relay.close()

    def _start(
        self,
        fork: Fork,
        plan: Plan,
        argv: tuple[bytes, ...],
        env: dict[bytes, bytes],
        descriptors: tuple[int, int, int],
        relay: Relay | None,
        leaf: Leaf | None,
        keeper: Doorkeeper | None,
    ) -> Running:
        """Start the command, after the last one of this fork has let go of its mount. File tools that are in use go
        through the new mount from here on."""
        before = self._last.pop(fork.name, None)
        if before is not None:
            before.gone()
        if len(self._last) >= MOST_HELD:
            self._let_go()
        edited = fork.name in self._desk
        numbers = relay.numbers if relay is not None else ()
        gate = keeper is not None and keeper.is_inside
        running = self.client.run(
            plan, argv, env, descriptors, want_view=edited, want_gate=gate, leaf=leaf, terminal=numbers
        )
        if keeper is not None:
            keeper.began(running)
        self._running = self._last[fork.name] = running
        if relay is not None:
            relay.began(running)
        if edited:
            self._desk.go_live(fork.name, running)
        return running

    def _at_the_gate(
        self, fork: Fork, mode: Mode, relay: Relay | None
    ) -> tuple[AbstractContextManager[Doorkeeper | None], int]:
        """Somebody beside the command who lets what it connects to come to the gate, if the policy has one; and the
        port of the host's loopback where that is, if it cannot be in a network of the command's own."""
        if self.settings.network != "gate" or (mode == "landlock" and self.confinement.host.landlock_abi < 4):
            return nullcontext(), 0
        if self._gateway is None:
            from mudroom.gateway import Gateway

            self._gateway = Gateway(*self._gate_answers)
        outside = mode == "landlock" or self._grant.level == 0
        keeper = self._gateway.keeper(fork.entrance, relay.hushed if relay is not None else nullcontext)
        return keeper, keeper.listen() if outside else 0

    def _flows(self, fork: Fork, keeper: Doorkeeper | None) -> tuple[Flow, ...]:
        """What the command has exchanged with the network, all of it, in the journal, too."""
        if keeper is None:
            return ()
        keeper.close()
        self._notes += keeper.notes
        if not keeper.flows:
            return ()
        from mudroom.core.flow import flow_to_json

        for flow in keeper.flows:
            self.vault.journal.append("flow", fork.name, flow_to_json(flow), time=flow.started)
        return tuple(keeper.flows)

    def _let_go(self) -> None:
        """Of commands that are over: each holds a descriptor until the next one in its fork."""
        for name, running in list(self._last.items()):
            if running.is_over and self._last.pop(name, None) is not None:
                running.gone()

    def _hold_limits(self, mode: Mode) -> Rlimits:
        """Find out what holds the limits here, and return the rlimits among it. Raises Unsupported."""
        if not needed(self.settings.limits):
            return ()
        if self._limiter is None:
            from mudroom.sandbox.limiter import Limiter

            vault = os.fsdecode(self.vault.path.rpartition(b"-")[2])
            places = (self.project, self.vault.path)
            self._limiter = Limiter(vault, self.client.settle, self.confinement.variables, places)
        counts_processes = mode != "landlock" and os.geteuid() != 0
        held = self._limiter.hold(self.settings.limits, counts_processes=counts_processes)
        self._notes += [note for note in held.notes if note not in self._notes]
        return held.rlimits

    @contextmanager
    def _group(self, fork: Fork) -> Iterator[Leaf | None]:
        """The control group of the next command, if its limits need one; afterwards all that is left in it ends."""
        leaf = self._limiter.leaf() if self._limiter is not None else None
        try:
            yield leaf
        finally:
            if leaf is not None:
                if fork.name in self._last:
                    self._last[fork.name].gone()
                leaf.close()

    def _reached(
        self, leaf: Leaf | None, ended: Exit, out_of: float | None, output: Output
    ) -> tuple[tuple[Reached, ...], Reading | None]:
        limits, signal = self.settings.limits, ended.status & 0x7F
        cut = self.settings.output_limit if any(stream.truncated for stream in output.streams) else None
        others = reached_else(limits, signal, out_of, cut)
        if leaf is None:
            return others, None
        use, (before, now) = leaf.reading(), leaf.totals()
        return (*reached(limits, use, difference(now, before)), *others), use

    def _weaker(self, mode: Mode, failure: StepFailed) -> Mode:
        following, lost = self.confinement.weaker(mode, failure, self.settings, self._grant.level)
        self._notes.append(lost)
        self.vault.journal.append("degrade", "", {"to": following, "why": failure.message}, time=self._clock())
        return following

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

    def _check(self) -> Check | None:
        settings = self.settings
        if not settings.verify or settings.verify_when == "never":
            return None
        from mudroom.vault.land import Verified
        from mudroom.vault.rehearse import rehearse

        def check(landing: Landing, staged: Source, merged: bytes) -> Verified | None:
            if settings.verify_when == "merged" and not landing.differing:
                return None
            fork = self.new_fork(f"verify-{self._new_id()}", named=False).name
            try:
                self.look_for_secrets()
                rehearse(self._desk.tree(fork), landing, staged, merged)
                result = self.run(settings.verify, fork=fork, timeout=settings.verify_timeout)
                output = result.stdout + result.stderr
                return Verified(settings.verify, result.exit_code, output, result.timed_out)
            finally:
                self.discard(fork)

        return check

    def _journal_run(self, result: Result) -> None:
        from mudroom.core.change import summarise
        from mudroom.core.result import denial_to_json, text

        data = {
            "command": [text(word) for word in result.command],
            "level": result.level,
            "credentials": list(result.credentials),
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "duration_ms": round(result.duration * 1000),
            "changed": summarise(result.changeset.changes).files,
            "notes": list(result.notes),
            "denials": [denial_to_json(denial) for denial in result.denials],
        }
        self.vault.journal.append("run", result.fork, data, time=self._clock())
