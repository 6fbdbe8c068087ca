"""Archives through pipes, archives that name their base, and many that become forks at once."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clocks import let_pass
from conftest import Place, listing
from mudroom.core.retention import DAY, RetentionLimits
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError
from mudroom.ext.transfer.archives import arrive, export
from mudroom.ext.transfer.vault import arrival as arrival_module
from mudroom.ext.transfer.vault.arrival import Arrival, Arrived, bounded_claims, note_of
from mudroom.ext.transfer.vault.import_fork import KnownBase
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage.disk import sync_filesystem
from mudroom.vault.arriving import unpacking
from mudroom.vault.lock import Lock
from mudroom.vault.retention.check import check
from mudroom.vault.retention.prune import collect_garbage
from mudroom.vault.store.spare_base import throw_away_base
from tiers import half

BASE = bytes(range(32))


@pytest.fixture
def other(tmp_path: Path, client: Client) -> Iterator[Place]:
    root = tmp_path / "other"
    root.mkdir()
    place = Place(root, client)
    yield place
    place.close()


def fill(place: Place) -> None:
    for name in ("edited", "gone", "still", "deep/a", "deep/b"):
        place.write(name, "".join(f"{name} {line}\n" for line in range(20)))


SCRIPT = b"sed -i '1s/^/first /' edited; rm gone; echo new > new; mkdir -p d; echo e > d/e"


def exported(session: Session, fork: str = "f", **options: Any) -> bytes:
    stream = io.BytesIO()
    export(session, fork, stream, **options)
    return stream.getvalue()


def one(
    session: Session, data: bytes, name: str | None = None, *, known: KnownBase | None = None, **fields: Any
) -> Arrived:
    return arrive(session, [Arrival(io.BytesIO(data), name, **fields)], known=known)[0]


def rows(session: Session, fork: str) -> list[tuple[bytes, str]]:
    return [(change.path, change.verb) for change in session.changes.of(fork).changes]


# --- streams ---


class Trickle:
    """A stream that cannot seek and gives and takes a few bytes at a time, as a pipe or a socket may."""

    def __init__(self, data: bytes = b"", size: int = 7) -> None:
        self.data, self.size, self.at = bytearray(data), size, 0

    def read(self, size: int = -1) -> bytes:
        data = bytes(self.data[self.at : self.at + (self.size if size < 0 else min(size, self.size))])
        self.at += len(data)
        return data

    def write(self, data: Any) -> int:
        self.data += bytes(data[: self.size])
        return min(len(data), self.size)

    def flush(self) -> None:
        self.flushed = len(self.data)


@pytest.mark.parametrize("packed", [True, False])
def test_an_archive_goes_through_streams_that_cannot_seek(place: Place, *, packed: bool) -> None:
    fill(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    out: Any = Trickle(size=1000)
    written = export(session, "f", out, packed=packed)
    assert written.size == len(out.data) == out.flushed
    assert bytes(out.data).startswith(b"\x1f\x8b") is packed
    slow: Any = Trickle(bytes(out.data))
    found = arrive(session, [Arrival(slow, "g")])[0]
    assert (found.state, found.name, found.size) == ("new", "g", written.size)
    note = note_of(session.vault.fork("g"))
    assert note is not None
    assert note.digest == written.digest
    assert rows(session, "g") == rows(session, "f")
    assert session.changes.apply("g").conflicts == ()


def test_through_a_pipe(place: Place) -> None:
    fill(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT + b"; head -c 3000000 /dev/urandom > big"], fork="f")
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb", buffering=0) as stream:
            export(session, "f", stream)

    writer = threading.Thread(target=write)
    writer.start()
    with open(reading, "rb", buffering=0) as stream:
        found = arrive(session, [Arrival(stream, "g")])[0]
    writer.join()
    assert found.state == "new"
    assert rows(session, "g") == rows(session, "f")


def test_a_stream_is_refused_for_what_follows_the_archive(place: Place) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    data = exported(session, packed=False)
    assert one(session, data + bytes(100_000), "padded").state == "new"
    for more in (b"x", bytes(1000) + b"x", bytes(2 << 20)):
        found = one(session, data + more, "g")
        assert (found.state, found.problem) == (
            "refused",
            "the archive cannot be imported: it has data after its end",
        )
    endless = gzip.compress(data) + gzip.compress(b"") * 200_000  # members without content, without end
    found = arrive(session, [Arrival(io.BytesIO(endless), "g")], limit=1_000_000)[0]
    assert "holds more than" in found.problem


def test_a_stream_that_does_not_wait_is_refused(place: Place) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    with open(reading, "rb", buffering=0) as ours, open(writing, "wb", buffering=0) as theirs:
        assert "not blocking" in arrive(session, [Arrival(ours)])[0].problem
        theirs.write(bytes(1 << 16))
        with pytest.raises(MudroomError, match="its stream does not wait"):
            export(session, "f", theirs)


def test_a_fork_that_is_too_large_is_not_read(place: Place) -> None:
    """A sparse file of a terabyte takes no space and would take hours."""
    session = place.session()
    session.run([b"sh", b"-c", b"truncate -s 1T sparse; echo x > small"], fork="f")
    with pytest.raises(MudroomError, match=r"the fork is too large to be exported: .*sparse"):
        export(session, "f", io.BytesIO(), limit=10**9)
    session.run([b"truncate", b"-s", b"1M", b"sparse"], fork="f")
    assert one(session, exported(session, limit=10**9)).state == "new"


def test_a_reader_that_leaves_ends_an_export(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"head -c 1000000 /dev/urandom > big"], fork="f")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as stream, pytest.raises(BrokenPipeError):
        export(session, "f", stream)
    assert exported(session)  # the fork is as before


# --- base by id ---


def test_a_fork_on_a_snapshot_names_its_base(place: Place) -> None:
    """The archive has the changes and their originals, not the project, and merges as a fork of the project does."""
    fill(place)
    place.write("large", os.urandom(500_000))
    session = place.session()
    session.forks.new("f", snapshot=True)
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    whole, named = exported(session), exported(session, base=BASE)
    assert len(whole) > 500_000 > 5_000 > len(named)
    found = one(session, named, "g")
    assert found.problem == (
        f"the archive cannot be imported: it stands on the base {BASE.hex()[:16]}, which is not known here"
    )
    place.write("edited", (place.project / "edited").read_text() + "the user's line\n")
    assert one(session, named, "g", known={BASE: LIVE}.get).state == "new"
    assert session.vault.fork("g").state.base == LIVE
    assert rows(session, "g") == rows(session, "f")
    assert session.changes.apply("g").conflicts == ()
    text = (place.project / "edited").read_text()
    assert text.startswith("first edited 0\n")
    assert text.endswith("the user's line\n")
    assert not (place.project / "gone").exists()


def test_a_base_that_is_a_snapshot_here(place: Place) -> None:
    fill(place)
    session = place.session()
    session.forks.new("f", snapshot=True)
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    session.forks.checkpoint("f", "c")
    session.run([b"sh", b"-c", b"echo more >> new"], fork="f")
    snapshot = session.vault.fork("f").state.base
    data = exported(session, base=BASE)
    place.write("still", "moved on\n")
    assert one(session, data, "g", known={BASE: snapshot}.get).state == "new"
    assert session.vault.fork("g").state.base == snapshot
    assert rows(session, "g") == rows(session, "f")
    assert session.run([b"cat", b"still"], fork="g").stdout.startswith(b"still 0\n")
    session.forks.discard("f")
    assert check(session.vault) == []  # g needs the snapshot
    session.forks.discard("g")
    assert os.listdir(session.vault.path + b"/bases") == []


def test_a_fork_of_another_project_with_the_same_base(place: Place, other: Place) -> None:
    """A worker's project is elsewhere, and its forks stand on it: the origin has moved on meanwhile."""
    fill(place)
    fill(other)
    there = other.session()
    there.run([b"sh", b"-c", SCRIPT], fork="f")
    data = exported(there, base=BASE)
    session = place.session()
    known = {BASE: LIVE}.get
    place.write("edited", (place.project / "edited").read_text() + "the user's line\n")
    found = arrive(session, [Arrival(io.BytesIO(data))], known=known)[0]
    assert (found.state, found.name, found.project) == ("new", "f", os.fsencode(other.project))
    assert session.changes.apply("f").conflicts == ()
    assert (place.project / "edited").read_text().endswith("the user's line\n")


