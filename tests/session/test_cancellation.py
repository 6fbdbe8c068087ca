"""One command of a session is cancelled by its caller, and no other."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

import pytest

from conftest import Place
from mudroom.core.result import Result
from mudroom.sandbox.client.cancellation import Cancellation, Cancelled
from mudroom.session import Session, Stdio


def begun(session: Session, cancellation: Cancellation, script: str, fork: str = "f") -> Callable[[], Result]:
    """Start a command in a thread; return when it has printed. Call the function for its result."""
    printed, results = threading.Event(), list[Result]()

    def run() -> None:
        stdio = Stdio(on_output=lambda _stream, _data: printed.set())
        argv = [b"sh", b"-c", script.encode()]
        results.append(session.run(argv, fork=fork, stdio=stdio, cancellation=cancellation))

    thread = threading.Thread(target=run)
    thread.start()
    assert printed.wait(60)

    def end() -> Result:
        thread.join(60)
        return results[0]

    return end


@pytest.mark.parametrize("beside", [False, True], ids=["its own sandbox", "a shared sandbox"])
def test_a_cancelled_command_ends_and_its_changes_are_collected(place: Place, beside: bool) -> None:
    session = place.session()
    background = session.start([b"sleep", b"1000"], fork="f") if beside else None
    cancellation = Cancellation()
    end = begun(session, cancellation, "echo x > x; echo up; exec sleep 1000")
    cancellation.cancel()
    cancellation.cancel()
    result = end()
    assert result.signal == 15
    assert [change.path for change in result.changeset.changes] == [b"x"]
    if background is not None:
        assert background.poll() is None
        background.end()


def test_one_that_ignores_sigterm_is_killed(place: Place) -> None:
    cancellation = Cancellation()
    end = begun(place.session(), cancellation, "trap '' TERM; echo up; while :; do sleep 1; done")
    cancellation.cancel()
    assert end().signal == 9


def test_the_command_of_another_caller_goes_on(place: Place) -> None:
    session = place.session()
    first, second = Cancellation(), Cancellation()
    session.forks.new("two")
    session.forks.files("two").list()  # file tools that are in use work beside the command
    one = begun(session, first, "echo up; exec sleep 1000", "one")
    two = begun(session, second, "echo up; while ! test -e go; do sleep 0.01; done", "two")
    first.cancel()
    assert one().signal == 15
    session.forks.files("two").write("go", "")
    assert two().exit_code == 0
    assert not second.is_set


def test_one_that_was_cancelled_before_is_never_started(place: Place) -> None:
    session, cancellation = place.session(), Cancellation()
    session.forks.new("f")
    cancellation.cancel()
    with pytest.raises(Cancelled):
        session.run([b"touch", b"x"], fork="f", cancellation=cancellation)
    assert session.forks.files("f").look("x") is None


def test_one_that_waits_for_another_command_of_its_fork_is_never_started(place: Place) -> None:
    session = place.session()
    running, waiting = Cancellation(), Cancellation()
    end = begun(session, running, "echo up; exec sleep 1000")
    errors = list[Exception]()

    def wait() -> None:
        try:
            session.run([b"touch", b"x"], fork="f", cancellation=waiting)
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.cancel()
    running.cancel()
    end()
    thread.join(60)
    assert len(errors) == 1
    assert session.forks.files("f").look("x") is None


def test_a_command_that_has_ended_is_not_signalled(place: Place) -> None:
    session, cancellation = place.session(), Cancellation()
    assert session.run([b"true"], fork="f", cancellation=cancellation).exit_code == 0
    cancellation.cancel()
    assert session.run([b"true"], fork="f").exit_code == 0


def test_a_wait_is_woken() -> None:
    for before in (False, True):
        cancellation = Cancellation()
        if before:
            cancellation.cancel()
        waited = cancellation.fileno()
        assert bool(select.select([waited], [], [], 0)[0]) is before
        cancellation.cancel()
        assert select.select([waited], [], [], 0)[0] == [waited]
        cancellation.close()
        cancellation.close()
