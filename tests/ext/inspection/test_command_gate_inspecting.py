"""A session whose policy has TLS looked into: the authority is trusted inside, and a token is never there."""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mirror import mirror
from seal import Seal

from mudroom.core.network.host_rules import HostRule
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.inspection.credentials import save_credentials
from mudroom.ext.inspection.placeholder import parse_credential
from mudroom.ext.inspection.setup import equip
from mudroom.session import Session
from mudroom.session.confinement import command_gate
from mudroom.session.confinement.host_approver import HostAnswers
from origin import Web
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
        seal = self.seal = Seal(root)
        self._roots = root / "roots.pem"
        self._roots.write_text(seal.roots)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(seal.pem("api.example", "127.0.0.1"))
        self.web: Any = Web(b"hello")
        mirrors = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        mirrors.load_cert_chain(seal.pem("api.example"))
        mirrors.set_alpn_protocols(["h2", "http/1.1"])

        def talk(client: Any) -> None:
            with context.wrap_socket(client, server_side=True) as inside:
                self.web(inside)

        def say_back(client: Any) -> None:
            with mirrors.wrap_socket(client, server_side=True) as inside:
                mirror(inside)

        self.port, self.mirror = town.serve(talk), town.serve(say_back)
        town.names({"api.example": [["127.0.0.1"]]})

    def session(
        self, *, view: Any = "overlay", inspect: bool = True, level: int | None = None, host: str = "api.example"
    ) -> Session:
        for name in ("project", "home"):
            (self._root / name).mkdir(exist_ok=True)
        ports = (self.port, self.mirror)
        rule = HostRule("allow", host, ports, private=True, inspect=inspect, source="the test")
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
            hosts=HostAnswers(lambda: (rule,)),
            level=level,
        )

    def fetch(self, session: Session, path: str = "/", *headers: str, host: str = "api.example") -> Result:
        command = [sys.executable, "-c", FETCH, f"https://{host}:{self.port}{path}", *headers]
        return session.run([word.encode() for word in command])


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        monkeypatch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
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


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_running_command_keeps_its_roots_when_another_has_others(house: House, view: Any) -> None:
    with house.session(view=view) as session:
        vault, web = session.vault.path, house.web

        def meanwhile(client: Any) -> None:
            own = house.seal.pem("other.example")
            equip(vault, session.project, {b"SSL_CERT_FILE": os.fsencode(own), b"PATH": b""}, session.project)
            web(client)

        house.web = meanwhile
        fetch = [sys.executable, "-c", FETCH, f"https://api.example:{house.port}/"]
        twice = f"import subprocess\nfor _ in '12': subprocess.run({fetch!r})"
        result = session.run([word.encode() for word in (sys.executable, "-c", twice)])
        assert result.stdout.split() == [b"hello", b"None"] * 2, result.stderr


def test_a_command_without_inspection_trusts_nobody_new(house: House) -> None:
    with house.session(inspect=False) as session:
        result = session.run([b"sh", b"-c", b"ls -d /run/mudroom; echo $CURL_CA_BUNDLE"])
        assert result.stdout == b"\n"
        assert not os.path.exists(session.vault.path + b"/inspection")


def test_a_token_is_put_in_where_it_belongs_and_nowhere_else(house: House) -> None:
    with house.session() as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", f"api.example:{house.port}"),))
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


def test_a_token_for_a_server_on_this_machine_is_put_in_at_its_address(house: House) -> None:
    """As the hint of ``net credential TOKEN localhost`` says."""
    with house.session(inspect=False, host="localhost") as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", f"127.0.0.1:{house.port}"),))
        result = house.fetch(session, "/", "Authorization", host="127.0.0.1")
        assert result.stdout.split()[:1] == [b"hello"], result
        assert f"Authorization: Bearer {SECRET}".lower() in house.web.requests[0].decode().lower()


