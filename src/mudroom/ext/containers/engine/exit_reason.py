"""Find out, from the engine's events, why a container ended that mudroom did not end.

The container itself is removed by then, with its state. Sources: docker-events(1), podman-events(1).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress

from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Engine, events_argv
from mudroom.ext.containers.engine.engine import ask

PATIENCE = 2.0
"""Seconds that an engine has to notice a container's end."""
_RECENT = 60.0
"""Seconds. A container's end is asked about as soon as it is noticed."""


def explain_end(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """Return the reason as one clause for people. ``since`` is wall-clock time in seconds."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            events = parse_events(ask(events_argv(engine, name, *_period(since)), environ, PATIENCE))
        except MudroomError as error:
            return f"its engine cannot be asked why ({error.message})"
        if any(action in ("die", "died") for action, _attributes in events) or time.monotonic() > until:
            return describe_end(events)


def explain_if_ended(engine: Engine, name: str, since: float, environ: Mapping[bytes, bytes]) -> str:
    """Return the same clause for a container that may be running; empty if it has not ended, or the engine does not
    answer."""
    with suppress(MudroomError):
        events = parse_events(ask(events_argv(engine, name, *_period(since)), environ, PATIENCE))
        if any(action in ("die", "died") for action, _attributes in events):
            return describe_end(events)
    return ""


def _period(since: float) -> tuple[float, float]:
    """Return the period to ask about: from ``since``, or the last minute if the clock was set back. It does not end in
    the future: an engine would wait until then."""
    now = time.time()
    return (since if since <= now else now - _RECENT), now


def parse_events(listed: bytes) -> list[tuple[str, dict[str, str]]]:
    """Parse events into action and attributes, in order; unreadable lines are left out."""
    events = []
    for line in listed.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        actor = event.get("Actor") or {}
        attributes = {key: str(value) for key, value in {**actor.get("Attributes", {}), **event}.items()}
        events.append((str(event.get("Action") or event.get("status") or event.get("Status") or ""), attributes))
    return events


def describe_end(events: list[tuple[str, dict[str, str]]]) -> str:
    actions = [action for action, _attributes in events]
    for action, attributes in events:
        if action == "kill":
            number = attributes.get("signal", "")
            return f"its engine was told to kill it (signal {number})" if number else "its engine was told to kill it"
    if "oom" in actions:
        return "its memory was full, and the kernel ended the launcher with the command"
    if "remove" in actions and "died" not in actions:
        return "its engine was told to remove it"
    for action, attributes in events:
        if action in ("die", "died"):
            code = attributes.get("exitCode") or attributes.get("ContainerExitCode") or ""
            return f"its engine says that it ended by itself or was killed from outside (exit code {code or 'unknown'})"
    return "its engine does not know why"
