"""A gate with a credential, and servers behind it that keep what they are asked and say what a test wants."""

from __future__ import annotations

import base64
import functools
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded
from seal import Seal, client

from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.core.network.inspection import Credential, Foreign, Inspection
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.placeholder import parse_credential, with_value
from town import OpenGuard, Town, read_until

HOST = "api.example"
REAL = "ghp_/wEird+Va=lue." + "R4t5" * 6
"""With characters that encoders treat differently."""


@functools.cache
def _context(seal: Seal, alpn: tuple[str, ...]) -> ssl.SSLContext:
    return seal.server(HOST, alpn=alpn)


class Place(NamedTuple):
    town: Town
    seal: Seal
    authority: str
    credential: Credential

    def guard(self, port: int, *rules: HostRule, foreign: Foreign = "refuse", never: Sequence[str] = ()) -> OpenGuard:
        """Return a guard with the credential for the port, and a rule that allows the host unless others are given."""
        rules = rules or (HostRule("allow", HOST, (port,), private=True, source="policy.yaml:1"),)
        mine = self.credential._replace(port=port, foreign=foreign)
        inspection = Inspection(
            self.authority, tuple(parse_rule(host, "deny") for host in never), (mine,), self.seal.roots
        )
        return self.town.guard(*rules, inspection=inspection)

    def inspection(self) -> Inspection:
        """Return that of a project without credentials."""
        return Inspection(self.authority, roots=self.seal.roots)

    def serve(self, talk: Callable[[ssl.SSLSocket], object], *alpn: str) -> int:
        context = _context(self.seal, alpn)

        def begin(channel: socket.socket) -> None:
            with context.wrap_socket(channel, server_side=True) as inside:
                talk(inside)

        return self.town.serve(begin)

    def tunnel(self, guard: OpenGuard, port: int, *alpn: str) -> ssl.SSLSocket:
        where = b"%s:%d" % (HOST.encode(), port)
        raw = guard.connect(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
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
        self.answers = answers
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


def mirror(channel: ssl.SSLSocket) -> None:
    """Say the Authorization back, over HTTP/1.1 and HTTP/2 (as gRPC does, too): in the reason, headers, the body and
    trailers, verbatim and as base64."""
    if channel.selected_alpn_protocol() == "h2":
        _mirror2(channel)
        return
    while head := read_head(channel):
        fields = dict(line.partition(b": ")[::2] for line in head.lower().split(b"\r\n"))
        at = head.lower().find(b"authorization: ") + 15
        said = head[at : head.index(b"\r\n", at)] if b"authorization" in fields else b"nobody"
        body = b'{"you": "%s", "coded": "%s"}' % (said, base64.b64encode(said))
        channel.sendall(
            b"HTTP/1.1 200 Hello %s\r\nX-You: %s\r\nContent-Length: %d\r\n\r\n%s" % (said, said, len(body), body)
        )


def _mirror2(channel: ssl.SSLSocket) -> None:
    h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    h2.initiate_connection()
    channel.sendall(h2.data_to_send())
    said: dict[int, tuple[bytes, bool]] = {}
    while data := channel.recv(65536):
        for event in h2.receive_data(data):
            if isinstance(event, RequestReceived):
                fields = {bytes(name): bytes(value) for name, value in event.headers}
                is_grpc = fields.get(b"content-type", b"").startswith(b"application/grpc")
                said[event.stream_id] = fields.get(b"authorization", b"nobody"), is_grpc
            elif isinstance(event, StreamEnded):
                number, (words, is_grpc) = event.stream_id, said.pop(event.stream_id)
                kind = b"application/grpc" if is_grpc else b"text/plain"
                h2.send_headers(number, [(b":status", b"200"), (b"content-type", kind), (b"x-you", words)])
                if not is_grpc:
                    h2.send_data(number, b"%s %s" % (words, base64.b64encode(words)))
                trailers = [(b"grpc-status", b"16"), (b"grpc-message", b"no " + words), (b"x-you-too", words)]
                h2.send_headers(number, trailers, end_stream=True)
        channel.sendall(h2.data_to_send())
