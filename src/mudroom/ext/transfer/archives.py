"""Export forks as archives and import archives as forks, for a session and for the library's rooms.

The registry's row ``archives``: the verb ``vault`` and ``Room`` load it at first use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import UsageError
from mudroom.ext.transfer.vault import arrival as arriving
from mudroom.ext.transfer.vault.arrival import Arrival, Arrived
from mudroom.ext.transfer.vault.bundle import ExportedFork, export_fork, write_fork
from mudroom.ext.transfer.vault.import_fork import LIMIT, KnownBase
from mudroom.library.argument import directory_of, name_of, required_name
from mudroom.library.satellite import ArrivedFork, ForkArchive
from mudroom.stage import disk
from mudroom.typing import IO, TYPE_CHECKING, cast
from mudroom.vault.apply.repositories import require_unemptied_commits

if TYPE_CHECKING:
    from mudroom.library.argument import StrPath
    from mudroom.library.life import Life
    from mudroom.library.satellite import ArchivePlace, NamedArchive
    from mudroom.session.session import Session
    from mudroom.vault.store.fork import Fork
    from mudroom.vault.store.store import Vault

# --- for a session ---


def export(
    session: Session,
    fork: str,
    stream: IO[bytes],
    *,
    base: bytes = b"",
    packed: bool = True,
    limit: int | None = None,
) -> ExportedFork:
    """Write a fork as an archive to a stream, which need not seek; it is flushed and stays open. ``packed``: with gzip.
    ``base``: the id (32 bytes) of the fork's base. The archive then names the base and includes no snapshot; only a
    project that knows the base accepts it. ``limit``: bytes that the archive may unpack to.

    Return its size and digest. Raise UsageError if the fork does not exist or a commit in it holds a masked file,
    Occupied if commands run in it, OSError as the stream does; the stream then holds a part, which no vault accepts.
    """
    with _leaving(session, fork) as (vault, resting):
        exported = write_fork(vault, resting, stream, session.forks.clock(), base=base, packed=packed, limit=limit)
    session.forks.journal("export", fork, {"bytes": exported.size})
    return exported


def export_file(
    session: Session, fork: str, path: bytes, *, base: bytes = b"", packed: bool | None = None
) -> ExportedFork:
    """Write a fork as an archive to a new file. ``packed`` None: with gzip if the file name says so. Raise as
    ``export`` does, and UsageError if the file exists."""
    with _leaving(session, fork) as (vault, resting):
        exported = export_fork(vault, resting, path, session.forks.clock(), base=base, packed=packed)
    session.forks.journal("export", fork, {"bytes": exported.size})
    return exported


@contextmanager
def _leaving(session: Session, fork: str) -> Iterator[tuple[Vault, Fork]]:
    """Yield the vault with a mask for all secrets, and a fork at rest that may leave this machine. Raise UsageError if
    a commit in it holds a masked file as an empty file."""
    session.forks.secrets.look()
    with session.forks.at_rest(fork) as resting:
        require_unemptied_commits(session.vault, resting)
        yield session.forks.secrets.hide_all(resting), resting


def arrive(
    session: Session, arrivals: Iterable[Arrival], *, known: KnownBase | None = None, limit: int = LIMIT
) -> list[Arrived]:
    """Make a fork from each archive, whole or not at all, and return the outcomes in the same order. Agents' commands
    continue meanwhile. ``known``: returns the base that an id stands for; None: no base is known. ``limit``: bytes of
    an archive, both as it arrives and unpacked.

    A damaged or hostile archive is an outcome; the others are not affected. Raise OSError as the disk does; then no
    fork has been made.
    """
    arrivals = list(arrivals)
    now = session.forks.clock()
    outcomes = arriving.arrive(session.vault, arrivals, now, known=known, limit=limit)
    if rows := arriving.events(arrivals, outcomes):
        session.vault.journal.append_all(rows, time=now)
    return outcomes


def import_file(session: Session, path: bytes, name: str | None, limit: int = LIMIT) -> Arrived:
    """Make a fork from a file. Raise UsageError if there is no such file, or the name is taken."""
    hint = "mudroom vault export FORK FILE writes such a file"
    try:
        flags = os.O_RDONLY | disk.O_CLOEXEC | disk.O_NONBLOCK  # do not wait for a fifo's writer
        descriptor = disk.open_path(path, flags)
    except FileNotFoundError:
        raise UsageError(f"{show(path)} does not exist", hint) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{show(path)} is not a file", hint)
    with open(descriptor, "rb") as stream:
        return import_stream(session, stream, name, limit)


def import_stream(session: Session, stream: IO[bytes], name: str | None, limit: int = LIMIT) -> Arrived:
    """Make a fork from a stream, which need not seek and is read to its end. Raise UsageError if the name is taken."""
    now = session.forks.clock()
    outcome = arriving.arrive(session.vault, [Arrival(stream, name)], now, limit=limit, is_exact=True)[0]
    if outcome.error is not None:
        raise outcome.error
    data = {"changed": outcome.changed, "strangers": outcome.strangers}
    session.vault.journal.append("import", outcome.name, data, time=now)
    return outcome


# --- for a room ---

_EXAMPLE = 'a path, or a stream of bytes: open(path, "{mode}"), process.{pipe}'


def export_of_room(life: Life, fork: str, target: ArchivePlace, base: bytes, *, packed: bool) -> ForkArchive:
    name = required_name(fork)
    if isinstance(target, (str, os.PathLike)):
        path = directory_of(target, "the archive")
        with life.call() as session:
            exported = export_file(session, name, path, base=base, packed=packed)
    else:
        stream = _stream(target, "write", _EXAMPLE.format(mode="wb", pipe="stdin"))
        with life.call() as session:
            exported = export(session, name, stream, base=base, packed=packed)
    return ForkArchive(exported.size, exported.digest, exported.remarks)


def arrive_in_room(life: Life, archives: Sequence[NamedArchive], bases: Collection[bytes]) -> list[ArrivedFork]:
    if isinstance(archives, (str, bytes, os.PathLike)) or not isinstance(archives, Sequence):
        raise UsageError("archives is not a list", 'room.arrive(["fork.tar.gz"])')
    known = dict.fromkeys(bases, LIVE)
    with ExitStack() as opened, life.call() as session:
        arrivals = []
        for archive in archives:
            name, place = archive if isinstance(archive, tuple) else (None, archive)
            arrivals.append(Arrival(_source(place, opened), name_of(name)))
        outcomes = arrive(session, arrivals, known=known.get)
    return [_arrived(outcome) for outcome in outcomes]


def _arrived(outcome: Arrived) -> ArrivedFork:
    hint = outcome.error.hint if outcome.error is not None else ""
    return ArrivedFork(outcome.state, outcome.name, outcome.changed, outcome.strangers, outcome.problem, hint)


def _source(place: StrPath | IO[bytes], opened: ExitStack) -> IO[bytes]:
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
