"""``mudroom hook run AGENT``: the answer to one agent event, which is read from stdin.

Every failure is an answer that refuses; the guard around this program (``ext/agents/core/hook_settings.py``) refuses if
there is none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.environment import is_inside
from mudroom.core.text.json_text import to_json_text
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.core.hook_answer import DENY, HookAnswer, HookPlace, answer, message
from mudroom.ext.agents.core.hook_contract import CONTRACTS
from mudroom.ext.agents.core.hook_settings import PARENT, exec_words
from mudroom.policy.config import places
from mudroom.stage.views.preflight import find_project
from mudroom.typing import Any
from mudroom.vault.store.mount_note import read_masked
from mudroom.vault.store.store import vault_path

LIMIT = 64 << 20
"""Bytes in an event. A file that is written as a whole is in it."""
_SHELLS = ("sh", "dash", "bash", "zsh", "busybox", "timeout")
_SCRIPT = "mudroom-python"
"""As in ``src/native/native.h``: the console script, where ``mudroom`` is the program."""


def answer_event(
    agent: str, fork: str | None, tools: Sequence[str], context: Context, prefix: str | None = None
) -> int:
    """Print the answer to the event on stdin. Return 0. Raise UsageError if the agent is not known. ``prefix``: the
    program by which the agent may start commands in the fork itself."""
    if agent not in CONTRACTS:
        raise UsageError(f"there is no hook for {agent!r}", "known: " + ", ".join(CONTRACTS))
    try:
        given = _answer(agent, fork or agent, tools, context, _is_prefixed(prefix, context))
    except MudroomError as error:
        given = HookAnswer(DENY, f"mudroom: {error}")
    except Exception as error:  # noqa: BLE001 # an answer that refuses, not a traceback: the agent would go on
        given = HookAnswer(DENY, f"mudroom: its hook failed: {type(error).__name__}: {error}"[:500])
    sys.stdout.write(to_json_text(message(agent, given)) + "\n")
    return 0


def _answer(agent: str, fork: str, tools: Sequence[str], context: Context, prefixed: bool) -> HookAnswer:
    if is_inside(context.environ):  # a fork mounted here would be lost with the sandbox
        undo = f"mudroom hook install {agent} --remove{'' if context.project else ' --scope user'}"
        return HookAnswer(DENY, f"mudroom: {agent} runs inside mudroom, where its hook cannot work ({undo})")
    data = _event()
    if len(data) > LIMIT:
        return HookAnswer(DENY, f"mudroom: the event is larger than {LIMIT >> 20} MB")
    import json

    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        return HookAnswer(DENY, f"mudroom: the hook's message is not JSON ({error}), so nothing is run")
    remarks: list[str] = []
    place = _place(agent, fork, tools, event, context, remarks)
    given = answer(agent, event, place._replace(prefixed=prefixed))
    return given._replace(context=" ".join((*(f"mudroom: {remark}." for remark in remarks), given.context)).strip())


def _event() -> bytes:
    pieces, size = [], 0
    while size <= LIMIT and (piece := os.read(0, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _place(agent: str, fork: str, tools: Sequence[str], event: Any, context: Context, remarks: list[str]) -> HookPlace:
    """``remarks`` receives what happened to the fork's mount."""
    home = places(context.environ).home
    directory = event.get("cwd") if isinstance(event, dict) else None
    named = context.environ.get(CONTRACTS[agent].project_variable.encode() or b"-")
    if not isinstance(directory, str) or not directory.startswith("/"):
        directory = os.fsdecode(named) if named else os.getcwd()
    project = os.path.realpath(context.project or find_project(os.path.realpath(named or os.fsencode(directory)), home))
    shown = os.fsdecode(project)

    def mount() -> str:
        if not mounted:
            mounted.append(_mount(fork, project, context, remarks))
        return mounted[0]

    def stand() -> bool:
        agent_pid = _agent_process(context)
        if not agent_pid:
            return False
        try:
            mount()  # before: a fork in use cannot be mounted
        except MudroomError:
            return False
        return _stand(words, fork, agent_pid, project, context)

    mounted: list[str] = []
    words = exec_words(own_words(), fork, agent, shown)
    return HookPlace(
        project=shown,
        directory=os.path.realpath(directory),
        home=os.fsdecode(home),
        fork=fork,
        words=words,
        mount=mount,
        resolve=os.path.realpath,
        usual_mount=os.fsdecode(vault_path(os.path.realpath(places(context.environ).state), project))
        + "/mounts/"
        + fork,
        tools=tuple(tools),
        stand=stand,
    )


def _agent_process(context: Context) -> int:
    """Return the pid of the agent: the nearest ancestor of the hook that is not a shell; 0 if it cannot be told."""
    with suppress(OSError, ValueError):  # it has ended
        pid = int(context.environ.get(PARENT.encode(), b"0"))
        while pid > 1:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                before, _bracket, after = stream.read().rpartition(")")
            if before.partition("(")[2] not in _SHELLS:
                return pid
            pid = int(after.split()[1])  # ppid: proc_pid_stat(5)
    return 0


def _stand(words: Sequence[str], fork: str, pid: int, project: bytes, context: Context) -> bool:
    """Let the fork's sandbox stay until the agent ends, by a command that does nothing. Return whether it does."""
    with open_session(context._replace(project=project)) as session:
        rows = session.sandboxes.backgrounds(fork)
    if any(started.companion == pid and ended is None for started, ended in rows):
        return True
    import subprocess

    line = [*words, "--background", "--companion", str(pid), "--ask", "never", "--", "sleep", "infinity"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def own_words() -> tuple[str, ...]:
    """Return the words that start this mudroom, from any directory: by an absolute path, and without any module in the
    current directory."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) == _SCRIPT:
        program = os.path.join(os.path.dirname(program), "mudroom")  # the native client
    if os.path.basename(program) == "mudroom" and os.access(program, os.X_OK) and os.path.isfile(program):
        return (program,)
    return (sys.executable, "-P", "-m", "mudroom")


def _is_prefixed(prefix: str | None, context: Context) -> bool:
    """Return whether the agent starts each command by this program. Its path must match the installation: a project's
    settings may change the environment."""
    used = context.environ.get(b"CLAUDE_CODE_SHELL_PREFIX", b"")
    return prefix is not None and used == os.fsencode(prefix) and os.access(prefix, os.X_OK)


def _mount(fork: str, project: bytes, context: Context, remarks: list[str]) -> str:
    """Return the directory at which the fork is mounted. The fork is made and mounted if necessary."""
    with open_session(context._replace(project=project)) as session:
        if session.vault.find(fork) is None:
            session.forks.new(fork)
        # a recorded mount may have ended, as by a restart of the machine: its directory is a plain one then
        note = session.forks.mount(fork)
        if session.forks.secrets.look()[0].paths - read_masked(session.vault.fork(fork).path):
            session.forks.unmount(fork)  # a secret that is newer than the mount could be read there
            note = session.forks.mount(fork)
        remarks += session.forks.unsaid()
        return os.fsdecode(note.place)
