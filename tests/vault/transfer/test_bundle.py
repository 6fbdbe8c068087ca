"""A fork as a file: what goes out comes in, here and elsewhere, and an archive of anybody can do no harm."""

from __future__ import annotations

import gzip
import io
import os
import random
import stat
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from clocks import let_pass
from conftest import Place, listing
from mudroom.core.clock import CommandStart
from mudroom.core.retention import DAY, RetentionLimits
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage.source import walk
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.retention.check import check
from mudroom.vault.retention.prune import collect_garbage
from mudroom.vault.store.store import Vault
from mudroom.vault.transfer.archive import RefusedArchive
from mudroom.vault.transfer.arrival import Arrival, Arrived, arrive
from mudroom.vault.transfer.bundle import Label, export_fork
from mudroom.vault.transfer.import_fork import LIMIT
from tiers import examples
from whole_text import whole

NOW = 1_700_000_000 * 10**9
SCRIPT = (
    b"echo more >> edited; rm -r gone removed; mkdir -p new/sub; echo n > new/sub/f; chmod +x mode; rm kind;"
    b"mkdir kind; echo k > kind/k; ln -s edited link; ln new/sub/f new/hard; mkfifo pipe; mv moved there;"
    b"rm -r again; mkdir again; echo again > again/only; mkdir -m 555 closed; truncate -s 3M new/sparse;"
    b"printf x > \"$(printf 'odd\\377\\nname')\""
)


def project(place: Place) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "mode", "kind", "moved", "again/1", "again/2", "still"):
        place.write(name, f"{name}\n")


@pytest.fixture
def other(tmp_path: Path, client: Client) -> Place:
    root = tmp_path / "other"
    root.mkdir()
    return Place(root, client)


def export(session: Session, name: str, path: Path) -> bytes:
    with session.forks.at_rest(name) as fork:
        export_fork(session.vault, fork, os.fsencode(path), NOW)
    return path.read_bytes()


def take_in(vault: Vault, data: bytes, name: str | None = None, limit: int = LIMIT) -> Arrived:
    arrived = arrive(vault, [Arrival(io.BytesIO(data), name)], NOW, limit=limit, is_exact=True)[0]
    if arrived.error is not None:
        raise arrived.error
    return arrived


def shown(changeset: Changeset) -> list[tuple[object, ...]]:
    return [
        (c.path, c.verb, c.source, c.moved_to, c.link_to, c.flags, c.binary, c.lines_added, c.lines_removed)
        for c in changeset.changes
    ]


