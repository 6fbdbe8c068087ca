"""Commands in the background as a user meets them: processes that hold them, others that join, and every way to end."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.sandbox.host.processes import descendants
from test_vault_verb import Cli

SERVER = "echo up; echo there > made; while :; do sleep 0.02; done"


@pytest.fixture
def cli(place: Place) -> Iterator[Cli]:
    place.write("file", "one\n")
    made = Cli(place)
    yield made
    done = made("ps", "--end", "--all", "--grace", "0.1")
    assert done.returncode == 0, done.stderr
    assert made.json("ps")["commands"] == []


def executed(cli: Cli, *words: str) -> dict[str, Any]:
    """The JSON of mudroom exec in the fork f."""
    done = cli("exec", "--fork", "f", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def started(cli: Cli, script: str = SERVER, *options: str) -> dict[str, Any]:
    row = executed(cli, "--background", *options, "--", "sh", "-c", script)
    while "up" not in cli.json("ps", "--output", row["id"])["stdout"]:
        assert listed(cli, row["id"])["state"] == "running"
    return row


def listed(cli: Cli, identity: str) -> dict[str, Any]:
    rows = cli.json("ps", "--all")["commands"]
    found: dict[str, Any] = next(row for row in rows if row["id"] == identity)
    return found


def below(keeper: int) -> set[int]:
    """The keeper and all that descends from it."""
    return set(descendants(keeper))


def ended(processes: set[int]) -> None:
    """Until they are gone; a test has its own limit of time."""
    for process in processes:
        while Path(f"/proc/{process}").exists():
            state = Path(f"/proc/{process}/stat")
            try:
                if state.read_text().rpartition(") ")[2][:1] == "Z":
                    break  # its parent is who runs the tests in a container
            except (FileNotFoundError, ProcessLookupError):
                break


def nothing_is_left(cli: Cli) -> None:
    forks = cli.place.state.glob("vaults/*/forks/*")
    assert [path.name for fork in forks for path in (fork / "background").glob("s*")] == []
    assert str(cli.place.root) not in Path("/proc/self/mountinfo").read_text()


def test_it_goes_on_while_others_run_beside_it(cli: Cli) -> None:
    row = started(cli)
    assert (row["schema"], row["fork"], row["state"]) == ("mudroom.background/1", "f", "running")
    result = executed(cli, "--", "sh", "-c", "cat made; echo x > more")
    assert result["stdout"] == "there\n"
    assert {one["path"] for one in result["changes"]["files"]} == {"made", "more"}
    shown = listed(cli, row["id"])
    assert shown["pid"] in below(row["keeper"]) and shown["memory"] > 0 and shown["processes"] >= 1
    text = cli("ps").stdout
    assert text.startswith(f"{row['id']}  f  agent  ") and f"pid {shown['pid']}" in text
    assert cli("ps", "--output", row["id"]).stdout == cli("ps", "--output", "f").stdout == "up\n"
    assert cli("ps", "f").stdout.startswith(f"{row['id']}  f  ") and "no fork" not in cli("ps", row["id"]).stderr
    assert cli("ps", "g").stderr.startswith("mudroom: there is no background command g")
    assert "+there\n" in cli("diff", "f").stdout
    processes = below(row["keeper"])
    assert len(processes) >= 4
    done = cli.json("ps", "--end", "f")
    assert [(one["id"], one["exit_code"]) for one in done["commands"]] == [(row["id"], 143)]
    assert "nothing runs" in cli("ps", "--end", "f").stderr and cli("ps", "--output", "f").stdout == "up\n"
    ended(processes)
    nothing_is_left(cli)
    assert cli.json("ps")["commands"] == []
    assert {path for path, _text in changed(cli)} == {"made", "more"}


def changed(cli: Cli) -> list[tuple[str, str]]:
    found = executed(cli, "--", "true")["changes"]["files"]
    return [(one["path"], one["change"]) for one in found]


def test_a_port_it_listens_on_is_shown(cli: Cli) -> None:
    serve = "import socket; s = socket.create_server(('127.0.0.1', 3000)); print('up', flush=True); s.accept()"
    row = executed(cli, "--background", "--", sys.executable, "-I", "-c", serve)
    while listed(cli, row["id"])["ports"] != [3000]:
        assert listed(cli, row["id"])["state"] == "running", cli("ps", "--output", row["id"]).stderr
    assert "listens on 3000 (mudroom serve, or mudroom net open 3000 --fork f)" in cli("ps").stdout


def test_a_second_one_is_held_by_the_same_process(cli: Cli) -> None:
    first, second = started(cli), started(cli, "echo up; cat made; sleep 1000")
    assert second["id"] != first["id"]
    assert listed(cli, second["id"])["keeper"] == listed(cli, first["id"])["keeper"]
    assert cli.json("ps", "--end", first["id"])["commands"][0]["exit_code"] == 143
    assert listed(cli, second["id"])["state"] == "running"
    assert executed(cli, "--", "cat", "made")["stdout"] == "there\n"


def test_a_time_limit_ends_it(cli: Cli) -> None:
    row = started(cli, "trap '' TERM; echo up; echo x > made; sleep 1000 & wait; sleep 1000", "--timeout", "4s")
    processes = below(row["keeper"])
    while listed(cli, row["id"])["state"] == "running":
        pass
    shown = listed(cli, row["id"])
    assert (shown["timed_out"], shown["signal"]) == (True, 9)
    assert f"  ended with {shown['exit_code']}, out of time" in cli("ps", "--all").stdout
    ended(processes)
    nothing_is_left(cli)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_its_keeper_is_the_end_of_all(cli: Cli, number: signal.Signals) -> None:
    row = started(cli, "(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); " + SERVER)
    processes = below(row["keeper"])
    os.kill(row["keeper"], number)
    ended(processes)
    shown = listed(cli, row["id"])
    assert shown["state"] == "ended" and shown["exit_code"] in (137, 143)
    assert ("made", "added") in changed(cli)
    nothing_is_left(cli)


def test_its_keeper_heeds_a_signal_of_which_another_thread_is_told(cli: Cli) -> None:
    """As of one that comes just before it waits: no wait of the main thread is ended by it (signal(7))."""
    row = started(cli)
    processes = below(row["keeper"])
    others = [
        int(thread.name)
        for thread in Path(f"/proc/{row['keeper']}/task").iterdir()
        if int(thread.name) != row["keeper"] and "SigBlk:\t0000000000000000" in (thread / "status").read_text()
    ]
    assert others, "the tender"
    assert ctypes.CDLL(None, use_errno=True).tgkill(row["keeper"], others[0], signal.SIGTERM) == 0
    ended(processes)
    assert listed(cli, row["id"])["state"] == "ended"
    nothing_is_left(cli)


def test_discard_and_rollback_refuse_or_end_it(cli: Cli) -> None:
    started(cli)
    cli("checkpoint", "p", "--fork", "f")
    for words in (("discard", "f"), ("rollback", "p", "--fork", "f", "--yes"), ("apply", "f", "--yes")):
        done = cli(*words)
        assert done.returncode == 125 and "is running in the background of the fork f" in done.stderr, done
    assert cli("rollback", "p", "--fork", "f", "--yes", "--end").returncode == 0
    row = started(cli)
    processes = below(row["keeper"])
    assert cli("discard", "f", "--end").returncode == 0
    ended(processes)
    assert cli("ls").stderr == "no forks\n"
    nothing_is_left(cli)


def test_the_policy_may_refuse_the_background(cli: Cli) -> None:
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.parent.mkdir()
    policy.write_text("commands:\n  background: deny\n")
    done = cli("exec", "--fork", "f", "--background", "--", "sleep", "1000")
    assert done.returncode == 126 and "background" in done.stderr, done
    assert cli("exec", "--fork", "f", "--", "true").returncode == 0


def test_what_goes_wrong_is_said_by_who_asked(cli: Cli) -> None:
    done = cli("exec", "--fork", "no/such/name", "--background", "--", "true")
    assert done.returncode == 125 and "cannot be the name of a fork" in done.stderr
    assert cli("exec", "--background", "--stream", "--json", "--", "true").returncode == 125
    assert cli("ps", "--end").returncode == 125
    assert "there is no background command nothing" in cli("ps", "--output", "nothing").stderr
    cli("fork", "new", "quiet")
    for words in (("ps", "--output"), ("ps", "--end"), ("ps",)):
        assert "the fork quiet has no background command (mudroom ps --all" in cli(*words, "quiet").stderr
    row = executed(cli, "--background", "--", "no-such-program")
    while listed(cli, row["id"])["state"] == "running":
        pass
    assert listed(cli, row["id"])["exit_code"] == 127


def test_it_keeps_nothing_of_its_caller(cli: Cli) -> None:
    """Whoever waits for the end of its pipes is not kept waiting, and its group can be ended without it."""
    words = ["exec", "--fork", "f", "--background", "--json", "--", "sh", "-c", SERVER]
    caller = cli.start(*words, start_new_session=True)
    row = json.loads(caller.communicate(timeout=60)[0])
    for process in below(row["keeper"]):
        assert os.getsid(process) != caller.pid
    assert os.readlink(f"/proc/{row['keeper']}/cwd") == "/"
    descriptors = {os.readlink(f"/proc/{row['keeper']}/fd/{number}") for number in range(3)}
    assert descriptors == {"/dev/null"}


def test_output_comes_as_lines_of_json(cli: Cli) -> None:
    script = "echo one; printf '\\377'; sleep 0.05; echo two >&2; exit 3"
    done = cli("exec", "--json", "--stream", "--", "sh", "-c", script)
    assert done.returncode == 3
    *rows, result = map(json.loads, done.stdout.splitlines())
    assert {row["schema"] for row in rows} == {"mudroom.output/1"}
    assert rows[-1] == {"schema": "mudroom.output/1", "stream": "stderr", "data": "two\n"}
    assert any(row.get("data_base64") for row in rows)
    assert result["schema"] == "mudroom.result/1" and result["exit_code"] == 3
    assert cli("exec", "--stream", "--", "true").returncode == 125


def test_a_command_in_the_foreground_is_listed(cli: Cli) -> None:
    words = ["exec", "--fork", "f", "--", "sh", "-c", "echo up; read word"]
    with cli.start(*words, stdin=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        rows = cli.json("ps")["commands"]
        assert [(row["fork"], row["state"], row["command"]) for row in rows] == [
            ("f", "foreground", ["sh -c 'echo up; read word'"])
        ]
        assert cli("ps").stdout.startswith("-         f  ")
        running.communicate(b"go\n", timeout=60)


def asking(cli: Cli, *words: str) -> subprocess.Popen[str]:
    """Mudroom asked for the background, as a shell has it: a process group of its own."""
    return cli.start(
        "exec", "--fork", "g", *words, "--background", "--", "sleep", "1000", text=True, start_new_session=True
    )


def has_to_be_approved(cli: Cli) -> None:
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.parent.mkdir()
    policy.write_text("commands:\n  background: require_approval\n")


def waiting(cli: Cli) -> list[str]:
    return [row["id"] for row in cli.json("approve")["approvals"] if row["state"] == "waiting"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_started_for_who_has_gone(cli: Cli, number: signal.Signals) -> None:
    has_to_be_approved(cli)
    with asking(cli, "--ask", "queue") as caller:
        while not waiting(cli):
            assert caller.poll() is None
        processes = below(caller.pid)
        assert len(processes) > 1
        caller.send_signal(number)
        caller.wait()
        ended(processes)
        caller.communicate()
    assert waiting(cli) == []
    assert cli.json("ps", "--all")["commands"] == []


def test_who_interrupts_it_is_told_so_and_no_more(cli: Cli) -> None:
    has_to_be_approved(cli)
    with asking(cli, "--ask", "queue") as caller:
        while not waiting(cli):
            assert caller.poll() is None
        processes = below(caller.pid)
        os.killpg(caller.pid, signal.SIGINT)
        _out, said = caller.communicate()
        ended(processes)
    assert caller.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    assert cli.json("ps", "--all")["commands"] == []


def test_its_end_is_found_by_who_waits_for_it_when_its_keeper_is_killed(cli: Cli) -> None:
    row = started(cli, "trap '' TERM; " + SERVER)
    words = ["ps", "--end", row["id"], "--grace", "1000"]
    with cli.start(*words) as waiter:
        os.kill(row["keeper"], signal.SIGKILL)
        assert waiter.wait(60) in (0, 125)
        waiter.communicate()
    assert listed(cli, row["id"])["exit_code"] == 137


def test_a_variable_is_in_no_command_line(cli: Cli) -> None:
    """Every user can read one, and the process lives as long as the command."""
    words = ("--env", "FIRST=s3cret", "--env=SECOND=hidden=too", "--env", "EMPTY=")
    cli.environment["PYTHONUNBUFFERED"] = ""  # it is started as a program, which has a command line of its own
    row = started(cli, "echo up $FIRST $SECOND; " + SERVER, *words)
    said = cli.json("ps", "--output", row["id"])["stdout"]
    assert said.startswith("up s3cret hidden=too\n")
    keeper = next(pid for pid in others() if b"FIRST=" in line_of(pid))
    line = line_of(keeper)
    assert b"s3cret" not in line and b"hidden" not in line
    assert b"--env\0FIRST=******\0--env=SECOND=**********\0" in line and b"--background" in line


def others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def line_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
