"""Command line functions for the page's server: open a session as a verb does, store an answer's rule, start a command
that outlives the server."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from mudroom import __version__
from mudroom.cli.fork.status import certified
from mudroom.cli.project_session import open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.registry import part
from mudroom.errors import MudroomError
from mudroom.ext.remarks.cli.process import run_mudroom, send
from mudroom.ext.remarks.cli.send import agent_words
from mudroom.ext.review.recording_terminal import RecordingTerminal
from mudroom.ext.web.cli.new_project import Outlook, predict_run
from mudroom.ext.web.state.server_state import ServerEnvironment
from mudroom.policy.config import left_out, load_policy, places
from mudroom.session import Session
from mudroom.stage import disk


def environment_of(context: Context, roots: Sequence[bytes]) -> ServerEnvironment:
    """Return the server's functions, using this process's environment."""
    locations = places(context.environ)

    def open_project(project: bytes) -> tuple[Session, tuple[str, ...]]:
        terminal = RecordingTerminal(context.environ)
        session = open_session(context._replace(project=project, terminal=terminal, as_json=True))
        return session, tuple(terminal.messages)

    def start(project: bytes, fork: str, command: Sequence[bytes], timeout: float | None) -> str:
        return _start(context, project, fork, command, timeout)

    return ServerEnvironment(
        disk.real_path(locations.state),
        locations.home,
        tuple(roots) or (disk.real_path(locations.home),),
        open_project,
        start,
        __version__,
        lambda project: _outlook(context, project),
        lambda: part("commits", "cli", "a commit of an apply").user_git_files(context.environ),
        lambda project, fork, prompt, waits: send(context.environ, project, fork, prompt, waits=waits),
        lambda session, fork: agent_words(session, fork, context.environ),
        lambda: certified(context),
    )


def _outlook(context: Context, project: bytes) -> Outlook:
    loaded = load_policy(project, context.environ)
    folder = predict_run(project, loaded.settings, home=places(context.environ).home, environ=context.environ)
    return folder._replace(notes=(*folder.notes, left_out(loaded))) if loaded.left_out else folder


def _start(context: Context, project: bytes, fork: str, command: Sequence[bytes], timeout: float | None) -> str:
    """Start a command by ``mudroom exec --background``, which leaves its own process behind."""
    if sys.platform == "win32":
        raise MudroomError("no command runs in the background on Windows", f"mudroom exec --fork {fork} -- COMMAND")
    arguments: list[bytes | str] = ["exec", "--background", "--json"]
    arguments += [
        "--fork",
        fork,
        "--project",
        project,
        *(["--timeout", f"{timeout:g}s"] if timeout is not None else []),
        "--",
        *command,
    ]
    run = run_mudroom(context.environ, arguments)
    output = run.stdout.decode("utf-8", "replace")
    if run.returncode:
        errors = run.stderr.decode("utf-8", "replace").strip().splitlines()
        raise MudroomError(errors[-1].removeprefix("mudroom: ") if errors else "the command could not be started")
    return str(json.loads(output)["id"])
