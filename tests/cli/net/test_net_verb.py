"""``mudroom net`` as a user meets it: rules are written, listed and explained; flows are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.network.flow import Flow, flow_to_json
from mudroom.core.network.preset import PRESETS
from mudroom.policy.config import answers_name_loopback
from screen import BASH, Screen
from test_vault_verb import MUDROOM, Cli

NONE = "note: network.mode is none: commands have no network at all\n"
GATE = "network:\n  mode: gate\n"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write(".git/HEAD", "")
    return Cli(place)


def rules(cli: Cli) -> list[tuple[str, str, list[int], str]]:
    found = cli.json("net", "ls")
    assert found["schema"] == "mudroom.net/1"
    return [(one["action"], one["host"], one["ports"], one["source"]) for one in found["rules"]]


def test_allow_deny_ls_rm(cli: Cli) -> None:
    assert cli("net", "ls").stderr.startswith("no rules: nothing is let through")
    done = cli("net", "allow", "Example.com", "github.com:22", "*.example.org:443,80")
    assert done.stdout.splitlines() == [
        "example.com is allowed on the ports 80 and 443",
        "github.com:22 is allowed",
        "*.example.org:80,443 is allowed",
    ]
    assert cli("net", "allow", "example.com").stdout.endswith("443, as before\n")
    assert cli("net", "deny", "gist.github.com").stdout == "gist.github.com is denied on every port\n"
    assert rules(cli) == [
        ("allow", "example.com", [], "permissions.yaml:4"),
        ("allow", "github.com", [22], "permissions.yaml:5"),
        ("allow", "*.example.org", [80, 443], "permissions.yaml:6"),
        ("deny", "gist.github.com", [], "permissions.yaml:8"),
    ]
    assert cli("net", "deny", "example.com").stdout == "example.com is denied on every port (was allowed)\n"
    assert cli("net", "rm", "github.com:22", "EXAMPLE.com.").stdout.splitlines() == [
        "github.com:22 is no longer allowed",
        "example.com is no longer denied",
    ]
    assert [one[:3] for one in rules(cli)] == [("allow", "*.example.org", [80, 443]), ("deny", "gist.github.com", [])]
    events = [line.split(maxsplit=4)[3:] for line in cli("log").stdout.splitlines()]
    assert events[0] == ["net", "-         allow=example.com, github.com:22, *.example.org:80,443"]
    assert events[-1] == ["net", "-         rm=github.com:22, example.com"]
    assert (cli.place.project / ".mudroom/local/.gitignore").read_text() == "*\n"
    assert cli("net", "ls").stderr == ""
    cli.place.write(".mudroom/policy.yaml", "network: {mode: none}")
    assert cli("net", "ls").stderr == NONE


def test_every_answer_as_json(cli: Cli) -> None:
    row = {
        "action": "allow",
        "host": "db.corp.example",
        "ports": [5432],
        "private": True,
        "source": "",
        "preset": "",
    }
    assert cli.json("net", "allow", "--private", "db.corp.example:5432") == {
        "schema": "mudroom.net/1",
        "rules": [{**row, "there": False, "replaced": []}],
    }
    kept = {**row, "source": "permissions.yaml:4"}
    assert cli.json("net", "ls") == {
        "schema": "mudroom.net/1",
        "mode": "gate",
        "rules": [kept],
        "agents": [],
        "forks": [],
    }
    assert cli.json("net", "rm", "db.corp.example:5432") == {"schema": "mudroom.net/1", "removed": [kept]}
    presets = cli.json("net", "presets")
    assert presets["schema"] == "mudroom.net-presets/1"
    assert {one["name"] for one in presets["presets"]} >= {"npm", "pypi", "crates", "go", "debian", "github"}
    assert not any(one["on"] for one in presets["presets"])


def test_what_is_wrong_is_one_line(cli: Cli) -> None:
    for words, said in (
        (("allow",), "net allow needs a host"),
        (("ls", "example.com"), "net ls takes no host"),
        (("deny", "--private", "a.com"), "--private is for net allow"),
        (("ls", "--denied"), "--denied is for net log"),
        (("allow", "http://a.com/x"), "this is a URL; write the host alone: a.com"),
        (("allow", "127.1"), "127.1 is neither a name nor an address"),
        (("allow", "169.254.169.254"), "the metadata service of a cloud: no rule opens that"),
        (("deny", "a.com:99999"), "99999 is no port"),
        (("allow", "b\u00fccher.example"), "written as xn--\u2026 (that would be xn--bcher-kva.example)"),
        (("rm", "a b"), "' ' is not for names"),
        (("rm", "a.com"), "a.com was neither allowed nor denied here (mudroom net ls lists all rules)"),
        (("alow", "a.com"), "net has no action 'alow' (did you mean mudroom net allow?"),
        (("allow", "--privat", "a.com"), "net has no option --privat (did you mean --private?"),
        (("credential", "T", "a.com", "--fore=allow"), "net has no option --fore ("),
    ):
        done = cli("net", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
        assert said in done.stderr
    assert not (cli.place.project / ".mudroom").exists()


def test_where_else_a_rule_is(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + "  allow: [a.com]\n")
    assert "(policy.yaml:3 has a.com)" in cli("net", "rm", "a.com").stderr
    cli("net", "allow", "b.com:22")
    assert "(permissions.yaml:4 has b.com:22)" in cli("net", "rm", "b.com").stderr


NPM = "registry.npmjs.org, registry.yarnpkg.com, nodejs.org"


def test_a_preset_is_a_word(cli: Cli) -> None:
    path = cli.place.project / ".mudroom/local/permissions.yaml"
    assert cli("net", "allow", "@npm", "a.com").stdout == (
        f"@npm is allowed: {NPM}\na.com is allowed on the ports 80 and 443\n"
    )
    assert '  - "@npm"  #' in path.read_text(), "the word is kept: it follows the table of a later version"
    assert cli("net", "allow", "@npm").stdout == f"@npm is allowed, as before: {NPM}\n"
    listed = cli("net", "ls")
    assert [line.split(maxsplit=3) for line in listed.stdout.splitlines()] == [
        ["allow", "@npm", "permissions.yaml:4", NPM],
        ["allow", "a.com", "permissions.yaml:5"],
    ]
    assert [(row["host"], row["preset"]) for row in cli.json("net", "ls")["rules"]] == [
        *((host, "npm") for host in NPM.split(", ")),
        ("a.com", ""),
    ]
    assert [one["name"] for one in cli.json("net", "presets")["presets"] if one["on"]] == ["npm"]
    assert any(line.startswith("on @npm ") for line in cli("net", "presets").stdout.splitlines())
    why = cli("net", "why", "@npm", "registry.npmjs.org")
    assert why.returncode == 0
    assert why.stdout.splitlines()[-1] == (
        "registry.npmjs.org:443: allow: permissions.yaml:4 @npm: registry.npmjs.org allows it, if its address is public"
    )
    assert "mudroom net rm @npm" in cli("net", "rm", "nodejs.org").stderr
    assert cli("net", "deny", "@npm").stdout == f"@npm is denied (was allowed): {NPM}\n"
    assert cli("net", "why", "registry.npmjs.org:8080").returncode == 1
    assert "deny" in cli("net", "why", "registry.npmjs.org:8080").stdout, "on every port"
    assert cli("net", "rm", "@npm").stdout == "@npm is no longer denied\n"
    assert "npm" not in path.read_text()
    events = [line.split(maxsplit=4)[4] for line in cli("log").stdout.splitlines()]
    assert (events[0].split()[-2:], events[-1].split()[-1]) == (["allow=@npm,", "a.com"], "rm=@npm")


def test_a_word_that_a_project_brings_needs_trust(cli: Cli) -> None:
    """Its answers file may have come with a clone; the word of a policy is trusted as a word."""
    del cli.environment["MUDROOM_TRUST_POLICY"]
    path = cli.place.write(".mudroom/local/permissions.yaml", 'allow:\n  - "@npm"\n', mode=0o600)
    path.parent.chmod(0o700)
    cli.place.write(".mudroom/policy.yaml", 'network:\n  allow: ["@pypi"]\n  deny: ["@github"]\n')
    listed = cli("net", "ls")
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [["deny", "@github"]]
    assert "network.allow: @pypi (mudroom policy trust shows all and asks)" in listed.stderr
    assert cli("policy", "trust", "--yes").returncode == 0
    listed = cli("net", "ls")
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [
        ["allow", "@pypi"],
        ["deny", "@github"],
        ["allow", "@npm"],
    ]
    assert listed.stderr == ""


def test_a_word_in_a_policy_stands_in_quotes(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "network:\n  allow: [@npm]\n")
    done = cli("net", "ls")
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert done.stderr.endswith('(to YAML an @ begins no text; put a preset in quotes: "@npm")\n')


def test_a_bare_word_that_is_a_preset_is_asked_about(cli: Cli) -> None:
    for action in ("allow", "deny"):
        done = cli("net", action, "jsr")
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr == (
            "mudroom: jsr is a preset (jsr.io, npm.jsr.io), and may be a host "
            f"(mudroom net {action} @jsr; the host: mudroom net {action} jsr.)\n"
        )
    assert cli("net", "allow", "jsr.").stdout.startswith("jsr is allowed on the ports"), "the host, as the error says"
    assert cli("net", "rm", "jsr").stdout.startswith("jsr is no longer allowed")
    cli("net", "allow", "@jsr")
    assert cli("net", "rm", "jsr").stderr.endswith("(mudroom net rm @jsr)\n")


@pytest.mark.skipif(not BASH, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "said"),
    [("p", "@jsr is allowed: jsr.io"), ("x\nh", "jsr is allowed on the ports"), ("\x04", "is a preset")],
)
def test_the_question_about_a_bare_word(cli: Cli, typed: str, said: str) -> None:
    screen = Screen(cli.place, *MUDROOM, "net", "allow", "jsr", columns=200)
    screen.expect(r"jsr: the preset \(jsr.io, npm.jsr.io\), or a host of that name\?.*\[p\]reset  \[h\]ost: ")
    screen.type(typed if typed == "\x04" else typed + "\n")
    screen.expect(said)
    assert screen.exit_code() == (125 if typed == "\x04" else 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("allow", "@nmp"), "there is no preset @nmp (mudroom net allow @npm)"),
        (("deny", "@pip"), "there is no preset @pip (mudroom net deny @pypi"),
        (("allow", "@apt"), "there is no preset @apt (mudroom net allow @debian @ubuntu)"),
        (("rm", "@NPM"), "there is no preset @NPM (mudroom net rm @npm)"),
        (("why", "@carg"), "there is no preset @carg (mudroom net "),
        (("allow", "@npm:443"), "@npm:443: a preset names its ports itself (mudroom net allow @npm)"),
        (("allow", "@qqqqqq"), "there is no preset @qqqqqq (mudroom net presets lists them)"),
        (("allow", "@"), "there is no preset @ (mudroom net presets lists them)"),
    ],
)
def test_a_word_that_is_none(cli: Cli, words: tuple[str, ...], said: str) -> None:
    done = cli("net", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert said in done.stderr


def test_a_policy_overrides_a_preset_and_it_is_said(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + "  deny: [nodejs.org]\n")
    done = cli("net", "allow", "@npm")
    assert done.returncode == 0
    assert done.stderr == "note: nodejs.org, port 443 all the same: policy.yaml:3: nodejs.org denies it\n"


def test_a_policy_overrides_an_answer_and_it_is_said(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + '  deny: ["*.evil.example"]\n')
    done = cli("net", "allow", "a.evil.example:8443")
    assert done.returncode == 0
    assert done.stderr == "note: port 8443 all the same: policy.yaml:3: *.evil.example denies it\n"


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("a.com", 0, "a.com:443: allow: policy.yaml:4: a.com allows it"),
        ("A.com.:80", 0, "a.com:80: allow: policy.yaml:4: a.com allows it"),
        ("a.com:22", 1, "a.com:22: ask: no rule names port 22 of it; policy.yaml:4: a.com is for other ports"),
        ("registry.npmjs.org", 0, "registry.npmjs.org:443: allow: policy.yaml:3 @npm: registry.npmjs.org allows it"),
        ("www.bad.com", 1, "www.bad.com:443: deny: policy.yaml:5: **.bad.com denies it"),
        ("b.com", 1, "b.com:443: ask: no rule names it"),
        ("c.com", 1, "c.com:443: ask: policy.yaml:6: c.com wants it asked about"),
        ("169.254.169.254", 1, "169.254.169.254:443: deny: the metadata service of a cloud"),
        (
            "::1",
            1,
            "[::1]:443: deny: no rule names this port of this machine; to allow it: mudroom net allow '[::1]:443'",
        ),
        ("[::ffff:127.0.0.1]:80", 1, "127.0.0.1:80: deny: no rule names this port of this machine"),
    ],
)
def test_why(cli: Cli, asked: str, code: int, said: str) -> None:
    cli.place.write(
        ".mudroom/policy.yaml",
        GATE + '  presets: [npm]\n  allow: [a.com]\n  deny: ["**.bad.com"]\n  ask: [c.com]\n',
    )
    done = cli("net", "why", asked)
    assert said in done.stdout, done
    assert (done.returncode, done.stderr) == (code, "")
    found = cli.json("net", "why", asked, code=code)
    assert (found["schema"], found["mode"]) == ("mudroom.net-why/1", "gate")
    assert (found["answers"][0]["action"] == "allow") is (code == 0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "0x7f.1",
            "0x7f.1 is neither a name nor an address in its usual form: names do not end in a number",
        ),
        ("a.com..", "a.com..: a part of a name is empty"),
        ("a.com:x", "x is no port (1 to 65535)"),
        ("https://u:hunter2@a.com/", "this is a URL; ask about a.com"),
    ],
)
def test_why_of_what_is_no_host_is_an_error_as_of_allow(cli: Cli, asked: str, said: str) -> None:
    done = cli("net", "why", "b.com", asked)
    assert (done.returncode, done.stdout, done.stderr) == (125, "", f"mudroom: {said} (mudroom net why HOST[:PORT])\n")
    assert cli("net", "allow", asked).returncode == 125


def test_several_at_once_and_the_mode(cli: Cli) -> None:
    cli("net", "allow", "a.com")
    done = cli("net", "why", "a.com", "b.com")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (1, 2, "")
    cli.place.write(".mudroom/policy.yaml", "network: {mode: none}")
    assert cli("net", "why", "a.com").stderr == NONE
    cli.place.write(".mudroom/policy.yaml", "network: {mode: open}")
    assert "the host's network, whatever rules say" in cli("net", "why", "a.com").stderr


def test_a_broken_file_is_an_error_everywhere(cli: Cli) -> None:
    path = cli.place.write(".mudroom/local/permissions.yaml", "allow:\n  - a.com\n  - http://x/\n", mode=0o600)
    path.parent.chmod(0o700)
    for words in (("ls",), ("why", "a.com"), ("allow", "b.com"), ("deny", "b.com"), ("rm", "a.com")):
        done = cli("net", *words)
        said = f"mudroom: {path}:3: allow: this is a URL; write the host alone: x\n"
        assert (done.returncode, done.stdout, done.stderr) == (125, "", said)
    assert path.read_text() == "allow:\n  - a.com\n  - http://x/\n"


def test_a_command_reads_the_rules_and_cannot_change_them(cli: Cli) -> None:
    cli("net", "allow", "a.com")
    path = cli.place.project / ".mudroom/local/permissions.yaml"
    before = path.read_bytes()
    script = (
        "cat .mudroom/local/permissions.yaml;"
        "for name in permissions.yaml new; do echo evil.example > .mudroom/local/$name; done;"
        "rm -rf .mudroom; mv .mudroom x; ln -sf /tmp .mudroom/local; chmod 777 .mudroom/local;"
        "echo z > .mudroom/policy.yaml; true"
    )
    done = cli("run", "--yes", "--json", "--", "sh", "-c", script)
    result = json.loads(done.stdout)
    assert "a.com" in result["stdout"]
    assert (path.read_bytes(), result["changes"]["files"]) == (before, [])
    assert rules(cli) == [("allow", "a.com", [], "permissions.yaml:4")]


def test_rules_that_a_command_makes_up_are_not_applied(cli: Cli) -> None:
    """In a project without a ``.mudroom`` a command can make one in its fork; it stays there."""
    script = (
        "umask 077; mkdir -p .mudroom/local && echo 'allow: [evil.example]' > .mudroom/local/permissions.yaml; touch x"
    )
    assert cli("run", "--yes", "--", "sh", "-c", script).returncode in (0, 3)
    assert (cli.place.project / "x").exists()
    assert not (cli.place.project / ".mudroom").exists()
    assert rules(cli) == []


# --- the log ---

FLOW = Flow(1_700_000_000 * 10**9, "connect", "a.com", 443, "allow", "policy.yaml:3", "policy.yaml:3: a.com allows it")
DENIED = FLOW._replace(host="evil.example", verdict="deny", rule="", reason="no rule names it")


def journal(cli: Cli, *flows: tuple[str, Flow]) -> None:
    session = cli.place.session()
    for fork, flow in flows:
        session.vault.journal.append("run", fork, {"command": ["true"]}, time=1)
        session.vault.journal.append("flow", fork, flow_to_json(flow), time=flow.started)


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_log(cli: Cli) -> None:
    assert cli("net", "log").stderr == "no command has wanted anything of the network yet\n"
    request = FLOW._replace(way="http", port=80, method="GET", path="/x?token=hunter2", status=200, received=1200)
    strange = DENIED._replace(host="a\x1b[31m", reason="a control character is not for names")
    journal(cli, ("a", FLOW), ("b", request), ("a", DENIED), ("b", strange))
    lines = cli("net", "log").stdout.splitlines()
    assert [line.split()[:2] + line.split()[4:7] for line in lines] == [
        ["2", "a", "allow", "connect", "a.com:443"],
        ["4", "b", "allow", "http", "a.com:80"],
        ["6", "a", "deny", "connect", "evil.example:443"],
        ["8", "b", "deny", "connect", "a\\x1b[31m:443"],
    ]
    assert "GET /x?… 200  0 B out, 1,200 B in" in lines[1]
    assert lines[2].endswith("no rule names it")
    assert [row["host"] for row in rows(cli("net", "log", "--json", "--fork", "a"))] == ["a.com", "evil.example"]
    assert [row["number"] for row in rows(cli("net", "log", "--json", "--denied"))] == [6, 8]
    assert [row["number"] for row in rows(cli("net", "log", "--json", "-n", "1"))] == [8]
    assert set(rows(cli("net", "log", "--json"))[0]) == {"number", "fork", *Flow._fields}


def test_repeats_are_told_with_their_number(cli: Cli) -> None:
    journal(cli, ("a", DENIED._replace(repeats=9_999, seconds=150.2)))
    assert cli("net", "log").stdout.endswith("no rule names it  10,000 times in 150 s\n")
    assert rows(cli("net", "log", "--json"))[0]["repeats"] == 9_999


def test_the_journal_tells_flows_in_the_same_words(cli: Cli) -> None:
    journal(cli, ("a", DENIED._replace(way="dns", port=0)))
    cli.place.session().vault.journal.append("flow", "a", {"way": "pigeon"}, time=DENIED.started)
    lines = cli("log").stdout.splitlines()
    assert lines[1].split(maxsplit=4)[3:] == ["flow", "a         deny   dns  evil.example  no rule names it"]
    assert lines[2].endswith("unreadable: a flow without started")


GET = """
import urllib.request, urllib.error
for url in (
    "http://user:hunter2@a.example/", "http://10.0.0.1/x?k=hunter2", "http://a.example/", "http://0x7f.1/?k=hunter2"
):
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_what_a_command_could_not_reach(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + "  deny: [a.example]\n")
    done = cli("exec", "--fork", "f", "--", sys.executable, "-c", GET)
    assert done.stdout.split() == ["400", "403", "403", "400"], done
    flows = [row for row in rows(cli("net", "log", "--json", "--denied")) if row["way"] == "http"]
    assert {(row["fork"], row["verdict"]) for row in flows} == {("f", "deny")}
    said = {row["host"]: row["reason"] for row in flows}
    assert said["a.example"] == "policy.yaml:3: a.example denies it"
    assert said["10.0.0.1"].startswith("a private address")
    assert "hunter2" not in json.dumps(flows)


