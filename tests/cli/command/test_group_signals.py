"""Whatever ends mudroom, its command is collected and journalled: signals to the whole process group (``timeout``, CI),
a terminal that closes, SIGKILL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import Place, tick
from mudroom.cli.command import background
from mudroom.cli.terminal.command_signals import command_signals
from mudroom.core.confinement.plan import Plan
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session
from mudroom.session.project_session import MOST_CHARACTERS
from screen import BASH, Screen
from test_vault_verb import MUDROOM, Cli
from tiers import pairs

PATIENCE = 60.0
"""Seconds for what is expected to come at once."""
ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]
WORK = "echo done > report; echo ready; sleep 1000; sleep 1000"
STUBBORN = "trap '' TERM INT QUIT HUP; echo done > report; echo ready; while :; do sleep 1000; done"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "1\n")
    return Cli(place)


RUN, EXEC = ["run", "--yes"], ["exec", "--fork", "a"]


@pytest.fixture(params=[RUN, EXEC], ids=["run", "exec"])
def verb(request: pytest.FixtureRequest) -> list[str]:
    """The verb with its options; tests/ext/agents has another one."""
    words: list[str] = request.param
    return words


def started(cli: Cli, words: list[str], script: str) -> subprocess.Popen[bytes]:
    """A process group with mudroom in it, and its command, which has written a file."""
    tick()
    process = cli.start(*words, "--", "sh", "-c", script, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def events(cli: Cli, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in cli("log", "-n", "0", "--json").stdout.splitlines()]
    return [row for row in rows if row["kind"] == kind]


def collected(cli: Cli) -> dict[str, Any]:
    """The only ``run`` event; its file is in the fork and not in the project."""
    (event,) = events(cli, "run")
    assert event["data"]["changed"] == 1
    assert not (cli.place.project / "report").exists()
    assert "+done" in cli("diff", event["fork"]).stdout
    data: dict[str, Any] = event["data"]
    return data


@pytest.mark.both_users
@pytest.mark.parametrize(("number", "view"), pairs(ENDING, ["overlay", "copy"]))
def test_a_signal_to_the_group(cli: Cli, verb: list[str], view: str, number: int) -> None:
    process = started(cli, [*verb, "--view", view], WORK)
    os.killpg(process.pid, number)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    assert b"launcher" not in err and b"Traceback" not in err, err
    assert collected(cli)["exit_code"] == 128 + (number if number == signal.SIGQUIT else signal.SIGTERM)


@pytest.mark.both_users
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_the_second_signal_ends_a_stubborn_command(cli: Cli, verb: list[str], number: int) -> None:
    process = started(cli, verb, STUBBORN)
    os.killpg(process.pid, number)
    os.killpg(process.pid, signal.SIGTERM)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    assert collected(cli)["exit_code"] == 128 + signal.SIGKILL


@pytest.mark.both_users
def test_no_command_outlives_the_grace_period(cli: Cli) -> None:
    process = started(cli, RUN, STUBBORN)
    os.killpg(process.pid, signal.SIGTERM)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert collected(cli)["exit_code"] == 128 + signal.SIGKILL


@pytest.mark.both_users
def test_a_command_that_heeds_ctrl_c_ends_as_it_likes(cli: Cli) -> None:
    script = "trap 'exit 7' TERM; echo done > report; echo ready; sleep 1000 & wait"
    process = started(cli, EXEC, script)
    os.killpg(process.pid, signal.SIGINT)
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 7, err
    assert collected(cli)["exit_code"] == 7


@pytest.mark.both_users
def test_a_signal_that_is_ignored_stays_ignored(cli: Cli) -> None:
    """nohup(1)."""
    script = "echo done > report; echo ready; read line < ../go; echo more >> report"
    os.mkfifo(cli.place.root / "go")
    tick()
    process = subprocess.Popen(
        ["nohup", *MUDROOM, "exec", "--fork", "a", "--read", str(cli.place.root / "go"), "--", "sh", "-c", script],
        cwd=cli.place.project,
        env=cli.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    (cli.place.root / "go").write_text("\n")
    _out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


@pytest.mark.both_users
def test_timeout_around_it(cli: Cli) -> None:
    """As a script has it: GNU timeout signals mudroom, then the group that it is in."""
    words = ["timeout", "2", *MUDROOM, "run", "--json", "--yes", "--", "sh", "-c", "echo done > report; sleep 1000"]
    tick()
    done = subprocess.run(
        words, cwd=cli.place.project, env=cli.environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert done.returncode == 124, done.stderr
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["applied"]) == (128 + signal.SIGTERM, None)
    collected(cli)


@pytest.mark.both_users
def test_a_terminal_that_closes(cli: Cli, verb: list[str]) -> None:
    screen = Screen(cli.place, *MUDROOM, *verb, "--", "sh", "-c", WORK)
    screen.expect("ready")
    os.close(screen.master)
    assert screen.wait() == 128 + signal.SIGHUP
    collected(cli)


@pytest.mark.both_users
@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_a_terminal_that_has_gone_without_a_signal(cli: Cli) -> None:
    """In the background nothing tells it of the end of its terminal: every write to it fails."""
    place, done = cli.place, cli.place.root / "done"
    os.mkfifo(done)
    words = " ".join([*MUDROOM, "run", "--yes", "--", "sh", "-c", "'echo done > report; echo ready; cat'"])
    script = f"set -m; trap '' HUP; ({words} < {done}; echo $? > {place.root}/code; echo > {done}2) & wait"
    os.mkfifo(f"{done}2")
    screen = Screen(place, BASH, "-c", script)
    with done.open("wb", buffering=0) as release:
        screen.expect("ready")
        os.close(screen.master)
        release.write(b"lost\n")
    Path(f"{done}2").read_text()
    assert (place.root / "code").read_text() == "0\n"
    (event,) = events(cli, "run")
    assert event["data"]["exit_code"] == 0
    assert (place.project / "report").read_text() == "done\n"


@pytest.mark.both_users
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_after_sigkill_the_next_command_collects_it_and_says_so(cli: Cli, verb: list[str], view: str) -> None:
    process = started(cli, [*verb, "--view", view], WORK)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    (fork,) = [path.parent.name for path in cli.place.state.glob("vaults/*/forks/*/running")]
    said = cli("run", "--", "true").stderr
    words = f"sh -c '{WORK}'"[: MOST_CHARACTERS - 1]
    assert said.splitlines()[0] == (
        f"note: mudroom was killed while `{words}…` ran in {fork}; collected: 1 change (mudroom diff {fork})"
    )
    assert cli("run", "--", "true").stderr == "true changed nothing\n"
    (event,) = events(cli, "recover")
    assert event["data"]["changed"] == 1
    assert f"mudroom was killed while the last command ran in {fork}" in cli("policy", "why", "--fork", fork).stderr
    assert cli("policy", "why").stdout == "nothing was refused to: true\n"
    assert "+done" in cli("diff", fork).stdout


BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_two_signals_at_once_are_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes to all of the terminal, and the end of who has started us comes with it: nothing is said of that."""
    complaints: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: complaints.append(what.exc_value))
    for number in BOTH:
        signal.signal(number, background._interrupt)
    signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
    for number in BOTH:
        signal.pthread_kill(threading.get_ident(), number)  # to this thread: another one does not block it
    with pytest.raises(KeyboardInterrupt):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
    for number in BOTH:
        signal.raise_signal(number)
    assert complaints == []