CLIENTS = """
import os, subprocess, sys
where, token = sys.argv[1], os.environ["TOKEN"]
def tell(name, *said): print(name, *said, flush=True)
for flag in ("--http1.1", "--http2"):
    tell("curl", subprocess.run(["curl", "-sS", "-i", flag, "-H", "Authorization: Bearer " + token, "https://" + where],
                                capture_output=True, text=True))
try:
    import requests
    answer = requests.get("https://" + where, headers={"Authorization": "Bearer " + token}, timeout=20)
    tell("requests", answer.status_code, answer.reason, answer.headers, answer.text)
    answer = requests.get("https://" + where, auth=("ada", token), timeout=20)
    tell("basic", answer.status_code, answer.reason, answer.headers, answer.text)
    answer = requests.post("https://" + where, headers={"x-api-key": "of-a-stranger"}, data="loot", timeout=20)
    tell("foreign", answer.status_code, answer.text)
except ImportError: tell("no requests")
try:
    import httpx2
    with httpx2.Client(http2=True, timeout=20) as client:
        answer = client.get("https://" + where, headers={"Authorization": "Bearer " + token})
        tell("httpx", answer.status_code, answer.http_version, answer.headers, answer.text)
except ImportError: tell("no httpx")
try:
    import grpc
    with grpc.secure_channel(where, grpc.ssl_channel_credentials()) as channel:
        try: channel.unary_unary("/t.T/Get")(b"", timeout=20, metadata=(("authorization", "Bearer " + token),))
        except grpc.RpcError as error:
            tell("grpc", error.code(), error.details(), error.trailing_metadata(), error.initial_metadata())
except ImportError: tell("no grpc")
"""


@pytest.mark.slow
def test_no_client_gets_a_token_back(house: House) -> None:
    """curl, requests, httpx and gRPC in a sandbox, at a server that says their token back."""
    with house.session() as session:
        save_credentials(session.vault.path, (parse_credential("TOKEN", f"api.example:{house.mirror}"),))
        paths = [path for path in sys.path if path]
        program = f"import sys; sys.path[:0] = {paths!r}\n{CLIENTS}"
        command = [sys.executable, "-c", program, f"api.example:{house.mirror}"]
        result = session.run([word.encode() for word in command])
        journal = "".join(event.data for event in session.vault.journal.events())
    said = result.stdout.decode()
    coded = base64.b64encode(b"Bearer " + SECRET.encode()).decode()
    twice = base64.b64encode(b"Basic " + base64.b64encode(b"ada:" + SECRET.encode())).decode()
    words = (SECRET, SECRET.lower(), SECRET[8:], coded[20:40], twice[40:60])
    assert not any(word in said + journal for word in words), said
    told = {line.partition(" ")[0] for line in said.splitlines()}
    assert told >= {"curl"} and not {"Traceback"} & told, said + result.stderr.decode()
    marks = {"requests": "200 Hello", "httpx": "200 HTTP/2", "grpc": "UNAUTHENTICATED", "foreign": "403"}
    for name, mark in marks.items():
        lines = [line for line in said.splitlines() if line.startswith(name)]
        assert f"no {'requests' if name == 'foreign' else name}" in said or mark in lines[0], (name, said)


def test_a_credential_that_is_not_there_stops_the_command(house: House) -> None:
    from mudroom.errors import UsageError

    with house.session() as session:
        save_credentials(session.vault.path, (parse_credential("MISSING", "api.example"),))
        with pytest.raises(UsageError, match="MISSING"):
            house.fetch(session)
        assert session.vault.forks() == [], "and leaves no fork"


def test_it_is_not_for_a_system_whose_files_have_no_owner_and_mode(house: House) -> None:
    from mudroom.errors import Unsupported

    with house.session() as session:
        confinement = session.machine.confinement
        confinement.platform = confinement.platform._replace(is_bridged=True)
        with pytest.raises(Unsupported) as raised:
            session.run([b"true"])
        assert str(raised.value) == (
            f"looking into TLS needs Linux or macOS; found: {confinement.platform.system} (take it out of the policy)"
        )
        assert session.vault.forks() == []


def test_it_is_not_for_level_0(house: House) -> None:
    """Said in one line before anything runs: the programs would fail one by one else, for want of a file."""
    from mudroom.errors import Unsupported

    with house.session(level=0) as session:
        with pytest.raises(Unsupported, match="looking into TLS needs level 1; found: level 0"):
            session.run([b"true"])
        assert session.vault.forks() == []
