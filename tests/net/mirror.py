"""A gate with a credential, and servers behind it that keep what they are asked and say what a test wants."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection, parse_never
from mudroom.core.network.placeholder import Credential, Foreign, parse_credential, with_value
from mudroom.net.inspection.authority import load_authority
from seal import Seal, client
from town import OpenDoor, Town, read_until

HOST = "api.example"
REAL = "ghp_/wEird+Va=lue." + "R4t5" * 6
"""With characters that encoders treat differently."""


class Place(NamedTuple):
    town: Town
    seal: Seal
    authority: str
    credential: Credential

    def door(self, port: int, *rules: HostRule, foreign: Foreign = "refuse", never: Sequence[str] = ()) -> OpenDoor:
        """Return a door with the credential for the port, and a rule that allows the host unless others are given."""
        rules = rules or (HostRule("allow", HOST, (port,), private=True, source="policy.yaml:1"),)
        mine = self.credential._replace(port=port, foreign=foreign)
        inspection = Inspection(self.authority, parse_never(never), (mine,), self.seal.roots)
        return self.town.door(*rules, inspection=inspection)

    def inspection(self) -> Inspection:
        """Return that of a project without credentials."""
        return Inspection(self.authority, roots=self.seal.roots)

    def serve(self, talk: Callable[[ssl.SSLSocket], object], *alpn: str) -> int:
        context = self.seal.server(HOST, alpn=alpn)

        def begin(channel: socket.socket) -> None:
            with context.wrap_socket(channel, server_side=True) as inside:
                talk(inside)

        return self.town.serve(begin)

    def tunnel(self, door: OpenDoor, port: int, *alpn: str) -> ssl.SSLSocket:
        where = b"%s:%d" % (HOST.encode(), port)
        raw = door.connect(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
        assert read_until(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        inside = client(self.authority, alpn).wrap_socket(raw, server_hostname=HOST)
        self.town.closers.append(inside.close)
        return inside


def build(town: Town, directory: Path) -> Place:
    authority = load_authority(os.fsencode(directory / "vault"), b"/home/ada/project")
    credential = with_value(parse_credential("TOKEN", f"{HOST}:1"), REAL, bytes(range(32)))
    town.names({HOST: [["127.0.0.1"]]})
    return Place(town, Seal(directory), authority, credential)


def read_head(channel: ssl.SSLSocket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        part = channel.recv(65536)
        if not part:
            return b""
        head += part
    return head


class Script:
    """A server of HTTP/1.1 that answers the n-th request with the n-th answer: pieces, sent one by one."""

    def __init__(self, *answers: tuple[bytes, ...]) -> None:
        self.answers, self.heads = answers, []
        self.heads: list[bytes] = []

    def talk(self, channel: ssl.SSLSocket) -> None:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for answer in self.answers:
            head = read_head(channel)
            if not head:
                return
            self.heads.append(head)
            for piece in answer:
                channel.sendall(piece)
        channel.unwrap()
