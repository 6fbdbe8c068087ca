"""A template that is made ahead of a command: when it is used, and that a command cannot tell."""

from __future__ import annotations

import json
import marshal
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from kept import PATIENCE, Kept, kept

from box import children, if_namespaces, kill_with_descendants
from clocks import give_way
from conftest import Place, tick
from mudroom.core.confinement.plan import Plan, Step, TemplatePlan
from mudroom.core.settings import Settings
from mudroom.ext.keeper import server
from mudroom.ext.keeper.server import TAKEN, KeptLauncher, PreparedTemplate, _accept, receive
from mudroom.sandbox.client.connection import Connection
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.client.template import StandingSandbox
from mudroom.session import Session

__all__ = ["kept"]  # a fixture

pytestmark = [pytest.mark.both_users, if_namespaces]


def kept_launcher() -> tuple[KeptLauncher, LauncherClient]:
    launcher = KeptLauncher()
    return launcher, LauncherClient(launcher)


def run(place: Place, client: LauncherClient, *words: bytes, settings: Settings | None = None) -> bytes:
    """Run a command in a session of its own, as the command line does."""
    tick()
    environ = {**os.environb, b"LC_ALL": b"C"}
    paths = {"state": os.fsencode(place.state), "home": os.fsencode(place.home)}
    client.start()
    with Session.open(
        os.fsencode(place.project), environ=environ, settings=settings or Settings(), client=client, **paths
    ) as session:
        result = session.run(words or (b"true",))
        assert result.exit_code == 0
        session.forks.discard_unchanged(result.fork)
    return result.stdout


def plan_of(place: Place) -> TemplatePlan:
    """The shared steps of a first command."""
    launcher, client = kept_launcher()
    run(place, client)
    client.close()
    assert launcher.used is not None
    return launcher.used


TRIES = 20
"""Another process of this machine may mount something just then: the template is not used."""


def test_a_command_with_the_same_steps(place: Place) -> None:
    plan = plan_of(place)
    script = (b"sh", b"-c", b"ls -A ~ /tmp /run; cat /etc/resolv.conf")
    for _try in range(TRIES):
        launcher, client = kept_launcher()
        assert launcher.start_ahead(plan) is not None
        out = run(place, client, *script)
        client.close()
        if launcher.took_prepared:
            break
    assert launcher.took_prepared
    _launcher, fresh = kept_launcher()
    assert out == run(place, fresh, *script)
    fresh.close()


def replaced_file(place: Place) -> None:
    """As a resolver of the host is replaced."""
    (path,) = place.state.glob("vaults/*/resolv.conf")
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def replaced_directory(place: Place) -> None:
    (path,) = place.state.glob("vaults/*/scratch")
    path.rename(path.with_name("before"))
    path.mkdir(0o700)


@pytest.mark.parametrize("change", [replaced_file, replaced_directory])
def test_other_files(place: Place, change: Callable[[Place], None]) -> None:
    plan = plan_of(place)
    launcher, client = kept_launcher()
    launcher.start_ahead(plan)
    tick()
    change(place)
    run(place, client)
    assert not launcher.took_prepared
    client.close()


def test_other_steps(place: Place) -> None:
    plan = plan_of(place)
    launcher, client = kept_launcher()
    launcher.start_ahead(plan)
    run(place, client, settings=Settings(network="none"))
    assert not launcher.took_prepared
    client.close()


def test_steps_that_fail(place: Place) -> None:
    plan = plan_of(place)
    launcher, client = kept_launcher()
    shared = (*plan.shared, ("bind", b"/no/such/file", b"file", 0, False))
    assert launcher.start_ahead(plan._replace(shared=shared)) is not None
    run(place, client)
    assert not launcher.took_prepared
    client.close()


@pytest.mark.parametrize("victim", ["launcher", "template", "spare"])
def test_a_part_of_it_is_killed(place: Place, victim: str) -> None:
    """A command runs as without it."""
    plan = plan_of(place)
    launcher, client = kept_launcher()
    prepared = launcher.start_ahead(plan)
    assert prepared is not None
    pid = launcher.require_pid()
    while not (templates := children(pid)) or not children(templates[0]):
        give_way()
    kill_with_descendants({"launcher": pid, "template": templates[0], "spare": children(templates[0])[0]}[victim])
    assert run(place, client, b"echo", b"ran") == b"ran\n"
    client.close()


