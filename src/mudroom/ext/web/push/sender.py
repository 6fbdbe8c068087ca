"""One message to one push service (RFC 8030).

The endpoint is a URL that a browser has given. So only https to the usual port of a public address is dialled, by the
gate's table of addresses; the address that was judged is the one that is dialled; no redirection is followed, and of
the answer only the head is read.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from mudroom.api import UsageError, show
from mudroom.core.network.address import refused, show_address
from mudroom.ext.web.push.device import Device
from mudroom.ext.web.push.message import POINT, SECRET, authorization, encrypted, from_base64, padded
from mudroom.net.gate.resolve import LocalAddresses, look_up

PATIENCE = 10.0
"""Seconds for each step of one sending."""
_LONGEST = 2048
"""Characters of an endpoint."""
_GONE = (404, 410)
"""The subscription is over: RFC 8030, 7.3."""


class Push(NamedTuple):
    text: bytes
    """JSON for ``page/push/worker.js``."""
    topic: str
    """Replaces a message of the same topic that was not delivered yet: RFC 8030, 5.4."""
    life: int
    """Seconds until it is not delivered any more."""
    urgency: Literal["normal", "high"] = "normal"


class Gone(Exception):
    """The push service does not know the device any more."""


def require_device(device: Device) -> None:
    """Raise UsageError unless a device has the form of a subscription."""
    try:
        parts = urlsplit(device.endpoint)
        is_plain = device.endpoint.isascii() and device.endpoint.isprintable() and " " not in device.endpoint
        fits = is_plain and len(device.endpoint) <= _LONGEST and parts.scheme == "https" and bool(parts.hostname)
        fits = fits and parts.port in (None, 443) and parts.username is None and not parts.fragment
        encrypted(b"", from_base64(device.key), from_base64(device.secret))
        fits = fits and (len(from_base64(device.key)), len(from_base64(device.secret))) == (POINT, SECRET)
    except ValueError:
        fits = False
    if not fits:
        raise UsageError("this is no push subscription", "its endpoint is an https address, its keys are of P-256")


def connect(host: str) -> socket.socket:
    """Return TLS to a host. Raise OSError; PermissionError if it has an address that is not public."""
    addresses = look_up(host)
    own = LocalAddresses(addresses)
    for packed in addresses:
        if reason := refused(packed, own):
            raise PermissionError(0, f"{host} is at {show_address(packed)}: {reason}")
    if not addresses:
        raise OSError(0, f"{host} has no address")
    channel = socket.create_connection((show_address(addresses[0]), 443), timeout=PATIENCE)
    try:
        return ssl.create_default_context().wrap_socket(channel, server_hostname=host)
    except BaseException:
        channel.close()
        raise


def send(device: Device, key: str, push: Push) -> None:
    """Hand a message to the device's push service. Raise Gone; OSError or HTTPException if it was not taken."""
    parts = urlsplit(device.endpoint)
    host = parts.hostname or ""
    headers = {
        "Authorization": authorization(key, f"https://{parts.netloc}", device.contact, time.time()),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(push.life),
        "Topic": push.topic,
        "Urgency": push.urgency,
    }
    body = encrypted(padded(push.text), from_base64(device.key), from_base64(device.secret))
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    try:
        connection.sock = connect(host)
        target = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
        connection.request("POST", target, body, headers | {"Host": parts.netloc})
        status = connection.getresponse().status
    finally:
        connection.close()
    if status in _GONE:
        raise Gone
    if not 200 <= status < 300:
        raise http.client.HTTPException(f"{show(host.encode())} answered {status}")
