"""Addresses of this machine are known by trying to bind to them."""

from __future__ import annotations

import socket

import pytest

from mudroom.net.gate import resolve
from mudroom.net.gate.resolve import LocalAddresses

HERE, ELSEWHERE = bytes((127, 0, 0, 1)), bytes((192, 0, 2, 1))
"""192.0.2.0/24 is for documentation (RFC 5737): no interface has it."""


def test_what_belongs_to_this_machine() -> None:
    own = LocalAddresses([HERE, ELSEWHERE, socket.inet_pton(socket.AF_INET6, "2001:db8::1")])
    assert HERE in own
    assert ELSEWHERE not in own
    assert list(own) == [HERE]
    assert len(own) == 1


def test_nothing_is_tried_for_an_address_that_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def probe(packed: bytes) -> bool:
        tried.append(packed)
        return True

    monkeypatch.setattr(resolve, "_is_local", probe)
    own = LocalAddresses([ELSEWHERE])
    assert tried == []
    assert HERE not in own
    assert ELSEWHERE in own
    assert tried == [ELSEWHERE]
