"""Answers of the hook: staged, refused, or left to the agent."""

from __future__ import annotations

import json
import os
import posixpath
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.core.hook_answer import HookPlace, PatchError, answer, command_line, message, quote, with_paths
from mudroom.ext.agents.core.hook_contract import CONTRACTS
from mudroom.ext.agents.core.hook_settings import exec_words
from tiers import each

EVENTS = Path(__file__).with_name("hook_events")
PROJECT, MOUNT, HOME = "/home/u/proj", "/state/mounts/a", "/home/u"
WORDS = ("/opt/mud room/mudroom", "exec", "--fork", "a", "--agent", "claude")


def place(links: Mapping[str, str] | None = None, **changed: Any) -> HookPlace:
    """``links``: a path of a link and what it leads to."""

    def resolve(path: str) -> str:
        for link, target in (links or {}).items():
            if path == link or path.startswith(link + "/"):
                return resolve(target + path[len(link) :])
        return posixpath.normpath(path)

    here = HookPlace(PROJECT, PROJECT, HOME, "a", WORDS, lambda: MOUNT, resolve)
    return here._replace(**changed)


def claude(tool: str, here: HookPlace | None = None, **arguments: Any) -> Any:
    event = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments, "cwd": PROJECT}
    return answer("claude", event, here or place())


# --- commands ---


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_a_command_is_one_word_of_the_line(command: str) -> None:
    assert shlex.split(command_line(command, WORDS)) == [*WORDS, "--", "bash", "-c", command]
    assert quote(command) == shlex.quote(command) or quote(command)[0] == "'"


def test_a_command_keeps_its_other_arguments() -> None:
    given = claude("Bash", command="rm -rf ..; echo 'x'", description="x", timeout=5)
    assert given.decision == "allow"
    line = given.arguments["command"]
    assert shlex.split(line)[-1] == "rm -rf ..; echo 'x'"
    assert {**given.arguments, "command": ""} == {"command": "", "description": "x", "timeout": 5}


def test_a_command_in_the_background_is_refused() -> None:
    """It would hold the fork: the next command would wait for ever."""
    assert "mudroom exec --background --fork a" in claude("Bash", command="make", run_in_background=True).reason
    assert claude("Bash", command="make", run_in_background=False).decision == "allow"
    assert claude("Bash", place(stand=lambda: True), command="make", run_in_background=True).decision == "allow"


@given(st.text("ab '\"\\;$`\n", min_size=1, max_size=8), st.text("a '\";", max_size=4))
def test_only_a_line_of_the_hook_itself_is_not_staged_again(command: str, more: str) -> None:
    """With a hook in both scopes, the second one meets the line of the first."""
    line = command_line(command, WORDS)
    assert claude("Bash", command=line).arguments == {"command": line}
    changed = shlex.split(claude("Bash", command=line + more).arguments["command"])
    assert changed[:-1] == [*WORDS, "--", "bash", "-c"]
    assert changed[-1] in (line + more, command + more)


def test_a_directory_outside_is_refused() -> None:
    event = {"event": "tool.execute.before", "tool": "bash", "args": {"command": "ls", "workdir": "/etc"}}
    assert "outside the project" in answer("opencode", event, place()).reason
    event["args"] = {"command": "ls", "workdir": "src"}
    assert answer("opencode", event, place()).decision == "allow"
    assert answer("opencode", event, place({PROJECT + "/src": "/etc"})).decision == "deny"


# --- paths ---


@each(
    ("path", "staged"),
    [
        ("calc.py", "calc.py"),
        (PROJECT + "/src/../calc.py", "calc.py"),
        ("//home/u/proj/calc.py", "calc.py"),
        ("~/proj/calc.py", "calc.py"),
        (MOUNT + "/calc.py", "calc.py"),
        ("../proj/./a b/é.py", "a b/é.py"),
    ],
)
def test_a_path_of_the_project_leads_into_the_fork(path: str, staged: str) -> None:
    for tool in ("Read", "Edit", "Write", "MultiEdit"):
        assert claude(tool, file_path=path, old_string="x").arguments == {
            "file_path": f"{MOUNT}/{staged}",
            "old_string": "x",
        }


def test_the_model_is_told_the_path_of_the_fork_s_file() -> None:
    """claude compares an edit with the file at the path that it was given, before the hook sees it."""
    for tool in ("Read", "Edit", "Write"):
        shown = message("claude", claude(tool, file_path="src/a.py"))["hookSpecificOutput"]
        assert f"the fork's file is {MOUNT}/src/a.py. Read, Edit and Write" in shown["additionalContext"]
        assert "additionalContext" not in message("claude", claude(tool, file_path=f"{MOUNT}/a"))["hookSpecificOutput"]
    assert claude("Glob", pattern="*.py").context == claude("Bash", command="ls").context == ""


