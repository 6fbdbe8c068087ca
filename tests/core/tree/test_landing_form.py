"""The normal form of what lands in a project."""

from __future__ import annotations

import struct

import pytest

from mudroom.core.tree.entry import Entry, Kind
from mudroom.core.tree.landing_form import (
    ATTRIBUTES,
    attribute_rule,
    blocking_flag,
    grants,
    is_left,
    is_reviewed,
    landing_entry,
    leads_out,
    lost_in_words,
    unusual_mode,
    with_new_content,
    without_list,
)
from tiers import each

KINDS: tuple[Kind, ...] = ("file", "directory")


def entry(mode: int, kind: Kind = "file", target: bytes = b"", inode: int = 7) -> Entry:
    return Entry(kind, mode, 3, target, 1, inode, 1, 1000, 1000, 5, 5)


@each(
    ("kind", "mode", "base", "above", "lands"),
    [
        ("file", 0o644, None, None, 0o644),
        ("file", 0o664, None, None, 0o664),
        ("file", 0o4755, None, None, 0o755),
        ("file", 0o2755, None, 0o2755, 0o755),
        ("file", 0o1644, None, None, 0o644),
        ("file", 0o7777, None, None, 0o755),
        ("file", 0o666, None, None, 0o644),
        ("file", 0o666, 0o666, None, 0o666),
        ("file", 0o777, 0o664, None, 0o775),
        ("file", 0o002, None, None, 0o000),
        ("file", 0o6755, 0o4755, None, 0o4755),
        ("directory", 0o7777, None, None, 0o755),
        ("directory", 0o1777, None, None, 0o755),
        ("directory", 0o1777, 0o1777, None, 0o1777),
        ("directory", 0o2775, 0o2775, None, 0o2775),
        ("directory", 0o2775, 0o775, None, 0o775),
        ("directory", 0o2775, None, 0o2775, 0o2775),
        ("directory", 0o6775, None, 0o6775, 0o2775),
        ("directory", 0o2775, None, 0o775, 0o775),
        ("directory", 0o000, None, None, 0o500),
        ("directory", 0o300, None, None, 0o700),
        ("directory", 0o000, 0o755, None, 0o500),
        ("directory", 0o000, 0o300, None, 0o100),
        ("directory", 0o055, 0o000, None, 0o055),
        ("file", 0o000, None, None, 0o000),
        ("symlink", 0, None, None, 0),
    ],
)
def test_modes(kind: Kind, mode: int, base: int | None, above: int | None, lands: int) -> None:
    before = entry(base, kind) if base is not None else None
    directory = entry(above, "directory") if above is not None else None
    assert landing_entry(entry(mode, kind), before, directory) == entry(lands, kind)


def test_an_entry_of_another_kind_keeps_no_bits() -> None:
    assert landing_entry(entry(0o3777, "directory"), entry(0o3777)).mode == 0o755
    assert landing_entry(entry(0o4777), entry(0o4777, "directory")).mode == 0o755


def test_new_content_has_no_set_id_bits() -> None:
    assert with_new_content(entry(0o6755)).mode == 0o755
    assert with_new_content(entry(0o644)) == entry(0o644)


def test_no_mode_gains_a_bit_but_a_directory_its_owner_s_and_the_form_is_its_own_form() -> None:
    for kind in KINDS:
        for mode in range(0o10000):
            for base in (None, entry(0o644, kind), entry(0o7777, kind)):
                once = landing_entry(entry(mode, kind), base)
                assert not once.mode & ~mode & ~(0o500 if kind == "directory" else 0)
                assert landing_entry(once, base) == once
                assert is_reviewed(once, entry(mode, kind))
                if base is None:
                    assert not once.mode & 0o7002


@pytest.mark.parametrize(("reviewed", "actual"), [(0o755, 0o700), (0o644, 0o4755), (0o700, 0o4744), (0o600, 0o604)])
def test_another_mode_is_not_the_reviewed_one(reviewed: int, actual: int) -> None:
    assert not is_reviewed(entry(reviewed), entry(actual))


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF


