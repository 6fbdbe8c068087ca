"""What is looked into, and what for.

Rules of this file: pure. A connection is inspected if a rule that allows its host, or asks about it, says so, or if a
credential is for it; what is excluded never is. Of a connection only host and port are known, so it may be opened if
any of its requests might be allowed; then every request is judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudroom.core.network.host_rules import HostRule, concerns, parse_rule
from mudroom.core.network.placeholder import Credential, is_header, is_value
from mudroom.core.tree.path import show

EXTRA = "pip install 'mudroom[inspect]'"


class Inspection(NamedTuple):
    """What a gate needs to inspect. It holds secrets: not for logs."""

    authority: str
    """PEM: the vault's certificate and its key."""
    never: tuple[HostRule, ...] = ()
    """Hosts (and ports) that are not looked into whatever the rules say; see ``parse_never``."""
    credentials: tuple[Credential, ...] = ()
    roots: str = ""
    """PEM: certificates that are trusted of servers beyond the system's."""

    def __repr__(self) -> str:
        return f"Inspection({len(self.never)} excluded, {self.credentials})"

    def __str__(self) -> str:
        return repr(self)


def parse_never(texts: Sequence[str], source: str = "") -> tuple[HostRule, ...]:
    """Patterns as those of rules. Raises ValueError."""
    return tuple(parse_rule(text, "deny", source) for text in texts)


def parse_header(name: str, value: str | None = None) -> tuple[str, str]:
    """A header that a rule sets, or removes (``value``: None). Raises ValueError, printable, without the value."""
    if not is_header(name):
        raise ValueError(f"{show(name.encode('utf-8', 'surrogateescape'))} is no header that a rule can change")
    if value is not None and not is_value(value):
        raise ValueError(f"the value of {name} is not what headers have: visible ASCII, not empty")
    return name.lower(), value or ""


def wants_inspection(rules: Sequence[HostRule]) -> bool:
    """Whether any of the rules inspects: only then a sandbox is given the authority to trust."""
    return any(rule.inspect and rule.action != "deny" for rule in rules)


def is_inspected(host: str, port: int, rules: Sequence[HostRule], inspection: Inspection | None) -> bool:
    """``host``: canonical. True without an ``inspection``, too: what cannot be done is then refused."""
    never = () if inspection is None else inspection.never
    if any(concerns(rule, host, port) for rule in never):
        return False
    credentials = () if inspection is None else inspection.credentials
    return any(rule.inspect and rule.action != "deny" and concerns(rule, host, port) for rule in rules) or any(
        (one.host, one.port) == (host, port) for one in credentials
    )


def connection_rules(host: str, port: int, rules: Sequence[HostRule]) -> list[HostRule]:
    """The rules that decide whether a connection to be inspected may be opened at all.

    A deny or an ask of some requests only does not stop it, nor does an allow of some requests fail to open it. An ask
    counts in full where nothing allows any request."""
    allowed = any(rule.action == "allow" and concerns(rule, host, port) for rule in rules)
    found = []
    for rule in rules:
        some = bool(rule.methods or rule.paths)
        if not some or rule.action == "allow" or (rule.action == "ask" and not allowed):
            found.append(rule._replace(methods=(), paths=()))
    return found
