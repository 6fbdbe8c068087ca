"""The command that allows what the gate has refused, if one does. Pure."""

from __future__ import annotations

from mudroom.core.network.address import openable
from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import network_of

_UNASKED = ("no rule", "asked, and nobody", "answered earlier", "the client, or the command, ended before")
"""Beginnings of the reasons that a rule for the host removes; their ends are in ``_NAMEABLE``."""
_NAMEABLE = ("a rule that names the address opens it", "only a rule allows it")
_USUAL = ("", ":80", ":443", ":53")
"""Ports that a command need not name. 53: a lookup was refused, whatever port was meant."""


def command_to_allow(target: str, reason: str) -> str:
    """Return the command for a refused ``host:port`` (an IPv6 address in brackets) by the reason of the refusal; empty
    if another rule, or no rule, could allow it."""
    where = next(target.removesuffix(port) for port in reversed(_USUAL) if target.endswith(port))
    if reason.startswith(_UNASKED) or any(text in reason for text in _NAMEABLE):
        return f"mudroom net allow {where}"
    return f"mudroom net allow --private {where}" if _is_private(reason) else ""


def _is_private(reason: str) -> bool:
    """Return whether the reason is a private address of the host, which a rule can open: "10.1.2.3 is a private
    address"."""
    try:
        address = parse_host(reason.partition(" is ")[0].encode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    return address.kind != "name" and openable(network_of(address.text))
