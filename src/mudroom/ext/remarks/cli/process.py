"""``mudroom send`` as a process of its own, for the page and the terminal review: the agent outlives them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from mudroom.errors import MudroomError
from mudroom.typing import Any


def send(environ: Mapping[bytes, bytes], project: bytes, fork: str, prompt: str, *, waits: bool) -> dict[str, Any]:
    """Send a fork's remarks, and return the report when the agent has ended. ``prompt``: the id of the prompt that was
    looked at. ``waits``: leave them for the agent's own look. Raise MudroomError if nothing was sent."""
    words: list[bytes | str] = [
        "send",
        fork,
        "--json",
        "--checked",
        prompt,
        *(["--wait"] if waits else []),
        "--project",
        project,
    ]
    run = run_mudroom(environ, words)
    if not run.stdout:
        errors = run.stderr.decode("utf-8", "replace").strip().splitlines()
        raise MudroomError(errors[-1].removeprefix("mudroom: ") if errors else "the remarks could not be sent")
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def run_mudroom(environ: Mapping[bytes, bytes], words: Sequence[bytes | str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command of mudroom without a terminal."""
    # without -P, Python would look for modules in the current directory first, and PYTHONPATH may hold relative
    # entries: neither may lead into the project (``cwd`` below)
    command = [sys.executable, "-P", "-m", "mudroom", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=dict(environ), cwd=b"/"
    )
