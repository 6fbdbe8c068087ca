"""All of the API as one table; ``web/server/openapi.py`` makes the document of it."""

from __future__ import annotations

from mudroom.web.api import conflict, decide, file, history, landing, project, resolve, review, start, watch
from mudroom.web.api.endpoint import Endpoint

BASE = "/api/v1"
_ROOMS = (project, start, review, file, conflict, resolve, landing, decide, watch, history)
ENDPOINTS: tuple[Endpoint, ...] = tuple(one for room in _ROOMS for one in room.ENDPOINTS)
