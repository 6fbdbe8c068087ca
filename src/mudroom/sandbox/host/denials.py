"""What init reports as refused, as denials: what, why, how often. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.result import Denial
from mudroom.sandbox.linux.syscall import DENY, ERROR_NAMES, SyscallRule


def denials(told: Iterable[bytes]) -> tuple[Denial, ...]:
    """``told``: ``call <number of the rule> <count>``, or what the mediator refused (``chmod /path``,
    ``connect 10.0.0.1:80``)."""
    return tuple(_denial(one) for one in told)


def _denial(told: bytes) -> Denial:
    action, _space, rest = told.partition(b" ")
    if action == b"connect":
        return Denial("network", rest, "without a network namespace only the gate is reached, as a proxy")
    if action != b"call":
        return Denial("metadata", rest, f"{action.decode()} outside the command's own directories")
    number, count = (int(word) for word in rest.split())
    if not 0 <= number < len(DENY):
        return Denial("system call", b"?", "refused, and no rule says why", count)
    return Denial("system call", DENY[number].syscall.encode(), DENY[number].reason, count)


def rules_for(name: str) -> tuple[SyscallRule, ...]:
    """What is refused of a system call, to every command; none if nothing is."""
    return tuple(rule for rule in DENY if rule.syscall == name)


def error_name(rule: SyscallRule) -> str:
    return ERROR_NAMES[rule.action]
