"""Notifications: what is told, to whom, and how often; and what is kept of a device."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import Asked
from push_service import Browser, Service, pushed

from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.decisions.queue import Decision
from mudroom.ext.web.push.desk import NotificationDesk, WaitingRow, message_of
from mudroom.ext.web.push.device import LIFE, MOST, DeviceStore
from mudroom.ext.web.push.message import why_not
from test_vault_verb import Cli

__all__ = ["pushed"]
pytestmark = pytest.mark.both_users
OLD, NOW = 1, time.time_ns() // 10**6 + 10**9  # it stays new for the whole run
"""Milliseconds since 1970: nothing has happened for long."""


class Told:
    """A desk with rows that a test sets, and one device."""

    def __init__(self, place: Place, service: Service) -> None:
        self.rows: list[Decision] = []
        self.directory = os.fsencode(place.state) + b"/serve"
        os.makedirs(self.directory, 0o700)
        self.store = DeviceStore(self.directory)
        self.desk = NotificationDesk(self.store, lambda: [WaitingRow("p-1", "shop", row) for row in self.rows])
        self.browser, self.service = Browser(), service
        self.desk.add(**self.browser.subscription(), origin="http://localhost:1")
        self.desk.look()

    def look(self) -> list[dict[str, Any]]:
        """What is told by one look, when the pause is over."""
        self.desk._sent = -1e9
        self.service.got.clear()
        assert self.desk.look()
        return [self.browser.read(body) for _path, _headers, body in self.service.got]


@pytest.fixture
def told(place: Place, pushed: Service) -> Told:
    return Told(place, pushed)


def question(name: str = "q1", fork: str = "work") -> Decision:
    return Decision("question", fork, "bot", command="deploy --key s3cret", since=NOW, question=name)


def test_a_new_device_is_told_so_at_once(place: Place, pushed: Service) -> None:
    told = Told(place, pushed)
    ((_path, headers, body),) = pushed.got
    assert told.browser.read(body)["body"] == "This device is notified of what waits for you."
    assert headers["ttl"] == "60"


def test_a_question_is_told_once_without_its_command(told: Told) -> None:
    told.rows = [question()]
    (said,) = told.look()
    assert said == {"title": "A question", "body": "bot in work · shop", "tag": "p-1/q1", "to": "#/"}
    assert told.look() == []
    told.rows = []
    told.look()
    told.rows = [question("q2")]
    assert [one["tag"] for one in told.look()] == ["p-1/q2"]


def test_a_fork_is_told_when_nothing_has_changed_for_a_while(told: Told) -> None:
    told.rows = [Decision("finished", "work", size=2, since=NOW)]
    assert told.look() == []
    told.rows = [Decision("finished", "wo/rk", size=2, since=OLD)]
    (said,) = told.look()
    assert (said["title"], said["to"]) == ("Finished", "#/p/p-1/f/wo%2Frk/review")
    told.rows = [Decision("running", "work", since=OLD)]
    assert told.look() == []


def test_what_waited_already_is_not_told_to_a_new_device(place: Place, pushed: Service) -> None:
    told = Told(place, pushed)
    told.desk._told = None
    told.rows = [question()]
    assert told.look() == []


def test_many_are_one_message_and_the_next_waits_for_the_pause(told: Told) -> None:
    told.rows = [question(f"q{number}", f"f{number}") for number in range(5)]
    (said,) = told.look()
    assert said["title"] == "5 decisions wait" and said["to"] == "#/"
    assert said["body"].splitlines() == [*(f"bot in f{number} · shop" for number in range(3)), "and 2 more"]
    told.rows = [*told.rows, question("q9")]
    told.service.got.clear()
    told.desk.look()
    assert told.service.got == [], "there was one just now"
    assert [one["tag"] for one in told.look()] == ["p-1/q9"], "and it is not lost"


def test_names_steer_nothing_and_a_message_is_small() -> None:
    evil = "\x1b[2J\u202e" + "x" * 5000
    push = message_of([WaitingRow("p", evil, Decision("finished", evil, evil, since=OLD))] * 9)
    assert len(push.text) < 1024 and len(push.topic) == 32
    assert json.loads(push.text)["body"].replace("\n", "").isprintable()


def test_a_device_that_is_gone_is_removed(told: Told) -> None:
    told.service.status = 410
    told.rows = [question()]
    told.look()
    assert told.desk.devices() == ()
    assert not told.desk.look()


def test_a_message_that_is_not_taken_is_said_once(told: Told, capfd: pytest.CaptureFixture[str]) -> None:
    told.service.status = 503
    for name in ("q1", "q2"):
        told.rows = [question(name)]
        told.look()
    assert capfd.readouterr().err == "mudroom: Phone was not notified: push.example answered 503\n"
    (device,) = told.desk.devices()
    assert told.desk.problems == {device.id: "push.example answered 503"}
    told.service.status = 201
    told.rows = [question("q3")]
    told.look()
    assert told.desk.problems == {device.id: ""}


def test_a_device_whose_first_message_is_refused_is_not_kept(told: Told) -> None:
    told.service.status = 403
    with pytest.raises(UsageError, match=r"has not taken a message: push\.example answered 403"):
        told.desk.add(**Browser().subscription("https://push.example/2"), origin="")
    assert len(told.desk.devices()) == 1


def test_the_file_is_the_users_alone_and_a_visit_renews(told: Told) -> None:
    (path,) = Path(os.fsdecode(told.directory)).glob("devices.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (before,) = told.desk.devices()
    told.service.got.clear()
    told.desk.add(**told.browser.subscription(name="Renamed"), origin="https://box.example")
    (after,) = told.desk.devices()
    assert (after.id, after.added, after.name, after.contact) == (
        before.id,
        before.added,
        "Renamed",
        "https://box.example",
    )
    assert after.until >= before.until and told.service.got == [], "it is not told again"


def test_a_device_ends_when_its_time_is_over(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LIFE + 1)
    assert told.desk.devices() == ()


def test_there_are_only_so_many(told: Told) -> None:
    for number in range(MOST - 1):
        told.desk.add(**Browser().subscription(f"https://push.example/{number}x"), origin="")
    with pytest.raises(UsageError, match="devices are notified already"):
        told.desk.add(**Browser().subscription("https://push.example/last"), origin="")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b'{"key": "", "devices": [{}]}', b"\xff"])
def test_a_damaged_file_has_no_devices_and_is_made_anew_with_a_line(
    told: Told, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(os.fsdecode(told.directory)) / "devices.json"
    path.write_bytes(content)
    assert told.desk.devices() == () and told.desk.public_key() == ""
    told.store.prepare()
    assert told.desk.public_key()
    assert capsys.readouterr().err == f"mudroom: {path} was damaged: no browser is notified until it asks again\n"
    told.store.forget()
    assert capsys.readouterr().err == "" and told.desk.public_key()


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library is found, and cannot be loaded: it is another system's."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def test_without_the_library_it_is_said_what_to_install(told: Told, without_library: None) -> None:
    told.store.forget()
    told.store.prepare()
    assert told.store.read().key == "", "the server starts all the same"
    assert told.desk.public_key() == ""
    with pytest.raises(UsageError) as refused:
        told.desk.add(**told.browser.subscription(), origin="")
    said = str(refused.value)
    assert "no notifications can be sent" in said and "pip install 'cryptography>=45'" in said


def test_the_api_lists_adds_and_removes(place: Place, pushed: Service) -> None:
    ask = Asked(place)
    os.makedirs(place.state / "serve", 0o700)
    assert ask.get("/devices") == {"devices": [], "key": "", "problem": ""}
    assert os.listdir(place.state / "serve") == [], "a GET changes nothing"
    ask.server.push._store.prepare()
    empty = ask.get("/devices")
    assert len(empty["key"]) == 87
    found = ask.post("/devices", Browser().subscription())
    (row,) = found["devices"]
    assert (row["name"], row["service"], row["is_this"]) == ("Phone", "push.example", True)
    assert found["key"] == empty["key"]
    assert row.keys() == {"id", "name", "service", "added", "until", "problem", "is_this"}, "no endpoint is told"
    assert ask.refused("POST", "/devices", Browser().subscription("http://push.example/"))[0] == 400
    ask("DELETE", f"/devices/{row['id']}")
    assert ask.get("/devices")["devices"] == []


def test_a_question_of_a_real_command_is_told(place: Place, pushed: Service) -> None:
    cli, ask, browser = Cli(place), Asked(place), Browser()
    place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: require_approval}}\n")
    cli("exec", "--fork", "work", "--", "touch", "a")
    os.makedirs(place.state / "serve", 0o700, exist_ok=True)
    ask.post("/devices", browser.subscription())
    ask.server.push.look()
    cli("exec", "--fork", "work", "--agent", "bot", "--", "rm", "-rf", "a")
    ask.server.push.look()
    (_hello, (_path, headers, body)) = pushed.got
    assert browser.read(body)["body"] == f"bot in work · {place.project.name}"
    assert headers["urgency"] == "high"


def test_forget_ends_all_notifications(told: Told, place: Place) -> None:
    key = told.store.read().key
    assert "logged out" in Cli(place)("serve", "--forget").stdout
    assert told.desk.devices() == () and told.store.read().key not in ("", key)
