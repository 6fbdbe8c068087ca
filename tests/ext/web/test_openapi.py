"""The document of the API: as it is published, as it is served, and as the specification wants it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Site

from mudroom.ext.web.api.table import BASE, ENDPOINTS
from mudroom.ext.web.server.openapi import document, main
from tiers import each

DOCUMENT = document(BASE, ENDPOINTS)
OPERATIONS = [(path, method, one) for path, item in DOCUMENT["paths"].items() for method, one in item.items()]


def test_it_is_served(site: Site) -> None:
    assert site.get("/openapi.json") == json.loads(main())


def test_operations_have_names_of_their_own() -> None:
    names = [one["operationId"] for _path, _method, one in OPERATIONS]
    assert len(set(names)) == len(names)
    assert len({(one.method, one.path) for one in ENDPOINTS}) == len(ENDPOINTS)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from references(one)


def test_what_it_refers_to_is_in_it() -> None:
    for reference in references(DOCUMENT):
        found = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        assert found


@each(("path", "method", "one"), OPERATIONS)
def test_an_operation(path: str, method: str, one: dict[str, Any]) -> None:
    named = [parameter["name"] for parameter in one["parameters"] if parameter["in"] == "path"]
    assert named == re.findall(r"{(\w+)}", path)
    assert {"401", "403", "421"} <= one["responses"].keys()
    assert len([status for status in one["responses"] if status < "300"]) == 1
    assert ("404" in one["responses"]) == bool(named)
    assert "security" not in one  # all alike
    assert "k" not in [parameter["name"] for parameter in one["parameters"]]  # the page's key, which the guard takes
    assert one["summary"]
    if method == "get":
        assert "requestBody" not in one
    else:
        assert {"408", "413", "415"} <= one["responses"].keys() or "requestBody" not in one


@pytest.mark.slow
def test_it_is_what_the_specification_allows() -> None:
    schemathesis: Any = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schemathesis.openapi.from_dict(DOCUMENT).validate()
