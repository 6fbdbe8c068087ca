"""This machine's loopback ports that a command reaches at their own address."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from mudroom.core.confinement.fallback import Mode
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.loopback import MOST, LoopbackPlace, loopback_places
from mudroom.core.system import rights
from mudroom.errors import MudroomError
from mudroom.session.confinement.namespace_program import inside

_KEY = 32
"""Bytes."""
_TRIES = 20
"""Ports to try: a port that is free on 127.0.0.1 may be in TIME_WAIT on 127.0.0.2 (RFC 9293, 3.6.1)."""
_WITHOUT: dict[Mode, str] = {
    "remote": "a container in a virtual machine",
    "seatbelt": "a sandbox of macOS",
    "job": "a sandbox of Windows",
}
"""Modes without a listener at such an address: only the gate's proxy is there."""


def places_for(rules: Sequence[HostRule], mode: Mode) -> tuple[Sequence[LoopbackPlace], list[str]]:
    """Return the places that get a listener, and notes about the others."""
    places = loopback_places(rules)
    if mode in _WITHOUT and places:
        shown = f"{places[0]} of this machine" + (f" and {len(places) - 1} more" if len(places) > 1 else "")
        where, proxy = _WITHOUT[mode], "through the proxy that http_proxy names"
        return (), [f"{shown}: reached from {where} only {proxy} (unset no_proxy), or at level 1 on Linux"]
    notes = [f"rules name {len(places)} ports of this machine; only the first {MOST} are open"]
    return places[:MOST], notes if len(places) > MOST else []


def make_listeners(
    places: Sequence[LoopbackPlace], namespaces: Sequence[int]
) -> tuple[list[tuple[str, int]], list[str]]:
    """Make listeners on a running command's loopback. Return them as (kind, descriptor), to be closed by the caller,
    and a note for each place without one. ``namespaces``: the command's user and network namespaces."""
    words = [word for place in places for word in (place.address, str(place.port))]
    listeners: list[tuple[str, int]] = []
    notes: list[str] = []
    with inside("mudroom.net.listeners.late_listener", words, namespaces) as channel:
        for place in places:
            reply, descriptors, _is_cut = rights.receive(channel, 16, 1)
            if descriptors:
                listeners.append((f"loopback={place}", descriptors[0]))
            elif reply.isdigit() and int(reply) in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # no IPv6 there
            else:
                notes.append(f"{place} is open to the next command; not to this one: {_reason(reply)}")
    return listeners, notes


def _reason(reply: bytes) -> str:
    if not reply.isdigit():
        return "its network cannot be entered"
    number = int(reply)
    return "a server of its own listens there" if number == errno.EADDRINUSE else os.strerror(number).lower()


def listen_apart(queue: int) -> tuple[str, int, tuple[tuple[str, int], bytes]]:
    """Listen on 127.0.0.2 for connections with a key (``Listener``), at a port that is free on 127.0.0.1 now, where a
    relay in a container will take it. Return the listener's kind and descriptor, and (address, key). Raise MudroomError
    if there is no such port."""
    key = os.urandom(_KEY)
    for left in reversed(range(_TRIES)):
        try:
            with _bound_apart() as listener:
                listener.listen(queue)
                address: tuple[str, int] = listener.getsockname()
                return f"keyed={key.hex()}", listener.detach(), (address, key)
        except OSError as error:
            if not left:
                raise MudroomError(f"the gate cannot listen: {error.strerror}", "run the command again") from error
    raise AssertionError("unreachable")


def _bound_apart() -> socket.socket:
    with socket.socket() as inside:
        inside.bind(("127.0.0.1", 0))
        listener = socket.socket()
        try:
            if (alone := getattr(socket, "SO_EXCLUSIVEADDRUSE", None)) is not None:  # Windows: keep other processes off
                listener.setsockopt(socket.SOL_SOCKET, alone, 1)
            listener.bind(("127.0.0.2", inside.getsockname()[1]))
        except OSError:
            listener.close()
            raise
        return listener
