"""Settings that put an agent's commands and edits through mudroom, and the edits to their files. Pure.

Rules of this file:
1. There are two lines of defence. The first is the hook. Its command is an sh(1) guard: if there is no answer (no
   program, a crash, no output, a timeout), it gives the exit code, or the answer, that blocks.
2. The second line is the agent's own and needs no answer: a prefix for all commands, permission rules, its sandbox.
   ``SECOND_LINES`` says which agent has which, and what is left open.
3. An edit adds a value, or a marked block, or mudroom's own file. It never replaces the user's own value: that is an
   error that names the value.
4. The added values are recognised by ``MARK`` in them, so those from an older version are found, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mudroom.ext.agents.core import jsonc
from mudroom.ext.agents.core.hook_answer import quote
from mudroom.ext.agents.core.jsonc import APPEND, JsoncError
from mudroom.typing import Any, NamedTuple

MARK = "mudroom-hook"
SECONDS = 20
"""Seconds for an answer. Longer than any answer takes, a cold mount included; shorter than each agent's own timeout."""
PATIENCE = 60
"""The agent's own timeout in seconds, after which it goes on without an answer."""
BEGIN, END = f"# {MARK}: begin", f"# {MARK}: end"
SCOPES = ("project", "user")

PARENT = "MUDROOM_HOOK_PARENT"
"""Variable with the pid of the process that has started the hook."""
_NO_ANSWER = "mudroom: its hook gave no answer, so this is refused (mudroom hook install %s --check says why)"
_RUN = f'a=$({PARENT}=$PPID timeout -k 1 {SECONDS} "$@") && case $a in "{{"*) printf "%s\\n" "$a" && exit 0;; esac; '
_BLOCKS = f'echo "{_NO_ANSWER}" >&2; exit 2'
"""Exit code 2 blocks: claude, codex, gemini, cursor."""
_ANSWERS = f"""printf '{{"permissionDecision":"deny","permissionDecisionReason":"{_NO_ANSWER}"}}\\n'"""
"""For an agent that has no known blocking exit code."""


class HookSetup(NamedTuple):
    agent: str
    scope: str
    fork: str
    program: tuple[str, ...]
    """The words that start mudroom, by an absolute path."""
    project: str
    """A real path. In the user scope the project is asked for at each event."""
    settings: str
    """The agent's settings directory in this scope."""
    mount: str
    """Where the fork is mounted; in the user scope a pattern with ``*`` for the project."""
    own: str
    """A directory for mudroom's own files."""
    tools: tuple[str, ...] = ()

    @property
    def is_project(self) -> bool:
        return self.scope == "project"


class JsonEdit(NamedTuple):
    """A value at a path in a JSON file, with comments or without."""

    file: str
    path: tuple[str, ...]
    value: Any
    is_ours: Callable[[Any], bool]


class BlockEdit(NamedTuple):
    """Lines at the beginning of a TOML file: its keys come before its tables (TOML 1.0)."""

    file: str
    lines: tuple[str, ...]


class OwnFile(NamedTuple):
    """A file that is mudroom's alone."""

    file: str
    text: str
    mode: int = 0o644


Edit = JsonEdit | BlockEdit | OwnFile


class SettingsError(ValueError):
    """A settings file cannot be edited. The message is one line, without the file's name."""


SECOND_LINES: Mapping[str, str] = {
    "claude": "commands: CLAUDE_CODE_SHELL_PREFIX; edits: it asks about files of the project (permissions.ask)",
    "codex": "commands and edits: its sandbox, read-only but for the fork (default_permissions), and a rule that lets "
    "nothing but mudroom exec out of it; not with --dangerously-bypass-approvals-and-sandbox",
    "gemini": "none beside the guard of its hook",
    "opencode": "commands and edits: its permission rules refuse all but mudroom exec and files of the fork",
    "cursor": "failClosed of its hook",
    "copilot": "none beside the guard of its hook",
}


def edits(setup: HookSetup) -> tuple[Edit, ...]:
    return _EDITS[setup.agent](setup)


def run_words(setup: HookSetup) -> tuple[str, ...]:
    """Return the command that answers an event."""
    project = ("--project", setup.project) if setup.is_project else ()
    tools = [word for tool in setup.tools for word in ("--allow-tool", tool)]
    prefix = ("--prefix", shell_prefix(setup)) if setup.agent == "claude" else ()
    return (*setup.program, "hook", "--fork", setup.fork, *project, *prefix, *tools, "run", setup.agent)


