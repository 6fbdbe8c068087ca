"""Questions and their answers by the API, against the queues on disk that commands wait in."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Shared, Site, mudroom, shared_server

from conftest import Place
from mudroom.core.approval.approval import CommandQuestion, HostQuestion
from mudroom.core.approval_queue import QueueRow
from mudroom.core.clock import Moment
from mudroom.core.command.verdict import Verdict
from mudroom.vault.approvals.queue import Queue

VERDICT = Verdict("require_approval", ("networked",), "class networked", "may run scripts of strangers")
QUESTION = CommandQuestion(
    (b"npm", b"install", b"<b>\x1b[2J\xe2\x80\xae\xff"),
    b"/p/sub",
    "try-1",
    "claude",
    VERDICT,
    "npm install *",
    "1234",
    ((b"/p/sub/package.json", "9"),),
    ("level 1", "network: gate"),
)
HOST = HostQuestion("registry.example", 443, "tls", "try-1", "claude")


class Waiting:
    """The queue of the only project, and the page's server."""

    def __init__(self, place: Place, site: Site) -> None:
        place.write(".git/HEAD", "")
        self.vault = Path(mudroom(place, "vault", "init").strip())
        self.place, self.site, self.queue = place, site, Queue(os.fsencode(self.vault))

    def put(self, question: CommandQuestion | HostQuestion = QUESTION) -> str:
        with self.queue.put(question, 0) as ticket:
            return ticket.asked.name

    def shown(self, *, ended: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.get("/questions" + ("?ended=true" if ended else ""))["questions"]
        return found

    def answer(self, name: str, **body: Any) -> tuple[int, dict[str, Any]]:
        return self.site.ask("POST", f"/projects/{self.vault.name}/questions/{name}", body)

    def row(self, name: str) -> QueueRow:
        return self.queue.row(name)


@pytest.fixture(scope="module")
def shared(shared_root: Path) -> Iterator[Shared]:
    with shared_server(shared_root, browser=None) as shared:
        yield shared


@pytest.fixture
def waiting(place: Place, shared: Shared) -> Waiting:
    return Waiting(place, shared.site)


def test_a_command_as_it_is_asked_about(waiting: Waiting) -> None:
    assert waiting.shown() == []
    name = waiting.put()
    (found,) = waiting.shown()
    assert (found["id"], found["project"], found["kind"]) == (name, waiting.vault.name, "command")
    assert found["project_path"] == str(waiting.place.project)
    assert (found["state"], found["waiting"], found["until"]) == ("waiting", False, 0)
    assert found["what"] == r"npm install $'<b>\x1b[2J\xe2\x80\xae\xff'"
    assert found["why"] == "networked: may run scripts of strangers (class networked)"
    assert (found["fork"], found["agent"], found["cwd"]) == ("try-1", "claude", "/p/sub")
    assert (found["terms"], found["files"]) == (["level 1", "network: gate"], ["/p/sub/package.json"])
    assert (found["allow_rule"], found["deny_rule"]) == (
        "allow npm install *, in any directory",
        "deny npm install *, in any directory",
    )
    assert abs(found["asked"] - waiting.row(name).asked.when.time / 1e6) < 2


def test_a_host(waiting: Waiting) -> None:
    with waiting.queue.put(HOST, 50) as ticket:
        (found,) = waiting.shown()
        assert (found["id"], found["kind"], found["what"]) == (ticket.asked.name, "host", "registry.example:443")
        assert (found["waiting"], found["until"] - found["asked"]) == (True, 50_000)
        assert (found["allow_rule"], found["can_keep"]) == ("allow registry.example:443", True)


@pytest.mark.parametrize(("allow", "state"), [(True, "allowed"), (False, "denied")])
def test_the_one_who_waits_hears_the_answer(waiting: Waiting, allow: bool, state: str) -> None:
    with waiting.queue.put(QUESTION, 60) as ticket:
        heard: list[Any] = []
        waiter = threading.Thread(target=lambda: heard.append(ticket.wait(60)))
        waiter.start()
        status, found = waiting.answer(ticket.asked.name, allow=allow, reason=" not\ntoday ")
        waiter.join(30)
        assert (status, found["ours"], found["problem"], found["rule_written"]) == (200, True, "", False)
        assert (found["question"]["state"], found["question"]["by"]) == (state, "page")
        assert found["question"]["reason"] == "not\\ntoday"
    assert [(one.state, one.by, one.reason, one.keep) for one in heard] == [(state, "page", "not\ntoday", False)]
    assert waiting.shown() == []
    assert [(one["state"], one["used"]) for one in waiting.shown(ended=True)] == [(state, True)]


def test_a_question_that_nobody_waits_for_holds_once(waiting: Waiting) -> None:
    assert waiting.answer(waiting.put(), allow=True)[0] == 200
    with waiting.queue.put(QUESTION, 0) as ticket:
        decision = ticket.look()
    assert decision is not None
    assert decision.state == "allowed"


@pytest.mark.parametrize("first", ["page", "terminal"])
def test_the_second_to_answer_is_told_of_the_first(waiting: Waiting, first: str) -> None:
    name = waiting.put()
    if first == "page":
        assert waiting.answer(name, allow=False, reason="no")[0] == 200
    else:
        waiting.queue.decide(name, allow=False, by="terminal", reason="no")
    status, problem = waiting.answer(name, allow=True)
    assert (status, problem["code"]) == (409, "decided")
    assert problem["error"] == f"it has ended already: denied on the {first}: no"
    assert waiting.row(name).state == "denied"


def test_many_answer_at_once_and_one_counts(waiting: Waiting) -> None:
    name = waiting.put()
    found: list[tuple[int, dict[str, Any]]] = []
    threads = [
        threading.Thread(target=lambda n=number: found.append(waiting.answer(name, allow=n % 2 == 0)))
        for number in range(6)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert sorted(status for status, _answer in found) == [200, 409, 409, 409, 409, 409]
    (ours,) = [answer["question"]["state"] for status, answer in found if status == 200]
    assert waiting.row(name).state == ours


def test_always_writes_the_rule_that_was_shown(waiting: Waiting) -> None:
    for question, file in ((QUESTION, "rules.yaml"), (HOST, "permissions.yaml")):
        name = waiting.put(question)
        (shown,) = waiting.shown()
        for wrong in ("", shown["deny_rule"], "allow *"):
            status, problem = waiting.answer(name, allow=True, keep=True, rule=wrong)
            assert (status, problem["code"]) == (409, "moved")
        assert waiting.row(name).state == "waiting"
        status, found = waiting.answer(name, allow=True, keep=True, rule=shown["allow_rule"])
        assert (status, found["rule_written"], found["problem"]) == (200, True, "")
        assert found["question"]["kept"] is True
        written = (waiting.place.answers / file).read_text()
        assert shown["allow_rule"].removeprefix("allow ").removesuffix(", in any directory") in written
        assert "# asked 20" in written


def test_never_does_as_well(waiting: Waiting) -> None:
    name = waiting.put(HOST)
    assert waiting.answer(name, allow=False, keep=True, rule="deny registry.example:443")[0] == 200
    text = (waiting.place.answers / "permissions.yaml").read_text()
    assert 'deny:\n  - "registry.example:443"' in text or "deny:\n  - registry.example:443" in text


def test_a_rule_that_cannot_be_written_is_said_and_the_answer_stands(waiting: Waiting) -> None:
    waiting.place.write(".mudroom/local/permissions.yaml", "allow: {")
    name = waiting.put(HOST)
    status, found = waiting.answer(name, allow=True, keep=True, rule="allow registry.example:443")
    assert (status, found["rule_written"]) == (200, False)
    assert found["problem"].startswith("the answer holds, but its rule is not written: ")
    assert waiting.row(name).state == "allowed"


@pytest.mark.parametrize("pattern", ["", "x" * 301, "a\x1b[2Jb"])
def test_a_rule_that_cannot_be_read_whole_is_not_offered(waiting: Waiting, pattern: str) -> None:
    name = waiting.put(QUESTION._replace(pattern=pattern))
    (shown,) = waiting.shown()
    assert (shown["can_keep"], shown["allow_rule"], shown["deny_rule"]) == (False, "", "")
    status, problem = waiting.answer(name, allow=True, keep=True, rule=f"allow {pattern}, in any directory")
    assert (status, problem["code"]) == (400, "bad-request")
    assert waiting.row(name).state == "waiting"


@pytest.mark.parametrize("name", ["abcdef", "..", "bells", "%2e%2e%2fx", "x" * 200, "%ff", "a%00b"])
def test_a_question_that_is_not_there(waiting: Waiting, name: str) -> None:
    status, problem = waiting.answer(name, allow=True)
    assert (status, problem["code"]) == (404, "not-found")


def test_a_project_that_is_not_there(waiting: Waiting) -> None:
    status, problem = waiting.site.ask("POST", "/projects/other/questions/abc", {"allow": True})
    assert (status, problem["code"]) == (404, "not-found")


@pytest.mark.parametrize(
    "body", [{}, {"allow": "yes"}, {"allow": 1}, {"allow": True, "by": "root"}, {"allow": None}, [], "x", None]
)
def test_what_is_no_answer_allows_nothing(waiting: Waiting, body: Any) -> None:
    name = waiting.put()
    status, _problem = waiting.site.ask("POST", f"/projects/{waiting.vault.name}/questions/{name}", body)
    assert status == 400
    assert waiting.row(name).state == "waiting"


def test_one_that_waited_too_long_has_expired(waiting: Waiting) -> None:
    then = Moment(1, 0, "another start")
    old = Queue(os.fsencode(waiting.vault), clock=lambda: then)
    with old.put(QUESTION, 0) as ticket:
        name = ticket.asked.name
    status, problem = waiting.answer(name, allow=True)
    assert (status, problem["code"]) == (409, "decided")
    assert problem["error"].startswith("it has ended already: expired")


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")
def test_another_users_queue_is_not_ours_to_answer(waiting: Waiting) -> None:
    name = waiting.put()
    os.chown(waiting.vault / "approvals", 12345, 12345)
    found = waiting.site.get("/questions")
    assert found["questions"] == []
    assert "another user's" in found["remarks"][0]
    status, problem = waiting.answer(name, allow=True)
    assert (status, problem["code"]) == (409, "failed")
    assert "another user's" in problem["error"]
    os.chown(waiting.vault / "approvals", 0, 0)
    assert waiting.row(name).state == "waiting"


def test_a_project_that_has_gone_can_be_answered_about_but_not_written_for(waiting: Waiting) -> None:
    name = waiting.put(HOST)
    waiting.place.project.rename(waiting.place.root / "elsewhere")
    status, found = waiting.answer(name, allow=True, keep=True, rule="allow registry.example:443")
    assert (status, found["rule_written"]) == (200, False)
    assert "is gone" in found["problem"]
    assert waiting.row(name).state == "allowed"


def test_a_vault_that_cannot_be_read_hides_no_other(waiting: Waiting) -> None:
    name = waiting.put()
    other = waiting.vault.parent / "other-1"
    other.mkdir()
    (other / "format").write_text("99\n")
    assert [one["id"] for one in waiting.shown()] == [name]


def test_an_open_page_is_told_at_once_and_counts_as_somebody(waiting: Waiting) -> None:
    site = waiting.site
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {site.told['token']}"})
    stream = connection.getresponse()
    until(stream, b"event: hello")
    until(stream, b"data: ")
    assert waiting.queue.listeners() == {"page"}
    waiting.put()
    assert json.loads(until(stream, b"data: ")) == {"project": waiting.vault.name, "what": "questions"}
    stream.close()
    connection.close()


def until(stream: http.client.HTTPResponse, begin: bytes) -> bytes:
    """The rest of the first line that begins so."""
    for line in stream:
        if line.startswith(begin):
            return line.removeprefix(begin)
    raise AssertionError("the stream has ended")


def test_a_question_that_is_damaged_is_left_out(waiting: Waiting) -> None:
    name, other = waiting.put(), waiting.put(HOST)
    (waiting.vault / "approvals" / name / "question").write_bytes(b"\xc1")
    assert [one["id"] for one in waiting.shown()] == [other]
    assert waiting.answer(name, allow=True)[0] == 404


def test_the_preset_of_a_host_is_offered_and_allowed(waiting: Waiting) -> None:
    name = waiting.put(HOST._replace(host="registry.npmjs.org"))
    (shown,) = waiting.shown()
    hosts = ["registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org"]
    assert shown["offers"] == [
        {"rule": "allow @npm", "words": "Always allow the preset npm: 3 hosts", "allows": True, "hosts": hosts}
    ]
    for wrong in ({"allow": False, "rule": "allow @npm"}, {"allow": True, "rule": "allow @pypi"}):
        assert waiting.answer(name, keep=True, **wrong)[0] == 409, "not the rule that was shown"
    status, found = waiting.answer(name, allow=True, keep=True, rule="allow @npm")
    assert (status, found["rule_written"], found["problem"]) == (200, True, "")
    decision = waiting.row(name).decision
    assert decision is not None
    assert (decision.state, decision.keep, decision.rule) == ("allowed", True, "allow @npm")
    assert "@npm" in mudroom(waiting.place, "net", "ls")


def test_a_host_of_no_preset_offers_none(waiting: Waiting) -> None:
    waiting.put(HOST)
    waiting.put()
    assert [shown["offers"] for shown in waiting.shown()] == [[], []]


def test_for_an_hour_and_taken_back(waiting: Waiting) -> None:
    name = waiting.put()
    (found,) = waiting.shown()
    assert found["hour_rule"] == (
        "allow the same command in the fork try-1, while its files and terms are as now, for an hour"
    )
    status, done = waiting.answer(name, allow=True, hour=True)
    assert (status, done["question"]["state"], done["rule_written"]) == (200, "allowed", False)
    assert done["question"]["holds_until"] - done["question"]["ended"] == 3_600_000
    with waiting.queue.put(QUESTION, 0) as ticket:
        assert ticket.look() is not None
    with waiting.queue.put(QUESTION, 0) as ticket:
        assert ticket.look() is not None
    status, done = waiting.answer(name, allow=False)
    assert (status, done["question"]["state"]) == (200, "withdrawn")
    with waiting.queue.put(QUESTION, 0) as ticket:
        assert ticket.look() is None


@pytest.mark.parametrize("request_", [{"allow": False}, {"allow": True, "keep": True}], ids=["denied", "kept"])
def test_what_is_not_for_an_hour(waiting: Waiting, request_: dict[str, bool]) -> None:
    name = waiting.put()
    status, problem = waiting.answer(name, hour=True, **request_)
    assert (status, problem["code"]) == (400, "bad-request")
    assert waiting.row(name).state == "waiting"


def test_the_users_own_question_has_no_hour(waiting: Waiting) -> None:
    with waiting.queue.put(HOST._replace(agent=""), 0) as ticket:
        name = ticket.asked.name
    assert [one["hour_rule"] for one in waiting.shown()] == [""]
    assert waiting.answer(name, allow=True, hour=True)[0] == 400
