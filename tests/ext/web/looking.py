"""The API asked about a fork of a test's project."""

from __future__ import annotations

import os
from typing import Any

from asking import Asked

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.web.api.endpoint import id_of
from mudroom.ext.web.state.refusal import Refusal


class Looking:
    """``settings``: what the policy files would say."""

    def __init__(self, place: Place, settings: Settings | None = None) -> None:
        self._asked = Asked(place)
        server = self._asked.server
        server.environment = server.environment._replace(open=lambda _project: (place.session(settings), ()))
        (vault,) = server.vaults()
        vault.close()
        self.project = os.path.basename(vault.path).decode()

    def get(self, what: str, fork: str = "f", **query: Any) -> Any:
        """``get("diff", file=b"a.txt")``. Raises Refusal."""
        if isinstance(query.get("file"), bytes):
            query["file"] = id_of(query["file"])
        return self._asked.get(f"/projects/{self.project}/forks/{fork}/{what}", **query)

    def refused(self, what: str, fork: str = "f", **query: Any) -> tuple[int, str, str]:
        """Status, code and text of the problem that this is; (200, "", "") if it is none."""
        try:
            self.get(what, fork, **query)
        except Refusal as refusal:
            return refusal.status, refusal.problem.code, refusal.problem.error
        return 200, "", ""

    def stamps(self) -> dict[str, Any]:
        """By which pages are told that something has changed."""
        return dict(self._asked.server.look().stamps)
