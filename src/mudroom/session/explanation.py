"""Explain how a command would be confined and how it would see a path, without running it."""

from __future__ import annotations

import os

from mudroom.core.confinement.access_reason import AccessReason, explain_path
from mudroom.core.confinement.fallback import ELSEWHERE, Mode
from mudroom.core.confinement.limit import explain_limits, requested
from mudroom.core.confinement.plan import Plan, explain
from mudroom.core.confinement.spec import Copy
from mudroom.core.tree.path import show
from mudroom.session.actor import Actor
from mudroom.session.confinement.level_two import ContainerOutlook, level_two
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import Outcome
from mudroom.stage.views.overlay import OverlayView
from mudroom.typing import Any
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

_EXAMPLE_PORT = 49152
"""The first dynamic port (RFC 6335 6). It stands for the gate's port, which exists only for a running command."""


class Explanation:
    """How one actor's commands are confined."""

    def __init__(self, machine: Machine, vault: Vault, actor: Actor) -> None:
        """Raise Refused or Unsupported as a command would."""
        self._machine, self._vault, self._actor = machine, vault, actor
        self._grant = machine.granted(actor)

    def as_json(self, cwd: bytes) -> dict[str, Any]:
        """Return the level, the mode, the container (or None) and the explanation's lines."""
        around = self._surroundings()
        mode, container, lines = self._mode(around), None, list[str]()
        if around is not None:
            container, lines = around.as_json(), list(around.lines(mode))
        lines += [*explain(self._plan(cwd)), *explain_limits(requested(self._actor.settings.limits))]
        return {"level": self._grant.level, "mode": mode, "container": container, "lines": lines}

    def why_path(self, forks: Forks, path: bytes) -> AccessReason:
        """Return how a command sees an absolute path, and why."""
        project = self._vault.project
        mask, _notes = forks.secrets.look(self._actor.settings)
        inside = path[len(project) + 1 :]
        if path.startswith(project + b"/") and inside in mask.paths:
            return AccessReason(show(path), "empty", "it is a secret; secrets.show in the policy shows it", True)
        return explain_path(self._plan(project), path, show(path))

    def _surroundings(self) -> ContainerOutlook | None:
        """Return the container that a command would get, as far as that is known without starting it. None below
        level 2."""
        if self._grant.level != 2:
            return None

        environ, state = self._machine.confinement.variables, os.path.dirname(os.path.dirname(self._vault.path))
        return level_two().outlook(environ, self._actor.settings.engine, state, self._grant.image)

    def _mode(self, around: ContainerOutlook | None) -> Mode:
        confinement, settings = self._machine.confinement, self._actor.settings
        if around is None:
            first = confinement.platform.first
            return "copy" if settings.view == "copy" and first not in ELSEWHERE else first
        if around.engine.mode != "overlay":
            return around.engine.mode
        return confinement.first_mode(settings, is_copy=False, level=2)[0]

    def _plan(self, cwd: bytes) -> Plan:
        mode = self._mode(self._surroundings())
        fork = Fork("example", self._vault.path + b"/forks/example", self._vault.path)
        upper = fork.path + b"/upper"
        mount = OverlayView(self._vault.source, (), upper, fork.path + b"/work").mount()
        view = mount if mode == "overlay" else Copy(fork.copy_place + b"/work")
        private, settings = fork.path + b"/private", self._actor.settings
        bridged = self._machine.confinement.platform.is_bridged and settings.network_at(self._grant.level) == "gate"
        gate = _EXAMPLE_PORT if bridged else 0
        return self._machine.confinement.plan(
            view, mode, cwd, private, settings, grant=self._grant, gate=gate, loopback=self._loopback(mode)
        )[0]

    def _loopback(self, mode: Mode) -> tuple[tuple[str, int, int], ...]:
        """Return the host's loopback ports that have listeners inside the sandbox; none without namespaces, where the
        listeners are outside."""
        if mode in ELSEWHERE:
            return ()
        level = self._grant.level
        stored = self._machine.stored_rules(self._actor, level)
        return tuple((*place, 0) for place in self._machine.loopback_places(mode, level, Outcome(), stored))
