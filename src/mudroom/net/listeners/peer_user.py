"""The user at the other end of a loopback connection, as far as the kernel shows: sock_diag(7), or /proc/net/tcp.

Browsers send cookies to every port on a host (RFC 6265, 8.5), and any user may listen on a port: another user on the
machine can learn a cookie. That user's sockets still have another uid. This does not keep root out.

1. The check is made once, when a connection is new: a socket keeps its user. A socket that its process has closed may
   have no user, and would pass for root's: it counts as another user's.
2. ``stranger_uid`` is for the page: if the user is unknown (another system, an end outside this network namespace) the
   connection is accepted. The check comes after the token and the cookie, and does not replace them.
3. ``stranger`` is for a port that has no other guard: a connection that is not known to be this user's is refused,
   root's too (any user may make a root service connect). Our own end is looked up last: while it is connected, no other
   socket has the other end's addresses.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys

from mudroom.typing import NamedTuple

_ESTABLISHED, _CLOSE_WAIT, _LISTENING = 1, 8, 10
"""States: include/net/tcp_states.h"""
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
"""include/uapi/linux/netlink.h, sock_diag.h"""

Address = tuple[str, int]


class ConnectionEnd(NamedTuple):
    state: int
    uid: int
    inode: int = 0


def stranger_uid(ours: Address, theirs: Address) -> int | None:
    """Return another user's uid at the other end; None if it is this user, or unknown."""
    both_ends = _by_netlink(ours, theirs) or _by_table(ours, theirs)
    return None if both_ends is None else stranger_of(*both_ends, os.geteuid())


def other_end(ours: Address, theirs: Address) -> ConnectionEnd | None:
    """Return the other end; None if it is outside of this network namespace, or the kernel does not tell."""
    return (_by_netlink(ours, theirs) or _by_table(ours, theirs) or (None,))[0]


def stranger_of(other: ConnectionEnd | None, own: ConnectionEnd | None, uid: int) -> int | None:
    """Return as ``stranger_uid`` does, given the table's entries for the other end and ours."""
    if other is None:  # the other end is elsewhere; or it has just gone, and then our end is not established, either
        return None if own is not None and own.state == _ESTABLISHED else 0
    if other.uid == 0:
        return None if other.state == _ESTABLISHED else 0
    return None if other.uid == uid else other.uid


def stranger(ours: Address, theirs: Address) -> str:
    """Return the other end's owner, for a message; empty if it is this user."""
    both_ends = _by_netlink(ours, theirs) or _by_table(ours, theirs)
    return "a user that this kernel does not tell" if both_ends is None else named_stranger(*both_ends, os.geteuid())


def named_stranger(other: ConnectionEnd | None, own: ConnectionEnd | None, uid: int) -> str:
    """Return as ``stranger`` does, given the table's entries for the other end and ours."""
    if own is None or own.state not in (_ESTABLISHED, _CLOSE_WAIT) or other is None or other.state == _LISTENING:
        return "a process that has gone"
    if other.uid == 0 and other.state != _ESTABLISHED:
        return "a process that has gone"
    return "" if other.uid == uid else f"the user {other.uid}"


Ends = tuple[ConnectionEnd | None, ConnectionEnd | None]
"""The other end, and ours."""


def _by_netlink(ours: Address, theirs: Address) -> Ends | None:
    """Ask for the two sockets alone, which takes microseconds. Return None if this kernel cannot be asked that way."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.connect((0, 0))
            return _ask_kernel(kernel, theirs, ours), _ask_kernel(kernel, ours, theirs)
    except OSError:
        return None


def _ask_kernel(kernel: socket.socket, local: Address, remote: Address) -> ConnectionEnd | None:
    """Look up a socket with ``inet_diag_req_v2`` and ``inet_diag_msg`` (include/uapi/linux/inet_diag.h). Raise
    OSError."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    hosts = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _port in (local, remote))
    no_cookie = b"\xff" * 8
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    request += struct.pack("!HH", local[1], remote[1]) + hosts + struct.pack("=I", 0) + no_cookie
    kernel.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST, 1, 0) + request)
    answer = kernel.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind == _BY_FAMILY and len(answer) >= 88:
        return ConnectionEnd(answer[17], *struct.unpack_from("=II", answer, 80))
    error: int = -struct.unpack_from("=i", answer, 16)[0] if kind == _ERROR and len(answer) >= 20 else errno.EPROTO
    if error == errno.ENOENT:
        return None
    raise OSError(error, os.strerror(error))


def _by_table(ours: Address, theirs: Address) -> Ends | None:
    """Read the table with all connections, which takes a while if the table is large."""
    try:
        with open(f"/proc/net/tcp{'6' if ':' in theirs[0] else ''}", encoding="ascii", errors="replace") as stream:
            table = stream.read()
    except OSError:
        return None
    return find_end(table, theirs, ours), find_end(table, ours, theirs)


def find_end(table: str, local: Address, remote: Address) -> ConnectionEnd | None:
    columns_wanted = [table_text(local), table_text(remote)]
    for line in table.splitlines():
        columns = line.split()
        if columns[1:3] == columns_wanted:
            return ConnectionEnd(int(columns[3], 16), int(columns[7]), int(columns[9]))
    return None


def table_text(address: Address) -> str:
    """Return an address in the table's form: each four bytes as a number in host byte order, in hexadecimal."""
    host, port = address
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
