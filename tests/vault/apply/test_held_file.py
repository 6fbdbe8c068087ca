"""Files of the project that another program holds open (``tests/vault/held.py``): each is one conflict with its own
reason, the rest lands, the next apply lands it, and nothing is lost. The same for undo, and for a copy that is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from held import held
from mudroom.core.tree.entry import HELD
from mudroom.errors import UsageError
from workbench import Contents, Workbench, contents

END = "the other path of the rename is in conflict"
LINES = [b"%d\n" % number for number in range(20)]
FILES = {
    "merged": b"".join(LINES),
    "same": b"same\n",
    "touched": b"touched\n",
    "moved": b"moved\n" + b"".join(LINES),
    "edited": b"edited\n",
    "removed": b"removed\n",
    "clash": b"clash\n",
    "deep/down/f": b"f\n",
    "other": b"other\n",
}
FIRST, LAST = b"first\n", b"last\n"


def user(project: Path) -> None:
    """Edits after the command, so that an apply has to read the files."""
    (project / "merged").write_bytes(FILES["merged"] + LAST)
    (project / "same").write_bytes(b"other\n")
    (project / "touched").write_bytes(FILES["touched"])
    (project / "moved").write_bytes(FILES["moved"] + LAST)
    (project / "deep/down/f").write_bytes(FILES["deep/down/f"])
    (project / "clash").write_bytes(b"mine!\n")


def command(work: Path) -> None:
    (work / "merged").write_bytes(FIRST + FILES["merged"])
    (work / "same").write_bytes(b"other\n")
    (work / "touched").write_bytes(b"new\n")
    (work / "moved").rename(work / "there")
    (work / "edited").write_bytes(b"new\n")
    (work / "removed").unlink()
    (work / "clash").write_bytes(b"yours\n")
    (work / "deep/down/f").unlink()
    (work / "other").write_bytes(b"new\n")


AFTER: Contents = {
    "merged": FIRST + FILES["merged"] + LAST,
    "same": b"other\n",
    "touched": b"new\n",
    "there": FILES["moved"] + LAST,
    "edited": b"new\n",
    "deep": None,
    "deep/down": None,
    "clash": b"mine!\n",
    "other": b"new\n",
}
COPY = "not in the copy: another program holds held open; close it, then run the command in a new fork"
CLASH = "clash: also changed in the project, in the same lines"
HOLDABLE = ["merged", "touched", "moved", "edited", "removed", "deep/down/f", "clash"]
"""Files that an apply reads, replaces or removes."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    made = Workbench(tmp_path)
    for name, data in FILES.items():
        (made.project / name).parent.mkdir(parents=True, exist_ok=True)
        (made.project / name).write_bytes(data)
    yield made
    made.close()


def told(name: str) -> list[str]:
    """Return the conflicts of an apply while ``name`` is held."""
    if name == "clash":
        return [f"clash: {HELD}"]
    if name == "moved":
        return [CLASH, f"moved: {END}", f"there: the file that it was renamed from {HELD}"]
    return [CLASH, f"{name}: {HELD}"]


def each(quick: Sequence[str], more: Sequence[str]) -> list[object]:
    return [*quick, *(pytest.param(name, marks=pytest.mark.deep) for name in more)]


@pytest.mark.parametrize(
    "name", each(["merged", "moved", "deep/down/f", "clash"], ["touched", "edited", "removed", "same"])
)
def test_an_apply(bench: Workbench, name: str) -> None:
    bench.run("f", command)
    user(bench.project)
    before = contents(bench.project)
    with held(bench.project / name):
        assert bench.apply("f") == told(name)
    now = contents(bench.project)
    assert now.pop(name) == before[name], "it is as it was"
    assert now == {path: data for path, data in AFTER.items() if path != name and (name, path) != ("moved", "there")}
    assert bench.apply("f") == [CLASH], "once it is closed, it lands"
    assert contents(bench.project) == AFTER
    while bench.vault.applies() and contents(bench.project) != before:
        assert bench.undo() == []


def test_all_at_once(bench: Workbench) -> None:
    bench.run("f", command)
    user(bench.project)
    before = contents(bench.project)
    with held(*(bench.project / name for name in HOLDABLE)):
        assert len(bench.apply("f")) == len(HOLDABLE) + 1
    assert contents(bench.project) == {**before, "other": b"new\n", "same": b"other\n"}
    assert bench.apply("f") == [CLASH]
    assert contents(bench.project) == AFTER


