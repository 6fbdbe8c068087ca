"""A push service on loopback, and a browser that has subscribed to it: what it is sent is decrypted by ``http_ece``,
which is not ours."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import http_ece  # type: ignore[import-untyped]
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mudroom.ext.web.push import sender

SECRET = b"s" * 16
HOST = "push.example"


def base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class Browser:
    """Its keys, and what it decrypts."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.point = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def subscription(self, endpoint: str = f"https://{HOST}/p/1", **more: str) -> dict[str, str]:
        return {"name": "Phone", "endpoint": endpoint, "key": base64(self.point), "secret": base64(SECRET), **more}

    def read(self, body: bytes) -> dict[str, Any]:
        text = http_ece.decrypt(body, private_key=self.private, auth_secret=SECRET, version="aes128gcm")
        return dict(json.loads(text))


class Service:
    """``status``: its next answer. ``got``: path, headers and body of each message."""

    def __init__(self, port: int) -> None:
        self.port, self.status = port, 201
        self.got: list[tuple[str, dict[str, str], bytes]] = []


@contextmanager
def service() -> Iterator[Service]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(told.status)
            self.send_header("Location", f"http://127.0.0.1:{told.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Service(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that is reached, whatever the endpoint: without TLS, past the judgement of its address."""
    with service() as told:
        monkeypatch.setattr(sender, "connect", lambda _host: socket.create_connection(("127.0.0.1", told.port)))
        yield told
