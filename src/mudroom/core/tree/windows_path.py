r"""Windows paths as they are kept here, and as the system gets them. Pure.

Inside, a path is UTF-8 bytes with ``/`` between its names, as on other systems, and begins with a drive:
``C:/Users/ann``. A call gets ``\\?\C:\Users\ann``: with that prefix Windows neither shortens a path to 260 characters
nor changes a name (a device, a space or dot at its end). Sources: Microsoft, "Naming Files, Paths, and Namespaces",
"Maximum Path Length Limitation".

Refused, each with a one-line reason: a path relative to a drive's own directory (``C:x``), whose meaning another
process decides; a server (``\\server\share``), which gets the user's credentials when it is opened; devices (``\\.\``);
names that Win32 would read as other names.
"""

from __future__ import annotations

from mudroom.core.tree.windows_name import why_no_name

_PREFIX = "\\\\?\\"
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def inner_path(text: str) -> bytes:
    """Return an absolute Windows path as it is kept here. Raise ValueError with the reason in one line."""
    path = text.removeprefix(_PREFIX) if text[4:6] != "UN" else text
    path = path.replace("/", "\\")
    # opening a server's path would send it the user's credentials
    if path.startswith("\\\\"):
        raise ValueError(f"{text}: a server or device, not a drive: copy the project to a local disk")
    if path.startswith("\\"):
        raise ValueError(f"{text}: without a drive: write the path with its letter, as C:{path}")
    drive, colon, rest = path[:1].upper(), path[1:2], path[2:]
    if colon != ":" or drive not in _LETTERS:
        raise ValueError(f"{text}: not an absolute path: write it with its drive, as C:\\project")
    if not rest.startswith("\\"):
        hint = f"{drive}:\\{rest}"
        raise ValueError(f"{text}: relative to the current directory of drive {drive}: write {hint}")
    names = _names(text, rest)
    try:
        return "/".join([f"{drive}:", *names]).encode() if names else f"{drive}:/".encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!a}: a name that is not Unicode (half of a surrogate pair)") from None


def _names(text: str, rest: str) -> list[str]:
    names: list[str] = []
    for name in rest.split("\\"):
        if name in ("", "."):
            continue
        if name == "..":
            raise ValueError(f"{text}: contains '..': write the path without it")
        reason = why_no_name(name.encode("utf-8", "surrogatepass"))
        if reason and not _is_short(name):
            raise ValueError(f"{text}: {name}: {reason}")
        names.append(name)
    return names


def _is_short(name: str) -> bool:
    """Return whether this may be a short name. The user's own directory may have one (``C:\\Users\\RUNNER~1``): it
    exists, and is opened by it."""
    stem, _dot, extension = name.upper().partition(".")
    head, tilde, digits = stem.rpartition("~")
    return bool(head and tilde and digits.isdigit() and len(stem) <= 8 and len(extension) <= 3)


def outer_path(path: bytes) -> str:
    """Return a path that is kept here as a Windows call gets it. Raise ValueError if it is not a path from
    ``inner_path`` or below such a path."""
    text = path.decode()
    if text[:1] not in _LETTERS or text[1:3] != ":/":
        raise ValueError(f"{text}: not a path with a drive")
    if "\\" in text:
        raise ValueError(f"{text}: '\\' in a name")
    return _PREFIX + text.replace("/", "\\")
