"""Directories as an archive for engines: only files that every user can read, and no additional rights."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from mudroom.ext.containers.engine.building import PackedTree, pack_host

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/lib/modules/6.1").mkdir(parents=True)
    (tmp_path / "usr/lib/modules/6.1/big").write_bytes(b"x")
    (tmp_path / "etc/ssl").mkdir(parents=True)
    (tmp_path / "home/u").mkdir(parents=True)
    (tmp_path / "home/u/secret").write_bytes(b"x")
    (tmp_path / "usr/bin/tool").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "usr/bin/tool").chmod(0o4755)
    (tmp_path / "usr/bin/same").hardlink_to(tmp_path / "usr/bin/tool")
    (tmp_path / "usr/bin/caf\udce9").write_bytes(b"1")
    (tmp_path / ("usr/bin/" + "n" * 200)).write_bytes(b"12")
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "etc/shadow").write_bytes(b"secret")
    (tmp_path / "etc/shadow").chmod(0o640)
    (tmp_path / "etc/private").mkdir(mode=0o700)
    (tmp_path / "etc/private").chmod(0o700)
    (tmp_path / "etc/private/key").write_bytes(b"x")
    (tmp_path / "etc/private/key").chmod(0o600)
    os.mkfifo(tmp_path / "etc/fifo")
    return tmp_path


def packed(root: Path) -> tuple[PackedTree, dict[str, tarfile.TarInfo]]:
    stream = io.BytesIO()
    told: list[int] = []
    found = pack_host(stream, told.append, os.fsencode(root))
    assert told
    stream.seek(0)
    with tarfile.open(fileobj=stream, errors="surrogateescape") as archive:
        return found, {info.name: info for info in archive}


def test_what_everybody_can_read_and_nothing_else(root: Path) -> None:
    found, entries = packed(root)
    names = set(entries)
    assert {"usr/bin/tool", "usr/bin/same", "usr/bin/caf\udce9", "usr/bin/" + "n" * 200, "bin", "etc/ssl"} <= names
    assert not {"etc/shadow", "etc/private", "etc/private/key", "etc/fifo", "home/u", "usr/lib/modules"} & names
    assert (entries["bin"].issym(), entries["bin"].linkname) == (True, "usr/bin")
    assert found.left_out == 4
    assert found.bytes == len("#!/bin/sh\n") + 3


def test_nothing_in_it_gives_anybody_more(root: Path) -> None:
    _found, entries = packed(root)
    assert {(info.uid, info.gid) for info in entries.values()} == {(0, 0)}
    assert not [name for name, info in entries.items() if info.mode & 0o6000]
    assert all(info.isreg() or info.isdir() or info.issym() or info.islnk() for info in entries.values())


def test_the_places_to_mount_at(root: Path) -> None:
    _found, entries = packed(root)
    for name, mode in (("proc", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("home", 0o755), (".", 0o755)):
        assert (entries[name].isdir(), entries[name].mode) == (True, mode)


def test_whoever_takes_it_may_end_before(root: Path) -> None:
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as taking:
        taking.wait()
        assert taking.stdin is not None
        (root / "usr/bin/large").write_bytes(bytes(1 << 20))
        with pytest.raises(BrokenPipeError):
            pack_host(taking.stdin, lambda _size: None, os.fsencode(root))
