"""``mudroom policy learn``: what was answered becomes a policy that a second session needs no question for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from conftest import Place
from mudroom.core.confinement.limit import LimitReached
from mudroom.core.journal.event import Event
from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.ext.learning.cli import learn
from mudroom.policy.parse import parse
from test_vault_verb import Cli


def flow(host: str, verdict: str, rule: str, port: int = 443, **more: Any) -> Event:
    data = {"started": 1, "way": "tls", "host": host, "port": port, "verdict": verdict, "rule": rule, **more}
    return Event(1, 1, "flow", "a", json.dumps(data), "")


def approval(pattern: str, *, allow: bool, by: str = "terminal", command: tuple[str, ...] = ("x",)) -> Event:
    data: dict[str, Any] = {"command": command, "pattern": pattern, "allow": allow, "by": by}
    return Event(1, 1, "approval", "a", json.dumps(data), "")


def learned(events: list[Event], answers: Sequence[HostRule] = ()) -> list[tuple[Any, ...]]:
    """Return the rows without the forks."""
    return [row[:4] for row in learn(events, answers)]


def test_only_an_answer_becomes_a_rule() -> None:
    rows = learned(
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
        ("commands.rules", "git push", "allow", 1),
        ("commands.rules", "make", "allow", 1),
        ("commands.rules", "npm publish", "deny", 1),
        ("commands.rules", "sh x.sh", "allow", 1),
        ("network.allow", "@npm", "allow", 1),
        ("network.allow", "always.example", "allow", 1),
        ("network.allow", "once.example", "allow", 2),
        ("network.allow", "raw.example:22", "allow", 1),
        ("network.deny", "no.example", "deny", 1),
        ("", "both.example", "answered both ways", 2),
        ("", "late", "asked, no answer", 1),
        ("", "sh -c x; y", "no pattern holds it", 1),
        ("", "tried.example", "refused, no answer", 1),
        ("", "waited.example", "refused, no answer", 1),
    ]


def test_an_answer_from_elsewhere_is_an_answer() -> None:
    """``mudroom approve``, the page and a program that uses the library refuse with a reason."""
    refused = ("by mudroom approve (not here)", "on the page", "by the client", "by the function that was asked")
    rows = learn([flow(f"r{n}.example", "deny", f"asked, and refused {how}") for n, how in enumerate(refused)])
    assert [row.key for row in rows] == ["network.deny"] * len(refused)
    nobody = ("and refused", "and refused (why)", "but the queue is closed", "and nobody waits for the answer any more")
    events = [flow("x.example", "deny", f"asked, {how}") for how in nobody]
    assert learned(events) == [("", "x.example", "refused, no answer", 4)]


def test_what_is_held_is_learned_as_held() -> None:
    """An allow instead would loosen the answer: pushes and publishes would be sent at once."""
    rows = learned(
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
        ("network.allow", "@npm", "allow", 1),
        ("network.allow", "open.example", "allow", 1),
        ("network.hold", "api.example PUT", "hold", 1),
        ("network.hold", "gitlab.com:443", "hold", 1),
        ("", "[redacted].example", "no rule can name it", 1),
        ("", "late.example", "refused, to be held from the next command on", 1),
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
    assert learned(events) == [
        ("", "POST api.example/repos/x", "refused, policy.yaml:4 allows only some requests there", 2),
        ("", "PUT b.example/y", "refused, policy.yaml:5 is for other methods or paths", 1),
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


def test_answers_are_counted_by_fork() -> None:
    events = [flow("x.example", "allow", "asked")._replace(fork=fork) for fork in "aab"]
    assert [row.by_fork for row in learn(events)] == [{"a": 2, "b": 1}]
    both = [*events, flow("x.example", "deny", "asked")._replace(fork="c")]
    assert [(row.action, row.by_fork) for row in learn(both)] == [("answered both ways", {"a": 2, "b": 1, "c": 1})]


def test_a_background_command_reaches_its_time() -> None:
    def event(kind: str, **data: Any) -> Event:
        return Event(1, 1, kind, "a", json.dumps(data), "")

    rows = learned(
        [
            event("background", id="1", timeout=60.0),
            event("background", id="2", timeout=None),
            event("background_end", id="1", timed_out=True),
            event("background_end", id="2", timed_out=False),
            event("background_end", id="3", timed_out=True),  # its start is in an archive
        ]
    )
    assert rows == [
        ("", "run: {timeout: 120 s}", "killed at 60 s", 1),
    ]


def answered(cli: Cli, *forks: str) -> None:
    """Have a command allowed in each of these forks."""
    cli.place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: require_approval}\n")
    for number, fork in enumerate(forks):
        command = ("exec", "--fork", fork, "--", f"unheard-of-{number}")
        asked = re.search(r"waiting for approval ([0-9a-f]{6})", cli(*command).stderr)
        assert asked is not None
        assert cli("approve", asked[1]).returncode == 0
        assert cli(*command).returncode == 127


def test_several_forks_are_learned_as_a_patch(place: Place) -> None:
    cli = Cli(place)
    answered(cli, "a", "b", "c")
    rows = cli.json("policy", "learn", "a", "b")["rows"]
    assert [(row["value"], row["by_fork"]) for row in rows] == [("unheard-of-0", {"a": 1}), ("unheard-of-1", {"b": 1})]
    patch = cli("policy", "learn", "a", "b", "--diff")
    assert patch.returncode == 0, patch.stderr
    assert patch.stderr == "note: to use it: add | git apply to this command, and run mudroom policy trust\n"
    applied = subprocess.run(
        ["git", "apply"], cwd=place.project, input=patch.stdout, text=True, capture_output=True, check=False
    )
    assert applied.returncode == 0, (applied.stderr, patch.stdout)
    assert (place.project / ".mudroom/policy.yaml").read_text().endswith("include:\n  - learned.yaml\n")
    assert cli("policy", "trust", "--yes").returncode == 0
    assert cli("policy", "check").returncode == 0
    for fork, code in (("a", 0), ("b", 1)):
        again = cli("exec", "--fork", fork, "--", f"unheard-of-{code}")
        assert (again.returncode, "approval" in again.stderr) == (127, False), again.stderr
    more = cli("policy", "learn", "--diff").stdout
    assert more.startswith("--- a/.mudroom/learned.yaml\n+++ b/.mudroom/learned.yaml\n")
    assert "unheard-of-2" in more
    assert ".mudroom/policy.yaml" not in more, "it is included already"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learn", "a", "nowhere"], "there is no fork named nowhere"),
        (["show", "x"], "mudroom policy show takes no 'x'"),
        (["why", "ptrace", "x"], "mudroom policy why takes no 'x'"),
        (["check", "--diff"], "mudroom policy check takes no '--diff'"),
    ],
)
def test_bad_input_is_one_line(place: Place, words: list[str], message: str) -> None:
    cli = Cli(place)
    assert cli("exec", "--fork", "a", "--", "true").returncode == 0
    done = cli("policy", *words)
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert done.stderr.startswith(f"mudroom: {message}")


def test_a_policy_that_no_patch_can_name_is_told(place: Place) -> None:
    cli = Cli(place)
    answered(cli, "a")
    place.write(".mudroom/policy.yaml", "{commands: {classes: {unknown: require_approval}}}\n")
    done = cli("policy", "learn", "--diff")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == (
        "mudroom: .mudroom/policy.yaml: it is written in braces (write include: [learned.yaml] into it)\n"
    )


def test_nothing_answered_is_no_patch(place: Place) -> None:
    cli = Cli(place)
    place.write(".mudroom/policy.yaml", "limits: {file_size: 1 MB}\n")
    cli("exec", "--fork", "a", "--", "sh", "-c", "exec head -c 2000000 /dev/zero > big")
    done = cli("policy", "learn", "a", "--diff")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "note: nothing was answered that a rule could say: mudroom policy learn tells the rest\n"