def merged(vault: Vault, name: str) -> dict[bytes, tuple[str, int, bytes]]:
    """What a command would see: kind, mode, link target of everything, and what is in the files. Not fifos."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    with OpenFork(vault, vault.fork(name)) as opened:
        source = opened.merged()
        for path, entry in walk(source):
            if entry.kind == "fifo":
                continue
            content = entry.target
            if entry.kind == "file":
                with os.fdopen(source.open(path), "rb") as stream:
                    content = stream.read()
            found[path] = (entry.kind, entry.mode, content)
    return found


def left(vault: Vault) -> list[tuple[str, list[str]]]:
    """What the vault holds of forks, layers and the rest."""
    place = Path(os.fsdecode(vault.path))
    return [(name, sorted(os.listdir(place / name))) for name in ("forks", "layers", "bases", "trash")]


# --- back home ---


@pytest.mark.parametrize("name", ["f.tar", "f.tar.gz"])
def test_a_fork_comes_back_as_it_was(place: Place, tmp_path: Path, name: str) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    data = export(session, "f", tmp_path / name)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("f.tar*")) == [name]
    found = take_in(session.vault, data, "g")
    assert (found.name, found.strangers, found.project) == ("g", 0, os.fsencode(place.project))
    assert shown(session.changes.of("g")) == shown(session.changes.of("f"))
    assert merged(session.vault, "g") == merged(session.vault, "f")
    assert check(session.vault) == []
    assert list(session.changes.diff("g")) == list(session.changes.diff("f"))
    assert session.changes.apply("g").conflicts == ()
    assert session.changes.apply("f").conflicts == ()  # all of it is there already
    assert not session.changes.of("f").changes


def test_layers_checkpoints_and_what_has_landed(place: Place, tmp_path: Path) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", b"echo one >> edited; rm moved"], fork="f")
    session.forks.checkpoint("f", "first")
    session.run([b"sh", b"-c", b"echo two >> edited; echo m > moved; echo s >> still"], fork="f")
    session.forks.checkpoint("f", "second")
    session.run([b"sh", b"-c", b"echo three >> edited; rm -r gone"], fork="f")
    session.forks.rollback("f", "second")
    session.run([b"sh", b"-c", b"echo four >> edited"], fork="f")
    session.changes.apply("f", [b"still"])
    found = take_in(session.vault, export(session, "f", tmp_path / "f.tar"), "g")
    assert found.strangers == 0
    assert shown(session.changes.of("g")) == shown(session.changes.of("f"))
    old, new = session.vault.fork("f").state, session.vault.fork("g").state
    assert [p.name for p in new.checkpoints] == [p.name for p in old.checkpoints] == ["first", "second", "rollback-1"]
    assert not old.references & new.references
    for name in ("first", "rollback-1", "second"):
        session.forks.rollback("f", name)
        session.forks.rollback("g", name)
        assert shown(session.changes.of("g")) == [row for row in shown(session.changes.of("f")) if row[0] != b"still"]
        assert merged(session.vault, "g") == merged(session.vault, "f")
    session.run([b"sh", b"-c", b"echo five >> edited"], fork="g")
    assert session.changes.apply("g").conflicts == ()
    assert (place.project / "edited").read_text() == "edited\none\ntwo\nfive\n"
    assert check(session.vault) == []


@pytest.mark.parametrize("view", ["copy", "snapshot"])
def test_a_fork_on_a_snapshot_brings_it_along(place: Place, other: Place, tmp_path: Path, view: str) -> None:
    project(place)
    session = place.session(Settings(view="copy") if view == "copy" else None)
    if view == "snapshot":
        session.forks.new("f", snapshot=True)
    session.run([b"sh", b"-c", SCRIPT.replace(b"ln new/sub/f", b"cp new/sub/f")], fork="f")
    place.write("still", "moved on\n")
    data = export(session, "f", tmp_path / "f.tar")
    take_in(session.vault, data, "g")
    assert shown(session.changes.of("g")) == shown(session.changes.of("f"))
    assert merged(session.vault, "g")[b"still"][2] == b"still\n"
    assert session.changes.apply("g").conflicts == ()
    project(other)
    other.write("edited", "another\n")
    there = other.session()
    found = take_in(there.vault, data)
    assert found.strangers == 0 or view == "snapshot"
    assert [conflict.path for conflict in there.changes.apply("f").conflicts] == [b"edited"]
    assert (other.project / "edited").read_text() == "another\n"
    assert (other.project / "new/sub/f").read_text() == "n\n"
    assert not (other.project / "removed").exists()


# --- elsewhere ---


def test_in_a_project_with_the_same_files_all_of_it_applies(place: Place, other: Place, tmp_path: Path) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    data = export(session, "f", tmp_path / "f.tar")
    project(other)
    for path in [other.project, *other.project.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o020)  # made with another umask
    there = other.session()
    found = take_in(there.vault, data)
    assert found.strangers == 0
    assert shown(there.changes.of("f")) == shown(session.changes.of("f"))
    assert there.changes.apply("f").conflicts == ()
    session.changes.apply("f")
    mine, theirs = listing(place.project), listing(other.project)
    assert {name: (kind, content) for name, (kind, _mode, content) in mine.items()} == {
        name: (kind, content) for name, (kind, _mode, content) in theirs.items()
    }
    assert theirs["edited"][1] == 0o664
    there.changes.undo()
    assert (other.project / "edited").read_text() == "edited\n"


def test_in_a_project_that_differs_what_differs_is_a_conflict(place: Place, other: Place, tmp_path: Path) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", SCRIPT], fork="f")
    data = export(session, "f", tmp_path / "f.tar")
    project(other)
    other.write("edited", "not the same\n")
    other.write("gone/b/c", "not the same\n")
    other.write("again/3", "of this project alone\n")
    other.write("new/sub/f", "there already\n")
    (other.project / "removed").unlink()
    before = listing(other.project)
    there = other.session()
    found = take_in(there.vault, data)
    assert found.strangers >= 2
    landed = there.changes.apply("f")
    conflicts = {conflict.path for conflict in landed.conflicts}
    assert {b"edited", b"gone/b/c", b"again/3", b"new/sub/f"} <= conflicts
    after = listing(other.project)
    for name in ("edited", "gone/b/c", "again/3", "new/sub/f"):
        assert after[name] == before[name]
    assert "moved" not in after
    assert after["there"][2] == b"moved\n"
    assert after["mode"][1] & 0o100


def test_what_is_there_already_is_no_conflict(place: Place, other: Place, tmp_path: Path) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", b"echo more >> edited; rm removed; echo n > new"], fork="f")
    data = export(session, "f", tmp_path / "f.tar")
    project(other)
    other.write("edited", "edited\nmore\n")
    other.write("new", "n\n")
    (other.project / "removed").unlink()
    there = other.session()
    take_in(there.vault, data)
    assert there.changes.apply("f").conflicts == ()


def test_what_has_landed_there_is_a_change_here(place: Place, other: Place, tmp_path: Path) -> None:
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", b"echo more >> edited; echo x >> still"], fork="f")
    session.forks.checkpoint("f", "kept")
    session.changes.apply("f", [b"edited"])
    data = export(session, "f", tmp_path / "f.tar")
    project(other)
    there = other.session()
    take_in(there.vault, data)
    assert [change.path for change in there.changes.of("f").changes] == [b"edited", b"still"]
    assert there.changes.apply("f").conflicts == ()


def test_what_a_fork_cannot_take_along_is_said(place: Place, tmp_path: Path) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo x > suid; chmod 4755 suid; mkdir -m 2775 shared"], fork="f")
    with session.forks.at_rest("f") as fork:
        exported = export_fork(session.vault, fork, os.fsencode(tmp_path / "f.tar"), NOW)
    assert exported.remarks == ("suid: of its mode 4755 is left out: set-user-ID",)
    take_in(session.vault, (tmp_path / "f.tar").read_bytes(), "g")
    modes = {change.path: change.entry.mode for change in session.changes.of("g").changes}
    assert modes == {b"shared": 0o775, b"suid": 0o755}


@pytest.mark.parametrize("script", [
    "mkdir -m 7777 wide; echo f > wide/f",
    "mkdir -m 4755 d; chmod 4755 d; echo f > d/f",
    "chmod 7777 gone",
    "echo f > f; chmod 7777 f",
    "echo f > f; chmod 0 f; mkdir -m 0 closed",
    "rm removed; mkfifo removed; mkfifo -m 7777 new",
    "echo f > f; setfattr -n user.a=b%3D -v c=d f; setfattr -n user.x -v 0xff000a f",
    "mkdir d; setfattr -n user.mime_type -v x d; echo f > d/f",
    "setfattr -n \"$(printf 'user.\\377\\n')\" -v y edited",
    "ln -s /etc out; ln -s \"$(printf '../\\377\\n ')\" odd; ln -s ' ' ' '",
    "rm still; /usr/bin/python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('still')\"; mkfifo p",
])  # fmt: skip
def test_what_an_export_writes_an_import_takes(place: Place, tmp_path: Path, script: str) -> None:
    """A fork that was exported and discarded is not lost."""
    project(place)
    session = place.session()
    session.run([b"sh", b"-c", script.encode()], fork="f")
    survives(session, tmp_path)


def survives(session: Session, tmp_path: Path) -> None:
    """The fork ``f`` comes back with the same changes; only what is said about bits and kinds that never land may be
    less."""

    def changes() -> list[tuple[object, ...]]:
        found = session.changes.of("f")
        rows = [(*row[:5], [flag for flag in row[5] if flag != "reduced-mode"], *row[6:]) for row in shown(found)]  # type: ignore[attr-defined]
        entries = [change.staged and (change.staged.kind, change.staged.mode) for change in found.changes]
        targets = [change.staged and change.staged.target for change in found.changes]
        return list(zip(rows, entries, targets, strict=True))

    before, diff = changes(), list(session.changes.diff("f"))
    data = export(session, "f", tmp_path / "f.tar.gz")
    session.forks.discard("f")
    take_in(session.vault, data)
    assert changes() == before
    assert list(session.changes.diff("f")) == diff
    assert not before or session.changes.apply("f").conflicts == ()


RANDOM_TREE = """
import os, random, socket, sys
draw = random.Random(int(sys.argv[1]))
names = [b"a", b"edited", b"gone", b"x\\xff", b"new\\nline", b" ", b"-n", b"=%41", b"kind", "\u00e4".encode(), b"e\\\\"]
made = [b"."]
for number in range(30):
    path = os.path.join(draw.choice(made), draw.choice(names))
    mode = draw.choice([draw.randrange(0o10000), 0o644, 0o755, 0o4755, 0o7777, 0])
    try:
        what = draw.randrange(7)
        if what == 0:
            os.mkdir(path)
            made.append(path)
            os.chmod(path, mode | 0o300)
        elif what == 1:
            os.symlink(draw.choice([b"/etc", b"..", b"../../x", b"a", b"\\xff\\n", b" "]), path)
        elif what == 2:
            os.mkfifo(path)
            os.chmod(path, mode)
        elif what == 3:
            socket.socket(socket.AF_UNIX).bind(path)
        elif what == 4:
            os.unlink(path)
        elif os.path.isfile(path) or not os.path.lexists(path):  # opening a fifo would wait
            with open(path, "ab") as stream:
                stream.write(b"x" * number)
            if draw.random() < 0.3:
                os.setxattr(path, draw.choice([b"user.a", b"user.=", b"user.%3D", b"user.\\xff"]), b"\\0\\xff\\n")
            os.chmod(path, mode)
    except OSError:
        pass
