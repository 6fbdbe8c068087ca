"""Resolve an allowed name to all its addresses.

Rules of this file: only allowed names are passed in, and ``localhost`` is never looked up (RFC 6761 6.3). Names go to
getaddrinfo(3) as ASCII in their canonical spelling, addresses never do. The calls block, so a few threads make them,
and no caller waits longer than ``PATIENCE``.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from mudroom.core.network.address import parse_ipv4, parse_ipv6
from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES

PATIENCE = 5.0
"""Seconds for a lookup."""
THREADS = 8

Resolver = Callable[[str], Awaitable[list[bytes]]]
"""Maps a canonical host to its packed addresses. Raises OSError."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "lookup")


async def resolve(host: str) -> list[bytes]:
    """Return the addresses in getaddrinfo(3)'s order, which is the order to try them in (RFC 6724). An address resolves
    to itself. Raise OSError."""
    raw = host.encode("ascii")
    if host == LOCALHOST:
        return [
            socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text) for text in LOCALHOST_ADDRESSES
        ]
    literal = parse_ipv4(raw) or parse_ipv6(raw)
    if literal is not None:
        return [literal]
    call = asyncio.get_running_loop().run_in_executor(_threads(), look_up, host)
    try:
        async with asyncio.timeout(PATIENCE):
            return await call
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"no answer in {PATIENCE:.0f} s") from None


def look_up(host: str) -> list[bytes]:
    """Return a canonical host's addresses as ``resolve`` does, in this thread. Raise OSError."""
    rows = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    packed = (socket.inet_pton(family, address[0]) for family, *_rest, address in rows if isinstance(address[0], str))
    return list(dict.fromkeys(packed))


class LocalAddresses(Collection[bytes]):
    """The addresses in a collection that belong to this machine; each is tested when it is asked for.

    bind(2) accepts only local addresses (else EADDRNOTAVAIL). With ip_nonlocal_bind, which some load balancers set, all
    addresses count as local and are refused, which is the safe side.
    """

    def __init__(self, addresses: Collection[bytes]) -> None:
        self._addresses = addresses

    def __contains__(self, packed: object) -> bool:
        return isinstance(packed, bytes) and packed in self._addresses and _is_local(packed)

    def __iter__(self) -> Iterator[bytes]:
        return (packed for packed in self._addresses if packed in self)

    def __len__(self) -> int:
        return sum(1 for _packed in self)


def _is_local(packed: bytes) -> bool:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((socket.inet_ntop(family, packed), 0))
        except OSError:
            return False
    return True
