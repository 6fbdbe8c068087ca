"""What looking at one conflict costs where there are many: that one, and each of its texts is merged no oftener than
it has to be."""

from __future__ import annotations

import os

import pytest
from pageside import changed, pick

from conftest import tick
from mudroom.core.merge.diff3 import MergedText, merge3
from mudroom.vault.apply import conflict
from mudroom.vault.conflict import reconciliation
from test_conflict_api import FORK, TEXT, Two, edit, page, two

__all__ = ["page", "two"]
MANY = 12


class Merges:
    def __init__(self) -> None:
        self.count = 0

    def take(self) -> int:
        """Since the last time."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> Merges:
    counted = Merges()

    def counting(base: bytes, ours: bytes, theirs: bytes) -> MergedText:
        counted.count += 1
        return merge3(base, ours, theirs)

    for module in (conflict, reconciliation):
        monkeypatch.setattr(module, "merge3", counting)
    return counted


@pytest.fixture
def many(two: Two) -> Two:
    names = [f"f{number}" for number in range(MANY)]
    for name in names:
        two.place.write(name, TEXT)
    changed(two.place, f"for f in {' '.join(names)}; do sed -i 's/^line 5$/theirs/' $f; done", FORK)
    tick()
    for name in names:
        two.place.write(name, edit(TEXT, l5="ours\n"))
    return two


def test_one_of_many(many: Two, merges: Merges) -> None:
    """Each time once to find that it conflicts, and once for what is told of it."""
    found = many.look("f3")
    assert merges.take() == 2
    query = f"conflict/lines?file={pick('f3')['id']}&versions={found['versions']}"
    assert len(many.page.get(many.path(query))["lines"]) == len(TEXT.splitlines())
    assert merges.take() == 1
    for take in ("ours", "both", "undecide"):
        decided = many.decide(take, "f3", versions=found["versions"])
        assert merges.take() == 3, take  # it is found again afterwards
        found = decided["conflict"]
    many.decide("regions", "f3", versions=found["versions"], regions=["theirs"])
    assert merges.take() == 3


def test_all_of_them(many: Two, merges: Merges) -> None:
    rows = many.page.get(many.path("conflicts"))["conflicts"]
    assert {row["places"] for row in rows} == {1}
    assert (len(rows), merges.take()) == (MANY, 2 * MANY)


def test_a_merge_is_worked_out_once(many: Two, merges: Merges) -> None:
    found = many.place.session().changes.conflict(FORK, b"f3")
    assert found is not None and merges.take() == 1
    assert found.is_text and merges.take() == 0
    first = found.merged
    assert first is not None and found.merged is first and found.places == 1
    assert merges.take() == 1


def test_one_is_what_it_is_among_all(two: Two) -> None:
    """Renames, directories, what is deleted, and what the rest of the fork says of it."""
    write, project = two.place.write, two.place.project
    names = ("edited", "renamed", "moved", "gone", "kept", "kind", "d/x", "d/y", "d/z", "taken", "e/x")
    for name in names:
        write(name, f"{name}\n{TEXT}")
    (project / "link").symlink_to("edited")
    changed(
        two.place,
        "for f in edited renamed moved gone taken; do sed -i 's/^line 5$/theirs/' $f; done; mv renamed new; rm kept;"
        "rm kind; mkdir kind; echo x > kind/x; rm -r d; echo x > d; ln -sfn kept link; echo theirs > added;"
        "mkdir -p n/m; echo x > n/m/x; echo theirs > here; chmod 600 e/x; echo x > calm",
        FORK,
    )
    tick()
    for name in names:
        write(name, f"{name}\n" + edit(TEXT, l5="ours\n"))
    (project / "moved").rename(project / "elsewhere")
    (project / "taken").rename(project / "here")
    (project / "gone").unlink()
    (project / "link").unlink()
    (project / "link").symlink_to("gone")
    (project / "e/x").chmod(0o640)
    write("added", "ours\n")
    write("n", "ours\n")
    session = two.place.session()
    found = session.changes.conflicts(FORK)
    assert len(found) > 10
    assert {one.path: session.changes.conflict(FORK, one.path) for one in found} == {one.path: one for one in found}
    for path in (b"calm", b"e", b"nowhere", b"../f", os.fsencode(project)):
        assert (session.changes.conflict(FORK, path) is not None) == (path in {one.path for one in found})
