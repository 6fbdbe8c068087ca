"""The API as its document says it is: asked by a machine that makes requests of the document, right and wrong ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from browser import Site, serving, staged

from conftest import Place
from mudroom.ext.web.api.endpoint import id_of

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from tiers import QUICK

pytestmark = [pytest.mark.slow]

MOST = 3 if QUICK else 24
"""Requests for each operation."""
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.allow_header_conformance,
]
ENDLESS = "/api/v1/events"
"""A stream; it is asked elsewhere."""


@pytest.fixture
def lived_in(place: Place) -> Iterator[Site]:
    """A project with two forks, one of which has files of all kinds, and an apply."""
    place.write("a.py", "x = 1\n" * 30)
    place.write("gone", "1\n")
    os.symlink("a.py", place.project / "link")
    script = "sed -i '1d;15s/1/2/' a.py; rm gone; ln -s / '<b>'; mkdir d; printf '\\377\\0' > d/bin; chmod +x a.py"
    staged(place, script)
    staged(place, "echo 2 > new", "try-2")
    with serving(place) as site:
        yield site


def test_every_operation_keeps_to_what_the_document_says(place: Place, lived_in: Site) -> None:
    site = lived_in
    (forks,) = {tuple(fork["name"] for fork in site.get(f"/projects/{site.project}")["forks"])}
    rows = site.get(f"/projects/{site.project}/forks/try-1/changes")["rows"]
    home = id_of(os.fsencode(place.home))
    known = {"project": [site.project], "fork": list(forks), "id": [*(row["id"] for row in rows), home]}
    schema: Any = schemathesis.openapi.from_dict(site.get("/openapi.json"))
    operations = [one.ok() for one in schema.get_all_operations() if one.ok().path != ENDLESS]
    operations.sort(key=lambda one: (one.method != "get", one.method == "delete"))  # what destroys comes last
    wrong: list[str] = []
    met: Counter[int] = Counter()
    for operation in operations:
        wrong += asked(operation, site, known, met)
    assert wrong == []
    assert {200, 400, 404} <= met.keys(), "it has not come far"
    assert site.get("/me")


def asked(operation: Any, site: Site, known: dict[str, list[str]], met: Counter[int]) -> list[str]:
    """What is wrong with an operation's answers, by a few dozen requests: most of them about what there is."""
    wrong: list[str] = []

    takes = operation.query or operation.body
    modes = list(schemathesis.GenerationMode) if takes else [schemathesis.GenerationMode.POSITIVE]

    @given(case=one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes)))
    @settings(
        max_examples=MOST,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    def ask(case: Any) -> None:
        if wrong:
            return
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {site.told['token']}"}
        chance = crc32(repr((case.path_parameters, case.query, case.body)).encode())
        for values in (case.path_parameters, case.query, case.body):
            for name in known.keys() & values.keys() if isinstance(values, dict) and chance % 4 else ():
                values[name] = known[name][chance // 4 % len(known[name])]
        answer = case.call(base_url=site.url.rstrip("/"), timeout=20)
        met[answer.status_code] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except (AssertionError, schemathesis.errors.FailureGroup) as error:
            wrong.append(f"{operation.method} {operation.path}: {error}")

    ask()
    return wrong
