"""Hook contracts of known agents: one table. Pure.

A contract is for the version in ``tested``. Its sources: for claude, gemini and opencode the package itself (source or
schemas in it); for codex the schemas in its binary; for cursor and copilot the vendors' pages, which no run here has
confirmed. tests/ext/agents/core/hook_events/ has recorded events.

Rules of this file:
1. A tool that is not in the table is refused: a new tool may write anywhere.
2. ``quiet`` tools have no effect on files and run no program. They are left to the agent's own permissions, except for
   calls with an argument that has such an effect (``outward``).
3. An MCP server's tool runs in a process that the agent started, outside every fork. It is refused, except for
   mudroom's own server, unless the user names it (``--allow-tool``).
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import NamedTuple

COMMAND, EDIT, READ, SEARCH, PATCH = "command", "edit", "read", "search", "patch"
COMMAND_OR_PATCH = "command or patch"
"""A shell in which ``apply_patch`` with a here-document is a call to that tool."""


class ToolContract(NamedTuple):
    kind: str
    field: str
    """The argument with the command line, the path or the patch."""
    directory: str = ""
    """The optional argument that names the tool's working directory."""
    background: str = ""
    """The argument that lets a command go on while others run."""


class HookContract(NamedTuple):
    program: str
    tested: str
    """The version, or empty: written from documents."""
    event: str
    """The event before a tool is used."""
    event_field: str
    """The message's field for the event; empty if the message has none."""
    tool_field: str
    input_field: str
    tools: Mapping[str, ToolContract]
    quiet: frozenset[str]
    outward: frozenset[str] = frozenset()
    """Arguments with which a quiet tool lets the agent itself change the project."""
    project_variable: str = ""
    """The variable in which the agent names the project to its hooks."""
    mcp: tuple[str, ...] = ("mcp__",)
    """Prefixes of MCP tools' names."""
    own_tools: tuple[str, ...] = ("mcp__mudroom__",)
    """Prefixes for mudroom's own server."""


def _files(kind: str, field: str, *names: str) -> dict[str, ToolContract]:
    return {name: ToolContract(kind, field) for name in names}


CONTRACTS: Mapping[str, HookContract] = {
    "claude": HookContract(
        program="claude",
        tested="2.1.330",
        event="PreToolUse",
        event_field="hook_event_name",
        tool_field="tool_name",
        input_field="tool_input",
        tools={
            "Bash": ToolContract(COMMAND, "command", background="run_in_background"),
            **_files(EDIT, "file_path", "Edit", "Write", "MultiEdit"),
            "NotebookEdit": ToolContract(EDIT, "notebook_path"),
            "NotebookRead": ToolContract(READ, "notebook_path"),
            "Read": ToolContract(READ, "file_path"),
            "LS": ToolContract(READ, "path"),
            "Glob": ToolContract(SEARCH, "pattern", "path"),
            "Grep": ToolContract(SEARCH, "glob", "path"),
        },
        quiet=frozenset((
            "Agent", "AskUserQuestion", "BashOutput", "EnterPlanMode", "ExitPlanMode", "KillBash", "KillShell",
            "ListMcpResourcesTool", "ReadMcpResourceTool", "Skill", "SlashCommand", "Task", "TaskCreate", "TaskGet",
            "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch",
        )),
        outward=frozenset(("isolation",)),  # a worktree: claude runs git on the project (code.claude.com, "Worktrees")
        project_variable="CLAUDE_PROJECT_DIR",
    ),
    "codex": HookContract(
        program="codex",
        tested="0.169.0",
        event="PreToolUse",
        event_field="hook_event_name",
        tool_field="tool_name",
        input_field="tool_input",
        tools={"Bash": ToolContract(COMMAND_OR_PATCH, "command"), "apply_patch": ToolContract(PATCH, "command")},
        quiet=frozenset(("update_plan", "view_image", "web_search")),
    ),
    "gemini": HookContract(
        program="gemini",
        tested="0.61.0",
        event="BeforeTool",
        event_field="hook_event_name",
        tool_field="tool_name",
        input_field="tool_input",
        tools={
            "run_shell_command": ToolContract(COMMAND, "command", "dir_path", "is_background"),
            **_files(EDIT, "file_path", "write_file", "replace"),
            "read_file": ToolContract(READ, "file_path"),
            "list_directory": ToolContract(READ, "dir_path"),
            "glob": ToolContract(SEARCH, "pattern", "dir_path"),
            "grep_search": ToolContract(SEARCH, "include_pattern", "dir_path"),
            "search_file_content": ToolContract(SEARCH, "include", "dir_path"),
        },
        quiet=frozenset((
            "activate_skill", "ask_user", "complete_task", "enter_plan_mode", "get_internal_docs", "google_web_search",
            "list_mcp_resources", "read_mcp_resource", "update_topic", "web_fetch", "write_todos",
        )),
        project_variable="GEMINI_PROJECT_DIR",
        mcp=("mcp_",),
        own_tools=("mcp_mudroom_",),
    ),
    "opencode": HookContract(
        program="opencode",
        tested="1.18.33",
        event="tool.execute.before",
        event_field="event",
        tool_field="tool",
        input_field="args",
        tools={
            "bash": ToolContract(COMMAND, "command", "workdir"),
            **_files(EDIT, "filePath", "write", "edit", "multiedit"),
            "read": ToolContract(READ, "filePath"),
            "list": ToolContract(READ, "path"),
            "glob": ToolContract(SEARCH, "pattern", "path"),
            "grep": ToolContract(SEARCH, "include", "path"),
            **{name: ToolContract(PATCH, "patchText") for name in ("patch", "apply_patch")},
        },
        quiet=frozenset((
            "codesearch", "invalid", "plan_exit", "question", "skill", "task", "todoread", "todowrite", "webfetch",
            "websearch",
        )),
        mcp=(),
        own_tools=("mudroom_",),
    ),
    "cursor": HookContract(
        program="cursor-agent",
        tested="",
        event="preToolUse",
        event_field="hook_event_name",
        tool_field="tool_name",
        input_field="tool_input",
        tools={
            "Shell": ToolContract(COMMAND, "command", "working_directory"),
            **_files(EDIT, "file_path", "Write", "Edit", "Delete"),
            "Read": ToolContract(READ, "file_path"),
            "Grep": ToolContract(SEARCH, "glob", "path"),
        },
        quiet=frozenset(("Task",)),
        project_variable="CURSOR_PROJECT_DIR",
        mcp=("MCP:",),
        own_tools=(),
    ),
    "copilot": HookContract(
        program="copilot",
        tested="",
        event="preToolUse",
        event_field="",
        tool_field="toolName",
        input_field="toolArgs",
        tools={
            "bash": ToolContract(COMMAND, "command"),
            **_files(EDIT, "path", "create", "edit"),
            "view": ToolContract(READ, "path"),
            "glob": ToolContract(SEARCH, "pattern", "path"),
            "grep": ToolContract(SEARCH, "glob", "path"),
        },
        quiet=frozenset(("ask_user", "report_intent", "task", "update_todo", "web_fetch")),
        mcp=(),
        own_tools=("mudroom-",),
    ),
}  # fmt: skip
