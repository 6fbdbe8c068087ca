"""What people run all day has to work in a sandbox, too: real programs, each with a result that is checked."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.confinement.spec import Network
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.policy import command_answers, host_answers
from tiers import pairs

pytestmark = pytest.mark.both_users


class Work(NamedTuple):
    script: str
    says: str
    """How its output ends."""
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


PYTHON = sys.executable
SERVER = """
import os, socket, sys, threading
family, address = (socket.AF_UNIX, "server.sock") if sys.argv[1] == "unix" else (socket.AF_INET, ("127.0.0.1", 8765))
server = socket.socket(family); server.bind(address); server.listen()
def serve():
    connection, _ = server.accept(); connection.sendall(connection.recv(100).upper()); connection.close()
thread = threading.Thread(target=serve); thread.start()
client = socket.socket(family); client.connect(address); client.sendall(b"hello"); print(client.recv(100).decode())
thread.join()
"""
PROCESSES = """
import multiprocessing as m, sys
from multiprocessing import shared_memory
def work(n): return n * n
def write(name, lock):
    with lock:
        memory = shared_memory.SharedMemory(name); memory.buf[0] = 42; memory.close()
if __name__ == "__main__":
    context = m.get_context(sys.argv[1])
    with context.Pool(2) as pool: print(sum(pool.map(work, range(10))))
    memory = shared_memory.SharedMemory(create=True, size=10)
    lock = context.Lock(); child = context.Process(target=write, args=(memory.name, lock)); child.start(); child.join()
    print(memory.buf[0]); memory.close(); memory.unlink()
