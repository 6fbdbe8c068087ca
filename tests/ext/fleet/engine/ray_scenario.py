"""A Ray cluster with a head and two nodes in its own network, and a project whose errands run there: a program.

    unshare --net python ray_scenario.py DIRECTORY         prints one JSON object

All addresses are loopback, which Ray gives up where a machine has others: hence a network namespace. One node is killed
while errands run on it. It leaves nothing at the end: ``left`` are the commands of processes that are.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PORT = "26379"
PATIENCE = 60.0
COMMAND = "echo start; echo $MUDROOM_ATTEMPT > made; sleep 3; wc -c < .env > seen; pwd >> seen; echo done"
MUDROOM = [sys.executable, "-m", "mudroom"]


def main() -> None:
    top = Path(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    project, home, state = top / "project", top / "home", top / "state"
    for path in (project, home, state):
        path.mkdir(mode=0o700)
    (project / ".env").write_text("TOKEN=planted\n")
    (project / "a.py").write_text("print(1)\n")
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MUDROOM_"))},
        "HOME": str(home),
        "MUDROOM_STATE": str(state),
        "MUDROOM_KEEPER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_ADDRESS": f"127.0.0.1:{PORT}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    nodes: list[subprocess.Popen[bytes]] = []
    told: dict[str, Any] = {}
    try:
        nodes.append(
            start(
                environ,
                "head",
                "--head",
                f"--port={PORT}",
                "--num-cpus=0",
                "--include-dashboard=false",
                f"--temp-dir={short(top)}",
            )
        )
        wait_for_port()
        told = scenario(project, environ, nodes)
    finally:
        for node in nodes:
            end(node)
        shutil.rmtree(short(top), ignore_errors=True)
    told["left"] = left(str(state), environ["RAY_AUTH_TOKEN"])
    sys.stdout.write(json.dumps(told) + "\n")


def short(top: Path) -> str:
    """Return a directory for Ray's sockets, whose paths are long (unix(7): 107 bytes)."""
    return f"/tmp/r{os.stat(top).st_ino}"


def start(environ: dict[str, str], name: str, *options: str) -> subprocess.Popen[bytes]:
    ray = str(Path(sys.executable).parent / "ray")
    command = [ray, "start", "--block", *options, "--node-ip-address=127.0.0.1", f"--node-name={name}"]
    command += ["--object-store-memory=80000000", "--disable-usage-stats"]
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_port() -> None:
    import socket

    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", int(PORT))) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError("no head")


def scenario(project: Path, environ: dict[str, str], nodes: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    def mudroom(*words: str, **others: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUDROOM, *words],
            cwd=project,
            env={**environ, **others},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    mudroom("fleet", "add", "lab", "--", *MUDROOM, "worker", "--stdio", "--engine", "ray")
    told: dict[str, Any] = {"without token": mudroom("fleet", "ls", RAY_AUTH_MODE="disabled").stdout}
    told["wrong token"] = mudroom("fleet", "ls", RAY_AUTH_TOKEN="0" * 32).stdout
    for number, name in ((1, "n1"), (2, "n2")):  # one after the other: Ray chooses ports as if it were alone
        nodes.append(start(environ, name, f"--address=127.0.0.1:{PORT}", "--num-cpus=2"))
        until = time.monotonic() + PATIENCE / 2
        while f"{number} nodes" not in (listed := mudroom("fleet", "ls").stdout) and time.monotonic() < until:
            pass
    told["ended"] = [node.args for node in nodes if node.poll() is not None]
    told["nodes"] = listed
    run = subprocess.Popen(
        [*MUDROOM, "fleet", "run", "-n", "6", "--", "sh", "-c", COMMAND],
        cwd=project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if sum("| start" in each for each in lines) == 4 and "killed" not in told:
            told["killed"] = True
            end(nodes[2])  # while two errands run on each
    told["exit"], told["lines"] = run.wait(), lines
    told["forks"] = mudroom("ls").stdout
    ended = [line.split()[0] for line in told["forks"].splitlines() if line.startswith("r1-")]
    told["apply"] = mudroom("apply", "--yes", ended[0]).stdout if ended else ""
    told["project"] = {path.name: path.read_text() for path in project.iterdir() if path.is_file()}
    return told


def end(node: subprocess.Popen[bytes]) -> None:
    """Kill a node as a power loss does: each of its processes at once."""
    for pid in [*descendants(node.pid), node.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    node.wait()


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, pending = [], [pid]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found


def left(*marks: str) -> list[str]:
    """Return the commands of processes that have one of these marks in their environment, after 2 seconds."""
    until = time.monotonic() + 2
    while (found := _with(marks)) and time.monotonic() < until:
        pass
    return found


def _with(marks: tuple[str, ...]) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ = (path / "environ").read_bytes()
            if int(path.name) != os.getpid() and any(mark.encode() in environ for mark in marks):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
