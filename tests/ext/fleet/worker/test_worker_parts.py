"""A worker's parts by themselves: its lease, its disk, its own policy."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from scripted_origin import ScriptedOrigin, errand
from worker_fixtures import origin, process, project, start, started, worker_home

from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule
from mudroom.core.confinement.limit import Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire.frame import Frame, FrameReader
from mudroom.ext.fleet.wire.tunnel import MOST
from mudroom.ext.fleet.worker import stdio
from mudroom.ext.fleet.worker.base_cache import BaseCache
from mudroom.ext.fleet.worker.folder import AlreadyAccepted, ErrandFolders
from mudroom.ext.fleet.worker.lease import Lease
from mudroom.ext.fleet.worker.origin_connections import OriginConnections
from mudroom.ext.fleet.worker.outbox import LinkOutbox
from mudroom.ext.fleet.worker.tighten import own_policy, tightened
from tiers import each
from whole_text import whole

__all__ = ["origin", "process", "project", "start", "started", "worker_home"]  # fixtures

Worker = Callable[..., ScriptedOrigin]


# --- the lease ---


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., tuple[Lease, threading.Event]]:
    def watched(seconds: float, unread: Callable[[], bool] = lambda: False) -> tuple[Lease, threading.Event]:
        lease, expired = Lease(seconds, os.fsencode(tmp_path / "contact"), unread), threading.Event()
        threading.Thread(target=lease.watch, args=(expired.set, lambda: None), daemon=True).start()
        return lease, expired

    return watched


def test_a_lease_runs_out_once(watched: Callable[..., tuple[Lease, threading.Event]]) -> None:
    lease, expired = watched(0.1)
    assert expired.wait(20)
    lease.close()


def test_a_worker_that_was_stopped_reads_before_its_lease_runs_out(
    watched: Callable[..., tuple[Lease, threading.Event]],
) -> None:
    looked, unread = threading.Event(), [True]

    def has_unread() -> bool:
        looked.set()
        return unread[0]

    lease, expired = watched(0.1, has_unread)
    assert looked.wait(20) and not expired.is_set()
    unread[0] = False  # what waited was no frame
    assert expired.wait(20)
    lease.close()


@pytest.mark.parametrize("seconds", [float("nan"), float("-inf"), -1.0, 0.0])
def test_a_lease_that_is_no_time_is_short(
    watched: Callable[..., tuple[Lease, threading.Event]], seconds: float
) -> None:
    lease, expired = watched(seconds)
    assert expired.wait(20)
    lease.close()


# --- folders ---


def test_of_two_processes_that_accept_one_errand_one_does(tmp_path: Path) -> None:
    wanted, results = errand(bytes(32), "true"), list[object]()
    start = threading.Barrier(8)

    def accept() -> None:
        folders = ErrandFolders(os.fsencode(tmp_path / "errands"))
        start.wait()
        try:
            results.append(folders.accept(wanted))
        except AlreadyAccepted as error:
            results.append(error)

    threads = [threading.Thread(target=accept) for _number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not isinstance(result, AlreadyAccepted) for result in results) == 1
    names = os.listdir(tmp_path / "errands")
    assert sorted(names) == ["errand-0001.1", "kept"]


def test_what_a_crash_leaves_of_an_errand_that_was_not_accepted_is_removed(tmp_path: Path) -> None:
    folders = ErrandFolders(os.fsencode(tmp_path / "errands"))
    (tmp_path / "errands/new-0123").mkdir()
    (tmp_path / "errands/new-0123/errand").write_bytes(b"half")
    assert list(folders) == []
    assert os.listdir(tmp_path / "errands") == ["kept"]


def test_the_vault_of_a_snapshot_that_was_evicted_goes_once_it_has_no_fork(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    outcome = worker.outcome(worker.sh(worker.send_base(project), "echo x > x"))
    top = worker.home / ".local/state/mudroom/worker" / worker.origin
    worker.close()
    shutil.rmtree(top / "grounds")
    (vault,) = (top / "vaults/vaults").iterdir()
    second = start()
    second.hello()
    second.send(message.KEPT, message.Kept(outcome.errand, outcome.attempt))
    second.close()
    assert vault.exists()  # it had a fork when the worker came
    shutil.rmtree(top / "grounds")
    start().close()
    third = start()
    third.hello()
    third.close()
    assert not vault.exists()


# --- levels ---


def test_levels_are_tried_once_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_ENGINES", ())
    place, variables = os.fsencode(tmp_path), {b"PATH": os.environb[b"PATH"], b"HOME": os.fsencode(tmp_path)}
    assert stdio.tried_levels(place, variables) == (1,)  # level 0 cannot show an origin's path
    assert os.listdir(tmp_path) == ["levels"]
    monkeypatch.setattr(stdio, "_runs_at", lambda *_arguments: pytest.fail("it is known"))
    assert stdio.tried_levels(place, variables) == (1,)
    (tmp_path / "levels").write_text("another machine\n0 1 2")
    monkeypatch.setattr(stdio, "_runs_at", lambda number, *_arguments: number == 1)
    assert stdio.tried_levels(place, variables) == (1,)


# --- the disk ---


def test_a_file_that_is_all_hole_fails_and_is_not_read(start: Worker, project: Path) -> None:
    worker = start()
    worker.hello()
    outcome = worker.outcome(worker.sh(worker.send_base(project), "truncate -s 5T big; exit 3"))
    assert (outcome.state, outcome.exit_code, outcome.archive) == ("failed", 3, 0)
    assert "at most" in outcome.reason


def test_a_full_disk_before_the_start_is_an_outcome(
    start: Worker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start()
    worker.hello()
    base = worker.send_base(project)
    full = SimpleNamespace(f_bavail=10, f_bfree=10, f_blocks=10, f_frsize=4096)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _path: full)
        outcome = worker.outcome(worker.start(base, "true"))
        assert outcome.state == "failed" and outcome.reason.startswith("ENOSPC: ")
    assert worker.outcome(worker.start(base, "true", name="errand-0002")).state == "ended"


def test_a_disk_that_is_full_when_an_errand_is_written_down_refuses_it(
    start: Worker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mudroom.ext.fleet.worker import folder

    def full(_path: bytes, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    worker = start()
    worker.hello()
    base = worker.send_base(project)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "_write", full)
        assert "No space left" in worker.failure(worker.offer(base, "true")).reason
    assert worker.outcome(worker.start(base, "true")).state == "ended"


# --- sending ---


def test_an_origin_that_reads_nothing_makes_producers_wait_and_its_end_frees_them() -> None:
    read, write = os.pipe()
    outbox = LinkOutbox(write)
    outbox.start()
    done = threading.Event()

    def produce() -> None:
        for _number in range(100):
            outbox.put(Frame(message.PONG, 0, bytes(1 << 20)))
        done.set()

    threading.Thread(target=produce, daemon=True).start()
    assert not done.wait(0.1)
    os.close(read)
    assert done.wait(20) and outbox.is_over
    os.close(write)


class Numbered:
    """A source with so many frames."""

    def __init__(self, count: int) -> None:
        self._left = [Frame(message.OUT, number, b"") for number in range(count)]

    def next_frame(self) -> Frame | None:
        return self._left.pop(0) if self._left else None


def written_kinds(outbox: LinkOutbox, read: int, count: int) -> list[int]:
    """Start it, and return the kinds in the first frames that it writes."""
    reader, frames = FrameReader(), list[Frame]()
    outbox.start()
    while len(frames) < count:
        frames += reader.feed(os.read(read, 1 << 16))
    outbox.close()
    return [frame.kind for frame in frames]


@each("before", range(4))
def test_no_output_of_an_errand_goes_before_the_errand_was_accepted(before: int) -> None:
    """Output and an outcome that came at once overtook ACCEPTED, in a worker that had just sent another urgent frame.
    To the origin that breaks the protocol, and it closes the link."""
    read, write = os.pipe()
    outbox = LinkOutbox(write)
    for _number in range(before):
        outbox.put(Frame(message.PONG, 0, b""))
    outbox.put(Frame(message.ACCEPTED, 1, b""))
    outbox.wake(Numbered(1))
    kinds = written_kinds(outbox, read, before + 2)
    os.close(read)
    os.close(write)
    assert kinds == [*[message.PONG] * before, message.ACCEPTED, message.OUT]


def test_urgent_frames_that_came_later_and_a_source_take_turns() -> None:
    read, write = os.pipe()
    outbox = LinkOutbox(write)
    outbox.wake(Numbered(3))
    for _number in range(3):
        outbox.put(Frame(message.PONG, 0, b""))
    kinds = written_kinds(outbox, read, 6)
    os.close(read)
    os.close(write)
    assert kinds == [message.PONG, message.OUT] * 3


def test_a_frame_that_a_source_is_making_is_written_before_a_link_is_flushed() -> None:
    """The link ended meanwhile, and an outcome went to the descriptor's next owner: a new link's pipe."""
    asked, go = threading.Event(), threading.Event()

    class Slow(Numbered):
        def next_frame(self) -> Frame | None:
            asked.set()
            assert go.wait(20)
            return super().next_frame()

    read, write = os.pipe()
    outbox = LinkOutbox(write)
    outbox.start()
    outbox.wake(Slow(1))
    assert asked.wait(20) and not outbox.flush(0)
    go.set()
    assert outbox.flush(20)
    outbox.close()
    os.close(write)
    frames = FrameReader().feed(os.read(read, 1 << 16))
    os.close(read)
    assert [frame.kind for frame in frames] == [message.OUT]


# --- the worker's own policy ---

OWN = """\
network: {mode: gate, deny: [evil.example], allow: [good.example]}
limits: {memory: 1 GiB}
run: {timeout: 60s, level: 1}
secrets: {mask: ["*.sqlite"], show: [.env]}
commands:
  classes: {destructive: require_approval, networked: allow}
  rules: [{pattern: git push, action: deny}, {pattern: make, action: allow}]
