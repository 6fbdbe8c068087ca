"""A worker that lies. Whatever it sends: the project and all other forks stay as they were, nothing reaches a terminal
unescaped, no memory is given away, its errands end, and it gets no more."""

from __future__ import annotations

import gzip
import io
import os
import resource
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from origin_fixtures import Follow, archive, follow, session
from scripted_worker import HELLO, ScriptedFleet, ScriptedWorker

from conftest import Place, full_listing
from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import LARGEST
from mudroom.session import Session

__all__ = ["archive", "follow", "session"]

ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e\x00"
Maker = Callable[[], ScriptedWorker]


def _head(length: int, kind: int, stream: int = 0) -> bytes:
    return struct.pack(">IBI", length, kind, stream)


def _greets_with(data: bytes) -> Maker:
    """A worker that sends these bytes instead of its hello."""
    return lambda: ScriptedWorker(hello=lambda worker, _: (worker.raw(data), worker.end()))


def _at_errand(act: Callable[[ScriptedWorker, wire.Errand, int], Any], archive: bytes = b"") -> Maker:
    def accept(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        act(worker, errand, stream)

    return lambda: ScriptedWorker(archive, errand=accept)


def _outcome(**fields: Any) -> Maker:
    return _at_errand(
        lambda worker, errand, stream: worker.send(wire.OUTCOME, worker.outcome(errand, **fields), stream)
    )


def _frame_at_errand(kind: int, body: bytes, on: int | None = None) -> Maker:
    return _at_errand(
        lambda worker, _errand, stream: worker.raw(_head(len(body), kind, stream if on is None else on) + body)
    )


def _twice(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
    for _time in range(2):
        worker.send(wire.OUTCOME, worker.outcome(errand), stream)


def _packed(archive: bytes) -> Maker:
    return lambda: ScriptedWorker(archive)


def _fetches(archive: bytes, act: Callable[[ScriptedWorker, wire.Fetch, int], Any]) -> Maker:
    return lambda: ScriptedWorker(archive, fetch=act)


def _wants(want: Callable[[wire.Base], wire.Want]) -> Maker:
    return lambda: ScriptedWorker(offer=lambda worker, base: worker.send(wire.WANT, want(base)))


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _edited(archive: bytes, edit: Callable[[tarfile.TarInfo], None]) -> bytes:
    """The archive with its members changed."""
    stream = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old.getmembers():
            content = old.extractfile(member) if member.isfile() else None
            edit(member)
            new.addfile(member, content)
    return stream.getvalue()


def _named(name: str) -> Callable[[tarfile.TarInfo], None]:
    def edit(member: tarfile.TarInfo) -> None:
        if member.name.endswith("/tree/new"):
            member.name = name if name.startswith("/") else member.name[: -len("new")] + name

    return edit


def _linked(kind: bytes, target: str) -> Callable[[tarfile.TarInfo], None]:
    def edit(member: tarfile.TarInfo) -> None:
        if member.name.endswith("/tree/new"):
            member.type, member.linkname, member.size = kind, target, 0

    return edit


def _bomb() -> bytes:
    """A few bytes that unpack to more than an import takes."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        info = tarfile.TarInfo("mudroom-fork")
        info.size = 1 << 40
        packed.write(info.tobuf())
        packed.write(bytes(1 << 20))
    return stream.getvalue()


def hostile(archive: bytes) -> Iterator[tuple[str, Maker]]:
    yield "nothing", _greets_with(b"")
    yield "text", _greets_with(b"bash: mudroom: command not found\n")
    yield "2^32 - 1 bytes of a hello", _greets_with(_head(0xFFFFFFFF, wire.HELLO))
    yield "16 MiB of a hello", _greets_with(_head(LARGEST, wire.HELLO))
    yield "a hello that is cut off", _greets_with(_head(100, wire.HELLO) + b"\x9c")
    yield "no hello", _greets_with(_head(0, wire.PONG))
    yield "an empty hello", _greets_with(_head(0, wire.HELLO))
    yield "a hello of other types", _greets_with(_head(3, wire.HELLO) + b"\x92\x01\x02")
    yield "pickle", _greets_with(_head(5, wire.HELLO) + b"cos\nsystem\n(S'touch /tmp/owned'\ntR."[:5])
    deep = b"\x91" * 60_000
    yield "a hello nested deeply", _greets_with(_head(len(deep), wire.HELLO) + deep)
    yield "an array of 2^32 in a hello", _greets_with(_head(5, wire.HELLO) + b"\xdd\xff\xff\xff\xff")
    hello = msgspec.msgpack.encode(HELLO)
    yield "two hellos", _greets_with((_head(len(hello), wire.HELLO) + hello) * 2)
    ugly = msgspec.msgpack.encode(HELLO._replace(mudroom=ESCAPES, kernel=ESCAPES, engine=ESCAPES, arch=ESCAPES))
    yield "a hello of escapes", _greets_with(_head(len(ugly), wire.HELLO) + ugly)
    for kind in (wire.OFFER, wire.OBJECTS, wire.ERRAND, wire.ANSWER, wire.FETCH, wire.KEPT, wire.CANCEL, 0, 99, 255):
        yield f"a message of kind {kind}", _frame_at_errand(kind, b"\x90")
    for kind in (wire.OUTCOME, wire.ARCHIVE, wire.OUT, wire.ASK, wire.ACCEPTED, wire.EVENT, wire.FAILED):
        yield f"rubbish of kind {kind}", _frame_at_errand(kind, b"\xc1")
        yield f"a long message of kind {kind}", _frame_at_errand(kind, bytes(3 << 20))
    yield "a stream that there is not", _frame_at_errand(wire.OUT, msgspec.msgpack.encode(wire.Out(1, 0, b"x")), 77)
    yield "a third output", _frame_at_errand(wire.OUT, msgspec.msgpack.encode(wire.Out(3, 0, b"x")))
    yield "output before its beginning", _frame_at_errand(wire.OUT, msgspec.msgpack.encode(wire.Out(1, -5, b"x")))
    yield (
        "another errand accepted",
        lambda: ScriptedWorker(
            errand=lambda worker, errand, stream: worker.send(wire.ACCEPTED, wire.Accepted("x" * 16, 1), stream)
        ),
    )
    yield "another errand ended", _outcome(errand="x" * 16)
    yield "another attempt ended", _outcome(attempt=2)
    yield "a state that there is not", _outcome(state="kept")
    yield "a state of escapes", _outcome(state=ESCAPES)
    yield "an archive of -1", _outcome(archive=-1)
    yield "an archive of 2^62", _outcome(archive=1 << 62)
    yield "an archive without a digest", _outcome(archive=5, digest=b"")
    yield "an outcome twice", _at_errand(_twice)
    texts: dict[str, dict[str, Any]] = {
        "escapes in every text": {
            "state": "failed",
            "reason": ESCAPES,
            "fingerprint": ESCAPES,
            "notes": (ESCAPES,) * 9,
        },
        "a surrogate": {"state": "failed", "reason": "x" * 100_000},
    }
    for name, fields in texts.items():
        yield name, _outcome(**fields)
    yield "a failure of escapes", _frame_at_errand(wire.FAILED, msgspec.msgpack.encode(wire.Failed(ESCAPES, ESCAPES)))
    yield "a farewell of escapes", _frame_at_errand(wire.BYE, msgspec.msgpack.encode(wire.Bye(ESCAPES)), 0)
    yield (
        "questions of a kind that there is not",
        _frame_at_errand(wire.ASK, msgspec.msgpack.encode(wire.Ask(1, ESCAPES, b"\x90"))),
    )
    yield "a question that is none", _frame_at_errand(wire.ASK, msgspec.msgpack.encode(wire.Ask(1, "command", b"\x90")))
    for number in (-1, 70_000):
        body = msgspec.msgpack.encode((1, "example.org", number, "http", ""))
        yield f"port {number}", _frame_at_errand(wire.ASK, msgspec.msgpack.encode(wire.Ask(1, "host", body)))
    for number in (-1, 1 << 32, 1 << 63):
        body = msgspec.msgpack.encode(wire.Dial(number, "example.org", 443, b""))
        yield f"connection {number}", _frame_at_errand(wire.DIAL, body)
    yield "objects of another project", _wants(lambda base: wire.Want(base_id(base), (), (b"x" * 32,)))
    yield "a directory of another project", _wants(lambda base: wire.Want(base_id(base), (b"\0" * 32,), ()))
    yield "digests of no length", _wants(lambda base: wire.Want(base_id(base), (b"",), (b"",)))
    # --- archives ---
    yield (
        "another archive",
        _fetches(
            archive,
            lambda worker, fetch, stream: worker.send(
                wire.ARCHIVE, wire.ArchivePart(0, bytes(len(archive)), True), stream
            ),
        ),
    )
    yield (
        "an archive that goes on",
        _fetches(
            archive,
            lambda worker, fetch, stream: worker.send(wire.ARCHIVE, wire.ArchivePart(0, archive + b"x", True), stream),
        ),
    )
    yield (
        "an archive that ends too soon",
        _fetches(
            archive,
            lambda worker, fetch, stream: worker.send(wire.ARCHIVE, wire.ArchivePart(0, archive[:-1], True), stream),
        ),
    )
    yield (
        "an archive with a hole",
        _fetches(
            archive,
            lambda worker, fetch, stream: worker.send(wire.ARCHIVE, wire.ArchivePart(7, archive[7:], True), stream),
        ),
    )
    yield (
        "an archive that was not asked for",
        _at_errand(lambda worker, errand, stream: worker.send(wire.ARCHIVE, wire.ArchivePart(0, b"x", True), stream)),
    )
    yield (
        "the end of an archive that is gone",
        _fetches(archive, lambda worker, fetch, stream: worker.send(wire.FAILED, wire.Failed(ESCAPES), stream)),
    )
    names = ("../../../../evil", "../evil", ".", "..", "a/../../evil", "/evil", "/etc/evil", "x" * 300)
    for name, packed in {
        "text as an archive": b"not a tar",
        "gzip of nothing": gzip.compress(b""),
        "a tar of others": _tar((tarfile.TarInfo("x"), b"y")),
        "a tar with ..": _tar((tarfile.TarInfo("../../evil"), b"y")),
        "a bomb": _bomb(),
        "half an archive": archive[: len(archive) // 2],
        **{f"the name {name!r}": _edited(archive, _named(name)) for name in names},
        "a hard link to a file of the host": _edited(archive, _linked(tarfile.LNKTYPE, "/etc/passwd")),
        "a device": _edited(archive, _linked(tarfile.BLKTYPE, "")),
        "a character device": _edited(archive, lambda member: setattr(member, "devmajor", 1)),
        "a fifo": _edited(archive, _linked(tarfile.FIFOTYPE, "")),
        "a set-id file": _edited(archive, lambda member: setattr(member, "mode", 0o6755)),
    }.items():
        yield name, _packed(packed)


_HARMLESS = {"nothing", "a farewell of escapes", "escapes in every text", "a surrogate", "a character device"}
"""Those whose errand may end in the usual way, or that break nothing."""


def test_nothing_of_a_hostile_worker_does_harm(
    place: Place, session: Session, follow: Follow, archive: bytes, tmp_path: Path
) -> None:
    session.run([b"sh", b"-c", b"echo kept > kept"], fork="other")
    before = full_listing(place.project)
    other = b"".join(session.changes.diff("other"))
    outside = sorted(os.listdir(tmp_path))
    vault = Path(os.fsdecode(session.vault.path))
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cases = list(hostile(archive))
    assert len(cases) > 60
    for name, maker in cases:
        forks = {fork.name for fork in session.vault.forks()}
        layers = set(os.listdir(vault / "layers"))
        here = follow(ScriptedFleet(evil=maker), 2, lease=0.0)
        shown = here.reasons()
        states = {row.state for row in here.rows()}
        new = {fork.name for fork in session.vault.forks()} - forks
        assert states <= {"lost", "failed", "kept", "ended"}, (name, states)
        assert new <= {f"{here.run.row.run}-1", f"{here.run.row.run}-2"}, name
        if name not in _HARMLESS:
            assert "lost" in states or "failed" in states, (name, states, shown)
        if not new:
            assert set(os.listdir(vault / "layers")) == layers, name
        for sign in ("\x1b", "\x07", "\x9b", "\r", "\x00", "\u202e"):
            assert sign not in shown, name
        assert b"".join(session.changes.diff("other")) == other, name
        assert full_listing(place.project) == before, name
    assert sorted(os.listdir(tmp_path)) == outside
    assert not any(os.path.lexists(f"{folder}/{name}") for folder in ("", "/etc", "/tmp") for name in ("evil", "owned"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 64 << 10