def test_a_flow_that_nobody_can_read_is_told(cli: Cli) -> None:
    cli.place.session().vault.journal.append("flow", "a", {"way": "pigeon"}, time=1)
    assert cli("net", "log").stdout.endswith("unreadable: a flow without started\n")
    assert rows(cli("net", "log", "--json"))[0]["error"] == "a flow without started"
    assert cli("net", "log", "--denied").stdout != ""


def test_follow(cli: Cli) -> None:
    journal(cli, ("a", FLOW))
    command = [*MUDROOM, "net", "log", "--follow", "--json", "--denied"]
    with subprocess.Popen(
        command, cwd=cli.place.project, env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        journal(cli, ("a", FLOW), ("b", DENIED))
        first = json.loads(process.stdout.readline())
        assert (first["fork"], first["host"]) == ("b", "evil.example")
        journal(cli, ("c", DENIED))
        assert json.loads(process.stdout.readline())["fork"] == "c"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_only_the_modules_that_are_needed(cli: Cli) -> None:
    """``net ls`` without a policy reads no YAML, and nothing but a change loads what changes files."""
    program = (
        "import sys, os; from mudroom.cli.main import run; run(['net', 'ls'], os.environb);"
        "print(*sorted({'yaml', 'mudroom.policy.edit_yaml', 'difflib', 'asyncio'} & set(sys.modules)))"
    )
    environment = {**cli.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=cli.place.project, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("source", ["file:/nowhere/at/all", "env:NOT_SET_ANYWHERE"])
def test_a_credential_that_cannot_be_read_is_said_when_it_is_set(cli: Cli, source: str) -> None:
    done = cli("net", "credential", "TOK", "api.example", "--from", source)
    assert done.returncode == 0
    assert "no command runs as long as this is so: the credential TOK: " in done.stderr
    refused = cli("run", "--", "true")
    assert refused.returncode == 125
    for told in (done.stderr, refused.stderr):
        assert "mudroom net credential --remove TOK does without it" in told
    assert cli("net", "credential", "--remove", "TOK").returncode == 0
    assert cli("run", "--", "true").returncode == 0


def test_how_foreign_credentials_are_treated_is_set_without_the_rest(cli: Cli) -> None:
    """The command of the hint that a refused request gets."""
    cli("net", "credential", "TOK", "api.example:8443", "--header", "x-api-key", "--from", "env:HOME")
    before = cli.json("net", "credential")["credentials"]
    assert before[0]["foreign"] == "refuse"
    assert cli("net", "credential", "TOK", "--foreign", "strip").returncode == 0
    assert cli.json("net", "credential")["credentials"] == [before[0] | {"foreign": "strip"}]
    for words in (("NONE", "--foreign", "strip"), ("TOK",), ("TOK", "--foreign", "strip", "--header", "x")):
        assert cli("net", "credential", *words).returncode == 125, words


def test_a_credential_for_a_host_that_is_never_inspected_is_said_to_be_of_no_use(cli: Cli) -> None:
    (cli.place.project / ".mudroom").mkdir()
    (cli.place.project / ".mudroom/policy.yaml").write_text("network:\n  never_inspect: [api.example]\n")
    cli("policy", "trust", "--yes")
    assert "network.never_inspect excludes it" in cli("net", "credential", "TOK", "api.example").stderr
    assert "never_inspect" not in cli("net", "credential", "TOK", "other.example").stderr


def test_presets_and_rules_say_what_hosts_take(cli: Cli) -> None:
    said = cli("net", "presets").stdout
    assert "registry.npmjs.org: it takes packages of any account" in said
    npm = next(row for row in cli.json("net", "presets")["presets"] if row["name"] == "npm")
    assert npm["uploads"] == dict.fromkeys(("registry.npmjs.org", "registry.yarnpkg.com"), "packages of any account")
    (cli.place.project / ".mudroom").mkdir()
    (cli.place.project / ".mudroom/policy.yaml").write_text(
        "network:\n  inspect:\n    - {host: registry.npmjs.org, only: true, methods: [GET], foreign: refuse}\n"
    )
    cli("policy", "trust", "--yes")
    assert "only GET  all else denied  foreign credentials: refuse" in cli("net", "ls").stdout


ASK = """import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as client: print(client.recv(9).decode())
"""


@pytest.mark.parametrize(
    ("policy", "allow"),
    [
        ("", "127.0.0.1:{port}"),
        ("", "localhost:{port}"),
        (GATE + "  allow: [localhost:{port}]\n", ""),
        (GATE + "  private: ['127.0.0.1:{port}']\n", ""),
    ],
    ids=["answer", "localhost", "policy", "policy, private"],
)
def test_a_server_on_this_machine_is_reached_once_a_rule_names_it(cli: Cli, policy: str, allow: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        run = ("run", "--yes", "--", sys.executable, "-c", ASK, str(port))
        refused = cli(*run)
        assert (refused.returncode, "ConnectionRefusedError" in refused.stderr) == (1, True), refused
        assert cli("net", "why", f"127.0.0.1:{port}").stdout.endswith(
            f"to allow it: mudroom net allow 127.0.0.1:{port}\n"
        )
        if policy:
            cli.place.write(".mudroom/policy.yaml", policy.format(port=port))
        else:
            said = cli("net", "allow", allow.format(port=port)).stderr
            assert said.startswith(f"note: commands reach it at 127.0.0.1:{port}")
            assert said.endswith("; a server of their own cannot listen there\n")
        assert cli("net", "why", f"127.0.0.1:{port}").returncode == 0
        done = cli(*run)
        assert (done.returncode, done.stdout) == (0, "hello\n"), done
        server.shutdown(socket.SHUT_RDWR)


def _greet(server: socket.socket) -> None:
    while True:
        try:
            client, _where = server.accept()
        except OSError:
            return
        with client:
            client.sendall(b"hello")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, False),
        ("allow:\n  - registry.npmjs.org  # 2026-11-27\n", False),
        ("allow:\n  - '127.0.0.1:8377'\n", True),
        ('allow:\n  - "@npm"\n', False),
        *(
            (f'allow:\n  - "@{name}"\n', True)
            for name, preset in PRESETS.items()
            if preset.hosts[0].startswith("localhost")
        ),
        ("private:\n  - localhost:8377\n", True),
        ("allow: ['[::1]:8377']\n", True),
    ],
)
def test_answers_are_searched_for_loopback(tmp_path: Path, content: str | None, expected: bool) -> None:
    (tmp_path / ".mudroom/local").mkdir(parents=True)
    if content is not None:
        (tmp_path / ".mudroom/local/permissions.yaml").write_text(content)
    assert answers_name_loopback(os.fsencode(tmp_path)) is expected


