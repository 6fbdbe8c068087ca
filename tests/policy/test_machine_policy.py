"""The machine's policy, which is root's: no other file makes a command freer than it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.command.policy import STRICTNESS, decide, exact_pattern, has_rule
from mudroom.core.command.verdict import CommandPart, join_parts
from mudroom.core.network.host_pattern import overlap
from mudroom.core.network.host_rules import Request, holding, parse_rule
from mudroom.core.network.host_rules import decide as decide_host
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.policy import config, local_directory
from mudroom.policy.combine import LOCAL, MACHINE, PROJECT, USER, settings_of
from policy_files import Files
from test_policy_monotonic import AGENTS, PARTS, POLICIES, given_by
from tiers import each, examples

pytestmark = pytest.mark.both_users


class Managed(Files):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.machine = root / "etc"
        self.places["machine"] = self.machine / "policy.yaml"

    def refusal(self) -> str:
        return super().refusal().replace(str(self.machine), "M")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Managed:
    found = Managed(tmp_path)
    monkeypatch.setattr(config, "MACHINE", os.fsencode(found.machine))
    monkeypatch.setattr(local_directory, "ROOT", os.getuid())  # who can make files here
    return found


def test_it_holds_alone_and_in_a_project_without_files(files: Managed) -> None:
    files.write(machine="run: {view: copy}\nnetwork: {allow: [a.example]}")
    assert files.settings.view == "copy"
    assert [rule.pattern for rule in files.settings.hosts] == ["a.example"]


@pytest.mark.parametrize("place", ["user", "local", "project"])
def test_an_allow_elsewhere_loosens_no_hold_of_the_machine(files: Managed, place: str) -> None:
    text = "network: {allow: ['git.example', 'git.example:22', '*.example']}"
    files.write(machine="network: {hold: [git.example]}", **{place: text})
    hosts = (*files.settings.hosts, parse_rule("git.example", "allow"))
    for port in (80, 443, 22, 8443):
        assert holding(hosts, "git.example", port) is not None
    decision = decide_host(Request("git.example", 443), hosts)
    assert decision.rule is not None and decision.rule.hold
    files.write(machine="network: {hold: [git.example]}", **{place: "network: {deny: ['*.example']}"})
    assert decide_host(Request("git.example", 443), files.settings.hosts).action == "deny"


@pytest.mark.parametrize(
    ("key", "machine", "user", "local", "expected"),
    [
        ("network.mode", "gate", "open", None, "gate"),
        ("network.mode", "gate", None, "open", "gate"),
        ("network.mode", "gate", "none", "open", "gate"),
        ("network.mode", "open", "gate", None, "gate"),
        ("levels.minimum", "1", "0", "0", 1),
        ("levels.minimum", "1", "2", None, 2),
        ("run.timeout", "1m", "5m", "10m", 60.0),
        ("limits.memory", "1GB", None, "3GB", 10**9),
        ("user_commands.auto_apply", "never", "always", "always", "never"),
        ("verify.when", "always", "never", None, "always"),
        ("run.view", "copy", "overlay", None, "overlay"),  # protects nothing: the nearest
    ],
)
def test_the_stricter_value_counts(
    files: Managed, key: str, machine: str, user: str | None, local: str | None, expected: Any
) -> None:
    section, name = key.split(".")
    texts = {"machine": machine, "user": user, "local": local}
    files.write(**{layer: f"{section}: {{{name}: {text}}}" for layer, text in texts.items() if text is not None})
    field = {"mode": "network", "when": "verify_when", "auto_apply": "auto_apply"}.get(name, name)
    owner: Any = files.settings
    if section in ("levels", "limits"):
        owner = getattr(owner, section)
    assert getattr(owner, field) == expected


def part(text: str, *classes: str) -> CommandPart:
    return CommandPart(tuple(text.encode().split()), True, classes or ("mutating",), "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("npm publish", "deny"),
        ("npm install x", "require_approval"),
        ("npm ci", "allow"),  # the longer pattern of the same file
        ("make", "allow"),
    ],
)
def test_no_rule_of_another_file_is_milder(files: Managed, command: str, action: str) -> None:
    files.write(
        machine="""commands: {rules: [
            {pattern: npm, action: require_approval}, {pattern: npm ci, action: allow},
            {pattern: npm publish, action: deny}]}""",
        project="commands: {rules: [{pattern: npm install x, action: allow, exact: true}]}",
        user="commands: {rules: [{pattern: npm publish, action: allow}], classes: {mutating: allow}}",
        local="commands: {rules: [{pattern: npm install, action: allow}]}",
    )
    assert decide(join_parts([part(command)]), files.settings.commands).action == action


def test_what_is_denied_is_not_offered_instead(files: Managed) -> None:
    files.write(
        machine="commands: {rules: [{pattern: npm publish, action: deny}]}",
        user="commands: {rules: [{pattern: npm publish, action: allow}, {pattern: npm ci, action: allow}]}",
    )
    verdict = decide(join_parts([part("npm publish")]), files.settings.commands)
    assert verdict.instead == "allowed: npm ci …"


def test_a_role_of_another_file_is_not_milder(files: Managed) -> None:
    files.write(
        machine="commands: {classes: {destructive: deny}}",
        user="roles: {lax: {classes: {destructive: allow}}}\nagents: {a: lax}",
    )
    commands = files.settings.commands
    assert decide(join_parts([part("rm x", "destructive")]), commands, "a").action == "deny"
    assert has_rule(commands, "destructive", "a")
    assert not has_rule(commands, "unknown")


def test_the_role_of_an_agent_and_the_verify_command_are_the_machines(files: Managed) -> None:
    files.write(
        machine="roles: {r: {classes: {mutating: deny}}}\nagents: {a: r}\nverify: {command: make check}",
        user="roles: {lax: {}}\nagents: {a: lax}\nverify: {command: 'true'}",
    )
    assert dict(files.settings.commands.agents) == {"a": "r"}
    assert decide(join_parts([part("touch x")]), files.settings.commands, "a").action == "deny"
    assert [item.at.rpartition("/")[2] for item in files.load().given if item.key == "verify.command"] == [
        "policy.yaml:3"
    ]


def test_always_is_not_offered_where_it_would_change_nothing(files: Managed) -> None:
    files.write(machine="commands: {rules: [{pattern: make, action: require_approval}]}")
    commands = files.settings.commands
    assert exact_pattern(join_parts([part("make all")]), commands) is None
    assert exact_pattern(join_parts([part("sudo x", "host_escape_risk")]), commands) == "sudo x"


def test_denied_hosts_stay_denied_and_asked_ones_asked(files: Managed) -> None:
    files.write(
        machine="network: {deny: [gist.github.com], ask: [b.example]}",
        user="network: {allow: [gist.github.com, b.example]}",
    )
    actions = [
        decide_host(Request(host, 443), files.settings.hosts).action for host in ("gist.github.com", "b.example")
    ]
    assert actions == ["deny", "ask"]
    assert decide_host(Request("b.example", 443), files.settings.hosts).reason.startswith("machine policy.yaml:1")


@pytest.mark.parametrize("key", ["inspect", "hold"])
@pytest.mark.parametrize("excluded", ["api.example", "*.example", "**.api.example", '"*"'])
def test_an_inspected_host_cannot_be_excluded(files: Managed, excluded: str, key: str) -> None:
    excluded = excluded if excluded.startswith('"') else f'"{excluded}"'
    files.write(machine=f"network: {{{key}: [api.example]}}", user=f"network: {{never_inspect: [{excluded}]}}")
    assert files.refusal().startswith("H/.config/mudroom/policy.yaml:1: network.never_inspect: ")
    assert "M/policy.yaml:1" in files.refusal()
    files.write(user='network: {never_inspect: ["other.example"]}')
    assert files.settings.never_inspect


@each(
    ("one", "other", "expected"),
    [
        ("a.example", "a.example", True),
        ("a.example", "b.example", False),
        ("*.example", "a.example", True),
        ("*.b.example", "**.example", True),
        ("*.b.example", "*.c.example", False),
        ("*.xample", "a.example", False),
        ("*", "a.example", True),
        ("*", "10.0.0.0/8", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "10.1.0.0/16", True),
        ("fd00::/8", "10.1.0.0/16", False),
    ],
)
def test_patterns_that_may_match_one_host(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) == overlap(other, one) == expected


def test_what_is_masked_stays_masked(files: Managed) -> None:
    files.write(machine='secrets: {mask: ["*.pem"]}', user='secrets: {show: ["*.pem"]}')
    assert files.settings.secrets_mask == (b"*.pem",)


# --- the file ---


def test_it_is_read_again_after_a_change(files: Managed) -> None:
    os.utime(files.project)
    for level in (1, 2, 1):
        files.write(machine=f"levels: {{minimum: {level}}}")
        assert config.load_policy(os.fsencode(files.project), files.environ).settings.levels.minimum == level
    files.places["machine"].unlink()
    assert config.load_policy(os.fsencode(files.project), files.environ).settings == Settings()


def test_it_needs_no_trust(files: Managed) -> None:
    del files.environ[b"MUDROOM_TRUST_POLICY"]
    files.write(machine="network: {allow: [a.example]}")
    assert files.load().left_out == ()
    assert [rule.pattern for rule in files.settings.hosts] == ["a.example"]


def test_it_may_include_and_be_a_link(files: Managed) -> None:
    files.write(machine="include: [network.yaml]")
    (files.machine / "network.yaml").write_text("network: {mode: none}")
    files.places["machine"].rename(files.machine / "real.yaml")
    files.places["machine"].symlink_to("real.yaml")
    before = files.settings.network
    (files.machine / "real.yaml").write_text("network: {mode: gate}")
    assert (before, files.settings.network) == ("none", "gate")


@pytest.mark.parametrize(
    ("which", "mode", "problem"),
    [
        ("etc/policy.yaml", 0o664, "M/policy.yaml can be written by others (mode 0664): sudo chmod go-w M/policy.yaml"),
        ("etc/more.yaml", 0o646, "M/more.yaml can be written by others (mode 0646)"),
        ("etc", 0o775, "M can be written by others (mode 0775)"),
    ],
)
def test_it_is_an_error_if_others_can_write_to_it(files: Managed, which: str, mode: int, problem: str) -> None:
    files.write(machine="include: [more.yaml]")
    (files.machine / "more.yaml").write_text("")
    (files.machine.parent / which).chmod(mode)
    assert problem.partition(":")[0] in files.refusal()


def test_it_is_an_error_if_it_is_not_roots(files: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(machine="")
    monkeypatch.setattr(local_directory, "ROOT", os.getuid() + 1)
    assert files.refusal().startswith(f"M is not root's (user {os.getuid()})")


@pytest.mark.parametrize("text", ["network: {mode: x}", "nothing: 1", "agents: {a: r}", "commands: [", "\xff"])
def test_a_mistake_in_it_stops_every_command(files: Managed, text: str) -> None:
    files.write(machine=text.encode("latin-1"))
    assert "M/policy.yaml" in files.refusal()


def test_a_link_to_nothing_is_no_missing_file(files: Managed) -> None:
    files.machine.mkdir()
    files.places["machine"].symlink_to("gone.yaml")
    assert files.refusal().startswith("M/policy.yaml: No such file or directory")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_searched_is_no_missing_policy(files: Managed) -> None:
    files.write(machine="network: {mode: none}")
    files.machine.chmod(0o600)
    assert files.refusal().startswith("M/policy.yaml: Permission denied")
    files.machine.chmod(0o755)
    assert files.settings.network == "none"
    files.machine.chmod(0o600)
    assert files.refusal().startswith("M/policy.yaml: Permission denied"), "what was read before is not in force"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_the_users_own_directory_that_cannot_be_searched_is_no_missing_policy(files: Managed) -> None:
    files.write(user="network: {mode: none}")
    above = files.places["user"].parent
    above.chmod(0o600)
    assert files.refusal().startswith(f"{above}/policy.yaml: Permission denied".replace(str(files.home), "H"))
    above.chmod(0o700)


@pytest.mark.parametrize(("target", "problem"), [("", "M/policy.yaml: Not a directory"), ("gone", "M leads nowhere")])
def test_a_directory_that_is_none_is_no_missing_policy(files: Managed, target: str, problem: str) -> None:
    assert files.load().settings == Settings()
    if target:
        files.machine.symlink_to(target)
    else:
        files.machine.write_text("")
    assert files.refusal().startswith(problem)


# --- whatever the others say ---


@settings(max_examples=examples(200))
@given(
    machine=POLICIES,
    user=POLICIES,
    project=POLICIES,
    local=POLICIES | st.just({}),
    parts=st.lists(PARTS, min_size=1, max_size=2),
)
def test_nothing_is_freer_than_the_machine_says(
    machine: dict[str, Any],
    user: dict[str, Any],
    project: dict[str, Any],
    local: dict[str, Any],
    parts: list[CommandPart],
) -> None:
    try:
        alone = settings_of({MACHINE: given_by(machine, MACHINE)})
        after = settings_of(
            {
                MACHINE: given_by(machine, MACHINE),
                PROJECT: given_by(project, PROJECT),
                USER: given_by(user, USER),
                LOCAL: given_by(local, LOCAL),
            }
        )
    except UsageError:
        return  # no command runs at all
    least_policy = alone.commands.machine
    for agent in (None, *AGENTS):
        found = decide(join_parts(parts), after.commands, agent)
        if least_policy is not None:
            least = decide(join_parts(parts), least_policy, agent)
            assert STRICTNESS[found.action] >= STRICTNESS[least.action], (agent, least, found)
    if "mode" in machine.get("network", {}):
        order = ("open", "gate", "none")
        assert order.index(after.network) >= order.index(alone.network)
    rank = {"allow": 0, "ask": 1, "deny": 2}
    named = [*machine.get("network", {}).get("ask", ()), *machine.get("network", {}).get("deny", ())]
    for host in ("h.example", "i.example"):
        if host in named or "*.example" in named:
            request = Request(host, 443)
            assert rank[decide_host(request, after.hosts).action] >= rank[decide_host(request, alone.hosts).action]
    if alone.limits.memory is not None:
        assert (after.limits.memory or 1 << 62) <= alone.limits.memory
    assert after.levels.minimum >= alone.levels.minimum
