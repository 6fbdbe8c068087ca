"""Places of this machine's loopback that a command reaches at their own address."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Sequence

from mudroom.core.confinement.fallback import Mode
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.loopback import MOST, LoopbackPlace, loopback_places

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.net.entrances.late_listener import main; main()"

_WITHOUT: dict[Mode, str] = {
    "remote": "a container in a virtual machine",
    "seatbelt": "a sandbox of macOS",
}
"""Modes that have no listener at such an address: only the gate's proxy is there."""


def places_for(rules: Sequence[HostRule], mode: Mode) -> tuple[Sequence[LoopbackPlace], list[str]]:
    """Return the places that get a listener, and notes about those that get none."""
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
    """Make listeners at places of a running command's loopback. Return them as (kind, descriptor), which the caller
    closes, and a note for each place that has none. ``namespaces``: its user and network namespace."""
    words = [word for place in places for word in (place.address, str(place.port))]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        given = (theirs.fileno(), *namespaces)
        above = max(given) + 1  # one step could otherwise close what a later one copies
        moves = [(os.POSIX_SPAWN_DUP2, descriptor, above + number) for number, descriptor in enumerate(given)]
        moves += [(os.POSIX_SPAWN_DUP2, above + number, number) for number in range(len(given))]
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *words]
        pid = os.posix_spawn(sys.executable, command, {"PATH": os.defpath, "LC_ALL": "C"}, file_actions=moves)
        theirs.close()
        listeners: list[tuple[str, int]] = []
        notes: list[str] = []
        for place in places:
            reply, descriptors, _flags, _address = socket.recv_fds(ours, 16, 1)
            if descriptors:
                listeners.append((f"loopback={place}", descriptors[0]))
            elif reply.isdigit() and int(reply) in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # no IPv6 there
            else:
                notes.append(f"{place} is open to the next command; not to this one: {_reason(reply)}")
    os.waitpid(pid, 0)
    return listeners, notes


def _reason(reply: bytes) -> str:
    if not reply.isdigit():
        return "its network cannot be entered"
    number = int(reply)
    return "a server of its own listens there" if number == errno.EADDRINUSE else os.strerror(number).lower()
