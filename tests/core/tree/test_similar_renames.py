"""Files that were moved and changed in one go: which are paired, and how much is looked at for that."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree import similar_renames
from mudroom.core.tree.change import Change
from mudroom.core.tree.review_tags import LARGE
from mudroom.core.tree.similar_renames import LEAST, Move, Moves, Read, can_be_similar, score, spans
from sample import added, deleted, directory, file, modified, paths, symlink
from tiers import each

Contents = dict[bytes, bytes]

TEXT = b"".join(b"line %d\n" % number for number in range(100))
MOST = TEXT.replace(b"line 50\n", b"fifty\n")
"""Nearly all of it."""
NEARLY = MOST + b"x\n" * 20
HALF = TEXT[: len(TEXT) // 2 + 20] + b"".join(b"else %d\n" % number for number in range(40))
OTHER = b"".join(b"other %d\n" % number for number in range(90))


def find_moves(changes: list[Change], read: Read, hides: Callable[[bytes], bool]) -> tuple[Move, ...]:
    """All of them; one by one they are the same, whoever is asked about first."""
    found = Moves(changes, hides).all(read)
    for order in (changes, changes[::-1]):
        apart = Moves(order, hides)
        assert {move for change in order if (move := apart.of(change.path, read))} == set(found)
    return found


def of(gone: Contents, come: Contents) -> tuple[list[Change], Contents]:
    changes = [deleted(path, file(len(data))) for path, data in gone.items()]
    changes += [added(path, file(len(data))) for path, data in come.items()]
    return sorted(changes), gone | come


def paired(changes: list[Change], contents: Contents, hidden: tuple[bytes, ...] = ()) -> dict[bytes, bytes]:
    """From → to."""
    found = find_moves(changes, lambda change: contents.get(change.path), lambda path: path in hidden)
    assert list(found) == sorted(found, key=lambda move: move.new)
    return {move.old: move.new for move in found}


@each(("what", "gone", "come", "expected"), [
        ("moved and changed", {b"a": TEXT}, {b"b": MOST}, {b"a": b"b"}),
        ("half of it", {b"a": TEXT}, {b"b": HALF}, {b"a": b"b"}),
        ("nothing of it", {b"a": TEXT}, {b"b": OTHER}, {}),
        ("nothing came", {b"a": TEXT}, {}, {}),
        ("nothing went", {}, {b"b": MOST}, {}),
        ("empty", {b"a": b""}, {b"b": b""}, {}),
        ("less than half as long", {b"a": TEXT}, {b"b": TEXT[: len(TEXT) // 2 - 8]}, {}),
        ("more than twice as long", {b"a": TEXT}, {b"b": TEXT + OTHER + OTHER}, {}),
        ("the most alike", {b"a": TEXT}, {b"b": HALF, b"c": MOST}, {b"a": b"c"}),
        ("of two that went", {b"a": HALF, b"b": TEXT}, {b"c": MOST}, {b"b": b"c"}),
        ("each once", {b"a": TEXT}, {b"b": MOST, b"c": MOST}, {b"a": b"b"}),
        ("two of two", {b"a": TEXT, b"b": OTHER}, {b"c": OTHER + b"x\n", b"d": MOST}, {b"a": b"d", b"b": b"c"}),
        ("the same name before the most alike", {b"x/n": MOST}, {b"a": TEXT, b"y/n": NEARLY}, {b"x/n": b"y/n"}),
        ("unless that is hardly alike", {b"x/n": TEXT}, {b"a": MOST, b"y/n": HALF}, {b"x/n": b"a"}),
        ("the same name, of those as alike", {b"x/n": TEXT}, {b"a": HALF, b"y/n": HALF}, {b"x/n": b"y/n"}),
        ("binary", {b"a": b"\0\n" + TEXT}, {b"b": b"\0\n" + MOST}, {b"a": b"b"}),
        ("in packages, too", {b"node_modules/a": TEXT}, {b"vendor/b": MOST}, {b"node_modules/a": b"vendor/b"}),
        ("of a repository", {b".git/HEAD": TEXT}, {b"b": MOST}, {}),
    ])  # fmt: skip
def test_pairs(what: str, gone: Contents, come: Contents, expected: dict[bytes, bytes]) -> None:
    assert paired(*of(gone, come)) == expected, what


@each(
    ("what", "changes"),
    [
        ("known as one that was only moved", [deleted(b"a", file(9), moved_to=b"c"), added(b"b", file(9))]),
        ("changed where it is", [modified(b"a", file(9), file(9)), added(b"b", file(9))]),
        ("what it was is not known", [deleted(b"a", file(9), original_known=False), added(b"b", file(9))]),
        ("has to be named", [deleted(b"a", file(9)), added(b"b", file(9), flags=("protected",))]),
        ("a link", [deleted(b"a", symlink()), added(b"b", symlink())]),
        ("a directory", [deleted(b"a", directory(size=9)), added(b"b", directory(size=9))]),
        ("large", [deleted(b"a", file(LARGE + 1)), added(b"b", file(LARGE + 1))]),
    ],
)
def test_what_is_never_paired_is_not_read_either(what: str, changes: list[Change]) -> None:
    def read(change: Change) -> bytes:
        raise AssertionError((what, change))

    assert find_moves(changes, read, lambda _path: False) == ()


def test_a_secret_is_neither_read_nor_named() -> None:
    for hidden in (b"a", b"b"):
        changes, contents = of({b"a": TEXT}, {b"b": MOST})
        del contents[hidden]
        assert paired(changes, contents, (hidden,)) == {}


def test_what_cannot_be_read_is_not_paired() -> None:
    changes, contents = of({b"a": TEXT}, {b"b": MOST, b"c": HALF})
    del contents[b"b"]
    assert paired(changes, contents) == {b"a": b"c"}


def looked_at(changes: list[Change], contents: Contents) -> tuple[list[bytes], tuple[Move, ...]]:
    """What was read, and what was found."""
    read: list[bytes] = []

    def look(change: Change) -> bytes:
        read.append(change.path)
        return contents.get(change.path, OTHER)

    return read, Moves(changes, lambda _path: False).all(look)


def test_it_ends_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not looked at is not paired, and there is no more of it than that."""
    lines = [TEXT.replace(b"5", b"%d" % number) for number in range(40)]
    changes, contents = of(
        {b"old/%d.py" % number: data for number, data in enumerate(lines)},
        {b"new/to-%d.py" % number: data + b"x\n" for number, data in enumerate(lines)},
    )
    whole = paired(changes, contents)
    assert whole == {b"old/%d.py" % number: b"new/to-%d.py" % number for number in range(40)}
    for name, bound in (
        ("BYTES", 10 * len(lines[0])),
        ("READ", 10),
        ("STEPS", 500),
        ("HELD", 10 * 100),
        ("FILES", 5),
        ("PAIRS", 80),
        ("EACH", 1),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(similar_renames, name, bound)
            read, found = looked_at(changes, contents)
        assert len(read) == len(set(read))
        assert {move.old: move.new for move in found}.items() <= whole.items(), name
        assert name in ("EACH", "PAIRS") or 0 < len(found) < 40, name
        assert name != "BYTES" or sum(len(contents[path]) for path in read) <= bound
        assert name != "HELD" or sum(len(spans(contents[path]).counts) for path in read[:-1]) <= bound


def test_a_move_among_many_files_of_others_is_found() -> None:
    """Of ten thousand that a package manager has brought, those that a person wrote are looked at first."""
    changes, contents = of({b"src/old.ts": TEXT}, {b"src/new.ts": MOST})
    others = [added(b"node_modules/%d.ts" % number, file(len(TEXT))) for number in range(10_000)]
    read, found = looked_at([*others, *changes], contents)
    assert [(move.old, move.new) for move in found] == [(b"src/old.ts", b"src/new.ts")]
    assert len(read) <= 2 + 2 * similar_renames.EACH


def test_namesakes_need_nobody_else() -> None:
    """Of a directory that was moved with all in it, only the file that is looked at is read, and what it was."""
    many = {b"%d.py" % number: TEXT.replace(b"5", b"%d" % number) for number in range(3_000)}
    changes, contents = of(
        {b"src/" + path: data for path, data in many.items()},
        {b"lib/" + path: data + b"x\n" for path, data in many.items()},
    )
    read: list[bytes] = []

    def look(change: Change) -> bytes:
        read.append(change.path)
        return contents[change.path]

    moves = Moves(changes, lambda _path: False)
    found = moves.of(b"lib/2000.py", look)
    assert found is not None and found[:2] == (b"src/2000.py", b"lib/2000.py")
    assert moves.of(b"src/2000.py", look) == found
    assert sorted(read) == [b"lib/2000.py", b"src/2000.py"]
    assert len(moves.all(look)) == 3_000, "there is no bound for these"


@st.composite
def deletions_and_additions(draw: st.DrawFn) -> tuple[list[Change], Contents]:
    text = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"]), max_size=8).map(b"".join)
    contents = draw(st.dictionaries(paths(2), text, max_size=8))
    gone = {path for path in contents if draw(st.booleans())}
    return [(deleted if p in gone else added)(p, file(len(contents[p]))) for p in sorted(contents)], contents


@given(deletions_and_additions(), st.randoms())
def test_each_is_paired_once_and_nobody_is_left_who_could_be(
    case: tuple[list[Change], Contents], chance: random.Random
) -> None:
    changes, contents = case
    found = find_moves(changes, lambda change: contents[change.path], lambda _path: False)
    chance.shuffle(changes)
    assert found == find_moves(changes, lambda change: contents[change.path], lambda _path: False), "whatever the order"
    ends = [path for move in found for path in move[:2]]
    assert len(ends) == len(set(ends))
    verbs = {change.path: change.verb for change in changes}
    for move in found:
        assert (verbs[move.old], verbs[move.new]) == ("deleted", "added")
        assert move == Move(move.old, move.new, _score(contents, move.old, move.new))
        assert move.score >= LEAST
    left = [change for change in changes if change.path not in ends and contents[change.path]]
    for one, other in itertools.permutations(left, 2):
        if (one.verb, other.verb) == ("deleted", "added"):
            assert _score(contents, one.path, other.path) < LEAST


def _score(contents: Contents, old: bytes, new: bytes) -> int:
    found = score(spans(contents[old]), spans(contents[new]))
    assert found < LEAST or can_be_similar(len(contents[old]), len(contents[new]))
    return found
