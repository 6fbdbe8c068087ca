"""The server in the gate in place of a held host's own, by its protocol."""

from __future__ import annotations

from mudroom.ext.effects.mail_server import serve_mail
from mudroom.ext.effects.ssh_server import serve_ssh
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.peer import Peer
from mudroom.typing import Literal


async def serve_other(client: Peer, server: Peer, exchange: Exchange, mail: Literal["smtp", "smtps"] = "smtp") -> None:
    """Serve a connection that is not HTTP, at a host that holds. ``server``: the host's, which speaks SSH, SMTP, or
    nothing that can be held. ``mail``: ``smtps`` for the inside of TLS. Raise RefusedExchange."""
    begins = bytes(client.buffer[:4]), bytes(server.buffer[:3])
    server.cut()
    if exchange.guard.all_hosts:
        raise exchange.refuse("this cannot be held: effects of another machine's forks")
    if begins[0] == b"SSH-" or begins[1] == b"SSH":
        await serve_ssh(client, exchange)
    elif begins[1] == b"220":  # RFC 5321 4.3.1: an SMTP server speaks first
        await serve_mail(client, exchange, mail)
    else:
        raise exchange.refuse("its rule requires inspection, but it is neither TLS nor HTTP")
    exchange.sent = client.count
    exchange.report()
