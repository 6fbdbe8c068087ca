"""``mudroom policy learn``: what was answered becomes a policy that a second session needs no question for."""

from __future__ import annotations

import json
import re
from typing import Any

from conftest import Place
from mudroom.cli.policy.learn import Learned, learn
from mudroom.core.confinement.limit import LimitReached
from mudroom.core.journal.event import Event
from mudroom.core.network.host_rules import parse_rule
from mudroom.policy.parse import parse
from test_vault_verb import Cli


def flow(host: str, verdict: str, rule: str, port: int = 443, **more: Any) -> Event:
    data = {"started": 1, "way": "tls", "host": host, "port": port, "verdict": verdict, "rule": rule, **more}
    return Event(1, 1, "flow", "a", json.dumps(data), "")


def approval(pattern: str, *, allow: bool, by: str = "terminal", command: tuple[str, ...] = ("x",)) -> Event:
    data: dict[str, Any] = {"command": command, "pattern": pattern, "allow": allow, "by": by}
    return Event(1, 1, "approval", "a", json.dumps(data), "")


def test_only_an_answer_becomes_a_rule() -> None:
    rows = learn(
        [
            flow("once.example", "allow", "asked"),
            flow("once.example", "allow", "asked"),
            flow("raw.example", "allow", "asked", 22),
            flow("registry.npmjs.org", "allow", "permissions.yaml:4 @npm"),
            flow("always.example", "allow", "permissions.yaml:7"),
            flow("policy.example", "allow", "policy.yaml:3"),
            flow("no.example", "deny", "asked"),
            flow("tried.example", "deny", ""),
            flow("waited.example", "deny", "asked, and nobody has answered in 55 s"),
            flow("both.example", "deny", "asked"),
            flow("both.example", "allow", "asked"),
            approval("git push", allow=True),
            approval("npm publish", allow=False, by="page"),
            approval("late", allow=False, by="nobody"),
            approval("git push", allow=False, by="queue"),
            approval("make *", allow=True),
            approval(f"sh x.sh (as of {'0a' * 16})", allow=True),
            approval("", allow=True, command=("sh", "-c", "x; y")),
        ]
    )
    assert rows == [
        Learned("commands.rules", "git push", "allow", 1),
        Learned("commands.rules", "make", "allow", 1),
        Learned("commands.rules", "npm publish", "deny", 1),
        Learned("commands.rules", "sh x.sh", "allow", 1),
        Learned("network.allow", "@npm", "allow", 1),
        Learned("network.allow", "always.example", "allow", 1),
        Learned("network.allow", "once.example", "allow", 2),
        Learned("network.allow", "raw.example:22", "allow", 1),
        Learned("network.deny", "no.example", "deny", 1),
        Learned("", "both.example", "answered both ways", 2),
        Learned("", "late", "asked, no answer", 1),
        Learned("", "sh -c x; y", "no pattern holds it", 1),
        Learned("", "tried.example", "refused, no answer", 1),
        Learned("", "waited.example", "refused, no answer", 1),
    ]


def test_an_answer_from_elsewhere_is_an_answer() -> None:
    """``mudroom approve``, the page and a program that uses the library refuse with a reason."""
    refused = ("by mudroom approve (not here)", "on the page", "by the client", "by the function that was asked")
    rows = learn([flow(f"r{n}.example", "deny", f"asked, and refused {how}") for n, how in enumerate(refused)])
    assert [row.key for row in rows] == ["network.deny"] * len(refused)
    nobody = ("and refused", "and refused (why)", "but the queue is closed", "and nobody waits for the answer any more")
    rows = learn([flow("x.example", "deny", f"asked, {how}") for how in nobody])
    assert rows == [Learned("", "x.example", "refused, no answer", 4)]


def test_what_is_held_is_learned_as_held() -> None:
    """An allow instead would loosen the answer: pushes and publishes would be sent at once."""
    rows = learn(
        [
            flow("gitlab.com", "allow", "asked gitlab.com:443"),
            flow("registry.npmjs.org", "allow", "asked @npm"),
            flow("api.example", "allow", "permissions.yaml:4"),
            flow("open.example", "allow", "permissions.yaml:5"),
            flow("[redacted].example", "allow", "permissions.yaml:5"),
            flow("late.example", "deny", "asked, and refused, as this command began before its pushes could be held"),
        ],
        [parse_rule("api.example PUT", "hold"), parse_rule("open.example", "allow")],
    )
    assert rows == [
        Learned("network.allow", "@npm", "allow", 1),
        Learned("network.allow", "open.example", "allow", 1),
        Learned("network.hold", "api.example PUT", "hold", 1),
        Learned("network.hold", "gitlab.com:443", "hold", 1),
        Learned("", "[redacted].example", "no rule can name it", 1),
        Learned("", "late.example", "refused, to be held from the next command on", 1),
    ]


