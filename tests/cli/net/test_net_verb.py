"""``mudroom net`` as a user meets it: rules are written, listed and explained; flows are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from net_cli import GATE, cli
from satellites import needs
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture

NONE = "note: network.mode is none: commands have no network at all\n"


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
    assert not (cli.place.project / ".mudroom").exists()
    assert cli("net", "ls").stderr == ""
    cli.place.write(".mudroom/policy.yaml", "network: {mode: none}")
    assert cli("net", "ls").stderr == NONE


def test_an_answer_says_that_private_addresses_are_open(cli: Cli) -> None:
    assert cli("net", "allow", "db.example").stdout == "db.example is allowed on the ports 80 and 443\n"
    ports = "db.example is allowed on the ports 80 and 443"
    assert cli("net", "allow", "--private", "db.example").stdout == f"{ports}, private addresses too (was allowed)\n"
    assert cli("net", "allow", "db.example").stdout == f"{ports} (was allowed, private addresses too)\n"
    assert cli("net", "allow", "--private", "localhost:5432").stdout == "localhost:5432 is allowed\n"
    was = cli("net", "allow", "@npm"), cli("net", "allow", "--private", "@npm")
    assert was[1].stdout.startswith("@npm is allowed, private addresses too (was allowed): registry.npmjs.org")
    assert cli("net", "rm", "@npm").stdout == "@npm is no longer allowed\n"


def test_every_answer_as_json(cli: Cli) -> None:
    row = {"action": "allow", "host": "db.corp.example", "ports": [5432], "private": True, "source": "", "preset": ""}
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


def test_a_policy_overrides_an_answer_and_it_is_said(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + '  deny: ["*.evil.example"]\n')
    done = cli("net", "allow", "a.evil.example:8443")
    assert done.returncode == 0
    assert done.stderr == "note: port 8443 all the same: policy.yaml:3: *.evil.example denies it\n"


def test_why(cli: Cli) -> None:
    cli.place.write(
        ".mudroom/policy.yaml", GATE + '  presets: [npm]\n  allow: [a.com]\n  deny: ["**.bad.com"]\n  ask: [c.com]\n'
    )
    for asked, code, said in (
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
    ):
        done = cli("net", "why", asked)
        assert said in done.stdout, done
        assert (done.returncode, done.stderr) == (code, ""), asked
        found = cli.json("net", "why", asked, code=code)
        assert (found["schema"], found["mode"]) == ("mudroom.net-why/1", "gate")
        assert (found["answers"][0]["action"] == "allow") is (code == 0), asked


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("0x7f.1", "0x7f.1 is neither a name nor an address in its usual form: names do not end in a number"),
        ("a.com..", "a.com..: a part of a name is empty"),
        ("a.com:x", "x is no port (1 to 65535)"),
        ("https://u:hunter2@a.com/", "this is a URL; ask about a.com"),
        ("http://", "this is a URL; ask about example.com"),
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
    file = cli.place.answers / "permissions.yaml"
    own = cli.place.write(".mudroom/local/permissions.yaml", file.read_text(), mode=0o600)
    own.parent.chmod(0o700)
    before = own.read_bytes()
    script = (
        f"cat .mudroom/local/permissions.yaml; cat {file}; echo evil.example > {file};"
        "for name in permissions.yaml new; do echo evil.example > .mudroom/local/$name; done;"
        "rm -rf .mudroom; mv .mudroom x; ln -sf /tmp .mudroom/local; chmod 777 .mudroom/local;"
        "echo z > .mudroom/policy.yaml; true"
    )
    done = cli("run", "--yes", "--json", "--", "sh", "-c", script)
    result = json.loads(done.stdout)
    assert "a.com" in result["stdout"]
    assert result["stdout"].count("a.com") == 1
    assert (own.read_bytes(), file.read_bytes(), result["changes"]["files"]) == (before, before, [])
    assert rules(cli) == [("allow", "a.com", [], "permissions.yaml:4")] * 2


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


@needs("effects")
def test_a_hold_says_what_waits_and_what_is_refused(cli: Cli) -> None:
    refused = "wait for the apply, all other changes there are refused"
    ports = "is held on the ports 80 and 443"
    assert cli("net", "hold", "github.com").stdout == f"github.com {ports}; pushes, publishes {refused}\n"
    assert cli("net", "hold", "@npm").stdout.endswith(f"nodejs.org; pushes, publishes {refused}\n")
    done = cli("net", "hold", "a.example:8443", "put", "POST=Idempotency-Key", "b.example DELETE")
    assert done.stdout.splitlines() == [
        "a.example:8443 POST=Idempotency-Key PUT is held; pushes, publishes, mail, POST with Idempotency-Key, PUT "
        + refused,
        f"b.example DELETE {ports}; pushes, publishes, DELETE {refused}",
    ]
    assert cli("net", "hold", "b.example").stdout.startswith(f"b.example {ports} (was held); ")
    (row,) = [row for row in cli.json("net", "ls")["rules"] if row["host"] == "a.example"]
    assert (row["action"], row["hold"], row["requests"]) == ("allow", True, ["POST=Idempotency-Key", "PUT"])
    assert "held: pushes, publishes, mail, POST with Idempotency-Key, PUT" in cli("net", "ls").stdout
    assert (
        "a.example:8443 POST=Idempotency-Key PUT allows reading, holds pushes, publishes, mail, POST with "
        "Idempotency-Key, PUT until the apply, and refuses other changes"
    ) in " ".join(cli("net", "why", "a.example:8443").stdout.split())
    assert cli("net", "rm", "a.example:8443").stdout == "a.example:8443 POST=Idempotency-Key PUT is no longer held\n"
    wrong = cli("net", "hold", "'*.example'", "PUT"), cli("net", "hold", "a.example POST")
    assert [done.returncode for done in wrong] == [125, 125]
    assert "POST cannot be held; PUT, PATCH, DELETE, POST=Idempotency-Key (a header) or POST=.id can" in wrong[1].stderr


@pytest.mark.parametrize("words", [("allow", "new.example.org"), ("rm", "old.example.org")])
def test_no_rule_changes_if_the_change_cannot_be_recorded(cli: Cli, words: tuple[str, str]) -> None:
    cli("net", "allow", "old.example.org")
    before = cli.json("net", "ls")
    (written,) = Path(cli.environment["MUDROOM_STATE"]).glob("vaults/*/format")
    kept = written.read_bytes()
    written.write_text("3 9.9.9\n")
    done = cli("net", *words)
    assert (done.returncode, done.stdout) == (125, "") and "was made by mudroom 9.9.9" in done.stderr
    written.write_bytes(kept)
    assert cli.json("net", "ls") == before
