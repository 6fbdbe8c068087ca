"""Whether the rules would let a host through, and why, for people and agents who ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.core.network.fork_host import ENDPOINT_PORT, decide_fork, fork_of, is_fork_host
from mudroom.core.network.host import Authority, parse_authority, parse_host
from mudroom.core.network.host_rules import HostDecision, HostRule, Request, decide, host_of_url
from mudroom.core.network.loopback import is_loopback, look_at_loopback


def look_at_host(
    asked: bytes, rules: Sequence[HostRule], look_at_fork: Callable[[str, int], tuple[bool, str]]
) -> tuple[Authority | None, HostDecision]:
    """Return the host and port in ``asked`` (``host[:port]``; a bare IPv6 address is accepted, too), and the decision
    about it; None if it is not a host. ``look_at_fork``: given a fork's label and a port, returns whether the port may
    be reached, and why."""
    try:
        authority = parse_asked(asked)
    except ValueError as error:
        return None, HostDecision("deny", None, f"no host: {error}")
    return authority, look_at_authority(authority, rules, look_at_fork)


def look_at_authority(
    authority: Authority, rules: Sequence[HostRule], look_at_fork: Callable[[str, int], tuple[bool, str]]
) -> HostDecision:
    """Return the decision about a host and port; ``look_at_fork`` as in ``look_at_host``."""
    name = authority.host.text
    if is_fork_host(name):
        decision = decide_fork(Request(name, authority.port), rules)
        if decision.action == "deny":
            return decision
        is_allowed, reason = look_at_fork(fork_of(name), authority.port)
        return HostDecision("allow" if is_allowed else "deny", None, reason)
    if is_loopback(name):
        return look_at_loopback(name, authority.port, rules)
    return decide(Request(name, authority.port), rules)


def parse_asked(raw: bytes) -> Authority:
    """Return the host and port in a text, as ``look_at_host`` accepts it. Raise ValueError with a printable problem."""
    if b"://" in raw:
        raise ValueError(f"this is a URL; ask about {host_of_url(raw)}")
    if raw.count(b":") > 1 and not raw.startswith(b"["):
        return Authority(parse_host(raw), 443)
    return parse_authority(raw, ENDPOINT_PORT if is_fork_host(raw.decode("utf-8", "surrogateescape")) else 443)
