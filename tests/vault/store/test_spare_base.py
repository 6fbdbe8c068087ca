"""The spare snapshot: made of one that no fork needs, taken by one fork."""

from __future__ import annotations

import os
import sys

import pytest

from empty_vault import vault
from mudroom.vault.store.spare_base import SPARE, take_spare, throw_away_base
from mudroom.vault.store.store import Vault

__all__ = ["vault"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a spare is kept on Linux")


def made(vault: Vault, name: str) -> None:
    os.makedirs(vault.base(name) + b"/source/" + name.encode())


def bases(vault: Vault) -> list[str]:
    return sorted(map(os.fsdecode, os.listdir(vault.path + b"/bases")))


def test_it_is_taken_once(vault: Vault) -> None:
    made(vault, "one")
    throw_away_base(vault, "one", spares=True)
    assert bases(vault) == [SPARE]
    assert take_spare(vault, "two")
    assert not take_spare(vault, "three")
    assert os.listdir(vault.base("two") + b"/source") == [b"one"]


def test_the_last_one_is_kept(vault: Vault) -> None:
    for name in ("one", "two"):
        made(vault, name)
        throw_away_base(vault, name, spares=True)
    assert bases(vault) == [SPARE]
    assert os.listdir(vault.base(SPARE) + b"/source") == [b"two"]
    made(vault, "three")
    throw_away_base(vault, "three")
    assert os.listdir(vault.base(SPARE) + b"/source") == [b"two"], "discarded by the user: it is no spare"


def test_one_that_a_fork_needs_is_none(vault: Vault) -> None:
    made(vault, "one")
    fork = vault.new_fork("f")
    fork.save(fork.state._replace(base="one"))
    throw_away_base(vault, "one", spares=True)
    assert bases(vault) == ["one"]
