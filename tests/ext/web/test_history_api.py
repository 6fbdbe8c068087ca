"""What has happened, as the page is told: checkpoints and rollbacks, the journal, flows."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import Asked

from conftest import Place
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.network.flow import Flow, flow_to_json
from mudroom.core.tree.stack import ForkState, from_text
from mudroom.errors import ForkMoved
from mudroom.ext.review.activity import preview, roll_back, search
from mudroom.ext.web.state.refusal import Refusal

MS = 10**6
NOW = 1_790_000_000_000 * MS


@pytest.fixture
def ask(place: Place) -> Asked:
    place.write("a.txt", "one\n")
    place.write("b.txt", "two\n")
    return Asked(place)


def worked(ask: Asked) -> str:
    """A fork with a checkpoint, and changes after it."""
    session = ask.place.session()
    session.forks.new("f")
    session.run([b"sh", b"-c", b"echo first > new.txt; echo 1 >> a.txt"], fork="f")
    session.forks.checkpoint("f", "green")
    session.run([b"sh", b"-c", b"rm new.txt; echo 2 >> a.txt; mkdir d; echo x > d/late.txt"], fork="f")
    return f"{ask.at}/forks/f"


def test_the_way_back_to_a_checkpoint_and_forth_again(ask: Asked) -> None:
    fork = worked(ask)
    timeline = ask.get(fork + "/checkpoints")
    assert [(one["name"], one["automatic"], one["current"]) for one in timeline["checkpoints"]] == [
        ("green", False, False)
    ]
    preview = ask.get(fork + "/rollback", checkpoint="green")
    assert {(one["path"], one["change"]) for one in preview["rows"]} == {
        ("a.txt", "modified"), ("d/late.txt", "added"), ("new.txt", "deleted"),
    }  # fmt: skip
    assert preview["total"] == 3
    body = {"checkpoint": "green", "fingerprint": preview["fingerprint"]}
    done = ask.post(fork + "/rollback", body)
    assert done["undo"].startswith("rollback-")
    points = ask.get(fork + "/checkpoints")["checkpoints"]
    assert [(one["name"], one["current"]) for one in points] == [("green", True), (done["undo"], False)]
    assert ask.get(fork + "/rollback", checkpoint="green")["rows"] == []
    back = ask.get(fork + "/rollback", checkpoint=done["undo"])
    assert {(one["path"], one["change"]) for one in back["rows"]} == {
        ("a.txt", "modified"), ("d/late.txt", "deleted"), ("new.txt", "added"),
    }  # fmt: skip
    ask.post(fork + "/rollback", {"checkpoint": done["undo"], "fingerprint": back["fingerprint"]})
    assert ask.place.session().forks.files("f").read(b"d/late.txt") == b"x\n"


def test_the_way_back_where_the_session_has_written_files_itself(place: Place) -> None:
    """As it does for "keep both" of a conflict. What is written after the preview is not dropped."""
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("a", "one")
    session.forks.checkpoint("f", "green")
    files.write("a", "two")
    seen = preview(session, "f", "green")
    assert [change.path for change in seen.rows] == [b"a"]
    files.write("late", "")
    with pytest.raises(ForkMoved):
        roll_back(session, "f", "green", seen.fingerprint)
    assert files.read("a") == b"two"
    roll_back(session, "f", "green", preview(session, "f", "green").fingerprint)
    assert (files.read("a"), files.look("late")) == (b"one", None)


def test_what_was_not_seen_is_not_dropped(ask: Asked) -> None:
    fork = worked(ask)
    seen = ask.get(fork + "/rollback", checkpoint="green")["fingerprint"]
    session = ask.place.session()
    session.run([b"sh", b"-c", b"echo unseen > unseen.txt"], fork="f")
    body = {"checkpoint": "green", "fingerprint": seen}
    assert ask.refused("POST", fork + "/rollback", body)[:2] == (409, "moved")
    assert session.forks.files("f").read(b"unseen.txt") == b"unseen\n"
    assert ask.refused("POST", fork + "/rollback", {"checkpoint": "green", "fingerprint": ""})[:2] == (409, "moved")


def test_a_checkpoint_is_made_and_a_name_that_is_none_is_refused(ask: Asked) -> None:
    fork = worked(ask)
    made = ask.post(fork + "/checkpoints", {"name": "blue"})
    assert (made["name"], made["automatic"], made["current"]) == ("blue", False, True)
    for name in ("blue", "", "../x", "<b>", "a b", "x" * 65, "\u202e"):
        status, code, _text = ask.refused("POST", fork + "/checkpoints", {"name": name})
        assert (status, code) == (400, "bad-request")
    for name in ("none", "", "..", "<b>\n"):
        assert ask.refused("GET", fork + "/rollback", checkpoint=name)[:2] == (404, "not-found")
        body = {"checkpoint": name, "fingerprint": ""}
        assert ask.refused("POST", fork + "/rollback", body)[:2] == (404, "not-found")
    gone = fork.removesuffix("/f") + "/gone"
    assert ask.refused("GET", gone + "/checkpoints")[:2] == (404, "not-found")


# --- the journal ---


def filled(ask: Asked) -> str:
    at, journal = ask.at, ask.place.session().vault.journal
    verdict = {"action": "deny", "classes": ["destructive"], "rule": "policy.yaml:3", "reason": "removes files"}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("run", "a", {"command": ["npm", "install"], "agent": "claude", "exit_code": 0, "changed": 3}),
        ("verdict", "a", {"command": ["rm", "-rf", "/"], "agent": "claude", "verdict": verdict}),
        ("flow", "a", flow_to_json(Flow(NOW, "connect", "evil.example", 443, "deny", "", "no rule names it"))),
        (
            "flow",
            "b",
            flow_to_json(Flow(NOW, "connect", "good.example", 443, "allow", "policy.yaml:3 @npm", "", sent=7)),
        ),
        ("run", "b", {"command": ["<b>\x1b[31m\u202e"], "exit_code": 2}),
    ]
    for number, (kind, fork, data) in enumerate(rows):
        journal.append(kind, fork, data, time=NOW + number * 1000 * MS)
    return at


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"count": 2}, [5, 4]),
        ({"before": 3}, [2, 1]),
        ({"kind": "run,verdict"}, [5, 2, 1]),
        ({"kind": "none"}, []),
        ({"fork": "b"}, [5, 4]),
        ({"agent": "claude"}, [2, 1]),
        ({"verdict": "deny"}, [3, 2]),
        ({"grep": "NPM install"}, [1]),
        ({"grep": "%' OR 1=1 --"}, []),
        ({"since": NOW // MS + 3000}, [5, 4]),
        ({"since": -(10**30)}, [5, 4, 3, 2, 1]),
        ({"before": -5}, []),
        ({"count": 10**9}, [5, 4, 3, 2, 1]),
        ({"kind": "run", "grep": "npm", "count": 1}, [1]),
    ],
)
def test_which_events(ask: Asked, query: dict[str, Any], numbers: list[int]) -> None:
    at = filled(ask)
    found = ask.get(at + "/events", **query)
    assert [one["number"] for one in found["events"]] == numbers
    assert found["head"] == 5


def test_pages_of_events_leave_none_out(ask: Asked) -> None:
    at, journal = ask.at, ask.place.session().vault.journal
    for number in range(25):
        journal.append("run", "f", {"command": [str(number)]}, time=NOW + number)
    found: list[int] = []
    following: int | None = 1 << 60
    while following is not None:
        page = ask.get(at + "/events", count=7, before=following)
        found += [one["number"] for one in page["events"]]
        following = page["following"]
    assert found == list(range(25, 0, -1))


def test_a_search_ends_after_a_second_and_goes_on_where_it_was(ask: Asked) -> None:
    session = ask.place.session()
    session.vault.journal.append_all([("run", "f", {"command": [str(one)]}) for one in range(300)], time=NOW)
    late = iter([0.0, *([9.0] * 99)])
    first = search(session, EventFilter(grep="=no"), 1 << 62, 10, lambda: next(late))
    assert first == ((), 300 - 63)
    assert search(session, EventFilter(grep="17"), 180, 10).events[0].number == 179


def test_a_timeline_reads_the_state_of_its_fork_as_often_however_many_checkpoints_it_has(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ask.place.session()
    session.forks.new("f")
    read: list[bytes] = []

    def reading(text: bytes) -> ForkState:
        read.append(text)
        return from_text(text.decode("ascii"))

    monkeypatch.setattr("mudroom.vault.store.fork.TEXTS.parse", reading)
    looks = []
    for count in (1, 30):
        for number in range(count):
            session.forks.checkpoint("f", f"p{count}-{number}")
        read.clear()
        assert all(one["current"] for one in ask.get(f"{ask.at}/forks/f/checkpoints")["checkpoints"])
        looks.append(len(read))
    assert looks[0] == looks[1]


def test_events_are_lines_of_plain_text(ask: Asked) -> None:
    found = ask.get(filled(ask) + "/events")["events"]
    by_number = {one["number"]: one for one in found}
    assert by_number[5]["line"] == "$'<b>\\x1b[31m\\xe2\\x80\\xae'  exit 2"
    assert [by_number[number]["gravity"] for number in (1, 2, 3, 5)] == [0, 2, 2, 1]
    assert all(one["line"].isprintable() for one in found)


def test_a_journal_that_somebody_has_edited_is_shown_and_found_out(ask: Asked) -> None:
    at, place = filled(ask), ask.place
    path = Path(place.session().vault.path.decode()) / "journal.db"
    with sqlite3.connect(path) as database:
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        for number, data in enumerate(
            [
                '{"command": "\\ud800", "n": 1e999, "big": 99999999999999999999999}',
                "no JSON",
                '{"host": 1}',
                "[" * 9999,
            ],
            1,
        ):
            database.execute("UPDATE event SET data = ? WHERE number = ?", (data, number))
        database.execute("UPDATE event SET kind = ?, fork = ? WHERE number = 5", ("<i>\n", "\u202e"))
    database.close()
    events = ask.get(at + "/events")["events"]
    assert (events[0]["kind"], events[0]["fork"]) == ("<i>\\n", "\\u{202e}")
    assert events[-1]["data"]["big"] == "99999999999999999999999"
    (flow,) = ask.get(at + "/flows", fork="a")["flows"]
    assert (flow["host"], flow["verdict"]) == ("?", "?")
    job = finished(ask, ask.post(at + "/journal/verify"))
    assert (job["state"], job["result"]["intact"]) == ("done", False)
    assert job["result"]["problems"]


def finished(ask: Asked, job: Any) -> Any:
    over = threading.Event()
    tell = ask.server.hub.tell

    def told(kind: str, data: dict[str, Any]) -> None:
        tell(kind, data)
        if data.get("state") in ("done", "failed"):
            over.set()

    ask.server.hub.tell = told  # type: ignore[method-assign]
    while ask.server.jobs.get(job["id"]).state == "running":
        over.wait(0.05)
    return msgspec.to_builtins(ask.server.jobs.get(job["id"]))


def test_a_journal_as_it_was_written(ask: Asked) -> None:
    at = filled(ask)
    result = finished(ask, ask.post(at + "/journal/verify"))["result"]
    assert (result["intact"], result["events"], result["problems"]) == (True, 5, [])
    assert result["head"].startswith("5:")
    assert ask.refused("POST", "/projects/none/journal/verify", {})[:2] == (404, "not-found")


def test_flows(ask: Asked) -> None:
    at = filled(ask)
    both = ask.get(at + "/flows")["flows"]
    assert [(one["host"], one["verdict"], one["reason"]) for one in both] == [
        ("good.example", "allow", ""),
        ("evil.example", "deny", "no rule names it"),
    ]
    assert both[0]["sent"] == 7
    assert [one["host"] for one in ask.get(at + "/flows", denied="true")["flows"]] == ["evil.example"]
    assert [one["host"] for one in ask.get(at + "/flows", fork="b")["flows"]] == ["good.example"]
    assert ask.get(at + "/flows", before=both[-1]["number"])["flows"] == []


def test_the_base_of_a_worker_is_no_project_here(ask: Asked) -> None:
    """The page opens projects by their paths, and this one's is of another machine."""
    at = ask.place.project
    session = ask.place.session(appears_at=b"/home/ann/proj")
    session.run([b"true"], fork="k")
    shown = {row["path"] for row in ask.get("/projects")}
    assert "/home/ann/proj" not in shown and shown <= {str(at)}
    with pytest.raises(Refusal, match="there is no such project here"):
        ask.get(f"/projects/{session.vault.path.rpartition(b'/')[2].decode()}")
