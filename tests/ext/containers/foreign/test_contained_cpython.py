"""CPython's own tests in a container: as ``tests/foreign/test_cpython.py`` at other levels."""

from __future__ import annotations

from pathlib import Path

import pytest

import suite
from conftest import Place
from engines import EngineHere
from suite import LEVEL_2
from test_cpython import MODULES, Natively, compare, natively, place, tests

__all__ = ["natively", "place", "tests"]  # fixtures
pytestmark = [pytest.mark.both_users]


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(900)
def test_all_modules_in_a_container(place: Place, tests: Path, natively: Natively, engine: EngineHere) -> None:
    session = engine.session(place, suite.settings(tests))
    compare(session, place, tests, f"{LEVEL_2}, {engine.kind}", natively(tests, MODULES), MODULES)
