"""Edits of settings files: what is added is found again, kept apart from the user's, and taken out exactly."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.core import jsonc
from mudroom.ext.agents.core.hook_contract import CONTRACTS
from mudroom.ext.agents.core.hook_settings import (
    MARK,
    SCOPES,
    SECOND_LINES,
    Edit,
    HookSetup,
    JsonEdit,
    OwnFile,
    SettingsError,
    edits,
    faults,
    installed,
    removed,
    run_words,
)
from tiers import each


def setup(agent: str, scope: str = "project", **changed: Any) -> HookSetup:
    here = HookSetup(
        agent, scope, agent, ("/opt/mud room/mudroom",), "/home/u/pr'oj", "/home/u/pr'oj/.x",
        "/state/vaults/v/mounts/a", "/state/hooks/x",
    )  # fmt: skip
    return here._replace(**changed)


def by_file(here: HookSetup) -> dict[str, tuple[Edit, ...]]:
    files: dict[str, tuple[Edit, ...]] = {}
    for edit in edits(here):
        files[edit.file] = (*files.get(edit.file, ()), edit)
    return files


def shared_files() -> list[tuple[str, str, tuple[Edit, ...]]]:
    """Return the files that may be the user's, too."""
    return [
        (agent, file, wanted)
        for agent in CONTRACTS
        for scope in SCOPES
        for file, wanted in by_file(setup(agent, scope)).items()
        if not isinstance(wanted[0], OwnFile)
    ]


every_file = pytest.mark.parametrize(("agent", "file", "wanted"), shared_files(), ids=lambda value: str(value)[:40])
every_setup = pytest.mark.parametrize(("agent", "scope"), [(agent, scope) for agent in CONTRACTS for scope in SCOPES])

VERSION = ',\n  "version": 1'
"""That cursor wants in its file; it stays where no record has the file as it was."""
USERS = """\
{
  // mine
  "model": "x", "hooks": {
    "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}],
    "Stop": []
  },
  "env": {"A": "1"},
  "permissions": {"allow": ["Bash(ls)"]}
}
"""


@every_file
def test_installing_keeps_the_user_s_and_removing_restores_it(agent: str, file: str, wanted: Sequence[Edit]) -> None:
    users = 'model = "x"\n\n[tui]\ntheme = "y"\n' if file.endswith(".toml") else USERS
    if agent == "opencode":
        users = users.replace('"permissions"', '"permission"').replace('["Bash(ls)"]', '"ask"')
    text = installed(users, wanted)
    assert faults(users, wanted)
    assert not faults(text, wanted)
    assert installed(text, wanted) == text
    rest = removed(text, wanted)
    assert rest is not None
    assert rest.replace(VERSION, "") == users
    if file.endswith(".toml"):
        read = tomllib.loads(text)
        assert read["default_permissions"] == "mudroom"
        assert read["permissions"]["mudroom"]["filesystem"][":root"] == "read"
        assert read["tui"] == {"theme": "y"}
    else:
        assert "// mine" in text
        assert jsonc.parse(text).value["model"] == "x"


@every_file
def test_a_file_of_its_own_is_empty_or_goes(agent: str, file: str, wanted: Sequence[Edit]) -> None:
    text = installed(None, wanted)
    assert not faults(text, wanted)
    rest = removed(text, wanted)
    assert rest is not None
    assert rest.strip() in ("{}", "", '{\n  "version": 1\n}')


