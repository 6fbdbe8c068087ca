"""Parse the refused calls that init reports into denials: call, reason and count. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.result import Denial
from mudroom.sandbox.linux.syscall import DENY, ERROR_NAMES, SyscallRule

ONLY_THE_GATE = "without a network namespace only the gate can be reached, as a proxy"
NO_RENAME = "an overlay cannot rename this directory: use mv, which copies it, or --view copy"
NO_RULE = "no rule names this port of this machine"


def denials(records: Iterable[bytes]) -> tuple[Denial, ...]:
    """Parse init's records: ``call RULE COUNT`` (RULE: an index of ``DENY``), or a call that the mediator refused
    (``chmod /path``, ``connect 10.0.0.1:80``), or a directory that was not renamed (``rename path``)."""
    return tuple(_denial(record) for record in records)


def _denial(record: bytes) -> Denial:
    action, _space, rest = record.partition(b" ")
    if action == b"connect":
        reason = NO_RULE if rest.startswith((b"127.", b"[::1]:")) else ONLY_THE_GATE
        return Denial("network", rest, reason)
    if action == b"rename":
        return Denial("rename", rest, NO_RENAME)
    if action != b"call":
        return Denial("metadata", rest, f"{action.decode()} outside the command's own directories")
    number, count = (int(word) for word in rest.split())
    if not 0 <= number < len(DENY):
        return Denial("system call", b"?", "refused by an unknown rule", count)
    return Denial("system call", DENY[number].syscall.encode(), DENY[number].reason, count)


def rules_for(name: str) -> tuple[SyscallRule, ...]:
    """Return the rules that refuse a system call to every command; empty if there is none."""
    return tuple(rule for rule in DENY if rule.syscall == name)


def error_name(rule: SyscallRule) -> str:
    return ERROR_NAMES[rule.action]
