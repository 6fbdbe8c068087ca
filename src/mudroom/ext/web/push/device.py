"""Browsers that are notified: ``serve/devices.json`` in the state directory, for this user alone, with the private key
that signs messages to them. A device ends when its time is over, the page or its push service drops it, or with all
logins.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from mudroom.api import UsageError
from mudroom.core.tree.path import show
from mudroom.ext.web.push.message import new_key, why_not
from mudroom.ext.web.server.login import write_own
from mudroom.stage import private_file
from mudroom.vault.lock import Lock

LIFE = 30 * 24 * 3600
"""Seconds after its page was last seen."""
MOST = 16
_LIMIT = 1 << 17
"""Bytes of the file."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A browser's push subscription (Push API, "PushSubscription")."""

    id: str
    name: str
    endpoint: str
    key: str
    secret: str
    contact: str
    added: int
    until: int
    """Seconds since 1970."""


class DeviceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    """The private key; empty: there is none yet."""
    devices: tuple[Device, ...] = ()


class DeviceStore:
    """The file is read whenever it is needed: another process may have removed it (``mudroom serve --forget``)."""

    def __init__(self, directory: bytes) -> None:
        self._path, self._lock = directory + b"/devices.json", directory + b"/devices.lock"

    def read(self) -> DeviceFile:
        """Return the devices whose time is not over. A damaged file, or another user's, has none."""
        try:
            found = msgspec.json.decode(private_file.read(self._path, _LIMIT) or b"", type=DeviceFile)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return DeviceFile()
        now = time.time()
        return msgspec.structs.replace(found, devices=tuple(one for one in found.devices if one.until > now))

    def prepare(self) -> None:
        """Make the private key if there is none, and it can be made. Tell of a damaged file. Raise MudroomError."""
        if self.read().key or why_not():
            return
        if os.path.lexists(self._path) and not self._is_empty():
            sys.stderr.write(f"mudroom: {show(self._path)} was damaged: no browser is notified until it asks again\n")
            sys.stderr.flush()
        self._change(lambda devices: devices)

    def _is_empty(self) -> bool:
        """Return whether the file is one that ``forget`` wrote."""
        return private_file.read(self._path, _LIMIT) == msgspec.json.encode(DeviceFile())

    def add(self, device: Device) -> None:
        """Add a device, or renew the one with its endpoint. Raise MudroomError; UsageError if there are too many."""

        def with_it(devices: Sequence[Device]) -> Sequence[Device]:
            others = [one for one in devices if one.endpoint != device.endpoint]
            if len(others) >= MOST:
                raise UsageError(f"{MOST} devices are notified already", "remove one that is not used any more")
            return [*others, device]

        self._change(with_it)

    def remove(self, name: str) -> None:
        self._change(lambda devices: [one for one in devices if one.id != name])

    def forget(self) -> None:
        """Remove all devices, and replace the key if there was one."""
        with Lock(self._lock):
            had_key = bool(self.read().key)
            write_own(self._path, msgspec.json.encode(DeviceFile()))
        if had_key:
            self.prepare()

    def _change(self, change: Callable[[Sequence[Device]], Sequence[Device]]) -> DeviceFile:
        with Lock(self._lock):
            found = self.read()
            changed = DeviceFile(found.key or new_key(), tuple(change(found.devices)))
            if changed != found:
                write_own(self._path, msgspec.json.encode(changed))
        return changed
