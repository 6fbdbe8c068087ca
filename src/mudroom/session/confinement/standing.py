"""Standing sandboxes of a session: the overlays of a fork stay mounted from one command to the next.

A mount of the overlays, and everything that has to be done once they are there, is most of what a command waits for.
So a fork that has run a few commands keeps them, in a process of the launcher that runs no command itself; each command
gets namespaces, home, /tmp and a system call filter of its own, made ahead of it.

Rules of this file:
1. A command takes the sandbox out of ``StandingSandboxes`` while it holds the fork's lock (``claimed``), and puts it
   back after its changes are collected. In between nobody else can use it.
2. It serves only commands with the same plan, apart from the steps that need the command (``StandingPlan.key``), on the
   same directories (``facts_of``). Otherwise it is dissolved, and the command runs as in any other fork.
3. It is dissolved before anything but a command changes the fork: by the fork's lock (``vault/standing.py``), and by a
   command that does so itself, before it runs or when its changes are collected (``give_up``).
4. The ``MOST`` that were used last stay. One is dissolved by taking its fork's lock, if that is free.
5. A mount does not follow names, modes and sizes in the directories below it. What it remembers is dropped before each
   command, unless the project is known to be unchanged (``stage/views/tree_watch.py``): since the last command began,
   and, apart from files that came and went, since it ended. It is dropped, too, if the holder of the lock has changed
   the fork's layer between two commands: file tools are flushed, a repository is settled. No process has anything of
   the view open then but its root, which is not changed.
6. Of the caches' overlay the next command's init has directories open, since they are mounted at their own places. So
   it is dissolved when entries are moved to a pool, and when another fork has published to one.
"""

from __future__ import annotations

import _thread
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
"""Forks with a standing sandbox: a small process each, and a second one for a while after a command."""
AFTER = 2
"""Commands in a row after which the next makes one: a fork that is used once does without."""
_MOST_COUNTED = 256
_OF_THE_COMMAND = ("cwd",)

Works = tuple[bytes, bytes]
"""Names of the work directories of a mount of the view and of the caches; empty: none."""


class StandingFork(NamedTuple):
    fork: Fork
    sandbox: StandingSandbox
    facts: tuple[object, ...]
    works: Works
    seen: TreeLook | None
    """The last look at the project: the mount shows the files as they were then. None: it may not."""
    began: int
    """``TreeLook.changed`` when the last command began."""
    places: tuple[tuple[bytes, bytes], ...]
    """The work directories: parent and name."""

    def remove(self) -> None:
        """Remove what the sandbox has left: it was dissolved."""
        from mudroom.sandbox.launcher.clearing import clear

        self.sandbox.wait_gone()
        clear(self.places)


def facts_of(plan: StandingPlan, stamps: tuple[object, ...]) -> tuple[object, ...]:
    """Return what a sandbox depends on beside the plan: the files behind its paths, and ``stamps``, those of the
    caches' pools."""
    layers = [path for step in plan.template if step[0] == "overlay" for path in (*step[2], step[3])]
    return (*map(identify, (*layers, *shown_paths(plan.ahead))), stamps)


class StandingSandboxes:
    """Thread-safe: ``_lock`` guards the dicts and the making of the watch, and is held for moments."""

    def __init__(self, project: bytes) -> None:
        self._project = project
        self._watch: TreeWatch | None = None
        self._lock = _thread.allocate_lock()
        self._standing: dict[str, StandingFork] = {}
        """The most recently used is the last."""
        self._commands: dict[str, int] = {}
        """Commands of each fork in a row that a standing sandbox would have served."""
        self.is_off = False
        """Set by the first thread for which one has failed; never unset."""

    def close(self) -> None:
        """Dissolve all. A fork whose lock is held is given up by the one who holds it."""
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
        """Yield the place for a command. Hold the fork's lock, taken with ``standing``. ``permitted``: the fork is
        changed by nothing but the command itself before it runs."""
        with self._lock:
            standing = self._standing.pop(fork.name, None)
        place = CommandPlace(self, fork, standing, permitted=permitted)
        try:
            yield place
        finally:
            place.close()

    def put_back(self, standing: StandingFork) -> None:
        with self._lock:
            self._standing[standing.fork.name] = standing
            over = [*self._standing.values()][: max(0, len(self._standing) - MOST)]
            for other in over:
                del self._standing[other.fork.name]
        for other in over:
            self._end(other)

    def _end(self, standing: StandingFork) -> None:
        """Dissolve one that is not claimed, if nobody holds the fork's lock. Otherwise its holder has dissolved it."""
        # an error is found again, and told, by the next holder of the lock
        with suppress(ForkGone, MudroomError), standing.fork.lock_if_free("mudroom"):
            pass
        standing.remove()

    def count(self, name: str) -> int:
        """Count a command of a fork. Return how many came before it in a row."""
        with self._lock:
            before = self._commands.pop(name, 0)
            self._commands[name] = before + 1
            while len(self._commands) > _MOST_COUNTED:
                del self._commands[next(iter(self._commands))]
            return before

    def forget(self, name: str) -> None:
        """Begin to count again."""
        with self._lock:
            self._commands.pop(name, None)


