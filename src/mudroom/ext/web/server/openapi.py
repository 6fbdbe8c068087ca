"""The API's OpenAPI document (OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0), made from its table.

``python -m mudroom.ext.web.server.openapi`` prints it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import msgspec

from mudroom.ext.web.api.endpoint import Endpoint
from mudroom.ext.web.api.table import BASE, ENDPOINTS
from mudroom.ext.web.server.login import CSRF
from mudroom.ext.web.shape import ProblemShape

Schemas = dict[str, Any]
"""By the type's ``repr``."""

_DESCRIPTIONS = {
    400: "The request cannot be parsed",
    401: "No login, and no token",
    403: "The request comes from another site or user",
    404: "There is no such resource, or it is gone",
    408: "The request took too long to arrive",
    409: "Not possible now, or the reviewed state has changed",
    413: "The request is too large",
    415: "The request is not application/json",
    421: "The host is not served here",
    503: "Too many event streams are open",
}
_ALWAYS, _WITH_PARAMETERS, _WITH_BODY = (400, 401, 403, 409, 421), (404,), (408, 413, 415)


def _unsuffixed(schema: Any) -> Any:
    """Return the schema with the names that clients know: ``Row`` for the class ``RowShape``."""
    if isinstance(schema, dict):
        return {key.removesuffix("Shape"): _unsuffixed(value) for key, value in schema.items()}
    if isinstance(schema, (list, tuple)):
        return [_unsuffixed(value) for value in schema]
    return schema.removesuffix("Shape") if isinstance(schema, str) else schema


def document(base: str, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the document. ``base``: each path's prefix."""
    types = [ProblemShape, *(kind for endpoint in endpoints for kind in _types_of(endpoint))]
    schemas, components = _unsuffixed(msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}"))
    for component in components.values():  # msgspec cleans docstrings from 0.23 on
        if "description" in component:
            component["description"] = cleandoc(component["description"])
    type_schemas: Schemas = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(base + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, type_schemas)
    paths[base + "/events"] = {"get": _EVENTS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mudroom",
            "version": "1",
            "description": "The API of mudroom serve, as its page uses it. Every error is a Problem.",
        },
        "servers": [{"url": "http://127.0.0.1:8765"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                f"Refused{status}": _refused_response(why, type_schemas) for status, why in _DESCRIPTIONS.items()
            },
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
        "description": "The cookie of a login. The number is the port.",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF,
        "description": "The page's key: with the cookie, and with nothing else. A login sends a browser to ./#k=KEY. "
        "A GET may bring it as ?k=KEY.",
    },
}


def _types_of(endpoint: Endpoint) -> list[Any]:
    fields = msgspec.structs.fields(endpoint.query) if endpoint.query is not None else ()
    return [*(kind for kind in (endpoint.gives, endpoint.takes) if kind is not None), *(field.type for field in fields)]


def _operation(endpoint: Endpoint, known: Schemas) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    statuses = (*_ALWAYS, *(_WITH_PARAMETERS if names else ()), *(_WITH_BODY if endpoint.takes is not None else ()))
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint.method, endpoint.path),
        "parameters": [*map(_path_parameter, names), *_query_parameters(endpoint, known)],
        "responses": {str(endpoint.status): _answer(endpoint, known)} | _refusals(statuses),
    }
    if endpoint.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": known[repr(endpoint.takes)]}},
        }
    return operation


def _operation_id(method: str, path: str) -> str:
    return method.lower() + re.sub("[^A-Za-z0-9]+", "_", path).rstrip("_")


def _answer(endpoint: Endpoint, known: Schemas) -> dict[str, Any]:
    if endpoint.gives is None:  # bytes with any media type
        return {"description": "Bytes of the file", "content": {"*/*": {"schema": {}}}}
    return {"description": "The answer", "content": {"application/json": {"schema": known[repr(endpoint.gives)]}}}


def _refused_response(why: str, known: Schemas) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": known[repr(ProblemShape)]}}}


def _refusals(statuses: Sequence[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in sorted(statuses)}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[^/]+$"}}


def _query_parameters(endpoint: Endpoint, known: Schemas) -> list[dict[str, Any]]:
    parameters = []
    for field in msgspec.structs.fields(endpoint.query) if endpoint.query is not None else ():
        schema = known[repr(field.type)]
        if field.default is not msgspec.NODEFAULT:
            schema = {**schema, "default": field.default}
        parameters.append({"name": field.encode_name, "in": "query", "required": field.required, "schema": schema})
    return parameters


_EVENTS = {
    "summary": "Server-sent events about changes",
    "description": (
        "`hello` (the connection is new) and `missed`: everything may have changed. `changed`: `project` and `what` "
        "of it. `job`: a Job. `output`: `job` and `text`. `end`: the server ends. Events carry no state: ask for it."
    ),
    "operationId": "get_events",
    "parameters": [],
    "responses": {
        "200": {"description": "Until one of the two ends it", "content": {"text/event-stream": {"schema": {}}}},
        **_refusals((401, 403, 421, 503)),
    },
}


def main() -> str:
    return json.dumps(document(BASE, ENDPOINTS), indent=1, sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    import sys

    sys.stdout.write(main() + "\n")
