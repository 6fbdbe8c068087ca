"""Files of a package that no file of its fork explains. A package is built from the project: a file with content of its
own is what a reviewer has to see first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from mudroom.core.text.regex import regex

_MOST_ASKED = 50
"""Files of one name in the fork that a package's file is compared with."""
_GENERATED = regex(
    r"(.*/)?(PKG-INFO|[^/]+\.(dist|egg)-info/(METADATA|PKG-INFO|RECORD|SOURCES\.txt|WHEEL|dependency_links\.txt|"
    r"requires\.txt|top_level\.txt))"
)
"""What build backends write of a Python package's metadata: texts that no program runs."""
_SETUP = hashlib.sha256(b"[egg_info]\ntag_build = \ntag_date = 0\n\n").hexdigest()
"""setuptools writes this ``setup.cfg`` into each sdist."""


class ForkFiles(Protocol):
    def glob(self, pattern: str, /) -> list[str]: ...
    def read(self, path: str, /) -> bytes: ...


def foreign_files(package: Mapping[str, str], files: ForkFiles) -> set[str]:
    """Return the files of a package (name → SHA-256) whose content no file of the same name in the fork has. Raise
    OSError."""
    names = {name for name, digest in package.items() if not _GENERATED.fullmatch(name) and digest != _SETUP}
    wanted = {name.rpartition("/")[2] for name in names}
    candidates: dict[str, list[str]] = {}
    for path in files.glob("**/*"):
        if (last := path.rpartition("/")[2]) in wanted:
            candidates.setdefault(last, []).append(path)
    digests: dict[str, str] = {}

    def digest_of(path: str) -> str:
        if path not in digests:
            try:
                digests[path] = hashlib.sha256(files.read(path)).hexdigest()
            except OSError:  # a directory, or a link that leads nowhere
                digests[path] = ""
        return digests[path]

    def is_known(name: str) -> bool:
        paths = candidates.get(name.rpartition("/")[2], [])
        nearest = sorted(paths, key=lambda path: (not path.endswith(name), len(path)))[:_MOST_ASKED]
        return any(digest_of(path) == package[name] for path in nearest)

    return {name for name in names if not is_known(name)}
