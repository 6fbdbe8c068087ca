"""Credential stores that were named, found on this host. Nothing is opened that was not named, nor what a link put in a
store's place leads to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.card import Opened, Wanted
from mudroom.core.path import is_below, show
from mudroom.core.spec import Bind
from mudroom.core.wallet import STORES, Store, places

_BUS = b"DBUS_SESSION_BUS_ADDRESS"
_NOT_SOCKETS = (b"/tmp/.X11-unix", b"$XAUTHORITY")


def open_stores(wanted: Wanted, home: bytes, environ: Mapping[bytes, bytes]) -> Opened:
    """Find what was named. What is not there is said, and cannot be made from inside; so is what is a link to somewhere
    that was not named: whoever can write beside a store could have put that there."""
    live: dict[bytes, bool] = {}
    named: list[bytes] = []
    variables: list[bytes] = []
    stores: list[str] = []
    notes = list(wanted.notes)
    abstract = False
    asked = [(name, STORES[name]) for name in wanted.stores]
    asked += [("~/" + show(path), Store("", (path,))) for path in wanted.paths]
    for name, store in asked:
        below = [home + b"/" + place for place in (*store.directories, *store.files)]
        found = {path: os.path.realpath(path) for path in below if os.path.exists(path)}
        astray = [path for path, real in found.items() if _leads_astray(path, real, home, below)]
        notes += [f"credentials {name}: {show(path)} is a link to what is not named: not opened" for path in astray]
        kept = {path: real for path, real in found.items() if path not in astray}
        sockets = [path for path in _sockets_of(store, environ) if path]
        named += [*kept, *kept.values(), *sockets]
        live.update(dict.fromkeys(kept.values(), name != "display"))
        live.update(dict.fromkeys(sockets, False))  # who connects to a socket does not write to its file system
        variables += [one for one in store.variables if one in environ]
        abstract = abstract or name == "display" or _is_abstract(environ, store.variables)
        if kept or sockets:
            stores.append(name)
        elif name != "display" and not astray:
            places = [f"~/{show(one)}" for one in (*store.directories, *store.files)] or [show(store.sockets[0])]
            where = ", ".join(places)
            notes.append(f"credentials {name}: nothing is there ({where}), so what a login writes inside is not kept")
    binds = tuple(Bind(path, path, writable) for path, writable in live.items())
    return Opened(tuple(stores), binds, _once(named), _once(variables), abstract, tuple(notes))


def _once(words: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(words))


def _leads_astray(path: bytes, real: bytes, home: bytes, own: Collection[bytes]) -> bool:
    """Whether a store is a link out of the home, to the whole of it, or to somebody else's store."""
    if real == path:
        return False
    others = [place for place in (home + b"/" + one for one in places()) if place not in own]
    inside = is_below(real, home) and real != home
    return not inside or any(is_below(real, other) or is_below(other, real) for other in others)


def _sockets_of(store: Store, environ: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Those that are there: sockets, the directory of X11's, the file with its key."""
    found = [(one, socket_path(one, environ)) for one in store.sockets]
    if _BUS in store.variables:
        found.append((b"", _of_bus(environ.get(_BUS, b""))))
    for one, path in found:
        is_plain = one in _NOT_SOCKETS and os.path.exists(path)
        if path and (is_plain or is_socket(path)):
            yield path


def socket_path(socket: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Where a socket of ``core/wallet.py`` is; empty if that cannot be said."""
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
