"""Archives of anybody, and those that a disk or a kill has cut off: refused whole, and nothing is left."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import time
from pathlib import Path

import msgspec
import pytest
from bundle_place import SCRIPT, export, project, shown, take_in

from clocks import let_pass
from conftest import Place, listing
from cut_off import crash_in_child
from mudroom.core.retention import DAY, RetentionLimits
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.transfer.vault.archive import RefusedArchive
from mudroom.ext.transfer.vault.bundle import FORMAT, Label
from mudroom.session import Session
from mudroom.vault.record import FORK_FORMAT
from mudroom.vault.retention.check import check
from mudroom.vault.retention.prune import collect_garbage
from mudroom.vault.store.store import Vault
from tiers import QUICK, examples


def left(vault: Vault) -> list[tuple[str, list[str]]]:
    """What the vault holds of forks, layers and the rest."""
    place = Path(os.fsdecode(vault.path))
    return [(name, sorted(os.listdir(place / name))) for name in ("forks", "layers", "bases", "trash")]


def rows(*originals: tuple[object, ...]) -> bytes:
    data = msgspec.msgpack.encode(list(originals))
    return len(data).to_bytes(8, "little") + data


def member(name: str, content: bytes = b"", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    info.size = len(content)
    return info


STATE = b"mudroom-fork 2\nupper up\nlayers \nbase live\ncreated 1\nend\n".replace(b"layers \n", b"layers\n")
HEAD: list[tuple[tarfile.TarInfo, bytes]] = [
    (member("mudroom-fork"), msgspec.msgpack.encode(Label(FORMAT, "evil", b"/x", FORK_FORMAT, 1))),
    (member("state"), STATE),
    (member("layers/up/tree", type=tarfile.DIRTYPE, mode=0o755), b""),
]
END = (member("mudroom-end"), b"")
TREE = "layers/up/tree/"


def archive(*members: tuple[tarfile.TarInfo, bytes], head: list[tuple[tarfile.TarInfo, bytes]] | None = None) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in [*(HEAD if head is None else head), *members, END]:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def xattr(name: str, value: str) -> dict[str, str]:
    return {"SCHILY.xattr." + name: value}


HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "absolute": [(member("/etc/evil"), b"x")],
    "parent": [(member(TREE + "../../../evil"), b"x")],
    "parent of the tree": [(member(TREE + ".."), b"x")],
    "dot": [(member(TREE + "./a"), b"x")],
    "empty name": [(member(TREE + "a//b"), b"x")],
    "another layer": [(member("layers/other/tree/a"), b"x")],
    "no layer": [(member("forks/f/state"), b"x")],
    "the record of the upper's tree": [(member("layers/up/lock"), b"x")],
    "through a link": [
        (member(TREE + "l", type=tarfile.SYMTYPE, linkname="/tmp"), b""),
        (member(TREE + "l/evil"), b"x"),
    ],
    "over a link": [(member(TREE + "l", type=tarfile.SYMTYPE, linkname="/tmp/x"), b""), (member(TREE + "l"), b"x")],
    "twice": [(member(TREE + "a"), b"x"), (member(TREE + "a"), b"y")],
    "no directory": [(member(TREE + "d/a"), b"x")],
    "through a file": [(member(TREE + "a"), b"x"), (member(TREE + "a/b"), b"x")],
    "hard link out": [(member(TREE + "a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")],
    "hard link up": [(member(TREE + "a", type=tarfile.LNKTYPE, linkname=TREE + "../../../format"), b"")],
    "hard link to a link": [
        (member(TREE + "l", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b""),
        (member(TREE + "a", type=tarfile.LNKTYPE, linkname=TREE + "l"), b""),
    ],
    "link to nothing": [(member(TREE + "a", type=tarfile.SYMTYPE, linkname=""), b"")],
    "device": [(member(TREE + "a", type=tarfile.CHRTYPE, devmajor=1, devminor=3), b"")],
    "block device": [(member(TREE + "a", type=tarfile.BLKTYPE, devmajor=0, devminor=0), b"")],
    "set-uid": [(member(TREE + "a", mode=0o4755), b"x")],
    "set-gid": [(member(TREE + "a", mode=0o2755), b"x")],
    "security xattr": [(member(TREE + "a", pax_headers=xattr("security.capability", "x")), b"x")],
    "redirect": [(member(TREE + "a", type=tarfile.DIRTYPE, pax_headers=xattr("user.overlay.redirect", "/etc")), b"")],
    "metacopy": [(member(TREE + "a", pax_headers=xattr("user.overlay.metacopy", "")), b"x")],
    "strange mark": [(member(TREE + "a", type=tarfile.DIRTYPE, pax_headers=xattr("user.overlay.opaque", "z")), b"")],
    "NUL": [(member(TREE + "a", pax_headers={"path": TREE + "a\0b"}), b"x")],
    "long name": [(member(TREE + "a" * 256), b"x")],
    "sparse": [(member(TREE + "a", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "9999999999"}), b"x")],
    "strange type": [(member(TREE + "a", type=b"7"), b"")],
    "a snapshot it does not stand on": [(member("base/source", type=tarfile.DIRTYPE), b"")],
    "original with a path": [(member("layers/up/originals/../x"), b"x")],
    "original twice": [(member("layers/up/originals/index"), b""), (member("layers/up/originals/index"), b"")],
    "damaged index": [(member("layers/up/originals/index"), (9).to_bytes(8, "little") + b"\x91" * 9)],
    "damaged record": [(member("record"), b"\x93\x01")],
    "huge array": [(member("digests"), b"\xdd\xff\xff\xff\xff")],
    "deep": [(member("record"), b"\x91" * 100_000)],
    "after the end": [END, (member(TREE + "a"), b"x")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(place: Place, tmp_path: Path, name: str) -> None:
    session = place.session()
    before, outside = left(session.vault), listing(tmp_path / "project")
    with pytest.raises(RefusedArchive, match=r"^the archive cannot be imported: "):
        take_in(session.vault, archive(*HOSTILE[name]))
    assert left(session.vault) == before
    assert listing(tmp_path / "project") == outside
    assert not Path("/tmp/evil").exists()


FILE = ("file", 0o644, 3, b"", 1, 2, 1, 0, 0, 5, 5)


@pytest.mark.parametrize(
    "row",
    [
        (b"a", (FILE, "../../../format", 0, 1)),
        (b"a", (FILE, "/etc/passwd", 0, 1)),
        (b"a", (FILE, "pack", 0, 1 << 60)),
        (b"a", (FILE, "pack", -1, 1)),
        (b"a", (FILE, "7", 0, 1)),
        (b"../a", (FILE, "", 0, 0)),
    ],
)
def test_originals_that_lead_elsewhere(place: Place, row: tuple[object, ...]) -> None:
    session = place.session()
    before = left(session.vault)
    with pytest.raises(RefusedArchive):
        take_in(
            session.vault,
            archive((member("layers/up/originals/pack"), b"abc"), (member("layers/up/originals/index"), rows(row))),
        )
    assert left(session.vault) == before


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ([], "was not written by mudroom"),
        ([(member("mudroom-fork"), msgspec.msgpack.encode((7, 1, 2)))], "has format 7"),
        ([(member("mudroom-fork"), msgspec.msgpack.encode((FORMAT, "f", b"/x", 9, 1)))], "vault of format 9"),
        ([(member("mudroom-fork"), b"\x91")], "damaged"),
        ([HEAD[0]], "has no state"),
        ([HEAD[0], (member("state"), STATE.replace(b"2", b"9"))], "has format 9"),
        ([HEAD[0], (member("state"), STATE.replace(b"layers", b"layers a a"))], "names a layer twice"),
        ([HEAD[0], (member("state"), STATE.replace(b"layers", b"layers up"))], "names a layer twice"),
        ([HEAD[0], (member("state"), STATE.replace(b"layers", b"layers a"))], "one of its layers is missing"),
        ([HEAD[0], (member("state"), STATE.replace(b"upper up", b"upper ../x"))], "invalid layer name"),
        ([HEAD[0], (member("state"), STATE.replace(b"end", b"checkpoint ../x 1\nend"))], "invalid names"),
        ([HEAD[0], (member("state"), STATE.replace(b"live", b"abc"))], "its snapshot is missing"),
    ],
)
def test_an_archive_that_does_not_begin_as_one(
    place: Place, head: list[tuple[tarfile.TarInfo, bytes]], reason: str
) -> None:
    session = place.session()
    before = left(session.vault)
    with pytest.raises(RefusedArchive, match=reason):
        take_in(session.vault, archive(head=head))
    assert left(session.vault) == before


def test_names_of_forks_are_checked(place: Place) -> None:
    session = place.session()
    data = archive()
    take_in(session.vault, data)
    with pytest.raises(UsageError, match="there is a fork named evil already"):
        take_in(session.vault, data)
    take_in(session.vault, data, "another")
    with pytest.raises(UsageError, match="cannot be the name"):
        take_in(session.vault, data, "../x")
    assert sorted(fork.name for fork in session.vault.forks()) == ["another", "evil"]


def test_it_is_limited(place: Place) -> None:
    session = place.session()
    before = left(session.vault)
    bomb = gzip.compress(archive((member(TREE + "a"), bytes(50_000_000))))
    assert len(bomb) < 100_000
    with pytest.raises(RefusedArchive, match="more than 20 MB"):
        take_in(session.vault, bomb, limit=20_000_000)
    data = bytearray(archive((member(TREE + "a", pax_headers={"x": "y" * 2_000_000}), b"")))
    with pytest.raises(RefusedArchive, match="a header of"):
        take_in(session.vault, bytes(data))
    assert left(session.vault) == before


def test_a_full_disk_leaves_nothing(sample: tuple[Session, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    session, data = sample
    before = left(session.vault)
    written = [0]
    write = os.write

    def full(descriptor: int, block: bytes) -> int:
        written[0] += 1
        if written[0] > 3:
            raise OSError(28, os.strerror(28))
        return write(descriptor, block)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            take_in(session.vault, data, "g")
    assert left(session.vault) == before


def test_a_false_record_hides_nothing(place: Place) -> None:
    """What a review shows is found anew: a record that says "nothing was changed" changes nothing."""
    place.write("a", "mine\n")
    session = place.session()
    lie = msgspec.msgpack.encode((2, "evil", "overlay", (b"true",), 1, 0, ((), ())))
    take_in(
        session.vault, archive((member(TREE + "a"), b"evil\n"), (member(TREE + "b"), b"b\n"), (member("record"), lie))
    )
    assert [(change.path, change.verb) for change in session.changes.of("evil").changes] == [
        (b"a", "modified"),
        (b"b", "added"),
    ]
    assert [conflict.path for conflict in session.changes.apply("evil").conflicts] == [b"a"]
    assert (place.project / "a").read_text() == "mine\n"


@pytest.fixture
def sample(place: Place, tmp_path: Path) -> tuple[Session, bytes]:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    session.forks.checkpoint("f", "c")
    session.run([b"sh", b"-c", b"echo more >> edited"], fork="f")
    return session, export(session, "f", tmp_path / "f.tar")


def test_cut_off_anywhere(sample: tuple[Session, bytes]) -> None:
    session, data = sample
    before = left(session.vault)
    end = data.rindex(b"mudroom-end")
    for at in range(0, end, (512 * 17 + 100) * (12 if QUICK else 1)):
        with pytest.raises(RefusedArchive):
            take_in(session.vault, data[:at], "g")
        assert left(session.vault) == before
    packed = gzip.compress(data)
    with pytest.raises(RefusedArchive):
        take_in(session.vault, packed[: len(packed) // 2], "g")
    assert left(session.vault) == before


def test_bytes_turned_over(sample: tuple[Session, bytes], place: Place) -> None:
    """Whatever a byte is changed to: refused, or a fork like any other; nothing else is touched."""
    session, data = sample
    before, outside = left(session.vault), listing(place.project)
    chance = random.Random(7)
    outcomes = set()
    for _time in range(max(60, examples(150))):  # most bytes are content, which may be anything
        broken = bytearray(data)
        for _byte in range(chance.choice((1, 1, 5))):
            broken[chance.randrange(len(data.rstrip(b"\0")))] = chance.randrange(256)
        try:
            take_in(session.vault, bytes(broken), "g")
        except (MudroomError, OSError) as error:
            outcomes.add(type(error))
        else:
            session.changes.of("g")
            session.forks.discard("g")
        assert left(session.vault) == before
    assert RefusedArchive in outcomes
    assert listing(place.project) == outside


def test_killed_anywhere_an_import_leaves_nothing_that_gc_does_not_take(
    sample: tuple[Session, bytes],
) -> None:
    session, data = sample
    names = [fork.name for fork in session.vault.forks()]
    for at in range(1, 400, 7):
        calls = ("mkdir", "rename", "unlink", "mknod", "symlink", "link", "write", "chmod")
        if not crash_in_child(lambda: take_in(session.vault, data, "g"), at, calls):
            break
        if "g" in (found := {fork.name for fork in session.vault.forks()}):  # killed once it had its name
            assert shown(session.changes.of("g")) == shown(session.changes.of("f"))
            assert check(session.vault) == []
            break
        assert found == set(names)
        now = let_pass(session.vault, time.time_ns() + 2 * DAY)
        collect_garbage(session.vault, RetentionLimits(1 << 60, 99, 1 << 60), now)
        assert check(session.vault) == []
        assert len(os.listdir(session.vault.path + b"/layers")) == 2
        assert list(Path(os.fsdecode(session.vault.path)).glob("arriving/*")) == []
    else:
        raise AssertionError("the work never came to its end")
    assert {fork.name for fork in session.vault.forks()} == {*names, "g"}
