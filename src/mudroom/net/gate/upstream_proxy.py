"""The way out through a proxy that the host's network requires: every connection is a CONNECT to it.

Rules of this file: requests are judged before. The proxy looks up the names, so it has to vet the addresses; flows name
the proxy as the address. Hosts whose rule opens private networks are reached directly, and vetted as usual.
"""

from __future__ import annotations

import asyncio
import binascii

from mudroom.core.network.host import Authority
from mudroom.net.gate.dial import dial
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.resolve import Resolver
from mudroom.net.protocol.head import END, LIMIT
from mudroom.net.protocol.upstream import Upstream

ANSWER_TIME = 30.0
"""Seconds for the proxy's response, which includes its lookup and dial."""


class RefusedUpstream(OSError):
    """The proxy responded with a status other than 200."""


async def dial_through(upstream: Upstream, resolver: Resolver, destination: Authority) -> Peer:
    """Open a tunnel to ``destination``. Raise OSError."""
    peer, _address = await dial(await resolver(upstream.authority.host.text), upstream.authority.port)
    try:
        async with asyncio.timeout(ANSWER_TIME):
            await peer.write(_request(upstream, destination))
            status = await _status(peer)
    except TimeoutError:
        peer.cut()
        raise RefusedUpstream(f"{upstream} did not answer in {ANSWER_TIME:.0f} s") from None
    except BaseException:
        peer.cut()
        raise
    if status != b"200":
        peer.cut()
        raise RefusedUpstream(f"{upstream} answered {status.decode('ascii', 'replace')}")
    return peer


def _request(upstream: Upstream, destination: Authority) -> bytes:
    head = f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n".encode()
    if upstream.credentials:
        head += b"Proxy-Authorization: Basic %s\r\n" % binascii.b2a_base64(upstream.credentials, newline=False)
    return head + b"\r\n"


async def _status(peer: Peer) -> bytes:
    """Read the response head and return its status. Bytes after it come from the other end of the tunnel."""
    while (end := peer.buffer.find(END)) < 0:
        if len(peer.buffer) > LIMIT or not await peer.more():
            raise RefusedUpstream("the proxy gave no answer that could be read")
    parts = peer.take(end + len(END)).split(b"\r\n", 1)[0].split(b" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].startswith(b"HTTP/1.") and parts[1].isdigit() else b"nonsense"
