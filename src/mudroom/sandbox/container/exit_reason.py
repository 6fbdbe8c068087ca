"""How a container has ended that we did not end: its engine is asked for what has happened to it.

The container itself is removed by then, with its state. Sources: docker-events(1), podman-events(1).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress

from mudroom.core.confinement.container import Engine, events_argv
from mudroom.errors import MudroomError
from mudroom.sandbox.container.engine import ask

PATIENCE = 2.0
"""Seconds that an engine has to hear of the end of a container."""


def tell(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """One clause for a person. ``since``: seconds of the wall clock."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            found = happened(ask(events_argv(engine, name, since, time.time()), environ, PATIENCE))
        except MudroomError as error:
            return f"its engine cannot be asked why ({error.message})"
        if any(action in ("die", "died") for action, _attributes in found) or time.monotonic() > until:
            return clause(found)


def ended(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """The same clause of a container that may be running: empty if it has not ended, or nothing is known."""
    with suppress(MudroomError):
        found = happened(ask(events_argv(engine, name, since, time.time()), environ, PATIENCE))
        if any(action in ("die", "died") for action, _attributes in found):
            return clause(found)
    return ""


def happened(listed: bytes) -> list[tuple[str, dict[str, str]]]:
    """Action and attributes, as they came; what cannot be read is left out."""
    found = []
    for line in listed.decode("utf-8", "replace").splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if not isinstance(one, dict):
            continue
        actor = one.get("Actor") or {}
        attributes = {key: str(value) for key, value in {**actor.get("Attributes", {}), **one}.items()}
        found.append((str(one.get("Action") or one.get("status") or one.get("Status") or ""), attributes))
    return found


def clause(found: list[tuple[str, dict[str, str]]]) -> str:
    actions = [action for action, _attributes in found]
    for action, attributes in found:
        if action == "kill":
            number = attributes.get("signal", "")
            return f"its engine was told to kill it (signal {number})" if number else "its engine was told to kill it"
    if "oom" in actions:
        return "its memory was full, and the kernel ended the launcher with the command"
    if "remove" in actions and "died" not in actions:
        return "its engine was told to remove it"
    for action, attributes in found:
        if action in ("die", "died"):
            code = attributes.get("exitCode") or attributes.get("ContainerExitCode") or ""
            return f"its engine says that it ended by itself or was killed from outside (exit code {code or 'unknown'})"
    return "its engine does not know why"
