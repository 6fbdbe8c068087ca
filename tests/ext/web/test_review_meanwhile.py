"""What a fork would change, by the page's API, while the project, the fork or a command in it goes on."""

from __future__ import annotations

import os

from looking import Looking

from clocks import give_way
from conftest import Place
from test_review_api import staged


def test_what_the_project_has_changed_meanwhile(place: Place) -> None:
    place.write("both", "a\n")
    place.write("merges", "1\n2\n3\n4\n5\n6\n7\n")
    looking = staged(place, "echo b > both; sed -i s/1/one/ merges; echo new > alone")
    before = looking.get("changes")
    assert (before["drift"], before["drifted"], before["conflicts"]) == (0, [], 0)
    place.write("both", "c\n")
    place.write("merges", "1\n2\n3\n4\n5\n6\nseven\n")
    found = looking.get("changes")
    assert (found["drift"], [one["path"] for one in found["drifted"]], found["conflicts"]) == (2, ["both", "merges"], 1)
    assert [row["path"] for row in found["rows"] if "conflict" in row["flags"]] == ["both"]
    stamps = looking.stamps()
    assert looking.get("changes") == found
    assert looking.stamps() == stamps, "to look is no news"
    session = place.session()
    (conflict,) = session.changes.conflicts("f")
    session.changes.decide("f", conflict, "theirs")
    assert looking.get("changes")["conflicts"] == 0


def test_a_fork_in_which_a_command_is_at_work_is_shown_at_once(place: Place) -> None:
    place.write("both", "a\n")
    looking = staged(place, "echo b > both")
    place.write("both", "c\n")
    session = place.session()
    running = session.start([b"sh", b"-c", b"echo more > more; echo written; exec sleep 60"], fork="f")
    try:
        while not running.printed()[0].data:
            running.wait(0.02)
        found = looking.get("changes")
        assert (found["running"], found["conflicts"]) == (True, None)
        assert looking.get("diff", file=b"both")["kind"] in ("text", "unknown")
    finally:
        session.sandboxes.end("f", grace=0)
    ended = running.wait()
    assert ended is not None and ended.exit_code != 0
    found = looking.get("changes")
    assert (found["running"], [row["path"] for row in found["rows"]]) == (False, ["both", "more"])


def test_to_look_at_a_fork_in_the_background_is_no_news(place: Place) -> None:
    """Pages look again when something has changed: it must not be their look that changes it."""
    looking = staged(place, "echo b > a")
    session = place.session()
    session.start([b"sleep", b"60"], fork="f")
    try:
        while not os.path.exists(session.vault.fork("f").namespace_listener):  # the last of what a command brings
            give_way()
        looking.get("changes")
        before = looking.stamps()
        looking.get("changes")
        looking.get("diff", file=b"a")
        assert looking.stamps() == before
    finally:
        session.sandboxes.end("f", grace=0)


def test_what_a_server_keeps_is_never_shown_when_it_is_not_so_any_more(place: Place) -> None:
    """One that has served all the time says the same as one that has just begun, whatever has happened between."""
    for name in ("a", "b", "d/c", ".gitignore"):
        place.write(name, "one\n")
    looking = staged(place, "for f in a b d/c; do echo two >> $f; done; echo new > n.log")
    session = place.session()
    files = session.forks.files("f")

    def write() -> None:
        files.write(b"a", b"uno\ndos\n")
        session.forks.flush("f")

    def replace() -> None:
        """Its record is written anew: one of the same size."""
        files.write(b"a", b"eno\ndos\n")
        session.forks.flush("f")

    def ignore() -> None:
        place.write(".gitignore", "*.log\n")

    def edit() -> None:
        place.write("b", "uno\n")

    def checkpoint() -> None:
        session.forks.checkpoint("f", "here")

    def add() -> None:
        files.write(b"d/more", b"more\n")
        session.forks.flush("f")

    def apply() -> None:
        looked = looking.get("changes")["fingerprint"]
        with session.alone("apply", lambda _other: None):
            session.changes.apply("f", [b"d"], reviewed=looked)

    def undo() -> None:
        with session.alone("undo", lambda _other: None):
            session.changes.undo()

    def roll_back() -> None:
        session.forks.rollback("f", "here")

    for step in (write, replace, ignore, edit, checkpoint, add, apply, undo, roll_back):
        for _time in range(2):  # what was kept by the first look is there for the second
            for file in (b"a", b"d/c"):
                looking.refused("diff", file=file)
            before = looking.get("changes")
        step()
        fresh = Looking(place)
        for one in ("changes", "standing"):
            assert looking.get(one) == looking.get(one) == fresh.get(one), step.__name__
        for file in (b"a", b"b", b"d/c", b"d/more", b"n.log"):
            assert looking.refused("diff", file=file) == fresh.refused("diff", file=file), step.__name__
            if fresh.refused("diff", file=file)[0] == 200:
                assert looking.get("diff", file=file) == fresh.get("diff", file=file), step.__name__
        assert (fresh.get("changes") != before) is (step is not checkpoint), step.__name__
