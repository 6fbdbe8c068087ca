"""All groups of pairs: importing this fills the table."""

from __future__ import annotations

from . import descriptors, meetings, processes, signals, wires

GROUPS = (meetings, signals, processes, wires, descriptors)
