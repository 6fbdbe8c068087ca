"""The part of an agent's home that is a fork's own: a copy of its store, to which the fork's commands write.

On disk:

    forks/<fork>/home/<store>/<n>       a directory or file of the store; n counts its places
    forks/<fork>/home/<store>/base      what was copied from the host, by path: digest and mode, JSON
    forks/<fork>/home/<store>/store     the store as the last command had it, JSON

A command sees each place at its own path in the home, and writes to nothing else here. The rules:

1. Before a command the host's files are copied again where the fork has not changed its own. A file that both have
   changed stays as the fork has it.
2. Sandboxes have written in the directories: every file is opened by descriptor, no link is followed, and what is in
   the way of a login's mount point is removed.
3. Everything is bounded: what is beyond the bounds is left out, with a note.
"""

from __future__ import annotations

import json
import os
import stat
from _blake2 import blake2b
from collections.abc import Callable, Iterable, Iterator, Mapping

from mudroom.core.agent.agent_store import (
    AgentStore,
    HomeChange,
    HomeFile,
    StagedStore,
    StorePlace,
    changed_keys,
    home_changes,
    with_keys,
)
from mudroom.core.agent.artifact import matcher
from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.path import is_below, show
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import O_PATH, directory, entries, handle, look, open_beneath, open_file, reach
from mudroom.stage.copy import copy_content
from mudroom.stage.layers.layer import remove_at
from mudroom.typing import Any
from mudroom.vault.store.fork import Fork

MOST_FILES, MOST_BYTES, MOST_LEVELS = 8_192, 128 << 20, 32
"""Of one store that is copied, or looked through."""
_BASE, _STORE = b"/base", b"/store"
_EMPTY_JSON = b"{}\n"
"""The content of a file NAME.json that the host does not have: an empty file is no JSON."""


