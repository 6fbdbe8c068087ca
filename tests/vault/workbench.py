"""A vault with its forks and their changes, without a sandbox: a command is a function that works in a fork's copy.

For tests that also run where there is no sandbox, or no shell. Everything but the command's process is the session's
own: the same forks, checkpoints, collection, applies, undos and recovery.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import sleep  # tests replace time.sleep

from inner_path import inner as inner
from mudroom.core.registry import twin
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset
from mudroom.session.changes import Changes
from mudroom.session.forks import Forks
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.forks.collection import CollectedCommand, gather, stand_on_copy, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.moment import command_start
from mudroom.vault.store.store import open_vault

Contents = dict[str, bytes | None]
"""Every path of a tree with the content of the file; None: a directory."""


def contents(root: Path) -> Contents:
    """Return the tree, without mudroom's own directory."""
    found: Contents = {}
    for directory, directories, files in os.walk(root):
        if Path(directory) == root and ".mudroom" in directories:
            directories.remove(".mudroom")
        for name in (*directories, *files):
            path = Path(directory, name)
            found[path.relative_to(root).as_posix()] = path.read_bytes() if name in files else None
    return found


class Workbench:
    """Owner: one test, in one thread. Close it."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, root / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        (root / "state").mkdir(mode=0o700, exist_ok=True)
        self.vault = open_vault(inner(root / "state"), inner(self.project))
        self.forks = Forks(self.vault, Settings(view="copy"), clock=time.time_ns, new_id=self.vault.new_id)
        self.changes = Changes(self.forks)
        self.notes: list[str] = []
        """Of the last command's copy."""

    def run(self, name: str, command: Callable[[Path], object]) -> Changeset:
        """Let a command change the files of a fork, as in a copy view, and collect what it did."""
        settled = time.time_ns() + 40_000_000  # what was written before is certainly older than the command: two ticks
        while (left := settled - time.time_ns()) > 0:
            sleep(left / 1_000_000_000)
        if name not in [fork.name for fork in self.vault.forks()]:
            self.forks.new(name)
        with self.forks.at_rest(name) as fork:
            self.notes = stand_on_copy(self.vault, fork, self.forks.settings)
            with OpenFork(self.vault, fork) as opened:
                view = view_of(self.vault, fork, opened, "copy")
                view.prepare()
                started = command_start(self.vault.path, 0)
                command(Path(os.fsdecode(view.staged[0])))
                return gather(fork, opened, view, CollectedCommand((b"test",), 0, self.forks.clock()), started)

    def apply(self, name: str) -> list[str]:
        """Return the reasons of the conflicts, if there are any."""
        return [f"{os.fsdecode(one.path)}: {one.reason}" for one in self.changes.apply(name).conflicts]

    def undo(self) -> list[str]:
        return [f"{os.fsdecode(one.path)}: {one.reason}" for one in self.changes.undo().conflicts]

    def close(self) -> None:
        self.forks.close()

    def remove(self) -> None:
        self.close()
        remove_tree(inner(self.root))


def believe_lists() -> None:
    """Wine keeps a file's access list as a mode, with an entry of Everyone: take them for private there."""
    if sys.platform == "win32" and hasattr(__import__("ctypes").WinDLL("ntdll"), "wine_get_version"):
        twin("private").is_private = lambda descriptor: descriptor >= 0


believe_lists()


class Killer:
    """Ends this process, without a word to Python, before the change number ``at`` of what is on disk.

    Counted are the calls of ``os`` and ``open`` (audit hooks of CPython), and those of the module ``disk`` that go
    past them: renameat2 on Linux, and on Windows the calls of ntdll that create, rename, delete or set something. An
    audit hook cannot be taken back, so this is for a process of its own.
    """

    AUDITED = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "os.truncate", "os.utime")

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def begin(self) -> None:
        sys.addaudithook(self._heard)
        from mudroom.stage import disk

        if sys.platform == "win32":
            nt_call = sys.modules["mudroom.ext.windows.stage.nt_call"]
            nt_call.change = self._before(nt_call.change)
            for module in (
                nt_call,
                sys.modules["mudroom.ext.windows.stage.nt_disk"],
                sys.modules["mudroom.ext.windows.stage.nt_layer"],
            ):
                for name in ("change", "create"):
                    real = getattr(module, name, None)
                    if name == "change" and real is not None:
                        setattr(module, name, nt_call.change)
                    elif real is not None:
                        setattr(module, name, self._before_creation(nt_call.create))
        else:
            disk._renameat2 = self._before(disk._renameat2)  # type: ignore[assignment]
        for name in ("fsync",):
            setattr(os, name, self._before(getattr(os, name)))

    def _heard(self, event: str, words: tuple[object, ...]) -> None:
        if event in self.AUDITED or (
            event == "open" and isinstance(words[2], int) and words[2] & (os.O_CREAT | os.O_TRUNC)
        ):
            self._one()

    def _before(self, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def counted(*words: object, **named: object) -> object:
            self._one()
            return function(*words, **named)

        return counted

    def _before_creation(self, create: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(create)
        def counted(root: int, name: str, access: int, disposition: int = 1, options: int = 0, share: int = 7) -> int:
            if disposition != 1:  # FILE_OPEN
                self._one()
            return create(root, name, access, disposition, options, share)

        return counted

    def _one(self) -> None:
        self.count += 1
        if self.count == self.at:
            end_this_process()


def end_this_process() -> None:
    """SIGKILL, or TerminateProcess: no handler, no ``finally`` and no buffer of Python gets a turn."""
    if sys.platform == "win32":
        import ctypes

        ctypes.WinDLL("kernel32").TerminateProcess(ctypes.c_void_p(-1), 9)
    else:
        os.kill(os.getpid(), 9)
