"""Notifications to browsers whose page is closed: the queue of decisions, watched while a device wants them.

1. A row is told once. A question is told at once, a fork when nothing has changed in it for ``CALM``: an agent's next
   command may follow.
2. There is one message in ``PAUSE`` at most; what comes meanwhile is in the next one.
3. A message names kind, fork, agent and project: no command, no path in the project, no content.
4. A message that fails is not repeated. The page shows the reason, and stderr has it once.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from mudroom.api import MudroomError, UsageError, show
from mudroom.ext.decisions.queue import Decision
from mudroom.ext.web.push.device import LIFE, Device, DeviceStore
from mudroom.ext.web.push.message import public_of, to_base64, why_not
from mudroom.ext.web.push.sender import Gone, Push, require_device, send
from mudroom.ext.web.state.hub import Hub

CALM, PAUSE = 60.0, 20.0
"""Seconds."""
LOOK = 5.0
"""Seconds after which the queue is read whatever has changed, and after which new devices are looked for."""
QUESTION_LIFE, FORK_LIFE = 3600, 24 * 3600
"""Seconds until a message is not delivered any more. A question's answer holds for an hour."""
_MATTERS = frozenset({"forks", "questions", "applies"})
_NAMED = 3
"""Rows that one message names."""


class WaitingRow(NamedTuple):
    project: str
    """Its id."""
    place: str
    """The last part of its path."""
    decision: Decision

    @property
    def key(self) -> tuple[object, ...]:
        found = self.decision
        return (self.project, found.question) if found.question else (self.project, found.fork, found.kind, found.since)


class NotificationDesk:
    """``look`` runs in one thread at a time. The others only read, and call the store, which has a lock."""

    def __init__(self, store: DeviceStore, waiting: Callable[[], Iterable[WaitingRow]]) -> None:
        self._store, self._waiting = store, waiting
        self._told: set[tuple[object, ...]] | None = None
        self._sent = -PAUSE
        self.problems: dict[str, str] = {}
        """By device: why its last message was not taken."""

    # --- devices ---

    def devices(self) -> tuple[Device, ...]:
        return self._store.read().devices

    def public_key(self) -> str:
        """Return the key by which push services know this server; empty if there is none."""
        key = "" if why_not() else self._store.read().key
        return to_base64(public_of(key)) if key else ""

    def add(self, name: str, endpoint: str, key: str, secret: str, origin: str) -> None:
        """Keep a device, or renew it. A new one gets a first message, and is kept only if that is taken. Raise
        MudroomError, UsageError."""
        if why := why_not():
            raise UsageError("no notifications can be sent", why)
        known = {one.endpoint: one for one in self.devices()}.get(endpoint)
        now = int(time.time())
        label = show(name.strip()[:80].encode("utf-8", "replace")) or "a browser"
        contact = origin[:255] if origin.startswith("https://") and origin.isascii() else "mailto:mudroom@example.org"
        added = known.added if known else now
        identity = known.id if known else secrets.token_hex(8)
        device = Device(identity, label, endpoint, key, secret, contact, added, now + LIFE)
        require_device(device)
        self._store.prepare()
        if known is None:
            text = _text("mudroom", "This device is notified of what waits for you.", "hello", "#/")
            if problem := self._send(device, Push(text, "hello", 60)):
                raise UsageError(
                    f"the push service has not taken a message: {problem}", "try again, or another browser"
                )
        self._store.add(device)

    def remove(self, name: str) -> None:
        """Raise MudroomError."""
        self._store.remove(name)
        self.problems.pop(name, None)

    # --- watching ---

    async def run(self, hub: Hub) -> None:
        """Watch as long as there are devices, until the server ends."""
        while not hub.has_ended:
            if self.devices():
                await self._watch(hub)
            self._told = None
            await asyncio.sleep(LOOK)

    async def _watch(self, hub: Hub) -> None:
        looked = 0.0
        async for message in hub.listen():
            if message is not None and message[1].get("what") not in _MATTERS and time.monotonic() - looked < LOOK:
                continue
            looked = time.monotonic()
            if not await asyncio.to_thread(self.look):
                return

    def look(self) -> bool:
        """Send what is new, if it is time for that. Return whether there are devices."""
        devices, now = self.devices(), time.time()
        try:
            rows = {row.key: row for row in self._waiting() if row.decision.question or _is_calm(row.decision, now)}
        except (MudroomError, OSError):
            return bool(devices)  # a vault was removed just now: the next look tells
        if self._told is None:
            self._told = set(rows)  # the page has shown them when it asked to be notified
        self._told &= rows.keys()
        new = [row for key, row in rows.items() if key not in self._told]
        if new and time.monotonic() - self._sent >= PAUSE:
            self._sent = time.monotonic()
            self._told |= {row.key for row in new}
            push = message_of(new)
            for device in devices:
                self._note(device, self._send(device, push))
        return bool(devices)

    def _send(self, device: Device, push: Push) -> str:
        """Send a message, and return why it was not taken."""
        try:
            send(device, self._store.read().key, push)
        except Gone:
            self.remove(device.id)
            return "it does not know this device"
        except (OSError, http.client.HTTPException, ValueError, MudroomError) as error:
            return show(str(getattr(error, "strerror", None) or error or type(error).__name__)[:200].encode())
        return ""

    def _note(self, device: Device, problem: str) -> None:
        if problem and self.problems.get(device.id) != problem:
            sys.stderr.write(f"mudroom: {device.name} was not notified: {problem}\n")
            sys.stderr.flush()
        self.problems[device.id] = problem


def message_of(rows: list[WaitingRow]) -> Push:
    """Return the message about new rows."""
    first, is_question = rows[0], any(row.decision.question for row in rows)
    lines = [_line(row) for row in rows[:_NAMED]] + ([f"and {len(rows) - _NAMED} more"] if len(rows) > _NAMED else [])
    title = _TITLES.get(first.decision.kind, "Finished") if len(rows) == 1 else f"{len(rows)} decisions wait"
    place = f"#/p/{quote(first.project, safe='')}/f/{quote(first.decision.fork, safe='')}/review"
    to = place if len(rows) == 1 and not first.decision.question else "#/"
    tag = "/".join(map(str, first.key[:2])) if len(rows) == 1 else "queue"
    topic = to_base64(sha256(tag.encode("utf-8", "replace")).digest())[:32]
    life = QUESTION_LIFE if is_question else FORK_LIFE
    return Push(_text(title, "\n".join(lines), tag, to), topic, life, "high" if is_question else "normal")


_TITLES = {
    "question": "A question",
    "conflict": "A conflict",
    "unverified": "The verification failed",
    "answered": "Remarks answered",
    "damaged": "A damaged fork",
    "cut off": "Interrupted",
}


def _line(row: WaitingRow) -> str:
    found = row.decision
    who = (
        f"{found.agent} in {found.fork}" if found.agent not in ("", found.fork) else found.fork or "a command of yours"
    )
    return show(f"{who} · {row.place}"[:120].encode("utf-8", "replace"))


def _is_calm(found: Decision, now: float) -> bool:
    return found.kind != "running" and now - found.since / 1000 >= CALM


def _text(title: str, body: str, tag: str, to: str) -> bytes:
    return json.dumps({"title": title, "body": body, "tag": tag, "to": to}).encode()
