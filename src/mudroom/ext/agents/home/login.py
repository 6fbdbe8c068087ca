"""An agent's logins in a fork: copies of the host's, which go back to the host when they are renewed.

On disk, beside the store's places (``agent_home.py``):

    forks/<fork>/home/<store>/logins       while there is a copy: path, host path, the place's number, path in it, and
                                           the digest when both sides were last equal, and its tokens' members; JSON
    forks/<fork>/home/<store>/aside-<digest> a login's older version, if both sides had changed

Programs renew a token in many ways: in place, by a rename, by a new file. So a command sees an ordinary file in the
fork's own directory. The rules:

1. A sandbox's version lands on the host without a review. So it must be one regular file with a bounded size, which is
   opened by descriptor without following a link and read once; exactly those bytes are written.
2. The host's file is replaced by a new file, fsync and rename, with its owner and mode, if it is still the version that
   was compared. All of this user's mudrooms take turns (``logins.lock`` in the state). A file that is missing on the
   host is not made, and a link that was put there is not followed.
3. While the command runs, a version is taken only after it has been unchanged for a moment. When the command has ended,
   any version is taken.
4. The file is written first, then the common digest is saved. After a crash between the two, both sides are equal, and
   the digest is not needed.
5. A copy is removed when its command has ended. If it could not be written on the host, it stays, with a note: the next
   command has it, and tries again.

Other single-file stores (``.npmrc``) have their copies in the command's own home, a tmpfs that ends with it
(``FILES``). A copy that could not be written on the host is set aside. Where such a file is a mount (at level 0, in
containers), it shows the inode that the host had at the start (mount_namespaces(7)). The keeper holds that inode: once
the host has another file there, the inode is the copy, and is written in place.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.home_change import tokens_in, with_renewed
from mudroom.ext.agents.core.login import LARGEST, LoginVersion, compared, is_cut_off
from mudroom.ext.agents.home.staged_file import digest_of, make_parents, open_own, remove, save
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import directory, look, look_beneath, open_beneath
from mudroom.typing import NamedTuple
from mudroom.vault.lock import Lock

SETTLED = 0.08
"""Seconds without a write: less than the time between two looks."""
_TRIES = 3
"""Comparisons with a host file that another program is writing meanwhile."""
_NOT_RENAMED = (errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)
"""For a file that can only be written in place: it is a mount, or its directory is closed to the user."""

FILES = b".files"
"""The store of the other single files; no profile has this name."""
_ASIDE = b"aside-"
_TEMPORARY = b".mudroom-"
"""Part of the name of a new file beside a login on the host."""
_LINKS = (errno.ELOOP, errno.ENOTDIR)
"""For a link at the end of a path, or in the place of a directory on the way."""

Stamp = tuple[int, int, int, int]


IN_HOME = -1
"""The number of the home itself, in the place of a store's place. Smaller ones are those of held inodes."""


class StagedLogin(NamedTuple):
    path: bytes
    """Relative to the home, or absolute."""
    host: bytes
    """Its real path on the host."""
    place: int
    """The number of the store's place that holds the copy."""
    inside: bytes
    """The copy's path below the place."""
    base: str
    """The digest when both sides were last equal; empty if that is not known."""
    keys: tuple[str, ...] = ()
    """The tokens in its JSON, if the file holds settings, too: only these are kept equal, and the copy stays."""


class _Unusable(Exception):
    """The host's version cannot be read or written. The reason is the message."""


class _NoLogin(_Unusable):
    """The fork's version is not a login. The reason is the message."""


class _Moved(Exception):
    """The host's file has been replaced since it was read."""


