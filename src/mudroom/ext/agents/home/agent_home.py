"""A fork's own copy of an agent's store in the home; the fork's commands write to the copy.

On disk:

    forks/<fork>/home/<store>/<n>       a directory or file in the store; n numbers its places
    forks/<fork>/home/<store>/base      the files as copied from the host, by path: digest and mode, JSON
    forks/<fork>/home/<store>/store     the store as the last command had it, JSON

A command sees each place at its own path in the home, and writes nowhere else here. The rules:

1. Before a command the host's files are copied again where the fork has not changed its own. If both have changed a
   file, the fork's version stays.
2. Sandboxes have written in the directories: every file is opened by descriptor, no link is followed, and an entry in a
   login's way is removed.
3. A file in the store that the host does not have is absent inside, too, unless it is JSON.
4. Everything is bounded: files beyond the bounds are left out, with a note.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from mudroom.core.agent.card import AgentStore, StagedStore, StorePlace
from mudroom.core.confinement.spec import Bind
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.ext.agents.core.artifact import matcher
from mudroom.ext.agents.core.home_change import (
    HomeChange,
    HomeFile,
    changed_keys,
    home_changes,
    with_keys,
    with_renewed,
    without_renewed,
)
from mudroom.ext.agents.home.login import LoginKeeper, StagedLogin, is_temporary
from mudroom.ext.agents.home.staged_file import (
    MOST_BYTES,
    MOST_FILES,
    content_at,
    copy_file,
    digest_of,
    give,
    load_base,
    mode_of,
    open_own,
    overwrite,
    remove,
    save,
    save_base,
    walk,
)
from mudroom.stage import disk, safe_open
from mudroom.typing import Any
from mudroom.vault.store.fork import Fork

STORE = b"/store"
_EMPTY_JSON = b"{}\n"
"""Content for a file NAME.json that the host does not have: an empty file is not valid JSON."""


class AgentHome:
    """Used by the holder of the fork's lock. ``home``: the user's, a real path."""

    def __init__(self, fork: Fork, home: bytes, staged: StagedStore, logins: Iterable[bytes] = ()) -> None:
        self._home, self._store, self._places = home, staged.store, staged.places
        self._place = fork.path + b"/home/" + staged.store.name.encode()
        self._is_state = matcher(staged.store.state)
        self._renewed = dict(staged.store.renewed)
        self._logins = frozenset(logins)
        """By absolute path in the home."""
        self.keeper: LoginKeeper | None = None
        """Keeps the copied logins, after ``prepare``; to be closed when the command has ended."""
        self.notes: list[str] = []

    def prepare(self, logins: Iterable[Bind], *, owner: tuple[int, int] | None = None) -> tuple[Bind, ...]:
        """Bring the copy up to date, and return the binds by which a command sees it. Raise MudroomError if a sandbox
        has replaced a place. ``logins``: files on the host; those in the store are copied. ``owner``: user and group
        for commands, where root's are another user's; None: this process's."""
        own = [login for bind in logins if (login := self._login_of(bind)) is not None]
        self._logins = frozenset(self._home + b"/" + login.path for login in own)
        os.makedirs(self._place, mode=0o700, exist_ok=True)  # no sandbox writes here, only in the places below
        saved = _store_to_json(self._store, self._places, self._logins)
        save(self._place + STORE, saved | {"home": os.fsdecode(self._home)})
        base, host = self._base(), self._host()
        staged = self._staged()
        fresh = {path: file for path, file in host.items() if staged.get(path) == base.get(path)}
        gone = [path for path in base if path not in host and staged.get(path) == base[path]]
        for number, place in enumerate(self._places):
            self._make(number, place, is_on_host=place.path in host)
            self._refresh(number, place, fresh, staged, gone)
        self.keeper = LoginKeeper(self._place, owner)
        self.keeper.begin([*own, *self._renewed_logins()])
        there = [(number, place) for number, place in enumerate(self._places) if os.path.lexists(self._at(number))]
        for number, _place in there:
            if not disk.user():
                give(self._at(number), *(owner or (0, 0)))
        kept = {path: file for path, file in base.items() if path not in fresh and path not in gone}
        save_base(self._place, {**kept, **fresh})
        return tuple(Bind(self._at(number), self._home + b"/" + place.path, writable=True) for number, place in there)

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def places(self) -> tuple[bytes, ...]:
        return tuple(place.path for place in self._places)

    @property
    def keys(self) -> Mapping[bytes, tuple[str, ...]]:
        return dict(self._store.keys)

    def changes(self) -> list[HomeChange]:
        """Return the fork's changes in its copy that a program could run or obey later, by path."""
        base, staged, host = self._base(), self._staged(), self._host()
        parts = dict(self._store.keys)
        changes = []
        for change in home_changes(base, staged, host, self._store.state):
            if change.path not in parts:
                if change.path in self._renewed and change.digest:
                    change = change._replace(digest=digest_of(self.content(change.path) or b""))
                changes.append(change)
                continue
            before = self.host_content(change.path) or b""
            keys = changed_keys(before, self.content(change.path) or b"", parts[change.path])
            if keys:
                changes.append(change._replace(keys=keys, conflict=False))
        return changes

    def content(self, path: bytes) -> bytes | None:
        """Return the fork's file content, or None if there is none, or too much."""
        number, place = self._place_of(path)
        return content_at(self._at(number), path[len(place.path) + 1 :] if place.is_directory else b"")

    def host_content(self, path: bytes) -> bytes | None:
        """Return the host's file content, or None if there is none, or too much."""
        _number, place = self._place_of(path)
        inside = path[len(place.path) + 1 :] if place.is_directory else b""
        source = self._source(place)
        return content_at(source, inside) if source else None

    def host_path(self, path: bytes) -> bytes:
        """Return the host's absolute path for a file in the store."""
        _number, place = self._place_of(path)
        above = self._source(place) or self._home + b"/" + place.path
        return above + path[len(place.path) :]

    def landed(self, change: HomeChange, content: bytes) -> bytes:
        """Return the new content for the host's file. Raise ValueError with the reason if it cannot land there."""
        if not change.keys:
            return with_renewed(content, self.host_content(change.path) or b"", self._renewed.get(change.path, ()))
        return with_keys(self.host_content(change.path) or b"{}", content, change.keys, self.keys[change.path])

    # --- parts ---

    def _at(self, number: int) -> bytes:
        return self._place + b"/%d" % number

    def _source(self, place: StorePlace) -> bytes:
        """Return a place's path on the host. A place that was missing when the last command started may exist now;
        empty if it is still missing, or is a link."""
        if place.source:
            return place.source
        path = self._home + b"/" + place.path
        is_there = os.path.isdir(path) if place.is_directory else os.path.isfile(path)
        return path if is_there and os.path.realpath(path) == path else b""

    def _place_of(self, path: bytes) -> tuple[int, StorePlace]:
        return next((number, place) for number, place in enumerate(self._places) if is_below(path, place.path))

    def _base(self) -> dict[bytes, HomeFile]:
        """Return the copied files by path. Places that another version of the store had are not the fork's any more."""
        base = load_base(self._place)
        return {path: file for path, file in base.items() if any(is_below(path, place.path) for place in self._places)}

    def _host(self) -> dict[bytes, HomeFile]:
        """Return the host's files that are copied: neither state nor logins."""
        files: dict[bytes, HomeFile] = {}
        for place in self._places:
            source = self._source(place)
            if source:
                files |= self._files(place, source, lambda path: path in self._store.tokens or is_temporary(path))
        return files

    def _staged(self) -> dict[bytes, HomeFile]:
        files: dict[bytes, HomeFile] = {}
        for number, place in enumerate(self._places):
            if os.path.lexists(self._at(number)):
                files |= self._files(place, self._at(number), self._is_login)
        return files

    def _is_login(self, path: bytes) -> bool:
        """Return whether a file is a copy of the host's login. If the host has none, a login inside is the fork's."""
        return self._home + b"/" + path in self._logins

    def _login_of(self, bind: Bind) -> StagedLogin | None:
        """Return the login that a bind shows; None if it is not in this store."""
        path = bind.path[len(self._home) + 1 :]
        if path not in self._store.tokens or self._home + b"/" + path != bind.path:
            return None
        number, place = self._place_of(path)
        return StagedLogin(path, bind.source, number, path[len(place.path) + 1 :], "") if place.is_directory else None

    def _renewed_logins(self) -> Iterator[StagedLogin]:
        """Yield the files with tokens and settings that the host has. One behind a link is the user's to renew."""
        for path, keys in self._renewed.items():
            number, place = self._place_of(path)
            host, inside = self.host_path(path), path[len(place.path) + 1 :]
            if place.is_directory and os.path.isfile(host) and os.path.realpath(host) == host:
                yield StagedLogin(path, host, number, inside, "", keys)

    def _files(self, place: StorePlace, at: bytes, left_out: Callable[[bytes], bool]) -> dict[bytes, HomeFile]:
        """Return a place's files that are neither state nor left out, by path."""
        if not place.is_directory:
            content = content_at(at, b"")
            return {} if content is None else {place.path: HomeFile(digest_of(content), mode_of(at))}
        files: dict[bytes, HomeFile] = {}
        root, left = open_own(at) if is_below(at, self._place) else safe_open.open_directory(at), MOST_BYTES
        with Descriptor(root):
            for inside, file, size in walk(root, lambda below: self._is_state(place.path + b"/" + below)):
                path = place.path + b"/" + inside
                if left_out(path):
                    continue
                left -= size
                if len(files) >= MOST_FILES or left < 0:
                    self.notes.append(f"~/{show(place.path)} has more files than are staged: the rest is left out")
                    break
                if path in self._renewed:
                    text = without_renewed(content_at(at, inside) or b"", self._renewed[path])
                    file = HomeFile(digest_of(text), 0o600)  # a login's mode is no setting
                files[path] = file
        return files

    def _make(self, number: int, place: StorePlace, *, is_on_host: bool) -> None:
        """Make the place in the fork. A file that neither side has is left out: programs do not start with an empty
        file in its place. A JSON file is made, since it could not be made inside, where only the file itself is
        shown."""
        at = self._at(number)
        if place.is_directory:
            root = open_own(at)
            disk.set_mode_of(root, 0o700)  # a command may have removed its own permissions
            os.close(root)
            return
        is_json = place.path.endswith(b".json")
        if os.path.lexists(at):
            if not (is_on_host or is_json) and not safe_open.read(at):
                os.unlink(at)
        elif is_on_host or is_json:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC
            with open(disk.open_path(at, flags, 0o600), "wb") as new:
                new.write(_EMPTY_JSON if is_json else b"")

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
                overwrite(self._at(number), content_at(self._source(place), b"") or b"", file.mode)
            if removed and not place.path.endswith(b".json"):
                os.unlink(self._at(number))
            return
        if not inside and not removed:
            return
        root, source = safe_open.open_directory(self._at(number)), safe_open.open_directory(self._source(place) or b"/")
        with Descriptor(source), Descriptor(root):
            for path, file in inside.items():
                below = path[len(place.path) + 1 :]
                try:
                    copy_file(source, root, below, file)
                except OSError as error:
                    self.notes.append(f"~/{show(path)} is not staged: {error.strerror}")
                    del fresh[path]
            for path in removed:
                remove(root, path[len(place.path) + 1 :])


