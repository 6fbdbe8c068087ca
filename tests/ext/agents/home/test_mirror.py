"""A credential store that is one file and that the host replaces while a command has the old one."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.confinement.spec import Bind
from mudroom.ext.agents.home.mirror import LIMIT, SETTLED, Mirror, mirror_of


class Store:
    """A file of the host, and the inode of it that a command has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text("first")
        path.chmod(0o640)
        seconds = itertools.count(0.0, SETTLED)
        self.inside = os.open(path, os.O_RDWR)
        self.mirror = Mirror([os.fsencode(path)], lambda: next(seconds))

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
            self.mirror.look()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "token")
    yield store
    store.mirror.close()
    os.close(store.inside)
    assert [name for name in os.listdir(tmp_path) if "mudroom" in name] == []


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
        store.look()
        assert store.seen() == text
        store.path.write_text(text + "!")
        store.look()
        assert store.seen() == text + "!"


def test_what_is_written_inside_then_is_seen_outside(store: Store) -> None:
    store.replace("two")
    store.look()
    store.command("three")
    store.look()
    assert store.path.read_text() == "two", "it may be in the middle of writing"
    store.look()
    assert store.path.read_text() == "three"
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o604
    store.look(3)
    assert store.seen() == store.path.read_text() == "three"
    store.command("four")
    store.mirror.close()
    assert store.path.read_text() == "four", "the last look, when the command has ended"


def test_an_empty_file_is_never_taken_from_inside(store: Store) -> None:
    store.replace("two")
    store.look()
    store.command("")
    store.look(3)
    store.mirror.close()
    assert store.path.read_text() == "two"


def test_when_both_have_changed_the_hosts_counts(store: Store) -> None:
    store.replace("two")
    store.look()
    store.command("inside")
    store.look()
    store.replace("outside")
    store.look(3)
    assert store.seen() == store.path.read_text() == "outside"


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
            stream.truncate(LIMIT + 1)
    store.look(2)
    store.command("inside")
    store.look(3)
    store.mirror.close()
    assert store.seen() == "inside"
    assert other.read_text() == "not named"
    assert os.path.lexists(store.path) == (what != "nothing")
    assert store.path.is_symlink() == (what == "link")


def test_only_files_that_may_be_written_have_one(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    binds = [Bind(os.fsencode(tmp_path / name), b"/x", True) for name in ("directory", "none")]
    assert mirror_of(binds) is None
    assert mirror_of([Bind(os.fsencode(tmp_path / "file"), b"/x", False)]) is None
    found = mirror_of([Bind(os.fsencode(tmp_path / "file"), b"/x", True)])
    assert found is not None
    found.close()


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
    store.look(3)
    assert store.path.read_text() == "from inside"