def test_a_request_that_a_rule_leaves_out_is_told_with_method_and_path() -> None:
    only: dict[str, Any] = {
        "method": "POST",
        "path": "/repos/x",
        "reason": "policy.yaml:4 allows only some requests there",
    }
    other: dict[str, Any] = {
        "method": "PUT",
        "path": "/y",
        "reason": "policy.yaml:5 is for other methods or paths than PUT /y",
    }
    events = [
        flow("api.example", "deny", "policy.yaml:4", **only),
        flow("api.example", "deny", "policy.yaml:4", **only),
        flow("b.example", "deny", "", **other),
        flow("whole.example", "deny", "policy.yaml:9", method="GET", path="/", reason="denied by policy.yaml:9"),
    ]
    assert learn(events) == [
        Learned("", "POST api.example/repos/x", "refused, policy.yaml:4 allows only some requests there", 2),
        Learned("", "PUT b.example/y", "refused, policy.yaml:5 is for other methods or paths", 1),
    ]


def test_a_limit_is_proposed_and_never_in_force() -> None:
    reached = [
        LimitReached("memory", "killed", 512 << 20, amount=3),
        LimitReached("processes", "refused", 3_000_000, "project", 7),
        LimitReached("memory", "killed", None, "machine"),
        LimitReached("time", "killed", 600.0),
        LimitReached("output", "cut", 8 << 20),
        LimitReached("cpus", "slowed", 1.5, amount=2),
        LimitReached("file_size", "killed", 10**9),
    ]
    data = json.dumps({"limits": [limit._asdict() for limit in reached]})
    newer = json.dumps({"limits": [{**reached[0]._asdict(), "kind": "luck"}]})
    rows = learn(
        [Event(1, 1, "run", "a", data, ""), Event(1, 1, "run", "a", data, ""), Event(1, 1, "run", "a", newer, "")]
    )
    assert [(row.value, row.action) for row in rows] == [
        ("limits: {cpus: 3}", "slowed at 1.5"),
        ("limits: {file_size: 2 GB}", "killed at 1 GB"),
        ("limits: {memory: 1 GiB}", "killed at 512 MiB"),
        ("limits: {total_processes: 6000000}", "refused at 3000000"),
        ("memory", "killed, the machine had no more"),
        ("run: {output_limit: 16 MiB}", "cut at 8 MiB"),
        ("run: {timeout: 1200 s}", "killed at 600 s"),
    ]
    assert {(row.key, row.times) for row in rows} == {("", 2)}
    for row in rows:
        if row.value != "memory":
            assert parse(row.value.encode(), "learned.yaml"), "what is proposed can be written so"


def test_a_limit_that_a_command_reached_is_in_the_journal(place: Place) -> None:
    cli = Cli(place)
    place.write(".mudroom/policy.yaml", "limits: {file_size: 1 MB}\n")
    assert cli("exec", "--fork", "a", "--", "sh", "-c", "exec head -c 2000000 /dev/zero > big").returncode == 153
    learned = cli("policy", "learn", "a")
    assert learned.stdout.splitlines()[-1].split("  #") == [
        "# limits: {file_size: 2 MB}".ljust(44),
        " killed at 1 MB (once)",
    ]
    assert not parse(learned.stdout.encode(), "learned.yaml"), "it is a comment"


def test_what_a_program_writes_as_a_host_is_no_rule() -> None:
    """The name comes from the sandbox."""
    hosts = ("x.example\n  mode: open", '"]', "\udc80", "*", "a" * 300, "")
    rows = learn([flow(host, "allow", "asked") for host in hosts])
    assert {row.value for row in rows if row.key} <= {"*"}
    assert len(rows) == len(hosts)


def test_the_second_session_asks_nothing(place: Place) -> None:
    cli = Cli(place)
    place.write(".git/HEAD", "")
    policy = "commands:\n  classes: {unknown: require_approval}\n"
    place.write(".mudroom/policy.yaml", policy)
    assert cli("policy", "learn").returncode == 1
    command = ("exec", "--fork", "a", "--", "unheard-of", "--now")
    told = re.search(r"waiting for approval ([0-9a-f]{6})", cli(*command).stderr)
    assert told is not None
    assert cli("approve", told[1]).returncode == 0
    assert cli(*command).returncode == 127
    learned = cli("policy", "learn")
    assert learned.returncode == 0, learned.stderr
    assert [str(item.value[0].source) for item in parse(learned.stdout.encode(), "learned.yaml")] == ["learned.yaml:5"]
    assert "include: [learned.yaml]" in learned.stderr
    assert cli.json("policy", "learn", "a")["rows"][0]["key"] == "commands.rules"
    assert "there is no fork named b" in cli("policy", "learn", "b").stderr
    assert "there is no fork named b" in cli("log", "--fork", "b").stderr
    assert cli("exec", "--fork", "b", "--", "true").returncode == 0
    assert "nothing was asked in b" in cli("policy", "learn", "b").stderr
    assert cli("log", "--fork", "b", "--kind", "apply").stderr == "nothing of that kind has happened\n"
    place.write(".mudroom/learned.yaml", learned.stdout)
    place.write(".mudroom/policy.yaml", policy + "include: [learned.yaml]\n")
    assert cli("policy", "trust", "--yes").returncode == 0
    again = cli("exec", "--fork", "b", "--", "unheard-of", "--now")
    assert (again.returncode, "approval" in again.stderr) == (127, False), again.stderr
