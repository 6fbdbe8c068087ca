"""Find the named credential stores on this host. Only named stores are opened, and no store through a forbidden
symlink.

An agent can put a symlink into a store that is open to it: another agent's card, or its own next run, would then open
the target. So a symlink is followed in two cases only:
1. Its target is named, too.
2. It lies in a directory that no agent can write: the home and a few directories below it, which are never opened
   themselves and where dotfile managers put symlinks. Its target is in the home and belongs to no other store.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.agent.card import AgentStore, OpenedCredentials, StagedStore, StorePlace
from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.credential_stores import AGENTS, STORES, CredentialStore, store_places
from mudroom.core.tree.path import is_below, show
from mudroom.ext.agents.core.card_fields import CredentialRequest
from mudroom.sandbox.host.around import is_socket
from mudroom.typing import NamedTuple

_DISPLAY = "display"
"""The graphical session's store; it contains no file that programs write."""
_BUS = b"DBUS_SESSION_BUS_ADDRESS"
_NOT_SOCKETS = (b"/tmp/.X11-unix", b"$XAUTHORITY")
_USERS_OWN = (b"", b".config", b".local", b".local/share")
"""Directories in the home whose symlinks are the user's. They contain stores and are not stores themselves."""
_LINKS = 40
"""Most symlinks that path_resolution(7) follows."""


class _OpenedStore(NamedTuple):
    """A store as found on this host. ``places``: its real paths by the named paths."""

    name: str
    store: CredentialStore
    places: Mapping[bytes, bytes]
    sockets: tuple[bytes, ...]
    notes: tuple[str, ...]
    is_refused: bool
    """Whether an existing place of the store is not opened."""


def open_stores(wanted: CredentialRequest, home: bytes, environ: Mapping[bytes, bytes]) -> OpenedCredentials:
    """Find the named stores. Notes report missing stores, which cannot be created from inside, and symlinks to a place
    that was not named: any program that can write beside a store could have put them there."""
    requested, refusals = _requested(wanted, home)
    agents = {store.name for store in wanted.agents}
    all_places = [home + b"/" + place for _name, store in requested for place in (*store.directories, *store.files)]
    all_places = [path for path in all_places if not _holds_user_links(path, home)]
    opened = [_open(name, store, home, all_places, environ) for name, store in requested]
    live: dict[bytes, bool] = {}
    logins: list[Bind] = []
    for one in opened:
        if one.name in agents:
            logins += [Bind(real, path, writable=True) for path, real in one.places.items()]
        else:
            live.update(dict.fromkeys(one.places.values(), one.name != _DISPLAY))
        live.update(dict.fromkeys(one.sockets, False))  # a connection to a socket does not write to its file system
    named = [path for one in opened for path in (*one.places, *one.places.values(), *one.sockets)]
    named += [home + b"/" + place for store in wanted.agents for place in store.places]
    variables = [variable for one in opened for variable in one.store.variables if variable in environ]
    names = tuple(one.name for one in opened if one.places or one.sockets)
    notes = [note for one in opened for note in (*one.notes, *(_missing(one) if one.name not in agents else ()))]
    notes += [
        f"{store.name}: no login is on this host; one inside stays in its fork"
        for store in wanted.agents
        if (store.tokens or store.renewed)
        and store.name not in names
        and not any(os.path.exists(home + b"/" + at) for at, _keys in store.renewed)
    ]
    return OpenedCredentials(
        names,
        (*(Bind(path, path, writable) for path, writable in live.items()), *logins),
        _unique(named),
        _unique(variables),
        any(one.name == _DISPLAY or _is_abstract(environ, one.store.variables) for one in opened),
        tuple(_staged(store, home) for store in wanted.agents),
        (*wanted.notes, *refusals, *notes),
    )


def _requested(wanted: CredentialRequest, home: bytes) -> tuple[list[tuple[str, CredentialStore]], list[str]]:
    """Return the stores by name, each named path as its own store, and notes about paths that are not opened because
    they are in an agent's store."""
    requested = [(name, STORES[name]) for name in wanted.stores]
    requested += [(store.name, CredentialStore("", files=store.tokens)) for store in wanted.agents if store.tokens]
    notes = []
    for path in wanted.paths:
        owner = "" if _holds_user_links(home + b"/" + path, home) else _agent_of(path)
        if owner:
            notes.append(f"credentials ~/{show(path)}: it is in the store of {owner}: name that store; not opened")
        else:
            requested.append(("~/" + show(path), CredentialStore("", (path,))))
    return requested, notes


