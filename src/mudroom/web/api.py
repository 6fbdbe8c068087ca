"""All of the API as one table; ``openapi.py`` makes the document of it."""

from __future__ import annotations

from mudroom.web import conflict, decide, history, landing, onefile, project, resolve, review, start, watch
from mudroom.web.endpoint import Endpoint

BASE = "/api/v1"
_ROOMS = (project, start, review, onefile, conflict, resolve, landing, decide, watch, history)
ENDPOINTS: tuple[Endpoint, ...] = tuple(one for room in _ROOMS for one in room.ENDPOINTS)
