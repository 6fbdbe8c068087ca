"""Packs and indexes that an agent has written: what is not as git writes it does not come."""

from __future__ import annotations

import hashlib
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from handgit import Copy, git, pack_header
from hostile import copy, refused, with_tree

from mudroom.ext.commits.git import pack

__all__ = ["copy"]  # a fixture
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


# --- packs ---


def write_pack(copy: Copy, entries: list[tuple[int, bytes, int, bytes]], offsets: dict[str, int]) -> Path:
    """A pack of (kind, what follows the header, size, content), and an index that says where objects are.

    An offset of ``offsets`` is the position of an entry."""
    data, at = [b"PACK" + struct.pack(">LL", 2, len(entries))], [12]
    for kind, base, size, content in entries:
        data.append(pack_header(kind, size) + base + zlib.compress(content))
        at.append(at[-1] + len(data[-1]))
    whole = b"".join(data)
    whole += hashlib.sha1(whole).digest()
    listed = sorted((bytes.fromhex(name), at[position]) for name, position in offsets.items())
    fan = [sum(name[0] <= first for name, _offset in listed) for first in range(256)]
    index = b"\xfftOc" + struct.pack(">L256L", 2, *fan) + b"".join(name for name, _offset in listed)
    index += bytes(4 * len(listed)) + b"".join(struct.pack(">L", offset) for _name, offset in listed)
    directory = copy.fork / ".git/objects/pack"
    (directory / "pack-evil.pack").write_bytes(whole)
    (directory / "pack-evil.idx").write_bytes(index + whole[-20:] + bytes(20))
    return directory / "pack-evil.idx"


def distance(back: int) -> bytes:
    """How far back the base of a delta is, as git writes it."""
    found = [back & 0x7F]
    while back := back >> 7:
        back -= 1
        found.insert(0, 0x80 | back & 0x7F)
    return bytes(found)


def number(value: int) -> bytes:
    found = []
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def hashed(data: bytes, kind: bytes = b"blob") -> str:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).hexdigest()


def chain(length: int) -> tuple[list[tuple[int, bytes, int, bytes]], str]:
    """An object at the end of as many deltas, each of which adds a byte; and the name of it."""
    entries: list[tuple[int, bytes, int, bytes]] = [(3, b"", 1, b"x")]
    before = len(pack_header(3, 1) + zlib.compress(b"x"))
    for size in range(1, length + 1):
        delta = number(size) + number(size + 1) + b"\x90" + bytes([min(size, 255)]) + (b"\x01" + b"x")
        if size > 255:  # copy of two bytes of length
            delta = number(size) + number(size + 1) + b"\xb0" + struct.pack("<H", size) + b"\x01x"
        entries.append((6, distance(before), len(delta), delta))
        before = len(pack_header(6, len(delta)) + distance(before) + zlib.compress(delta))
    return entries, hashed(b"x" * (length + 1))


def test_a_long_chain_of_deltas(copy: Copy) -> None:
    entries, name = chain(pack.DEPTH_LIMIT)
    write_pack(copy, entries, {name: pack.DEPTH_LIMIT})
    with_tree(copy, ("100644", b"x", name))
    assert copy.bring().objects == 3


def test_a_longer_chain_than_git_writes(copy: Copy) -> None:
    entries, name = chain(pack.DEPTH_LIMIT + 1)
    write_pack(copy, entries, {name: pack.DEPTH_LIMIT + 1})
    with_tree(copy, ("100644", b"x", name))
    refused(copy, f"the object {name} is the end of more than 4,095 deltas")