def test_a_snapshot_that_goes_while_a_fork_arrives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last fork on a snapshot is discarded between the look at the table and the rename: no fork without base."""
    fill(place)
    session = place.session()
    session.forks.new("f", snapshot=True)
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    known = {BASE: session.vault.fork("f").state.base}.get
    data = exported(session, base=BASE)

    def discarding(descriptor: int) -> None:
        session.forks.discard("f")
        sync_filesystem(descriptor)

    monkeypatch.setattr(arrival_module, "sync_filesystem", discarding)
    assert "has just been removed" in one(session, data, "g", known=known).problem
    assert session.vault.forks() == []
    assert os.listdir(session.vault.path + b"/layers") == []


def test_a_snapshot_that_a_fork_needs_after_all_is_kept(place: Place) -> None:
    """A fork has arrived on it since it was found to be needed by none."""
    fill(place)
    session = place.session()
    session.forks.new("f", snapshot=True)
    base = session.vault.fork("f").state.base
    throw_away_base(session.vault, base)
    assert os.listdir(session.vault.path + b"/bases") == [base.encode()]
    assert session.run([b"cat", b"still"], fork="f").stdout.startswith(b"still 0\n")
    throw_away_base(session.vault, "none")
    session.vault.throw_away(session.vault.fork("f").path)
    throw_away_base(session.vault, base)
    assert os.listdir(session.vault.path + b"/bases") == []


# --- many ---


def archives(session: Session, count: int) -> list[bytes]:
    result = []
    for number in range(count):
        session.run([b"sh", b"-c", b"echo %d > made; echo x >> edited" % number], fork=f"w{number}")
        result.append(exported(session, f"w{number}"))
        session.forks.discard(f"w{number}")
    return result


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count syncs of the file system and of directories, locks, and turns that stop agents."""
    counts = dict.fromkeys(("syncfs", "fsync", "lock", "turn"), 0)

    def counted(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[key] += 1
            return function(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(arrival_module, "sync_filesystem", counted("syncfs", sync_filesystem))
        patch.setattr(os, "fsync", counted("fsync", os.fsync))
        patch.setattr(Lock, "acquire", counted("lock", Lock.acquire))
        patch.setattr("mudroom.vault.turn.Turn.take", counted("turn", lambda *_: None))
        yield counts


def test_many_arrive_under_one_lock_with_one_sync(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    session = place.session()
    data = archives(session, 3) * 20
    session.vault.journal.append("gap", "", {}, time=1)  # it is open
    with counting(monkeypatch) as counts:
        found = arrive(session, [Arrival(io.BytesIO(archive), f"a{n}") for n, archive in enumerate(data)])
    assert [row.name for row in found] == [f"a{n}" for n in range(60)]
    assert {row.state for row in found} == {"new"}
    assert (counts["syncfs"], counts["turn"]) == (1, 0)
    assert counts["fsync"] == 1
    assert counts["lock"] == 2  # that of the unpacking process, and that of the names
    assert check(session.vault) == []
    events = [event for event in session.vault.journal.events() if event.kind == "arrive"]
    assert [event.fork for event in events] == [f"a{n}" for n in range(60)]


def test_names_and_errands(place: Place) -> None:
    fill(place)
    session = place.session()
    first, second, third = archives(session, 3)
    assert one(session, first, "n", errand="e1", worker="big").name == "n"
    again = one(session, first, "n", errand="e1", worker="big")
    assert (again.state, again.name) == ("here", "n")
    late = one(session, second, "n", errand="e1", attempt=2)
    assert (late.state, late.name) == ("late", "n-late")
    assert one(session, third, "n", errand="e1").name == "n-late-2"
    taken = one(session, third, "n", errand="e2")
    assert (taken.state, taken.name, taken.wanted) == ("new", "n-2", "n")
    assert one(session, first, "n", errand="e3", late=True).name == "n-late-3"
    session.forks.rename("n", "renamed")
    assert one(session, first, "n", errand="e1").name == "renamed"  # the note goes with the fork
    long = "x" * 64
    assert one(session, first, long).name == long
    assert one(session, first, long).name == "x" * 62 + "-2"
    in_one = arrive(session, [Arrival(io.BytesIO(data), "o", errand="e9") for data in (first, first, second)])
    assert [(row.state, row.name) for row in in_one] == [("new", "o"), ("here", "o"), ("late", "o-late")]
    assert check(session.vault) == []
    used = {layer for fork in session.vault.forks() for layer in fork.state.references}
    assert set(map(os.fsdecode, os.listdir(session.vault.path + b"/layers"))) == used


def test_one_that_is_refused_leaves_the_others(place: Place) -> None:
    fill(place)
    session = place.session()
    (data,) = archives(session, 1)
    hostile = [data[: len(data) // 2], b"", b"x" * 5000, gzip.compress(b"y" * 3000)]
    before = listing(place.project)
    found = arrive(session, [Arrival(io.BytesIO(each), "n") for each in (*hostile, data)])
    found += [one(session, data, "../x"), one(session, data, "base")]
    assert [row.state for row in found] == ["refused"] * 4 + ["new"] + ["refused"] * 2
    assert all(row.problem and not row.name for row in found if row.state == "refused")
    assert [fork.name for fork in session.vault.forks()] == ["n"]
    assert listing(place.project) == before
    events = [event for event in session.vault.journal.events() if event.kind == "arrive"]
    assert sum("problem" in event.data for event in events) == 6


def with_entry(data: bytes, name: str, **fields: Any) -> bytes:
    """Return an archive with one more entry in its first layer."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as source,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        members = list(source)
        layer = next(info.name for info in members if info.name.endswith("/tree"))
        for info in members:
            if info.name == "mudroom-end":
                more = tarfile.TarInfo(f"{layer}/{name}")
                for key, value in fields.items():
                    setattr(more, key, value)
                target.addfile(more)
            content = source.extractfile(info)
            target.addfile(info, content if info.isreg() else None)
    return out.getvalue()


def test_an_entry_that_cannot_be_stored_refuses_its_archive_alone(place: Place) -> None:
    fill(place)
    session = place.session()
    (data,) = archives(session, 1)
    link = {"type": tarfile.SYMTYPE, "linkname": "x" * 5000}
    hostile = [
        with_entry(data, "link", **link),
        with_entry(data, "n" * 256),
        with_entry(data, "n" * 256, type=tarfile.DIRTYPE),
        with_entry(data, "large", pax_headers={"SCHILY.xattr.user.x": "v" * 70_000}),
        with_entry(data, "many", pax_headers={f"SCHILY.xattr.user.{each}": "v" * 60_000 for each in range(9)}),
        with_entry(data, "unnamed", pax_headers={"SCHILY.xattr.user.": "v"}),
    ]
    layers = set(os.listdir(session.vault.path + b"/layers"))
    for each in hostile:
        refused, taken = arrive(session, [Arrival(io.BytesIO(each), "n"), Arrival(io.BytesIO(data), "m")])
        assert (refused.state, taken.state) == ("refused", "new")
        assert len(refused.problem) < 500
        session.forks.discard(taken.name)
    assert set(os.listdir(session.vault.path + b"/layers")) == layers


def test_claims_are_kept_as_claims(place: Place) -> None:
    fill(place)
    session = place.session()
    (data,) = archives(session, 1)
    claims = {"exit_code": 0, "events": [{"kind": "run", "number": n} for n in range(1000)], "flows": ["f" * 90_000]}
    one(session, data, "n", errand="e1", worker="big", claims=claims)
    event = next(event for event in session.vault.journal.events() if event.kind == "arrive")
    kept = __import__("json").loads(event.data)
    assert (kept["errand"], kept["worker"], kept["state"]) == ("e1", "big", "new")
    assert kept["claims"]["exit_code"] == 0
    assert (len(kept["claims"]["events"]), kept["claims"]["events_left_out"]) == (200, 800)
    assert kept["claims"]["flows"] == "left out: too large"
    assert len(event.data) < 80_000
    assert bounded_claims({}) == {}


def test_claims_that_are_no_json(place: Place) -> None:
    """Whatever a worker has sent, the fork is there and the event, too."""
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    deep: Any = []
    for _level in range(5000):
        deep = [deep]
    claims = {
        "set": {1},
        "text": "\ud800",
        "deep": deep,
        "bytes": b"\xff",
        "nan": float("nan"),
        "big": 1 << 200,
        3: "x",
    }
    more = {f"key {number}": "x" * 1000 for number in range(1000)}
    for number, wrong in enumerate((claims, more)):
        found = one(session, exported(session), errand=f"e{number}", claims=wrong)
        assert found.state == "new"
    events = [event for event in session.vault.journal.events() if event.kind == "arrive"]
    assert [event.fork for event in events] == ["f-2", "f-3"]
    assert all(len(event.data) < 80_000 for event in events)


def test_a_full_disk_leaves_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place)
    session = place.session()
    data = archives(session, 2)

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(arrival_module, "sync_filesystem", full)
    with pytest.raises(OSError, match="No space left"):
        arrive(session, [Arrival(io.BytesIO(each)) for each in data])
    assert session.vault.forks() == []
    assert os.listdir(session.vault.path + b"/layers") == []


@pytest.mark.parametrize("at", half(range(8)))
def test_killed_between_the_names_there_are_whole_forks_only(
    place: Place, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place)
    session = place.session()
    data = archives(session, 2) * 3
    pid = os.fork()
    if pid == 0:
        try:
            rename, count = arrival_module._renamed, [0]

            def dying(*arguments: Any) -> bool:
                count[0] += 1
                if count[0] > at:
                    os._exit(7)
                return rename(*arguments)

            monkeypatch.setattr(arrival_module, "_renamed", dying)
            arrive(session, [Arrival(io.BytesIO(each), f"a{n}", errand=f"e{n}") for n, each in enumerate(data)])
            os._exit(0)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (7 if at < 6 else 0)
    names = [f"a{n}" for n in range(min(at, 6))]
    assert sorted(fork.name for fork in session.vault.forks()) == names
    now = let_pass(session.vault, time.time_ns() + 2 * DAY)
    collect_garbage(session.vault, RetentionLimits(1 << 60, 99, 1 << 60), now)
    assert check(session.vault) == []
    assert len(os.listdir(session.vault.path + b"/layers")) == len(names)
    # brought again: those that are here make no second fork
    again = arrive(session, [Arrival(io.BytesIO(each), f"a{n}", errand=f"e{n}") for n, each in enumerate(data)])
    assert [row.state for row in again] == ["here"] * len(names) + ["new"] * (6 - len(names))
    assert sorted(fork.name for fork in session.vault.forks()) == [f"a{n}" for n in range(6)]


def test_retention_leaves_what_is_being_unpacked(place: Place) -> None:
    """An archive may come slowly: its layers are younger than the lock of the process that unpacks it."""
    session = place.session()
    with unpacking(session.vault.path):
        layer = session.vault.new_layer()
        now = let_pass(session.vault, time.time_ns() + 2 * DAY)
        collect_garbage(session.vault, RetentionLimits(1 << 60, 99, 1 << 60), now)
        assert os.path.isdir(session.vault.layer(layer))
    now = let_pass(session.vault, now + 2 * DAY)
    collect_garbage(session.vault, RetentionLimits(1 << 60, 99, 1 << 60), now)
    assert not os.path.exists(session.vault.layer(layer))


def test_two_that_bring_the_same_at_once(place: Place) -> None:
    fill(place)
    session = place.session()
    (data,) = archives(session, 1)
    found: list[Arrived] = []

    def bring() -> None:
        found.extend(arrive(session, [Arrival(io.BytesIO(data), "n", errand="e1")]))

    threads = [threading.Thread(target=bring) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row.state for row in found) == ["here"] * 5 + ["new"]
    assert {row.name for row in found} == {"n"}
    assert len(os.listdir(session.vault.path + b"/layers")) == 1
