"""The answer that holds what is sent to a host: for the command that asks, or from the next one on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from forge import ENVIRONMENT
from yard import COMMIT, Yard, yard

from mudroom.core.agent.card import AgentCard
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.core.network.host_rules import HostRule, show_rule
from mudroom.core.network.preset import EFFECTS, EffectHost
from mudroom.core.settings import Settings
from mudroom.ext.effects.store import effects
from mudroom.session import Session
from mudroom.session.confinement import command_gate
from mudroom.session.confinement.host_approver import HostAnswers

__all__ = ["yard"]
pytestmark = [pytest.mark.both_users]

Approve = Callable[[FlowQuestion], FlowAnswer]


class Asking:
    """A session that asks about the forge, and remembers answers."""

    def __init__(self, yard: Yard, port: int) -> None:
        self.yard, self.port = yard, port
        self.asked: list[FlowQuestion] = []
        self.remembered: list[HostRule] = []
        self.rules: tuple[HostRule, ...] = (HostRule("ask", "forge.example", (port,), private=True),)

    def remember(self, rule: HostRule) -> None:
        self.remembered.append(rule)
        self.rules = HostRule("allow", "forge.example", (self.port,), private=True), rule

    @contextmanager
    def session(self, approve: Approve, *more: HostRule, card: AgentCard | None = None) -> Iterator[Session]:
        def approver(question: FlowQuestion, _over: int) -> FlowAnswer:
            self.asked.append(question)
            return approve(question)

        root = self.yard.root
        (root / "home").mkdir(exist_ok=True)
        with Session.open(
            os.fsencode(self.yard.project),
            state=os.fsencode(root / "state"),
            home=os.fsencode(root / "home"),
            environ={
                **{name.encode(): value.encode() for name, value in ENVIRONMENT.items()},
                b"SSL_CERT_FILE": os.fsencode(root / "roots.pem"),
            },
            card=card,
            settings=Settings(network="gate", hosts=more, environment=tuple(map(str.encode, ENVIRONMENT))),
            hosts=HostAnswers(lambda: self.rules, self.remember, approver),
        ) as session:
            yield session

    def push(self, session: Session, *, tls: bool = True) -> tuple[int, bytes]:
        """By the proxy's port, where a plain request is known to be one when it is asked about."""
        done = self.yard.run(
            session,
            f"git remote set-url origin {self.yard.url(tls=tls)}; git config http.sslVerify false; "
            f"git config http.proxy http://127.0.0.1:3128; {COMMIT} git push -q origin HEAD:main; git fetch -q",
        )
        told = [*(denial.reason for denial in done.denials), *done.notes]
        return done.exit_code, done.stderr + "; ".join(told).encode()


def asking(yard: Yard, monkeypatch: pytest.MonkeyPatch, *, tls: bool = True) -> Asking:
    monkeypatch.setattr("mudroom.core.network.preset.EFFECTS", {**EFFECTS, "forge.example": EffectHost("pushes")})
    return Asking(yard, yard.tls_port if tls else yard.port)


def hold(question: FlowQuestion, *, allowed: bool = True) -> FlowAnswer:
    return FlowAnswer(allowed, keep=True, rule=f"hold {question.host}:{question.port}")


@pytest.mark.parametrize("tls", [False, True])
def test_a_hold_counts_for_the_command_that_asks_if_it_can_be_inspected(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """Plain HTTP always can; TLS if another rule inspects, so that the command trusts the gate's certificates."""
    place = asking(yard, monkeypatch, tls=tls)
    more = (HostRule("allow", "other.example", inspect=True),) if tls else ()
    with place.session(hold, *more) as session:
        code, told = place.push(session, tls=tls)
        assert code == 0, told
        assert b"remote: held: refs/heads/main will be pushed when the fork is applied" in told
        assert [push.state for push in effects(session.vault.fork("f").path)] == ["held"]
    assert [(question.hold, question.port) for question in place.asked] == [("now", place.port)]
    assert [(show_rule(rule), rule.hold) for rule in place.remembered] == [(f"forge.example:{place.port}", True)]
    assert yard.forge.pushes() == 0


def test_a_hold_for_later_refuses_this_command_and_holds_in_the_next(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = asking(yard, monkeypatch)
    with place.session(lambda question: hold(question, allowed=False)) as session:
        code, told = place.push(session)
        assert code != 0
        assert b"this command began before its pushes could be held" in told
        assert place.asked[0].hold == "later"
        code, told = place.push(session)
        assert (code, b"remote: held: refs/heads/main" in told) == (0, True), told
    assert len(place.asked) == 1
    assert yard.forge.pushes() == 0


def test_a_command_that_may_go_on_sends_its_push_and_the_next_one_is_held(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule that is remembered is read by the command that asked, too, and does not count there."""
    place = asking(yard, monkeypatch)
    with place.session(hold) as session:
        code, told = place.push(session)
        assert (code, b"held" in told) == (0, False), told
        assert (yard.forge.pushes(), place.asked[0].hold) == (1, "later")
        code, told = place.push(session)
        assert (code, b"remote: held: refs/heads/main" in told) == (0, True), told
    assert yard.forge.pushes() == 1


def test_an_agent_that_runs_inside_as_a_whole_can_be_held_from_its_first_question_on(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run for hours: an answer that holds from the next command on would be for another day."""
    place = asking(yard, monkeypatch)
    with place.session(hold, card=AgentCard("claude-code", level=1)) as session:
        code, told = place.push(session)
        assert (code, b"remote: held: refs/heads/main" in told) == (0, True), told
        code, told = place.push(session)
        assert (code, b"remote: held: refs/heads/main" in told) == (0, True), told
    assert [question.hold for question in place.asked] == ["now"]
    assert yard.forge.pushes() == 0


@pytest.mark.parametrize("allowed", [False, True])
def test_ssh_is_held_from_the_next_command_on_for_a_running_agent_too(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """OpenSSH in its sandbox does not know the gate's host key: "now" would be "Host key verification failed"."""
    place = asking(yard, monkeypatch)
    place.port, place.rules = 22, (HostRule("ask", "forge.example", (22,), private=True),)
    with place.session(lambda question: hold(question, allowed=allowed), card=AgentCard("claude-code", level=1)) as one:
        yard.run(one, "git ls-remote ssh://git@forge.example/team/app.git || true")
    assert [question.hold for question in place.asked] == ["later"]
    assert [(show_rule(rule), rule.hold) for rule in place.remembered] == [("forge.example:22", True)]


@pytest.mark.parametrize("allowed", [False, True])
def test_an_installation_that_cannot_inspect_offers_no_hold(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """An answer that was not offered opens nothing."""
    monkeypatch.setattr(command_gate, "can_inspect", lambda: False)
    place = asking(yard, monkeypatch, tls=False)
    with place.session(lambda question: hold(question, allowed=allowed)) as session:
        code, _told = place.push(session, tls=False)
        assert code != 0
    assert (place.asked[0].hold, place.remembered, yard.forge.pushes()) == ("", [], 0)
