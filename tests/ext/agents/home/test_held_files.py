"""A single-file store that is a mount: the host replaces the file, and a command has the old inode."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.ext.agents.core.login import LARGEST
from mudroom.ext.agents.home import login as login_module
from mudroom.ext.agents.home.login import FILES, LoginKeeper


class Store:
    """A file of the host, and the inode of it that a command has."""

    def __init__(self, root: Path) -> None:
        self.path = root / "home/token"
        self.path.parent.mkdir()
        self.path.write_text("first")
        self.path.chmod(0o640)
        self.inside = os.open(self.path, os.O_RDWR)
        self.keeper = LoginKeeper(os.fsencode(root) + b"/state/vaults/v/forks/f/home/" + FILES)
        self.keeper.hold([(b"token", os.fsencode(self.path))])

    def command(self, text: str) -> None:
        os.ftruncate(self.inside, 0)
        os.pwrite(self.inside, text.encode(), 0)

    def seen(self) -> str:
        return os.pread(self.inside, 1 << 20, 0).decode()

    def replace(self, text: str) -> None:
        new = self.path.with_name("new")
        new.write_text(text)
        new.chmod(0o604)
        os.rename(new, self.path)

    def look(self, times: int = 1) -> None:
        for _time in range(times):
            self.keeper.look()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(login_module, "SETTLED", 0.0)
    store = Store(tmp_path)
    yield store
    store.keeper.close()
    os.close(store.inside)
    assert [name for name in os.listdir(store.path.parent) if "mudroom" in name] == []


def test_as_long_as_it_is_one_file_nothing_is_done(store: Store) -> None:
    before = store.path.stat()
    store.look(3)
    assert store.path.stat() == before
    store.command("inside")
    store.look(3)
    assert (store.path.read_text(), store.path.stat().st_ino) == ("inside", before.st_ino)


def test_what_the_host_puts_in_its_place_is_seen_inside(store: Store) -> None:
    for text in ("longer than before", "short", "x" * 70_000):
        store.replace(text)
        store.look(2)
        assert store.seen() == text
        store.path.write_text(text + "!")
        store.look(2)
        assert store.seen() == text + "!"


def test_what_is_written_inside_then_is_seen_outside(store: Store) -> None:
    store.replace("two")
    store.look(2)
    store.command("three")
    store.look()
    assert store.path.read_text() == "two", "it may be in the middle of writing"
    store.look()
    assert store.path.read_text() == "three"
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o604
    store.look(3)
    assert store.seen() == store.path.read_text() == "three"
    store.command("four")
    store.keeper.close()
    assert store.path.read_text() == "four", "the last look, when the command has ended"


def test_an_empty_file_is_never_taken_from_inside(store: Store) -> None:
    store.replace("two")
    store.look(2)
    store.command("")
    store.look(3)
    store.keeper.close()
    assert store.path.read_text() == "two"


def test_when_both_have_changed_the_newer_counts_and_the_other_is_named(store: Store) -> None:
    store.replace("two")
    store.look(2)
    store.command("inside")
    store.replace("outside")
    os.utime(store.path, ns=(2 << 60, 2 << 60))
    store.look(2)
    assert store.seen() == store.path.read_text() == "outside"
    (note,) = store.keeper.notes
    assert note.startswith("~/token was renewed inside and on this machine: the one on this machine is newer")
    assert Path(note.rpartition(": ")[2]).read_text() == "inside"


@pytest.mark.parametrize("what", ["link", "directory", "fifo", "nothing", "large"])
def test_what_is_no_file_is_left_alone(store: Store, what: str) -> None:
    other = store.path.with_name("other")
    other.write_text("not named")
    store.path.unlink()
    if what == "link":
        store.path.symlink_to(other)
    elif what == "directory":
        store.path.mkdir()
    elif what == "fifo":
        os.mkfifo(store.path)
    elif what == "large":
        with store.path.open("wb") as stream:
            stream.truncate(LARGEST + 1)
    store.look(2)
    store.command("inside")
    store.look(3)
    store.keeper.close()
    assert store.seen() == "inside"
    assert other.read_text() == "not named"
    assert os.path.lexists(store.path) == (what != "nothing")
    assert store.path.is_symlink() == (what == "link")


def test_a_file_that_is_gone_or_a_directory_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    keeper = LoginKeeper(os.fsencode(tmp_path) + b"/state/vaults/v/forks/f/home/" + FILES)
    keeper.hold((name.encode(), os.fsencode(tmp_path / name)) for name in ("directory", "none"))
    keeper.look()
    keeper.close()
    assert keeper.notes == []


def test_what_a_full_disk_cuts_off_does_not_replace_the_host_s(store: Store) -> None:
    """write(2) across the limit of a file's size writes a part, as on a disk that becomes full."""
    resource = pytest.importorskip("resource")
    store.replace("second")
    store.look()
    store.command("from inside")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        store.look(3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.path.read_text() == "second"
    store.keeper.close()
    assert store.path.read_text() == "from inside"
