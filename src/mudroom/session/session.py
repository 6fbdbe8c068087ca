"""One actor's work on one project: an actor and five parts, put together.

    with Session.open("/path/to/project", state=…, home=…, environ=os.environb) as session:
        result = session.run([b"npm", b"install"])
        print(result.changeset)
        session.changes.apply(result.fork)

The way of a command is in ``run.py``. Nothing reaches the project before ``session.changes.apply``. Several threads may
use a session at once: what belongs to one command is a value (``actor.py``, ``order.py``), and each part says which
lock guards what it keeps.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.capture import SIGTERM
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.platform import LINUX, Platform, platform_here
from mudroom.session.actor import Actor
from mudroom.session.approval import Approval
from mudroom.session.confinement.grant import Grant, engine_of
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import CAPTURED, Order, Stdio
from mudroom.session.retention import tidy
from mudroom.session.run import Parts, run
from mudroom.session.sandboxes import Sandboxes
from mudroom.stage.views.preflight import check_project
from mudroom.vault.forks.collection import Progress
from mudroom.vault.store.store import Vault, open_vault

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.approval.approval import CommandApprover, Remember
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.confinement.access_reason import AccessReason
    from mudroom.core.fork_report import ForkReport, PreparedFork
    from mudroom.core.network.host_rules import HostRule
    from mudroom.session.background import Background
    from mudroom.session.changes import Changes
    from mudroom.session.confinement.gateway import Approver
    from mudroom.vault.apply.transaction import Recovery

DEFAULTS = Settings()


def require_project(
    project: bytes, state: bytes, home: bytes, platform: Platform | None = None
) -> tuple[bytes, bytes, bytes]:
    """Return the real paths of the project, the home and the state directory. Raise UsageError if the project cannot be
    staged, Unsupported on a platform without a sandbox."""
    here = platform or platform_here(sys.platform)
    real, real_home, real_state = (here.real_path(path) for path in (project, home, state))
    if real_home == b"/":  # a service account without a home: the private one still has to be somewhere
        real_home = b"/home/nobody"
    check_project(real, real_home, real_state)
    return real, real_home, real_state


class Session:
    """``machine``, ``forks``, ``changes``, ``approval`` and ``sandboxes`` are never rebound."""

    def __init__(
        self,
        vault: Vault,
        *,
        home: bytes,
        environ: Mapping[bytes, bytes],
        settings: Settings = DEFAULTS,
        policy: Settings | None = None,
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
        """``policy``: what the policy files say, if a command line has added to that in ``settings``. ``card``: of the
        agent whose session this is. ``level``: asked for by the user; the policy decides. ``approver``, ``rules``,
        ``remember``: of the gate (``Machine``).

        ``agent``: whose commands these are; they are judged by ``commands`` (None: those of the settings), and
        ``ask_about`` is asked about what has to be approved (None: it is refused). Without one, and without a card,
        they are the user's own, and nobody judges them. ``remember_command``: keeps a rule, as the file has it."""
        agent = agent or (card.agent if card is not None else None)
        actor = Actor(settings, settings if policy is None else policy, card, level, agent)
        self.machine = Machine(
            vault,
            home=home,
            environ=environ,
            platform=platform,
            client=client,
            clock=clock,
            engine=engine_of(settings),
            rules=rules,
            remember=remember,
            approver=approver,
        )
        self.forks = Forks(vault, settings, clock=clock, new_id=new_id, progress=progress, forget=self.machine.forget)
        self.approval = Approval(
            actor, self.machine, self.forks, commands=commands, ask_about=ask_about, remember=remember_command
        )
        self.sandboxes = Sandboxes(self.machine, self.forks)

    @functools.cached_property
    def changes(self) -> Changes:
        """Loaded at first use: a command that changes nothing needs none of it. It holds nothing that is its own, so
        two threads may make it at once."""
        from mudroom.session.changes import Changes
        from mudroom.session.verification import verification

        return Changes(self.forks, verification(self.forks, self.actor, self._run_as))

    @classmethod
    def open(
        cls, project: bytes, *, state: bytes, home: bytes, environ: Mapping[bytes, bytes], **options: Any
    ) -> Session:
        """Open a session on ``project``, a directory. Raise UsageError if it cannot be staged, Unsupported on a
        platform without a sandbox."""
        options["platform"] = options.get("platform") or platform_here(sys.platform)
        real, real_home, real_state = require_project(project, state, home, options["platform"])
        return cls(open_vault(real_state, real), home=real_home, environ=environ, **options)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs in the background, bring what file tools have written into its forks, let go of everything."""
        self.sandboxes.close()
        self.forks.close()
        self.machine.close()

    @property
    def vault(self) -> Vault:
        return self.forks.vault

    @property
    def project(self) -> bytes:
        return self.forks.vault.project

    @property
    def actor(self) -> Actor:
        """On whose behalf commands run that name no other actor."""
        return self.approval.actor

    # --- running ---

    def run(
        self,
        argv: Sequence[bytes],
        *,
        fork: str | None = None,
        cwd: bytes | None = None,
        stdio: Stdio = CAPTURED,
        timeout: float | None = None,
        actor: Actor | None = None,
    ) -> Result:
        """Run a command in a fork (a new one if none is named) and return what it changed. ``actor``: on whose behalf;
        None: the session's own.

        A command that fails is a result. Raise CommandNotStarted if there is no such program, Unsupported if this
        machine can confine nothing at all, MudroomError if mudroom itself fails; the project is untouched in any case.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom run -- COMMAND")
        return run(self._parts(), self._order(argv, fork, cwd, timeout, actor)._replace(stdio=stdio))

    def start(
        self,
        argv: Sequence[bytes],
        *,
        fork: str | None = None,
        cwd: bytes | None = None,
        timeout: float | None = None,
        actor: Actor | None = None,
    ) -> Background:
        """Start a command in the background of a fork (a new one if none is named). Until it ends, every other command
        of this fork is run beside it, in the same sandbox; it ends with this session.

        It is judged as ``run`` does, and by what the policy says of the background; one that is refused has not been
        started (``Background.refused``). A program that is not there ends with 127. Raise UsageError if what runs
        there was started under other settings, and what ``run`` raises.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom exec --background --fork NAME -- COMMAND")
        from mudroom.session.background import start

        return start(self._parts(), self._order(argv, fork, cwd, timeout, actor)._replace(stays=True))

    def background(self, identity: str) -> Background:
        """Return the background command with this id, of any session. Raise UsageError if none has it."""
        from mudroom.session.background import Background

        return Background(self.sandboxes, self.sandboxes.started(identity))

    def _parts(self) -> Parts:
        return Parts(self.machine, self.forks, self.approval, self.sandboxes)

    def _order(
        self,
        argv: Sequence[bytes],
        fork: str | None,
        cwd: bytes | None,
        timeout: float | None,
        actor: Actor | None,
    ) -> Order:
        asked = actor or self.actor
        return Order(
            tuple(argv),
            cwd or self.project,
            asked,
            self.machine.granted(asked),
            fork,
            timeout=timeout or asked.settings.timeout,
            alone=self.forks.exclusive.is_ours,
        )

    def _run_as(self, actor: Actor, argv: tuple[bytes, ...], fork: str, stdio: Stdio, timeout: float | None) -> Result:
        return self.run(argv, fork=fork, stdio=stdio, timeout=timeout, actor=actor)

    def interrupt(self, number: int = SIGTERM, *, fork: str | None = None) -> bool:
        """Send the commands that run in a fork a signal (SIGTERM: ask them to end; SIGKILL: end all of them), from a
        signal handler or another thread; without a fork all that this session runs in the foreground. Return whether
        there was one."""
        return self.sandboxes.interrupt(number, fork)

    @contextmanager
    def alone(
        self, what: str, waiting: Callable[[str], None] = lambda _who: None, stopping: Callable[[], None] = lambda: None
    ) -> Iterator[list[Recovery]]:
        """Have the vault alone, for a user's command, an apply or an undo: other users' commands are waited for, the
        agents' are stopped and go on afterwards, and so are those of other threads of this session. Give what a crash
        had left unfinished and was dealt with first.

        ``waiting`` is told for whom, ``stopping`` is called if agents have to be stopped.
        """
        with self.forks.exclusive.taken(what, waiting, stopping, self.sandboxes.aside):
            yield self.changes.recover() if self.vault.has_unfinished() else []
            tidy(self.forks)

    # --- what is known before a command ---

    def granted(self) -> Grant:
        """Return the level at which a command runs, and which credentials are open to it. Raise Refused if the policy
        refuses, Unsupported if the machine cannot."""
        return self.machine.granted(self.actor)

    def explain(self, cwd: bytes) -> list[str]:
        """Return what would be done to confine a command here, step by step. Nothing is run. Raise Unsupported for what
        this machine cannot give, as ``run`` does."""
        lines: list[str] = self.explained(cwd)["lines"]
        return lines

    def explained(self, cwd: bytes) -> dict[str, Any]:
        """Return the same as JSON has it: the level, the mode, the container if there is one, and the lines."""
        from mudroom.session.explanation import Explanation

        return Explanation(self.machine, self.vault, self.actor).as_json(cwd)

    def why_path(self, path: bytes) -> AccessReason:
        """Return what a command of this session finds at an absolute path, and why."""
        from mudroom.session.explanation import Explanation

        return Explanation(self.machine, self.vault, self.actor).why_path(self.forks, path)

    def prepare(
        self,
        name: str | None = None,
        *,
        parent: str | None = None,
        at: str | None = None,
        snapshot: bool = False,
        checkpoint: str | None = None,
    ) -> PreparedFork:
        """Have a fork ready for an agent's first command, and return what that will find (``report.py``)."""
        from mudroom.session.report import prepare

        order = self._order((), name, None, None, None)
        origin = {"parent": parent, "at": at, "snapshot": snapshot}
        return prepare(self._parts(), order, origin, checkpoint)

    def inspect(self, name: str) -> ForkReport:
        """Return what a fork is and holds, and what was refused to its commands. Raise UsageError if there is none."""
        from mudroom.session.report import inspect

        return inspect(self.forks, name)