@pytest.mark.parametrize("odd", ["link", "fifo", "directory"])
def test_odd_answers_are_not_searched(tmp_path: Path, odd: str) -> None:
    place = tmp_path / ".mudroom/local/permissions.yaml"
    place.parent.mkdir(parents=True)
    if odd == "link":
        (tmp_path / "other").write_text("localhost")
        place.symlink_to(tmp_path / "other")
    elif odd == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert not answers_name_loopback(os.fsencode(tmp_path))


def test_why_a_fork_reaches_another(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "network:\n  agents: [planner -> coder, tester -> coder:8080]\n")
    assert cli("policy", "trust", "--yes").returncode == 0
    answers = {
        "coder.mudroom.internal": "coder.mudroom.internal:80: allow: from the fork planner, by network.agents\n",
        "coder.mudroom.internal:8080": "coder.mudroom.internal:8080: allow: from the fork tester, by network.agents\n",
        "coder.mudroom.internal:9": "coder.mudroom.internal:9: deny: network.agents opens port 80, 8080 of it\n",
        "planner.mudroom.internal:80": "planner.mudroom.internal:80: deny: the policy lets no fork reach it; "
        "mudroom net why planner.mudroom.internal:80 --fork NAME asks for one\n",
    }
    for host, answer in answers.items():
        done = cli("net", "why", host)
        assert (done.stdout, done.returncode) == (answer, 0 if ": allow:" in answer else 1), done.stderr
    assert "allow  planner -> coder" in cli("net", "ls").stdout
    cli.place.write(".mudroom/policy.yaml", "network:\n  agents: [planner => coder]\n")
    done = cli("net", "ls")
    assert (done.returncode, "'planner => coder' is not a link between two forks" in done.stderr) == (125, True)
    assert len(done.stderr.splitlines()) == 1


