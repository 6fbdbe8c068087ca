"""Policy files of a test, those of a stranger, and a value of each setting that loosens or tightens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.command.policy import decide
from mudroom.core.command.verdict import Classification, CommandClass, CommandPart
from mudroom.core.settings import Loaded, Settings
from mudroom.errors import UsageError
from mudroom.policy import host_answers
from mudroom.policy.combine import PROJECT, merge, project_items, read, read_project, roles_of
from mudroom.policy.config import load_policy
from mudroom.policy.parse import settings_from
from mudroom.policy.trust import record_path, remember
from mudroom.stage.private_directory import answers_directory


def own_settings(project: bytes) -> Settings:
    """Return the settings of the project's own file alone."""
    return settings_from(merge({PROJECT: read_project(project)}))


class Files:
    def __init__(self, root: Path) -> None:
        self.project, self.home = root / "project", root / "home"
        self.places = {
            "project": self.project / ".mudroom/policy.yaml",
            "user": self.home / ".config/mudroom/policy.yaml",
            "local": self.project / ".mudroom/local/policy.yaml",
            "rules": self.project / ".mudroom/local/rules.yaml",
        }
        self.project.mkdir()
        self.home.mkdir()
        self.environ = {b"HOME": os.fsencode(self.home), b"MUDROOM_TRUST_POLICY": b"1"}
        self.environ[b"MUDROOM_STATE"] = os.fsencode(root / "state")

    def write(self, **texts: str | bytes) -> None:
        for name, text in texts.items():
            path = self.places[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode() if isinstance(text, str) else text)

    def load(self) -> Loaded:
        return load_policy(os.fsencode(self.project), self.environ, items=True)

    @property
    def settings(self) -> Settings:
        return self.load().settings

    def refusal(self) -> str:
        with pytest.raises(UsageError) as caught:
            self.load()
        assert str(caught.value).isprintable()
        return str(caught.value).replace(str(self.project), "P").replace(str(self.home), "H")


class Strange(Files):
    """``Files`` of a user who trusts nothing unseen."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        del self.environ[b"MUDROOM_TRUST_POLICY"]
        self.state = root / "state"
        self.environ[b"MUDROOM_STATE"] = os.fsencode(self.state)

    @property
    def answers(self) -> Path:
        """The directory with the answers about this project."""
        return Path(os.fsdecode(answers_directory(os.fsencode(self.project), os.fsencode(self.state))))

    def trust(self) -> None:
        state = os.fsencode(self.state)
        layers = read(os.fsencode(self.project), os.fsencode(self.home / ".config/mudroom"), state, b"")
        remember(os.fsencode(self.project), state, project_items(layers), roles_of(layers), 1)

    def trust_all(self) -> None:
        """With what was answered about hosts."""
        project, state = os.fsencode(self.project), os.fsencode(self.state)
        layers = read(project, os.fsencode(self.home / ".config/mudroom"), state, b"")
        answers = [text for text, _at in host_answers.loosening_items(project, state)]
        tight = host_answers.tightening_items(project, state)
        remember(project, state, project_items(layers), roles_of(layers), 1, answers, tight)

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
    "run.engine": "true",
    "run.home": "staged",
    "run.environment": "[TOKEN]",
    "run.read": "[/srv]",
    "run.output_limit": "1GB",
    "network.mode": "open",
    "network.allow": "[a.com]",
    "network.hold": "[a.com]",
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
    "start.commands": "[make serve]",
    "git.sign": "on-landing",
    "merge.rules": "apply",
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
    "run.home": "private",
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
    "start.timeout": "1m",
    "git.sign": "as-git",
    "merge.rules": "offer",
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
    "user_commands.pause": "never",
    "user_commands.auto_apply": "never",
    "user_commands.auto_apply_trusted": "false",
    "user_commands.auto_apply_flagged": "false",
    "user_commands.show_diff_threshold": "10",
    "mcp.apply": "false",
}


def text_of(key: str, value: str) -> str:
    section, _dot, name = key.partition(".")
    return f"{section}: {{{name}: {value}}}\n"


def action(files: Strange, text: str, *classes: CommandClass, agent: str | None = None) -> str:
    part = CommandPart(tuple(text.encode().split()), True, classes, "")
    return decide(Classification(classes, (part,)), files.settings.commands, agent).action


BEFORE = """\
network:
  allow: [a.com, b.com]
  deny: [c.com]
limits: {memory: 2GB}
commands:
  classes: {networked: require_approval}
  rules: [{pattern: make, action: allow, reason: it is ours}]
"""
