"""``mudroom doctor --certify`` and what it opens, from its words to the record, in a Windows Python. Run by
``dev/wine``, where nothing confines: whatever it finds there opens nothing."""

from __future__ import annotations

import getpass
import json
import os
import platform
import sys
import threading
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.certify import table
from mudroom.ext.certify.identity import identity, tool_of
from mudroom.ext.certify.record import load, save
from mudroom.ext.certify.row import Certificate, RowResult
from mudroom.ext.windows.cli.windows import start
from mudroom.policy.config import environment, places
from test_on_windows import WINE
from test_session_on_windows import Place, Said
from test_session_on_windows import place as place

NAMES = ("cmd", "write", "registry", "copy_apart", "bridge")


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in table.WINDOWS if row.name in NAMES]
    monkeypatch.setitem(table.TABLES, "win32", rows)


@pytest.fixture
def fresh(place: Place) -> Place:
    """A place without a record."""
    for record in records(place):
        record.unlink()
    return place


def records(place: Place) -> list[Path]:
    return list((place.root / "home" / "mudroom" / "certificates").glob("*.json"))


def say_plain(place: Place, *words: str) -> Said:
    """Run ``mudroom`` as a user does, with a client of its own."""
    place._capture.readouterr()
    code = start(words)
    return Said(code, *place._capture.readouterr())


@pytest.mark.skipif(not WINE, reason="Windows confines")
def test_where_nothing_confines_it_says_so_and_opens_nothing(fresh: Place) -> None:
    told = fresh.root / "certificate.json"
    said = fresh.say("doctor", "--certify", "--json", str(told))
    assert (said.code, said.out) == (1, ""), said
    rows = {row["name"]: row["verdict"] for row in json.loads(told.read_text())["rows"]}
    assert rows == {
        "cmd": "held", "write": "fell", "registry": "fell", "bridge": "fell", "copy_apart": "held",
    }  # fmt: skip
    text = told.read_text()
    assert str(fresh.root) not in text and "\\" not in text.replace("\\\\localhost", "")
    assert getpass.getuser() not in text and platform.node() not in text
    assert len(records(fresh)) == 1
    said = fresh.say("run", "--net", "none", "--yes", "--", "cmd", "/d", "/c", "echo x> made.txt")
    assert said.code == 125 and said.err.count("\n") == 1 and "write fell" in said.err, said
    assert "made.txt" not in fresh.files()
    assert fresh.say("doctor", "--certify", "--json", str(told)).code == 125, "a file that exists is not written"


@pytest.mark.skipif(not WINE, reason="Windows confines")
def test_where_no_command_runs_it_ends_soon_and_runs_once_by_itself(
    fresh: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = say_plain(fresh, "run", "--net", "none", "--yes", "--", "cmd", "/c", "exit")
    assert said.code == 125 and "mudroom doctor --certify" in said.err and not records(fresh), said
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    said = say_plain(fresh, "run", "--net", "none", "--yes", "--", "cmd", "/c", "exit")
    assert said.code == 125 and "this system is tried first" in said.err and len(records(fresh)) == 1, said
    said = say_plain(fresh, "run", "--net", "none", "--yes", "--", "cmd", "/c", "exit")
    assert said.code == 125 and "tried first" not in said.err and "cmd not shown" in said.err, said
    (record,) = records(fresh)
    record.rename(record.with_name("0" * 64 + ".json"))  # as after an update of the system
    said = say_plain(fresh, "run", "--net", "none", "--yes", "--", "cmd", "/c", "exit")
    assert "it was certified with another system" in said.err and len(records(fresh)) == 2, said


def test_doctor_and_a_session_tell_what_is_certified(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.certify()
    said = place.say("doctor")
    assert said.code == 0 and "certified: files" in said.out and "closed" not in said.out.replace("closed: gate", "")
    assert "closed: " not in said.err and "no command runs" not in said.err
    place.certify(fell=("write",))
    said = place.say("doctor")
    assert said.code == 1 and "closed: platform" in said.out and "mudroom doctor --certify" in said.out, said
    said = place.say("doctor", "--json")
    rows = {row["protection"]: row for row in json.loads(said.out)["protections"]}
    assert rows["certified: files"]["state"] == "missing" and "write" in rows["closed: platform"]["found"]
    said = place.say("ls")
    assert said.code == 125 and "write fell" in said.err
    for record in records(place):
        record.unlink()
    said = place.say("doctor")
    assert said.code == 1 and "it is not certified yet" in said.out and "mudroom doctor --certify" in said.out


def test_a_record_that_is_replaced_while_others_read_it_is_whole(place: Place) -> None:
    """Two processes may certify at once."""
    state = places(environment()).state
    here = identity("win32", state, tool_of("win32"))
    rows = tuple(RowResult(row.name, "held") for row in table.TABLES["win32"])
    made, found = Certificate("win32", here.system, here.machine, 0, rows), list[str]()

    def certify() -> None:
        for number in range(10):
            try:
                save(state, here, made._replace(made=number))
                found.append(load(state, here, table.TABLES["win32"]).why)
            except OSError as error:
                found.append(str(error))

    threads = [threading.Thread(target=certify) for _number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {""} and len(found) == 20
    assert [name for name in os.listdir(os.fsdecode(state) + "/certificates") if name.startswith("new-")] == []
