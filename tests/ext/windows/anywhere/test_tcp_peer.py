"""The user at the other end of a connection, by the tables that Windows would give: recorded rows, and processes that
have gone, are another user's, or have got the number of one that has gone. Unknown is another user, always."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from mudroom.ext.windows.win32 import tcp_peer
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed
from mudroom.ext.windows.win32.tcp_peer import TcpRow, find, parse, read_table, stranger

OURS, THEIRS = ("127.0.0.1", 8765), ("127.0.0.1", 50123)
OURS6, THEIRS6 = ("::1", 8765), ("::1", 50123)
MADE = 133_500_000_000_000_000
"""A FILETIME of 2024."""
SINCE = (MADE - 116_444_736_000_000_000) * 100
ME, OTHER = "S-1-5-21-1", "S-1-5-21-2"


def row(local: tuple[str, int], remote: tuple[str, int], pid: int, state: int = 5, made: int = MADE) -> bytes:
    """A row as the header declares it: addresses and ports in network order, 16 numbers of the module at the end."""
    ports = [struct.pack("!HH", port, 0) for _host, port in (local, remote)]
    if ":" in local[0]:
        hosts = [socket.inet_pton(socket.AF_INET6, host) for host, _port in (local, remote)]
        ends = b"".join(host + bytes(4) + port for host, port in zip(hosts, ports, strict=True))
        head = ends + struct.pack("<II", state, pid)
    else:
        hosts = [socket.inet_aton(host) for host, _port in (local, remote)]
        ends = b"".join(host + port for host, port in zip(hosts, ports, strict=True))
        head = struct.pack("<I", state) + ends + struct.pack("<I", pid)
    return head + struct.pack("<Q", made) + bytes(128)


def table(*rows: bytes) -> bytes:
    return struct.pack("<II", len(rows), 0) + b"".join(rows)


def usual(pid: int = 40, **changed: int) -> bytes:
    return table(
        row(("127.0.0.1", 135), ("0.0.0.0", 0), 4, 2), row(THEIRS, OURS, pid, **changed), row(OURS, THEIRS, 20)
    )


class FakeWindows:
    """Answers with one table after the other, the last one again."""

    def __init__(self, *tables: bytes, opened: Callable[[int], int] = lambda pid: pid + 1000) -> None:
        self.tables, self._opened, self.open = list(tables), opened, list[int]()
        self.sizes: list[int] = []

    def GetExtendedTcpTable(self, buffer: Any, size: Any, *how: int) -> int:  # noqa: N802
        assert how in ((0, 2, 7, 0), (0, 23, 7, 0))
        data, given = self.tables[0], size._obj.value
        self.sizes.append(given)
        size._obj.value = len(data)
        if given < len(data):
            raise CallFailed("GetExtendedTcpTable", w.ERROR_INSUFFICIENT_BUFFER)
        buffer[: len(data)] = data
        self.tables = self.tables[1:] or self.tables
        return 0

    def OpenProcess(self, access: int, _inherit: int, pid: int) -> int:  # noqa: N802
        assert access == w.PROCESS_QUERY_LIMITED_INFORMATION
        self.open.append(self._opened(pid))
        return self.open[-1]

    def CloseHandle(self, handle: int) -> None:  # noqa: N802
        self.open.remove(handle)


def ask(windows: FakeWindows, patch: pytest.MonkeyPatch, user: str = ME, created: int = SINCE - 1) -> str | None:
    patch.setattr(tcp_peer, "own_sid", lambda _library: ME)
    patch.setattr(
        tcp_peer, "sid_of", lambda _library, handle: user if handle == 1040 else pytest.fail("another process")
    )
    patch.setattr(tcp_peer, "started", lambda _library, pid: created if pid == 40 else 0)
    answer = stranger(windows, OURS, THEIRS)  # type: ignore[arg-type]
    assert windows.open == []  # every handle is closed
    return answer


def refuse(_pid: int) -> int:
    raise CallFailed("OpenProcess", 5)


def test_rows_of_both_families() -> None:
    assert find(parse(usual(), socket.AF_INET), THEIRS, OURS) == TcpRow(5, THEIRS, OURS, 40, SINCE)
    six = table(row(THEIRS6, OURS6, 41, 8), row(OURS6, THEIRS6, 20))
    assert find(parse(six, socket.AF_INET6), THEIRS6, OURS6) == TcpRow(8, THEIRS6, OURS6, 41, SINCE)
    assert read_table(FakeWindows(six), OURS6)[1].pid == 20  # type: ignore[arg-type]
    assert find(parse(table(), socket.AF_INET), THEIRS, OURS) is None
    assert len(row(THEIRS, OURS, 1)) == 160 and len(row(THEIRS6, OURS6, 1)) == 192


def test_a_table_that_grows_is_asked_for_again() -> None:
    rows = [row((f"10.0.{number >> 8}.{number & 255}", 1), OURS, 4) for number in range(300)]
    windows = FakeWindows(table(*rows, row(THEIRS, OURS, 40)))
    assert find(read_table(windows, OURS), THEIRS, OURS) is not None  # type: ignore[arg-type]
    assert windows.sizes == [1 << 14, 8 + 301 * 160]


@pytest.mark.parametrize(
    ("tables", "user", "created", "says"),
    [
        ((usual(),), ME, SINCE - 1, None),
        ((usual(),), ME, SINCE + 10_000_000, None),  # the clock of the network's stack is behind
        ((usual(),), OTHER, SINCE - 1, OTHER),
        ((usual(),), "S-1-5-18", SINCE - 1, "S-1-5-18"),  # a service of the system is not this user
        ((usual(pid=0),), ME, SINCE - 1, "does not tell"),
        ((table(row(OURS, THEIRS, 20)),), ME, SINCE - 1, "does not tell"),
        ((usual(made=0),), ME, SINCE - 1, "gone"),
        ((usual(),), ME, SINCE + 60_000_000, "gone"),  # its number is a later process's
        ((usual(),), ME, 0, "gone"),
        ((usual(), usual(pid=41)), ME, SINCE - 1, "gone"),
        ((usual(), usual(made=MADE + 1)), ME, SINCE - 1, "gone"),
        ((usual(), table(row(THEIRS, OURS, 40))), ME, SINCE - 1, "gone"),  # our own end
        ((usual(), table(row(THEIRS, OURS, 40), row(OURS, THEIRS, 20, 11))), ME, SINCE - 1, "gone"),
        ((usual(), table(row(THEIRS, OURS, 40), row(OURS, THEIRS, 20, 8))), ME, SINCE - 1, None),
    ],
)
def test_the_user_or_why_it_counts_as_another(
    monkeypatch: pytest.MonkeyPatch, tables: tuple[bytes, ...], user: str, created: int, says: str | None
) -> None:
    answer = ask(FakeWindows(*tables), monkeypatch, user, created)
    assert answer is None if says is None else answer is not None and says in answer, answer


def test_a_process_that_may_not_be_asked_is_another_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(FakeWindows(usual(), opened=refuse), monkeypatch)
    assert answer is not None and "OpenProcess: error 5" in answer
