"""Servers that behave as servers of the internet do: HTTP/1, TLS with certificates of a throw-away authority."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_KEEP: list[TemporaryDirectory[str]] = []


@cache
def certificate(name: str) -> Path:
    """A self-signed certificate and its key for a name and all below it; trusted by ``client_context``."""
    directory = TemporaryDirectory(prefix="mudroom-tls-")
    _KEEP.append(directory)
    path = Path(directory.name) / "pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},DNS:*.{name}"]
    files = ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    with path.open("ab") as stream:
        stream.write(path.with_suffix(".key").read_bytes())
    return path


def client_context(name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate(name)))


def tls(name: str, talk: Callable[[socket.socket], object]) -> Callable[[socket.socket], object]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(name))

    def wrapped(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            talk(secure)

    return wrapped


def _at_least(length: int) -> Callable[[bytes], bool]:
    return lambda data: len(data) >= length


def _longer(client: socket.socket, data: bytes, is_enough: Callable[[bytes], bool]) -> bytes:
    while not is_enough(data):
        part = client.recv(65536)
        if not part:
            raise ConnectionError("the client has ended")
        data += part
    return data


class Web:
    """Answers every request with ``body``, and keeps what it was sent: head and body of each."""

    def __init__(self, body: bytes = b"hello\n", head: bytes = b"HTTP/1.1 200 OK\r\n") -> None:
        self.body = body
        self.head = head
        self.requests: list[bytes] = []
        self.connections = 0

    def __call__(self, client: socket.socket) -> None:
        self.connections += 1
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                part = client.recv(65536)
                if not part:
                    return
                rest += part
            head, _, rest = rest.partition(b"\r\n\r\n")
            length = int((re.search(rb"(?i)content-length: (\d+)", head) or [b"", b"0"])[1])
            rest = _longer(client, rest, _at_least(length))
            body, rest = rest[:length], rest[length:]
            if b"transfer-encoding: chunked" in head.lower():
                body, rest = _longer(client, rest, lambda data: data.endswith(b"0\r\n\r\n")), b""
            self.requests.append(head + b"\r\n\r\n" + body)
            client.sendall(self.head + b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body)