def shell_prefix(setup: HookSetup) -> str:
    """Return the program with which claude starts its commands."""
    return f"{setup.own}/{MARK}-shell"


def exec_words(program: Sequence[str], fork: str, agent: str, project: str) -> tuple[str, ...]:
    """Return the command that runs an agent's command, up to ``--``."""
    return (*program, "exec", "--quiet", "--fork", fork, "--agent", agent, *(("--project", project) if project else ()))


def _guard(setup: HookSetup, otherwise: str = _BLOCKS) -> str:
    return _RUN + otherwise.replace("%s", setup.agent, 1)


def _guarded(setup: HookSetup, otherwise: str = _BLOCKS) -> str:
    return " ".join(map(quote, ("/bin/sh", "-c", _guard(setup, otherwise), MARK, *run_words(setup))))


def _has_mark(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mark, value.values()))
    if isinstance(value, list):
        return any(map(_has_mark, value))
    return isinstance(value, str) and MARK in value


def _equals(expected: str) -> Callable[[Any], bool]:
    return lambda value: bool(value == expected)


# --- by agent ---


def _claude(setup: HookSetup) -> tuple[Edit, ...]:
    """Return claude's edits. It starts a hook that has ``args`` without a shell, and so without the prefix, too. For
    ``disableAllHooks`` the file with the highest precedence counts: the local one before one that a project brings."""
    file = f"{setup.settings}/{'settings.local.json' if setup.is_project else 'settings.json'}"
    hook = {
        "type": "command",
        "command": "/bin/sh",
        "args": ["-c", _guard(setup), MARK, *run_words(setup)],
        "timeout": PATIENCE,
    }
    shell = shell_prefix(setup)
    rule = f"Edit(/{_gitignore(setup.project)}/**)" if setup.is_project else "Edit(./**)"
    return (
        OwnFile(shell, _prefix(setup), 0o755),
        _json(file, ("hooks", "PreToolUse", APPEND), {"matcher": "*", "hooks": [hook]}),
        _json(file, ("env", "CLAUDE_CODE_SHELL_PREFIX"), shell),
        JsonEdit(file, ("permissions", "ask", APPEND), rule, _equals(rule)),
        JsonEdit(file, ("disableAllHooks",), False, lambda value: value is False),
    )


def _prefix(setup: HookSetup) -> str:
    program = " ".join(map(quote, setup.program))
    options = f"--agent {setup.agent} " + (f"--project {quote(setup.project)}" if setup.is_project else _USERS_PROJECT)
    return _PREFIX.format(program=program, server=quote(f"{program} mcp"), fork=quote(setup.fork), options=options)


_USERS_PROJECT = '${CLAUDE_PROJECT_DIR:+--project "$CLAUDE_PROJECT_DIR"}'
_PREFIX = f"""\
#!/bin/sh
# {MARK}: all commands of claude run in forks. Without mudroom they do not run.
# Its tools end with pwd. Others are MCP servers and hooks of the user: a server would hold the fork for its whole life.
# mudroom's own server makes its forks itself; in a sandbox they would be lost with it.
case $1 in
    *" && pwd -P >| "*) exec {{program}} exec --quiet --fork {{fork}} {{options}} -- bash -c "$1" ;;
    "mudroom mcp"|{{server}}) exec {{program}} mcp ;;
esac
exec {{program}} exec --quiet {{options}} -- bash -c "$1"
"""


def _gitignore(path: str) -> str:
    return "".join("\\" + character if character in "\\*?[]!#" else character for character in path)


def _codex(setup: HookSetup) -> tuple[Edit, ...]:
    hook = {"type": "command", "command": _guarded(setup), "timeout": PATIENCE}
    words = exec_words(setup.program, setup.fork, setup.agent, setup.project * setup.is_project)
    pattern = _toml((*words, "--", "bash", "-c"))
    writable = f', {_toml(setup.mount)} = "write"' if setup.is_project else ""
    return (
        _json(f"{setup.settings}/hooks.json", ("hooks", "PreToolUse", APPEND), {"matcher": "*", "hooks": [hook]}),
        BlockEdit(
            f"{setup.settings}/config.toml",
            (
                'default_permissions = "mudroom"',
                f'permissions.mudroom.filesystem = {{ ":root" = "read"{writable} }}',
            ),
        ),
        OwnFile(
            f"{setup.settings}/rules/{MARK}.rules",
            f"# {MARK}: the commands that the hook rewrites run outside codex's sandbox, in mudroom's.\n"
            f'prefix_rule(pattern = {pattern}, decision = "allow")\n',
        ),
    )


