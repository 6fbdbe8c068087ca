"""Vaults: where they are, whose they are, and what a damaged or newer one leads to."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import Place
from inner_path import inner
from mudroom import __version__
from mudroom.core.settings import Settings
from mudroom.errors import OUTDATED, UPGRADE, MudroomError, UsageError
from mudroom.stage import disk, top_directory
from mudroom.vault.record import ForkRecord, load
from mudroom.vault.retention.schedule import tidy
from mudroom.vault.store import store
from mudroom.vault.store.store import open_vault, spread_layers, vault_path
from whole_text import whole


@pytest.mark.parametrize("name", ["abc", "ABC", "aBc", "Abc."])
def test_a_fork_has_one_spelling_where_the_file_system_folds_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """macOS and Windows: without the check a command in ``abc`` would go on in ``Abc``."""
    vault = open_vault(inner(tmp_path), b"/some/project")
    vault.new_fork("Abc")
    real = os.path.isdir

    def folded(path: bytes) -> bool:
        above, last = os.path.split(path)
        names = [other.lower() for other in os.listdir(above)] if real(above) else []
        return last.lower().rstrip(b".") in names

    importlib.import_module("mudroom.vault.store.store")  # pytest's hook of imports asks for directories, too
    monkeypatch.setattr(os.path, "isdir", folded)
    monkeypatch.setattr(store, "MAY_FOLD", True)
    told = f"the file system takes the name {name} for that of the fork Abc"
    hint = "write Abc, or a name that differs in more than upper and lower case"
    with pytest.raises(UsageError, match=whole(f"{told} ({hint})")):
        vault.find(name)
    assert vault.fork("Abc").name == "Abc"
    assert vault.find("abcd") is None


def test_projects_have_vaults_of_their_own(tmp_path: Path) -> None:
    state = inner(tmp_path)
    paths = {vault_path(state, project) for project in (b"/a/x", b"/b/x", b"/a/x y", b"/a/\xff", b"/a/x/")}
    assert len(paths) == 5
    assert all(path.startswith(state + b"/vaults/") for path in paths)
    assert all(path.rpartition(b"/")[2].isascii() for path in paths)


def test_a_vault_is_private_and_found_again(tmp_path: Path) -> None:
    vault = open_vault(inner(tmp_path), b"/some/project")
    assert os.stat(vault.path).st_mode & 0o777 == 0o700
    vault.new_fork("f")
    again = open_vault(inner(tmp_path), b"/some/project")
    assert [fork.name for fork in again.forks()] == ["f"]
    with pytest.raises(UsageError, match="there is a fork named f already"):
        again.new_fork("f")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ioctls that are made, on a disk that says that it is ext4."""
    import fcntl

    made: list[int] = []
    real = fcntl.ioctl

    def noted(descriptor: int, number: int, *rest: Any) -> Any:
        made.append(number)
        return real(descriptor, number, *rest)

    monkeypatch.setattr(top_directory, "filesystem_magic", lambda _path: 0xEF53)
    monkeypatch.setattr(fcntl, "ioctl", noted)
    return made


def test_a_vault_spreads_its_layers_once(tmp_path: Path, calls: list[int]) -> None:
    """The flags are read and set; neither opening the vault again nor a fork asks any more."""
    vault = open_vault(inner(tmp_path), b"/p")
    assert 1 <= len(calls) <= 2
    calls.clear()
    open_vault(inner(tmp_path), b"/p").new_fork("f")
    assert not calls
    tidy(vault, Settings(), 10**18)
    assert 1 <= len(calls) <= 2, "an older vault is marked with the day's upkeep"


