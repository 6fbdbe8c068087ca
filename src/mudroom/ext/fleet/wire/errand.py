"""Errand states and the steps between them.

    new → sent → accepted → ended → fetched → kept
                     └→ lost (its worker is gone)   └→ refused, failed, cancelled, expired (ended without a result)

A state is written to the origin's log before it is acted on. After ``accepted`` a command may have had effects outside
its fork, so an errand whose worker is gone is ``lost``. It is not sent again, unless the user asked for retries.
"""

from __future__ import annotations

from collections.abc import Mapping

STEPS: Mapping[str, frozenset[str]] = {
    "new": frozenset({"sent", "cancelled", "failed"}),
    "sent": frozenset({"accepted", "refused", "failed", "lost", "new", "cancelled"}),
    "accepted": frozenset({"ended", "refused", "failed", "cancelled", "expired", "lost"}),
    "ended": frozenset({"fetched", "kept", "failed"}),
    "fetched": frozenset({"kept"}),
    "lost": frozenset({"new", "late"}),
    "late": frozenset({"fetched", "kept", "failed"}),
    "refused": frozenset(),
    "failed": frozenset({"new"}),
    "cancelled": frozenset(),
    "expired": frozenset({"fetched", "new"}),
    "kept": frozenset(),
}
"""The states that may follow each. ``sent`` → ``new``: the worker never accepted it. ``lost`` → ``late``: its outcome
came after all."""

FINAL = frozenset({"kept", "refused", "failed", "cancelled", "expired", "lost"})
"""States in which a fleet waits for the errand no longer."""


def may_follow(state: str, following: str) -> bool:
    return following in STEPS.get(state, frozenset())
