"""A package's publish over HTTP, as far as it is held: npm's PUT of the package's document, and the form that clients
of a Python package index POST (the legacy upload API).

Rules of this file: pure, and for untrusted bytes; ValueError for all that is not understood. One request publishes one
file of one version; a change of what is published (deprecate, a tag alone, unpublish) is not held.
https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md, https://docs.pypi.org/api/upload/, PEP 503, PEP 691.
"""

from __future__ import annotations

import hashlib
import html
import io
import tarfile
import zipfile
import zlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show

MOST_FILES, MOST_BYTES = 10_000, 256 << 20
"""Files of a package, and their bytes, that are looked at."""
NO_FILES = b"PK\5\6" + bytes(18)
"""A package without a file."""
_PLACE = regex(r"(/([A-Za-z0-9._~@+-]|%40|%2[fF])+)*/?")
_NPM_NAME = regex(r"(@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*")
_PYPI_NAME = regex(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = regex(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,99}")
_FILE = regex(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,299}")
_BOUNDARY = regex(r"""multipart/form-data;\s*boundary=("?)([^"\s;]{1,200})\1\s*""")
_PART = regex(
    rb"""(?i:content-disposition):\s*form-data;\s*name="([^"\r\n]*)"(?:;\s*filename="([^"\r\n]*)")?[^\r\n]*"""
)
_LINK = regex(r"""<a\b[^>]*\bhref\s*=\s*["']([^"'>]*)["'][^>]*>""")


class Publish(NamedTuple):
    registry: Literal["npm", "pypi"]
    package: str
    version: str
    file: str
    digest: str
    """Of the file: ``sha512-`` and base64 (npm), SHA-256 in hexadecimal (pypi)."""
    page: str
    """Path of the registry's list of what is published of this package, without escapes and without a last slash."""
    tags: tuple[str, ...] = ()
    content_type: str = ""
    """Of the request."""

    @property
    def label(self) -> str:
        return f"{self.package} {self.version}" + (f" ({self.file})" if self.registry == "pypi" else "")

    @property
    def place(self) -> str:
        """Path of the file."""
        return f"{self.page}/-/{self.file}" if self.registry == "npm" else f"{self.page}/{self.file}"


class PackageRequest(NamedTuple):
    publish: Publish
    content: bytes
    manifest: Mapping[str, Any] = {}
    """npm: the version's ``package.json``, as the client has sent it."""


class _Attachment(msgspec.Struct):
    data: bytes


class _Document(msgspec.Struct):
    name: str
    versions: dict[str, dict[str, Any]]
    attachments: dict[str, _Attachment] = msgspec.field(name="_attachments", default_factory=dict)
    tags: dict[str, str] = msgspec.field(name="dist-tags", default_factory=dict)


def is_place(path: str) -> bool:
    """Return whether a path is surely read by all servers as it is written."""
    return len(path) <= 500 and _PLACE.fullmatch(path) is not None and not {".", ".."} & set(unquote(path).split("/"))


def canonical(path: str) -> str:
    return unquote(path).rstrip("/")


def parse_publish(path: str, content_type: str, body: bytes) -> PackageRequest:
    """Return what a request publishes. ``path``: of the request."""
    if content_type.startswith("multipart/"):
        return _form(canonical(path), content_type, body)
    return _document(canonical(path), body)


def _document(path: str, body: bytes) -> PackageRequest:
    try:
        document = msgspec.json.decode(body, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("a document that publishes no package") from None
    if not document.attachments:
        raise ValueError("a change of what is published of a package (npm deprecate, owner, unpublish)")
    if len(document.versions) != 1 or len(document.attachments) != 1:
        raise ValueError("a publish of several versions or files at once")
    ((version, manifest),) = document.versions.items()
    ((_name, attachment),) = document.attachments.items()
    name, content = document.name, attachment.data
    file = f"{name.rpartition('/')[2]}-{version}.tgz"
    if not _NPM_NAME.fullmatch(name) or not _VERSION.fullmatch(version) or not path.endswith("/" + name):
        raise ValueError("a package whose name or version is not understood")
    if (manifest.get("name"), manifest.get("version")) != (name, version) or set(document.tags.values()) - {version}:
        raise ValueError("a package that is not the one that its document names")
    digest = "sha512-" + b2a_base64(hashlib.sha512(content).digest(), newline=False).decode()
    said = manifest.get("dist")
    if not isinstance(said, dict) or said.get("integrity", digest) != digest:
        raise ValueError("a package that is damaged")
    tags = tuple(sorted(tag for tag in document.tags if tag.isprintable()))
    return PackageRequest(Publish("npm", name, version, file, digest, path, tags), content, manifest)


def _form(path: str, content_type: str, body: bytes) -> PackageRequest:
    match = _BOUNDARY.fullmatch(content_type)
    pieces = (b"\r\n" + body).split(b"\r\n--" + match[2].encode()) if match is not None else []
    if len(pieces) < 2 or pieces[0] or not pieces[-1].startswith(b"--"):
        raise ValueError("a form that is not understood")
    fields: dict[bytes, tuple[bytes | None, bytes]] = {}
    for piece in pieces[1:-1]:
        head, empty, content = piece.partition(b"\r\n\r\n")
        part = next((found for line in head.split(b"\r\n") if (found := _PART.fullmatch(line))), None)
        if part is None or not empty:
            raise ValueError("a form that is not understood")
        if part[1] in (b":action", b"name", b"version", b"content", b"sha256_digest") and part[1] in fields:
            raise ValueError("a form that names a field twice")
        fields[part[1]] = part[2], content
    text = {name: fields.get(name, (None, b""))[1].decode("ascii", "replace") for name in (b"name", b"version")}
    file = (fields.get(b"content", (None, b""))[0] or b"").decode("ascii", "replace")
    if fields.get(b":action", (None, b""))[1] != b"file_upload" or b"content" not in fields:
        raise ValueError("a form that uploads no package")
    name, version = text[b"name"], text[b"version"]
    if not _PYPI_NAME.fullmatch(name) or not _VERSION.fullmatch(version) or not _FILE.fullmatch(file):
        raise ValueError("a package whose name, version or file is not understood")
    digest = hashlib.sha256(fields[b"content"][1]).hexdigest()
    if fields.get(b"sha256_digest", (None, digest.encode()))[1].decode("ascii", "replace").lower() != digest:
        raise ValueError("a package that is damaged")
    page = f"{path.removesuffix('/legacy')}/simple/{regex(r'[-_.]+').sub('-', name).lower()}"
    return PackageRequest(Publish("pypi", name, version, file, digest, page), fields[b"content"][1])


# --- what a registry tells ---


def published(publish: Publish, body: bytes) -> dict[str, tuple[str, str]]:
    """Return what a package's page tells: version (pypi: file) → (digest, URL), in its order. The digest is empty if it
    is of another kind than the publish's."""
    if publish.registry == "npm":
        try:
            versions = msgspec.json.decode(body)["versions"]
            dists = {version: manifest["dist"] for version, manifest in versions.items()}
            return {v: (str(dist.get("integrity", "")), str(dist["tarball"])) for v, dist in dists.items()}
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            raise ValueError("the registry's document is not understood") from None
    if body.lstrip()[:1] == b"{":
        try:
            files = msgspec.json.decode(body)["files"]
            return {str(f["filename"]): (str(f["hashes"].get("sha256", "")), str(f["url"])) for f in files}
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            raise ValueError("the index's page is not understood") from None
    rows = {}
    for link in _LINK.findall(body.decode("utf-8", "replace")):
        url, _mark, fragment = html.unescape(link).partition("#")
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        rows[unquote(urlsplit(url).path).rpartition("/")[2]] = digest, url
    return rows


def overlaid(requests: Sequence[PackageRequest], origin: str, body: bytes | None) -> tuple[bytes, str]:
    """Return a package's page as it will be once the held publishes are sent, and its content type. ``origin``: the
    registry's URL without a path. ``body``: the registry's page; None: there is none."""
    if requests[0].publish.registry == "npm":
        name = requests[0].publish.package
        document = msgspec.json.decode(body) if body is not None else {"_id": name, "name": name}
        if not isinstance(document, dict):
            raise ValueError("the registry's document is not understood")
        for publish, _content, manifest in requests:
            dist = {
                **manifest["dist"],
                "tarball": origin + quote(publish.place, safe="/@"),
                "integrity": publish.digest,
            }
            document.setdefault("versions", {})[publish.version] = {**manifest, "dist": dist}
            document.setdefault("dist-tags", {}).update(dict.fromkeys(publish.tags, publish.version))
        return msgspec.json.encode(document), "application/json"
    told = [(p.file, f"{quote(p.place)}", p.digest) for p in (request.publish for request in requests)]
    if body is not None and body.lstrip()[:1] == b"{":
        page = msgspec.json.decode(body)
        page["files"] += [{"filename": file, "url": url, "hashes": {"sha256": digest}} for file, url, digest in told]
        page["versions"] = sorted({*page.get("versions", ()), *(request.publish.version for request in requests)})
        return msgspec.json.encode(page), "application/vnd.pypi.simple.v1+json"
    links = "".join(f'<a href="{url}#sha256={digest}">{file}</a><br/>\n' for file, url, digest in told).encode()
    start, end, rest = (body or b"<!DOCTYPE html><html><body>\n</body></html>").rpartition(b"</body>")
    return (start + links + end + rest if end else rest + links), "text/html"


# --- what is in a package ---


def package_files(content: bytes, is_secret: Callable[[bytes], bool]) -> tuple[dict[str, str], bool]:
    """Return the SHA-256 of each file in a package (``.tgz``, ``.tar.gz``, ``.whl``, ``.zip``), and whether one may
    have a secret."""
    files: dict[str, str] = {}
    has_secret, left = False, MOST_BYTES
    try:
        if content[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for info in archive.infolist():
                    if not info.is_dir():
                        data = archive.open(info).read(left + 1)
                        left -= len(data)
                        _count(files, info.filename, data, left)
                        has_secret = has_secret or is_secret(data)
        else:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r|gz") as tar:
                for member in tar:
                    stream = tar.extractfile(member) if member.isfile() else None
                    data = stream.read(left + 1) if stream is not None else member.linkname.encode()
                    left -= len(data)
                    if not member.isdir():
                        _count(files, member.name.partition("/")[2] or member.name, data, left)
                        has_secret = has_secret or is_secret(data)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError):
        raise ValueError("its archive is damaged") from None
    return files, has_secret


def _count(files: dict[str, str], name: str, data: bytes, left: int) -> None:
    files[show(name.encode("utf-8", "surrogateescape"))] = hashlib.sha256(data).hexdigest()
    if left < 0 or len(files) > MOST_FILES:
        raise ValueError("too large to be looked into whole")
