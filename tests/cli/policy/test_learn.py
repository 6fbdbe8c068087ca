"""``mudroom policy learn``: what was answered becomes a policy that a second session needs no question for."""

from __future__ import annotations

import json
import re
from typing import Any

from conftest import Place
from mudroom.cli.policy.learn import Learned, learn
from mudroom.core.journal.event import Event
from mudroom.policy.parse import parse
from test_vault_verb import Cli


def flow(host: str, verdict: str, rule: str, port: int = 443) -> Event:
    data = {"started": 1, "way": "tls", "host": host, "port": port, "verdict": verdict, "rule": rule}
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
