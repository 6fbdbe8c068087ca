"""Variables that an interpreter and its libraries read once, at their start (ld.so(8), Python/initconfig.c of CPython).

A keeper for all callers has none of them. It runs the command of a caller that has some if an interpreter that has them
would do the same. In doubt it would not: then the caller gets a keeper with just these variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

AT_START = (b"PYTHON", b"LOCPATH", b"LD_", b"GLIBC_", b"MALLOC_", b"OPENSSL_")
"""Prefixes of such variables (``src/native/name.c``)."""
_NO_MATTER = frozenset(
    [b"LD_BIND_NOW", b"LD_RUN_PATH", b"PYTHONSTARTUP", b"PYTHONBREAKPOINT", b"PYTHONHASHSEED", b"PYTHONFAULTHANDLER",
     b"PYTHONWARNINGS", b"PYTHONSAFEPATH"]
)  # fmt: skip
"""No command's outcome depends on them: when a library is bound, where a linker looks, an interactive start, an order
that is nowhere shown, what a crash or a warning prints, and the script's directory, which a keeper never searches."""
_TAKEN_OVER = frozenset((b"PYTHONDONTWRITEBYTECODE", b"PYTHONUNBUFFERED", b"PYTHONIOENCODING", b"PYTHONUTF8"))
"""``command.py`` does what an interpreter does."""
_WHEN_USED = (b"PYTHON_", b"PYTHONASYNCIODEBUG", b"LOCPATH", b"MALLOC_", b"GLIBC_TUNABLES")
"""Read when they are used, unknown to an interpreter (those of a container image), or how memory is managed."""
_OTHERS = frozenset((b"mudroom", b"sitecustomize", b"usercustomize"))
_LIBRARIES = frozenset(
    [b"libssl", b"libcrypto", b"libsqlite3", b"libffi", b"libz", b"libbz2", b"liblzma", b"libexpat", b"libuuid",
     b"libcrypt", b"libgcc_s", b"libstdc++", b"libmpdec", b"libzstd"]
)  # fmt: skip
"""Those that modules of an interpreter need, which may be loaded later."""
_VARIANTS = frozenset((b"glibc-hwcaps", b"tls", b"x86_64", b"haswell", b"aarch64"))
"""Directories below one of LD_LIBRARY_PATH that are searched, too."""


def at_start(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in environ.items() if name.startswith(AT_START)}


def may_share(variables: Mapping[bytes, bytes]) -> bool:
    """Return whether an interpreter without these variables runs commands as one that has them. All are permitted by
    ``src/native/eligible.c``."""
    return all(_is_harmless(name, value) for name, value in variables.items() if value)


def _is_harmless(name: bytes, value: bytes) -> bool:
    if name in _NO_MATTER or name in _TAKEN_OVER or name.startswith(_WHEN_USED):
        return True
    if name.startswith(b"PYTHON") and sys.flags.ignore_environment:
        return True
    if name in (b"PYTHONNOUSERSITE", b"PYTHONUSERBASE"):
        return not getattr(sys.modules.get("site"), "ENABLE_USER_SITE", None)  # as in a virtual environment
    if name == b"PYTHONPATH":
        return _hides_nothing(value.split(b":"))
    if name == b"LD_LIBRARY_PATH":
        return _replaces_nothing(value.replace(b";", b":").split(b":"))
    return name.startswith(b"OPENSSL_") and "_ssl" not in sys.modules


def _hides_nothing(path: Iterable[bytes]) -> bool:
    """Return whether no module in these directories has the name of one that is found elsewhere."""
    known = set(_OTHERS)
    for directory in {os.fsencode(entry) for entry in sys.path if entry}.difference(path):
        known |= _names(directory, b".") or set()
    return _are_apart(path, b".", known)


def _replaces_nothing(path: Iterable[bytes]) -> bool:
    """Return whether no library in these directories has the name of one that this process has loaded, or may load."""
    with open("/proc/self/maps", "rb") as stream:
        files = {line.split(b" ", 5)[-1].strip() for line in stream if b".so" in line}
    own = {os.path.dirname(file) for file in files}
    known = {os.path.basename(file).partition(b".so")[0] for file in files} | _LIBRARIES | _VARIANTS
    return _are_apart([directory for directory in path if directory not in own], b".so", known)


def _are_apart(path: Iterable[bytes], ending: bytes, known: set[bytes]) -> bool:
    for directory in path:
        names = _names(directory, ending) if directory.startswith(b"/") and b"$" not in directory else None
        if names is None or names & known:
            return False
    return True


def _names(directory: bytes, ending: bytes) -> set[bytes] | None:
    """Return the names in a directory up to an ending; None if it cannot be listed, or is an archive of modules."""
    try:
        return {name.partition(ending)[0] for name in os.listdir(directory)} - {b"", b"__pycache__"}
    except FileNotFoundError:
        return set()
    except OSError:
        return None
