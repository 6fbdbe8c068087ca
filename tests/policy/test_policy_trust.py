"""A stranger's policy: what tightens always holds, what loosens once the user of this machine has trusted it."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from mudroom.core.command.policy import decide
from mudroom.core.command.verdict import Classification, CommandClass, CommandPart
from mudroom.core.network.host_rules import Request, parse_rule, vet
from mudroom.core.network.host_rules import decide as decide_host
from mudroom.core.settings import Loaded, Settings
from mudroom.errors import MudroomError
from mudroom.policy import host_answers
from mudroom.policy.combine import PROJECT, project_items, read, roles_of
from mudroom.policy.command_answers import drop as drop_rule
from mudroom.policy.command_answers import remember as keep_rule
from mudroom.policy.reference import reference_table
from mudroom.policy.settings_table import ROWS, SECTIONS
from mudroom.policy.trust import describe, forget, record_path, remember, vouch, vouched
from test_policy_combine import Files


class Strange(Files):
    """``Files`` of a user who trusts nothing unseen."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        del self.environ[b"MUDROOM_TRUST_POLICY"]
        self.state = root / "state"
        self.environ[b"MUDROOM_STATE"] = os.fsencode(self.state)

    def trust(self) -> None:
        layers = read(os.fsencode(self.project), os.fsencode(self.home / ".config/mudroom"))
        remember(os.fsencode(self.project), os.fsencode(self.state), project_items(layers), roles_of(layers), 1)

    def trust_all(self) -> None:
        """With what was answered about hosts."""
        project, state = os.fsencode(self.project), os.fsencode(self.state)
        layers = read(project, os.fsencode(self.home / ".config/mudroom"))
        answers = [text for text, _at in host_answers.loosening_items(project)]
        remember(
            project, state, project_items(layers), roles_of(layers), 1, answers, host_answers.tightening_items(project)
        )

    @property
    def record(self) -> Path:
        return Path(os.fsdecode(record_path(os.fsencode(self.state), os.fsencode(self.project))))

    @property
    def left_out(self) -> list[str]:
        return [one.text for one in self.load().left_out]


@pytest.fixture
def files(tmp_path: Path) -> Strange:
    return Strange(tmp_path)


