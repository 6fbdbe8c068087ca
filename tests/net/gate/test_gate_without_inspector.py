"""A gate whose installation lacks what inspects: what has to be inspected is denied, and never a tunnel."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import pytest

from mudroom.core.network.budget import MemoryBudget
from mudroom.core.network.host_rules import HostRule, Request, parse_rule
from mudroom.core.network.inspection import Inspection
from mudroom.net.gate.guard import NO_INSPECTOR, Guard
from mudroom.net.gate.resolve import resolve
from mudroom.net.protocol import wire

ALLOWED = parse_rule("www.example", "allow")
INSPECTED = parse_rule("api.example", "allow")._replace(inspect=True)


@pytest.fixture(autouse=True)
def nothing_inspects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mudroom.ext.inspection", None)


def at(look: Callable[[Guard], None], *rules: HostRule, inspection: Inspection | None = None) -> None:
    """Look at the guard of a guard with these rules."""

    async def run() -> None:
        channel, host = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with channel, host:
            opened = wire.OpenMessage(["proxy"], list(rules), True, 60.0, 1, "", inspection)
            look(Guard(channel, opened, resolve, MemoryBudget(64 << 20)))

    asyncio.run(run())


def decided(guard: Guard, host: str, method: str = "", port: int = 443) -> tuple[str, bool]:
    decision = guard.look(Request(host, port, method, "/" if method else ""))
    return decision.action, decision.reason == NO_INSPECTOR


@pytest.mark.parametrize(
    "rule",
    [
        INSPECTED,
        INSPECTED._replace(action="ask"),
        INSPECTED._replace(methods=("GET",)),
        INSPECTED._replace(inspect=False, foreign="refuse"),
        INSPECTED._replace(inspect=False, set_headers=(("x-team", "blue"),)),
    ],
)
def test_a_host_whose_rule_wants_inspection_is_denied_and_no_other(rule: HostRule) -> None:
    def look(guard: Guard) -> None:
        for method, port in (("", 443), ("GET", 443), ("GET", 80)):
            assert decided(guard, "api.example", method, port) == ("deny", True)
        assert decided(guard, "www.example") == ("allow", False)
        assert decided(guard, "other.example") == ("ask", False)

    at(look, ALLOWED, rule)


def test_a_rule_that_comes_later_holds_as_well() -> None:
    def look(guard: Guard) -> None:
        assert decided(guard, "www.example") == ("allow", False)
        guard.update([ALLOWED, ALLOWED._replace(inspect=True)])
        assert decided(guard, "www.example") == ("deny", True)
        guard.update([ALLOWED])
        assert decided(guard, "www.example") == ("allow", False)

    at(look, ALLOWED)


def test_a_guard_with_credentials_lets_nothing_through() -> None:
    def look(guard: Guard) -> None:
        assert decided(guard, "www.example") == ("deny", True)

    at(look, ALLOWED, inspection=Inspection("an authority"))
