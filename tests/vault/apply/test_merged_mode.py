"""Permissions of what comes of a conflict or a merge: nothing that nobody has decided for, and none that lets a file
act as its owner unless the project's own has them."""

from __future__ import annotations

import pytest

from conftest import Place, tick
from mudroom.core.merge.resolution_words import Take
from mudroom.session import Session

pytestmark = pytest.mark.both_users

FORK = "agent-1"


class Two:
    """A fork and a project that have both changed ``f``, or made it."""

    def __init__(self, place: Place) -> None:
        self.place, self.file = place, place.project / "f"

    def make(self, theirs: str, *, base: str | None = "one\n", ours: str = "ours\n", mode: int = 0o644) -> Session:
        """``theirs``: as commands."""
        if base is not None:
            self.file.write_text(base)
            self.file.chmod(0o644)
        self.session = self.place.session()
        self.session.forks.new(FORK)
        assert self.session.run([b"sh", b"-c", theirs.encode()], fork=FORK).exit_code == 0
        tick()
        self.file.write_text(ours)
        self.file.chmod(mode)
        return self.session

    def decide(self, take: Take, content: bytes | None = None, *, edited: bool = False) -> None:
        (conflict,) = self.session.changes.conflicts(FORK)
        self.session.changes.decide(FORK, conflict, take, content, edited=edited)

    def applied(self) -> tuple[str, int]:
        with self.session.alone("a test"):
            landed = self.session.changes.apply(FORK)
        assert not landed.conflicts
        return self.file.read_text(), self.file.stat().st_mode & 0o7777


@pytest.fixture
def two(place: Place) -> Two:
    return Two(place)


@pytest.mark.parametrize("mode", ["755", "6777", "1777"])
@pytest.mark.parametrize("base", ["one\n", None])
def test_the_projects_version_edited_has_the_projects_mode(two: Two, mode: str, base: str | None) -> None:
    two.make(f"echo theirs > f; chmod {mode} f", base=base, mode=0o644 if base else 0o600)
    two.decide("ours")
    two.decide("content", b"ours!\n", edited=True)
    two.decide("content", b"ours?\n", edited=True)  # once more: as it was kept
    assert two.applied() == ("ours?\n", 0o644 if base else 0o600)


def test_the_forks_version_edited_has_the_forks_mode_but_not_setuid(two: Two) -> None:
    two.make("echo theirs > f; chmod 4755 f")
    two.decide("theirs")
    two.decide("content", b"theirs!\n", edited=True)
    assert two.applied() == ("theirs!\n", 0o755)


@pytest.mark.parametrize(("base", "expected"), [("one\n", 0o755), (None, 0o600)])
def test_places_decided_anew_are_merged_and_never_setuid(two: Two, base: str | None, expected: int) -> None:
    two.make("echo theirs > f; chmod 6777 f", base=base, mode=0o644 if base else 0o600)
    two.decide("ours")
    two.decide("content", b"theirs\nours\n")
    assert two.applied() == ("theirs\nours\n", expected)


def test_what_the_project_has_deleted_comes_back_without_setuid(two: Two) -> None:
    session = two.make("echo theirs > f; chmod 4755 f")
    two.file.unlink()
    (conflict,) = session.changes.conflicts(FORK)
    session.changes.decide(FORK, conflict, "content", b"both\n")
    assert two.applied() == ("both\n", 0o755)


LINES = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"


@pytest.mark.parametrize("mode", [0o4755, 0o755])
def test_a_merge_without_a_conflict_takes_no_setuid_that_the_project_has_not(two: Two, mode: int) -> None:
    two.make("sed -i s/9/nine/ f; chmod 6755 f", base=LINES, ours=LINES.replace("1", "one"), mode=mode)
    assert two.applied() == (LINES.replace("1", "one").replace("9", "nine"), mode)


def test_both_have_made_the_same_and_a_place_by_place_decision_leaves_it_private(two: Two) -> None:
    two.make("echo same > f; chmod 4755 f", base=None, ours="same\n", mode=0o600)
    two.decide("content", b"same\n")
    assert two.applied() == ("same\n", 0o600)
