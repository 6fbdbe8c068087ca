"""``mudroom exec`` of what needs an approval, as a user and an agent meet it: whole processes, in two terminals."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator

import pytest

from conftest import Place
from screen import BASH
from test_approve_verb import Approving
from test_asking import ASK, NOBODY

POLICY = "commands:\n  classes: {unknown: require_approval}\n"
SCRIPT = "echo built > out\n"
COMMAND = ("sh", "build.sh")


@pytest.fixture
def cli(place: Place) -> Iterator[Approving]:
    place.write(".mudroom/policy.yaml", POLICY)
    place.write("build.sh", SCRIPT)
    yield Approving(place)


def executed(cli: Approving, *words: str, code: int, command: tuple[str, ...] = COMMAND) -> dict[str, object]:
    done = cli("exec", "--fork", "f", "--json", *words, "--", *command)
    assert done.returncode == code, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_refused_approved_and_run(cli: Approving) -> None:
    assert cli("fork", "new", "f").returncode == 0
    first = cli("exec", "--fork", "f", "--", *COMMAND)
    assert first.returncode == 126
    told = re.search(r"waiting for approval ([0-9a-f]{6}): mudroom approve \1", first.stderr)
    assert told is not None, first.stderr
    listed = cli("approve")
    assert f"{told[1]}  " in listed.stdout
    assert "sh build.sh" in listed.stdout
    assert cli("approve", told[1]).returncode == 0
    executed(cli, code=0)
    executed(cli, code=126)
    kinds = [json.loads(line)["kind"] for line in cli("log", "--json").stdout.splitlines()]
    assert kinds.count("approval") == 3
    assert "intact" in cli("log", "verify").stdout


def test_a_script_that_was_changed_after_the_answer(cli: Approving) -> None:
    assert cli("fork", "new", "f").returncode == 0
    executed(cli, code=126)
    (row,) = cli.queue.rows()
    cli.queue.decide(row.name, allow=True, by="page")
    assert cli("exec", "--fork", "f", "--", "touch", "other").returncode == 0
    (cli.place.project / "build.sh").write_text("echo bad > out\n")
    executed(cli, code=126)
    assert "asked anew" in cli("approve", cli.queue.rows()[-1].name, "--deny").stderr
    assert not (cli.place.project / "out").exists()


def test_always_holds_from_then_on(cli: Approving) -> None:
    assert cli("fork", "new", "f").returncode == 0
    executed(cli, code=126)
    (row,) = cli.queue.rows()
    assert cli("approve", row.name, "--always").returncode == 0
    for _time in range(2):
        executed(cli, code=0)
    other = cli("exec", "--fork", "f", "--", "sh", "build.sh", "--more")
    assert other.returncode == 126, "exactly this command"


def test_never_holds_from_then_on(cli: Approving) -> None:
    assert cli("fork", "new", "f").returncode == 0
    executed(cli, code=126)
    assert cli("approve", cli.queue.rows()[0].name, "--always", "--deny", "--reason", "use make").returncode == 0
    verdict = executed(cli, code=126)["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["action"] == "deny"
    assert len(cli.queue.rows()) == 1


@pytest.mark.skipif(not BASH, reason="there is no bash")
@pytest.mark.parametrize(("key", "said"), [("o", "would change"), ("n", "refused"), ("\x03", "refused")])
def test_on_a_terminal(cli: Approving, key: str, said: str) -> None:
    screen = cli.screen("-m", "mudroom", "exec", "--fork", "f", "--agent", "coder", "--", *COMMAND)
    shown = screen.expect(r".*\[o\]nce.*ever.*\r\n").group()
    assert b"coder wants to run, in the fork f:\r\n  sh build.sh\r\n" in shown
    assert os.fsencode(cli.place.project / "build.sh") in shown
    screen.type(key if key == "\x03" else key + "\n")
    screen.expect(said)
    assert screen.exit_code() == (0 if key == "o" else 126)


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_waiting_in_the_queue_ends_with_ctrl_c(cli: Approving) -> None:
    words = ("exec", "--fork", "f", "--ask", "queue", "--", *COMMAND)
    screen = cli.screen("-m", "mudroom", *words)
    screen.expect("waiting for approval")
    cli.waiting(screen)
    screen.type("\x03")
    screen.expect("refused")
    assert screen.exit_code() == 126
    screen = cli.screen("-m", "mudroom", *words)
    screen.expect("waiting for approval")
    assert cli("approve", cli.waiting(screen)).returncode == 0
    screen.expect("would change")
    assert screen.exit_code() == 0


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_a_users_command_does_not_wait_for_an_answer_about_a_host(cli: Approving) -> None:
    cli.place.write("ask.py", ASK)
    cli.place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: allow}\n")
    command = (sys.executable, "ask.py", f"{NOBODY}:443", "other.invalid:22")
    screen = cli.screen("-m", "mudroom", "exec", "--fork", "f", "--ask", "queue", "--", *command)
    name = cli.waiting(screen)
    done = cli("run", "--no", "--", "true")
    assert done.returncode == 0
    assert "stopping the agents" not in done.stderr, "nothing has landed"
    assert cli.row(name).state == "waiting"
    assert cli.row(name).waiter == screen.pid
    assert cli("approve", name, "--deny").returncode == 0
    screen.expect("told: HTTP/1.1 403")
    assert cli.waiting(screen) != name
    screen.type("\x03")
    assert screen.exit_code() != 0
    assert [row.state for row in cli.queue.rows()] == ["denied", "withdrawn"]


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_hosts_wait_in_the_queue_as_well(cli: Approving) -> None:
    cli.place.write("ask.py", ASK)
    cli.place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: allow}\n")
    command = (sys.executable, "ask.py", f"{NOBODY}:443")
    screen = cli.screen("-m", "mudroom", "exec", "--fork", "f", "--ask", "queue", "--agent", "coder", "--", *command)
    name = cli.waiting(screen)
    assert f"coder  f  to reach {NOBODY}:443" in cli("approve").stdout
    assert cli("approve", name, "--deny", "--always").returncode == 0
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert NOBODY in (cli.place.answers / "permissions.yaml").read_text()
