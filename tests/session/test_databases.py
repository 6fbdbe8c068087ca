"""Databases of which forks are made under load: consistent as after a power cut, with all that was confirmed."""

from __future__ import annotations

import os

import pytest

from box import if_namespaces
from conftest import Place
from databases import DATABASES, FILES, checked, missing, under_load
from mudroom.session import Session

pytestmark = pytest.mark.both_users


def session_of(place: Place) -> Session:
    for name, text in FILES.items():
        place.write(name, text)
    return place.session()


@if_namespaces
def test_sqlite_in_forks_that_were_made_under_load(place: Place) -> None:
    session = session_of(place)
    with under_load(session, "a", DATABASES["SQLite"]):
        for name in ("b", "c"):
            checked(session, "a", name, DATABASES["SQLite"], live=name == "c")


@pytest.mark.deep
@pytest.mark.limit(600)
@if_namespaces
@pytest.mark.parametrize("name", [name for name, database in DATABASES.items() if database.serve])
def test_a_server_of_debian(place: Place, name: str) -> None:
    database = DATABASES[name]
    if os.geteuid() == 0:
        pytest.skip("these servers are not for root")
    if missing(database):
        pytest.skip(f"a database of Debian is absent: {', '.join(missing(database))}")
    session = session_of(place)
    with under_load(session, "a", database):
        for number in range(4):
            checked(session, "a", f"b{number}", database, live=number % 2 == 1)
