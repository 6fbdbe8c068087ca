"""A session's standing sandboxes: a fork's overlays stay mounted from one command to the next.

Mounting the overlays, and the steps that follow the mount, take most of the time that a command waits. So a fork that
has run a few commands keeps the overlays, in a launcher process that runs no command itself. Each command gets its own
namespaces, home, /tmp and system call filter, made ahead of it.

Rules in this file:
1. A command takes the sandbox out of ``StandingSandboxes`` while it holds the fork's lock (``claimed``), and puts it
   back after its changes are collected. No other thread can use it in between.
2. It serves only commands with the same plan, apart from the steps that need the command (``StandingPlan.key``), on the
   same directories (``facts_of``). Otherwise it is dissolved, and the command runs as in any other fork.
3. It is dissolved before anything but a command changes the fork: by the fork's lock (``vault/standing.py``), or by a
   command that makes such a change, before it runs or when its changes are collected (``give_up``).
4. The ``MOST`` most recently used sandboxes stay. Another is dissolved by taking its fork's lock, if that is free.
5. A mount caches names, modes and sizes from the directories below it, and does not notice changes there. Its caches
   are dropped before each command, unless the project is known to be unchanged (``stage/views/tree_watch.py``) since
   the last command began and, apart from files that came and went, since it ended. They are also dropped if the lock's
   holder has changed the fork's layer between two commands, by flushing file tools or settling a repository. At that
   moment no process has any part of the view open but its root, which is not changed.
6. The next command's init holds directories in the caches' overlay open, since they are mounted at their own places. So
   the sandbox is dissolved when entries are moved to a pool, and when another fork has published to a pool.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from mudroom.core.confinement.plan import Plan, StandingPlan, standing_plan
from mudroom.errors import ForkGone, MudroomError
from mudroom.sandbox.host.host import identify, shown_paths
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.store.fork import DOOR, Fork, dissolve

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client
    from mudroom.sandbox.client.template import StandingPlace, StandingSandbox
    from mudroom.stage.views.tree_watch import TreeLook, TreeWatch

MOST = 12
"""Maximum number of standing sandboxes: each is a small process, and a second process for a while after a command."""
AFTER = 2
"""Commands in a row before the next makes a standing sandbox: a fork that is used once does without."""
_MOST_COUNTED = 256
_OF_THE_COMMAND = ("cwd",)

Works = tuple[bytes, bytes]
"""Names of the work directories for the view's mount and the caches' mount; empty: none."""


class StandingFork(NamedTuple):
    fork: Fork
    sandbox: StandingSandbox
    facts: tuple[object, ...]
    works: Works
    seen: TreeLook | None
    """The last look at the project, if the mount is known to show the files as they were then; otherwise None."""
    began: int
    """``TreeLook.changed`` when the last command began."""
    places: tuple[tuple[bytes, bytes], ...]
    """The work directories, as (parent, name)."""
    clear: Callable[[Sequence[tuple[bytes, bytes]]], bool]
    """``Client.clear``."""

    def remove(self) -> None:
        """Remove the work directories that a dissolved sandbox has left. Where the launcher is gone, the fork's next
        session does."""
        self.sandbox.wait_gone()
        self.clear(self.places)


def facts_of(plan: StandingPlan, stamps: tuple[object, ...]) -> tuple[object, ...]:
    """Return the facts that a sandbox depends on beside its plan: the identities of the files at its paths, and
    ``stamps``, the stamps of the caches' pools."""
    layers = [path for step in plan.template if step[0] == "overlay" for path in (*step[2], step[3])]
    return (*map(identify, (*layers, *shown_paths(plan.ahead))), stamps)


