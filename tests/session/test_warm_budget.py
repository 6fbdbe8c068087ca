"""What a command costs in a session that has run one before, counted: calls of the host's side into the kernel.

A time on a busy machine proves nothing; a count is the same everywhere. Whoever adds a feature to every command pays
here, in sight.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from box import tree
from conftest import Place
from kernel_calls import counted
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session, Stdio
from mudroom.stage.layers.layer import remove_tree

pytestmark = pytest.mark.both_users

HOST_CALLS = 151 + 2 * (not os.geteuid())
"""Calls of functions of the system's modules in this process, from the order of a command to its result, in a fork that
has run some: its overlays stand, and the project is watched. Two are looks for a mount of the fork; one asks who the
user is, whose project may be of another group; one whether the record is of this boot; three
ask whether a run pauses agents; one more is made if the kernel has something to tell of the project. Root has two
more."""
FEW_CALLS = 157
"""The same of the second command of a session, which makes the template. One looks at the record before the command,
for the paths that it changes."""
NEW_FORK_CALLS = 175
"""The same of a command in a fork that is made for it: three look for its record."""
NEW_FORK_DIRECTORIES = 9
"""Those that the host makes for such a command, on the disk: two of the layer, one of the fork, one of the work
directories, four of the caches, and the layer's tree."""


@pytest.mark.parametrize(("before", "most"), [(1, FEW_CALLS), (8, HOST_CALLS)])
def test_what_a_warm_command_asks_of_the_kernel(place: Place, before: int, most: int) -> None:
    for fork in ("first", "f"):  # the first session loads the modules, if no other test of this process has
        session = place.session()
        for _time in range(before + (fork == "first")):
            session.run((b"true",), fork=fork)
    with counted() as calls:
        result = session.run((b"true",), fork="f")
    assert result.exit_code == 0
    assert calls["open"] and calls["pipe"], "nothing was counted"
    assert not calls["ftruncate"], "ext4 flushes a file that is cut and written again"
    assert sum(calls.values()) <= most, calls.most_common()


def test_a_command_in_a_fork_whose_overlays_stand_makes_nothing_on_the_disk(place: Place) -> None:
    """Apart from what says that it runs, and the listener that leads into it."""
    session = place.session()
    for before in (3, 5):
        for _time in range(before):
            session.run((b"true",), fork="f")
        with counted() as calls:
            session.run((b"true",), fork="f")
        assert not {"mkdir", "rename", "rmdir", "chmod"} & {*+calls}, calls.most_common()


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


def test_work_directories_go_when_no_command_runs_any_more(place: Place) -> None:
    """A command that ends beside another leaves them to the one that ends last."""
    session = place.session()
    for _time in range(2):
        session.run((b"true",))
    reads, go = os.pipe()
    up, says = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(session.run, (b"sh", b"-c", b"echo up; read line"), stdio=Stdio(reads, says))
        assert os.read(up, 8) == b"up\n"
        session.run((b"true",), fork="f")
        assert works(session), "removed while another command runs"
        os.write(go, b"go\n")
        waits.result()
    for descriptor in (reads, go, up, says):
        os.close(descriptor)
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


def test_what_a_command_in_a_new_fork_asks_of_the_kernel(place: Place) -> None:
    session = place.session()
    for _time in range(3):
        session.run((b"true",))
    with counted() as calls:
        result = session.run((b"true",))
    assert result.exit_code == 0
    assert sum(calls.values()) <= NEW_FORK_CALLS, calls.most_common()
    assert calls["mkdir"] <= NEW_FORK_DIRECTORIES, calls.most_common()
    assert calls["rename"] == 1, "the fork gets its name by it; nothing else is replaced"


PAGE_FAULTS = (50, 160)
"""Least and most of the launcher's family for one warm command, the command itself included, in one fork and in a new
one each."""
TEMPLATE = 1
"""The processes of a template that rests."""


@contextmanager
def own_session(place: Place, client: LauncherClient) -> Iterator[Session]:
    with Session.open(
        os.fsencode(place.project),
        state=os.fsencode(place.state),
        home=os.fsencode(place.home),
        environ=os.environb,
        client=client,
    ) as session:
        yield session


@pytest.mark.parametrize("fork", ["f", None])
def test_what_a_warm_command_costs_the_launcher(place: Place, fork: str | None) -> None:
    """Page faults of the launcher, its template, the init and the command: they count what is copied after a fork. The
    kernel adds them up for a child when it is waited for."""

    def faults(commands: int) -> int:
        client = LauncherClient(SpawnedLauncher())
        client.start()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        with own_session(place, client) as session:
            for _command in range(commands):
                session.run((b"true",), fork=fork)
        client.close()
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

    few, many = faults(10), faults(30)
    assert PAGE_FAULTS[0] < (many - few) / 20 <= PAGE_FAULTS[1]


STANDING_MEMORY = 2_000_000
"""Bytes (PSS) of a sandbox that stands while no command has come for a while: its template alone."""


def share(pid: int) -> int:
    """Return the bytes of a process, of shared pages its share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of a process that cannot be dumped")
def test_what_a_sandbox_that_stands_keeps_in_memory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.sandbox.client.template.REST", 100)
    client = LauncherClient(SpawnedLauncher())
    client.start()

    def memory(forks: int) -> int:
        """Return the bytes of all processes when so many sandboxes stand: each is a template that rests, and the
        launcher has a template with its spare."""
        for number in range(forks):
            for _command in range(4):
                session.run((b"true",), fork=f"f{number}")
        until, pid = time.monotonic() + 20, client.launcher.require_pid()
        while len(processes := tree(pid)[1:]) != TEMPLATE * (1 + forks) + 1 and time.monotonic() < until:
            continue
        assert len(processes) == TEMPLATE * (1 + forks) + 1
        return sum(map(share, processes))

    with own_session(place, client) as session:
        few, many = memory(2), memory(8)
    client.close()
    assert 200_000 < (many - few) / 6 <= STANDING_MEMORY


def test_a_sandbox_that_rests_runs_the_next_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same one, and makes another init ahead afterwards."""
    monkeypatch.setattr("mudroom.sandbox.client.template.REST", 100)
    client = LauncherClient(SpawnedLauncher())
    client.start()

    def await_processes(count: int) -> list[int]:
        until = time.monotonic() + 20
        while len(processes := tree(client.launcher.require_pid())[1:]) != count and time.monotonic() < until:
            continue
        assert len(processes) == count
        return processes

    with own_session(place, client) as session:
        for _command in range(4):
            session.run((b"sh", b"-c", b"echo a >> f"), fork="f")
        resting = await_processes(2 * TEMPLATE + 1)
        result = session.run((b"cat", b"f"), fork="f")
        assert result.stdout == b"a\n" * 4
        assert set(resting) <= set(await_processes(2 * TEMPLATE + 2)), "it was not made anew"
        assert await_processes(2 * TEMPLATE + 1) == resting
        assert session.run((b"cat", b"f"), fork="f").stdout == b"a\n" * 4
        session.forks.discard("f")
        await_processes(TEMPLATE + 1)
    client.close()
