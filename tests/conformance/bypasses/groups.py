"""All groups: importing this fills the table."""

from __future__ import annotations

from . import afterwards, allowed, framing, fronts, hosts, lookups, packets, sockses, ways

GROUPS = (allowed, hosts, fronts, framing, sockses, lookups, packets, ways, afterwards)