class LoginKeeper:
    """One store's logins. Used by one thread at a time: the holder of the fork's lock, or of its owner's lock
    (``SharedHomeFiles``). ``place``: the directory of the store's copy in the fork."""

    def __init__(self, place: bytes, owner: tuple[int, int] | None = None, *, is_discarded: bool = False) -> None:
        """``owner``: of the copies, where root's commands are another user's; None: this process's. ``is_discarded``:
        the fork is being discarded, with every copy."""
        self._place, self._owner, self._is_discarded = place, owner, is_discarded
        self._state = place.rsplit(b"/", 6)[0]
        self._turn = Lock(self._state + b"/logins.lock", "the login of an agent")
        self._roots: dict[int, int] = {}
        self._in_home = place.endswith(b"/" + FILES)
        self._logins = {} if self._in_home else _load(place)
        self._seen = dict[bytes, object]()
        self._settling = dict[bytes, tuple[object, float]]()
        self.notes: list[str] = []

    def begin(self, logins: Iterable[StagedLogin]) -> None:
        """Settle an earlier command's remaining logins, and copy the host's. No process of the fork may live."""
        self.settle()
        for login in logins:
            try:
                with _beside(login.host) as (at, name):
                    outside = _read_host(at, name)[0]
                inside = self._inside(login) if login.keys else None
            except (OSError, _Unusable) as error:
                self._note(f"{self._named(login)} is not staged: {_reason(error)}")
                continue
            left = self._logins.get(login.path)
            digest, is_new = outside.digest, left is None
            if login.keys:
                tokens = tokens_in(outside.content, inside.content, login.keys) if inside is not None else None
                if inside is None or tokens is None:
                    continue
                digest = digest_of(tokens)
                is_new = is_new and tokens != tokens_in(inside.content, outside.content, login.keys)
            if is_new:
                self._put(login, _renewed(login, inside, outside))
            # A copy that was left is the fork's own version, which could not be kept: its base stays.
            base = digest if left is None else left.base
            self._logins[login.path] = login._replace(base=base)
        self._save()
        for login in self._logins.values():
            self._seen[login.path] = self._stamps(login)

    def contents(self, files: Iterable[StagedLogin]) -> Iterator[tuple[StagedLogin, bytes]]:
        """Yield the files whose copies the command's home is to have, with their contents. Keep them equal from
        ``enter`` on."""
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        for file in files:
            try:
                with _beside(file.host) as (at, name):
                    outside = _read_host(at, name)[0]
            except (OSError, _Unusable):
                continue  # as for its programs: too large, or not readable
            self._logins[file.path] = file._replace(base=outside.digest)
            yield file, outside.content

    def enter(self, home: int) -> None:
        """The command has its home. ``home``: a descriptor, which is closed with the keeper."""
        self._roots[IN_HOME] = home

    def hold(self, files: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep mounted files equal, too. ``files``: each one's path inside, and its real path on the host."""
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        for number, (path, host) in enumerate(files, 2):
            try:
                with _beside(host) as (at, name):
                    self._roots[-number] = safe_open.open_regular(name, os.O_RDWR, at=at)
                self._logins[path] = StagedLogin(path, host, -number, b"", _version(self._roots[-number])[0].digest)
            except (OSError, MudroomError, _Unusable):
                continue  # gone, or not writable: not for the command either

    def look(self, *, has_ended: bool = False) -> None:
        """Copy changes to the other side. ``has_ended``: a command has ended, so its writes are complete."""
        for login in self._present():
            stamps = self._stamps(login)
            if stamps == self._seen.get(login.path) or not (has_ended or self._is_settled(login.path, stamps)):
                continue
            self._seen[login.path] = stamps  # taken before the comparison: a write during it is another change
            with suppress(OSError, MudroomError, _Unusable):  # reported when the command has ended, if it lasts
                self._bring(login, is_last=False)

    def close(self) -> None:
        """Copy changes a last time, and remove the copies. The commands have ended."""
        self._end(is_told=True)

    def settle(self) -> None:
        """Do the same for a command that was cut off, or whose login could not be kept."""
        self._end(is_told=False)

    # --- parts ---

    def _end(self, *, is_told: bool) -> None:
        for login in self._present():
            try:
                self._permit(login)
                is_there = self._bring(login, is_last=True)
            except (OSError, MudroomError, _Unusable) as error:
                self._note(f"{self._named(login)} was not kept: {_reason(error)}; {self._way_out(login, error)}")
                if not isinstance(error, _NoLogin) and not self._in_home:
                    continue
                is_there = True
            if login.keys:
                del self._logins[login.path]
                continue
            if not is_there and is_told:
                self._note(f"{self._named(login)} was removed inside; this machine's own is left as it is")
            if login.inside:
                with suppress(OSError, MudroomError):
                    remove(self._root(login), login.inside)
            del self._logins[login.path]
        with suppress(OSError, MudroomError):  # a full disk: a row without a copy is ignored later
            self._save()
        for root in self._roots.values():
            os.close(root)
        self._roots.clear()

    def _present(self) -> list[StagedLogin]:
        """Return the logins, without those in a home that the command does not have yet."""
        return [login for login in self._logins.values() if not self._in_home or login.place in self._roots]

    def _permit(self, login: StagedLogin) -> None:
        """Let this process write in the copy's root. A command may have removed its own permissions."""
        root = self._root(login)
        if login.place == IN_HOME:
            os.chmod(b"/proc/self/fd/%d" % root, 0o700)  # O_PATH: fchmod(2) refuses it
        elif login.inside:
            disk.set_mode_of(root, 0o700)

    def _named(self, login: StagedLogin) -> str:
        if self._in_home:
            return show(login.path) if login.path.startswith(b"/") else f"~/{show(login.path)}"
        return f"{show(os.path.basename(self._place))}'s login ~/{show(login.path)}"

    def _way_out(self, login: StagedLogin, error: Exception) -> str:
        if isinstance(error, _NoLogin):
            return "this machine's own is left as it is; log in again if it is used up"
        if self._in_home:
            inside = self._inside(login)
            aside = self._aside(login, inside) if inside is not None else b""
            return f"cp {show_words([aside, login.host])} keeps it"
        if self._is_discarded:
            return "it goes with its fork: log in again"

        copy = self._place + b"/%d/" % login.place + login.inside
        if isinstance(error, OSError) and error.errno in _LINKS:
            return f"it is in {show(copy)}"  # cp(1) would follow the link
        return f"cp {show_words([copy, login.host])} keeps it, or log in again"

    def _bring(self, login: StagedLogin, *, is_last: bool) -> bool:
        """Make both sides equal. Return whether the fork has the file. Raise OSError or _Unusable."""
        for _try in range(_TRIES):
            try:
                return self._compare(login, is_last=is_last)
            except _Moved:
                continue
        raise _Unusable("another program writes it all the time")

    def _compare(self, login: StagedLogin, *, is_last: bool) -> bool:
        inside = self._inside(login)
        if inside is None or (inside.digest == login.base and is_last):
            return inside is not None  # the host's version is at least as new
        with self._turn, _beside(login.host) as (at, name):
            outside, info = _read_host(at, name)
            if not login.inside and os.path.samestat(info, os.fstat(self._root(login))):
                self._logins[login.path] = login._replace(base=outside.digest)
                return True
            ours, theirs = _tokens(login, inside, outside), _tokens(login, outside, inside)
            act = compared(login.base, ours, theirs)
            is_ours = act in ("to the host", "newer inside")
            if is_ours and is_cut_off(inside.content, outside.content):
                raise _NoLogin("only a part of it was written, or something else")
            if act in ("newer inside", "newer on the host"):
                self._set_aside(login, outside if is_ours else inside, "inside" if is_ours else "on this machine")
            if is_ours:
                _replace(at, name, self._temporary(name), _renewed(login, outside, inside), info)
        if act in ("to the fork", "newer on the host") and not is_last:
            self._put(login, _renewed(login, inside, outside))
        base = theirs.digest if act in ("to the fork", "newer on the host") else ours.digest
        if base != login.base and not is_last:
            self._logins[login.path] = login._replace(base=base)
            self._save()
        return True

    def _inside(self, login: StagedLogin) -> LoginVersion | None:
        """Return the fork's version, or None if there is none. Raise _NoLogin if it is not a file."""
        root = self._root(login)
        if not login.inside:
            return _version(root)[0]
        try:
            entry = look_beneath(root, login.inside)
            if entry is None:
                return None
            if entry.kind != "file":
                raise _NoLogin(f"a {entry.kind} is in its place")
            with _opened(open_beneath(root, login.inside, os.O_RDONLY | disk.O_NONBLOCK)) as descriptor:
                return _version(descriptor)[0]
        except FileNotFoundError:
            return None
        except (OSError, _Unusable) as error:
            raise _NoLogin(_reason(error)) from error

    def _put(self, login: StagedLogin, content: bytes) -> None:
        """Make the fork's copy, by a rename: a program inside may be reading it."""
        root = self._root(login)
        if not login.inside:
            _overwrite(root, content, os.fstat(root).st_size)
            return
        make_parents(root, login.inside)
        above, _slash, name = login.inside.rpartition(b"/")
        with directory(root, above) as opened, _opened(safe_open.open_directory(self._place)) as place:
            entry = look(opened, name)
            if entry is not None and entry.kind == "directory":
                remove(opened, name)
            at, new = (opened, self._temporary(name)) if self._in_home else (place, b"login.new")
            _write_new(at, new, content, 0o600, self._owner, is_durable=False)
            disk.rename(at, new, opened, name)

    def _set_aside(self, login: StagedLogin, older: LoginVersion, newer: str) -> None:
        """Keep the losing version. ``newer``: where the other version is from."""
        where = show(self._aside(login, older))
        self._note(
            f"{self._named(login)} was renewed inside and on this machine: the one {newer} is newer; the other: {where}"
        )

    def _aside(self, login: StagedLogin, version: LoginVersion) -> bytes:
        """Keep a version with the fork. Return its path."""
        name = _ASIDE + digest_of(login.path + b"\0" + version.content)[:8].encode()  # an earlier version stays
        with _opened(safe_open.open_directory(self._place)) as place:
            _write_new(place, name, version.content, 0o600, None)
        return self._place + b"/" + name

    def _stamps(self, login: StagedLogin) -> tuple[Stamp | None, Stamp | None]:
        try:
            host = _stamp(os.stat(login.host, follow_symlinks=False))
        except OSError:
            host = None
        root, above = self._root(login), login.inside.rpartition(b"/")[0]
        try:
            if not login.inside:
                return host, _stamp(os.fstat(root))
            if not above:
                return host, _stamp(disk.stat_at(root, login.inside))
            with directory(root, above) as opened:
                return host, _stamp(disk.stat_at(opened, login.inside[len(above) + 1 :]))
        except OSError:
            return host, None

    def _is_settled(self, path: bytes, stamps: object) -> bool:
        now = time.monotonic()
        last, since = self._settling.get(path, (None, now))
        if last != stamps:
            self._settling[path] = (stamps, now)
        return last == stamps and now - since >= SETTLED

    def _root(self, login: StagedLogin) -> int:
        if login.place not in self._roots:
            self._roots[login.place] = open_own(self._place + b"/%d" % login.place)
        return self._roots[login.place]

    def _temporary(self, name: bytes) -> bytes:
        """Return the name for a new file beside a login. It is the same after a kill, so that no token is left
        there."""
        return b".%s%s%s" % (name, _TEMPORARY, digest_of(self._state)[:8].encode())

    def _note(self, text: str) -> None:
        self.notes += [text] if text not in self.notes else []

    def _save(self) -> None:
        """Record the logins; if there are none, remove the file."""
        if self._in_home:
            return  # their copies end with the command
        saved = self._place + b"/logins"
        if not self._logins:
            with suppress(FileNotFoundError):
                os.unlink(saved)
            return
        rows = [
            [os.fsdecode(path), os.fsdecode(host), place, os.fsdecode(inside), base, keys]
            for path, host, place, inside, base, keys in self._logins.values()
        ]
        save(saved, rows)


def settle_logins(fork_path: bytes, *, is_discarded: bool = False) -> list[str]:
    """Settle the logins that a fork's command left because mudroom was killed. Return notes. Hold the fork's lock; no
    process of the fork may live. ``is_discarded``: the fork is being discarded."""
    notes = list[str]()
    for place in _places(fork_path):
        keeper = LoginKeeper(place, is_discarded=is_discarded)
        keeper.settle()
        notes += keeper.notes
    return notes


def is_temporary(path: bytes) -> bool:
    """Return whether a host file is a new login that has not been renamed yet, or was left by a kill."""
    return _TEMPORARY in os.path.basename(path)


def has_logins(fork_path: bytes) -> bool:
    """Return whether a fork has a login that a note has named: one that could not be kept, or one set aside."""
    names = (name for place in _places(fork_path) for name in os.listdir(place))
    return any(name == b"logins" or name.startswith(_ASIDE) for name in names)


def copied_logins(place: bytes) -> frozenset[bytes]:
    """Return the paths, relative to the home, of a store's files that are copies of the host's logins now."""
    return frozenset(login.path for login in _load(place).values() if not login.keys)


def _places(fork_path: bytes) -> list[bytes]:
    above = fork_path + b"/home"
    return [above + b"/" + name for name in sorted(os.listdir(above))] if os.path.isdir(above) else []


def _load(place: bytes) -> dict[bytes, StagedLogin]:
    """Return the logins that have a copy, by path. Raise MudroomError if the file is damaged."""
    saved = place + b"/logins"
    try:
        rows = json.loads(safe_open.read(saved))
        logins = [
            StagedLogin(
                os.fsencode(path),
                os.fsencode(host),
                int(number),
                os.fsencode(inside),
                str(base),
                tuple(keys),
            )
            for path, host, number, inside, base, keys in rows
        ]
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise MudroomError(
            f"{show(saved)} cannot be read: {error}", "remove it: the fork's login is lost then"
        ) from error
    return {login.path: login for login in logins}


def _tokens(login: StagedLogin, side: LoginVersion, other: LoginVersion) -> LoginVersion:
    """Return what is compared of a side: its tokens as far as the other side has them; without ``keys`` the file."""
    if not login.keys:
        return side
    tokens = tokens_in(side.content, other.content, login.keys)
    if tokens is None:
        raise _NoLogin("only a part of it was written, or something else")
    return side._replace(content=tokens, digest=digest_of(tokens))


def _renewed(login: StagedLogin, side: LoginVersion | None, newer: LoginVersion) -> bytes:
    """Return a side's new content: the newer version's, or of it the tokens alone."""
    return with_renewed(side.content, newer.content, login.keys) if login.keys and side is not None else newer.content


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "this machine has none any more"
    if isinstance(error, OSError):
        return "a link is in its place" if error.errno in _LINKS else error.strerror or str(error)
    return error.message if isinstance(error, MudroomError) else str(error)


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    with Descriptor(descriptor):
        yield descriptor


@contextmanager
def _beside(path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a real host path's directory, and the name in it. No link is followed: an agent to which one of the
    directories is open may have put it there."""
    above, _slash, name = path.rpartition(b"/")
    with _opened(disk.open_root(b"/")) as root, directory(root, above[1:]) as at:
        yield at, name


def _version(descriptor: int) -> tuple[LoginVersion, os.stat_result]:
    """Return an open file's content, read once. Raise _Unusable."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise _Unusable("it is no regular file")
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        stream.seek(0)
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _Unusable(f"it is larger than {LARGEST >> 20} MiB")
    return LoginVersion(content, digest_of(content), info.st_mtime_ns), info


def _read_host(at: int, name: bytes) -> tuple[LoginVersion, os.stat_result]:
    flags = os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC
    with _opened(disk.open_at(at, name, flags)) as descriptor:
        return _version(descriptor)


def _replace(at: int, name: bytes, new: bytes, content: bytes, info: os.stat_result) -> None:
    """Replace a host file whose status was ``info``. Raise _Moved if it is another file by now. ``new``: a name beside
    it."""
    try:
        _write_new(at, new, content, stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid))
        try:
            if _stamp(disk.stat_at(at, name)) != _stamp(info):
                raise _Moved
            disk.rename(at, new, at, name)
        except BaseException:
            disk.unlink(at, new)
            raise
    except OSError as error:
        if error.errno not in _NOT_RENAMED:
            raise
        _write_in_place(at, name, content, info)
        return
    disk.sync(at)


def _write_new(
    at: int, name: bytes, content: bytes, mode: int, owner: tuple[int, int] | None, *, is_durable: bool = True
) -> None:
    """Write a new file. Raise OSError if it cannot be given to its owner."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
    with suppress(FileNotFoundError):
        disk.unlink(at, name)  # left by a mudroom that was killed
    with open(disk.open_at(at, name, flags, 0o600), "wb") as stream:
        try:
            stream.write(content)
            stream.flush()
            made = os.fstat(stream.fileno())
            if owner is not None and owner != (made.st_uid, made.st_gid):
                os.fchown(stream.fileno(), *owner)  # not by the name: another user may write in a directory of root's
            disk.set_mode_of(stream.fileno(), mode)
            if is_durable:
                disk.sync(stream.fileno())
        except BaseException:
            disk.unlink(at, name)
            raise


def _write_in_place(at: int, name: bytes, content: bytes, info: os.stat_result) -> None:
    """Write over a file whose status was ``info``. Raise _Moved as ``_replace`` does."""
    with _opened(safe_open.open_regular(name, os.O_WRONLY, at=at)) as descriptor:
        if _stamp(os.fstat(descriptor)) != _stamp(info):
            raise _Moved
        _overwrite(descriptor, content, info.st_size)


def _overwrite(descriptor: int, content: bytes, size: int) -> None:
    """Write over an open file of ``size`` bytes. The part beyond it is written first: if the disk is full, the old
    content is still whole."""
    try:
        _write_all(descriptor, content, size)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise
    _write_all(descriptor, content[:size], 0)
    os.ftruncate(descriptor, len(content))
    disk.sync(descriptor)


def _write_all(descriptor: int, content: bytes, start: int) -> None:
    """Write the content from ``start`` on."""
    while start < len(content):
        start += disk.pwrite(descriptor, content[start:], start)  # on a disk that becomes full the kernel writes a part