"""
FORK_TABLE = "import os\nif os.fork() == 0: os._exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))\n"
WORKS = {
    "git": Work(
        "git init -q r && cd r && git config user.name A && git config user.email a@b && echo x > f && git add f && "
        "git commit -qm first && git mv f g && git commit -qam second && git gc -q && "
        "git log --format=%s | tr '\\n' ' '",
        "second first",
        ("git",),
    ),
    "node": Work(
        'node -e \'require("fs").writeFileSync("f", "x".repeat(3)); '
        'new (require("worker_threads").Worker)("console.log(require(`fs`).readFileSync(`f`).length)", {eval: true})\'',
        "3",
        ("node",),
    ),
    "npm": Work(
        'mkdir dep && echo \'{"name":"dep","version":"1.0.0"}\' > dep/package.json && npm init -y > /dev/null && '
        "npm install --offline --no-audit --no-fund ./dep > /dev/null && npm ls | tail -2",
        "dep@1.0.0 -> ./dep",
        ("node", "npm"),
    ),
    "pytest with xdist": Work(
        f"{PYTHON} -m pytest -q -n 2 -p no:cacheprovider -p no:mudroom test_it.py | tail -1 | cut -d' ' -f1-2",
        "20 passed",
        modules=("pytest", "xdist"),
        files=(
            ("test_it.py", "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test(n): assert n < 20\n"),
        ),
    ),
    "make and gcc": Work(
        "make -s -j2 && ./program",
        "made 7",
        ("make", "gcc"),
        files=(
            ("Makefile", "program: main.o part.o\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -c -o $@ $<\n"),
            ("main.c", '#include <stdio.h>\nint part(void);\nint main(void){printf("made %d\\n", part());}\n'),
            ("part.c", "int part(void){return 7;}\n"),
        ),
    ),
    "cargo": Work(
        "cargo new --quiet --vcs none --name tiny tiny && cd tiny && cargo run --quiet --offline",
        "Hello, world!",
        ("cargo", "cc"),
    ),
    "sqlite with a write-ahead log": Work(
        f"{PYTHON} -c \"import sqlite3; d = sqlite3.connect('db'); d.execute('pragma journal_mode=wal');"
        "d.execute('create table t (n)'); d.executemany('insert into t values (?)', [(n,) for n in range(100)]);"
        "d.commit(); print(sqlite3.connect('db').execute('select sum(n) from t').fetchone()[0])\"",
        "4950",
    ),
    "a unix server of the project's own": Work(f"{PYTHON} server.py unix", "HELLO", files=(("server.py", SERVER),)),
    "a server on loopback": Work(f"{PYTHON} server.py tcp", "HELLO", files=(("server.py", SERVER),)),
    "multiprocessing, fork": Work(f"{PYTHON} p.py fork", "285\n42", files=(("p.py", PROCESSES),)),
    "multiprocessing, spawn": Work(f"{PYTHON} p.py spawn", "285\n42", files=(("p.py", PROCESSES),)),
    "multiprocessing, forkserver": Work(f"{PYTHON} p.py forkserver", "285\n42", files=(("p.py", PROCESSES),)),
    "fork and wait": Work(f"{PYTHON} f.py", "3", files=(("f.py", FORK_TABLE),)),
    "/dev/shm": Work("echo there > /dev/shm/f && cat /dev/shm/f && rm /dev/shm/f", "there"),
    "tmux": Work(
        "tmux -f /dev/null new-session -d 'tty > out; tmux wait-for -S done' \\; wait-for done; cat out; "
        "tmux kill-server 2>/dev/null; true",
        "/dev/pts/0",
        ("tmux",),
    ),
    "a pseudo-terminal": Work(f"{PYTHON} -c \"import pty; pty.spawn(['sh', '-c', 'test -t 0 && echo yes'])\"", "yes"),
    "a virtual environment": Work(f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'print(6 * 7)'", "42"),
    "locks": Work("flock lock sh -c 'flock -n lock true || echo held'", "held", ("flock",)),
}


def missing(work: Work) -> list[str]:
    """What it needs and is not installed here."""
    found = [one for one in work.programs if not shutil.which(one)]
    if "cargo" in work.programs and not found and subprocess.run(["cargo", "-V"], check=False).returncode:
        found.append("a toolchain for cargo")
    return found + [one for one in work.modules if importlib.util.find_spec(one) is None]


@pytest.mark.parametrize(("name", "view"), pairs(list(WORKS), ["overlay", "copy"]))
def test_it_works_inside(place: Place, name: str, view: str) -> None:
    work = WORKS[name]
    if lacks := missing(work):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    for file, content in work.files:
        place.write(file, content)
    rustup = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))  # the test's home is another one
    toolchains = [rustup] if "cargo" in work.programs and os.path.isdir(rustup) else []
    settings = Settings(
        view="copy" if view == "copy" else "overlay",
        read=tuple(os.fsencode(path) for path in toolchains),
        environment=tuple(b"RUSTUP_HOME=" + os.fsencode(path) for path in toolchains),
    )
    session = place.session(settings)
    result = session.run([b"sh", b"-c", work.script.encode()], timeout=80)
    assert (result.exit_code, result.stdout.decode().strip()[-len(work.says) :]) == (0, work.says), result
    assert {path.name for path in place.project.iterdir()} == {file for file, _content in work.files}


@if_namespaces
@pytest.mark.parametrize("network", ["none", "gate", "open"])
def test_the_own_name_is_found(place: Place, network: Network) -> None:
    program = "import socket; print(socket.gethostbyname(socket.gethostname()), socket.gethostbyname('localhost'))"
    result = place.session(Settings(network=network)).run([b"/usr/bin/python3", b"-c", program.encode()])
    assert (result.exit_code, result.stdout) == (0, b"127.0.0.1 127.0.0.1\n"), result.stderr


@if_namespaces
def test_names_in_the_host_s_table_are_the_gate_s_to_judge(place: Place) -> None:
    """A client that took their addresses from the table would be judged by an address, and reach its own loopback."""
    lines = [line.split("#")[0].split()[1:] for line in Path("/etc/hosts").read_text().splitlines()]
    names = {name for line in lines for name in line}
    inside = place.session(Settings(network="gate")).run([b"cat", b"/etc/hosts"]).stdout.decode().split()
    assert names & set(inside) <= {"localhost", "ip6-localhost", "ip6-loopback", os.uname().nodename}
    assert inside[-3:] == ["127.0.0.1", "mudroom", os.uname().nodename]


def test_an_empty_project_is_empty_inside_after_answers(place: Place) -> None:
    """``git clone URL .``, ``npm create … .`` and ``cargo init`` want an empty directory."""
    project, state = os.fsencode(place.project), os.fsencode(place.state)
    host_answers.keep(project, parse_rule("github.com", "allow"), state=state)
    command_answers.remember(project, "git push", state=state)
    assert [rule.pattern for rule in host_answers.load(project, state)] == ["github.com"]
    made = "git init -q /tmp/up; git -C /tmp/up -c user.name=x -c user.email=x@y commit -q --allow-empty -m x"
    script = f"ls -A; {made}; git clone -q /tmp/up . && ls -A"
    result = place.session().run([b"sh", b"-c", script.encode()], fork="f")
    assert (result.exit_code, result.stdout) == (0, b".git\n"), result
    assert os.listdir(place.project) == []
