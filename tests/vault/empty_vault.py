"""A vault without forks, of an empty project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inner_path import inner
from mudroom.vault.store.store import Vault, open_vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    (tmp_path / "p").mkdir()
    vault = open_vault(inner(tmp_path / "state"), inner(tmp_path / "p"))
    yield vault
    vault.close()