"""


@pytest.mark.parametrize("seed", range(examples(40)))
def test_any_tree_survives(place: Place, tmp_path: Path, seed: int) -> None:
    project(place)
    session = place.session()
    result = session.run([b"/usr/bin/python3", b"-c", RANDOM_TREE.encode(), b"%d" % seed], fork="f")
    assert (result.exit_code, result.stderr) == (0, b"")
    assert result.changeset.changes
    survives(session, tmp_path)


def test_an_export_never_replaces_a_file(place: Place, tmp_path: Path) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    (tmp_path / "f.tar").write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        export(session, "f", tmp_path / "f.tar")
    assert (tmp_path / "f.tar").read_text() == "precious"


def test_an_export_that_fails_leaves_nothing(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        export(session, "f", tmp_path / "f.tar")
    assert list(tmp_path.glob("f.tar*")) == []


def test_an_export_that_cannot_be(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a caller's mistakes, and beyond a limit that is made small here."""
    session = place.session()
    session.run([b"sh", b"-c", b"head -c 200000 /dev/urandom > a; mkdir d; touch d/1 d/2"], fork="f")
    with pytest.raises(UsageError, match=whole("the id of a base has 32 bytes, this has 5")):
        session.export("f", io.BytesIO(), base=b"short")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    told = "the archive cannot be written: its stream does not wait (os.set_blocking(FD, True))"
    with open(writer, "wb", buffering=0) as stream, pytest.raises(MudroomError, match=whole(told)):
        session.export("f", cast("Any", stream), packed=False)
    os.close(reader)
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.vault.transfer.pack.HEADER_LIMIT", 60)
        told = r"\Athe attributes of \S+ are too large for an archive \(the fork is unchanged: apply it, or remove"
        with pytest.raises(MudroomError, match=told):
            session.export("f", io.BytesIO())
    fork = session.vault.fork("f")
    with fork.lock("a command that is killed"):
        fork.begin(CommandStart(1))
        told = "the last command of f was cut off (mudroom diff f collects what it did)"
        with pytest.raises(MudroomError, match=whole(told)):
            export_fork(session.vault, fork, os.fsencode(place.root / "f.tar"), NOW)
        fork.end()
    monkeypatch.setattr("mudroom.vault.transfer.pack.ENTRY_LIMIT", 3)
    told = "the fork has more than 3 entries, so it cannot be exported"
    hint = "the fork is unchanged: apply it, or remove the entry from it"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        session.export("f", io.BytesIO())
    assert {change.path for change in session.changes.of("f").changes} >= {b"a", b"d/2"}


