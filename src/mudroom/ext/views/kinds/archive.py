"""A zip or tar file as its members: name, size, mode, and whether the content is the same. Nothing is extracted."""

from __future__ import annotations

import bz2
import encodings.cp437 as _cp437  # noqa: F401  (for zipfile, which names it as text)
import gzip
import hashlib
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping

from mudroom.core.text.plural import amount, counted
from mudroom.ext.views.kinds.row import FileView, FileViewRow, NoView, cut, kind_of_row, summed
from mudroom.typing import IO, Any, NamedTuple

MOST_MEMBERS = 50_000
MOST_BYTES = 256 << 20
"""Unpacked bytes of a side that are read."""
_CHUNK = 1 << 18
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, ValueError, LookupError,
    NotImplementedError, RuntimeError, OverflowError,
)  # fmt: skip


class ArchiveMember(NamedTuple):
    size: int
    mode: int
    type: str
    """``""`` for a file."""
    digest: str
    """Empty if it was not read."""
    target: str = ""
    times: int = 1
    """How often the name occurs; the last one counts."""


Members = Mapping[str, ArchiveMember]


def view(path: bytes, before: bytes | None, after: bytes | None) -> FileView:
    del path
    notes: list[str] = []
    (old, is_old_whole), (new, is_new_whole) = _members(before, "old", notes), _members(after, "new", notes)
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    names = [name for name in names if (name in old or is_old_whole) and (name in new or is_new_whole)]
    rows = [_row(name, old.get(name), new.get(name)) for name in names]
    return FileView(
        "archive",
        summed(rows, "the same members" if before is not None and after is not None else "no members"),
        cut(rows, notes, "member"),
        list(dict.fromkeys(notes)),
    )


def _row(name: str, old: ArchiveMember | None, new: ArchiveMember | None) -> FileViewRow:
    flags = _flags(name, new) if new is not None else []
    notes = list(flags)
    if old is not None and new is not None:
        if old.mode != new.mode:
            notes.append(f"mode {old.mode:04o} → {new.mode:04o}")
        if not (old.digest and new.digest) and old.type == new.type == "":
            notes.append("contents not compared")
        elif old.size == new.size and old.type == new.type == "":
            notes.append("the same content" if old.digest == new.digest else "another content of the same size")
    return FileViewRow(kind_of_row(old, new), name, _told(old), _told(new), "; ".join(notes), bool(flags))


def _told(member: ArchiveMember | None) -> str:
    if member is None:
        return ""
    target = f" → {member.target}" if member.target else ""
    return f"{member.type}{target}" if member.type else amount(member.size)


def _flags(name: str, member: ArchiveMember) -> list[str]:
    plain = name.replace("\\", "/")
    flags = []
    if plain.startswith("/") or plain[1:3] == ":/":
        flags.append("an absolute name")
    if ".." in plain.split("/"):
        flags.append("leads outside by ..")
    if member.type and member.type != "directory":
        flags.append(f"a {member.type}")
    if member.mode & 0o6000:
        flags.append("runs with the rights of its owner or group")
    if member.times > 1:
        flags.append(f"{member.times} members have this name")
    return flags


def _members(data: bytes | None, side: str, notes: list[str]) -> tuple[Members, bool]:
    """Return the members by name, and whether they are all."""
    if data is None:
        return {}, True
    members: dict[str, ArchiveMember] = {}
    budget = ReadBudget()
    try:
        is_zip = data.startswith(b"PK") or (data[257:262] != b"ustar" and zipfile.is_zipfile(io.BytesIO(data)))
        for name, member in _zip(data, budget) if is_zip else _tar(data, budget):
            times = members[name].times + 1 if name in members else 1
            members[name] = member._replace(times=times)
            if len(members) >= MOST_MEMBERS:
                notes.append(f"the {side} file has more than {MOST_MEMBERS:,} members: the rest is not listed")
                return members, False
    except Spent:
        notes.append(f"the {side} file unpacks to more than {amount(MOST_BYTES)}: the rest is not listed")
        return members, False
    except _BROKEN as error:
        if not members:
            raise NoView(f"the {side} file is no zip or tar file, or is damaged: {error}") from None
        notes.append(f"the {side} file is damaged after {counted(len(members), 'member')}: {error}")
        return members, False
    if budget.left < 0:
        notes.append(f"the {side} file unpacks to more than {amount(MOST_BYTES)}: the rest is not compared")
    return members, True


class Spent(Exception):
    """More was unpacked than the budget has."""


class ReadBudget:
    """The bytes that may be unpacked from one side. Owner: the caller of ``view``."""

    def __init__(self) -> None:
        self.left = MOST_BYTES

    def spend(self, size: int) -> None:
        """Raise Spent from the first time on that more is read."""
        self.left -= size
        if self.left < 0:
            raise Spent

    def digest(self, stream: IO[bytes]) -> str:
        if self.left < 0:
            raise Spent
        hashed = hashlib.sha256()
        while part := stream.read(_CHUNK):
            self.spend(len(part))
            hashed.update(part)
        return hashed.hexdigest()


def _zip(data: bytes, budget: ReadBudget) -> Iterator[tuple[str, ArchiveMember]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16 if info.create_system == 3 else 0
            is_link = stat.S_ISLNK(mode)
            kind = "symbolic link" if is_link else "directory" if info.is_dir() else ""
            if info.flag_bits & 1:
                yield info.filename, ArchiveMember(info.file_size, stat.S_IMODE(mode), "encrypted file", "")
                continue
            with archive.open(info) as stream:
                target = stream.read(4096).decode("utf-8", "backslashreplace") if is_link else ""
                try:
                    digest = budget.digest(stream)
                except Spent:
                    digest = ""
            yield info.filename, ArchiveMember(info.file_size, stat.S_IMODE(mode), kind, digest, target)


class _Counted(io.RawIOBase):
    """Counts what is unpacked from a stream. Owner: the caller of ``view``."""

    def __init__(self, stream: IO[bytes], budget: ReadBudget) -> None:
        self._stream, self._budget = stream, budget

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(_CHUNK if size is None or size < 0 else size)
        self._budget.spend(len(part))
        return part


_TYPES = {
    tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link", tarfile.DIRTYPE: "directory",
    tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "named pipe",
}  # fmt: skip
_UNPACK: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
)


def _tar(data: bytes, budget: ReadBudget) -> Iterator[tuple[str, ArchiveMember]]:
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        raise NoView("it is packed by zstd, which is not read")
    raw: IO[bytes] = io.BytesIO(data)
    unpack = next((unpack for magic, unpack in _UNPACK if data.startswith(magic)), None)
    stream: Any = _Counted(unpack(raw) if unpack is not None else raw, budget)
    with tarfile.open(fileobj=stream, mode="r|", errors="backslashreplace") as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            digest = budget.digest(content) if content is not None else ""
            kind = _TYPES.get(info.type, "" if info.isreg() else "special file")
            yield info.name, ArchiveMember(info.size, info.mode & 0o7777, kind, digest, info.linkname)