def test_the_consent_of_two_forks(cli: Cli) -> None:
    for name in ("planner", "coder", "Old_1"):
        assert cli("fork", "new", name).returncode == 0
    host = "coder.mudroom.internal:8000"
    why = cli("net", "why", host, "--fork", "planner")
    assert (why.returncode, why.stdout) == (
        1,
        f"{host}: deny: planner may not reach coder:8000 (mudroom net reach coder:8000 --fork planner); "
        "coder does not show port 8000 (mudroom net show 8000 --fork coder)\n",
    )
    reached = cli("net", "reach", "coder:8000", "--fork", "planner")
    assert reached.stdout == "planner may reach coder.mudroom.internal:8000\n"
    assert "not yet: coder does not show port 8000 (mudroom net show 8000 --fork coder)" in reached.stderr
    shown = cli.json("net", "show", "8000", "8001/http", "--fork", "coder")
    assert shown == {"schema": "mudroom.net-fork/1", "fork": "coder", "grants": ["show 8000", "show 8001/http"]}
    why = cli("net", "why", host, "--fork", "planner")
    assert (why.returncode, why.stdout) == (0, f"{host}: allow: net reach coder:8000 and net show 8000 allow it\n")
    assert cli.json("net", "ls")["forks"] == [
        {"fork": "planner", "reach": "coder:8000"},
        {"fork": "coder", "show": "8000"},
        {"fork": "coder", "show": "8001/http"},
    ]
    why = cli("net", "why", "old-1.mudroom.internal:9", "--fork", "planner")
    assert "(mudroom net show 9 --fork Old_1)" in why.stdout, "by the name that commands take"
    assert cli("net", "rm", "8000", "8001", "--fork", "coder").returncode == 0
    assert cli("net", "rm", "coder:8000", "--fork", "planner").stdout == (
        "reach coder:8000 is taken back from the fork planner\n"
    )
    assert cli.json("net", "ls")["forks"] == []