class StandingSandboxes:
    """Thread-safe: ``_lock`` guards the dicts, and the watch while it is made; it is held only briefly."""

    def __init__(self, project: bytes) -> None:
        self._project = project
        self._watch: TreeWatch | None = None
        self._lock = _thread.allocate_lock()
        self._standing: dict[str, StandingFork] = {}
        """By fork name, the most recently used last."""
        self._commands: dict[str, int] = {}
        """For each fork, the number of commands in a row that a standing sandbox would have served."""
        self.is_off = False
        """Set by the first thread whose standing sandbox has failed; never unset."""

    def close(self) -> None:
        """Dissolve all sandboxes. If a fork's lock is held, its holder has dissolved the sandbox."""
        if self._watch is not None:
            self._watch.close()
        while True:
            with self._lock:
                if not self._standing:
                    return
                standing = self._standing.pop(next(reversed(self._standing)))
            self._end(standing)

    def look(self, *, begins: bool = True) -> TreeLook:
        """Look at the project, as ``TreeWatch.look`` does."""
        with self._lock:
            if self._watch is None:
                from mudroom.stage.views.tree_watch import TreeWatch

                self._watch = TreeWatch(self._project)
            watch = self._watch
        return watch.look(begins=begins)

    @contextmanager
    def claimed(self, fork: Fork, *, permitted: bool) -> Iterator[CommandPlace]:
        """Yield the place for a command. Hold the fork's lock, taken with ``standing``. ``permitted``: nothing but the
        command itself changes the fork before it runs."""
        with self._lock:
            standing = self._standing.pop(fork.name, None)
        with closing(CommandPlace(self, fork, standing, permitted=permitted)) as place:
            yield place

    def put_back(self, standing: StandingFork) -> None:
        with self._lock:
            self._standing[standing.fork.name] = standing
            over = [*self._standing.values()][: max(0, len(self._standing) - MOST)]
            for other in over:
                del self._standing[other.fork.name]
        for other in over:
            self._end(other)

    def _end(self, standing: StandingFork) -> None:
        """Dissolve an unclaimed sandbox, if the fork's lock is free. Otherwise the lock's holder has dissolved it."""
        # the lock's next holder meets the same error and reports it
        with suppress(ForkGone, MudroomError), standing.fork.lock_if_free("mudroom"):
            pass
        standing.remove()

    def count(self, name: str) -> int:
        """Count a command in a fork. Return how many came before it in a row."""
        with self._lock:
            before = self._commands.pop(name, 0)
            self._commands[name] = before + 1
            while len(self._commands) > _MOST_COUNTED:
                del self._commands[next(iter(self._commands))]
            return before

    def forget(self, name: str) -> None:
        """Reset a fork's count."""
        with self._lock:
            self._commands.pop(name, None)


