"""A fork of a fork while a command runs in it, in the foreground or in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from background_command import SH
from box import if_namespaces
from clocks import give_way, let_pass
from conftest import Place
from mudroom.core.result import Result
from mudroom.core.retention import DAY, RetentionLimits
from mudroom.errors import ForkExists, MudroomError
from mudroom.ext.live import fork as live_fork
from mudroom.ext.live.fork import fork_live
from mudroom.session import Session
from mudroom.vault.forks import live_checkpoint, stacking
from mudroom.vault.retention.prune import collect_garbage

pytestmark = [pytest.mark.both_users, if_namespaces]

WRITER = """
n=0
until [ -e /tmp/enough ]; do
    n=$((n + 1)); echo $n > first.new; mv first.new first; echo $n > second.new; mv second.new second; echo line >> log
    [ $n -gt 3000 ] && touch /tmp/enough
done
echo end > end
"""
"""A number is in ``first`` before it is in ``second``. It ends by itself: long after a test has looked."""


@contextmanager
def foreground(session: Session, script: str, fork: str = "a") -> Iterator[list[Result]]:
    """A command in the foreground, from the time that it has written ``second``; then its result."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(session.run([*SH, script.encode()], fork=fork)))
    thread.start()
    try:
        while (made := session.vault.find(fork)) is None or not os.path.exists(made.upper + b"/second"):
            assert thread.is_alive(), results
            give_way()
        yield results
    finally:
        session.interrupt(fork=fork)
        thread.join()


def content(session: Session, fork: str, *names: str) -> list[int]:
    files = session.forks.files(fork)
    return [int(files.read(name.encode())) for name in names]


def content_below(session: Session, fork: str) -> int:
    """Return the number in ``second`` in the writable layer, which is replaced as a whole."""
    with open(session.vault.fork(fork).upper + b"/second") as stream:
        return int(stream.read())


def test_a_command_in_the_foreground_goes_on_and_its_files_are_of_one_moment(place: Place) -> None:
    place.write("log", "")
    session, other = place.session(), place.session()
    with foreground(session, WRITER) as results:
        numbers = []
        for name in ("b", "c"):
            assert fork_live(other, name, "a").name == name
            first, second = content(other, name, "first", "second")
            assert first in (second, second + 1)
            assert len(other.forks.files(name).read(b"log").splitlines()) in (second, second - 1)
            numbers.append(second)
            while content_below(session, "a") <= second:
                assert results == []
                give_way()
        assert numbers[0] < numbers[1]
    assert [changed.path for changed in other.changes.of("b").changes if b"new" not in changed.path] == [
        b"first", b"log", b"second",
    ]  # fmt: skip
    assert {b"first", b"second"} <= {changed.path for changed in session.changes.of("a").changes}
    other.changes.apply("b")
    assert int((place.project / "second").read_text()) == numbers[0]
    assert content(other, "c", "second") == [numbers[1]]


def test_the_fork_of_a_running_one_has_what_checkpoints_and_earlier_commands_left(place: Place) -> None:
    place.write("base", "base\n")
    session, other = place.session(), place.session()
    session.run([*SH, b"echo 1 > one; echo changed > base"], fork="a")
    session.forks.checkpoint("a", "point")
    with foreground(session, "rm one; echo 1 > second; sleep 1000"):
        fork_live(other, "b", "a")
        assert [changed.path for changed in other.changes.of("b").changes] == [b"base", b"second"]
        with pytest.raises(ForkExists):
            fork_live(other, "b", "a")
    assert session.vault.fork("a").state.checkpoint("point") is not None
    assert session.vault.fork("a").state.layers == other.vault.fork("b").state.layers[:-1]


def test_a_copy_that_fails_lets_the_command_go_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, other = place.session(), place.session()

    def fail(*_given: Any, **_more: Any) -> None:
        raise MudroomError("no room")

    with foreground(session, WRITER):
        before = os.stat(session.vault.fork("a").upper + b"/second").st_ino
        layers = sorted(os.listdir(session.vault.path + b"/layers"))
        for part, name in ((live_checkpoint, "merge_originals"), (stacking, "restore_record"), (live_fork, "gather")):
            with monkeypatch.context() as patch:
                patch.setattr(part, name, fail)
                with pytest.raises(MudroomError, match="no room"):
                    fork_live(other, "b", "a")
            assert other.vault.find("b") is None
            assert sorted(os.listdir(session.vault.path + b"/layers")) == layers
        while os.stat(session.vault.fork("a").upper + b"/second").st_ino == before:
            give_way()
        fork_live(other, "b", "a")


KILLED = """
import os, signal, sys
from mudroom.ext.live.fork import fork_live
from mudroom.session import Session
from mudroom.vault.forks import live_checkpoint

project, state, home = map(os.fsencode, sys.argv[1:])
live_checkpoint.merge_originals = lambda *_given: os.kill(os.getpid(), signal.SIGKILL)
with Session.open(project, state=state, home=home, environ=os.environb) as session:
    fork_live(session, "b", "a")
"""


def test_a_copy_that_is_killed_lets_the_command_go_on_and_leaves_nothing(place: Place) -> None:
    session = place.session()
    with foreground(session, WRITER):
        layers = set(os.listdir(session.vault.path + b"/layers"))
        places = (place.project, place.state, place.home)
        done = subprocess.run([sys.executable, "-P", "-c", KILLED, *map(str, places)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert session.vault.find("b") is None
        number = content_below(session, "a")
        while content_below(session, "a") == number:
            give_way()
    (left,) = set(os.listdir(session.vault.path + b"/layers")) - layers
    now = let_pass(session.vault, time.time_ns() + 2 * DAY)
    collect_garbage(session.vault, RetentionLimits(60 * DAY, 50, 1 << 50), now)
    assert not os.path.exists(session.vault.path + b"/layers/" + left)
    assert fork_live(session, "b", "a").name == "b"


def test_commands_in_the_background_and_nothing_at_all(place: Place) -> None:
    session, other = place.session(), place.session()
    session.run([*SH, b"echo 0 > second; echo 0 > first"], fork="a")
    fork_live(other, "rest", "a")
    assert content(other, "rest", "second") == [0]
    server = session.start([*SH, WRITER.encode()], fork="a")
    for name, one in (("b", other), ("c", session)):
        fork_live(one, name, "a")
        first, second = content(one, name, "first", "second")
        assert first in (second, second + 1)
    assert server.poll() is None
    server.end()
    assert fork_live(other, "d", "a").state.layers != ()