def test_deltas_in_a_circle(copy: Copy) -> None:
    """Each says the name of the other."""
    delta = number(1) + number(1) + b"\x90\x01"
    one, other = "11" * 20, "22" * 20
    entries = [(7, bytes.fromhex(other), len(delta), delta), (7, bytes.fromhex(one), len(delta), delta)]
    write_pack(copy, entries, {one: 0, other: 1})
    with_tree(copy, ("100644", b"x", one))
    refused(copy, f"the object {one} is the end of more than 4,095 deltas")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((6, distance(5000), 5, b"\1\1\x90\1x"), "a delta to something outside of its pack"),
        ((6, b"\0", 5, b"\1\1\x90\1x"), "a delta to something outside of its pack"),
        ((7, b"\x33" * 20, 5, b"\1\1\x90\1x"), "a delta to an object that its pack does not have"),
        ((6, b"\xff" * 12, 5, b"\1\1\x90\1x"), "is damaged"),
        ((5, b"", 5, b"evil\n"), "is of a kind that git does not know"),
        ((0, b"", 5, b"evil\n"), "is of a kind that git does not know"),
        ((3, b"", 6, b"evil\n"), "is not as long as it says"),
        ((3, b"", 4, b"evil\n"), "is not as long as it says"),
        ((3, b"", 1 << 30, b"evil\n"), "has 1,073,741,824 bytes"),
        ((6, distance(14), 9, number(1) + number(1 << 40) + b"\x90\1"), "has 1,099,511,627,776 bytes"),
        ((6, distance(14), 4, b"\x02\x02\x90\x02"), "is damaged"),
        ((6, distance(14), 4, b"\x01\x02\x90\x02"), "is damaged"),
        ((6, distance(14), 3, b"\x01\x02\x00"), "is damaged"),
        ((6, distance(14), 2, b"\xff\xff"), "is damaged"),
        ((6, distance(14), 0, b""), "is damaged"),
    ],
)
def test_entries_of_packs_that_are_none(
    copy: Copy, entry: tuple[int, bytes, int, bytes], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (3, b"", 1, b"x")
    assert len(pack_header(3, 1) + zlib.compress(b"x")) == 10
    kind, base, size, content = entry
    if base == distance(14):
        base = distance(10)
    write_pack(copy, [first, (kind, base, size, content)], {"11" * 20: 1})
    with_tree(copy, ("100644", b"x", "11" * 20))
    refused(copy, f"the object {'11' * 20} .*{message}")


def packed(copy: Copy) -> Path:
    copy.agent("echo two >> file; git commit -qam two; git repack -qad")
    (index,) = (copy.fork / ".git/objects/pack").glob("*.idx")
    index.chmod(0o644)
    return index


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:1000],
        lambda data: b"garbage!" + data[8:],
        lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:],
        lambda data: data[:1032] + bytes(len(data) - 1032),
        lambda data: data[:8] + struct.pack(">256L", *[1 << 31] * 256) + data[1032:],
    ],
)
def test_an_index_that_is_none(copy: Copy, damage: Callable[[bytes], bytes]) -> None:
    index = packed(copy)
    index.write_bytes(damage(index.read_bytes()))
    refused(copy, "the object .* (may be in a pack whose index is damaged|is missing)")


def test_an_index_that_leads_to_other_objects(copy: Copy) -> None:
    index = packed(copy)
    data = index.read_bytes()
    count = struct.unpack(">L", data[1028:1032])[0]
    start = 1032 + count * 24
    offsets = [data[start + at * 4 :][:4] for at in range(count)]
    index.write_bytes(data[:start] + b"".join(reversed(offsets)) + data[start + count * 4 :])
    refused(copy, "the object .* does not have the hash that it is named by")
    index.write_bytes(data[:start] + b"\x7f\xff\xff\xff" * count + data[start + count * 4 :])
    refused(copy, "the object .* is not where the index of its pack says")
    index.write_bytes(data[:start] + b"\xff\xff\xff\xff" * count + data[start + count * 4 :])
    refused(copy, "the object .* may be in a pack whose index is damaged")


def test_an_index_of_a_pack_that_the_project_has(copy: Copy) -> None:
    """Under a name of the project's own packs nothing of the fork is looked at."""
    git(copy.project, "git gc -q")
    (index,) = (copy.project / ".git/objects/pack").glob("*.idx")
    shutil.rmtree(copy.fork)
    shutil.copytree(copy.project, copy.fork)
    for suffix in (".idx", ".pack"):
        path = (copy.fork / ".git/objects/pack" / index.name).with_suffix(suffix)
        path.chmod(0o644)
        path.write_bytes(b"evil")
    tree = copy.tree(("100644", b"x", git(copy.project, "git rev-parse HEAD:file").strip()))
    commit = copy.commit(tree, git(copy.project, "git rev-parse HEAD").strip())
    whole = {name: zlib.decompress(copy.path_of(name).read_bytes()).partition(b"\0")[2] for name in (tree, commit)}
    for name in whole:
        copy.path_of(name).unlink()
    entries = [(kind, b"", len(data), data) for kind, data in zip((2, 1), whole.values(), strict=True)]
    write_pack(copy, entries, {tree: 0, commit: 1})
    copy.set_head(commit)
    assert copy.bring().objects == 2
