"""What a command costs in a session that has run one before, counted: calls of the host's side into the kernel.

A time on a busy machine proves nothing; a count is the same everywhere. Whoever adds a feature to every command pays
here, in sight.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

pytestmark = pytest.mark.both_users

HOST_CALLS = 122
"""Calls of functions of the system's modules in this process, from the order of a command to its result, in a fork that
has run some: its overlays stand, and the project is watched."""
FEW_CALLS = 140
"""The same of the second command of a session, which makes the template."""
MODULES = ("posix", "fcntl", "select", "_socket")
"""Modules whose functions are calls into the kernel."""
HARMLESS = frozenset({"fspath", "fsencode", "fsdecode", "WIFEXITED", "poll", "register", "fileno", "CMSG_LEN"})
"""Functions there that are none."""
KINDS = ("socket", "poll", "ScandirIterator")
"""Kinds of objects there whose methods are calls into the kernel."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count this thread's calls into the kernel."""
    calls: Counter[str] = Counter()

    def look(_frame: Any, event: str, function: Any) -> None:
        if event != "c_call" or function.__name__ in HARMLESS:
            return
        owner = getattr(function, "__self__", None)
        module = getattr(owner, "__name__", None) or type(owner).__module__
        if module in MODULES or type(owner).__name__ in KINDS:
            calls[function.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(("before", "most"), [(1, FEW_CALLS), (8, HOST_CALLS)])
def test_what_a_warm_command_asks_of_the_kernel(place: Place, before: int, most: int) -> None:
    session = place.session()
    for _time in range(before):
        session.run((b"true",), fork="f")
    with counted() as calls:
        result = session.run((b"true",), fork="f")
    assert result.exit_code == 0
    assert calls["open"] and calls["pipe"], "nothing was counted"
    assert not calls["ftruncate"], "ext4 flushes a file that is cut and written again"
    assert sum(calls.values()) <= most, calls.most_common()


def test_a_command_in_a_fork_whose_overlays_stand_makes_nothing_on_the_disk(place: Place) -> None:
    """Apart from what says that it runs, and the entrance to it."""
    session = place.session()
    for _time in range(8):
        session.run((b"true",), fork="f")
    with counted() as calls:
        session.run((b"true",), fork="f")
    assert not calls["mkdir"] and not calls["rename"] and not calls["rmdir"], calls.most_common()


def test_a_warm_command_neither_lists_nor_removes_directories_of_the_one_before(place: Place) -> None:
    session = place.session()
    for _time in range(3):
        session.run((b"true",), fork="f")
    with counted() as calls:
        session.run((b"true",), fork="f")
    assert not calls["rmdir"] and not calls["chmod"], calls.most_common()


def works(session: Any) -> list[Path]:
    fork = Path(os.fsdecode(session.vault.fork("f").path))
    return [path for parent in (fork / "work", fork / "caches" / "work") for path in parent.iterdir()]


def works_left(place: Place) -> list[Path]:
    """Return the work directories that are there when the launcher, which is the tests' own and goes on, has had time
    to remove those of ended commands."""
    session, until = place.session(), time.monotonic() + 20
    left = works(session)
    while left and time.monotonic() < until:
        left = works(session)
    return left


def test_no_work_directory_is_left(place: Place) -> None:
    session = place.session()
    for _time in range(3):
        session.run((b"sh", b"-c", b"echo a >> f"), fork="f")
    session.close()
    assert works_left(place) == []


def test_what_a_killed_session_has_left_goes_with_the_next_command(place: Place) -> None:
    session = place.session()
    session.run((b"true",), fork="f")
    fork = Path(os.fsdecode(session.vault.fork("f").path))
    left = fork / "work" / "17" / "work" / "incompat"
    left.mkdir(parents=True)
    (left / "#1").write_text("of the kernel")
    left.chmod(0)
    session.close()
    with place.session() as again:
        again.run((b"true",), fork="f")
    assert works_left(place) == []


def test_the_launcher_is_gone_when_a_command_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the host does it, as for the launcher of a container."""
    session = place.session()
    session.run((b"true",), fork="f")
    monkeypatch.setattr(type(session.machine.client), "clear", lambda *_arguments: False)
    session.run((b"true",), fork="f")
    assert all(os.stat(path / "work").st_mode & 0o700 == 0o700 for path in works(session))
    monkeypatch.undo()
    session.close()
    with place.session() as again:
        again.run((b"true",), fork="f")
    assert works_left(place) == []


def test_a_fork_is_discarded_while_the_launcher_removes_its_work_directories(place: Place) -> None:
    session = place.session()
    for _time in range(20):
        session.run((b"true",), fork="f")
        session.forks.discard("f")
    assert not [fork.name for fork in session.vault.forks()]


def test_a_tree_is_removed_by_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of one finds that the other has been there."""
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "f").touch()
    chmod, unlink, rmdir = os.chmod, os.unlink, os.rmdir

    def first(real: Any) -> Any:
        def twice(*arguments: Any, **options: Any) -> None:
            real(*arguments, **options)
            if real is not chmod:
                raise FileNotFoundError(2, "the other was faster")

        return twice

    monkeypatch.setattr(os, "unlink", first(unlink))
    monkeypatch.setattr(os, "rmdir", first(rmdir))
    remove_tree(os.fsencode(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []


PAGE_FAULTS = 700
"""Of the launcher's family for one warm command, the command itself included."""


def test_what_a_warm_command_costs_the_launcher(place: Place) -> None:
    """Page faults of the launcher, its template, the init and the command: they count what is copied after a fork. The
    kernel adds them up for a child when it is waited for."""

    def faults(commands: int) -> int:
        client = Client()
        client.start()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        with Session.open(
            os.fsencode(place.project),
            state=os.fsencode(place.state),
            home=os.fsencode(place.home),
            environ=os.environb,
            client=client,
        ) as session:
            for _command in range(commands):
                session.run((b"true",), fork="f")
        client.close()
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    few, many = faults(10), faults(30)
    assert 100 < (many - few) / 20 <= PAGE_FAULTS
