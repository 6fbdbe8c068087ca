"""Commands of an agent whose aims the sandbox holds: not asked about, if the protection is in force for the command."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.report import StepFailed
from mudroom.session import Session
from mudroom.session.confinement.confinement import Confinement
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.session.own_sandbox import OwnSandbox
from whole_text import whole

pytestmark = pytest.mark.both_users

KILL = [b"pkill", b"-f", b"no-such-program-here"]
OWN = "the sandbox has a pid namespace of its own, so it reaches its own processes only"


def agent(place: Place, settings: Settings | None = None, **options: Any) -> Session:
    return place.session(settings, agent="coder", **options)


def test_signals_to_its_own_processes_are_not_asked_about(place: Place) -> None:
    session = agent(place)
    outside = subprocess.Popen(["sleep", "1000"])
    try:
        script = b"sleep 1000 & kill $! && wait; pkill sleep; kill -9 %d" % outside.pid
        result = session.run([b"sh", b"-c", script])
        assert result.ran and OWN in str(session.approval.judge(_order(session, KILL)).verdict.reason)
        assert (result.verdict.action, result.verdict.classes) == ("allow", ("read_only", "mutating"))
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


def _order(session: Session, argv: list[bytes], **fields: Any) -> Any:
    from mudroom.session.order import Order

    return Order(tuple(argv), session.project, session.actor, session.machine.granted(session.actor), **fields)


def asks(session: Session, argv: list[bytes], **fields: Any) -> bool:
    return session.approval.judge(_order(session, argv, **fields)).verdict.action == "require_approval"


def test_at_level_0_they_are(place: Place) -> None:
    session = agent(place, level=0)
    result = session.run(KILL)
    assert (result.ran, result.verdict.action, result.verdict.classes) == (
        False,
        "require_approval",
        ("host_escape_risk",),
    )


@pytest.mark.parametrize("mode", ["landlock", "plain", "remote"])
def test_without_namespaces_they_are(place: Place, mode: Any) -> None:
    session = agent(place)
    assert not asks(session, KILL)
    session.machine.confinement.mode = mode
    assert asks(session, KILL) and asks(session, [b"ls", os.fsencode(place.home) + b"/.ssh"])


def test_a_sandbox_that_falls_back_is_judged_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protection is lost after the verdict: nothing runs, and the command is asked about."""
    session, attempts = agent(place), list[str]()

    def fail(_self: OwnSandbox, _view: object, mode: str, *_rest: object) -> None:
        attempts.append(mode)
        raise StepFailed("clone", errno.EPERM, "no namespaces")

    monkeypatch.setattr(OwnSandbox, "_attempt", fail)
    monkeypatch.setattr(Confinement, "host", session.machine.confinement.host._replace(landlock_abi=5))
    confinement: Any = session.machine.confinement
    for name in (None, "f"):
        confinement.mode = "overlay"
        result = session.run(KILL, fork=name)
        assert (result.ran, result.verdict.action) == (False, "require_approval")
        assert confinement.mode == "landlock"
    assert attempts == ["overlay", "overlay"]
    assert list(session.vault.forks()) == []
    told = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "verdict"]
    assert [row["verdict"]["classes"] for row in told] == [["host_escape_risk"]] * 2


def test_in_a_sandbox_that_others_share_they_are_asked_about(place: Place) -> None:
    """A background command of another agent, or of the user, may be in the same pid namespace."""
    session = agent(place)
    other = place.session()
    background = other.start([b"sleep", b"1000"], fork="f")
    assert asks(session, KILL, fork="f") and not asks(session, KILL, fork="g") and not asks(session, KILL)
    assert not session.run(KILL, fork="f").ran
    assert session.run([b"true"], fork="f").ran
    assert background.poll() is None
    background.end(0)
    other.sandboxes.wait_for_ended("f")
    assert session.run(KILL, fork="f").ran


def test_a_background_command_itself_shares_its_sandbox(place: Place) -> None:
    assert asks(agent(place), KILL, stays=True)
    assert agent(place).start(KILL, fork="f").refused is not None