class CommandPlace:
    """A fork's standing sandbox, if any, for one command, whose thread holds the fork's lock."""

    def __init__(self, owner: StandingSandboxes, fork: Fork, standing: StandingFork | None, *, permitted: bool) -> None:
        self._owner, self._fork, self._standing, self._permitted = owner, fork, standing, permitted
        self._is_involved = standing is not None
        self._is_refreshed = self._is_quiet = False
        self._look: TreeLook | None = None
        """The look at the project before the command."""
        if standing is None or not permitted or not standing.sandbox.is_open:
            self.give_up()

    @property
    def works(self) -> Works:
        return self._standing.works if self._standing is not None else (b"", b"")

    @property
    def sandbox(self) -> StandingSandbox | None:
        return self._standing.sandbox if self._standing is not None else None

    def give_up(self) -> None:
        """Dissolve the fork's sandbox, if any, even another process's. If it was this session's, ``AFTER`` more
        commands run before a new sandbox is made."""
        standing, self._standing = self._standing, None
        self._is_involved = False
        dissolve(self._fork)
        if standing is not None:
            standing.remove()
            self._owner.forget(self._fork.name)

    def forbid(self) -> None:
        """Give up the sandbox, and do not make a new sandbox for this command."""
        self._permitted = False
        if self._standing is not None:
            self.give_up()

    def suits(self, plan: Plan, stamps: tuple[object, ...], *, is_usual: bool = True) -> bool:
        """Return False if the existing sandbox cannot serve a command with this plan, and give the sandbox up. Return
        True if it can, or if there is none. No sandbox serves a command that is not ``is_usual``."""
        self._permitted = self._permitted and is_usual
        if self._standing is None:
            return True
        wanted, standing = standing_plan(plan), self._standing
        is_same = (
            is_usual and wanted is not None and standing.sandbox.is_open and wanted.key == standing.sandbox.plan.key
        )
        if wanted is not None and is_same and facts_of(wanted, stamps) == standing.facts:
            return True
        self.give_up()
        return False

    def wants_one(self, plan: Plan) -> StandingPlan | None:
        """Count the command. Return the plan for the sandbox to make, or None if none is due."""
        if self._standing is not None or not self._permitted or self._owner.is_off:
            return None
        wanted = standing_plan(plan)
        if wanted is None or self._owner.count(self._fork.name) < AFTER:
            return None
        return wanted

    def make(
        self,
        client: Client,
        plan: StandingPlan,
        stamps: tuple[object, ...],
        works: Works,
        places: tuple[tuple[bytes, bytes], ...],
    ) -> None:
        """Make the sandbox, after the mount of the fork's last command is gone. Raise StepFailed if a step fails;
        nothing is left then."""
        from mudroom.vault.standing import open_door

        facts = facts_of(plan, stamps)
        try:
            door = open_door(self._fork.path + DOOR)
        except OSError:  # a full disk, or a file system without sockets: go on as if no sandbox were due
            self._permitted = False
            return
        self._is_involved = True
        seen = self._owner.look()
        with closing(door):
            sandbox = client.templates.stand(plan, door.fileno())
        self._standing = StandingFork(self._fork, sandbox, facts, works, seen, -1, places, client.clear)

    def outdated(self) -> None:
        """Note that the lock's holder itself changes the fork's layer, between two commands (rule 5)."""
        if self._standing is not None:
            self._standing = self._standing._replace(seen=None)

    def taken(self) -> StandingPlace | None:
        """Return the place for a command that starts now, or None."""
        if self._standing is None:
            return None
        from mudroom.sandbox.client.template import StandingPlace

        before, look = self._standing.seen, self._owner.look()
        self._is_refreshed = before is None or look.lasting != before.lasting
        self._is_quiet = not self._is_refreshed and look.changed == self._standing.began
        self._look, self._standing = look, self._standing._replace(seen=look, began=look.changed)
        return StandingPlace(self._standing.sandbox, self._is_refreshed)

    @property
    def is_quiet(self) -> bool:
        """Whether ``taken`` found the project unchanged since the fork's last command began. That command started after
        the clock tick of the last change, and this command starts later. So no file can have this start as its stamp,
        and the command need not wait for a tick. A change that the watch does not report, such as by mmap(2), then
        counts as made during the command, which is safe."""
        return self._standing is not None and self._is_quiet

    @property
    def is_as_seen(self) -> bool:
        """Whether the command has seen the project as it was at its start. False if the mount kept its caches and
        something has changed since the look: the command may not have seen an edit between the look and its start. The
        caller then keeps the start time that it noted before the look, so the edit counts as made during the
        command."""
        return self._standing is None or self._is_refreshed or self._owner.look() == self._look

    def failed(self, op: str) -> bool:
        """If a standing sandbox was used or made for a command that could not be started, give it up and return True:
        the caller then starts the command as in any other fork.

        The session makes no more standing sandboxes then, since a kernel before 5.2 has no fspick(2). It does make more
        if the failed step ``op`` is the command's own: a closed directory can be entered only with privileges."""
        was_involved = self._is_involved
        if was_involved:
            self._owner.is_off = self._owner.is_off or op not in _OF_THE_COMMAND
            self.forbid()
            self.give_up()
        return was_involved

    def keep(self) -> None:
        """Keep the sandbox for the next command. This command's changes are collected, and nothing uses the mount from
        now on."""
        standing, self._standing = self._standing, None
        self._is_involved = False
        if standing is not None:
            if self._owner.look(begins=False) != self._look:  # the mount may still cache a name that is gone
                standing = standing._replace(seen=None)
            self._owner.put_back(standing)

    def close(self) -> None:
        if self._standing is not None or self._is_involved:
            self.give_up()