class CommandPlace:
    """The standing sandbox of a fork, for one command, whose thread holds the fork's lock."""

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
        """Dissolve the sandbox, also one of another process, if there is one. Other commands follow before there is one
        again."""
        standing, self._standing = self._standing, None
        self._is_involved = False
        dissolve(self._fork)
        if standing is not None:
            standing.remove()
            self._owner.forget(self._fork.name)

    def forbid(self) -> None:
        """Give up the sandbox, and make none for this command."""
        self._permitted = False
        if self._standing is not None:
            self.give_up()

    def suits(self, plan: Plan, stamps: tuple[object, ...], *, is_usual: bool = True) -> bool:
        """Return whether the sandbox that there is, if there is one, serves a command with this plan. If not, it is
        given up. None serves a command that is not ``is_usual``."""
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
        """Count the command. Return the plan of a sandbox that is to be made for it, or None."""
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
        """Make the sandbox. The mount of the fork's last command has gone. Raise StepFailed if a step fails: nothing is
        left then."""
        from mudroom.vault.standing import open_door

        facts = facts_of(plan, stamps)
        try:
            door = open_door(self._fork.path + DOOR)
        except OSError:  # a full disk, or a file system without sockets: as if it were not time for one
            self._permitted = False
            return
        self._is_involved = True
        seen = self._owner.look()
        try:
            sandbox = client.templates.stand(plan, door.fileno())
        finally:
            door.close()
        self._standing = StandingFork(self._fork, sandbox, facts, works, seen, -1, places)

    def outdated(self) -> None:
        """The holder of the fork's lock changes the fork's layer itself, between two commands."""
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
        """Whether the project is known to be unchanged since the fork's last command began, when ``taken`` looked. That
        command has started after the clock's tick in which the last change was made, and this one starts later: no
        file can have the stamp of its start, so it waits for no tick. A change that is not told, as by mmap(2), counts
        as one during the command then, which is safe."""
        return self._standing is not None and self._is_quiet

    @property
    def is_as_seen(self) -> bool:
        """Whether the command has seen the project as it was when it started. Not if the mount has dropped nothing, and
        something has changed since the look: an edit between the look and the start may not have been seen, so it
        counts as one during the command. The present start of the command is from before the look."""
        return self._standing is None or self._is_refreshed or self._owner.look() == self._look

    def failed(self, op: str) -> bool:
        """Return whether a command that could not be started had a sandbox that stands: it is given up, and the command
        is started as in any other fork. The session makes no other, unless the step ``op`` is one of the command: a
        kernel before 5.2 has no fspick(2); a directory that is closed is entered with privileges alone."""
        was_involved = self._is_involved
        if was_involved:
            self._owner.is_off = self._owner.is_off or op not in _OF_THE_COMMAND
            self.forbid()
            self.give_up()
        return was_involved

    def keep(self) -> None:
        """Keep the sandbox for the next command: the changes of this one are collected. Nothing uses the mount from now
        on. If something has changed while it was used, it may remember a name that is gone."""
        standing, self._standing = self._standing, None
        self._is_involved = False
        if standing is not None:
            if self._owner.look(begins=False) != self._look:
                standing = standing._replace(seen=None)
            self._owner.put_back(standing)

    def close(self) -> None:
        if self._standing is not None or self._is_involved:
            self.give_up()
