"""A command leaves nothing behind: no process, mount, descriptor, control group or file, however it ends."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from box import tree
from clocks import give_way
from conftest import Place, paths_below
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.session import Session
from test_limits import groups_of

pytestmark = [pytest.mark.both_users, pytest.mark.alone]

RUNS = int(os.environ.get("MUDROOM_RUNS", "100"))
"""More by hand: MUDROOM_RUNS=10000 MUDROOM_TEST_SECONDS=3600."""
AT_ONCE = 100
PER_COMMAND = 20
"""Descriptors that a session holds for one running command, at most: streams, places, namespaces, connections."""

WAYS: tuple[tuple[str, float | None], ...] = (
    ("true", None),
    ("echo x > made; mkdir -p d; ln -s /etc/passwd d/link; mkfifo d/fifo", None),
    ("exit 3", None),
    ("kill -9 $$", None),
    ("(setsid sleep 1000 >/dev/null 2>&1 &) ; true", None),
    ("trap '' TERM HUP; sleep 1000 & true", None),
    ("sleep 1000", 0.05),
    ("head -c 100000 /dev/zero > /dev/shm/x; head -c 100000 /dev/zero > /tmp/x; echo > ~/x", None),
    ("no-such-program", None),
)


class Kept(NamedTuple):
    """Resources that could be left on a host."""

    processes: frozenset[int]
    mounts: int
    descriptors: int
    groups: frozenset[str]
    files: frozenset[str]


def kept(place: Place) -> Kept:
    groups = frozenset(groups_of(place))
    mounts = Path("/proc/self/mountinfo").read_text().count(str(place.root))
    files = frozenset(str(path) for path in paths_below(place.state))
    return Kept(frozenset(tree(os.getpid())[1:]), mounts, len(os.listdir("/proc/self/fd")), groups, files)


def one(session: Session, number: int) -> None:
    script, timeout = WAYS[number % len(WAYS)]
    result = session.run([b"sh", b"-c", script.encode()], timeout=timeout)
    session.forks.discard(result.fork)


WATCH = 2
"""Descriptors of the look at the project, which a session makes once: its inotify(7), and the table of mounts."""


def settled(place: Place, expected: Kept) -> Kept:
    """Wait until the counts settle: the launcher reaps ended processes meanwhile, a template keeps one process ready,
    and a thread that has waited for a command closes its descriptors. Return them, without the look's descriptors."""
    found, most = kept(place), expected.descriptors + WATCH
    try:
        while len(found.processes) > len(expected.processes) or found.descriptors > most:
            found = kept(place)
    except TimeoutError as error:
        error.add_note(f"found {found}, expected {expected}")
        raise
    return found._replace(descriptors=expected.descriptors)


def usual(place: Place, runs: int, command: Callable[[int], None]) -> Kept:
    """Return what is kept after some commands, with the most processes that there were after one: the one that a
    template keeps ready may just be made."""
    counts = []
    for number in range(runs):
        command(number)
        counts.append(kept(place))
    return counts[-1]._replace(processes=max((count.processes for count in counts), key=len))


def assert_as_before(place: Place, before: Kept) -> None:
    after = settled(place, before)
    assert len(after.processes) <= len(before.processes)
    assert after._replace(processes=frozenset(), files=frozenset()) == before._replace(
        processes=frozenset(), files=frozenset()
    )
    assert {path.rpartition("/")[2] for path in after.files - before.files} <= {"1", "journal.db-wal", "journal.db-shm"}


@pytest.mark.root
def test_nothing_is_left_after_many_commands(place: Place) -> None:
    session = place.session(Settings(limits=Limits(open_files=500)))
    before = usual(place, 3 * len(WAYS), lambda number: one(session, number))
    for number in range(RUNS):
        one(session, number)
    assert_as_before(place, before)


