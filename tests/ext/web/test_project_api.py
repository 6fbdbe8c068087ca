"""Projects and forks by the page's API: what there is, whatever is wrong with some of it."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from browser import mudroom
from pageside import PageSide, changed, cut_off

from clocks import give_way
from conftest import Place
from mudroom.ext.web.api.project import me
from mudroom.session import Session
from mudroom.stage.reader import ANEW
from mudroom.stage.stamp import is_settled
from mudroom.vault.store import fork as forks_module


@pytest.fixture
def page(place: Place) -> PageSide:
    return PageSide(place)


def forks(page: PageSide) -> dict[str, dict[str, Any]]:
    return {fork["name"]: fork for fork in page.get(page.project)["forks"]}


def vault(place: Place) -> Path:
    (found,) = (place.state / "vaults").iterdir()
    return found


def made(place: Place, *names: str) -> None:
    session = place.session()
    for name in names:
        session.forks.new(name)
    session.close()


def test_nothing_yet(page: PageSide) -> None:
    assert page.get("/projects") == []
    assert page.get("/projects/x-123", status=404)["error"] == "there is no such project here"


def test_whatever_vault_is_read_keeps_what_was_read(place: Place, page: PageSide) -> None:
    made(place, "f")
    server, project = page.server, page.project.rpartition("/")[2]
    listed = server.vaults()
    with closing(listed[0]), closing(server.vault(project)) as one, server.session(project) as session:
        readings = {vault.reading for vault in (*listed, one, session.vault)}
        assert len(readings) == 1
        assert ANEW not in readings


def test_a_fork_that_has_run(place: Place, page: PageSide) -> None:
    place.write("a", "1\n")
    changed(place, "echo 2 > a; echo b > b")
    (row,) = page.get("/projects")
    assert (row["path"], row["exists"], row["forks"], row["unapplied"]) == (str(place.project), True, 1, 2)
    fork = forks(page)["agent-1"]
    assert (fork["state"], fork["named"], fork["exit_code"]) == ("idle", True, 0)
    assert fork["command"] == "sh -c 'echo 2 > a; echo b > b'"
    assert (fork["badge"]["level"], fork["badge"]["safe"]) == (1, True)
    assert fork["badge"]["label"] == "Sandboxed: safe to edit"
    assert (fork["summary"]["added"], fork["summary"]["modified"]) == (1, 1)


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_how_the_last_command_ended(place: Place, page: PageSide, script: str, code: int) -> None:
    place.session().run([b"sh", b"-c", f"echo > a; {script}".encode()], fork="f")
    assert forks(page)["f"]["exit_code"] == code


def test_applies_with_what_they_did(place: Place, page: PageSide) -> None:
    place.write("gone", "x")
    changed(place, "echo a > a; echo b > b; rm gone")
    page.apply("agent-1")
    changed(place, "echo c > c", "agent-2")
    page.apply("agent-2")
    page.landed(f"{page.project}/undo", {})
    second, first = page.get(page.project)["applies"]
    assert (first["id"], first["state"], first["fork"], first["written"], first["removed"]) == (
        "u1", "applied", "agent-1", 2, 1,
    )  # fmt: skip
    assert (second["id"], second["state"], second["fork"], second["written"]) == ("u2", "undone", "agent-2", 1)
    assert 0 < first["time"] <= second["time"]


def test_applies_without_a_journal(place: Place, page: PageSide) -> None:
    changed(place, "echo a > a; echo b > b")
    page.apply("agent-1")
    for name in vault(place).glob("journal.*"):
        name.unlink()
    (apply,) = page.get(page.project)["applies"]
    assert (apply["fork"], apply["written"]) == ("agent-1", 2)
    assert apply["time"] > 0


def test_states(place: Place, page: PageSide) -> None:
    made(place, "idle", "running", "cut-off", "mounted", "garbage", "damaged", "no-state")
    home = vault(place) / "forks"
    for name in ("running", "cut-off"):
        (home / name / "running").write_text("1")
    (home / "garbage" / "running").write_bytes(b"\xff\0 no number")
    (home / "mounted" / "mount").write_text("copy rw 1 /x")
    (home / "damaged" / "record").write_bytes(b"\xc1 no record")
    (home / "no-state" / "state").unlink()
    (home / "..odd").mkdir()
    session = place.session()
    with session.vault.fork("running").lock("a command"):
        found = forks(page)
        (row,) = page.get("/projects")
    assert {name: fork["state"] for name, fork in found.items()} == {
        "idle": "idle", "running": "running", "cut-off": "cut off", "mounted": "mounted", "garbage": "cut off",
        "damaged": "damaged", "no-state": "damaged", "..odd": "damaged",
    }  # fmt: skip
    assert "is damaged" in found["damaged"]["problem"]
    assert found["no-state"]["problem"] == "the state of the fork no-state is missing"
    assert [found[name]["badge"]["label"] for name in ("idle", "mounted", "damaged")] == [
        "Sandboxed: safe to edit", "Mounted", "Damaged",
    ]  # fmt: skip
    assert (row["forks"], row["running"], len(row["remarks"])) == (8, 1, 3)


def test_a_damaged_fork_can_be_thrown_away(place: Place, page: PageSide) -> None:
    made(place, "a", "b")
    (vault(place) / "forks/a/state").write_text("nonsense")
    page.ask("DELETE", f"{page.project}/forks/a")
    assert set(forks(page)) == {"b"}


@pytest.mark.parametrize(
    ("policy", "level", "label", "safe"),
    [
        ("levels:\n  minimum: 1\n", 1, "Sandboxed: safe to edit", True),
        ("levels:\n  allow: [0]\n", None, "Nothing runs here", False),
    ],
)
def test_the_badge_of_a_project(
    place: Place, page: PageSide, policy: str, level: int | None, label: str, safe: bool
) -> None:
    made(place, "a")
    place.write(".mudroom/policy.yaml", policy)
    found = page.get(page.project)
    assert (found["badge"]["level"], found["badge"]["label"], found["badge"]["safe"]) == (level, label, safe)
    assert found["forks"][0]["badge"] == found["badge"]


def test_the_badge_of_what_was_not_kept_apart(place: Place, page: PageSide) -> None:
    session = place.session(level=0)
    session.run([b"sh", b"-c", b"echo > a"], fork="bare")
    badge = forks(page)["bare"]["badge"]
    assert (badge["level"], badge["safe"], badge["label"]) == (0, False, "Not sandboxed")
    assert page.get(page.project)["badge"]["safe"] is True


def test_the_verify_command(place: Place, page: PageSide) -> None:
    made(place, "a")
    assert page.get(page.project)["verify"] == ""
    place.write(".mudroom/policy.yaml", "verify:\n  command: [pytest, -q]\n")
    assert page.get(page.project)["verify"] == "pytest -q"


def test_a_policy_that_cannot_be_read(place: Place, page: PageSide) -> None:
    made(place, "a")
    place.write(".mudroom/policy.yaml", "nonsense: [")
    assert page.get(page.project, status=400)["code"] == "bad-request"
    assert page.get("/projects")[0]["forks"] == 1


def test_a_project_that_is_gone(place: Place, page: PageSide) -> None:
    made(place, "a")
    path = page.project
    shutil.rmtree(place.project)
    assert page.get(path, status=409)["error"].endswith(" is gone")
    assert page.get("/projects")[0]["exists"] is False


# --- making, renaming, throwing away ---


def test_a_new_fork(place: Place, page: PageSide) -> None:
    changed(place, "echo a > a", "above")
    fork = page.post(f"{page.project}/forks", {"name": "try.2", "parent": "above"}, status=201)
    assert (fork["name"], fork["parent"], fork["state"]) == ("try.2", "above", "idle")
    assert "try.2" in forks(page)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"name": ""}, 400, "'' cannot be the name of a fork"),
        ({"name": "../x"}, 400, "'../x' cannot be the name of a fork"),
        ({"name": ".."}, 400, "'..' cannot be the name of a fork"),
        ({"name": "a/b"}, 400, "'a/b' cannot be the name of a fork"),
        ({"name": "a\0b"}, 400, r"'a\\x00b' cannot be the name of a fork"),
        ({"name": "ä"}, 400, "'ä' cannot be the name of a fork"),
        ({"name": "x" * 65}, 400, "'" + "x" * 65 + "' cannot be the name of a fork"),
        ({"name": "now"}, 400, "now cannot be the name of a fork: it has another meaning in mudroom diff"),
        ({"name": "a"}, 400, "there is a fork named a already"),
        ({"name": "b", "parent": "none"}, 404, "there is no fork named none"),
        ({"name": "b", "parent": "a", "at": "none"}, 400, "a has no checkpoint named none"),
        ({"name": "b", "at": "none"}, 400, "a checkpoint needs the fork it belongs to"),
    ],
)
def test_forks_that_cannot_be(place: Place, page: PageSide, body: Any, status: int, error: str) -> None:
    made(place, "a")
    assert page.post(f"{page.project}/forks", body, status=status)["error"] == error
    assert set(forks(page)) == {"a"}


def test_another_name(place: Place, page: PageSide) -> None:
    made(place, "a", "b")
    assert page.post(f"{page.project}/forks/a/rename", {"name": "c"})["name"] == "c"
    assert set(forks(page)) == {"b", "c"}
    assert page.post(f"{page.project}/forks/c/rename", {"name": "b"}, status=400)["code"] == "bad-request"
    assert page.post(f"{page.project}/forks/c/rename", {"name": "../b"}, status=400)["code"] == "bad-request"
    assert page.post(f"{page.project}/forks/a/rename", {"name": "d"}, status=404)["code"] == "not-found"


def test_nobody_throws_away_what_is_at_work(place: Place, page: PageSide) -> None:
    made(place, "a")
    session = place.session()
    with session.vault.fork("a").lock("a command"):
        assert page.ask("DELETE", f"{page.project}/forks/a", status=409)["code"] == "busy"
        assert page.post(f"{page.project}/forks/a/rename", {"name": "b"}, status=409)["code"] == "busy"
        assert page.post(f"{page.project}/forks", {"name": "b", "parent": "a"}, status=409)["code"] == "busy"
    with session.alone("`mudroom run`"):
        assert page.ask("DELETE", f"{page.project}/forks/a", status=409)["code"] == "busy"
    page.ask("DELETE", f"{page.project}/forks/a")
    assert page.ask("DELETE", f"{page.project}/forks/a", status=404)["error"] == "there is no fork named a"


def test_what_was_cut_off_is_not_thrown_away_unseen(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(place, "echo 1 > a; echo 2 > b")
    cut_off(place, monkeypatch)
    refused = page.ask("DELETE", f"{page.project}/forks/agent-1", status=409)
    said = "apply u1 of agent-1 was cut off in the middle; it is finished now; agent-1 was not thrown away"
    assert (refused["code"], refused["error"]) == ("moved", said)
    assert (place.project / "a").read_text() == "1\n"
    page.ask("DELETE", f"{page.project}/forks/agent-1")


def test_something_else_than_what_was_looked_at_is_not_thrown_away(place: Place, page: PageSide) -> None:
    changed(place, "echo 1 > a", "f")
    seen = page.fingerprint("f")
    changed(place, "echo precious > b", "f")
    refused = page.ask("DELETE", f"{page.project}/forks/f?reviewed={seen}", status=409)
    assert refused["code"] == "moved" and "nothing was discarded" in refused["error"]
    assert set(forks(page)) == {"f"}
    page.ask("DELETE", f"{page.project}/forks/f?reviewed={page.fingerprint('f')}")
    assert forks(page) == {}


def test_what_runs_in_the_background_is_ended_only_if_that_is_said(place: Place, page: PageSide) -> None:
    session = place.session()
    session.forks.new("a")
    started = session.start([b"sleep", b"60"], fork="a")
    assert forks(page)["a"]["state"] == "running"
    refused = page.ask("DELETE", f"{page.project}/forks/a", status=409)
    assert (refused["code"], refused["error"]) == ("busy", "a command runs in the background of a")
    assert refused["hint"] == f"mudroom ps --end {started.id} ends it; end=true ends all there"
    page.ask("DELETE", f"{page.project}/forks/a?end=true")
    assert forks(page) == {}


def test_what_it_has_changed_is_not_thrown_away_unseen(place: Place, page: PageSide) -> None:
    session = place.session()
    session.forks.new("a")
    seen = page.fingerprint("a")
    start_and_hear(session, "echo precious > f; echo ready; exec sleep 60")
    refused = page.ask("DELETE", f"{page.project}/forks/a?end=true&reviewed={seen}", status=409)
    assert refused["code"] == "moved" and "nothing was discarded" in refused["error"]
    assert (forks(page)["a"]["state"], forks(page)["a"]["summary"]["added"]) == ("idle", 1)
    page.ask("DELETE", f"{page.project}/forks/a?end=true&reviewed={page.fingerprint('a')}")
    assert forks(page) == {}


def start_and_hear(session: Session, script: str) -> None:
    """Something that runs in the background of ``a``, and has said "ready"."""
    running = session.start([b"sh", b"-c", script.encode()], fork="a")
    deadline = time.monotonic() + 30
    while b"ready" not in running.output()[0]:
        assert time.monotonic() < deadline
        running.wait(0.02)


# --- and quickly ---


def settle(place: Place) -> None:
    """Wait until whatever is done to a record gives it another stamp: 20 ms. What may be another one unseen is read."""
    for record in place.state.glob("vaults/*/forks/*/record"):
        while not is_settled(record.stat().st_ctime_ns, time.time_ns()):
            give_way()


def test_a_list_reads_each_record_once(place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        changed(place, "echo 1 > a", name)
    read: list[bytes] = []
    load = forks_module.load_record

    def counted(path: bytes) -> Any:
        read.append(os.path.basename(os.path.dirname(path)))
        return load(path)

    monkeypatch.setattr(forks_module, "load_record", counted)
    settle(place)
    for _time in range(3):
        assert page.get("/projects")[0]["unapplied"] == 2
    assert sorted(read) == [b"a", b"b"]
    changed(place, "echo 2 > b", "a")
    settle(place)
    read.clear()
    assert page.get("/projects")[0]["unapplied"] == 3
    assert read.count(b"a") == 1


def test_me_tells_what_is_certified_and_closed() -> None:
    told = ("macOS 26.0 25A1, open", "closed: network: gate is refused: gate_port fell")
    environment = SimpleNamespace(version="1", roots=(b"/a",), certified=lambda: told)
    call: Any = SimpleNamespace(server=SimpleNamespace(environment=environment))
    assert me(call).sandbox == list(told)


def test_a_file_that_both_have_changed_is_a_conflict_only_if_it_does_not_merge(place: Place, page: PageSide) -> None:
    place.write("a", "1\n2\n3\n4\n5\n")
    changed(place, "sed -i s/1/x/ a")

    def notice() -> dict[str, Any]:
        (row,) = page.get("/projects")
        (found,) = row["notices"]
        return dict(found)

    place.write("a", "1\n2\n3\n4\nyours\n")
    first = notice()
    assert (first["kind"], first["files"], first["agent"]) == ("finished", 1, "")
    assert first["command"] == "sh -c 'sed -i s/1/x/ a'" and first["ended"] > 0
    place.write("a", "yours\n2\n3\n4\n5\n")
    assert (notice()["kind"], notice()["files"]) == ("conflict", 1)


def test_a_fork_whose_result_was_not_verified(place: Place, page: PageSide) -> None:
    place.write(".mudroom/policy.yaml", "verify: {command: [sh, -c, 'test ! -e bad'], when: always}\n")
    place.write("a", "1\n")
    changed(place, "echo 2 > bad")
    (fork,) = (row["notices"][0]["fork"] for row in page.get("/projects"))

    def notice() -> dict[str, Any]:
        (row,) = page.get("/projects")
        (found,) = row["notices"]
        return dict(found)

    assert notice()["kind"] == "finished"
    mudroom(place, "apply", "--yes", fork, expected=5)
    found = notice()
    assert (found["kind"], found["exit_code"], found["files"]) == ("unverified", 1, 1)
    assert found["command"] == "sh -c 'test ! -e bad'"
    mudroom(place, "exec", "--fork", fork, "--", "sh", "-c", "mv bad good")
    assert notice()["kind"] == "finished", "the agent has gone on"
