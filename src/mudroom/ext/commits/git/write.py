"""Writer for the user's repository: packs, ref lock files, and logs. ``ref_transaction.py`` renames the locks to
refs."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dulwich.file import adjust_shared_perm
from dulwich.pack import UnpackedObject, write_pack_data, write_pack_index_v2

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.git.repository import NUMBERS, Repository
from mudroom.stage import disk
from mudroom.typing import BinaryIO, NoReturn
from mudroom.vault.sync import sync_directory

_IDENTITY = b"mudroom <mudroom@localhost>"


class RepositoryWriter:
    def __init__(self, live: Repository) -> None:
        self._live = live

    def add_objects(self, count: int, objects: Iterator[tuple[bytes, bytes, bytes]]) -> None:
        """Add objects (id, kind, content), durably: all, or none if an exception is raised."""
        directory = os.fsencode(self._live.store.pack_dir)
        self._make_directory(directory)
        records = (
            UnpackedObject(NUMBERS[kind], decomp_chunks=[data], sha=bytes.fromhex(name.decode()))
            for name, kind, data in objects
        )
        paths: list[bytes] = []
        try:
            with self._new_file(directory, b"tmp_pack_", paths) as stream:
                entries, checksum = write_pack_data(stream.write, records, self._live.format, num_records=count)
            with self._new_file(directory, b"tmp_idx_", paths) as stream:
                listed = sorted((name, offset, crc) for name, (offset, crc) in entries.items())
                write_pack_index_v2(stream, listed, checksum)
            name = directory + b"/pack-" + checksum.hex().encode()
            for index, suffix in enumerate((b".pack", b".idx")):  # the pack is visible once the index is renamed
                disk.rename_path(paths[index], name + suffix)
                paths[index] = name + suffix
            paths.clear()
        finally:
            for path in paths:
                os.unlink(path)
        sync_directory(directory)

    @contextmanager
    def _new_file(self, directory: bytes, prefix: bytes, paths: list[bytes]) -> Iterator[BinaryIO]:
        """Create a file that is on disk when the block has run; its path is added to ``paths``.

        git gc removes a killed process's files with these names: builtin/prune.c, remove_temporary_files.
        """
        path = directory + b"/" + prefix + os.urandom(6).hex().encode()
        descriptor = disk.open_path(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o444)
        paths.append(path)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            disk.sync(descriptor)
        self.share(path)

    def create_lock(self, name: bytes, lock: bytes, content: bytes, *, again: bool = False) -> None:
        """Create a ref's lock file with its new content, durably. Raise UsageError if another git command holds it, or
        the ref cannot exist. ``again``: as for ``create_lock_file``."""
        try:
            self._make_directory(os.path.dirname(lock))
            create_lock_file(lock, content, 0o666, again=again)
            self.share(lock)
        except OSError as error:
            _raise_named(name, lock, error)

    def remove_log(self, name: bytes) -> None:
        log = os.path.join(self._live.place.common, b"logs", name)
        with suppress(OSError):
            os.unlink(log)
            os.removedirs(os.path.dirname(log))  # and empty parents

    def ends_with(self, name: bytes, ids: list[bytes]) -> bool:
        """Return whether a log's last entries are ``ids``."""
        return [line.split(b" ", 2)[1:2] for line in self._log_lines(name)[-len(ids) :]] == [[commit] for commit in ids]

    def unlog(self, name: bytes, ids: list[bytes], *, again: bool = False) -> None:
        """Remove a log's last entries if they are ``ids``; otherwise leave the log alone."""
        if not self.ends_with(name, ids):
            return
        path, rest = self._log_path(name), b"".join(self._log_lines(name)[: -len(ids)])
        if not rest:
            self.remove_log(name)
            return
        self.create_lock(name, path + b".lock", rest, again=again)
        disk.rename_path(path + b".lock", path)

    def _log_path(self, name: bytes) -> bytes:
        return os.path.join(self._live.place.common, b"logs", name)

    def _log_lines(self, name: bytes) -> list[bytes]:
        try:
            with open(self._log_path(name), "rb") as stream:
                return stream.readlines()
        except FileNotFoundError:
            return []

    def log(
        self,
        name: bytes,
        old: bytes,
        new: bytes,
        message: bytes,
        directory: bytes | None = None,
        *,
        always: bool = False,
    ) -> None:
        """Add an entry to a ref's log, if the repository keeps logs: git-config(1), core.logAllRefUpdates.

        ``directory``: the log's git directory, if it is not the common one. ``always``: create the log.
        """
        setting = self._live.setting(b"core", b"logallrefupdates", b"").lower()
        bare = self._live.setting(b"core", b"bare", b"false").lower() in (b"true", b"yes", b"on", b"1")
        path = os.path.join(directory or self._live.place.common, b"logs", name)
        keeps_log = always or (not bare if not setting else setting in (b"true", b"yes", b"on", b"1", b"always"))
        if not keeps_log and not os.path.exists(path):
            return
        self._make_directory(os.path.dirname(path))
        old, new = (value or b"0" * self._live.format.hex_length for value in (old, new))
        with open(path, "ab") as stream:
            stream.write(b"%s %s %s %d +0000\t%s\n" % (old, new, _IDENTITY, int(time.time()), message))
        self.share(path)

    def _make_directory(self, path: bytes) -> None:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            try:
                os.mkdir(directory)
            except FileExistsError:
                continue
            self.share(directory)

    def share(self, path: bytes) -> None:
        """Set the permissions that the repository requires: git-config(1), core.sharedRepository."""
        setting = self._live.setting(b"core", b"sharedrepository", b"")
        if setting:
            from dulwich.repo import parse_shared_repository

            adjust_shared_perm(path, parse_shared_repository(setting))


def create_lock_file(lock: bytes, content: bytes, mode: int, *, again: bool = False) -> None:
    """Create a git lock file with its content, durably. Raise FileExistsError if another process holds it.

    ``again``: take over a lock file that holds this content or a prefix of it: this operation left it when it was
    killed.
    """
    try:
        descriptor = disk.open_path(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, mode)
    except FileExistsError:
        # an empty lock is never taken over: git's own are empty at first
        if not again or not _holds(lock, content):
            raise
        descriptor = disk.open_path(lock, os.O_WRONLY | os.O_TRUNC | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            disk.sync(descriptor)
    except BaseException:
        os.unlink(lock)
        raise


def _holds(path: bytes, content: bytes) -> bool:
    """Return whether a file holds a non-empty prefix of ``content``."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(len(content) + 1)
    except FileNotFoundError:
        return False
    return bool(data) and content.startswith(data)


def _raise_named(name: bytes, lock: bytes, error: OSError) -> NoReturn:
    if error.errno == errno.EEXIST and error.filename == lock:
        raise _locked(lock) from None
    if error.errno in (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG):
        raise UsageError(
            f"{show(name)} cannot be written: {error.strerror}", "choose another branch with --branch"
        ) from None
    raise error


def _locked(lock: bytes) -> UsageError:
    return UsageError("another git command is at work in the repository", f"if not, remove {show(lock)}")