def _toml(value: str | Sequence[str]) -> str:
    import json

    return json.dumps(value)  # valid for printable characters as TOML 1.0, as Starlark and as JavaScript


def _gemini(setup: HookSetup) -> tuple[Edit, ...]:
    file = f"{setup.settings}/settings.json"
    hook = {"name": "mudroom", "type": "command", "command": _guarded(setup), "timeout": PATIENCE * 1000}
    edited: list[Edit] = [
        _json(file, ("hooks", "BeforeTool", APPEND), {"matcher": ".*", "sequential": True, "hooks": [hook]}),
        JsonEdit(file, ("hooksConfig", "enabled"), True, lambda value: value is True),
    ]
    if (
        setup.is_project
    ):  # gemini reads and writes below its workspace only, and does not start if a part of that is missing
        mounts = setup.mount.rpartition("/")[0]
        edited.append(JsonEdit(file, ("context", "includeDirectories", APPEND), mounts, _is_mounts))
    return tuple(edited)


def _is_mounts(value: Any) -> bool:
    return isinstance(value, str) and value.endswith("/mounts") and "/vaults/" in value


def _opencode(setup: HookSetup) -> tuple[Edit, ...]:
    file = f"{setup.settings}/opencode.json" if not setup.is_project else f"{setup.project}/opencode.json"
    words = exec_words(setup.program, setup.fork, setup.agent, setup.project * setup.is_project)
    line = " ".join(map(quote, (*words, "--", "bash", "-c"))) + " *"
    if setup.is_project:
        places = (_relative(setup.mount, setup.project), setup.mount[1:])
    else:
        places = ("../*" + setup.mount, setup.mount[1:])
    rules: dict[str, Any] = {
        "bash": {"*": "deny", line: "allow"},
        "edit": {"*": "deny", **dict.fromkeys((f"{place}/*" for place in places), "allow")},
        "external_directory": {f"{setup.mount}/*": "allow", setup.mount: "allow"},
    }
    plugin = f"{setup.own}/{MARK}.js"  # a plugin in .opencode makes opencode install packages there
    return (
        OwnFile(plugin, _PLUGIN % _toml(run_words(setup))),
        _json(file, ("plugin", APPEND), f"file://{_url(plugin)}"),
        *(JsonEdit(file, ("permission", kind), rule, _allows_mudroom) for kind, rule in rules.items()),
    )


def _relative(path: str, start: str) -> str:
    """Return a real path relative to another."""
    to, down = start.split("/"), path.split("/")
    while to and down and to[0] == down[0]:
        del to[0], down[0]
    return "/".join([".."] * len(to) + down)


def _allows_mudroom(value: Any) -> bool:
    """Return whether opencode's permission rules allow nothing but mudroom and its mounts."""
    if not isinstance(value, dict):
        return False
    names = [name for name, action in value.items() if action == "allow"]
    return bool(names) and all("/mounts/" in name or " exec --quiet " in name for name in names)


def _url(path: str) -> str:
    kept = frozenset(b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in path.encode())


_PLUGIN = """\
// mudroom-hook: commands and edits of opencode go into a fork. If mudroom gives no answer, the call is refused.
import { spawnSync } from "node:child_process"

const words = %s

export const MudroomHook = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    const event = { event: "tool.execute.before", tool: input.tool, args: output.args ?? {}, cwd: directory }
    const end = spawnSync(words[0], words.slice(1), {
      env: { ...process.env, MUDROOM_HOOK_PARENT: `${process.pid}` },
      input: JSON.stringify(event), encoding: "utf8", timeout: 20000, killSignal: "SIGKILL", maxBuffer: 1 << 28,
    })
    let answer
    try {
      answer = end.status === 0 ? JSON.parse(end.stdout) : undefined
    } catch {}
    if (answer?.pass === true) return
    if (answer?.args && typeof answer.args === "object") {
      Object.assign(output.args, answer.args)
      return
    }
    throw new Error(answer?.deny ??
      "mudroom: its hook gave no answer, so this is refused (mudroom hook install opencode --check says why)")
  },
})
"""


def _cursor(setup: HookSetup) -> tuple[Edit, ...]:
    file = f"{setup.settings}/hooks.json"
    hook = {"command": _guarded(setup), "timeout": PATIENCE, "failClosed": True}
    return (
        JsonEdit(file, ("version",), 1, lambda _value: False),
        _json(file, ("hooks", "preToolUse", APPEND), hook),
    )


