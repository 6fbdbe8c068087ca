"""An API on loopback: resources that are read, put, merged and deleted, and orders, each taken once by its key."""

from __future__ import annotations

import json
from pathlib import Path

from forge import Forge


class Api(Forge):
    """``done`` has what has changed something, in order: (method, path). ``doubles`` counts a merge that has changed
    nothing. A key whose request is outstanding is answered with 409, one whose request was done with its answer
    (draft-ietf-httpapi-idempotency-key-header)."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.things: dict[str, bytes] = {"/items/old": b'{"a":1}'}
        self.done: list[tuple[str, str]] = []
        self.keys: dict[str, str] = {}
        self.outstanding: set[str] = set()
        self.doubles = 0

    def is_effect(self, method: str, _path: str, _body: bytes) -> bool:
        return method not in ("GET", "HEAD", "OPTIONS")

    def effects(self) -> int:
        return sum(method not in ("GET", "HEAD", "OPTIONS") for method, _path, _headers in self.requests)

    def begin(self, _method: str, _path: str, headers: dict[str, str]) -> bytes:
        key = headers.get("idempotency-key", "")
        if not key or key in self.keys:
            return b""
        if key in self.outstanding:
            return _answer(409, b'{"error":"a request with this key is outstanding"}')
        self.outstanding.add(key)
        return b""

    def end(self, headers: dict[str, str]) -> None:
        self.outstanding.discard(headers.get("idempotency-key", ""))

    def _backend(self, method: str, path: str, _query: str, _headers: dict[str, str], body: bytes) -> bytes:
        there = self.things.get(path)
        if method == "POST":
            return self._order(path, _headers.get("idempotency-key") or str(json.loads(body)), body)
        if method == "PUT":
            self.done.append((method, path))
            self.things[path] = body
            return _answer(200 if there else 201, b'{"ok":true}')
        if there is None:
            return _answer(404, b'{"error":"none"}')
        if method == "GET":
            return _answer(200, there)
        if method == "DELETE":
            del self.things[path]
            self.done.append((method, path))
            return _answer(204, b"")
        merged = json.dumps(json.loads(there) | json.loads(body)).encode()
        self.doubles += merged == there
        self.things[path] = merged
        self.done.append((method, path))
        return _answer(200, merged)

    def _order(self, path: str, key: str, body: bytes) -> bytes:
        if key in self.keys and path == "/pulls":  # as GitHub answers
            told = {"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for me:fix."}
            return _answer(422, json.dumps({"message": "Validation Failed", "errors": [told]}).encode())
        if key in self.keys:
            return _answer(201, json.dumps({"at": self.keys[key]}).encode())
        self.keys[key] = place = f"{path}/{len(self.keys) + 1}"
        self.things[place] = body
        self.done.append(("POST", path))
        return _answer(201, json.dumps({"at": place}).encode())


def _answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