@every_setup
def test_an_older_installation_is_outdated_and_replaced(agent: str, scope: str) -> None:
    old = setup(agent, scope, program=("/old/mudroom",), mount="/old/vaults/v/mounts/a")
    new = setup(agent, scope)
    for file, wanted in by_file(new).items():
        older = by_file(old)[file]
        text = installed(None, older)
        if older == wanted:
            continue
        assert any("outdated" in fault or "missing" in fault for fault in faults(text, wanted))
        fresh = installed(text, wanted)
        assert not faults(fresh, wanted)
        assert "/old" not in fresh


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab/*"', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["hooks", "env", "permissions", "permission", "x", "PreToolUse"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["hooks", "env", "permissions", "permission", "context", "y"]), JSON), st.booleans()
)
def test_any_settings_are_kept_or_refused(value: dict[str, Any], wide: bool) -> None:
    text = json.dumps(value, indent=4 if wide else None)
    for _agent, file, wanted in shared_files():
        if file.endswith(".toml"):
            continue
        try:
            added = installed(text, wanted)
        except SettingsError as error:
            assert "\n" not in str(error)
            continue
        assert installed(added, wanted) == added
        assert not faults(added, wanted)
        assert contains(jsonc.parse(added).value, value)
        again = removed(added, wanted)
        assert again is not None
        rest = jsonc.parse(again).value
        rest.pop("version", None)
        assert contains(value, rest)


def contains(whole: Any, part: Any) -> bool:
    """Return whether all of ``part`` is in ``whole``, apart from containers that are empty."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(not inner or contains(whole.get(key), inner) for key, inner in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return all(item in whole for item in part)
    return bool(part == whole) or not part


@each(
    ("agent", "text", "message"),
    [
        ("claude", '{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/mine"}}', "env.CLAUDE_CODE_SHELL_PREFIX is set already"),
        ("claude", '{"disableAllHooks": true}', "disableAllHooks is set already"),
        ("gemini", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled is set already"),
        ("claude", '{"hooks": []}', "hooks is not an object"),
        ("claude", '{"hooks": {', "line 1: it ends too early"),
        ("claude", '{"env": {}, "env": {}}', "env is there 2 times"),
        ("opencode", '{"permission": "allow"}', "permission is not an object"),
        ("opencode", '{"permission": {"bash": "allow"}}', "permission.bash is set already"),
        ("codex", 'sandbox_mode = "danger-full-access"\n', "sandbox_mode is set already"),
        ("codex", "a = ", "not TOML"),
        ("codex", "[permissions]\nx = 1\n", "not TOML"),
        ("codex", f"# {MARK}: begin\na = 1\n", "its end is missing"),
    ],
)
def test_what_stands_in_the_way_is_named(agent: str, text: str, message: str) -> None:
    files = by_file(setup(agent))
    suffix = ".toml" if agent == "codex" else ".json"
    wanted = next(wanted for file, wanted in files.items() if file.endswith(suffix))
    with pytest.raises(SettingsError, match=message):
        installed(text, wanted)


def test_a_file_that_is_not_ours_is_not_replaced() -> None:
    wanted = next(wanted for wanted in by_file(setup("copilot")).values())
    with pytest.raises(SettingsError, match="not mudroom's"):
        installed("{}", wanted)
    assert removed("{}", wanted) == "{}"


def test_every_agent_s_second_line_is_described() -> None:
    assert set(SECOND_LINES) == set(CONTRACTS)


# --- the guard ---


def guard_of(agent: str, program: str) -> list[str]:
    """Return the words of the guard, as the agent starts it."""
    values = [
        edit.value if isinstance(edit, JsonEdit) else json.loads(edit.text)
        for edit in edits(setup(agent, program=(program,)))
        if isinstance(edit, JsonEdit) or (isinstance(edit, OwnFile) and edit.file.endswith(".json"))
    ]
    hook = find_hook(values)
    return [hook["command"], *hook["args"]] if "args" in hook else ["sh", "-c", hook.get("bash") or hook["command"]]


def find_hook(value: Any) -> Any:
    if isinstance(value, dict) and ("command" in value or "bash" in value) and MARK in json.dumps(value):
        return value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if (found := find_hook(inner)) is not None:
            return found
    return None


BROKEN = {
    "missing": None,
    "exit 1": "#!/bin/sh\necho '{}'\nexit 1\n",
    "killed": "#!/bin/sh\necho '{}'\nkill -9 $$\n",
    "silent": "#!/bin/sh\n",
    "garbage": "#!/bin/sh\necho allow\n",
    "not executable": "",
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "cursor", "copilot"])
def test_the_guard_blocks_what_is_no_answer(agent: str, how: str, tmp_path: Any) -> None:
    program = tmp_path / "mud 'room"
    text = BROKEN[how]
    if text is not None:
        program.write_text(text)
        program.chmod(0o755 if text else 0o644)
    ended = subprocess.run(guard_of(agent, str(program)), input=b"{}", capture_output=True, check=False)
    if agent == "copilot":
        assert json.loads(ended.stdout)["permissionDecision"] == "deny"
    else:
        assert ended.returncode == 2
        assert not ended.stdout
    assert b"gave no answer" in ended.stdout + ended.stderr


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "cursor", "copilot"])
def test_the_guard_passes_the_event_and_the_answer_on(agent: str, tmp_path: Any) -> None:
    program = tmp_path / "mudroom"
    program.write_text('#!/bin/sh\nprintf \'{"words":"%s","event":%s}\' "$*" "$(cat)"\n')
    program.chmod(0o755)
    ended = subprocess.run(guard_of(agent, str(program)), input=b'{"a": "$x `y`"}', capture_output=True, check=True)
    answered = json.loads(ended.stdout)
    assert answered["event"] == {"a": "$x `y`"}
    assert answered["words"] == " ".join(run_words(setup(agent, program=(str(program),)))[1:])
