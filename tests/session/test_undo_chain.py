"""Several applies are undone and redone in a row: what an undo has put back is no edit of the user's, at any size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Place
from mudroom.session import Session
from mudroom.stage.originals import collection, original
from mudroom.vault.apply import imprint

Tree = dict[str, bytes]
SCRIPT = r"""
for f in d*/*; do printf '\0{tag}' >> $f; done
if [ -e big ]; then printf '{tag}' >> big; fi
mkdir whole{tag}; i=0; while [ $i -lt {inside} ]; do printf '\0%s' $i > whole{tag}/$i; i=$((i + 1)); done
if [ -d wholeone ]; then for f in wholeone/*; do printf '\0{tag}' >> $f; done; fi
"""
MIB = 1 << 20


def tree(project: Path) -> Tree:
    files = (path for path in project.rglob("*") if path.is_file() and ".mudroom" not in path.parts)
    return {str(path.relative_to(project)): path.read_bytes() for path in files}


def differing(now: Tree, wanted: Tree) -> list[str]:
    return sorted(name for name in {*now, *wanted} if now.get(name) != wanted.get(name))


def fill(place: Place, files: int, mib: int) -> None:
    """Binary files, which nothing can merge."""
    for number in range(files):
        place.write(f"d{number // 500}/{number}", b"\0%d" % number)
    if mib:
        place.write("big", os.urandom(mib * MIB))


def land(session: Session, tag: str, inside: int) -> None:
    script = SCRIPT.replace("{tag}", tag).replace("{inside}", str(inside))
    result = session.run([b"sh", b"-c", script.encode()], fork=tag)
    assert result.exit_code == 0, result.stderr
    assert session.changes.apply(tag).conflicts == ()


def turned(session: Session, place: Place, *, back: bool, wanted: Tree) -> None:
    applied = session.changes.undo() if back else session.changes.redo()
    assert applied.conflicts == (), f"{len(applied.conflicts)} files, such as {applied.conflicts[0]}"
    assert differing(tree(place.project), wanted) == []


def play(session: Session, place: Place, inside: int) -> list[Tree]:
    """Two applies, two undos, two redos and two undos. Return the trees of the way."""
    trees = [tree(place.project)]
    for tag in ("one", "two"):
        land(session, tag, inside)
        trees.append(tree(place.project))
    for _ in range(2):
        turned(session, place, back=True, wanted=trees[1])
        turned(session, place, back=True, wanted=trees[0])
        turned(session, place, back=False, wanted=trees[1])
        turned(session, place, back=False, wanted=trees[2])
    return trees


SIZES = [(1, 0, 1), (30, 0, 30)]
LARGE = [(1_500, 0, 1_500), (3, 40, 3), (20_000, 0, 20_000)]


@pytest.mark.parametrize(("files", "mib", "inside"), SIZES)
def test_two_applies_back_and_forth_without_digests(
    place: Place, monkeypatch: pytest.MonkeyPatch, files: int, mib: int, inside: int
) -> None:
    monkeypatch.setattr(imprint, "FILES", 0)
    fill(place, files, mib)
    play(place.session(), place, inside)


@pytest.mark.deep
@pytest.mark.limit(600)
@pytest.mark.parametrize(("files", "mib", "inside"), LARGE)
def test_large_applies_back_and_forth(place: Place, files: int, mib: int, inside: int) -> None:
    """The last one has 40,000 files in each apply but the first."""
    fill(place, files, mib)
    play(place.session(), place, inside)


def test_an_edit_between_two_undos_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imprint, "FILES", 0)
    fill(place, 4, 0)
    session = place.session()
    trees = play(session, place, 3)
    turned(session, place, back=True, wanted=trees[1])
    for name in ("d0/1", "wholeone/1"):
        path = place.project / name
        stat = path.stat()
        path.write_bytes(path.read_bytes()[::-1])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as rsync and cp -p do
    edited = tree(place.project)
    stays = [conflict.path for conflict in session.changes.undo().conflicts]
    assert sorted(stays) == [b"d0/1", b"wholeone/1"]
    wanted = {**trees[0], **{name: edited[name] for name in ("d0/1", "wholeone/1")}}
    assert differing(tree(place.project), wanted) == []


def test_a_fork_from_between_two_applies_has_no_conflict_after_the_undo(place: Place) -> None:
    fill(place, 4, 0)
    session = place.session()
    land(session, "one", 2)
    session.run([b"sh", b"-c", b"printf '\\0third' >> d0/1; printf '\\0third' >> wholeone/1"], fork="third")
    between = tree(place.project)
    land(session, "two", 2)
    turned(session, place, back=True, wanted=between)
    assert session.changes.apply("third").conflicts == ()
    assert (place.project / "d0/1").read_bytes().endswith(b"\0one\0third")


PENDING = r"""
rm d0/1; rm -r wholeone; printf '\0third' >> d0/2; printf '\0third' >> big
"""


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("back", [1, 2])
def test_what_an_undo_has_put_back_is_no_conflict_of_a_fork_without_its_content(
    place: Place, monkeypatch: pytest.MonkeyPatch, rounds: int, back: int
) -> None:
    """Above ``DELETED_FILES`` and ``LARGE`` only the entries of a pending fork's originals are known."""
    monkeypatch.setattr(collection, "DELETED_FILES", 0)
    monkeypatch.setattr(original, "SMALL", -1)
    monkeypatch.setattr(original, "LARGE", -1)
    fill(place, 5, 1)
    session = place.session()
    land(session, "one", 5)
    session.run([b"sh", b"-c", PENDING.encode()], fork="third")
    between = tree(place.project)
    for tag in ("two", "more")[:back]:
        land(session, tag, 5)
    after = tree(place.project)
    for round_ in range(rounds):
        if round_:
            for _ in range(back):
                session.changes.redo()
            assert differing(tree(place.project), after) == []
        for _ in range(back):
            session.changes.undo()
        assert differing(tree(place.project), between) == []
    assert session.changes.conflicts("third") == []
    assert session.changes.apply("third").conflicts == ()
    wanted = {name: content for name, content in between.items() if name != "d0/1" and "wholeone" not in name}
    wanted |= {name: between[name] + b"\0third" for name in ("d0/2", "big")}
    assert differing(tree(place.project), wanted) == []


def test_an_edit_after_an_undo_is_a_conflict_of_a_fork_without_its_content(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "DELETED_FILES", 0)
    fill(place, 5, 0)
    session = place.session()
    land(session, "one", 5)
    session.run([b"sh", b"-c", b"rm d0/1 d0/2 wholeone/1"], fork="third")
    land(session, "two", 5)
    session.changes.undo()
    for name in ("d0/1", "wholeone/1"):
        path = place.project / name
        stat = path.stat()
        path.write_bytes(path.read_bytes()[::-1])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as rsync and cp -p do
    applied = session.changes.apply("third")
    assert sorted(conflict.path for conflict in applied.conflicts) == [b"d0/1", b"wholeone/1"]
    assert not (place.project / "d0/2").exists()


def test_an_imprint_of_another_apply_that_is_damaged_stops_no_undo(place: Place) -> None:
    fill(place, 2, 0)
    session = place.session()
    trees = play(session, place, 1)
    (first, second) = sorted(place.state.glob("vaults/*/applies/u*"))
    (first / "imprint").write_bytes(b"")
    turned(session, place, back=True, wanted=trees[1])
    assert second.is_dir()
