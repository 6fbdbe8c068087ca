"""A Ray cluster with a head and two nodes, and a real project's tests on it: a program.

    unshare --net python ray_matrix.py DIRECTORY SDIST [ROUNDS]   prints one JSON object; exits 1 if something is wrong

SDIST is more-itertools' source archive. Each test class is an errand, which leaves a report. A node is killed when a
quarter has ended. Then the lost errands are named and run nowhere a second time, the reports are applied here, and the
run leaves nothing on any node. ``left``: processes' commands; ``kept``: paths.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ray_scenario import MUDROOM, PATIENCE, PORT, end, left, short, start, wait_for_port

PLACES = 2
MOST = 64
"""Test classes."""
PYTHON = "/usr/bin/python3"


def main() -> None:
    top, sdist = Path(sys.argv[1]), Path(sys.argv[2])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    project, home = top / "project", top / "home"
    home.mkdir(mode=0o700)
    subprocess.run(["tar", "-xzf", sdist, "-C", top, "--no-same-owner"], check=True)
    next(top.glob("more_itertools-*")).rename(project)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MUDROOM_"))},
        "HOME": str(home),
        "MUDROOM_STATE": str(top / "origin"),
        "MUDROOM_KEEPER": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_ADDRESS": f"127.0.0.1:{PORT}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    nodes: dict[str, subprocess.Popen[bytes]] = {}
    told: dict[str, Any] = {}
    try:
        options = (f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={short(top)}")
        nodes["head"] = start({**environ, "MUDROOM_STATE": str(top / "head")}, "head", "--head", *options)
        wait_for_port()
        told = scenario(top, project, environ, nodes)
        told["per task"] = per_task(project, environ, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    finally:
        for node in nodes.values():
            end(node)
        shutil.rmtree(short(top), ignore_errors=True)
    told["left"] = left(str(top), environ["RAY_AUTH_TOKEN"])
    sys.stdout.write(json.dumps(told) + "\n")
    problems = wrong(told)
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    sys.exit(1 if problems else 0)


def wrong(told: dict[str, Any]) -> list[str]:
    """Return the rows that are not as they should be."""
    names, lines = told["classes"], "".join(told["lines"])
    states = {row["name"]: row["state"] for row in told["errands"]}
    home = [name for name, state in states.items() if state == "kept"]
    checks = {
        "two nodes": "2 nodes" in told["nodes"],
        "a node was killed": "killed at" in told,
        "the run says that some are missing": told["exit"] == 125,
        "every errand is told": len(states) == len(names),
        "each is here, lost, or still there": set(states.values()) <= {"kept", "lost", "ended"},
        "some were on the killed node": len(home) < len(names),
        "the lost ones are named": all(f"{name}  " in lines for name, state in states.items() if state == "lost"),
        "none began twice": all(lines.count(f"begins {name}\n") <= 1 for name in names),
        "one attempt each": all(row["attempt"] == 1 for row in told["errands"]),
        "all that came home landed": len(told["applied"]) == len(home) == len(told["reports"]),
        "the reports are those of passed tests": all("OK" in text for text in told["reports"].values()),
        "no process is left": told["left"] == [],
        "no directory is left": told["kept"] == [],
        "all that ended are here at last": all(row["fork"] or row["state"] == "lost" for row in told["at last"]),
    }
    return [f"not so: {check}" for check, is_so in checks.items() if not is_so]


EDIT = "echo more >> README.rst"
LOCAL = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from mudroom.session import Session
place = dict(state=os.environb[b"MUDROOM_STATE"], home=os.environb[b"HOME"], environ=os.environb)
with Session.open(sys.argv[1].encode(), **place) as session:
    with ThreadPoolExecutor(4) as pool:
        for count in (4, *map(int, sys.argv[2:4])):
            began = time.monotonic()
            list(pool.map(lambda _: session.run([b"sh", b"-c", sys.argv[4].encode()]), range(count)))
            print(time.monotonic() - began)
"""


