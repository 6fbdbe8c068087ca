"""Find the named credential stores on this host. Only named stores are opened, and no store through a forbidden
symlink.

A symlink is followed in two cases. Its target is named, too; or it lies in a directory that no agent can write (the
home and a few directories below it, which are never opened themselves), where dotfile managers put symlinks, and its
target is a place of the home that belongs to no other store. An agent can put a symlink into a store that is open to
it: another agent's card, or its own next run, would then open the target.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.agent.agent_store import AgentStore, StagedStore, StorePlace
from mudroom.core.agent.card import CredentialRequest, OpenedCredentials
from mudroom.core.agent.credential_stores import AGENTS, STORES, CredentialStore, store_places
from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.path import is_below, show

_BUS = b"DBUS_SESSION_BUS_ADDRESS"
_NOT_SOCKETS = (b"/tmp/.X11-unix", b"$XAUTHORITY")
_USERS_OWN = (b"", b".config", b".local", b".local/share")
"""Directories of the home in which symlinks are the user's. They contain stores and are none themselves."""
_LINKS = 40
"""The number of symlinks that path_resolution(7) follows."""


def open_stores(wanted: CredentialRequest, home: bytes, environ: Mapping[bytes, bytes]) -> OpenedCredentials:
    """Find the named stores. Notes report missing stores, which cannot be created from inside, and symlinks to a place
    that was not named: any program that can write beside a store could have put them there."""
    live: dict[bytes, bool] = {}
    named: list[bytes] = []
    variables: list[bytes] = []
    stores: list[str] = []
    notes = list(wanted.notes)
    logins: list[Bind] = []
    abstract = False
    requested = [(name, STORES[name]) for name in wanted.stores]
    requested += [(store.name, CredentialStore("", files=store.tokens)) for store in wanted.agents if store.tokens]
    agents = {store.name for store in wanted.agents}
    for path in wanted.paths:
        owner = "" if _holds_user_links(home + b"/" + path, home) else _agent_of(path)
        if owner:
            notes.append(f"credentials ~/{show(path)}: it is in the store of {owner}: name that store; not opened")
        else:
            requested.append(("~/" + show(path), CredentialStore("", (path,))))
    all_places = [home + b"/" + place for _name, store in requested for place in (*store.directories, *store.files)]
    all_places = [path for path in all_places if not _holds_user_links(path, home)]
    for name, store in requested:
        below = [home + b"/" + place for place in (*store.directories, *store.files)]
        existing = {path: os.path.realpath(path) for path in below if os.path.exists(path)}
        wide = [path for path in existing if path not in all_places]
        notes += [f"credentials {name}: {show(path)} contains other tools' stores: not opened" for path in wide]
        forbidden = [
            path
            for path, real in existing.items()
            if path not in wide and _is_forbidden_link(path, real, home, all_places)
        ]
        notes += [
            f"credentials {name}: {show(path)} is a symlink to a place that is not named: not opened"
            for path in forbidden
        ]
        opened = {path: real for path, real in existing.items() if path not in forbidden and path not in wide}
        notes += [
            f"credentials {name}: {show(path)} is a symlink: {show(real)} is open"
            for path, real in opened.items()
            if path != real
        ]
        sockets = [path for path in _sockets_of(store, environ) if path]
        named += [*opened, *opened.values(), *sockets]
        if name in agents:
            logins += [Bind(real, path, writable=True) for path, real in opened.items()]
        else:
            live.update(dict.fromkeys(opened.values(), name != "display"))
        live.update(dict.fromkeys(sockets, False))  # a connection to a socket does not write to its file system
        variables += [variable for variable in store.variables if variable in environ]
        abstract = abstract or name == "display" or _is_abstract(environ, store.variables)
        if opened or sockets:
            stores.append(name)
        elif name in agents:
            notes.append(f"{name}: no login is on this host; one inside stays in its fork")
        elif name != "display" and not forbidden and not wide:
            places = [f"~/{show(place)}" for place in (*store.directories, *store.files)] or [show(store.sockets[0])]
            where = ", ".join(places)
            notes.append(f"credentials {name}: not found: {where} (a login inside will not be kept)")
    binds = (*(Bind(path, path, writable) for path, writable in live.items()), *logins)
    staged = tuple(_staged(store, home) for store in wanted.agents)
    named += [home + b"/" + place for store in wanted.agents for place in store.places]
    return OpenedCredentials(tuple(stores), binds, _unique(named), _unique(variables), abstract, staged, tuple(notes))