def homes_of(fork: Fork, home: bytes) -> list[AgentHome]:
    """Return the copies that a fork's commands have had, sorted by store name. ``home``: as in AgentHome."""
    place = fork.path + b"/home"
    if not os.path.isdir(place):
        return []
    homes = []
    for name in sorted(os.listdir(place)):
        try:
            saved = json.loads(safe_open.read(place + b"/" + name + STORE))
        except FileNotFoundError:
            continue  # cut off before its first command
        staged, logins = _store_from_json(saved)
        homes.append(AgentHome(fork, home, staged, logins))
    return homes


def _store_to_json(store: AgentStore, places: tuple[StorePlace, ...], logins: Iterable[bytes]) -> dict[str, Any]:
    return {
        "name": store.name,
        "tokens": [os.fsdecode(path) for path in store.tokens],
        "state": list(store.state),
        "transcripts": list(store.transcripts),
        "keys": {os.fsdecode(path): list(keys) for path, keys in store.keys},
        "renewed": {os.fsdecode(path): list(keys) for path, keys in store.renewed},
        "places": [[os.fsdecode(place.path), os.fsdecode(place.source), place.is_directory] for place in places],
        "logins": [os.fsdecode(path) for path in sorted(logins)],
    }


def _store_from_json(saved: dict[str, Any]) -> tuple[StagedStore, tuple[bytes, ...]]:
    places = tuple(
        StorePlace(os.fsencode(path), os.fsencode(source), is_directory)
        for path, source, is_directory in saved["places"]
    )
    keys, renewed = (
        tuple((os.fsencode(path), tuple(keys)) for path, keys in saved.get(part, {}).items())
        for part in ("keys", "renewed")
    )
    store = AgentStore(
        saved["name"],
        tuple(place.path for place in places if place.is_directory),
        tuple(place.path for place in places if not place.is_directory),
        tuple(os.fsencode(path) for path in saved["tokens"]),
        tuple(saved["state"]),
        keys,
        renewed,
    )
    return StagedStore(store, places), tuple(os.fsencode(path) for path in saved["logins"])