def per_task(project: Path, environ: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Return milliseconds a task, four at once: the difference between a run with 70 and one with 10, by engine."""

    def fleet(name: str, count: int) -> float:
        began = time.monotonic()
        command = [
            "fleet",
            "run",
            "--quiet",
            "--on",
            name,
            "-n",
            str(count),
            "--",
            "sh",
            "-c",
            "echo more >> README.rst",
        ]
        subprocess.run([*MUDROOM, *command], cwd=project, env=environ, capture_output=True, check=True)
        return time.monotonic() - began

    worker = ["env", f"MUDROOM_STATE={project.parent / 'pipes'}", *MUDROOM, "worker", "--stdio"]
    words = [*MUDROOM, "fleet", "add", "pipes", "--jobs", "4", "--", *worker]
    subprocess.run(words, cwd=project, env=environ, capture_output=True, check=True)
    few, many = 10, 70
    found: dict[str, list[float]] = {"local": [], "pipes": [], "ray": []}
    for _round in range(rounds):
        command = [sys.executable, "-c", LOCAL, str(project), str(few), str(many), EDIT]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        local = [float(line) for line in done.stdout.split()]
        found["local"].append((local[2] - local[1]) / (many - few) * 1000)
        for name, worker_name in (("pipes", "pipes"), ("ray", "lab")):
            found[name].append((fleet(worker_name, many) - fleet(worker_name, few)) / (many - few) * 1000)
    return found


def classes(project: Path) -> list[str]:
    """Return the test classes' names, as unittest(1) takes them."""
    found = []
    for path in sorted((project / "tests").glob("test_*.py")):
        found += [
            f"tests.{path.stem}.{name}" for name in re.findall(r"^class (\w+)\(.*TestCase", path.read_text(), re.M)
        ]
    return found


def scenario(
    top: Path, project: Path, environ: dict[str, str], nodes: dict[str, subprocess.Popen[bytes]]
) -> dict[str, Any]:
    def mudroom(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUDROOM, *words], cwd=project, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    words = ["env", f"MUDROOM_STATE={top / 'head'}", *MUDROOM, "worker", "--stdio", "--engine", "ray"]
    mudroom("fleet", "add", "lab", "--", *words)
    for number, name in ((1, "n1"), (2, "n2")):  # one after the other: Ray chooses ports as if it were alone
        own = {**environ, "MUDROOM_STATE": str(top / name)}
        nodes[name] = start(own, name, f"--address=127.0.0.1:{PORT}", f"--num-cpus={PLACES}")
        until = time.monotonic() + PATIENCE
        while f"{number} node" not in (listed := mudroom("fleet", "ls").stdout) and time.monotonic() < until:
            pass
    told: dict[str, Any] = {"nodes": listed}
    names = classes(project)[:MOST]
    lines = top / "classes"
    command = f"echo begins {{}}; mkdir -p reports; {PYTHON} -m unittest -v {{}} > reports/{{}}.txt 2>&1"
    lines.write_text("".join(f"{name}\n" for name in names))
    began = time.monotonic()
    run = subprocess.Popen(
        [*MUDROOM, "fleet", "run", "--each", str(lines), "--", "sh", "-c", command],
        cwd=project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    printed = []
    for line in run.stdout:
        printed.append(line)
        if sum(each.startswith("r1-") for each in printed) == len(names) // 4 and "killed at" not in told:
            told["killed at"] = len(names) // 4
            end(nodes.pop("n2"))
    told |= {"exit": run.wait(), "seconds": time.monotonic() - began, "lines": printed, "classes": names}
    told["errands"] = errands = _errands(mudroom("fleet", "--json", "runs", "r1").stdout)
    forks = [row["fork"] for row in errands if row["fork"]]
    told["applied"] = [fork for fork in forks if mudroom("apply", "--yes", fork).returncode == 0]
    told["reports"] = {path.name: path.read_text() for path in sorted((project / "reports").glob("*.txt"))}
    told["here after the kill"] = _kept(top / "n1")
    nodes["n2"] = start(own, "n2", f"--address=127.0.0.1:{PORT}", f"--num-cpus={PLACES}")
    until = time.monotonic() + PATIENCE
    while "2 nodes" not in mudroom("fleet", "ls").stdout and time.monotonic() < until:
        pass
    told["resumed"] = mudroom("fleet", "resume", "r1").stderr
    told["at last"] = _errands(mudroom("fleet", "--json", "runs", "r1").stdout)
    told["kept"] = [*_kept(top / "n1"), *_kept(top / "n2"), *_kept(top / "head")]
    return told


def _errands(listed: str) -> list[dict[str, Any]]:
    wanted = ("name", "number", "state", "fork", "exit_code", "attempt", "reason")
    return [{key: row.get(key) for key in wanted} for row in json.loads(listed)["runs"][0]["errands"]]


def _kept(state: Path) -> list[str]:
    """Return the directories for errands and forks that a worker has below its state."""
    found = (path for path in state.rglob("*") if path.parent.name in ("errands", "forks", "uppers"))
    return sorted(str(path.relative_to(state.parent)) for path in found if path.name != "kept")


if __name__ == "__main__":
    main()