def test_its_conflict_can_be_looked_at_and_decided_later(bench: Workbench) -> None:
    """The project's side cannot be read meanwhile: it has no content, and no decision about it can be taken."""
    reviewed = bench.run("f", command)
    user(bench.project)
    with held(bench.project / "clash"):
        (conflict,) = bench.changes.conflicts("f")
        assert (conflict.path, conflict.reason, conflict.ours.content) == (b"clash", HELD, None)
        assert conflict.theirs.content == b"yours\n" and conflict.ours.entry is not None and not conflict.decided
        assert conflict.merged is None
        with pytest.raises(UsageError, match=r"\Aclash is held open .* \(close it there, then decide again\)\Z"):
            bench.changes.decide("f", conflict, "theirs")
    (conflict,) = bench.changes.conflicts("f")
    assert bench.changes.of("f") == reviewed, "to list conflicts is no change of the fork, though no apply was before"
    bench.changes.decide("f", conflict, "theirs")
    with held(bench.project / "clash"):
        assert not bench.changes.conflicts("f")[0].decided
        assert bench.apply("f") == [f"clash: {HELD}"], "a decision is about what is read"
    assert (bench.project / "clash").read_bytes() == b"mine!\n"
    assert bench.apply("f") == []
    assert contents(bench.project) == {**AFTER, "clash": b"yours\n"}


@pytest.mark.parametrize("name", each(["merged", "there"], ["edited", "touched"]))
def test_an_undo_and_a_redo(bench: Workbench, name: str) -> None:
    """Also of a file that was edited since, whose lines have to be read. What is held stays as it is; it goes the other
    way with the rest, and then back."""
    bench.run("f", command)
    user(bench.project)
    before = contents(bench.project)
    assert bench.apply("f") == [CLASH]
    since = b"since\n" if name == "merged" else b""
    with (bench.project / name).open("ab") as stream:
        stream.write(since)
    after = contents(bench.project)
    undone = {**before, name: FILES["merged"] + LAST + since} if since else before
    with held(bench.project / name):
        result = bench.changes.undo()
    assert [(each.path, each.reason) for each in result.conflicts] == [(name.encode(), HELD)]
    (remark,) = [each for each in result.remarks if each.path == name.encode()]
    assert "mudroom redo u1, then mudroom undo u1" in remark.text
    assert contents(bench.project) == {**before, name: after[name]}, "the rest is as before"
    assert bench.changes.redo().conflicts == ()
    assert contents(bench.project) == after
    assert bench.undo() == []
    assert contents(bench.project) == undone
    if since:
        return
    with held(bench.project / ("moved" if name == "there" else name)):
        assert bench.changes.redo().conflicts != ()
    assert bench.undo() == [] and contents(bench.project) == undone
    assert bench.changes.redo().conflicts == () and contents(bench.project) == after


def test_a_copy_is_made_without_it(bench: Workbench) -> None:
    """The fork does not have the file: neither what it deletes nor what it adds there changes the project's."""
    (bench.project / "held").write_bytes(b"database")
    with held(bench.project / "held"):
        changes = bench.run("f", command)
    assert all(change.path != b"held" for change in changes.changes)
    assert bench.notes == [COPY]
    user(bench.project)
    assert bench.apply("f") == [CLASH]
    assert contents(bench.project) == {**AFTER, "held": b"database"}
    bench.run("f", lambda work: (work / "held").write_bytes(b"mine"))
    assert len(bench.apply("f")) == 2
    assert (bench.project / "held").read_bytes() == b"database"


def test_a_checkpoint_and_a_rollback_need_no_file_of_the_project(bench: Workbench) -> None:
    bench.run("f", command)
    with held(*(bench.project / name for name in HOLDABLE)):
        bench.forks.checkpoint("f", "here")
        bench.run("f", lambda work: (work / "edited").write_bytes(b"later\n"))
        bench.forks.rollback("f", "here")
        changes = {change.path: change for change in bench.changes.of("f").changes}
    assert changes[b"edited"].lines_added == 1
    assert bench.apply("f") == []
    assert (bench.project / "edited").read_bytes() == b"new\n"
