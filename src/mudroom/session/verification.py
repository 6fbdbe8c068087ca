"""Verify an apply: run the policy's ``verify`` command on the merged result, in a separate fork."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.result import Result
from mudroom.session.actor import Actor
from mudroom.session.forks import Forks
from mudroom.session.order import CAPTURED, Stdio
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.merge.operations import Landing
    from mudroom.session.changes import OnVerify, Verify
    from mudroom.stage.source import Source
    from mudroom.vault.apply.landing import Check, Verification

RunAs = Callable[[Actor, tuple[bytes, ...], str, Stdio, float | None], Result]
"""Run a command for an actor: argv, fork, descriptors, timeout."""


def verification(forks: Forks, session: Actor, run_as: RunAs) -> Verify:
    """Return a function that returns an apply's check, or None if the policy wants no check. ``session``: the actor
    whose work is applied. The check itself runs with the policy files' settings only."""
    actor = session.as_policy_says()
    settings = actor.settings

    def verify(on_verify: OnVerify | None = None) -> Check | None:
        if not settings.verify or settings.verify_when == "never":
            return None
        from mudroom.vault.apply.landing import Verification
        from mudroom.vault.apply.rehearsal import rehearse

        def check(landing: Landing, staged: Source, merged: bytes) -> Verification | None:
            if settings.verify_when == "merged" and not landing.differing:
                return None
            fork = forks.new(f"verify-{forks.new_id()}", named=False).name
            try:
                mask, _notes = forks.secrets.look(settings)
                rehearse(forks.tools.tree(fork, forks.vault.masked(mask)), landing, staged, merged, mask.paths)
                on_output = on_verify(settings.verify) if on_verify is not None else None
                stdio = CAPTURED if on_output is None else Stdio(on_output=lambda _name, data: on_output(data))
                result = run_as(actor, settings.verify, fork, stdio, settings.verify_timeout)
                output = result.stdout + result.stderr
                return Verification(settings.verify, result.exit_code, output, result.timed_out)
            finally:
                forks.discard(fork)

        return check

    return verify
