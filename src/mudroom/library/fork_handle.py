"""A room's fork: files, changes, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.errors import file_error
from mudroom.library import landing
from mudroom.library.argument import required_name
from mudroom.library.command import requested, run, start, stream
from mudroom.library.value import Applied, ChangeList, FileInfo, RunResult, file_info
from mudroom.typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from mudroom.core.network.push import PushRow
    from mudroom.library.argument import CommandLine, Effects, StrPath, Word
    from mudroom.library.background_handle import BackgroundHandle
    from mudroom.library.life import Life
    from mudroom.library.mounted_block import MountedBlocks
    from mudroom.library.output import OnOutput, OutputStream
    from mudroom.stage.buffer.files import Files, SearchMatch

    Names: TypeAlias = list[str]  # in the class below, ``list`` is a method
    HeldEffects: TypeAlias = list[PushRow]
    FileInfos: TypeAlias = list[FileInfo]
    Matches: TypeAlias = list[SearchMatch]


class ForkHandle:
    """A fork. Paths are relative to the project, or absolute in it. Written files stay in memory until another call or
    process needs them on disk, until ``flush``, or until the room is closed. A command that runs in the fork sees them
    at once. An error of a file is a MudroomError and Python's own, such as FileNotFoundError.

    A handle has no state: any number of handles may stand for one fork, in any threads.
    """

    def __init__(self, life: Life, name: str, mounted: MountedBlocks) -> None:
        """Use ``Room.fork`` to create a handle. ``mounted`` belongs to the room."""
        self._life, self.name, self._mounted = life, name, mounted

    def __repr__(self) -> str:
        return f"<mudroom fork {self.name} of {os.fsdecode(self._life.project)}>"

    def __fspath__(self) -> str:
        raise TypeError(f"the fork {self.name} is no directory; with fork.mount() as path: … makes one")

    @contextmanager
    def _files(self) -> Iterator[Files]:
        with self._life.call() as session:
            try:
                yield session.forks.files(self.name)
            except OSError as error:
                raise file_error(error) from error

    # --- files ---

    def read(self, path: StrPath) -> str:
        """Return a text file. Bytes that are not UTF-8 become surrogates, which ``write`` turns back."""
        return self.read_bytes(path).decode("utf-8", "surrogateescape")

    def read_bytes(self, path: StrPath) -> bytes:
        """Raise FileNotFoundError, IsADirectoryError … as ``open`` does."""
        with self._files() as files:
            return files.read(path)

    def write(self, path: StrPath, content: str | bytes, *, mode: int | None = None) -> None:
        """Create or replace a file; missing directories are created. ``mode``: permission bits. None keeps them."""
        with self._files() as files:
            files.write(path, content, mode)

    def edit(self, path: StrPath, old: str, new: str, *, all: bool = False) -> int:  # noqa: A002
        """Replace a text that occurs exactly once, or with ``all`` at least once. Return the number of replacements.
        Otherwise raise UsageError, which says where it occurs."""
        with self._files() as files:
            return files.edit(path, old, new, all=all)

    def delete(self, path: StrPath, *, recursive: bool = False) -> None:
        """Delete a file, a link or an empty directory; with ``recursive``, a directory with its contents."""
        with self._files() as files:
            files.delete(path, recursive)

    def move(self, old: StrPath, new: StrPath) -> None:
        with self._files() as files:
            files.move(old, new)

    def list(self, path: StrPath = "") -> FileInfos:
        """Return a directory's entries, sorted by name."""
        with self._files() as files:
            return [file_info(name, entry) for name, entry in files.list(path).items()]

    def exists(self, path: StrPath) -> bool:
        with self._files() as files:
            return files.look(path) is not None

    def glob(self, pattern: str) -> Names:
        """Return the matching paths, sorted. ``**`` matches any directories."""
        with self._files() as files:
            return files.glob(pattern)

    def search(self, regex: str, glob: str = "**", *, limit: int = 1000) -> Matches:
        """Return the lines that match a regular expression: path, line, text. Binary files are skipped."""
        with self._files() as files:
            return files.search(regex, glob, limit)

    def flush(self) -> None:
        """Write files from memory to disk, so that other processes see them."""
        with self._life.call() as session:
            session.forks.flush(self.name)

    @contextmanager
    def mount(self, place: StrPath | None = None, *, writable: bool = True) -> Iterator[Path]:
        """Show the fork as a directory during the block. ``place`` is empty, does not exist yet, or is chosen by
        mudroom. Blocks of the same fork share the directory. A fork that was mounted before stays mounted. Raise
        Unsupported if mounting is impossible here. Raise MudroomError at the end if the directory is still in use."""
        from pathlib import Path

        at = None if place is None else os.path.abspath(os.fsencode(place))
        with self._mounted.block(self._life, self.name, at, writable=writable) as mount:
            yield Path(os.fsdecode(mount.place))

    # --- commands ---

    def run(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        check: bool = False,
    ) -> RunResult:
        """``Room.run`` in this fork."""
        request = requested(self._life, command, self.name, cwd, timeout, input, env)
        return run(self._life, request, on_output, check=check)

    def stream(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
    ) -> OutputStream:
        """``Room.stream`` in this fork."""
        return stream(self._life, requested(self._life, command, self.name, cwd, timeout, input, env))

    def start(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> BackgroundHandle:
        """``Room.start`` in this fork."""
        return start(self._life, requested(self._life, command, self.name, cwd, timeout, None, env))

    # --- changes ---

    def changes(self) -> ChangeList:
        return landing.changes(self._life, self.name)

    def effects(self) -> HeldEffects:
        """``Room.effects`` of this fork."""
        return landing.effects(self._life, self.name)

    def diff(self, paths: Word | Sequence[Word] = ()) -> str:
        return landing.diff(self._life, self.name, paths)

    def fingerprint(self) -> str:
        """Return the present changes' fingerprint, for ``apply(reviewed=…)``. While the fork is in use it begins with
        ``look-``, and no apply accepts it."""
        with self._life.call() as session:
            return session.changes.fingerprint(self.name)

    def in_use(self) -> str:
        """Return why this fork's changes can now only be looked at, not reviewed: "is running (npm run dev)", "is
        mounted at /x". Empty if its files cannot change before the next command."""
        with self._life.call() as session:
            return session.changes.look(self.name).in_use

    def apply(
        self,
        paths: Word | Sequence[Word] = (),
        *,
        verify: CommandLine | None = None,
        reviewed: str | None = None,
        effects: Effects = (),
        git: bool = False,
    ) -> Applied:
        """``Room.apply`` for this fork."""
        return landing.apply(self._life, self.name, paths, verify, reviewed, effects, git=git)

    def checkpoint(self, name: str) -> None:
        """Freeze the present files under a name. Raise UsageError if the name is taken."""
        with self._life.call() as session:
            session.forks.checkpoint(self.name, required_name(name))

    def checkpoints(self) -> Names:
        """Return the checkpoints' names, oldest first."""
        with self._life.call() as session:
            return [point.name for point in session.vault.fork(self.name).state.checkpoints]

    def rollback(self, checkpoint: str | None = None) -> str | None:
        """Drop the changes since a checkpoint (default: the last). Return the checkpoint that restores them, or None if
        there were none."""
        with self._life.call() as session:
            undo = session.forks.rollback(self.name, checkpoint)
            return None if undo is None else undo.name

    def discard(self, effects: Effects | None = None) -> None:
        """Discard the fork, or drop only these of its held effects."""
        landing.discard(self._life, self.name, effects)
