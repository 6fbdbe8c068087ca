"""Settings: what a policy can say, and what it comes to."""

from __future__ import annotations

import os

import pytest

from mudroom.core.agent.sandbox_level import REFUSE, LevelPolicy
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.confinement.limit import OFF, Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.policy.config import parse_settings
from mudroom.policy.setting_type import seconds, size
from mudroom.policy.settings_table import SECTIONS
from policy_text import loader, refusal
from tiers import each

__all__ = ["loader"]  # fixture


def parse(text: str) -> Settings:
    return parse_settings(text.encode(), "policy.yaml")


def test_everything_that_can_be_set() -> None:
    text = """
    run:
      level: 0
      network: open
      view: copy
      timeout: 5m
      environment: [TOKEN, "NAME=a=b", "caf\u00e9=\u00fc"]
      read: [/usr/share, /opt//data/../data]
      output_limit: 64KiB
    copy:
      limit: 2GB
      exclude: [node_modules, /build/out/, "!*.keep"]
      gitignore: true
    limits:
      memory: 512 MB
      processes: 100
      cpus: 1.5
      io: 10MB
      open_files: 256
      file_size: 1GiB
      total_memory: 2G
      total_processes: 400
      total_cpus: 3
      missing: degrade
      tmp: 100MB
      inotify: none
      inotify_watches: 9000
    levels:
      default: 1
      minimum: 0
      allow: [0, 1]
      agents:
        claude-code: 1
        "team:x/y": refuse
    keep:
      age: 14d
      applies: 7
      bytes: 1GB
    """
    assert parse(text) == Settings(
        level=0,
        levels=LevelPolicy(1, 0, (0, 1), (("claude-code", 1), ("team:x/y", REFUSE))),
        keep_age=14 * 86400.0,
        keep_applies=7,
        keep_bytes=10**9,
        network="open",
        view="copy",
        timeout=300.0,
        environment=(b"TOKEN", b"NAME=a=b", "caf\u00e9=\u00fc".encode()),
        read=(b"/usr/share", os.path.realpath(b"/opt/data")),
        output_limit=65536,
        copy_limit=2_000_000_000,
        copy_exclude=(b"node_modules", b"/build/out/", b"!*.keep"),
        copy_gitignore=True,
        limits=Limits(512 * 10**6, 100, 1.5, 10**7, 256, 1 << 30, 2 << 30, 400, 3, "degrade", 10**8, OFF, 9000),
    )


def test_the_rules_of_the_network() -> None:
    text = """
    network:
      mode: gate
      allow:
        - Example.COM.
        - "*.example.org:22,443"
      deny: [gist.example.com]
      ask: ["*"]
      private:
        - db.corp.example:5432
        - 10.1.0.0/16
      presets: [npm]
    """
    assert parse(text) == Settings(
        network="gate",
        hosts=(
            HostRule("allow", "example.com", source="policy.yaml:5"),
            HostRule("allow", "*.example.org", (22, 443), source="policy.yaml:6"),
            HostRule("deny", "gist.example.com", source="policy.yaml:7"),
            HostRule("ask", "*", source="policy.yaml:8"),
            HostRule("allow", "db.corp.example", (5432,), private=True, source="policy.yaml:10"),
            HostRule("allow", "10.1.0.0/16", private=True, source="policy.yaml:11"),
            *(
                HostRule("allow", host, source="policy.yaml:12 @npm")
                for host in ("registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org")
            ),
        ),
    )


@pytest.mark.parametrize("mode", ["none", "gate", "open"])
@pytest.mark.parametrize("text", ["network: {{mode: {}}}", "run: {{network: {}}}"])
def test_modes_of_the_network(mode: str, text: str) -> None:
    assert parse(text.format(mode)) == Settings()._replace(network=mode)  # type: ignore[arg-type]


@each("data", [b"", b"# only a comment\n", b"\xef\xbb\xbf", b"run: {}", b"---\ncopy: {}\n"])
def test_nothing_set(data: bytes) -> None:
    assert parse_settings(data, "policy.yaml") == Settings()


@each(
    ("text", "expected"),
    [
        ("run: {network: 'none'}", Settings(network="none")),
        ("run: {timeout: 1.5}", Settings(timeout=1.5)),
        ("run: {timeout: '90'}", Settings(timeout=90.0)),
        ("run: {output_limit: 0}", Settings(output_limit=0)),
        ("run: {environment: []}", Settings()),
        ("base: &b\nrun: {}", None),
        ("run: {environment: [&a X, Y]}", Settings(environment=(b"X", b"Y"))),
        ('run: {environment: ["A=\\x07\\u00e9"]}', Settings(environment=(b"A=\x07\xc3\xa9",))),
    ],
)
def test_values(text: str, expected: Settings | None) -> None:
    if expected is None:
        refusal(text)
    else:
        assert parse(text) == expected


