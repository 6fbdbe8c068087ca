"""What is written to the user's own repository: one pack and one branch. HEAD, index and work tree never are."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NoReturn

from dulwich.file import FileLocked, adjust_shared_perm
from dulwich.objects import ObjectID
from dulwich.pack import UnpackedObject, write_pack_data, write_pack_index_v2
from dulwich.refs import Ref

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.vault.git.live import NUMBERS, Repository

_WHO = b"mudroom <mudroom@localhost>"


class RepositoryWriter:
    def __init__(self, live: Repository) -> None:
        self._live = live

    def add_objects(self, count: int, objects: Iterator[tuple[bytes, bytes, bytes]]) -> None:
        """Add objects (id, kind, content): all of them, or none if anything is raised. On disk when this returns."""
        directory = os.fsencode(self._live.store.pack_dir)
        self._make_directory(directory)
        records = (
            UnpackedObject(NUMBERS[kind], decomp_chunks=[data], sha=bytes.fromhex(name.decode()))
            for name, kind, data in objects
        )
        made: list[bytes] = []
        try:
            with self._new_file(directory, b"tmp_pack_", made) as stream:
                entries, checksum = write_pack_data(stream.write, records, self._live.format, num_records=count)
            with self._new_file(directory, b"tmp_idx_", made) as stream:
                listed = sorted((name, offset, crc) for name, (offset, crc) in entries.items())
                write_pack_index_v2(stream, listed, checksum)
            name = directory + b"/pack-" + checksum.hex().encode()
            for index, suffix in enumerate((b".pack", b".idx")):  # with the second it is seen
                os.rename(made[index], name + suffix)
                made[index] = name + suffix
            made.clear()
        finally:
            for path in made:
                os.unlink(path)
        _sync(directory)

    @contextmanager
    def _new_file(self, directory: bytes, prefix: bytes, made: list[bytes]) -> Iterator[BinaryIO]:
        """A file that is on disk when the block has run; its path is added to ``made``.

        git gc takes away what a killed process leaves under these names: builtin/prune.c, remove_temporary_files.
        """
        path = directory + b"/" + prefix + os.urandom(6).hex().encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        made.append(path)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        self._share(path)

    def set_branch(self, name: bytes, before: bytes, head: bytes, message: bytes) -> None:
        """Let a branch point to ``head`` if it points to ``before`` (b"": is not there). Raises UsageError.

        By a lock file that is renamed, as git does it and respects it: gitrepository-layout(5), refs.
        """
        path = os.path.join(self._live.place.common, name)
        lock = path + b".lock"
        try:
            self._make_directory(os.path.dirname(path))
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            _cannot(name, lock, error)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(head + b"\n")
                stream.flush()
                os.fsync(descriptor)
            if self._live.branch(name) != before:
                raise UsageError(f"the branch {show(name)} has moved meanwhile", "try again")
            self._share(lock)
            self._log(name, before, head, message)
            os.rename(lock, path)
        except BaseException as error:
            os.unlink(lock)
            if isinstance(error, OSError):
                _cannot(name, lock, error)
            raise
        _sync(os.path.dirname(path))

    def remove_branch(self, name: bytes, head: bytes) -> None:
        """Remove a branch and its log if it points to ``head``. Raises UsageError."""
        try:
            done = self._live.refs.remove_if_equals(Ref(name), ObjectID(head))
        except FileLocked as error:
            raise _locked(os.fsencode(error.lockfilename)) from None
        if not done:
            raise UsageError(f"the branch {show(name)} has moved meanwhile", "git branch -D removes it")
        log = os.path.join(self._live.place.common, b"logs", name)
        try:
            os.unlink(log)
            os.removedirs(os.path.dirname(log))  # as far up as they are empty
        except OSError:
            pass

    def _log(self, name: bytes, old: bytes, new: bytes, message: bytes) -> None:
        """An entry of a branch's log, if the repository keeps logs: git-config(1), core.logAllRefUpdates."""
        wanted = self._live.setting(b"core", b"logallrefupdates", b"").lower()
        bare = self._live.setting(b"core", b"bare", b"false").lower() in (b"true", b"yes", b"on", b"1")
        path = os.path.join(self._live.place.common, b"logs", name)
        kept = not bare if not wanted else wanted in (b"true", b"yes", b"on", b"1", b"always")
        if not kept and not os.path.exists(path):
            return
        self._make_directory(os.path.dirname(path))
        old = old or b"0" * self._live.format.hex_length
        with open(path, "ab") as stream:
            stream.write(b"%s %s %s %d +0000\t%s\n" % (old, new, _WHO, int(time.time()), message))
        self._share(path)

    def _make_directory(self, path: bytes) -> None:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for one in reversed(missing):
            try:
                os.mkdir(one)
            except FileExistsError:
                continue
            self._share(one)

    def _share(self, path: bytes) -> None:
        """The permissions that the repository wants its files to have: git-config(1), core.sharedRepository."""
        wanted = self._live.setting(b"core", b"sharedrepository", b"")
        if wanted:
            from dulwich.repo import parse_shared_repository

            adjust_shared_perm(path, parse_shared_repository(wanted))


def _sync(directory: bytes) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(name: bytes, lock: bytes, error: OSError) -> NoReturn:
    if error.errno == errno.EEXIST and error.filename == lock:
        raise _locked(lock) from None
    if error.errno in (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG):
        raise UsageError(
            f"the branch {show(name)} cannot be written: {error.strerror}", "choose another with --branch"
        ) from None
    raise error


def _locked(lock: bytes) -> UsageError:
    return UsageError("another git command is at work in the repository", f"if not, remove {show(lock)}")
