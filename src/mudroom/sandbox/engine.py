"""Container engines of this machine: which there are, and asking them for something.

They are asked by their command lines, which is what their users have configured. What they print is never believed
further than it has to be: a name of ours, a number, a label.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence

from mudroom.core.container import KINDS, Engine, EngineKind
from mudroom.errors import MudroomError, Unsupported

PATIENCE = 60.0
"""Seconds that an engine has to answer."""


def ask(argv: Sequence[bytes], environ: Mapping[bytes, bytes], timeout: float = PATIENCE) -> bytes:
    """What a command line of an engine prints. Raises MudroomError with what it says if it fails."""
    try:
        done = subprocess.run(
            list(argv), env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise MudroomError(f"{_name(argv)} does not answer for {timeout:.0f} s", "is the engine running?") from error
    except OSError as error:
        raise MudroomError(f"{_name(argv)} cannot be started: {error.strerror}") from error
    if done.returncode:
        raise MudroomError(f"{_name(argv)}: {_last_line(done.stderr)}")
    return done.stdout


def _name(argv: Sequence[bytes]) -> str:
    return os.fsdecode(os.path.basename(argv[0]))


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("See '")]
    return said[-1] if said else "it failed and said nothing"


def choose(environ: Mapping[bytes, bytes], wanted: EngineKind | None = None) -> Engine:
    """The engine to use: the one that is wanted, or the first that answers. Raises Unsupported if there is none."""
    reasons = []
    for kind in KINDS if wanted is None else (wanted,):
        program = _find(kind.encode(), environ)
        if program is None:
            reasons.append(f"no {kind}")
            continue
        try:
            return _look(kind, program, environ)
        except MudroomError as error:
            reasons.append(error.message)
    raise Unsupported(
        "level 2",
        "a container engine: Docker, Podman or Apple container",
        "; ".join(reasons),
        "install one, or start it; mudroom doctor says more",
    )


def _find(name: bytes, environ: Mapping[bytes, bytes]) -> bytes | None:
    for directory in environ.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = directory + b"/" + name
        if directory.startswith(b"/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _look(kind: EngineKind, program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    found = json.loads(ask([program, b"info", b"--format={{json .}}"], environ))
    if kind == "podman":
        rootless = bool(found["host"]["security"]["rootless"])
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return Engine(kind, program, (), found["version"]["Version"], rootless, open_files=most)
    if found.get("ServerErrors"):
        raise MudroomError(f"{kind}: {found['ServerErrors'][0]}")
    rootless = any("rootless" in option for option in found.get("SecurityOptions", ()))
    return Engine(kind, program, (), found["ServerVersion"], rootless, found.get("OSType") != "linux")
