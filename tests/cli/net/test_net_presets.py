"""``mudroom net`` and presets: words for the hosts of a tool, as they are allowed, shown and asked about."""

from __future__ import annotations

import json

import pytest

from net_cli import GATE, NPM, cli
from screen import BASH, Screen
from test_vault_verb import MUDROOM, Cli

__all__ = ["cli"]  # fixture


def test_a_preset_is_a_word(cli: Cli) -> None:
    path = cli.place.answers / "permissions.yaml"
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
    assert " ".join(why.stdout.split()).endswith(
        "registry.npmjs.org:443: allow: permissions.yaml:4 @npm: registry.npmjs.org allows it, if its address is "
        "public allow: permissions.yaml:4 @npm, for agents: registry.npmjs.org:443 allows reading, holds pushes, "
        "publishes until the apply, and refuses other changes; mudroom net allow registry.npmjs.org:443 lets agents do "
        "all"
    )
    assert "mudroom net rm @npm" in cli("net", "rm", "nodejs.org").stderr
    assert cli("net", "deny", "@npm").stdout == f"@npm is denied (was allowed): {NPM}\n"
    assert cli("net", "why", "registry.npmjs.org:8080").returncode == 1
    assert "deny" in cli("net", "why", "registry.npmjs.org:8080").stdout, "on every port"
    assert cli("net", "rm", "@npm").stdout == "@npm is no longer denied\n"
    assert "npm" not in path.read_text()
    events = [line.split(maxsplit=4)[4] for line in cli("log").stdout.splitlines()]
    assert (events[0].split()[-2:], events[-1].split()[-1]) == (["allow=@npm,", "a.com"], "rm=@npm")


def test_policy_why_tells_what_an_agent_s_publish_waits_for(cli: Cli) -> None:
    cli("net", "allow", "@npm")
    assert cli.json("net", "why", "nodejs.org")["answers"][0]["agents"] == ""
    held = "held: what it pushes or publishes to registry.npmjs.org, registry.yarnpkg.com waits for the apply"
    assert held in " ".join(cli("policy", "why", "--", "npm", "publish").stdout.split())
    assert "held: " not in cli("policy", "why", "--", "ls").stdout
    cli("net", "allow", "registry.npmjs.org")
    told = json.loads(cli("policy", "why", "--json", "--", "npm", "publish").stdout)
    assert told["holds"] == ["registry.yarnpkg.com"]


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


def test_a_word_that_is_none(cli: Cli) -> None:
    for words, said in (
        (("allow", "@nmp"), "there is no preset @nmp (mudroom net allow @npm)"),
        (("deny", "@pip"), "there is no preset @pip (mudroom net deny @pypi"),
        (("allow", "@apt"), "there is no preset @apt (mudroom net allow @debian @ubuntu)"),
        (("rm", "@NPM"), "there is no preset @NPM (mudroom net rm @npm)"),
        (("why", "@carg"), "there is no preset @carg (mudroom net "),
        (("allow", "@npm:443"), "@npm:443: a preset names its ports itself (mudroom net allow @npm)"),
        (("allow", "@qqqqqq"), "there is no preset @qqqqqq (mudroom net presets lists them)"),
        (("allow", "@"), "there is no preset @ (mudroom net presets lists them)"),
    ):
        done = cli("net", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), words
        assert said in done.stderr, words


def test_a_policy_overrides_a_preset_and_it_is_said(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + "  deny: [nodejs.org]\n")
    done = cli("net", "allow", "@npm")
    assert done.returncode == 0
    assert done.stderr == "note: nodejs.org, port 443 all the same: policy.yaml:3: nodejs.org denies it\n"


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
        *["registry.npmjs.org:", "registry.yarnpkg.com:"] * 2,
    ]
    assert "registry.npmjs.org: under hold, publishes wait; POST /-/npm/v1/security" in done.stdout
    assert done.stderr == "mudroom net allow @npm turns it on for this project, on this machine\n"
    (row,) = cli.json("net", "presets", word)["presets"]
    assert (row["name"], list(row["holds"])) == ("npm", ["registry.npmjs.org", "registry.yarnpkg.com"])


def test_a_preset_that_is_not_there_is_not_shown(cli: Cli) -> None:
    assert [row["name"] for row in cli.json("net", "presets", "pypi", "@npm")["presets"]] == ["pypi", "npm"]
    done = cli("net", "presets", "npn")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "mudroom: there is no preset @npn (mudroom net presets @npm)\n"


def test_a_preset_without_its_at_is_not_removed_but_named(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", 'network:\n  allow: ["@npm"]\n')
    assert "(policy.yaml:2 has @npm)" in cli("net", "rm", "npm").stderr
