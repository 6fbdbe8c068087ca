"""Whole sessions in an interpreter that has only what macOS has (``mac_prelude.py``), its child processes included:
gate, question, terminal, apply, undo. ``sandbox-exec`` is a substitute that confines nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from macbox import fake_sandbox_exec

from mac import on_a_mac
from mudroom.cli.main import VERBS

OPEN = """
import pathlib, threading, http.server
from mudroom.core.settings import Settings
from mudroom.core.network.host_rules import HostRule
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.session import Session, Stdio
from mudroom.session.confinement.host_approver import HostAnswers
place = pathlib.Path({place!r})
client = DarwinClient(tool={tool!r})
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "{length}")
        self.end_headers()
        self.wfile.write(b"x" * {length})
    def log_message(self, *_words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
URL = f"http://127.0.0.1:{{server.server_port}}/"
GET = (
    b"import os, sys, urllib.request\\n"
    b"try:\\n"
    b"    print(len(urllib.request.urlopen(sys.argv[1]).read()))\\n"
    b"except Exception as error:\\n"
    b"    print(error)\\n"
)
def session(**options):
    return Session.open(
        bytes(place / "project"), state=bytes(place / "state"), home=bytes(place / "home"),
        environ=os.environb, platform=DARWIN, client=client, **options,
    )
def get(one, url=URL):
    return one.run([b"env", b"no_proxy=", b"NO_PROXY=", b"python3", b"-c", GET, url.encode()], fork="f")
"""


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    for name in ("project", "home", "tool"):
        (tmp_path / name).mkdir()
    (tmp_path / "project/old").write_text("one\n")
    return tmp_path


def whole(place: Path, program: str, length: int = 300_000) -> str:
    tool = fake_sandbox_exec(place / "tool")
    return on_a_mac(OPEN.format(place=str(place), tool=tool, length=length) + program)


@pytest.mark.deep
def test_the_gate_lets_through_what_rules_allow(mac: Path) -> None:
    """By frames of a stream, kqueue and a handle of the process; a gate that was killed is replaced."""
    program = """
rules = lambda: [HostRule("allow", "127.0.0.1", (server.server_port,), private=True)]
with session(settings=Settings(network="gate"), hosts=HostAnswers(rules)) as one:
    for _time in range(2):
        result = get(one)
        print(result.stdout, result.denials)
        pid = one.machine.gate.process.pid
        assert pid > 0
        os.kill(pid, signal.SIGKILL)
    result = get(one, "http://127.0.0.1:9/")
    print(result.stdout[:25], [(denial.kind, denial.target) for denial in result.denials])
client.close()
"""
    said = whole(mac, program)
    assert said == "b'300000\\n' ()\n" * 2 + "b'HTTP Error 403: Forbidden' [('network', b'127.0.0.1:9')]\n"


CLI = """
import io, contextlib
from mudroom.sandbox import platform
from mudroom.ext.macos.client import DarwinClient
platform.BY_RECORD = frozenset()
from mudroom.ext.macos.platform import PLATFORM
mac = PLATFORM._replace(client=lambda _environ: DarwinClient(tool={tool!r}))
platform.platform_of = lambda _name: mac
os.environ.update(HOME={place!r} + "/home", MUDROOM_STATE={place!r} + "/state", MUDROOM_KEEPER="0", NO_COLOR="1")
os.chdir({place!r} + "/project")
from mudroom.cli.main import run
def mudroom(*words):
    "Run a command line in a process of its own. Print its exit code and what it says."
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            null = os.open("/dev/null", os.O_RDONLY)
            for number, target in ((null, 0), (write, 1), (write, 2)):
                os.dup2(number, target)
            code = run(list(words), os.environb, later=lambda _place, action: action())
            sys.stdout.flush()
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(write)
    with open(read, "rb") as stream:
        said = stream.read()
    print(words[0], os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode())
"""


CLI_STEPS = """
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"served\\n")
    def log_message(self, *_words):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
served = os.fork()
if not served:
    server.serve_forever()
try:
    port = str(server.server_port)
    mudroom("run", "--yes", "--", "sh", "-c", "echo two >> old; echo new > made; exit 3")
    print(sorted(os.listdir()), open("old").read())
    mudroom("undo", "--yes")
    print(sorted(os.listdir()), open("old").read())
    fetch = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}/').read())"
    mudroom("net", "allow", f"127.0.0.1:{port}")
    mudroom("exec", "--fork", "g", "--", "env", "no_proxy=", "NO_PROXY=", "python3", "-c", fetch)
    mudroom("exec", "--fork", "g", "--background", "--", "sleep", "9")
    mudroom("agent", "run", "--level", "1", "--", "sh", "-c", "echo agent > by")
    mudroom("net", "open", "8000")
    mudroom("keeper", "status")
    mudroom("vault", "check")
finally:
    os.kill(served, signal.SIGKILL)