"""


def test_a_worker_s_own_policy_only_tightens(tmp_path: Path) -> None:
    config = tmp_path / ".config/mudroom"
    config.mkdir(parents=True)
    (config / "policy.yaml").write_text(OWN)
    own = own_policy(os.fsencode(tmp_path), {b"HOME": os.fsencode(tmp_path)})
    loose = Settings(
        level=0,
        network="open",
        limits=Limits(memory=1 << 40),
        hosts=(HostRule("allow", "origin.example"),),
        commands=CommandPolicy(by_class=(ClassRule("networked", "deny"),)),
    )
    strict = tightened(loose, own)
    assert (strict.level, strict.network, strict.timeout, strict.limits.memory) == (1, "gate", 60.0, 1 << 30)
    assert [(rule.action, rule.pattern) for rule in strict.hosts] == [
        ("allow", "origin.example"),
        ("deny", "evil.example"),
    ]
    assert strict.secrets_mask == (b"*.sqlite",) and strict.secrets_show == ()
    rules: tuple[CommandRule, ...] = strict.commands.rules
    assert [(rule.pattern[0], rule.action, rule.floor) for rule in rules] == [((b"git",), "deny", True)]
    actions = {rule.name: rule.action for rule in strict.commands.by_class}
    assert actions == {"networked": "deny", "destructive": "require_approval"}
    tight = Settings(level=2, network="none", timeout=5.0, limits=Limits(memory=1 << 20))
    kept = tightened(tight, own)
    assert (kept.level, kept.network, kept.timeout, kept.limits.memory) == (2, "none", 5.0, 1 << 20)


def test_two_workers_keep_the_same_bases(tmp_path: Path) -> None:
    """One user's workers on one machine share an origin's bases."""
    caches = [BaseCache(os.fsencode(tmp_path)) for _number in range(2)]
    together, failures = threading.Barrier(2), list[OSError]()

    def record(cache: BaseCache) -> None:
        for number in range(100):
            together.wait(60)
            try:
                cache._record(b"%032d" % number, message.Base(bytes(32), b"/p", b"/h", (), (), 0o22))
            except OSError as error:
                failures.append(error)

    threads = [threading.Thread(target=record, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list((tmp_path / "bases").iterdir())) == 100
    for cache in caches:
        cache.close()


def test_more_connections_than_an_origin_makes_at_once() -> None:
    """Each has a pipe: those for all errands on a link are bounded, and go with it."""
    before = len(os.listdir("/proc/self/fd"))
    connections = OriginConnections(lambda _frame: None)
    pending = [connections.begin(1, "caller", "host.example", 80) for _number in range(MOST)]
    with pytest.raises(MudroomError, match=whole("256 connections are being made by the origin")):
        connections.begin(1, "caller", "host.example", 80)
    for connection in pending:
        connection.close()
    connections.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_more_connections_than_a_link_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.ext.fleet.wire.tunnel.MOST", 0)
    sent, before = list[Frame](), len(os.listdir("/proc/self/fd"))
    connections = OriginConnections(sent.append)
    pending = connections.begin(1, "caller", "host.example", 80)
    connections.dialled(message.frame_of(message.DIALLED, message.Dialled(1, ""), 1))
    with pytest.raises(MudroomError, match=whole("the link has 256 connections")):
        pending.result()
    pending.close()
    connections.close()
    assert len(os.listdir("/proc/self/fd")) == before