@each(
    "path",
    ["/etc/passwd", "../../x", "../other/x", "~/.bashrc", "/home/u/projector/x", "/home/u", "~root/x/../../../../etc",
     "/state/mounts/ab/x", MOUNT + "/../b/x", "~"],
)  # fmt: skip
def test_what_is_outside_is_read_by_the_agent_s_own_leave_and_never_written(path: str) -> None:
    if not path.startswith("~root"):
        assert claude("Read", file_path=path).decision == "pass"
        given = claude("Write", file_path=path, content="x")
        assert given.decision == "deny"
        assert "outside the project" in given.reason
    else:  # a directory of the project with that name: nothing expands it
        assert claude("Write", file_path=path).decision == "deny"


def test_a_link_that_leads_out_is_not_written() -> None:
    here = place({MOUNT + "/out": "/etc"})
    given = claude("Write", here, file_path="out/cron.d/x")
    assert given.decision == "deny"
    assert "through a link out of the fork, to /etc/cron.d/x" in given.reason
    assert claude("Read", here, file_path="out/x").arguments == {"file_path": MOUNT + "/out/x"}


def test_a_link_into_the_project_is_the_fork_s_file() -> None:
    here = place({MOUNT + "/link": PROJECT + "/src", "/home/u/alias": PROJECT})
    assert claude("Edit", here, file_path="link/a.py").arguments == {"file_path": MOUNT + "/src/a.py"}
    assert claude("Edit", here, file_path="/home/u/alias/a.py").arguments == {"file_path": MOUNT + "/a.py"}


def test_links_in_a_circle_end() -> None:
    here = place({MOUNT + "/a": PROJECT + "/a"})
    assert "too many links" in claude("Edit", here, file_path="a").reason


def test_a_search_starts_in_the_fork() -> None:
    assert claude("Glob", pattern="**/*.py").arguments == {"pattern": "**/*.py", "path": MOUNT}
    assert claude("Glob", pattern=PROJECT + "/*.py").arguments == {"pattern": MOUNT + "/*.py", "path": MOUNT}
    assert claude("Glob", pattern="../*").decision == "deny"
    assert claude("Grep", pattern="x", path="src").arguments == {"pattern": "x", "path": MOUNT + "/src"}
    assert claude("Grep", pattern="x", path="/usr/include").decision == "pass"


# --- patches ---

PATCH = """\
*** Begin Patch
*** Add File: new.md
+*** Add File: /etc/x
*** Update File: src/calc.py
*** Move to: src/sum.py
@@ def add
-    return a - b
+    return a + b
 *** a line of stars
*** End of File
*** Delete File: docs/old.md
*** End Patch"""


def test_the_paths_of_a_patch_lead_into_the_fork() -> None:
    given = answer(
        "codex",
        {"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": PATCH}},
        place(),
    )
    patch = (given.arguments or {})["command"]
    assert [line for line in patch.split("\n") if line.startswith("*** ") and ": " in line] == [
        f"*** Add File: {MOUNT}/new.md",
        f"*** Update File: {MOUNT}/src/calc.py",
        f"*** Move to: {MOUNT}/src/sum.py",
        f"*** Delete File: {MOUNT}/docs/old.md",
    ]
    assert [line for line in patch.split("\n") if line[:1] in "+-@ "] == [
        line for line in PATCH.split("\n") if line[:1] in "+-@ "
    ]