def wait_end(descriptor: int) -> None:
    assert [events for _fd, events in polled(descriptor) if events & select.POLLHUP]


def polled(descriptor: int) -> list[tuple[int, int]]:
    poller = select.poll()
    poller.register(descriptor, 0)
    return poller.poll(PATIENCE * 1000)


def unlooked(prepared: PreparedTemplate, _plan: TemplatePlan) -> Connection:
    os.close(prepared._report)
    os.close(prepared.mounts)
    return prepared._connection


@pytest.mark.parametrize("moment", ["while its spare is cloned", "after the look at it"])
def test_it_is_killed_and_looks_alive(place: Place, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """A spare has a copy of the template's socket until it has closed what it inherited: the socket outlives the
    template. Or the template is killed between the look and the request."""
    plan = plan_of(place)
    launcher, client = kept_launcher()
    prepared = launcher.start_ahead(plan)
    assert prepared is not None
    pid = launcher.require_pid()
    while not (templates := children(pid)) or not children(templates[0]):
        give_way()
    held: list[socket.socket | Connection] = []
    if moment == "after the look at it":
        monkeypatch.setattr(prepared._connection, "is_open", lambda: True)
        monkeypatch.setattr(PreparedTemplate, "taken", unlooked)
    else:
        ours, theirs = socket.socketpair()
        held += [theirs, prepared._connection]
        prepared._connection = Connection(ours)
    os.kill(templates[0], signal.SIGKILL)
    wait_end(prepared._report)
    assert run(place, client, b"echo", b"ran") == b"ran\n"
    client.close()
    for copy in held:
        copy.close()


def test_it_is_gone_when_it_is_dropped(place: Place) -> None:
    plan = plan_of(place)
    launcher, client = kept_launcher()
    prepared = launcher.start_ahead(plan)
    assert prepared is not None
    report = os.dup(prepared._report)
    launcher.drop_prepared()
    while os.read(report, 4096):  # the end: it is reaped, and its mounts are gone
        pass
    os.close(report)
    client.close()


def test_its_command_waits_for_its_own_steps_alone(place: Place) -> None:
    """A budget: of 60 steps, those of the fork's files are left, and what it takes to give up all privileges."""
    plan = plan_of(place)
    for _try in range(TRIES):
        launcher, client = kept_launcher()
        launcher.start_ahead(plan)
        sent = record_steps(client)
        run(place, client)
        client.close()
        if launcher.took_prepared:
            break
    assert {*sent[0]} <= {"overlay", "spread", "cover", "view", "left", "terminal", "hand_over", "seal", "pivot", "cwd"}
    assert len(sent[0]) <= 10 + sent[0].count("cover")
    assert len(plan.shared) + len(plan.ahead) > 30


def record_steps(client: LauncherClient) -> list[tuple[str, ...]]:
    """Return a list that gets the steps that are sent with each command."""
    sent: list[tuple[str, ...]] = []
    choose = client.templates.choose

    def chosen(
        plan: Plan, standing: StandingSandbox | None, identity: int
    ) -> tuple[Connection, int, tuple[Step, ...], tuple[Step, ...]]:
        choice = choose(plan, standing, identity)
        sent.append(tuple(step[0] for step in choice[3]))
        return choice

    client.templates.choose = chosen  # type: ignore[method-assign]
    return sent


def test_one_that_has_not_read_its_plan() -> None:
    """The keeper tells a process what to prepare, and that one is taken, or killed, before it reads that."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(b"plan")
    theirs.send(TAKEN)
    theirs.close()
    with pytest.raises(ConnectionResetError):
        ours.recv(10)
    ours.close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(b"plan")
    theirs.close()
    assert receive(ours) == b""
    ours.close()


def test_it_is_dropped_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes later is served all the same."""
    monkeypatch.setattr(server, "HELD", 0.0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(b"")  # a name of its own (unix(7), autobind)
    listener.listen()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mounts = os.open("/proc/self/mountinfo", os.O_RDONLY)
    acts: list[str] = []

    class Recorded:
        def start_ahead(self, plan: TemplatePlan | None) -> object:
            acts.append("prepared" if plan is not None else "started")
            return SimpleNamespace(mounts=mounts, has_old_mounts=False) if plan is not None else None

        def drop_prepared(self) -> None:
            acts.append("dropped")
            connecting.connect(listener.getsockname())

    ours.send(marshal.dumps(((0, (b"", b"", False), (), (), ()), [])))
    with listener, ours, theirs, connecting:
        accepted = _accept(listener, theirs, cast(KeptLauncher, Recorded()))
        assert accepted is not None
        accepted.close()
        assert ours.recv(10) == TAKEN
    os.close(mounts)
    assert acts == ["prepared", "dropped"]


MOUNTED = """
import marshal, subprocess, sys
sys.path[:0] = sys.argv[1].split(":")
from mudroom.core.confinement.plan import TemplatePlan
from mudroom.ext.keeper.server import KeptLauncher
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
plan = TemplatePlan(*marshal.loads(bytes.fromhex(sys.argv[3])))
launchers = [KeptLauncher() for _number in range(2)]
first, second = [launcher.start_ahead(plan) for launcher in launchers]
print(first.taken(plan) is not None)
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[2]], check=True)
print(second.taken(plan) is not None)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_a_mount_of_the_host_ends_it(place: Place, tmp_path: Path) -> None:
    source, plan = str(Path(__file__).parents[3] / "src"), marshal.dumps(tuple(plan_of(place))).hex()
    words = ["unshare", "--mount", sys.executable, "-c", MOUNTED, source, str(tmp_path), plan]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("other", ["client", "keeper"])
def test_a_mount_that_is_seen_with_something_else_ends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The kernel tells it once. On a busy machine a client, or a word of the keeper, is there at the same look."""
    plan = plan_of(place)
    launcher, _client = kept_launcher()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(b"")  # a name of its own (unix(7), autobind)
    listener.listen()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    looks: list[select.poll] = []

    class Poller:
        """Adds a mount to the look after the template was made."""

        def __init__(self) -> None:
            self._real = select.poll()
            self.register, self.unregister = self._real.register, self._real.unregister
            looks.append(self._real)

        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            prepared = launcher._prepared
            if self._real is not looks[0] or prepared is None or prepared.has_old_mounts:
                return self._real.poll(timeout)
            if other == "keeper":
                ours.send(marshal.dumps((None, [])))
            connecting.connect(listener.getsockname())
            ready = self._real.poll(0)
            return [*(ready if other == "client" else ready[1:] or ready), (prepared.mounts, select.POLLPRI)]

    ours.send(marshal.dumps((tuple(plan), [])))
    monkeypatch.setattr(server, "select", SimpleNamespace(poll=Poller, POLLIN=select.POLLIN, POLLPRI=select.POLLPRI))
    with listener, ours, theirs, connecting:
        accepted = _accept(listener, theirs, launcher)
        assert accepted is not None
        accepted.close()
    monkeypatch.undo()
    prepared = launcher._prepared
    assert prepared is not None
    assert prepared.has_old_mounts
    assert launcher.template_ahead(plan) is None
    launcher.close()
    launcher.reap()


# --- with a keeper ---

VARIES = re.compile(
    r"^\S+ \S+ \S+ |(upperdir|workdir)=[^,\n]*|run-[0-9a-f]{8}|/[0-9a-f]{12,16}\b|/proc/self/fd/\d+", re.MULTILINE
)


def seen(kept: Kept, *options: str, both: bool, **more: str) -> str:
    """What a command sees of its machine, without numbers of mounts, and without what other tests mount meanwhile."""
    files = "ls -A ~ /tmp /run; stat -c %n:%a /etc/resolv.conf ~; cat ~/.gitconfig"
    script = f"cat /proc/self/mountinfo; {files}; env; ulimit -a; id"
    done = kept("run", "--no", *options, "--", "sh", "-c", script, kept=both, more=more)
    assert done.returncode in (0, 1, 2) and b"/proc" in done.stdout, done
    own = f"/{kept.place.root.name}/"
    lines = [line for line in done.stdout.decode().splitlines() if own in line or not OTHER_TEST.search(line)]
    return VARIES.sub("", "\n".join(lines)) + NUMBER.sub("", done.stderr.decode())


NUMBER = re.compile(r"[0-9a-f]{8}")
OTHER_TEST = re.compile(r"^[\d ]+:\d+ \S* /\S*/popen-gw\d+/")
"""A line of mountinfo with a mount in the directory of a test: another's, if it has not the own name."""


def policy(kept: Kept) -> None:
    (kept.place.home / ".config/mudroom").mkdir(parents=True)
    (kept.place.home / ".config/mudroom/policy.yaml").write_text("limits: {tmp: 5M}\n")


def settings_of_git(kept: Kept) -> None:
    (kept.place.home / ".gitconfig").write_text("[user]\nname = Other\n")


def toolchain(kept: Kept) -> None:
    (kept.place.home / ".cargo/bin").mkdir(parents=True)
    (kept.place.home / ".cargo/bin/credentials.toml").write_text("secret")


def variables(kept: Kept) -> None:
    kept.environment["PATH"] += f":{kept.place.root}"
    kept.environment["TZ"] = "UTC"


def project(kept: Kept) -> None:
    kept.place.project = kept.place.root / "second"
    kept.place.project.mkdir()


def test_a_change_before_the_next_command(kept: Kept) -> None:
    kept.start()
    before = seen(kept, both=True)
    kept.wait_prepared()
    assert seen(kept, both=True) == before
    for change in (policy, settings_of_git, toolchain, variables, project):
        kept.wait_prepared()
        change(kept)
        with_template = seen(kept, both=True)
        assert with_template == seen(kept, both=False), change
        if change is not variables:
            assert with_template != before, change
        before = with_template


def test_an_option_of_the_next_command(kept: Kept) -> None:
    kept.start()
    for option in (["--net", "none"], ["--net", "open"], ["--tmp", "8M"], ["--level", "0"]):
        seen(kept, both=True)
        kept.wait_prepared()
        assert seen(kept, *option, both=True) == seen(kept, *option, both=False), option


def below(pid: int) -> list[int]:
    """Return the pid of a process, and of all processes below it."""
    return [pid, *(process for child in children(pid) for process in below(child))]


def test_the_processes_of_an_idle_keeper(kept: Kept) -> None:
    """The keeper, a process that waits, a launcher, a template and its spare."""
    kept.start()
    for name in ("a", "b"):
        assert kept("exec", "--fork", name, "--", "true").returncode == 0
        template = kept.wait_prepared()
    (row,) = kept.list()
    assert row.memory < 60 << 20
    count, until = 5, time.monotonic() + PATIENCE
    while len(below(kept.pid)) != count:  # the list has just asked, and a launcher may be replaced
        assert time.monotonic() < until, below(kept.pid)
        give_way()
    template = kept.wait_prepared()
    pidfd = os.pidfd_open(template)
    kept.stop()
    assert select.select([pidfd], [], [], PATIENCE)[0]
    os.close(pidfd)


@pytest.mark.parametrize("victim", ["keeper", "waiting"])
def test_it_ends_with_whom_it_is_for(kept: Kept, victim: str) -> None:
    kept.start()
    assert kept("run", "--yes", "--", "true").returncode == 0
    template = kept.wait_prepared()
    pidfds = [os.pidfd_open(pid) for pid in (template, *children(template))]
    os.kill(kept.pid if victim == "keeper" else kept.waiting()[0], signal.SIGKILL)
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], PATIENCE)[0]
        os.close(pidfd)


def test_nothing_is_left_over(kept: Kept) -> None:
    """What is removed behind the answer: the fork of a command that changed nothing."""
    kept.start()
    assert kept("run", "--yes", "--", "true").returncode == 0
    assert json.loads(kept("ls", "--json").stdout)["forks"] == []
    kept.wait_for_end()
    (vault,) = kept.place.state.glob("vaults/*")
    assert list((vault / "trash").iterdir()) == list((vault / "forks").iterdir()) == []
