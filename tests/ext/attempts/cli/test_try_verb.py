"""``mudroom try`` as a user meets it: its output, its exit codes, and what is left after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

import forked
from clocks import give_way
from conftest import Place
from mudroom.cli.main import run
from test_vault_verb import Cli

LONG = str(8_000_000 + os.getpid())
"""Seconds that only the commands of this process sleep, by which they are found."""


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def sleeping() -> int:
    """Return the number of processes of this test that sleep."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    count += stream.read().split(b"\0")[:2] == [b"sleep", LONG.encode()]
            except OSError:
                continue
    return count


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        give_way()


def begun(cli: Cli, *words: str) -> subprocess.Popen[str]:
    return forked.popen(
        ["try", *words], cwd=cli.place.project, env=cli.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def tried(cli: Cli, name: str = "t1") -> dict[str, Any]:
    return cli.json("try", "show", name)


def test_from_the_try_to_the_apply(cli: Cli) -> None:
    done = cli("try", "-n", "4", "--judge", "grep -q 3 n", "--", "sh", "-c", "echo {i} > n; echo $MUDROOM_ATTEMPT > m")
    assert done.returncode == 0, done.stderr
    heading, titles, first, *_others, last = done.stdout.splitlines()
    assert "4 attempts, 1 passed, 4 different" in heading
    assert titles.split() == ["#", "state", "judge", "changes", "time", "fork"]
    assert first.split()[:4] == ["*", "3", "passed", "0"]
    assert "3: passed, judge 0, 2 files, 2 lines" in done.stderr
    assert not (cli.place.project / "n").exists()
    assert last.startswith("mudroom diff t1-3, ")
    assert "+3" in cli("diff", "t1-3").stdout
    assert cli("apply", "--yes", "t1-3").returncode == 0
    assert (cli.place.project / "m").read_text() == "3\n"
    assert "best t1-3" in cli("try", "ls").stdout
    assert "discarded: t1-1, t1-2, t1-4" in cli("try", "discard", "t1").stderr
    assert cli.json("ls")["forks"] == []
    assert "try" in cli("log").stdout
    assert cli("try", "discard", "--all", "t1").returncode == 0
    assert "no tries" in cli("try", "ls").stderr


def test_a_best_without_a_fork(cli: Cli) -> None:
    assert cli("try", "-n", "2", "--judge", "true", "--", "true").returncode == 0
    assert ": the best, attempt 1, has no fork\n" in cli("try", "ls").stdout


def test_json(cli: Cli) -> None:
    done = cli("try", "--json", "-n", "2", "--score", "json", "--judge", "cat n", "--", "sh", "-c", "echo {i} > n")
    report = json.loads(done.stdout)
    assert (report["schema"], report["try"], report["best"], report["best_fork"]) == ("mudroom.try/1", "t1", 2, "t1-2")
    assert [(row["number"], row["score"], row["judged"]) for row in report["attempts"]] == [(2, 2, 0), (1, 1, 0)]
    shown = tried(cli)
    assert {key: shown[key] for key in report} == report
    assert [row["try"] for row in cli.json("try", "ls")["tries"]] == ["t1"]
    assert [row["number"] for row in cli.json("try", "show", "t1", "1")["attempts"]] == [1]
    assert cli.json("try", "discard", "t1") == {"schema": "mudroom.discarded/1", "forks": ["t1-1"], "kept": ["t1-2"]}


@pytest.mark.deep
def test_one_attempt_with_the_report_of_its_judge(cli: Cli) -> None:
    cli("try", "-n", "1", "--judge", "echo why \x1b; exit 4", "--", "sh", "-c", "echo a > a")
    shown = cli("try", "show", "t1", "1").stdout
    assert "1: failed, judge 4, 1 file, 1 line" in shown
    assert "why" in shown and "\x1b" not in shown


@pytest.mark.deep
def test_ties_and_equal_results_are_said(cli: Cli) -> None:
    done = cli("try", "-n", "4", "--", "sh", "-c", "echo $(({i} % 2)) > a")
    assert "same result: 3" in done.stdout and "same result: 4" in done.stdout
    assert "a tie: 2 with another result" in done.stdout


@pytest.mark.deep
def test_a_union_is_offered(cli: Cli) -> None:
    judge = "test -e made1 && test -e made2"
    done = cli("try", "-n", "2", "--combine", "--judge", judge, "--", "sh", "-c", "echo > made{i}")
    assert done.returncode == 0
    assert "union of 1, 2" in done.stdout
    assert tried(cli)["combined"] == "t1-union"
    assert cli("apply", "--yes", "t1-union").returncode == 0
    assert (cli.place.project / "made2").exists()


WRITTEN: list[tuple[tuple[str, ...], int, str]] = [
    ((), 125, "no command was given"),
    (("-n", "8"), 125, "no command was given"),
    (("-n", "8", "--"), 125, "no command was given"),
    (("-n", "8", "make", "test"), 125, "there is no action 'make'"),
    (("x", "--", "true"), 125, "x stands before the command"),
    (("-n", "0", "--", "true"), 125, "no attempts"),
    (("-n", "-1", "--", "true"), 125, "-n"),
    (("-n", "1001", "--", "true"), 125, "1,001 attempts"),
    (("-n", "999999999999", "--", "true"), 125, "attempts are more"),
    (("-n", "two", "--", "true"), 125, "-n 'two' is not a whole number"),
    (("--jobs", "0", "--", "true"), 125, "--jobs 0"),
    (("--until", "0", "--", "true"), 125, "--until 0"),
    (("--budget", "soon", "--", "true"), 125, "not a time"),
    (("--judge", "", "--", "true"), 125, "the judge is empty"),
    (("--judge", "echo 'x", "--", "true"), 125, "close the quote"),
    (("--score", "best", "--", "true"), 125, "choose from exit, json, -lines"),
    (("--score", "json", "--", "true"), 125, "printed by a judge"),
    (("--combine", "--", "true"), 125, "chosen by a judge"),
    (("--agent", "a", "--ask", "terminal", "--", "true"), 125, "cannot share the terminal"),
    (("--from", "nobody", "--", "true"), 125, "no fork named nobody"),
    (("show",), 125, "try show takes"),
    (("show", "t9"), 125, "there is no try named t9"),
    (("show", "../x"), 125, "there is no try named"),
    (("discard", "t9"), 125, "there is no try named t9"),
    (("discard", "t1", "t2"), 125, "try discard takes"),
    (("--", "false"), 1, "no attempt has passed"),
    (("--", "no-such-program"), 1, "no-such-program"),
    (("--judge", "no-such-judge", "--", "true"), 1, "the judge cannot be run"),
    (("--judge", "no-such-judge 2>&1", "--", "true"), 1, "a command in it does not exist"),
    (("--budget", "1s", "-n", "2", "--", "sleep", LONG), 124, "the budget was used up"),
]


def test_what_strangers_write(cli: Cli, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, which is quicker."""
    environ = {os.fsencode(name): os.fsencode(value) for name, value in cli.environment.items()}
    for words, code, text in WRITTEN:
        ended = run(["try", "--project", str(cli.place.project), *words], environ)
        out, errors = capfd.readouterr()
        assert (ended, text in errors + out) == (code, True), (words, errors, out)
        assert not list(cli.place.state.glob("vaults/*/forks/*")), words


@pytest.mark.deep
def test_a_missing_checkpoint_and_one_that_is_there(cli: Cli) -> None:
    cli("exec", "--fork", "f", "--", "sh", "-c", "echo parent > parent")
    assert "no checkpoint" in cli("try", "--from", "f@x", "--", "true").stderr
    cli("checkpoint", "x", "--fork", "f")
    done = cli("try", "-n", "2", "--from", "f@x", "--", "sh", "-c", "cat parent > copy{i}")
    assert done.returncode == 0, done.stderr
    assert "from f@x" in done.stdout and "1 file, 1 line" in done.stdout


@pytest.mark.deep
def test_outside_of_any_project(cli: Cli) -> None:
    """The home is none."""
    done = cli("try", "--", "true", cwd=cli.place.home)
    assert done.returncode == 125
    assert "Traceback" not in done.stderr


def test_an_agents_command_that_the_policy_refuses(cli: Cli) -> None:
    done = cli("try", "-n", "2", "--agent", "bot", "--ask", "never", "--", "sudo", "reboot")
    assert done.returncode == 1
    assert "refused" in done.stdout
    assert [row["state"] for row in tried(cli)["attempts"]] == ["refused", "refused"]
    assert cli.json("ls")["forks"] == []


def test_a_question_ends_with_its_fork(cli: Cli) -> None:
    """A question that nobody waits for ends with its fork, also with that of an attempt that never ran."""
    dangerous = ("--agent", "coder", "--", "sudo", "rm", "-rf", "/")
    assert cli("exec", "--fork", "mine", *dangerous).returncode == 126
    assert cli("exec", "--fork", "mine", "--", "sh", "-c", "echo 1 > n").returncode == 0
    assert cli("exec", "--fork", "other", *dangerous).returncode == 126
    assert cli("try", "-n", "2", *dangerous).returncode == 1
    assert "4 questions of agents wait for your answer" in cli().stdout
    assert cli("try", "discard", "t1").returncode == 0
    assert "2 questions of agents wait for your answer" in cli().stdout
    assert cli("discard", "mine").returncode == 0
    left = [row for row in cli.json("approve")["approvals"] if row["state"] == "waiting"]
    assert [row["fork"] for row in left] == ["other"]  # made by the command, once it is allowed
    assert "1 question of agents waits for your answer" in cli().stdout


@pytest.mark.deep
def test_the_verification_of_the_policy_still_decides_the_apply(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "verify: {command: test -e never, when: always}\n")
    assert cli("try", "-n", "1", "--judge", "true", "--", "sh", "-c", "echo a > a").returncode == 0
    assert cli("apply", "--yes", "t1-1").returncode == 5
    assert not (cli.place.project / "a").exists()


def test_ctrl_c_ends_all_and_keeps_what_has_ended(cli: Cli) -> None:
    script = f"echo x > x{{i}}; test {{i}} = 1 || exec sleep {LONG}"
    child = begun(cli, "-n", "5", "--jobs", "3", "--", "sh", "-c", script)
    until(lambda: sleeping() >= 3)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "it was interrupted" in out and "mudroom try show t1" in out
    assert sleeping() == 0
    states = [row["state"] for row in tried(cli)["attempts"]]
    assert states[0] == "passed" and set(states[1:]) == {"ended early", "not started"}
    assert cli.json("diff", "t1-1")["changes"]


@pytest.mark.deep
def test_a_second_ctrl_c_kills_what_does_not_end(cli: Cli) -> None:
    child = begun(cli, "-n", "1", "--", "sh", "-c", f"trap '' TERM; while :; do sleep {LONG}; done")
    until(lambda: sleeping() >= 1)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode in (130, 143)
    assert sleeping() == 0


@pytest.mark.deep
def test_the_third_ctrl_c_does_not_wait_for_another_process(cli: Cli) -> None:
    other = forked.popen(
        ["run", "--keep", "--", "sleep", LONG], cwd=cli.place.project, env=cli.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: sleeping() == 1)
    child = begun(cli, "-n", "1", "--", "sh", "-c", "echo > a")
    until(lambda: list(cli.place.state.glob("vaults/*/forks/t1-1")))
    while child.poll() is None:
        child.send_signal(signal.SIGINT)  # several may be taken for one
        os.sched_yield()
    child.communicate(timeout=60)
    assert child.returncode == 130
    other.terminate()
    other.communicate(timeout=60)
    assert [row["state"] for row in tried(cli)["attempts"]] in (["interrupted"], ["not started"])


def test_after_a_kill_the_record_says_so_and_the_forks_are_kept(cli: Cli) -> None:
    child = begun(cli, "-n", "3", "--jobs", "2", "--", "sh", "-c", f"echo {{i}} > n; exec sleep {LONG}")
    until(lambda: sleeping() >= 2)
    running = cli("try", "show", "t1").stdout
    assert "running" in running
    assert "is running" in cli("try", "discard", "t1").stderr
    assert "running in the fork" in cli("discard", "t1-1").stderr
    child.kill()
    child.communicate(timeout=60)
    until(lambda: sleeping() == 0)
    shown = cli("try", "show", "t1").stdout
    assert "mudroom was killed while it ran" in shown
    assert [row["state"] for row in tried(cli)["attempts"]].count("interrupted") == 2
    assert "+1" in cli("diff", "t1-1").stdout
    assert "t1-2" in cli("try", "discard", "t1").stderr
    assert cli.json("ls")["forks"] == []


@pytest.mark.deep
def test_a_damaged_record_is_listed_and_can_be_removed(cli: Cli) -> None:
    cli("try", "-n", "1", "--", "sh", "-c", "echo a > a")
    (record,) = cli.place.state.glob("vaults/*/attempts/t1/record")
    record.write_bytes(b"\xc1")
    assert "t1: its record is damaged" in cli("try", "ls").stdout
    done = cli("try", "show", "t1")
    assert done.returncode == 125 and "is damaged" in done.stderr
    assert cli("try", "discard", "--all", "t1").returncode == 0
    assert "no tries" in cli("try", "ls").stderr
    assert [row["fork"] for row in cli.json("ls")["forks"]] == ["t1-1"]