@each(
    "patch",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Add File: a\n",
        "*** Begin Patch\n*** Copy File: a\n*** End Patch",
        "*** Begin Patch\n *** Add File: /etc/x\n+x\n*** Add File: a\n*** End Patch",
        "*** Begin Patch\n\t*** End Patch\n*** Add File: a\n*** End Patch",
        "*** Begin Patch\n\ufeff*** Add File: /etc/x\n+x\n*** Add File: a\n*** End Patch",
        "*** Begin Patch\n\u00a0\ufeff \u3000*** Add File: /etc/x\n+x\n*** Add File: a\n*** End Patch",
        "*** Begin Patch\n*** Add File:\n*** End Patch",
        "diff --git a/x b/x",
    ],
)
def test_a_patch_that_is_not_known_is_refused(patch: str) -> None:
    with pytest.raises(PatchError):
        with_paths(patch, lambda path: path)
    event = {"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}}
    assert answer("codex", event, place()).decision == "deny"


def test_a_patch_with_one_path_outside_is_refused_whole() -> None:
    patch = PATCH.replace("docs/old.md", "../../x")
    event = {"hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}}
    assert "outside the project" in answer("codex", event, place()).reason


def codex(command: str) -> Any:
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    return (answer("codex", event, place()).arguments or {})["command"]


def test_a_patch_by_the_shell_is_a_patch_if_the_shell_changes_nothing_in_it() -> None:
    given = codex(f"apply_patch <<'EOF'\n{PATCH}\nEOF\n")
    assert given == f"apply_patch <<'EOF'\n{with_paths(PATCH, lambda path: MOUNT + '/' + path)}\nEOF\n"
    for command in (
        f"apply_patch <<EOF\n{PATCH}\nEOF",
        f"apply_patch <<'EOF' | sh\n{PATCH}\nEOF",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\nrm -rf .\nEOF",
        f"apply_patch <<'EOF'; rm x\n{PATCH}\nEOF",
        f"true; apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch\n<<'EOF'\n{PATCH}\nEOF",
        f"apply_patch\u00a0<<'EOF'\n{PATCH}\nEOF",
        f"\u2003apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<'EOF'\n{PATCH}\nEOF\u00a0",
    ):
        assert shlex.split(codex(command))[:-1] == [*WORDS, "--", "bash", "-c"]


def test_a_command_has_the_project_s_path_for_that_of_the_mount() -> None:
    here = place(usual_mount=MOUNT)
    assert shlex.split(claude("Bash", here, command=f"cat {MOUNT}/a").arguments["command"])[-1] == f"cat {PROJECT}/a"
    here = here._replace(prefixed=True)
    assert claude("Bash", here, command=f"cat {MOUNT}/a").arguments == {"command": f"cat {PROJECT}/a"}
    assert claude("Bash", here, command="cat a").decision == "pass"
    assert claude("Bash", here, command=f"cat {MOUNT}-2/a {MOUNT}").arguments == {
        "command": f"cat {MOUNT}-2/a {PROJECT}"
    }


# --- contracts ---


@each(("event", "reason"), [
        (None, "missing"),
        ([], "a list"),
        ({}, "hook_event_name is None"),
        ({"hook_event_name": "PreToolUseV2", "tool_name": "Bash"}, "is PreToolUseV2, not PreToolUse"),
        ({"hook_event_name": "PreToolUse"}, "tool_name is None"),
        ({"hook_event_name": "PreToolUse", "tool_name": 3}, "tool_name is 3"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash"}, "tool_input of Bash is missing"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": "ls"}, "tool_input of Bash is a text"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"cmd": "ls"}}, "command of Bash"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": ["ls"]}}, "is a list"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"path": "a"}}, "file_path of Edit"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": "a\0b"}}, "NUL"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": "\ud800"}}, "not valid"),
        ({"hook_event_name": "PreToolUse", "tool_name": "EnterWorktree", "tool_input": {}}, "does not know"),
        ({"hook_event_name": "PreToolUse", "tool_name": "Bash ", "tool_input": {}}, "does not know"),
        ({"hook_event_name": "PreToolUse", "tool_name": "mcp__x__write", "tool_input": {}}, "MCP server"),
    ])  # fmt: skip
def test_what_is_not_the_contract_is_refused_by_name(event: Any, reason: str) -> None:
    given = answer("claude", event, place())
    assert given.decision == "deny"
    assert reason in given.reason
    assert "\n" not in given.reason


def test_a_tool_may_be_allowed_by_name() -> None:
    here = place(tools=("mcp__github__*", "EnterWorktree"))
    assert claude("mcp__github__issue", here).decision == "pass"
    assert claude("EnterWorktree", here).decision == "pass"
    assert claude("mcp__gitlab__issue", here).decision == "deny"
    assert claude("mcp__mudroom__bash").decision == "pass"
    assert claude("TodoWrite", todos=[]).decision == "pass"


@pytest.mark.parametrize("tool", ["Agent", "Task"])
def test_a_sub_agent_gets_no_worktree_of_the_project(tool: str) -> None:
    assert claude(tool, prompt="p", subagent_type="x").decision == "pass"
    assert claude(tool, prompt="p", isolation=None).decision == "pass"
    given = claude(tool, prompt="p", isolation="worktree")
    assert given.decision == "deny"
    assert "leave it out" in given.reason


@pytest.mark.parametrize("agent", CONTRACTS)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.dictionaries(
    st.sampled_from(["hook_event_name", "tool_name", "tool_input", "command", "event", "tool", "args", "toolName"]),
    inner | st.sampled_from(["PreToolUse", "Bash", "bash", "BeforeTool", "write", "Write", "apply_patch"])),
    max_leaves=12))  # fmt: skip
def test_no_event_raises_and_none_is_passed_on_that_writes(agent: str, event: Any) -> None:
    given = answer(agent, event, place())
    assert given.decision in ("allow", "deny", "pass")
    json.dumps(message(agent, given))


@each("path", [EVENTS / name for name in sorted(os.listdir(EVENTS))])
def test_recorded_events_are_answered(path: Path) -> None:
    """The events are those of the agents' versions in the table, with the paths replaced; the answers are what those
    versions took."""
    recorded = json.loads(path.read_text())
    agent = recorded["agent"]
    assert recorded["version"] == CONTRACTS[agent].tested
    for row in recorded["events"]:
        words = exec_words(("/usr/bin/mudroom",), agent, agent, PROJECT)
        given = answer(agent, row["event"], place(words=words, prefixed=agent == "claude"))
        assert message(agent, given) == row["answer"], row["event"]