"""


def test_the_command_line(mac: Path) -> None:
    """The verbs of a first day, each in a process of its own."""
    said = on_a_mac(CLI.format(place=str(mac), tool=fake_sandbox_exec(mac / "tool")) + CLI_STEPS)
    for part in (
        "run 3 ",
        "applied: 2 written",
        "['made', 'old'] one\ntwo\n",
        "undo 0 ",
        "['old'] one\n",
        "net 0 ",
        "exec 0 b'served\\n'",
        "exec 125 mudroom: a command in the background needs namespaces",
        "agent 0 ",
        "by  new, +1",
        "net 125 mudroom: no command with a network of its own is running",
        "keeper 1 no keeper",
        "the vault is whole",
    ):
        assert part in said, (part, said)
    assert "Traceback" not in said


UNCERTIFIED = """
import mudroom.ext.certify.identity as identity, mudroom.ext.macos.client as client
identity._host = identity._filesystem = identity._volume = lambda *_facts: "a fact"  # libc's own on a Mac
client.SANDBOX_EXEC = b"/bin/true"
from mudroom.sandbox import platform
from mudroom.ext.macos.platform import PLATFORM
platform.BY_RECORD, platform.platform_of = frozenset(("darwin",)), lambda _name: PLATFORM
from mudroom.cli.main import VERBS
more = {"checkpoint": ["c"], "exec": ["--fork", "f", "--", "true"], "fork": ["new", "f"],
        "agent": ["run", "--", "true"], "image": ["ls"]}
for verb in set(VERBS) - {"serve", "worker"}:  # they wait for others
    words = more.get(verb, ["--", "true"] if verb in ("run", "try") else
                     ["f"] if verb in ("diff", "rollback", "mount", "unmount", "apply", "discard", "resolve") else [])
    mudroom(verb, *words)
"""
WITHOUT_SESSION = {
    "hook", "status", "review", "acp", "policy", "serve", "worker", "fleet", "keeper", "vault", "image", "doctor",
    "completion", "net",
}  # fmt: skip
"""Verbs that open no session, or tell of something else first."""


def test_each_verb_before_a_certificate_tells_what_to_do(mac: Path) -> None:
    said = on_a_mac(CLI.format(place=str(mac), tool=fake_sandbox_exec(mac / "tool")) + UNCERTIFIED)
    assert "Traceback" not in said, said
    told = re.findall(r"(?m)^([a-z]+) (\d+) ", said)
    assert {verb for verb, _code in told} >= {*VERBS} - {"serve", "worker"} and ("doctor", "1") in told, said
    needs = "needs a certificate of this machine; found: it is not certified yet (mudroom doctor --certify tries it"
    closed = re.findall(rf"(?m)^([a-z]+) 125 (?:note: .*\n)*mudroom: mudroom {re.escape(needs)}", said)
    assert {*VERBS} - set(closed) <= WITHOUT_SESSION, said


QUESTION = """
from mudroom.core.approval.approval import HostQuestion
from mudroom.vault.approvals.queue import Queue
place = {place!r}.encode()
question = HostQuestion("example.com", 443, "connect", "f", "bot")
read, write = os.pipe()
child = os.fork()
if not child:
    ticket = Queue(place).put(question, 30.0)
    os.write(write, b"put")
    while (decision := ticket.look()) is None:
        select.select([ticket.fileno()], [], [], 0.05)
    print("told", decision.allowed, flush=True)
    os._exit(0)
os.read(read, 3)
queue = Queue(place)
(row,) = queue.rows()
print(row.state, row.waiter == child)
"""


def test_a_question_is_answered_by_another_process(mac: Path) -> None:
    """Boot and start times by sysctl and libproc; a waiter that was killed waits no more."""
    said = on_a_mac(
        QUESTION.format(place=str(mac / "state"))
        + """
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
(row,) = queue.rows()
print(row.state, row.waiter)
from mudroom.vault.moment import now
from mudroom.core.system.process import boot, started
print(len(boot()), now().boot == boot(), started(os.getpid()) > 0, started(child))
"""
    )
    assert said == "waiting True\nwaiting 0\n36 True True 0\n"


SERVE = """
import http.client, json
read, write = os.pipe()
child = os.fork()
if not child:
    os.dup2(write, 1)
    code = run(["serve", "--port", "0", "--json"], os.environb, later=lambda _place, action: action())
    os._exit(code)
os.close(write)
with open(read, "rb") as stream:
    first = json.loads(stream.readline())
    port = int(first["url"].split(":")[2].split("/")[0])
    asked = http.client.HTTPConnection("127.0.0.1", port)
    asked.request("GET", "/")
    print(asked.getresponse().status)
    os.kill(child, signal.SIGTERM)
    stream.read()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_page_is_served(mac: Path) -> None:
    said = on_a_mac(CLI.format(place=str(mac), tool=fake_sandbox_exec(mac / "tool")) + SERVE)
    assert said == "200\n0\n"
