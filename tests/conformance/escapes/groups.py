"""All groups: importing this fills the table."""

from __future__ import annotations

from . import files, ipc, kernel, metadata, namespaces, network, processes, resources, sockets, terminal

GROUPS = (files, metadata, sockets, ipc, namespaces, processes, kernel, terminal, network, resources)