def test_a_sandbox_that_becomes_shared_after_the_verdict(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, other = agent(place), place.session()
    judge, started = session.approval.judge, list[object]()

    def judged_before_the_other_starts(order: Any) -> Any:
        case = judge(order)
        if not started:
            assert case.relies
            started.append(other.start([b"sleep", b"1000"], fork="f"))
        return case

    session.forks.new("f")
    monkeypatch.setattr(session.approval, "judge", judged_before_the_other_starts)
    result = session.run(KILL, fork="f")
    assert (result.ran, result.verdict.action) == (False, "require_approval")


def test_a_sandbox_that_becomes_shared_each_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another agent whose commands begin after each verdict, and end before the next."""
    session, other = agent(place), place.session()
    judge, started = session.approval.judge, list[Any]()

    def judged_between(order: Any) -> Any:
        if started:
            started.pop().end(0)
            other.sandboxes.wait_for_ended("f")
        case = judge(order)
        started.append(other.start([b"sleep", b"1000"], fork="f"))
        return case

    session.forks.new("f")
    monkeypatch.setattr(session.approval, "judge", judged_between)
    monkeypatch.setattr("mudroom.session.run._TRIES", 3)
    told = "the sandbox of the command loses protections again and again (mudroom doctor says why)"
    with pytest.raises(MudroomError, match=whole(told)):
        session.run(KILL, fork="f")
    assert [event.kind for event in session.vault.journal.events() if event.kind == "run"] == []
    started.pop().end(0)


def test_an_absent_credential_is_not_asked_about(place: Place) -> None:
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id_rsa").write_text("KEY")
    session = agent(place)
    result = session.run([b"sh", b"-c", b"cat ~/.ssh/id_rsa"])
    assert (result.ran, result.verdict.action, b"KEY" in result.stdout) == (True, "allow", False)
    assert "the sandbox has a home of its own" in result.verdict.reason


@pytest.mark.parametrize("shown", ["read", "credentials"])
def test_a_credential_that_is_shown_is(place: Place, shown: str) -> None:
    (place.home / ".netrc").write_text("machine x password y")
    path = os.fsencode(place.home / ".netrc")
    settings = Settings(read=(path,)) if shown == "read" else Settings(credentials=(b"~/.netrc",))
    session = agent(place, settings)
    assert asks(session, [b"cat", path]) and asks(session, [b"ls", path])
    assert not asks(session, [b"ls", os.fsencode(place.home) + b"/.ssh"])


@pytest.mark.parametrize("network", ["open", "gate", "none"])
def test_servers_and_accounts_need_a_network_of_its_own(place: Place, network: Any) -> None:
    session = agent(place, Settings(network=network))
    commands = ([b"docker", b"ps"], [b"kubectl", b"get", b"pods"], [b"aws", b"s3", b"ls"])
    assert [asks(session, list(command)) for command in commands] == [network == "open"] * 3


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        (b"DOCKER_HOST=tcp://10.0.0.1", [b"docker", b"ps"]),
        (b"KUBECONFIG=/x", [b"kubectl", b"get", b"pods"]),
        (b"AWS_ACCESS_KEY_ID=x", [b"aws", b"s3", b"ls"]),
        (b"XDG_CONFIG_HOME=/x", [b"helm", b"list"]),
        (b"DBUS_SESSION_BUS_ADDRESS=tcp:host=x", [b"systemctl", b"status", b"x"]),
    ],
)
def test_a_variable_of_the_policy_may_lead_elsewhere(place: Place, variable: bytes, command: list[bytes]) -> None:
    assert not asks(agent(place), command)
    assert asks(agent(place, Settings(environment=(variable,))), command)


def test_a_credential_of_the_gate_is_an_account(place: Place) -> None:
    from mudroom.vault.store.store import CREDENTIALS

    session = agent(place)
    command = [b"aws", b"s3", b"ls"]
    assert not asks(session, command)
    Path(os.fsdecode(session.vault.path + CREDENTIALS)).touch()
    assert asks(session, command)


def test_a_rule_for_a_host_opens_it_to_what_no_checkpoint_brings_back(place: Place) -> None:
    from mudroom.core.network.host_rules import HostRule

    commands = ([b"git", b"push", b"--force"], [b"psql", b"-c", b"drop table x"])

    def asked(rules: Callable[[], Sequence[HostRule]], network: Any = "gate", level: int = 1) -> list[bool]:
        session = agent(place, Settings(network=network), hosts=HostAnswers(rules), level=level)
        return [asks(session, command) for command in commands]

    def unreadable() -> Sequence[HostRule]:
        raise UsageError("permissions.yaml:1: no mapping")

    allowed, denied = HostRule("allow", "db.example.com", (5432,)), HostRule("deny", "db.example.com")
    assert asked(tuple) == asked(lambda: (denied,)) == asked(lambda: (allowed,), "none") == [False, False]
    assert (
        asked(lambda: (allowed,)) == asked(unreadable) == asked(tuple, "open") == asked(tuple, level=0) == [True, True]
    )


def test_a_class_rule_that_is_written_counts_at_every_level(place: Place) -> None:
    rules = CommandPolicy((ClassRule("host_escape_risk", "require_approval", "policy.yaml:4"),))
    result = agent(place, Settings(commands=rules)).run(KILL)
    assert (result.ran, result.verdict.classes) == (False, ("host_escape_risk",))
    assert "policy.yaml:4" in result.verdict.reason


def test_loopback_is_its_own_unless_a_rule_opens_it(place: Place) -> None:
    drop = [b"psql", b"-h", b"localhost", b"-c", b"drop table x"]
    for host, is_asked in (("example.com", False), ("localhost:5432", True), ("127.0.0.1:5432", True)):
        session = agent(place, Settings(hosts=(parse_rule(host, "allow"),)))
        assert asks(session, drop) is is_asked
        assert asks(session, [b"psql", b"-c", b"drop table x"]), "any rule may be for the server of PGHOST"
    assert asks(agent(place, Settings(network="open")), drop)
