"""Changes to an agent's settings, which a review shows apart from the project's files."""

from __future__ import annotations

from mudroom.core.registry import part_or_none
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mudroom.session import Session

TITLE = "your agent's settings: they run later, and land only if you choose them"


def changed_settings(session: Session, fork: str) -> list[str]:
    """Return a line for each change to the settings of the fork's agent; many below a directory share a line."""
    agents = part_or_none("agents", "settings")
    lines: list[str] = agents.changed_settings(session, fork) if agents is not None else []
    return lines


def section(fork: str, lines: Sequence[str]) -> list[str]:
    return [TITLE, *lines, f"  mudroom agent settings {fork} --diff, --land PATH"] if lines else []
