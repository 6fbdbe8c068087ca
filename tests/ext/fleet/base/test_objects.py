"""The object store: verified, bounded, its user's alone, and never half a file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from box import if_namespaces
from mudroom.errors import UsageError
from mudroom.ext.fleet.base import objects as storing
from mudroom.ext.fleet.base.manifest import (
    DIRECTORY,
    FILE,
    RefusedBase,
    Row,
    digest_of_content,
    digest_of_node,
    encode_node,
)
from mudroom.ext.fleet.base.objects import Missing, ObjectStore, StoreFull
from mudroom.ext.fleet.base.pack import PART, PackRow, RefusedPack
from mudroom.ext.fleet.wire.message import Base


@pytest.fixture
def directory(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "objects")


def put(store: ObjectStore, *contents: bytes) -> list[bytes]:
    for data in contents:
        store.put(digest_of_content(data), data)
    return [digest_of_content(data) for data in contents]


def files(directory: bytes) -> list[bytes]:
    return [os.path.join(at, name) for at, _below, names in os.walk(directory) for name in names]


def test_an_object_is_there_also_in_the_next_process(directory: bytes) -> None:
    store = ObjectStore(directory)
    (digest,) = put(store, b"content")
    node = encode_node([])
    store.put(digest_of_node(node), node, is_node=True)
    store.close()
    again = ObjectStore(directory)
    assert again.has(digest) and again.get(digest) == b"content"
    assert again.node(digest_of_node(node)) == node
    with pytest.raises(KeyError):
        again.node(digest)  # a file is no node
    with pytest.raises(KeyError):
        again.get(digest_of_content(b"other"))


def test_only_the_content_of_the_digest_is_stored(directory: bytes) -> None:
    store = ObjectStore(directory)
    with pytest.raises(RefusedPack):
        store.put(digest_of_content(b"a"), b"b")
    with pytest.raises(RefusedPack):
        store.put(digest_of_content(b"a"), b"a", is_node=True)
    assert files(directory) == []


def test_the_directory_is_its_users_alone(directory: bytes, tmp_path: Path) -> None:
    ObjectStore(directory)
    assert all(os.lstat(at).st_mode & 0o077 == 0 for at, _below, _names in os.walk(directory))
    os.chmod(directory, 0o755)
    with pytest.raises(UsageError, match="yours alone"):
        ObjectStore(directory)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="yours alone"):
        ObjectStore(os.fsencode(tmp_path / "link"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="yours alone"):
        ObjectStore(os.fsencode(tmp_path / "file"))


def test_what_was_used_longest_ago_goes_first(directory: bytes) -> None:
    store = ObjectStore(directory, 3500)
    first, second, third = put(store, b"1" * 1000, b"2" * 1000, b"3" * 1000)
    for age, path in enumerate(sorted(files(directory), key=lambda path: os.stat(path).st_mtime_ns)):
        os.utime(path, (age, age))
    (fourth,) = put(store, b"4" * 1000)
    assert [store.has(digest) for digest in (first, second, third, fourth)] == [False, True, True, True]
    assert store.used() <= 3500
    store.evict(0)
    assert store.used() == 0 and not store.has(fourth)
    with pytest.raises(StoreFull, match="keeps 3,500"):
        put(store, bytes(4000))


def test_content_in_use_survives_its_eviction(directory: bytes) -> None:
    store = ObjectStore(directory)
    (digest,) = put(store, b"content")
    view = store.view(digest)
    store.evict(0)
    assert bytes(view) == b"content"


def test_another_process_may_evict(directory: bytes) -> None:
    store, other = ObjectStore(directory), ObjectStore(directory)
    large = bytes(range(256)) * (PART // 256) + b"end"
    digest = digest_of_content(large)
    for offset in (0, PART):
        part = large[offset : offset + PART]
        store.put_part(PackRow(False, digest, len(large), offset, len(part)), memoryview(part))
    (small,) = put(store, b"small")
    assert store.is_file(digest) and not store.is_file(small)
    other.evict(0)
    with pytest.raises(KeyError):
        store.get(digest)
    assert not store.has(digest)
    assert store.get(small) == b"small"  # mapped


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_no_half_object(directory: bytes, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(directory)

    def full(descriptor: int, data: memoryview) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(number, os.strerror(number))

    real = os.write
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFull, match="is full"):
        put(store, bytes(200))
    digest = digest_of_content(b"x" * (PART + 1))
    with pytest.raises(StoreFull, match="is full"):
        store.put_part(PackRow(False, digest, PART + 1, 0, PART), memoryview(b"x" * PART))
    monkeypatch.undo()
    assert files(directory) == []
    put(store, bytes(200))


ON_A_SMALL_DISK = """
import os, subprocess, sys
from mudroom.ext.fleet.base.manifest import digest_of_content
from mudroom.ext.fleet.base.objects import ObjectStore, StoreFull
disk = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "small", disk], check=True)
store = ObjectStore(os.fsencode(disk) + b"/objects")
large = os.urandom(100_000)
try:
    store.put(digest_of_content(large), large)
