"""``mudroom net`` in a project of its own."""

from __future__ import annotations

import pytest

from conftest import Place
from test_vault_verb import Cli

NPM = "registry.npmjs.org, registry.yarnpkg.com, nodejs.org"
GATE = "network:\n  mode: gate\n"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write(".git/HEAD", "")
    return Cli(place)
