"""The files of the page, as they lie in ``page/``: read once, by a list of names, so that no path of a request ever
reaches the file system.

``index.html`` names all others below a directory that is called after what they hold. So a browser asks once for each,
and keeps it (RFC 8246); another version has other names. It names every module, too, so that they come side by side and
not each when the one before it was read.
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
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types worker events"
)
"""Content-Security-Policy of the page: https://www.w3.org/TR/CSP3/"""


class Asset(NamedTuple):
    data: bytes
    media_type: str
    tag: str


def _all(place: Traversable, above: str = "") -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for item in place.iterdir():
        name = above + item.name
        if item.is_dir():
            found |= _all(item, name + "/")
        elif (media_type := _TYPES.get(name.rpartition(".")[2])) is not None:
            data = item.read_bytes()
            found[name] = Asset(data, media_type, _tag(data))
    return found


def reached(files: dict[str, Asset], name: str = "app.js") -> list[str]:
    """The modules that a module imports, and those that they do, each once, in the order in which they are met."""
    found, pending = dict.fromkeys([name]), [name]
    while pending:
        here = pending.pop(0)
        above = here.rpartition("/")[0]
        for other in _IMPORT.findall(files[here].data):
            path = other.decode() if not above else f"{above}/{other.decode()}"
            if path not in found:
                found[path] = None
                pending.append(path)
    return list(found)


_IMPORT = re.compile(rb"""from ?"\./([\w./]+)\"""")
_NAMED = re.compile(r'(href|src)="([\w.]+)"')


def _index(files: dict[str, Asset], version: str) -> Asset:
    """With the names by which the others are kept. To preload what has a script of its own, too, is an error
    event at the link in Firefox (seen in 153: the module runs all the same)."""
    text = files["index.html"].data.decode()
    own = {name for kind, name in _NAMED.findall(text) if kind == "src"}
    wanted = (name for name in reached(files) if name not in own)
    modules = "".join(f'<link rel="modulepreload" href="{version}/{name}">\n' for name in wanted)
    data = _NAMED.sub(rf'\1="{version}/\2"', text).replace("</head>", modules + "</head>").encode()
    return Asset(data, _TYPES["html"], _tag(data))


def _tag(data: bytes) -> str:
    return f'"{sha256(data).hexdigest()[:20]}"'


_FILES = _all(files("mudroom.web") / "page")
VERSION = "v-" + sha256(repr(sorted((name, asset.tag) for name, asset in _FILES.items())).encode()).hexdigest()[:16]
ASSETS = {
    **_FILES,
    **{f"{VERSION}/{name}": asset for name, asset in _FILES.items()},
    "index.html": _index(_FILES, VERSION),
}
PUBLIC = frozenset({"/", *("/" + name for name in ASSETS)})
"""Nobody learns anything by them: they are in every installation. What they show wants a token."""


def serve(request: Request) -> Response:
    name = request.scope["path"].removeprefix("/") or "index.html"
    asset = ASSETS[name]
    kept = "public, max-age=31536000, immutable" if name.startswith(VERSION + "/") else "no-cache"
    headers = {"etag": asset.tag, "cache-control": kept, "content-security-policy": POLICY}
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(b"", 304, headers)
    return Response(asset.data, 200, headers, asset.media_type)
