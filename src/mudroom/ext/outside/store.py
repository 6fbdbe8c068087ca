"""The store of files that commands wrote outside the project.

    <vault>/outside/<fork>/<time>-<bytes>/   one command's files: 0, 1, …; index: their paths, written last

It is no durable data: nothing is synced, a directory without an index was cut off, and the oldest leave first. No
secret is stored: a file with a secret's name or place, or with a value that the journal would not show either.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence

from mudroom.core.clock import horizon
from mudroom.core.result import LeftFile, text, told_files
from mudroom.core.retention import DAY
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.credential_stores import store_places
from mudroom.core.tree.path import is_below
from mudroom.core.tree.secret import is_masked
from mudroom.errors import FULL
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_tree
from mudroom.typing import NamedTuple
from mudroom.vault.moment import clock_of
from mudroom.vault.store.fork import fork_directory
from mudroom.vault.store.store import OUTSIDE, Vault

AGE = DAY
MOST_FILES, MOST_BYTES, MOST_STORED = 100, 16 << 20, 64 << 20
"""How long files are kept, in nanoseconds; files and bytes of one command, and bytes of all."""
_OPEN = os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC


class StoredFile(NamedTuple):
    fork: str
    path: bytes
    """As the command saw it."""
    size: int
    executable: bool
    place: bytes
    """The file in the store."""
    time: int


class _Batch(NamedTuple):
    """One command's files."""

    time: int
    size: int
    place: bytes


def keep(
    vault: Vault,
    fork: str,
    left: Sequence[LeftFile],
    opened: Sequence[tuple[bytes, int]],
    home: bytes | None,
    time: int,
) -> tuple[LeftFile, ...]:
    """Store what a command has left as far as a user would look for it; return it with ``kept`` set. ``opened``: the
    directories that end with the command, by path. ``home``: the user's; None: all of it is looked for, wherever it
    lies. ``time``: the wall clock, nanoseconds."""
    told = set(left if home is None else told_files(left, home))
    if not told:
        return tuple(left)
    above = vault.path + OUTSIDE + b"/" + fork_directory(fork)
    place = above + b"/.new-" + os.urandom(6).hex().encode()
    rows: list[dict[str, object]] = []
    try:
        os.makedirs(place, 0o700)
        kept, room = [], MOST_BYTES
        for file in left:
            name = b"%d" % len(rows)
            fits = file in told and len(rows) < MOST_FILES and file.size <= room
            is_wanted = fits and (home is None or not _is_secret(vault, file, home))
            mode = _copy(vault, file, opened, place + b"/" + name) if is_wanted else None
            if mode is not None:
                room -= file.size
                rows.append({"path": text(file.path), "bytes": file.size, "executable": bool(mode & stat.S_IXUSR)})
            kept.append(file._replace(kept=mode is not None))
        if not rows:
            remove_tree(place)
            return tuple(left)
        with os.fdopen(os.open(place + b"/index", _NEW, 0o600), "w") as stream:
            json.dump(rows, stream)
        os.rename(place, above + b"/%d-%d" % (time, MOST_BYTES - room))
        _sweep(vault)
    except OSError as error:
        if error.errno not in FULL:
            raise
        remove_tree(place)
        return tuple(left)
    return tuple(kept)


def stored(vault: Vault) -> list[StoredFile]:
    """Return the files that can be copied out, oldest first: of each fork and path the newest."""
    newest: dict[tuple[str, bytes], StoredFile] = {}
    before = horizon(clock_of(vault.path), AGE)
    for batch in _batches(vault):
        if batch.time < before:
            continue
        fork = os.fsdecode(os.path.basename(os.path.dirname(batch.place)))
        for number, row in enumerate(json.loads(safe_open.read(batch.place + b"/index"))):
            path, place = os.fsencode(row["path"]), batch.place + b"/%d" % number
            newest.pop((fork, path), None)
            newest[fork, path] = StoredFile(fork, path, row["bytes"], row["executable"], place, batch.time)
    return list(newest.values())


def copy_out(file: StoredFile, to: bytes) -> None:
    """Copy a stored file to a new path. Raise FileExistsError or another OSError; no part of a copy stays."""
    with Descriptor(safe_open.open_regular(file.place)) as source:
        target = os.open(to, _NEW, 0o777 if file.executable else 0o666)
        try:
            with os.fdopen(target, "wb") as stream:
                while block := os.read(source, 1 << 20):
                    stream.write(block)
        except BaseException:
            os.unlink(to)
            raise


def _is_secret(vault: Vault, file: LeftFile, home: bytes) -> bool:
    is_at_home = is_below(file.path, home)
    path = file.path[len(home) + 1 :] if is_at_home else file.path[1:]
    is_store = is_at_home and any(is_below(path, at) for at in store_places())
    return is_store or is_masked(path, vault.mask.patterns, vault.mask.show)


def _copy(vault: Vault, file: LeftFile, opened: Sequence[tuple[bytes, int]], to: bytes) -> int | None:
    """Copy one file into the store and return its mode; None if it holds a secret, or is not there any more."""
    path, top = max((place for place in opened if is_below(file.path, place[0])), key=lambda place: len(place[0]))
    try:
        source = disk.open_beneath(top, file.path[len(path) + 1 :], _OPEN)
    except OSError:
        return None  # the command has closed it, or a process that still ends has removed it
    with os.fdopen(source, "rb") as stream:
        status = os.fstat(source)
        content = stream.read(file.size + 1) if stat.S_ISREG(status.st_mode) else b""
    secrets = (value.encode("utf-8", "surrogateescape") for value in vault.secrets())
    if len(content) != file.size or any(secret in content for secret in secrets):
        return None
    with os.fdopen(os.open(to, _NEW, 0o600), "wb") as stream:
        stream.write(content)
    return status.st_mode


def _batches(vault: Vault) -> Iterator[_Batch]:
    found = []
    for place in _below(_below_each(vault.path + OUTSIDE)):
        time, _dash, size = os.path.basename(place).partition(b"-")
        if time.isdigit() and size.isdigit():
            found.append(_Batch(int(time), int(size), place))
    return iter(sorted(found))


def _below_each(place: bytes) -> list[bytes]:
    try:
        return [place + b"/" + name for name in os.listdir(place)]
    except FileNotFoundError:
        return []


def _below(places: Sequence[bytes]) -> Iterator[bytes]:
    for place in places:
        yield from _below_each(place)


def _sweep(vault: Vault) -> None:
    """Remove what is older than a day, and the oldest beyond the limit."""
    batches = list(_batches(vault))
    total, before = sum(batch.size for batch in batches), horizon(clock_of(vault.path), AGE)
    for batch in batches:
        if batch.time >= before and total <= MOST_STORED:
            return
        vault.throw_away(batch.place)
        total -= batch.size
