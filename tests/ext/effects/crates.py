"""A registry of crates on loopback as cargo knows it: a sparse index, downloads, publish and yank."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from forge import Forge

_ACT = re.compile(r"/api/v1/crates/([^/]+)/([^/]+)/(yank|unyank)")


def crate_body(name: str, version: str, content: bytes, **more: Any) -> bytes:
    """The body of a ``cargo publish``."""
    manifest = json.dumps({"name": name, "vers": version, "deps": [], "features": {}, **more}).encode()
    return len(manifest).to_bytes(4, "little") + manifest + len(content).to_bytes(4, "little") + content


class Crates(Forge):
    """``rows`` has the index's rows by crate, ``files`` the crates; ``doubles`` counts what was published again."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.origin = ""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.doubles = 0

    def is_effect(self, method: str, _path: str, _body: bytes) -> bool:
        return method in ("PUT", "DELETE")

    def effects(self) -> int:
        return sum(method in ("PUT", "DELETE") for method, _path, _headers in self.requests)

    def _backend(self, method: str, path: str, _query: str, _headers: dict[str, str], body: bytes) -> bytes:
        if path == "/index/config.json":
            return _answer(200, json.dumps({"dl": f"{self.origin}/dl", "api": self.origin}).encode())
        if match := _ACT.fullmatch(path):
            assert method == ("DELETE" if match[3] == "yank" else "PUT")
            for row in self.rows.get(match[1], []):
                if row["vers"] == match[2]:
                    row["yanked"] = match[3] == "yank"
                    return _answer(200, b'{"ok": true}')
            return _answer(200, b'{"errors": [{"detail": "no such version"}]}')
        if path == "/api/v1/crates/new":
            size = int.from_bytes(body[:4], "little")
            manifest = json.loads(body[4 : size + 4])
            return self._publish(manifest, body[size + 8 :])
        if path.startswith("/dl/"):
            name, version = path.split("/")[2:4]
            return _answer(200, self.files[f"{name}-{version}"]) if f"{name}-{version}" in self.files else _answer(404)
        rows = self.rows.get(path.rpartition("/")[2], [])
        return _answer(200 if rows else 404, b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def _publish(self, manifest: dict[str, Any], content: bytes) -> bytes:
        name, version = manifest["name"], manifest["vers"]
        if f"{name}-{version}" in self.files:
            self.doubles += 1
            return _answer(200, b'{"errors": [{"detail": "it is there already"}]}')
        self.files[f"{name}-{version}"] = content
        row = {"name": name, "vers": version, "deps": [], "features": {}, "yanked": False}
        self.rows.setdefault(name, []).append(row | {"cksum": hashlib.sha256(content).hexdigest()})
        return _answer(200, b'{"warnings": {"invalid_categories": [], "invalid_badges": [], "other": []}}')


def _answer(status: int, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status} X\r\nETag: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
