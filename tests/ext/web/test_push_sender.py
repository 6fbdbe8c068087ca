"""To whom a message is sent: a browser has given the address, so it may be anybody's."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import Any

import pytest
from push_service import SECRET, Browser, Service, base64, pushed

from mudroom.errors import UsageError
from mudroom.ext.web.push import sender
from mudroom.ext.web.push.device import Device
from mudroom.ext.web.push.message import new_key
from mudroom.ext.web.push.sender import Gone, Push, connect, require_device, send
from tiers import each

__all__ = ["pushed"]
PUSH = Push(b"{}", "topic", 60, "high")


def device(endpoint: str = "https://push.example/p/1?x=2", **more: Any) -> Device:
    browser = Browser()
    given = {"key": base64(browser.point), "secret": base64(SECRET), **more}
    return Device("1", "Phone", endpoint, given["key"], given["secret"], "mailto:a@example.org", 0, 0)


def test_a_message_has_the_headers_of_the_protocol(pushed: Service) -> None:
    send(device(), new_key(), PUSH)
    ((path, headers, body),) = pushed.got
    assert (path, headers["host"]) == ("/p/1?x=2", "push.example")
    wanted = {"content-encoding": "aes128gcm", "ttl": "60", "topic": "topic", "urgency": "high"}
    assert wanted.items() <= headers.items()
    assert headers["authorization"].startswith("vapid t=") and int(headers["content-length"]) == len(body)


@pytest.mark.parametrize("status", [404, 410])
def test_a_device_that_the_service_does_not_know_any_more(pushed: Service, status: int) -> None:
    pushed.status = status
    with pytest.raises(Gone):
        send(device(), new_key(), PUSH)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 413, 429, 500, 503])
def test_no_redirection_is_followed_and_a_refusal_is_said(pushed: Service, status: int) -> None:
    pushed.status = status
    with pytest.raises(http.client.HTTPException, match=f"answered {status}"):
        send(device(), new_key(), PUSH)
    assert len(pushed.got) == 1


@each(
    "endpoint",
    [
        "", "http://push.example/", "ftp://push.example/", "https://", "https:///p", "https://push.example:8443/",
        "https://me@push.example/", "https://me:pw@push.example/", "https://push.example/#f",
        "https://push.example/\r\nX: y", "https://push.example/ x", "https://pü.example/", "https://push.example:99999/",
        "https://push.example/" + "x" * 2048,
        "javascript:alert(1)", "file:///etc/passwd", "//push.example/",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_push_service(endpoint: str) -> None:
    with pytest.raises(UsageError, match="this is no push subscription"):
        require_device(device(endpoint))


@each("more", [{"key": "AA"}, {"key": base64(b"\x04" + bytes(64))}, {"secret": "AA"}, {"secret": "ü"}, {"key": ""}])
def test_keys_that_are_none(more: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="this is no push subscription"):
        require_device(device(**more))


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1", "fd00::1",
        "fe80::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
    ],
)  # fmt: skip
def test_only_public_addresses_are_dialled(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if another address of the name is public."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    addresses = [socket.inet_pton(socket.AF_INET, "93.184.215.14"), socket.inet_pton(family, text)]
    monkeypatch.setattr(sender, "look_up", lambda _host: addresses)
    monkeypatch.setattr(socket, "create_connection", lambda *_words, **_more: pytest.fail("it was dialled"))
    with pytest.raises(PermissionError, match=r"push\.example is at"):
        connect("push.example")


@each("host", ["127.0.0.1", "localhost", "[::1]", "0x7f000001", "2130706433", "127.1"])
def test_this_machine_is_not_reached_by_any_spelling(host: str) -> None:
    with pytest.raises(OSError):
        connect(host.strip("[]"))


def test_the_address_that_was_judged_is_the_one_that_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled, (ours, theirs) = [], socket.socketpair()
    monkeypatch.setattr(sender, "look_up", lambda _host: [socket.inet_pton(socket.AF_INET, "93.184.215.14")])

    def dial(place: tuple[str, int], timeout: float) -> socket.socket:
        dialled.append(place)
        theirs.sendall(b"no TLS at all\n" * 20)
        return ours

    monkeypatch.setattr(socket, "create_connection", dial)
    with theirs, pytest.raises(ssl.SSLError):
        connect("push.example")
    assert dialled == [("93.184.215.14", 443)] and ours.fileno() == -1
