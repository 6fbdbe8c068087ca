"""The whole API as one table, from which ``ext/web/server/openapi.py`` makes the OpenAPI document."""

from __future__ import annotations

from mudroom.ext.web.api import (
    attempt,
    commit,
    conflict,
    decide,
    device,
    file,
    history,
    landing,
    project,
    remark,
    resolve,
    review,
    start,
    watch,
)
from mudroom.ext.web.api.endpoint import Endpoint

BASE = "/api/v1"
_MODULES = (
    project,
    start,
    review,
    file,
    attempt,
    commit,
    conflict,
    resolve,
    landing,
    decide,
    watch,
    history,
    remark,
    device,
)
ENDPOINTS: tuple[Endpoint, ...] = tuple(endpoint for module in _MODULES for endpoint in module.ENDPOINTS)
