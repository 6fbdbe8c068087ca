"""This machine's servers that deeds are aimed at. Each is closed by the stack that is handed in."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import ExitStack, suppress

from mudroom.ext.certify.deed import GATE, GROUP

_SLICE = 0.05
"""Seconds of each wait for a connection."""
_TRIES = 20
"""Ports that are tried for a gate: a port that is free on 127.0.0.1 may be in TIME_WAIT at the gate's address."""


def port_of(server: socket.socket | None) -> int:
    """Return a server's port, or 0 if there is no server: a deed then does not work where nothing confines, and its row
    is not shown."""
    return int(server.getsockname()[1]) if server is not None else 0


def listen_tcp(
    stack: ExitStack, family: int, address: tuple[str, int] | tuple[str, int, int, int]
) -> socket.socket | None:
    """Return a TCP server, or None if this machine has no such address, or no such family (``ipv6.disable=1``)."""
    try:
        server = stack.enter_context(socket.socket(family))
        server.bind(address)
    except OSError:
        return None
    server.listen()
    server.setblocking(False)
    return server


def receive_udp(stack: ExitStack, address: str, group: str = "") -> socket.socket | None:
    """Return a UDP server, or None if this machine has no such address. ``group``: a multicast group, which it joins on
    loopback."""
    server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        server.bind((address, 0))
        if group:
            member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
            server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except OSError:
        return None
    server.setblocking(False)
    return server


def listen_unix(stack: ExitStack, directory: str, name: str) -> socket.socket:
    """Return a server at a name in a directory."""
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    before = os.open(".", os.O_RDONLY)
    try:
        # The whole path may be too long for a socket (unix(4): 104 bytes), so it is bound by its name alone.
        os.chdir(directory)
        server.bind(name)
    finally:
        os.fchdir(before)
        os.close(before)
    server.listen()
    server.setblocking(False)
    return server


def listen_everywhere(stack: ExitStack, address: str, scope: int, port: int) -> dict[str, socket.socket | None]:
    """Return a server for each way to reach this machine, by the fact that tells its port. ``address``, ``scope`` and
    ``port`` (0: any) are for the server that is not on loopback."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "port": listen_tcp(stack, socket.AF_INET, ("127.0.0.1", 0)),
        "udp": receive_udp(stack, "127.0.0.1"),
        "port_6": listen_tcp(stack, socket.AF_INET6, ("::1", 0)),
        "port_other": listen_tcp(stack, family, (address, port, 0, scope) if scope else (address, port)),
        "port_multicast": receive_udp(stack, "", GROUP),
    }


def other_address() -> tuple[str, int]:
    """Return an address of this machine besides 127.0.0.1, and its scope: the address by which others are reached, or
    without a network one of loopback's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.connect(("192.0.2.1", 9))  # sends nothing: UDP; RFC 5737: no machine's address
        return str(udp.getsockname()[0]), 0
    if sys.platform == "darwin":
        # inet6(4) on macOS: a link-local address belongs to an interface, whose number is its scope (sin6_scope_id).
        return "fe80::1", socket.if_nametoindex("lo0")
    return "127.0.0.2", 0


def answer_as_a_gate(stack: ExitStack) -> tuple[int, threading.Event]:
    """Listen at a gate's address, and answer each connection with a byte. Return the port, 0 as in ``port_of``, and the
    event that a connection sets."""
    reached, over = threading.Event(), threading.Event()
    server = next(filter(None, (_listening_as_a_gate() for _try in range(_TRIES))), None)
    if server is None:
        return 0, reached
    thread = threading.Thread(target=_answer, args=(server, reached, over), daemon=True)
    for end in (server.close, thread.join, over.set):  # the last comes first
        stack.callback(end)
    thread.start()
    return port_of(server), reached


def _listening_as_a_gate() -> socket.socket | None:
    """Return a server at a gate's address, at a port that is free on 127.0.0.1, where a relay takes it. Return None if
    that port cannot be had."""
    with socket.socket() as inside:
        inside.bind(("127.0.0.1", 0))
        server = socket.socket()
        try:
            server.bind((GATE, inside.getsockname()[1]))
            server.listen()
        except OSError:
            server.close()
            return None
        return server


def _answer(server: socket.socket, reached: threading.Event, over: threading.Event) -> None:
    server.settimeout(_SLICE)
    while not over.is_set():
        with suppress(OSError):  # a time-out, or a client that has gone
            client, _address = server.accept()
            reached.set()
            with client:
                client.sendall(b"x")
