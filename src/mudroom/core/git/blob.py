"""Blob ids, and how long ids are in a repository. Pure."""

from __future__ import annotations

import hashlib

from mudroom.core.text.regex import regex

_HASHES = {b"sha1": 20, b"sha256": 32}
_SECTION = regex(rb"\s*\[\s*([-.a-zA-Z0-9]+)\s*(\"[^\"]*\"\s*)?\]")
_FORMAT = regex(rb"(?i)\s*objectformat\s*=\s*\"?([a-z0-9]*)\"?\s*(?:[#;].*)?")


def id_length_of(config: bytes) -> int:
    """Return the length of object ids in bytes, 20 or 32, according to a repository's ``config`` file: git-config(1),
    extensions.objectFormat. Raise ValueError if mudroom does not know the format."""
    section, length = b"", 20
    for line in config.splitlines():
        rest = line
        while header := _SECTION.match(rest):
            section, rest = b"" if header[2] else header[1].lower(), rest[header.end() :]
        setting = _FORMAT.fullmatch(rest)
        if section == b"extensions" and setting is not None:
            if setting[1] not in _HASHES:
                raise ValueError("the repository has an unknown object format")
            length = _HASHES[setting[1]]
    return length


def blob_id(data: bytes, id_length: int = 20) -> bytes:
    """Return the binary id of a file's content: gitformat-pack(5), git-hash-object(1)."""
    return object_id(b"blob", data, id_length)


def object_id(kind: bytes, data: bytes, id_length: int = 20) -> bytes:
    """Return an object's binary id: gitformat-pack(5)."""
    name = "sha1" if id_length == 20 else "sha256"
    hasher = hashlib.new(name, b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    hasher.update(data)
    return hasher.digest()


def blob_ids(data: bytes, id_length: int = 20) -> tuple[bytes, ...]:
    """Return the ids under which git may have this content: as it is, and with the line ends that git stores if it
    converts them (gitattributes(5), ``text``)."""
    own = blob_id(data, id_length)
    return (own, blob_id(data.replace(b"\r\n", b"\n"), id_length)) if b"\r\n" in data else (own,)
