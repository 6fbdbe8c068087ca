"""The way of a connection between forks that may run on different machines: one hub, the origin, and links to workers.

A worker has no way but its link to the origin. The origin knows which fork runs where. So a connection has at most two
links: worker → origin → worker.

Rules of this file: pure. The origin decides and journals; what a worker says about a caller is believed of forks that
run on that worker only. A label that is at home in several places is nobody's, as on one machine (``fork_host.py``).
A connection that came by a link never leaves by the same link, and one that was routed is not routed again by a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.typing import NamedTuple

HERE = ""
"""The origin itself, among the names of nodes."""


class ForkRoute(NamedTuple):
    node: str
    """Of the link to dial through; HERE: on this machine."""
    reason: str = ""
    """Why there is no way; empty: there is one."""


def route(label: str, homes: Mapping[str, Sequence[str]], came_by: str = HERE, *, is_hub: bool = True) -> ForkRoute:
    """Return the way to a fork. ``homes``: the nodes at which a fork of each label runs. ``came_by``: the node that
    asks. ``is_hub``: whether this is the origin; a worker has one link, and sends everything to it but its own."""
    nodes = sorted(set(homes.get(label, ())))
    if not is_hub:
        if HERE in nodes:
            return ForkRoute(HERE)
        return ForkRoute(HERE, f"there is no fork named {label}") if came_by else ForkRoute("origin")
    if not nodes:
        return ForkRoute(HERE, f"there is no fork named {label}")
    if len(nodes) > 1:
        return ForkRoute(HERE, f"forks of {len(nodes)} machines have the name {label} for each other, so none has it")
    if nodes[0] == came_by != HERE:
        return ForkRoute(HERE, f"the fork {label} runs where this comes from: that machine reaches it itself")
    return ForkRoute(nodes[0])


def caller_of(claimed: str, node: str, homes: Mapping[str, Sequence[str]]) -> str:
    """Return the label of a caller as it may be told to the other fork: what a node claims, if a fork of that label
    runs there, and nowhere else. Empty: it is not believed."""
    return claimed if claimed and list(homes.get(claimed, ())) == [node] else ""
