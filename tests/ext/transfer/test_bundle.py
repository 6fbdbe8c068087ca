"""A fork as a file: what goes out comes in, here and elsewhere."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from bundle_place import NOW, SCRIPT, export, project, shown, take_in

from conftest import Place, listing
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.transfer.archives import export as export_stream
from mudroom.ext.transfer.vault.bundle import export_fork
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage.source import walk
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.retention.check import check
from mudroom.vault.store.spare_base import SPARE
from mudroom.vault.store.store import Vault
from tiers import examples
from whole_text import whole


@pytest.fixture
def other(tmp_path: Path, client: Client) -> Place:
    root = tmp_path / "other"
    root.mkdir()
    return Place(root, client)


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


def test_a_snapshot_of_an_archive_is_no_spare(place: Place, other: Place, tmp_path: Path) -> None:
    """It may hold files that are in no manifest, in a directory that was closed when it was unpacked."""
    place.write("kept", "kept\n")
    session = place.session()
    session.forks.new("f", snapshot=True)
    there = other.session()
    take_in(there.vault, export(session, "f", tmp_path / "f.tar"))
    for vault, spares in ((session.vault, [os.fsencode(SPARE)] if sys.platform == "linux" else []), (there.vault, [])):
        fork = vault.fork("f")
        with fork.lock("test"):
            vault.discard(fork, spares=True)
        assert os.listdir(vault.path + b"/bases") == spares


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
        export_stream(session, "f", io.BytesIO(), base=b"short")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    told = "the archive cannot be written: its stream does not wait (os.set_blocking(FD, True))"
    with open(writer, "wb", buffering=0) as stream, pytest.raises(MudroomError, match=whole(told)):
        export_stream(session, "f", cast("Any", stream), packed=False)
    os.close(reader)
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.ext.transfer.vault.pack.HEADER_LIMIT", 60)
        told = r"\Athe attributes of \S+ are too large for an archive \(the fork is unchanged: apply it, or remove"
        with pytest.raises(MudroomError, match=told):
            export_stream(session, "f", io.BytesIO())
    fork = session.vault.fork("f")
    with fork.lock("a command that is killed"):
        fork.begin(CommandStart(1))
        told = "the last command of f was cut off (mudroom diff f collects what it did)"
        with pytest.raises(MudroomError, match=whole(told)):
            export_fork(session.vault, fork, os.fsencode(place.root / "f.tar"), NOW)
        fork.end()
    monkeypatch.setattr("mudroom.ext.transfer.vault.pack.ENTRY_LIMIT", 3)
    told = "the fork has more than 3 entries, so it cannot be exported"
    hint = "the fork is unchanged: apply it, or remove the entry from it"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        export_stream(session, "f", io.BytesIO())
    assert {change.path for change in session.changes.of("f").changes} >= {b"a", b"d/2"}
