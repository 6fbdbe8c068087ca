"""``WindowsClient`` on recorded calls: which requests it takes, and how an end is told. The rest runs under Wine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windows_fake import Fake

from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import Plan, StandingPlan
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.ext.windows.sandbox import client as client_module
from mudroom.ext.windows.sandbox.client import WindowsClient, WindowsRunning
from mudroom.ext.windows.sandbox.plan import WindowsMachine
from mudroom.sandbox.client.invocation import Invocation, RunOptions

ENV = {b"PATH": b"C:\\Windows\\System32", b"PATHEXT": b".EXE"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(client_module, "_handles", lambda _stdio: (1, 2, 3))
    made = Fake()
    monkeypatch.setattr(made, "wait", lambda _process, _milliseconds: True)
    return made


def client_of(fake: Fake) -> WindowsClient:
    return WindowsClient(
        fake.calls, variables={"SYSTEMROOT": "C:\\Windows"}, machine=WindowsMachine(), is_file=lambda _path: True
    )


def plan() -> Plan:
    spec = SandboxSpec(b"C:/p", Copy(b"C:/state/work"), b"C:/p", b"C:/Users/ann", b"C:/state/scratch")
    return Plan(0, (b"", b"", False), (("windows", spec, Limits()),))


def begin(fake: Fake, *argv: bytes) -> WindowsRunning:
    return client_of(fake).run(plan(), Invocation(argv or (b"cmd",), ENV, (0, 1, 2)))


def test_a_command_is_confined_as_the_plan_says_and_nothing_is_left(fake: Fake) -> None:
    running = begin(fake)
    ended = running.wait()
    assert ended.status == 3 << 8
    assert (ended.user, ended.max_rss) == (1.5, 4)
    assert running.is_over
    assert running.left == ()
    assert fake.left == []
    running.signal(9)  # it has ended
    assert running.wait() == ended


def test_a_pause_that_new_processes_outrun_is_given_up(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    running = begin(fake)
    numbers = iter(range(10_000))
    monkeypatch.setattr(fake, "process_ids", lambda _job: (next(numbers),), raising=False)
    with pytest.raises(MudroomError) as raised:
        running.pause()
    told = "the command cannot be paused: it starts new processes (wait for its end, or end it)"
    assert str(raised.value) == told
    running.wait()


def test_requests_of_other_platforms_are_refused(fake: Fake) -> None:
    client = client_of(fake)
    background = "a command in the background needs namespaces that others can join; found: a job"
    own = "a sandbox with a network or control groups of its own needs namespaces; found: Windows"
    rows = [(RunOptions(held=True), f"{background} (run it without --background)")]
    rows += [(wish, own) for wish in (RunOptions(gate=True), RunOptions(after=5))]
    for wish, told in rows:
        with pytest.raises(Unsupported) as raised:
            client.run(plan(), Invocation([b"cmd"], ENV, (0, 1, 2)), wish)
        assert str(raised.value) == told
    with pytest.raises(ValueError, match="another platform"):
        client.run(plan()._replace(steps=(("seatbelt",),)), Invocation([b"cmd"], ENV, (0, 1, 2)))
    with pytest.raises(Unsupported) as raised:
        client.prepare_move()
    assert str(raised.value) == ("a control group needs Linux; found: Windows (a job holds memory, processes and cpus)")
    assert fake.left == []
    running = begin(fake)
    with pytest.raises(Unsupported) as raised:
        running.fileno()
    assert str(raised.value) == "waiting for a command with others needs a descriptor; found: a process of Windows"
    for ask, told in (
        (running.view, "the view of a running command needs a mount; found: a copy"),
        (running.door, "a held sandbox needs namespaces that others can join; found: a job"),
    ):
        with pytest.raises(Unsupported) as raised:
            ask()
        assert str(raised.value) == told
    assert (running.gate, running.listeners()) == (None, [])
    running.wait()


def test_it_keeps_no_templates(fake: Fake) -> None:
    templates = client_of(fake).templates
    templates.end_idle()
    wanted = StandingPlan((), (), (), (), 0, (b"", b"", False))
    with pytest.raises(Unsupported) as raised:
        templates.stand(wanted, 0)
    assert str(raised.value) == "a sandbox that stands between commands needs a launcher; found: a client without one"


def test_a_command_whose_plan_has_no_bridge_has_no_gate(fake: Fake) -> None:
    running = begin(fake)
    with pytest.raises(Unsupported) as raised:
        running.open_gate(("127.0.0.2", 1), b"")
    assert str(raised.value) == "the gate needs a bridge in the command's plan; found: a plan without one"
    running.wait()


def test_a_program_that_is_not_found_is_told_before_anything_is_made(fake: Fake) -> None:
    client = WindowsClient(fake.calls, variables={}, machine=WindowsMachine(), is_file=lambda _path: False)
    with pytest.raises(CommandNotStarted) as raised:
        client.run(plan(), Invocation([b"nowhere"], ENV, (0, 1, 2)))
    assert raised.value.exit_code == 127
    assert fake.left == []


def test_without_calls_it_needs_windows() -> None:
    if os.name != "nt":
        with pytest.raises(OSError, match="not Windows"):
            WindowsClient(variables={})


def test_no_flag_opens_the_platform() -> None:
    """``shape`` is passed by tests alone: no source of the package names it but the client's own."""
    root = Path(client_module.__file__).parents[3]
    users = [
        path.name
        for path in root.rglob("*.py")
        if "shape=" in path.read_text() and "WindowsClient(" in path.read_text()
    ]
    assert users == []