# --- archives of anybody ---


def member(name: str, content: bytes = b"", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    info.size = len(content)
    return info


STATE = b"mudroom-fork 2\nupper up\nlayers \nbase live\ncreated 1\nend\n".replace(b"layers \n", b"layers\n")
HEAD: list[tuple[tarfile.TarInfo, bytes]] = [
    (member("mudroom-fork"), msgspec.msgpack.encode(Label(1, "evil", b"/x", 2, 1))),
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


def rows(*originals: tuple[object, ...]) -> bytes:
    data = msgspec.msgpack.encode(list(originals))
    return len(data).to_bytes(8, "little") + data


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
        ([(member("mudroom-fork"), msgspec.msgpack.encode((1, "f", b"/x", 9, 1)))], "vault of format 9"),
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
    for at in range(0, end, 512 * 17 + 100):
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
    for _time in range(150):
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
    sample: tuple[Session, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, data = sample
    names = [fork.name for fork in session.vault.forks()]
    for at in range(1, 400, 7):
        pid = os.fork()
        if pid == 0:
            try:
                counted(monkeypatch, at)
                take_in(session.vault, data, "g")
                os._exit(0)
            finally:
                os._exit(9)
        _pid, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == 7
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


def counted(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    count = [0]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] == at:
                os._exit(7)
            return function(*arguments, **named)

        return wrapped

    for name in ("mkdir", "rename", "unlink", "mknod", "symlink", "link", "write", "chmod"):
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
