"""The page's files, read once from ``page/`` and served by a fixed list of names: a request's path never reaches the
file system.

``index.html`` refers to the other files below a directory named by a hash of their content. A browser requests each
file once and caches it (RFC 8246); another version has another directory. ``index.html`` also preloads every module, so
that they load in parallel.
"""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types worker events push"
)
"""The page's Content-Security-Policy: https://www.w3.org/TR/CSP3/"""


class Asset(NamedTuple):
    data: bytes
    media_type: str
    tag: str


def _read_assets(directory: Traversable, above: str = "") -> dict[str, Asset]:
    assets: dict[str, Asset] = {}
    for item in directory.iterdir():
        name = above + item.name
        if item.is_dir():
            assets |= _read_assets(item, name + "/")
        elif (media_type := _TYPES.get(name.rpartition(".")[2])) is not None:
            data = item.read_bytes()
            assets[name] = Asset(data, media_type, _tag(data))
    return assets


_MAIN = "app.js"


def imported_modules(files: dict[str, Asset]) -> list[str]:
    """Return the page's modules, imported directly and indirectly, each once, in order of discovery."""
    modules, pending = dict.fromkeys([_MAIN]), [_MAIN]
    while pending:
        current = pending.pop(0)
        folder = current.rpartition("/")[0]
        for imported in _IMPORT.findall(files[current].data):
            path = imported.decode() if not folder else f"{folder}/{imported.decode()}"
            if path not in modules:
                modules[path] = None
                pending.append(path)
    return list(modules)


_IMPORT = re.compile(rb"""from ?"\./([\w./]+)\"""")
_NAMED = re.compile(r'(href|src)="([\w.]+)"')


def _index(files: dict[str, Asset], version: str) -> Asset:
    """Return ``index.html`` with versioned names and preloads. A module with a script element is not preloaded: Firefox
    would report an error event at the link (seen in 153; the module runs nevertheless)."""
    text = files["index.html"].data.decode()
    with_script = {name for kind, name in _NAMED.findall(text) if kind == "src"}
    preloaded = (name for name in imported_modules(files) if name not in with_script)
    modules = "".join(f'<link rel="modulepreload" href="{version}/{name}">\n' for name in preloaded)
    data = _NAMED.sub(rf'\1="{version}/\2"', text).replace("</head>", modules + "</head>").encode()
    return Asset(data, _TYPES["html"], _tag(data))


def _tag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:20]}"'


_FILES = _read_assets(files("mudroom.ext.web") / "page")
VERSION = "v-" + sha256(repr(sorted((name, asset.tag) for name, asset in _FILES.items())).encode()).hexdigest()[:16]
ASSETS = {
    **_FILES,
    **{f"{VERSION}/{name}": asset for name, asset in _FILES.items()},
    "index.html": _index(_FILES, VERSION),
}
PUBLIC = frozenset({"/", *("/" + name for name in ASSETS)})
"""Public without a token: these files are in every installation, and contain no user data."""


def serve(request: Request) -> Response:
    name = request.scope["path"].removeprefix("/") or "index.html"
    asset = ASSETS[name]
    cache_control = "public, max-age=31536000, immutable" if name.startswith(VERSION + "/") else "no-cache"
    headers = {"etag": asset.tag, "cache-control": cache_control, "content-security-policy": POLICY}
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(b"", 304, headers)
    return Response(asset.data, 200, headers, asset.media_type)
