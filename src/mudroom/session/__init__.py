"""A session: one actor's work on one project. Start with ``Session``; other names are loaded at first use."""

from __future__ import annotations

from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.sandbox.client.client import Client as Client
    from mudroom.sandbox.host.processes import ProcessUsage as ProcessUsage
    from mudroom.session.actor import Actor as Actor
    from mudroom.session.background import Background as Background
    from mudroom.session.order import CAPTURED as CAPTURED
    from mudroom.session.order import Stdio as Stdio
    from mudroom.session.run import refused_hosts as refused_hosts
    from mudroom.session.session import Session as Session
    from mudroom.session.session import require_project as require_project
    from mudroom.stage.views.preflight import find_project as find_project
    from mudroom.stage.views.preflight import policy_above as policy_above
    from mudroom.vault.apply.conflict import ForkConflict as ForkConflict
    from mudroom.vault.apply.landing import LandingResult as LandingResult
    from mudroom.vault.apply.landing import Verification as Verification
    from mudroom.vault.apply.transaction import ApplyResult as ApplyResult
    from mudroom.vault.forks.background import StreamPart as StreamPart

__all__ = [
    "CAPTURED",
    "Actor",
    "ApplyResult",
    "Background",
    "Client",
    "ForkConflict",
    "LandingResult",
    "ProcessUsage",
    "Session",
    "Stdio",
    "StreamPart",
    "Verification",
    "find_project",
    "policy_above",
    "refused_hosts",
    "require_project",
]

_PLACES = {
    "CAPTURED": "mudroom.session.order",
    "Actor": "mudroom.session.actor",
    "ApplyResult": "mudroom.vault.apply.transaction",
    "Background": "mudroom.session.background",
    "Client": "mudroom.sandbox.client.client",
    "ForkConflict": "mudroom.vault.apply.conflict",
    "LandingResult": "mudroom.vault.apply.landing",
    "Session": "mudroom.session.session",
    "Stdio": "mudroom.session.order",
    "StreamPart": "mudroom.vault.forks.background",
    "ProcessUsage": "mudroom.sandbox.host.processes",
    "Verification": "mudroom.vault.apply.landing",
    "find_project": "mudroom.stage.views.preflight",
    "policy_above": "mudroom.stage.views.preflight",
    "refused_hosts": "mudroom.session.run",
    "require_project": "mudroom.session.session",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    __import__(place)
    import sys

    return getattr(sys.modules[place], name)
