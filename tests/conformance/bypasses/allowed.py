"""What the gate does let through: these must arrive, or all the others prove nothing."""

from __future__ import annotations

import socket

from .attempt import ALLOWED, World, attempt
from .words import (
    by_absolute,
    by_connect_http,
    by_connect_tls,
    by_socks,
    captured,
    hello,
    lookup,
    record,
    request,
    say,
    server_name,
    tunnel,
)


@attempt(ALLOWED, "HTTP in a tunnel")
def allowed_http(world: World) -> None:
    by_connect_http(world, world.good.encode())


@attempt(ALLOWED, "TLS in a tunnel")
def allowed_tls(world: World) -> None:
    by_connect_tls(world, world.good.encode())


@attempt(ALLOWED, "HTTP by a URL")
def allowed_url(world: World) -> None:
    by_absolute(world, world.good.encode())


@attempt(ALLOWED, "HTTP by SOCKS")
def allowed_socks(world: World) -> None:
    by_socks(world, world.good.encode())


@attempt(ALLOWED, "a port that is named, and a protocol of its own")
def allowed_database(world: World) -> None:
    say(tunnel(world, b"s%d.db.example:5432" % world.slot), b"\0\0\0\x08" + world.mark.encode())


@attempt(ALLOWED, "a private host that is named")
def allowed_private(world: World) -> None:
    host = b"s%d.local.example:8000" % world.slot
    say(tunnel(world, host), request(host, world.mark))


@attempt(ALLOWED, "HTTP on a captured connection")
def allowed_captured_http(world: World) -> None:
    say(captured(world, world.good, 80), request(world.good.encode(), world.mark))


@attempt(ALLOWED, "TLS on a captured connection")
def allowed_captured_tls(world: World) -> None:
    say(captured(world, world.good, 443), record(hello(world.mark, server_name(world.good.encode()))))


@attempt(ALLOWED, "a protocol of its own on a captured connection")
def allowed_captured_database(world: World) -> None:
    say(captured(world, f"s{world.slot}.db.example", 5432), b"\0\0\0\x08" + world.mark.encode())


@attempt(ALLOWED, "a captured connection by IPv6, to a host that has none", control=False)
def allowed_captured_ipv6(world: World) -> None:
    where = lookup(world, world.good.encode(), 28)
    say(socket.create_connection((where, 80), 2), request(world.good.encode(), world.mark))
