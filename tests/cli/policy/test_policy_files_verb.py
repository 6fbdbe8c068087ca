"""``mudroom policy init``, ``check``, ``show``, ``schema``, ``trust`` and ``why -- CMD`` as a user meets them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.command.policy import decide
from mudroom.core.command.program.classification import classify_words
from mudroom.errors import UsageError
from mudroom.policy.command_answers import remember
from mudroom.policy.schema import schema
from mudroom.policy.settings_table import ROWS
from mudroom.session.project_session import CommandRules
from screen import Screen
from test_vault_verb import MUDROOM, Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("a.txt", "x\n")
    cli = Cli(place)
    del cli.environment["MUDROOM_TRUST_POLICY"]
    return cli


def policy(cli: Cli, text: str) -> None:
    cli.place.write(".mudroom/policy.yaml", text)


def why(cli: Cli, *command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("policy", "why", "--json", "--", *command).stdout)
    return found


def test_answers_about_hosts_are_checked_too(cli: Cli) -> None:
    cli("net", "allow", "good.com")
    file = cli.place.answers / "permissions.yaml"
    done = cli("policy", "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"read: {file}\n")
    file.write_text("alow: [good.com]\n")
    done = cli("policy", "check")
    assert (done.returncode, done.stdout) == (1, f"error: {file}:1: there is no key alow (did you mean allow?)\n")
    policy(cli, "nope: 1\n")
    found = json.loads(cli("policy", "check", "--json").stdout)
    assert [one["text"].rpartition(": ")[2] for one in found["problems"]] == [
        "there is no setting nope",
        "there is no key alow",
    ]
    assert str(file) in found["files"]


# --- a project in a project ---


def test_a_project_in_a_project_is_told(cli: Cli) -> None:
    policy(cli, "commands: {rules: [{pattern: curl, action: deny}]}\n")
    cli.place.write("sub/.mudroom/policy.yaml", "keep: {applies: 30}\n")
    cli.place.write("sub/deep/a.txt", "x\n")
    inner = cli.place.project / "sub"
    done = cli("run", "--yes", "--", "true", cwd=inner / "deep")
    said = f"{inner} is a project of its own: the policy of {cli.place.project}, in which it lies, does not hold here"
    assert done.returncode == 0 and said in done.stderr
    done = cli("policy", "check", cwd=inner)
    assert done.returncode == 0 and said in done.stdout
    assert "of its own" not in cli("run", "--yes", "--", "true").stderr


# --- init -----------------------------------------------------------------------------------------------------------


def test_a_first_policy(cli: Cli) -> None:
    done = cli("policy", "init")
    assert (done.returncode, done.stdout) == (0, "")
    path = cli.place.project / ".mudroom/policy.yaml"
    assert path.read_text().startswith("# yaml-language-server: $schema=./policy.schema.json\n")
    beside = cli.place.project / ".mudroom/policy.schema.json"
    assert json.loads(beside.read_text()) == schema()
    done = cli("policy", "check")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"read: {path}\n"
    assert why(cli, "npm", "publish")["action"] == "deny"


def test_a_policy_that_is_there_is_not_touched(cli: Cli) -> None:
    policy(cli, "run: {view: copy}\n")
    done = cli("policy", "init")
    assert done.returncode == 125
    assert "policy.yaml is there already" in done.stderr
    assert (cli.place.project / ".mudroom/policy.yaml").read_text() == "run: {view: copy}\n"


def test_nothing_is_written_through_a_link(cli: Cli) -> None:
    elsewhere = cli.place.root / "elsewhere"
    elsewhere.mkdir()
    (cli.place.project / ".mudroom").symlink_to(elsewhere)
    assert "is a symbolic link" in cli("policy", "init").stderr
    assert list(elsewhere.iterdir()) == []


def test_init_trusts_what_it_writes(cli: Cli) -> None:
    path = cli.json("policy", "init")["path"]
    assert "not taken" not in cli("run", "--no", "--", "true").stderr
    with open(path, "a", encoding="utf-8") as stream:
        stream.write("run: {environment: [TOKEN]}\n")
    assert "it says more than when it was trusted: run.environment: TOKEN" in cli("run", "--no", "--", "true").stderr


def test_init_forgets_no_answer(cli: Cli) -> None:
    assert cli("net", "allow", "good.com").returncode == 0
    assert cli("net", "deny", "bad.com").returncode == 0
    project, state = os.fsencode(cli.place.project), os.fsencode(cli.place.state)
    remember(project, "sudo x", state=state)
    remember(project, "git push", action="deny", state=state)
    cli.place.write(".mudroom/local/policy.yaml", "run: {environment: [TOKEN]}\n", mode=0o600).parent.chmod(0o700)
    assert cli.json("policy", "trust", "--yes")["trusted"]
    cli.json("policy", "init")
    assert cli("net", "why", "good.com").returncode == 0
    assert cli.json("policy", "show")["left_out"] == []
    assert cli.json("policy", "trust")["trusted"], "nothing new: nobody is asked"
    (cli.place.answers / "permissions.yaml").write_text("allow: [good.com]\n")
    assert cli("net", "why", "good.com").returncode == 1, "what was denied is still missed"
    (cli.place.answers / "rules.yaml").write_text("allow: [sudo x]\n")
    assert len(cli.json("policy", "show")["left_out"]) == 2


def test_of_a_policy_that_is_gone_nothing_stays_trusted(cli: Cli) -> None:
    policy(cli, LOOSE)
    assert cli.json("policy", "trust", "--yes")["trusted"]
    path = cli.place.project / ".mudroom/policy.yaml"
    path.unlink()
    cli.json("policy", "init")
    path.write_text(path.read_text() + "run: {environment: [TOKEN]}\n")
    assert "it says more than when it was trusted: run.environment: TOKEN" in cli("run", "--no", "--", "true").stderr


# --- check ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "severity", "said"),
    [
        ("run: {vew: copy}", "error", "policy.yaml:1: there is no setting run.vew"),
        (
            "commands:\n  rules:\n  - {pattern: a, action: deny}\n  - {pattern: a, action: allow}",
            "error",
            "a … is allow here and deny in policy.yaml:3",
        ),
        (
            "commands:\n  rules:\n  - {pattern: a, action: deny}\n  - {pattern: a b, action: require_approval}",
            "warning",
            "a b … never applies: policy.yaml:3 denies a …",
        ),
        (
            "commands: {classes: {read_only: deny, mutating: deny, networked: deny, destructive: deny, unknown: deny, "
            "host_escape_risk: deny}}",
            "error",
            "every command of every agent is denied: no command can run",
        ),
        ("roles: {r: {}}", "warning", "no agent has the role r"),
        (
            "secrets: {mask: ['*.yaml', none/here]}",
            "warning",
            "secrets.mask: 'none/here' matches no file of this project now (patterns are those of gitignore(5))",
        ),
        ("network: {mode: open}", "warning", "not taken from .mudroom/policy.yaml"),
        (
            "commands:\n  rules:\n  - pattern: git push\n    action: deny\n    match: [git pull]",
            "error",
            "policy.yaml:3: commands.rules: the rule does not match its own example git pull",
        ),
        (
            "commands:\n  rules:\n  - pattern: git push\n    action: deny\n    not_match: ['ls; git push -f']",
            "error",
            "policy.yaml:3: commands.rules: the rule matches what it says it does not: ls; git push -f",
        ),
    ],
)
def test_check(cli: Cli, text: str, severity: str, said: str) -> None:
    policy(cli, text)
    done = cli("policy", "check")
    assert (severity, said) == (done.stdout.partition(":")[0], said)
    assert said in done.stdout
    assert done.returncode == (severity == "error")
    found = cli.json("policy", "check", code=done.returncode)
    assert found["schema"] == "mudroom.policy-check/1"
    assert found["problems"][0]["severity"] == severity
    assert found["whole"] is (severity != "error")


def test_a_rule_that_fails_its_own_examples_refuses_the_file_everywhere(cli: Cli) -> None:
    policy(cli, "commands:\n  rules:\n  - {pattern: git push, action: deny, match: [git pull]}")
    for words in (("exec", "--", "true"), ("run", "--no", "--", "true"), ("policy", "show")):
        done = cli(*words)
        assert done.returncode == 125
        assert "does not match its own example" in done.stderr


def test_check_of_one_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("include: more.yaml\n")
    (tmp_path / "more.yaml").write_text("network: {mode: none}\n")
    assert cli("policy", "check", str(tmp_path / "good.yaml")).returncode == 0
    (tmp_path / "more.yaml").write_text("include: good.yaml\n")
    done = cli("policy", "check", str(tmp_path / "good.yaml"))
    assert done.returncode == 1
    assert "files include each other: good.yaml → more.yaml → good.yaml" in done.stdout
    assert cli("policy", "check", str(tmp_path / "none.yaml")).returncode == 125, "a wrong line, and no wrong policy"


def test_without_any_policy(cli: Cli) -> None:
    assert cli("policy", "check").stderr == "there is no policy: the defaults hold\n"
    assert cli("policy", "show").stdout.splitlines()[0].split() == ["commands.classes.read_only:", "allow", "default"]
    assert "loosens nothing" in cli("policy", "trust").stderr
    found = {row["key"]: row for row in cli.json("policy", "show")["settings"]}
    assert found["keep.age"] == {"key": "keep.age", "value": "30d", "source": "default"}
    for row in ROWS:
        assert row.alias or row.key in found or f"{row.key}.unknown" in found, row.key


# --- show and why ---------------------------------------------------------------------------------------------------


def test_show_says_where_each_line_stands(cli: Cli) -> None:
    policy(cli, "network:\n  mode: gate\n  deny: [a.com]\n  allow: [b.com]\n")
    own = cli.place.home / ".config/mudroom/policy.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("network: {mode: none}\n")
    lines = [line.split() for line in cli("policy", "show").stdout.splitlines()]
    assert ["network.mode:", "none", "~/.config/mudroom/policy.yaml:1"] in lines
    assert ["network.deny:", "a.com,", "deny", ".mudroom/policy.yaml:3"] in lines
    assert ["not", "taken:", "network.allow:", "b.com", ".mudroom/policy.yaml:4"] in lines
    found = cli.json("policy", "show")
    assert {"key": "network.mode", "value": "none", "source": f"{own}:1"} in found["settings"]
    assert [one["key"] for one in found["left_out"]] == ["network.allow"]


def test_why_of_a_command(cli: Cli) -> None:
    policy(
        cli,
        "commands:\n  rules:\n  - {pattern: git push, action: deny, reason: not from here, instead: git fetch}\n"
        "roles: {r: {classes: {read_only: require_approval}}}\nagents: {claude: r}\n",
    )
    found = why(cli, "bash", "-c", "ls && git push")
    assert [found[key] for key in ("schema", "action", "rule", "reason", "instead")] == [
        "mudroom.verdict/1",
        "deny",
        "policy.yaml:3",
        "not from here",
        "git fetch",
    ]
    assert ["git", "push"] in [part["words"] for part in found["parts"]]
    assert set(found["classes"]) == {name for part in found["parts"] for name in part["classes"]}
    said = cli("policy", "why", "--", "git push origin && ls").stdout.splitlines()
    assert said[:3] == ["deny: not from here", "rule: policy.yaml:3", "instead: git fetch"]
    assert cli("policy", "why", "--agent", "claude", "--", "ls").stdout.startswith("require_approval: ")
    assert cli("policy", "why", "--", "ls").stdout.startswith("allow: ")
    assert "no command was given" in cli("policy", "why", "--").stderr


def test_why_of_a_command_at_a_level(cli: Cli) -> None:
    found = why(cli, "kill", "42")
    assert (found["action"], found["level"], found["classes"]) == ("allow", 1, ["mutating"])
    assert (
        found["reason"] == "kill 42: the sandbox has a pid namespace of its own, so it reaches its own processes only"
    )
    assert why(cli, "ls")["level"] is None
    said = cli("policy", "why", "--level", "0", "--", "kill 42").stdout.splitlines()
    assert said[0] == "require_approval: kill 42: sends signals to processes"
    policy(cli, "commands: {classes: {host_escape_risk: require_approval}}\n")
    assert why(cli, "kill", "42")["reason"].endswith("(policy.yaml:1)")


# --- trust ----------------------------------------------------------------------------------------------------------

LOOSE = "network:\n  mode: open\n  deny: [c.com]\nrun: {environment: [TOKEN]}\n"


def test_trust_and_distrust(cli: Cli) -> None:
    policy(cli, LOOSE)
    done = cli("policy", "trust")
    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        "the project's policy loosens what holds else; it is not trusted on this machine:",
        "+ network.mode: open   policy.yaml:2",
        "+ run.environment: TOKEN   policy.yaml:4",
        "mudroom: there is nobody here to ask (add --yes if you trust who wrote it)",
    ]
    assert cli.json("policy", "trust", code=1)["trusted"] is False
    assert cli.json("policy", "show")["left_out"] != []
    found = cli.json("policy", "trust", "--yes")
    assert (found["trusted"], [one["new"] for one in found["loosens"]]) == (True, [True, True])
    assert cli.json("policy", "show")["left_out"] == []
    (record,) = (cli.place.state / "trust").glob("*.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert cli.json("policy", "trust")["trusted"] is True, "nothing new: nobody is asked"
    policy(cli, LOOSE + "secrets: {show: [.env]}\n")
    asked = cli("policy", "trust").stderr.splitlines()
    assert asked[1:4] == [
        "  network.mode: open   policy.yaml:2",
        "  run.environment: TOKEN   policy.yaml:4",
        "+ secrets.show: .env   policy.yaml:5",
    ]
    assert cli.json("policy", "distrust") == {"schema": "mudroom.policy.trust/1", "trusted": False, "was": True}
    assert "it was not trusted" in cli("policy", "distrust").stderr
    assert len(cli.json("policy", "show")["left_out"]) == 3
    kinds = [json.loads(line)["kind"] for line in cli("log", "--json").stdout.splitlines() if '"kind"' in line]
    assert kinds.count("policy") in (0, 2) or cli("log").stdout.count("policy") >= 2


def test_somebody_is_asked(cli: Cli) -> None:
    policy(cli, LOOSE)
    for answer, taken in (("n", False), ("y", True)):
        screen = Screen(cli.place, *MUDROOM, "policy", "trust", columns=200)
        screen.expect(r"\+ network.mode: open.*Trust this\? \[y\]es \[n\]o: ")
        screen.type(answer + "\n")
        assert screen.exit_code() == (0 if taken else 1)
        assert (cli.json("policy", "show")["left_out"] == []) is taken


def test_what_is_not_taken_is_said_once_before_a_command(cli: Cli) -> None:
    policy(cli, LOOSE + "secrets: {show: [.env]}\ncredentials: {show: [~/.netrc]}\nkeep: {applies: 1}\n")
    done = cli("run", "--no", "--", "sh", "-c", "echo $TOKEN")
    assert done.stderr.count("not taken from .mudroom/policy.yaml") == 1
    assert "and 2 more (mudroom policy trust shows all and asks)" in done.stderr
    cli.environment["MUDROOM_TRUST_POLICY"] = "1"
    assert "not taken" not in cli("run", "--no", "--", "true").stderr
    cli.environment["MUDROOM_TRUST_POLICY"] = "yes"
    assert "not taken" in cli("run", "--no", "--", "true").stderr


def test_a_stranger_gets_no_secrets_and_no_network(cli: Cli) -> None:
    cli.place.write(".env", "KEY=1\n")
    cli.environment["TOKEN"] = "hunter2"
    policy(cli, LOOSE + "secrets: {show: [.env]}\n")
    script = "cat .env; echo token=$TOKEN; ls /sys/class/net 2>/dev/null || cat /proc/net/dev | wc -l"
    before = cli("run", "--no", "--", "sh", "-c", script).stdout
    assert before.startswith("token=\n")
    cli("policy", "trust", "--yes")
    after = cli("run", "--no", "--", "sh", "-c", script).stdout
    assert after.startswith("KEY=1\ntoken=hunter2\n")


# --- the policy of an agent's own making ----------------------------------------------------------------------------


def test_a_policy_that_a_command_writes_is_never_read(cli: Cli) -> None:
    """Neither in its fork nor after an apply: .mudroom cannot be changed from inside, and is not applied."""
    policy(cli, "run: {timeout: 1m}\n")
    script = (
        "mkdir -p .mudroom/local; echo 'network: {mode: open}' > .mudroom/policy.yaml; "
        "echo 'allow: [sudo]' > .mudroom/local/rules.yaml; mv .mudroom x; ln -s x .mudroom; echo done > a.txt"
    )
    cli("exec", "--fork", "f", "--", "sh", "-c", script)
    assert cli.json("policy", "show")["left_out"] == []
    done = cli("apply", "f", "--yes")
    assert done.returncode == 0, done.stderr
    assert (cli.place.project / "a.txt").read_text() == "done\n"
    assert (cli.place.project / ".mudroom/policy.yaml").read_text() == "run: {timeout: 1m}\n"
    assert not (cli.place.project / ".mudroom/local").exists()
    assert not (cli.place.project / ".mudroom").is_symlink()


def test_one_that_was_not_there_before_is_not_applied(cli: Cli) -> None:
    script = "mkdir -p .mudroom/local && echo 'allow: [sudo]' > .mudroom/local/rules.yaml; echo done > a.txt"
    cli("exec", "--fork", "f", "--", "sh", "-c", script)
    cli("apply", "f", "--yes")
    assert (cli.place.project / "a.txt").read_text() == "done\n"
    assert not (cli.place.project / ".mudroom").exists()


def test_nor_one_that_file_tools_write(cli: Cli) -> None:
    """They may write it into their fork. No command there sees it, nobody reads it, and it is not applied."""
    policy(cli, "run: {timeout: 1m}\n")
    session = cli.place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("a.txt", b"done\n")
    files.write(".mudroom/policy.yaml", b"network: {mode: open}\n")
    files.write(".mudroom/local/rules.yaml", b"allow: [sudo]\n")
    seen = session.run([b"sh", b"-c", b"cat .mudroom/policy.yaml; ls .mudroom"], fork="f")
    session.close()
    assert cli.json("policy", "show")["left_out"] == []
    assert why(cli, "sudo")["action"] == "require_approval"
    done = cli("apply", "f", "--yes")
    assert done.returncode == 0, done.stderr
    assert (cli.place.project / "a.txt").read_text() == "done\n"
    assert (cli.place.project / ".mudroom/policy.yaml").read_text() == "run: {timeout: 1m}\n"
    assert not os.path.lexists(cli.place.project / ".mudroom/local")
    assert seen.stdout == b"run: {timeout: 1m}\npolicy.yaml\n"


def test_rules_count_as_soon_as_they_are_there(cli: Cli) -> None:
    """For the commands of a session that goes on: those of an answer, of an edit, and none of a file that is broken."""
    commands = CommandRules(
        os.fsencode(cli.place.project),
        {os.fsencode(name): os.fsencode(value) for name, value in cli.environment.items()},
    )

    def action() -> str:
        return decide(classify_words([b"sudo", b"x"]), commands()).action

    assert action() == "require_approval"
    remember(os.fsencode(cli.place.project), "sudo x", state=os.fsencode(cli.place.state))
    assert action() == action() == "allow_with_checkpoint", "of x itself nothing is known"
    policy(cli, "commands: {rules: [{pattern: sudo, action: deny}]}")
    assert action() == action() == "deny"
    policy(cli, "commands: [")
    for _again in range(2):
        with pytest.raises(UsageError):
            action()
    (cli.place.project / ".mudroom/policy.yaml").unlink()
    assert action() == "allow_with_checkpoint"


def test_a_denial_that_is_gone_is_asked_about(cli: Cli) -> None:
    for words in (("net", "deny", "bad.com"), ("net", "allow", "good.com")):
        assert cli(*words).returncode == 0
    assert cli("net", "why", "good.com").returncode == 0
    answers = cli.place.answers / "permissions.yaml"
    answers.write_text("allow: [good.com]\n")
    assert cli("net", "why", "good.com").returncode == 1
    assert "permissions.yaml: 1 for it no longer says local network.deny: bad.com" in cli("net", "ls").stderr
    assert cli("policy", "trust").stderr.splitlines() == [
        "the project's policy loosens what holds else; it no longer says local network.deny: bad.com:",
        "+ local network.allow: good.com   permissions.yaml:1",
        "mudroom: there is nobody here to ask (add --yes if you trust who wrote it)",
    ]
    assert cli.json("policy", "trust", "--yes")["trusted"]
    assert cli("net", "why", "good.com").returncode == 0


def test_answers_that_came_with_the_project(cli: Cli) -> None:
    local = cli.place.project / ".mudroom/local"
    local.mkdir(parents=True)
    (local / "permissions.yaml").write_text("allow: [evil.com]\n")
    (local / "rules.yaml").write_text("allow: [sudo x]\n")
    (local / "policy.yaml").write_text("secrets: {show: [.env]}\n")
    done = cli("run", "--no", "--", "true")
    assert (
        "note: not taken from .mudroom/local/policy.yaml, .mudroom/local/rules.yaml, it is not trusted on this "
        "machine: secrets.show: .env; commands.rules: allow sudo x (mudroom policy trust shows all and asks)"
    ) in done.stderr
    assert cli("net", "why", "evil.com").returncode == 1
    listed = cli("net", "ls")
    assert "evil.com" not in listed.stdout
    assert "not taken from permissions.yaml: 1 that nobody has said on this machine" in listed.stderr
    assert cli("net", "allow", "good.com").returncode == 0
    assert "evil.com" not in cli("net", "ls").stdout
    asked = cli("policy", "trust").stderr.splitlines()
    assert asked[1:] == [
        "+ local secrets.show: .env   policy.yaml:1",
        "+ local commands.rules: allow sudo x   rules.yaml:1",
        "+ local network.allow: evil.com   permissions.yaml:1",
        "  local network.allow: good.com   permissions.yaml:4",
        "mudroom: there is nobody here to ask (add --yes if you trust who wrote it)",
    ]
    assert cli.json("policy", "trust", "--yes")["trusted"]
    assert "evil.com" in cli("net", "ls").stdout
    assert "good.com" in cli("net", "ls").stdout
    assert "not taken" not in cli("run", "--no", "--", "true").stderr
    cli("policy", "distrust")
    assert "good.com" not in cli("net", "ls").stdout
