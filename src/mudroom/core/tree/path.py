"""Paths relative to a project.

A ``RelPath`` is bytes, relative, with ``/`` between components. It is never empty, absolute, ``.`` or ``..``, and
contains no NUL. File names on Linux are bytes and need not be valid text. ``show_path`` converts them to text for
display; ``show`` converts other bytes for display.
"""

from __future__ import annotations

from collections.abc import Container

from mudroom.core.text.invisible_characters import escaped
from mudroom.typing import NewType

RelPath = NewType("RelPath", bytes)

ROOT = b""
"""The project's own directory, in functions that accept it."""


def relpath(raw: bytes) -> RelPath:
    """Return ``raw`` as a RelPath, without empty and ``.`` components. Raise ValueError with the reason if it is not
    valid."""
    if b"\0" in raw:
        raise ValueError(f"{show(raw)}: a path cannot hold a NUL")
    if raw.startswith(b"/"):
        raise ValueError(f"{show(raw)}: is absolute; a path inside the project was expected")
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if not parts:
        raise ValueError("an empty path was given")
    if b".." in parts:
        raise ValueError(f"{show(raw)}: leads out of the project with '..'")
    if any(len(part) > 255 for part in parts):
        raise ValueError(f"{show(raw)}: a name is longer than 255 bytes")
    return RelPath(b"/".join(parts))


def below_project(raw: bytes, project: bytes) -> bytes:
    """Return an absolute path in the project relative to it, and any other path as it is."""
    return raw[len(project) :].lstrip(b"/") if project and is_below(raw, project) else raw


def parent(path: bytes) -> bytes:
    """Return the directory that contains ``path``; ``ROOT`` for a name directly in the project."""
    return path.rpartition(b"/")[0]


def name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def is_below(path: bytes, directory: bytes) -> bool:
    """Return whether ``path`` is ``directory`` or lies below it. Whole components are compared: ``ab`` is not below
    ``a``.

    Both must be relative, or both absolute. Every absolute path is below ``/``.
    """
    return not directory or path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def ancestors(path: bytes) -> list[bytes]:
    """Return every directory above ``path`` in the project, outermost first, without ``ROOT``."""
    directories: list[bytes] = []
    slash = path.find(b"/")
    while slash >= 0:  # slices instead of joins: a hostile path can have two thousand components
        directories.append(path[:slash])
        slash = path.find(b"/", slash + 1)
    return directories


def climb(path: bytes, known: Container[bytes]) -> list[bytes]:
    """Return ``path`` and the directories above it that are not in ``known``, outermost first; ``ROOT`` is included."""
    missing: list[bytes] = []
    while path not in known:
        missing.append(path)
        if not path:
            break
        path = parent(path)
    return missing[::-1]


def show(path: bytes) -> str:
    """Return bytes as one line for display: printable, unambiguous, without terminal controls or bidirectional
    overrides."""
    return escaped(path.decode("utf-8", "surrogateescape").replace("\\", "\\\\"))


def show_text(text: str) -> str:
    """Return text, which may have surrogates, for display, as ``show`` does."""
    return show(text.encode("utf-8", "surrogatepass"))


def show_path(path: bytes) -> str:
    """Return a file name or path for display, as ``show`` does, with ambiguous spaces escaped.

    A space between two visible characters stays a space. At the start or end of a component, or beside another space,
    it is written ``\\x20``.
    """
    text = show(path)
    if " " not in text or ("  " not in text and text == text.strip(" ") and "/ " not in text and " /" not in text):
        return text
    around = f"/{text}/"
    return "".join(
        "\\x20" if character == " " and (around[index] in " /" or around[index + 2] in " /") else character
        for index, character in enumerate(text)
    )


def sort_key(path: bytes) -> bytes:
    """Return the key that sorts paths in walking order: a directory, its contents, then its sibling (``a``, ``a/b``,
    ``a-b``)."""
    return path.replace(b"/", b"\0")
