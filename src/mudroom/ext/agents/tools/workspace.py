"""The fork in which tools work: a fork in an open session, made at first use.

Rules of this file:
1. A given name is that fork, which is made if it does not exist. Otherwise the workspace makes its own fork at the
   first call: ``stem``, or ``stem-2`` … if the name is taken.
2. A file tool's write is in the fork, on disk, when its call returns: other processes see it, and it survives SIGKILL.
3. While another process has a background command in the fork, file tools refuse: only commands can join it.
"""

from __future__ import annotations

import _thread
import time
from collections import OrderedDict
from contextlib import suppress

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import ForkExists, MudroomError
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.path import inside, shown
from mudroom.session.forks import Forks
from mudroom.session.users import Occupied
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.store.fork import mount_note
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from mudroom.session import Session
    from mudroom.session.actor import Actor
    from mudroom.stage.buffer.files import Tree


def flush_write(forks: Forks, name: str, patience: float | None = None) -> bool:
    """Flush a file tool's last write. Return whether it is on disk. ``patience``: seconds to wait; None: until the end
    of a command that was started between the choice of the buffer and the write."""
    fork = forks.vault.fork(name)
    until = None if patience is None else time.monotonic() + patience
    while forks.tools.has_unflushed(name) and mount_note(fork) is None:
        if forks.exclusive.is_ours:
            with forks.at_rest(name):
                return True
        # Tried, not waited for: a thread of this session that begins a command holds the lock from before its own flush
        # until the command has ended.
        with fork.lock_if_free("mudroom") as is_free:
            if is_free:
                with forks.at_rest(name, held=fork):
                    return True
        # A write that came between is flushed when the command ends. Later writes go to the command's mount.
        if until is not None and (forks.tools.is_live(name) or time.monotonic() >= until):
            return False
        time.sleep(LOOK)
    return True


_UNUSUAL = regex(r"[^A-Za-z0-9_.]+")
_STEM = 40
_TRIES = 1_000
KEPT_OUTPUTS = 8
"""Outputs of ended commands that can still be read in parts."""


def fork_stem(name: str) -> str:
    """Return a fork name made from a client's name for itself; ``agent`` if none of it can be used."""
    return _UNUSUAL.sub("-", name[: 4 * _STEM]).strip("-._")[:_STEM].rstrip("-._").lower() or "agent"


class ToolWorkspace:
    """Thread-safe. ``_lock`` guards the fork's name and the kept outputs; ``edits`` is held while a file is read,
    changed and written."""

    def __init__(
        self, session: Session, fork: str | None = None, *, stem: str = "agent", actor: Actor | None = None
    ) -> None:
        """``actor``: for the commands; None: the session's own."""
        self.session, self.actor = session, actor
        self._stem, self._name, self._is_named = stem, fork, fork is not None
        self._is_there = self._is_own = False
        self._lock = _thread.allocate_lock()
        self.edits = _thread.allocate_lock()
        self._outputs: OrderedDict[str, str] = OrderedDict()
        self._count = 0

    # --- the fork ---

    @property
    def fork(self) -> str:
        """The fork's name. The fork is made if it does not exist."""
        with self._lock:
            if self._name is None or not self._is_there or self.session.vault.find(self._name) is None:
                self._name = self._made()
                self._is_there = True
            return self._name

    def require_idle(self) -> None:
        """Raise ToolError if a command runs in the fork's background."""
        running = [started.id for started, ended in self.session.sandboxes.backgrounds(self.fork) if ended is None]
        if running:
            raise ToolError(
                f"commands run in the background: {', '.join(running)}",
                f'end them first: bash {{"id": "{running[0]}", "end": true}}',
            )

    @property
    def fork_or_none(self) -> str | None:
        """The fork's name; None as long as no call has needed a fork."""
        return self._name if self._is_there or self._is_named else None

    def _made(self) -> str:
        forks = self.session.forks
        if self._is_named and self._name is not None:
            if self.session.vault.find(self._name) is None:
                with suppress(ForkExists):  # another process has made it meanwhile
                    forks.new(self._name)
            return self._name
        for number in range(1, _TRIES):
            name = self._stem if number == 1 else f"{self._stem}-{number}"
            if self.session.vault.find(name) is None:
                try:
                    forks.new(name)
                except ForkExists:
                    continue
                self._is_own = True
                return name
        raise MudroomError(
            f"there are {_TRIES:,} forks named {self._stem}-N",
            "mudroom ls lists them, mudroom discard NAME removes one",
        )

    def close(self) -> None:
        """Discard the fork if it was made for this workspace and is unchanged."""
        if self._is_own and self._name is not None and self.session.vault.find(self._name) is not None:
            self.session.forks.discard_unchanged(self._name)

    # --- files ---

    def tree(self) -> Tree:
        """Return the fork's present files. Raise ToolError while another process has a background command in it."""
        name, forks = self.fork, self.session.forks
        if not forks.tools.is_live(name):
            try:
                forks.users.require_free(self.session.vault.fork(name))
            except Occupied as error:
                raise ToolError(
                    f"{error.message}; it was started by another process, so only commands reach the fork's files now",
                    "use bash for files until it has ended",
                ) from None
        return forks.files(name).tree()

    def share_files(self) -> None:
        """Let file tools work beside the next command, in its mount: otherwise they would wait for its end."""
        with suppress(ToolError):  # another process's command is there, and file tools refuse
            self.tree()

    def path(self, tree: Tree, path: str) -> bytes:
        """Return the path relative to the project, resolved in the fork's view. Raise ToolError if it leads out."""
        return inside(tree, self.session.project, path)

    def write(self, path: bytes, content: bytes) -> None:
        """Write a file. Raise ToolError if another writer has changed it meanwhile; hold ``edits``."""
        name, forks = self.fork, self.session.forks
        files = forks.files(name)
        files.write(path, content)
        flush_write(forks, name)
        try:
            is_ours = bounded(files.tree(), path, len(content)) == content
        except (OSError, ToolError):
            is_ours = False
        if not is_ours:
            raise ToolError(
                f"{shown(path)}: another writer has changed it in the fork meanwhile, and that version stays",
                "read it again, and edit that",
            )

    # --- outputs ---

    def keep_output(self, text: str) -> str:
        """Keep a command's output to be read in parts; return its id."""
        with self._lock:
            self._count += 1
            name = f"out-{self._count}"
            self._outputs[name] = text
            while len(self._outputs) > KEPT_OUTPUTS:
                self._outputs.popitem(last=False)
        return name

    def kept_output(self, name: str) -> str | None:
        with self._lock:
            return self._outputs.get(name)


def bounded(tree: Tree, path: bytes, most: int) -> bytes:
    """Return a file's content. Raise ToolError if it has more than ``most`` bytes."""
    with tree.readable(path) as stream:
        # A command in the fork may have made it larger than memory since its size was read: holes take no space.
        content = stream.read(most + 1)
    if len(content) > most:
        raise ToolError(f"{shown(path)}: a command has made it larger than {most:,} bytes meanwhile", "read it again")
    return content


def words(argv: tuple[bytes, ...]) -> str:
    """Return a command for people and models; for ``SHELL -c LINE`` the line itself."""
    if len(argv) == 3 and argv[1] == b"-c":
        return show(argv[2])
    return show_words(argv)
