"""Places of this machine's loopback that a command reaches at their own address."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.confinement.fallback import Mode
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.loopback import MOST, LoopbackPlace, loopback_places

_WITHOUT: dict[Mode, str] = {
    "remote": "a container in a virtual machine",
    "seatbelt": "a sandbox of macOS",
}
"""Modes that have no listener at such an address: only the gate's proxy is there."""


def places_for(rules: Sequence[HostRule], mode: Mode) -> tuple[Sequence[LoopbackPlace], list[str]]:
    """Return the places that get a listener, and notes about those that get none."""
    places = loopback_places(rules)
    if mode in _WITHOUT and places:
        shown = f"{places[0]} of this machine" + (f" and {len(places) - 1} more" if len(places) > 1 else "")
        where, proxy = _WITHOUT[mode], "through the proxy that http_proxy names"
        return (), [f"{shown}: reached from {where} only {proxy} (unset no_proxy), or at level 1 on Linux"]
    notes = [f"rules name {len(places)} ports of this machine; only the first {MOST} are open"]
    return places[:MOST], notes if len(places) > MOST else []