class AgentHome:
    """Used by the holder of the fork's lock. ``home``: the user's, a real path."""

    def __init__(self, fork: Fork, home: bytes, staged: StagedStore, logins: Iterable[bytes] = ()) -> None:
        self._home, self._store, self._places = home, staged.store, staged.places
        self._place = fork.path + b"/home/" + staged.store.name.encode()
        self._is_state = matcher(staged.store.state)
        self._logins = dict.fromkeys(logins, b"")
        """By absolute path in the home: the target of its link; empty for a mount point."""
        self.notes: list[str] = []

    def prepare(
        self, logins: Iterable[Bind], *, mounts: bool, owner: tuple[int, int] | None = None
    ) -> tuple[Bind, ...]:
        """Bring the copy up to date, and return how a command sees it. Raise MudroomError if a sandbox has replaced a
        place. ``logins``: the host's files that are shown in it; by links if there are no ``mounts``. ``owner``: user
        and group of commands, where root's are another user's; None: this process's."""
        self._logins = {bind.path: b"" if mounts else bind.source for bind in logins}
        os.makedirs(self._place, mode=0o700, exist_ok=True)  # no sandbox writes here, only in the places below
        self._save(_STORE, _store_to_json(self._store, self._places, self._logins))
        base, host = self._base(), self._host()
        staged = self._staged()
        fresh = {path: file for path, file in host.items() if staged.get(path) == base.get(path)}
        gone = [path for path in base if path not in host and staged.get(path) == base[path]]
        for number, place in enumerate(self._places):
            self._make(number, place)
            self._refresh(number, place, fresh, staged, gone)
            if not disk.user():
                give(self._at(number), *(owner or (0, 0)))
        kept = {path: file for path, file in base.items() if path not in fresh and path not in gone}
        self._save(_BASE, {os.fsdecode(path): file for path, file in sorted({**kept, **fresh}.items())})
        return tuple(
            Bind(self._at(number), self._home + b"/" + place.path, writable=True)
            for number, place in enumerate(self._places)
        )

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def keys(self) -> Mapping[bytes, tuple[str, ...]]:
        return dict(self._store.keys)

    def changes(self) -> list[HomeChange]:
        """Return what the fork has changed in its copy and what would run later, by path."""
        base, staged, host = self._base(), self._staged(), self._host()
        parts = dict(self._store.keys)
        changes = []
        for change in home_changes(base, staged, host, self._store.state):
            if change.path not in parts:
                changes.append(change)
                continue
            before = self.host_content(change.path) or b""
            keys = changed_keys(before, self.content(change.path) or b"", parts[change.path])
            if keys:
                changes.append(change._replace(keys=keys, conflict=False))
        return changes

    def content(self, path: bytes) -> bytes | None:
        """Return the content of the fork's file, or None if it has none, or too much."""
        number, place = self._place_of(path)
        return _content_at(self._at(number), path[len(place.path) + 1 :] if place.is_directory else b"")

    def host_content(self, path: bytes) -> bytes | None:
        """Return the content of the host's file, or None if it has none, or too much."""
        _number, place = self._place_of(path)
        inside = path[len(place.path) + 1 :] if place.is_directory else b""
        source = self._source(place)
        return _content_at(source, inside) if source else None

    def host_path(self, path: bytes) -> bytes:
        """Return the host's absolute path of a file of the store."""
        _number, place = self._place_of(path)
        above = self._source(place) or self._home + b"/" + place.path
        return above + path[len(place.path) :]

    def landed(self, change: HomeChange, content: bytes) -> bytes:
        """Return the content that the host's file gets. Raise ValueError with the reason if it cannot have it."""
        if not change.keys:
            return content
        return with_keys(self.host_content(change.path) or b"{}", content, change.keys, self.keys[change.path])

    # --- parts ---

    def _at(self, number: int) -> bytes:
        return self._place + b"/%d" % number

    def _source(self, place: StorePlace) -> bytes:
        """Return where a place is on the host. One that was not there when the last command started may be there now;
        empty if it is not, or is a link."""
        if place.source:
            return place.source
        path = self._home + b"/" + place.path
        is_there = os.path.isdir(path) if place.is_directory else os.path.isfile(path)
        return path if is_there and os.path.realpath(path) == path else b""

    def _place_of(self, path: bytes) -> tuple[int, StorePlace]:
        return next((number, place) for number, place in enumerate(self._places) if is_below(path, place.path))

    def _base(self) -> dict[bytes, HomeFile]:
        """Return what was copied, by path. Places that the store had in another version are not the fork's any more."""
        try:
            saved = json.loads(safe_open.read(self._place + _BASE))
        except FileNotFoundError:
            return {}
        base = {os.fsencode(path): HomeFile(digest, mode) for path, (digest, mode) in saved.items()}
        return {path: file for path, file in base.items() if any(is_below(path, place.path) for place in self._places)}

    def _save(self, name: bytes, value: dict[str, Any]) -> None:
        new = self._place + name + b".new"
        with open(safe_open.open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as stream:
            stream.write(json.dumps(value).encode())
        disk.rename_path(new, self._place + name)

    def _host(self) -> dict[bytes, HomeFile]:
        """Return the host's files that are copied: neither state nor logins."""
        files: dict[bytes, HomeFile] = {}
        for place in self._places:
            source = self._source(place)
            if source:
                files |= self._files(place, source, lambda path: path in self._store.tokens)
        return files

    def _staged(self) -> dict[bytes, HomeFile]:
        files: dict[bytes, HomeFile] = {}
        for number, place in enumerate(self._places):
            if os.path.lexists(self._at(number)):
                files |= self._files(place, self._at(number), self._is_login)
        return files

    def _is_login(self, path: bytes) -> bool:
        """Return whether a file is the host's own. Without a login on the host, one inside is the fork's."""
        return self._home + b"/" + path in self._logins

    def _files(self, place: StorePlace, at: bytes, left_out: Callable[[bytes], bool]) -> dict[bytes, HomeFile]:
        """Return the files of a place that are neither state nor left out, by path."""
        if not place.is_directory:
            content = _content_at(at, b"")
            return {} if content is None else {place.path: HomeFile(digest_of(content), _mode(at))}
        files: dict[bytes, HomeFile] = {}
        root, left = safe_open.open_directory(at), MOST_BYTES
        try:
            for inside, file, size in _walk(root, lambda below: self._is_state(place.path + b"/" + below)):
                path = place.path + b"/" + inside
                if left_out(path):
                    continue
                left -= size
                if len(files) >= MOST_FILES or left < 0:
                    self.notes.append(f"~/{show(place.path)} has more files than are staged: the rest is left out")
                    break
                files[path] = file
        finally:
            os.close(root)
        return files

    def _make(self, number: int, place: StorePlace) -> None:
        """Make the place in the fork, and the mount points of its logins."""
        at = self._at(number)
        if not place.is_directory:
            if not os.path.lexists(at):
                with open(
                    disk.open_path(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600), "wb"
                ) as new:
                    new.write(_EMPTY_JSON if place.path.endswith(b".json") else b"")
            return
        root = safe_open.make_directory(at)
        try:
            disk.set_mode_of(root, 0o700)  # a command may have closed it
            for token in self._store.tokens:
                target = self._logins.get(self._home + b"/" + token)
                if target is not None and is_below(token, place.path):
                    _make_login(root, token[len(place.path) + 1 :], target)
        finally:
            os.close(root)

    def _refresh(
        self,
        number: int,
        place: StorePlace,
        fresh: dict[bytes, HomeFile],
        staged: dict[bytes, HomeFile],
        gone: list[bytes],
    ) -> None:
        """Copy the host's files that differ from the fork's, and remove those that the host has removed."""
        inside = {path: file for path, file in fresh.items() if is_below(path, place.path) and staged.get(path) != file}
        removed = [path for path in gone if is_below(path, place.path)]
        if not place.is_directory:
            for file in inside.values():
                _overwrite(self._at(number), _content_at(self._source(place), b"") or b"", file.mode)
            return
        if not inside and not removed:
            return
        root, source = safe_open.open_directory(self._at(number)), safe_open.open_directory(self._source(place) or b"/")
        try:
            for path, file in inside.items():
                below = path[len(place.path) + 1 :]
                try:
                    _copy(source, root, below, file)
                except OSError as error:
                    self.notes.append(f"~/{show(path)} is not staged: {error.strerror}")
                    del fresh[path]
            for path in removed:
                remove(root, path[len(place.path) + 1 :])
        finally:
            os.close(root)
            os.close(source)


def homes_of(fork: Fork, home: bytes) -> list[AgentHome]:
    """Return the copies that commands of a fork have had, by the names of their stores. ``home``: as of AgentHome."""
    place = fork.path + b"/home"
    if not os.path.isdir(place):
        return []
    homes = []
    for name in sorted(os.listdir(place)):
        try:
            saved = json.loads(safe_open.read(place + b"/" + name + _STORE))
        except FileNotFoundError:
            continue  # cut off before its first command
        staged, logins = _store_from_json(saved)
        homes.append(AgentHome(fork, home, staged, logins))
    return homes


def _store_to_json(store: AgentStore, places: tuple[StorePlace, ...], logins: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {
        "name": store.name,
        "tokens": [os.fsdecode(path) for path in store.tokens],
        "state": list(store.state),
        "keys": {os.fsdecode(path): list(keys) for path, keys in store.keys},
        "places": [[os.fsdecode(place.path), os.fsdecode(place.source), place.is_directory] for place in places],
        "logins": [os.fsdecode(path) for path in logins],
    }


def _store_from_json(saved: dict[str, Any]) -> tuple[StagedStore, tuple[bytes, ...]]:
    places = tuple(
        StorePlace(os.fsencode(path), os.fsencode(source), is_directory)
        for path, source, is_directory in saved["places"]
    )
    store = AgentStore(
        saved["name"],
        tuple(place.path for place in places if place.is_directory),
        tuple(place.path for place in places if not place.is_directory),
        tuple(os.fsencode(path) for path in saved["tokens"]),
        tuple(saved["state"]),
        tuple((os.fsencode(path), tuple(keys)) for path, keys in saved["keys"].items()),
    )
    return StagedStore(store, places), tuple(os.fsencode(path) for path in saved["logins"])


def _walk(root: int, skip: Callable[[bytes], bool]) -> Iterator[tuple[bytes, HomeFile, int]]:
    """Yield each file and link below a directory, with its size. No link is followed."""
    pending = [(b"", 0)]
    while pending:
        above, level = pending.pop()
        with directory(root, above) as opened:
            listed = entries(opened)
            for name, entry in sorted(listed.items()):
                path = above + b"/" + name if above else name
                if skip(path):
                    continue
                if entry.kind == "directory" and level < MOST_LEVELS:
                    pending.append((path, level + 1))
                elif entry.kind == "symlink":
                    yield path, HomeFile("link:" + os.fsdecode(entry.target), 0), 0
                elif entry.kind == "file" and entry.size <= MOST_BYTES:
                    try:
                        read = open_file(opened, name)
                    except PermissionError:
                        continue  # closed to us, and so to every command
                    with open(read, "rb") as stream:
                        content = stream.read(MOST_BYTES + 1)
                    yield path, HomeFile(digest_of(content), entry.mode & 0o777), len(content)


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _mode(path: bytes) -> int:
    return stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode) & 0o777


def _content_at(at: bytes, inside: bytes) -> bytes | None:
    """Return the content of the file ``at``, or of ``inside`` below it; None if there is none that can be read."""
    try:
        if not inside:
            return safe_open.read(at)
        root = safe_open.open_directory(at)
        try:
            with open(open_file(root, inside), "rb") as stream:
                return stream.read(MOST_BYTES)
        finally:
            os.close(root)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    except OSError:
        return None  # a link: no content of the store's own


def _parents(root: int, path: bytes) -> None:
    """Make the directories above a path. What is in the way is removed, unless it is a directory."""
    parts = path.split(b"/")[:-1]
    for number in range(len(parts)):
        above, name = b"/".join(parts[:number]), parts[number]
        with directory(root, above) as opened:
            entry = look(opened, name)
            if entry is not None and entry.kind != "directory":
                disk.unlink(opened, name)
                entry = None
            if entry is None:
                disk.mkdir(opened, name, 0o700)
            elif entry.mode & stat.S_IRWXU != stat.S_IRWXU:
                made = open_beneath(opened, name, O_PATH | disk.O_DIRECTORY)
                try:
                    disk.set_mode_by(handle(made), 0o700)
                finally:
                    os.close(made)


def _make_login(root: int, path: bytes, target: bytes) -> None:
    """Make an empty file for a mount, or a link to ``target``."""
    _parents(root, path)
    with reach(root, path) as (at, rest):
        above, _slash, name = rest.rpartition(b"/")
        with directory(at, above) as opened:
            entry = look(opened, name)
            if entry is not None and entry.kind == ("symlink" if target else "file") and entry.target == target:
                return
            if entry is not None:
                remove(opened, name)
            if target:
                disk.symlink(opened, name, target)
                return
            os.close(disk.open_at(opened, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600))


def _copy(source: int, root: int, path: bytes, file: HomeFile) -> None:
    _parents(root, path)
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        if look(opened, name) is not None:
            remove(opened, name)
        if file.digest.startswith("link:"):
            disk.symlink(opened, name, os.fsencode(file.digest[5:]))
            return
        read = open_file(source, path)
        try:
            write = disk.open_at(opened, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)
            try:
                copy_content(read, write, os.fstat(read).st_size)
                disk.set_mode_of(write, file.mode)
            finally:
                os.close(write)
        finally:
            os.close(read)


def remove(root: int, path: bytes) -> None:
    """Remove a file or a tree below a directory. A missing one is no error."""
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        remove_at(opened, name)


def give(path: bytes, user: int, group: int) -> None:
    """Make a user the owner of a file, or of a directory with all that is in it. No link is followed."""

    def give_one(name: bytes, above: int | None) -> None:
        if disk.stat_at(above, name).st_uid != user:
            disk.set_owner(above, name, user, group)

    give_one(path, None)
    if os.path.isdir(path):
        for _directory, names, files, descriptor in os.fwalk(path):
            for name in (*names, *files):
                give_one(name, descriptor)


def _overwrite(path: bytes, content: bytes, mode: int) -> None:
    descriptor = safe_open.open_regular(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        disk.set_mode_of(descriptor, mode)
    finally:
        os.close(descriptor)
