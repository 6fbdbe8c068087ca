"""A session: one actor's work on one project, put together from an actor and five parts.

    with Session.open("/path/to/project", state=…, home=…, environ=os.environb) as session:
        result = session.run([b"npm", b"install"])
        print(result.changeset)
        session.changes.apply(result.fork)

``run.py`` has a command's steps. No change reaches the project before ``session.changes.apply``. Several threads may
use a session at once: a command's state is in values (``actor.py``, ``order.py``), and each part names the locks that
guard its own state.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.core.registry import part, part_or_none
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.core.system.closing import Closing
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.sandbox.client.capture import SIGTERM
from mudroom.sandbox.platform import LINUX, Platform, platform_here
from mudroom.session.actor import Actor
from mudroom.session.approval import UNASKED, Approval, CommandAnswers
from mudroom.session.confinement.appearance import needs_namespaces, require_appearance
from mudroom.session.confinement.grant import Grant
from mudroom.session.confinement.host_approver import NO_ANSWERS, HostAnswers
from mudroom.session.forks import Forks, HeldPushes
from mudroom.session.machine import Machine
from mudroom.session.order import CAPTURED, Order, Pipes, Stdio
from mudroom.session.retention import tidy
from mudroom.session.run import Parts, run
from mudroom.session.sandboxes import Sandboxes
from mudroom.stage import disk
from mudroom.stage.views.preflight import check_project
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.forks.collection import Progress
from mudroom.vault.forks.ties import Tie, tie_to, ties_of
from mudroom.vault.lock import Lock
from mudroom.vault.store.store import Later, Vault, open_vault, require_private_state

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.approval.approval import CommandApprover
    from mudroom.core.confinement.access_reason import AccessReason
    from mudroom.core.network.push import PushRow
    from mudroom.sandbox.client.cancellation import Cancellation
    from mudroom.sandbox.client.client import Client
    from mudroom.session.background import Background
    from mudroom.session.changes import Changes
    from mudroom.vault.apply.transaction import Recovery

DEFAULTS = Settings()


def require_project(
    project: bytes, state: bytes, home: bytes, platform: Platform | None = None
) -> tuple[bytes, bytes, bytes]:
    """Return the project's, the home's and the state directory's real paths. Raise UsageError if the project cannot be
    staged, Unsupported on a platform without a sandbox."""
    chosen = platform or platform_here(sys.platform, _by_record(state))
    real, real_home, real_state = (chosen.real_path(path) for path in (project, home, state))
    if real_home == b"/":  # a service account without a home: the private home still needs a path
        real_home = b"/home/nobody"
    check_project(real, real_home, real_state)
    return real, real_home, real_state


def _by_record(state: bytes) -> Callable[[Platform], Platform]:
    def certified(platform: Platform) -> Platform:
        opened: Platform = part("certify", "opening", f"mudroom on {platform.system}").open_here(platform, state)
        return opened

    return certified


class Session(Closing):
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
        waiting: Callable[[str], None] = lambda _holder: None,
        later: Later | None = None,
        card: AgentCard | None = None,
        level: int | None = None,
        hosts: HostAnswers = NO_ANSWERS,
        agent: str | None = None,
        commands: CommandAnswers = UNASKED,
        platform: Platform = LINUX,
        umask: int | None = None,
    ) -> None:
        """``policy``: the policy files' settings alone, if the command line has added to them in ``settings``.
        ``card``: the session's agent's card. ``level``: requested by the user; the policy decides. ``progress``,
        ``waiting``: as for ``Forks``. ``later``: as for ``Vault``. ``umask``: for commands; None: this process's.

        ``agent``: the agent that runs the commands; ``commands``: rules and approver that judge them. Without an agent
        or a card, the commands are the user's own and are not judged."""
        vault.later = later or vault.later
        agent = agent or (card.agent if card is not None else None)
        actor = Actor(settings, settings if policy is None else policy, card, level, agent)
        self.machine = Machine(
            vault,
            home=home,
            environ=environ,
            platform=platform,
            client=client,
            clock=clock,
            engine=settings.engine,
            hosts=hosts,
            umask=umask,
        )
        self.forks = Forks(
            vault,
            settings,
            clock=clock,
            new_id=new_id,
            progress=progress,
            waiting=waiting,
            forget=self.machine.forget,
            let_go=self.machine.let_go,
            outbox=self._outbox,
            root=self.root,
        )
        self._roots: dict[bytes, Session] = {}
        self.approval = Approval(actor, self.machine, self.forks, commands)
        self.sandboxes = Sandboxes(self.machine, self.forks)

    def root(self, tied: Tie) -> Session:
        """Return a session on another project in which a fork has a part. It is closed with this one."""
        if tied.path not in self._roots:
            self._roots[tied.path] = self._open_root(tied.path)
        return self._roots[tied.path]

    def _open_root(self, path: bytes) -> Session:
        """Return a session on another project, under its own policy. Raise UsageError if it cannot be staged."""
        from mudroom.policy.config import project_settings
        from mudroom.session.roots import tidy_home
        from mudroom.vault.store.fork import interrupted_forks

        confinement, state = self.machine.confinement, os.path.dirname(os.path.dirname(self.vault.path))
        home, environ, platform = confinement.own_home, confinement.variables, confinement.platform
        if path == home:
            session = Session(open_vault(state, home), home=home, environ=environ, platform=platform)
            session.forks.secrets.is_home = True
            for fork in interrupted_forks(session.vault.path):
                with fork.lock_if_free("mudroom") as is_free:
                    if is_free:
                        tidy_home(fork, home)
            return session
        require_project(path, state, home, platform)
        settings = project_settings(path, environ, self.forks.remarks.append)
        return Session.open(path, state=state, home=home, environ=environ, settings=settings, platform=platform)

    def _tied(self, order: Order, paths: Sequence[bytes]) -> Order:
        """Return the order with the other projects in which its fork has parts, and those at ``paths``; parents before
        their children. Raise UsageError if they cannot be staged together, Unsupported if the command has no sandbox of
        its own that shows them."""
        fork = self.vault.find(order.fork) if order.fork is not None else None
        known = ties_of(fork) if fork is not None else ()
        if order.actor.settings.home == "staged" and not self.is_home:
            paths = (*paths, self.machine.confinement.own_home)
        if not (known or paths):
            return order
        from mudroom.session.roots import overlay_needed

        ties = {tied.path: tied for tied in known}
        if order.grant.level != 1 or order.actor.settings.engine_beside:
            raise overlay_needed("--engine" if order.grant.level == 1 else f"level {order.grant.level}")
        real = sorted({*ties, *(os.path.realpath(path) for path in paths)})
        for path in real:
            inside = [other for other in (self.project, *real) if path != other and is_below(other, path)]
            if inside and path != self.machine.confinement.own_home:
                hint = f"mudroom --project {show(path)} run -- COMMAND stages both"
                raise UsageError(f"{show(inside[0])} lies in {show(path)}", hint)
            if is_below(path, self.project):
                raise UsageError(f"{show(path)} lies in the project, which is staged as a whole", "leave it out")
        sessions = [self.root(Tie(b"", path)) for path in real]
        roots = ((tie_to(session.vault, is_home=session.is_home), session) for session in sessions)
        if order.actor.settings.home == "private" and self.machine.confinement.own_home in real:
            hint = f"mudroom exec --home --fork {order.fork} -- COMMAND" if order.fork else "--home, or the policy"
            raise UsageError("the policy's run.home is private, and your home is a part of the fork", hint)
        settings = order.actor.settings._replace(home="staged" if self.machine.confinement.own_home in real else "auto")
        order = order._replace(actor=order.actor._replace(settings=settings))
        return order._replace(roots=tuple((ties.get(tied.path, tied), session) for tied, session in roots))

    @property
    def is_home(self) -> bool:
        """Whether its project is the user's home, which is a part of other projects' forks only."""
        return self.project == self.machine.confinement.own_home

    def _outbox(self, forks: Forks) -> HeldPushes:
        effects, confinement = part("effects", "session", "a held push"), self.machine.confinement
        host = effects.HostSide(confinement.variables, confinement.home, self.machine.host_answers.rules)
        outbox: HeldPushes = effects.EffectOutbox(forks, host)
        return outbox

    def held_effects(self, fork: str) -> list[PushRow]:
        """Return a fork's held effects for its review, compared with what their servers have now."""
        if self.forks.outbox_of(self.vault.fork(fork).path) is None:
            return []
        rows: list[PushRow] = part("effects", "review", "a held push").held_effects(self, fork)
        return rows

    @functools.cached_property
    def changes(self) -> Changes:
        """Loaded at first use, since most commands do not need it. It is stateless, so two threads may make it at
        once."""
        return self._changes(self.actor)

    def changes_verified_by(self, argv: Sequence[bytes]) -> Changes:
        """Return ``changes`` whose applies are always verified by this command instead of the policy's."""
        policy = self.actor.policy._replace(verify=tuple(argv), verify_when="always")
        return self._changes(self.actor._replace(policy=policy))

    def _changes(self, actor: Actor) -> Changes:
        from mudroom.session.changes import Changes
        from mudroom.session.verification import verification

        return Changes(
            self.forks,
            verification(self.forks, actor, self._run_as),
            self.signing,
            rules=actor.policy.merge_rules == "apply",
            make_again=self._make_again,
        )

    def _make_again(self, fork: str) -> None:
        """Make the lock files in conflict again, where the policy takes what a rule makes."""
        locks = part_or_none("merging", "locks")
        if locks is not None:
            locks.make_all_again(self, fork, self.forks.remarks.append)

    @property
    def signing(self) -> Mapping[bytes, bytes] | None:
        """The user's variables for git if the policy signs commits that land; otherwise None."""
        return self.machine.confinement.variables if self.actor.policy.git_sign == "on-landing" else None

    @classmethod
    def open(
        cls,
        project: bytes,
        *,
        state: bytes,
        home: bytes,
        environ: Mapping[bytes, bytes],
        appears_at: bytes | None = None,
        **options: Any,
    ) -> Session:
        """Open a session on the directory ``project``. Raise UsageError if it cannot be staged, Unsupported on a
        platform without a sandbox.

        ``appears_at``: the path at which commands see the project, and by which results, records and archives name it.
        ``project`` is then only read; no apply writes to it. ``appears_at`` and ``home``, the private home's path
        inside, are paths on the machine that the project comes from, and need not exist here. Raise UsageError if a
        project cannot appear there, Unsupported on a platform without mount namespaces."""
        options["platform"] = options.get("platform") or platform_here(sys.platform, _by_record(state))
        real, real_home, real_state = require_project(project, state, home, options["platform"])
        source = b""
        if appears_at is not None and appears_at != real:
            if options["platform"] is not LINUX:
                raise needs_namespaces(options["platform"].name)
            source, real, real_home = real, appears_at, home if home != b"/" else real_home
            require_appearance(real, real_home, real_state)
        require_private_state(state)
        vault = open_vault(real_state, real, source)
        if vault.is_copied:
            from mudroom.vault.retention.restored import renew_stamps

            with Lock(vault.path + b"/lock", "reading a copied state"):
                renew_stamps(vault)
        return cls(vault, home=real_home, environ=environ, **options)

    def close(self) -> None:
        """End background commands, flush file tools into their forks, and release all resources."""
        for root in self._roots.values():
            root.close()
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
        """The default actor of commands."""
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
        approver: CommandApprover | None = None,
        cancellation: Cancellation | None = None,
        quiet: float | None = None,
        roots: Sequence[bytes] = (),
    ) -> Result:
        """Run a command in a fork (default: a new fork) and return the result with its changes. ``actor``, ``approver``
        None: the session's own. ``cancellation`` ends only this command; raise Cancelled if it had not started.
        ``quiet``: it is the user's own, and agents pause for it, for at most so many seconds. ``roots``: other
        projects, or the home, that are staged beside this one, in parts of the fork, beside those that it has.

        A failed command is a result. Raise CommandNotStarted if the program does not exist, Unsupported if this machine
        cannot confine a command, MudroomError if mudroom itself fails. The project is untouched in every case.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom run -- COMMAND")
        order = self._order(argv, fork, cwd, timeout, actor)
        order = order._replace(stdio=stdio, approver=approver, cancellation=cancellation, quiet=quiet)
        return run(self._parts(), self._tied(order, roots))

    def start(
        self,
        argv: Sequence[bytes],
        *,
        fork: str | None = None,
        cwd: bytes | None = None,
        stdio: Pipes | None = None,
        timeout: float | None = None,
        actor: Actor | None = None,
        approver: CommandApprover | None = None,
        companion: int = 0,
    ) -> Background:
        """Start a background command in a fork (default: a new fork). Until it ends, the fork's other commands run in
        the same sandbox. It ends with this session.

        ``stdio``: pipe ends that the caller made, which the command gets as they are; the caller closes its copies.
        None: no input, and output kept in the vault (``Background.output``). ``companion``: as in ``BackgroundStart``.

        It is judged as by ``run``, and by the policy's rule for background commands; if it is refused,
        ``Background.refused`` is set. If the program does not exist, it ends with 127. Raise UsageError if the fork's
        background commands were started under other settings; other exceptions as for ``run``.
        """
        if not argv:
            raise UsageError("no command was given", "mudroom exec --background --fork NAME -- COMMAND")
        from mudroom.session.background import start

        order = self._tied(self._order(argv, fork, cwd, timeout, actor), ())
        if order.roots:
            what = f"a command in the background does not see {order.roots[0][0].label()} as a part of its fork"
            raise UsageError(what, "run it in the foreground, in another fork, or with run.home: private")
        if companion:
            order = order._replace(timeout=None)
        return start(self._parts(), order._replace(stays=True, pipes=stdio, approver=approver, companion=companion))

    def background(self, identity: str) -> Background:
        """Return the background command with this id, in any session. Raise UsageError if there is none."""
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
        chosen = actor or self.actor
        return Order(
            tuple(argv),
            self._directory(cwd),
            chosen,
            self.machine.granted(chosen),
            fork,
            timeout=timeout or chosen.settings.timeout,
            alone=self.forks.exclusive.is_ours,
            called=time.time_ns(),
        )

    def _directory(self, cwd: bytes | None) -> bytes:
        """Return a command's working directory; a relative path is below the project."""
        if not cwd:
            return self.project
        return cwd if disk.is_absolute(cwd) else disk.absolute_path(self.project + b"/" + cwd)

    def _run_as(self, actor: Actor, argv: tuple[bytes, ...], fork: str, stdio: Stdio, timeout: float | None) -> Result:
        return self.run(argv, fork=fork, stdio=stdio, timeout=timeout, actor=actor)

    def interrupt(self, number: int = SIGTERM, *, fork: str | None = None) -> bool:
        """Send a signal to a fork's running commands (SIGTERM: ask them to end; SIGKILL: end all their processes), from
        a signal handler or another thread. Without ``fork``: to all this session's foreground commands. Return whether
        any runs."""
        return self.sandboxes.interrupt(number, fork)

    @contextmanager
    def alone(
        self,
        what: str,
        waiting: Callable[[str], None] = lambda _who: None,
        stopping: Callable[[], None] = lambda: None,
        forks: Sequence[str] = (),
    ) -> Iterator[list[Recovery]]:
        """Have the vault alone, for a user's command, an apply or an undo. Wait for other user commands; pause agents'
        commands, and those in this session's other threads, for the block. Yield the recoveries of applies that a crash
        had left unfinished.

        ``waiting`` is called with the lock holder, ``stopping`` if agents have to be paused. ``forks``: those that have
        to be at rest in the block, if they still exist.
        """
        for fork in filter(None, map(self.vault.find, forks)):  # first: their holders are paused then
            self.forks.end_companions(fork)
        with self.forks.exclusive.taken(what, waiting, stopping, self.sandboxes.aside):
            yield self.changes.recover() if self.vault.has_unfinished() else []
            tidy(self.forks)

    # --- before a command ---

    def granted(self) -> Grant:
        """Return the level at which commands run and the credentials that they may use. Raise Refused if the policy
        refuses, Unsupported if the machine cannot."""
        return self.machine.granted(self.actor)

    def explain(self, cwd: bytes) -> list[str]:
        """Return the steps that would confine a command here, as lines, without running it. Raise Unsupported as
        ``run`` does."""
        lines: list[str] = self.explained(cwd)["lines"]
        return lines

    def explained(self, cwd: bytes) -> dict[str, Any]:
        """Return the explanation for JSON: the level, the mode, the container (or None) and the lines."""
        from mudroom.session.explanation import Explanation

        return Explanation(self.machine, self.vault, self.actor).as_json(cwd)

    def why_path(self, path: bytes) -> AccessReason:
        """Return how this session's commands see an absolute path, and why."""
        from mudroom.session.explanation import Explanation

        return Explanation(self.machine, self.vault, self.actor).why_path(self.forks, path)
