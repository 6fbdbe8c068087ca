"""Forks that leave a room as archives, and archives that become forks."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack

from mudroom.errors import UsageError
from mudroom.library.argument import directory_of, name_of, required_name
from mudroom.library.value import ArrivedFork, ForkArchive
from mudroom.typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from mudroom.ext.transfer.vault.arrival import Arrived
    from mudroom.library.argument import StrPath
    from mudroom.library.life import Life
    from mudroom.typing import IO, BinaryIO

    ArchivePlace: TypeAlias = StrPath | BinaryIO
    NamedArchive: TypeAlias = ArchivePlace | tuple[str, ArchivePlace]

_EXAMPLE = 'a path, or a stream of bytes: open(path, "{mode}"), process.{pipe}'


def export(life: Life, fork: str, target: ArchivePlace, base: bytes, *, packed: bool) -> ForkArchive:
    name = required_name(fork)
    if isinstance(target, (str, os.PathLike)):
        from mudroom.session.upkeep import send_away

        path = directory_of(target, "the archive")
        with life.call() as session:
            exported = send_away(session, name, path, session.forks.clock(), base=base, packed=packed)
    else:
        checked = _stream(target, "write", _EXAMPLE.format(mode="wb", pipe="stdin"))
        with life.call() as session:
            exported = session.export(name, checked, base=base, packed=packed)
    return ForkArchive(exported.size, exported.digest, exported.remarks)


def arrive(life: Life, archives: Sequence[NamedArchive], bases: Collection[bytes]) -> list[ArrivedFork]:
    from mudroom.ext.transfer.vault.arrival import Arrival
    from mudroom.ext.transfer.vault.known_base import known_base

    if isinstance(archives, (str, bytes, os.PathLike)) or not isinstance(archives, Sequence):
        raise UsageError("archives is not a list", 'room.arrive(["fork.tar.gz"])')
    known = frozenset(bases)
    with ExitStack() as opened, life.call() as session:
        arrivals = []
        for archive in archives:
            name, place = archive if isinstance(archive, tuple) else (None, archive)
            arrivals.append(Arrival(_source(place, opened), name_of(name)))
        outcomes = session.arrive(
            arrivals, known=lambda base: "live" if base in known else known_base(session.vault, base)
        )
    return [_arrived(outcome) for outcome in outcomes]


def _arrived(outcome: Arrived) -> ArrivedFork:
    hint = outcome.error.hint if outcome.error is not None else ""
    return ArrivedFork(outcome.state, outcome.name, outcome.changed, outcome.strangers, outcome.problem, hint)


def _source(place: object, opened: ExitStack) -> IO[bytes]:
    if isinstance(place, (str, os.PathLike)):
        path = directory_of(place, "the archive")
        try:
            return opened.enter_context(open(path, "rb"))
        except FileNotFoundError:
            raise UsageError(f"{os.fsdecode(path)} does not exist", "room.export(fork, path) writes one") from None
    return _stream(place, "read", _EXAMPLE.format(mode="rb", pipe="stdout"))


def _stream(stream: object, method: str, example: str) -> IO[bytes]:
    if not callable(getattr(stream, method, None)) or hasattr(stream, "encoding"):
        raise UsageError(f"the archive is {type(stream).__name__}, not a path or a stream of bytes", example)
    if getattr(stream, "isatty", bool)():
        raise UsageError("the archive is a terminal", example)
    return cast("IO[bytes]", stream)
