"""``bash``: a command in the fork's sandbox, waited for or in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mudroom.core.background import BackgroundEnd
from mudroom.core.network.allowing import command_to_allow
from mudroom.core.result import Denial, Result, denial_to_json, text
from mudroom.core.system.shell import shell_words
from mudroom.core.tree.change import summarise
from mudroom.core.tree.path import show
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.path import shown
from mudroom.ext.agents.tools.tool import MOST, Hints, Tool, ToolContext, ToolResult, decoded, middle_out
from mudroom.ext.agents.tools.workspace import ToolWorkspace, words
from mudroom.session.order import Stdio
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mudroom.session import Background

SECONDS = 120
"""Default timeout for a command."""
MOST_SECONDS = 3_600
_SHELLS = (b"/bin/bash", b"/usr/bin/bash")
_ON_WINDOWS = " The shell is cmd.exe, and reads one line; background does not work." if sys.platform == "win32" else ""
_NAMED = 5
_KEPT = 4 << 20
"""Characters of an ended command's output that can be read in parts."""
_MODES = {"command": ("cwd", "timeout", "background"), "id": ("since", "wait", "end")}
"""Each mode by its argument, with the mode's other arguments."""


def _bash(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    mode = _mode(arguments)
    if mode == "id":
        return _output(workspace, arguments, context)
    if "\0" in arguments["command"] or not arguments["command"].strip():
        raise ToolError("the command is empty or holds a NUL", 'such as {"command": "make test"}')
    try:
        line = arguments["command"].encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("the command holds a lone surrogate", "send valid Unicode") from None
    shell = b"bash" if any(map(os.path.exists, _SHELLS)) else b"sh"
    argv = [*shell_words(shell), line]
    cwd = _directory(workspace, arguments["cwd"])
    if arguments["background"]:
        return _start(workspace, argv, cwd, arguments, context)
    return _run(workspace, argv, cwd, arguments, context)


def _mode(arguments: Mapping[str, Any]) -> str:
    given = [name for name in _MODES if arguments[name]]
    if len(given) != 1:
        raise ToolError(
            "bash takes either a command, or the id of one" if given else "bash: the argument command is missing",
            'run one: {"command": "make test"}; go on with one: {"id": "…"}',
        )
    other = _MODES["id" if given[0] == "command" else "command"]
    wrong = [name for name in other if arguments[name]]
    if wrong:
        raise ToolError(f"{wrong[0]} does not go with {given[0]}", f"with {given[0]}: {', '.join(_MODES[given[0]])}")
    return given[0]


def _directory(workspace: ToolWorkspace, path: str) -> bytes:
    project = workspace.session.project
    if path in ("", "."):
        return project
    tree = workspace.tree()
    at = workspace.path(tree, path)
    entry = tree.look(at) if at else None
    if at and (entry is None or entry.kind != "directory"):
        raise ToolError(f"{shown(at)} is no directory", "list shows what there is")
    return project + b"/" + at if at else project


# --- in the foreground ---


class _Collected:
    """Output in the order in which it came, bounded. Owner: the call's thread."""

    def __init__(self, context: ToolContext) -> None:
        self._context, self._pieces, self._size = context, list[bytes](), 0

    def __call__(self, stream: str, data: bytes) -> None:
        if self._size < _KEPT:
            self._pieces.append(data[: _KEPT - self._size])
        self._size += len(data)
        if self._context.on_output is not None:
            self._context.on_output(stream, data)

    def text(self) -> str:
        kept = decoded(b"".join(self._pieces))
        left_out = self._size - min(self._size, _KEPT)
        more = f"\n[… {left_out:,} bytes more were not kept: write them to a file, and read that]\n" if left_out else ""
        return kept + more


def _run(
    workspace: ToolWorkspace, argv: list[bytes], cwd: bytes, arguments: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    session, collected = workspace.session, _Collected(context)
    allowed = session.actor.settings.timeout
    asked = arguments["timeout"] or SECONDS
    workspace.share_files()
    result = session.run(
        argv,
        fork=workspace.fork,
        cwd=cwd,
        stdio=Stdio(on_output=collected),
        timeout=min(asked, allowed) if allowed else asked,
        actor=workspace.actor,
        approver=context.approver,
        cancellation=context.cancellation,
    )
    if not result.ran:
        raise refusal(result)
    output = collected.text()
    more = "bash with id {name}, since {{start}}"
    shown_output, truncated = output, False
    identity = ""
    if len(output) > MOST:
        identity = workspace.keep_output(output)
        shown_output, truncated = middle_out(output, more.format(name=identity))
    changed = summarise(result.changeset.changes)
    data = {
        "output": shown_output,
        "truncated": truncated,
        "exit_code": result.exit_code,
        "seconds": round(result.duration, 3),
        "changed_files": changed.files,
    }
    more_data = {
        "id": identity,
        "timed_out": result.timed_out,
        "checkpoint": result.checkpoint,
        "limits": [str(limit) for limit in result.reached],
        "notes": list(result.notes),
        "denials": [denial_to_json(denial) for denial in result.denials],
    }
    data |= {name: value for name, value in more_data.items() if value}  # clients show all of it to their models
    return ToolResult(_with_end(shown_output, _end_lines(result, asked)), data)


def _with_end(output: str, lines: list[str]) -> str:
    gap = "" if not output or output.endswith("\n") else "\n"
    return output + gap + "".join(f"[{line}]\n" for line in lines)


def _end_lines(result: Result, asked: float) -> list[str]:
    head = f"exit code {result.exit_code}" + (f", signal {result.signal}" if result.signal else "")
    if result.timed_out:
        head += f", ended after {asked:g} s: raise timeout, or use background"
    files = summarise(result.changeset.changes).files
    head += f"; the fork differs from the project in {files:,} {'file' if files == 1 else 'files'}" if files else ""
    lines = [head]
    if result.checkpoint is not None:
        lines.append(f"a checkpoint was made before it: {result.checkpoint}; rollback returns to it")
    lines += [str(limit) for limit in result.reached]
    lines += result.notes[:_NAMED]
    return lines + refused_lines(result.denials)


def refused_lines(denials: tuple[Denial, ...]) -> list[str]:
    lines = []
    for denial in denials[:_NAMED]:
        target, line = show(denial.target), f"refused: {show(denial.target)}: {denial.reason}"
        command = command_to_allow(target, denial.reason) if denial.kind == "network" else ""
        lines.append(f"{line} (the user can allow it: {command})" if command else line)
    if len(denials) > _NAMED:
        lines.append(f"refused: {len(denials) - _NAMED:,} more; status lists them")
    return lines


def refusal(result: Result) -> ToolError:
    """Return the error for a command that the policy or an approver refused."""
    verdict, answer = result.verdict, result.approval
    message = f"refused, and not run: {verdict.reason} (rule: {verdict.rule})"
    instead = f"allowed instead: {verdict.instead}" if verdict.instead else ""
    if verdict.action == "require_approval":
        waits = answer is not None and answer.reason.startswith("waiting for approval")
        instead = (
            "the user answers by that command; send the same command again afterwards"
            if waits
            else "do not try the same by other words; ask the user, or go on without it"
        )
    elif not instead:
        instead = "do not try the same by other words; why explains the rules"
    data = {
        "verdict": verdict.action,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "classes": list(verdict.classes),
    }
    return ToolError(message, instead, **data)


# --- in the background ---


def _start(
    workspace: ToolWorkspace, argv: list[bytes], cwd: bytes, arguments: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    if context.cancellation is not None:
        context.cancellation.require_unset()
    background = workspace.session.start(
        argv,
        fork=workspace.fork,
        cwd=cwd,
        timeout=arguments["timeout"],
        actor=workspace.actor,
        approver=context.approver,
    )
    if background.refused is not None:
        raise refusal(background.refused)
    line = f"started in the background with id {background.id}; it ends when this server ends"
    how = f'output: bash {{"id": "{background.id}"}}; end it: bash {{"id": "{background.id}", "end": true}}'
    return ToolResult(f"{line}\n{how}\n", {"id": background.id, "output": "", "truncated": False, "running": True})


def _output(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    identity = arguments["id"]
    kept = workspace.kept_output(identity)
    if kept is not None:
        return _kept(identity, kept, arguments)
    background = _background(workspace, identity)
    if arguments["end"]:
        background.end()
    ended = _waited(background, float(arguments["wait"] or 0), context)
    marks = tuple((arguments["since"] or ",").partition(",")[::2])
    out, err = background.printed(marks, MOST // 2)
    output = decoded(out.data) + decoded(err.data)
    cut = [part for part in (out, err) if part.before]
    lines = [f"{sum(part.before or 0 for part in cut):,} earlier bytes of it are not shown"] if cut else []
    since = f"{out.mark},{err.mark}"
    if ended is None:
        lines.append(f'running; later output: bash {{"id": "{identity}", "since": "{since}"}}')
    else:
        lines.append(f"ended with exit code {ended.exit_code}" + (", out of time" if ended.timed_out else ""))
    data = {
        "id": identity,
        "output": output,
        "truncated": bool(cut),
        "since": since,
        "running": ended is None,
        "exit_code": ended.exit_code if ended is not None else None,
        "command": [text(word) for word in background.argv],
    }
    return ToolResult(_with_end(output, lines), data)


def _kept(identity: str, output: str, arguments: Mapping[str, Any]) -> ToolResult:
    since = arguments["since"] or "0"
    if not (since.isdecimal() and len(since) < 12):
        raise ToolError(
            f"since of {identity} is a number of characters", f'such as {{"id": "{identity}", "since": "0"}}'
        )
    start = int(since)
    part = output[start : start + MOST]
    after = start + len(part)
    lines = [f"characters {start:,} to {after:,} of {len(output):,}"]
    if after < len(output):
        lines[0] += f'; the next: bash {{"id": "{identity}", "since": "{after}"}}'
    data = {"id": identity, "output": part, "since": str(after), "truncated": after < len(output), "running": False}
    return ToolResult(_with_end(part, lines), data)


def _background(workspace: ToolWorkspace, identity: str) -> Background:
    session, name = workspace.session, workspace.fork
    rows = session.sandboxes.backgrounds(name)
    if not any(started.id == identity for started, _ended in rows):
        running = [f"{started.id} ({words(started.command)})" for started, ended in rows if ended is None]
        has = (
            f"running in the background: {', '.join(running[:_NAMED])}" if running else "nothing runs in the background"
        )
        raise ToolError(f"there is no command {ascii(identity)[:80]} in this fork", f"{has}; status lists all")
    return session.background(identity)


def _waited(background: Background, seconds: float, context: ToolContext) -> BackgroundEnd | None:
    """Wait until a background command ends, at most for the requested time, or until the call is cancelled."""
    import time

    until = time.monotonic() + seconds
    while (ended := background.poll()) is None and not context.is_cancelled:
        left = until - time.monotonic()
        if left <= 0:
            return None
        background.wait(min(left, 0.2))
    return ended


_STRING, _INTEGER, _FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

COMMAND_TOOLS = (
    Tool(
        "bash",
        "Run a command",
        "Run a shell command in a sandbox on your staged copy of the project, at the project's own path. All it "
        "changes in the project is staged in your fork: nothing lands before the user applies it. Each command starts "
        "anew in the project's directory: cd and variables do not last. No terminal, no input; the network and some "
        "commands are ruled by the user's policy, and a refusal says what is allowed. With background: true it goes on "
        "(servers, watchers) and you get an id; call again with id for its output or its end." + _ON_WINDOWS,
        schema.of_object(
            {
                "command": schema.string("The line for the shell.", most=200_000),
                "cwd": schema.string("Directory in the project. Default: the project's.", most=4_096, default=""),
                "timeout": schema.number(
                    f"Seconds; then it is ended. Default {SECONDS}; in the background none.", 0.1, MOST_SECONDS
                ),
                "background": schema.flag("Return at once with an id."),
                "id": schema.string("Of a background command, or of an output that was too long.", most=100),
                "since": schema.string("With id: the since of an earlier answer; only newer output returns.", most=100),
                "wait": schema.number("With id: seconds to wait for its end.", 0, 600),
                "end": schema.flag("With id: end the command."),
            }
        ),
        schema.of_object(
            {
                "output": {"type": "string", "description": "stdout and stderr, as they came."},
                "truncated": _FLAG,
                "id": _STRING,
                "exit_code": {"type": ["integer", "null"]},
                "timed_out": _FLAG,
                "seconds": {"type": "number"},
                "changed_files": {
                    "type": "integer",
                    "description": "Files in which the fork differs from the project.",
                },
                "checkpoint": {"type": "string", "description": "Made before the command; rollback returns to it."},
                "notes": {"type": "array", "items": _STRING},
                "denials": {"type": "array", "items": {"type": "object"}},
                "running": _FLAG,
                "since": _STRING,
            },
            ("output", "truncated"),
            is_open=True,
        ),
        Hints(destructive=True),
        _bash,
    ),
)