LOOSE = {
    "run.network": "open",
    "run.level": "0",
    "run.environment": "[TOKEN]",
    "run.read": "[/srv]",
    "run.output_limit": "1GB",
    "network.mode": "open",
    "network.allow": "[a.com]",
    "network.private": "[db.example]",
    "network.presets": "[npm]",
    "network.inspect": "[{host: a.com, set: {x-a: b}}]",
    "network.never_inspect": "[a.com]",
    "network.cards": "[claude-code]",
    "network.agents": "[a -> b]",
    "network.forks": "{reach: ['b:8000']}",
    "limits.memory": "none",
    "limits.processes": "5000",
    "limits.tmp": "1GB",
    "limits.inotify": "100",
    "limits.inotify_watches": "none",
    "limits.missing": "degrade",
    "levels.default": "0",
    "container.engine": "podman",
    "container.image": "debian:bookworm",
    "container.cards": "[claude-code]",
    "container.warm": "1",
    "secrets.show": "[.env]",
    "credentials.show": "[~/.netrc]",
    "caches.share": "project",
    "caches.limit": "1TB",
    "copy.limit": "1TB",
    "verify.command": "make test",
    "verify.when": "never",
    "keep.age": "1s",
    "keep.applies": "1",
    "keep.bytes": "1",
    "commands.classes": "{host_escape_risk: allow}",
    "commands.rules": "[{pattern: sudo, action: allow}]",
    "user_commands.sandbox": "0",
    "user_commands.auto_apply": "always",
    "user_commands.auto_apply_trusted": "true",
    "user_commands.auto_apply_flagged": "true",
    "user_commands.trusted": "[make]",
    "mcp.apply": "true",
}
TIGHT = {
    "run.network": "none",
    "run.level": "1",
    "run.view": "copy",
    "run.timeout": "5m",
    "run.output_limit": "1kB",
    "network.mode": "none",
    "network.ask": "[a.com]",
    "network.deny": "[a.com]",
    "network.inspect": "[{host: a.com, action: deny, methods: [DELETE]}]",
    "limits.memory": "1GB",
    "limits.processes": "10",
    "limits.tmp": "64MB",
    "limits.inotify": "8",
    "limits.inotify_watches": "1000",
    "limits.cpus": "1",
    "limits.io": "1MB",
    "limits.open_files": "100",
    "limits.file_size": "1MB",
    "limits.total_memory": "1GB",
    "limits.total_processes": "10",
    "limits.total_cpus": "1",
    "limits.missing": "refuse",
    "levels.default": "1",
    "levels.minimum": "1",
    "levels.allow": "[1]",
    "levels.agents": "{a: 1, b: refuse}",
    "secrets.mask": "['*.x']",
    "caches.share": "fork",
    "caches.limit": "1MB",
    "copy.limit": "1MB",
    "copy.exclude": "[x]",
    "copy.gitignore": "true",
    "verify.when": "always",
    "verify.timeout": "1m",
    "keep.age": "365d",
    "keep.applies": "500",
    "keep.bytes": "1TB",
    "keep.journal": "1MB",
    "keep.journal_age": "1d",
    "commands.classes": "{read_only: deny, mutating: require_approval, destructive: allow_with_checkpoint}",
    "commands.rules": "[{pattern: sudo, action: require_approval}, {pattern: su, action: deny}]",
    "commands.background": "deny",
    "commands.approval_timeout": "1s",
    "user_commands.sandbox": "1",
    "user_commands.auto_apply": "never",
    "user_commands.auto_apply_trusted": "false",
    "user_commands.auto_apply_flagged": "false",
    "user_commands.show_diff_threshold": "10",
    "mcp.apply": "false",
}


def test_the_two_tables_know_every_setting() -> None:
    every = {f"{section}.{key}" for section, keys in SECTIONS.items() for key in keys}
    assert every == LOOSE.keys() | TIGHT.keys()


def text_of(key: str, value: str) -> str:
    section, _dot, name = key.partition(".")
    return f"{section}: {{{name}: {value}}}\n"


@pytest.mark.parametrize("key", LOOSE)
def test_what_loosens_waits_for_trust(files: Strange, key: str) -> None:
    files.write(project=text_of(key, LOOSE[key]))
    found = files.load()
    assert found.settings == Settings()
    assert [one.text.startswith(key) for one in found.left_out] == [True]
    assert found.why == "it is not trusted on this machine"
    files.trust()
    trusted = files.load()
    assert trusted.left_out == ()
    assert trusted.settings != Settings()
    files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    files.record.unlink()
    assert files.settings == trusted.settings


@pytest.mark.parametrize("key", TIGHT)
def test_what_does_not_always_holds(files: Strange, key: str) -> None:
    files.write(project=text_of(key, TIGHT[key]))
    found = files.load()
    assert found.left_out == ()
    files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    assert files.settings == found.settings


def test_the_users_own_file_needs_no_trust(files: Strange) -> None:
    files.write(user=text_of("network.mode", "open"))
    assert files.left_out == []
    assert files.settings.network == "open"


# --- what is for this machine ---------------------------------------------------------------------------------------


def test_what_is_for_this_machine_may_have_come_with_the_project(files: Strange) -> None:
    files.write(local="network: {mode: open, deny: [a.com]}", rules="allow: [sudo reboot]\ndeny: [make]\n")
    assert files.left_out == ["network.mode: open", "commands.rules: allow sudo reboot"]
    assert str(files.settings.network) == "auto"
    assert action(files, "sudo reboot", "host_escape_risk") == "require_approval"
    assert action(files, "make", "mutating") == "deny", "what tightens holds"
    assert [rule.pattern for rule in files.settings.hosts] == ["a.com"]
    files.trust()
    assert str(files.settings.network) == "open"
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"


