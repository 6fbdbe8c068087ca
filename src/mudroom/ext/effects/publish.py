"""A package's publish over HTTP, as far as it is held: npm's PUT of the package's document, the form that clients of a
Python package index POST (the legacy upload API), and cargo's PUT of a crate, its yank and its unyank.

Rules of this file: pure, and for untrusted bytes; ValueError for all that is not understood. One request publishes one
file of one version; another change of what is published (deprecate, a tag alone, unpublish) is not held.
https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md, https://docs.pypi.org/api/upload/, PEP 503, PEP 691,
https://doc.rust-lang.org/cargo/reference/registry-web-api.html and registry-index.html.
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
from typing import Any, Literal, NamedTuple, cast
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
_CRATE_NAME = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CRATES = regex(r"(?P<root>.*)/api/v1/crates/(?:new|(?P<name>[^/]+)/(?P<version>[^/]+)/(?P<act>yank|unyank))")
CRATE = "application/x-crate; index="
"""The content type under which a crate's requests are stored; the path of its registry's index follows."""
_LINK = regex(r"""<a\b[^>]*\bhref\s*=\s*["']([^"'>]*)["'][^>]*>""")


CrateAct = Literal["", "yank", "unyank"]


class Publish(NamedTuple):
    registry: Literal["npm", "pypi", "crates"]
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
    act: CrateAct = ""
    """Of a crate's version that is there; empty: it is published."""

    @property
    def label(self) -> str:
        more = self.act or (self.file if self.registry == "pypi" else "")
        return f"{self.package} {self.version}" + (f" ({more})" if more else "")

    @property
    def place(self) -> str:
        """Path of the file; its end after a ``*`` if the registry does not fix its beginning."""
        if self.registry == "crates":
            return f"*/{self.package}/{self.version}/{self.act or 'download'}"
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


def is_file_of(publish: Publish, path: str) -> bool:
    """Return whether a canonical path is the published file's."""
    place = publish.place
    return not publish.act and (path.endswith(place[1:]) if place.startswith("*") else path == place)


def parse_publish(path: str, content_type: str, body: bytes) -> PackageRequest:
    """Return what a request publishes. ``path``: of the request."""
    if content_type.startswith(CRATE):
        return _crate(canonical(path), content_type.removeprefix(CRATE), body)
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


# --- crates ---


def is_crates(method: str, path: str) -> bool:
    """Return whether a request publishes, yanks or unyanks a crate."""
    match = _CRATES.fullmatch(path)
    return match is not None and method == ("DELETE" if match["act"] == "yank" else "PUT")


def index_of(path: str) -> str | None:
    """Return the index of crates that a read of this path shows, without a last slash; None: it shows none."""
    name = path.rpartition("/")[2]
    end = "/config.json" if name == "config.json" else f"/{_page_of(name)}"
    return (
        path.removesuffix(end) if path.endswith(end) and (end[1:7] == "config" or _CRATE_NAME.fullmatch(name)) else None
    )


def _page_of(name: str) -> str:
    """Return a crate's file in an index."""
    name = name.lower()
    above = {1: "1", 2: "2", 3: f"3/{name[:1]}"}.get(len(name), f"{name[:2]}/{name[2:4]}")
    return f"{above}/{name}"


def _crate(path: str, index: str, body: bytes) -> PackageRequest:
    match = _CRATES.fullmatch(path)
    if match is None or not is_place(index or "/"):
        raise ValueError("a crate's request that is not understood")
    act, content, manifest = cast("CrateAct", match["act"] or ""), NO_FILES, dict[str, Any]()
    if not act:
        size = int.from_bytes(body[:4], "little")
        content = body[size + 8 :]
        try:
            manifest = msgspec.json.decode(body[4 : size + 4], type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ValueError("a crate that is not understood") from None
        if int.from_bytes(body[size + 4 : size + 8], "little") != len(content) or not content:
            raise ValueError("a crate that is cut off")
    name, version = manifest.get("name", match["name"]), manifest.get("vers", match["version"])
    if not (isinstance(name, str) and isinstance(version, str)) or not _CRATE_NAME.fullmatch(name):
        raise ValueError("a crate whose name is not understood")
    if not _VERSION.fullmatch(version):
        raise ValueError("a crate whose version is not understood")
    publish = Publish(
        "crates", name, version, f"{name}-{version}.crate", hashlib.sha256(content).hexdigest(),
        f"{index}/{_page_of(name)}", act=act,
    )  # fmt: skip
    return PackageRequest(publish, content, manifest)


def crate_rows(body: bytes) -> dict[str, dict[str, Any]]:
    """Return what an index tells of a crate: version → row, in its order. Raise ValueError."""
    try:
        rows = [msgspec.json.decode(line, type=dict[str, Any]) for line in body.splitlines() if line.strip()]
        return {str(row["vers"]): row for row in rows}
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        raise ValueError("the index's page is not understood") from None


def _index_row(request: PackageRequest) -> dict[str, Any]:
    manifest, deps = request.manifest, []
    for dep in manifest.get("deps", ()):
        named = dep.get("explicit_name_in_toml")
        same = {key: dep.get(key) for key in ("optional", "default_features", "features", "target", "kind", "registry")}
        own = {"name": named or dep["name"], "req": dep["version_req"], "package": dep["name"] if named else None}
        deps.append(same | own)
    row = {"name": request.publish.package, "vers": request.publish.version, "cksum": request.publish.digest}
    more = {key: manifest[key] for key in ("links", "rust_version") if manifest.get(key)}
    return row | more | {"deps": deps, "features": manifest.get("features", {}), "yanked": False}


def download_url(config: bytes, publish: Publish, version: str, digest: str) -> str:
    """Return a crate's file by its index's ``config.json``. Raise ValueError."""
    try:
        place = str(msgspec.json.decode(config)["dl"])
    except (msgspec.DecodeError, KeyError, TypeError):
        raise ValueError("the index's config.json is not understood") from None
    above = _page_of(publish.package).rpartition("/")[0]
    marks = {"{crate}": publish.package, "{version}": version, "{prefix}": above, "{lowerprefix}": above}
    marks["{sha256-checksum}"] = digest
    if not any(mark in place for mark in marks):
        place += "/{crate}/{version}/download"
    for mark, text in marks.items():
        place = place.replace(mark, text)
    return place


# --- what a registry tells ---


def published(publish: Publish, body: bytes) -> dict[str, tuple[str, str]]:
    """Return what a package's page tells: version (pypi: file) → (digest, URL), in its order. The digest is empty if it
    is of another kind than the publish's."""
    if publish.registry == "crates":
        return {version: (str(row.get("cksum", "")), "") for version, row in crate_rows(body).items()}
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
    if requests[0].publish.registry == "crates":
        rows = crate_rows(body or b"")
        for request in requests:
            publish = request.publish
            if not publish.act:
                rows[publish.version] = _index_row(request)
            elif publish.version in rows:
                rows[publish.version]["yanked"] = publish.act == "yank"
        return b"".join(msgspec.json.encode(row) + b"\n" for row in rows.values()), "text/plain"
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
