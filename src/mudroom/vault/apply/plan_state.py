"""The state of an apply, told by which plan its directory holds. Listing applies reads no plan."""

from __future__ import annotations

import os

from mudroom.typing import Literal
from mudroom.vault.store.store import Vault

State = Literal["prepare", "tied", "ready", "done", "undoing", "undone", "redoing"]
ORDER: tuple[State, ...] = ("tied", "redoing", "undone", "undoing", "done", "ready", "prepare")
"""If a crash left two plans, the first in this order holds."""
_WORDS: dict[State, str] = {
    "prepare": "deferred",
    "tied": "interrupted",
    "ready": "interrupted",
    "undoing": "interrupted",
    "redoing": "interrupted",
    "done": "applied",
}


def plan_path(directory: bytes, state: State) -> bytes:
    return directory + b"/plan." + state.encode()


def state_of(directory: bytes) -> State | None:
    """Return the state of an apply, or None if its directory holds no plan."""
    return next((state for state in ORDER if os.path.exists(plan_path(directory, state))), None)


def list_applies(vault: Vault) -> list[dict[str, str]]:
    """Return every apply in a project, oldest first, with its state in words."""
    states = ((os.fsdecode(os.path.basename(path)), state_of(path)) for path in vault.applies())
    return [{"apply": name, "state": _WORDS.get(state, state)} for name, state in states if state is not None]
