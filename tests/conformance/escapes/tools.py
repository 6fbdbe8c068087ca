"""The sandboxes that are compared, each as somebody who wants to be safe would start it, and none at all."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .outside import Range

PATIENCE = max(40, int(os.environ.get("MUDROOM_TEST_SECONDS", "0")))
"""Seconds for one command of a series; more on slow machines."""

Argv = list[str]
Wrap = Callable[[Range, Argv], Argv]


class Tool(NamedTuple):
    name: str
    line: str
    """What it is called with, for the reader."""
    wrap: Wrap
    version: Argv
    needs: tuple[str, ...]
    """Programs; without them it cannot run here."""


def _bwrap(place: Range, argv: Argv) -> Argv:
    links = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", *links,
        "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        "--bind", str(place.project), str(place.project), "--chdir", str(place.project), *argv,
    ]  # fmt: skip


def _srt(place: Range, argv: Argv) -> Argv:
    settings = place.root / "srt.json"
    policy = {
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [f"{place.home}/.ssh"], "allowWrite": [str(place.project)], "denyWrite": []},
    }
    settings.write_text(json.dumps(policy))
    return [_found("srt"), "--settings", str(settings), "-c", shlex.join(argv)]


_SANDLOCK = """
import sys
from sandlock import Sandbox
readable = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
done = Sandbox(fs_readable=readable, fs_writable=[sys.argv[1], "/dev/null"], cwd=sys.argv[1]).run(sys.argv[2:])
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
"""


def _sandlock(place: Range, argv: Argv) -> Argv:
    """Its wheel brings no command to run others, but a library: as its README begins, without a writable /tmp."""
    return [_beside("sandlock-mcp", "python3"), "-c", _SANDLOCK, str(place.project), *argv]


_NONO = """
import sys
from nono_py import AccessMode, CapabilitySet, sandboxed_exec
allowed = CapabilitySet()
for path in ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"):
    allowed.allow_path(path, AccessMode.READ)
allowed.allow_path(sys.argv[1], AccessMode.READ_WRITE)
allowed.allow_file("/dev/null", AccessMode.READ_WRITE)
allowed.block_network()
done = sandboxed_exec(allowed, sys.argv[2:], cwd=sys.argv[1], inherit_env=True)
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
"""


def _nono(place: Range, argv: Argv) -> Argv:
    """Its wheel brings no command to run others, but a library: as its README begins."""
    return [_beside("sandlock-mcp", "python3"), "-c", _NONO, str(place.project), *argv]


def _codex(_place: Range, argv: Argv) -> Argv:
    return [_found("codex"), "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", *argv]


def _beside(name: str, other: str) -> str:
    return os.path.join(os.path.dirname(_found(name)), other)


def _mudroom(_place: Range, argv: Argv) -> Argv:
    return [sys.executable, "-m", "mudroom", "run", "--no", "--", *argv]


def _found(name: str) -> str:
    """Where a program is: on PATH, or where MUDROOM_RIVALS says."""
    path = os.environ.get("MUDROOM_RIVALS", "") + os.pathsep + os.environ.get("PATH", os.defpath)
    return shutil.which(name, path=path) or name


TOOLS: tuple[Tool, ...] = (
    Tool("none", "the command itself", lambda _place, argv: argv, ["uname", "-r"], ()),
    Tool("mudroom", "mudroom run", _mudroom, [sys.executable, "-m", "mudroom", "--version"], ()),
    Tool(
        "bwrap",
        "bwrap --unshare-all --die-with-parent --new-session, /usr and /etc read-only, the project writable",
        _bwrap,
        ["bwrap", "--version"],
        ("bwrap",),
    ),
    Tool(
        "srt",
        "srt, no domain allowed, ~/.ssh denied, the project writable",
        _srt,
        ["srt", "--version"],
        ("srt", "bwrap", "socat", "rg"),
    ),
    Tool(
        "sandlock",
        "sandlock's Sandbox(...).run, system directories readable, the project writable",
        _sandlock,
        ["sandlock"],
        ("sandlock-mcp",),
    ),
    Tool("codex", "codex sandbox, sandbox_mode workspace-write", _codex, ["codex", "--version"], ("codex",)),
    Tool(
        "nono",
        "nono's sandboxed_exec, system directories readable, the project writable, no network",
        _nono,
        ["nono"],
        ("sandlock-mcp",),
    ),
)


_PACKAGES = {"sandlock": "sandlock", "nono": "nono-py"}
"""Tools that are a library of Python, by the name of their package: both in one environment."""
_VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


def missing(tool: Tool) -> list[str]:
    return [name for name in tool.needs if shutil.which(_found(name)) is None]


def version(tool: Tool) -> str:
    if tool.name in _PACKAGES:
        program = [_beside("sandlock-mcp", "python3"), "-c", _VERSION, _PACKAGES[tool.name]]
    else:
        program = [_found(tool.version[0]), *tool.version[1:]]
    if shutil.which(program[0]) is None:
        return "not installed"
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr or "unknown").strip().splitlines()[0]


def start(tool: Tool, place: Range, argv: Sequence[str]) -> tuple[str, str]:
    """Run a command in a tool, from the project; its output and complaints. What a careless parent leaves open, it
    leaves open here. Output goes to files: a process that goes on and keeps them open holds nobody up."""
    environment = {**place.environment, "MUDROOM_KEEPER": "0", "MUDROOM_STATE": str(place.root / "state")}
    if paths := os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        process = subprocess.Popen(
            tool.wrap(place, list(argv)),
            cwd=place.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complained,
            pass_fds=place.inherited,
        )
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        texts = []
        for stream in (said, complained):
            stream.seek(0)
            texts.append(stream.read(1 << 20).decode(errors="replace"))
        return texts[0], texts[1]


def runner(tool: Tool, place: Range) -> Callable[[Argv], str]:
    return lambda argv: start(tool, place, argv)[0]