@pytest.mark.parametrize("number", [errno.ENOTTY, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES])
def test_a_file_system_that_refuses_to_spread(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_arguments: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.ioctl", refused)
    vault = open_vault(inner(tmp_path), b"/p")
    assert spread_layers(vault) is False
    assert vault.new_fork("f")


@pytest.mark.parametrize(
    ("written", "told", "hint"),
    [
        ("3\n", "has format 3, this mudroom knows 2", UPGRADE),
        ("1\n", "has format 1, this mudroom knows 2", OUTDATED),
        (
            "3 0.2.0\n",
            "was made by mudroom 0.2.0: it has format 3, this mudroom knows 2",
            "install it: pipx install --force mudroom==0.2.0",
        ),
    ],
)
def test_another_format_is_refused_and_not_changed(tmp_path: Path, written: str, told: str, hint: str) -> None:
    path = os.fsdecode(open_vault(inner(tmp_path), b"/p").path)
    assert Path(path, "format").read_text() == f"2 {__version__}\n"
    Path(path, "format").write_text(written)
    before = sorted((found, found.stat().st_mtime_ns) for found in Path(path).rglob("*"))
    with pytest.raises(MudroomError) as caught:
        open_vault(inner(tmp_path), b"/p")
    assert (caught.value.message, caught.value.hint) == (f"the vault {path} {told}", hint)
    assert sorted((found, found.stat().st_mtime_ns) for found in Path(path).rglob("*")) == before


@pytest.mark.parametrize("written", ["2\n", "2 0.0.9\n", "2 9.0\n"])
def test_a_vault_of_the_same_format_opens_whichever_version_made_it(tmp_path: Path, written: str) -> None:
    path = os.fsdecode(open_vault(inner(tmp_path), b"/p").path)
    Path(path, "format").write_text(written)
    assert os.fsdecode(open_vault(inner(tmp_path), b"/p").path) == path


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in its place, and /proc, in which nothing can be made."""
    (tmp_path / "file").write_text("")
    places = [(inner(tmp_path / "file"), ".*")]  # Windows has another reason
    if sys.platform == "linux":
        places = [(os.fsencode(tmp_path / "file"), "Not a directory"), (b"/proc/x", "No such file or directory")]
    for state, reason in places:
        told = re.escape(f"the vault {os.fsdecode(vault_path(state, b'/p'))} cannot be made: ")
        with pytest.raises(MudroomError, match=f"^{told}{reason} .set MUDROOM_STATE to a directory you may write to.$"):
            open_vault(state, b"/p")


@pytest.mark.parametrize("content", [b"\x93\x01", b"garbage", b"\x98\x01\x02\x03"])
def test_a_damaged_record_is_named_and_others_are_not_affected(place: Place, content: bytes) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="good")
    session.run([b"touch", b"b"], fork="bad")
    record = Path(os.fsdecode(session.vault.fork("bad").record_path))
    record.write_bytes(content)
    with pytest.raises(MudroomError, match="record is damaged"):
        session.changes.of("bad")
    assert [change.path for change in session.changes.of("good").changes] == [b"a"]


def test_a_record_of_a_newer_format_is_refused(place: Place) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    record = Path(os.fsdecode(session.vault.fork("f").record_path))
    content = record.read_bytes()
    record.write_bytes(content.replace(b"\x03", b"\x07", 1))
    with pytest.raises(MudroomError, match="has format 7"):
        load(inner(record), ForkRecord)


def test_discarding_does_not_need_permissions_inside(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"mkdir -p a/b/c; touch a/b/c/f; chmod 000 a/b/c a/b a"], fork="f")
    session.forks.discard("f")
    assert session.vault.forks() == []
    assert os.listdir(session.vault.path + b"/trash") == []


@pytest.mark.parametrize("reason", [errno.ENOTEMPTY, errno.EBUSY])
def test_a_file_that_is_open_on_nfs_or_fuse_does_not_fail_an_apply(
    place: Place, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """Such a file system renames an open file that is removed, and its directory stays until it is closed."""
    place.write("gone/f", "x")
    session = place.session()
    session.run([b"sh", b"-c", b"rm -r gone; echo x > new"], fork="f")
    trash = place.state / "vaults" / os.fsdecode(os.path.basename(session.vault.path)) / "trash"

    def held(path: bytes, *, dir_fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{dir_fd}") == str(trash):
            raise OSError(reason, os.strerror(reason))
        rmdir(path, dir_fd=dir_fd)

    rmdir = os.rmdir
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", SimpleNamespace(**{**vars(os), "rmdir": held}))
        assert session.changes.apply("f").conflicts == ()
        assert len(os.listdir(trash)) == 1
    session.vault.empty_trash()
    assert os.listdir(trash) == []


@pytest.mark.parametrize("as_fuse_overlayfs", ["hides it", "refuses it"])
def test_state_that_cannot_keep_deletions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_fuse_overlayfs: str
) -> None:
    def make(_above: int, name: bytes) -> None:
        if as_fuse_overlayfs == "refuses it":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    with monkeypatch.context() as patch:
        patch.setattr(store, "make_whiteout", make)
        with pytest.raises(MudroomError) as told:
            open_vault(inner(tmp_path), b"/project")
    assert told.value.message == (
        f"{os.fsdecode(vault_path(inner(tmp_path), b'/project'))} is on a file system that "
        "cannot keep what a fork deletes (fuse-overlayfs?)"
    )
    another = "set MUDROOM_STATE to a directory on another one, such as a volume: MUDROOM_STATE=/var/tmp/mudroom"
    assert told.value.hint == another
    open_vault(inner(tmp_path), b"/project").close()


def test_two_make_the_vault_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is stopped before each rename and each removal, while the other makes the whole vault."""
    state, made = inner(tmp_path), list[bytes]()

    def other(*words: Any, **options: Any) -> None:
        if not made:
            made.append(b"")
            open_vault(state, b"/project").close()
        rename(*words, **options)

    rename = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", other)
        open_vault(state, b"/project").close()
    path = vault_path(state, b"/project")
    assert made and not [name for name in os.listdir(path) if b"-" in name]