def _copilot(setup: HookSetup) -> tuple[Edit, ...]:
    hook = {"type": "command", "bash": _guarded(setup, _ANSWERS), "timeoutSec": PATIENCE}
    folder = f"{setup.project}/.github/hooks" if setup.is_project else f"{setup.settings}/hooks"
    text = jsonc.add(jsonc.add("", ("version",), 1), ("hooks", "preToolUse", APPEND), hook)
    return (OwnFile(f"{folder}/{MARK}.json", text),)


_EDITS: Mapping[str, Callable[[HookSetup], tuple[Edit, ...]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "cursor": _cursor,
    "copilot": _copilot,
}


def _json(file: str, path: tuple[str, ...], value: Any) -> JsonEdit:
    return JsonEdit(file, path, value, _has_mark)


# --- a file's text ---


def installed(text: str | None, wanted: Sequence[Edit]) -> str:
    """Return a file's text with these edits, which are all for that file. ``text`` None: there is none yet. Raise
    SettingsError if the user has something else at their place."""
    if text is not None and not faults(text, wanted):
        return text
    current = removed(text, wanted) or ""
    for edit in wanted:
        try:
            current = _with(current, edit)
        except JsoncError as error:
            raise SettingsError(str(error)) from None
    return current


def _with(text: str, edit: Edit) -> str:
    if isinstance(edit, OwnFile):
        if text and MARK not in text:
            raise SettingsError("it is there already and not mudroom's")
        return edit.text
    if isinstance(edit, BlockEdit):
        _check_toml(text)
        newline = "\r\n" if "\r\n" in text else "\n"
        added = newline.join((BEGIN, *edit.lines, END, "")) + text
        _parsed_toml(added)
        return added
    if edit.value in jsonc.values_at(jsonc.parse(text or "{}"), edit.path):
        return text  # the user's own, or there anyway
    return jsonc.add(text, edit.path, edit.value)


def _check_toml(text: str) -> None:
    present = _parsed_toml(text)
    for name in ("default_permissions", "sandbox_mode"):
        if name in present:
            raise SettingsError(f"{name} is set already, and mudroom's hook needs a sandbox of its own")
    if "mudroom" in present.get("permissions", {}):
        raise SettingsError("permissions.mudroom is set already")


def _parsed_toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"not TOML: {error}") from None


def removed(text: str | None, wanted: Sequence[Edit]) -> str | None:
    """Return a file's text without the additions of such edits, by this version or another. None: delete the file."""
    if text is None or all(isinstance(edit, OwnFile) for edit in wanted):
        return text if text is not None and MARK not in text else None
    for edit in reversed(wanted):
        if isinstance(edit, BlockEdit):
            text = _without_block(text)
        elif isinstance(edit, JsonEdit):
            try:
                text = jsonc.remove(text, edit.path, edit.is_ours)
            except JsoncError as error:
                raise SettingsError(f"not JSON: {error}") from None
    return text


def _without_block(text: str) -> str:
    lines = text.split("\n")
    bare = [line.rstrip("\r") for line in lines]
    if BEGIN not in bare:
        return text
    begin = bare.index(BEGIN)
    if END not in bare[begin:]:
        raise SettingsError(f"line {begin + 1} begins mudroom's block, and its end is missing")
    return "\n".join(lines[:begin] + lines[bare.index(END, begin) + 1 :])


def faults(text: str | None, wanted: Sequence[Edit]) -> list[str]:
    """Return a line for each edit that is missing or differs from this version's. Raise SettingsError if the file
    cannot be parsed."""
    return [fault for edit in wanted if (fault := _fault(text, edit))]


def _fault(text: str | None, edit: Edit) -> str:
    if isinstance(edit, OwnFile):
        return "is missing" if text is None else "is changed or outdated" * (text != edit.text)
    if isinstance(edit, BlockEdit):
        lines = [line.rstrip("\r") for line in (text or "").split("\n")]
        if BEGIN not in lines or END not in lines:
            return "mudroom's block is missing"
        block = tuple(lines[lines.index(BEGIN) + 1 : lines.index(END)])
        return "mudroom's block is changed or outdated" * (block != edit.lines)
    name = ".".join(step for step in edit.path if step != APPEND)
    try:
        values = jsonc.values_at(jsonc.parse(text or "{}"), edit.path)
    except JsoncError as error:
        raise SettingsError(f"not JSON: {error}") from None
    if edit.value in values:
        more = sum(map(edit.is_ours, values)) > 1
        return f"{name} has mudroom's hook {sum(map(edit.is_ours, values))} times" if more else ""
    return f"{name} is changed or outdated" if any(map(edit.is_ours, values)) else f"{name} is missing"
