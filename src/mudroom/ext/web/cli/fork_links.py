"""The addresses of forks' servers for ``mudroom ps``, while ``mudroom serve`` runs."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mudroom.session.upkeep import Vault, vaults_of
from mudroom.typing import Any


def add_addresses(vault: Vault, rows: Iterable[dict[str, Any]]) -> None:
    """Set ``addresses`` of each row with ports."""
    state = os.path.dirname(os.path.dirname(vault.path))
    if not os.path.exists(state + b"/serve/server.json"):
        return
    from mudroom.ext.web.server.fork_address import hosts, project_label
    from mudroom.ext.web.server.registry import ServerRegistry

    running = ServerRegistry(state + b"/serve").find_running()
    if running is None:
        return
    label = project_label(vaults_of(state), vault)
    for row in rows:
        if row["ports"]:
            names = hosts(label, vault.fork(row["fork"]), row["ports"])
            row["addresses"] = [f"http://{name}:{running.port}/" for name in names]
