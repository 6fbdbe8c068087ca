"""The tries of a project by the page's API: the list, one with its candidates, and the report of an attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asking import Asked
from looking import Looking

from conftest import Place, tick
from mudroom.ext.attempts import candidate
from mudroom.ext.attempts.record import save
from mudroom.ext.web.api.endpoint import id_of
from mudroom.ext.web.state.refusal import Refusal
from test_review_api import NAMES, SHOWN, lines
from trying import project, tried

__all__ = ["project"]  # a fixture


class Tries:
    """The API asked about the tries of a test's project."""

    def __init__(self, place: Place) -> None:
        self.looking = Looking(place)
        self._asked: Asked = self.looking._asked

    def get(self, what: str = "", **query: Any) -> Any:
        return self._asked.get(f"/projects/{self.looking.project}/tries{what}", **query)

    def refused(self, what: str, **query: Any) -> tuple[int, str, str]:
        with pytest.raises(Refusal) as refusal:
            self.get(what, **query)
        return refusal.value.status, refusal.value.problem.code, refusal.value.problem.error


def record_of(place: Place) -> Path:
    (vault,) = (place.state / "vaults").iterdir()
    return vault / "attempts/t1/record"


def test_the_list_and_one(project: Place) -> None:
    tried(project, ["sed -i s/two/2/ a.py; echo x > new", "sed -i s/two/TWO/ a.py; rm b.py; echo x > new"])
    found = Tries(project)
    (row,) = found.get()
    assert (row["name"], row["command"], row["judge"]) == ("t1", "agent '{i}'", "make test")
    assert (row["attempts"], row["results"], row["passed"], row["best"], row["running"]) == (2, 2, 2, 1, False)
    assert row["ended"] - row["started"] == 60_000
    one = found.get("/t1")
    assert one["row"] == row
    assert [(each["attempts"], each["fork"], each["best"], each["compared"]) for each in one["candidates"]] == [
        ([1], "t1-1", True, True),
        ([2], "t1-2", False, True),
    ]
    assert one["counts"] == {"different": 1, "some": 1, "unknown": 0, "same": 1} and one["total"] == 3
    a, b, new = one["paths"]
    assert (a["path"], a["extent"], a["unchanged"]) == ("a.py", "different", [])
    assert a["groups"][1] == {"candidates": [1], "change": "modified", "added": 1, "removed": 1}
    assert (b["extent"], b["unchanged"], b["groups"][0]["change"]) == ("some", [0], "deleted")
    assert (new["extent"], new["groups"][0]["candidates"]) == ("same", [0, 1])
    (only,) = found.get("/t1", extent="some")["paths"]
    assert only == b and found.get("/t1", extent="some")["total"] == 1


def test_a_path_between_two_candidates(project: Place) -> None:
    tried(project, ["sed -i s/two/2/ a.py", "sed -i s/two/TWO/ a.py; rm b.py"])
    looking = Tries(project).looking
    shown = looking.get("diff", fork="t1-2", file=b"a.py", old="t1-1")
    assert lines(shown) == [" one", "-2", "+TWO"] and not shown["divisible"]
    gone = looking.get("diff", fork="t1-2", file=b"b.py", old="t1-1")
    assert lines(gone) == ["-b"] and not gone["new"]["exists"]
    text = looking.get("text", fork="t1-2", file=b"a.py", old="t1-1", side="old")
    assert [line[3] for line in text["lines"]] == ["one", "2"]
    for other in ("t1-9", "t1-1@x", "nothing"):
        assert looking.refused("diff", fork="t1-2", file=b"a.py", old=other)[:2] == (400, "bad-request")
    assert looking.refused("diff", fork="t1-2", file=b"a.py", old="../x")[0] == 400
    assert looking.refused("diff", fork="t1-1", file=b"b.py", old="t1-1")[0] == 404


def test_a_secret_is_not_shown_between_candidates(project: Place) -> None:
    tried(project, ["echo TOKEN=1 > .env", "echo TOKEN=2 > .env"])
    shown = Tries(project).looking.get("diff", fork="t1-2", file=b".env", old="t1-1")
    assert (shown["kind"], shown["hunks"]) == ("masked", [])


def test_names_are_escaped(project: Place) -> None:
    octal = ["".join(rf"\{byte:03o}" for byte in name) for name in NAMES[:7]]
    script = "; ".join(f"printf x > \"$(printf '{name}.')\"" for name in octal)
    tried(project, [script])
    paths = {path["id"]: path["path"] for path in Tries(project).get("/t1")["paths"]}
    assert paths == {id_of(name + b"."): SHOWN[name] + "." for name in NAMES[:7]}


@pytest.mark.deep
def test_many_paths_come_in_pages(project: Place) -> None:
    tried(project, [f"for i in $(seq 30); do echo {number} > f$i; done" for number in (1, 2)])
    found = Tries(project)
    first = found.get("/t1", count=20)
    rest = found.get("/t1", first=20, count=20, reviewed=first["fingerprint"])
    assert (len(first["paths"]), len(rest["paths"]), first["total"]) == (20, 10, 30)
    tick()
    with project.session() as session:
        session.run([b"sh", b"-c", b"echo more > more"], fork="t1-1")
    assert found.refused("/t1", first=20, reviewed=first["fingerprint"])[:2] == (409, "moved")
    assert [each["standing"] for each in found.get("/t1")["candidates"]] == ["changed", "ready"]


@pytest.mark.deep
def test_the_comparison_is_kept(project: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(project, ["echo 1 > new", "echo 2 > new"])
    found = Tries(project)
    before = found.get("/t1")
    monkeypatch.setattr(candidate, "_compare", None)
    assert found.get("/t1") == before


def test_the_report_of_an_attempt(project: Place) -> None:
    record = tried(project, ["echo 1 > new"])
    with project.session() as session:
        hostile = record.attempts[0]._replace(report=b"\x1b[31mred\xff\n", note="a\nb", score=float("inf"))
        save(session.vault.path, record._replace(attempts=(hostile,)))
    found = Tries(project)
    one = found.get("/t1/attempts/1")
    assert (one["report"], one["note"], one["state"]) == ("\x1b[31mred\ufffd\n", "a\\nb", "passed")
    assert one["command"] == "agent 1"
    assert found.get("/t1")["candidates"][0]["score"] is None
    for number in ("2", "0", "x", "-1", "9" * 30, "\u0661"):
        assert found.refused(f"/t1/attempts/{number}")[:2] == (404, "not-found")


def test_no_try_and_a_damaged_one(project: Place) -> None:
    tried(project, ["echo 1 > new"])
    found = Tries(project)
    assert found.refused("/t2")[:2] == (404, "not-found") and found.refused("/t2/attempts/1")[0] == 404
    record_of(project).write_bytes(b"\xc1")
    (row,) = found.get()
    assert (row["name"], row["problem"]) == ("t1", "its record is damaged")
    status, code, error = found.refused("/t1")
    assert (status, code) == (409, "failed") and "damaged" in error


@pytest.mark.deep
def test_a_project_without_tries(project: Place) -> None:
    with project.session():
        pass
    assert Tries(project).get() == []


@pytest.mark.deep
def test_pages_are_told_of_a_new_record(project: Place) -> None:
    tried(project, ["echo 1 > new"])
    looking = Tries(project).looking
    before = looking.stamps()
    record = record_of(project)
    tick()
    record.write_bytes(record.read_bytes())
    after = looking.stamps()
    assert {key.partition("/")[2] for key in after if after[key] != before[key]} == {"tries"}
