"""Relay a websocket after its ``101``: the client's bytes as they are, the server's messages through the sanitizer."""

from __future__ import annotations

import asyncio

from mudroom.ext.inspection.core.sanitizer import Sanitizer
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.relay import LINGER
from mudroom.net.protocol.message_frame import BadMessageFrame, MessageFrames


async def relay_messages(client: Peer, server: Peer, sanitizer: Sanitizer) -> None:
    """Relay until both ends have finished, or either is lost. Raise PeerGone if a frame cannot be searched."""
    frames = MessageFrames(sanitizer.stream)
    try:
        client.pass_to(server)
        while server.buffer or await server.more():
            piece = frames.feed(server.take(len(server.buffer)))
            if client.lost:
                return
            await client.write(piece)
        if server.error:
            client.reset()
            return
        client.finish()
        if not client.ended:  # the close frame of the client, and its end
            await asyncio.wait({client.over}, timeout=LINGER)
    except BadMessageFrame as error:
        raise PeerGone(str(error)) from None
    finally:
        client.end()
        server.cut()
