"""A registry on loopback as npm and as clients of a Python package index know it, and what they send to it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from forge import Forge


def tarball(files: dict[str, str], top: str = "package") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


def wheel(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


def npm_document(name: str, version: str, content: bytes, registry: str = "http://r.example", **more: Any) -> bytes:
    """The body of an ``npm publish``."""
    file = f"{name}-{version}.tgz"
    dist = {
        "integrity": "sha512-" + b64encode(hashlib.sha512(content).digest()).decode(),
        "shasum": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
        "tarball": f"{registry}/{name}/-/{file}",
    }
    document = {
        "_id": name, "name": name, "dist-tags": {"latest": version}, "access": None,
        "versions": {version: {"name": name, "version": version, "_id": f"{name}@{version}", "dist": dist}},
        "_attachments": {
            file: {"content_type": "x/y", "data": b64encode(content).decode(), "length": len(content)}
        },
    }  # fmt: skip
    return json.dumps(document | more).encode()


BOUNDARY = "b0undary"


def upload_form(name: str, version: str, file: str, content: bytes, **more: str) -> bytes:
    """The body of an upload to a Python package index; its boundary is ``BOUNDARY``."""
    fields = {":action": "file_upload", "name": name, "version": version, "filetype": "sdist", **more}
    parts = [f'Content-Disposition: form-data; name="{key}"\r\n\r\n{text}\r\n'.encode() for key, text in fields.items()]
    head = f'Content-Disposition: form-data; name="content"; filename="{file}"\r\n'
    parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + content + b"\r\n")
    mark = f"--{BOUNDARY}".encode()
    return b"".join(mark + b"\r\n" + part for part in parts) + mark + b"--\r\n"


class Registry(Forge):
    """``files`` has what was published, by (package, version) for npm and by the file's name for an index; ``doubles``
    counts what was published again."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.files: dict[str, bytes] = {}
        self.manifests: dict[str, dict[str, Any]] = {}
        self.doubles = 0

    def is_effect(self, method: str, _path: str, _body: bytes) -> bool:
        return method in ("PUT", "POST")

    def publishes(self) -> int:
        return sum(method in ("PUT", "POST") for method, _path, _headers in self.requests)

    def _backend(self, method: str, path: str, _query: str, _headers: dict[str, str], body: bytes) -> bytes:
        path = unquote(path)
        if method == "PUT":
            return self._put(json.loads(body))
        if method == "POST":
            match = re.search(rb'filename="([^"]+)"\r\n.*?\r\n\r\n(.*)\r\n--.*?--\r\n$', body, re.DOTALL)
            assert match is not None
            return self._store(match[1].decode(), match[2])
        if path.startswith("/simple/") and path.endswith("/"):
            name = path.split("/")[2].replace("-", "_")
            files = [file for file in self.files if file.startswith(name)]
            rows = (f'<a href="../{f}#sha256={hashlib.sha256(self.files[f]).hexdigest()}">{f}</a>' for f in files)
            return _answer(200 if files else 404, f"<html><body>{''.join(rows)}</body></html>".encode(), "text/html")
        if "/-/" in path:
            return _answer(200, self.files[path.rpartition("/")[2]], "application/octet-stream")
        versions = {v: m for key, m in self.manifests.items() for n, _at, v in [key.rpartition("@")] if n == path[1:]}
        if not versions:
            return _answer(404, b'{"error":"not found"}')
        tags = {"latest": list(versions)[-1]}
        return _answer(200, json.dumps({"name": path[1:], "dist-tags": tags, "versions": versions}).encode())

    def _put(self, document: dict[str, Any]) -> bytes:
        ((version, manifest),) = document["versions"].items()
        ((file, attachment),) = document["_attachments"].items()
        answer = self._store(file, b64decode(attachment["data"]))
        self.manifests.setdefault(f"{document['name']}@{version}", manifest)
        return answer

    def _store(self, file: str, content: bytes) -> bytes:
        if file in self.files:
            self.doubles += 1
            return _answer(409, b'{"error":"this version is there already"}')
        self.files[file] = content
        return _answer(201, b'{"ok":"created"}')


def _answer(status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nETag: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