except StoreFull as error:
    print(error.message)
store.put(digest_of_content(b"small"), b"small")
print(sum(len(names) for _at, _below, names in os.walk(disk)), store.get(digest_of_content(b"small")))
"""


@if_namespaces
def test_a_real_full_disk(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "the worker has no room for the base: its disk is full\n1 b'small'\n"


def test_objects_of_an_earlier_boot_are_dropped(directory: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(directory)
    (digest,) = put(store, b"content")
    store.close()
    monkeypatch.setattr(storing, "boot_id", lambda: b"another")
    again = ObjectStore(directory)
    assert not again.has(digest)
    assert files(directory) == []


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "2^32"])
def test_a_damaged_pack_is_no_pack(directory: bytes, damage: str) -> None:
    store = ObjectStore(directory)
    (digest,) = put(store, b"content")
    store.close()
    (path,) = files(directory)
    with open(path, "rb") as stream:
        data = stream.read()
    with open(path, "wb") as stream:
        stream.write({"empty": b"", "cut": data[:20], "noise": b"\0\0\0\3abc", "2^32": b"\xff" * 4 + data[4:]}[damage])
    again = ObjectStore(directory)
    assert not again.has(digest)
    assert put(again, b"content") == [digest]


# --- what a base lacks ---

LEAF = encode_node([Row(b"f", FILE, 0o644, 0, 4, digest_of_content(b"leaf"))])
TOP = encode_node(
    [
        Row(b"a", FILE, 0o644, 0, 3, digest_of_content(b"top")),
        Row(b"d", DIRECTORY, 0o755, 0, 0, digest_of_node(LEAF)),
        Row(b"e", DIRECTORY, 0o755, 0, 0, digest_of_node(LEAF)),
    ]
)
BASE = Base(digest_of_node(TOP), b"/p", b"/h", (), (), 0o022)


def test_a_base_is_asked_for_level_by_level(directory: bytes) -> None:
    store = ObjectStore(directory)
    assert store.missing(BASE) == Missing((digest_of_node(TOP),), ())
    store.put(digest_of_node(TOP), TOP, is_node=True)
    assert store.missing(BASE) == Missing((digest_of_node(LEAF),), ())
    store.put(digest_of_node(LEAF), LEAF, is_node=True)
    top, leaf = digest_of_content(b"top"), digest_of_content(b"leaf")
    assert store.missing(BASE) == Missing((), (top, leaf))
    assert store.missing(BASE, lambda digest: digest == leaf) == Missing((), (top,))
    put(store, b"top", b"leaf")
    assert store.missing(BASE) == Missing((), ())


def test_a_base_that_can_never_fit_is_refused_before_it_is_sent(directory: bytes) -> None:
    store = ObjectStore(directory, 10_000)
    huge = encode_node([Row(b"f", FILE, 0o644, 0, 20_000, digest_of_content(b"huge"))])
    store.put(digest_of_node(huge), huge, is_node=True)
    with pytest.raises(StoreFull, match="20,000 bytes"):
        store.missing(BASE._replace(root=digest_of_node(huge)))
    bomb = encode_node([Row(b"f", FILE, 0o644, 0, 1 << 62, digest_of_content(b"huge"))])
    store.put(digest_of_node(bomb), bomb, is_node=True)
    with pytest.raises(RefusedBase):
        store.missing(BASE._replace(root=digest_of_node(bomb)))
