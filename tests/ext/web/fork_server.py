"""Servers that run in forks, for tests of the addresses of forks, and a client that sends what it is told."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from browser import Site, mudroom, serving

from clocks import give_way
from mudroom.ext.web.server.fork_address import label_of

if TYPE_CHECKING:
    from conftest import Place

ECHO = r"""
import base64, hashlib, http.server, json, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("upgrade") == "websocket":
            key = (self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
            self.send_response(101)
            self.send_header("upgrade", "websocket")
            self.send_header("connection", "Upgrade")
            self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(key).digest()).decode())
            self.end_headers()
            self.wfile.write(b"hello")
            while data := self.rfile.read1(100):
                self.wfile.write(data.upper())
            self.close_connection = True
            return
        if self.path == "/events":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.close_connection = True
            for number in range(10**6):
                self.wfile.write(b"data: %d\n\n" % number)
                time.sleep(0.05)
        length = int(self.headers.get("content-length") or 0)
        body = b""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        body = body or self.rfile.read(length)
        if self.path == "/page":
            text = ("<title>" + NAME + "</title>" + PAGE).encode()
            kind = "text/html"
        else:
            told = {"name": NAME, "method": self.command, "path": self.path, "body": body.decode()}
            told["headers"] = [[name.lower(), value] for name, value in self.headers.items()]
            text = json.dumps(told).encode()
            kind = "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        above = self.headers["host"].split(":")[0].split("--")[-1]
        for cookie in ("wide=1; Domain=" + above + "; Path=/", "own=2; HttpOnly", "mudroom-80=x"):
            self.send_header("set-cookie", cookie)
        self.send_header("clear-site-data", '"cookies"')
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
    do_POST = do_HEAD = do_OPTIONS = do_GET
    def log_message(self, *_words): pass
NAME, PAGE = sys.argv[2], sys.argv[3]
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print("up", flush=True)
server.serve_forever()
"""


def serve_in(place: Place, fork: str, port: int, page: str = "") -> None:
    """Run ``ECHO`` in a fork's background until it listens."""
    words = ["exec", "--fork", fork, "--background", "--json", "--", sys.executable, "-I", "-c", ECHO]
    row = json.loads(mudroom(place, *words, str(port), fork, page))
    while "up" not in mudroom(place, "ps", "--output", row["id"]):
        give_way()


@contextmanager
def forks_served(place: Place, *forks: tuple[str, int], page: str = "") -> Iterator[Site]:
    """``mudroom serve``, and servers in forks."""
    for fork, port in forks:
        serve_in(place, fork, port, page)
    try:
        with serving(place) as site:
            yield site
    finally:
        mudroom(place, "ps", "--end", "--all")


def host_of(place: Place, site: Site, fork: str, port: int | None = None) -> str:
    name = f"{label_of(fork)}--{place.project.name.lower()}.localhost:{site.port}"
    return name if port is None else f"{port}.{name}"


def send(site: Site, data: bytes) -> bytes:
    """What is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", site.port), 20) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while part := connection.recv(1 << 16):
                answer += part
        except ConnectionResetError:
            pass
        return answer


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _blank, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1]) if first else 0
        self.headers = [(name.lower(), value) for name, _colon, value in (line.partition(": ") for line in lines)]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


def ask(site: Site, host: str, target: str = "/", method: str = "GET", body: str = "", **headers: str) -> Answer:
    """``headers``: with ``_`` for ``-``."""
    fields = {"Host": host, "Connection": "close", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body:
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return Answer(send(site, "\r\n".join([*lines, "", body]).encode("latin-1")))
