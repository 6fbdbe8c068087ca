"""A guard's inspector: the inspection that the gate asks for (``net/gate/inspector.py``)."""

from __future__ import annotations

from mudroom.ext.inspection.inspect import decline, inspect
from mudroom.ext.inspection.rewrite import CredentialRewrite, KnownCookies
from mudroom.ext.inspection.sanitizer import Sanitizer
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.peer import Peer
from mudroom.net.protocol.client_hello import Kind


class GuardInspector:
    def __init__(self, guard: Guard) -> None:
        credentials = () if guard.inspection is None else guard.inspection.credentials
        self.sanitizer = Sanitizer(credentials) if credentials else None
        self.plain = CredentialRewrite(credentials, self.sanitizer, KnownCookies())

    async def inspect(self, client: Peer, server: Peer, exchange: Exchange, kind: Kind) -> None:
        await inspect(self.plain, client, server, exchange, kind)

    async def decline(self, client: Peer, exchange: Exchange, status: int, reason: str) -> bool:
        return await decline(client, exchange, status, reason)