@pytest.fixture
def open_files() -> Iterator[None]:
    """Permit what ``AT_ONCE`` commands may hold, if none of them ends: an ordinary user's limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * AT_ONCE * PER_COMMAND
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(soft, most if hard == resource.RLIM_INFINITY else min(most, hard)), hard)
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_running_command_holds_few_descriptors(place: Place) -> None:
    """Its user, a program of many threads, has often 1,024 in all."""
    session = place.session()
    one(session, 0)
    before = len(os.listdir("/proc/self/fd"))
    running = [session.start([b"sleep", b"1000"], fork=f"agent-{number}") for number in range(8)]
    held = len(os.listdir("/proc/self/fd")) - before
    for command in running:
        command.end(0.0)
    assert held <= (len(running) + 1) * PER_COMMAND, "one more: a sandbox that is made ahead"


@pytest.mark.usefixtures("open_files")
def test_nothing_is_left_after_many_at_once(place: Place) -> None:
    """Each in a fork of its own, all of one session, which is used by as many threads."""
    session = place.session()
    one(session, 0)
    one(session, 0)
    before = kept(place)
    ended: list[int] = []
    running = threading.Semaphore(AT_ONCE)

    def agent(number: int) -> None:
        with running:
            script = f"echo {number} > mine; test $(cat mine) = {number}"
            result = session.run([b"sh", b"-c", script.encode()], fork=f"agent-{number}")
            ended.append(result.exit_code)

    agents = [threading.Thread(target=agent, args=(number,)) for number in range(AT_ONCE)]
    for thread in agents:
        thread.start()
    for thread in agents:
        thread.join()
    assert ended == [0] * AT_ONCE
    for number in range(AT_ONCE):
        assert session.forks.files(f"agent-{number}").read("mine") == b"%d\n" % number
        session.forks.discard(f"agent-{number}")
    after = settled(place, before)
    assert len(after.processes) <= len(before.processes)
    assert (after.mounts, after.descriptors, after.groups) == (before.mounts, before.descriptors, before.groups)


def test_nothing_is_left_of_a_session_that_has_ended(place: Place) -> None:
    """One that has started a launcher of its own."""
    place.session().close()
    before = kept(place)
    for number in range(3):
        with Session.open(
            os.fsencode(place.project),
            state=os.fsencode(place.state),
            home=os.fsencode(place.home),
            environ=os.environb,
            client=None,
        ) as session:
            one(session, number)
            for _ in range(3):  # from the second on from a template
                session.run([b"sh", b"-c", b"setsid sleep 1000 >/dev/null 2>&1 &"], fork="kept")
            session.forks.discard("kept")
    after = settled(place, before)
    assert after._replace(files=before.files) == before


BEHIND: tuple[tuple[str, float | None], ...] = (
    ("true", None),
    ("echo x > made; sleep 1000", None),
    ("(setsid sleep 1000 >/dev/null 2>&1 &) ; true", None),
    ("trap '' TERM HUP; sleep 1000 & sleep 1000", None),
    ("kill -9 $PPID; sleep 1000", None),
    ("sleep 1000", 0.05),
    ("no-such-program", None),
)


def background(session: Session, number: int) -> None:
    """Start a background command, join it and end it: by itself, by request, or with its fork."""
    script, timeout = BEHIND[number % len(BEHIND)]
    name = f"b{number}"
    argv = [b"sh", b"-c", script.encode()] if " " in script or script == "true" else [script.encode()]
    one = session.start(argv, fork=name, timeout=timeout)
    for _beside in range(number % 3):
        session.run([b"sh", b"-c", b"setsid sleep 1000 >/dev/null 2>&1 & echo > more"], fork=name)
    if number % 2:
        one.end(0.0)
    session.sandboxes.end(name)
    session.forks.discard(name)


def test_nothing_is_left_of_commands_in_the_background(place: Place) -> None:
    session = place.session(Settings(limits=Limits(open_files=500)))
    before = usual(place, 3 * len(BEHIND), lambda number: background(session, number))
    threads = len(os.listdir("/proc/self/task"))
    for number in range(RUNS):
        background(session, number)
    assert_as_before(place, before)
    assert session.forks.users.all_shared() == []
    while len(os.listdir("/proc/self/task")) > threads:  # each ends just after it has said that it is over
        give_way()


def test_nothing_is_left_of_a_session_with_commands_in_the_background(place: Place) -> None:
    place.session().close()
    before = kept(place)
    for number in range(3):
        with Session.open(
            os.fsencode(place.project),
            state=os.fsencode(place.state),
            home=os.fsencode(place.home),
            environ=os.environb,
            client=None,
        ) as session:
            for script in (b"sleep 1000", b"trap '' TERM; setsid sleep 1000 & sleep 1000", b"true")[number:]:
                session.start([b"sh", b"-c", script], fork=f"s{number}")
                session.run([b"sh", b"-c", b"setsid sleep 1000 >/dev/null 2>&1 &"], fork=f"s{number}")
    after = settled(place, before)
    assert after._replace(files=before.files) == before