SAME = "have the same name twin for each other, so none has it"
BOTH = "forks reach each other with the consent of both"


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        ("show 8000", "for which fork?", "--fork NAME"),
        ("show coder:8000 --fork coder", "net show takes ports: coder:8000", "mudroom net show 8000 --fork coder"),
        ("reach nobody:8000 --fork coder", "there is no fork named nobody", "mudroom ls"),
        ("reach co*:8000 --fork coder", "net reach is for one fork: co*:8000", "forks: {reach:"),
        ("reach coder@x:8000 --fork planner", "the fork coder is not the workspace of x", ""),
        ("show 8000 --fork twin", f"the forks TWIN and twin {SAME}", "mudroom fork rename TWIN NEW-NAME"),
        ("rm 8000 --fork coder", "8000 was not granted to the fork coder", "mudroom net ls"),
        (
            "allow coder.mudroom.internal:8000",
            f"no host rule opens coder.mudroom.internal: {BOTH}",
            "net reach coder:8000",
        ),
        ("allow *.mudroom.internal", "no host rule opens", "net reach FORK:8000"),
    ],
)
def test_bad_input_about_forks(cli: Cli, words: str, problem: str, hint: str) -> None:
    with cli.place.session() as session:
        for name in ("planner", "coder", "twin", "TWIN"):
            session.forks.new(name)
    done = cli("net", *words.split())
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (125, "", 1), done
    assert problem in done.stderr and hint in done.stderr, done.stderr


