"""Forks that leave a room and come into one: what a program writes for it, and what it gets wrong."""

from __future__ import annotations

import gzip
import io
import os
import pty
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import MudroomError, UsageError
from rooms import open_room


def test_files_pipes_and_names(place: Place, tmp_path: Path) -> None:
    with open_room(place) as room:
        room.run("echo x > made", fork="f")
        written = room.export("f", tmp_path / "f.tar.gz")
        data = (tmp_path / "f.tar.gz").read_bytes()
        assert (written.size, written.notes) == (len(data), ())
        plain = io.BytesIO()
        room.export("f", plain, packed=False)
        assert gzip.decompress(data)[:11] == plain.getvalue()[:11] == b"mudroom-fork"[:11]
        found = room.arrive([tmp_path / "f.tar.gz", ("g", io.BytesIO(data)), io.BytesIO(b"")])
        assert [(row.state, row.fork, row.changed) for row in found] == [
            ("new", "f-2", 1), ("new", "g", 1), ("refused", "", 0),
        ]  # fmt: skip
        assert found[0].check().ok
        with pytest.raises(MudroomError, match="cannot be imported"):
            found[2].check()
        base = os.urandom(32)
        named = io.BytesIO()
        room.export("f", named, base=base)
        assert "is not known here" in room.arrive([io.BytesIO(named.getvalue())])[0].problem
        assert room.arrive([("h", io.BytesIO(named.getvalue()))], bases=[base])[0].fork == "h"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "the archive is NoneType, not a path or a stream of bytes"),
        (io.StringIO(), "StringIO, not a path"),
        ("", "an empty path"),
    ],
)
def test_what_is_no_archive(place: Place, target: Any, message: str) -> None:
    with open_room(place) as room:
        room.run("echo x > made", fork="f")
        with pytest.raises(UsageError, match=message):
            room.export("f", target)
        with pytest.raises(UsageError, match=message):
            room.arrive([target])


def test_a_terminal_and_other_mistakes(place: Place, tmp_path: Path) -> None:
    with open_room(place) as room:
        room.run("echo x > made", fork="f")
        leader, follower = pty.openpty()
        with open(follower, "r+b", buffering=0) as terminal:
            with pytest.raises(UsageError, match="the archive is a terminal"):
                room.export("f", terminal)
            with pytest.raises(UsageError, match="the archive is a terminal"):
                room.arrive([terminal])
        os.close(leader)
        for wrong in ("f.tar", b"f.tar", None):
            with pytest.raises(UsageError, match="archives is not a list"):
                room.arrive(wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="does not exist"):
            room.arrive([tmp_path / "none"])
        with pytest.raises(UsageError, match="has 32 bytes"):
            room.export("f", io.BytesIO(), base=b"short")
        (tmp_path / "there").touch()
        with pytest.raises(UsageError, match="exists already"):
            room.export("f", tmp_path / "there")
        with pytest.raises(UsageError, match="no fork named"):
            room.export("none", tmp_path / "new")
        assert sorted(path.name for path in tmp_path.glob("new*")) == []
