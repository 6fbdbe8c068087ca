"""A held push's pack as a review reads it: against git, damaged, and made to unpack to too much."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import ENVIRONMENT, git

from mudroom.ext.effects import pack
from mudroom.ext.effects.pack import PackView, view_pack

SECRET = b"the secret"


def view(data: bytes, tmp_path: Path) -> PackView:
    """The view of a pack that lies behind other bytes."""
    (tmp_path / "request").write_bytes(b"head" + data)
    descriptor = os.open(tmp_path / "request", os.O_RDONLY)
    try:
        return view_pack(descriptor, 4, 4 + len(data), lambda text: SECRET in text)
    finally:
        os.close(descriptor)


def made(*entries: bytes, count: int | None = None) -> bytes:
    number = len(entries) if count is None else count
    body = b"PACK\0\0\0\2" + number.to_bytes(4, "big") + b"".join(entries)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def number(value: int) -> bytes:
    digits = []
    while True:
        digits.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(digits)


def entry(kind: int, content: bytes, base: bytes = b"", size: int | None = None) -> bytes:
    size = len(content) if size is None else size
    head = bytes([kind << 4 | size & 15 | (0x80 if size > 15 else 0)])
    return head + (number(size >> 4) if size > 15 else b"") + base + zlib.compress(content)


@pytest.fixture
def packed(tmp_path: Path) -> Iterator[tuple[Path, bytes]]:
    """A repository with 20 commits of one growing file and a tag, and its pack, which has deltas of both kinds."""
    root = tmp_path / "repository"
    root.mkdir()
    git("init", "-q", "-b", "main", at=root)
    lines = [hashlib.sha256(b"%d" % at).hexdigest() for at in range(200)]
    for at in range(20):
        lines[at * 7] = f"changed {at}"
        (root / "a").write_text("\n".join(lines))
        git("add", "a", at=root)
        git("commit", "-qm", f"commit {at}", at=root)
    git("tag", "-am", "a tag", "v1", at=root)
    listed = git("rev-list", "--objects", "--all", at=root).encode()
    command = ["git", "pack-objects", "--stdout", "-q"]
    done = subprocess.run(command, cwd=root, input=listed, capture_output=True, check=True, env=ENVIRONMENT)
    yield root, done.stdout


def test_it_has_the_commits_and_tags_that_git_has(packed: tuple[Path, bytes], tmp_path: Path) -> None:
    root, data = packed
    seen = view(data, tmp_path)
    rows = [line.split("\t") for line in git("log", "--format=%H%x09%P%x09%s", "main", at=root).splitlines()]
    assert {name: (" ".join(one.parents), one.subject) for name, one in seen.commits.items()} == {
        name: (parents, subject) for name, parents, subject in rows
    }
    assert seen.tags == {git("rev-parse", "v1", at=root): git("rev-parse", "main", at=root)}
    assert seen.is_whole and not seen.has_secret


@pytest.mark.parametrize("step", range(12))
def test_a_pack_that_is_cut_off_is_damaged_and_a_changed_one_is_not_shown_as_it_was(
    packed: tuple[Path, bytes], tmp_path: Path, step: int
) -> None:
    _root, data = packed
    with pytest.raises(ValueError, match=r"the pack is (cut off|damaged)"):
        view(data[: 13 + step * (len(data) - 60) // 12], tmp_path)
    at = 12 + step * (len(data) - 40) // 12
    try:
        seen = view(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], tmp_path)
    except ValueError:
        return
    assert seen != view(data, tmp_path)


BASE = b"0123456789" * 10
ID = hashlib.sha1(b"blob 100\0" + BASE, usedforsecurity=False).digest()
COPY = b"\x80\x7f\0\0\0"


@pytest.mark.parametrize(
    "entries",
    [
        [entry(3, b"a", size=5)],
        [entry(3, b"a" * 500, size=5)],
        [b"\xb0" + b"\xff" * 40 + zlib.compress(b"")],
        [entry(5, b"a")],
        [entry(0, b"a")],
        [entry(3, BASE), entry(7, number(100) + number(1 << 40) + COPY, ID)],
        [entry(3, BASE), entry(7, number(100) + number(10) + b"\x90\x64" * 5, ID)],
        [entry(3, BASE), entry(7, number(99) + number(10) + b"\x90\x0a", ID)],
        [entry(3, BASE), entry(7, number(100) + number(10) + b"\0", ID)],
        [entry(3, BASE), entry(7, number(100) + number(10) + b"\x0aabc", ID)],
        [entry(3, BASE), entry(7, b"\xff" * 30, ID)],
        [entry(3, BASE), entry(6, b"", b"\xff" * 30)],
        [entry(3, BASE)[:-3]],
    ],
)
def test_a_damaged_entry_is_said_to_be_one(entries: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the pack is (cut off|damaged)"):
        view(made(*entries), tmp_path)


def test_a_secret_is_found_in_objects_and_in_what_a_delta_adds(tmp_path: Path) -> None:
    delta = number(100) + number(len(SECRET)) + bytes([len(SECRET)]) + SECRET
    assert view(made(entry(3, SECRET)), tmp_path).has_secret
    assert view(made(entry(3, BASE), entry(7, delta, ID)), tmp_path).has_secret
    assert view(made(entry(7, delta, b"x" * 20)), tmp_path).has_secret, "its base is not there"
    assert not view(made(entry(3, BASE)), tmp_path).has_secret


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MOST_BYTES", 1 << 16)
    bomb = entry(3, b"\0" * (1 << 20))
    for entries in ([bomb], [entry(3, SECRET), bomb]):
        seen = view(made(*entries), tmp_path)
        assert not seen.is_whole and seen.has_secret == (len(entries) == 2)
    huge = entry(3, b"", size=1 << 60)
    assert not view(made(huge), tmp_path).is_whole
    monkeypatch.setattr(pack, "MOST_OBJECTS", 1)
    assert not view(made(entry(3, b"a"), entry(3, b"b")), tmp_path).is_whole
    assert not view(made(entry(3, b"a"), count=5), tmp_path).is_whole