def test_the_log_of_a_fork_has_the_connections_that_lead_to_it(cli: Cli) -> None:
    flow = FLOW._replace(host="old-1.mudroom.internal", port=8000, address="fork old-1")
    journal(cli, ("planner", flow), ("planner", FLOW), ("Old_1", FLOW))
    lines = cli("net", "log", "--fork", "Old_1").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["Old_1", "Old_1"]
    assert "from fork planner  " in lines[0] and "from fork" not in lines[1]
    told = rows(cli("net", "log", "--fork", "Old_1", "--json"))
    assert [(row["fork"], row.get("from")) for row in told] == [("planner", "planner"), ("Old_1", None)]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8443", "localhost:8443"])
def test_a_credential_for_localhost_is_refused_with_the_one_that_is_used(cli: Cli, host: str) -> None:
    done = cli("net", "credential", "TOK", host, "--from", "env:HOME")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    port = ":8443" if "8443" in host else ""
    assert "a credential for localhost would never be put in: commands reach this machine by its address" in done.stderr
    assert f"mudroom net credential TOK 127.0.0.1{port};" in done.stderr
    assert cli.json("net", "credential")["credentials"] == []
    assert cli("net", "credential", "TOK", f"127.0.0.1{port}", "--from", "env:HOME").returncode == 0


