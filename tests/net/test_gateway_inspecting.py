"""A session whose policy has TLS looked into: the authority is trusted inside, and a token is never there."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.placeholder import parse_credential
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.session.confinement import gateway
from origin import Web
from seal import Seal
from town import Town

pytestmark = pytest.mark.both_users

SECRET = "ghp_the-real-one-that-nobody-may-see-0123456789"
FETCH = """
import os, sys, urllib.request
headers = {name: "Bearer " + os.environ["TOKEN"] for name in sys.argv[2:]}
try:
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
print(os.environ.get("TOKEN"))
"""


class House:
    """One server that speaks TLS under an authority that the user trusts, and sessions that look into it."""

    def __init__(self, root: Path, town: Town) -> None:
        self._root = root
        seal = Seal(root)
        self._roots = root / "roots.pem"
        self._roots.write_text(seal.roots)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(seal.pem("api.example"))
        self.web = Web(b"hello")

        def talk(client: Any) -> None:
            with context.wrap_socket(client, server_side=True) as inside:
                self.web(inside)

        self.port = town.serve(talk)
        town.names({"api.example": [["127.0.0.1"]]})

    def session(self, *, view: Any = "overlay", inspect: bool = True, level: int | None = None) -> Session:
        for name in ("project", "home"):
            (self._root / name).mkdir(exist_ok=True)
        rule = HostRule("allow", "api.example", (self.port,), private=True, inspect=inspect, source="the test")
        return Session.open(
            os.fsencode(self._root / "project"),
            state=os.fsencode(self._root / "state"),
            home=os.fsencode(self._root / "home"),
            environ={
                b"PATH": os.environb[b"PATH"],
                b"SSL_CERT_FILE": os.fsencode(self._roots),
                b"TOKEN": SECRET.encode(),
            },
            settings=Settings(network="gate", hosts=(rule,), view=view),
            rules=lambda: (rule,),
            level=level,
        )

    def fetch(self, session: Session, path: str = "/", *headers: str) -> Result:
        command = [sys.executable, "-c", FETCH, f"https://api.example:{self.port}{path}", *headers]
        return session.run([word.encode() for word in command])


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        monkeypatch.setattr(gateway, "SHARED", gateway.SharedGates(lambda _upstream: town.gate))
        yield House(tmp_path, town)


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_what_is_inspected_is_told_with_method_and_path(house: House, view: Any) -> None:
    with house.session(view=view) as session:
        result = house.fetch(session, "/some/path")
        assert result.stdout.split() == [b"hello", b"None"], result.stderr
        flows = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "flow"]
    assert [(flow["way"], flow["method"], flow["path"], flow["status"]) for flow in flows] == [
        ("https", "GET", "/some/path", 200)
    ]


def test_a_command_without_inspection_trusts_nobody_new(house: House) -> None:
    with house.session(inspect=False) as session:
        result = session.run([b"sh", b"-c", b"ls -d /run/mudroom; echo $CURL_CA_BUNDLE"])
        assert result.stdout == b"\n"
        assert not os.path.exists(session.vault.path + b"/inspection")


def test_a_token_is_put_in_where_it_belongs_and_nowhere_else(house: House) -> None:
    with house.session() as session:
        session.machine.keep_credentials((parse_credential("TOKEN", f"api.example:{house.port}"),))
        result = house.fetch(session, "/", "Authorization")
        body, inside = result.stdout.decode().split()
        assert body == "hello"
        assert inside != SECRET and "mudroom" in inside
        assert f"Authorization: Bearer {SECRET}".lower() in house.web.requests[0].decode().lower()

        refused = house.fetch(session, "/", "X-Other")
        assert refused.stdout.split()[0] == b"403"
        assert [denial.kind for denial in refused.denials] == ["network"]
        assert len(house.web.requests) == 1, "it never came so far"

        journal = "".join(event.data for event in session.vault.journal.events())
        assert SECRET not in journal
    # the session is closed: its launcher removes no work directory any more
    files = [path for path in Path(os.fsdecode(session.vault.path)).rglob("*") if path.is_file()]
    assert files and not any(SECRET.encode() in path.read_bytes() for path in files)


def test_a_credential_that_is_not_there_stops_the_command(house: House) -> None:
    from mudroom.errors import UsageError

    with house.session() as session:
        session.machine.keep_credentials((parse_credential("MISSING", "api.example"),))
        with pytest.raises(UsageError, match="MISSING"):
            house.fetch(session)
        assert session.vault.forks() == [], "and leaves no fork"


def test_it_is_not_for_level_0(house: House) -> None:
    """Said in one line before anything runs: the programs would fail one by one else, for want of a file."""
    from mudroom.errors import Unsupported

    with house.session(level=0) as session:
        with pytest.raises(Unsupported, match="looking into TLS needs level 1; found: level 0"):
            session.run([b"true"])
        assert session.vault.forks() == []
