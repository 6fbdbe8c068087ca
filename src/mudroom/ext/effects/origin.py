"""Files of a package that no file of its fork explains. A package is built from the project: a file with content of its
own is what a reviewer has to see first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from mudroom.core.text.regex import regex
from mudroom.core.tree.entry import Entry
from mudroom.ext.effects.publish import MOST_BYTES
from mudroom.typing import Protocol

_MOST_ASKED = 50
"""Files of one name in the fork that a package's file is compared with."""
_GENERATED = regex(
    r"(.*/)?(PKG-INFO|[^/]+\.(dist|egg)-info/(METADATA|PKG-INFO|RECORD|SOURCES\.txt|WHEEL|dependency_links\.txt|"
    r"requires\.txt|top_level\.txt))"
)
"""What build backends write of a Python package's metadata: texts that no program runs."""
_SETUP = hashlib.sha256(b"[egg_info]\ntag_build = \ntag_date = 0\n\n").hexdigest()
"""setuptools writes this ``setup.cfg`` into each sdist."""


class OriginFiles(Protocol):
    def glob(self, pattern: str, /) -> list[str]: ...
    def look(self, path: str, /) -> Entry | None: ...
    def read(self, path: str, /) -> bytes: ...


def foreign_files(package: Mapping[str, str], files: OriginFiles, *, is_python: bool) -> set[str]:
    """Return the files of a package (name → SHA-256) whose content no file of the same name in the fork has. Raise
    OSError. ``is_python``: leave out what its build tools generate."""
    names = {name for name, digest in package.items() if not is_python or not _is_generated(name, digest)}
    wanted = {name.rpartition("/")[2] for name in names}
    candidates: dict[str, list[str]] = {}
    for path in files.glob("**/*"):
        if (last := path.rpartition("/")[2]) in wanted:
            candidates.setdefault(last, []).append(path)
    digests, left = dict[str, str](), MOST_BYTES

    def digest_of(path: str) -> str:
        nonlocal left
        if path not in digests:
            entry, digests[path] = files.look(path), ""
            if entry is not None and entry.kind == "file" and entry.size <= left:
                left -= entry.size
                digests[path] = hashlib.sha256(files.read(path)).hexdigest()
        return digests[path]

    def is_known(name: str) -> bool:
        paths = candidates.get(name.rpartition("/")[2], [])
        nearest = sorted(paths, key=lambda path: (not path.endswith(name), len(path)))[:_MOST_ASKED]
        return any(digest_of(path) == package[name] for path in nearest)

    return {name for name in names if not is_known(name)}


def _is_generated(name: str, digest: str) -> bool:
    return digest == _SETUP or _GENERATED.fullmatch(name) is not None
