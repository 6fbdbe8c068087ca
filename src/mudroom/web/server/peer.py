"""Whose the other end of a connection on loopback is, as far as the kernel tells: sock_diag(7), or /proc/net/tcp.

Cookies are sent to every port of a host (RFC 6265, 8.5), and anybody may listen on a port: so another user of the
machine can come to know one. He cannot make his sockets ours. Root is not held off by anything here.

1. Looked at once, when a connection is new: a socket keeps its user. One whose process has let go of it may have none
  , and would pass for root's: it counts as somebody else's.
2. Where nothing is known (another system, an end that is not in this network namespace) nobody is held off: this is a
   wall behind the token and the cookie, not instead of them.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from typing import NamedTuple

_ESTABLISHED = 1
"""States: include/net/tcp_states.h"""
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
"""include/uapi/linux/netlink.h, sock_diag.h"""

Address = tuple[str, int]


class ConnectionEnd(NamedTuple):
    state: int
    uid: int


def stranger(ours: Address, theirs: Address) -> int | None:
    """The user id of somebody else at the other end; None: it is nobody else, or nobody can tell."""
    found = _by_netlink(ours, theirs) or _by_table(ours, theirs)
    return None if found is None else judged(*found, os.geteuid())


def judged(other: ConnectionEnd | None, own: ConnectionEnd | None, uid: int) -> int | None:
    """By what the table has of the other end, and of ours."""
    if other is None:  # elsewhere; or gone meanwhile, and then ours is not as it was, either
        return None if own is not None and own.state == _ESTABLISHED else 0
    if other.uid == 0:
        return None if other.state == _ESTABLISHED else 0
    return None if other.uid == uid else other.uid


Ends = tuple[ConnectionEnd | None, ConnectionEnd | None]
"""The other one, and ours."""


def _by_netlink(ours: Address, theirs: Address) -> Ends | None:
    """The two sockets alone, in microseconds. None: this kernel is not asked that way."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.connect((0, 0))
            return _told(kernel, theirs, ours), _told(kernel, ours, theirs)
    except OSError:
        return None


def _told(kernel: socket.socket, local: Address, remote: Address) -> ConnectionEnd | None:
    """``inet_diag_req_v2`` and ``inet_diag_msg`` of include/uapi/linux/inet_diag.h. Raises OSError."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    hosts = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _port in (local, remote))
    no_cookie = b"\xff" * 8
    asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    asked += struct.pack("!HH", local[1], remote[1]) + hosts + struct.pack("=I", 0) + no_cookie
    kernel.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
    answer = kernel.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind == _BY_FAMILY and len(answer) >= 84:
        return ConnectionEnd(answer[17], struct.unpack_from("=I", answer, 80)[0])
    error: int = -struct.unpack_from("=i", answer, 16)[0] if kind == _ERROR and len(answer) >= 20 else errno.EPROTO
    if error == errno.ENOENT:
        return None
    raise OSError(error, os.strerror(error))


def _by_table(ours: Address, theirs: Address) -> Ends | None:
    """By reading the table of all, which takes a while where it has room for many."""
    try:
        with open(f"/proc/net/tcp{'6' if ':' in theirs[0] else ''}", encoding="ascii", errors="replace") as stream:
            table = stream.read()
    except OSError:
        return None
    return ends(table, theirs, ours), ends(table, ours, theirs)


def ends(table: str, local: Address, remote: Address) -> ConnectionEnd | None:
    wanted = [written(local), written(remote)]
    for line in table.splitlines():
        columns = line.split()
        if columns[1:3] == wanted:
            return ConnectionEnd(int(columns[3], 16), int(columns[7]))
    return None


def written(address: Address) -> str:
    """As the table has it: each four bytes as a number of this machine, in hexadecimal."""
    host, port = address
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
