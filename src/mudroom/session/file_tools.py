"""A session's file tools: a write buffer for each fork, or the live mount while a command runs in it."""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mudroom.core.tree.path import show
from mudroom.errors import ForkGone, MudroomError, UsageError
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.forks.collection import changed_paths, recorded_changes
from mudroom.vault.forks.stacking import require_idle
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Running
    from mudroom.stage.buffer.files import Tree
    from mudroom.stage.views.live import LiveTree
    from mudroom.vault.forks.editor import Editor

LOOK = 0.01
"""Seconds between two attempts to take a lock that another thread may hold."""


class FileTools:
    """Thread-safe: an editor is made under its fork's lock, which excludes other threads, too, and reopened under its
    buffer's lock. The dicts change by single operations.

    While a command starts or ends, other threads' calls on its fork wait: from the buffer's flush until the mount is
    there, and from the mount's end until the buffer shows the files that the command left. A write to the buffer in
    between would not reach the command: ``changing`` keeps it from beginning then, and ``pause`` waits for its end. A
    read of a tree that has ended goes on in the next one.
    """

    def __init__(self, vault: Vault, clock: Callable[[], int], hides: Callable[[bytes], bool]) -> None:
        """``hides``: whether a path is a secret."""
        self._vault, self._clock, self._hides = vault, clock, hides
        self._editors: dict[str, Editor] = {}
        self._live: dict[str, tuple[LiveTree, frozenset[bytes]]] = {}
        """Mounts of running commands, with the secrets that the commands see empty."""
        self._paused: dict[str, tuple[int, _thread.LockType]] = {}
        """Identifier of the thread that starts or ends a command in the fork, and the lock that it holds meanwhile."""
        self._turns: dict[str, _thread.RLock] = {}
        """Held while a fork's files are changed, and while its editor is dropped. Taken after the fork's lock."""
        self._notes: deque[str] = deque()
        """Notes for the next flush. Each append and pop is atomic."""

    def __contains__(self, name: str) -> bool:
        """Return whether file tools have been used on this fork."""
        return self._editor(name) is not None

    def in_use(self) -> list[str]:
        return list(self._editors)

    def is_live(self, name: str) -> bool:
        return name in self._live

    def tree(self, name: str, vault: Vault | None = None) -> Tree:
        """Return the tree with the fork's present files: the live mount or the buffer. ``vault``: has another mask than
        the session's. Wait while another thread starts or ends a command in the fork. Raise UsageError while a running
        command can read a secret that file tools may not."""
        while True:
            while (pause := self._paused.get(name)) is not None and pause[0] != _thread.get_ident():
                with pause[1]:
                    pass
            live = self._live.get(name)
            if live is not None:
                if not self._vault.mask.paths <= live[1]:
                    raise UsageError(
                        f"a command in the fork {name} was shown a secret that file tools may not read",
                        "try again when it has ended",
                    )
                return live[0]  # passes calls on to the mount
            mounted = self._mounted(name)
            if mounted is not None:
                return mounted
            editor = self._editor(name) or self._made(name, vault or self._vault)
            if editor is not None:
                if editor.is_outdated:
                    self._catch_up(name, editor)
                return editor.buffer
            time.sleep(LOOK)

    @contextmanager
    def changing(self, name: str) -> Iterator[Tree]:
        """Yield the tree as ``tree`` does, for a change. Until the end of the block no other thread changes it by file
        tools, and no command of this session starts or ends in the fork. Do not wait for a fork's lock in it."""
        while True:
            tree = self.tree(name)
            with self._turn(name):
                if self._is_present(name, tree):
                    yield tree
                    return

    def _turn(self, name: str) -> _thread.RLock:
        return self._turns.setdefault(name, _thread.RLock())

    def _is_present(self, name: str, tree: Tree) -> bool:
        """Return whether ``tree`` has the fork's files still. Hold the fork's turn."""
        pause, live, editor = self._paused.get(name), self._live.get(name), self._editors.get(name)
        if pause is not None and pause[0] != _thread.get_ident():
            return False
        if live is not None or editor is not None:
            return tree is (live[0] if live is not None else editor and editor.buffer)
        from mudroom.stage.views.mounted import MountedTree

        return isinstance(tree, MountedTree)

    def _made(self, name: str, vault: Vault) -> Editor | None:
        """Return a new editor, or None while the fork's lock is taken. Do not wait for the lock: its holder may be
        about to start a command, whose mount the caller can then use without waiting for the command's end."""
        from mudroom.vault.forks.editor import Editor

        fork = self._vault.fork(name)
        with fork.lock_if_free("file tools") as free:
            if not free:
                return None
            editor = self._editor(name)  # again: another thread may have made it meanwhile
            if editor is None:
                editor = self._editors[name] = Editor(vault, fork, self._clock)
            return editor

    def _mounted(self, name: str) -> Tree | None:
        """Return the tree of a fork that is mounted for the user's own tools, or None. Settle a mount that has ended.
        Writes that were in memory when another process mounted the fork are flushed first."""
        fork = self._vault.fork(name)
        note = mount_note(fork)
        if note is None:
            return None
        from mudroom.stage.views.mounted import MountedTree
        from mudroom.vault.forks.mount import settled, state_of

        if not note.writable or state_of(self._vault, fork, note) != "mounted" or self.has_unflushed(name):
            with fork.lock("file tools"):
                note = settled(self._vault, fork, self._clock())
                if note is None:
                    return None
                if not note.writable:
                    require_idle(fork)
                editor = self._editor(name)
                if editor is not None:
                    with self._turn(name):  # a write in between would be dropped
                        self._notes.extend(self._flush(fork, editor))
                        self.drop(name)
        return MountedTree(note.place, note.identity)

    def _catch_up(self, name: str, editor: Editor) -> None:
        """Show files that other writers have closed in the fork. While they still work in it, show the last version."""
        fork = self._vault.fork(name)
        with fork.lock_if_free("file tools") as free:
            if free and fork.interrupted is None and self._editors.get(name) is editor:
                self._notes.extend(self._flush(fork, editor))
                editor.refresh()

    def _editor(self, name: str) -> Editor | None:
        """Return the fork's editor, or None. If the fork is gone, drop its editor with the unflushed writes."""
        editor = self._editors.get(name)
        if editor is not None and not editor.is_there:
            self.drop(name)
            return None
        return editor

    def go_live(self, name: str, running: Running, masked: frozenset[bytes]) -> None:
        """Wait for this command's mount, and let file tools use it from now on. ``masked``: the secrets that the
        command sees empty."""
        from mudroom.stage.views.live import LiveTree

        try:
            self._live[name] = LiveTree(running.view(), _NextTree(self, name)), masked
        except MudroomError:
            return  # the mount failed: the thread that runs the command raises the reason

    def end_live(self, name: str) -> None:
        """Stop using the command's mount. If it was in use, pause the tools until ``resume``."""
        if name in self._live:
            self.pause(name)
            self._live.pop(name)[0].close()

    def pause(self, name: str) -> None:
        """Make other threads' calls wait until ``resume``, and wait for changes that have begun. Hold the fork's
        lock."""
        _thread_before, held = self._paused.get(name, (0, None))
        if held is None:
            held = _thread.allocate_lock()
            held.acquire()
        self._paused[name] = (_thread.get_ident(), held)
        with self._turn(name):
            pass

    def resume(self, name: str) -> None:
        _thread_before, held = self._paused.pop(name, (0, None))
        if held is not None:
            held.release()

    @contextmanager
    def aside(self, fork: Fork) -> Iterator[None]:
        """Flush and drop the fork's editor. Until the end of the block, after which the fork may have no name any more,
        other threads' calls wait. Hold the fork's lock."""
        self.pause(fork.name)
        try:
            self._notes.extend(self.flush(fork))
            self.drop(fork.name)
            yield
        finally:
            self.resume(fork.name)

    def has_unflushed(self, name: str) -> bool:
        """Return whether writes to the fork are still in memory."""
        editor = self._editor(name)
        return editor is not None and bool(editor.buffer.changed)

    def flush(self, fork: Fork) -> list[str]:
        """Write the buffer into the fork and return notes. Hold the fork's lock."""
        editor = self._editor(fork.name)
        notes = [self._notes.popleft() for _note in range(len(self._notes))]
        return notes if editor is None else notes + self._flush(fork, editor)

    def _flush(self, fork: Fork, editor: Editor) -> list[str]:
        if not editor.buffer.changed:
            return []
        before = recorded_changes(fork)
        lost = editor.flush()
        after = recorded_changes(fork)
        paths = changed_paths(self._vault, fork, before, after, self._hides)
        self._vault.journal.append("edit", fork.name, {"changed": len(after.changes)} | paths, time=self._clock())
        refused = [_refusal(path, place) for path, place in editor.refused.items()]
        editor.refused.clear()
        return refused + [f"{show(path)} could not be staged: it is gone, or no file" for path in lost]

    def refresh(self, fork: Fork) -> None:
        """Reload the fork's files after a command, or after its layers have changed. Hold the fork's lock."""
        editor = self._editor(fork.name)
        if editor is not None:
            self._refresh(fork, editor)

    def _refresh(self, fork: Fork, editor: Editor) -> None:
        with self._turn(fork.name):
            if mount_note(fork) is not None and not editor.buffer.changed:
                # file tools work in the mount, which an open editor would keep from being unmounted
                self.drop(fork.name)
            else:
                editor.refresh()

    def refresh_all(self) -> None:
        """Reload the files of all forks in use. Holds no lock, so a fork may be discarded or renamed meanwhile."""
        for name in self.in_use():
            editor = self._editor(name)
            if editor is not None:
                with suppress(ForkGone):  # the next look drops its editor
                    self._refresh(self._vault.fork(name), editor)

    def drop(self, name: str) -> None:
        """Drop the fork's editor with its unflushed writes."""
        with self._turn(name):
            editor = self._editors.pop(name, None)
        if editor is not None:
            editor.close(_NextTree(self, name))


class _NextTree:
    """The fork's present files, for a thread that has chosen a tree and uses it after its end."""

    def __init__(self, tools: FileTools, name: str) -> None:
        self._tools, self._name = tools, name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return getattr(self._tools.tree(self._name), method)  # type: ignore[no-any-return]


def _refusal(path: bytes, place: bytes) -> str:
    kept = f"; the refused content is in {show(place)}" if place else ""
    return f"{show(path)}: another writer has changed it in the fork meanwhile, and that version stays{kept}"
