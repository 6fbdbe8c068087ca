"""The normal form of what lands in a project."""

from __future__ import annotations

import pytest

from mudroom.core.tree.entry import Entry, Kind
from mudroom.core.tree.landing_form import is_reviewed, landing_entry, leads_out, unusual_mode, with_new_content

KINDS: tuple[Kind, ...] = ("file", "directory")


def entry(mode: int, kind: Kind = "file", target: bytes = b"", inode: int = 7) -> Entry:
    return Entry(kind, mode, 3, target, 1, inode, 1, 1000, 1000, 5, 5)


@pytest.mark.parametrize(
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
        ("directory", 0o000, None, None, 0o000),
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


def test_no_mode_gains_a_bit_and_the_form_is_its_own_form() -> None:
    for kind in KINDS:
        for mode in range(0o10000):
            for base in (None, entry(0o644, kind), entry(0o7777, kind)):
                once = landing_entry(entry(mode, kind), base)
                assert not once.mode & ~mode
                assert landing_entry(once, base) == once
                assert is_reviewed(once, entry(mode, kind))
                if base is None:
                    assert not once.mode & 0o7002


@pytest.mark.parametrize(("reviewed", "actual"), [(0o755, 0o700), (0o644, 0o4755), (0o700, 0o4744), (0o600, 0o644)])
def test_another_mode_is_not_the_reviewed_one(reviewed: int, actual: int) -> None:
    assert not is_reviewed(entry(reviewed), entry(actual))


def test_another_file_is_not_the_reviewed_one() -> None:
    assert not is_reviewed(entry(0o644), entry(0o644, inode=8))
    assert not is_reviewed(entry(0o644), entry(0o4644, inode=8))
    assert not is_reviewed(entry(0o644), None)
    assert is_reviewed(None, None)


LINKS = {
    b"out": b"/etc",
    b"up": b"sub/deep",
    b"sub/back": b"..",
    b"loop": b"loop",
    b"here": b"/work/project/sub",
}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
