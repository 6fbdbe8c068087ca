"""CONNECT through a real gate process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import HostRule
from town import Town, echo, read_all, read_until

pytestmark = pytest.mark.both_users


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


def test_a_tunnel_to_a_named_port_carries_bytes_and_becomes_a_flow(town: Town) -> None:
    town.names({"db.example": [["127.0.0.1"]]})
    port = town.serve(echo)
    guard = town.guard(HostRule("allow", "db.example", (port,), private=True, source="policy.yaml:3"))
    client = guard.connect(b"CONNECT db.example:%d HTTP/1.1\r\nHost: db.example:%d\r\n\r\n" % (port, port))
    assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    client.sendall(b"\0hello")
    assert read_until(client, b"\0hello") == b"\0hello"
    client.close()
    flow = guard.flow()
    assert (flow.way, flow.host, flow.port, flow.verdict) == ("connect", "db.example", port, "allow")
    assert (flow.rule, flow.address, flow.sent, flow.received) == ("policy.yaml:3", "127.0.0.1", 6, 6)
    assert not flow.error
    assert town.lookups() == ["db.example"]


def test_what_no_rule_names_is_denied_and_never_looked_up(town: Town) -> None:
    guard = town.guard(HostRule("allow", "good.example"))
    client = guard.connect(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
    said = read_all(client)
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"evil.example:443 is not allowed" in said
    assert b"mudroom net allow evil.example" in said
    flow = guard.flow()
    assert (flow.host, flow.verdict, flow.address) == ("evil.example", "deny", "")
    assert town.lookups() == []
