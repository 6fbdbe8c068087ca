"""From a name that is allowed to all of its addresses.

Rules of this file: only what was allowed comes here. Names go to getaddrinfo(3) as ASCII in their canonical spelling,
addresses never do. The calls block, so a few threads do them, and nobody waits longer than ``PATIENCE``.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from mudroom.core.network.address import parse_ipv4, parse_ipv6

PATIENCE = 5.0
"""Seconds."""
THREADS = 8

Resolver = Callable[[str], Awaitable[list[bytes]]]
"""A canonical host to its packed addresses. Raises OSError."""


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "lookup")


async def resolve(host: str) -> list[bytes]:
    """The addresses in the order of getaddrinfo(3), which is the order to try them in (RFC 6724). An address is its own
    answer. Raises OSError."""
    raw = host.encode("ascii")
    literal = parse_ipv4(raw) or parse_ipv6(raw)
    if literal is not None:
        return [literal]
    call = asyncio.get_running_loop().run_in_executor(_threads(), _look_up, raw)
    try:
        async with asyncio.timeout(PATIENCE):
            return await call
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"no answer in {PATIENCE:.0f} s") from None


def _look_up(name: bytes) -> list[bytes]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    packed = (socket.inet_pton(family, where[0]) for family, *_rest, where in found if isinstance(where[0], str))
    return list(dict.fromkeys(packed))


def local(addresses: Collection[bytes]) -> set[bytes]:
    """Those of them that are this machine's own: bind(2) takes no others (EADDRNOTAVAIL). ip_nonlocal_bind, which some
    balancers set, would make all of them so: they are refused then, which is the safe side."""
    return {packed for packed in addresses if _is_local(packed)}


def _is_local(packed: bytes) -> bool:
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((socket.inet_ntop(family, packed), 0))
        except OSError:
            return False
    return True
