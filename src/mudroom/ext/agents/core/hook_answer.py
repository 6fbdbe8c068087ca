"""The answer of mudroom's hook to an agent's event: a command goes into the fork, a path into the fork's mounted
directory, and all else is refused or left to the agent. Pure, except for the functions in ``HookPlace``.

Rules of this file:
1. An event that deviates from its contract (its event, a name, a type) is refused. The reason names the deviation.
2. A command becomes one word for ``mudroom exec``: quoted as sh(1) reads it (POSIX, 2.2.2), and never parsed.
3. A written path leads into the mounted fork, also after its links are followed. A path outside the project may be
   read, as the agent's permissions decide, but not written.
4. A link is resolved before the agent opens the path. This does not hold a process in the fork that replaces a
   directory by a link in between: the agent opens files in its own process (docs/HOOKS.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mudroom.core.text.regex import regex
from mudroom.ext.agents.core.hook_contract import (
    COMMAND,
    COMMAND_OR_PATCH,
    CONTRACTS,
    EDIT,
    PATCH,
    READ,
    SEARCH,
    HookContract,
    ToolContract,
)
from mudroom.typing import Any, NamedTuple

ALLOW, DENY, PASS = "allow", "deny", "pass"
_LINKS = 8
"""Most links into the project that are followed for one path."""
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")
_NAME = _PLAIN - frozenset("%+=:,/@")
"""Characters in fork names."""
_CLIPPED = 120


class HookPlace(NamedTuple):
    """Where an event happens."""

    project: str
    """A real path."""
    directory: str
    """The agent's current directory."""
    home: str
    fork: str
    words: tuple[str, ...]
    """``mudroom exec`` with all its options, up to ``--``."""
    mount: Callable[[], str]
    """Return the directory at which the fork is mounted. Raise MudroomError if it cannot be mounted."""
    resolve: Callable[[str], str]
    """realpath(3), also for a path that does not exist."""
    usual_mount: str = ""
    """Where the fork is mounted if the user has named no other directory. Commands see it at the project's path."""
    tools: tuple[str, ...] = ()
    """Tools that the user allows: names, or prefixes ending with ``*``."""
    prefixed: bool = False
    """The agent starts all commands through mudroom already."""
    stand: Callable[[], bool] = lambda: False
    """Let the fork's sandbox stay until the agent ends. Return False if that is not possible."""


class HookAnswer(NamedTuple):
    decision: str
    """allow: with ``arguments`` instead of the tool's own; deny; pass: the agent's own permissions decide."""
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    context: str = ""
    """For the model, where its agent can add to a result: the path by which the file is edited, and remarks."""


class _Denied(Exception):
    """The reason is the message."""


def answer(agent: str, event: object, place: HookPlace) -> HookAnswer:
    """Return the answer to an agent's parsed message."""
    try:
        return _answer(CONTRACTS[agent], event, place)
    except _Denied as denied:
        return HookAnswer(DENY, f"mudroom: {denied}")


def _answer(contract: HookContract, event: object, place: HookPlace) -> HookAnswer:
    if not isinstance(event, dict):
        raise _Denied(f"the hook's message is {_kind(event)}, not an object: {_CHANGED}")
    name = event.get(contract.event_field) if contract.event_field else contract.event
    if name != contract.event:
        raise _Denied(f"{contract.event_field} is {_shown(name)}, not {contract.event}: {_CHANGED}")
    tool = event.get(contract.tool_field)
    if not isinstance(tool, str) or not tool:
        raise _Denied(f"{contract.tool_field} is {_shown(tool)}, not the name of a tool: {_CHANGED}")
    known = contract.tools.get(tool)
    if known is None:
        return _other(contract, tool, event.get(contract.input_field), place.tools)
    arguments = event.get(contract.input_field)
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    if not isinstance(arguments, dict):
        raise _Denied(f"{contract.input_field} of {tool} is {_kind(arguments)}, not an object: {_CHANGED}")
    changed = _KINDS[known.kind](tool, known, arguments, place)
    if changed is None:
        return HookAnswer(PASS)
    return HookAnswer(ALLOW, "staged by mudroom", changed, _other_path(known, arguments, changed, place))