def _open(
    name: str, store: CredentialStore, home: bytes, all_places: Collection[bytes], environ: Mapping[bytes, bytes]
) -> _OpenedStore:
    """Return the parts of a store that are opened. ``all_places``: those of all named stores."""
    places: dict[bytes, bytes] = {}
    wide, forbidden, linked = list[str](), list[str](), list[str]()
    for path in (home + b"/" + place for place in (*store.directories, *store.files)):
        if not os.path.exists(path):
            continue
        real, told = os.path.realpath(path), f"credentials {name}: {show(path)}"
        if path not in all_places:
            wide.append(f"{told} contains other tools' stores: not opened")
        elif _is_forbidden_link(path, real, home, all_places):
            forbidden.append(f"{told} is a symlink to a place that is not named: not opened")
        else:
            places[path] = real
            if path != real:
                linked.append(f"{told} is a symlink: {show(real)} is open")
    sockets = tuple(path for path in _sockets_of(store, environ) if path)
    return _OpenedStore(name, store, places, sockets, (*wide, *forbidden, *linked), bool(wide or forbidden))


def _missing(opened: _OpenedStore) -> Iterator[str]:
    """Yield a note if nothing in a store was found on this host."""
    store = opened.store
    if not (opened.places or opened.sockets or opened.name == _DISPLAY or opened.is_refused):
        places = [f"~/{show(place)}" for place in (*store.directories, *store.files)] or [show(store.sockets[0])]
        yield f"credentials {opened.name}: not found: {', '.join(places)} (a login inside will not be kept)"


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
    """Return the agent whose store a path lies in or contains; empty if there is none."""
    for name in AGENTS:
        store = STORES[name]
        if any(is_below(path, place) or is_below(place, path) for place in (*store.directories, *store.files)):
            return name
    return ""


def _unique(words: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(words))


def _holds_user_links(path: bytes, home: bytes) -> bool:
    """Return whether a directory holds the user's own symlinks (``_USERS_OWN``) or contains such a directory: no agent
    may write in it."""
    return any(is_below(os.path.realpath(home + b"/" + place), path) for place in _USERS_OWN)


def _is_forbidden_link(path: bytes, real: bytes, home: bytes, named: Collection[bytes]) -> bool:
    """Return whether a symlink that may not be followed is on the way to a store. ``named``: all places that the card
    names."""
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
    """Yield a store's existing places: sockets, X11's socket directory, the X11 key file."""
    sockets = [(socket, socket_path(socket, environ)) for socket in store.sockets]
    if _BUS in store.variables:
        sockets.append((b"", _bus_path(environ.get(_BUS, b""))))
    for socket, path in sockets:
        is_plain = socket in _NOT_SOCKETS and os.path.exists(path)
        if path and (is_plain or is_socket(path)):
            yield path


def socket_path(socket: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Return a socket's path, for an entry in ``core/tree/credential_stores.py``; empty if it cannot be determined."""
    if socket.startswith(b"$"):
        socket = environ.get(socket[1:], b"")
    if not socket.startswith(b"/"):
        runtime = environ.get(b"XDG_RUNTIME_DIR", b"")
        return os.path.realpath(runtime + b"/" + socket) if socket and runtime.startswith(b"/") else b""
    return os.path.realpath(socket)


def _bus_path(address: bytes) -> bytes:
    """Return the path in a D-Bus address (D-Bus specification): ``unix:path=/run/user/1000/bus,guid=…``."""
    for part in address.partition(b";")[0].partition(b":")[2].split(b","):
        key, _equals, value = part.partition(b"=")
        if key == b"path":
            return os.path.realpath(value)
    return b""


def _is_abstract(environ: Mapping[bytes, bytes], variables: Collection[bytes]) -> bool:
    address = environ.get(_BUS, b"")
    return _BUS in variables and address.startswith(b"unix:abstract=")
