"""Which hosts may be reached: rules, and the one function that decides.

Rules of this file: a deny beats an ask beats an allow, whatever their order. What no rule matches is asked about where
somebody can be asked, and denied else. Only canonical hosts (``core/host.py``) are ever compared.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Action = Literal["allow", "ask", "deny"]


class HostRule(NamedTuple):
    action: Action
    pattern: str
    """``example.com`` itself, ``*.example.com`` what is below it, ``**.example.com`` both, ``*`` every name; or an
    address or a network in CIDR form, which is for those who use addresses: names never match it."""
    ports: tuple[int, ...] = ()
    """Empty: 80 and 443. Other ports are opened only by a rule that names them."""
    methods: tuple[str, ...] = ()
    """Empty: all. Known of plain and of inspected HTTP only; for what is not known the rule does not match."""
    paths: tuple[str, ...] = ()
    """Prefixes; empty: all. As for the methods."""
    private: bool = False
    """The host may be in a private network or on loopback; never a metadata service or link-local."""
    inspect: bool = False
    source: str = ""
    """For people: ``policy.yaml:12``, ``preset npm``."""


class Request(NamedTuple):
    host: str
    """Canonical: ``str(parse_host(…))``."""
    port: int
    method: str = ""
    """Empty: not known."""
    path: str = ""


class Decision(NamedTuple):
    action: Action
    rule: HostRule | None
    reason: str