class Waiting:
    """A session, as far as ``command_signals`` looks at it."""

    def __init__(self, *, running: bool, has_run: bool, is_asking: bool = False) -> None:
        self.running, self.told = running, 0
        self.sandboxes, self.approval = SimpleNamespace(has_run=has_run), SimpleNamespace(is_asking=is_asking)

    def interrupt(self, _number: int) -> bool:
        self.told += 1
        return self.running


@pytest.mark.parametrize(
    ("running", "has_run", "is_asking"),
    [(True, True, False), (False, True, False), (False, False, True), (False, False, False)],
)
def test_who_hears_of_it(running: bool, has_run: bool, is_asking: bool) -> None:
    """A command that runs or has run, and one that asks. Before that it ends mudroom."""
    session = Waiting(running=running, has_run=has_run, is_asking=is_asking)
    ends = contextlib.nullcontext() if has_run or is_asking else pytest.raises(KeyboardInterrupt)
    with ends, command_signals(cast(Session, session)):
        signal.raise_signal(signal.SIGINT)
    assert session.told == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_launcher_that_is_coming_up_hears_nothing(
    number: int, place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(10):
        client = LauncherClient(SpawnedLauncher())
        client.start()
        os.kill(client.launcher.require_pid(), number)
        script = "trap 'exit 7' INT; kill -INT $$; exit 8"  # a command is asked to end all the same
        plan = Plan(0, (b"", b"", False), (("cwd", b"/"),))
        shell = [b"/bin/sh", b"-c", script.encode()]
        running = client.run(plan, Invocation(shell, {b"PATH": b"/usr/bin:/bin"}, (0, 1, 2)))
        assert running.wait().status == 7 << 8
        client.close()
    assert capfd.readouterr().err == ""
