"""The user at the other end of a loopback connection: GetExtendedTcpTable names the process that made a socket and the
time at which it did, and that process's token has the user. The twin of ``net/listeners/peer_user.py`` for the page.

Rules of this file:
1. An unknown owner counts as another user: a process that has gone, that may not be queried, or that the table does not
   name. Linux tells every socket's user; here there is no such fact to fall back on.
2. A process number is used again. So the process is opened first, which keeps its number from others, and the table is
   read once more: the same row has to stand there. The process must be older than its socket: a program may give its
   socket to another process and end, and the table goes on naming the number ("MIB_TCPROW_OWNER_MODULE").
3. Our own end is looked at last: while it is connected, no other socket has the other end's addresses.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from ctypes import byref

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.owner import own_sid, sid_of
from mudroom.ext.windows.win32.process import TICK, UNIX, library_here, started
from mudroom.typing import NamedTuple

Address = tuple[str, int]

_ESTABLISHED, _CLOSE_WAIT = 5, 8
"""MIB_TCP_STATE in tcpmib.h."""
_WITH_MODULE = 7
"""TCP_TABLE_OWNER_MODULE_CONNECTIONS in iprtrmib.h."""
_ROWS = 8
"""Offset of the rows in a table: a DWORD, then aligned as the time in a row."""
_SIZES = {socket.AF_INET: 160, socket.AF_INET6: 192}
"""Bytes in MIB_TCPROW_OWNER_MODULE and MIB_TCP6ROW_OWNER_MODULE in tcpmib.h: the module's 16 numbers at the end."""
_IN_HEADERS = {socket.AF_INET: 2, socket.AF_INET6: 23}
"""The families as winsock2.h has them."""
_SLACK = 50_000_000
"""Nanoseconds by which a socket's time may be behind: the network stack's clock ticks every 16 ms."""
_ATTEMPTS = 5
"""Times that the table is asked for: it may grow between the question for its size and the question for its rows."""


class TcpRow(NamedTuple):
    state: int
    local: Address
    remote: Address
    pid: int
    made: int
    """Nanoseconds since 1970; 0: not told."""


def stranger(library: Library, ours: Address, theirs: Address) -> str | None:
    """Return, for a message, who has the other end of a connection; None if it is this user."""
    try:
        return _stranger(library, ours, theirs)
    except CallFailed as failed:
        return f"a user that Windows does not tell: {failed}"


def _stranger(library: Library, ours: Address, theirs: Address) -> str | None:
    row = find(read_table(library, ours), theirs, ours)
    if row is None or not row.pid:
        return "a process that Windows does not tell"
    process = library.OpenProcess(w.PROCESS_QUERY_LIMITED_INFORMATION, 0, row.pid)
    try:
        user = sid_of(library, process)
        created = started(library, row.pid)
        table = read_table(library, ours)
        own = find(table, ours, theirs)
        if find(table, theirs, ours) != row or own is None or own.state not in (_ESTABLISHED, _CLOSE_WAIT):
            return "a process that has gone"
        if not created or not row.made or created > row.made + _SLACK:
            return "a process that has gone"
    finally:
        library.CloseHandle(process)
    return None if user == own_sid(library) else f"the user {user}"


def find(table: list[TcpRow], local: Address, remote: Address) -> TcpRow | None:
    return next((row for row in table if row.local == local and row.remote == remote), None)


def read_table(library: Library, address: Address) -> list[TcpRow]:
    """Return all connections with an address's family. Raise CallFailed."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    size = w.DWORD(1 << 14)
    for attempt in range(_ATTEMPTS):
        buffer = (ctypes.c_char * size.value)()
        try:
            library.GetExtendedTcpTable(buffer, byref(size), 0, _IN_HEADERS[family], _WITH_MODULE, 0)
            return parse(buffer.raw, family)
        except CallFailed as failed:
            if failed.code != w.ERROR_INSUFFICIENT_BUFFER or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def parse(data: bytes, family: int) -> list[TcpRow]:
    """Return the rows in a table as GetExtendedTcpTable writes it."""
    size = _SIZES[socket.AddressFamily(family)]
    count = int.from_bytes(data[:4], "little")
    make = _row if family == socket.AF_INET else _row6
    return [make(data[at : at + size]) for at in range(_ROWS, _ROWS + count * size, size)]


def _row(data: bytes) -> TcpRow:
    """Parse state, local address and port, remote address and port, process, time."""
    state, local, local_port, remote, remote_port, pid, made = struct.unpack_from("<I4sI4sIIQ", data)
    ends = (socket.inet_ntoa(local), _port(local_port)), (socket.inet_ntoa(remote), _port(remote_port))
    return TcpRow(state, *ends, pid, _since_1970(made))


def _row6(data: bytes) -> TcpRow:
    """Parse local address, scope and port, remote address, scope and port, state, process, time."""
    local, _scope, local_port, remote, _zone, remote_port, state, pid, made = struct.unpack_from("<16sII16sIIIIQ", data)
    hosts = [socket.inet_ntop(socket.AF_INET6, host) for host in (local, remote)]
    return TcpRow(state, (hosts[0], _port(local_port)), (hosts[1], _port(remote_port)), pid, _since_1970(made))


def _port(number: int) -> int:
    """Return a port, whose bytes stand in network order in the lower half of a DWORD."""
    return (number & 0xFF) << 8 | (number >> 8 & 0xFF)


def _since_1970(time: int) -> int:
    return max(0, time - UNIX) * TICK


def stranger_here(ours: Address, theirs: Address) -> str | None:
    """Return ``stranger`` by this machine's library."""
    return stranger(library_here(), ours, theirs)
