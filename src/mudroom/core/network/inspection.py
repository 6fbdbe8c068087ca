"""Decides which TLS connections are inspected, and holds the data for it. ``ext/inspection`` inspects.

Rules: pure. A connection is inspected if a rule that allows its host or asks about it says so, or if a credential is
for its host: on every port, or only on the credential's own port if its ``foreign`` is ``allow``. An excluded host is
never inspected, and is not reached if such a credential is for it (unless ``foreign`` is ``allow``). At first only a
connection's host and port are known, so it may be opened if any of its requests might be allowed; then every request is
judged separately.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.host_rules import HostRule, Request, concerns, holding
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import Literal, NamedTuple

_FIELD = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = regex(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NEVER = frozenset(("host", "connection", "content-length", "transfer-encoding", "te", "upgrade", "trailer", "expect"))
"""Headers for framing and routing."""

Foreign = Literal["refuse", "strip", "allow"]
"""Treatment of requests to a credential's host that carry the command's own credentials."""


class Credential(NamedTuple):
    """A credential that the gate inserts, and the placeholder that the sandbox has instead."""

    name: str
    """The variable that holds the placeholder."""
    host: str
    """Canonical."""
    port: int
    header: str
    """In lower case."""
    placeholder: str
    value: str
    """The real value. It must not get into flows, logs, errors, or this tuple's text."""
    foreign: Foreign = "refuse"
    user: str = ""
    """The user name that may be beside it in a Basic pair; empty: none but the usual ones."""

    def __repr__(self) -> str:
        return f"Credential({self.name}, {self.host}:{self.port}, {self.header})"

    def __str__(self) -> str:
        return repr(self)


class Inspection(NamedTuple):
    """The data that a gate needs to inspect. It holds secrets: not for logs."""

    authority: str
    """PEM: the vault's certificate and its private key."""
    never: tuple[HostRule, ...] = ()
    """Denials for the hosts (and ports) that are never inspected, whatever the rules say."""
    credentials: tuple[Credential, ...] = ()
    roots: str = ""
    """PEM: certificates that are trusted for servers in addition to the system's."""

    def __repr__(self) -> str:
        return f"Inspection({len(self.never)} excluded, {self.credentials})"

    def __str__(self) -> str:
        return repr(self)


def is_header(name: str) -> bool:
    """Return whether this is a valid header name, and the header is not for framing or routing."""
    return _FIELD.fullmatch(name) is not None and name.lower() not in _NEVER


def is_value(value: str) -> bool:
    """Return whether a header can have this value: visible ASCII with spaces in between."""
    return _VALUE.fullmatch(value) is not None


def parse_header(name: str, value: str | None = None) -> tuple[str, str]:
    """Return a header that a rule sets, or removes (``value``: None). Raise ValueError with a printable reason, without
    the value."""
    if not is_header(name):
        raise ValueError(f"{show(name.encode('utf-8', 'surrogateescape'))} is not a header that a rule can change")
    if value is not None and not is_value(value):
        raise ValueError(f"the value of {name} is not a header value: write visible ASCII, not empty")
    return name.lower(), value or ""


def changing(rules: Sequence[HostRule]) -> list[HostRule]:
    """Return the rules that change an inspected request, or restrict its credentials."""
    return [rule for rule in rules if rule.set_headers or rule.remove_headers or rule.foreign]


def is_inspected(host: str, port: int, rules: Sequence[HostRule], inspection: Inspection | None) -> bool:
    """Return whether a connection is inspected. ``host``: canonical. Also True without an ``inspection``: a connection
    that cannot be inspected is then refused."""
    never = () if inspection is None else inspection.never
    if any(concerns(rule, host, port) for rule in never):
        return False
    credentials = () if inspection is None else inspection.credentials
    return (
        any(rule.inspect and rule.action != "deny" and concerns(rule, host, port) for rule in rules)
        or holding(rules, host, port) is not None
        or any(
            credential.host == host and (credential.port == port or credential.foreign != "allow")
            for credential in credentials
        )
    )


def uninspected(request: Request, rules: Sequence[HostRule], inspection: Inspection | None) -> str:
    """Return why a connection that is excluded from inspection is not opened, or an empty string. The reason: a rule
    holds what is sent there, or a credential is for the host, and in a tunnel a command could use another one."""
    if inspection is None or not any(concerns(rule, request.host, request.port) for rule in inspection.never):
        return ""
    rule = holding(rules, request.host, request.port)
    if rule is not None:
        who = rule.source or rule.pattern
        return f"{who} holds what is sent there, which needs inspection, and never_inspect excludes it"
    for credential in inspection.credentials:
        if credential.host == request.host and credential.foreign != "allow":
            return (
                f"the credential {credential.name} is for it, so it has to be inspected, and never_inspect excludes it"
                f"; to open it as a tunnel: mudroom net credential {credential.name} --foreign allow"
            )
    return ""


def connection_rules(host: str, port: int, rules: Sequence[HostRule]) -> list[HostRule]:
    """Return the rules that decide whether a connection to be inspected may be opened at all.

    A deny or ask rule for some requests does not stop the connection, and an allow rule for some requests opens it. An
    ask rule for some requests counts for the connection if no rule allows any request.
    """
    allowed = any(rule.action == "allow" and concerns(rule, host, port) for rule in rules)
    rules_of_connection = []
    for rule in rules:
        is_partial = bool(rule.methods or rule.paths)
        if not is_partial or rule.action == "allow" or (rule.action == "ask" and not allowed):
            rules_of_connection.append(rule._replace(methods=(), paths=()))
    return rules_of_connection