def test_a_mode_without_its_list_has_the_group_s_own_bits() -> None:
    plain = acl((1, 6, NOBODY), (4, 4, NOBODY), (32, 4, NOBODY))
    named = acl((1, 6, NOBODY), (2, 7, 5), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY))
    assert grants(plain) == []
    assert grants(named) == [(2, 7, (5).to_bytes(4, "little")), (4, 4, b"\xff" * 4)]
    assert without_list(0o4664, named) == 0o4644
    assert without_list(0o644, plain) == 0o644
    assert without_list(0o677, acl((4, 7, NOBODY), (16, 1, NOBODY))) == 0o617
    assert grants(b"") == grants(named[:3]) == []


def test_each_attribute_and_flag_that_is_lost_is_named() -> None:
    names = ("user.k", "system.posix_acl_access", "security.capability", "security.ima", "security.selinux")
    lost = ["file capabilities", "a signature of its content"]
    assert lost_in_words(names, 0, is_root=True) == lost_in_words(names, 0, is_root=False) == lost
    assert lost_in_words(["security.k", "trusted.k"], 0, is_root=True) == []
    assert lost_in_words(["security.k"], 0, is_root=False) == ["a security label"]
    assert lost_in_words([], 0x800000 | 0x4000 | 0x40 | 0x10 | 0x80000, is_root=True) == ["the flags jC of chattr(1)"]
    assert [blocking_flag(bits) for bits in (0x10, 0x20, 0x40)] == ["immutable", "append-only", ""]


def test_an_attribute_has_one_rule() -> None:
    assert ATTRIBUTES[-1].begins == ""
    for number, row in enumerate(ATTRIBUTES):
        assert attribute_rule(row.begins + "x") is row or attribute_rule(row.begins) is row, row
        assert not any(row.begins.startswith(earlier.begins) for earlier in ATTRIBUTES[:number])
        assert is_left(row.begins) == (not row.lands and not row.by_root and row.begins != "security.selinux")


def test_another_file_is_not_the_reviewed_one() -> None:
    assert not is_reviewed(entry(0o644), entry(0o644, inode=8))
    assert not is_reviewed(entry(0o644), entry(0o4644, inode=8))
    assert not is_reviewed(entry(0o644), None)
    assert is_reviewed(None, None)


LINKS = {b"out": b"/etc", b"up": b"sub/deep", b"sub/back": b"..", b"loop": b"loop", b"here": b"/work/project/sub"}


@each(
    ("path", "target", "leads"),
    [
        (b"a", b"b", False),
        (b"a", b"../b", True),
        (b"a/b", b"../c", False),
        (b"a/b", b"../../c", True),
        (b"a", b"./b/../../c", True),
        (b"a", b"b/..", False),
        (b"a", b"..", True),
        (b"a/b/c", b"../..", False),
        (b"a", b"/etc/passwd", True),
        (b"a", b"/", True),
        (b"a", b"//work/./project/b", False),
        (b"a", b"/work/project", False),
        (b"a", b"/work/projects/b", True),
        (b"a", b"/work/project/../other", True),
        (b"a", b"out/x", True),
        (b"a", b"up/../../x", False),
        (b"a", b"up/../../../x", True),
        (b"a", b"sub/back/x", False),
        (b"a", b"sub/back/../x", True),
        (b"a", b"loop", True),
        (b"a", b"here/../x", False),
        (b"a", b"here/../../x", True),
        (b"a", b"closed/x", True),
        (b"a", b"nothing/../x", False),
        (b"a", b"\xff\n", False),
    ],
)
def test_links(path: bytes, target: bytes, leads: bool) -> None:
    def look(at: bytes) -> Entry | None:
        if at.startswith(b"closed"):
            raise PermissionError
        return entry(0, "symlink", LINKS[at]) if at in LINKS else None

    assert leads_out(path, target, look, b"/work/project") is leads


def test_a_link_below_an_unknown_project_is_outside() -> None:
    assert leads_out(b"a", b"/work/project/b", lambda _path: None)


@each(
    ("kind", "mode", "words"),
    [
        ("file", 0o644, ""),
        ("file", 0o755, "executable"),
        ("file", 0o444, "mode 444"),
        ("file", 0o000, "mode 000"),
        ("directory", 0o755, ""),
        ("directory", 0o555, "mode 555"),
        ("symlink", 0, ""),
    ],
)
def test_words_for_modes(kind: Kind, mode: int, words: str) -> None:
    assert unusual_mode(entry(mode, kind)) == words
