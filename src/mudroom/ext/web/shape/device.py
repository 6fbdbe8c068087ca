"""Browsers that are notified while their page is closed."""

from __future__ import annotations

from msgspec import Struct


class DeviceShape(Struct):
    id: str
    name: str
    service: str
    """The host of its push service."""
    added: int
    until: int
    problem: str
    """Why its last message was not taken; empty: it was, or there was none."""
    is_this: bool
    """Whether it is the one that was just added or renewed."""


class DevicesShape(Struct):
    devices: list[DeviceShape]
    key: str
    """This server's public key, for a subscription; empty: nothing can be sent."""
    problem: str
    """Why."""


class AddDeviceShape(Struct, forbid_unknown_fields=True):
    name: str
    """For the list, in the user's words or the browser's."""
    endpoint: str
    key: str
    """The subscription's ``p256dh``."""
    secret: str
    """Its ``auth``."""
    origin: str = ""
    """The page's origin, which a push service is told as the sender's contact if it is https."""
