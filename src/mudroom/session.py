"""One actor's work on one project: fork + view + sandbox + vault, put together. The only file that knows every room.

    with Session.open("/path/to/project", state=…, home=…, environ=os.environb) as session:
        result = session.run([b"npm", b"install"])
        print(result.changeset)
        session.apply(result.fork)

What happens at a ``run``, in order: a fork, its view made ready, spec → plan → launcher, wait, collect the changes,
record them, journal. Nothing reaches the project before ``apply``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.background import Background
from mudroom.core.confinement.fallback import ELSEWHERE, Mode
from mudroom.core.confinement.limit import explain_limits
from mudroom.core.confinement.plan import Plan, explain
from mudroom.core.confinement.spec import Copy
from mudroom.core.result import REFUSED, Denial, Result
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.deciding import Case
from mudroom.errors import UsageError
from mudroom.granting import engine_of
from mudroom.inspecting import Inspecting
from mudroom.sandbox.client.capture import SIGTERM
from mudroom.sandbox.client.client import Client, StepFailed
from mudroom.sandbox.host.denials import denials
from mudroom.sandbox.platform import LINUX, Platform, platform_here
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.preflight import check_project, find_project, policy_above
from mudroom.starting import Ran, Stdio
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import CollectedCommand, Progress, gather, keep_artifacts, stand_on_copy, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault, open_vault

__all__ = [
    "CAPTURED",
    "ApplyResult",
    "Background",
    "Client",
    "ForkConflict",
    "LandingResult",
    "Session",
    "Stdio",
    "StreamPart",
    "Used",
    "Verification",
    "find_project",
    "policy_above",
]

if TYPE_CHECKING:
    from mudroom.applying import OnVerify
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.approval.approval import CommandApprover, Remember
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.confinement.container_report import ContainerReport
    from mudroom.core.confinement.why import AccessReason
    from mudroom.core.merge.operations import Landing
    from mudroom.core.network.flow import Flow
    from mudroom.core.network.host_rules import HostRule
    from mudroom.gateway import Approver
    from mudroom.sandbox.host.processes import ProcessUsage as Used
    from mudroom.stage.source import Source
    from mudroom.tending import Tended
    from mudroom.vault.apply.conflict import ForkConflict
    from mudroom.vault.apply.landing import Check, LandingResult, Verification
    from mudroom.vault.apply.transaction import ApplyResult
    from mudroom.vault.forks.background import StreamPart
    from mudroom.visits import Visit


def refused_hosts(flows: Sequence[Flow]) -> list[Denial]:
    """One for each host and port, however often it was tried."""
    times: dict[tuple[str, str], int] = {}
    for flow in flows:
        if flow.verdict == "deny":
            key = (f"{flow.host}:{flow.port}" if flow.port else flow.host, flow.reason)
            times[key] = times.get(key, 0) + 1
    return [Denial("network", host.encode(), reason, count) for (host, reason), count in times.items()]


DEFAULTS = Settings()
CAPTURED = Stdio()


class Session(Inspecting):
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
        agent: str | None = None,
        commands: Callable[[], CommandPolicy] | None = None,
        ask_about: CommandApprover | None = None,
        remember_command: Remember | None = None,
        platform: Platform = LINUX,
    ) -> None:
        """``card``: of the agent whose session this is. ``level``: asked for by the user; the policy decides.
        ``approver``: whom the gate asks about a host; None: what no rule allows is refused. ``rules``: those of the
        gate, asked for whenever a command first uses the network. ``remember``: keeps an answer that is to stay.

        ``agent``: whose commands these are; they are judged by ``commands`` (None: those of the settings), and
        ``ask_about`` is asked about what has to be approved (None: it is refused). Without one, and without a card,
        they are the user's own, and nobody judges them. ``remember_command``: keeps a rule, as the file has it."""
        super().__init__(
            vault,
            home=home,
            environ=environ,
            settings=settings,
            client=client,
            clock=clock,
            progress=progress,
            approver=approver,
            rules=rules,
            remember=remember,
            platform=platform,
        )
        self.card, self.level = card, level
        self.agent = agent or (card.agent if card is not None else None)
        self._policy = commands or (lambda: self.settings.commands)
        self._ask_about, self._remember_command = ask_about, remember_command
        self._home = home
        self._new_id = new_id

    @classmethod
    def open(
        cls, project: bytes, *, state: bytes, home: bytes, environ: Mapping[bytes, bytes], **options: Any
    ) -> Session:
        """A session on ``project``, a directory. Raises UsageError if it cannot be staged, Unsupported on a platform
        without a sandbox."""
        platform: Platform = options.get("platform") or platform_here(sys.platform)
        options["platform"] = platform
        real, real_home, real_state = (platform.real_path(path) for path in (project, home, state))
        if real_home == b"/":  # a service account without a home: the private one still has to be somewhere
            real_home = b"/home/nobody"
        check_project(real, real_home, real_state)
        return cls(open_vault(real_state, real), home=real_home, environ=environ, **options)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

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
        command, where = tuple(argv), cwd or self.project
        case = self._case(command, where)
        if case.verdict.action == "deny":
            return self._refused(fork or "", command, where, case)
        place, is_new = self._place(fork)
        try:
            if case.verdict.action == "require_approval":
                case = self._asked(place, fork or "", command, where)
            if case.allowed:
                result = self._run(place, command, where, stdio, timeout, case)
                if result is not None:
                    return result
                case = case.changed()
        except BaseException:
            if is_new and fork is None:
                self._take_back_unused(place)
            raise
        if is_new:
            self._take_back(place)
        return self._refused(fork or "", command, where, case)

    def interrupt(self, number: int = SIGTERM) -> bool:
        """Send the running command a signal (SIGTERM: ask it to end; SIGKILL: end all of it), from a signal handler or
        another thread. False: no command is running."""
        running = self._running
        if running is not None:
            running.signal(number)
        return running is not None

    @property
    def has_run(self) -> bool:
        """Whether a command has been started."""
        return bool(self._last or self._tended)

    def explain(self, cwd: bytes) -> list[str]:
        """What would be done to confine a command here, step by step. Nothing is run. Raises Unsupported for what this
        machine cannot give, as ``run`` does."""
        lines: list[str] = self.explained(cwd)["lines"]
        return lines

    def explained(self, cwd: bytes) -> dict[str, Any]:
        """The same as JSON has it: the level, the mode, the container if there is one, and the lines."""
        around = self._surroundings()
        mode, container, lines = self._example_mode(around), None, list[str]()
        if around is not None:
            from mudroom.core.confinement.container_report import as_json, explain_container

            container, lines = as_json(around), list(explain_container(around, mode))
        lines += [*explain(self._example(cwd)), *explain_limits(self.settings.limits)]
        return {"level": self.granted().level, "mode": mode, "container": container, "lines": lines}

    def _surroundings(self) -> ContainerReport | None:
        """The container that a command would get, as far as that is known without starting one."""
        grant = self.granted()
        if grant.level != 2:
            return None
        from mudroom.core.confinement.container import user_of
        from mudroom.core.confinement.container_report import ContainerReport
        from mudroom.sandbox.container.engine import current
        from mudroom.sandbox.container.trial import recall

        environ, state = self.confinement.variables, os.path.dirname(os.path.dirname(self.vault.path))
        engine = current(environ, engine_of(self.settings))
        known = engine if engine.remote else recall(engine, environ, state)
        user, _group = user_of(os.geteuid(), os.getegid())
        return ContainerReport(known or engine, user, grant.image, known is not None)

    def _example_mode(self, around: ContainerReport | None) -> Mode:
        if around is None:
            first = self.confinement.platform.first
            return "copy" if self.settings.view == "copy" and first not in ELSEWHERE else first
        if around.engine.remote:
            return "remote"
        if not around.engine.nested:
            return "plain"
        return self.confinement.first_mode(self.settings, is_copy=False, level=2)[0]

    def why_path(self, path: bytes) -> AccessReason:
        """What a command of this session finds at an absolute path, and why."""
        from mudroom.core.confinement.why import AccessReason, why_place

        self.look_for_secrets()
        inside = path[len(self.project) + 1 :]
        if path.startswith(self.project + b"/") and inside in self.vault.mask.paths:
            return AccessReason(show(path), "empty", "it is a secret; secrets.show in the policy shows it", True)
        return why_place(self._example(self.project), path, show(path))

    def _example(self, cwd: bytes) -> Plan:
        mode = self._example_mode(self._surroundings())
        fork = Fork("example", self.vault.path + b"/forks/example", self.vault.path)
        here = fork.path + b"/upper"
        mount = OverlayView(self.project, (), here, fork.path + b"/work").mount()
        view = mount if mode == "overlay" else Copy(fork.copy_place + b"/work")
        private = fork.path + b"/private"
        return self.confinement.plan(view, mode, cwd, private, self.settings, grant=self.granted())[0]

    def _run(
        self, fork: Fork, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None, case: Case
    ) -> Result | None:
        """None: it is not what was approved any more."""
        with self._beside(fork) as beside:
            if beside is not None:
                return self._run_within(beside, fork, argv, cwd, stdio, timeout or self.settings.timeout, case)
        self._notes = []
        point = None
        with self._locked(fork, show(b" ".join(argv))), self._turn():
            stacking.require_idle(fork)
            self._notes += self.look_for_secrets()
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            if not self._is_unchanged(case, fork):
                return None
            if case.verdict.action != "allow":
                point = self._checkpoint_before(fork, argv)
            wall = time.monotonic()
            mode, notes = self._first_mode(fork)
            self._notes += [*self._grant.notes, *notes, *self.confinement.missing_credentials(self.settings)]
            fork.note_credentials(self._grant.credentials)
            ran, changeset = self._launch(fork, mode, argv, cwd, stdio, timeout or self.settings.timeout)
            duration = time.monotonic() - wall
            self._desk.refresh(fork)
        result = self._result(fork, argv, ran, changeset, duration, self._told(case, argv, cwd), point)
        self._journal_run(result, cwd)
        return result

    def _run_within(
        self,
        beside: Tended | Visit,
        fork: Fork,
        argv: tuple[bytes, ...],
        cwd: bytes,
        stdio: Stdio,
        timeout: float | None,
        case: Case,
    ) -> Result | None:
        """In the sandbox that the fork has."""
        self._notes = []
        self._require_same(beside)  # before a checkpoint is made for it
        if not self._is_unchanged(case, fork):
            return None
        point = self._checkpoint_beside(beside, fork, argv) if case.verdict.action != "allow" else None
        wall = time.monotonic()
        ran, changeset = self._run_beside(beside, fork, argv, cwd, stdio, timeout)
        result = self._result(fork, argv, ran, changeset, time.monotonic() - wall, self._told(case, argv, cwd), point)
        self._journal_run(result, cwd)
        return result

    def _refused(self, fork: str, argv: tuple[bytes, ...], cwd: bytes, case: Case) -> Result:
        """Nothing has run."""
        result = Result(
            fork,
            argv,
            self._grant.level,
            REFUSED,
            None,
            False,
            0.0,
            Changeset(),
            case.final,
            approval=case.answer,
            ran=False,
        )
        self._journal_run(result, cwd, "verdict")
        return result

    def _result(
        self,
        fork: Fork,
        argv: tuple[bytes, ...],
        ran: Ran,
        changeset: Changeset,
        duration: float,
        case: Case,
        point: str | None,
    ) -> Result:
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
            verdict=case.final,
            checkpoint=point,
            approval=case.answer,
        )

    def _launch(
        self, fork: Fork, mode: Mode, argv: tuple[bytes, ...], cwd: bytes, stdio: Stdio, timeout: float | None
    ) -> tuple[Ran, Changeset]:
        """Perform the plan; where a step is impossible here, the next weaker mode, announced in the notes."""
        while True:
            if mode != "overlay":
                self._notes += stand_on_copy(self.vault, fork, self.settings, self._progress)
            with OpenFork(self.vault, fork) as opened:
                view = view_of(self.vault, fork, opened, mode, self._progress, level=self._grant.level)
                view.prepare()
                try:
                    ran = self._attempt(fork, view, mode, argv, cwd, stdio, timeout)
                except StepFailed as failure:
                    mode = self._weaker(mode, failure)
                    continue
                command = CollectedCommand(argv, ran.ended.status, self._clock(), self._grant.level)
                changeset = gather(fork, opened, view, command, ran.started)
                if fork.has_copy:
                    keep_artifacts(fork, argv, {stream.name: stream.data for stream in ran.output.streams})
                fork.end()
            if self._merged is not None:
                from mudroom.vault.forks.flatten import stand_on

                stand_on(fork, self._merged)
                self._merged = None
            return ran, changeset

    def _check(self, on_verify: OnVerify | None = None) -> Check | None:
        settings = self.policy or self.settings
        if not settings.verify or settings.verify_when == "never":
            return None
        from mudroom.vault.apply.landing import Verification
        from mudroom.vault.apply.rehearsal import rehearse

        def check(landing: Landing, staged: Source, merged: bytes) -> Verification | None:
            if settings.verify_when == "merged" and not landing.differing:
                return None
            fork = self.new_fork(f"verify-{self._new_id()}", named=False).name
            try:
                with self._as_policy_says():
                    self.look_for_secrets()
                    rehearse(self._desk.tree(fork), landing, staged, merged)
                    told = on_verify(settings.verify) if on_verify is not None else None
                    stdio = CAPTURED if told is None else Stdio(on_output=lambda _name, data: told(data))
                    result = self.run(settings.verify, fork=fork, stdio=stdio, timeout=settings.verify_timeout)
                output = result.stdout + result.stderr
                return Verification(settings.verify, result.exit_code, output, result.timed_out)
            finally:
                self.discard(fork)

        return check

    @contextmanager
    def _as_policy_says(self) -> Iterator[None]:
        """What the user has opened to one command, by a command line or a card, is not open to what verifies its work;
        and that is isolated, for it may have been written by the same."""
        before = self.settings, self.level, self.card
        settings = self.policy or self.settings
        self.settings, self.level, self.card = settings, max(self.level or 1, 1), None
        try:
            yield
        finally:
            self.settings, self.level, self.card = before
            if settings is not before[0]:
                self.look_for_secrets()

    def _journal_run(self, result: Result, cwd: bytes, kind: str = "run") -> None:
        from mudroom.core.result import denial_to_json, text, verdict_to_json
        from mudroom.core.tree.change import summarise

        data = {
            "command": [text(word) for word in result.command],
            "cwd": text(cwd),
            "agent": self.agent,
            "verdict": verdict_to_json(result.verdict),
            "checkpoint": result.checkpoint,
            "level": result.level,
            "credentials": list(result.credentials),
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "duration_ms": round(result.duration * 1000),
            "changed": summarise(result.changeset.changes).files,
            "notes": list(result.notes),
            "denials": [denial_to_json(denial) for denial in result.denials],
        }
        self._write_down(kind, result.fork, data, result.exit_code)
