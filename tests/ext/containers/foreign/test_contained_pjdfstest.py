"""pjdfstest in a container: as ``tests/foreign/test_pjdfstest.py`` at other levels."""

from __future__ import annotations

import pytest

import suite
from conftest import Place
from engines import EngineHere
from suite import LEVEL_2
from test_pjdfstest import Natively, compare, natively, place

__all__ = ["natively", "place"]  # fixtures
pytestmark = [pytest.mark.both_users]


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(3000)
def test_the_suite_in_a_container(place: Place, natively: Natively, engine: EngineHere) -> None:
    checkout = suite.source("pjdfstest")
    session = engine.session(place, suite.settings(checkout))
    compare(session, place, checkout, f"{LEVEL_2}, {engine.kind}", natively(checkout))
