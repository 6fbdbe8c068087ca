"""The command that allows a host that the gate has refused, if there is such a command. Pure.

The command works when it is pasted into a shell. If the host belongs to a preset, the command names the preset: a tool
that asked for one of its hosts needs the others next.
"""

from __future__ import annotations

from mudroom.core.network.address import openable
from mudroom.core.network.host import parse_authority, parse_host
from mudroom.core.network.host_pattern import network_of
from mudroom.core.network.host_rules import PUBLIC_ONLY
from mudroom.core.network.preset import offer_for

_UNASKED = ("no rule", "answered earlier", "the client, or the command, ended before")
"""Beginnings of reasons that no longer apply with a rule for the host; the ends of such reasons are in
``_NAMEABLE``."""
_ASKED, _REFUSED = "asked, ", "asked, and refused"
"""Beginnings of the reason if a question was asked; the second if it was answered."""
_NAMEABLE = ("a rule that names the address opens it", "only a rule allows it")
_USUAL = ("", ":80", ":443", ":53")
"""Ports that a command need not name. 53: a lookup was refused, whatever port was meant."""


def command_to_allow(target: str, reason: str) -> str:
    """Return the command for a refused ``host:port`` (an IPv6 address in brackets), given the refusal's reason; empty
    if another rule, or no rule, could allow it."""
    where = next(target.removesuffix(port) for port in reversed(_USUAL) if target.endswith(port))
    is_unasked = reason.startswith(_ASKED) and not reason.startswith(_REFUSED)
    if is_unasked or reason.startswith(_UNASKED) or any(text in reason for text in _NAMEABLE):
        return f"mudroom net allow {_preset_word(where) or quoted(where)}"
    if not _is_private(reason):
        return ""
    return f"mudroom net allow --private {_preset_of_rule(reason) or quoted(where)}"


def quoted(where: str) -> str:
    """Return a host as a shell reads it: brackets are a pattern to a shell (sh(1))."""
    return f"'{where}'" if "[" in where else where


def _preset_word(where: str) -> str:
    """Return the word of this host's preset if that has several hosts."""
    try:
        authority = parse_authority(where.encode("utf-8", "surrogateescape"), 443)
    except ValueError:
        return ""

    offer = offer_for(authority.host.text, authority.port)
    return offer.entry if offer is not None and len(offer.hosts) > 1 else ""


def _preset_of_rule(reason: str) -> str:
    """Return the word of the preset whose rule allows the host, if the reason names it (``host_rules.py:vet``)."""
    return reason.removesuffix(PUBLIC_ONLY).rpartition("; ")[2] if reason.endswith(PUBLIC_ONLY) else ""


def _is_private(reason: str) -> bool:
    """Return whether the reason is that the host has a private address, which a rule can open: "10.1.2.3 is a private
    address"."""
    try:
        address = parse_host(reason.partition(" is ")[0].encode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    return address.kind != "name" and openable(network_of(address.text))
