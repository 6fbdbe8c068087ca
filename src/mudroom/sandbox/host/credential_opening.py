"""Credential stores that were named, found on this host. Nothing is opened that was not named, nor what a link put in a
store's place leads to.

A link is followed in two cases. What it leads to is named, too; or it lies in a directory that no agent can write (the
home, and few below it, which are never opened themselves), where dotfile managers put links, and leads to a place of
the home that is nobody else's store. An agent can put a link into a store that is open to it: another agent's card, or
its own next time, would open what that leads to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.agent.card import CredentialRequest, OpenedCredentials
from mudroom.core.agent.credential_stores import STORES, CredentialStore, store_places
from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.path import is_below, show

_BUS = b"DBUS_SESSION_BUS_ADDRESS"
_NOT_SOCKETS = (b"/tmp/.X11-unix", b"$XAUTHORITY")
_USERS_OWN = (b"", b".config", b".local", b".local/share")
"""Directories of the home in which links are the user's: they hold stores, and are none."""
_LINKS = 40
"""How many links path_resolution(7) follows."""


def open_stores(wanted: CredentialRequest, home: bytes, environ: Mapping[bytes, bytes]) -> OpenedCredentials:
    """Find what was named. What is not there is said, and cannot be made from inside; so is what is a link to somewhere
    that was not named: whoever can write beside a store could have put that there."""
    live: dict[bytes, bool] = {}
    named: list[bytes] = []
    variables: list[bytes] = []
    stores: list[str] = []
    notes = list(wanted.notes)
    abstract = False
    asked = [(name, STORES[name]) for name in wanted.stores]
    asked += [("~/" + show(path), CredentialStore("", (path,))) for path in wanted.paths]
    every = [home + b"/" + place for _name, store in asked for place in (*store.directories, *store.files)]
    every = [path for path in every if not _holds_others(path, home)]
    for name, store in asked:
        below = [home + b"/" + place for place in (*store.directories, *store.files)]
        found = {path: os.path.realpath(path) for path in below if os.path.exists(path)}
        wide = [path for path in found if path not in every]
        notes += [f"credentials {name}: other tools' places are in {show(path)}: not opened" for path in wide]
        astray = [path for path, real in found.items() if path not in wide and _leads_astray(path, real, home, every)]
        notes += [f"credentials {name}: {show(path)} is a link to what is not named: not opened" for path in astray]
        kept = {path: real for path, real in found.items() if path not in astray and path not in wide}
        notes += [
            f"credentials {name}: {show(path)} is a link: {show(real)} is open"
            for path, real in kept.items()
            if path != real
        ]
        sockets = [path for path in _sockets_of(store, environ) if path]
        named += [*kept, *kept.values(), *sockets]
        live.update(dict.fromkeys(kept.values(), name != "display"))
        live.update(dict.fromkeys(sockets, False))  # who connects to a socket does not write to its file system
        variables += [one for one in store.variables if one in environ]
        abstract = abstract or name == "display" or _is_abstract(environ, store.variables)
        if kept or sockets:
            stores.append(name)
        elif name != "display" and not astray and not wide:
            places = [f"~/{show(one)}" for one in (*store.directories, *store.files)] or [show(store.sockets[0])]
            where = ", ".join(places)
            notes.append(f"credentials {name}: nothing is there ({where}), so what a login writes inside is not kept")
    binds = tuple(Bind(path, path, writable) for path, writable in live.items())
    return OpenedCredentials(tuple(stores), binds, _once(named), _once(variables), abstract, tuple(notes))


def _once(words: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(words))


def _holds_others(path: bytes, home: bytes) -> bool:
    """Whether a directory is one of those in which links are the user's, or holds one: not for an agent to write in."""
    return any(is_below(os.path.realpath(home + b"/" + one), path) for one in _USERS_OWN)


def _leads_astray(path: bytes, real: bytes, home: bytes, named: Collection[bytes]) -> bool:
    """Whether a link is on the way to a store that may not be followed. ``named``: every place that the card names."""
    if _holds_others(real, home):
        return True
    if real == path or any(is_below(real, place) and os.path.realpath(place) == place for place in named):
        return False
    own = {os.path.realpath(home + b"/" + one) for one in _USERS_OWN}
    others = [place for place in (home + b"/" + one for one in store_places()) if place not in named]
    crowded = any(is_below(real, other) or is_below(other, real) for other in others)
    return not is_below(real, home) or crowded or not all(one in own for one in _linking(path))


def _linking(path: bytes) -> Iterator[bytes]:
    """The real directories in which links lie that are followed on the way; ``/`` if that goes on for too long."""
    at, left = b"/", path.split(b"/")
    followed = 0
    while left:
        name = left.pop(0)
        if name in (b"", b"."):
            continue
        below = os.path.dirname(at) if name == b".." else os.path.join(at, name)
        if not os.path.islink(below):
            at = below
            continue
        yield at
        followed += 1
        if followed > _LINKS:
            yield b"/"
            return
        target = os.readlink(below)
        at, left = b"/" if target.startswith(b"/") else at, [*target.split(b"/"), *left]


def _sockets_of(store: CredentialStore, environ: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Those that are there: sockets, the directory of X11's, the file with its key."""
    found = [(one, socket_path(one, environ)) for one in store.sockets]
    if _BUS in store.variables:
        found.append((b"", _of_bus(environ.get(_BUS, b""))))
    for one, path in found:
        is_plain = one in _NOT_SOCKETS and os.path.exists(path)
        if path and (is_plain or is_socket(path)):
            yield path


def socket_path(socket: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Where a socket of ``core/agent/credential_stores.py`` is; empty if that cannot be said."""
    if socket.startswith(b"$"):
        socket = environ.get(socket[1:], b"")
    if not socket.startswith(b"/"):
        runtime = environ.get(b"XDG_RUNTIME_DIR", b"")
        return os.path.realpath(runtime + b"/" + socket) if socket and runtime.startswith(b"/") else b""
    return os.path.realpath(socket)


def _of_bus(address: bytes) -> bytes:
    """The path in an address of the D-Bus specification: ``unix:path=/run/user/1000/bus,guid=…``."""
    for part in address.partition(b";")[0].partition(b":")[2].split(b","):
        key, _equals, value = part.partition(b"=")
        if key == b"path":
            return os.path.realpath(value)
    return b""


def _is_abstract(environ: Mapping[bytes, bytes], variables: Collection[bytes]) -> bool:
    address = environ.get(_BUS, b"")
    return _BUS in variables and address.startswith(b"unix:abstract=")


def is_socket(path: bytes) -> bool:
    """Whether a socket is there, and can be reached."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False  # gone, or nothing that we could reach
