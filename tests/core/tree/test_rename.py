"""Renames: paired by content, each file once, and nothing read that cannot match."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.change import Change
from mudroom.core.tree.path import name
from mudroom.core.tree.rename import pair_renames
from sample import added, deleted, directory, file, modified, paths, symlink
from tiers import each

Contents = dict[bytes, bytes]


def paired(changes: list[Change], contents: Contents) -> dict[bytes, bytes]:
    """From → to."""
    result = pair_renames(changes, lambda change: contents.get(change.path, b"same"))
    sources = {change.source: change.path for change in result if change.verb == "renamed"}
    assert sources == {change.path: change.moved_to for change in result if change.moved_to}
    return sources


@each(
    ("what", "changes", "expected"),
    [
        ("one moved", [deleted(b"a"), added(b"b")], {b"a": b"b"}),
        ("other content", [deleted(b"a"), added(b"other")], {}),
        ("other size", [deleted(b"a", file(1)), added(b"b", file(2))], {}),
        ("empty", [deleted(b"a", file(0)), added(b"b", file(0))], {}),
        ("a link", [deleted(b"a", symlink()), added(b"b", symlink())], {}),
        ("a directory", [deleted(b"a", directory(size=1)), added(b"b", directory(size=1))], {}),
        ("changed in place", [modified(b"a"), added(b"b")], {}),
        ("original unknown", [deleted(b"a", original_known=False), added(b"b")], {}),
        ("copied, the original kept", [added(b"a"), added(b"b")], {}),
        ("first by path", [deleted(b"a"), deleted(b"b"), added(b"c")], {b"a": b"c"}),
        ("same name first", [deleted(b"a"), deleted(b"x/c"), added(b"y/c")], {b"x/c": b"y/c"}),
        ("each once", [deleted(b"a"), added(b"b"), added(b"c")], {b"a": b"b"}),
        ("two of two", [deleted(b"a"), deleted(b"b"), added(b"c"), added(b"d")], {b"a": b"c", b"b": b"d"}),
    ],
)
def test_pairs(what: str, changes: list[Change], expected: dict[bytes, bytes]) -> None:
    assert paired(changes, {b"other": b"different"}) == expected


@each(
    ("old", "new", "flags"),
    [
        (b"a", b".git/x", ()),
        (b"a", b"sub/.git/x", ()),
        (b".git/x", b"a", ()),
        (b".git/x", b"sub/.git/x", ()),
        (b"a", b"x/.mudroom/y", ("protected",)),
        (b"a", b"bare/x", ("new-repository",)),
        (b"a", b"bare/x", ("protected", "new-repository")),
        (b"a", b"tree/x", ("protected", "work-tree")),
    ],
)
def test_no_rename_has_an_end_that_an_apply_leaves_out(old: bytes, new: bytes, flags: tuple[str, ...]) -> None:
    """Only the other end would be applied: a file would be removed that is not shown as deleted."""
    assert paired([deleted(old), added(new)._replace(flags=flags)], {}) == {}


def test_renames_within_a_repository() -> None:
    assert paired([deleted(b".git/a"), added(b".git/b")], {}) == {b".git/a": b".git/b"}


def test_nothing_is_read_that_cannot_match() -> None:
    read = []

    def digest(change: Change) -> bytes:
        read.append(change.path)
        return b""

    pair_renames([deleted(b"a", file(1)), added(b"b", file(2)), modified(b"c", file(1), file(2))], digest)
    assert read == []


@st.composite
def deletions_and_additions(draw: st.DrawFn) -> tuple[list[Change], Contents]:
    contents = draw(st.dictionaries(paths(2), st.sampled_from([b"", b"x", b"y", b"zz"]), max_size=10))
    gone = {path for path in contents if draw(st.booleans())}
    changes = [(deleted if path in gone else added)(path, file(len(contents[path]))) for path in sorted(contents)]
    return changes, contents


@given(deletions_and_additions())
def test_a_pairing_invents_and_loses_nothing(case: tuple[list[Change], Contents]) -> None:
    changes, contents = case
    pairs = paired(changes, contents)
    after = pair_renames(changes, lambda change: contents[change.path])
    undone = [c._replace(verb="added", source=b"") if c.verb == "renamed" else c._replace(moved_to=b"") for c in after]
    assert undone == changes
    assert all(contents[old] == contents[new] != b"" for old, new in pairs.items())
    assert len(set(pairs.values())) == len(pairs)
    left = [c for c in after if c.path not in {*pairs, *pairs.values()} and contents[c.path]]
    gone = Counter(contents[c.path] for c in left if c.verb == "deleted")
    assert not gone & Counter(contents[c.path] for c in left if c.verb == "added"), "as many as can be"
    for old, new in pairs.items():
        same_name = {path for path in contents if name(path) == name(new) and contents[path] == contents[new]}
        free = {c.path for c in left if c.verb == "deleted"}
        assert name(old) == name(new) or not same_name & free