def test_a_credential_for_a_preset_is_refused_with_its_hosts(cli: Cli) -> None:
    done = cli("net", "credential", "TOK", "@npm")
    assert (done.returncode, done.stderr.count("\n")) == (125, 1), done
    assert f"a credential is for one host, and @npm has several: {NPM}" in done.stderr
    assert "(mudroom net credential TOK registry.npmjs.org)" in done.stderr
    assert "there is no preset @npn" in cli("net", "credential", "TOK", "@npn").stderr


def test_a_credential_without_the_libraries_of_inspection_is_refused(cli: Cli) -> None:
    program = (
        "import sys, os; from mudroom.net.inspection import authority; authority.find_spec = lambda _name: None;"
        "from mudroom.cli.main import run;"
        "sys.exit(run(['net', 'credential', 'TOK', 'api.example', '--from', 'env:HOME'], os.environb))"
    )
    environment = {**cli.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=cli.place.project, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    assert "cryptography and h2 not installed" in done.stderr
    assert "pip install 'cryptography>=45' 'h2>=4.3'" in done.stderr
    assert cli.json("net", "credential")["credentials"] == []
    assert cli("run", "--", "true").returncode == 0


def test_a_host_that_is_named_like_a_preset_is_warned_about(cli: Cli) -> None:
    cli.place.write(
        ".mudroom/policy.yaml", 'network:\n  allow: [npm, pypi, "@npm", "go:8080", npm.example]\n  deny: [go]\n'
    )
    said = 'npm is a host here; the preset is "@npm"'
    checked = cli("policy", "check")
    assert checked.returncode == 0
    assert [line for line in checked.stdout.splitlines() if "is a host here" in line] == [
        f"warning: policy.yaml:2: {said}",
        'warning: policy.yaml:2: pypi is a host here; the preset is "@pypi"',
        'warning: policy.yaml:3: go is a host here; the preset is "@go"',
    ]
    alone = cli("policy", "check", ".mudroom/policy.yaml")
    assert f"warning: policy.yaml:2: {said}" in alone.stdout
    listed = cli("net", "ls")
    assert listed.stderr.splitlines()[:2] == [f"note: {said}", 'note: pypi is a host here; the preset is "@pypi"']
    cli.place.write(".mudroom/policy.yaml", 'network:\n  allow: ["@npm"]\n')
    assert "is a host here" not in cli("policy", "check").stdout + cli("net", "ls").stderr


@pytest.mark.parametrize("word", ["@npm", "npm", "NPM"])
def test_one_preset_is_shown_alone(cli: Cli, word: str) -> None:
    done = cli("net", "presets", word)
    assert done.returncode == 0, done
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "@npm",
        "registry.npmjs.org:",
        "registry.yarnpkg.com:",
    ]
    assert done.stderr == "mudroom net allow @npm turns it on for this project, on this machine\n"
    assert [row["name"] for row in cli.json("net", "presets", word)["presets"]] == ["npm"]


