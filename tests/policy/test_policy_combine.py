"""Several policy files as one: how they meet, what is included, and what is no policy file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.agent.sandbox_level import REFUSE
from mudroom.core.command.policy import ClassRule, CommandRule
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Loaded, Settings
from mudroom.policy.combine import LOCAL, PROJECT, USER
from mudroom.policy.config import user_config
from policy_files import Files, own_settings


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_nothing_at_all(files: Files) -> None:
    assert files.load() == Loaded()
    (files.project / ".mudroom").mkdir()
    assert files.settings == Settings()


def test_a_file_where_the_directory_would_be(files: Files) -> None:
    (files.project / ".mudroom").write_text("")
    assert files.settings == Settings()


@pytest.mark.parametrize("which", ["project", "user", "local"])
def test_each_counts_alone(files: Files, which: str) -> None:
    files.write(**{which: "run: {view: copy}"})
    assert files.settings == Settings(view="copy")


@pytest.mark.parametrize(
    ("key", "project", "user", "local", "expected"),
    [
        # what protects: between project and user the stricter; of the user's own two the nearer
        ("network.mode", "open", "gate", None, "gate"),
        ("network.mode", "none", "open", None, "none"),
        ("network.mode", None, "none", "gate", "gate"),
        ("network.mode", "none", "none", "open", "none"),
        ("run.timeout", "5m", "1m", None, 60.0),
        ("run.timeout", "30s", "1m", "10m", 30.0),
        ("limits.memory", "1GB", "2GB", None, 10**9),
        ("limits.memory", None, "2GB", "3GB", 3 * 10**9),
        ("limits.missing", "degrade", "refuse", None, "refuse"),
        ("limits.missing", "refuse", "degrade", None, "refuse"),
        ("run.level", "0", "1", None, 1),
        ("levels.minimum", "1", "0", None, 1),
        ("levels.allow", "[0, 1]", "[1, 2]", None, (1,)),
        ("verify.when", "never", "always", None, "always"),
        ("commands.background", "allow", "deny", "require_approval", "require_approval"),
        ("user_commands.auto_apply", "always", "never", None, "never"),
        ("user_commands.auto_apply", "trusted", None, "always", "trusted"),
        ("user_commands.auto_apply_flagged", "true", "false", None, False),
        ("mcp.apply", "true", "false", None, False),
        ("caches.limit", "1GB", "2GB", None, 10**9),
        ("caches.share", "agent", "fork", None, "fork"),
        ("copy.limit", "1GB", "2GB", None, 10**9),
        ("keep.applies", "5", "100", None, 100),
        ("keep.age", "60d", "1d", None, 60 * 86400.0),
        ("keep.bytes", "7GB", "6GB", "1GB", 7 * 10**9),
        # what does not: the nearest to the project
        ("run.view", "copy", "overlay", None, "copy"),
        ("run.view", None, "overlay", None, "overlay"),
        ("run.view", "copy", "overlay", "auto", "auto"),
        ("commands.approval_timeout", "1m", "1h", None, 60.0),
        ("user_commands.show_diff_threshold", "1", "2", "3", 3),
    ],
)
def test_how_they_meet(
    files: Files, key: str, project: str | None, user: str | None, local: str | None, expected: object
) -> None:
    section, _dot, name = key.partition(".")
    for where, value in (("project", project), ("user", user), ("local", local)):
        if value is not None:
            files.write(**{where: f"{section}: {{{name}: {value}}}"})
    found = files.load()
    (given,) = found.given
    assert given.value == expected
    values = str(found.settings)
    assert repr(expected) in values
    assert given.at.endswith(("policy.yaml:1",))


def test_run_network_and_network_mode_are_one(files: Files) -> None:
    files.write(project="run: {network: none}", user="network: {mode: open}")
    assert files.settings.network == "none"


def test_levels_that_exclude_each_other(files: Files) -> None:
    files.write(project="levels: {allow: [2]}", user="levels: {allow: [1]}")
    said = files.refusal()
    assert said == (
        "H/.config/mudroom/policy.yaml:1: levels.allow has nothing in common with P/.mudroom/policy.yaml:1 "
        "(nothing could run)"
    )


def test_lists_add_up_and_rules_say_where_they_stand(files: Files) -> None:
    files.write(
        project="network:\n  allow: [a.com]\nrun: {environment: [A]}\nsecrets: {mask: ['*.x']}",
        user="network:\n  deny: [b.com]\nrun: {environment: [B]}",
        local="network:\n  allow: [c.com]\n  presets: [npm]\nsecrets: {show: [.env]}",
    )
    found = files.settings
    assert [(rule.action, rule.pattern, rule.source) for rule in found.hosts] == [
        ("allow", "a.com", "policy.yaml:2"),
        ("deny", "b.com", "user policy.yaml:2"),
        ("allow", "c.com", "local policy.yaml:2"),
        *(
            ("allow", host, "local policy.yaml:3 @npm")
            for host in ("registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org")
        ),
    ]
    assert (found.environment, found.secrets_mask, found.secrets_show) == ((b"A", b"B"), (b"*.x",), (b".env",))


def test_classes_rules_and_roles_of_all_files(files: Files) -> None:
    files.write(
        project=(
            "commands:\n  classes: {networked: allow, destructive: deny}\n"
            "  rules:\n  - {pattern: git push, action: require_approval}\n  - {pattern: make, action: allow}\n"
            "roles:\n  r: {classes: {mutating: deny}}\nagents: {a: r, b: r}\n"
        ),
        user=(
            "commands:\n  classes: {networked: deny, destructive: allow}\n  rules: [{pattern: x, action: deny}]\n"
            "roles:\n  s: {}\nagents: {b: s}\n"
        ),
        local="commands: {classes: {networked: require_approval}}",
        rules="allow:\n- git push origin\ndeny:\n- rm *\n",
    )
    commands = files.settings.commands
    assert set(commands.by_class) == {
        ClassRule("networked", "require_approval", "local policy.yaml:1", LOCAL),
        ClassRule("destructive", "deny", "policy.yaml:2", USER),  # the user's word, made stricter
    }
    assert list(commands.rules) == [
        CommandRule(((b"git",), (b"push",)), "require_approval", "policy.yaml:4", rank=PROJECT, floor=True),
        CommandRule(((b"make",),), "allow", "policy.yaml:5", rank=PROJECT),
        CommandRule(((b"x",),), "deny", "user policy.yaml:3", rank=USER),
        CommandRule(((b"git",), (b"push",), (b"origin",)), "allow", "rules.yaml:2", exact=True, rank=LOCAL),
        CommandRule(((b"rm",),), "deny", "rules.yaml:4", rank=LOCAL),
    ]
    assert [(role.name, role.by_class) for role in commands.roles] == [
        ("r", (ClassRule("mutating", "deny", "policy.yaml:7", PROJECT),)),
        ("s", ()),
    ]
    assert sorted(commands.agents) == [("a", "r"), ("b", "s")]


def test_agents_by_level(files: Files) -> None:
    files.write(project="levels: {agents: {a: 2, b: refuse}}", user="levels: {agents: {a: 1, b: 0, c: 1}}")
    assert sorted(files.settings.levels.agents) == [("a", 2), ("b", REFUSE), ("c", 1)]


def test_where_the_users_own_file_is(files: Files) -> None:
    home = os.fsencode(files.home)
    assert user_config({b"HOME": home}) == home + b"/.config/mudroom"
    assert user_config({b"HOME": home, b"XDG_CONFIG_HOME": b"/etc/xdg"}) == b"/etc/xdg/mudroom"
    assert user_config({b"HOME": home, b"XDG_CONFIG_HOME": b"relative"}) == home + b"/.config/mudroom"


def test_a_mistake_names_its_own_file(files: Files) -> None:
    files.write(user="run: {vew: copy}")
    assert files.refusal() == ("H/.config/mudroom/policy.yaml:1: there is no setting run.vew (did you mean run.view?)")


# --- include --------------------------------------------------------------------------------------------------------


def test_what_is_included_counts_and_the_file_itself_last(files: Files) -> None:
    files.write(project="include: [net.yaml, more.yaml]\nrun: {view: copy}\nnetwork: {allow: [a.com]}")
    beside = files.project / ".mudroom"
    (beside / "net.yaml").write_text("network:\n  deny: [b.com]\nrun: {view: overlay}")
    (beside / "more.yaml").write_text("include: net.yaml\nrun: {timeout: 1m}")
    found = files.settings
    assert (found.view, found.timeout) == ("copy", 60.0)
    assert found.hosts == (
        HostRule("deny", "b.com", source="net.yaml:2"),
        HostRule("allow", "a.com", source="policy.yaml:3"),
    )
    assert own_settings(os.fsencode(files.project)) == found


@pytest.mark.parametrize("which", ["user", "local"])
def test_the_users_own_include_too(files: Files, which: str) -> None:
    files.write(**{which: "include: [more.yaml]"})
    (files.places[which].parent / "more.yaml").write_text("run: {view: copy}")
    assert files.settings.view == "copy"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("include: [more.yaml]", "P/.mudroom/policy.yaml:1: include: there is no file P/.mudroom/more.yaml"),
        (
            "include: [../more.yaml]",
            "include: ../more.yaml is not a file name in the same directory (write the name without a path)",
        ),
        (
            "include: [/etc/passwd]",
            "include: /etc/passwd is not a file name in the same directory (write the name without a path)",
        ),
        (
            "include: [local/rules.yaml]",
            "include: local/rules.yaml is not a file name in the same directory (write the name without a path)",
        ),
        ("include: ['..']", "include: .. is not a file name in the same directory (write the name without a path)"),
        ("include: ['']", "include:  is not a file name in the same directory (write the name without a path)"),
        (
            'include: ["a\\0b"]',
            r"include: a\x00b is not a file name in the same directory (write the name without a path)",
        ),
        ("include: [1]", "include must be the name of a file, or a list of names"),
        ("include: {a: b}", "include must be one value, or a list of texts"),
        (
            "include: [policy.yaml]",
            "policy.yaml:1: files include each other: policy.yaml → policy.yaml (remove one of these includes)",
        ),
        ("include: [a.yaml]", "files include each other: policy.yaml → a.yaml → b.yaml → a.yaml"),
        (
            "include: [link.yaml]",
            "P/.mudroom/link.yaml is a symbolic link (replace the link by a real file or directory)",
        ),
        ("include: [pipe]", "P/.mudroom/pipe is not a regular file"),
        ("include: [dir]", "P/.mudroom/dir: Is a directory"),
        ("include: [bad.yaml]", "P/.mudroom/bad.yaml:2: there is no setting nope"),
        ("include: [deep0.yaml]", "include: more than 8 files deep: policy.yaml → deep0.yaml → deep1.yaml"),
    ],
)
def test_what_cannot_be_included(files: Files, text: str, said: str) -> None:
    files.write(project=text)
    beside = files.project / ".mudroom"
    (beside / "a.yaml").write_text("include: b.yaml")
    (beside / "b.yaml").write_text("include: a.yaml")
    (beside / "bad.yaml").write_text("\nnope: 1")
    (beside / "link.yaml").symlink_to("a.yaml")
    (beside / "dir").mkdir()
    os.mkfifo(beside / "pipe")
    for number in range(12):
        (beside / f"deep{number}.yaml").write_text(f"include: deep{number + 1}.yaml")
    assert said in files.refusal()


# --- what is no policy file -----------------------------------------------------------------------------------------

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("which", ["project", "user", "local", "rules"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe", "this is not UTF-8"),
        (b"run: [", "this is not YAML"),
        (b"#" * ((1 << 20) + 1), "is larger than 1 MiB"),
        (BOMB.encode(), "references are not read: *a (to YAML"),
        (b"[" * 100_000, "nested too deeply"),
        (b"- 1", "the file must hold keys with values"),
    ],
)
def test_bad_files(files: Files, which: str, data: bytes, said: str) -> None:
    files.write(**{which: data})
    found = files.refusal()
    assert said in found
    assert found.startswith(("P/.mudroom/", "H/.config/mudroom/policy.yaml"))


def test_a_great_many_settings_are_refused(files: Files) -> None:
    names = ", ".join(["x"] * 400)
    files.write(project="network:\n  allow:\n" + "  - a.com\n" * 10_001)
    assert "policy.yaml:10003: more than 10,000 settings" in files.refusal()
    files.write(project=f"commands: {{rules: [{{pattern: [{names}], action: deny}}]}}")
    assert "a pattern has 1 to 64 words" in files.refusal()
    examples = ", ".join(f"git push {number}" for number in range(10_001))
    files.write(project=f"commands: {{rules: [{{pattern: git push, action: deny, match: [{examples}]}}]}}")
    assert files.refusal() == (
        "P/.mudroom/policy.yaml:1: commands.rules: a rule with too many words, agents and examples "
        "(make several rules of it)"
    )
    files.write(project=f"limits: {{processes: {'9' * 5_000}}}")
    assert files.refusal() == (
        "P/.mudroom/policy.yaml:1: limits.processes: a number of more than 100 characters "
        "(put it in quotes if it is a text)"
    )
    files.write(project="run: [" + "x, " * 100_001 + "]")
    assert "more than 100,000 keys and values" in files.refusal()


@pytest.mark.parametrize(
    "rule",
    [
        "match: [" + "'a b', " * 10_001 + "]",
        "not_match: ['" + "x " * 330_000 + "']",
        "agents: [" + "a, " * 10_001 + "]",
        "reason: x}, {pattern: [[" + ", ".join(f"w{number}" for number in range(10_001)) + "]], action: deny",
    ],
)
def test_a_rule_that_holds_too_much_is_refused_before_its_examples_are_tried(
    files: Files, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.core.command.program.classification.classify_line", None)
    files.write(project=f"commands: {{rules: [{{pattern: a, action: deny, {rule}}}]}}")
    assert "a rule with too many words, agents and examples" in files.refusal()


def test_what_rules_hold_counts_together_and_with_what_is_included(files: Files) -> None:
    rules = "commands: {rules: [" + ("{pattern: a, action: deny, match: [" + "a, " * 1000 + "]}, ") * 6 + "]}"
    files.write(project=rules)
    assert len(files.settings.commands.rules) == 6
    files.write(project=rules + "\ninclude: more.yaml")
    (files.project / ".mudroom/more.yaml").write_text(rules)
    assert "more than 10,000 settings" in files.refusal()


def test_only_so_many_files_are_included(files: Files) -> None:
    files.write(project=f"include: [{', '.join(f'f{number}.yaml' for number in range(65))}]")
    for number in range(65):
        (files.project / f".mudroom/f{number}.yaml").write_text("")
    assert "P/.mudroom/policy.yaml:1: include: more than 64 files" in files.refusal()


@pytest.mark.parametrize("which", ["project", "local", "rules"])
def test_no_file_of_the_project_is_reached_through_a_link(files: Files, which: str) -> None:
    elsewhere = files.home / "elsewhere.yaml"
    elsewhere.write_text("run: {view: copy}")
    files.write(**{which: ""})
    files.places[which].unlink()
    files.places[which].symlink_to(elsewhere)
    assert "is a symbolic link" in files.refusal()


def test_nor_the_directory(files: Files) -> None:
    elsewhere = files.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "policy.yaml").write_text("run: {view: copy}")
    (files.project / ".mudroom").symlink_to(elsewhere)
    assert "P/.mudroom is a symbolic link" in files.refusal()


def test_but_the_users_own_may_be_kept_elsewhere(files: Files) -> None:
    elsewhere = files.home / "dotfiles.yaml"
    elsewhere.write_text("run: {view: copy}")
    files.write(user="")
    files.places["user"].unlink()
    files.places["user"].symlink_to(elsewhere)
    assert files.settings.view == "copy"


@pytest.mark.parametrize("to", ["nowhere.yaml", "nowhere/policy.yaml", "file/policy.yaml"])
def test_a_link_to_nothing_is_not_the_same_as_nothing(files: Files, to: str) -> None:
    files.write(user="")
    (files.home / "file").write_text("")
    files.places["user"].unlink()
    files.places["user"].symlink_to(files.home / to)
    said = "is a symbolic link to a file that is not there (make the file, or remove the link)"
    assert files.refusal() == f"H/.config/mudroom/policy.yaml {said}"


@pytest.mark.parametrize("which", ["user", "local", "rules"])
def test_what_others_can_write_is_not_the_users(files: Files, which: str) -> None:
    files.write(**{which: ""})
    files.places[which].chmod(0o666)
    assert "can be written by others (mode 0666)" in files.refusal()


@pytest.mark.parametrize("which", ["project", "user", "local"])
def test_a_pipe_makes_nobody_wait(files: Files, which: str) -> None:
    files.write(**{which: ""})
    files.places[which].unlink()
    os.mkfifo(files.places[which])
    assert "is not a regular file" in files.refusal()
