"""A program on this host, found as a shell finds it, and the directories without which it does not start inside.

A program is often a link: ``~/.local/bin/claude`` leads to ``~/.local/share/claude/versions/N``, an npm program to its
package. Commands see the system's directories and the usual toolchains. Rules for files elsewhere:

1. Each file on the way counts: the path itself, every link, the file, and its first line's interpreter.
2. A package's file is shown with its package: the outermost ``node_modules``, a virtual environment. Any other file is
   shown with its directory.
3. The home, a directory that contains it, and one that contains or lies in a credential store are never shown as a
   whole: only the file is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence

from mudroom.core.registry import twin
from mudroom.core.tree.credential_stores import store_places
from mudroom.core.tree.path import is_below
from mudroom.typing import NamedTuple

_LINKS = 40
"""Most symlinks that path_resolution(7) follows."""
_INTERPRETERS = 3
"""Most nested interpreters: a script, env, node."""
_FIRST_LINE = 256
"""BINPRM_BUF_SIZE in include/uapi/linux/binfmts.h: the kernel reads no more of the first line."""
_MANIFEST_LIMIT = 1 << 20
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+[^/]*)")
_MODULES = b"/node_modules/"
_STARTED = ".com;.exe;.bat;.cmd"
"""Suffixes in PATHEXT that CreateProcess and cmd.exe start; the others need other programs."""


class HostProgram(NamedTuple):
    path: bytes
    """Absolute, as it was found."""
    real: bytes
    version: str
    """Empty if neither the file's name nor its package says it."""


def find_program(word: bytes, search: Sequence[bytes], cwd: bytes) -> HostProgram | None:
    """Return the program that a shell would run for ``word``, or None. ``search``: the directories in PATH."""
    if sys.platform == "win32":
        return _find_on_windows(word, search, cwd)
    if b"/" in word:
        paths = [os.path.join(cwd, word)]
    else:
        paths = [directory + b"/" + word for directory in search if directory.startswith(b"/")]
    for path in paths:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            real = os.path.realpath(path)
            return HostProgram(os.path.normpath(path), real, _version(real))
    return None


def _find_on_windows(word: bytes, search: Sequence[bytes], cwd: bytes) -> HostProgram | None:
    """Find a program as ``WindowsClient`` does: by PATH alone, never in the current directory."""
    places, here = os.fsdecode(b";".join(search)), os.fsdecode(cwd).replace("/", "\\")
    path = twin("command").find_program(os.fsdecode(word), places, _STARTED, os.path.isfile, here)
    if path is None:
        return None
    real = os.fsencode(os.path.realpath(path).replace("\\", "/"))
    return HostProgram(os.fsencode(path), real, _version(real))


def needed_places(program: HostProgram, search: Sequence[bytes], home: bytes, shown: Collection[bytes]) -> list[bytes]:
    """Return the paths that have to be shown for the program to start, beyond those below ``shown``."""
    needed: list[bytes] = []
    for path in _files_of(program.path, search, _INTERPRETERS):
        if any(is_below(path, place) for place in (*shown, *needed)):
            continue
        needed.append(_place_of(path, home))
    return [place for place in needed if not any(is_below(place, other) and place != other for other in needed)]


def _files_of(path: bytes, search: Sequence[bytes], left: int) -> Iterator[bytes]:
    """Yield the files on the way to a program, and those of its interpreter."""
    real = path
    for _link in range(_LINKS):
        yield os.path.realpath(os.path.dirname(real)) + b"/" + os.path.basename(real)
        if not os.path.islink(real):
            break
        real = os.path.join(os.path.dirname(real), os.readlink(real))
    word = _interpreter(real)
    interpreter = find_program(word, search, b"/") if word and left else None
    if interpreter is not None:
        yield from _files_of(interpreter.path, search, left - 1)


def _interpreter(path: bytes) -> bytes:
    """Return the program in a script's first line (execve(2)), for ``env`` the program that env starts; empty if there
    is none."""
    try:
        with open(path, "rb") as stream:
            line = stream.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return b""  # not readable: the kernel runs it, and its interpreter stays unknown
    words = line[2:].split() if line.startswith(b"#!") else []
    if not words or os.path.basename(words[0]) != b"env":
        return words[0] if words else b""
    return next((word for word in words[1:] if not word.startswith(b"-") and b"=" not in word), b"")


def _place_of(path: bytes, home: bytes) -> bytes:
    """Return the file's package or directory, or the file itself if these may not be shown."""
    directory = os.path.dirname(path)
    candidates = [path[: path.index(_MODULES) + len(_MODULES) - 1]] if _MODULES in path else []
    if os.path.exists(os.path.dirname(directory) + b"/pyvenv.cfg"):
        candidates.append(os.path.dirname(directory))
    stores = [home + b"/" + place for place in store_places()]
    for place in (*candidates, directory):
        if not is_below(home, place) and not any(is_below(store, place) or is_below(place, store) for store in stores):
            return place
    return path


def _version(real: bytes) -> str:
    """Return the version in the file's name or its package."""
    named = _VERSION.fullmatch(os.fsdecode(os.path.basename(real)))
    if named is not None:
        return named[1]
    if _MODULES not in real:
        return ""
    before, _modules, inside = real.rpartition(_MODULES)
    parts = inside.split(b"/")
    package = b"/".join(parts[: 2 if inside.startswith(b"@") else 1])
    try:
        with open(before + _MODULES + package + b"/package.json", "rb") as stream:
            version = json.loads(stream.read(_MANIFEST_LIMIT)).get("version", "")
    except (OSError, ValueError, AttributeError):
        return ""  # not an npm package after all
    return version if isinstance(version, str) and version.isprintable() else ""
