"""A forge on loopback: bare repositories behind git's own ``git http-backend``, over plain HTTP or TLS."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from http.client import parse_headers
from pathlib import Path
from typing import Any

BACKEND = "/usr/lib/git-core/git-http-backend"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nowhere",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b"))
    },
}


def git(*words: str, at: Path | str) -> str:
    done = subprocess.run(["git", *words], cwd=at, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert not done.returncode, (words, done.stderr)
    return done.stdout.strip()


class Forge:
    """``before`` and ``after`` are called with the path of each request that pushes, before it is served and before it
    is answered; either may raise ``ConnectionError`` to cut the connection, or return a status instead of the answer.
    ``stand`` is called at the points of an effect: ``read``, ``got``, ``done`` and ``answer``, the middle of it; it may
    raise, too. ``requests`` has (method, path, headers) of all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.before: Callable[[], int | None] = lambda: None
        self.after: Callable[[], int | None] = lambda: None
        self.stand: Callable[[str], object] = lambda _point: None
        self.token = ""
        self.backend, self.more = BACKEND, dict[str, str]()
        self.at_work = 0

    def repository(self, name: str = "team/app.git") -> Path:
        path = self.root / name
        path.mkdir(parents=True)
        git("init", "-q", "--bare", "-b", "main", at=path)
        for key in ("http.receivepack", "receive.advertisePushOptions", "receive.advertiseAtomic"):
            git("config", key, "true", at=path)
        return path

    def refs(self, name: str = "team/app.git") -> dict[str, str]:
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", at=self.root / name).splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def pushes(self) -> int:
        return sum(method == "POST" and path.endswith("/git-receive-pack") for method, path, _headers in self.requests)

    def is_effect(self, method: str, _path: str, _body: bytes) -> bool:
        return method == "POST" and _path.endswith("/git-receive-pack") and _body != b"0000"

    def talk(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            while line := stream.readline(65536).decode("latin-1").split():
                self.at_work += 1
                try:
                    self._serve(client, stream, *line)
                finally:
                    self.at_work -= 1

    def _serve(self, client: socket.socket, stream: Any, method: str, target: str, _version: str) -> None:
        fields = parse_headers(stream)
        headers = {name.lower(): value for name, value in fields.items()}
        stand = self.stand if self.is_effect(method, target.partition("?")[0], b"x") else lambda _point: None
        stand("read")
        body = (
            b"".join(_chunks(stream))
            if "transfer-encoding" in headers
            else stream.read(int(headers.get("content-length", 0)))
        )
        path, _mark, query = target.partition("?")
        self.requests.append((method, path, headers))
        if self.token and headers.get("authorization") != self.token:
            client.sendall(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n")
            return
        is_effect = self.is_effect(method, path, body)
        status = self.before() if is_effect else None
        answer = b"" if status else self.begin(method, path, headers)
        is_begun = not answer
        try:
            stand("got")
            answer = answer or (b"" if status else self._backend(method, path, query, headers, body))
        finally:
            if is_begun:
                self.end(headers)
        status = status or (self.after() if is_effect else None)
        stand("done")
        if status:
            answer = f"HTTP/1.1 {status} No\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n".encode()
        half = len(answer) // 2
        client.sendall(answer[:half])
        stand("answer")
        client.sendall(answer[half:])

    def begin(self, _method: str, _path: str, _headers: dict[str, str]) -> bytes:
        """Return the answer to a request that is not done; empty: it is done."""
        return b""

    def end(self, _headers: dict[str, str]) -> None:
        """Called when a request is done that has begun."""

    def _backend(self, method: str, path: str, _query: str, _headers: dict[str, str], body: bytes) -> bytes:
        environment = ENVIRONMENT | {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": method, "PATH_INFO": path,
            "QUERY_STRING": _query, "CONTENT_TYPE": _headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
            "REMOTE_USER": "tester", "REMOTE_ADDR": "127.0.0.1", "REQUEST_URI": path, **self.more,
        }  # fmt: skip
        for name in ("git-protocol", "content-encoding"):
            if name in _headers:
                environment["HTTP_" + name.upper().replace("-", "_")] = _headers[name]
        done = subprocess.run([self.backend], input=body, env=environment, capture_output=True, check=False)
        head, _empty, content = done.stdout.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = next((line[8:] for line in lines if line.lower().startswith(b"status: ")), b"200 OK")
        rest = [line for line in lines if line and not line.lower().startswith(b"status: ")]
        return b"\r\n".join([b"HTTP/1.1 " + status, *rest, b"Content-Length: %d" % len(content), b"", b""]) + content


def _chunks(stream: Any) -> Iterator[bytes]:
    while length := int(stream.readline(), 16):
        yield stream.read(length)
        stream.readline()
    stream.readline()
