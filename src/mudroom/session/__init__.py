"""A session: one actor's work on one project. Start with ``Session``; other names are loaded at first use."""

from __future__ import annotations

from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client as Client
    from mudroom.session.actor import Actor as Actor
    from mudroom.session.background import Background as Background
    from mudroom.session.order import Stdio as Stdio
    from mudroom.session.session import Session as Session
    from mudroom.session.session import require_project as require_project
    from mudroom.vault.apply.conflict import ForkConflict as ForkConflict
    from mudroom.vault.apply.landing import LandingResult as LandingResult
    from mudroom.vault.apply.landing import Verification as Verification
    from mudroom.vault.apply.transaction import ApplyResult as ApplyResult

__all__ = [
    "Actor",
    "ApplyResult",
    "Background",
    "Client",
    "ForkConflict",
    "LandingResult",
    "Session",
    "Stdio",
    "Verification",
    "require_project",
]

_PLACES = {
    "Actor": "mudroom.session.actor",
    "ApplyResult": "mudroom.vault.apply.transaction",
    "Background": "mudroom.session.background",
    "Client": "mudroom.sandbox.client.client",
    "ForkConflict": "mudroom.vault.apply.conflict",
    "LandingResult": "mudroom.vault.apply.landing",
    "Session": "mudroom.session.session",
    "Stdio": "mudroom.session.order",
    "Verification": "mudroom.vault.apply.landing",
    "require_project": "mudroom.session.session",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    __import__(place)
    import sys

    return getattr(sys.modules[place], name)