def test_an_answer_is_trusted_as_it_is_given(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    files.write(rules="allow: [sudo evil]\n")
    keep_rule(project, "sudo reboot ; su", state=state)
    assert files.left_out == ["commands.rules: allow sudo evil"], "what a stranger put there is not trusted with it"
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"
    assert action(files, "su", "host_escape_risk") == "allow"
    drop_rule(project, "su", state=state)
    files.write(rules="allow: [sudo reboot, su]\n")
    assert files.left_out == ["commands.rules: allow su"], "what was taken out cannot come back with a pull"
    keep_rule(project, "sudo poweroff")
    assert "commands.rules: allow sudo poweroff" in files.left_out, "mudroom was not told whose machine this is"


def test_an_item_of_the_project_is_not_one_for_this_machine(files: Strange) -> None:
    """It would count more there than the user's own word."""
    files.write(project="network: {mode: open}", user="network: {mode: gate}")
    files.trust()
    assert (files.left_out, str(files.settings.network)) == ([], "gate")
    files.write(local="network: {mode: open}")
    assert (files.left_out, str(files.settings.network)) == (["network.mode: open"], "gate")
    files.trust()
    assert (files.left_out, str(files.settings.network)) == ([], "open")


def test_answers_do_not_make_other_things_trusted(files: Strange) -> None:
    files.write(project=BEFORE)
    keep_rule(os.fsencode(files.project), "sudo reboot", state=os.fsencode(files.state))
    assert len(files.left_out) == 3
    files.trust()
    keep_rule(os.fsencode(files.project), "su", state=os.fsencode(files.state))
    assert files.left_out == []
    files.write(project=BEFORE.replace("deny: [c.com]", "deny: []"))
    assert len(files.left_out) == 5, "something that tightened is gone"


def test_hosts_that_were_allowed_elsewhere_are_not_allowed_here(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    path = files.project / ".mudroom/local/permissions.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("allow: [evil.com]\nprivate: [db.evil.com]\ndeny: [a.com]\nask: [b.com]\n")

    def hosts() -> list[str]:
        return [rule.pattern for rule in host_answers.load(project, state)]

    assert hosts() == ["a.com", "b.com"]
    host_answers.keep(project, parse_rule("good.com", "allow"), state=state)
    host_answers.keep(project, parse_rule("db.good.com", "allow", private=True), state=state)
    assert hosts() == ["good.com", "db.good.com", "a.com", "b.com"]
    assert len(host_answers.load(project, state, trusts_all=True)) == 6
    assert host_answers.loosening_items(project)[0] == ("local network.allow: evil.com", "permissions.yaml:1")
    host_answers.drop(project, "good.com", state=state)
    path.write_text("allow: [good.com]\n")
    assert hosts() == []
    host_answers.keep(project, parse_rule("good.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("good.com", "allow"))
    assert hosts() == [], "mudroom was not told whose machine this is"


def test_what_mudroom_takes_out_itself_is_not_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    files.write(project=BEFORE, rules="deny: [sudo reboot, su]\n")
    files.trust()
    keep_rule(project, "sudo reboot", state=state)
    drop_rule(project, "su", state=state)
    assert files.left_out == []
    assert action(files, "sudo reboot", "host_escape_risk") == "allow"
    keep_rule(project, "sudo reboot", action="deny", state=state)
    files.write(rules="allow: [sudo reboot]\n")
    assert files.left_out[-1] == "commands.rules: allow sudo reboot", "a pull does not undo a denial"
    assert len(files.left_out) == 4
    assert "it no longer says local commands.rules: deny sudo reboot" in files.load().why


def test_a_denial_that_was_answered_is_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    keep_rule(project, "git push", action="deny", state=state)
    keep_rule(project, "make x", state=state)
    assert (files.left_out, action(files, "git push", "networked")) == ([], "deny")
    files.write(rules="allow:\n  - make x\n")
    assert files.left_out == ["commands.rules: allow make x"]
    assert files.load().why == "it no longer says local commands.rules: deny git push, which it did when it was trusted"
    files.trust()
    assert files.left_out == [], "the user has seen that it is gone"


def test_a_host_that_was_denied_is_missed(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    path = files.project / ".mudroom/local/permissions.yaml"

    def hosts() -> list[str]:
        return [f"{rule.action} {rule.pattern}" for rule in host_answers.load(project, state)]

    host_answers.keep(project, parse_rule("bad.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("good.com", "allow"), state=state)
    files.write(project="network: {mode: open}")
    files.trust_all()
    assert (hosts(), files.left_out) == (["deny bad.com", "allow good.com"], [])
    path.write_text("allow: [good.com]\nask: [c.com]\n")
    assert hosts() == ["ask c.com"]
    assert host_answers.missing_answers(project, state) == ["local network.deny: bad.com"]
    path.write_text("allow: [good.com]\ndeny: [c.com, bad.com]\n")
    assert "allow good.com" in hosts()
    host_answers.drop(project, "bad.com", state=state)
    assert hosts() == ["allow good.com", "deny c.com"], "the user has taken it out"
    host_answers.keep(project, parse_rule("c.com", "deny"), state=state)
    host_answers.keep(project, parse_rule("c.com", "allow"), state=state)
    assert hosts() == ["allow good.com", "allow c.com"], "the user says otherwise by now"


def test_a_record_that_cannot_be_written_keeps_no_answer(files: Strange) -> None:
    files.state.write_text("")
    with pytest.raises(MudroomError, match=r"the state directory .* is not a directory"):
        keep_rule(os.fsencode(files.project), "sudo reboot", state=os.fsencode(files.state))
    assert not files.places["rules"].exists()


def test_many_answers_at_once(files: Strange) -> None:
    project, state = os.fsencode(files.project), os.fsencode(files.state)
    threads = [threading.Thread(target=vouch, args=(project, state, [f"item {number}"])) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vouched(project, state) == {f"item {number}" for number in range(20)}


@pytest.mark.parametrize("more", ["private: true", "set: {Authorization: Bearer theirs}", "remove: [Authorization]"])
def test_asking_by_name_is_not_to_open_what_is_private_or_to_say_what_is_sent(files: Strange, more: str) -> None:
    files.write(project=f'network: {{inspect: [{{host: "**.cdn.example", action: ask, {more}}}]}}')
    assert len(files.left_out) == 1
    (rule,) = files.settings.hosts
    assert (rule.action, rule.inspect) == ("ask", True), "it asks, where another rule may allow"
    assert (rule.private, rule.set_headers, rule.remove_headers) == (False, (), ())
    found = decide_host(Request("a.cdn.example", 443), files.settings.hosts)
    assert vet(found, [bytes([127, 0, 0, 1])]) is not None
    files.trust()
    assert files.left_out == []
    (rule,) = files.settings.hosts
    assert rule.private or rule.set_headers or rule.remove_headers
    files.write(project="network: {mode: open}")
    files.trust()
    assert files.left_out == []
    files.write(project=f"network: {{mode: open, inspect: [{{host: a.com, action: ask, {more}}}]}}")
    files.trust()
    files.write(project="network: {mode: open}")
    assert files.left_out == ["network.mode: open"], "what asked is missed"


@pytest.mark.parametrize("more", ["only: true", "foreign: refuse", "foreign: strip"])
def test_a_bond_of_a_host_that_is_gone_is_missed(files: Strange, more: str) -> None:
    loose = "network: {presets: [github], inspect: [%s]}"
    files.write(project=loose % f"{{host: api.github.com, methods: [GET], {more}}}")
    files.trust()
    assert files.left_out == []
    for less in ("{host: api.github.com, methods: [GET]}", ""):
        files.write(project=loose % less)
        assert "network.presets: @github" in files.left_out, "what was trusted with the bond, too"


# --- rules ----------------------------------------------------------------------------------------------------------


def action(files: Strange, text: str, *classes: CommandClass, agent: str | None = None) -> str:
    part = CommandPart(tuple(text.encode().split()), True, classes, "")
    return decide(Classification(classes, (part,)), files.settings.commands, agent).action


def test_a_rule_that_is_not_trusted_still_asks_for_more(files: Strange) -> None:
    files.write(
        project=(
            "commands:\n  rules:\n"
            "  - {pattern: make, action: allow_with_checkpoint}\n"
            "  - {pattern: docker, action: allow_with_checkpoint}\n"
            "  - {pattern: sudo, action: require_approval}\n"
        ),
        user="commands: {classes: {host_escape_risk: deny}}",
    )
    assert len(files.left_out) == 2
    assert action(files, "make", "mutating") == "allow_with_checkpoint"
    assert action(files, "docker run", "host_escape_risk") == "deny"
    assert action(files, "sudo x", "host_escape_risk") == "deny"
    files.trust()
    assert action(files, "docker run", "host_escape_risk") == "allow_with_checkpoint"
    assert action(files, "sudo x", "host_escape_risk") == "deny", "asking is never milder than the user's own word"


def test_a_role_of_the_projects_own_tightens_unseen(files: Strange) -> None:
    files.write(project="roles: {r: {classes: {mutating: deny, unknown: allow}}}\nagents: {a: r}")
    assert files.left_out == ["roles.r.classes.unknown: allow"]
    assert action(files, "x", "mutating", agent="a") == "deny"
    assert action(files, "x", "unknown", agent="a") == "allow_with_checkpoint"


def test_the_users_role_is_not_given_away(files: Strange) -> None:
    files.write(
        project="roles: {free: {}}\nagents: {a: free}", user="roles: {free: {classes: {host_escape_risk: allow}}}"
    )
    assert files.left_out == ["agents.a: free"]
    assert action(files, "x", "host_escape_risk", agent="a") == "require_approval"
    files.trust()
    assert action(files, "x", "host_escape_risk", agent="a") == "allow"


@pytest.mark.parametrize("which", ["project", "local"])
def test_what_is_stricter_than_the_user_does_not_make_way_for_what_is_milder(files: Strange, which: str) -> None:
    """A class that the project closes is still one that the user has spoken of: a role does not open it."""
    files.write(
        user="commands: {classes: {networked: require_approval}}",
        **{
            which: "commands: {classes: {networked: deny}}\nroles: {r: {classes: {networked: allow}}}\nagents: {a: r}\n"
        },
    )
    assert files.left_out == []
    assert action(files, "curl", "networked") == "deny"
    assert action(files, "curl", "networked", agent="a") == "deny"


def test_what_nobody_has_seen_does_not_replace_what_the_project_says(files: Strange) -> None:
    """A pull may bring a file for this machine: it is no way round what was trusted together with the rest."""
    files.write(
        project=(
            "network: {mode: none}\ncommands: {classes: {networked: deny}}\nrun: {view: copy}\n"
            "roles: {r: {classes: {mutating: deny}}, free: {}}\nagents: {a: r}\n"
        )
    )
    files.trust()
    files.write(
        local=(
            "network: {mode: gate}\ncommands: {classes: {networked: allow}}\nrun: {view: auto}\n"
            "roles: {free: {}}\nagents: {a: free}\n"
        )
    )
    assert (str(files.settings.network), files.settings.view) == ("none", "copy")
    assert action(files, "curl", "networked") == "deny"
    assert action(files, "make", "mutating", agent="a") == "deny"
    files.write(local="limits: {memory: 1GB}\nnetwork: {mode: none}\n")
    assert files.settings.limits.memory == 10**9, "what tightens holds"


ROLE_OF_AN_AGENTS_NAME = "roles: {claude-code: {}}\nagents: {evil: claude-code}\n"


def test_what_is_for_one_agent_is_not_given_to_another(files: Strange) -> None:
    """Rules may be for an agent by its name; a role of that name would have them, too."""
    files.write(
        user=(
            "roles: {rev: {}}\nagents: {claude-code: rev}\ncommands:\n  classes: {networked: require_approval}\n"
            "  rules: [{pattern: git push, action: allow, agents: [claude-code]}]\n"
        ),
        project=ROLE_OF_AN_AGENTS_NAME,
    )
    assert files.left_out == ["agents.evil: claude-code"]
    assert action(files, "git push", "networked", agent="evil") == "require_approval"
    assert action(files, "git push", "networked", agent="claude-code") == "allow"


@pytest.mark.parametrize("said", ["rules: [{pattern: git push, action: allow}]", "classes: {networked: allow}"])
def test_nor_is_a_role_of_this_machine(files: Strange, said: str) -> None:
    files.write(
        user="commands: {classes: {networked: require_approval}}",
        local=f"roles: {{rev: {{{said}}}}}\nagents: {{a: rev}}\n",
    )
    files.trust()
    files.write(project="agents: {evil: rev}\n")
    assert files.left_out == ["agents.evil: rev"]
    assert action(files, "git push", "networked", agent="a") == "allow"
    assert action(files, "git push", "networked", agent="evil") == "require_approval"


def test_nor_one_of_the_projects_that_was_trusted_for_another(files: Strange) -> None:
    files.write(
        user="commands: {classes: {destructive: require_approval}}",
        project="roles: {r: {rules: [{pattern: rm -rf build, action: allow}]}}\nagents: {a: r}\n",
    )
    files.trust()
    assert action(files, "rm -rf build", "destructive", agent="a") == "allow"
    files.write(project="roles: {r: {rules: [{pattern: rm -rf build, action: allow}]}}\nagents: {a: r, b: r}\n")
    assert files.left_out == ["agents.b: r"]
    assert action(files, "rm -rf build", "destructive", agent="a") == "allow"
    assert action(files, "rm -rf build", "destructive", agent="b") == "require_approval"


def test_an_agent_that_loses_its_role_is_missed_even_if_the_role_loosens(files: Strange) -> None:
    said = "roles: {r: {classes: {networked: deny, unknown: allow}}}\n"
    said += "commands: {rules: [{pattern: make, action: allow}]}"
    files.write(project=said + "\nagents: {a: r}\n")
    files.trust()
    assert files.left_out == []
    files.write(project=said)
    assert files.left_out == ["roles.r.classes.unknown: allow", "commands.rules: allow make …"]
    assert "no longer says agents.a: r" in files.load().why


BEFORE = """\
network:
  allow: [a.com, b.com]
  deny: [c.com]
limits: {memory: 2GB}
commands:
  classes: {networked: require_approval}
  rules: [{pattern: make, action: allow, reason: it is ours}]
"""


@pytest.mark.parametrize(
    ("now", "left_out"),
    [
        (BEFORE, []),
        ("# a comment\n" + BEFORE.replace("it is ours", "it is everybody's"), []),
        (BEFORE.replace("[a.com, b.com]", "[b.com]"), []),
        (BEFORE.replace("2GB", "1GB"), []),
        (BEFORE.replace("require_approval", "deny"), []),
        (BEFORE.replace("[c.com]", "[d.com, c.com]"), []),
        (BEFORE + "run: {timeout: 1m, view: copy}\n", []),
        (BEFORE.replace("[a.com, b.com]", "[a.com, b.com, d.com]"), ["network.allow: d.com"]),
        (BEFORE.replace("a.com", "a.com:22"), ["network.allow: a.com:22"]),
        (BEFORE.replace("pattern: make", "pattern: sudo"), ["commands.rules: allow sudo …"]),
        (BEFORE.replace("pattern: make", "pattern: [[make, sudo]]"), ["commands.rules: allow make|sudo …"]),
        (BEFORE + "run: {level: 0}\n", ["run.level: 0"]),
        (BEFORE.replace("deny: [c.com]", "deny: []"), "all"),
        (BEFORE.replace("2GB", "4GB"), "all"),
        (BEFORE.replace("limits: {memory: 2GB}\n", ""), "all"),
        (BEFORE.replace("networked: require_approval", "networked: allow"), "all"),
        (BEFORE.replace("networked: require_approval", ""), "all"),
        (
            BEFORE.replace("limits:", "verify: {command: make test}\nlimits:"),
            ["verify.command: /bin/sh -c 'make test'"],
        ),
    ],
)
def test_what_a_pull_may_change(files: Strange, now: str, left_out: list[str] | str) -> None:
    files.write(project=BEFORE)
    files.trust()
    files.write(project=now)
    every = ["network.allow: a.com", "network.allow: b.com", "commands.rules: allow make …"]
    assert files.left_out == (every if left_out == "all" else left_out)
    why = files.load().why
    if left_out == "all":
        assert why.startswith("it no longer says ")
    else:
        assert why == ("it says more than when it was trusted" if left_out else "")


@pytest.mark.parametrize("now", ["'true'", "[/bin/sh, -c, make, test]", ""])
def test_what_verifies_is_missed(files: Strange, now: str) -> None:
    said = "network: {mode: open}\n"
    files.write(project=said + "verify: {command: make test}\n")
    assert list(files.settings.verify) == []
    files.trust()
    assert files.left_out == []
    assert list(files.settings.verify) == [b"/bin/sh", b"-c", b"make test"]
    files.write(project=said + (f"verify: {{command: {now}}}\n" if now else ""))
    assert "network.mode: open" in files.left_out
    assert "it no longer says verify.command: /bin/sh -c 'make test'" in files.load().why
    assert list(files.settings.verify) == []


def test_what_verifies_for_the_user_is_the_users_word(files: Strange) -> None:
    files.write(project="verify: {command: 'true'}", user="verify: {command: [make, test]}")
    files.trust()
    assert files.settings.verify == (b"make", b"test")
    files.write(local="verify: {command: [make, check]}")
    files.trust()
    assert files.settings.verify == (b"make", b"check")


def test_words_are_not_taken_for_others(files: Strange) -> None:
    """What is compared says where a word ends."""
    files.write(project="commands: {rules: [{pattern: [a, [b, c]], action: allow}]}")
    files.trust()
    for pattern in ("[a, 'b|c']", "['a b|c']", "[[a, b], c]", "[a, [b]]"):
        files.write(project=f"commands: {{rules: [{{pattern: {pattern}, action: allow}}]}}")
        assert len(files.left_out) == 1, pattern


def test_what_is_included_is_the_projects_too(files: Strange) -> None:
    files.write(project="include: more.yaml")
    more = files.project / ".mudroom/more.yaml"
    more.write_text("network: {mode: open}")
    assert files.left_out == ["network.mode: open"]
    files.trust()
    assert files.settings.network == "open"
    more.write_text("network: {mode: open, private: [db.example]}")
    assert files.left_out == ["network.private: db.example, may be private"]


def test_the_record_is_the_users_alone(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    assert stat.S_IMODE(files.record.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.record.parent.stat().st_mode) == 0o700
    assert not str(files.record).startswith(str(files.project))
    for mode in (0o620, 0o602):
        files.record.chmod(mode)
        assert files.left_out, "others could have written it"
    files.record.chmod(0o600)
    assert files.left_out == []
    assert forget(os.fsencode(files.project), os.fsencode(files.state))
    assert not forget(os.fsencode(files.project), os.fsencode(files.state))
    assert files.left_out


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", b"null", b"[" * 100_000, b'{"schema": "mudroom.policy.trust/2"}'])
def test_a_damaged_record_is_none(files: Strange, damage: bytes) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    files.record.write_bytes(damage)
    assert files.left_out == ["network.mode: open"]


def test_a_record_of_another_project_is_none(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    row = json.loads(files.record.read_text())
    files.record.write_text(json.dumps(row | {"project": "/elsewhere"}))
    assert files.left_out == ["network.mode: open"]
    files.record.unlink()
    files.record.symlink_to(files.home / "x")
    (files.home / "x").write_text(json.dumps(row))
    assert files.left_out == ["network.mode: open"]


def test_the_same_project_elsewhere_is_another(files: Strange) -> None:
    files.write(project="network: {mode: open}")
    files.trust()
    files.project.rename(files.project.parent / "moved")
    files.project = files.project.parent / "moved"
    assert files.left_out == ["network.mode: open"]


def test_nothing_loaded_says_nothing(files: Strange) -> None:
    assert files.load() == Loaded()


HOSTILE = "\\x1b[2J\\u202e\\n"


@pytest.mark.parametrize(
    "text",
    [
        f'agents: {{"{HOSTILE}": free}}',
        f'agents: {{a: "{HOSTILE}"}}',
        f'levels: {{agents: {{"{HOSTILE}": 1}}}}',
        f'run: {{environment: ["A={HOSTILE}"]}}',
        f'run: {{read: ["/{HOSTILE}"]}}',
        f'network: {{cards: ["{HOSTILE}"]}}',
        f'secrets: {{show: ["{HOSTILE}"]}}',
        f'credentials: {{show: ["~/{HOSTILE}"]}}',
        f'commands: {{rules: [{{pattern: [make], action: allow, agents: ["{HOSTILE}"]}}]}}',
        'network: {inspect: [{host: a.com, paths: ["/\\u202e, set x: y"]}]}',
        'network: {inspect: [{host: a.com, methods: ["\\x1b[2J"]}]}',
    ],
)
def test_what_is_shown_to_be_trusted_does_nothing_to_the_terminal(files: Strange, text: str) -> None:
    files.write(project=text, user="roles: {free: {}}")
    layers = read(os.fsencode(files.project), os.fsencode(files.home / ".config/mudroom"))
    assert layers[PROJECT]
    assert all(describe(one).isprintable() for one in layers[PROJECT])


def test_an_agent_whose_role_is_not_believed_is_still_one(files: Strange) -> None:
    files.write(
        project="agents: {a: free}\ncommands: {rules: [{pattern: make, action: deny, agents: [a]}]}",
        user="roles: {free: {}}",
    )
    assert files.left_out == ["agents.a: free"]
    assert action(files, "make", "mutating", agent="a") == "deny"


def test_the_document_has_the_table_of_settings() -> None:
    """``dev/policy`` writes it there."""
    assert reference_table() in (Path(__file__).parents[2] / "docs/POLICY.md").read_text()


def test_a_row_says_whether_a_value_loosens() -> None:
    assert {row.key for row in ROWS if row.loosening.text} == LOOSE.keys()


def test_what_is_for_this_machine_counts_as_near_only_once_it_was_seen(files: Strange) -> None:
    """It loosens nothing that is built in, but what the user has said."""
    files.write(
        user="network: {mode: none}\ncommands: {classes: {host_escape_risk: deny}}\nlimits: {memory: 1GB}",
        local=(
            "network: {mode: gate}\nlimits: {memory: 2GB}\n"
            "commands: {rules: [{pattern: sudo, action: require_approval}]}\n"
        ),
    )
    assert files.left_out == []
    assert (str(files.settings.network), files.settings.limits.memory) == ("none", 10**9)
    assert action(files, "sudo x", "host_escape_risk") == "deny"
    files.trust()
    assert (str(files.settings.network), files.settings.limits.memory) == ("gate", 2 * 10**9)
    assert action(files, "sudo x", "host_escape_risk") == "require_approval"
