"""What the page's server needs of the command line: sessions as a verb opens them, rules as an answer writes them, and
commands that outlive it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mudroom import __version__
from mudroom.cli.project_session import left_out, open_session
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import MudroomError
from mudroom.policy.config import load_policy, places
from mudroom.session import Session

if TYPE_CHECKING:
    from mudroom.review.new_project import Outlook
    from mudroom.web.state.server_environment import ServerEnvironment


class _Notes(Terminal):
    """Nobody sits here: what would be said is kept."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.environ)
        self.interactive = False
        self.said: list[str] = []

    def out(self, text: str) -> None:
        self.said.append(text)

    def say(self, text: str = "") -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.said.append(text)

    def progress(self, label: str, done: int, total: int) -> None:
        pass


def environment_of(context: Context, roots: Sequence[bytes]) -> ServerEnvironment:
    """What the server may do, by what this process was started with."""
    from mudroom.cli.policy.approve import keep_host
    from mudroom.cli.terminal.approver import remember_command
    from mudroom.web.state.server_environment import ServerEnvironment

    place = places(context.environ)

    def opened(project: bytes) -> tuple[Session, tuple[str, ...]]:
        terminal = _Notes(context)
        session = open_session(context._replace(project=project, terminal=terminal, as_json=True))
        return session, tuple(terminal.said)

    def start(project: bytes, fork: str, command: Sequence[bytes], timeout: float | None) -> str:
        return _start(context, project, fork, command, timeout)

    return ServerEnvironment(
        os.path.realpath(place.state),
        place.home,
        tuple(roots) or (os.path.realpath(place.home),),
        opened,
        keep_host,
        remember_command,
        start,
        __version__,
        lambda project: _outlook(context, project),
    )


def _outlook(context: Context, project: bytes) -> Outlook:
    from mudroom.review.new_project import outlook

    loaded = load_policy(project, context.environ)
    found = outlook(project, loaded.settings, home=places(context.environ).home, environ=context.environ)
    return found._replace(notes=(*found.notes, left_out(loaded))) if loaded.left_out else found


def _start(context: Context, project: bytes, fork: str, command: Sequence[bytes], timeout: float | None) -> str:
    """By ``mudroom exec --background``, which leaves a process of its own behind."""
    words: list[bytes | str] = [sys.executable, "-m", "mudroom", "exec", "--background", "--json", "--fork", fork]
    words += ["--project", project, *(["--timeout", f"{timeout:g}s"] if timeout is not None else []), "--", *command]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=dict(context.environ), cwd=project
    )
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise MudroomError(why[-1].removeprefix("mudroom: ") if why else "the command could not be started")
    return str(json.loads(said)["id"])
