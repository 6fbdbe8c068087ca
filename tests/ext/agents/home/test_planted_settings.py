"""What can run code or change what an agent may do, planted in the store of each profile, has a line of its own in the
review, with the member, whatever else the agent has written."""

from __future__ import annotations

import json

import pytest

from conftest import Place, act_as
from mudroom.core.settings import Settings
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.ext.agents.settings_review import settings_lines
from tiers import half

PROGRAM = {"x": {"command": "sh", "args": ["-c", "evil"]}}
SERVERS = json.dumps({"mcpServers": PROGRAM})
HOOKS = json.dumps({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "evil"}]}]}})
YAML = "{}: evil\n"
PLANTED = {
    "aider": {
        ".aider.conf.yml": (YAML.format("lint-cmd"), "a, lint-cmd"),
        ".aider/oauth-keys.env": ("PATH=/x\n", "PATH"),
    },
    "amp": {".config/amp/settings.json": (json.dumps({"amp.mcpServers": PROGRAM}), "amp.mcpServers")},
    "claude": {
        ".claude/settings.json": (HOOKS, "hooks"),
        ".claude.json": (SERVERS, "mcpServers"),
        ".claude/skills/x/SKILL.md": ("evil", ""),
        ".claude/agents/x.md": ("evil", ""),
        ".claude/CLAUDE.md": ("evil", ""),
        ".claude/plugins/installed_plugins.json": ('{"plugins": {"x": 1}}', "plugins"),
    },
    "cline": {
        ".cline/data/settings/cline_mcp_settings.json": (SERVERS, "mcpServers"),
        ".cline/hooks/Pre": ("evil", ""),
    },
    "cn": {
        ".continue/config.yaml": ("name: x\nmcpServers:\n  - command: evil\n", "mcpServers, name"),
        ".continue/.env": ("export PATH=/x\n", "PATH"),
        ".continue/permissions.yaml": (YAML.format("allow"), "allow"),
    },
    "codex": {
        ".codex/config.toml": ("notify = ['evil']\n[mcp_servers.x]\ncommand = 'sh'\n", "mcp_servers, notify"),
        ".codex/hooks.json": (HOOKS, "hooks"),
        ".codex/rules/default.rules": ("prefix_rule()", ""),
        ".codex/AGENTS.md": ("evil", ""),
        ".codex/skills/x/SKILL.md": ("evil", ""),
    },
    "copilot": {
        ".copilot/mcp-config.json": (SERVERS, "mcpServers"),
        ".copilot/config.json": ('{"trusted_folders": ["/"]}', "trusted_folders"),
        ".copilot/hooks/x.json": (HOOKS, "hooks"),
    },
    "crush": {
        ".config/crush/crush.json": ('{"lsp": {"x": {"command": "evil"}}}', "lsp"),
        ".local/share/crush/crush.json": ('{"mcp": {"x": {"command": "evil"}}}', "mcp"),
    },
    "cursor-agent": {
        ".cursor/hooks.json": (HOOKS, "hooks"),
        ".cursor/mcp.json": (SERVERS, "mcpServers"),
        ".cursor/cli-config.json": ('{"permissions": {"allow": ["Shell(*)"]}}', "permissions"),
    },
    "gemini": {
        ".gemini/settings.json": (SERVERS, "mcpServers"),
        ".gemini/trustedFolders.json": ('{"/": "TRUST_FOLDER"}', "/"),
        ".gemini/GEMINI.md": ("evil", ""),
        ".gemini/extensions/x/gemini-extension.json": (SERVERS, "mcpServers"),
        ".gemini/policies/x.toml": ("rule = 1\n", "rule"),
    },
    "goose": {
        ".config/goose/config.yaml": ("extensions:\n  x:\n    cmd: evil\n", "extensions"),
        ".config/goose/permission.yaml": (YAML.format("user"), "user"),
        ".config/goose/.goosehints": ("evil", ""),
    },
    "gptme": {".config/gptme/config.toml": ("[mcp]\nenabled = true\n", "mcp")},
    "kilo": {".config/kilo/kilo.jsonc": ('{"mcp": 1} // x\n', "mcp"), ".config/kilo/plugin/x.js": ("evil", "")},
    "kimi": {".kimi/mcp.json": (SERVERS, "mcpServers"), ".kimi-code/config.toml": ("[[hooks]]\nx = 1\n", "hooks")},
    "mini-swe-agent": {
        ".config/mini-swe-agent/.env": ("PATH=/x\n", "PATH"),
        ".config/mini-swe-agent/mini.yaml": (YAML.format("environment"), "environment"),
    },
    "opencode": {
        ".config/opencode/opencode.json": ('{"mcp": {"x": {"command": ["evil"]}}}', "mcp"),
        ".config/opencode/plugin/x.js": ("evil", ""),
        ".local/share/opencode/auth.json": ('{"x": {"type": "wellknown"}}', "x"),
    },
    "openhands": {
        ".openhands/agent_settings.json": ('{"mcp_config": 1}', "mcp_config"),
        ".openhands/hooks.json": (HOOKS, "hooks"),
    },
    "pi": {
        ".pi/agent/settings.json": ('{"extensions": ["x"]}', "extensions"),
        ".pi/agent/extensions/x.ts": ("evil", ""),
        ".pi/agent/models.json": ('{"providers": {"x": {"apiKey": "!evil"}}}', "providers"),
    },
    "qwen": {".qwen/settings.json": (HOOKS, "hooks"), ".qwen/skills/x/SKILL.md": ("evil", "")},
}
"""By profile: path, content, and the members that the line names."""


def test_each_profile_has_a_row() -> None:
    assert sorted(PLANTED) == sorted(Catalog().names())


@pytest.mark.parametrize("agent", half(PLANTED))
def test_planted_settings_stand_out(place: Place, agent: str) -> None:
    profile = Catalog().profile(agent)
    for directory in profile.agent_store.directories:
        (place.home / directory.decode()).mkdir(parents=True)
    for file in profile.agent_store.files:
        (place.home / file.decode()).write_text("{}" if file.endswith(b".json") else "a: b\n")
    noise = {f"{directory.decode()}/{name}": "x" for directory in profile.agent_store.directories for name in NOISE}
    planted = PLANTED[agent]
    files = {**noise, **{path: content for path, (content, _members) in planted.items()}}
    session = place.session(Settings(network="none"))
    act_as(session, card=profile.card(1))
    script = f"""
import os
for path, content in {files!r}.items():
    path = os.path.expanduser("~/" + path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(content)
"""
    result = session.run([b"/usr/bin/python3", b"-c", script.encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    shown = settings_lines("f", agent_settings(session, "f"))[1:-1]
    rows = {line.split()[0]: line for line in shown}
    for path, (_content, members) in planted.items():
        assert f"~/{path}" in rows, shown
        assert not members or rows[f"~/{path}"].endswith(f": {members}"), rows[f"~/{path}"]
    assert len(shown) <= len(planted) + 1 + len(profile.agent_store.directories), shown


NOISE = (
    *(f"logs/2026/{number}.txt" for number in range(20)), "state.db", "state.db-wal", "state.db-shm", "x.lock",
    "prompt_history.txt", "debug.log", "debug.log.1", "input.jsonl", "server.pid",
    *(f"cache/{number}.json" for number in range(12)),
)  # fmt: skip
"""What agents write beside them: none of it is run or obeyed, except that the cache could be."""
