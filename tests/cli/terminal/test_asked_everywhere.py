"""Hosts that the user's own command wants, asked about on the terminal and in the queue at once: whole processes, a
real server on this machine, answers of another process."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clocks import give_way
from conftest import Place
from mudroom.vault.approvals.bell import Bell
from screen import BASH, PATIENCE, Screen
from test_approve_verb import Approving
from test_asking import ASK, MACHINE, NOBODY, answers, needs_a_name

pytestmark = pytest.mark.skipif(not BASH, reason="there is no bash")

FETCH = """
import sys, threading, urllib.request
def get(url):
    try:
        print("got", urllib.request.urlopen(url, timeout=80).read().decode(), flush=True)
    except Exception as error:
        print("failed", error, flush=True)
threads = [threading.Thread(target=get, args=[url]) for url in sys.argv[1:]]
for one in threads: one.start()
for one in threads: one.join()
"""


class _Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server on this machine."""
    server = http.server.ThreadingHTTPServer((MACHINE or "127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cli(place: Place, port: int) -> Iterator[Approving]:
    place.write("fetch.py", FETCH)
    place.write("ask.py", ASK)
    here = f'["{MACHINE}:{port}"]'
    if MACHINE:
        place.write(".mudroom/policy.yaml", f"network:\n  private: {here}\n  ask: {here}\n")
    yield Approving(place)


@pytest.fixture
def page(cli: Approving) -> Iterator[Bell]:
    """Somebody who listens and may answer, as a page does."""
    bell = cli.queue.listen("page")
    yield bell
    bell.close()


def run(cli: Approving, *words: str, options: tuple[str, ...] = ()) -> Screen:
    return cli.screen("-m", "mudroom", "run", "--no", *options, "--", sys.executable, *words)


def waiting_without_a_terminal(cli: Approving, *words: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return cli.start("run", "--json", "--no", *options, "--", sys.executable, *words, text=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        give_way()


def names(cli: Approving) -> list[str]:
    return [row.name for row in cli.queue.rows() if row.waiter]


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE)
    assert out, err
    found: dict[str, Any] = json.loads(out)
    return found


# --- on a terminal ---


def test_the_terminal_answers_what_the_queue_shows(cli: Approving, page: Bell) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?.*also asked on the page.*\[N\]ever  then Enter\r\n")
    (row,) = cli.queue.rows()
    assert (row.asked.question.agent, row.asked.question.fork, row.waiter) == ("", "", screen.pid)
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    decision = cli.row(row.name).decision
    assert decision is not None
    assert (decision.state, decision.by, cli.row(row.name).used) == ("denied", "terminal", True)


@needs_a_name
def test_the_queue_answers_what_the_terminal_shows(cli: Approving, port: int) -> None:
    screen = run(cli, "fetch.py", f"http://{MACHINE}:{port}/")
    shown = screen.expect(rf"Allow {MACHINE}:{port}\?.*\[N\]ever  then Enter\r\n").group()
    assert b"also asked" not in shown, "nobody listens"
    assert cli("approve", cli.waiting(screen)).returncode == 0
    screen.expect(rf"{MACHINE}:{port}: allowed by mudroom approve\r\n.*got hello")
    assert screen.exit_code() == 0


def test_always_from_the_page_is_written_once(cli: Approving, page: Bell) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443", f"{NOBODY}:443")
    name = cli.waiting(screen)
    assert cli("approve", name, "--deny", "--always", "--reason", "use\nthe mirror").returncode == 0
    screen.expect(r"denied by mudroom approve: use\\nthe mirror\r\n.*told: HTTP/1.1 403.*told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert answers(cli.place).count(f"{NOBODY}:443") == 1
    assert len(cli.queue.rows()) == 1, "asked once"


def test_ctrl_c_takes_the_question_back(cli: Approving, page: Bell) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?.*also asked on the page.*\r\n")
    screen.type("\x03")
    screen.expect(f"no answer: {NOBODY} is refused to this command")
    assert screen.exit_code() in (1, 128 + signal.SIGINT)
    (row,) = cli.queue.rows()
    assert row.decision is not None
    assert (row.state, row.decision.reason) == ("withdrawn", "interrupted")


SLOW_END = """
import os, signal, sys, threading
from mudroom.cli.terminal import asking
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.network.flow import FlowQuestion
from mudroom.vault.approvals.queue import Queue
over, end = os.pipe()
signal.signal(signal.SIGINT, lambda *_: threading.Timer(0.5, os.close, [end]).start())
queue, question = Queue(os.fsencode(sys.argv[1])), FlowQuestion(1, "late.example", 22, "tls")
answer = asking.first_of(Terminal(os.environb), queue, "", question, over)
print(answer, "after the end:", asking.poll_readable([over], 0) == {over})
"""
"""The command ends half a second after Ctrl-C."""


def test_a_command_ends_by_ctrl_c_before_it_is_refused(cli: Approving) -> None:
    screen = cli.screen("-c", SLOW_END, str(cli.vault))
    screen.expect(r"Allow late.example:22\?.*then Enter\r\n")
    screen.type("\x03")
    screen.expect(r"Answer\(allowed=False, .*after the end: True")
    assert screen.exit_code() == 0


def test_a_killed_mudroom_leaves_a_question_that_nobody_waits_for(cli: Approving, page: Bell) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?")
    name = cli.waiting(screen)
    os.kill(screen.pid, signal.SIGKILL)
    assert screen.exit_code() == -signal.SIGKILL
    assert (cli.row(name).state, cli.row(name).waiter) == ("waiting", 0)
    cli.queue.decide(name, allow=False, by="page")
    again = run(cli, "ask.py", f"{NOBODY}:443")
    again.expect(f"{NOBODY}: denied on the page\r\n.*told: HTTP/1.1 403")
    assert again.exit_code() == 0
    third = run(cli, "ask.py", f"{NOBODY}:443")
    third.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    third.type("n\n")
    assert third.exit_code() == 0


IMPATIENT = """
import os, sys
from mudroom.cli.terminal import asking
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.network.flow import FlowQuestion
from mudroom.vault.approvals.queue import Queue
asking.PATIENCE = 0.2
never, _word = os.pipe()
queue, question = Queue(os.fsencode(sys.argv[1])), FlowQuestion(1, "late.example", 22, "tls")
print(asking.first_of(Terminal(os.environb), queue, "", question, never))
"""


def test_nobody_answers_in_time(cli: Approving) -> None:
    screen = cli.screen("-c", IMPATIENT, str(cli.vault))
    screen.expect(r"Allow late.example:22\?.*no answer: late.example:22 is refused to this command")
    screen.expect(r"Answer\(allowed=False, .*why='and nobody has answered in")
    assert screen.exit_code() == 0
    assert [row.state for row in cli.queue.rows()] == ["expired"]


def test_a_queue_that_cannot_be_used_leaves_the_terminal(cli: Approving) -> None:
    (cli.vault / "approvals").write_text("no directory")
    screen = run(cli, "ask.py", f"{NOBODY}:443")
    screen.expect(rf"asked on this terminal only: .*Allow {NOBODY}\?.*then Enter\r\n")
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0


def test_never_asks_nobody(cli: Approving, page: Bell) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443", options=("--ask", "never"))
    screen.expect("nobody is there to be asked")
    assert b"Allow" not in screen.seen
    assert screen.exit_code() == 0
    assert cli.queue.rows() == []


def test_queue_leaves_the_terminal_alone(cli: Approving) -> None:
    screen = run(cli, "ask.py", f"{NOBODY}:443", options=("--ask", "queue"))
    assert cli("approve", cli.waiting(screen), "--deny").returncode == 0
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert b"Allow" not in screen.seen


# --- without one ---


def test_what_goes_on_in_the_background_asks_who_listens(cli: Approving, page: Bell) -> None:
    """Its terminal is somebody else's by then."""
    words = ("exec", "--fork", "f", "--background", "--", sys.executable, "ask.py", f"{NOBODY}:443")
    cli.place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: allow}\n  background: allow\n")
    screen = cli.screen("-m", "mudroom", *words)
    screen.expect("runs in the background of f")
    screen.exit_code()
    until(lambda: bool(names(cli)))
    (row,) = cli.queue.rows()
    assert (row.asked.question.fork, row.asked.question.agent) == ("f", "agent")
    cli.queue.decide(row.name, allow=False, by="page", reason="later")
    command = json.loads(cli("ps", "--all", "--json").stdout)["commands"][0]["id"]
    until(lambda: "refused on the page (later)" in cli("ps", "--output", command).stdout)


@needs_a_name
def test_where_nobody_listens_it_is_refused_at_once(cli: Approving, port: int) -> None:
    found = ended(waiting_without_a_terminal(cli, "fetch.py", f"http://{MACHINE}:{port}/"))
    assert "failed" in found["stdout"]
    (denial,) = found["denials"]
    assert denial["reason"].endswith("; nobody is there to be asked")
    assert cli.queue.rows() == []


@needs_a_name
def test_where_a_page_listens_it_is_asked(cli: Approving, page: Bell, port: int) -> None:
    process = waiting_without_a_terminal(cli, "fetch.py", f"http://{MACHINE}:{port}/")
    until(lambda: bool(names(cli)))
    cli.queue.decide(names(cli)[0], allow=True, by="page")
    found = ended(process)
    assert (found["stdout"], found["denials"]) == ("got hello\n", [])


@needs_a_name
def test_two_questions_at_once(cli: Approving, page: Bell, port: int) -> None:
    urls = (f"http://{MACHINE}:{port}/", f"http://{NOBODY}/", f"http://{NOBODY}:81/")
    process = waiting_without_a_terminal(cli, "fetch.py", *urls)
    until(lambda: len(names(cli)) == 3)
    for row in cli.queue.rows():
        host = row.asked.host
        assert host is not None
        cli.queue.decide(row.name, allow=host.host != NOBODY, by="page", reason="" if host.port == 80 else "no")
    found = ended(process)
    assert sorted(line.split()[0] for line in found["stdout"].splitlines()) == ["failed", "failed", "got"]
    reasons = {one["target"]: one["reason"] for one in found["denials"]}
    assert reasons[f"{NOBODY}:80"] == "asked, and refused on the page"
    assert reasons[f"{NOBODY}:81"] == "asked, and refused on the page (no)"


def test_ctrl_c_without_a_terminal_takes_it_back(cli: Approving, page: Bell) -> None:
    process = waiting_without_a_terminal(cli, "ask.py", f"{NOBODY}:443")
    until(lambda: bool(names(cli)))
    process.send_signal(signal.SIGINT)
    ended(process)
    assert [row.state for row in cli.queue.rows()] == ["withdrawn"]


def test_who_comes_late_is_asked_about_what_comes_later(cli: Approving) -> None:
    """Refused once while nobody was there; the same host again, when a page is open."""
    process = cli.start(
        "run", "--no", "--", sys.executable, "-u", "-c", LATE, f"{NOBODY}:443", stdin=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert "nobody is there to be asked" in process.stdout.readline()
    bell = cli.queue.listen("page")
    process.stdin.write("again\n")
    process.stdin.flush()
    until(lambda: bool(names(cli)))
    cli.queue.decide(names(cli)[0], allow=False, by="page")
    assert "refused on the page" in process.stdout.readline()
    process.communicate(timeout=PATIENCE)
    bell.close()
    assert process.returncode == 0


LATE = """
import socket, sys
while True:
    gate = socket.create_connection(("127.0.0.1", 3128))
    gate.sendall(b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" % sys.argv[1].encode())
    print(*gate.makefile().read().split())
    if not sys.stdin.readline():
        break
"""


def test_terminal_without_one_is_an_error(cli: Approving) -> None:
    done = cli("run", "--ask", "terminal", "--", "true")
    assert done.returncode == 125
    assert "there is no terminal to ask on" in done.stderr