def _other_path(contract: ToolContract, before: Mapping[str, Any], after: Mapping[str, Any], place: HookPlace) -> str:
    """Return the sentence about a file whose path was changed. claude compares an edit with the file at the path that
    the model gives, before it asks the hook: in the project that file is missing, or has not the fork's text."""
    path = after[contract.field] if contract.kind in (READ, EDIT) else ""
    if not path or path == before[contract.field]:
        return ""
    own = place.project + path.removeprefix(place.mount())
    return f"mudroom: {own} is the fork's file for commands; Read, Edit and Write find it at {path} only."


_CHANGED = "this contract of hooks is not known, so nothing is run (mudroom hook shows the known versions)"


def _other(contract: HookContract, tool: str, arguments: object, allowed: Sequence[str]) -> HookAnswer:
    outward = [name for name in contract.outward if isinstance(arguments, dict) and arguments.get(name)]
    if tool in contract.quiet and outward:
        raise _Denied(f"{outward[0]} of {tool} changes the project itself, outside the fork: leave it out")
    is_named = any(tool == name or (name.endswith("*") and tool.startswith(name[:-1])) for name in allowed)
    if tool in contract.quiet or tool.startswith(contract.own_tools) or is_named:
        return HookAnswer(PASS)
    kind = (
        "a tool of an MCP server works"
        if tool.startswith(contract.mcp)
        else "a tool that mudroom does not know may work"
    )
    raise _Denied(
        f"{_shown(tool)}: {kind} outside the fork (allow it with mudroom hook install --allow-tool {tool[:80]!r})"
    )


def _parsed(text: str) -> object:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- by kind ---