def _staged(store: AgentStore, home: bytes) -> StagedStore:
    """Return the store with the real path of each place that may be copied."""
    all_places = [home + b"/" + place for place in store.places]
    places = []
    for number, (place, path) in enumerate(zip(store.places, all_places, strict=True)):
        is_directory, real = number < len(store.directories), os.path.realpath(path)
        is_there = os.path.isdir(real) if is_directory else os.path.isfile(real)
        is_open = is_there and not _is_forbidden_link(path, real, home, all_places)
        places.append(StorePlace(place, real if is_open else b"", is_directory))
    return StagedStore(store, tuple(places))


def _agent_of(path: bytes) -> str:
    """Return the agent whose store a path lies in or contains; empty if it is none's."""
    for name in AGENTS:
        store = STORES[name]
        if any(is_below(path, place) or is_below(place, path) for place in (*store.directories, *store.files)):
            return name
    return ""


def _unique(words: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(words))


def _holds_user_links(path: bytes, home: bytes) -> bool:
    """Return whether a directory is one of those in which symlinks are the user's, or contains one: an agent may not
    write in it."""
    return any(is_below(os.path.realpath(home + b"/" + place), path) for place in _USERS_OWN)


def _is_forbidden_link(path: bytes, real: bytes, home: bytes, named: Collection[bytes]) -> bool:
    """Return whether a symlink that may not be followed is on the way to a store. ``named`` has every place that the
    card names."""
    if _holds_user_links(real, home):
        return True
    if real == path or any(is_below(real, place) and os.path.realpath(place) == place for place in named):
        return False
    own = {os.path.realpath(home + b"/" + place) for place in _USERS_OWN}
    others = [place for place in (home + b"/" + place for place in store_places()) if place not in named]
    crowded = any(is_below(real, other) or is_below(other, real) for other in others)
    return not is_below(real, home) or crowded or not all(place in own for place in _link_directories(path))


def _link_directories(path: bytes) -> Iterator[bytes]:
    """Yield the real directories that contain the symlinks followed on the way to ``path``; last ``/`` if there are too
    many."""
    directory, left = b"/", path.split(b"/")
    followed = 0
    while left:
        name = left.pop(0)
        if name in (b"", b"."):
            continue
        below = os.path.dirname(directory) if name == b".." else os.path.join(directory, name)
        if not os.path.islink(below):
            directory = below
            continue
        yield directory
        followed += 1
        if followed > _LINKS:
            yield b"/"
            return
        target = os.readlink(below)
        directory, left = b"/" if target.startswith(b"/") else directory, [*target.split(b"/"), *left]


def _sockets_of(store: CredentialStore, environ: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield the existing places of a store: sockets, the directory of X11's sockets, the file with its key."""
    sockets = [(socket, socket_path(socket, environ)) for socket in store.sockets]
    if _BUS in store.variables:
        sockets.append((b"", _bus_path(environ.get(_BUS, b""))))
    for socket, path in sockets:
        is_plain = socket in _NOT_SOCKETS and os.path.exists(path)
        if path and (is_plain or is_socket(path)):
            yield path


def socket_path(socket: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Return the path of a socket of ``core/agent/credential_stores.py``; empty if it cannot be determined."""
    if socket.startswith(b"$"):
        socket = environ.get(socket[1:], b"")
    if not socket.startswith(b"/"):
        runtime = environ.get(b"XDG_RUNTIME_DIR", b"")
        return os.path.realpath(runtime + b"/" + socket) if socket and runtime.startswith(b"/") else b""
    return os.path.realpath(socket)


def _bus_path(address: bytes) -> bytes:
    """Return the path in an address of the D-Bus specification: ``unix:path=/run/user/1000/bus,guid=…``."""
    for part in address.partition(b";")[0].partition(b":")[2].split(b","):
        key, _equals, value = part.partition(b"=")
        if key == b"path":
            return os.path.realpath(value)
    return b""


def _is_abstract(environ: Mapping[bytes, bytes], variables: Collection[bytes]) -> bool:
    address = environ.get(_BUS, b"")
    return _BUS in variables and address.startswith(b"unix:abstract=")


def is_socket(path: bytes) -> bool:
    """Return whether a reachable socket is at the path."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False  # gone, or not reachable
