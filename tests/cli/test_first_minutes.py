"""The first minutes of a new user: wrong words, wrong files, and what is left behind. Whole processes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess

import pytest

import forked
from conftest import Place
from mudroom.core.registry import is_installed
from mudroom.core.retention import retention_limits
from mudroom.errors import UsageError
from mudroom.policy.config import KEEPS_ALL
from mudroom.session.project_session import open_project
from test_vault_verb import Cli

BROKEN = "comands: {}\n"
FAULT = "policy.yaml:1: there is no setting comands (did you mean commands?)"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/a", "1\n2\n")
    place.write("b", "1\n")
    return Cli(place)


def test_a_broken_policy_stops_no_look_back(cli: Cli) -> None:
    """Verbs that show, take back or throw away say the fault in one line. Those that run and apply do not go on."""
    cli("exec", "--fork", "x", "--", "rm", "-r", "src")
    assert cli("run", "--yes", "--", "sh", "-c", "echo 2 >> b").returncode == 0
    cli.place.write(".mudroom/policy.yaml", BROKEN)
    problems = []
    for line in (
        "",
        "status",
        "ls",
        "fork ls",
        "log",
        "diff x",
        "ps",
        "approve",
        "undo",
        "redo",
        "recover",
        "discard x",
    ):
        done = cli(*line.split())
        notes = [row for row in done.stderr.splitlines() if row.startswith("note: ")]
        told = [] if line == "log" else [f"note: the policy is not in force: {cli.place.project}/.mudroom/{FAULT}"]
        if (done.returncode, notes) != (0, told):
            problems.append((line, done.returncode, done.stderr))
    assert problems == []
    for line in ("run --yes -- true", "exec -- true", "apply x --yes"):
        done = cli(*line.split())
        assert (done.returncode, FAULT in done.stderr) == (125, True), line


def test_nothing_is_removed_by_the_limits_of_a_policy_that_cannot_be_read(cli: Cli) -> None:
    """The defaults may be smaller than those of the policy."""
    environ = {os.fsencode(name): os.fsencode(value) for name, value in cli.environment.items()}
    cli.place.write(".mudroom/policy.yaml", "keep: {applies: 600}\n" + BROKEN)
    project = os.fsencode(os.path.realpath(cli.place.project))
    with pytest.raises(UsageError):
        open_project(project, environ)
    notes: list[str] = []
    with open_project(project, environ, note=notes.append, needs_policy=False) as session:
        limits = retention_limits(session.actor.settings)
        assert min(limits) > 10**15 and len(notes) == 1
        with session.alone("mudroom undo", lambda _holder: None, lambda: None):
            pass
        assert session.forks.unsaid() == []
    with open_project(project, environ, reads_policy=False) as session:
        assert session.actor.settings == KEEPS_ALL, "a list of events collects nothing without the names of the secrets"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_fork_that_changed_nothing_is_not_left(cli: Cli) -> None:
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=cli.place.project, check=True)
    os.utime(cli.place.project / "b", (1, 1))  # git status refreshes the index
    for line in ("run --yes -- git status", "exec -- ls", "exec --json -- git status", "exec --quiet -- true"):
        assert cli(*line.split()).returncode == 0
        assert cli.json("ls")["forks"] == [], line
    told = cli("exec", "--", "rm", "b").stderr
    (name,) = [row["fork"] for row in cli.json("ls")["forks"]]
    assert f"kept as {name}: mudroom diff {name}, mudroom apply {name}, mudroom discard {name}\n" in told
    assert cli("discard", name).returncode == 0
    assert cli("exec", "--fork", "mine", "--", "true").returncode == 0
    assert [row["fork"] for row in cli.json("ls")["forks"]] == ["mine"], "a named fork is its user's"


WRONG = {
    "npm install": "did you mean: mudroom run -- npm install",
    "sh -c 'a b' --": "did you mean: mudroom run -- sh -c 'a b'",
    "'npm install'": "did you mean: mudroom run -- npm install",
    "statsu": "did you mean mudroom status?",
    "help statsu": "did you mean mudroom status?",
    "zzzz": "mudroom --help lists the verbs; a command of your own: mudroom run -- COMMAND",
    "run -- 'no-such x'": "no-such x: command not found (its words stand apart: mudroom run -- no-such x)",
    "run -- 'ls; date'": "ls; date: command not found (a line of a shell: mudroom run -- sh -c 'ls; date')",
    "run -- 'A=1 make'": "A=1 make: command not found (a line of a shell: mudroom run -- sh -c 'A=1 make')",
    "exec -- 'ls | wc'": "ls | wc: command not found (a line of a shell: mudroom run -- sh -c 'ls | wc')",
    "'npm test && date'": "did you mean: mudroom run -- sh -c 'npm test && date'",
    "'ls; date'": "did you mean: mudroom run -- sh -c 'ls; date'",
    "run --env NOSUCH -- true": "--env NOSUCH: your environment has no such variable (--env NAME=VALUE sets one)",
    "exec --show nosuch -- true": "--show nosuch: the project has no such file",
    "exec --show config/.env -- true": "--show config/.env: the project has no such file",
    "diff --stat --conflicts": "--stat is not for --commits and --conflicts",
    "apply f --branch b": "--branch is for --commits (mudroom apply FORK --commits --branch NAME)",
    "apply f -m text": "-m is for --commit (mudroom apply FORK --commit -m TEXT)",
}


def test_wrong_words_name_the_right_ones(cli: Cli) -> None:
    program = cli.place.home / "bin" / "npm"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    cli.environment["PATH"] = f"{program.parent}:{cli.environment['PATH']}"
    for line, told in WRONG.items():
        done = cli(*shlex.split(line))
        assert done.returncode in (125, 127), line
        assert told in done.stderr, (line, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert cli("exec", "--show", ".env", "--", "true").returncode == 0, "a name of secrets may be in any directory"


def test_help_of_a_verb(cli: Cli) -> None:
    assert cli("help", "diff").stdout == cli("diff", "--help").stdout
    assert cli("help").stdout == cli("--help").stdout
    assert cli("help", "--all").stdout == cli("--help", "--all").stdout
    assert cli("help", "run", "--all").stdout == cli("run", "--help", "--all").stdout


def test_mudroom_alone_says_what_waits(cli: Cli) -> None:
    done = cli()
    assert done.returncode == 0
    assert "mudroom has not been used here" in done.stdout and "mudroom run -- " in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80, "the path has a line of its own"
    assert not (cli.place.state / "vaults").exists(), "a look makes nothing"
    cli.place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: require_approval}}\n")
    cli("run", "--yes", "--", "sh", "-c", "echo 2 >> b")
    cli("exec", "--fork", "f", "--", "touch", "new")
    cli("exec", "--fork", "f", "--", "rm", "-rf", "src")
    told = cli().stdout
    look = "mudroom review f" if is_installed("tui") else "mudroom diff f"
    for words in ("1 question of agents waits", "mudroom approve", "1 fork, not applied", look, "u1"):
        assert words in told, told
    assert max(map(len, told.splitlines()[2:])) <= 80
    assert cli("status").stdout == told and cli("--json").stdout == cli("status", "--json").stdout
    for verb in ("undo", "discard f"):
        assert f"  mudroom {verb} " in told
        assert cli(*verb.split()).returncode == 0


def test_the_reason_of_a_refusal_comes_first(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: deny}}\n")
    done = cli("exec", "--", "sh", "-c", f"echo {'a' * 500}; rm -rf src")
    assert done.returncode == 126
    assert done.stderr.startswith("mudroom: refused: "), done.stderr
    assert len(done.stderr) < 300 and "…" in done.stderr


def test_a_command_without_time_has_one_exit_code(cli: Cli) -> None:
    done = cli("run", "--keep", "--timeout", "0.2s", "--", "sh", "-c", "echo x > new; sleep 60")
    assert done.returncode == 124
    (run,) = list(map(json.loads, cli("log", "--json").stdout.splitlines()))
    assert (run["data"]["exit_code"], run["data"]["timed_out"]) == (124, True)


def test_an_apply_of_nothing_does_not_ask(cli: Cli) -> None:
    cli("exec", "--fork", "x", "--", "true")
    code, shown = cli.answer("[c]ancel", "\x03", "apply", "x")
    assert (code, shown) == (125, "mudroom: the fork x holds no changes (mudroom discard x removes it)\n")


@pytest.mark.parametrize("words", [("apply", "x"), ("run", "--", "sh", "-c", "echo > new")])
def test_ctrl_c_at_the_question_of_an_apply(cli: Cli, words: tuple[str, ...]) -> None:
    cli("exec", "--fork", "x", "--", "touch", "other")
    code, shown = cli.answer("[c]ancel", "\x03", *words)
    assert code == 130, shown
    if words[0] == "apply":
        assert "interrupted: nothing was applied; x is as it was" in shown
    assert "nothing was applied" in shown
    assert sorted(os.listdir(cli.place.project)) == ["b", "src"]


def test_the_log_says_what_it_leaves_out(cli: Cli) -> None:
    with cli.place.session() as session:
        for number in range(24):
            session.vault.journal.append("discard" if number % 2 else "fork", "f", {}, time=number)
    assert cli("log").stderr == "4 earlier events not shown (-n 0 shows all)\n"
    assert cli("log", "-n", "0").stderr == cli("log", "-n", "3").stderr == cli("log", "--kind", "discard").stderr == ""


def test_a_difference_in_numbers(cli: Cli) -> None:
    cli("exec", "--fork", "x", "--", "sh", "-c", "echo 3 >> src/a; rm b; echo n > new")
    assert cli("diff", "x", "--stat").stdout.splitlines() == [
        " b     | +0 -1  deleted", " new   | +1 -0  added", " src/a | +1 -0", " 3 files changed, +2 -1",
    ]  # fmt: skip
    assert cli("diff", "x", "src", "--stat").stdout.splitlines()[-1] == " 1 file changed, +1 -0"


def test_a_run_whose_output_nobody_reads_leaves_no_fork_that_was_not_wanted(cli: Cli) -> None:
    """Changes of --no go also where they could not be shown, and a fork without changes goes always. A message names no
    fork that is gone."""
    change, nothing = "echo said; rm b", "echo said"
    reader, closed = os.pipe()
    os.close(reader)
    full, null = os.open("/dev/full", os.O_WRONLY), subprocess.PIPE
    for words, script, streams, left, end in (
        (("--no",), change, (full, null), 0, "are thrown away"),
        ((), nothing, (full, null), 0, "has changed nothing"),
        (("--no",), change, (closed, closed), 0, ""),
        (("--no",), nothing, (null, full), 0, ""),
        ((), change, (full, null), 1, "are in the fork"),
    ):
        line = ["run", *words, "--", "sh", "-c", script]
        done = forked.run(
            line,
            cwd=cli.place.project,
            env=cli.environment,
            stdin=subprocess.DEVNULL,
            stdout=streams[0],
            stderr=streams[1],
        )
        case, forks = (words, script, streams, done), [row["fork"] for row in cli.json("ls")["forks"]]
        assert len(forks) == left, case
        if end:
            assert end in done.stderr and "No space left on device" in done.stderr, case
            named = {word.strip(";,") for word in done.stderr.split() if word.startswith("run-")}
            assert named == set(forks), case
    os.close(full)
    os.close(closed)


def test_readme_and_tutorial_typed_without_a_terminal(cli: Cli) -> None:
    """Nobody is asked there, so the first command of README leaves a fork; the tutorial names its own."""
    assert "kept as run-" in cli("run", "--", "rm", "b").stderr
    [kept] = [row["fork"] for row in cli.json("ls")["forks"]]
    told = cli("undo")
    assert told.returncode == 125 and f"nothing to undo in this project ({kept} is not applied yet: " in told.stderr
    assert cli("exec", "--fork", "look", "--", "sh", "-c", "echo 2 >> b").returncode == 0
    assert f"there are 2 forks (name one of: look, {kept})" in cli("diff").stderr
    assert "+2" in cli("diff", "look").stdout
    mistyped = cli("diff", "look", "src", "bb")
    assert (mistyped.stdout, mistyped.stderr) == ("", "no change at src\nno change at bb\n")
    assert cli("apply", "--yes", "look").returncode == 0 and cli("undo").returncode == 0
    assert "mudroom log shows what has happened" in cli("undo").stderr


def test_another_answer_than_offered_is_told_the_meaning_of_each(cli: Cli) -> None:
    code, shown = cli.answer("[a]pply", "?\nc\n", "run", "--", "rm", "b")
    assert code == 0 and "a: bring them into the project; c: throw them away; d: show the difference" in shown
    assert (cli.place.project / "b").exists() and cli.json("ls")["forks"] == []
