"""The document that describes the API (OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0), made of its table.

``python -m mudroom.web.server.openapi`` prints it; ``docs/openapi.json`` is what it prints, and a test holds them
together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mudroom.web.api.endpoint import Endpoint
from mudroom.web.server.login import CSRF
from mudroom.web.shape import ProblemShape

Schemas = dict[str, Any]
"""By ``repr`` of the type."""

_WHY = {
    400: "It cannot be understood",
    401: "No login, and no token",
    403: "Another site is asking, or a page of another server",
    404: "There is nothing of that name, or not any more",
    408: "The request took too long to come",
    409: "It cannot be done now, or not with what was looked at",
    413: "The request is too large",
    415: "The request is not application/json",
    421: "Another host was asked for than is served here",
    503: "Too many listen already",
}
_ALWAYS, _NAMED, _BODY = (400, 401, 403, 409, 421), (404,), (408, 413, 415)


def _unsuffixed(schema: Any) -> Any:
    """Return the schema with the names that clients know: ``Row`` for the class ``RowShape``."""
    if isinstance(schema, dict):
        return {key.removesuffix("Shape"): _unsuffixed(value) for key, value in schema.items()}
    if isinstance(schema, (list, tuple)):
        return [_unsuffixed(value) for value in schema]
    return schema.removesuffix("Shape") if isinstance(schema, str) else schema


def document(base: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """``base``: what is before each path."""
    kinds = [ProblemShape, *(kind for one in endpoints for kind in _kinds(one))]
    schemas, components = _unsuffixed(msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}"))
    known: Schemas = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(base + one.path, {})[one.method.lower()] = _operation(one, known)
    paths[base + "/events"] = {"get": _EVENTS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mudroom",
            "version": "1",
            "description": "What the page of mudroom serve uses, and nothing else. Every error is a Problem.",
        },
        "servers": [{"url": "http://127.0.0.1:8765"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {f"Refused{status}": _refused(why, known) for status, why in _WHY.items()},
            "securitySchemes": _SCHEMES,
        },
        "security": [{"token": []}, {"browser": [], "csrf": []}],
    }


_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "For programs: mudroom serve --json prints it."},
    "browser": {
        "type": "apiKey",
        "in": "cookie",
        "name": "mudroom-8765",
        "description": "What the address of mudroom serve becomes. The number is the port.",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF,
        "description": "The page's key: with the cookie, and with nothing else. A login sends a browser to ./#k=KEY. "
        "A GET may bring it as ?k=KEY.",
    },
}


def _kinds(one: Endpoint) -> list[Any]:
    fields = msgspec.structs.fields(one.query) if one.query is not None else ()
    return [*(kind for kind in (one.gives, one.takes) if kind is not None), *(field.type for field in fields)]


def _operation(one: Endpoint, known: Schemas) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", one.path)
    statuses = (*_ALWAYS, *(_NAMED if names else ()), *(_BODY if one.takes is not None else ()))
    found: dict[str, Any] = {
        "summary": one.summary,
        "operationId": _identity(one.method, one.path),
        "parameters": [*map(_named, names), *_queried(one, known)],
        "responses": {str(one.status): _answer(one, known)} | _refusals(statuses),
    }
    if one.takes is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": known[repr(one.takes)]}}}
    return found


def _identity(method: str, path: str) -> str:
    return method.lower() + re.sub("[^A-Za-z0-9]+", "_", path).rstrip("_")


def _answer(one: Endpoint, known: Schemas) -> dict[str, Any]:
    if one.gives is None:  # bytes, of the type that they are
        return {"description": "As it is", "content": {"*/*": {"schema": {}}}}
    return {"description": "As asked", "content": {"application/json": {"schema": known[repr(one.gives)]}}}


def _refused(why: str, known: Schemas) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": known[repr(ProblemShape)]}}}


def _refusals(statuses: Sequence[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in sorted(statuses)}


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[^/]+$"}}


def _queried(one: Endpoint, known: Schemas) -> list[dict[str, Any]]:
    found = []
    for field in msgspec.structs.fields(one.query) if one.query is not None else ():
        schema = known[repr(field.type)]
        if field.default is not msgspec.NODEFAULT:
            schema = {**schema, "default": field.default}
        found.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
    return found


_EVENTS = {
    "summary": "What happens, as it happens: server-sent events",
    "description": (
        "`hello` (the connection is new) and `missed`: everything may have changed. `changed`: `project` and `what` "
        "of it. `job`: a Job. `output`: `job` and `text`. `end`: the server ends. What it is now is asked for."
    ),
    "operationId": "get_events",
    "parameters": [],
    "responses": {
        "200": {"description": "Until one of the two ends it", "content": {"text/event-stream": {"schema": {}}}},
        **_refusals((401, 403, 421, 503)),
    },
}


def main() -> str:
    from mudroom.web.api.table import BASE, ENDPOINTS

    return json.dumps(document(BASE, ENDPOINTS), indent=1, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    import sys

    sys.stdout.write(main() + "\n")
