"""All groups: importing this fills the table."""

from __future__ import annotations

from . import afterwards, framing, fronts, hosts, lookups, packets, sockses, ways

GROUPS = (hosts, fronts, framing, sockses, lookups, packets, ways, afterwards)