@each(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.25, 0.25),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        (" 2 m ", 120.0),
        ("1e3", 1000.0),
    ],
)
def test_times(value: object, expected: float) -> None:
    assert seconds(value, "run.timeout") == expected


@each(
    ("value", "expected"),
    [
        (0, 0),
        (1024, 1024),
        ("10kb", 10_000),
        ("10 KiB", 10_240),
        ("1.5MB", 1_500_000),
        ("2GiB", 2 << 30),
        ("3gb", 3 * 10**9),
        (2**62, 2**62),
    ],
)
def test_sizes(value: object, expected: int) -> None:
    assert size(value, "copy.limit") == expected


def test_every_field_of_the_settings_can_be_set() -> None:
    fields = sorted(setting.field for section in SECTIONS.values() for setting in section.values())
    inner = [f"limits.{name}" for name in Limits._fields] + [f"levels.{name}" for name in LevelPolicy._fields]
    # run.network, network.mode; allow, ask, deny, hold, private, presets, inspect; classes, rules
    twice = ["network", *["hosts"] * 6, "commands"]
    outer = [name for name in Settings._fields if name not in ("limits", "levels")]
    assert fields == sorted([*inner, *outer, *twice])


def test_what_is_done_about_commands() -> None:
    text = """
commands:
  classes: {destructive: require_approval}
  rules:
    - pattern: git push --force
      action: deny
      reason: what others have stays
      instead: git push
      agents: [reviewer, codex]
    - {pattern: [npm, [ci, install]], action: allow, exact: true}
  background: deny
  approval_timeout: 1m
roles:
  reviewer:
    classes: {mutating: deny}
    rules: [{pattern: make, action: deny}]
agents: {claude-code: reviewer, codex: reviewer}
user_commands:
  sandbox: 1
  auto_apply: trusted
  auto_apply_trusted: true
  auto_apply_flagged: false
  trusted: [npm ci]
  show_diff_threshold: 0
"""
    commands = CommandPolicy(
        (ClassRule("destructive", "require_approval", "policy.yaml:3", 1),),
        (
            CommandRule(
                ((b"git",), (b"push",), (b"--force",)),
                "deny",
                "policy.yaml:5",
                "what others have stays",
                "git push",
                ("reviewer", "codex"),
            ),
            CommandRule(((b"npm",), (b"ci", b"install")), "allow", "policy.yaml:10", exact=True),
            CommandRule(((b"make",),), "deny", "policy.yaml:16", agents=("reviewer",)),
        ),
        (Role("reviewer", (ClassRule("mutating", "deny", "policy.yaml:15", 1),), "policy.yaml:14"),),
        (("claude-code", "reviewer"), ("codex", "reviewer")),
    )
    assert parse(text) == Settings(
        commands=commands,
        background="deny",
        approval_timeout=60.0,
        user_level=1,
        auto_apply="trusted",
        auto_apply_trusted=True,
        trusted=(((b"npm",), (b"ci",)),),
    )


def test_inspect_rules() -> None:
    text = """
network:
  inspect:
    - api.example
    - host: up.example:8443
      action: ask
      methods: [get, HEAD]
      paths: [/a, /b/]
      private: true
      set: {X-From: ci}
      remove: [Cookie]
      only: true
      foreign: strip
  never_inspect: ["*.bank.example"]
"""
    settings = parse_settings(text.encode(), "policy.yaml")
    plain, full = settings.hosts
    assert (plain.pattern, plain.action, plain.inspect, plain.source) == ("api.example", "allow", True, "policy.yaml:4")
    assert full._asdict() == {
        "action": "ask",
        "pattern": "up.example",
        "ports": (8443,),
        "methods": ("GET", "HEAD"),
        "paths": ("/a", "/b/"),
        "private": True,
        "inspect": True,
        "source": "policy.yaml:5",
        "set_headers": (("x-from", "ci"),),
        "remove_headers": ("cookie",),
        "only": True,
        "foreign": "strip",
        "hold": False,
        "requests": (),
    }
    assert [rule.pattern for rule in settings.never_inspect] == ["*.bank.example"]