def test_a_preset_that_is_not_there_is_not_shown(cli: Cli) -> None:
    assert [row["name"] for row in cli.json("net", "presets", "pypi", "@npm")["presets"]] == ["pypi", "npm"]
    done = cli("net", "presets", "npn")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "mudroom: there is no preset @npn (mudroom net presets @npm)\n"


def test_a_preset_without_its_at_is_not_removed_but_named(cli: Cli) -> None:
    cli("net", "allow", "@npm")
    assert "(mudroom net rm @npm)" in cli("net", "rm", "npm").stderr
    cli("net", "rm", "@npm")
    cli.place.write(".mudroom/policy.yaml", 'network:\n  allow: ["@npm"]\n')
    assert "(policy.yaml:2 has @npm)" in cli("net", "rm", "npm").stderr


def test_an_allow_of_a_name_holds_if_its_address_is_public(cli: Cli) -> None:
    cli("net", "allow", "a.com", "8.8.8.8", "localhost:8080")
    cli("net", "allow", "--private", "db.example")
    said = cli("net", "why", "a.com", "8.8.8.8", "db.example", "localhost:8080", "b.com").stdout.splitlines()
    assert [line.endswith(", if its address is public") for line in said] == [True, False, False, False, False], said


SERVER = """
import socket
with socket.create_server(("127.0.0.1", 3000)) as server:
    while True:
        taken, _address = server.accept()
        with taken:
            taken.sendall(b"served")
"""
ASK = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20); print(c.recv(9).decode())"


@pytest.mark.both_users
def test_a_port_that_is_opened_is_for_this_user(cli: Cli) -> None:
    """Every user of a machine reaches its loopback: another one gets nothing, and it is counted."""
    done = cli("exec", "--json", "--background", "--fork", "f", "--", sys.executable, "-I", "-c", SERVER)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    while 3000 not in (cli.json("ps")["commands"] or [{"ports": []}])[0]["ports"]:
        assert cli.json("ps")["commands"], cli("ps", "--output", row["id"]).stderr
    with subprocess.Popen(
        [*MUDROOM, "net", "open", "3000", "--as", "0", "--json"],
        cwd=cli.place.project, env=cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as opening:  # fmt: skip
        assert opening.stdout is not None and opening.stderr is not None
        port = json.loads(opening.stdout.readline())["port"]

        def ask(**who: Any) -> str:
            words = [sys.executable, "-I", "-c", ASK, str(port)]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30, **who)
            return str(done.stdout.strip())

        assert ask() == "served"
        if os.geteuid() == 0:
            assert ask(user=65534, group=65534, extra_groups=[]) == ""
            assert "a connection of the user 65534 was refused (--all-users" in opening.stderr.readline()
        opening.send_signal(signal.SIGINT)
        assert opening.wait(20) == 0
    second = cli("exec", "--background", "--fork", "g", "--", "sleep", "1000")
    told = "mudroom: commands are running in several forks: f, g (--fork f names one)\n"
    assert cli("net", "open", "3000").stderr == told
    assert cli("ps", "--end", second.stdout.strip()).returncode == 0
    refused = [line for line in cli("log", "--last", "0").stdout.splitlines() if "refused=1" in line]
    assert len(refused) == (1 if os.geteuid() == 0 else 0), refused
    assert cli("net", "ls", "--all-users").returncode == 125
    assert cli("ps", "--end", row["id"]).returncode == 0