def _command(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> dict[str, Any] | None:
    given = _text(tool, contract.field, arguments)
    if not place.stand() and contract.background and arguments.get(contract.background):
        raise _Denied(
            "a command in the background would hold the fork, and others would wait for its end (the user may run "
            f"mudroom exec --background --fork {place.fork} -- …)"
        )
    command = _in_project(given, place)
    if place.prefixed:
        return None if command == given else {**arguments, contract.field: command}
    line = command if _is_staged(command, place.words) else command_line(command, place.words)
    changed = {**arguments, contract.field: line}
    if contract.directory in arguments:
        # mudroom finds its way from the agent's directory; the fork has the same directory
        directory = _absolute(_text(tool, contract.directory, arguments), place)
        if not _is_below(directory, place.project) or not _is_below(place.resolve(directory), place.project):
            raise _Denied(f"{_shown(directory)} is outside the project {place.project}")
    return changed


def _in_project(command: str, place: HookPlace) -> str:
    """Return the command with the mount's path, which the agent has from its file tools, replaced by the project's."""
    if not place.usual_mount or not _PLAIN.issuperset(place.project):
        return command
    first, *others = command.split(place.usual_mount)
    # the mount of fork "a" is a prefix of the mount of "a-2"
    return first + "".join((place.usual_mount if other[:1] in _NAME else place.project) + other for other in others)


_HERE_DOCUMENT = regex(r"(?s)([ \t\n]*apply_patch[ \t]+<<[ \t]*(['\"])(\w+)\2[ \t]*\n)(.*)(\n\3[ \t\n]*)")
"""Only blanks and newlines as sh knows them (POSIX, 2.3): with another white space character the shell would run a
command with another name."""


def _command_or_patch(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> Any:
    """Handle a here-document with a quoted delimiter as a patch: the shell takes it literally (POSIX, 2.7.4). Without
    quotes it is a command."""
    command = _text(tool, contract.field, arguments)
    match = _HERE_DOCUMENT.fullmatch(command) if command.lstrip().startswith("apply_patch") else None
    if match is None or match.group(3) in match.group(4).split("\n"):
        return _command(tool, contract, arguments, place)
    changed = _patch(tool, contract, {contract.field: match.group(4)}, place)
    return {**arguments, contract.field: match.group(1) + changed[contract.field] + match.group(5)}


def command_line(command: str, words: Sequence[str]) -> str:
    """Return the line that runs a command line in the fork."""
    return " ".join(map(quote, (*words, "--", "bash", "-c", command)))


def _is_staged(command: str, words: Sequence[str]) -> bool:
    """Return whether a command is exactly such a line already, because the hook in the other scope has rewritten it."""
    beginning = command_line("x", words)[:-1]
    word = command[len(beginning) :]
    inner = word[1:-1].replace("'\"'\"'", "'") if word.startswith("'") else word
    return command.startswith(beginning) and bool(inner) and quote(inner) == word


def quote(word: str) -> str:
    """Return a word as sh(1) reads it, like ``shlex.quote``, whose module compiles regular expressions."""
    return word if word and _PLAIN.issuperset(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def _edit(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> dict[str, Any]:
    return {**arguments, contract.field: _written(_text(tool, contract.field, arguments), place)}


def _read(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> dict[str, Any] | None:
    path = _inside(_text(tool, contract.field, arguments), place)
    return None if path is None else {**arguments, contract.field: path}


def _search(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> dict[str, Any] | None:
    """A search starts at a directory, the current one if none is named. Its pattern may be an absolute path."""
    changed = dict(arguments)
    if (pattern := arguments.get(contract.field)) is not None:
        pattern = _text(tool, contract.field, arguments)
        if ".." in pattern.split("/"):
            raise _Denied(f"the pattern {_shown(pattern)} leads out of its directory")
        if pattern.startswith(("/", "~")):
            staged = _inside(pattern, place)
            changed[contract.field] = pattern if staged is None else staged
    directory = arguments.get(contract.directory)
    start = place.directory if directory in (None, "") else _text(tool, contract.directory, arguments)
    path = _inside(start, place)
    if path is not None:
        changed[contract.directory] = path
    return None if changed == arguments else changed


def _patch(tool: str, contract: ToolContract, arguments: dict[str, Any], place: HookPlace) -> dict[str, Any]:
    try:
        patch = with_paths(_text(tool, contract.field, arguments), lambda path: _written(path, place))
    except PatchError as error:
        raise _Denied(f"{tool}: {error}: {_CHANGED}") from None
    return {**arguments, contract.field: patch}


_KINDS: Mapping[str, Callable[..., Any]] = {
    COMMAND: _command, COMMAND_OR_PATCH: _command_or_patch, EDIT: _edit, READ: _read, SEARCH: _search, PATCH: _patch,
}  # fmt: skip


def _text(tool: str, field: str, arguments: Mapping[str, Any]) -> str:
    value = arguments.get(field)
    if not isinstance(value, str) or not value:
        raise _Denied(f"{field} of {tool} is {_kind(value)}, not a text: {_CHANGED}")
    if "\0" in value:
        raise _Denied(f"{field} of {tool} holds a NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Denied(f"{field} of {tool} is not valid Unicode") from None
    return value


# --- paths ---


def _written(path: str, place: HookPlace) -> str:
    staged = _inside(path, place, writes=True)
    if staged is None:
        raise _Denied(f"{_shown(path)} is outside the project {place.project}; only its files are written, in the fork")
    return staged


def _inside(path: str, place: HookPlace, *, writes: bool = False) -> str | None:
    """Return the path in the mounted fork; None if it is neither in the project nor in the fork."""
    absolute = _absolute(path, place)
    for _link in range(_LINKS):
        mount = place.mount()
        if _is_below(absolute, mount):
            staged = absolute
        elif _is_below(absolute, place.project):
            staged = mount + absolute[len(place.project) :]
        else:
            real = place.resolve(absolute)
            if real == absolute or not (_is_below(real, place.project) or _is_below(real, place.resolve(mount))):
                return None
            absolute = real
            continue
        real = place.resolve(staged)
        if _is_below(real, place.resolve(mount)):
            return staged
        if not _is_below(real, place.project):
            if writes:
                raise _Denied(f"{_shown(path)} leads through a link out of the fork, to {_shown(real)}")
            return staged
        absolute = real
    raise _Denied(f"{_shown(path)} leads through too many links")


def _absolute(path: str, place: HookPlace) -> str:
    if path == "~" or path.startswith("~/"):
        path = place.home + path[1:]
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{place.directory}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, str) or not value.isprintable() else value
    return text if len(text) <= _CLIPPED else text[: _CLIPPED - 1] + "…"


def _kind(value: object) -> str:
    kinds = {type(None): "missing", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "a text" if isinstance(value, str) else "an object")


# --- in the agent's own form ---


def message(agent: str, given: HookAnswer) -> dict[str, Any]:
    return _MESSAGES[agent](given)


def _claude(given: HookAnswer) -> dict[str, Any]:
    if given.decision == PASS:
        return {}
    output: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": given.decision}
    if given.decision == DENY:
        output["permissionDecisionReason"] = given.reason
    else:
        output["updatedInput"] = given.arguments
        if given.context:
            output["additionalContext"] = given.context
    return {"hookSpecificOutput": output}


def _codex(given: HookAnswer) -> dict[str, Any]:
    if given.decision == ALLOW and given.arguments is not None:  # codex takes the field "command" alone
        output = {"hookEventName": "PreToolUse", "permissionDecision": ALLOW}
        return {"hookSpecificOutput": {**output, "updatedInput": {"command": given.arguments["command"]}}}
    return _claude(given)


def _gemini(given: HookAnswer) -> dict[str, Any]:
    if given.decision == PASS:
        return {}
    if given.decision == DENY:
        return {"decision": "deny", "reason": given.reason}
    return {"decision": "allow", "hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": given.arguments}}


def _opencode(given: HookAnswer) -> dict[str, Any]:
    if given.decision == DENY:
        return {"deny": given.reason}
    return {"args": given.arguments} if given.decision == ALLOW else {"pass": True}


def _cursor(given: HookAnswer) -> dict[str, Any]:
    if given.decision == DENY:
        return {"permission": "deny", "user_message": given.reason, "agent_message": given.reason}
    return {} if given.decision == PASS else {"permission": "allow", "updated_input": given.arguments}


def _copilot(given: HookAnswer) -> dict[str, Any]:
    if given.decision == DENY:
        return {"permissionDecision": "deny", "permissionDecisionReason": given.reason}
    return {} if given.decision == PASS else {"permissionDecision": "allow", "modifiedArgs": given.arguments}


_MESSAGES: Mapping[str, Callable[[HookAnswer], dict[str, Any]]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode, "cursor": _cursor,
    "copilot": _copilot,
}  # fmt: skip


# --- paths in a patch in ``apply_patch``'s format, which codex and opencode use ---


BEGIN, END = "*** Begin Patch", "*** End Patch"
HEADINGS = ("*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: ")
_OTHER = ("*** End of File",)


class PatchError(ValueError):
    """Not a patch in this format. The message is one line."""


def with_paths(patch: str, replace: Callable[[str], str]) -> str:
    """Return the patch with each path replaced. Raise PatchError if a line is not known."""
    lines = patch.split("\n")
    if lines[0].strip() != BEGIN or END not in (line.strip() for line in lines):
        raise PatchError(f"it does not begin with {BEGIN} and end with {END}")
    named = 0
    for number, line in enumerate(lines):
        text = line.replace("\ufeff", "").strip()  # JavaScript's trim() takes it for white space
        if not text.startswith("***") or line.startswith(("+", "-")):
            continue
        heading = next((heading for heading in HEADINGS if text.startswith(heading.strip())), None)
        if not line.startswith("***"):  # context, or a heading to a reader that ignores white space
            if heading is not None or text in (BEGIN, END):
                raise PatchError(f"line {number + 1} may be a heading: {text[:60]!r}")
            continue
        if heading is not None:
            if not text.startswith(heading):
                raise PatchError(f"line {number + 1} names no file")
            named += 1
            lines[number] = heading + replace(text[len(heading) :].strip())
        elif text not in (BEGIN, END, *_OTHER):
            raise PatchError(f"line {number + 1} is not known: {text[:60]!r}")
    if not named:
        raise PatchError("it names no file")
    return "\n".join(lines)
